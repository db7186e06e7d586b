package run

import (
	"slices"
	"strings"
	"testing"

	"github.com/weirbench/weir/internal/result"
)

// short is the result of a valid point with too few requests for a percentile.
func short(throughput, sum float64) *result.Result {
	r := &result.Result{Valid: true}
	r.Throughput.EdgePerGPU.Total, r.Intvty.E2ESum = &throughput, &sum
	return r
}

// TestAdaptiveShort: valid points without percentiles have an outcome, are never called without a
// result, and are compared with others by the measure that all of them have.
func TestAdaptiveShort(t *testing.T) {
	jobs := space([]int{1, 2, 4, 8, 16, 32, 64}, "none")
	few := true // whether the points that end have too few requests
	_, reasons, _ := drive(t, &Adaptive{Knee: func(*Job) int { return 8 }}, jobs, func(j *Job) *Outcome {
		want := saturating(j, 40)
		o := OutcomeOf(short(want.Throughput, want.Interactivity))
		if !o.ok() {
			t.Errorf("concurrency %d: a valid point counts as one without a result: %+v", j.Point.Conc, *o)
		}
		if few = !few; few {
			o.Interactivity = 7 // a percentile of a longer point, which is no measure beside a sum
		}
		return o
	})
	if i := slices.IndexFunc(reasons, func(s string) bool { return strings.Contains(s, "gave no result") }); i >= 0 {
		t.Errorf("a valid point counts as one without a result: %s", reasons[i])
	}
	if !slices.ContainsFunc(reasons, func(s string) bool { return strings.HasPrefix(s, "above concurrency 32") }) {
		t.Errorf("it never went above concurrency 32: %q", reasons)
	}
	line := []int{0, 1}
	done := oneMeasure([]*Outcome{{Throughput: 1, Interactivity: 50, Sum: 90}, {Throughput: 2, Sum: 80}}, line)
	if done[0].Interactivity != 90 || done[1].Interactivity != 80 {
		t.Errorf("a percentile stands beside a sum: %+v, %+v", *done[0], *done[1])
	}
	done = oneMeasure([]*Outcome{{Throughput: 1, Interactivity: 50, Sum: 90}, {Throughput: 2, Interactivity: 40, Sum: 80}}, line)
	if done[0].Interactivity != 50 || done[1].Interactivity != 40 {
		t.Errorf("percentiles that all have are not used: %+v, %+v", *done[0], *done[1])
	}
	if o := OutcomeOf(&result.Result{}); o.ok() {
		t.Errorf("an invalid result counts: %+v", *o)
	}
}
