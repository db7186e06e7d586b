package plan

import (
	"fmt"
	"sort"
	"strings"
)

// A tier is one backend's way to keep KV in host memory.
type tier interface {
	// size fills the host tier of one rank for one value of the backend's own setting.
	size(setting int64) Host
	// limits are the smallest and the largest setting to look for when none is given.
	limits() (lo, hi int64)
}

// host sizes the host tier of a role and judges it.
func (b *bench) host(r *Role, w worker, st settings, shapes []shape) {
	b.sum(r)
	if r.Device.Tokens == 0 {
		return // nothing to size from; the finding about the device says why
	}
	t, explicit, chosen, ok := b.tierFor(r, st, shapes)
	if !ok {
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
		r.Host.Chosen = chosen
	} else {
		lo, hi := t.limits()
		n := sort.Search(int(hi-lo+1), func(i int) bool { try(lo + int64(i)); return !r.within() })
		try(lo + int64(max(0, n-1)))
		r.Host.Chosen = "the largest that fits and is allowed"
		if n == 0 {
			r.Host.Chosen = "the smallest that the engine takes"
		}
	}
	b.judge(r)
	b.trapsOf(r, st)
}

// within says whether a node holds what is on it and the configuration allows it.
func (r *Role) within() bool {
	n := &r.Node
	return (n.MemoryBytes.N == 0 || n.MarginBytes >= 0) && (n.PolicyBytes.N == 0 || n.PolicyMarginBytes >= 0)
}

// judge turns a sized host tier into findings and warnings.
func (b *bench) judge(r *Role) {
	n, h := &r.Node, r.Host
	if n.MemoryBytes.N > 0 && n.MarginBytes < 0 {
		b.find(r.Name, OOMHost, b.smaller(r), "%s pinned (%s) and %s beside it are %s, %s more than the %s that %s less 5 %% and 10 GiB leave%s",
			GB(n.HostPoolBytes), pinned(r), GB(n.TotalBytes-n.HostPoolBytes), GB(n.TotalBytes), GB(-n.MarginBytes), GB(n.LimitBytes), GB(n.MemoryBytes.N), forgotten(h))
		if ask, free := h.Bytes, n.MemoryBytes.N-HostReserveBytes; n.Ranks > 1 && ask <= free {
			b.warn(r.Name, "race", "the engine does not catch this: each of %d ranks asks for %s, finds %s free at the same moment and goes on, until the kernel kills one",
				n.Ranks, GB(ask), GB(free))
		}
	}
	if n.PolicyBytes.N > 0 && n.PolicyMarginBytes < 0 {
		rest := ""
		if left := n.MemoryBytes.N - n.HostPoolBytes; left > 0 {
			rest = fmt.Sprintf("; the node of %s keeps %s (%d %%) for %d engine processes, the loader and the kernel",
				GB(n.MemoryBytes.N), GB(left), mulDiv(left, 100, n.MemoryBytes.N), n.Ranks)
		}
		b.find(r.Name, PolicyViolation, b.smaller(r), "%s pinned (%s) are %s over the %s that the configuration allows%s%s",
			GB(n.HostPoolBytes), pinned(r), GB(-n.PolicyMarginBytes), GB(n.PolicyBytes.N), forgotten(h), rest)
	}
	if n.PolicyBytes.N == 0 {
		b.warn(r.Name, "no-budget", "the point offloads to dram without a budget: only the node's memory limits it")
	}
	if h.UniqueTokens <= r.Device.UniqueTokens {
		what := "it keeps nothing that the device does not keep"
		if h.Exclusive {
			what = "with write_back both tiers still add up"
		}
		b.warn(r.Name, "host-below-device", "the host tier holds %s tokens, the device %s: %s",
			thousands(h.UniqueTokens), thousands(r.Device.UniqueTokens), what)
	}
	if left := n.PolicyMarginBytes; h.step > 0 && n.PolicyBytes.N > 0 && left > 0 && left < satMul(h.step, int64(n.Ranks)) && left > n.PolicyBytes.N/200 {
		b.warn(r.Name, "rounding", "%s of the budget stay unused: the setting's smallest step is %s on each of %d ranks", GB(left), GB(h.step), n.Ranks)
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
	if len(parts) == 1 {
		return fmt.Sprintf("%d ranks x %s", r.Node.Ranks, parts[0])
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
	return "; " + h.setting() + " does not count " + strings.Join(names, " and ")
}

// setting is the name of the flag.
func (h *Host) setting() string {
	name, _, _ := strings.Cut(h.Flag, " ")
	return name
}

// smaller says what setting would pass: found by planning the point again without a size.
func (b *bench) smaller(r *Role) string {
	if r.Host.Chosen != chosenByPoint && r.Host.Chosen != chosenByRecipe {
		return "use nodes with more memory or a larger share of them"
	}
	q := *b.p
	q.Weir.HostBytesPerRank, q.Weir.HostRatioPPM = 0, 0
	opt := b.opt
	opt.AsRecipe = false
	v, err := Compute(&q, opt)
	if err != nil {
		return ""
	}
	for i := range v.Roles {
		if h := v.Roles[i].Host; v.Roles[i].Name == r.Name && h != nil && v.Roles[i].within() {
			return "pass " + h.Flag
		}
	}
	return "no host tier of this kind fits: use nodes with more memory or a larger share of them"
}
