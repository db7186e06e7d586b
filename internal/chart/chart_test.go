package chart

import (
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// golden compares a picture with the one in testdata; WEIR_GOLDEN=write writes it, to be looked
// at before it is committed.
func golden(t *testing.T, name, svg string) {
	t.Helper()
	path := filepath.Join("testdata", name+".svg")
	got := strings.ReplaceAll(svg, "><", ">\n<") + "\n"
	if os.Getenv("WEIR_GOLDEN") == "write" {
		if err := os.MkdirAll("testdata", 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("%s changed: %s", path, d)
	}
}

func frontierPlot() *Plot {
	mark := func(conc int, x, y float64, s State) Mark {
		return Mark{X: x, Y: y, XLow: x * .97, XHigh: x * 1.03, YLow: y * .98, YHigh: y * 1.02, Label: fmt.Sprint(conc), ID: fmt.Sprint("r", conc, s), Tip: []string{fmt.Sprint(conc, " agents"), "<b> & more"}, State: s}
	}
	return &Plot{
		ID: "f", Desc: "what it shows", Width: 640, Height: 400, NameSeries: true,
		X: Axis{Label: "Interactivity", Unit: "tok/s/user", Better: 1, Zero: true}, Y: Axis{Label: "Throughput per GPU", Unit: "tok/s/GPU", Better: 1, Zero: true},
		Series: []Series{
			{Name: "no offload", Enc: Encoding{Dotted: true}, Trail: []int{0, 1, 2}, Line: []int{1, 0},
				Marks: []Mark{mark(8, 80, 7500, Normal), mark(16, 58, 12400, Normal), mark(32, 15, 8000, Dominated), mark(64, 7, 7600, Invalid)}},
			{Name: "offload", Enc: Encoding{Filled: true, Hue: 1, Shape: Square, Dash: Long, Overlay: true}, Trail: []int{0, 1, 2}, Line: []int{2, 1, 0},
				Marks: []Mark{mark(8, 80, 7500, Normal), mark(16, 58, 12400, Normal), mark(64, 22, 23000, Normal)}},
		},
	}
}

func multiple() *Plot {
	return &Plot{
		ID: "m", Width: 420, Height: 210, Small: true,
		X: Axis{Label: "concurrent agents", Log: true, Ticks: []float64{1, 8, 16, 64}}, Y: Axis{Label: "Time to first token, p90", Unit: "s", Log: true, Better: -1},
		Rules: []Rule{{X: 23, Text: "knee"}},
		Series: []Series{{Name: "a", Line: []int{0, 1}, Marks: []Mark{{X: 8, Y: .2, ID: "a"}, {X: 64, Y: 12, ID: "b"}},
			Missing: []Missing{{X: 1, Note: "n 21", ID: "c", Tip: []string{"withheld: 21 samples, 64 are needed"}}}}},
	}
}

func stack() *Stack {
	zero, one := 0.0, 1.0
	return &Stack{
		ID: "s", Title: "Prefix hit rate by tier", Desc: "d", Width: 420, Height: 236,
		X: Axis{Label: "concurrent agents", Log: true, Ticks: []float64{1, 8, 64}}, Y: Axis{Label: "share", Percent: true, Better: 1, Min: &zero, Max: &one},
		At:      []float64{1, 8, 64},
		Layers:  []Layer{{"HBM", "device", false, []float64{.95, .9, .2}}, {"host DRAM", "host", true, []float64{0, .05, .7}}},
		Ceiling: []float64{.96, .96, .96}, LRU: []float64{math.NaN(), .9, .3},
		Points: []Missing{{ID: "a", Tip: []string{"x"}}, {ID: "b"}, {ID: "c"}},
		Rules:  []Rule{{X: 23, Text: "knee"}},
	}
}

func TestGolden(t *testing.T) {
	golden(t, "frontier", frontierPlot().SVG())
	golden(t, "multiple", multiple().SVG())
	golden(t, "stack", stack().SVG())
	golden(t, "legend", Legend("l", "Legend", 500, []Key{
		{Text: "a series", Enc: Encoding{Hue: 2, Filled: true}}, {Text: "filled: offload on", Kind: KeyMark, Enc: Encoding{Filled: true}},
		{Text: "thin dotted: simulated", Kind: KeyLine, Enc: Encoding{Dotted: true}}, {Text: "dominated", Kind: KeyDominated}, {Text: "invalid", Kind: KeyInvalid},
		{Text: "HBM", Kind: KeyTier, Tier: "device"}, {Text: "ceiling", Kind: KeyCeiling}, {Text: "LRU", Kind: KeyLRU}, {Text: "withheld", Kind: KeyBracket}, {Text: "interval", Kind: KeyInterval},
	}))
}

// wellFormed parses a picture.
func wellFormed(t interface{ Fatalf(string, ...any) }, svg string) {
	d := xml.NewDecoder(strings.NewReader(svg))
	for {
		if _, err := d.Token(); err == io.EOF {
			return
		} else if err != nil {
			t.Fatalf("%v in %s", err, svg)
		}
	}
}

// TestAnyPlot draws plots of any finite data: well-formed, without NaN, everything that is
// shown lies in the picture.
func TestAnyPlot(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.OneOf(rapid.Float64Range(-1e9, 1e9), rapid.Float64Range(-1e-6, 1e-6), rapid.Just(0.0))
		p := &Plot{ID: "p", Title: rapid.String().Draw(t, "title"), Width: 400, Height: 300, Small: rapid.Bool().Draw(t, "small"), NameSeries: true,
			X: Axis{Label: "x", Log: rapid.Bool().Draw(t, "xlog"), Zero: rapid.Bool().Draw(t, "zero"), Tight: rapid.Bool().Draw(t, "tight")},
			Y: Axis{Label: "y", Log: rapid.Bool().Draw(t, "ylog"), Percent: rapid.Bool().Draw(t, "percent")}}
		for range rapid.IntRange(0, 3).Draw(t, "series") {
			s := Series{Name: rapid.String().Draw(t, "name"), Bare: rapid.Bool().Draw(t, "bare"),
				Enc: Encoding{Hue: rapid.IntRange(0, 20).Draw(t, "hue"), Shape: Shape(rapid.IntRange(0, 20).Draw(t, "shape")), Dash: Dash(rapid.IntRange(0, 9).Draw(t, "dash"))}}
			for i := range rapid.IntRange(0, 12).Draw(t, "marks") {
				s.Marks = append(s.Marks, Mark{X: value.Draw(t, "x"), Y: value.Draw(t, "y"), Label: fmt.Sprint(i), Tip: []string{rapid.String().Draw(t, "tip")}})
				s.Line = append(s.Line, i)
			}
			p.Series = append(p.Series, s)
		}
		svg := p.SVG()
		if strings.Contains(svg, "NaN") || strings.Contains(svg, "Inf") {
			t.Fatalf("NaN or Inf in %s", svg)
		}
		wellFormed(t, svg)
	})
}

