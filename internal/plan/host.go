package plan

import (
	"fmt"
	"sort"
	"strings"
)

// A tier is one engine's way to keep KV in host memory.
type tier interface {
	// size fills the host tier of one rank for one value of the engine's own setting.
	size(setting int64) Host
	// settings is the range of values to choose from when none is given, and how one reads.
	limits() (lo, hi int64)
}

// host sizes the host tier of a role and judges it.
func (b *bench) host(r *Role, st settings, shapes []shape) {
	t, explicit, ok := b.tierFor(r, st, shapes)
	if !ok {
		b.sum(r)
		return
	}
	try := func(setting int64) {
		h := t.size(setting)
		h.Exclusive = st.writePolicy == "write_back"
		h.Bytes = 0
		for _, p := range h.Pools {
			h.Bytes = satAdd(h.Bytes, p.Bytes)
		}
		for _, it := range h.Other {
			h.Bytes = satAdd(h.Bytes, it.Bytes)
		}
		r.Host = &h
		b.sum(r)
	}
	if explicit > 0 {
		try(explicit)
		r.Host.Chosen = "the point"
		b.judge(r, shapes)
		return
	}
	b.sum(r)
	lo, hi := t.limits()
	fits := func(s int64) bool { try(s); return r.within() }
	n := sort.Search(int(hi-lo+1), func(i int) bool { return !fits(lo + int64(i)) })
	if n == 0 {
		try(lo)
		r.Host.Chosen = "the smallest setting"
	} else {
		try(lo + int64(n) - 1)
		r.Host.Chosen = "the largest that fits and is allowed"
	}
	b.judge(r, shapes)
}

// within says whether a node holds what is on it and the configuration allows it.
func (r *Role) within() bool {
	n := &r.Node
	return (n.MemoryBytes.N == 0 || n.MarginBytes >= 0) && (n.PolicyBytes.N == 0 || n.PolicyMarginBytes >= 0)
}

// judge turns a sized host tier into findings and warnings.
func (b *bench) judge(r *Role, shapes []shape) {
	n, h := &r.Node, r.Host
	if n.MemoryBytes.N > 0 && n.MarginBytes < 0 {
		b.find(r.Name, OOMHost, b.smaller(r), "%s pinned (%s) and %s beside it are %s, %s more than the %s that %s less 5 %% and 10 GiB leave%s",
			GB(n.HostPoolBytes), pinned(r), GB(n.TotalBytes-n.HostPoolBytes), GB(n.TotalBytes), GB(-n.MarginBytes), GB(n.LimitBytes), GB(n.MemoryBytes.N), forgotten(h))
	}
	if n.PolicyBytes.N > 0 && n.PolicyMarginBytes < 0 {
		b.find(r.Name, PolicyViolation, b.smaller(r), "%s pinned (%s) are %s over the %s that the configuration allows%s",
			GB(n.HostPoolBytes), pinned(r), GB(-n.PolicyMarginBytes), GB(n.PolicyBytes.N), forgotten(h))
	}
	if n.PolicyBytes.N == 0 {
		b.warn(r.Name, "no-budget", "the point offloads to dram without a budget: only the node's memory limits it")
	}
	if h.UniqueTokens <= r.Device.UniqueTokens && r.Device.Tokens > 0 {
		what := "it keeps nothing that the device does not keep"
		if h.Exclusive {
			what = "with write_back both tiers still add up"
		}
		b.warn(r.Name, "host-below-device", "the host pool holds %s tokens a rank, the device pool %s: %s",
			thousands(h.Tokens), thousands(r.Device.Tokens), what)
	}
}

func pinned(r *Role) string {
	var parts []string
	for _, p := range r.Host.Pools {
		parts = append(parts, fmt.Sprintf("%s %s", p.Name, GB(p.Bytes)))
	}
	for _, it := range r.Host.Other {
		parts = append(parts, fmt.Sprintf("%s %s", it.Name, GB(it.Bytes)))
	}
	return fmt.Sprintf("%d ranks x %s: %s", r.Node.Ranks, GB(r.Host.Bytes), strings.Join(parts, " + "))
}

// forgotten names the pools that the engine's size setting does not count.
func forgotten(h *Host) string {
	var names []string
	for _, p := range h.Pools {
		if !p.Counted {
			names = append(names, p.Name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return "; the engine's size setting does not count " + strings.Join(names, " and ")
}

// smaller says what setting would pass: found by planning the point again without a size.
func (b *bench) smaller(r *Role) string {
	if r.Host.Chosen != "the point" {
		return "use nodes with more memory or a larger share"
	}
	q := *b.p
	q.Weir.HostBytesPerRank, q.Weir.HostRatioPPM = 0, 0
	v, err := Compute(&q, b.opt)
	if err != nil {
		return ""
	}
	for i := range v.Roles {
		if h := v.Roles[i].Host; v.Roles[i].Name == r.Name && h != nil && v.Roles[i].within() {
			return h.Flag
		}
	}
	return "no host pool of this engine fits"
}
