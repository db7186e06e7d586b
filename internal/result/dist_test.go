package result

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirbench/weir/internal/record"
)

// TestFloors checks the floors against the formula in their comment.
func TestFloors(t *testing.T) {
	for _, p := range percents {
		q := float64(p.q) / 100
		holds := func(n int64) bool {
			return math.Pow(q, float64(n))+float64(n)*(1-q)*math.Pow(q, float64(n-1)) <= 0.01
		}
		if !holds(p.floor) || holds(p.floor-1) {
			t.Errorf("%s: floor %d is not the least n", p.name, p.floor)
		}
	}
}

// TestPercentileNumpy: numpy.percentile gives these (numpy 2.1, method "linear").
func TestPercentileNumpy(t *testing.T) {
	v := []float64{1, 2, 4, 8, 16, 32, 64}
	for q, want := range map[int64]float64{0: 1, 50: 8, 75: 24, 90: 44.8, 95: 54.4, 99: 62.08, 100: 64} {
		if got := Percentile(v, q); math.Abs(got-want) > 1e-12 {
			t.Errorf("p%d = %v, want %v", q, got, want)
		}
	}
}

// TestPercentileProperties: within the sample, monotone in q, and equal to the definition.
func TestPercentileProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := rapid.SliceOfN(rapid.Float64Range(-1e12, 1e12), 1, 200).Draw(t, "values")
		slices.Sort(v)
		last := math.Inf(-1)
		for q := int64(0); q <= 100; q++ {
			got := Percentile(v, q)
			if got < last-1e-3 || got < v[0]-1e-3 || got > v[len(v)-1]+1e-3 {
				t.Fatalf("p%d = %v outside or below the one before, %v", q, got, last)
			}
			last = got
			at := float64(q) / 100 * float64(len(v)-1)
			lo := int(math.Floor(at))
			hi := min(lo+1, len(v)-1)
			naive := v[lo] + (v[hi]-v[lo])*(at-float64(lo))
			if math.Abs(got-naive) > 1e-9*math.Max(1, math.Abs(v[hi]-v[lo])) {
				t.Fatalf("p%d = %v, by definition %v", q, got, naive)
			}
		}
	})
}

// TestDistProperties: what is shown has its floor, nothing is NaN, order of the input is no matter.
func TestDistProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := rapid.SliceOfN(rapid.Float64Range(0, 1e15), 0, 800).Draw(t, "values")
		failed := rapid.Int64Range(0, 50).Draw(t, "failed")
		w := slices.Clone(v)
		slices.Reverse(w)
		a, b := dist(slices.Clone(v), ns), dist(w, ns)
		for i, slot := range a.slots() {
			if (*slot != nil) != (a.N >= percents[i].floor) {
				t.Fatalf("%s of %d samples", percents[i].name, a.N)
			}
			if *slot != nil && **slot != **b.slots()[i] {
				t.Fatalf("%s depends on the order", percents[i].name)
			}
		}
		if a.Std != nil && !(*a.Std >= 0) {
			t.Fatalf("std %v", *a.Std)
		}
		s := slices.Clone(v)
		slices.Sort(s)
		adj := adjusted(s, failed, ns)
		for i, slot := range adj.slots() {
			if *slot != nil && *a.slots()[i] != nil && a.N > 0 && failed > 0 && **slot < *a.Min {
				t.Fatalf("adjusted %s below the minimum", percents[i].name)
			}
		}
	})
}

// TestRoundHalfEven: numpy.round's rule.
func TestRoundHalfEven(t *testing.T) {
	for a, want := range map[int64]int64{50: 0, 150: 2, 250: 2, 350: 4, 149: 1, 151: 2, 0: 0} {
		if got := roundHalfEven(a, 100); got != want {
			t.Errorf("%d/100 = %d, want %d", a, got, want)
		}
	}
}

// TestGauges integrates steps over the window and leaves repeated ranks out.
func TestGauges(t *testing.T) {
	g := newGauges(&record.Meta{Window: record.Window{StartNs: 10, EndNs: 20}})
	for _, s := range []record.Sample{
		{At: 0, Source: "a", Values: map[string]float64{`sglang:token_usage{tp_rank="0"}`: 1, `sglang:num_running_reqs{tp_rank="0"}`: 4}},
		{At: 15, Source: "a", Values: map[string]float64{`sglang:token_usage{tp_rank="0"}`: 0.5, `sglang:token_usage{tp_rank="1"}`: 9, `sglang:num_running_reqs{tp_rank="0"}`: 2,
			`sglang:hicache_host_used_tokens`: 30, `sglang:hicache_host_total_tokens`: 60}},
		{At: 30, Source: "a", Values: map[string]float64{`sglang:token_usage{tp_rank="0"}`: 0.9}},
	} {
		g.add(&s)
	}
	s := g.server()
	want(t, "device mean", s.DeviceKVMean, 0.75)
	want(t, "device max", s.DeviceKVMax, 1)
	want(t, "running", s.RunningMean, 3)
	want(t, "host", s.HostKVMean, 0.5)
	if s.QueuedMean != nil || s.Samples != 1 {
		t.Errorf("queued %v, samples %d", s.QueuedMean, s.Samples)
	}
}
