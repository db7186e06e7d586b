package corpus

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

// A SampleReport says how well a sample stands for the whole.
type SampleReport struct {
	Traces int `json:"traces"`
	Of     int `json:"of_traces"`
	Strata int `json:"strata"`
	Tried  int `json:"draws_compared"`
	// MaxCurveError is the largest difference of the two hit rates by capacity.
	MaxCurveError float64 `json:"max_hit_rate_error"`
	AtTokens      int64   `json:"at_capacity_tokens"`
	// Curve holds both at the powers of two.
	Curve []SamplePoint `json:"curve"`
	// The working set: different tokens of a trace, its mean and its 90th percentile.
	WorkingSet    Kept `json:"mean_unique_tokens"`
	WorkingSetP90 Kept `json:"p90_unique_tokens"`
	Peak          Kept `json:"mean_peak_prompt"`
	Turns         Kept `json:"mean_turns"`
	ChildShare    Kept `json:"child_turn_share"`
}

// A SamplePoint compares hit rates at a capacity.
type SamplePoint struct {
	CapacityTokens int64   `json:"capacity_tokens"`
	Full           float64 `json:"full"`
	Sample         float64 `json:"sample"`
}

// Kept compares a number of the whole with that of the sample.
type Kept struct {
	Full   float64 `json:"full"`
	Sample float64 `json:"sample"`
	// Error is (sample - full) / full; 0 when both are.
	Error float64 `json:"relative_error"`
}

func kept(full, sample float64) Kept {
	k := Kept{Full: full, Sample: sample}
	if full != 0 {
		k.Error = (sample - full) / full
	}
	return k
}

const (
	sampleDraws = 20     // stratified draws that the search may begin with
	sampleSteps = 40_000 // exchanges of similar traces that are tried
)

// Sample draws n traces so that the hit rate by capacity and the working set stay what they
// are. Traces are put into strata by working set and, within, by reuse; a draw takes the right
// share from each. Then similar traces are exchanged, by simulated annealing, to come closer.
// Equal seeds give equal samples.
func (c *Corpus) Sample(n int, seed uint64) (*Corpus, *SampleReport, error) {
	if n < 1 || n > len(c.Traces) {
		return nil, nil, fmt.Errorf("a sample of %d traces out of %d: want 1 to %d", n, len(c.Traces), len(c.Traces))
	}
	if err := c.NeedBlocks("a sample that keeps the hit rate"); err != nil {
		return nil, nil, err
	}
	s := newSampler(c)
	strata := s.strata(n)
	r := rand.New(rand.NewPCG(seed, 0x9e3779b97f4a7c15))
	var best []int
	bestScore := math.Inf(1)
	for range sampleDraws {
		draw := s.draw(r, strata, n)
		x := s.sum(draw)
		if score := x.score(s); score < bestScore {
			best, bestScore = draw, score
		}
	}
	best = s.improve(r, strata, best, bestScore)
	slices.Sort(best)
	traces := make([]*Trace, len(best))
	for i, j := range best {
		traces[i] = c.Traces[j]
	}
	rep := s.report(best)
	rep.Strata, rep.Tried = len(strata), sampleDraws+sampleSteps
	return c.derive(traces, fmt.Sprintf("sample of %d", n)), rep, nil
}

type sampler struct {
	traces   []*Trace
	profiles []*ReuseProfile
	children []int64   // turns that are no root's
	full     []float64 // the curve of the whole
	all      []int
	whole    sums
}

func newSampler(c *Corpus) *sampler {
	s := &sampler{traces: c.Traces, profiles: c.profiles()}
	s.full = curve(s.profiles)
	for i, t := range s.traces {
		s.all = append(s.all, i)
		s.children = append(s.children, int64(t.turns()-len(t.Streams[0].Turns)))
	}
	s.whole = s.sum(s.all)
	return s
}

// sums are what the traces of a draw add up to.
type sums struct {
	n                             int64
	bins                          [reuseBins]int64
	total, unique, peak           int64
	turns, children               int64
	maxCurve, meanCurve, atTokens float64
}

func (s *sampler) sum(draw []int) sums {
	var x sums
	for _, i := range draw {
		x.add(s, i, 1)
	}
	return x
}

// add puts a trace in, or with sign -1 takes it out.
func (x *sums) add(s *sampler, i int, sign int64) {
	p := s.profiles[i]
	x.n += sign
	for b, n := range p.Tokens {
		x.bins[b] += sign * n
	}
	x.total += sign * p.Total
	x.unique += sign * p.Unique
	x.peak += sign * p.Peak
	x.turns += sign * int64(s.traces[i].turns())
	x.children += sign * s.children[i]
}

// score is how far a draw is from the whole: hit rates count by their difference, a point as
// much as four percent of the working set.
func (x *sums) score(s *sampler) float64 {
	x.maxCurve, x.meanCurve = 0, 0
	var sum int64
	for b, n := range x.bins {
		sum += n
		d := math.Abs(float64(sum)/float64(max(1, x.total)) - s.full[b])
		x.meanCurve += d / reuseBins
		if d > x.maxCurve {
			x.maxCurve, x.atTokens = d, binTokens(b)
		}
	}
	off := func(a, b int64) float64 {
		return math.Abs(kept(float64(b)/float64(s.whole.n), float64(a)/float64(x.n)).Error)
	}
	return 4*x.maxCurve + 8*x.meanCurve + off(x.unique, s.whole.unique) + 0.2*off(x.turns, s.whole.turns) +
		0.1*off(x.peak, s.whole.peak) + 0.1*math.Abs(x.childShare()-s.whole.childShare())
}

