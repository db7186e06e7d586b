package replay

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/weirbench/weir/internal/corpus"
)

// lines is a file of requests that name no session, at times in seconds.
func lines(at ...int64) *corpus.Corpus {
	t := &corpus.Trace{ID: "f", BlockSize: 64, Models: []string{"m"}}
	for i, s := range at {
		t.Streams = append(t.Streams, corpus.Stream{ID: "f", Parent: min(0, i-1), Join: corpus.Unbound,
			Turns: []corpus.Turn{{StartNs: s * second, In: 64, Out: 1, Blocks: []uint32{uint32(i)}}}})
	}
	return &corpus.Corpus{Name: "f", Traces: []*corpus.Trace{t}}
}

// TestCrowd holds what is said before a run against runs whose answers take a fixed time: never
// more in flight than Most, never less at the peak than Sure, and more than n at once on a schedule
// exactly when answers take longer than Reach(n).
func TestCrowd(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for round := range 60 {
		at := make([]int64, 2+rng.IntN(30))
		for i := 1; i < len(at); i++ {
			at[i] = at[i-1] + rng.Int64N(4)
		}
		o := Load{Arrival: Schedule, EachTurn: true, Speed: float64(1 + rng.IntN(3)), MaxRequests: uint64(rng.IntN(2) * 10)}
		if round%3 == 1 {
			o.Arrival, o.Rate, o.Shape, o.DurationNs, o.Loop = Arrival(int(Constant)+rng.IntN(3)), 2, 1, int64(rng.IntN(20))*second, true
			if o.DurationNs == 0 {
				o.Loop = false
			}
		}
		c := lines(at...)
		w := o.Crowd(c)
		for _, took := range []int64{1, second / 2, 3 * second, 1000 * second} {
			peak := peakOf(t, c, o, took)
			if peak > w.Most || o.Arrival == Schedule && peak < w.Sure {
				t.Fatalf("%+v on %v with answers of %d ns: %d in flight, said %d to %d", o, at, took, peak, w.Sure, w.Most)
			}
			for n := 1; n < len(at) && o.Arrival == Schedule && o.MaxRequests == 0; n++ {
				if reach := w.Reach(n); (peak > n) != (took > reach) {
					t.Fatalf("%+v on %v with answers of %d ns: %d in flight, more than %d is said to need over %d ns", o, at, took, peak, n, reach)
				}
			}
		}
		if took := int64(1000 * second); o.Arrival != Schedule && peakOf(t, c, o, took) != w.Most {
			t.Fatalf("%+v: %d in flight when no answer comes, said %d", o, peakOf(t, c, o, took), w.Most)
		}
	}
	if w := (&Load{Arrival: Poisson, Rate: 1, Concurrency: 3}).Crowd(lines(0, 1)); w != nil {
		t.Errorf("a load with a cap: %+v", w)
	}
	endless := Load{Arrival: Users, Rate: 1, NumUsers: 2, Loop: true, MaxRequests: math.MaxInt64}
	if w := endless.Crowd(lines(0, 1)); w.Sure != 2 || w.Most < math.MaxInt32 {
		t.Errorf("users without an end: %+v", w)
	}
}

// peakOf runs a load in virtual time against answers that all take the same time, and counts
// how many were in flight at once.
func peakOf(t *testing.T, c *corpus.Corpus, o Load, took int64) int {
	t.Helper()
	o.GraceNs = -1
	_, log := runLoad(t, c, o, constant(took))
	var begun []int64
	for _, r := range log {
		begun = append(begun, r.q.Queued)
	}
	peak := 0
	for _, at := range begun {
		n := 0
		for k := range begun {
			if begun[k] <= at && at < begun[k]+took {
				n++
			}
		}
		peak = max(peak, n)
	}
	return peak
}
