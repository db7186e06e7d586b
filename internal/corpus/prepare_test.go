package corpus

import (
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirbench/weir/internal/material"
)

func generated(t testing.TB, opt GenerateOptions) *Corpus {
	t.Helper()
	c, err := Generate(opt)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestCompiledIsTheSameCorpus(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "traces")
	if err := WriteWekaDir(dir, generated(t, GenerateOptions{Traces: 10, SubAgentShare: .3, Turns: 20})); err != nil {
		t.Fatal(err)
	}
	assertCompiles(t, dir)
	assertCompiles(t, write(t, t.TempDir(), "d.jsonl", dagLines))
	assertCompiles(t, write(t, t.TempDir(), "a.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\n1,2,3\n2,3,4\n"))
}

func TestRecordedTracesCompile(t *testing.T) { assertCompiles(t, material.Path(t, "traces", "weka")) }

func assertCompiles(t *testing.T, src string) {
	t.Helper()
	want, err := Load(src, LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "c.weir")
	done, err := Compile(src, out, LoadOptions{})
	if err != nil || done.Fresh || done.Torn != nil {
		t.Fatalf("%+v, %v", done, err)
	}
	got, err := Load(out, LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got.Fingerprint != want.Fingerprint || len(got.Traces) != len(want.Traces) || !slices.Equal(got.Notes, want.Notes) {
		t.Fatalf("%d traces, fingerprint %s, notes %q", len(got.Traces), got.Fingerprint, got.Notes)
	}
	for i := range want.Traces {
		assertSameTrace(t, want.Traces[i], got.Traces[i])
	}
	for i := range got.Traces {
		for j := range got.Traces[i].Streams {
			turns := got.Traces[i].Streams[j].Turns
			for k := 1; k < len(turns); k++ {
				a, b := turns[k-1].Blocks, turns[k].Blocks
				if len(a) > 0 && len(b) >= len(a) && slices.Equal(a, b[:len(a)]) && &a[0] != &b[0] {
					t.Fatalf("%s turn %d does not share memory with the turn before it", got.Traces[i].Streams[j].ID, k)
				}
			}
		}
	}
	again, err := Compile(src, out, LoadOptions{})
	if err != nil || !again.Fresh {
		t.Errorf("a second run built it again: %+v, %v", again, err)
	}
}

// TestTornFilesAreFoundAndRebuilt cuts and damages a compiled file in many places.
func TestTornFilesAreFoundAndRebuilt(t *testing.T) {
	src := write(t, t.TempDir(), "t.json", worked)
	out := filepath.Join(t.TempDir(), "c.weir")
	if _, err := Compile(src, out, LoadOptions{}); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	damage := func(name string, data []byte) {
		if err := os.WriteFile(out, data, 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(out, LoadOptions{}); err == nil {
			t.Errorf("%s: loaded", name)
		}
		done, err := Compile(src, out, LoadOptions{})
		if err != nil || done.Fresh || done.Torn == nil {
			t.Errorf("%s: %+v, %v", name, done, err)
		}
		if now, _ := os.ReadFile(out); string(now) != string(whole) {
			t.Errorf("%s: not rebuilt", name)
		}
	}
	for n := 0; n < len(whole); n += 1 + n/40 {
		damage("cut", whole[:n])
	}
	for i := range whole {
		if i >= len(compiledMagic) && (i < compiledHeader || i%5 == 0) {
			bad := slices.Clone(whole)
			bad[i] ^= 0x40
			damage("flipped", bad)
		}
	}
	damage("grown", append(slices.Clone(whole), 0))
	damage("zeros", make([]byte, len(whole)))
}

func TestCompileRefusesOtherFiles(t *testing.T) {
	src := write(t, t.TempDir(), "t.json", worked)
	notes := write(t, t.TempDir(), "notes.txt", "my notes")
	if _, err := Compile(src, notes, LoadOptions{}); err == nil || !strings.Contains(err.Error(), "is no compiled corpus") {
		t.Errorf("got %v", err)
	}
	if text, _ := os.ReadFile(notes); string(text) != "my notes" {
		t.Error("the file was written over")
	}
	if _, err := Compile(src, t.TempDir(), LoadOptions{}); err == nil || !strings.Contains(err.Error(), "is a directory") {
		t.Errorf("got %v", err)
	}
}

func TestKeyIsOfContent(t *testing.T) {
	key := func(dir string, opt LoadOptions) string {
		k, err := SourceKey(dir, opt)
		if err != nil {
			t.Fatal(err)
		}
		return string(k)
	}
	a, b := t.TempDir(), t.TempDir()
	write(t, a, "x.json", worked)
	write(t, b, "x.json", worked)
	if key(a, LoadOptions{}) != key(b, LoadOptions{}) {
		t.Error("the place of the files changes the key")
	}
	if key(a, LoadOptions{}) == key(a, LoadOptions{SkipBroken: true}) {
		t.Error("options that change what is read don't change the key")
	}
	write(t, b, "x.json", worked+" ")
	if key(a, LoadOptions{}) == key(b, LoadOptions{}) {
		t.Error("the content does not change the key")
	}
}

// TestTwoCompilersAtOnce: of several that compile at once one builds.
func TestTwoCompilersAtOnce(t *testing.T) {
	src := filepath.Join(t.TempDir(), "traces")
	if err := WriteWekaDir(src, generated(t, GenerateOptions{Traces: 6, Turns: 20})); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "c.weir")
	var wg sync.WaitGroup
	var mu sync.Mutex
	built := 0
	for range 6 {
		wg.Go(func() {
			done, err := Compile(src, out, LoadOptions{})
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Error(err)
			} else if !done.Fresh {
				built++
			}
		})
	}
	wg.Wait()
	if built != 1 {
		t.Errorf("built %d times", built)
	}
}

