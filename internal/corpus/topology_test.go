package corpus

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// req is a request of a test: seconds, blocks, and what is not the default.
type req struct {
	t, api  float64
	model   int
	in, out int64
	ids     []uint32
}

// span is the ids from a to b.
func span(a, b uint32) []uint32 {
	var out []uint32
	for i := a; i <= b; i++ {
		out = append(out, i)
	}
	return out
}

func join(parts ...[]uint32) []uint32 { return slices.Concat(parts...) }

func recorded(list []req) *recording {
	rec := &recording{id: "t", blockSize: 64, models: []string{"big", "small"}}
	for i, q := range list {
		rec.requests = append(rec.requests, q.request(i))
	}
	return rec
}

func (q req) request(outer int) request {
	r := request{outer: outer, t: int64(q.t * 1e9), api: int64(q.api * 1e9), model: q.model, in: q.in, out: q.out, blocks: q.ids}
	if r.in == 0 {
		r.in = max(1, int64(len(q.ids))*64)
	}
	if r.out == 0 {
		r.out = 100
	}
	return r
}

// shape writes the streams of a trace as "id[start of each turn] spawn>join".
func shape(t *Trace) string {
	var out []string
	for i := range t.Streams {
		s := &t.Streams[i]
		var starts []string
		for k := range s.Turns {
			starts = append(starts, seconds(s.Turns[k].StartNs))
		}
		text := strings.TrimPrefix(s.ID, t.ID) + "[" + strings.Join(starts, " ") + "]"
		if i > 0 {
			text += fmt.Sprintf("%d>%d", s.Spawn, s.Join)
		}
		out = append(out, text)
	}
	return strings.Join(out, " ")
}

