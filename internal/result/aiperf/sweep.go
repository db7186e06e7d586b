package aiperf

import (
	"math"
	"slices"
)

// span is what the curves over time need of one request: instants in nanoseconds since the
// run's epoch and tokens, negative where they are not known. A request that failed has none
// but its ends.
type span struct {
	start, first, end int64
	isl, osl          int64
	chunks            []int64 // instants of the content frames, where they were kept
}

// curve is a step function: values[i] holds from at[i] to at[i+1]; it is 0 before at[0].
type curve struct {
	at     []int64
	values []float64
}

// step is a change of a curve.
type step struct {
	at int64
	by float64
}

// roundoff is the share of a curve's largest value below which a value is what floating point
// left of zero.
const roundoff = 1e-9

func newCurve(steps []step) curve {
	slices.SortFunc(steps, func(a, b step) int {
		switch {
		case a.at < b.at:
			return -1
		case a.at > b.at:
			return 1
		}
		return 0
	})
	c := curve{at: make([]int64, 0, len(steps)), values: make([]float64, 0, len(steps))}
	sum, top := 0.0, 0.0
	for i := 0; i < len(steps); {
		at := steps[i].at
		for ; i < len(steps) && steps[i].at == at; i++ {
			sum += steps[i].by
		}
		c.at, c.values = append(c.at, at), append(c.values, sum)
		top = max(top, math.Abs(sum))
	}
	for i, v := range c.values {
		if math.Abs(v) < roundoff*top {
			c.values[i] = 0
		}
	}
	return c
}

// rate adds a height over an interval; an empty one adds nothing.
func rate(steps []step, from, to int64, height float64) []step {
	if to <= from {
		return steps
	}
	return append(steps, step{from, height}, step{to, -height})
}

// curves are AIPerf's nine curves, in tokens per second, requests and tokens.
type curves struct {
	requests, prefilling, decoding curve
	decode, prefill, total         curve
	decodePerUser, prefillPerUser  curve
	inFlight                       curve
}

// newCurves follows AIPerf's sweep lines (analysis/sweepline.py, 2026-10): prefill is from the
// start to the first token, decode from there to the end. Where the instants of frames are
// known, a request's tokens but the first are spread over its gaps, evenly over each.
func newCurves(spans []span) *curves {
	var requests, prefilling, decoding, decode, prefill, total, inFlight []step
	gaps := slices.ContainsFunc(spans, func(s span) bool { return s.first >= 0 && len(s.chunks) > 1 })
	if gaps {
		n := 0
		for _, s := range spans {
			n += len(s.chunks)
		}
		decode, inFlight = make([]step, 0, 2*n), make([]step, 0, n+4*len(spans))
	}
	for _, s := range spans {
		requests = append(requests, step{s.start, 1}, step{s.end, -1})
		if s.first < 0 {
			continue
		}
		prefilling = append(prefilling, step{s.start, 1}, step{s.first, -1})
		decoding = append(decoding, step{s.first, 1}, step{s.end, -1})
		if s.isl >= 0 && s.first > s.start {
			r := float64(s.isl) * 1e9 / float64(s.first-s.start)
			prefill = rate(prefill, s.start, s.first, r)
			total = rate(total, s.start, s.first, r)
			inFlight = append(inFlight, step{s.start, float64(s.isl)}, step{s.end, -float64(s.isl)})
		}
		if s.osl >= 1 && s.end > s.first {
			r := float64(s.osl-1) * 1e9 / float64(s.end-s.first)
			total = rate(total, s.first, s.end, r)
			if !gaps {
				decode = rate(decode, s.first, s.end, r)
				inFlight = append(inFlight, step{s.first, float64(s.osl)}, step{s.end, -float64(s.osl)})
			}
		}
		if !gaps || s.osl < 1 || len(s.chunks) < 2 {
			continue
		}
		each := float64(s.osl-1) / float64(len(s.chunks)-1)
		inFlight = append(inFlight, step{s.first, 1}, step{s.end, -float64(s.osl)})
		open := 0
		for i, at := range s.chunks[1:] {
			inFlight = append(inFlight, step{min(at, s.end), each})
			if at > s.chunks[i] {
				open++
			}
		}
		for i, at := range s.chunks[1:] {
			if before := s.chunks[i]; at > before {
				decode = rate(decode, before, at, float64(s.osl-1)/float64(open)*1e9/float64(at-before))
			}
		}
	}
	c := &curves{
		requests: newCurve(requests), prefilling: newCurve(prefilling), decoding: newCurve(decoding),
		decode: newCurve(decode), prefill: newCurve(prefill), total: newCurve(total), inFlight: newCurve(inFlight),
	}
	c.decodePerUser, c.prefillPerUser = divide(c.decode, c.decoding), divide(c.prefill, c.prefilling)
	return c
}

