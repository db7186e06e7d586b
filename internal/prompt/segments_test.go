package prompt

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirbench/weir/internal/corpus"
	"github.com/weirbench/weir/internal/material"
)

// worked is the trace of the worked example in the reference, appendix F.
func worked() *corpus.Trace {
	return &corpus.Trace{ID: "tr1", BlockSize: 64, Models: []string{"big", "small"}, Streams: []corpus.Stream{
		{ID: "tr1", Parent: corpus.Unbound, SystemTokens: 192, Turns: []corpus.Turn{
			{In: 330, Out: 70, Blocks: []uint32{1, 2, 3, 4, 5}},
			{In: 520, Out: 30, Blocks: []uint32{1, 2, 3, 4, 5, 7, 8, 9}},
		}},
		{ID: "tr1::sa:a1", Kind: corpus.SubAgent, Depth: 1, Join: 1, SystemTokens: 64, Turns: []corpus.Turn{
			{In: 128, Out: 20, Model: 1, Blocks: []uint32{40, 41}},
		}},
	}}
}

func mustBuilder(tb testing.TB, o Options) *Builder {
	tb.Helper()
	b, err := New(Default(), o)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

func segmentsOf(tb testing.TB, b *Builder, tr *corpus.Trace, stream, turn int) []Segment {
	tb.Helper()
	s, err := b.Segments(tr, stream, turn, true)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func TestWorkedExample(t *testing.T) {
	b, tr := mustBuilder(t, Options{}), worked()
	for _, c := range []struct {
		stream, turn int
		want         []Segment
	}{
		{0, 0, []Segment{{Role: System, Blocks: 3}, {Role: User, Start: 3, Blocks: 2, Tail: 10}}},
		{1, 0, []Segment{{Role: System, Blocks: 1}, {Role: User, Start: 1, Blocks: 1}}},
		{0, 1, []Segment{{Role: System, Blocks: 3}, {Role: User, Start: 3, Blocks: 2},
			{Role: Assistant, Start: 5, Blocks: 2}, {Role: User, Start: 7, Blocks: 1, Tail: 8}}},
	} {
		if got := segmentsOf(t, b, tr, c.stream, c.turn); !reflect.DeepEqual(got, c.want) {
			t.Errorf("stream %d turn %d: %+v, want %+v", c.stream, c.turn, got, c.want)
		}
	}
}

// TestReconstruction goes through the shapes of AIPerf's own unit tests of the reconstructor
// (test_weka_synth_buf_turn_delta.py: baseline, append, boundary cut, mid-segment cut, retry)
// and the rules around them, with blocks of 16 tokens.
func TestReconstruction(t *testing.T) {
	type turn struct {
		in, out int64
		blocks  []uint32
	}
	for _, c := range []struct {
		name   string
		system int64
		turns  []turn
		want   string // messages of the last turn: role, blocks, tail
	}{
		{"baseline", 16, []turn{{48, 5, []uint32{1, 2, 3}}}, "s1 u2"},
		{"append", 16, []turn{{48, 5, []uint32{1, 2, 3}}, {80, 5, []uint32{1, 2, 3, 4, 5}}}, "s1 u2 a1 u1"},
		{"tail dropped", 16, []turn{{50, 5, []uint32{1, 2, 3}}, {83, 5, []uint32{1, 2, 3, 4, 5}}}, "s1 u2 a1 u1+3"},
		{"cut at a boundary", 16, []turn{{48, 17, []uint32{1, 2, 3}}, {96, 5, []uint32{1, 2, 3, 4, 5, 6}}, {64, 5, []uint32{1, 2, 3, 7}}}, "s1 u2 u1"},
		{"cut in a segment", 16, []turn{{64, 5, []uint32{1, 2, 3, 4}}, {80, 5, []uint32{1, 2, 7, 8, 9}}}, "s1 u1 a1 u2"},
		{"cut in an answer", 16, []turn{{32, 33, []uint32{1, 2}}, {96, 20, []uint32{1, 2, 3, 4, 5, 6}}, {96, 5, []uint32{1, 2, 3, 7, 8, 9}}}, "s1 u1 a1 a2 u1"},
		{"retry", 16, []turn{{48, 5, []uint32{1, 2, 3}}, {48, 5, []uint32{1, 2, 3}}}, "s1 u2"},
		{"retry with a tail", 16, []turn{{50, 5, []uint32{1, 2, 3}}, {50, 5, []uint32{1, 2, 3}}}, "s1 u2 u0+2"},
		{"answer would take all", 16, []turn{{32, 100, []uint32{1, 2}}, {64, 5, []uint32{1, 2, 3, 4}}}, "s1 u1 a1 u1"},
		{"answer takes all before a tail", 16, []turn{{32, 100, []uint32{1, 2}}, {65, 5, []uint32{1, 2, 3, 4}}}, "s1 u1 a2 u0+1"},
		{"one block goes to the user", 16, []turn{{32, 100, []uint32{1, 2}}, {48, 5, []uint32{1, 2, 3}}}, "s1 u1 u1"},
		{"no answer was recorded", 16, []turn{{32, 0, []uint32{1, 2}}, {64, 5, []uint32{1, 2, 3, 4}}}, "s1 u1 u2"},
		{"context lost", 16, []turn{{32, 16, []uint32{1, 2}}, {64, 5, []uint32{1, 8, 9, 10}}}, "s1 u3"},
		{"context and system lost", 16, []turn{{32, 16, []uint32{1, 2}}, {64, 5, []uint32{7, 8, 9, 10}}}, "u4"},
		{"system takes all", 48, []turn{{48, 16, []uint32{1, 2, 3}}}, "s3"},
		{"system longer than the prompt", 64, []turn{{40, 16, []uint32{1, 2, 3, 4}}}, "s2 u0+8"},
		{"no system", 0, []turn{{40, 16, []uint32{1, 2}}}, "u2+8"},
		{"blocks not recorded", 16, []turn{{70, 16, []uint32{1, 2}}, {120, 16, []uint32{1, 2, 3}}}, "s1 u1 a1 u0+72"},
		{"hashed partial block", 16, []turn{{40, 16, []uint32{1, 2, 3}}, {90, 16, []uint32{1, 2, 3, 4, 5, 6}}}, "s1 u1 a1 u2+10"},
		{"falls back onto a user block", 16, []turn{{32, 48, []uint32{1, 2}}, {97, 5, []uint32{1, 2, 3, 4, 5, 6}}, {64, 1, []uint32{1, 2, 3, 4}}}, "s1 u1 a1 u1"},
		{"empty", 0, []turn{{0, 16, nil}}, "u0"},
		{"empty again", 0, []turn{{16, 16, []uint32{1}}, {0, 16, nil}}, "u0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			tr := &corpus.Trace{ID: "x", BlockSize: 16, Streams: []corpus.Stream{{ID: "x", Parent: corpus.Unbound, SystemTokens: c.system}}}
			for _, k := range c.turns {
				tr.Streams[0].Turns = append(tr.Streams[0].Turns, corpus.Turn{In: k.in, Out: k.out, Blocks: k.blocks})
			}
			var got []string
			for _, s := range segmentsOf(t, mustBuilder(t, Options{}), tr, 0, len(c.turns)-1) {
				m := fmt.Sprintf("%c%d", s.Role.String()[0], s.Blocks)
				if s.Tail > 0 {
					m += fmt.Sprintf("+%d", s.Tail)
				}
				got = append(got, m)
			}
			if s := strings.Join(got, " "); s != c.want {
				t.Errorf("got %s, want %s", s, c.want)
			}
		})
	}
}

func TestSystemPromptBeyondRecordedBlocks(t *testing.T) {
	tr := &corpus.Trace{ID: "x", BlockSize: 16, Streams: []corpus.Stream{{ID: "x", SystemTokens: 50, Turns: []corpus.Turn{{In: 100, Blocks: []uint32{1, 2, 3}}}}}}
	_, err := mustBuilder(t, Options{}).Chat(Request{Trace: tr})
	if err == nil || !strings.Contains(err.Error(), "50 tokens takes 4 blocks of 16 and turn 0 has 3") {
		t.Errorf("error %v", err)
	}
}

// naive holds the whole conversation as a list of tokens and rebuilds it from scratch for
// every turn: what the plan has to equal.
type naiveMessage struct {
	role   Role
	tokens []string // "b<id>.<i>" or "t<turn>.<i>"
	start  int
}

func naiveTurns(tr *corpus.Trace, stream int) [][]naiveMessage {
	s, bs := &tr.Streams[stream], int(tr.BlockSize)
	var all [][]naiveMessage
	var msgs []naiveMessage
	caps := naiveCaps(s, bs)
	for k, t := range s.Turns {
		cov := min(int(t.In)/bs, len(t.Blocks))
		var region []string
		lcp := 0
		if k > 0 {
			p := s.Turns[k-1]
			pc := min(int(p.In)/bs, len(p.Blocks))
			for lcp < min(cov, pc) && p.Blocks[lcp] == t.Blocks[lcp] {
				lcp++
			}
		}
		for _, b := range t.Blocks[lcp:cov] {
			for i := range bs {
				region = append(region, fmt.Sprintf("b%d.%d", b, i))
			}
		}
		nTail := int(t.In) - cov*bs
		for i := range nTail {
			region = append(region, fmt.Sprintf("t%d.%d", k, i))
		}
		var next []naiveMessage
		user := false
		at := 0
		for _, m := range msgs { // the first lcp blocks of the last turn
			keep := min(len(m.tokens), max(0, lcp*bs-at))
			if keep > 0 {
				next = append(next, naiveMessage{m.role, m.tokens[:keep], m.start})
				user = user || m.role == User
			}
			at += len(m.tokens)
		}
		asst := 0
		switch {
		case k == 0:
			sys := min((int(s.SystemTokens)+bs-1)/bs, cov)
			if sys > 0 {
				next = append(next, naiveMessage{System, region[:sys*bs], 0})
			}
			region = region[sys*bs:]
			lcp = sys
		case user:
			asst = min((int(s.Turns[k-1].Out)+bs-1)/bs, cov-lcp, caps[k])
			if nTail == 0 && asst == cov-lcp && asst > 0 {
				asst--
			}
		}
		if asst > 0 {
			next = append(next, naiveMessage{Assistant, region[:asst*bs], lcp})
		}
		if region = region[asst*bs:]; len(region) > 0 || len(next) == 0 {
			next = append(next, naiveMessage{User, region, lcp + asst})
		}
		msgs = next
		all = append(all, msgs)
	}
	return all
}

func naiveCaps(s *corpus.Stream, bs int) []int {
	caps := make([]int, len(s.Turns))
	var owner, begins []int // by block
	for k, t := range s.Turns {
		caps[k] = 1 << 40
		cov := min(int(t.In)/bs, len(t.Blocks))
		lcp := 0
		if k > 0 {
			p := s.Turns[k-1]
			for lcp < min(cov, len(owner)) && p.Blocks[lcp] == t.Blocks[lcp] {
				lcp++
			}
			if lcp > 0 && cov == lcp && int(t.In) == cov*bs && owner[lcp-1] > 0 {
				caps[owner[lcp-1]] = min(caps[owner[lcp-1]], lcp-1-begins[lcp-1])
			}
		}
		owner, begins = owner[:lcp], begins[:lcp]
		for range cov - lcp {
			owner, begins = append(owner, k), append(begins, lcp)
		}
	}
	return caps
}

// sameAsNaive compares the plan of a stream with the naive conversation.
func sameAsNaive(t interface{ Fatalf(string, ...any) }, b *Builder, tr *corpus.Trace, stream int) {
	for k, want := range naiveTurns(tr, stream) {
		got, err := b.Segments(tr, stream, k, false)
		if err != nil {
			t.Fatalf("turn %d: %v", k, err)
		}
		var sum int64
		for i, g := range got {
			n := int64(g.Blocks)*tr.BlockSize + g.Tail
			sum += n
			if i >= len(want) || g.Role != want[i].role || g.Start != want[i].start || n != int64(len(want[i].tokens)) {
				t.Fatalf("stream %s turn %d message %d: got %+v of %+v, want %d messages", tr.Streams[stream].ID, k, i, g, got, len(want))
			}
		}
		if len(got) != len(want) || sum != tr.Streams[stream].Turns[k].In {
			t.Fatalf("stream %s turn %d: %d messages of %d tokens, want %d of %d", tr.Streams[stream].ID, k, len(got), sum, len(want), tr.Streams[stream].Turns[k].In)
		}
	}
}

// drawTrace makes a trace of one stream that appends, falls back, compacts, retries and loses
// its context.
func drawTrace(t *rapid.T) *corpus.Trace {
	bs := rapid.SampledFrom([]int64{1, 2, 4, 7, 16, 64, 700}).Draw(t, "block size")
	tr := &corpus.Trace{ID: rapid.StringMatching(`[a-z]{1,4}`).Draw(t, "id"), BlockSize: bs}
	s := corpus.Stream{ID: tr.ID, Parent: corpus.Unbound}
	next := uint32(1)
	var blocks []uint32
	for k := range rapid.IntRange(1, 12).Draw(t, "turns") {
		keep := len(blocks)
		if rapid.IntRange(0, 2).Draw(t, "cut") == 0 {
			keep = rapid.IntRange(0, len(blocks)).Draw(t, "keep")
		}
		blocks = append([]uint32{}, blocks[:keep]...)
		for range rapid.SampledFrom([]int{0, 0, 1, 2, 3, 8}).Draw(t, "new") {
			blocks = append(blocks, next)
			next += uint32(rapid.SampledFrom([]int{1, 1, 1, 5000, 1 << 20}).Draw(t, "step"))
		}
		in := int64(len(blocks)) * bs
		switch rapid.IntRange(0, 4).Draw(t, "end") {
		case 0: // a hashed partial block
			if len(blocks) > 0 {
				in -= rapid.Int64Range(0, bs).Draw(t, "short")
			}
		case 1: // blocks that were not recorded
			in += rapid.Int64Range(0, 3*bs).Draw(t, "missing")
		case 2:
			in += rapid.Int64Range(0, bs-1).Draw(t, "tail")
		}
		if k == 0 {
			s.SystemTokens = rapid.Int64Range(0, int64(len(blocks))*bs).Draw(t, "system")
		}
		s.Turns = append(s.Turns, corpus.Turn{In: in, Out: rapid.Int64Range(0, 4*bs).Draw(t, "out"), Blocks: blocks})
	}
	tr.Streams = []corpus.Stream{s}
	return tr
}

func TestPlanEqualsNaive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tr := drawTrace(t)
		b, err := New(Default(), Options{})
		if err != nil {
			t.Fatal(err)
		}
		sameAsNaive(t, b, tr, 0)
	})
}

