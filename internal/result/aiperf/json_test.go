package aiperf

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// oneLine is a line of profile_export.jsonl as encoding/json has it.
type oneLine struct {
	Metadata metadata            `json:"metadata"`
	Metrics  map[string]oneValue `json:"metrics"`
	Error    *rowError           `json:"error,omitempty"`
}

type oneValue struct {
	Value any    `json:"value"`
	Unit  string `json:"unit"`
}

// plain is a document in types that encoding/json writes without this package's help.
func plain(v any) any {
	switch x := v.(type) {
	case *stats:
		out := map[string]any{"unit": x.unit}
		for k := range statN {
			if n, ok := x.get(k); ok {
				out[statNames[k]] = n
			}
		}
		return out
	case map[string]*stats:
		out := map[string]any{}
		for k, s := range x {
			out[k] = plain(s)
		}
		return out
	case map[string]any:
		if x == nil {
			return x
		}
		out := map[string]any{}
		for k, s := range x {
			out[k] = plain(s)
		}
		return out
	case []map[string]any:
		out := []any{}
		for _, s := range x {
			out = append(out, plain(s))
		}
		return out
	}
	return v
}

var (
	someText   = rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"", "avg", "a<b>&c", `q"\`, "°C", "tokens/sec/user", "\u2028", "\xff", "\n"}))
	someNumber = rapid.OneOf(rapid.Float64(), rapid.Float64Range(-1e3, 1e3), rapid.Map(rapid.Int64(), func(n int64) float64 { return float64(n) }),
		rapid.SampledFrom([]float64{0, math.Copysign(0, -1), 1e-6, 9.9999999e-7, 1e21, 9.99999e20, 1e-9, 5e-324, math.MaxFloat64}))
)

func someStats(t *rapid.T) *stats {
	s := &stats{unit: someText.Draw(t, "unit")}
	for k := range statN {
		if rapid.Bool().Draw(t, "there") {
			s.set(k, someNumber.Draw(t, "number"))
		}
	}
	return s
}

// something is a document, or a part of one, of every kind that encode is given.
func something(t *rapid.T, depth int) any {
	top := 11
	if depth == 0 {
		top = 8
	}
	length := func() int { return rapid.IntRange(0, 3).Draw(t, "length") }
	switch rapid.IntRange(0, top).Draw(t, "kind") {
	case 0:
		return someNumber.Draw(t, "number")
	case 1:
		return rapid.Int().Draw(t, "number")
	case 2:
		return rapid.Int64().Draw(t, "number")
	case 3:
		return rapid.Bool().Draw(t, "yes")
	case 4:
		return someText.Draw(t, "text")
	case 5:
		return someStats(t)
	case 6:
		return []string{someText.Draw(t, "text")}[:rapid.IntRange(0, 1).Draw(t, "length")]
	case 7:
		return rapid.SampledFrom([]any{nil, map[string]any(nil), []string(nil), json.RawMessage(`{"a":[1,{}],"b":"<"}`), []float64{1, 2},
			struct {
				A int    `json:"a,omitempty"`
				B []bool `json:"b"`
			}{}}).Draw(t, "other")
	case 8:
		return map[string]string{"b": someText.Draw(t, "text"), someText.Draw(t, "key"): "x"}
	case 9:
		out := map[string]any{}
		for range length() {
			out[someText.Draw(t, "key")] = something(t, depth-1)
		}
		return out
	case 10:
		out := []map[string]any{}
		for range length() {
			out = append(out, map[string]any{someText.Draw(t, "key"): something(t, depth-1)})
		}
		return out
	}
	out := map[string]*stats{}
	for range length() {
		out[someText.Draw(t, "key")] = someStats(t)
	}
	return out
}

// TestEncode: a document has the bytes that encoding/json would give it.
func TestEncode(t *testing.T) {
	if !slices.IsSorted(statNames[:]) || statNames[statN-1] >= "unit" {
		t.Errorf("the stats are not in the order of their names: %v", statNames)
	}
	rapid.Check(t, func(t *rapid.T) {
		doc := something(t, 3)
		got, err := encode(doc)
		if err != nil {
			t.Fatal(err)
		}
		if want := encoded(t, plain(doc)); !bytes.Equal(got, want) {
			t.Fatalf("have %s\nwant %s", got, want)
		}
	})
	for _, v := range []any{math.NaN(), math.Inf(1), map[string]any{"a": []float64{math.Inf(-1)}}, single("ms", math.NaN())} {
		if got, err := encode(v); err == nil {
			t.Errorf("a number that is none became %s", got)
		}
	}
}

func encoded(t interface{ Fatal(...any) }, v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestCell: a number of a table has two digits, as strconv gives them.
func TestCell(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := someNumber.Draw(t, "number")
		if got, want := string(appendCell(nil, v)), strconv.FormatFloat(v, 'f', 2, 64); got != want {
			t.Fatalf("%v is %s, want %s", v, got, want)
		}
	})
}

// TestEncodeFamilies: so has what server_metrics_export.json holds, whose structs have a form of their own.
func TestEncodeFamilies(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := &family{Type: someText.Draw(t, "type"), Description: someText.Draw(t, "help"), Unit: someText.Draw(t, "unit")}
		for range rapid.IntRange(0, 3).Draw(t, "series") {
			x := exported{Endpoint: someText.Draw(t, "url"), Stats: map[string]any{"avg": someNumber.Draw(t, "number")}}
			if rapid.Bool().Draw(t, "labels") {
				x.Labels = map[string]string{someText.Draw(t, "label"): someText.Draw(t, "value")}
			}
			if rapid.Bool().Draw(t, "buckets") {
				x.Buckets = map[string]float64{"+Inf": someNumber.Draw(t, "number"), "1.0": 0}
			}
			if rapid.Bool().Draw(t, "slices") {
				x.Slices = []map[string]any{{"start_ns": int64(1), "is_complete": false, "avg": someNumber.Draw(t, "number")}}
			}
			f.Series = append(f.Series, x)
		}
		all := map[string]*family{"a": f, rapid.StringMatching("[b-z_:é<]{1,5}").Draw(t, "name"): f}
		got, err := encode(all)
		if err != nil {
			t.Fatal(err)
		}
		if want := encoded(t, all); !bytes.Equal(got, want) {
			t.Fatalf("have %s\nwant %s", got, want)
		}
	})
}

// TestLine: a line of profile_export.jsonl has the bytes that encoding/json would give it, HTML's characters
// escaped.
func TestLine(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := row{metadata: metadata{RequestID: someText.Draw(t, "id"), Turn: 3}}
		if rapid.Bool().Draw(t, "failed") {
			r.err = &rowError{Code: 500, Type: "T", Message: someText.Draw(t, "message")}
		}
		want := oneLine{Metadata: r.metadata, Error: r.err, Metrics: map[string]oneValue{}}
		for _, tag := range rapid.SliceOfDistinct(rapid.StringMatching("[a-z0-9_]{1,8}"), rapid.ID[string]).Draw(t, "tags") {
			unit := rapid.SampledFrom([]string{"ms", "%", "tokens/sec/user"}).Draw(t, "unit")
			switch rapid.IntRange(0, 2).Draw(t, "kind") {
			case 0:
				v := someNumber.Draw(t, "number")
				r.metrics.add(tag, unit, v)
				want.Metrics[tag] = oneValue{v, unit}
			case 1:
				n := rapid.Int64().Draw(t, "number")
				r.metrics.count(tag, unit, n)
				want.Metrics[tag] = oneValue{n, unit}
			default:
				list := rapid.SliceOfN(someNumber, 1, 4).Draw(t, "list")
				r.metrics = append(r.metrics, metric{tag: tag, unit: unit, list: list})
				want.Metrics[tag] = oneValue{list, unit}
			}
		}
		r.metrics.sort()
		for tag, v := range want.Metrics {
			if m := r.metrics.get(tag); m == nil || m.unit != v.Unit {
				t.Fatalf("%s is found as %v", tag, m)
			}
		}
		if r.metrics.get("no such tag") != nil {
			t.Fatal("a metric that is not there is found")
		}
		got, err := r.append(nil)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := json.Marshal(&want)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != string(raw)+"\n" {
			t.Fatalf("have %s\nwant %s", got, raw)
		}
	})
	bad := row{metrics: measured{{tag: "a", unit: "ms", list: []float64{math.NaN()}}, {tag: "b", unit: "ms"}}}
	if _, err := bad.append(nil); err == nil {
		t.Error("a number that is none has a form")
	}
}

// TestTitles: no metric's tag or unit needs an escape, which the lines are written without.
func TestTitles(t *testing.T) {
	for _, tag := range slices.Sorted(maps.Keys(headers)) {
		if raw, err := json.Marshal(tag); err != nil || string(raw) != fmt.Sprintf("%q", tag) {
			t.Errorf("%s is %s", tag, raw)
		}
	}
	if got := fields("a,b", `c"d`); got != `"a,b","c""d"` || strings.HasSuffix(got, "\n") {
		t.Errorf("fields of CSV: %s", got)
	}
}
