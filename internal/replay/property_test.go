package replay

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirbench/weir/internal/corpus"
	"github.com/weirbench/weir/internal/record"
)

// drawTrace makes a recorded run: a root and some descendants, with spawns and joins that
// mostly, but not always, agree with the recorded times.
func drawTrace(t *rapid.T, id string) *corpus.Trace {
	tr := &corpus.Trace{ID: id, BlockSize: 16, Models: []string{"m"}}
	n := rapid.IntRange(1, 6).Draw(t, "streams")
	for si := range n {
		s := corpus.Stream{Parent: corpus.Unbound, Spawn: corpus.Unbound, Join: corpus.Unbound, ID: id}
		at := int64(0)
		if si > 0 {
			s.Parent = rapid.IntRange(0, si-1).Draw(t, "parent")
			p := &tr.Streams[s.Parent]
			s.Kind = corpus.Kind(rapid.IntRange(1, 4).Draw(t, "kind"))
			s.ID = fmt.Sprintf("%s::%s:%d", id, []string{"", "sa", "fa", "wg", "aux"}[s.Kind], si)
			s.Depth = p.Depth + 1
			s.Spawn = rapid.IntRange(0, len(p.Turns)-1).Draw(t, "spawn")
			at = p.Turns[s.Spawn].StartNs + rapid.Int64Range(0, 30).Draw(t, "offset")*second/10
			if rapid.Bool().Draw(t, "spawn recorded") {
				s.StartNs = max(1, at-rapid.Int64Range(0, 10).Draw(t, "lead")*second/10)
			}
		}
		s.SystemTokens = rapid.Int64Range(0, 40).Draw(t, "system")
		var blocks []uint32
		for k := range rapid.IntRange(1, 6).Draw(t, "turns") {
			if k > 0 {
				at += rapid.Int64Range(0, 40).Draw(t, "gap") * second / 10
			}
			keep := rapid.IntRange(0, len(blocks)).Draw(t, "keep")
			if rapid.IntRange(0, 3).Draw(t, "append only") > 0 {
				keep = len(blocks)
			}
			blocks = slices.Clone(blocks[:keep])
			for range rapid.IntRange(0, 4).Draw(t, "new blocks") {
				blocks = append(blocks, rapid.Uint32Range(1, 30).Draw(t, "block"))
			}
			turn := corpus.Turn{
				StartNs: at, APINs: rapid.Int64Range(0, 25).Draw(t, "api") * second / 10,
				Out: rapid.Int64Range(0, 50).Draw(t, "out"), Blocks: blocks,
			}
			turn.In = int64(len(blocks))*16 + rapid.Int64Range(0, 15).Draw(t, "tail")
			s.Turns = append(s.Turns, turn)
			at += rapid.Int64Range(0, 1).Draw(t, "sequential") * turn.APINs
		}
		if si > 0 {
			p := &tr.Streams[s.Parent]
			end := s.Turns[len(s.Turns)-1].EndNs()
			for j := s.Spawn + 1; j < len(p.Turns); j++ {
				if p.Turns[j].StartNs >= end {
					s.Join = j
					break
				}
			}
			if rapid.IntRange(0, 5).Draw(t, "odd join") == 0 && s.Spawn+1 < len(p.Turns) {
				s.Join = rapid.IntRange(s.Spawn+1, len(p.Turns)-1).Draw(t, "join")
			}
		}
		tr.Streams = append(tr.Streams, s)
	}
	return tr
}

func drawCorpus(t *rapid.T) *corpus.Corpus {
	c := &corpus.Corpus{Name: "drawn"}
	for i := range rapid.IntRange(1, 4).Draw(t, "traces") {
		c.Traces = append(c.Traces, drawTrace(t, fmt.Sprintf("t%d", i)))
	}
	return c
}

