package result

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirbench/weir/internal/record"
)

// TestWeightedIsExpansion: the walk gives what writing every value out as often as its trace was
// drawn would give.
func TestWeightedIsExpansion(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 6).Draw(t, "traces")
		s := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) sample {
			return sample{float64(rapid.IntRange(0, 30).Draw(t, "v")), rapid.IntRange(0, n-1).Draw(t, "trace")}
		}), 1, 60).Draw(t, "samples")
		slices.SortFunc(s, func(a, b sample) int { return cmp.Compare(a.v, b.v) })
		w := rapid.SliceOfN(rapid.IntRange(0, 3), n, n).Draw(t, "weights")
		var all []float64
		for _, x := range s {
			for range w[x.c] {
				all = append(all, x.v)
			}
		}
		got, ok := weighted(s, w)
		if ok != (len(all) > 0) {
			t.Fatalf("ok %v for %d values", ok, len(all))
		}
		for i, p := range percents {
			if want := Percentile(all, p.q); ok && math.Abs(got[i]-want) > 1e-9 {
				t.Fatalf("%s = %v, want %v", p.name, got[i], want)
			}
		}
	})
}

// TestIntervalCovers draws many runs of the same load, whose traces differ from each other, and
// counts how often the interval of the median holds the true one. The generator's seed is fixed.
func TestIntervalCovers(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	const runs, traces, turns = 200, 40, 30
	covered := 0
	for range runs {
		c := newClusters()
		var values []float64
		for k := range traces {
			c.ids[fmt.Sprint(k)] = k
			slow := rng.NormFloat64() // what the requests of one trace share
			for range turns {
				v := (slow + 0.5*rng.NormFloat64() + 100) * ns
				c.ttft = append(c.ttft, sample{v, k})
				values = append(values, v)
			}
		}
		d := dist(values, ns)
		var to PercentIntervals
		percentIntervals(c.ttft, draws(len(c.ids)), &d, &to)
		if to.P50[0] <= 100 && 100 <= to.P50[1] {
			covered++
		}
	}
	// 95 % is promised; the percentile method with 40 clusters gives a little less.
	if share := float64(covered) / runs; share < 0.88 || share > 0.99 {
		t.Errorf("the interval of the median covers in %.1f %% of runs", 100*share)
	}
}

// TestIntervalsOfRun: a run with enough traces has intervals around its numbers, one with few
// has none, and a steady rate has a narrow one.
func TestIntervalsOfRun(t *testing.T) {
	m := meta()
	var qs []*record.Request
	for i := range 400 {
		q := ok(i+1, int64(i)*5*sec/2, 200*ms+int64(i*37%101)*ms, 10*ms, 51)
		q.Trace = fmt.Sprint("t", i%20)
		qs = append(qs, q)
	}
	r := derived(t, m, qs...)
	iv := r.Intervals
	if iv.Clusters != 20 || iv.TTFT.P90 == nil || iv.HitTotal == nil || iv.Total == nil {
		t.Fatalf("%+v", iv)
	}
	if p := *r.Latency.TTFT.P90; iv.TTFT.P90[0] > p || iv.TTFT.P90[1] < p || iv.TTFT.P90[0] == iv.TTFT.P90[1] {
		t.Errorf("p90 %v outside %v", p, *iv.TTFT.P90)
	}
	if iv.TTFT.P99 != nil {
		t.Error("an interval of a percentile that is withheld")
	}
	mid := *r.Throughput.Window.Total
	if w := (iv.Total[1] - iv.Total[0]) / mid; w > 0.02 || iv.Total[0] > mid || iv.Total[1] < mid {
		t.Errorf("a steady %v tok/s has the interval %v", mid, *iv.Total)
	}
	for _, q := range qs {
		q.Trace = "t" + q.Trace[len(q.Trace)-1:]
	}
	for _, q := range qs {
		if q.Trace > "t5" {
			q.Trace = "t1"
		}
	}
	if few := derived(t, m, qs...).Intervals; few.TTFT.P90 != nil || few.Total == nil {
		t.Errorf("%d traces: %+v", few.Clusters, few)
	}
}

// TestPairSeesMore: the same traces on both sides, B five percent slower throughout. The single
// runs' own intervals can't tell them apart; the pair can.
func TestPairSeesMore(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	m := meta()
	m.Corpus.Fingerprint = "c"
	var sides [2][]*record.Request
	for i := range 900 {
		trace := i % 30
		base := float64(100+trace*40) * (1 + 0.05*rng.NormFloat64())
		for k := range sides {
			slow := []float64{1, 1.05}[k] * (1 + 0.005*rng.NormFloat64())
			q := ok(i+1, int64(i)*sec, int64(base*slow*1e6), 10*ms, 51)
			q.Trace = fmt.Sprint("t", trace)
			sides[k] = append(sides[k], q)
		}
	}
	a, b := bundle(t, m, sides[0]...), bundle(t, m, sides[1]...)
	p, err := Pair(a, b)
	if err != nil {
		t.Fatal(err)
	}
	c := p.TTFT.P50
	if p.Traces != 30 || p.Coverage != 1 || c == nil || c.Value < 1.03 || c.Value > 1.07 || c.Interval[0] <= 1 || c.Interval[1] > 1.1 {
		t.Fatalf("%+v %+v", p, c)
	}
	ra, _ := Derive(a)
	rb, _ := Derive(b)
	if x, y := ra.Intervals.TTFT.P50, rb.Intervals.TTFT.P50; x[1] < y[0] {
		t.Errorf("the single intervals %v and %v are apart: the test shows nothing", *x, *y)
	}
	if self, err := Pair(a, a); err != nil || self.TTFT.P90.Value != 1 || self.TTFT.P90.Interval != (Interval{1, 1}) || self.Total.Value != 1 || self.HitTotal.Value != 0 {
		t.Errorf("with itself: %+v %v", self, err)
	}
	m.Seed++
	if _, err := Pair(a, bundle(t, m, sides[0]...)); err == nil {
		t.Error("runs with other seeds were paired")
	}
}
