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
)

// encode writes a document, indented by two blanks, keys in their order, with the bytes that
// encoding/json gives with these settings. A number that is not finite is an error. The time slices of an hour
// are some hundred thousand numbers in maps, which encoding/json takes by reflection, sorts, and goes
// over again to indent them; what the artifacts have most is written here directly.
func encode(v any) ([]byte, error) {
	w := jsonWriter{b: make([]byte, 0, 64<<10)}
	w.value(v)
	return append(w.b, '\n'), w.err
}

// jsonWriter writes indented JSON.
type jsonWriter struct {
	b     []byte
	depth int
	err   error
}

// value writes what it knows itself, and hands the rest to encoding/json.
func (w *jsonWriter) value(v any) {
	switch x := v.(type) {
	case float64:
		w.number(x)
	case int:
		w.b = strconv.AppendInt(w.b, int64(x), 10)
	case int64:
		w.b = strconv.AppendInt(w.b, x, 10)
	case bool:
		w.b = strconv.AppendBool(w.b, x)
	case string:
		w.text(x)
	case *stats:
		x.json(w)
	case map[string]any:
		jsonObject(w, x, (*jsonWriter).value)
	case map[string]*stats:
		jsonObject(w, x, func(w *jsonWriter, s *stats) { s.json(w) })
	case map[string]float64:
		jsonObject(w, x, (*jsonWriter).number)
	case map[string]string:
		jsonObject(w, x, (*jsonWriter).text)
	case map[string]*family:
		jsonObject(w, x, func(w *jsonWriter, f *family) { f.json(w) })
	case []string:
		jsonList(w, x, (*jsonWriter).text)
	case []map[string]any:
		jsonList(w, x, func(w *jsonWriter, m map[string]any) { jsonObject(w, m, (*jsonWriter).value) })
	default:
		w.other(v)
	}
}

// jsonObject writes a map in order of its keys.
func jsonObject[T any](w *jsonWriter, m map[string]T, value func(*jsonWriter, T)) {
	if m == nil {
		w.b = append(w.b, "null"...)
		return
	}
	first := w.open('{')
	for _, k := range slices.Sorted(maps.Keys(m)) {
		w.key(&first, k)
		value(w, m[k])
	}
	w.close(first, '}')
}

func jsonList[T any](w *jsonWriter, list []T, value func(*jsonWriter, T)) {
	if list == nil {
		w.b = append(w.b, "null"...)
		return
	}
	first := w.open('[')
	for _, v := range list {
		w.next(&first)
		value(w, v)
	}
	w.close(first, ']')
}

// open begins an object or a list; what it returns tells next that nothing is in it yet.
func (w *jsonWriter) open(c byte) (first bool) {
	w.b = append(w.b, c)
	w.depth++
	return true
}

// next begins the next thing in an object or a list.
func (w *jsonWriter) next(first *bool) {
	if !*first {
		w.b = append(w.b, ',')
	}
	*first = false
	w.line()
}

func (w *jsonWriter) key(first *bool, k string) {
	w.next(first)
	w.text(k)
	w.b = append(w.b, ": "...)
}

func (w *jsonWriter) close(empty bool, c byte) {
	w.depth--
	if !empty {
		w.line()
	}
	w.b = append(w.b, c)
}

func (w *jsonWriter) line() {
	const deep = "\n                                "
	if n := 1 + 2*w.depth; n <= len(deep) {
		w.b = append(w.b, deep[:n]...)
		return
	}
	w.b = append(w.b, '\n')
	for range w.depth {
		w.b = append(w.b, "  "...)
	}
}

// number writes the shortest form that gives v back.
func (w *jsonWriter) number(v float64) { w.b, w.err = appendNumber(w.b, v, w.err) }

// appendNumber is the number as encoding/json writes it: with an exponent below 1e-6 and from 1e21, which has
// no zero before it. What is not finite gives an error unless there is one.
func appendNumber(b []byte, v float64, err error) ([]byte, error) {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		if err == nil {
			err = fmt.Errorf("%v is no number in JSON", v)
		}
		return b, err
	}
	if n := int64(v); float64(n) == v && n > -1e15 && n < 1e15 && (n != 0 || !math.Signbit(v)) {
		return strconv.AppendInt(b, n, 10), err // most are counts
	}
	if a := math.Abs(v); a == 0 || a >= 1e-6 && a < 1e21 {
		return strconv.AppendFloat(b, v, 'f', -1, 64), err
	}
	b = strconv.AppendFloat(b, v, 'e', -1, 64)
	if n := len(b) - 2; b[n-1] == '-' && b[n] == '0' {
		b[n] = b[n+1]
		b = b[:n+1]
	}
	return b, err
}

func (w *jsonWriter) text(s string) {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			w.other(s)
			return
		}
	}
	w.b = append(append(append(w.b, '"'), s...), '"')
}

// other writes a value by encoding/json.
func (w *jsonWriter) other(v any) {
	var plain bytes.Buffer
	e := json.NewEncoder(&plain)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	if err == nil {
		var b bytes.Buffer
		err = json.Indent(&b, bytes.TrimSuffix(plain.Bytes(), []byte("\n")), strings.Repeat("  ", w.depth), "  ")
		w.b = append(w.b, b.Bytes()...)
	}
	if w.err == nil {
		w.err = err
	}
}
