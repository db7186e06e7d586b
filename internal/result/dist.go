package result

import (
	"math"
	"slices"
)

// Floors are the least numbers of samples for which a percentile is shown. They are the sizes
// at which a claim about the percentile holds with 99 % confidence although one sample lies
// beyond it: the least n with q^n + n (1-q) q^(n-1) <= 0.01. (MLPerf's early-stopping table has
// the same 24, 64 and 662.)
var Floors = struct{ P50, P75, P90, P95, P99 int64 }{11, 24, 64, 130, 662}

// Dist describes a sample. A percentile whose Floor is above N is withheld: nil. P interpolates
// linearly between the order statistics at q(n-1); Std is the population's.
type Dist struct {
	N    int64    `json:"n"`
	Mean *float64 `json:"mean"`
	Std  *float64 `json:"std"`
	Min  *float64 `json:"min"`
	Max  *float64 `json:"max"`
	P50  *float64 `json:"p50"`
	P75  *float64 `json:"p75"`
	P90  *float64 `json:"p90"`
	P95  *float64 `json:"p95"`
	P99  *float64 `json:"p99"`
}

// RateDist holds reciprocals of the percentiles of a time per token.
type RateDist struct {
	N   int64    `json:"n"`
	P50 *float64 `json:"p50"`
	P75 *float64 `json:"p75"`
	P90 *float64 `json:"p90"`
	P95 *float64 `json:"p95"`
	P99 *float64 `json:"p99"`
}

// AdjustedDist holds percentiles by nearest rank over successes and failures, a failure being
// infinitely late. A percentile that falls on a failure is nil and named in Unbounded.
type AdjustedDist struct {
	N         int64    `json:"n"`
	Failed    int64    `json:"failed"`
	P50       *float64 `json:"p50"`
	P75       *float64 `json:"p75"`
	P90       *float64 `json:"p90"`
	P95       *float64 `json:"p95"`
	P99       *float64 `json:"p99"`
	Unbounded []string `json:"unbounded"`
}

// percents are the percentiles that are shown, with their names and floors.
var percents = []struct {
	name  string
	q     int64 // percent
	floor int64
}{
	{"p50", 50, Floors.P50}, {"p75", 75, Floors.P75}, {"p90", 90, Floors.P90},
	{"p95", 95, Floors.P95}, {"p99", 99, Floors.P99},
}

func (d *Dist) slots() []**float64 { return []**float64{&d.P50, &d.P75, &d.P90, &d.P95, &d.P99} }
func (d *RateDist) slots() []**float64 {
	return []**float64{&d.P50, &d.P75, &d.P90, &d.P95, &d.P99}
}
func (d *AdjustedDist) slots() []**float64 {
	return []**float64{&d.P50, &d.P75, &d.P90, &d.P95, &d.P99}
}

// Percentile is the q-th percentile of sorted values, 0 <= q <= 100, interpolated linearly at
// q(n-1). It is 0 for an empty sample. Products are rounded before they are added, so that no
// processor's fused multiply-add changes a bit.
func Percentile(sorted []float64, q int64) float64 {
	n := int64(len(sorted))
	if n == 0 {
		return 0
	}
	at := q * (n - 1)
	i, rem := at/100, at%100
	if rem == 0 {
		return sorted[i]
	}
	step := float64((sorted[i+1] - sorted[i]) * float64(rem))
	return sorted[i] + float64(step/100)
}

// dist describes values divided by scale. It sorts its argument.
func dist(values []float64, scale float64) Dist {
	d := Dist{N: int64(len(values))}
	if d.N == 0 {
		return d
	}
	slices.Sort(values)
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	mean := sum / float64(d.N)
	sq := 0.0
	for _, v := range values {
		sq += float64((v - mean) * (v - mean))
	}
	d.Mean = defined(mean / scale)
	d.Min = defined(values[0] / scale)
	d.Max = defined(values[d.N-1] / scale)
	if d.N >= 2 {
		d.Std = defined(math.Sqrt(sq/float64(d.N)) / scale)
	}
	for i, slot := range d.slots() {
		if d.N >= percents[i].floor {
			*slot = defined(Percentile(values, percents[i].q) / scale)
		}
	}
	return d
}

// rates gives the reciprocals of the percentiles of d, which is in seconds per token.
func rates(d Dist) RateDist {
	r := RateDist{N: d.N}
	from := d.slots()
	for i, slot := range r.slots() {
		if p := *from[i]; p != nil && *p > 0 {
			*slot = defined(1 / *p)
		}
	}
	return r
}

// adjusted is the distribution of values, which are sorted, and of failed requests on top.
func adjusted(sorted []float64, failed int64, scale float64) AdjustedDist {
	d := AdjustedDist{N: int64(len(sorted)) + failed, Failed: failed, Unbounded: []string{}}
	for i, slot := range d.slots() {
		p := percents[i]
		if d.N < p.floor {
			continue
		}
		at := roundHalfEven(p.q*(d.N-1), 100)
		if at < int64(len(sorted)) {
			*slot = defined(sorted[at] / scale)
		} else {
			d.Unbounded = append(d.Unbounded, p.name)
		}
	}
	return d
}

// roundHalfEven is a/b rounded to the nearest integer, halves to even, for a >= 0 and b > 0.
func roundHalfEven(a, b int64) int64 {
	i, rem := a/b, a%b
	if 2*rem > b || 2*rem == b && i%2 == 1 {
		i++
	}
	return i
}

// defined is a pointer to v, nil when v is not finite.
func defined(v float64) *float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return &v
}

// ratio is a/b, nil when b is 0.
func ratio(a, b float64) *float64 {
	if b == 0 {
		return nil
	}
	return defined(a / b)
}

func seconds(ns int64) *float64 {
	if ns < 0 {
		return nil
	}
	return defined(float64(ns) / 1e9)
}

func known(n int64) *int64 {
	if n < 0 {
		return nil
	}
	return &n
}
