package client

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// A histogram counts durations in buckets of at most 1/64 of their value, from 1 ns to 2^40 ns
// (18 minutes). Its quantiles are the upper edges of buckets, so they are never too small.
// It may be written and read at the same time.
type histogram struct {
	buckets [35 * steps]atomic.Uint64
	n       atomic.Uint64
	sum     atomic.Int64
	max     atomic.Int64
}

// steps is the number of buckets from one power of two to the next, 1 << stepBits.
const (
	stepBits = 6
	steps    = 1 << stepBits
)

func bucketOf(d int64) int {
	if d < steps {
		return int(max(d, 0))
	}
	e := bits.Len64(uint64(d)) - stepBits - 1 // d>>e is steps to 2*steps-1
	return min((e+1)*steps+int(d>>e)-steps, 35*steps-1)
}

// upper is the largest value of a bucket.
func upper(i int) int64 {
	if i < steps {
		return int64(i)
	}
	e := i/steps - 1
	return (int64(i%steps)+steps+1)<<e - 1
}

func (h *histogram) observe(d int64) {
	h.buckets[bucketOf(d)].Add(1)
	h.n.Add(1)
	h.sum.Add(d)
	for {
		m := h.max.Load()
		if d <= m || h.max.CompareAndSwap(m, d) {
			return
		}
	}
}

func (h *histogram) add(o *histogram) {
	for i := range o.buckets {
		if c := o.buckets[i].Load(); c > 0 {
			h.buckets[i].Add(c)
		}
	}
	h.n.Add(o.n.Load())
	h.sum.Add(o.sum.Load())
	h.max.Store(max(h.max.Load(), o.max.Load()))
}

// quantile is the smallest bucket edge that at least a share q of the values do not exceed.
func (h *histogram) quantile(q float64) int64 {
	n := h.n.Load()
	if n == 0 {
		return 0
	}
	rank := uint64(q * float64(n))
	var seen uint64
	for i := range h.buckets {
		if seen += h.buckets[i].Load(); seen > rank {
			return min(upper(i), h.max.Load())
		}
	}
	return h.max.Load()
}

// share is the share of values that a limit is not below, 0 to 1; values count as the upper
// edges of their buckets.
func (h *histogram) share(limit int64) float64 {
	n := h.n.Load()
	if n == 0 {
		return 0
	}
	var within uint64
	for i := range h.buckets {
		if upper(i) <= limit || limit >= h.max.Load() {
			within += h.buckets[i].Load()
		}
	}
	return float64(within) / float64(n)
}

// Quantiles are what a run tells about many durations, nanoseconds.
type Quantiles struct {
	N    uint64 `json:"n"`
	Mean int64  `json:"mean_ns"`
	P50  int64  `json:"p50_ns"`
	P90  int64  `json:"p90_ns"`
	P99  int64  `json:"p99_ns"`
	P999 int64  `json:"p999_ns"`
	Max  int64  `json:"max_ns"`
}

// tail is what 99 of a hundred do not exceed. Of too few to know, it is half as much again as the
// largest: one in so many is larger than that, by little.
func (q Quantiles) tail() int64 {
	if q.N < 10*manyRequests {
		return q.Max + q.Max/2
	}
	return q.P99
}

func (h *histogram) quantiles() Quantiles {
	q := Quantiles{N: h.n.Load(), P50: h.quantile(0.5), P90: h.quantile(0.9), P99: h.quantile(0.99),
		P999: h.quantile(0.999), Max: h.max.Load()}
	if q.N > 0 {
		q.Mean = h.sum.Load() / int64(q.N)
	}
	return q
}

func (q Quantiles) String() string {
	if q.N == 0 {
		return "no samples"
	}
	return time.Duration(q.P50).String() + " p50, " + time.Duration(q.P99).String() + " p99, " + time.Duration(q.Max).String() + " max"
}
