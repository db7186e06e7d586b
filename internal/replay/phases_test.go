package replay

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/weirbench/weir/internal/corpus"
	"github.com/weirbench/weir/internal/prompt"
	"github.com/weirbench/weir/internal/record"
)

// line is a trace of one stream: n turns, each 10 s after the one before, 4 s of service.
func line(id string, n int) *corpus.Trace {
	tr := &corpus.Trace{ID: id, BlockSize: 16, Models: []string{"m"}}
	s := corpus.Stream{ID: id, Parent: corpus.Unbound, Spawn: corpus.Unbound, Join: corpus.Unbound, SystemTokens: 16}
	var blocks []uint32
	for k := range n {
		blocks = append(blocks, uint32(2*k+1), uint32(2*k+2))
		s.Turns = append(s.Turns, corpus.Turn{StartNs: int64(k) * 10 * second, APINs: 4 * second, In: int64(len(blocks)) * 16, Out: 5, Blocks: slices.Clone(blocks)})
	}
	tr.Streams = []corpus.Stream{s}
	return tr
}

func lineCorpus(ids ...string) *corpus.Corpus {
	c := &corpus.Corpus{Name: "lines"}
	for _, id := range ids {
		c.Traces = append(c.Traces, line(id, 6))
	}
	return c
}

func agenticRun(t *testing.T, c *corpus.Corpus, o Options, f *fixedTarget) (*Scheduler, []*record.Request) {
	t.Helper()
	s, err := NewAgentic(c, o)
	if err != nil {
		t.Fatal(err)
	}
	var got []*record.Request
	if err := RunVirtual(context.Background(), s, f, func(r *record.Request) { got = append(got, r) }); err != nil {
		t.Fatal(err)
	}
	return s, got
}

func seconds(n int64) string { return fmt.Sprintf("%gs", float64(n)/1e9) }

// what writes requests as "trace/turn@time".
func what(f *fixedTarget, phase record.Phase) []string {
	var out []string
	for _, q := range f.sent {
		if q.Phase == phase {
			out = append(out, fmt.Sprintf("%s/%d@%s", q.Trace.ID, q.Turn, seconds(q.Queued)))
		}
	}
	return out
}

func wantList(t *testing.T, what string, got []string, want string) {
	t.Helper()
	if g := strings.Join(got, " "); g != want {
		t.Errorf("%s: got  %s\n%s: want %s", what, g, what, want)
	}
}

// TestGraceAndCut: at the end nothing more goes out; what is in flight may end within the
// grace and is cut after it.
func TestGraceAndCut(t *testing.T) {
	for _, c := range []struct {
		grace         int64
		ok, cancelled uint64
		lastEnd       int64
	}{{second, 1, 1, 21 * second}, {2 * second, 2, 0, 22 * second}, {-1, 2, 0, 22 * second}} {
		o := Options{Lanes: 1, NoWarmup: true, DurationNs: 20 * second, GraceNs: c.grace, AllowWrap: true}
		f := constant(8 * second)
		s, got := agenticRun(t, lineCorpus("a"), o, f)
		if n := s.Counts(); n.OK != c.ok || n.Cancelled != c.cancelled || n.ProfilingEnd != 20*second {
			t.Errorf("grace %d: %+v", c.grace, n)
		}
		if last := got[len(got)-1].Times.End; last != c.lastEnd {
			t.Errorf("grace %d: the last request ended at %s", c.grace, seconds(last))
		}
		wantList(t, "requests", what(f, record.Profiling), "a/0@0s a/1@14s")
	}
}