// recorded gives the recorded traces twice: as the corpus package reads them, agents apart,
// and as they lie in the files, all requests of an agent list in one stream, which falls back
// and forks far more.
func recorded(tb testing.TB) []*corpus.Trace {
	tb.Helper()
	c, err := corpus.Load(material.Path(tb, "traces/weka"), corpus.LoadOptions{})
	if err != nil {
		tb.Fatal(err)
	}
	traces := c.Traces
	if testing.Short() {
		traces = traces[:12]
	}
	return append(traces, flat(tb)...)
}

// flat reads the recorded traces without the corpus package's own reader: the top-level
// requests as one stream each, and every recorded sub-agent as another.
func flat(tb testing.TB) []*corpus.Trace {
	tb.Helper()
	files, err := filepath.Glob(filepath.Join(material.Path(tb, "traces/weka"), "*.json"))
	if err != nil || len(files) == 0 {
		tb.Fatalf("%d traces, %v", len(files), err)
	}
	type request struct {
		Type     string    `json:"type"`
		In       int64     `json:"in"`
		Out      int64     `json:"out"`
		HashIDs  []uint32  `json:"hash_ids"`
		AgentID  string    `json:"agent_id"`
		Tool     int64     `json:"tool_tokens"`
		System   int64     `json:"system_tokens"`
		Requests []request `json:"requests"`
	}
	if testing.Short() {
		files = files[:12]
	}
	var out []*corpus.Trace
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			tb.Fatal(err)
		}
		var w struct {
			ID        string    `json:"id"`
			BlockSize int64     `json:"block_size"`
			Tool      int64     `json:"tool_tokens"`
			System    int64     `json:"system_tokens"`
			Requests  []request `json:"requests"`
		}
		if err := json.Unmarshal(data, &w); err != nil {
			tb.Fatalf("%s: %v", f, err)
		}
		tr := &corpus.Trace{ID: w.ID, BlockSize: w.BlockSize}
		var add func(id string, system int64, rs []request)
		add = func(id string, system int64, rs []request) {
			at := len(tr.Streams)
			tr.Streams = append(tr.Streams, corpus.Stream{ID: id, SystemTokens: system})
			for _, r := range rs {
				if r.Type == "subagent" {
					add(id+"::sa:"+r.AgentID, r.Tool+r.System, r.Requests)
					continue
				}
				tr.Streams[at].Turns = append(tr.Streams[at].Turns, corpus.Turn{In: r.In, Out: r.Out, Blocks: r.HashIDs})
			}
		}
		add(w.ID, w.Tool+w.System, w.Requests)
		out = append(out, tr)
	}
	return out
}

