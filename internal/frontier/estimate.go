package frontier

import (
	"math"
	"slices"

	"github.com/weirbench/weir/internal/result"
)

// An Estimate is the number of a point over its repeats: the median, and between Low and High
// the true median with at least Level confidence (order statistics, no assumption about the
// distribution). With too few repeats for an interval at 95 %, Level is 0 and Low and High are
// the smallest and the largest of the repeats.
//
// Of a single run, Low and High are the interval from within the run where it has one (Within is
// true then), which knows nothing of what differs between runs.
type Estimate struct {
	Value  float64 `json:"value"`
	Low    float64 `json:"low"`
	High   float64 `json:"high"`
	N      int     `json:"n"` // runs
	Level  float64 `json:"level"`
	Within bool    `json:"within_run"`
}

// intervalLevel is the confidence that an interval must reach to be called one.
const intervalLevel = 0.95

// NewEstimate summarises the values of repeats; it needs at least one.
func NewEstimate(values []float64) Estimate {
	v := slices.Clone(values)
	slices.Sort(v)
	n := len(v)
	e := Estimate{Value: result.Percentile(v, 50), Low: v[0], High: v[n-1], N: n}
	// The interval of the k-th smallest to the k-th largest covers the median with
	// 1 - 2 P(Binomial(n, 1/2) < k).
	for k := n / 2; k >= 1; k-- {
		if level := 1 - 2*binomialBelow(n, k); level >= intervalLevel {
			e.Low, e.High, e.Level = v[k-1], v[n-k], level
			break
		}
	}
	return e
}

// binomialBelow is P(Binomial(n, 1/2) < k).
func binomialBelow(n, k int) float64 {
	term, sum := 1.0, 0.0
	for range n {
		term /= 2
	}
	for i := range k {
		sum += term
		term = term * float64(n-i) / float64(i+1)
	}
	return sum
}

// estimate is the number of runs on an axis; a run without one is left out while another has it.
func estimate(runs []*result.Result, a *Axis) (e Estimate, why string, ok bool) {
	var values []float64
	for _, r := range runs {
		v, w, has := a.Value(r)
		if has {
			values = append(values, v)
		} else {
			why = w
		}
	}
	if len(values) == 0 {
		return Estimate{}, why, false
	}
	e = NewEstimate(values)
	if len(values) == 1 {
		for _, r := range runs {
			if i := a.Within(r); i != nil && a.Has(r) != nil {
				e.Low, e.High, e.Level, e.Within = math.Min(i[0], e.Value), math.Max(i[1], e.Value), r.Intervals.Level, true
			}
		}
	}
	return e, "", true
}
