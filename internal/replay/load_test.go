package replay

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirbench/weir/internal/corpus"
	"github.com/weirbench/weir/internal/record"
)

func TestLnAndExp(t *testing.T) {
	rng := newPCG64(3)
	for range 100_000 {
		x := rng.float64()*10 + 1e-12
		if got, want := ln(x), math.Log(x); math.Abs(got-want) > 4e-16*max(1, math.Abs(want)) {
			t.Fatalf("ln(%v) = %v, want %v", x, got, want)
		}
		y := -40 * rng.float64()
		if got, want := exp(y), math.Exp(y); math.Abs(got-want) > 1e-15*want*max(1, -y) {
			t.Fatalf("exp(%v) = %v, want %v", y, got, want)
		}
	}
}

// TestIntervals checks mean and coefficient of variation of the arrivals: 1/rate, and 0, 1
// and 1/sqrt(shape). The draws are fixed by the seed.
func TestIntervals(t *testing.T) {
	for _, c := range []struct {
		kind  Arrival
		shape float64
		cv    float64
	}{{Constant, 0, 0}, {Poisson, 0, 1}, {Gamma, 1, 1}, {Gamma, 0.25, 2}, {Gamma, 4, 0.5}, {Gamma, 25, 0.2}} {
		v := intervals{kind: c.kind, rate: 20, shape: c.shape, rng: newPCG64(11)}
		const n = 200_000
		sum, squares, last := 0.0, 0.0, int64(0)
		for range n {
			at := v.next()
			if at < last {
				t.Fatalf("arrivals go back: %d after %d", at, last)
			}
			d := float64(at-last) / 1e9
			sum += d
			squares += d * d
			last = at
		}
		mean := sum / n
		cv := math.Sqrt(max(0, squares/n-mean*mean)) / mean
		if math.Abs(mean*20-1) > 0.01 || math.Abs(cv-c.cv) > 0.02*max(c.cv, 0.01) {
			t.Errorf("arrival %d, shape %v: mean %v s, cv %v, want 0.05 s and %v", c.kind, c.shape, mean, cv, c.cv)
		}
	}
}

