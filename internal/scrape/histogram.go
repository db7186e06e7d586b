package scrape

import (
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/weirbench/weir/internal/engine"
	"github.com/weirbench/weir/internal/record"
)

// Histograms adds up what the engines' histograms of times grew by after an instant, over all
// endpoints, with the reference and the resets of Counters.
type Histograms struct {
	start   int64
	mark    record.Phase
	sources map[string]*timed
}

type timed struct {
	series map[string]*bucket // nil for a series that is no timing
	of     [engine.Timings][]*bucket
	known  bool
}

type bucket struct {
	sig    engine.TimingSignal
	last   float64
	growth float64
	seen   bool
}

// NewHistograms counts from start, nanoseconds since the run's epoch, when phase began.
func NewHistograms(start int64, phase record.Phase) *Histograms {
	return &Histograms{start: start, mark: phase, sources: map[string]*timed{}}
}

// Add takes the next sample, whole.
func (h *Histograms) Add(s *record.Sample) {
	if s.Error != "" || s.Values == nil {
		return
	}
	src := h.sources[s.Source]
	if src == nil {
		src = &timed{series: map[string]*bucket{}}
		h.sources[s.Source] = src
	}
	reference := s.At <= h.start || s.Mark != "" && s.Mark == h.mark && s.At <= h.start+markSlack
	for name, v := range s.Values {
		b, known := src.series[name]
		if !known {
			name = strings.Clone(name)
			if sig, ok := engine.ClassifyTiming(name); ok {
				b = &bucket{sig: sig}
				src.of[sig.Timing] = append(src.of[sig.Timing], b)
			}
			src.series[name] = b
		}
		switch {
		case b == nil:
			continue
		case !b.seen:
			b.seen = true
			if src.known && !reference {
				b.growth = v
			}
		case reference:
			b.growth = 0
		case v < b.last:
			b.growth += v
		default:
			b.growth += v - b.last
		}
		b.last = v
	}
	src.known = true
}

// A Histogram is what was observed, as buckets.
type Histogram struct {
	Count, Sum float64
	bounds     []float64 // ascending, +Inf last
	below      []float64 // observations at most that large
}

// Of is the histogram of a timing; false when nothing was observed.
func (h *Histograms) Of(t engine.Timing) (Histogram, bool) { return h.Only(t, nil, "") }

// Only is the histogram of a timing at some endpoints, nil for all, and of one rank of data
// parallelism where rank is not empty; false when nothing was observed.
func (h *Histograms) Only(t engine.Timing, sources func(source string) bool, rank string) (Histogram, bool) {
	var out Histogram
	buckets := map[float64]float64{}
	for _, url := range slices.Sorted(maps.Keys(h.sources)) {
		if sources != nil && !sources(url) {
			continue
		}
		best := map[string]*bucket{} // ranks that repeat each other count once
		for _, b := range h.sources[url].of[t] {
			if rank != "" && b.sig.Replica != rank {
				continue
			}
			if o := best[b.sig.Same]; o == nil || b.sig.Rank < o.sig.Rank {
				best[b.sig.Same] = b
			}
		}
		for _, same := range slices.Sorted(maps.Keys(best)) {
			b := best[same]
			switch b.sig.Part {
			case engine.CountPart:
				out.Count += b.growth
			case engine.SumPart:
				out.Sum += float64(b.growth * b.sig.Scale)
			default:
				buckets[b.sig.Le] += b.growth
			}
		}
	}
	out.bounds = slices.Sorted(maps.Keys(buckets))
	for _, le := range out.bounds {
		out.below = append(out.below, buckets[le])
	}
	return out, out.Count > 0
}

// Quantile is the value that a share q of the observations do not exceed, interpolated in its bucket, and the bounds of
// that bucket, between which the true one lies. value and high are infinite in the last, open
// bucket; ok is false without buckets. Endpoints whose buckets differ are added bound by bound, which is only right
// where they have the same.
func (h *Histogram) Quantile(q float64) (value, low, high float64, ok bool) {
	n := len(h.below)
	if n == 0 || h.below[n-1] <= 0 {
		return 0, 0, 0, false
	}
	at, low, below := q*h.below[n-1], 0.0, 0.0
	for i, c := range h.below {
		if c >= at && c > below {
			high = h.bounds[i]
			if math.IsInf(high, 0) {
				return high, low, high, true
			}
			return min(low+(high-low)*max(at-below, 0)/(c-below), high), low, high, true
		}
		low, below = h.bounds[i], max(below, c)
	}
	return 0, 0, 0, false
}
