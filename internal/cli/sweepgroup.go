package cli

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weirbench/weir/internal/frontier"
	"github.com/weirbench/weir/internal/run"
	"github.com/weirbench/weir/internal/spec"
)

// sweepGroups part the jobs of a sweep into those that share a heading: they differ in nothing
// but concurrency, offload, seed and repeat, which stand in their rows.
type sweepGroups struct {
	jobs []*run.Job
	all  []sweepGroup
	of   []int // group of each job
	// tiers are the names of the jobs' offload settings, as wide as the widest.
	tiers []string
	width int
	// seeds and repeats tell whether there are several, so that rows name them.
	seeds, repeats bool
}

type sweepGroup struct{ heading string }

func groupJobs(jobs []*run.Job) *sweepGroups {
	g := &sweepGroups{jobs: jobs, of: make([]int, len(jobs)), tiers: make([]string, len(jobs)), width: 10}
	var keys, tierKeys []string
	named := map[string]string{} // heading by what else differs
	tierOf := map[string]string{}
	for i, j := range jobs {
		key, tierKey := groupKey(j.Point)
		at := slices.Index(keys, key)
		if at < 0 {
			at = len(keys)
			h := heading(j)
			if _, twice := named[h]; twice {
				h += fmt.Sprintf(" (%s:%d)", j.Point.Origin.File, j.Point.Origin.Line)
			}
			named[h] = key
			keys, g.all = append(keys, key), append(g.all, sweepGroup{h})
		}
		g.of[i] = at
		g.seeds = g.seeds || j.Point.Weir.Seed != jobs[0].Point.Weir.Seed
		g.repeats = g.repeats || j.Repeat != jobs[0].Repeat

		full := key + tierKey
		if !slices.Contains(tierKeys, full) {
			tierKeys = append(tierKeys, full)
			name := tierName(j.Point)
			for n, other := range tierOf { // another setting of the same group has this name
				if other == name && strings.HasPrefix(n, key) {
					name += fmt.Sprintf(":%d", j.Point.Origin.Line)
					break
				}
			}
			tierOf[full] = name
		}
		g.tiers[i] = tierOf[full]
		g.width = max(g.width, len(g.tiers[i]))
	}
	return g
}

// groupKey is what a point shares with its group, and what its offload setting is.
func groupKey(p *spec.Point) (group, tier string) {
	q := *p
	w := &q.Weir
	tier = mustJSON([]any{q.Offload, w.HostRatioPPM, w.HostBytesPerRank, w.WritePolicy})
	q.Conc, q.Name, q.Origin, q.Offload = 0, "", spec.Origin{}, spec.Offload{}
	w.HostRatioPPM, w.HostBytesPerRank, w.WritePolicy, w.Seed, w.Repeats = 0, 0, "", 0, 0
	return mustJSON(q), tier
}

func mustJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil { // points have only marshallable fields
		panic(err)
	}
	return string(b)
}

// tierName is the short form of a point's offload setting: "none", or mode, backend and what
// sizes its host pool by hand.
func tierName(p *spec.Point) string {
	o, w := p.Offload, &p.Weir
	if o.Mode == "none" || o.Mode == "" {
		return "none"
	}
	name := o.Mode + "/" + o.Backend.Name
	switch {
	case w.HostRatioPPM > 0:
		name += fmt.Sprintf(" x%g", float64(w.HostRatioPPM)/1e6)
	case w.HostBytesPerRank > 0:
		name += fmt.Sprintf(" %g GB", float64(w.HostBytesPerRank)/1e9)
	}
	return name
}

// heading says what a group runs: model, GPUs, engine, topology, load and the config's name.
func heading(j *run.Job) string {
	p := j.Point
	gpu, model := p.Runner, p.Model
	if j.Verdict != nil {
		gpu, model = j.Verdict.GPU, j.Verdict.Model
	}
	_, _, n := p.GPUs()
	what := p.Framework + " " + p.Precision + " " + frontier.Topology(p)
	if r := j.Recipe; r == nil || r.Engine == "sim" {
		what = "simulated " + what
	}
	if s := p.SpecDecoding; s != "" && s != "none" {
		what += " " + s
	}
	load := fmt.Sprintf("%s of load, %d traces of %s%s", time.Duration(p.DurationNs), len(j.Corpus.Traces), j.Corpus.Name, skippedCount(j.Corpus))
	if p.Scenario == spec.FixedSeqLen {
		load = fmt.Sprintf("prompts of %s tokens, answers of %s", count(p.ISL), count(p.OSL))
	}
	return fmt.Sprintf("%s: %s on %d x %s, %s, %s", p.Key, model, n, strings.ToUpper(gpu), what, load)
}

// head are the names of the columns of cells.
func (g *sweepGroups) head() string {
	s := "   conc"
	if g.seeds {
		s += "    seed"
	}
	if g.repeats {
		s += "  run"
	}
	return s + "  " + pad("offload", g.width)
}

// cells are the columns that tell the rows of a group apart.
func (g *sweepGroups) cells(i int) string {
	j := g.jobs[i]
	s := fmt.Sprintf("%7d", j.Point.Conc)
	if g.seeds {
		s += fmt.Sprintf("  %6d", j.Point.Weir.Seed)
	}
	if g.repeats {
		s += fmt.Sprintf("  %3d", j.Repeat+1)
	}
	return s + "  " + pad(g.tiers[i], g.width)
}

func pad(s string, width int) string { return fmt.Sprintf("%-*s", width, s) }
