package corpus

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/weirbench/weir/internal/material"
)

// worked is a small trace whose streams and hits were worked out by hand from the AgentX rules.
const worked = `{"id":"tr1","models":["big","small"],"block_size":64,"hash_id_scope":"local","tool_tokens":128,"system_tokens":64,
 "requests":[
  {"t":0,"type":"n","model":"big","in":330,"out":70,"hash_ids":[1,2,3,4,5],"input_types":["text"],"output_types":["tool_use"],"stop":"tool_use","api_time":2.0},
  {"t":2.5,"type":"subagent","agent_id":"a1","subagent_type":"Explore","status":"completed","models":["small"],"tool_tokens":0,"system_tokens":64,
   "requests":[{"t":2.6,"type":"n","model":"small","in":128,"out":20,"hash_ids":[40,41],"input_types":["text"],"output_types":["text"],"stop":"end_turn","api_time":1.0}]},
  {"t":4.0,"type":"n","model":"big","in":520,"out":30,"hash_ids":[1,2,3,4,5,7,8,9],"input_types":["tool_result"],"output_types":["text"],"stop":"end_turn","api_time":1.5}]}
`

func write(t testing.TB, dir, name, text string) string {
	t.Helper()
	p := filepath.Join(dir, name)
	if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return p
}

func loadText(t testing.TB, text string) (*Corpus, error) {
	t.Helper()
	return Load(write(t, t.TempDir(), "t.json", text), LoadOptions{})
}

func TestWorkedExample(t *testing.T) {
	c, err := loadText(t, worked)
	if err != nil {
		t.Fatal(err)
	}
	tr := c.Traces[0]
	if len(tr.Streams) != 2 || tr.Streams[0].ID != "tr1" || tr.Streams[1].ID != "tr1::sa:a1" {
		t.Fatalf("streams: %+v", tr.Streams)
	}
	root, sub := &tr.Streams[0], &tr.Streams[1]
	if root.SystemTokens != 192 || sub.SystemTokens != 64 {
		t.Errorf("system tokens %d and %d, want 192 and 64", root.SystemTokens, sub.SystemTokens)
	}
	if sub.Parent != 0 || sub.Spawn != 0 || sub.Join != 1 || sub.StartNs != 2.5e9 || sub.EndNs != 3.6e9 {
		t.Errorf("sub-agent: %+v", sub)
	}
	if u := root.Turns[1]; u.StartNs != 4e9 || u.EndNs() != 5.5e9 || u.In != 520 || u.Out != 30 || len(u.Blocks) != 8 {
		t.Errorf("second turn: %+v", u)
	}
	if h := tr.InfiniteHits(); h.HitBlocks != 5 || h.TotalBlocks != 15 {
		t.Errorf("infinite cache %d/%d, want 5/15", h.HitBlocks, h.TotalBlocks)
	}
	if tr.Models[root.Turns[0].Model] != "big" || tr.Models[sub.Turns[0].Model] != "small" {
		t.Errorf("models %v", tr.Models)
	}
}

func TestTurnsShareMemory(t *testing.T) {
	c, err := loadText(t, worked)
	if err != nil {
		t.Fatal(err)
	}
	turns := c.Traces[0].Streams[0].Turns
	if &turns[0].Blocks[0] != &turns[1].Blocks[0] {
		t.Error("a turn that extends the one before it has its own blocks")
	}
	if cap(turns[0].Blocks) != len(turns[0].Blocks) {
		t.Error("appending to the blocks of a turn would overwrite those of the next")
	}
}