// walk calls each for every stretch between from and to in which neither curve changes.
func walk(a, b curve, from, to int64, each func(ns int64, a, b float64)) {
	i, va := a.seek(from)
	j, vb := b.seek(from)
	for at := from; at < to; {
		next := to
		if i < len(a.at) {
			next = min(next, a.at[i])
		}
		if j < len(b.at) {
			next = min(next, b.at[j])
		}
		if next > at {
			each(next-at, va, vb)
		}
		if i < len(a.at) && a.at[i] == next {
			va = a.values[i]
			i++
		}
		if j < len(b.at) && b.at[j] == next {
			vb = b.values[j]
			j++
		}
		at = next
	}
}

// seek is the index of the first change after an instant, and the value at it.
func (c curve) seek(at int64) (int, float64) {
	i, _ := slices.BinarySearch(c.at, at+1)
	if i == 0 {
		return 0, 0
	}
	return i, c.values[i-1]
}

// divide is a/b where b is above 0, and 0 elsewhere.
func divide(a, b curve) curve {
	if len(a.at) == 0 || len(b.at) == 0 {
		return curve{}
	}
	n := len(a.at) + len(b.at)
	c := curve{at: make([]int64, 0, n), values: make([]float64, 0, n)}
	at := min(a.at[0], b.at[0])
	walk(a, b, at, max(a.at[len(a.at)-1], b.at[len(b.at)-1]), func(ns int64, x, y float64) {
		v := 0.0
		if y > 0 {
			v = x / y
		}
		c.at, c.values = append(c.at, at), append(c.values, v)
		at += ns
	})
	c.at, c.values = append(c.at, at), append(c.values, 0)
	return c
}

// held is how long a curve had a value.
type held struct {
	v  float64
	ns int64
}

// over are the statistics of a curve from one instant to another, weighted by time; with a
// mask, only of the time in which that is above 0. A percentile is the smallest value that was
// not exceeded for that share of the time. Nothing was held in an empty time: its numbers are 0. all is
// room for what was held, which is used again.
func (c curve) over(unit string, from, to int64, mask *curve, all *[]held) *stats {
	list := (*all)[:0]
	b := curve{}
	if mask != nil {
		b = *mask
	}
	walk(c, b, from, to, func(ns int64, v, m float64) {
		if mask == nil || m > 0 {
			list = append(list, held{v, ns})
		}
	})
	*all = list
	s := &stats{unit: unit}
	if len(list) == 0 || len(c.at) == 0 {
		for _, k := range []stat{statAvg, statMin, statMax, statP50, statP90, statP95, statP99, statStd} {
			s.set(k, 0)
		}
		return s
	}
	slices.SortFunc(list, func(a, b held) int {
		switch {
		case a.v < b.v:
			return -1
		case a.v > b.v:
			return 1
		}
		return 0
	})
	var ns int64
	area := 0.0
	for _, h := range list {
		ns += h.ns
		area += h.v * float64(h.ns)
	}
	mean, sq := area/float64(ns), 0.0
	for _, h := range list {
		sq += (h.v - mean) * (h.v - mean) * float64(h.ns)
	}
	s.set(statAvg, mean)
	s.set(statMin, list[0].v)
	s.set(statMax, list[len(list)-1].v)
	s.set(statStd, math.Sqrt(sq/float64(ns)))
	var gone int64
	i := 0
	for _, p := range []struct {
		stat
		q float64
	}{{statP50, 0.50}, {statP90, 0.90}, {statP95, 0.95}, {statP99, 0.99}} {
		for i < len(list)-1 && float64(gone+list[i].ns)/float64(ns) < p.q {
			gone += list[i].ns
			i++
		}
		s.set(p.stat, list[i].v)
	}
	return s
}

// metrics adds those of the curves over a time.
func (c *curves) metrics(out map[string]*stats, from, to int64) {
	const perSec, perUser = "tokens/sec", "tokens/sec/user"
	var all []held
	for _, m := range []struct {
		tag, unit string
		of        *curve
		mask      *curve
	}{
		{"effective_concurrency", "requests", &c.requests, nil},
		{"effective_decode_throughput", perSec, &c.decode, nil},
		{"effective_prefill_throughput", perSec, &c.prefill, nil},
		{"effective_decode_concurrency", "requests", &c.decoding, nil},
		{"effective_prefill_concurrency", "requests", &c.prefilling, nil},
		{"effective_total_throughput", perSec, &c.total, nil},
		{"effective_decode_throughput_per_user", perUser, &c.decodePerUser, nil},
		{"effective_prefill_throughput_per_user", perUser, &c.prefillPerUser, nil},
		{"tokens_in_flight", "tokens", &c.inFlight, nil},
		{"active_decode_throughput", perSec, &c.decode, &c.decoding},
		{"active_prefill_throughput", perSec, &c.prefill, &c.prefilling},
		{"active_decode_throughput_per_user", perUser, &c.decodePerUser, &c.decoding},
		{"active_prefill_throughput_per_user", perUser, &c.prefillPerUser, &c.prefilling},
		{"active_total_throughput", perSec, &c.total, &c.requests},
	} {
		out[m.tag] = m.of.over(m.unit, from, to, m.mask, &all)
	}
}
