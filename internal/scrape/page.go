package scrape

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"runtime"
	"strconv"
	"strings"

	"github.com/weirbench/weir/internal/record"
)

// maxSeries bounds the series that are read from one endpoint.
const maxSeries = 1 << 20

// maxValue bounds what counts as a value: nothing that a server counts comes near it, and sums, squares and
// rates of values below it are finite.
const maxValue = 1e100

// yieldLines is after how many lines others may run: a page takes a millisecond or more, and the
// reader of a token should not wait for it.
const yieldLines = 256

// A page is what an endpoint last said. Two scrapes of one endpoint differ in few lines, so a
// line that stands as before costs a comparison.
type page struct {
	body      []byte
	lines     []line
	spare     []line
	cells     map[string]*cell
	families  map[string]record.Family
	news      map[string]record.Family // families that were not reported yet
	pass      uint32
	live      int  // cells of the last pass
	twice     bool // a series stood on two lines of the last pass
	cellsEver uint32
	edits     []edit // of the last pass that kept every line's series
	touched   []*cell
	changed   []record.Changed
}

// edit is a line that has another value than before.
type edit struct {
	line  int
	grown int // by so many bytes
	value float64
}

// line is where a sample stands in body.
type line struct {
	from, to int
	cell     *cell // nil for a comment
	value    float64
}

// cell is one series.
type cell struct {
	series string
	pass   uint32  // last pass that had it
	value  float64 // of that pass
	said   float64 // what was last reported; NaN for nothing
	at     int     // index of its line
	number uint32  // among all series that the endpoint ever had
}

// change is what one scrape brought.
type change struct {
	values   []record.Changed // valid until the next one
	families map[string]record.Family
}

// update reads the next body and returns what changed. An error leaves the page as it was
// reported before, so that the next difference is right. Values that are not finite, or beyond
// maxValue, are no values. The page keeps body.
func (p *page) update(body []byte) (*change, error) {
	if p.cells == nil {
		p.cells, p.families, p.changed = map[string]*cell{}, map[string]record.Family{}, []record.Changed{}
	}
	p.changed, p.touched, p.news = p.changed[:0], p.touched[:0], nil
	if p.inPlace(body) {
		return &change{values: p.changed}, nil
	}
	p.pass++
	now := p.spare[:0]
	prev, pi := p.lines, 0
	seen, twice := 0, false
	for from, n := 0, 1; from < len(body); n++ {
		if n%yieldLines == 0 {
			runtime.Gosched()
		}
		to := len(body)
		if i := bytes.IndexByte(body[from:], '\n'); i >= 0 {
			to = from + i
		}
		text := body[from:to]
		l := line{from: from, to: to}
		if pi < len(prev) && bytes.Equal(text, p.body[prev[pi].from:prev[pi].to]) {
			l.cell, l.value = prev[pi].cell, prev[pi].value
			pi++
		} else if err := p.parse(text, &l, prev, &pi); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		} else if l.cell != nil {
			p.touched = append(p.touched, l.cell)
		}
		if l.cell != nil {
			if l.cell.pass != p.pass {
				l.cell.pass = p.pass
				seen++
			} else {
				twice = true
			}
			l.cell.value, l.cell.at = l.value, len(now)
		}
		now = append(now, l)
		from = to + 1
	}
	if len(body) > 0 && body[len(body)-1] != '\n' && !bytes.HasSuffix(body, []byte("# EOF")) {
		return nil, errors.New("the answer ends in the middle of a line")
	}
	for _, t := range p.touched {
		p.report(t)
	}
	if seen != p.live || len(p.cells) != seen || twice || p.twice { // of two lines of a series the last one counts, touched or not
		for name, t := range p.cells {
			if t.pass == p.pass {
				p.report(t)
				continue
			}
			t.value = math.NaN()
			p.report(t)
			delete(p.cells, name)
		}
	}
	p.live, p.twice = seen, twice
	p.body, p.lines, p.spare = body, now, prev
	maps.Copy(p.families, p.news)
	return &change{values: p.changed, families: p.news}, nil
}

