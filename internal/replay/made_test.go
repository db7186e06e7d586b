package replay

import (
	"math"
	"testing"

	"github.com/weirbench/weir/internal/corpus"
)

// TestUsersFromFirstTurn: what AIPerf documents of 15 users, 20 turns and one request a second
// (user_centric_rate.py of agentx-harness 1.0.12): when each user comes and how many turns it sends
// before another takes its place, always from the first turn on.
func TestUsersFromFirstTurn(t *testing.T) {
	c := lengths(t, Lengths{Conversations: 40, Turns: 20, In: 100, Out: 10})
	o := Load{Arrival: Users, Rate: 1, NumUsers: 15, Loop: true, DurationNs: 330 * second, GraceNs: -1, FromFirstTurn: true}
	_, log := runLoad(t, c, o, constant(second/10))
	left := []int{20, 6, 11, 16, 2, 7, 12, 17, 3, 8, 13, 18, 4, 9, 14}
	sent := make([]int, len(left)) // turns of the first conversation of each lane
	tree := make([]string, len(left))
	for _, x := range log {
		k := x.q.Lane
		if tree[k] == "" {
			tree[k] = x.q.Tree
			if x.q.Intended != int64(k)*second || x.q.Turn != 0 {
				t.Errorf("the user of %d s comes at %d with turn %d", k, x.q.Intended, x.q.Turn)
			}
		}
		if x.q.Tree == tree[k] {
			if x.q.Turn != sent[k] || x.q.Intended != int64(k+15*sent[k])*second {
				t.Errorf("the user of %d s sends turn %d at %d after %d turns", k, x.q.Turn, x.q.Intended, sent[k])
			}
			sent[k]++
		} else if x.q.Turn == 0 && x.q.Intended < int64(k+15*left[k])*second {
			t.Errorf("the user of %d s is replaced at %d, after %d turns", k, x.q.Intended, sent[k])
		}
	}
	for k := range left {
		if sent[k] != left[k] {
			t.Errorf("the user of %d s sends %d turns, want %d", k, sent[k], left[k])
		}
	}
	// Where ages would fall together the places are spread by a step: each is taken once.
	for _, n := range []int{1, 2, 5, 10, 12} {
		o.NumUsers, o.DurationNs = n, int64(n)*second
		_, log := runLoad(t, lengths(t, Lengths{Conversations: 40, Turns: 6, In: 100, Out: 10}), o, constant(second/10))
		at := map[int64]bool{}
		for _, x := range log {
			at[x.q.Intended] = true
		}
		if len(log) != n || len(at) != n {
			t.Errorf("%d users send %d requests at %d times in their first gap", n, len(log), len(at))
		}
	}
}

// TestDrawnLengths: lengths with a deviation have the mean and deviation that were asked for, are at
// least 1, do not change when another length gets a deviation, and are the same for the same seed.
func TestDrawnLengths(t *testing.T) {
	type drawn struct{ in, out, turns, pause []float64 }
	of := func(l Lengths) (d drawn) {
		for _, s := range lengths(t, l).Traces[0].Streams {
			d.turns = append(d.turns, float64(len(s.Turns)))
			before := l.Prefix
			for k, turn := range s.Turns {
				d.in, d.out = append(d.in, float64(turn.In-before)), append(d.out, float64(turn.Out))
				if before = turn.In + turn.Out; k > 0 {
					d.pause = append(d.pause, float64(turn.ThinkNs)/1e6)
				}
			}
		}
		return d
	}
	l := Lengths{Conversations: 4000, Turns: 5, In: 1000, Out: 300, InDev: 120, OutDev: 40, TurnsDev: 1, Pause: 800, PauseDev: 100, PauseRatio: 0.5, Seed: 3}
	a, b := of(l), of(l)
	check := func(what string, v []float64, mean, dev float64) {
		t.Helper()
		sum, sq, least := 0.0, 0.0, v[0]
		for _, x := range v {
			sum, sq, least = sum+x, sq+x*x, min(least, x)
		}
		n := float64(len(v))
		m, s := sum/n, math.Sqrt(sq/n-sum*sum/n/n)
		if math.Abs(m-mean) > 0.02*mean || math.Abs(s-dev) > 0.1*dev || least < 0.5 {
			t.Errorf("%s: mean %v, deviation %v, least %v; want %v and %v", what, m, s, least, mean, dev)
		}
	}
	check("input", a.in, 1000.5, 120)
	check("output", a.out, 300.5, 40)
	check("turns", a.turns, 5.5, 1.04) // rounding up adds its own deviation
	check("pause", a.pause, 400.25, 50)
	for i := range a.in {
		if a.in[i] != b.in[i] || a.out[i] != b.out[i] {
			t.Fatal("the same seed draws other lengths")
		}
	}
	fixed := l
	fixed.OutDev = 0
	for i, x := range of(fixed).in {
		if x != a.in[i] {
			t.Fatal("a deviation of outputs changes the inputs")
		}
	}
	small := of(Lengths{Conversations: 2000, In: 2, Out: 1, InDev: 50, OutDev: 3, Seed: 3})
	for i := range small.in {
		if small.in[i] < 1 || small.out[i] < 1 {
			t.Fatalf("a length of %v and %v", small.in[i], small.out[i])
		}
	}
	for what, l := range map[string]Lengths{
		"range and deviation": {Conversations: 1, In: 9, Out: 9, InDev: 1, RangeRatio: 0.5},
		"too many blocks":     {Conversations: 1 << 20, Turns: 1, In: 1000, Out: 1, InDev: 1e6},
		"negative":            {Conversations: 1, In: 9, Out: 9, OutDev: -1},
		"NaN":                 {Conversations: 1, In: 9, Out: 9, Pause: math.NaN()},
	} {
		if _, err := l.Corpus(); err == nil {
			t.Errorf("%s is taken", what)
		}
	}
}