func TestCompilerDoesNotWaitForever(t *testing.T) {
	dir := t.TempDir()
	unlock, err := lockDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	defer func(d time.Duration) { lockWait = d }(lockWait)
	lockWait = 30 * time.Millisecond
	_, err = Compile(write(t, t.TempDir(), "t.json", worked), filepath.Join(dir, "c.weir"), LoadOptions{})
	if err == nil || !strings.Contains(err.Error(), "another process has been compiling into this directory") {
		t.Errorf("got %v", err)
	}
}

// TestFormsKeepTheFingerprint writes a corpus in every form and reads it back.
func TestFormsKeepTheFingerprint(t *testing.T) {
	for name, c := range map[string]*Corpus{
		"generated": generated(t, GenerateOptions{Traces: 8, SubAgentShare: .3, Turns: 20, BlockSize: 32}),
		"dag":       mustLoad(t, "d.jsonl", dagLines),
		"mooncake":  mustLoad(t, "conv.jsonl", mooncakeLines),
		"lengths":   mustLoad(t, "a.csv", "TIMESTAMP,ContextTokens,GeneratedTokens\n1,2,3\n2,3,4\n"),
	} {
		dir := t.TempDir()
		for file, write := range map[string]func(string) error{
			"a.weir":      func(f string) error { return WriteCompiled(f, c) },
			"m.jsonl":     func(f string) error { return WriteMooncake(f, c, true) },
			"m.jsonl.zst": func(f string) error { return WriteMooncake(f, c, true) },
			"w.jsonl.gz":  func(f string) error { return WriteWekaLines(f, c) },
		} {
			path := filepath.Join(dir, file)
			err := write(path)
			if file == "w.jsonl.gz" && name != "generated" {
				if err == nil || !strings.Contains(err.Error(), "the Weka form can't hold it") {
					t.Errorf("%s as Weka: %v", name, err)
				}
				continue
			}
			if err != nil {
				t.Errorf("%s as %s: %v", name, file, err)
				continue
			}
			d, err := Load(path, LoadOptions{})
			if err != nil {
				t.Errorf("%s as %s: %v", name, file, err)
				continue
			}
			if d.Fingerprint != c.Fingerprint {
				t.Errorf("%s as %s: fingerprint %s became %s", name, file, c.Fingerprint, d.Fingerprint)
			}
			for i := range d.Traces {
				if d.Traces[i].ID != c.Traces[i].ID || d.Traces[i].Streams[0].Turns[0].In != c.Traces[i].Streams[0].Turns[0].In {
					t.Errorf("%s as %s: trace %d is another", name, file, i)
				}
			}
		}
	}
}