// drawServer is a target with service times and failures of its own, the same for the same
// request in the same run.
func drawServer(t *rapid.T) *fixedTarget {
	seed := rapid.Uint64().Draw(t, "server")
	slow := rapid.Int64Range(1, 50).Draw(t, "slowest, tenths")
	failing := rapid.IntRange(0, 3).Draw(t, "failing")
	rng := func(q *Request) uint64 {
		return newPCG64(seed ^ q.Seq*0x9e3779b97f4a7c15).next64()
	}
	return &fixedTarget{
		service: func(q *Request) int64 { return int64(rng(q)%uint64(slow))*second/10 + second/100 },
		fail: func(q *Request) *record.Failure {
			if q.Phase == record.Primer {
				return nil
			}
			switch x := rng(q) >> 32 % 40; {
			case failing > 0 && x < 3:
				return &record.Failure{Class: record.FailStatus, Status: 500}
			case failing > 1 && x < 5:
				return &record.Failure{Class: record.FailContextOverflow, Status: 400}
			}
			return nil
		},
	}
}

// sent is one request of a run with its outcome.
type sent struct {
	q Request
	r *record.Request
}

func run(t *rapid.T, c *corpus.Corpus, o Options, f *fixedTarget) (*Scheduler, []sent) {
	s, err := NewAgentic(c, o)
	if err != nil {
		t.Fatal(err)
	}
	ended := map[uint64]*record.Request{}
	if err := RunVirtual(context.Background(), s, f, func(r *record.Request) {
		if ended[r.Seq] != nil {
			t.Fatalf("request %d has two outcomes", r.Seq)
		}
		ended[r.Seq] = r
	}); err != nil {
		t.Fatal(err)
	}
	var out []sent
	for i, q := range f.sent {
		if q.Seq != uint64(i+1) {
			t.Fatalf("request %d has number %d", i+1, q.Seq)
		}
		if ended[q.Seq] == nil {
			t.Fatalf("request %d has no outcome", q.Seq)
		}
		out = append(out, sent{q, ended[q.Seq]})
	}
	if len(ended) != len(out) {
		t.Fatalf("%d requests sent, %d outcomes", len(out), len(ended))
	}
	n := s.Counts()
	if n.InFlight != 0 || n.Stray != 0 || n.Primers+n.Pressure+n.Profiling != uint64(len(out)) || n.OK+n.Failed+n.Cancelled != n.Profiling {
		t.Fatalf("counts do not add up: %+v for %d requests", n, len(out))
	}
	if n.Blocked != 0 && n.ProfilingEnd == record.Never {
		t.Fatalf("the run ended with %d blocked turns", n.Blocked)
	}
	return s, out
}

func drawOptions(t *rapid.T) Options {
	o := InferenceX(rapid.IntRange(1, 5).Draw(t, "lanes"), 0)
	o.Seed = rapid.Uint64().Draw(t, "seed")
	o.DurationNs = rapid.Int64Range(1, 60).Draw(t, "duration") * second
	o.PressureRequests = rapid.IntRange(0, 6).Draw(t, "pressure")
	o.Burst = rapid.Bool().Draw(t, "burst")
	o.SystemIdleCapNs = rapid.SampledFrom([]int64{0, second / 2, 10 * second}).Draw(t, "system cap")
	o.TraceIdleCapNs = rapid.SampledFrom([]int64{0, second, 300 * second}).Draw(t, "trace cap")
	o.Barriers = rapid.SampledFrom([]Barriers{BarrierTree, BarrierAgent, BarrierNone}).Draw(t, "barriers")
	o.FailedThreshold = 0
	return o
}

type at struct {
	tree   string
	stream int
	turn   int
}

