package plan

import (
	"fmt"
	"strings"
)

// Explain is a verdict as the worked sum in words.
func (v *Verdict) Explain() string {
	var b strings.Builder
	p := func(format string, a ...any) { fmt.Fprintf(&b, format+"\n", a...) }
	p("%s, concurrency %d: %s", first(v.Key, v.Name, v.PointID), v.Conc, v.Status)
	p("  %s %s on %s (%s), %s %s", v.Model, v.Precision, v.GPU, v.Runner, v.Engine, first(v.Version, "of unknown version"))
	for i := range v.Roles {
		v.Roles[i].explain(p)
	}
	for _, f := range v.Findings {
		p("  %s%s: %s", f.Status, inRole(f.Role, v), f.Reason)
		if f.Change != "" {
			p("    smallest change: %s", f.Change)
		}
	}
	for _, w := range v.Warnings {
		p("  warning %s%s: %s", w.Code, inRole(w.Role, v), w.Message)
	}
	return b.String()
}

func inRole(role string, v *Verdict) string {
	if role == "" || len(v.Roles) < 2 {
		return ""
	}
	return " (" + role + ")"
}

func (r *Role) explain(p func(string, ...any)) {
	workers := "one worker"
	if r.Workers != 1 {
		workers = fmt.Sprintf("%d workers", r.Workers)
	}
	p("  %s: %s of %d ranks, %d on a node; attention over %d, %s with sequences of their own, experts over %d",
		r.Name, workers, r.Ranks, r.RanksPerNode, r.AttnTP, plural(r.AttnDP, "group"), r.ExpertShards)
	d := &r.Device
	p("    device pool of a rank")
	p("      HBM          %12s  %s", GiB(d.HBMBytes.N), d.HBMBytes.From)
	p("      x fraction   %12s  %s", ppm(d.FractionPPM.N), d.FractionPPM.From)
	gib := func(v Value) string {
		if !v.Known() {
			return "unknown"
		}
		return GiB(v.N)
	}
	p("      - weights    %12s  %s", gib(d.WeightBytes), d.WeightBytes.From)
	p("      - reserve    %12s  %s", gib(d.ReserveBytes), d.ReserveBytes.From)
	if d.StateBytes > 0 {
		p("      - state      %12s  %d slots x %s B: %s", GiB(d.StateBytes), d.StateSlots, thousands(d.StateBytesPerSeq), d.stateFormula)
	}
	pool, tokens, unique := GiB(d.PoolBytes), thousands(d.Tokens), thousands(d.UniqueTokens)
	if !d.Known() {
		pool, tokens, unique = "unknown", "unknown", "unknown"
	}
	p("      = pool       %12s  %s", pool, d.PoolFrom)
	p("      / bytes      %12s  for a token in all pools (%s KV, pages of %d)", thousands(r.BytesPerToken), r.KVDType, r.PageSize)
	for _, q := range d.Pools {
		p("        %-17s %9s B x %13s slots = %11s  %s", q.Name, thousands(q.BytesPerSlot), thousands(q.Slots), GiB(q.Bytes), q.Formula)
	}
	p("      = tokens     %12s  on a rank; %s distinct in a worker (x %s x dcp %d)", tokens, unique, plural(r.AttnDP, "group"), r.DCP)
	if h := r.Host; h != nil {
		r.explainHost(h, p)
	}
	n := &r.Node
	p("    a node with %d ranks", n.Ranks)
	if r.Host != nil {
		p("      host tier    %13s  %d x %s", GB(n.HostPoolBytes), n.Ranks, GB(r.Host.Bytes))
	}
	for _, it := range n.Other {
		p("      + %-10s %13s  %s", shorten(it.Name), GB(it.Bytes), it.From)
	}
	p("      = together   %13s", GB(n.TotalBytes))
	if n.MemoryBytes.N > 0 {
		p("      limit        %13s  %s of %s, less 5 %% and 10 GiB; margin %s", GB(n.LimitBytes), GB(n.MemoryBytes.N), n.MemoryBytes.From, GB(n.MarginBytes))
	} else {
		p("      limit              unknown  no fact gives the node's memory")
	}
	if n.PolicyBytes.N > 0 {
		p("      allowed      %13s  %s; margin %s", GB(n.PolicyBytes.N), n.PolicyBytes.From, GB(n.PolicyMarginBytes))
	}
}

func (r *Role) explainHost(h *Host, p func(string, ...any)) {
	p("    host tier of a rank: %s, %s (%s), %s", h.Backend, h.Flag, h.Chosen, r.WritePolicy)
	for _, q := range h.Pools {
		count := ""
		if !q.Counted {
			count = "; not counted by " + h.setting()
		}
		p("      %-19s %9s B x %13s slots = %11s  %s%s", q.Name, thousands(q.BytesPerSlot), thousands(q.Slots), GB(q.Bytes), q.Formula, count)
	}
	for _, it := range h.Other {
		p("      %-19s %41s  %s", it.Name, GB(it.Bytes), it.From)
	}
	p("      = bytes      %13s", GB(h.Bytes))
	if h.Note != "" {
		p("      %s", h.Note)
	}
	how := "inclusive: the host tier holds what the device holds"
	if h.Exclusive {
		how = "exclusive: host and device add up"
	}
	p("      = tokens     %13s  on a rank; %s distinct in a worker; with the device %s (%s)",
		thousands(h.Tokens), thousands(h.UniqueTokens), thousands(r.UniqueTokens()), how)
}

func plural(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func shorten(name string) string {
	if name == "engine processes" {
		return "processes"
	}
	if name == "weights kept on the host" {
		return "weights"
	}
	return name
}