// TestPlainMooncakeIsReadByTheForm: without Weir's members every stream is a session whose
// lengths and block ids are those of the corpus, the last block counted.
func TestPlainMooncakeIsReadByTheForm(t *testing.T) {
	c := generated(t, GenerateOptions{Traces: 3, SubAgentShare: .3, Turns: 10})
	path := filepath.Join(t.TempDir(), "m.jsonl")
	if err := WriteMooncake(path, c, false); err != nil {
		t.Fatal(err)
	}
	d, err := Load(path, LoadOptions{BlockSize: 64})
	if err != nil {
		t.Fatal(err)
	}
	st, want := d.Stats(), c.Stats()
	if st.Traces != want.Streams || st.Turns != want.Turns || st.InTokens != want.InTokens || st.OutTokens != want.OutTokens {
		t.Errorf("%d sessions, %d turns, %d tokens; want %d, %d, %d", st.Traces, st.Turns, st.InTokens, want.Streams, want.Turns, want.InTokens)
	}
	if _, err := Load(path, LoadOptions{BlockSize: 128}); err == nil || !strings.Contains(err.Error(), "is the block size another?") {
		t.Errorf("another block size: %v", err)
	}
}

func TestFilterByContext(t *testing.T) {
	c := generated(t, GenerateOptions{Seed: 4, Traces: 40, SubAgentShare: .2})
	const limit = 100_000
	whole, rep, err := c.Filter(FilterOptions{MaxContext: limit})
	if err != nil {
		t.Fatal(err)
	}
	if rep.Kept+rep.OverContext != 40 || rep.OverContext == 0 || rep.Kept != len(whole.Traces) {
		t.Errorf("%+v", rep)
	}
	for _, tr := range whole.Traces {
		if tr.peakContext() > limit || !slices.Contains(c.Traces, tr) {
			t.Errorf("%s is not kept as it was", tr.ID)
		}
	}
	parts, rep, err := c.Filter(FilterOptions{MaxContext: limit, DropTurns: true})
	if err != nil {
		t.Fatal(err)
	}
	turns := 0
	starts := map[string]map[int64]bool{}
	firstOver := map[string]bool{} // such a trace's clock moves
	for _, tr := range c.Traces {
		starts[tr.ID] = map[int64]bool{}
		u := &tr.Streams[0].Turns[0]
		firstOver[tr.ID] = u.In+u.Out > limit
		for i := range tr.Streams {
			for k := range tr.Streams[i].Turns {
				u := &tr.Streams[i].Turns[k]
				if u.In+u.Out <= limit {
					turns++
				}
				starts[tr.ID][u.StartNs] = true
			}
		}
	}
	got := 0
	for _, tr := range parts.Traces {
		if err := tr.check(); err != nil {
			t.Error(err)
		}
		got += tr.turns()
		moved := firstOver[tr.ID]
		for i := range tr.Streams {
			for k := range tr.Streams[i].Turns {
				if u := &tr.Streams[i].Turns[k]; u.In+u.Out > limit || !moved && !starts[tr.ID][u.StartNs] {
					t.Errorf("%s turn %d: %d tokens at %d", tr.Streams[i].ID, k, u.In+u.Out, u.StartNs)
				}
			}
		}
	}
	if lost := rep.Turns - rep.DroppedTurns; got > turns || got > lost {
		t.Errorf("%d turns kept, %d fit, report %+v", got, turns, rep)
	}
	if _, _, err := c.Filter(FilterOptions{MaxContext: 10}); err == nil || !strings.Contains(err.Error(), "leaves none of 40 traces; the largest turn has") {
		t.Errorf("got %v", err)
	}
}

