package aiperf

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
)

// A metric is one metric of one request: a number, a whole one, or a list.
type metric struct {
	tag, unit string
	v         float64 // of a list 0
	whole     bool    // v is n
	n         int64
	list      []float64
}

// measured are the metrics of one request, in order of their tags once it was measured.
type measured []metric

func (m *measured) add(tag, unit string, v float64) {
	*m = append(*m, metric{tag: tag, unit: unit, v: v})
}

func (m *measured) count(tag, unit string, n int64) {
	*m = append(*m, metric{tag: tag, unit: unit, v: float64(n), whole: true, n: n})
}

func (m measured) sort() {
	slices.SortFunc(m, func(a, b metric) int { return strings.Compare(a.tag, b.tag) })
}

// get finds a metric; nil for one that is not there.
func (m measured) get(tag string) *metric {
	if i, ok := slices.BinarySearchFunc(m, tag, func(x metric, tag string) int { return strings.Compare(x.tag, tag) }); ok {
		return &m[i]
	}
	return nil
}

// row is one line of profile_export.jsonl.
type row struct {
	metadata metadata
	metrics  measured
	err      *rowError
}

// append writes the line: what encoding/json would write of an object with metadata, metrics by
// their tags with value and unit, and the error unless there is none. The metrics, of which a request
// has some forty and a list of all its gaps, are written directly.
func (r *row) append(b []byte) ([]byte, error) {
	raw, err := json.Marshal(&r.metadata)
	if err != nil {
		return b, err
	}
	b = append(append(append(b, `{"metadata":`...), raw...), `,"metrics":{`...)
	for i := range r.metrics {
		m := &r.metrics[i]
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(append(b, '"'), m.tag...), `":{"value":`...)
		switch {
		case m.list != nil:
			b = append(b, '[')
			for i, v := range m.list {
				if i > 0 {
					b = append(b, ',')
				}
				b, err = appendNumber(b, v, err)
			}
			b = append(b, ']')
		case m.whole:
			b = strconv.AppendInt(b, m.n, 10)
		default:
			b, err = appendNumber(b, m.v, err)
		}
		b = append(append(append(b, `,"unit":"`...), m.unit...), `"}`...)
	}
	b = append(b, '}')
	if r.err != nil {
		raw, err := json.Marshal(r.err)
		if err != nil {
			return b, err
		}
		b = append(append(b, `,"error":`...), raw...)
	}
	return append(b, "}\n"...), err
}