// TestErrors: a failed turn does not end its stream, an overflow does, and the lane goes on
// with the next trace.
func TestErrors(t *testing.T) {
	o := Options{Lanes: 1, NoWarmup: true, DurationNs: 70 * second, GraceNs: -1, NoGaps: true}
	f := constant(10 * second)
	f.fail = func(q *Request) *record.Failure {
		switch {
		case q.Trace.ID == "a" && q.Turn == 1:
			return &record.Failure{Class: record.FailStatus, Status: 500}
		case q.Trace.ID == "a" && q.Turn == 2:
			return &record.Failure{Class: record.FailContextOverflow}
		}
		return nil
	}
	s, _ := agenticRun(t, lineCorpus("a", "b"), o, f)
	wantList(t, "requests", what(f, record.Profiling), "a/0@0s a/1@10s a/2@20s b/0@30s b/1@40s b/2@50s b/3@60s")
	if n := s.Counts(); n.Failed != 2 || n.Overflow != 1 || n.OK != 5 || n.Trees != 1 {
		t.Errorf("counts %+v", n)
	}
	if reason, _ := s.Abort(); reason != "" {
		t.Errorf("aborted: %s", reason)
	}
}

// TestOverflowFreesWhatWaits: streams that wait for an overflown one go on, children it would
// have spawned are never sent, and the tree drains.
func TestOverflowFreesWhatWaits(t *testing.T) {
	c := workedCorpus()
	root := &c.Traces[0].Streams[0]
	root.Turns = append(root.Turns, corpus.Turn{StartNs: 9 * second, APINs: second, In: 600, Out: 3})
	late := corpus.Stream{ID: "tr1::fa:000", Kind: corpus.FlatAgent, Parent: 0, Depth: 1, Spawn: 2, Join: corpus.Unbound,
		Turns: []corpus.Turn{{StartNs: 11 * second, APINs: second, In: 64, Out: 1}}}
	other := corpus.Stream{ID: "tr1::fa:001", Kind: corpus.FlatAgent, Parent: 0, Depth: 1, Spawn: 0, Join: corpus.Unbound,
		Turns: []corpus.Turn{{StartNs: second, APINs: second, In: 64, Out: 1}, {StartNs: 13 * second, APINs: second, In: 64, Out: 1}}}
	c.Traces[0].Streams = append(c.Traces[0].Streams, late, other)
	o := Options{Lanes: 1, NoWarmup: true, DurationNs: 100 * second, GraceNs: -1, MaxTrees: 1}
	f := &fixedTarget{service: recorded}
	f.fail = func(q *Request) *record.Failure {
		if q.Stream == 0 && q.Turn == 1 {
			return &record.Failure{Class: record.FailContextOverflow}
		}
		return nil
	}
	s, _ := agenticRun(t, c, o, f)
	var got []string
	for _, q := range f.sent {
		got = append(got, fmt.Sprintf("%d/%d@%s", q.Stream, q.Turn, seconds(q.Queued)))
	}
	// Stream 3 turn 1 was recorded after root turn 2 and stream 2, which never come.
	wantList(t, "requests", got, "0/0@0s 3/0@1s 1/0@2.1s 0/1@4s 3/1@12.1s")
	if n := s.Counts(); n.Trees != 1 || n.Blocked != 0 {
		t.Errorf("counts %+v", n)
	}
}