func TestFilterMovesSpawnsAndJoins(t *testing.T) {
	turn := func(at, in int64) Turn { return Turn{StartNs: at, In: in, Out: 1} }
	base := &Trace{ID: "t", BlockSize: 64, Models: []string{"m"}, Streams: []Stream{
		{ID: "t", Kind: Root, Parent: Unbound, Spawn: Unbound, Join: Unbound, Turns: []Turn{turn(0, 900), turn(10, 10), turn(20, 900), turn(30, 10), turn(40, 900)}},
		{ID: "t::sa:a", Kind: SubAgent, Parent: 0, Depth: 1, Spawn: 2, Join: 4, StartNs: 21, EndNs: 39, Turns: []Turn{turn(22, 10), turn(25, 900)}},
		{ID: "t::sa:b", Kind: SubAgent, Parent: 0, Depth: 1, Spawn: 0, Join: 2, StartNs: 1, EndNs: 2, Turns: []Turn{turn(1, 10)}},
		{ID: "t::fa:000", Kind: FlatAgent, Parent: 0, Depth: 1, Spawn: 0, Join: 3, StartNs: 1, EndNs: 2, Turns: []Turn{turn(12, 10)}},
		{ID: "t::fa:001", Kind: FlatAgent, Parent: 0, Depth: 1, Spawn: 0, Join: 3, StartNs: 1, EndNs: 2, Turns: []Turn{turn(12, 900)}},
	}}
	got := base.keep(func(at At) bool { return base.Streams[at.Stream].Turns[at.Turn].In < 100 })
	if err := got.check(); err != nil {
		t.Fatal(err)
	}
	if len(got.Streams) != 3 || got.DroppedTurns != 1 {
		t.Fatalf("%+v", got)
	}
	root, a, fa := got.Streams[0], got.Streams[1], got.Streams[2]
	if len(root.Turns) != 2 || root.Turns[0].StartNs != 0 || root.Turns[1].StartNs != 20 {
		t.Errorf("the clock did not move with the first turn: %+v", root.Turns)
	}
	if a.ID != "t::sa:a" || a.Spawn != 0 || a.Join != Unbound || a.StartNs != 11 || a.EndNs != 29 || len(a.Turns) != 1 {
		t.Errorf("%+v", a)
	}
	if fa.ID != "t::fa:000" || fa.Spawn != 0 || fa.Join != 1 || fa.StartNs != 2 {
		t.Errorf("%+v", fa)
	}
}

func TestFilterOthers(t *testing.T) {
	c := generated(t, GenerateOptions{Traces: 20, SubAgentShare: .3})
	c.Traces = append(c.Traces, c.Traces[3])
	d, rep, err := c.Filter(FilterOptions{DropDuplicates: true, NoChildren: true, MinTurns: 10, Limit: 5})
	if err != nil {
		t.Fatal(err)
	}
	if len(d.Traces) != 5 || rep.ChildrenRemoved == 0 || rep.Kept+rep.Duplicates+rep.TooShort+rep.OverLimit != 21 {
		t.Errorf("%+v", rep)
	}
	for _, tr := range d.Traces {
		if len(tr.Streams) != 1 || len(tr.Streams[0].Turns) < 10 {
			t.Errorf("%s has %d streams, %d turns", tr.ID, len(tr.Streams), tr.turns())
		}
	}
}

func TestAnonymizeKeepsStructure(t *testing.T) {
	c := generated(t, GenerateOptions{Traces: 8, SubAgentShare: .3, Turns: 20})
	c.Traces[2].Extra = map[At]string{{0, 0}: `"secret":1`}
	a := c.Anonymize()
	if a.Fingerprint != c.Fingerprint {
		t.Errorf("fingerprint %s became %s", c.Fingerprint, a.Fingerprint)
	}
	x, y := c.Stats(), a.Stats()
	x.Name, y.Name = "", ""
	if *x.Infinite != *y.Infinite || x.Turns != y.Turns || *x.In != *y.In || x.UniqueBlocks != y.UniqueBlocks {
		t.Error("the statistics changed")
	}
	for _, tr := range a.Traces {
		if tr.Extra != nil || !strings.HasPrefix(tr.ID, "trace_") {
			t.Errorf("%s: %v", tr.ID, tr.Extra)
		}
		for _, s := range tr.Streams {
			if !strings.HasPrefix(s.ID, tr.ID) || s.Label != "" || strings.Contains(s.ID, "gen_") {
				t.Errorf("stream %q with label %q", s.ID, s.Label)
			}
		}
	}
	// It reads back from files, so the names of found streams still follow the rules.
	assertReadsBack(t, a)
}

