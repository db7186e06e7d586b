package replay

import (
	"fmt"
	"math"
)

// Pair is one of several input and output lengths that turns draw from.
type Pair struct {
	In, Out       int64   // tokens, at least 1
	InDev, OutDev float64 // deviations of normal draws around them; 0 is fixed
	Share         float64 // of all turns, percent; those of all pairs add up to 100
}

// Range bounds the lengths of turns, both ends included; tokens, at least 1.
type Range struct{ InLow, InHigh, OutLow, OutHigh int64 }

func (r *Range) check() error {
	if r.InLow < 1 || r.OutLow < 1 || r.InHigh < r.InLow || r.OutHigh < r.OutLow || r.InHigh > math.MaxInt32 || r.OutHigh > math.MaxInt32 {
		return fmt.Errorf("input from %d to %d and output from %d to %d tokens: need 1 <= low <= high <= %d", r.InLow, r.InHigh, r.OutLow, r.OutHigh, math.MaxInt32)
	}
	return nil
}

func checkPairs(pairs []Pair) error {
	sum := 0.0
	for i, p := range pairs {
		if p.In < 1 || p.Out < 1 || p.In > math.MaxInt32 || p.Out > math.MaxInt32 {
			return fmt.Errorf("pair %d has %d input and %d output tokens: both need 1 to %d", i+1, p.In, p.Out, math.MaxInt32)
		}
		if !(p.InDev >= 0 && p.OutDev >= 0 && p.InDev <= 1e9 && p.OutDev <= 1e9) {
			return fmt.Errorf("pair %d has deviations %v and %v: need 0 to 1e9", i+1, p.InDev, p.OutDev)
		}
		if !(p.Share >= 0 && p.Share <= 100) {
			return fmt.Errorf("pair %d has a share of %v %%: need 0 to 100", i+1, p.Share)
		}
		sum += p.Share
	}
	if math.Abs(sum-100) > 1e-4 {
		return fmt.Errorf("the shares of %d pairs add up to %v %%: need 100", len(pairs), sum)
	}
	return nil
}

// turnDraws gives the lengths of a turn in AIPerf's order, from the generators that AIPerf derives from the seed
// (common/models/sequence_distribution.py, dataset/composer of 0.13, 2026-10).
func (l *Lengths) turnDraws() func() (in, out int64) {
	switch {
	case len(l.Pairs) > 0:
		r := aiperfRandom(l.Seed, "models.sequence.distribution")
		return func() (int64, int64) {
			at, sum := r.float64(), 0.0
			p := l.Pairs[len(l.Pairs)-1]
			for _, q := range l.Pairs {
				if sum += q.Share / 100; sum > at {
					p = q
					break
				}
			}
			in := r.around(float64(p.In), p.InDev)
			return in, r.around(float64(p.Out), p.OutDev)
		}
	case l.Range != nil:
		r := newPCG64(aiperfSeed(l.Seed, "models.range_ratio.distribution"))
		one := func(low, high int64) int64 { return low + int64(r.intn(uint32(high-low+1))) }
		return func() (int64, int64) {
			in := one(l.Range.InLow, l.Range.InHigh)
			return in, one(l.Range.OutLow, l.Range.OutHigh)
		}
	case l.InDev > 0 || l.OutDev > 0:
		in, out := aiperfRandom(l.Seed, "dataset.prompt.length"), aiperfRandom(l.Seed, "composer.turn.max_tokens")
		return func() (int64, int64) {
			return in.around(float64(l.In), l.InDev), out.around(float64(l.Out), l.OutDev)
		}
	}
	ratio := l.RangeRatio
	if ratio == 0 {
		ratio = 1
	}
	rng := newPCG64(laneSeed(l.Seed, "lengths", 0))
	draw := func(n int64) int64 {
		low := max(1, int64(ratio*float64(n)))
		return low + int64(rng.intn(uint32(min(n-low, 1<<32-2)+1)))
	}
	return func() (int64, int64) {
		in := draw(l.In)
		return in, draw(l.Out)
	}
}

// largest bounds a turn's new tokens: a normal draw is at most so many deviations off.
func (l *Lengths) largest() (in, out float64) {
	const far = 12
	in, out = float64(l.In)+far*l.InDev, float64(l.Out)+far*l.OutDev
	for _, p := range l.Pairs {
		in, out = max(in, float64(p.In)+far*p.InDev), max(out, float64(p.Out)+far*p.OutDev)
	}
	if l.Range != nil {
		in, out = max(in, float64(l.Range.InHigh)), max(out, float64(l.Range.OutHigh))
	}
	return in, out
}

// sampled is the conversation at a place of the list: that of the place, of a list that is shuffled for each pass, or
// any (dataset/dataset_samplers.py of 0.13, 2026-10).
func (l *load) sampled(place int) int {
	switch l.o.Sampling {
	case Shuffle:
		if l.shuffle == nil {
			l.shuffle = newPCG64(aiperfSeed(l.o.Seed, "dataset.sampler.shuffle"))
			for i := range l.units {
				l.order = append(l.order, i)
			}
		}
		if place == 0 {
			for i := len(l.order) - 1; i > 0; i-- {
				k := l.shuffle.upTo(uint32(i))
				l.order[i], l.order[k] = l.order[k], l.order[i]
			}
		}
		return l.order[place]
	case Random:
		if l.random == nil {
			l.random = aiperfRandom(l.o.Seed, "dataset.sampler.random")
		}
		return int(l.random.intn(uint32(len(l.units))))
	}
	return place
}
