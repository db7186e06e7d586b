package record

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
	"pgregory.net/rapid"
)

// packed writes samples as a file.
func packed(t interface {
	Fatal(...any)
	Helper()
}, dir string, samples []*Sample) []byte {
	t.Helper()
	path := filepath.Join(dir, MetricsFile)
	w, err := createSamples(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range samples {
		if err := w.append(s); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.close(); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if sum := w.sum(MetricsFile); sum.Bytes != int64(len(raw)) {
		t.Fatal("the sum is of", sum.Bytes, "bytes, the file has", len(raw))
	}
	return raw
}

// unpack copies what is read, since Values are the next sample's too.
func unpack(raw []byte) (out []Sample, err error) {
	for s, err := range ReadSampleBlocks(bytes.NewReader(raw), "file") {
		if err != nil {
			return out, err
		}
		out = append(out, copied(s))
	}
	return out, nil
}

func copied(s *Sample) Sample {
	c := *s
	if s.Values != nil {
		c.Values = map[string]float64{}
		for k, v := range s.Values {
			c.Values[k] = v
		}
	}
	return c
}

// naive is what a file of JSON lines, the format of old bundles, gives back.
func naive(t interface{ Fatal(...any) }, samples []*Sample) (out []Sample) {
	var b bytes.Buffer
	for _, s := range samples {
		c := copied(s)
		for k, v := range c.Values {
			if !finite(v) {
				delete(c.Values, k)
				c.Gone = append(c.Gone, k)
			}
		}
		raw, err := json.Marshal(&c)
		if err != nil {
			t.Fatal(err)
		}
		b.Write(append(raw, '\n'))
	}
	for s, err := range ReadSamples(&b, "file") {
		if err != nil {
			t.Fatal(err)
		}
		c := copied(s)
		c.Gone = nil
		out = append(out, c)
	}
	return out
}

// TestBlocksLikeLines: blocks give back what lines of JSON would, whatever is in the samples.
func TestBlocksLikeLines(t *testing.T) {
	dir := t.TempDir()
	value := rapid.OneOf(
		rapid.Map(rapid.IntRange(-3, 300), func(i int) float64 { return float64(i) }),
		rapid.Map(rapid.IntRange(0, 2000), func(i int) float64 { return float64(i) / 100 }),
		rapid.Float64(), rapid.SampledFrom([]float64{0, math.Copysign(0, -1), 1e300, 5e-324, 1 << 53, 1<<53 + 2, -1 << 60, math.NaN(), math.Inf(1), 0.1 + 0.2}))
	names := []string{"a", "h_sum", "h_count", `h_bucket{le="0.5"}`, `h_bucket{le="1.0"}`, `h_bucket{le="10.0"}`, `h_bucket{le="+Inf"}`, `g{x="1",le="2"}`,
		`h_bucket{m="x",le="0.5"}`, `h_bucket{m="x",le="1.0"}`, `h_count{m="x"}`, `_bucket{le="`, "x_bucket"}
	rapid.Check(t, func(t *rapid.T) {
		var samples []*Sample
		at := int64(0)
		whole := map[string]bool{}
		for range rapid.IntRange(0, 40).Draw(t, "samples") {
			at += rapid.Int64Range(0, 20e9).Draw(t, "step")
			s := &Sample{At: at, Source: rapid.SampledFrom([]string{"u", "v", ""}).Draw(t, "source"), LagNs: rapid.Int64Range(0, 5e9).Draw(t, "lag")}
			switch rapid.IntRange(0, 8).Draw(t, "kind") {
			case 0:
				s.Error = "no"
			case 1:
				s.Families = map[string]Family{"a": {Type: "gauge", Help: "h"}, "b": {Unit: "u"}}
				fallthrough
			default:
				s.Delta = whole[s.Source] && rapid.IntRange(0, 9).Draw(t, "delta") > 0
				s.Values = map[string]float64{}
				for _, n := range rapid.SliceOfNDistinct(rapid.SampledFrom(names), 0, len(names), rapid.ID[string]).Draw(t, "names") {
					s.Values[n] = value.Draw(t, "value")
				}
				if s.Delta {
					for _, n := range rapid.SliceOfNDistinct(rapid.SampledFrom(names), 0, 3, rapid.ID[string]).Draw(t, "gone") {
						if _, ok := s.Values[n]; !ok {
							s.Gone = append(s.Gone, n)
						}
					}
				}
				whole[s.Source] = true
			case 2:
				s.Mark = Profiling
			}
			samples = append(samples, s)
		}
		raw := packed(t, dir, samples)
		got, err := unpack(raw)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(naive(t, samples), got); d != "" {
			t.Fatalf("lines and blocks differ (-lines +blocks):\n%s", d)
		}
		live, read := recorded(t, dir, samples)
		live.Abandon()
		if d := cmp.Diff(got, read); d != "" {
			t.Fatalf("a run that ended in the middle differs (-blocks +live):\n%s", d)
		}
		listed := inLists(samples)
		if !bytes.Equal(raw, packed(t, dir, listed)) {
			t.Fatal("samples as lists have other bytes than as maps")
		}
		live, read = recorded(t, dir, listed)
		live.Abandon()
		if d := cmp.Diff(got, read); d != "" {
			t.Fatalf("a run that ended in the middle differs (-blocks +live, as lists):\n%s", d)
		}
	})
}

// inLists are samples as a scraper hands them over: what changed as a list whose series are numbered as they come, anew
// when they had gone.
func inLists(samples []*Sample) (out []*Sample) {
	numbers, next := map[string]uint32{}, uint32(0)
	for _, s := range samples {
		c := *s
		if out = append(out, &c); s.Values == nil {
			continue
		}
		c.Values, c.Gone, c.Changed = nil, nil, []Changed{}
		put := func(name string, v float64) {
			key := s.Source + " " + name
			if _, ok := numbers[key]; !ok {
				numbers[key] = next
				next += 1 + next%3
			}
			c.Changed = append(c.Changed, Changed{numbers[key], name, v})
			if math.IsNaN(v) {
				delete(numbers, key)
			}
		}
		for name, v := range s.Values {
			put(name, v)
		}
		for _, name := range s.Gone {
			put(name, math.NaN())
		}
	}
	return out
}

// some makes samples of two endpoints whose counters grow.
func some(n int) (out []*Sample) {
	for i := range n {
		v := map[string]float64{"c": float64(i), "g": float64(i%7) / 100, "s_sum": math.Sqrt(float64(i))}
		for _, le := range []string{"0.5", "2.0", "10.0", "+Inf"} {
			v[`h_bucket{le="`+le+`"}`] = float64(i * 3)
		}
		out = append(out, &Sample{At: int64(i) * 1e9, Source: fmt.Sprint("u", i%2), Values: v, Delta: i >= 2})
	}
	return out
}

// TestTornBlocks: a file that ends anywhere gives the samples of its whole blocks, and an error
// unless it ends between two; one with a wrong byte gives those before it.
func TestTornBlocks(t *testing.T) {
	samples := some(400) // blocks of a minute
	raw := packed(t, t.TempDir(), samples)
	whole, err := unpack(raw)
	if err != nil || len(whole) != len(samples) {
		t.Fatalf("%d of %d samples, %v", len(whole), len(samples), err)
	}
	blocks := 0
	for at := len(blockMagic); at < len(raw); blocks++ {
		n := 8 + int(binary.LittleEndian.Uint32(raw[at:]))
		before, err := unpack(raw[:at])
		if err != nil || len(before) > 0 && !cmp.Equal(before, whole[:len(before)]) {
			t.Fatalf("%d whole blocks: %d samples, %v", blocks, len(before), err)
		}
		for _, cut := range []int{1, 7, 8, 9, n / 2, n - 1} {
			if got, err := unpack(raw[:at+cut]); err == nil || len(got) != len(before) {
				t.Fatalf("%d blocks and %d bytes: %d samples, want %d and an error; %v", blocks, cut, len(got), len(before), err)
			}
		}
		at += n
	}
	if blocks < 6 || blocks > 8 {
		t.Errorf("%d blocks", blocks)
	}
	bad := bytes.Clone(raw)
	bad[len(bad)/2]++
	got, err := unpack(bad)
	if err == nil || !strings.Contains(err.Error(), "block") || len(got) == 0 || !cmp.Equal(got, whole[:len(got)]) {
		t.Errorf("a wrong byte: %d samples, %v", len(got), err)
	}
	for text, want := range map[string]string{"": "not a file of samples", "WEIRMET3....": "does not begin as one", blockMagic + "\xff\xff\xff\xff....": "at most"} {
		if _, err := unpack([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestDifferenceToNothing is refused when it is written.
func TestDifferenceToNothing(t *testing.T) {
	w, err := createSamples(filepath.Join(t.TempDir(), MetricsFile), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer w.abort()
	if err := w.append(&Sample{Source: "u", Delta: true, Values: map[string]float64{"a": 1}}); err == nil || !strings.Contains(err.Error(), "not there") {
		t.Errorf("error %v", err)
	}
}

// TestOldBundle: a bundle with samples as lines of JSON opens, verifies and reads as before.
func TestOldBundle(t *testing.T) {
	dir := t.TempDir()
	if err := writeBundle(t, dir, 100).Complete(); err != nil {
		t.Fatal(err)
	}
	old, err := createStream(filepath.Join(dir, OldMetricsFile), nil)
	if err != nil {
		t.Fatal(err)
	}
	lines := json.NewEncoder(old.bw)
	for _, s := range some(10) {
		if err := lines.Encode(s); err != nil {
			t.Fatal(err)
		}
	}
	if err := old.close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, MetricsFile)); err != nil {
		t.Fatal(err)
	}
	end := filepath.Join(dir, CompleteFile)
	raw, err := os.ReadFile(end)
	if err != nil {
		t.Fatal(err)
	}
	var e End
	if err := json.Unmarshal(raw, &e); err != nil {
		t.Fatal(err)
	}
	e.Files[2] = old.sum(OldMetricsFile)
	if raw, err = json.Marshal(e); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(end, raw, 0o666); err != nil {
		t.Fatal(err)
	}
	b, err := OpenBundle(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Verify(); err != nil {
		t.Error(err)
	}
	n := 0
	for s, err := range b.Samples() {
		if err != nil {
			t.Fatal(err)
		}
		if s.Values["c"] != float64(n) || len(s.Values) != 7 {
			t.Errorf("sample %d: %v", n, s.Values)
		}
		n++
	}
	if n != 10 {
		t.Errorf("%d samples", n)
	}
}

// FuzzSampleBlocks reads blocks that are whole and hold anything.
func FuzzSampleBlocks(f *testing.F) {
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		f.Fatal(err)
	}
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1))
	if err != nil {
		f.Fatal(err)
	}
	for _, n := range []int{1, 5, 130} {
		r := bytes.NewReader(packed(f, f.TempDir(), some(n))[len(blockMagic):])
		for {
			s, err := unframe(r, dec, sectionCount)
			if err != nil {
				break
			}
			f.Add(s[secHead], s[secWhich], s[secWhen], s[secInts], s[secRuns], s[secSizes], s[secFloats], s[secLow], s[secLow+1], s[secUp], s[secUp+1])
		}
	}
	f.Fuzz(func(t *testing.T, head, which, when, ints, runs, sizes, floats, low, high, up, upHigh []byte) {
		file := bytes.NewBufferString(blockMagic)
		sections := [sectionCount][]byte{head, which, when, ints, runs, sizes, floats, floats, floats, floats, floats, floats, floats, floats, low, high, up, upHigh}
		for range 2 {
			if err := frame(file, enc, &sections); err != nil {
				t.Fatal(err)
			}
		}
		for s, err := range ReadSampleBlocks(file, "file") {
			if err != nil {
				return
			}
			for k, v := range s.Values {
				if !finite(v) {
					t.Fatalf("%s is %v", k, v)
				}
			}
		}
	})
}

// TestOlderBlocks: a file in the form of before is read as it was written.
func TestOlderBlocks(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join("testdata", "metrics-1.blocks"))
	if err != nil {
		t.Fatal(err)
	}
	got, err := unpack(raw)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(naive(t, some(130)), got); d != "" {
		t.Errorf("the older form (-written +read):\n%s", d)
	}
}