// TestLabelsFree: no label lies on a mark or on another label.
func TestLabelsFree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := box{0, 0, 500, 300}
		var taken []box
		for range rapid.IntRange(1, 40).Draw(t, "n") {
			x, y := rapid.Float64Range(0, 500).Draw(t, "x"), rapid.Float64Range(0, 300).Draw(t, "y")
			b, anchor := place("128", 11, x, y, 4, in, taken, nil)
			if anchor == "" {
				continue
			}
			if slices.ContainsFunc(taken, b.meets) {
				t.Fatal("a label meets what was placed before")
			}
			taken = append(taken, b)
		}
	})
}

// TestTicks: ticks span the data, rise, and are few.
func TestTicks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lo := rapid.Float64Range(-1e6, 1e6).Draw(t, "lo")
		hi := lo + rapid.Float64Range(1e-3, 1e6).Draw(t, "width")
		ticks := linearTicks(lo, hi, 6)
		if len(ticks) < 2 || len(ticks) > 14 || !slices.IsSorted(ticks) || ticks[0] > lo+1e-6*(hi-lo) || ticks[len(ticks)-1] < hi-1e-6*(hi-lo) {
			t.Fatalf("%v to %v: %v", lo, hi, ticks)
		}
		l, h := rapid.Float64Range(1e-6, 1e3).Draw(t, "llo"), rapid.Float64Range(1.01, 1e6).Draw(t, "factor")
		log := logTicks(l, l*h, 3)
		if len(log) < 2 || len(log) > 14 || !slices.IsSorted(log) || log[0] > l*1.0002 || log[len(log)-1] < l*h*.9998 {
			t.Fatalf("log %v to %v: %v", l, l*h, log)
		}
	})
}

// TestNoColourAlone: two series that share a hue are told apart by another encoding.
func TestNoColourAlone(t *testing.T) {
	seen := map[string]bool{}
	for shape := range int(shapes) {
		for dash := range int(dashes) {
			for _, filled := range []bool{false, true} {
				e := Encoding{Shape: Shape(shape), Dash: Dash(dash), Filled: filled}
				var d doc
				d.shape(e.Shape, 0, 0, 4, e.markClass())
				k := d.String() + e.lineClass()
				if seen[k] {
					t.Errorf("%+v looks like another", e)
				}
				seen[k] = true
			}
		}
	}
}

// TestStandalone: a picture for use elsewhere carries its styles and every class it uses has one.
func TestStandalone(t *testing.T) {
	svg := Standalone(frontierPlot().SVG())
	wellFormed(t, svg)
	if !strings.HasPrefix(svg, "<svg ") || !strings.Contains(svg, "<style>") {
		t.Fatal("no style in it")
	}
	css := CSS()
	for _, m := range regexp.MustCompile(`class="([^"]*)"`).FindAllStringSubmatch(frontierPlot().SVG()+stack().SVG()+multiple().SVG(), -1) {
		for _, c := range strings.Fields(m[1]) {
			if c != "d0" && !regexp.MustCompile(`\.`+regexp.QuoteMeta(c)+`\b`).MatchString(css) {
				t.Errorf("class %q has no style", c)
			}
		}
	}
}
