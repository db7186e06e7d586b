package replay

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/weirbench/weir/internal/record"
)

// TestLengthsAsAIPerf: what AIPerf 0.13.0 draws with seed 42: pairs of lengths, lengths in a range in both styles, turns,
// and which prefix of three each conversation has.
func TestLengthsAsAIPerf(t *testing.T) {
	for what, x := range map[string]struct {
		l    Lengths
		want [][2]int64
	}{
		"pairs": {Lengths{Pairs: []Pair{{In: 256, InDev: 10, Out: 128, OutDev: 5, Share: 40}, {In: 512, Out: 64, Share: 60}}},
			[][2]int64{{512, 64}, {268, 128}, {257, 134}, {255, 124}, {512, 64}, {254, 131}, {512, 64}, {241, 122}, {246, 128}, {512, 64}}},
		"vllm": {Lengths{Range: &Range{280, 520, 14, 26}},
			[][2]int64{{497, 20}, {334, 26}, {288, 15}, {446, 26}, {382, 21}, {412, 20}, {517, 15}, {387, 26}}},
		"sglang": {Lengths{Range: &Range{200, 400, 10, 20}},
			[][2]int64{{381, 15}, {245, 20}, {207, 11}, {338, 20}, {285, 16}, {310, 15}, {398, 11}, {289, 20}}},
	} {
		x.l.Conversations, x.l.In, x.l.Out, x.l.Seed = len(x.want), 1, 1, 42
		for i, s := range lengths(t, x.l).Traces[0].Streams {
			if got := [2]int64{s.Turns[0].In, s.Turns[0].Out}; got != x.want[i] {
				t.Errorf("%s: conversation %d has %v, want %v", what, i, got, x.want[i])
			}
		}
	}
	c := lengths(t, Lengths{Conversations: 12, Turns: 3, TurnsDev: 1, In: 100, Out: 5, Prefix: 128, SharedShare: 1, Prefixes: 3, Seed: 42})
	turns, prefix := []int{4, 3, 3, 4, 3, 3, 4, 4, 4, 4, 3, 4}, []uint32{2, 2, 1, 1, 0, 1, 1, 2, 1, 0, 1, 2}
	for i, s := range c.Traces[0].Streams {
		if len(s.Turns) != turns[i] || s.Turns[0].Blocks[0] != 1+2*prefix[i] {
			t.Errorf("conversation %d has %d turns and block %d, want %d turns and prefix %d", i, len(s.Turns), s.Turns[0].Blocks[0], turns[i], prefix[i])
		}
	}
	for what, l := range map[string]Lengths{
		"shares":     {Pairs: []Pair{{In: 1, Out: 1, Share: 99}}},
		"no input":   {Pairs: []Pair{{Out: 1, Share: 100}}},
		"NaN":        {Pairs: []Pair{{In: 1, Out: 1, InDev: math.NaN(), Share: 100}}},
		"range":      {Range: &Range{5, 4, 1, 1}},
		"both":       {Range: &Range{1, 4, 1, 1}, Pairs: []Pair{{In: 1, Out: 1, Share: 100}}},
		"with ratio": {Range: &Range{1, 4, 1, 1}, RangeRatio: 0.5},
	} {
		l.Conversations, l.In, l.Out = 1, 1, 1
		if _, err := l.Corpus(); err == nil {
			t.Errorf("%s is taken", what)
		}
	}
}

// TestSamplingAsAIPerf: the order in which AIPerf 0.13.0 takes ten conversations with seed 42.
func TestSamplingAsAIPerf(t *testing.T) {
	c := lengths(t, Lengths{Conversations: 10, In: 64, Out: 1})
	for order, want := range map[Sampling][]int{
		Shuffle: {7, 6, 0, 4, 9, 3, 5, 1, 8, 2, 0, 6, 3, 8, 9, 2, 1, 7, 5, 4},
		Random:  {0, 9, 4, 1, 0, 0, 4, 0, 5, 7, 8, 9},
	} {
		_, log := runLoad(t, c, Load{Concurrency: 1, Seed: 42, AsAIPerf: true, Sampling: order, Loop: true, MaxConversations: len(want)}, constant(second))
		var got []int
		for _, x := range log {
			got = append(got, x.q.Stream)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%d: %v, want %v", order, got, want)
		}
	}
}