// TestOrder checks, for random traces, options and servers, what must hold in every run:
// turns of a stream go out one after the other, each once; a join never opens early; no
// turn overtakes one that the recorded order puts before it; lanes hold at most one tree.
func TestOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, o := drawCorpus(t), drawOptions(t)
		_, log := run(t, c, o, drawServer(t))
		end := map[at]int64{} // when a turn of the replay proper ended
		over := map[at]int{}  // turn with which a stream was cut by a context overflow
		for _, x := range log {
			if x.q.Phase == record.Primer {
				continue
			}
			end[at{x.q.Tree, x.q.Stream, x.q.Turn}] = x.r.Times.End
			if x.r.Failure != nil && x.r.Failure.Class == record.FailContextOverflow {
				over[at{x.q.Tree, x.q.Stream, 0}] = x.q.Turn
			}
		}
		plans := map[*corpus.Trace]*plan{}
		for _, tr := range c.Traces {
			plans[tr] = newPlan(tr, &o)
		}
		first := map[at]int{} // first turn that a stream of a tree sent
		lastOf := map[at]int{}
		when := int64(0)
		for i, x := range log {
			q := x.q
			if q.Queued < when {
				t.Fatalf("request %d goes back in time", i)
			}
			when = q.Queued
			if q.Intended > q.Queued {
				t.Fatalf("request %d is early: %+v", i, q)
			}
			if q.Phase == record.Primer {
				continue
			}
			key := at{q.Tree, q.Stream, 0}
			if _, ok := first[key]; !ok {
				first[key] = q.Turn
			} else if q.Turn != lastOf[key]+1 {
				t.Fatalf("%s stream %d sends turn %d after %d", q.Tree, q.Stream, q.Turn, lastOf[key])
			}
			lastOf[key] = q.Turn
			if prev := (at{q.Tree, q.Stream, q.Turn - 1}); q.Turn > first[key] && end[prev] > q.Queued {
				t.Fatalf("%+v goes out before the turn before it ended", q)
			}
			if cut, ok := over[key]; ok && q.Turn > cut {
				t.Fatalf("%+v goes out after an overflow of turn %d", q, cut)
			}
			tp := &plans[q.Trace].streams[q.Stream].turns[q.Turn]
			for _, child := range tp.joins {
				for k := range q.Trace.Streams[child].Turns {
					if e, ok := end[at{q.Tree, int(child), k}]; ok && e > q.Queued {
						t.Fatalf("%s stream %d turn %d goes out at %d before child %d turn %d ends at %d", q.Tree, q.Stream, q.Turn, q.Queued, child, k, e)
					}
				}
			}
			for _, b := range tp.barriers {
				if e, ok := end[at{q.Tree, int(b.stream), int(b.turn)}]; ok && e > q.Queued {
					t.Fatalf("%+v overtakes %v", q, b)
				}
			}
		}
		// A tree of a lane begins after every request of the tree before it has ended.
		type span struct {
			play     int
			from, to int64
		}
		spans := map[int][]span{}
		for _, x := range log {
			l := spans[x.q.Lane]
			if len(l) == 0 || l[len(l)-1].play != x.q.Play {
				if n := len(l); n > 0 && (l[n-1].play >= x.q.Play || l[n-1].to > x.q.Queued) {
					t.Fatalf("lane %d: play %d begins at %d, play %d lasts until %d", x.q.Lane, x.q.Play, x.q.Queued, l[n-1].play, l[n-1].to)
				}
				l = append(l, span{x.q.Play, x.q.Queued, x.r.Times.End})
			}
			l[len(l)-1].to = max(l[len(l)-1].to, x.r.Times.End)
			spans[x.q.Lane] = l
			if x.q.Lane >= o.Lanes {
				t.Fatalf("lane %d of %d", x.q.Lane, o.Lanes)
			}
		}
	})
}

// naiveBarriers states the rule by definition, over all pairs.
func naiveBarriers(p *plan, mode Barriers, si, k int) []ref {
	type cand struct {
		ref
		start, end int64
	}
	me := &p.trace.Streams[si].Turns[k]
	var frontier []cand
	for oi := range p.trace.Streams {
		if oi == si || !(p.scope(oi) == p.scope(si) || mode == BarrierTree && p.scope(si) == "") {
			continue
		}
		var best *cand
		for ok, o := range p.trace.Streams[oi].Turns {
			c := cand{ref{int32(oi), int32(ok)}, o.StartNs, o.EndNs()}
			if c.start < me.StartNs && c.end <= me.StartNs {
				if best == nil || cmp.Or(cmp.Compare(c.end, best.end), cmp.Compare(c.start, best.start), cmp.Compare(c.turn, best.turn)) > 0 {
					best = &c
				}
			}
		}
		if best != nil {
			frontier = append(frontier, *best)
		}
	}
	var out []ref
	for i, c := range frontier {
		implied := false
		for j, later := range frontier {
			implied = implied || i != j && c.start < later.start && c.end <= later.start
		}
		if !implied {
			out = append(out, c.ref)
		}
	}
	slices.SortFunc(out, func(a, b ref) int {
		return cmp.Or(cmp.Compare(a.stream, b.stream), cmp.Compare(a.turn, b.turn))
	})
	return out
}

