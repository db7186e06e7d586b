package run

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/weirbench/weir/internal/result"
	"github.com/weirbench/weir/internal/spec"
)

// An Adaptive sweep chooses, among the points of a search space, the one to measure next: first,
// in every series (points that differ in concurrency alone), the one nearest the predicted knee;
// then, with whatever was measured, the one where the frontier has most to gain. Beside a point
// with offload it measures the same concurrency without, and begins none whose control it cannot
// pay for. It stops when the budget is spent or
// nothing has a gain worth a run.
type Adaptive struct {
	// GPUHours is the budget; 0 is without limit. A point costs its GPUs times its duration,
	// whether it succeeds or not.
	GPUHours float64
	// Knee predicts the concurrency at which a job's caches overflow; 0 where nobody knows.
	Knee func(*Job) int
}

const (
	// plateau is the growth of throughput from one concurrency to the next below which higher
	// ones are not tried.
	plateau = 0.03
	// leastGain is the gain, as a share of the area that the frontier spans, that is worth a run.
	leastGain = 0.01
)

// An Outcome is what is known of a job: Throughput in tokens per second and GPU, and the two
// measures of tokens per second and user: Interactivity at p90, and Sum, all output tokens over all
// time, which takes no least number of requests. A 0 is unknown; all are when there is no valid
// result.
type Outcome struct{ Throughput, Interactivity, Sum float64 }

func (o *Outcome) ok() bool {
	return o != nil && o.Throughput > 0 && (o.Interactivity > 0 || o.Sum > 0)
}

// OutcomeOf reads the axes of a result; p50 stands in where p90 has too few samples.
func OutcomeOf(r *result.Result) *Outcome {
	o := &Outcome{}
	if r == nil || !r.Valid {
		return o
	}
	if v := r.Throughput.EdgePerGPU.Total; v != nil {
		o.Throughput = *v
	}
	if v := cmp.Or(r.Intvty.E2ENorm.P90, r.Intvty.E2ENorm.P50); v != nil {
		o.Interactivity = *v
	}
	if v := r.Intvty.E2ESum; v != nil {
		o.Sum = *v
	}
	return o
}

// oneMeasure gives the outcomes of a series one measure of interactivity: a percentile where every
// valid one has it, else the sum, since a short point has too few requests for a percentile. A
// valid outcome without that measure counts as none.
func oneMeasure(done []*Outcome, line []int) []*Outcome {
	sum := slices.ContainsFunc(line, func(k int) bool { return done[k].ok() && done[k].Interactivity == 0 })
	out := slices.Clone(done)
	for _, k := range line {
		if sum && done[k] != nil {
			o := *done[k]
			o.Interactivity = o.Sum
			out[k] = &o
		}
	}
	return out
}

// series names what a point shares with those that differ in concurrency alone, and with those
// that differ in offload too.
func series(p *spec.Point) (own, twin string) {
	q := *p
	q.Conc, q.Name, q.Origin = 0, "", spec.Origin{}
	own = key(q)
	return own, key(*q.WithoutOffload())
}

func key(p spec.Point) string {
	b, err := json.Marshal(p)
	if err != nil { // a Point has only marshallable fields
		panic(err)
	}
	return string(b)
}

// cost is what a job takes of the budget, GPU hours.
func cost(j *Job) float64 {
	_, _, n := j.Point.GPUs()
	return float64(n) * time.Duration(j.Point.DurationNs).Hours()
}

func offloads(j *Job) bool { return j.Point.Offloads() }

// Next is the job to measure next and why; ok is false with the reason to stop. done has an
// Outcome for every job that was tried.
func (a *Adaptive) Next(jobs []*Job, done []*Outcome) (next int, why string, ok bool) {
	spent := 0.0
	for i, j := range jobs {
		if done[i] != nil {
			spent += cost(j)
		}
	}
	next, why, gain := a.choose(jobs, done)
	if next < 0 {
		return -1, why, false
	}
	takes, with := cost(jobs[next]), ""
	for _, k := range controls(jobs, done, next) {
		takes, with = takes+cost(jobs[k]), " with its control"
	}
	if a.GPUHours > 0 && spent+takes > a.GPUHours {
		return -1, fmt.Sprintf("the budget: %.2f of %.2f GPU hours are spent, the next point (%s)%s takes %.2f", spent, a.GPUHours, why, with, takes), false
	}
	if gain > 0 {
		why = fmt.Sprintf("%s; gain %.3f", why, gain)
	}
	return next, why, true
}

// controls are the jobs without offload, not tried yet, that stand beside one with it.
func controls(jobs []*Job, done []*Outcome, i int) (out []int) {
	if !offloads(jobs[i]) {
		return nil
	}
	_, twin := series(jobs[i].Point)
	for k, c := range jobs {
		if done[k] == nil && !offloads(c) && c.Point.Conc == jobs[i].Point.Conc {
			if _, other := series(c.Point); other == twin {
				out = append(out, k)
			}
		}
	}
	return out
}