// TestTopology: the AgentX rules (AIPerf, weka_agent_chains.py, 2026-06) one by one.
func TestTopology(t *testing.T) {
	const k = 1000 // blocks of 64 tokens: over the floor of a side call
	for _, tc := range []struct {
		name string
		list []req
		want string
	}{
		{"a chain grows", []req{{t: 0, ids: span(1, 3)}, {t: 1, ids: span(1, 5)}, {t: 2, ids: span(1, 9)}}, "[0 1 2]"},
		{"equal prompts are one chain", []req{{t: 0, ids: span(1, 3)}, {t: 1, ids: span(1, 3)}}, "[0 1]"},
		{"a chain that has not ended is not continued", // it forks, and nothing waits for it
			[]req{{t: 0, api: 5, ids: span(1, k)}, {t: 1, api: 1, ids: span(1, k+5)}, {t: 2, api: 1, ids: span(1, k+6)}}, "[0] ::fa:000[1 2]0>-1"},
		{"an end within a microsecond has passed", []req{{t: 0, api: 1.0000005, ids: span(1, 3)}, {t: 1, ids: span(1, 5)}}, "[0 1]"},
		{"another model is another agent", []req{{t: 0, ids: span(1, k)}, {t: 1, model: 1, ids: span(1, k+5)}, {t: 2, model: 1, ids: span(1, k+7)}}, "[0] ::fa:000[1 2]0>-1"},
		{"a compaction continues its agent", []req{{t: 0, ids: span(1, 20)}, {t: 1, ids: join(span(1, 4), span(50, 60))}, {t: 2, ids: join(span(1, 4), span(50, 65))}}, "[0 1 2]"},
		{"a fork from a chain that lives on is an agent",
			[]req{{t: 0, ids: span(1, k)}, {t: 1, ids: join(span(1, 800), span(5000, 5600))}, {t: 2, ids: span(1, k+9)}, {t: 3, ids: join(span(1, 800), span(5000, 5700))}},
			"[0 2] ::fa:000[1 3]0>-1"},
		{"the deepest fork continues, the other is an agent",
			[]req{{t: 0, ids: span(1, k)}, {t: 1, ids: join(span(1, 500), span(5000, 5600))}, {t: 2, ids: join(span(1, 900), span(7000, 7100))}, {t: 3, ids: join(span(1, 500), span(5000, 5700))}},
			"[0 2] ::fa:000[1 3]0>-1"},
		{"a late fork with little in common is a new session",
			[]req{{t: 0, ids: span(1, k)}, {t: 3601, ids: join(span(1, 499), span(5000, 5600))}, {t: 3602, ids: join(span(1, 499), span(5000, 5700))}}, "[0] ::fa:000[3601 3602]0>-1"},
		{"a late fork with much in common continues",
			[]req{{t: 0, ids: span(1, k)}, {t: 3601, ids: join(span(1, 500), span(5000, 5600))}}, "[0 3601]"},
		{"an early fork with little in common continues",
			[]req{{t: 0, ids: span(1, k)}, {t: 3600, ids: join(span(1, 4), span(5000, 5600))}}, "[0 3600]"},
		{"a title call is sent with the root and does not found it",
			[]req{{t: 0, out: 64, ids: span(900, 905)}, {t: 1, ids: span(1, 5)}, {t: 2, ids: span(1, 9)}, {t: 3, api: .5, in: 300, ids: span(70, 73)}}, "[0 1 2] ::aux:000[3]2>-1"},
		{"a long first call that nobody builds on is no root either",
			[]req{{t: 0, out: 900, ids: span(2000, 2005)}, {t: 1, ids: span(1, k)}, {t: 2, ids: span(1, k+9)}, {t: 3, ids: span(3000, 3005)}}, "[0 1 2] ::aux:000[3]2>-1"},
		{"a long first call whose blocks come again is the root",
			[]req{{t: 0, out: 900, in: 64 * k, ids: span(2000, 2000+k-1)}, {t: 1, ids: join(span(1, k), span(2003, 2005))}, {t: 2, ids: join(span(1, k), span(2003, 2015))}}, "[0] ::fa:000[1 2]0>-1"},
		{"a small fresh call is a side call", []req{{t: 0, ids: span(1, k)}, {t: 1, in: 16383, ids: span(5000, 5010)}, {t: 2, ids: span(1, k+1)}}, "[0 2] ::aux:000[1]0>1"},
		{"a call over a tenth of the root's largest prompt is an agent",
			[]req{{t: 0, ids: span(1, 4000)}, {t: 1, in: 25601, out: 2000, ids: span(5000, 5010)}, {t: 2, ids: span(1, 4000)}}, "[0 2] ::fa:000[1]0>1"},
		{"a call under a tenth is a side call",
			[]req{{t: 0, ids: span(1, 4000)}, {t: 1, in: 25599, out: 2000, ids: span(5000, 5010)}, {t: 2, ids: span(1, 4000)}}, "[0 2] ::aux:000[1]0>1"},
		{"a call on another model is a side call", []req{{t: 0, ids: span(1, k)}, {t: 1, model: 1, in: 640000, out: 9000, ids: span(5000, 5010)}, {t: 2, ids: span(1, k+1)}}, "[0 2] ::aux:000[1]0>1"},
		{"much in and little out is a reduction", []req{{t: 0, ids: span(1, k)}, {t: 1, in: 16385, out: 800, ids: span(5000, 5010)}, {t: 2, ids: span(1, k+1)}}, "[0 2] ::aux:000[1]0>1"},
		{"little in for what comes out is none", []req{{t: 0, ids: span(1, k)}, {t: 1, in: 16400, out: 820, ids: span(5000, 5010)}, {t: 2, ids: span(1, k+1)}}, "[0 2] ::fa:000[1]0>1"},
		{"a reduction has under 4000 tokens out", []req{{t: 0, ids: span(1, k)}, {t: 1, in: 640000, out: 4000, ids: span(5000, 5010)}, {t: 2, ids: span(1, k+1)}}, "[0 2] ::fa:000[1]0>1"},
		{"three side by side from one fork are a group",
			[]req{{t: 0, ids: span(1, k)},
				{t: 1, api: 5, ids: join(span(1, 300), span(5000, 5200))}, {t: 2, api: 5, ids: join(span(1, 300), span(6000, 6200))}, {t: 3, api: 5, ids: join(span(1, 300), span(7000, 7200))},
				{t: 9, ids: span(1, k+9)},
				{t: 10, ids: join(span(1, 300), span(5000, 5201))}, {t: 11, ids: join(span(1, 300), span(6000, 6201))}, {t: 12, ids: join(span(1, 300), span(7000, 7201))}},
			"[0 9] ::wg:000_000[1 10]0>-1 ::wg:000_001[2 11]0>-1 ::wg:000_002[3 12]0>-1"},
		{"among equals a fork is from the longest tail", // so these fork from each other and are no group
			[]req{{t: 0, ids: span(1, k)},
				{t: 1, api: 5, out: 9000, ids: join(span(1, 900), span(5000, 5600))}, {t: 2, api: 5, out: 9000, ids: join(span(1, 900), span(6000, 6600))}, {t: 3, api: 5, out: 9000, ids: join(span(1, 900), span(7000, 7600))},
				{t: 9, ids: span(1, k+9)}},
			"[0 9] ::fa:000[1]0>1 ::fa:001[2]0>1 ::fa:002[3]0>1"},
		{"two side by side are none",
			[]req{{t: 0, ids: span(1, k)}, {t: 1, api: 5, out: 9000, ids: join(span(1, 300), span(5000, 5200))}, {t: 2, api: 5, out: 9000, ids: join(span(1, 300), span(6000, 6200))}, {t: 9, ids: span(1, k+9)}},
			"[0 9] ::fa:000[1]0>1 ::fa:001[2]0>1"},
		{"three one behind the other are none",
			[]req{{t: 0, ids: span(1, k)}, {t: 1, api: 1, out: 9000, ids: join(span(1, 300), span(5000, 5200))}, {t: 2, api: 1, out: 9000, ids: join(span(1, 300), span(6000, 6200))},
				{t: 3, api: 1, out: 9000, ids: join(span(1, 300), span(7000, 7200))}, {t: 9, ids: span(1, k+9)}},
			"[0 9] ::fa:000[1]0>1 ::fa:001[2]0>1 ::fa:002[3]0>1"},
		{"a join waits for the end, to the microsecond",
			[]req{{t: 0, ids: span(1, k)}, {t: 1, api: 2.0000005, model: 1, ids: span(5000, 5010)}, {t: 2, ids: span(1, k+1)}, {t: 3, ids: span(1, k+2)}}, "[0 2 3] ::aux:000[1]0>2"},
		{"requests without blocks stay with the root", []req{{t: 0, ids: span(1, 3)}, {t: 1}, {t: 2, ids: span(1, 5)}}, "[0 1 2]"},
		{"the first blocks found the root behind requests without", []req{{t: 0}, {t: 1, ids: span(1, 5)}, {t: 2, ids: span(1, 6)}}, "[0 1 2]"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tr, err := recorded(tc.list).build()
			if err != nil {
				t.Fatal(err)
			}
			if err := tr.check(); err != nil {
				t.Error(err)
			}
			if got := shape(tr); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
}

// TestRecordedSubAgents: where recorded sub-agents start, end and are joined.
func TestRecordedSubAgents(t *testing.T) {
	inner := func(list ...req) (out []request) {
		for i, q := range list {
			out = append(out, q.request(i))
		}
		return out
	}
	main := func(outer int, at float64) request { return req{t: at, ids: span(1, uint32(10+outer))}.request(outer) }
	for _, tc := range []struct {
		name   string
		agents []agent
		want   string
	}{
		{"by its requests", []agent{{outer: 1, t: 1e9, id: "a", duration: Unbound, requests: inner(req{t: 1, api: 2, ids: span(90, 99)})}}, "[0 2 4] ::sa:a[1]0>2"},
		{"by its duration", []agent{{outer: 1, t: 1e9, id: "a", duration: 5e8, requests: inner(req{t: 1, api: 2, ids: span(90, 99)})}}, "[0 2 4] ::sa:a[1]0>1"},
		{"in the background", []agent{{outer: 1, t: 1e9, id: "a", duration: 9e9, requests: inner(req{t: 1, ids: span(90, 99)})}}, "[0 2 4] ::sa:a[1]0>-1"},
		{"before the root", []agent{{outer: -1, t: 0, id: "a", duration: 0, requests: inner(req{t: 0, ids: span(90, 99)})}}, "[0 2 4]"},
		{"without requests", []agent{{outer: 1, t: 1e9, id: "a", duration: 0}}, "[0 2 4]"},
		{"with a side call and an agent of its own", []agent{{outer: 1, t: 1e9, id: "a", duration: 1e9, requests: inner(
			req{t: 1.1, ids: span(90, 1990)}, req{t: 1.2, in: 500, ids: span(3000, 3005)}, req{t: 1.3, model: 0, in: 99999, out: 9999, ids: span(4000, 4900)}, req{t: 1.4, ids: span(90, 1995)})}},
			"[0 2 4] ::sa:a[1.1 1.4]0>1 ::sa:a:aux:000[1.2]0>1 ::sa:a:fa:001[1.3]0>1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			rec := &recording{id: "t", blockSize: 64, models: []string{"big"}, requests: []request{main(0, 0), main(2, 2), main(4, 4)}, agents: tc.agents}
			tr, err := rec.build()
			if err != nil {
				t.Fatal(err)
			}
			if got := shape(tr); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
			if turns := 3 + len(tc.agents[0].requests); tr.turns()+tr.DroppedTurns != turns {
				t.Errorf("%d turns and %d dropped of %d", tr.turns(), tr.DroppedTurns, turns)
			}
		})
	}
}

// TestSystemPromptsAreProven: a found agent has the declared system prompt only if its blocks
// begin with those of the root.
func TestSystemPromptsAreProven(t *testing.T) {
	rec := recorded([]req{
		{t: 0, ids: span(1, 1000)},
		{t: 1, ids: join(span(1, 700), span(5000, 5600)), out: 9000}, {t: 2, ids: join(span(1, 700), span(5000, 5700)), out: 9000},
		{t: 3, ids: span(8000, 8600), out: 9000}, {t: 4, ids: span(8000, 8700), out: 9000},
		{t: 5, ids: span(1, 1001)}})
	rec.toolTokens, rec.systemTokens = 1000, 25 // 17 blocks
	tr, err := rec.build()
	if err != nil {
		t.Fatal(err)
	}
	var got []int64
	for _, s := range tr.Streams {
		got = append(got, s.SystemTokens)
	}
	if !slices.Equal(got, []int64{1025, 1025, 0}) {
		t.Errorf("system tokens %v of %s", got, shape(tr))
	}
}

// TestRelativeTimes: inner times of older recordings count from the sub-agent's start.
func TestRelativeTimes(t *testing.T) {
	for _, inner := range []string{"2.6", "0.1"} {
		c, err := loadText(t, strings.Replace(worked, `"t":2.6`, `"t":`+inner, 1))
		if err != nil {
			t.Fatal(err)
		}
		if at := c.Traces[0].Streams[1].Turns[0].StartNs; at != 2.6e9 {
			t.Errorf("t %s became %d", inner, at)
		}
	}
}

// drawRecording draws a recording whose prompts grow, are cut, fork and repeat.
func drawRecording(r *rapid.T) *recording {
	rec := &recording{id: "t", blockSize: 64, models: []string{"big", "small"}, systemTokens: rapid.Int64Range(0, 300).Draw(r, "system")}
	next := uint32(1)
	var states [][]uint32
	prompt := func() []uint32 {
		var ids []uint32
		if len(states) > 0 && rapid.IntRange(0, 9).Draw(r, "fresh") > 0 {
			from := states[rapid.IntRange(0, len(states)-1).Draw(r, "from")]
			if rapid.Bool().Draw(r, "last") {
				from = states[len(states)-1]
			}
			keep := len(from)
			if rapid.IntRange(0, 3).Draw(r, "cut") == 0 {
				keep = rapid.IntRange(0, len(from)).Draw(r, "keep")
			}
			ids = slices.Clone(from[:keep])
		}
		for range rapid.IntRange(0, 4).Draw(r, "more") {
			ids = append(ids, next)
			next++
		}
		states = append(states, ids)
		return ids
	}
	var at int64
	tick := func() int64 {
		at += rapid.SampledFrom([]int64{0, 500, 1e6, 1e9, 4000e9}).Draw(r, "gap")
		return at
	}
	request := func(outer int, t int64) request {
		ids := prompt()
		return request{outer: outer, t: t, api: rapid.SampledFrom([]int64{0, 1e6, 2e9}).Draw(r, "api"), model: rapid.IntRange(0, 1).Draw(r, "model"),
			in: int64(len(ids))*64 + rapid.SampledFrom([]int64{1, 63, 30000}).Draw(r, "in"), out: rapid.SampledFrom([]int64{1, 70, 1000, 5000}).Draw(r, "out"), blocks: ids}
	}
	for outer := range rapid.IntRange(1, 14).Draw(r, "entries") {
		if outer > 0 && rapid.IntRange(0, 5).Draw(r, "agent") == 0 {
			a := agent{outer: outer, t: tick(), id: fmt.Sprintf("a%d", outer), duration: rapid.SampledFrom([]int64{Unbound, 0, 1e9, 5e9}).Draw(r, "duration")}
			in := a.t
			for j := range rapid.IntRange(0, 4).Draw(r, "inner") {
				a.requests = append(a.requests, request(j, in))
				in += rapid.SampledFrom([]int64{0, 1e6, 1e9}).Draw(r, "inner gap")
			}
			rec.agents = append(rec.agents, a)
			continue
		}
		rec.requests = append(rec.requests, request(outer, tick()))
	}
	return rec
}

// TestEveryTurnIsAccountedFor: whatever was recorded, every request is in one stream or
// counted as dropped, streams keep the promises of the types, and a trace that can be laid out
// flat again is found again.
func TestEveryTurnIsAccountedFor(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		rec := drawRecording(r)
		total := len(rec.requests)
		for _, a := range rec.agents {
			total += len(a.requests)
		}
		tr, err := rec.build()
		if err != nil {
			if len(rec.requests) > 0 {
				r.Fatal(err)
			}
			return
		}
		if err := tr.check(); err != nil {
			r.Fatal(err)
		}
		if tr.turns()+tr.DroppedTurns != total {
			r.Fatalf("%d turns and %d dropped of %d", tr.turns(), tr.DroppedTurns, total)
		}
		hit, all := naiveHits(tr)
		if h := tr.InfiniteHits(); h.HitBlocks != int64(hit) || h.TotalBlocks != int64(all) {
			r.Fatalf("hits %+v, want %d of %d", h, hit, all)
		}
		var b bytes.Buffer
		if err := WriteWeka(&b, tr); err != nil {
			return
		}
		it := readAny(b.Bytes())
		if len(it.digests) != 1 || !bytes.Equal(it.digests[0], digest(tr)) {
			r.Fatalf("%v: another trace is read back", it.faults)
		}
	})
}