func TestRecordedTracesSumAndEqualNaive(t *testing.T) {
	b := mustBuilder(t, Options{})
	turns, naive, adjacent, trailing := 0, 0, 0, 0
	for i, tr := range recorded(t) {
		for s := range tr.Streams {
			for k, turn := range tr.Streams[s].Turns {
				segs, err := b.Segments(tr, s, k, false)
				if err != nil {
					t.Fatal(err)
				}
				var sum int64
				row := false
				for i, g := range segs {
					sum += int64(g.Blocks)*tr.BlockSize + g.Tail
					row = row || i > 0 && g.Role == segs[i-1].Role
				}
				if row {
					adjacent++
				}
				if segs[len(segs)-1].Role != User {
					trailing++
				}
				if sum != turn.In {
					t.Fatalf("%s turn %d: segments sum to %d, recorded %d", tr.Streams[s].ID, k, sum, turn.In)
				}
				turns++
			}
			if i%10 == 0 && len(tr.Streams[s].Turns) < 60 { // naive keeps every token of every turn
				sameAsNaive(t, b, tr, s)
				naive++
			}
		}
	}
	t.Logf("%d turns sum to their recorded count; %d streams compared with the naive conversation; %d prompts have messages of one role in a row, %d do not end with the user", turns, naive, adjacent, trailing)
}

