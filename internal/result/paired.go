package result

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/weirbench/weir/internal/record"
)

// Paired compares two runs trace by trace: what both replayed is resampled by whole traces, the
// same ones on both sides, so that what makes one trace slower than another drops out. It knows
// nothing of what else differs between two runs; only repeats do.
//
// Changes are B/A for times and throughput and B-A for the hit rate, over the traces that both
// runs replayed; an interval holds 95 %.
type Paired struct {
	Traces      int // that both replayed
	Coverage    float64
	TTFT        PercentChanges
	E2EL        PercentChanges
	ITL         PercentChanges
	E2EPerToken PercentChanges
	HitTotal    *Change
	// Total is the throughput inside the window, part by part of it, and TotalPerGPU that of a
	// used GPU.
	Total       *Change
	TotalPerGPU *Change
}

// PercentChanges are changes of percentiles; one that either side withholds is nil.
type PercentChanges struct{ P50, P75, P90, P95, P99 *Change }

func (p *PercentChanges) slots() []**Change {
	return []**Change{&p.P50, &p.P75, &p.P90, &p.P95, &p.P99}
}

// A Change is what it was found to be and its interval.
type Change struct {
	Value float64
	Interval
}

// Pair reads two bundles of one schedule. It fails when they did not replay the same corpus in
// the same way with the same seed. With fewer than ten common traces only throughput is compared.
func Pair(a, b *record.Bundle) (*Paired, error) {
	switch ma, mb := a.Meta, b.Meta; {
	case ma.Corpus.Fingerprint == "" || ma.Corpus.Fingerprint != mb.Corpus.Fingerprint:
		return nil, errors.New("the runs replayed other corpora")
	case ma.Seed != mb.Seed:
		return nil, fmt.Errorf("the runs have other seeds, %d and %d", ma.Seed, mb.Seed)
	case ma.Semantics != mb.Semantics:
		return nil, fmt.Errorf("the runs replayed by other semantics, %s and %s", ma.Semantics, mb.Semantics)
	}
	ta, err := gather(a)
	if err != nil {
		return nil, err
	}
	tb, err := gather(b)
	if err != nil {
		return nil, err
	}
	return pair(ta, tb), nil
}

// PairDirs is Pair of the bundles in two folders.
func PairDirs(a, b string) (*Paired, error) {
	ba, err := record.OpenBundle(a)
	if err != nil {
		return nil, err
	}
	bb, err := record.OpenBundle(b)
	if err != nil {
		return nil, err
	}
	return Pair(ba, bb)
}

func gather(b *record.Bundle) (*tally, error) {
	t := newTally(b.Meta)
	for q, err := range b.Requests() {
		if err != nil {
			return nil, err
		}
		if err := check(q); err != nil {
			return nil, fmt.Errorf("%s/%s: request %d: %w", b.Dir, record.RequestsFile, q.Seq, err)
		}
		t.add(q)
	}
	return t, nil
}

func pair(a, b *tally) *Paired {
	var common []string
	for id := range a.cl.ids {
		if _, ok := b.cl.ids[id]; ok {
			common = append(common, id)
		}
	}
	slices.Sort(common)
	p := &Paired{Traces: len(common)}
	if wa, wb := a.meta.Window, b.meta.Window; wa.EndNs > wa.StartNs && wa.EndNs-wa.StartNs == wb.EndNs-wb.StartNs {
		p.Total = batchChange(&a.cl, &b.cl)
		if ga, gb := gpus(a.meta).Used, gpus(b.meta).Used; p.Total != nil && ga > 0 && gb > 0 {
			f := float64(ga) / float64(gb)
			p.TotalPerGPU = &Change{p.Total.Value * f, Interval{p.Total.Interval[0] * f, p.Total.Interval[1] * f}}
		}
	}
	if p.Traces < minClusters { // too few to say more
		return p
	}
	number := make(map[string]int, len(common))
	for i, id := range common {
		number[id] = i
	}
	ca, na := a.cl.only(number)
	cb, nb := b.cl.only(number)
	p.Coverage = float64(na+nb) / float64(max(1, len(a.cl.ttft)+len(b.cl.ttft)))
	weights := draws(len(common))
	for _, m := range []struct {
		a, b []sample
		to   *PercentChanges
	}{
		{ca.ttft, cb.ttft, &p.TTFT}, {ca.e2el, cb.e2el, &p.E2EL}, {ca.itl, cb.itl, &p.ITL}, {ca.e2elPerToken, cb.e2elPerToken, &p.E2EPerToken},
	} {
		percentChanges(m.a, m.b, weights, len(common), m.to)
	}
	p.HitTotal = hitChange(&ca, &cb, weights)
	return p
}