// TestFailedThreshold: the threshold counts from as many ended requests as there are lanes, and 10 at
// least. In agentic replay a prompt that was too long is no failure, but has ended; in a load it is one.
func TestFailedThreshold(t *testing.T) {
	o := Options{NoWarmup: true, DurationNs: 100 * second, GraceNs: -1, NoGaps: true, FailedThreshold: 0.1, AllowWrap: true}
	f := constant(second)
	f.fail = func(q *Request) *record.Failure {
		if q.Seq%5 == 0 {
			return &record.Failure{Class: record.FailResetAfter}
		}
		return nil
	}
	for lanes, want := range map[int]uint64{4: 12, 10: 10, 30: 30} { // four end at a time
		o.Lanes = lanes
		s, got := agenticRun(t, lineCorpus("a", "b", "c", "d"), o, f)
		if reason, _ := s.Abort(); reason != AbortErrorRate {
			t.Errorf("%d lanes: abort %q", lanes, reason)
		}
		n := s.Counts()
		if n.OK+n.Failed != want || len(got) != int(n.Profiling) || n.ProfilingEnd == record.Never {
			t.Errorf("%d lanes: %d records, %+v; want %d to end", lanes, len(got), n, want)
		}
	}

	long := constant(second)
	long.fail = func(q *Request) *record.Failure {
		switch {
		case q.Seq%2 == 1:
			return &record.Failure{Class: record.FailContextOverflow}
		case q.Seq%12 == 0: // less than a tenth of all, more than a tenth of the others
			return &record.Failure{Class: record.FailResetAfter}
		}
		return nil
	}
	o.Lanes = 4
	s, _ := agenticRun(t, lineCorpus("a", "b", "c", "d"), o, long)
	if reason, _ := s.Abort(); reason != "" {
		t.Errorf("prompts that were too long end the replay: %s, %+v", reason, s.Counts())
	}
	if n := s.Counts(); n.Overflow < 20 || n.Failed <= n.Overflow {
		t.Errorf("counts %+v", n)
	}
	l, err := NewLoad(lengths(t, Lengths{Conversations: 50, In: 100, Out: 2}), Load{Concurrency: 2, FailedThreshold: 0.1})
	if err != nil {
		t.Fatal(err)
	}
	long = &fixedTarget{service: long.service, fail: long.fail}
	if err := RunVirtual(context.Background(), l, long, func(*record.Request) {}); err != nil {
		t.Fatal(err)
	}
	if reason, _ := l.Abort(); reason != AbortErrorRate || l.Counts().OK+l.Counts().Failed != 10 {
		t.Errorf("a load with half of its prompts too long: %q, %+v", reason, l.Counts())
	}
}

// TestRootPrimerFailureAborts: before anything counts; the primer of a child may fail.
func TestRootPrimerFailureAborts(t *testing.T) {
	base := InferenceX(2, 0)
	base.DurationNs, base.StartMin, base.StartMax, base.PressureRequests = 60*second, 0.5, 0.5, 0
	f := constant(second)
	f.fail = func(q *Request) *record.Failure {
		if q.Phase == record.Primer && q.Lane == 1 {
			return &record.Failure{Class: record.FailConnect, Detail: "refused"}
		}
		return nil
	}
	s, got := agenticRun(t, lineCorpus("a", "b"), base, f)
	reason, detail := s.Abort()
	if reason != AbortRootWarmup || !strings.Contains(detail, "b turn 2 on lane 1: connect refused") {
		t.Errorf("abort %q: %s", reason, detail)
	}
	if n := s.Counts(); n.Profiling != 0 || n.ProfilingStart != record.Never || len(got) != 2 {
		t.Errorf("%d records, %+v", len(got), n)
	}

	c := workedCorpus()
	c.Traces[0].Streams[1].Turns = append(c.Traces[0].Streams[1].Turns, corpus.Turn{StartNs: 3800 * second / 1000, APINs: second / 10, In: 200, Out: 3})
	base.Lanes, base.StartMin, base.StartMax = 1, 0.8, 0.8
	f = constant(second)
	f.fail = func(q *Request) *record.Failure {
		if q.Phase == record.Primer && q.Stream == 1 {
			return &record.Failure{Class: record.FailConnect}
		}
		return nil
	}
	s, _ = agenticRun(t, c, base, f)
	if reason, _ := s.Abort(); reason != "" || s.Counts().Primers != 2 || s.Counts().Profiling == 0 {
		t.Errorf("a child's primer failed: abort %q, %+v", reason, s.Counts())
	}
}