func (x *sums) childShare() float64 { return float64(x.children) / float64(max(1, x.turns)) }

// strata are groups of similar traces, not more than a draw of n can serve.
func (s *sampler) strata(n int) [][]int {
	sets := min(8, max(1, n/2))
	perSet := 1
	if n >= 4*sets {
		perSet = 2
	}
	bySet := byKey(len(s.all), func(i int) float64 { return float64(s.profiles[i].Unique) })
	var out [][]int
	for _, group := range split(bySet, sets) {
		byReuse := byKey(len(group), func(i int) float64 {
			p := s.profiles[group[i]]
			return float64(p.Unique) / float64(max(1, p.Total))
		})
		for _, part := range split(byReuse, perSet) {
			list := make([]int, len(part))
			for i, j := range part {
				list[i] = group[j]
			}
			if len(list) > 0 {
				out = append(out, list)
			}
		}
	}
	return out
}

func split(list []int, n int) [][]int {
	var out [][]int
	for i := range n {
		out = append(out, list[i*len(list)/n:(i+1)*len(list)/n])
	}
	return out
}

// draw takes from each stratum its share of n; the remainders fall to strata at random, in
// proportion to their size.
func (s *sampler) draw(r *rand.Rand, strata [][]int, n int) []int {
	want := make([]int, len(strata))
	rest := n
	for i, list := range strata {
		want[i] = n * len(list) / len(s.all)
		rest -= want[i]
	}
	for _, i := range r.Perm(len(strata)) {
		if rest > 0 && want[i] < len(strata[i]) {
			want[i]++
			rest--
		}
	}
	var out []int
	for i, list := range strata {
		for _, j := range r.Perm(len(list))[:want[i]] {
			out = append(out, list[j])
		}
	}
	// What strata were too small for comes from anywhere.
	for _, i := range r.Perm(len(s.all)) {
		if len(out) >= n {
			break
		}
		if !slices.Contains(out, i) {
			out = append(out, i)
		}
	}
	return out
}

// improve exchanges traces of a draw for others of their stratum or one near it. A change for
// the worse is kept now and then, less often from step to step; the best draw of all is
// returned.
func (s *sampler) improve(r *rand.Rand, strata [][]int, draw []int, score float64) []int {
	stratum := make([]int, len(s.all))
	for i, list := range strata {
		for _, j := range list {
			stratum[j] = i
		}
	}
	in := make([]bool, len(s.all))
	for _, j := range draw {
		in[j] = true
	}
	best, bestScore := slices.Clone(draw), score
	now := s.sum(draw)
	for step := range sampleSteps {
		heat := 0.1 * math.Pow(0.001, float64(step)/sampleSteps)
		at := r.IntN(len(draw))
		old := draw[at]
		near := stratum[old] + r.IntN(5) - 2
		list := strata[min(max(near, 0), len(strata)-1)]
		other := list[r.IntN(len(list))]
		if in[other] {
			continue
		}
		now.add(s, old, -1)
		now.add(s, other, 1)
		next := now.score(s)
		if next > score && r.Float64() >= math.Exp((score-next)/heat) {
			now.add(s, other, -1)
			now.add(s, old, 1)
			continue
		}
		score, draw[at] = next, other
		in[old], in[other] = false, true
		if score < bestScore {
			bestScore = score
			copy(best, draw)
		}
	}
	return best
}

// report compares a draw with the whole.
func (s *sampler) report(draw []int) *SampleReport {
	x := s.sum(draw)
	x.score(s)
	rep := &SampleReport{Traces: len(draw), Of: len(s.all), MaxCurveError: x.maxCurve, AtTokens: int64(x.atTokens)}
	mean := func(v func(*sums) int64) Kept {
		return kept(float64(v(&s.whole))/float64(s.whole.n), float64(v(&x))/float64(x.n))
	}
	rep.WorkingSet = mean(func(x *sums) int64 { return x.unique })
	rep.Peak = mean(func(x *sums) int64 { return x.peak })
	rep.Turns = mean(func(x *sums) int64 { return x.turns })
	rep.ChildShare = kept(s.whole.childShare(), x.childShare())
	rep.WorkingSetP90 = kept(s.p90(s.all), s.p90(draw))
	profiles := make([]*ReuseProfile, len(draw))
	for i, j := range draw {
		profiles[i] = s.profiles[j]
	}
	var most int64
	for _, p := range s.profiles {
		most = max(most, p.Unique)
	}
	got := curve(profiles)
	for i := 0; i < reuseBins; i += reuseBinsPer2 {
		rep.Curve = append(rep.Curve, SamplePoint{int64(binTokens(i)), s.full[i], got[i]})
		if binTokens(i) > float64(most) {
			break
		}
	}
	return rep
}

func (s *sampler) p90(list []int) float64 {
	all := make([]float64, len(list))
	for i, j := range list {
		all[i] = float64(s.profiles[j].Unique)
	}
	slices.Sort(all)
	return quantile(all, .9)
}
