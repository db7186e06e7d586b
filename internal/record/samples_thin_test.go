package record

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// grew is by how much a counter grew over a list of values, of which one that falls was reset.
func grew(values []float64) (sum float64) {
	for i, v := range values[1:] {
		if d := v - values[i]; d >= 0 {
			sum += d
		} else {
			sum += v
		}
	}
	return sum
}

// TestThinned: whatever servers do, samples that are thinned keep gauges and needed series bit by bit, all
// series at the samples that are to be kept, and everywhere else a value of an earlier sample; growths
// from the beginning of a phase to that of the next, and to the end, are those of the whole samples.
func TestThinned(t *testing.T) {
	dir := t.TempDir()
	loose := []string{`h_bucket{le="1.0"}`, `h_bucket{le="+Inf"}`, "h_count", "h_sum", "c_total", "typed"}
	tight := []string{"gauge", "needed_total", "weird_total"}
	thinnedEver := 0
	rapid.Check(t, func(t *rapid.T) {
		every := rapid.SampledFrom([]int{2, 4, 64}).Draw(t, "every")
		w, err := createSamples(filepath.Join(dir, MetricsFile), nil)
		if err != nil {
			t.Fatal(err)
		}
		w.needed = func(s string) bool { return strings.HasPrefix(s, "needed") }
		w.every = every
		now := map[string]map[string]float64{}
		var all []*Sample
		at := int64(0)
		for range rapid.IntRange(1, 150).Draw(t, "samples") {
			at += rapid.Int64Range(0, 3e9).Draw(t, "step")
			s := &Sample{At: at, Source: rapid.SampledFrom([]string{"u", "v"}).Draw(t, "source")}
			v := now[s.Source]
			if v == nil {
				v = map[string]float64{}
				now[s.Source] = v
				s.Families = map[string]Family{"typed": {Type: "counter"}, "weird_total": {Type: "gauge"}}
			}
			what := rapid.IntRange(0, 40).Draw(t, "what")
			if what == 0 {
				s.Mark = Profiling
			}
			switch {
			case what == 1:
				s.Error = "no"
			case what == 2: // a restart
				for _, n := range append(loose, tight...) {
					v[n] = 0
				}
			default:
				for _, n := range append(loose, tight...) {
					v[n] += float64(rapid.IntRange(0, 9).Draw(t, n))
				}
			}
			if what == 3 {
				delete(v, "c_total")
			}
			if s.Error == "" {
				s.Values = map[string]float64{}
				for n, x := range v {
					s.Values[n] = x
				}
			}
			all = append(all, s)
			if err := w.append(s); err != nil {
				t.Fatal(err)
			}
			w.every = every // and not what the size asks for
		}
		if err := w.close(); err != nil {
			t.Fatal(err)
		}
		raw, err := os.ReadFile(filepath.Join(dir, MetricsFile))
		if err != nil {
			t.Fatal(err)
		}
		got, err := unpack(raw)
		if err != nil || len(got) != len(all) {
			t.Fatalf("%d of %d samples, %v", len(got), len(all), err)
		}
		for _, source := range []string{"u", "v"} {
			var want, have []*Sample
			for i, s := range all {
				if s.Source == source && s.Error == "" {
					want, have = append(want, s), append(have, &got[i])
				} else if s.Source == source && got[i].Error != s.Error {
					t.Fatalf("sample %d: error %q, want %q", i, got[i].Error, s.Error)
				}
			}
			if len(want) == 0 {
				continue
			}
			begin := 0
			for i, s := range have {
				if s.Thinned {
					thinnedEver++
				}
				keep := i == 0 || i == len(have)-1 || want[i].Mark != "" || want[i+1].Mark != "" || want[i].Values["typed"] < want[i-1].Values["typed"] || want[i+1].Values["typed"] < want[i].Values["typed"]
				if keep && s.Thinned {
					t.Fatalf("%s: sample %d of %d is thinned", source, i, len(have))
				}
				for _, n := range append(loose, tight...) {
					x, is := s.Values[n]
					y, was := want[i].Values[n]
					if !s.Thinned || !strings.Contains(strings.Join(loose, " "), n) {
						if is != was || math.Float64bits(x) != math.Float64bits(y) {
							t.Fatalf("%s: %s is %v, %v in sample %d, want %v, %v (thinned %v)", source, n, x, is, i, y, was, s.Thinned)
						}
						continue
					}
					if is && was && x > y {
						t.Fatalf("%s: %s is %v in sample %d before it was: %v", source, n, x, i, y)
					}
				}
				if i > 0 && (want[i].Mark != "" || i == len(have)-1) {
					for _, n := range []string{"typed", "h_count", `h_bucket{le="1.0"}`, "h_sum"} {
						var a, b []float64
						for j := begin; j <= i; j++ {
							a, b = append(a, want[j].Values[n]), append(b, have[j].Values[n])
						}
						if grew(a) != grew(b) {
							t.Fatalf("%s: %s grew by %v from sample %d to %d, want %v", source, n, grew(b), begin, i, grew(a))
						}
					}
					begin = i
				}
			}
		}
	})
	if thinnedEver == 0 {
		t.Error("nothing was thinned")
	}
}