func TestFaultsNameFileLineAndField(t *testing.T) {
	edit := func(old, new string) string {
		if !strings.Contains(worked, old) {
			t.Fatalf("%q is not in the example", old)
		}
		return strings.Replace(worked, old, new, 1)
	}
	for _, tc := range []struct{ name, text, want string }{
		{"empty", "", "the file is empty"},
		{"not JSON", "hello", `t.json:1:1: want an object, an array or a CSV header, found "hello"`},
		{"truncated", worked[:400], "the end of the file"},
		{"trailing", worked + "]", "want an object, found"},
		{"no id", edit(`"id":"tr1",`, ``), `t.json:1:1: the trace has no field "id"`},
		{"no requests", `{"id":"x","requests":[]}`, "the trace has no requests"},
		{"wrong type", edit(`"in":330`, `"in":"330"`), "t.json:3:40: requests[0].in: want a number, found a string"},
		{"fraction", edit(`"in":330`, `"in":330.5`), "requests[0].in: want a whole number, found 330.5"},
		{"negative", edit(`"out":70`, `"out":-70`), "requests[0].out: -70 is negative"},
		{"zero", edit(`"in":330`, `"in":0`), "requests[0].in: is 0"},
		{"negative time", edit(`"t":2.5`, `"t":-2.5`), "requests[1].t: -2500000000 ns is negative"},
		{"negative id", edit(`[1,2,3,4,5]`, `[1,2,-3,4,5]`), "requests[0].hash_ids[2]: -3 is negative"},
		{"NaN", edit(`"api_time":2.0`, `"api_time":NaN`), `requests[0].api_time: want a number, found "NaN"`},
		{"backwards", edit(`"t":4.0`, `"t":1.0`), "requests[2].t: 1 s is before entry 1 of the list at 2.5 s"},
		{"twice", edit(`"out":70`, `"in":70`), "requests[0].in: the field comes twice"},
		{"missing", edit(`"out":20,`, ``), `requests[1].requests[0]: the request has no field "out"`},
		{"type", edit(`"type":"n"`, `"type":"x"`), `requests[0].type: is "x"`},
		{"scope", edit(`"local"`, `"global"`), `hash_id_scope: is "global"`},
		{"block size", edit(`"block_size":64`, `"block_size":0`), "block_size: is 0"},
		{"deep", edit(`"stop":"tool_use"`, `"x":`+strings.Repeat("[", 5000)), "requests[0].x: nested deeper than 256"},
		{"only sub-agents", `{"id":"x","requests":[{"t":0,"type":"subagent","agent_id":"a","requests":[{"t":0,"type":"n","model":"m","in":1,"out":1,"hash_ids":[]}]}]}`, "only sub-agents"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := loadText(t, tc.text)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

// TestLargeInputs: traces of 50 MB, whole and broken in ways that only show at the end.
func TestLargeInputs(t *testing.T) {
	const n = 7_000_000
	ids := make([]byte, 0, 56<<20)
	for i := range n {
		ids = strconv.AppendInt(append(ids, ','), int64(i), 10)
	}
	head := `{"id":"big","requests":[{"t":0,"type":"n","model":"m","in":` + strconv.Itoa(n*64) + `,"out":1,"hash_ids":[`
	text := head + string(ids[1:]) + `]}]}`
	if len(text) < 50<<20 {
		t.Fatalf("%d bytes", len(text))
	}
	c, err := loadText(t, text)
	if err != nil || len(c.Traces[0].Streams[0].Turns[0].Blocks) != n {
		t.Fatalf("%v", err)
	}
	for _, tc := range []struct{ name, text, want string }{
		{"cut", text[:len(text)-5], "hash_ids: want ',' or ']', found the end of the file"},
		{"negative", text[:len(text)-5] + ",-1]}]}", "requests[0].hash_ids[7000000]: -1 is negative"},
		{"deep", head + "1],\"x\":" + strings.Repeat("[", 50<<20), "requests[0].x: nested deeper than 256"},
		{"one string", `{"id":"` + strings.Repeat("x", 50<<20), "the file ends inside a string"},
		{"spaces", strings.Repeat(" ", 50<<20), "the file is empty"},
		{"lines", strings.Repeat("\n", 50<<20), "the file is empty"},
	} {
		if _, err := loadText(t, tc.text); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %.300v, want %q", tc.name, err, tc.want)
		}
	}
}

func TestDirectory(t *testing.T) {
	dir := t.TempDir()
	if _, err := Load(dir, LoadOptions{}); err == nil || !strings.Contains(err.Error(), "no traces in this directory") {
		t.Errorf("empty directory: %v", err)
	}
	write(t, dir, "b.json", worked)
	write(t, dir, "README.md", "not a trace")
	write(t, dir, "a.json", strings.Replace(worked, "tr1", "tr0", 1))
	c, err := Load(dir, LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Traces) != 2 || c.Traces[0].ID != "tr0" || c.Traces[1].ID != "tr1" {
		t.Errorf("traces are not in order of their files")
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	if d, err := Load(link, LoadOptions{}); err != nil || d.Fingerprint != c.Fingerprint {
		t.Errorf("through a link: %v", err)
	}
	write(t, dir, "c.json", worked)
	write(t, dir, "d.json", "{")
	if _, err := Load(dir, LoadOptions{}); err == nil || !strings.Contains(err.Error(), `trace "tr1" is also in `) {
		t.Errorf("duplicate id: %v", err)
	}
	c, err = Load(dir, LoadOptions{SkipBroken: true})
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Traces) != 2 || len(c.Skipped) != 2 || c.Stats().Skipped != 2 {
		t.Errorf("%d traces, skipped %v", len(c.Traces), c.Skipped)
	}
}

func TestUnknownFieldsAreReportedOnce(t *testing.T) {
	dir := t.TempDir()
	text := strings.ReplaceAll(worked, `"out":`, `"colour":{"a":[1,null,true,"\u00e9"]},"out":`)
	write(t, dir, "a.json", text)
	write(t, dir, "b.json", strings.Replace(text, "tr1", "tr2", 1))
	c, err := Load(dir, LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Notes) != 1 || !strings.Contains(c.Notes[0], "unknown field requests[].colour kept and not used (2 traces, first in ") {
		t.Errorf("notes %q", c.Notes)
	}
}

func TestWideBlockIDs(t *testing.T) {
	wide := strings.NewReplacer("[1,2,3,4,5]", "[18446744073709551605,2,3,4,5]",
		"[1,2,3,4,5,7,8,9]", "[18446744073709551605,2,3,4,5,7,8,9]").Replace(worked)
	a, err := loadText(t, wide)
	if err != nil {
		t.Fatal(err)
	}
	b, err := loadText(t, worked)
	if err != nil {
		t.Fatal(err)
	}
	if a.Fingerprint != b.Fingerprint {
		t.Error("the size of block ids changes the fingerprint")
	}
}

// TestRecordedTraces holds what was measured once on the 101 recorded traces, by other means.
func TestRecordedTraces(t *testing.T) {
	c, err := Load(material.Path(t, "traces", "weka"), LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	st := c.Stats()
	if st.Traces != 101 || st.Turns != 8108 || st.StreamsBy["sub-agent"] != 35 || st.DroppedTurns != 0 {
		t.Errorf("%d traces, %d turns, %v", st.Traces, st.Turns, st.StreamsBy)
	}
	if st.In.Max != 646500 || st.Out.Max != 15390 {
		t.Errorf("largest input %g, output %g", st.In.Max, st.Out.Max)
	}
	if st.Infinite.Rate < 0.93 || st.Infinite.Rate > 0.99 {
		t.Errorf("infinite cache %.4f", st.Infinite.Rate)
	}
	for _, tr := range c.Traces {
		for i := range tr.Streams {
			s := &tr.Streams[i]
			if i > 0 && (s.Spawn < 0 || s.Spawn >= len(tr.Streams[s.Parent].Turns) || s.Parent >= i) {
				t.Errorf("%s: spawned by turn %d of stream %d", s.ID, s.Spawn, s.Parent)
			}
			if s.Join != Unbound && (s.Join <= s.Spawn || tr.Streams[s.Parent].Turns[s.Join].StartNs+epsilonNs < s.EndNs) {
				t.Errorf("%s: joined by turn %d", s.ID, s.Join)
			}
			for k := range s.Turns {
				u := &s.Turns[k]
				if int64(len(u.Blocks)) != u.In/tr.BlockSize {
					t.Errorf("%s turn %d: %d blocks for %d tokens", s.ID, k, len(u.Blocks), u.In)
				}
				if k > 0 && u.StartNs < s.Turns[k-1].StartNs {
					t.Errorf("%s turn %d goes back in time", s.ID, k)
				}
			}
		}
	}
}

// naiveHits is the infinite cache, written down as plainly as can be.
func naiveHits(t *Trace) (hit, total int) {
	type req struct {
		at     At
		start  int64
		blocks []uint32
	}
	var all []req
	for i, s := range t.Streams {
		for k, u := range s.Turns {
			all = append(all, req{At{i, k}, u.StartNs, u.Blocks})
		}
	}
	seen := map[uint32]bool{}
	for len(all) > 0 {
		first := 0
		for j := range all {
			if all[j].start < all[first].start {
				first = j
			}
		}
		r := all[first]
		all = append(all[:first:first], all[first+1:]...)
		total += len(r.blocks)
		for _, b := range r.blocks {
			if !seen[b] {
				break
			}
			hit++
		}
		for _, b := range r.blocks {
			seen[b] = true
		}
	}
	return hit, total
}

func TestInfiniteHitsAgainstNaive(t *testing.T) {
	traces := []*Trace{}
	if c, err := Generate(GenerateOptions{Seed: 3, Traces: 12, SubAgentShare: .3}); err != nil {
		t.Fatal(err)
	} else {
		traces = append(traces, c.Traces...)
	}
	c, err := Load(material.Path(t, "traces", "weka"), LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, tr := range append(traces, c.Traces...) {
		hit, total := naiveHits(tr)
		if h := tr.InfiniteHits(); h.HitBlocks != int64(hit) || h.TotalBlocks != int64(total) {
			t.Errorf("%s: %d/%d, want %d/%d", tr.ID, h.HitBlocks, h.TotalBlocks, hit, total)
		}
	}
}
