package record

import (
	"math"
	"strings"
)

// What the samples of a bundle may take, in bytes, before series that only add up are kept less
// often: so much at once, and so much for every second of the recording and every twenty endpoints
// (twenty where there are fewer). An hour is 8 MB and 39.6 MB.
const (
	thinFree      = 8_000_000
	thinPerSecond = 11_000
	thinEndpoints = 20
)

// maxThin is the most samples of which one is kept.
const maxThin = 64

// ThinSamples lets the writer keep series that only add up, buckets, counts and sums of histograms
// and counters, at every second, fourth, ... 64th sample of an endpoint once the samples have
// used up what they may take: 8 MB and 11 kB for each second and each twenty endpoints. In
// between such a series stands as it was, and the sample is Thinned. Kept in any case are gauges,
// the series that needed names, and every series at the first and the last sample of an endpoint, at those
// around the beginning of a phase, around a counter that falls, and where a series appears or ends: so growths
// between those instants are exact. Without this call everything is kept. needed is asked once a series.
func (w *BundleWriter) ThinSamples(needed func(series string) bool) { w.metrics.needed = needed }

// addsUp tells whether a series is a counter or a part of a histogram, by its family's type or else by its name.
// bucketed says that buckets of the same histogram stand before it.
func (src *sampledSource) addsUp(name string, bucketed bool) bool {
	base, labels, _ := strings.Cut(name, "{")
	for _, part := range []string{"_bucket", "_count", "_sum"} {
		if f, ok := strings.CutSuffix(base, part); ok {
			switch src.types[f] {
			case "histogram":
				return true
			case "": // nobody said
				if bucketed || part == "_bucket" && strings.Contains(labels, `le="`) {
					return true
				}
			}
		}
	}
	switch src.types[base] + src.types[strings.TrimSuffix(base, "_total")] {
	case "counter", "countercounter":
		return true
	case "":
		return strings.HasSuffix(base, "_total")
	}
	return false
}

// border keeps the samples around the instant at which a phase begins.
func (src *sampledSource) border(n int) {
	for i := n - 2; i <= n+1; i++ {
		src.keep(i)
	}
}

// keep notes that the n-th sample of the block is not to be thinned, also one that is yet to come.
func (src *sampledSource) keep(n int) {
	for n >= len(src.kept) && n >= 0 {
		src.kept = append(src.kept, false)
	}
	if n >= 0 {
		src.kept[n] = true
	}
}

// thin leaves of every series that may be thinned the values at kept samples, of which one in every is one.
func (src *sampledSource) thin(every int) {
	src.thinned = false
	if every <= 1 {
		return
	}
	for n := range src.n {
		if (src.taken+n)%every == 0 || n == src.n-1 {
			src.keep(n)
		}
	}
	for _, id := range src.touched {
		if !src.loose[id] {
			continue
		}
		src.thinned = true
		last := src.before[id]
		for _, c := range src.changed[id] {
			if c.v < last { // it was reset
				src.keep(c.n - 1)
				src.keep(c.n)
			}
			last = c.v
		}
	}
	ids := src.touched[:0]
	for _, id := range src.touched {
		if src.loose[id] {
			src.changed[id] = src.thinList(src.before[id], src.changed[id])
			if len(src.changed[id]) == 0 {
				continue
			}
		}
		ids = append(ids, id)
	}
	src.touched = ids
}

// thinList moves changes to the next kept sample, in place.
func (src *sampledSource) thinList(before float64, list []change) []change {
	out := list[:0]
	told, now := before, before
	put := func(n int) {
		if now != told && !(math.IsNaN(now) && math.IsNaN(told)) {
			out = append(out, change{n, now})
			told = now
		}
	}
	at := 0 // the next sample
	for _, c := range list {
		ends := math.IsNaN(c.v) != math.IsNaN(now)
		for ; at < c.n; at++ {
			if src.kept[at] {
				put(at)
			}
		}
		if ends && c.n > 0 {
			put(c.n - 1)
		}
		now = c.v
		if src.kept[c.n] || ends {
			put(c.n)
		}
		at = c.n + 1
	}
	for ; at < src.n; at++ {
		if src.kept[at] {
			put(at)
		}
	}
	return out
}

// thins tells whether the n-th sample of the block lacks values.
func (src *sampledSource) thins(n int) bool { return src.thinned && !src.kept[n] }

// adapt chooses how often series are kept in the next block after one of so many bytes that ends at so many ns.
func (w *sampleWriter) adapt(bytes, at int64) {
	if w.needed == nil {
		return
	}
	endpoints := int64(max(len(w.order), thinEndpoints))
	perSecond := thinPerSecond * float64(endpoints) / thinEndpoints
	allowed := w.free + perSecond*float64(at-w.begun)/1e9
	length := float64(at-w.ended) / 1e9
	due := perSecond * length // for such a block
	used := float64(w.size)
	switch {
	case float64(bytes) > due && used+float64(bytes)-due > allowed: // after the next one it would be over
		w.every = min(2*w.every, maxThin)
	case w.every > 1 && 2*float64(bytes) < due && used+2*float64(bytes) < allowed-w.free/8:
		w.every /= 2
	}
	w.ended = at
}
