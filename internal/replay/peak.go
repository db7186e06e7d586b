package replay

import (
	"math"
	"slices"

	"github.com/weirbench/weir/internal/corpus"
)

// PeakStreams is how many requests of one play of a trace can be in flight at once, whatever
// the server does. A stream has one at a time; a child is there from the turn that spawned it to
// the turn that joins it, one that nothing joins to the end of the play, and so are the
// children of a child. A play that begins inside the trace may find a parent behind the turn that
// joins a child and the child with turns left: where the recorded times allow that, the join does
// not count. Barriers can only make it less.
func (o *Options) PeakStreams(t *corpus.Trace) int {
	p := newPlan(t, o)
	joined := map[int32]int{} // the turn of the parent before which a child has ended
	for si := range p.streams {
		latest := int64(math.MinInt64) // start of the parent's turns up to the one that joins
		for k, turn := range p.streams[si].turns {
			latest = max(latest, turn.start)
			for _, c := range turn.joins {
				if !slices.ContainsFunc(p.streams[c].turns, func(of turnPlan) bool { return of.start > latest }) {
					joined[c] = k
				}
			}
		}
	}
	most, left := make([]int, len(p.streams)), make([]int, len(p.streams))
	var count func(si int32)
	count = func(si int32) {
		kids := p.streams[si].kids
		for _, c := range kids {
			count(c)
			if _, ok := joined[c]; ok {
				left[si] += left[c]
			} else {
				left[si] += most[c]
			}
		}
		for k := range max(len(p.streams[si].turns), 1) {
			n := 1
			for _, c := range kids {
				j, ok := joined[c]
				switch {
				case t.Streams[c].Spawn > k:
				case ok && j <= k:
					n += left[c]
				default:
					n += most[c]
				}
			}
			most[si] = max(most[si], n)
		}
	}
	count(0)
	return most[0]
}

// Peak is the trace of a corpus with the most requests in flight at once, and how many.
func (o *Options) Peak(c *corpus.Corpus) (n int, t *corpus.Trace) {
	for _, tr := range c.Traces {
		if m := o.PeakStreams(tr); m > n {
			n, t = m, tr
		}
	}
	return n, t
}
