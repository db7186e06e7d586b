package replay

import (
	"math"

	"github.com/weirbench/weir/internal/corpus"
)

// mostDrawn is how many arrivals are drawn to count those of a run; beyond it the count is the mean.
const mostDrawn = 1 << 22

// A Crowd is what is known before the start of how many requests of a load can be in flight when
// nothing caps it: that depends on how fast answers come.
type Crowd struct {
	Sure int // go out at the same time, whatever the server does
	Most int // can be in flight if no answer ever comes

	starts []int64 // when each begins, sorted, of a schedule
	rate   float64 // else how many begin in a second
}

// Crowd is nil for a load with a cap. A conversation has one request in flight, so conversations
// are counted; that of the corpus must be what NewLoad takes.
func (o *Load) Crowd(c *corpus.Corpus) *Crowd {
	if o.Arrival == Closed || o.Concurrency > 0 {
		return nil
	}
	s, err := NewLoad(c, *o)
	if err != nil {
		return nil
	}
	l := s.m.(*load)
	w := &Crowd{Sure: max(len(l.warm), 1), Most: len(l.units)}
	speed := l.o.Speed
	if o.Arrival == Schedule {
		units, run := l.units, 0
		if o.MaxRequests > 0 && o.MaxRequests < uint64(len(units)) {
			units = units[:o.MaxRequests]
		}
		for i := range units {
			at := int64(math.Round(float64(units[i].start()-l.o.FromNs) / speed))
			if l.o.DurationNs > 0 && at >= l.o.DurationNs {
				w.Most = i
				break
			}
			if run++; i > 0 && at != w.starts[i-1] {
				run = 1
			}
			w.starts = append(w.starts, at)
			if o.MaxRequests == 0 || o.EachTurn { // else further turns may use the number up before
				w.Sure = max(w.Sure, run)
			}
		}
	} else {
		w.rate = o.Rate
		if o.Arrival == Users {
			w.Sure = max(w.Sure, o.NumUsers)
		}
		if o.DurationNs > 0 {
			begun := o.arrivals()
			if o.Arrival == Users {
				begun = begun + o.NumUsers
			}
			if w.Most = min(w.Most, begun); o.Loop {
				w.Most = begun
			}
		} else if o.Loop {
			w.Most = math.MaxInt
		}
	}
	if o.MaxRequests > 0 && uint64(w.Most) > o.MaxRequests {
		w.Most = int(o.MaxRequests)
	}
	w.Most = max(w.Most, w.Sure)
	return w
}

// arrivals is how many there are within the duration: for a seed they are always the same.
func (o *Load) arrivals() int {
	end := o.DurationNs
	if mean := o.Rate * float64(end) / 1e9; mean > mostDrawn || o.Arrival == Users {
		return int(min(mean, 1e15)) + 1
	}
	v := intervals{kind: o.Arrival, rate: o.Rate, shape: o.Shape, rng: newPCG64(laneSeed(o.Seed, "arrivals", 0))}
	n := 0
	for v.next() < end {
		n++
	}
	return n
}

// Reach is how long answers must take at least, in nanoseconds, until more than n requests can be in
// flight; for a rate it is so on average.
func (w *Crowd) Reach(n int) int64 {
	if w.starts == nil {
		return int64(min(float64(n)/w.rate*1e9, math.MaxInt64/2))
	}
	least := int64(math.MaxInt64)
	for i := n; i < len(w.starts); i++ {
		least = min(least, w.starts[i]-w.starts[i-n])
	}
	return least
}