// inPlace reads a body that has the lines of the one before, some with another value, as almost all have. It
// goes from one difference to the next and does nothing for what is between them. Where there is
// any other difference, or an error, it has changed nothing and is false.
func (p *page) inPlace(body []byte) bool {
	old := p.body
	if p.twice || len(p.cells) != p.live || len(body) == 0 || len(old) == 0 || body[len(body)-1] != '\n' || old[len(old)-1] != '\n' {
		return false
	}
	p.edits = p.edits[:0]
	moved, yield := 0, 0 // by how much lines stand behind where they stood
	for i, from := 0, 0; ; {
		was := from - moved
		n := common(body[from:], old[was:])
		for i < len(p.lines) && p.lines[i].to < was+n {
			i++ // its end, the byte behind it, is the same too
		}
		if i == len(p.lines) {
			if from+n != len(body) {
				return false // lines are new
			}
			break
		}
		if was+n == len(old) || from+n == len(body) {
			return false // lines are missing
		}
		l := &p.lines[i]
		begin := l.from + moved
		text := body[begin:]
		text = text[:bytes.IndexByte(text, '\n')]
		if l.cell == nil {
			return false
		}
		s := l.cell.series
		if len(text) <= len(s) || text[len(s)] != ' ' || string(text[:len(s)]) != s {
			return false
		}
		v, err := value(bytes.TrimSpace(text[len(s):]))
		if err != nil {
			return false
		}
		grown := len(text) - (l.to - l.from)
		p.edits = append(p.edits, edit{i, grown, v})
		moved += grown
		from = begin + len(text) + 1
		i++
		if from == len(body) || from-moved == len(old) {
			if from != len(body) || from-moved != len(old) {
				return false
			}
			break
		}
		if len(p.edits)/yieldLines != yield {
			yield = len(p.edits) / yieldLines
			runtime.Gosched()
		}
	}
	by, next := 0, 0
	for _, e := range p.edits {
		if by != 0 {
			for i := next; i < e.line; i++ {
				p.lines[i].from += by
				p.lines[i].to += by
			}
		}
		l := &p.lines[e.line]
		l.from += by
		by += e.grown
		l.to += by
		next = e.line + 1
		l.value, l.cell.value = e.value, e.value
		p.report(l.cell)
	}
	if by != 0 {
		for i := next; i < len(p.lines); i++ {
			p.lines[i].from += by
			p.lines[i].to += by
		}
	}
	p.body = body
	return true
}

// common is how many bytes are the same at the beginning of two texts.
func common(a, b []byte) int {
	const step = 256
	n, top := 0, min(len(a), len(b))
	for n+step <= top && bytes.Equal(a[n:n+step], b[n:n+step]) {
		n += step
	}
	for n+8 <= top && binary.LittleEndian.Uint64(a[n:]) == binary.LittleEndian.Uint64(b[n:]) {
		n += 8
	}
	for n < top && a[n] == b[n] {
		n++
	}
	return n
}

// report notes a cell's value when it is another than before.
func (p *page) report(t *cell) {
	v := t.value
	if !(math.Abs(v) <= maxValue) {
		v = math.NaN()
	}
	if v == t.said || math.IsNaN(v) && math.IsNaN(t.said) {
		return
	}
	t.said = v
	p.changed = append(p.changed, record.Changed{Number: t.number, Series: t.series, Value: v})
}

// parse reads one line. It moves pi behind the line of the page before that has the same series.
func (p *page) parse(text []byte, l *line, prev []line, pi *int) error {
	text = bytes.TrimSpace(text)
	if len(text) == 0 {
		return nil
	}
	if text[0] == '#' {
		p.comment(string(text))
		return nil
	}
	// Most often only the value is new.
	if *pi < len(prev) && prev[*pi].cell != nil {
		s := prev[*pi].cell.series
		if len(text) > len(s) && text[len(s)] == ' ' && string(text[:len(s)]) == s {
			v, err := value(text[len(s):])
			l.cell, l.value = prev[*pi].cell, v
			*pi++
			return err
		}
	}
	series, rest, err := cutSeries(text)
	if err != nil {
		return err
	}
	if l.value, err = value(rest); err != nil {
		return err
	}
	t := p.cells[string(series)]
	if t == nil {
		if len(p.cells) >= maxSeries {
			return fmt.Errorf("more than %d series", maxSeries)
		}
		t = &cell{series: string(series), said: math.NaN(), at: -1, number: p.cellsEver}
		p.cellsEver++
		p.cells[t.series] = t
	} else if t.at >= *pi && t.at < len(prev) && prev[t.at].cell == t {
		*pi = t.at + 1
	}
	l.cell = t
	return nil
}

