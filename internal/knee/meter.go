package knee

import (
	"cmp"
	"slices"
	"strings"

	"github.com/weirbench/weir/internal/corpus"
	"github.com/weirbench/weir/internal/prompt"
	"github.com/weirbench/weir/internal/record"
	"github.com/weirbench/weir/internal/replay"
)

// A Meter finds out, from the records of a run, what LRU caches would have found of the very
// schedule that was sent, in the order in which it was sent. The zero value is not usable.
type Meter struct {
	corpus *corpus.Corpus
	shared func(t *corpus.Trace, stream, turn int) int
	traces map[string]*corpus.Trace
	sent   []replay.Request
}

// NewMeter makes a meter for the records of a run over a corpus, whose salts stand at a place.
func NewMeter(c *corpus.Corpus, salt prompt.Placement) *Meter {
	m := &Meter{corpus: c, shared: replay.SharedBlocks(salt), traces: map[string]*corpus.Trace{}}
	for _, t := range c.Traces {
		m.traces[t.ID] = t
	}
	return m
}

// Add takes the record of one request, in any order. Records of other corpora are passed over.
func (m *Meter) Add(r *record.Request) {
	t := m.traces[r.Trace]
	if t == nil || r.Times.Queued == record.Never {
		return
	}
	stream := slices.IndexFunc(t.Streams, func(s corpus.Stream) bool { return s.ID == r.Stream })
	if stream < 0 || r.Turn < 0 || r.Turn >= len(t.Streams[stream].Turns) {
		return
	}
	m.sent = append(m.sent, replay.Request{
		Seq: r.Seq, Phase: r.Phase, Tree: strings.Clone(r.Tree), Trace: t, Stream: stream, Turn: r.Turn,
		Queued: r.Times.Queued, Shared: m.shared(t, stream, r.Turn),
	})
}

// Curve is the hit rate of the run's profiling requests for every capacity; ok is false when
// the corpus knows no blocks or nothing was sent.
func (m *Meter) Curve() (c *Curve, ok bool) {
	for _, t := range m.corpus.Traces {
		if t.LengthsOnly || t.BlockSize <= 0 {
			return nil, false
		}
	}
	slices.SortFunc(m.sent, func(a, b replay.Request) int { return cmp.Compare(a.Seq, b.Seq) })
	s := newStack(m.corpus)
	c = &Curve{unit: s.unit}
	for i := range m.sent {
		q := &m.sent[i]
		counts := q.Phase == record.Profiling
		found := s.touch(q, q.Queued, counts, func(int64, int64) {})
		if counts {
			c.Requests++
			c.PromptTokens += q.Trace.Streams[q.Stream].Turns[q.Turn].In
			c.CeilingTokens += found
		}
	}
	c.hits, c.DistinctTokens = s.hits(), s.group.total*s.unit
	return c, c.PromptTokens > 0
}
