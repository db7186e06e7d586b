package scrape

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"pgregory.net/rapid"

	"github.com/weirbench/weir/internal/record"
)

// naive reads a page with Prometheus's own parser.
func naive(t interface{ Fatalf(string, ...any) }, text string) map[string]float64 {
	p := expfmt.NewTextParser(model.LegacyValidation)
	list, err := p.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatalf("Prometheus's parser: %v\n%s", err, text)
	}
	out := map[string]float64{}
	put := func(name, labels string, v float64) {
		if labels != "" {
			name += "{" + labels + "}"
		}
		if !math.IsNaN(v) && !math.IsInf(v, 0) {
			out[name] = v
		}
	}
	for name, f := range list {
		for _, m := range f.Metric {
			var parts []string
			for _, l := range m.Label {
				parts = append(parts, l.GetName()+"="+strconv.Quote(l.GetValue()))
			}
			labels := strings.Join(parts, ",")
			switch {
			case m.Gauge != nil:
				put(name, labels, m.Gauge.GetValue())
			case m.Counter != nil:
				put(name, labels, m.Counter.GetValue())
			case m.Untyped != nil:
				put(name, labels, m.Untyped.GetValue())
			}
		}
	}
	return out
}

// apply puts a change onto what was known.
func apply(known map[string]float64, c *change) {
	for _, x := range c.values {
		if math.IsNaN(x.Value) {
			delete(known, x.Series)
		} else {
			known[x.Series] = x.Value
		}
	}
}

// TestDifferencesAddUp compares what the differences of a sequence of pages add up to with what
// Prometheus's own parser reads from every page.
func TestDifferencesAddUp(t *testing.T) {
	value := rapid.OneOf(rapid.SampledFrom([]string{"NaN", "+Inf", "0", "-0", "1e9", "12.5", "3"}), rapid.Map(rapid.IntRange(-5, 5), strconv.Itoa))
	rapid.Check(t, func(t *rapid.T) {
		var p page
		known := map[string]float64{}
		for range rapid.IntRange(1, 8).Draw(t, "pages") {
			var b strings.Builder
			for _, f := range rapid.SliceOfNDistinct(rapid.IntRange(0, 5), 0, 6, rapid.ID[int]).Draw(t, "families") {
				fmt.Fprintf(&b, "# HELP m%d what it says\n# TYPE m%d %s\n", f, f, []string{"gauge", "counter", "untyped"}[f%3])
				for _, l := range rapid.SliceOfNDistinct(rapid.IntRange(0, 4), 1, 5, rapid.ID[int]).Draw(t, "labels") {
					labels := []string{"", `{a="x"}`, `{a="}"}`, `{a="q\"q",b="2"}`, `{ a = "s p" , b="1", }`}[l]
					fmt.Fprintf(&b, "m%d%s %s%s\n", f, labels, value.Draw(t, "value"), rapid.SampledFrom([]string{"", " 1700000000000"}).Draw(t, "stamp"))
				}
			}
			c, err := p.update([]byte(b.String()))
			if err != nil {
				t.Fatalf("%v\n%s", err, b.String())
			}
			apply(known, c)
			if want := naive(t, b.String()); !maps.Equal(known, want) {
				t.Fatalf("have %v\nwant %v\n%s", known, want, b.String())
			}
		}
	})
}