func (a *Adaptive) choose(jobs []*Job, done []*Outcome) (int, string, float64) {
	own := make([]string, len(jobs))
	for i, j := range jobs {
		own[i], _ = series(j.Point)
	}
	for i, j := range jobs {
		if done[i] == nil {
			continue
		}
		if open := controls(jobs, done, i); len(open) > 0 {
			why := fmt.Sprintf("the control without offload beside concurrency %d", j.Point.Conc)
			if len(jobs[open[0]].ControlOf) > 0 {
				why += ", which the file does not have and the sweep added"
			}
			return open[0], why, 0
		}
	}
	seen := map[string]bool{}
	best, why, most := -1, "no point has a gain worth a run", leastGain
	for i := range jobs {
		if seen[own[i]] || len(jobs[i].ControlOf) > 0 { // an added control is measured beside its point alone
			continue
		}
		seen[own[i]] = true
		var line []int // the series by concurrency
		for k := range jobs {
			if own[k] == own[i] && len(jobs[k].ControlOf) == 0 {
				line = append(line, k)
			}
		}
		slices.SortStableFunc(line, func(x, y int) int { return jobs[x].Point.Conc - jobs[y].Point.Conc })
		if !slices.ContainsFunc(line, func(k int) bool { return done[k] != nil }) {
			k, text := a.first(jobs, line)
			return k, text, 0
		}
		if k, text, g := gainIn(jobs, done, line); g > most {
			best, why, most = k, text, g
		}
	}
	if best < 0 {
		most = 0
	}
	return best, why, most
}

// first is where a series begins: at the largest concurrency that is not above the knee.
func (a *Adaptive) first(jobs []*Job, line []int) (int, string) {
	knee := 0
	if a.Knee != nil {
		knee = a.Knee(jobs[line[0]])
	}
	if knee <= 0 {
		k := line[len(line)/2]
		return k, fmt.Sprintf("the middle of a series whose knee nobody predicts: concurrency %d", jobs[k].Point.Conc)
	}
	k := line[0]
	for _, x := range line {
		if jobs[x].Point.Conc <= knee {
			k = x
		}
	}
	return k, fmt.Sprintf("the predicted knee of a series lies at concurrency %d: %d", knee, jobs[k].Point.Conc)
}

// gainIn is the point of a series with most to gain. Between two measured points it is the
// rectangle that the frontier may still cross; above the last one the growth so far, which a
// plateau ends; below the first one what interactivity grew by.
func gainIn(jobs []*Job, done []*Outcome, line []int) (best int, why string, gain float64) {
	best = -1
	done = oneMeasure(done, line)
	var tops Outcome
	var tried, good []int // places in line
	for at, k := range line {
		if done[k] != nil {
			tried = append(tried, at)
		}
		if done[k].ok() {
			good = append(good, at)
			tops.Throughput = max(tops.Throughput, done[k].Throughput)
			tops.Interactivity = max(tops.Interactivity, done[k].Interactivity)
		}
	}
	take := func(at int, g float64, format string, args ...any) {
		if g > gain {
			best, why, gain = line[at], fmt.Sprintf(format, args...), g
		}
	}
	conc := func(at int) int { return jobs[line[at]].Point.Conc }
	if len(good) == 0 {
		if low := tried[0]; low > 0 { // nothing works so far: go down
			take(low-1, 0.5, "below concurrency %d, which gave no result", conc(low))
		}
		return best, why, gain
	}
	for n := 1; n < len(tried); n++ {
		lo, hi := tried[n-1], tried[n]
		l, h := done[line[lo]], done[line[hi]]
		if hi-lo < 2 || !l.ok() {
			continue
		}
		mid := middle(jobs, line, lo, hi)
		if !h.ok() {
			take(mid, 0.1, "between concurrency %d and %d, which gave no result", conc(lo), conc(hi))
			continue
		}
		g := math.Abs(l.Interactivity-h.Interactivity) / tops.Interactivity * math.Abs(h.Throughput-l.Throughput) / tops.Throughput
		take(mid, g, "between concurrency %d and %d", conc(lo), conc(hi))
	}
	if top := tried[len(tried)-1]; top < len(line)-1 && done[line[top]].ok() {
		if len(good) < 2 {
			take(top+1, 0.5, "above concurrency %d, the only one measured", conc(top))
		} else if last, before := done[line[top]], done[line[good[len(good)-2]]]; last.Throughput/before.Throughput-1 >= plateau {
			take(top+1, last.Throughput/before.Throughput-1, "above concurrency %d: throughput still grew by %.1f %%", conc(top), 100*(last.Throughput/before.Throughput-1))
		}
	}
	if low := tried[0]; low > 0 {
		g := 0.3
		if len(good) > 1 {
			g = done[line[good[0]]].Interactivity/done[line[good[1]]].Interactivity - 1
		}
		take(low-1, g, "below concurrency %d", conc(low))
	}
	return best, why, gain
}

// middle is the place between two that lies nearest their geometric mean.
func middle(jobs []*Job, line []int, lo, hi int) int {
	want := math.Sqrt(float64(jobs[line[lo]].Point.Conc) * float64(jobs[line[hi]].Point.Conc))
	best := lo + 1
	for at := lo + 1; at < hi; at++ {
		if math.Abs(float64(jobs[line[at]].Point.Conc)-want) < math.Abs(float64(jobs[line[best]].Point.Conc)-want) {
			best = at
		}
	}
	return best
}