// value reads the value before an optional timestamp and exemplar.
func value(rest []byte) (float64, error) {
	rest = bytes.TrimLeft(rest, " \t")
	word := rest
	if i := bytes.IndexAny(rest, " \t"); i >= 0 {
		word = rest[:i]
	}
	v, err := strconv.ParseFloat(string(word), 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		return 0, fmt.Errorf("%.60q is no number", word)
	}
	return v, nil
}

// cutSeries splits a sample's line behind its series and brings the series into one form:
// name{a="b",c="d"} without spaces and without an empty set of labels.
func cutSeries(text []byte) (series, rest []byte, err error) {
	i := 0
	for i < len(text) && nameByte(text[i], i == 0) {
		i++
	}
	if i == 0 {
		return nil, nil, fmt.Errorf("%.60q does not begin with the name of a metric", text)
	}
	name := text[:i]
	rest = bytes.TrimLeft(text[i:], " \t")
	if len(rest) == 0 || rest[0] != '{' {
		if len(rest) == len(text)-i {
			return nil, nil, fmt.Errorf("%.60q has no value", text)
		}
		return name, rest, nil
	}
	series = append(bytes.Clone(name), '{')
	rest = rest[1:]
	for n := 0; ; n++ {
		rest = bytes.TrimLeft(rest, " \t,")
		if len(rest) == 0 {
			return nil, nil, fmt.Errorf("%.60q: its labels have no end", text)
		}
		if rest[0] == '}' {
			if n == 0 {
				return name, rest[1:], nil
			}
			return append(series, '}'), rest[1:], nil
		}
		k := 0
		for k < len(rest) && nameByte(rest[k], k == 0) && rest[k] != ':' {
			k++
		}
		key := rest[:k]
		after := bytes.TrimLeft(rest[k:], " \t")
		if k == 0 || len(after) == 0 || after[0] != '=' {
			return nil, nil, fmt.Errorf("%.60q: a label is not NAME=\"VALUE\"", text)
		}
		after = bytes.TrimLeft(after[1:], " \t")
		end := quoted(after)
		if end < 0 {
			return nil, nil, fmt.Errorf("%.60q: the value of label %s is not in quotes", text, key)
		}
		if n > 0 {
			series = append(series, ',')
		}
		series = append(append(append(series, key...), '='), after[:end]...)
		rest = after[end:]
	}
}

// quoted is the length of the quoted text that b begins with, -1 when it begins with none.
func quoted(b []byte) int {
	if len(b) == 0 || b[0] != '"' {
		return -1
	}
	for i := 1; i < len(b); i++ {
		switch b[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return -1
}

func nameByte(b byte, first bool) bool {
	return b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b == '_' || b == ':' || !first && b >= '0' && b <= '9'
}

// comment takes what # HELP, # TYPE and # UNIT say.
func (p *page) comment(text string) {
	kind, rest, _ := strings.Cut(strings.TrimLeft(text[1:], " "), " ")
	name, what, _ := strings.Cut(strings.TrimLeft(rest, " "), " ")
	if name == "" {
		return
	}
	f, ok := p.news[name]
	if !ok {
		f = p.families[name]
	}
	old := f
	switch kind {
	case "HELP":
		f.Help = what
	case "TYPE":
		if f.Type = strings.TrimSpace(what); f.Type == "untyped" {
			f.Type = "unknown"
		}
	case "UNIT":
		f.Unit = strings.TrimSpace(what)
	default:
		return
	}
	if f != old {
		if p.news == nil {
			p.news = map[string]record.Family{}
		}
		p.news[name] = f
	}
}