func lengths(t testing.TB, l Lengths) *corpus.Corpus {
	t.Helper()
	c, err := l.Corpus()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestLengths(t *testing.T) {
	c := lengths(t, Lengths{Conversations: 300, Turns: 3, In: 1000, Out: 100, RangeRatio: 0.8, Prefix: 640, SharedShare: 0.5, Seed: 5})
	owner := map[uint32]int{}
	small, large := int64(math.MaxInt64), int64(0)
	for i, s := range c.Traces[0].Streams {
		before := int64(640)
		for k, turn := range s.Turns {
			added := turn.In - before
			small, large = min(small, added), max(large, added)
			if turn.Out < 80 || turn.Out > 100 {
				t.Fatalf("output of %d tokens", turn.Out)
			}
			before = turn.In + turn.Out
			if len(turn.Blocks) != int(turn.In/64) {
				t.Fatalf("%d blocks for %d tokens", len(turn.Blocks), turn.In)
			}
			if k > 0 && commonPrefix(s.Turns[k-1].Blocks, turn.Blocks, len(turn.Blocks)) != len(s.Turns[k-1].Blocks) {
				t.Fatalf("turn %d of conversation %d does not extend the one before it", k, i)
			}
			for j, b := range turn.Blocks {
				switch was, ok := owner[b]; {
				case j < 5 && b != uint32(j+1):
					t.Fatalf("block %d of conversation %d is %d, not shared", j, i, b)
				case j >= 5 && ok && was != i:
					t.Fatalf("block %d belongs to conversations %d and %d", b, was, i)
				}
				if j >= 5 {
					owner[b] = i
				}
			}
		}
	}
	if small != 800 && small > 805 || large < 995 || large > 1000 || small < 800 {
		t.Errorf("input lengths from %d to %d, want about 800 to 1000", small, large)
	}
	for _, l := range []Lengths{{}, {Conversations: 1}, {Conversations: 1, In: 1, Out: 1, RangeRatio: 2}, {Conversations: 1, In: 1, Out: 1, RangeRatio: math.NaN()}, {Conversations: 1, In: 1, Out: 1, SharedShare: math.NaN()}, {Conversations: 1 << 40, In: 1, Out: 1}} {
		if _, err := l.Corpus(); err == nil {
			t.Errorf("%+v is accepted", l)
		}
	}
}

// failer is what testing.T and rapid.T share.
type failer interface {
	Helper()
	Fatal(...any)
	Fatalf(string, ...any)
}

func runLoad(t failer, c *corpus.Corpus, o Load, f *fixedTarget) (*Scheduler, []sent) {
	t.Helper()
	s, err := NewLoad(c, o)
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
	var log []sent
	for _, q := range f.sent {
		if ended[q.Seq] == nil {
			t.Fatalf("request %d has no outcome", q.Seq)
		}
		log = append(log, sent{q, ended[q.Seq]})
	}
	if len(log) != len(ended) {
		t.Fatalf("%d sent, %d outcomes", len(log), len(ended))
	}
	return s, log
}

func constant(ns int64) *fixedTarget {
	return &fixedTarget{service: func(*Request) int64 { return ns }}
}

// TestClosedLoopInPasses is the overflow load: distinct prompts, then the same again in order,
// each pass at full concurrency and the second after the first has ended.
func TestClosedLoopInPasses(t *testing.T) {
	c := lengths(t, Lengths{Conversations: 66, In: 640, Out: 10})
	_, log := runLoad(t, c, Load{Arrival: Closed, Concurrency: 8, Passes: 2, WarmupRequests: 16}, constant(second))
	if len(log) != 16+100 {
		t.Fatalf("%d requests", len(log))
	}
	hits := [2]int64{}
	for i, x := range log {
		want, phase := 50+i, record.Primer
		if i >= 16 {
			want, phase = (i-16)%50, record.Profiling
		}
		if x.q.Stream != want || x.q.Phase != phase || i >= 16 && x.q.Play != (i-16)/50 {
			t.Fatalf("request %d: %+v", i, x.q)
		}
		if i >= 16 {
			hits[x.q.Play] += x.q.Ceiling
			at := 2*second + int64((i-16)/8)*second
			if i-16 >= 50 {
				at = 2*second + 7*second + int64((i-66)/8)*second
			}
			if x.q.Queued != at || x.q.Intended != at {
				t.Fatalf("request %d goes out at %d, meant for %d, want %d", i, x.q.Queued, x.q.Intended, at)
			}
		}
	}
	if hits != [2]int64{0, 50 * 640} { // the warm-up sent others
		t.Errorf("ceilings %v", hits)
	}
}

// TestRateKeepsIntendedTimes: a slow server with few slots makes requests late and leaves the
// times they were meant for as they are.
func TestRateKeepsIntendedTimes(t *testing.T) {
	for _, kind := range []Arrival{Constant, Poisson, Gamma} {
		c := lengths(t, Lengths{Conversations: 200, In: 100, Out: 10})
		o := Load{Arrival: kind, Rate: 10, Shape: 0.5, Seed: 9}
		_, fast := runLoad(t, c, o, constant(second/1000))
		o.Concurrency = 2
		_, slow := runLoad(t, c, o, constant(second))
		if len(fast) != 200 || len(slow) != 200 {
			t.Fatalf("%d and %d requests", len(fast), len(slow))
		}
		late := 0
		for i := range fast {
			if fast[i].q.Intended != slow[i].q.Intended || fast[i].q.Stream != slow[i].q.Stream {
				t.Fatalf("request %d is meant for %d with a fast server and for %d with a slow one", i, fast[i].q.Intended, slow[i].q.Intended)
			}
			if fast[i].q.Queued != fast[i].q.Intended {
				t.Fatalf("request %d is late without a limit", i)
			}
			if slow[i].q.Queued > slow[i].q.Intended {
				late++
			}
		}
		if kind == Constant && (fast[0].q.Intended != second/10 || fast[199].q.Intended != 20*second) {
			t.Errorf("first at %d, last at %d", fast[0].q.Intended, fast[199].q.Intended)
		}
		if late < 150 {
			t.Errorf("only %d of 200 requests are late", late)
		}
	}
}

// TestContinuationsComeFirst: a turn that is ready takes an arrival before a new conversation
// does, and takes one.
func TestContinuationsComeFirst(t *testing.T) {
	c := lengths(t, Lengths{Conversations: 3, Turns: 2, In: 100, Out: 10})
	_, log := runLoad(t, c, Load{Arrival: Constant, Rate: 1}, constant(second/2))
	var got []string
	for _, x := range log {
		got = append(got, fmt.Sprintf("%d:%d/%d", x.q.Intended/second, x.q.Stream, x.q.Turn))
	}
	if want := "1:0/0 2:0/1 3:1/0 4:1/1 5:2/0 6:2/1"; strings.Join(got, " ") != want {
		t.Errorf("got %v, want %s", got, want)
	}
}

func TestScheduleWithSpeed(t *testing.T) {
	c := &corpus.Corpus{Name: "s", Traces: []*corpus.Trace{{ID: "s", BlockSize: 16}}}
	for i, at := range []int64{30, 10, 20, 50} {
		c.Traces[0].Streams = append(c.Traces[0].Streams, corpus.Stream{
			ID: fmt.Sprint(i), Parent: corpus.Unbound,
			Turns: []corpus.Turn{{StartNs: at * second, In: 16, Out: 1}, {StartNs: (at + 4) * second, In: 32, Out: 1}},
		})
	}
	o := Load{Arrival: Schedule, Speed: 2, ToNs: 40 * second}
	_, log := runLoad(t, c, o, constant(3*second))
	var got []string
	for _, x := range log {
		got = append(got, fmt.Sprintf("%d/%d meant for %d, sent at %d", x.q.Stream, x.q.Turn, x.q.Intended/second, x.q.Queued/second))
	}
	want := []string{ // the second turns are due 2 s after the first, which take 3 s
		"1/0 meant for 0, sent at 0", "1/1 meant for 2, sent at 3",
		"2/0 meant for 5, sent at 5", "2/1 meant for 7, sent at 8",
		"0/0 meant for 10, sent at 10", "0/1 meant for 12, sent at 13",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestUsers: with n users at a rate every user sends a turn each n/rate, whenever the turn
// before it ends, and finished users are replaced in the same rhythm.
func TestUsers(t *testing.T) {
	c := lengths(t, Lengths{Conversations: 40, Turns: 4, In: 100, Out: 10, Prefix: 320, SharedShare: 1})
	o := Load{Arrival: Users, Rate: 2, NumUsers: 4, Loop: true, DurationNs: 60 * second, GraceNs: -1}
	s, log := runLoad(t, c, o, constant(5*second)) // slower than the gap of 2 s
	last := map[int]int64{}
	for _, x := range log {
		if at, ok := last[x.q.Lane]; ok && x.q.Intended != at+2*second {
			t.Fatalf("user %d: meant for %d after %d", x.q.Lane, x.q.Intended, at)
		}
		last[x.q.Lane] = x.q.Intended
	}
	if len(last) != 4 {
		t.Errorf("%d users", len(last))
	}
	first := log[:4]
	for i, x := range first {
		if x.q.Lane != i || x.q.Turn != i || x.q.Intended != int64(i)*second/2 {
			t.Errorf("user %d enters with %+v", i, x.q)
		}
	}
	if n := s.Counts(); n.ProfilingEnd != 60*second || n.Cancelled != 0 {
		t.Errorf("counts %+v", n)
	}
}

// prefillTarget tells first tokens after half of the service time.
type prefillTarget struct {
	*fixedTarget
	tell   func(uint64)
	firsts []*record.Request
	now    int
	most   int
}

func (p *prefillTarget) OnFirstToken(f func(uint64)) { p.tell = f }
func (p *prefillTarget) Send(q Request) {
	p.fixedTarget.Send(q)
	p.now++
	p.most = max(p.most, p.now)
	r := NewRecord(&q)
	r.Times.FirstToken = q.Queued + second/2
	p.firsts = append(p.firsts, r)
}

func (p *prefillTarget) Next() (int64, bool) {
	at, ok := p.fixedTarget.Next()
	if len(p.firsts) > 0 && (!ok || p.firsts[0].Times.FirstToken < at) {
		return p.firsts[0].Times.FirstToken, true
	}
	return at, ok
}

func (p *prefillTarget) Advance(t int64) {
	for len(p.firsts) > 0 && p.firsts[0].Times.FirstToken <= t {
		p.tell(p.firsts[0].Seq)
		p.firsts = p.firsts[1:]
		p.now--
	}
	p.fixedTarget.Advance(t)
}

func TestPrefillConcurrency(t *testing.T) {
	c := lengths(t, Lengths{Conversations: 30, In: 100, Out: 10})
	o := Load{Arrival: Closed, Concurrency: 10, PrefillConcurrency: 3}
	s, err := NewLoad(c, o)
	if err != nil {
		t.Fatal(err)
	}
	p := &prefillTarget{fixedTarget: constant(second)}
	n := 0
	if err := RunVirtual(context.Background(), s, p, func(*record.Request) { n++ }); err != nil {
		t.Fatal(err)
	}
	if n != 30 || p.most != 3 {
		t.Errorf("%d requests, at most %d in prefill, want 30 and 3", n, p.most)
	}
	s, _ = NewLoad(c, o)
	if err := RunVirtual(context.Background(), s, constant(second), func(*record.Request) {}); err == nil {
		t.Error("a target that does not tell first tokens is accepted")
	}
}

// TestLoadAccounts plays random loads against random servers: every request once, turns in
// order, never more conversations than slots, nothing early.
func TestLoadAccounts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, err := Lengths{
			Conversations: rapid.IntRange(1, 12).Draw(t, "conversations"), Turns: rapid.IntRange(1, 4).Draw(t, "turns"),
			In: rapid.Int64Range(1, 300).Draw(t, "in"), Out: rapid.Int64Range(1, 100).Draw(t, "out"),
			RangeRatio: rapid.Float64Range(0.1, 1).Draw(t, "ratio"), Prefix: rapid.Int64Range(0, 500).Draw(t, "prefix"),
			SharedShare: rapid.Float64Range(0, 1).Draw(t, "share"),
		}.Corpus()
		if err != nil {
			t.Fatal(err)
		}
		at := int64(0)
		for i := range c.Traces[0].Streams {
			for k := range c.Traces[0].Streams[i].Turns {
				c.Traces[0].Streams[i].Turns[k].StartNs = at
				at += rapid.Int64Range(0, 20).Draw(t, "gap") * second / 10
			}
		}
		o := Load{
			Arrival: Arrival(rapid.IntRange(0, int(Users)).Draw(t, "arrival")),
			Rate:    rapid.Float64Range(0.1, 20).Draw(t, "rate"), Shape: rapid.Float64Range(0.1, 5).Draw(t, "shape"),
			Concurrency: rapid.IntRange(0, 5).Draw(t, "concurrency"), RampNs: rapid.Int64Range(0, 3).Draw(t, "ramp") * second,
			NumUsers: rapid.IntRange(1, 5).Draw(t, "users"), Speed: rapid.Float64Range(0.5, 10).Draw(t, "speed"),
			WarmupRequests: rapid.IntRange(0, 4).Draw(t, "warmup"), MaxRequests: rapid.Uint64Range(0, 30).Draw(t, "max"),
			DurationNs: rapid.Int64Range(0, 40).Draw(t, "duration") * second, GraceNs: rapid.Int64Range(-1, 5).Draw(t, "grace") * second,
			NoGaps: rapid.Bool().Draw(t, "no gaps"),
		}
		if o.Arrival == Closed {
			o.Concurrency++
			o.Passes = rapid.IntRange(1, 3).Draw(t, "passes")
		}
		if o.Arrival != Schedule && (o.MaxRequests > 0 || o.DurationNs > 0) {
			o.Loop = rapid.Bool().Draw(t, "loop")
		}
		o.WarmupRequests = min(o.WarmupRequests, len(c.Traces[0].Streams)-1)
		s, log := runLoad(t, c, o, drawServer(t))
		turn, end := map[string]int{}, map[string]int64{}
		for i, x := range log {
			q := x.q
			if q.Queued < q.Intended || i > 0 && q.Queued < log[i-1].q.Queued {
				t.Fatalf("request %d is early: %+v", i, q)
			}
			if q.Phase == record.Primer {
				continue
			}
			if before, ok := turn[q.Tree]; ok && q.Turn != before+1 {
				t.Fatalf("%s sends turn %d after %d", q.Tree, q.Turn, before)
			}
			if end[q.Tree] > q.Queued {
				t.Fatalf("%+v overlaps the turn before it", q)
			}
			turn[q.Tree], end[q.Tree] = q.Turn, x.r.Times.End
			if o.Concurrency > 0 && o.Arrival != Users {
				busy := map[string]bool{}
				for _, y := range log {
					if y.q.Queued <= q.Queued && y.r.Times.End > q.Queued {
						busy[fmt.Sprint(y.q.Phase, y.q.Tree)] = true
					}
				}
				if len(busy) > o.Concurrency {
					t.Fatalf("%d conversations at once, %d allowed", len(busy), o.Concurrency)
				}
			}
		}
		n := s.Counts()
		if n.InFlight != 0 || n.Stray != 0 || n.OK+n.Failed+n.Cancelled != n.Profiling || n.ProfilingEnd == record.Never {
			t.Fatalf("counts at the end: %+v", n)
		}
		if o.MaxRequests > 0 && n.Profiling > o.MaxRequests {
			t.Fatalf("%d requests, at most %d allowed", n.Profiling, o.MaxRequests)
		}
	})
}