// TestMalformed: a page that is none is refused with its line, and the next difference is right.
func TestMalformed(t *testing.T) {
	var p page
	known := map[string]float64{}
	good := func(text string) {
		t.Helper()
		c, err := p.update([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		apply(known, c)
	}
	good("a 1\nb{x=\"1\"} 2\n")
	for text, want := range map[string]string{
		"a 1\nb{x=\"1\"} two\n":  `line 2: "two" is no number`,
		"a 7\n{\n":               `line 2: "{" does not begin with the name of a metric`,
		"a 7\nb{x=\"1\" 2\n":     `line 2: "b{x=\"1\" 2": a label is not NAME="VALUE"`,
		"a 7\nb{x=1} 2\n":        `line 2: "b{x=1} 2": the value of label x is not in quotes`,
		"a 7\nb{x=\"1\"} 2\nc 3": "the answer ends in the middle of a line",
		"a\n":                    `line 1: "a" has no value`,
		"a 7\nb{x=\"1\n":         `line 2: "b{x=\"1": the value of label x is not in quotes`,
		"a 7\nb{x=\"1\",\n":      `line 2: "b{x=\"1\",": its labels have no end`,
	} {
		if _, err := p.update([]byte(text)); err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	good("b{x=\"1\"} 2\nc 4 # {trace=\"t\"} 1 2\n# EOF")
	if want := (map[string]float64{`b{x="1"}`: 2, "c": 4}); !maps.Equal(known, want) {
		t.Errorf("have %v, want %v", known, want)
	}
}

// TestInPlace: a page that is read from one difference to the next says what one that is read whole says,
// whatever happened between, a page that is none included; and where values alone change, that is how it is read.
func TestInPlace(t *testing.T) {
	values := rapid.SampledFrom([]string{"0", "1", "2.5", "123456", "1e3", "NaN", "+Inf", "7 1700000000000", " 3", "4 "})
	rapid.Check(t, func(t *rapid.T) {
		var names, texts []string
		series := 0
		add := func(at int) {
			name := fmt.Sprintf("m%d{a=\"%s\"}", series, strings.Repeat("x", rapid.SampledFrom([]int{0, 3, 250, 600}).Draw(t, "length")))
			if rapid.IntRange(0, 9).Draw(t, "comment") == 0 {
				name = fmt.Sprintf("# HELP m%d", series)
			}
			series++
			names, texts = slices.Insert(names, at, name), slices.Insert(texts, at, values.Draw(t, "value"))
		}
		for range rapid.IntRange(0, 30).Draw(t, "lines") {
			add(len(names))
		}
		var p page
		known := map[string]float64{}
		wanted := map[string]record.Family{}
		plain := false // since the last page that was read, values alone changed
		for range rapid.IntRange(1, 10).Draw(t, "pages") {
			torn := false
			for range rapid.IntRange(0, 4).Draw(t, "differences") {
				if len(names) == 0 {
					add(0)
					plain = false
					continue
				}
				i := rapid.IntRange(0, len(names)-1).Draw(t, "line")
				kind := rapid.IntRange(0, 12).Draw(t, "kind")
				plain = plain && kind > 4
				switch kind {
				case 0:
					add(i)
				case 1:
					names, texts = slices.Delete(names, i, i+1), slices.Delete(texts, i, i+1)
				case 2: // the same series again
					if strings.HasPrefix(names[i], "#") {
						continue
					}
					names, texts = slices.Insert(names, i, names[i]), slices.Insert(texts, i, values.Draw(t, "value"))
				case 3:
					names[0], names[i] = names[i], names[0]
				case 4:
					torn = true
				default:
					texts[i] = values.Draw(t, "value")
					plain = plain && !strings.HasPrefix(names[i], "#") && !strings.HasPrefix(texts[i], " ")
				}
			}
			var b strings.Builder
			for i, name := range names {
				b.WriteString(name + " " + texts[i] + "\n")
			}
			if torn {
				b.WriteString("m0 is none\n")
			}
			body := []byte(b.String())
			var first *line // a page that is read whole has other lines
			if plain && !p.twice && len(p.cells) == p.live && len(p.lines) > 0 {
				first = &p.lines[0]
			}
			c, err := p.update(body)
			if torn {
				if err == nil {
					t.Fatalf("no error: %s", body)
				}
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			if first != nil && first != &p.lines[0] {
				t.Fatalf("read whole, though values alone changed: %s", body)
			}
			plain = true
			apply(known, c)
			maps.Copy(wanted, c.families)
			var fresh page
			all, err := fresh.update(bytes.Clone(body))
			if err != nil {
				t.Fatal(err)
			}
			want := map[string]float64{}
			if apply(want, all); !maps.Equal(known, want) {
				t.Fatalf("have %v\nwant %v\n%s", known, want, body)
			}
			for name, f := range all.families {
				if wanted[name] != f {
					t.Fatalf("the family %s is %+v, want %+v", name, wanted[name], f)
				}
			}
			if len(p.cells) != len(fresh.cells) || len(p.lines) != len(fresh.lines) {
				t.Fatalf("%d series in %d lines, want %d in %d", len(p.cells), len(p.lines), len(fresh.cells), len(fresh.lines))
			}
			for i, l := range p.lines {
				if f := fresh.lines[i]; l.from != f.from || l.to != f.to || (l.cell == nil) != (f.cell == nil) || l.cell != nil && l.cell.series != f.cell.series {
					t.Fatalf("line %d is %+v, want %+v", i, l, f)
				}
			}
		}
	})
}

func FuzzPage(f *testing.F) {
	f.Add([]byte("a 1\n"), []byte("# TYPE a counter\na{x=\"1\"} 2\n"))
	f.Add([]byte("a{ b = \"\\\"\" ,} NaN 1\n# EOF"), []byte("a_total +Inf # {} 1\n"))
	f.Fuzz(func(t *testing.T, one, two []byte) {
		var both, last page
		known, want := map[string]float64{}, map[string]float64{}
		for _, b := range [][]byte{one, two} {
			if c, err := both.update(bytes.Clone(b)); err == nil {
				apply(known, c)
			}
		}
		c, err := last.update(bytes.Clone(two))
		if err != nil {
			return
		}
		if apply(want, c); !maps.Equal(known, want) {
			t.Fatalf("after both %v, after the last alone %v", known, want)
		}
	})
}

// BenchmarkPage reads a page of 2 MB of which a tenth of the lines changed.
func BenchmarkPage(b *testing.B) {
	make := func(n int) []byte {
		var t bytes.Buffer
		for i := range 18000 {
			v := i
			if i%10 == 0 {
				v += n
			}
			fmt.Fprintf(&t, "sglang:e2e_request_latency_seconds_bucket{engine_type=\"unified\",model_name=\"a/model\",worker=\"%d\",le=\"0.5\"} %d\n", i, v)
		}
		return t.Bytes()
	}
	pages := [2][]byte{make(0), make(1)}
	var p page
	p.update(pages[1])
	b.SetBytes(int64(len(pages[0])))
	for i := 0; b.Loop(); i++ {
		if _, err := p.update(pages[i%2]); err != nil {
			b.Fatal(err)
		}
	}
}
