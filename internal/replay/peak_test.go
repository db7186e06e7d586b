package replay

import (
	"cmp"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirbench/weir/internal/corpus"
)

// flying is how many of the requests were in flight at once.
func flying(all []sent) (most int) {
	type edge struct {
		at   int64
		step int
	}
	var edges []edge
	for _, s := range all {
		edges = append(edges, edge{s.q.Queued, 1}, edge{s.r.Times.End, -1})
	}
	slices.SortFunc(edges, func(a, b edge) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.step, b.step)) })
	n := 0
	for _, e := range edges {
		n += e.step
		most = max(most, n)
	}
	return most
}

// TestPeakStreams replays random traces against random servers: no tree ever has more requests
// in flight than its trace's peak, nor all lanes more than lanes times the corpus's.
func TestPeakStreams(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, o := drawCorpus(t), drawOptions(t)
		byID := map[string]*corpus.Trace{}
		for _, tr := range c.Traces {
			byID[tr.ID] = tr
		}
		_, out := run(t, c, o, drawServer(t))
		trees := map[string][]sent{}
		for _, s := range out {
			trees[s.q.Tree] = append(trees[s.q.Tree], s)
		}
		for id, all := range trees {
			if got, limit := flying(all), o.PeakStreams(all[0].q.Trace); got > limit {
				t.Fatalf("tree %s of trace %s had %d requests in flight, its peak is %d", id, all[0].q.Trace.ID, got, limit)
			}
		}
		if n, _ := o.Peak(c); flying(out) > n*o.Lanes {
			t.Fatalf("%d requests in flight on %d lanes, the peak of a trace is %d", flying(out), o.Lanes, n)
		}
	})
}

// TestPeakInside: a child that in recorded time outlasts the turn that joins it may be met by a
// play that begins inside the trace, beside what its parent spawned later.
func TestPeakInside(t *testing.T) {
	stream := func(id string, parent, spawn, join int, starts ...int64) corpus.Stream {
		s := corpus.Stream{ID: id, Parent: parent, Spawn: spawn, Join: join}
		for _, at := range starts {
			s.Turns = append(s.Turns, corpus.Turn{StartNs: at, APINs: 1, In: 64, Out: 1, Blocks: []uint32{1}})
		}
		return s
	}
	for last, want := range map[int64]int{15: 2, 20: 2, 35: 3} {
		tr := &corpus.Trace{ID: "t", BlockSize: 64, Models: []string{"m"}, Streams: []corpus.Stream{
			stream("t", corpus.Unbound, corpus.Unbound, corpus.Unbound, 0, 20, 30, 40),
			stream("a", 0, 0, 1, 10, last),
			stream("b", 0, 1, 3, 25, 36),
		}}
		o := InferenceX(1, 0)
		if got := o.PeakStreams(tr); got != want {
			t.Errorf("child until %d: peak %d, want %d", last, got, want)
		}
	}
}