func TestReblock(t *testing.T) {
	c := generated(t, GenerateOptions{Traces: 4, Turns: 15})
	d, err := c.Reblock(512)
	if err != nil {
		t.Fatal(err)
	}
	for i, tr := range d.Traces {
		for j := range tr.Streams {
			for k := range tr.Streams[j].Turns {
				u, v := &c.Traces[i].Streams[j].Turns[k], &tr.Streams[j].Turns[k]
				if len(v.Blocks) != len(u.Blocks)/8 || v.In != u.In {
					t.Fatalf("%d blocks became %d", len(u.Blocks), len(v.Blocks))
				}
				if k > 0 {
					p, q := &c.Traces[i].Streams[j].Turns[k-1], &tr.Streams[j].Turns[k-1]
					if want := commonPrefix(p.Blocks, u.Blocks) / 8; commonPrefix(q.Blocks, v.Blocks) != want {
						t.Fatalf("a shared prefix of %d blocks became %d", want*8, commonPrefix(q.Blocks, v.Blocks))
					}
				}
			}
		}
	}
	if _, err := c.Reblock(100); err == nil {
		t.Error("blocks of 64 were joined to blocks of 100")
	}
}

// naiveDistances is the definition of a ReuseProfile, written down plainly.
func naiveDistances(t *Trace) (distances []int64, total int64) {
	type touch struct{ blocks []uint32 }
	var past []touch
	for _, at := range t.InTime() {
		u := &t.Streams[at.Stream].Turns[at.Turn]
		for j, b := range u.Blocks {
			total++
			if slices.Contains(u.Blocks[:j], b) {
				continue
			}
			since := map[uint32]bool{}
			for i := len(past) - 1; i >= 0; i-- {
				found := slices.Contains(past[i].blocks, b)
				for _, o := range past[i].blocks {
					since[o] = true
				}
				if found {
					distances = append(distances, int64(len(since)))
					break
				}
			}
		}
		past = append(past, touch{u.Blocks})
	}
	return distances, total
}

func TestReuseAgainstNaive(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		tr := &Trace{ID: "t", BlockSize: 1024, Models: []string{"m"}, Streams: []Stream{{ID: "t", Parent: Unbound}}}
		for k := range rapid.IntRange(1, 12).Draw(r, "turns") {
			ids := rapid.SliceOfN(rapid.Uint32Range(0, 30), 0, 12).Draw(r, "ids")
			tr.Streams[0].Turns = append(tr.Streams[0].Turns, Turn{StartNs: int64(k), In: 1 + 1024*int64(len(ids)), Blocks: ids})
		}
		p := tr.Reuse()
		var bins [reuseBins]int64
		distances, total := naiveDistances(tr)
		for _, d := range distances {
			bins[binOf(d*1024)] += 1024
		}
		if bins != p.Tokens || p.Total != total*1024 {
			r.Fatalf("got %v, want %v", p.Tokens, bins)
		}
	})
}

func TestHitCurve(t *testing.T) {
	c := generated(t, GenerateOptions{Traces: 10})
	points, err := c.HitCurve()
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range points {
		if p.HitRate < 0 || p.HitRate > 1 || i > 0 && (p.HitRate < points[i-1].HitRate || p.CapacityTokens <= points[i-1].CapacityTokens) {
			t.Errorf("%+v", points)
		}
	}
	// A cache that holds all that a trace has finds what an infinite one finds, and a little
	// more: it also counts blocks behind the first miss.
	if last, inf := points[len(points)-1].HitRate, c.Stats().Infinite.Rate; last < inf-1e-9 || last > inf+.02 {
		t.Errorf("the curve ends at %.4f, the infinite cache has %.4f", last, inf)
	}
}