// TestPrefixPool: each conversation begins with one of so many shared prefixes, and with nothing else
// that another has.
func TestPrefixPool(t *testing.T) {
	c := lengths(t, Lengths{Conversations: 300, In: 200, Out: 5, Prefix: 640, SharedShare: 1, Prefixes: 7, Seed: 1})
	heads, rest := map[uint32]int{}, map[uint32]bool{}
	for _, s := range c.Traces[0].Streams {
		blocks := s.Turns[0].Blocks
		heads[blocks[0]]++
		for i, b := range blocks {
			switch {
			case i < 10 && b != blocks[0]+uint32(i):
				t.Fatalf("the prefix %v is not one of the pool", blocks[:10])
			case i >= 10 && rest[b]:
				t.Fatalf("block %d stands in two conversations", b)
			case i >= 10:
				rest[b] = true
			}
		}
	}
	if len(heads) != 7 {
		t.Errorf("%d prefixes: %v", len(heads), heads)
	}
	for _, n := range heads {
		if n < 15 {
			t.Errorf("a prefix has %d of 300 conversations", n)
		}
	}
}

// TestScheduleFromZero: a start that is set is the zero of the recording, 0 too; the end is exclusive.
func TestScheduleFromZero(t *testing.T) {
	var streams []corpus.Stream
	for i, at := range []int64{5, 7, 9} {
		streams = append(streams, corpus.Stream{ID: string(rune('a' + i)), Parent: corpus.Unbound, Spawn: corpus.Unbound, Join: corpus.Unbound,
			Turns: []corpus.Turn{{StartNs: at * second, In: 64, Out: 2, Blocks: []uint32{uint32(i)}}}})
	}
	c := &corpus.Corpus{Name: "s", Traces: []*corpus.Trace{{ID: "s", BlockSize: 64, Models: []string{""}, Streams: streams}}}
	for _, x := range []struct {
		o    Load
		want []int64
	}{
		{Load{}, []int64{0, 2, 4}},
		{Load{FromSet: true}, []int64{5, 7, 9}},
		{Load{FromSet: true, FromNs: 6 * second}, []int64{1, 3}},
		{Load{ToNs: 7*second + 1}, []int64{0, 2}},
		{Load{FreeOutput: true}, []int64{0, 2, 4}},
		{Load{EachTurn: true}, []int64{0, 2, 3, 4}},
		{Load{EachTurn: true, FromSet: true, FromNs: 8 * second}, []int64{0, 1}},
	} {
		x.o.Arrival = Schedule
		s := &c.Traces[0].Streams[1]
		if s.Parent, s.Turns = corpus.Unbound, s.Turns[:1]; x.o.EachTurn { // as in a file without sessions
			s.Parent, s.Turns = 0, append(s.Turns, corpus.Turn{StartNs: 8 * second, In: 64, Out: 2, Blocks: []uint32{9}})
		}
		_, log := runLoad(t, c, x.o, constant(second/10))
		if len(log) != len(x.want) {
			t.Errorf("%+v: %d requests, want %v", x.o, len(log), x.want)
			continue
		}
		for i, r := range log {
			if want := int64(2); r.q.Intended != x.want[i]*second || (r.q.MaxOut == want) == x.o.FreeOutput || x.o.FreeOutput && r.q.MaxOut != 0 {
				t.Errorf("%+v: request %d at %d asks for %d tokens", x.o, i, r.q.Intended, r.q.MaxOut)
			}
		}
	}
}