// TestRampsAsAIPerf: a ramp of the rate from its first tenth of a second on, computed by hand for ten a second
// over one second; one of the concurrency, whose k-th slot of n opens after (k-1)/(n-1) of its time;
// and an arrival that finds no slot is dropped.
func TestRampsAsAIPerf(t *testing.T) {
	c := lengths(t, Lengths{Conversations: 100, In: 64, Out: 1})
	_, log := runLoad(t, c, Load{Arrival: Constant, Rate: 10, RateRampNs: second, AsAIPerf: true, MaxRequests: 12}, constant(second/100))
	// At 1 a second first; each tenth of a second raises that by 0.9, and the arrival comes at the end of the new interval if that is sooner.
	want := []float64{0.557143, 0.738961, 0.875947, 0.997899, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 1.8}
	for i, x := range log {
		if got := float64(x.q.Intended) / 1e9; math.Abs(got-want[i]) > 1e-6 {
			t.Errorf("arrival %d at %v s, want %v", i, got, want[i])
		}
	}
	// A series of 10 a second that falls to 5 over 0.2 s and stays there: changes at 0.1 and 0.2 s, each of which draws again.
	_, log = runLoad(t, c, Load{Arrival: Constant, Rate: 10, RateSeries: []RatePoint{{0, 10}, {0.2, 5}}, AsAIPerf: true, MaxRequests: 4}, constant(second/100))
	want = []float64{0.1, 0.3, 0.5, 0.7}
	want[0] = 0.1                                 // the first interval at 10 a second ends as the change comes, which can only make it sooner
	want[1] = min(0.1+1/7.5, 0.2+1.0/5)           // at 7.5, then at 5
	want[2], want[3] = want[1]+0.2, want[1]+2*0.2 // at 5
	for i, x := range log {
		if got := float64(x.q.Intended) / 1e9; math.Abs(got-want[i]) > 1e-6 {
			t.Errorf("series: arrival %d at %v s, want %v", i, got, want[i])
		}
	}
	for _, bad := range [][]RatePoint{{{0, 1}}, {{0, 1}, {0, 2}}, {{0, 1}, {1, 0}}, {{-1, 1}, {1, 1}}, {{0, math.NaN()}, {1, 1}}} {
		if _, err := NewLoad(c, Load{Arrival: Constant, Rate: 1, RateSeries: bad, MaxRequests: 1}); err == nil {
			t.Errorf("the series %v is taken", bad)
		}
	}
	_, log = runLoad(t, c, Load{Concurrency: 5, RampNs: 8 * second, AsAIPerf: true, DurationNs: 20 * second, GraceNs: -1}, constant(100*second))
	for i, x := range log {
		if x.q.Queued != int64(2*i)*second || x.q.Stream != i {
			t.Errorf("slot %d opens at %d with conversation %d", i, x.q.Queued, x.q.Stream)
		}
	}
	if len(log) != 5 {
		t.Errorf("%d slots", len(log))
	}
	// Ten a second for one slot that is held for 0.25 s: every third arrival finds it free.
	_, log = runLoad(t, c, Load{Arrival: Constant, Rate: 10, Concurrency: 1, AsAIPerf: true, MaxRequests: 4}, constant(second/4))
	for i, x := range log {
		if want := int64(1+3*i) * second / 10; x.q.Intended != want || x.q.Queued != want || x.q.Stream != i {
			t.Errorf("request %d: conversation %d at %d, meant for %d, want %d", i, x.q.Stream, x.q.Queued, x.q.Intended, want)
		}
	}
}

// TestWarmupLoad: a warm-up with arrivals, concurrency and bounds of its own sends conversations of its own, or the
// first of the list; all that it sent ends before the load that counts begins.
func TestWarmupLoad(t *testing.T) {
	c := lengths(t, Lengths{Conversations: 20, Turns: 2, In: 64, Out: 1})
	for what, x := range map[string]struct {
		w    Warmup
		warm int // requests of the warm-up
		own  bool
		most int // of them at once
	}{
		"requests": {Warmup{Load: Load{Concurrency: 3, MaxRequests: 7}, Conversations: 7}, 7, true, 3},
		"sessions": {Warmup{Load: Load{Concurrency: 2, MaxConversations: 3}, Conversations: 3}, 6, true, 2},
		"listed":   {Warmup{Load: Load{Concurrency: 2, MaxConversations: 3}}, 6, false, 2},
		"time":     {Warmup{Load: Load{Arrival: Constant, Rate: 2, DurationNs: 3*second + 1, GraceNs: -1}, Conversations: 4}, 6, true, 2},
		"cut":      {Warmup{Load: Load{Concurrency: 1, DurationNs: 3*second + second/2, GraceNs: second / 4}, Conversations: 4}, 4, true, 1},
	} {
		o := Load{Concurrency: 4, MaxRequests: 16, Loop: true, Warmup: &x.w, AsAIPerf: true}
		s, log := runLoad(t, c, o, constant(second))
		warm, flying, ended := 0, 0, int64(0)
		seen := map[int]bool{}
		for _, r := range log {
			if r.q.Phase == record.Primer {
				warm++
				seen[r.q.Stream] = true
				if own := r.q.Stream >= 20-x.w.Conversations; own != x.own || !strings.HasPrefix(r.q.Tree, "warmup.") {
					t.Errorf("%s: stream %d of %s", what, r.q.Stream, r.q.Tree)
				}
				ended = max(ended, r.q.Queued+second)
			}
		}
		for _, a := range log {
			if a.q.Phase == record.Primer {
				n := 0
				for _, b := range log {
					if b.q.Phase == record.Primer && b.q.Queued <= a.q.Queued && a.q.Queued < b.q.Queued+second {
						n++
					}
				}
				flying = max(flying, n)
				continue
			}
			if what != "cut" && a.q.Queued < ended {
				t.Errorf("%s: the load begins at %d, the warm-up ends at %d", what, a.q.Queued, ended)
			}
			if seen[a.q.Stream] && x.own {
				t.Errorf("%s: conversation %d is warm", what, a.q.Stream)
			}
		}
		n := s.Counts()
		if warm != x.warm || int(n.Primers) != warm || n.Profiling != 16 || flying != x.most || what != "cut" && n.ProfilingStart != ended {
			t.Errorf("%s: %d requests warm, %d at once, %+v; the warm-up ends at %d", what, warm, flying, n, ended)
		}
	}
	for what, w := range map[string]Warmup{
		"no bound":   {Load: Load{Concurrency: 1}, Conversations: 2},
		"no slot":    {Load: Load{MaxRequests: 2}, Conversations: 2},
		"all":        {Load: Load{Concurrency: 1, MaxRequests: 2}, Conversations: 20},
		"its own":    {Load: Load{Concurrency: 1, MaxRequests: 2, WarmupRequests: 1}, Conversations: 2},
		"a schedule": {Load: Load{Arrival: Schedule, MaxRequests: 2}, Conversations: 2},
	} {
		if _, err := NewLoad(c, Load{Concurrency: 1, Warmup: &w}); err == nil {
			t.Errorf("%s is taken", what)
		}
	}
}