func TestSampleKeepsWhatItPromises(t *testing.T) {
	c := generated(t, GenerateOptions{Traces: 120})
	d, rep, err := c.Sample(30, 7)
	if err != nil {
		t.Fatal(err)
	}
	if len(d.Traces) != 30 || rep.Traces != 30 || rep.Of != 120 {
		t.Errorf("%+v", rep)
	}
	if math.Abs(rep.WorkingSet.Error) > 0.03 {
		t.Errorf("the working set is off by %.3f", rep.WorkingSet.Error)
	}
	// No plain draw of many keeps the hit rate and the working set as well.
	s := newSampler(c)
	r := rand.New(rand.NewPCG(1, 1))
	for range 300 {
		x := s.sum(r.Perm(len(s.all))[:30])
		x.score(s)
		off := math.Abs(float64(x.unique)/30/(float64(s.whole.unique)/120) - 1)
		if x.maxCurve < rep.MaxCurveError && off < math.Abs(rep.WorkingSet.Error)+.02 {
			t.Errorf("a plain draw is off by %.4f and %.3f, the sample by %.4f and %.3f", x.maxCurve, off, rep.MaxCurveError, rep.WorkingSet.Error)
		}
	}
	e, _, err := c.Sample(30, 7)
	if err != nil || e.Fingerprint != d.Fingerprint {
		t.Errorf("the same seed gave another sample: %v", err)
	}
	full, rep, err := c.Sample(120, 1)
	if err != nil || full.Fingerprint != c.Fingerprint || rep.MaxCurveError != 0 {
		t.Errorf("a sample of all is not all: %+v, %v", rep, err)
	}
	few := generated(t, GenerateOptions{Traces: 12, Turns: 8})
	for n := 1; n < 12; n++ {
		if d, _, err := few.Sample(n, 1); err != nil || len(d.Traces) != n {
			t.Errorf("a sample of %d: %v", n, err)
		}
	}
	for _, n := range []int{0, -1, 121} {
		if _, _, err := c.Sample(n, 1); err == nil {
			t.Errorf("a sample of %d was drawn", n)
		}
	}
}

// What is wrong with a corpus as a whole is no broken trace; where all are broken, all are listed.
func TestValidateWithoutTrace(t *testing.T) {
	broken := t.TempDir()
	write(t, broken, "a.json", "{")
	write(t, broken, "b.json", "[1]")
	for _, c := range []struct {
		path           string
		broken, faults int
	}{{t.TempDir(), 0, 1}, {filepath.Join(broken, "nowhere"), 0, 1}, {broken, 2, 2}} {
		v, err := Validate(c.path, LoadOptions{})
		if err == nil || v.Traces != 0 || v.Broken != c.broken || len(v.Findings) != c.faults {
			t.Errorf("%s: %+v, %v", c.path, v, err)
		}
	}
}

func TestUnknownFormSaysWhatWasFound(t *testing.T) {
	for text, want := range map[string]string{
		"[]":         "the array is empty: there is no trace in it",
		" [ ]":       "the array is empty",
		"[1]":        ":1:2: want an object as the first element of the array, found a number",
		"[[1,2]]":    ":1:2: want an object as the first element of the array, found an array",
		"[":          "want an object as the first element of the array, found the end of the file",
		`[{"x": 1}]`: ":1:2: no known form: the fields of the first object are [x]",
		`{"x": 1}`:   ":1:1: no known form: the fields of the first object are [x]",
		"5":          "want an object, an array or a CSV header, found a number",
		`"a"`:        "found a string",
		"":           "the file is empty",
		" \n":        "the file is empty",
		"a,b\n1,2\n": "or a CSV header, found",
	} {
		dir := t.TempDir()
		write(t, dir, "a.json", text)
		_, err := Load(dir, LoadOptions{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func TestValidate(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a.json", worked)
	write(t, dir, "b.json", strings.Replace(worked, "tr1", "tr2", 1))
	write(t, dir, "c.json", strings.Replace(strings.Replace(worked, "tr1", "tr3", 1), "[1,2,3,4,5]", "[1,2]", 1))
	write(t, dir, "d.json", "{")
	v, err := Validate(dir, LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var text []string
	faults := 0
	for _, f := range v.Findings {
		text = append(text, f.Trace+": "+f.Text)
		if f.Fault {
			faults++
		}
	}
	all := strings.Join(text, "\n")
	for _, want := range []string{"d.json:1:2: want a key", "tr2: has the content of tr1", "tr3: 1 turns have fewer block ids than whole blocks", "tr3: 1 streams begin with fewer blocks than their system prompt", "tr1: mixes 2 models"} {
		if !strings.Contains(all, want) {
			t.Errorf("%q is not in:\n%s", want, all)
		}
	}
	if v.Traces != 3 || v.Broken != 1 || faults != 1 {
		t.Errorf("%+v", v)
	}
}
