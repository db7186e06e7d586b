package cli

import (
	"fmt"
	"path/filepath"

	"github.com/weirbench/weir/internal/result"
)

// story says in words what the table shows, for each of its groups apart: how far the cache
// carries with each offload setting, and what that does to throughput. It is computed from the
// results; a sentence that they do not bear is left out.
func (t *sweepTable) story(report string) {
	out := t.app.Out
	fmt.Fprintln(out)
	for g := range t.groups.all {
		lines := t.groupStory(g)
		if len(lines) > 0 && len(t.groups.all) > 1 {
			fmt.Fprintf(out, "%s:\n", t.groups.all[g].heading)
		}
		for _, l := range lines {
			fmt.Fprintln(out, l)
		}
	}
	if simulated(t.results()) {
		fmt.Fprintln(out, "These numbers are simulated: no engine ran.")
	}
	fmt.Fprintf(out, "\nreport  %s\nstore   %s\n", report, filepath.Join(filepath.Dir(report), "weir.db"))
}

func simulated(rs []*result.Result) bool {
	for _, r := range rs {
		if r.Simulated {
			return true
		}
	}
	return false
}

// groupStory tells of the first seed and repeat of a group's offload settings.
func (t *sweepTable) groupStory(g int) []string {
	var tiers []string
	by := map[string][]*result.Result{}
	lo, hi, ceilings := 0.0, 0.0, false
	first := -1
	for i, j := range t.jobs {
		if t.groups.of[i] != g {
			continue
		}
		if first < 0 {
			first = i
		}
		r := t.res[i]
		if r == nil || j.Repeat != t.jobs[first].Repeat || j.Point.Weir.Seed != t.jobs[first].Point.Weir.Seed {
			continue
		}
		if c := r.Hits.Ceiling; c != nil {
			if !ceilings {
				lo, hi, ceilings = *c, *c, true
			}
			lo, hi = min(lo, *c), max(hi, *c)
		}
		name := t.groups.tiers[i]
		if by[name] == nil {
			tiers = append(tiers, name)
		}
		by[name] = append(by[name], r)
	}
	var out []string
	if ceilings {
		of := ""
		if t.groups.seeds || t.groups.repeats {
			of = fmt.Sprintf(" (seed %d, run %d)", t.jobs[first].Point.Weir.Seed, t.jobs[first].Repeat+1)
		}
		out = append(out, fmt.Sprintf("An infinite cache would hit %.3f to %.3f of the prompt tokens at these concurrencies%s.", lo, hi, of))
	}
	for _, name := range tiers {
		if s := tierStory(name, by[name]); s != "" {
			out = append(out, s)
		}
	}
	return out
}

// tierStory compares the lowest, the best and the highest concurrency of one offload setting.
func tierStory(name string, rs []*result.Result) string {
	var first, best, last *result.Result
	for _, r := range rs {
		if !r.Valid || r.Hits.Total == nil || r.Throughput.EdgePerGPU.Total == nil {
			continue
		}
		if first == nil || r.Point.Conc < first.Point.Conc {
			first = r
		}
		if last == nil || r.Point.Conc > last.Point.Conc {
			last = r
		}
		if best == nil || *r.Throughput.EdgePerGPU.Total > *best.Throughput.EdgePerGPU.Total {
			best = r
		}
	}
	if first == nil || first == last {
		return ""
	}
	what := "Without offload"
	if name != "none" {
		what = "With " + name + " offload"
		if p := last.Pools; p.HostTokens != nil && p.HostBytes != nil {
			what += fmt.Sprintf(" (%.2f million host tokens in %.2f TB)", float64(*p.HostTokens)/1e6, float64(*p.HostBytes)/1e12)
		}
	}
	s := fmt.Sprintf("%s the hit rate is %.3f at concurrency %d and %.3f at %d", what,
		*first.Hits.Total, first.Point.Conc, *last.Hits.Total, last.Point.Conc)
	if best == last {
		return s + fmt.Sprintf("; throughput is highest there, %s tok/s/GPU.", num(last.Throughput.EdgePerGPU.Total, 0))
	}
	return s + fmt.Sprintf("; throughput per GPU falls from %s tok/s at %d to %s at %d.",
		num(best.Throughput.EdgePerGPU.Total, 0), best.Point.Conc, num(last.Throughput.EdgePerGPU.Total, 0), last.Point.Conc)
}