// TestPrimersReachTheStartTogether: each goes out as long before the handoff as its turn was
// recorded before the start instant, 10 s at most; in a burst all go out at once.
func TestPrimersReachTheStartTogether(t *testing.T) {
	o := InferenceX(3, 0)
	o.DurationNs, o.PressureRequests = 100*second, 0
	o.StartMin, o.StartMax = 0.5, 0.5 // 25 s into a: turn 2 was 5 s before, turn 3 comes 5 s after
	c := lineCorpus("a", "b", "c")
	for k := range c.Traces[1].Streams[0].Turns {
		c.Traces[1].Streams[0].Turns[k].StartNs *= 10 // 250 s into b: turn 2 was 50 s before, capped to 10
	}
	for k := range c.Traces[2].Streams[0].Turns {
		c.Traces[2].Streams[0].Turns[k].StartNs /= 5 // 5 s into c: turn 2 was 1 s before, turn 3 comes 1 s after
	}
	f := constant(second / 10)
	agenticRun(t, c, o, f)
	wantList(t, "primers", what(f, record.Primer), "b/2@0s a/2@5s c/2@9s")
	// After the handoff at 9.1 s the first of c goes out, a 4 s later, b after the idle caps.
	got := what(f, record.Profiling)
	if got[0] != "c/3@9.1s" || !slices.Contains(got, "a/3@13.1s") {
		t.Errorf("first requests: %v", got[:6])
	}
	o.Burst = true
	f = constant(second / 10)
	agenticRun(t, c, o, f)
	wantList(t, "primers in a burst", what(f, record.Primer), "a/2@0s b/2@0s c/2@0s")
	wantList(t, "start in a burst", what(f, record.Profiling)[:3], "a/3@0.1s b/3@0.1s c/3@0.1s")
}

// TestPressure: exactly the asked number of requests a lane beside the primers, without idle
// time, one token each, over recycled trees too; then every lane resumes where it stands.
func TestPressure(t *testing.T) {
	o := InferenceX(2, 0)
	o.DurationNs, o.StartMin, o.StartMax, o.PressureRequests = 30*second, 0.5, 0.5, 5
	f := constant(second)
	s, _ := agenticRun(t, lineCorpus("a", "b", "c", "d"), o, f)
	wantList(t, "pressure", what(f, record.Pressure), "a/3@1s b/3@1s a/4@2s b/4@2s a/5@3s b/5@3s c/0@4s d/0@4s c/1@5s d/1@5s")
	for _, q := range f.sent {
		if q.Phase != record.Profiling && q.MaxOut != 1 || q.Phase == record.Profiling && q.MaxOut != 5 {
			t.Errorf("%d tokens asked for in %s", q.MaxOut, q.Phase)
		}
	}
	// c and d were at their start; turn 2 was recorded 20 s after it on both.
	wantList(t, "profiling", what(f, record.Profiling)[:4], "c/2@6s d/2@6s c/3@13s d/3@13s")
	if n := s.Counts(); n.ProfilingStart != 6*second || n.Pressure != 10 {
		t.Errorf("counts %+v", n)
	}

	o.PressureRequests, o.PressureNs = 0, 7500*second/1000
	f = constant(second)
	s, _ = agenticRun(t, lineCorpus("a", "b", "c", "d"), o, f)
	if n := s.Counts(); n.Pressure != 2*8 || n.ProfilingStart != 9*second {
		t.Errorf("pressure by time: %+v", n)
	}
}

// TestCountPrimers: a lane's primers are part of its requests under pressure, as older forks had it.
func TestCountPrimers(t *testing.T) {
	for requests, want := range map[int]uint64{5: 8, 2: 2, 1: 0} {
		o := InferenceX(2, 0)
		o.DurationNs, o.StartMin, o.StartMax, o.PressureRequests, o.CountPrimers = 30*second, 0.5, 0.5, requests, true
		s, _ := agenticRun(t, lineCorpus("a", "b", "c", "d"), o, constant(second))
		if n := s.Counts(); n.Primers != 2 || n.Pressure != want || n.Profiling == 0 {
			t.Errorf("%d requests a lane: %+v, want %d of pressure", requests, n, want)
		}
	}
}

// TestWarmupGrace: a warm-up that moves is never cut, however slow; one that stands still is,
// and then a root primer has failed.
func TestWarmupGrace(t *testing.T) {
	o := InferenceX(2, 0)
	o.DurationNs, o.StartMin, o.StartMax, o.PressureRequests = 10*second, 0.5, 0.5, 40
	f := &fixedTarget{service: func(q *Request) int64 { return 1000 * second }}
	s, _ := agenticRun(t, lineCorpus("a", "b"), o, f)
	if reason, _ := s.Abort(); reason != "" || s.Counts().Pressure != 80 {
		t.Errorf("slow warm-up: abort %q, %+v", reason, s.Counts())
	}
	f = &fixedTarget{service: func(q *Request) int64 { return 2000 * second }}
	s, got := agenticRun(t, lineCorpus("a", "b"), o, f)
	if reason, _ := s.Abort(); reason != AbortRootWarmup || got[0].Times.End != 1800*second {
		t.Errorf("stuck warm-up: abort %q, %+v", reason, s.Counts())
	}
}

