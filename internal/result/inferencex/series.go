package inferencex

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// series is one time series of server_metrics_export.json without its slices.
type series struct {
	Endpoint string                     `json:"endpoint_url"`
	Labels   map[string]any             `json:"labels"`
	Stats    map[string]json.RawMessage `json:"stats"`
}

func (s *series) label(name string) string {
	v, ok := s.Labels[name]
	if !ok || v == nil {
		return ""
	}
	if t, ok := v.(string); ok {
		return t
	}
	return fmt.Sprint(v)
}

// stat is the first of the named statistics that is a number.
func (s *series) stat(order []string) *float64 {
	for _, k := range order {
		if v := float(s.Stats[k]); v != nil {
			return v
		}
	}
	return nil
}

// What is preferred of a counter and of a gauge.
var (
	totals  = []string{"total", "sum", "max", "avg"}
	maxima  = []string{"max", "avg", "total"}
	average = []string{"avg", "max", "total"}
)

// scraped are the families of server_metrics_export.json.
type scraped struct {
	families map[string][]series
	count    int // families of any name
}

// readScraped reads the file family by family, so that slices of many gigabytes pass through
// without being held. A missing file is an empty one.
func readScraped(path string) (*scraped, error) {
	m := &scraped{families: map[string][]series{}}
	f, err := open(path)
	if errors.Is(err, os.ErrNotExist) {
		return m, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := m.read(json.NewDecoder(&finite{r: bufio.NewReaderSize(newUnsliced(f), 1<<20)})); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			err = fmt.Errorf("the file is torn, it ends in the middle of %w", err)
		}
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return m, nil
}

func (m *scraped) read(d *json.Decoder) error {
	t, err := d.Token()
	if errors.Is(err, io.EOF) {
		return nil // an empty file
	}
	if err != nil {
		return err
	}
	if t != json.Delim('{') {
		return fmt.Errorf("offset %d: want an object, found %v", d.InputOffset(), t)
	}
	return members(d, func(key string) error {
		if key != "metrics" {
			return skip(d)
		}
		return object(d, func(name string) error {
			m.count++
			return m.family(d, name)
		})
	})
}

func (m *scraped) family(d *json.Decoder, name string) error {
	m.families[name] = m.families[name] // known, also without a series
	return object(d, func(key string) error {
		if key != "series" {
			return skip(d)
		}
		t, err := d.Token()
		if err != nil {
			return err
		}
		if t != json.Delim('[') {
			return rest(d, t)
		}
		for d.More() {
			var s series
			if err := object(d, func(key string) error {
				switch key {
				case "endpoint_url":
					return d.Decode(&s.Endpoint)
				case "labels":
					return d.Decode(&s.Labels)
				case "stats":
					return d.Decode(&s.Stats)
				}
				return skip(d)
			}); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			m.families[name] = append(m.families[name], s)
		}
		_, err = d.Token()
		return err
	})
}

// object calls f for every key of the object that comes next; any other value is passed over.
func object(d *json.Decoder, f func(key string) error) error {
	t, err := d.Token()
	if err != nil {
		return err
	}
	if t != json.Delim('{') {
		return rest(d, t)
	}
	return members(d, f)
}

func members(d *json.Decoder, f func(key string) error) error {
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return err
		}
		if err := f(t.(string)); err != nil {
			return err
		}
	}
	_, err := d.Token()
	return err
}

// skip passes over the value that comes next without holding it.
func skip(d *json.Decoder) error {
	t, err := d.Token()
	if err != nil {
		return err
	}
	return rest(d, t)
}

// rest passes over what follows the first token of a value.
func rest(d *json.Decoder, t json.Token) error {
	depth := 0
	for {
		switch t {
		case json.Delim('{'), json.Delim('['):
			depth++
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
		if depth == 0 {
			return nil
		}
		var err error
		if t, err = d.Token(); err != nil {
			return err
		}
	}
}

// find returns the series of families by name, in order of the names.
func (m *scraped) find(names ...string) []series {
	var out []series
	for _, n := range names {
		out = append(out, m.families[n]...)
	}
	return out
}

// has tells whether a family's name begins with one of the prefixes.
func (m *scraped) has(prefixes ...string) bool {
	for name := range m.families {
		for _, p := range prefixes {
			if strings.HasPrefix(name, p) {
				return true
			}
		}
	}
	return false
}

// total adds a statistic over series; nil when none has it.
func total(ss []series, order []string, keep func(*series) bool) *float64 {
	var values []float64
	for i := range ss {
		if keep != nil && !keep(&ss[i]) {
			continue
		}
		if v := ss[i].stat(order); v != nil {
			values = append(values, *v)
		}
	}
	if values == nil {
		return nil
	}
	t := sum(values)
	return &t
}

// most is the largest value of a statistic over series, mean its mean; nil when none has it.
func most(ss []series, order []string, keep func(*series) bool) *float64 {
	var out *float64
	for i := range ss {
		if keep != nil && !keep(&ss[i]) {
			continue
		}
		if v := ss[i].stat(order); v != nil && (out == nil || *v > *out) {
			out = v
		}
	}
	return out
}

func mean(ss []series, order []string) *float64 {
	var values []float64
	for i := range ss {
		if v := ss[i].stat(order); v != nil {
			values = append(values, *v)
		}
	}
	if values == nil {
		return nil
	}
	m, _ := meanAndDeviation(values)
	return &m
}

// byLabel adds totals by the value of a label.
func byLabel(ss []series, label string) map[string]float64 {
	out := map[string]float64{}
	for i := range ss {
		if l := ss[i].label(label); l != "" {
			if v := ss[i].stat(totals); v != nil {
				out[l] += *v
			}
		}
	}
	return out
}

// fraction reads a gauge that some engines give as a percentage.
func fraction(v *float64) *float64 {
	if v != nil && *v > 1.5 {
		f := *v / 100
		return &f
	}
	return v
}

// finite is a reader that turns the non-finite numbers of Python's JSON into null on the way:
// outside strings, N and I begin nothing else.
type finite struct {
	r       *bufio.Reader
	inside  bool
	escaped bool
	pending []byte
}

func (f *finite) Read(p []byte) (int, error) {
	n := 0
	for n < len(p) {
		if len(f.pending) > 0 {
			k := copy(p[n:], f.pending)
			f.pending = f.pending[k:]
			n += k
			continue
		}
		if n > 0 && f.r.Buffered() == 0 {
			return n, nil
		}
		c, err := f.r.ReadByte()
		if err != nil {
			if n > 0 && errors.Is(err, io.EOF) {
				return n, nil
			}
			return n, err
		}
		if f.inside {
			switch {
			case f.escaped:
				f.escaped = false
			case c == '\\':
				f.escaped = true
			case c == '"':
				f.inside = false
			}
		} else {
			if word := f.word(c); word > 0 {
				if _, err := f.r.Discard(word - 1); err != nil {
					return n, err
				}
				f.pending = []byte("null")
				continue
			}
			f.inside = c == '"'
		}
		p[n] = c
		n++
	}
	return n, nil
}

// word is the length of the non-finite number that begins with c, 0 when none does.
func (f *finite) word(c byte) int {
	for _, w := range []string{"NaN", "Infinity", "-Infinity"} {
		if w[0] != c {
			continue
		}
		if b, err := f.r.Peek(len(w) - 1); err == nil && string(b) == w[1:] {
			return len(w)
		}
	}
	return 0
}