// TestThinBudget: nothing is thinned before what may be taken is used up, or when nobody says which
// series are needed; then so much that the file stays within it, and again less when the page calms down.
func TestThinBudget(t *testing.T) {
	const free, busy, calm = 500_000, 240, 900
	write := func(needed func(string) bool, free float64) (size int64, most, last int) {
		w, err := createSamples(filepath.Join(t.TempDir(), MetricsFile), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer w.abort()
		w.needed, w.free = needed, free
		r := rand.New(rand.NewPCG(1, 1))
		sums := make([]float64, 8*1000)
		for second := range busy + calm {
			for source := range 8 {
				v := map[string]float64{"gauge": float64(second)}
				for i := range 1000 {
					if x := &sums[source*1000+i]; second < busy {
						*x += r.Float64()
						v[fmt.Sprintf("s%d_total", i)] = *x
					}
				}
				if err := w.append(&Sample{At: int64(second) * 1e9, Source: fmt.Sprint(source), Values: v, Delta: second > 0}); err != nil {
					t.Fatal(err)
				}
			}
			most, last = max(most, w.every), w.every
		}
		if err := w.flush(); err != nil {
			t.Fatal(err)
		}
		return w.size, most, last
	}
	none := func(string) bool { return false }
	whole, most, _ := write(nil, free)
	if most != 1 || whole < 2*(free+busy*thinPerSecond) {
		t.Fatalf("%d bytes without a budget, one of %d", whole, most)
	}
	size, most, last := write(none, free)
	if most < 2 || last != 1 || size > 2*(free+busy*thinPerSecond) {
		t.Errorf("%d bytes of %d, kept one of %d and at the end of %d", size, whole, most, last)
	}
	if size, most, _ = write(none, 1e12); size != whole || most != 1 {
		t.Errorf("%d bytes with room for all, want %d; one of %d", size, whole, most)
	}
}

// TestThinnedAndKilled: a run that is killed while samples are thinned has those of its whole blocks
// thinned, each ending with all values, and those behind them whole.
func TestThinnedAndKilled(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "b")
	w, err := CreateBundle(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abandon()
	w.ThinSamples(func(string) bool { return false })
	if err := w.Live(); err != nil {
		t.Fatal(err)
	}
	const n, block = 150, 61
	for i := range n {
		w.metrics.every = 8
		if err := w.WriteSample(&Sample{At: int64(i) * 1e9, Source: "u", Values: map[string]float64{"c_total": float64(3 * i), "g": float64(i)}, Delta: i > 0}); err != nil {
			t.Fatal(err)
		}
	}
	i, thinned := 0, 0
	for s, err := range (&Bundle{Dir: dir}).Samples() {
		if err != nil {
			t.Fatal(err)
		}
		got, want := s.Values["c_total"], float64(3*i)
		switch {
		case s.Values["g"] != float64(i):
			t.Fatalf("sample %d: gauge %v", i, s.Values["g"])
		case s.Thinned && (i >= n/block*block || i%block == block-1 || got >= want):
			t.Errorf("sample %d is thinned, with %v of %v", i, got, want)
		case !s.Thinned && got != want:
			t.Errorf("sample %d: %v, want %v", i, got, want)
		}
		if s.Thinned {
			thinned++
		}
		i++
	}
	if i != n || thinned < n/2 {
		t.Errorf("%d samples, %d thinned", i, thinned)
	}
}