var _ io.WriterTo = (*Reader)(nil)

// TestRecordedPrefixes compares all consecutive prompts of the recorded traces where they part:
// the words behind the last common block differ at once, but for a rare equal first word.
func TestRecordedPrefixes(t *testing.T) {
	w := Default()
	pairs, one, more := 0, 0, 0
	for _, tr := range recorded(t) {
		key := keyOf(tr.ID)
		for i := range tr.Streams {
			s := &tr.Streams[i]
			behind := func(k, lcp int) string { // what stands behind the first lcp blocks of turn k
				turn := &s.Turns[k]
				n := covered(turn, tr.BlockSize)
				if lcp < n {
					return string(w.appendBlock(nil, key, turn.Blocks[lcp], int(tr.BlockSize), 0))
				}
				return string(w.appendTail(nil, newTail(keyOf(s.ID), k, turn.In-int64(n)*tr.BlockSize), 0))
			}
			for k := 1; k < len(s.Turns); k++ {
				lcp := sharedBlocks(&s.Turns[k-1], &s.Turns[k], tr.BlockSize)
				a, b := strings.Fields(behind(k-1, lcp)), strings.Fields(behind(k, lcp))
				n := 0
				for n < min(len(a), len(b)) && a[n] == b[n] {
					n++
				}
				pairs++
				if n == 1 {
					one++
				} else if n > 1 {
					more++
				}
			}
		}
	}
	t.Logf("%d pairs of prompts: %d share one token beyond the recorded prefix, %d share more", pairs, one, more)
	if more > 0 || one > pairs/200 {
		t.Errorf("of %d pairs %d share one token too many and %d more", pairs, one, more)
	}
}