func TestMaxRequestsAndTrees(t *testing.T) {
	o := Options{Lanes: 2, NoWarmup: true, MaxRequests: 7, NoGaps: true, AllowWrap: true}
	s, got := agenticRun(t, lineCorpus("a", "b"), o, constant(second))
	if n := s.Counts(); n.Profiling != 7 || n.OK != 7 || len(got) != 7 {
		t.Errorf("counts %+v", n)
	}
	o = Options{Lanes: 2, NoWarmup: true, MaxTrees: 3, NoGaps: true, AllowWrap: true}
	s, got = agenticRun(t, lineCorpus("a", "b"), o, constant(second))
	if n := s.Counts(); n.Trees != 3 || len(got) != 18 || n.ProfilingEnd != 12*second {
		t.Errorf("%d records, counts %+v", len(got), n)
	}
}

// TestSalts: one salt a tree, shared by its streams and phases, never used again.
func TestSalts(t *testing.T) {
	o := InferenceX(3, 0)
	o.DurationNs, o.PressureRequests = 300*second, 3
	f := constant(second)
	agenticRun(t, workedCorpus(), o, f)
	of, tree := map[string]string{}, map[string]string{}
	for _, q := range f.sent {
		if s, ok := of[q.Tree]; ok && s != q.Salt || q.Salt == "" {
			t.Fatalf("tree %s has salts %q and %q", q.Tree, s, q.Salt)
		}
		if other, ok := tree[q.Salt]; ok && other != q.Tree {
			t.Fatalf("trees %s and %s share a salt", q.Tree, other)
		}
		of[q.Tree], tree[q.Salt] = q.Salt, q.Tree
	}
	if len(of) < 10 {
		t.Errorf("only %d trees", len(of))
	}
}

func TestOptionsAreChecked(t *testing.T) {
	good := func() Options { o := InferenceX(2, 0); o.DurationNs = second; return o }
	c := lineCorpus("a", "b")
	for want, change := range map[string]func(*Options){
		"at least one lane":       func(o *Options) { o.Lanes = 0 },
		"at most 100000 lanes":    func(o *Options) { o.Lanes = MaxLanes + 1 },
		"cap on output is -1":     func(o *Options) { o.MaxOut = -1 },
		"-1ns (system)":           func(o *Options) { o.SystemIdleCapNs = -1 },
		"-1ns (trace)":            func(o *Options) { o.TraceIdleCapNs = -1 },
		"-1ns (gap)":              func(o *Options) { o.TurnGapCapNs = -1 },
		"warm-up grace is -1ns":   func(o *Options) { o.WarmupGraceNs = -1 },
		"0 <= min <= max <= 1":    func(o *Options) { o.StartMin, o.StartMax = 0.8, 0.2 },
		"set one of them":         func(o *Options) { o.PressureNs = second },
		"nothing ends the run":    func(o *Options) { o.DurationNs = 0 },
		"may not be negative":     func(o *Options) { o.DurationNs = -1 },
		"share from 0 to 1":       func(o *Options) { o.FailedThreshold = 2 },
		"use at most 2 lanes":     func(o *Options) { o.Lanes, o.Salt = 3, prompt.NoSalt },
		"neither may be negative": func(o *Options) { o.PressureRequests = -1 },
	} {
		o := good()
		change(&o)
		if _, err := NewAgentic(c, o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	if _, err := NewAgentic(&corpus.Corpus{Name: "empty"}, good()); err == nil || !strings.Contains(err.Error(), "no trace with a root turn") {
		t.Errorf("empty corpus: %v", err)
	}
}