func TestBarriersEqualDefinition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tr := drawTrace(t, "t")
		mode := rapid.SampledFrom([]Barriers{BarrierTree, BarrierAgent}).Draw(t, "mode")
		p := newPlan(tr, &Options{Barriers: BarrierNone})
		if !p.timed {
			return
		}
		p.barriers(mode)
		for si := range p.streams {
			for k := range p.streams[si].turns {
				got, want := p.streams[si].turns[k].barriers, naiveBarriers(p, mode, si, k)
				if !slices.Equal(got, want) {
					t.Fatalf("stream %d turn %d waits for %v, by definition for %v", si, k, got, want)
				}
			}
		}
	})
}

// TestIntended recomputes, without idle caps, when each profiling turn was to go out: the gap
// after the turn before it, or the last join or barrier, whichever came last.
func TestIntended(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, o := drawCorpus(t), drawOptions(t)
		o.SystemIdleCapNs, o.TraceIdleCapNs = 0, 0
		f := drawServer(t)
		f.fail = nil
		_, log := run(t, c, o, f)
		end := map[at]int64{}
		phase := map[at]record.Phase{}
		for _, x := range log {
			if x.q.Phase != record.Primer {
				k := at{x.q.Tree, x.q.Stream, x.q.Turn}
				end[k], phase[k] = x.r.Times.End, x.q.Phase
			}
		}
		for _, x := range log {
			q := x.q
			prev := at{q.Tree, q.Stream, q.Turn - 1}
			if q.Phase != record.Profiling || phase[prev] != record.Profiling {
				continue
			}
			p := newPlan(q.Trace, &o)
			tp := &p.streams[q.Stream].turns[q.Turn]
			turns := q.Trace.Streams[q.Stream].Turns
			timer := end[prev] + max(0, turns[q.Turn].StartNs-turns[q.Turn-1].EndNs())
			joined := timer
			for _, ch := range tp.joins {
				last := len(q.Trace.Streams[ch].Turns) - 1
				joined = max(joined, end[at{q.Tree, int(ch), last}])
			}
			want := joined
			for _, b := range tp.barriers {
				want = max(want, end[at{q.Tree, int(b.stream), int(b.turn)}])
			}
			if q.Intended != want || q.JoinWait != joined-timer || q.BarrierWait != want-joined {
				t.Fatalf("%s stream %d turn %d: intended %d after waits of %d and %d, want %d after %d and %d",
					q.Tree, q.Stream, q.Turn, q.Intended, q.JoinWait, q.BarrierWait, want, joined-timer, want-joined)
			}
		}
	})
}

// TestIdleCapsShiftAndNeverReorder: against a server that answers at once, the caps take out
// idle time and leave the order of requests in each tree as it was.
func TestIdleCapsShiftAndNeverReorder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, o := drawCorpus(t), drawOptions(t)
		o.MaxTrees = uint64(o.Lanes)
		o.DurationNs = 3600 * second
		instant := func() *fixedTarget { return &fixedTarget{service: func(*Request) int64 { return 0 }} }
		free := o
		free.SystemIdleCapNs, free.TraceIdleCapNs = 0, 0
		_, want := run(t, c, free, instant())
		s, got := run(t, c, o, instant())
		trees := func(log []sent) map[string][]string {
			m := map[string][]string{}
			for _, x := range log {
				if x.q.Phase != record.Primer { // their spread depends on the caps by rule
					m[x.q.Tree] = append(m[x.q.Tree], fmt.Sprint(x.q.Stream, "/", x.q.Turn, x.q.Phase))
				}
			}
			return m
		}
		a, b := trees(want), trees(got)
		for tree := range a {
			if !slices.Equal(a[tree], b[tree]) {
				t.Fatalf("tree %s: with caps %v, without %v", tree, b[tree], a[tree])
			}
		}
		n := s.Counts()
		if len(got) > 0 && len(want) > 0 && o.SystemIdleCapNs > 0 {
			last := n.ProfilingStart
			for _, x := range got {
				if x.q.Phase == record.Profiling {
					if x.q.Queued-last > o.SystemIdleCapNs {
						t.Fatalf("nothing in flight for %d ns, the cap is %d", x.q.Queued-last, o.SystemIdleCapNs)
					}
					last = x.q.Queued
				}
			}
		}
	})
}

