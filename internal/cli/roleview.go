package cli

import (
	"fmt"
	"strings"

	"github.com/weirbench/weir/internal/result"
)

// roleLines prints what the server said by role, and by rank of data parallelism, where there is
// more than one.
func roleLines(s *result.Server, line func(name, format string, v ...any)) {
	if len(s.ByRole) > 1 {
		for _, role := range []string{"unified", "prefill", "decode", "router"} {
			if p := s.ByRole[role]; p != nil {
				line(role, "%s", partText(p))
			}
		}
	}
	for i := range s.ByEndpoint {
		if e := &s.ByEndpoint[i]; len(e.ByRank) > 1 {
			line("ranks", "%s", rankText(e))
		}
	}
}

// partText is a role in one line: what is known of it.
func partText(p *result.Part) string {
	var out []string
	add := func(format string, v ...any) { out = append(out, fmt.Sprintf(format, v...)) }
	if p.Endpoints == 1 {
		add("1 endpoint")
	} else {
		add("%d endpoints", p.Endpoints)
	}
	if p.Ranks > 1 {
		add("%d ranks", p.Ranks)
	}
	for _, x := range []struct {
		name   string
		v      *float64
		digits int
	}{
		{"KV held", p.DeviceKVMean, 3}, {"host", p.HostKVMean, 3}, {"running", p.RunningMean, 1}, {"queued", p.QueuedMean, 1},
		{"bootstrap", p.BootstrapMean, 1}, {"inflight", p.InflightMean, 1}, {"prealloc", p.PreallocMean, 1}, {"transfer", p.TransferMean, 1},
	} {
		if x.v != nil {
			add("%s %s", x.name, num(x.v, x.digits))
		}
	}
	if r := p.Router; r != nil {
		if r.Requests != nil {
			add("%s requests", count(*r.Requests))
		}
		if r.ActiveMean != nil {
			add("active %s", num(r.ActiveMean, 1))
		}
		if r.WaitingMean != nil {
			add("waiting %s", num(r.WaitingMean, 1))
		}
	}
	if t := p.Transfer; t != nil && t.N > 0 {
		text := count(t.N) + " transfers"
		if t.Time != nil {
			text += " of " + millis(t.Time.Mean)
		}
		if t.Bytes != nil {
			text += fmt.Sprintf(", %.1f GB", float64(*t.Bytes)/1e9)
		}
		add("%s", text)
	}
	return strings.Join(out, ", ")
}

// rankText is how the ranks of an endpoint differ.
func rankText(e *result.Endpoint) string {
	span := func(name string, digits int, of func(*result.Part) *float64) string {
		var low, high *float64
		for i := range e.ByRank {
			v := of(&e.ByRank[i].Part)
			if v == nil {
				return ""
			}
			if low == nil || *v < *low {
				low = v
			}
			if high == nil || *v > *high {
				high = v
			}
		}
		return fmt.Sprintf(", %s %s to %s", name, num(low, digits), num(high, digits))
	}
	name := e.Name
	if name == "" {
		name = e.Endpoint
	}
	return fmt.Sprintf("%s has %d", name, len(e.ByRank)) +
		span("KV held", 3, func(p *result.Part) *float64 { return p.DeviceKVMean }) +
		span("running", 1, func(p *result.Part) *float64 { return p.RunningMean }) +
		span("queued", 1, func(p *result.Part) *float64 { return p.QueuedMean })
}
