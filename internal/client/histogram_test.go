package client

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestHistogram holds quantiles against sorted values: never below, and at most 1/64 above.
func TestHistogram(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.Int64Range(0, 1<<40-1), 1, 200).Draw(t, "values")
		var h histogram
		for _, v := range values {
			h.observe(v)
		}
		slices.Sort(values)
		q := rapid.Float64Range(0, 1).Draw(t, "q")
		rank := min(int(q*float64(len(values))), len(values)-1)
		want := values[rank]
		if got := h.quantile(q); got < want || got > want+want/steps+1 {
			t.Fatalf("quantile %v of %v is %d, want %d", q, values, got, want)
		}
		if h.max.Load() != values[len(values)-1] || h.n.Load() != uint64(len(values)) {
			t.Fatal("count or maximum is wrong")
		}
	})
	last := -1
	for _, v := range []int64{0, 1, 63, 64, 65, 127, 128, 1000, 1 << 20, 1 << 39, 1 << 40, 1 << 50, math.MaxInt64} {
		i := bucketOf(v)
		if i < last || upper(i) < min(v, 1<<40-1) {
			t.Errorf("%d is in bucket %d, up to %d", v, i, upper(i))
		}
		last = i
	}
}