// TestSameSeedSameRun: two runs with equal input send equal requests at equal times.
func TestSameSeedSameRun(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, o := drawCorpus(t), drawOptions(t)
		f := drawServer(t)
		g := *f
		_, a := run(t, c, o, f)
		_, b := run(t, c, o, &g)
		if len(a) != len(b) {
			t.Fatalf("%d and %d requests", len(a), len(b))
		}
		for i := range a {
			if a[i].q != b[i].q {
				t.Fatalf("request %d differs: %+v and %+v", i, a[i].q, b[i].q)
			}
		}
	})
}

// TestCeilingEqualsNaive computes the ceiling from scratch: sets of blocks, per trace before
// the salt and per tree after it, walked for every request from its first block.
func TestCeilingEqualsNaive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, o := drawCorpus(t), drawOptions(t)
		_, log := run(t, c, o, drawServer(t))
		seen := map[string]bool{}
		for _, x := range log {
			q := x.q
			s := &q.Trace.Streams[q.Stream]
			split := min(int((s.SystemTokens+15)/16), int(s.Turns[0].In/16), len(s.Turns[0].Blocks))
			for k := 1; k <= q.Turn; k++ {
				lcp := 0
				for lcp < min(len(s.Turns[k].Blocks), len(s.Turns[k-1].Blocks)) && s.Turns[k].Blocks[lcp] == s.Turns[k-1].Blocks[lcp] {
					lcp++
				}
				split = min(split, lcp)
			}
			key := func(i int) string {
				if i < split {
					return fmt.Sprint(q.Trace.ID, "|", s.Turns[q.Turn].Blocks[i])
				}
				return fmt.Sprint(q.Trace.ID, "|", q.Tree, "|", s.Turns[q.Turn].Blocks[i])
			}
			hit := 0
			for hit < len(s.Turns[q.Turn].Blocks) && seen[key(hit)] {
				hit++
			}
			for i := range s.Turns[q.Turn].Blocks {
				seen[key(i)] = true
			}
			if want := min(int64(hit)*16, s.Turns[q.Turn].In); q.Ceiling != want || x.r.CeilingTokens != want {
				t.Fatalf("%s stream %d turn %d: ceiling %d, want %d", q.Tree, q.Stream, q.Turn, q.Ceiling, want)
			}
		}
	})
}

// TestLanesStayFull: over a long run the live trees never exceed the lanes and fill at least
// 99 % of them on average.
func TestLanesStayFull(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, o := drawCorpus(t), drawOptions(t)
		o.DurationNs = 600 * second
		s, err := NewAgentic(c, o)
		if err != nil {
			t.Fatal(err)
		}
		f := drawServer(t)
		area, last, live := int64(0), int64(-1), 0
		observe := func(now int64) {
			n := s.Counts()
			if n.Live > o.Lanes {
				t.Fatalf("%d trees live on %d lanes", n.Live, o.Lanes)
			}
			if n.ProfilingStart != record.Never && now >= n.ProfilingStart {
				if last < 0 {
					last = n.ProfilingStart
				}
				if until := min(now, n.ProfilingStart+o.DurationNs); until > last {
					area += int64(live) * (until - last)
					last = until
				}
			}
			live = n.Live
		}
		target := &watched{fixedTarget: f, see: observe}
		if err := RunVirtual(context.Background(), s, target, func(*record.Request) {}); err != nil {
			t.Fatal(err)
		}
		n := s.Counts()
		if mean := float64(area) / float64(o.DurationNs); mean < 0.99*float64(o.Lanes) {
			t.Fatalf("%.3f of %d lanes live on average over %d ns: %+v", mean, o.Lanes, o.DurationNs, n)
		}
	})
}

// watched tells the time of every send and every step.
type watched struct {
	*fixedTarget
	see func(now int64)
}

func (w *watched) Send(q Request)  { w.see(q.Queued); w.fixedTarget.Send(q) }
func (w *watched) Advance(t int64) { w.see(t); w.fixedTarget.Advance(t) }