// only keeps what belongs to the numbered traces, under these numbers.
func (c *clusters) only(number map[string]int) (out clusters, requests int) {
	to := make([]int, len(c.ids))
	out.hit, out.prompt = make([]float64, len(number)), make([]float64, len(number))
	for id, i := range c.ids {
		to[i] = -1
		if k, ok := number[id]; ok {
			to[i] = k
			out.hit[k], out.prompt[k] = c.hit[i], c.prompt[i]
		}
	}
	keep := func(from []sample) []sample {
		var s []sample
		for _, x := range from {
			if k := to[x.c]; k >= 0 {
				s = append(s, sample{x.v, k})
			}
		}
		slices.SortFunc(s, func(a, b sample) int { return cmp.Or(cmp.Compare(a.v, b.v), cmp.Compare(a.c, b.c)) })
		return s
	}
	out.ttft, out.e2el, out.itl, out.e2elPerToken = keep(c.ttft), keep(c.e2el), keep(c.itl), keep(c.e2elPerToken)
	return out, len(out.ttft)
}

// draws makes resamples of n traces: how often each is in each. The seed is fixed.
func draws(n int) [][]int {
	rng := rand.New(rand.NewPCG(0x77656972, 1))
	out := make([][]int, resamples)
	for i := range out {
		out[i] = make([]int, n)
		for range n {
			out[i][rng.IntN(n)]++
		}
	}
	return out
}

func percentChanges(a, b []sample, weights [][]int, n int, to *PercentChanges) {
	once := slices.Repeat([]int{1}, n)
	pa, okA := weighted(a, once)
	pb, okB := weighted(b, once)
	if !okA || !okB {
		return
	}
	est := make([][]float64, len(percents))
	for _, w := range weights {
		x, okX := weighted(a, w)
		y, okY := weighted(b, w)
		if !okX || !okY {
			continue
		}
		for i := range percents {
			if x[i] > 0 {
				est[i] = append(est[i], y[i]/x[i])
			}
		}
	}
	for i, slot := range to.slots() {
		if floor := percents[i].floor; int64(len(a)) < floor || int64(len(b)) < floor || pa[i] <= 0 {
			continue
		}
		if iv := middle(est[i], 1); iv != nil {
			*slot = &Change{pb[i] / pa[i], *iv}
		}
	}
}

func hitChange(a, b *clusters, weights [][]int) *Change {
	rate := func(c *clusters, w []int) (float64, bool) {
		hit, of := 0.0, 0.0
		for i, k := range w {
			hit += float64(float64(k) * c.hit[i])
			of += float64(float64(k) * c.prompt[i])
		}
		return hit / of, of > 0
	}
	var est []float64
	for _, w := range weights {
		x, okX := rate(a, w)
		y, okY := rate(b, w)
		if okX && okY {
			est = append(est, y-x)
		}
	}
	once := slices.Repeat([]int{1}, len(a.hit))
	x, okX := rate(a, once)
	y, okY := rate(b, once)
	iv := middle(est, 1)
	if !okX || !okY || iv == nil {
		return nil
	}
	return &Change{y - x, *iv}
}

// batchChange compares the two windows part by part.
func batchChange(a, b *clusters) *Change {
	var sumA, sum, sq float64
	for i := range batches {
		sumA += a.batch[i]
		sum += b.batch[i] - a.batch[i]
	}
	if sumA <= 0 {
		return nil
	}
	mean := sum / batches
	for i := range batches {
		d := b.batch[i] - a.batch[i] - mean
		sq += float64(d * d)
	}
	half := studentT19 * math.Sqrt(sq/(batches-1)/batches)
	base := sumA / batches
	return &Change{1 + mean/base, Interval{math.Max(0, 1+(mean-half)/base), 1 + (mean+half)/base}}
}
