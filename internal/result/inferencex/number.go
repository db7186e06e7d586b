// Package inferencex reads the artifacts that AIPerf leaves and forms the rows that
// InferenceX's dashboard reads: the agentic aggregate (utils/agentic/aggregation at 843c625,
// 2026-08) and the row of a fixed-sequence-length benchmark (utils/process_result.py).
//
// The rows are compatible to the key and to the digit, also where InferenceX's number is a
// known fault. What Weir thinks right stands beside it, under its own name, in Own.
package inferencex

import (
	"errors"
	"math"
	"slices"
	"strconv"
)

// A Number is a float in a row: rounded to five places, written as an integer when that leaves
// a whole number of at least 1, as InferenceX's aggregator writes it. It is never NaN or
// infinite; an unknown one is a nil pointer and is written as null.
type Number float64

// MarshalJSON writes the number as the aggregator does.
func (n Number) MarshalJSON() ([]byte, error) {
	if f := float64(n); math.IsNaN(f) || math.IsInf(f, 0) {
		return nil, errors.New("a value of the row is beyond every number: the counts or times that it is made of cannot be true")
	}
	s := strconv.FormatFloat(float64(n), 'f', 5, 64)
	v, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return nil, err
	}
	if math.Abs(v) >= 1 && v == math.Trunc(v) {
		return strconv.AppendFloat(nil, v, 'f', 0, 64), nil
	}
	out := strconv.AppendFloat(nil, v, 'f', -1, 64)
	if v == math.Trunc(v) { // zero is a float there
		out = append(out, ".0"...)
	}
	return out, nil
}

// number makes a Number of a finite value, nil of any other.
func number(v float64) *Number {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	n := Number(v)
	return &n
}

// ratio is a/b, nil when either is unknown or b is not above 0.
func ratio(a, b *float64) *float64 {
	if a == nil || b == nil || *b <= 0 {
		return nil
	}
	r := *a / *b
	return &r
}

func numberOf(v *float64) *Number {
	if v == nil {
		return nil
	}
	return number(*v)
}

// counter is a counter's total as an integer, rounded half to even; nil where no integer holds it.
func counter(v *float64) *int64 {
	if v == nil || math.IsNaN(*v) || math.Abs(*v) >= 1<<63 {
		return nil
	}
	n := int64(math.RoundToEven(*v))
	return &n
}

// A Spread holds the statistics of a distribution; its percentiles interpolate linearly at
// q(n-1) and Std is the population's. All fields are nil, and left out, when there was no value.
type Spread struct {
	Mean *Number `json:"mean,omitempty"`
	P50  *Number `json:"p50,omitempty"`
	P75  *Number `json:"p75,omitempty"`
	P90  *Number `json:"p90,omitempty"`
	P95  *Number `json:"p95,omitempty"`
	Std  *Number `json:"std,omitempty"`
}

// moments are a Spread before it is rounded.
type moments struct {
	n                            int
	mean, p50, p75, p90, p95, sd float64
}

func momentsOf(values []float64) moments {
	m := moments{n: len(values)}
	if m.n == 0 {
		return m
	}
	sorted := slices.Clone(values)
	slices.Sort(sorted)
	m.mean, m.sd = meanAndDeviation(values)
	at := func(q float64) float64 {
		k := float64(m.n-1) * q / 100
		i := int(k)
		if i+1 >= m.n {
			return sorted[i]
		}
		return sorted[i] + (k-float64(i))*(sorted[i+1]-sorted[i])
	}
	m.p50, m.p75, m.p90, m.p95 = at(50), at(75), at(90), at(95)
	return m
}

// meanAndDeviation sums with compensation, so that order and size of the values do not show in
// five places.
func meanAndDeviation(values []float64) (mean, sd float64) {
	n := float64(len(values))
	mean = sum(values) / n
	squares := make([]float64, len(values))
	for i, v := range values {
		squares[i] = (v - mean) * (v - mean)
	}
	return mean, math.Sqrt(sum(squares) / n)
}

// sum is Neumaier's compensated sum.
func sum(values []float64) float64 {
	var total, lost float64
	for _, v := range values {
		t := total + v
		if math.Abs(total) >= math.Abs(v) {
			lost += (total - t) + v
		} else {
			lost += (v - t) + total
		}
		total = t
	}
	return total + lost
}

func (m moments) spread() Spread {
	if m.n == 0 {
		return Spread{}
	}
	return Spread{Mean: number(m.mean), P50: number(m.p50), P75: number(m.p75), P90: number(m.p90), P95: number(m.p95), Std: number(m.sd)}
}

// rates are the reciprocals of the statistics of times, so that a high percentile is a slow
// user; the deviation is that of the reciprocals.
func rates(times []float64) Spread {
	m := momentsOf(times)
	if m.n == 0 {
		return Spread{}
	}
	inverse := func(v float64) *Number {
		if v <= 0 {
			return nil
		}
		return number(1 / v)
	}
	each := make([]float64, 0, m.n)
	for _, t := range times {
		if t > 0 {
			each = append(each, 1/t)
		}
	}
	s := Spread{Mean: inverse(m.mean), P50: inverse(m.p50), P75: inverse(m.p75), P90: inverse(m.p90), P95: inverse(m.p95)}
	if len(each) > 0 {
		_, sd := meanAndDeviation(each)
		s.Std = number(sd)
	}
	return s
}
