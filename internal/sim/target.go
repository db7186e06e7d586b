package sim

import (
	"sort"

	"github.com/weirbench/weir/internal/record"
	"github.com/weirbench/weir/internal/replay"
)

// Engine is a simulated engine as a target in virtual time. It is not safe for concurrent
// use; the sink is called from Advance only.
type Engine struct {
	core *Core
	keys *keyer
	sink func(*record.Request)
	now  int64

	open map[uint64]*record.Request // by Seq
	done []*record.Request          // outcomes that are due at once
}

var _ replay.VirtualTarget = (*Engine)(nil)

// New makes an engine. It fails when facts that the model needs are unknown or sizes do not
// fit together; the error says which.
func New(c Config) (*Engine, error) {
	core, err := NewCore(c)
	if err != nil {
		return nil, err
	}
	return &Engine{core: core, keys: newKeyer(), open: map[uint64]*record.Request{}}, nil
}

// Core is the engine behind the target.
func (e *Engine) Core() *Core { return e.core }

// Stats are the counts of its ranks, as those of the first of one engine.
func (e *Engine) Stats() [][]Stats { return [][]Stats{e.core.Stats()} }

// Start implements replay.Target.
func (e *Engine) Start(sink func(*record.Request)) { e.sink = sink }

// Send implements replay.Target. The request is sent at the time of the last Advance or, when
// that is later, of its own Queued.
func (e *Engine) Send(q replay.Request) {
	r := replay.NewRecord(&q)
	r.Model = e.core.c.ModelName
	at := max(e.now, q.Queued)
	r.Times.Sent, r.Times.Headers = at, at
	t := &q.Trace.Streams[q.Stream].Turns[q.Turn]
	if f := e.core.Refusal(t.In, q.MaxOut); f != nil {
		r.Failure = f
		r.Times.End = at
		e.done = append(e.done, r)
		return
	}
	e.open[q.Seq] = r
	e.core.Submit(at, Task{
		ID: q.Seq, Prompt: t.In, MaxOut: q.MaxOut,
		Pages: e.keys.pages(&q, e.core.c.PageSize), Session: e.keys.tree(q.Tree),
	})
}

// Cancel implements replay.Target.
func (e *Engine) Cancel() { e.core.CancelAll() }

// Next implements replay.VirtualTarget.
func (e *Engine) Next() (int64, bool) {
	if len(e.done) > 0 {
		return e.now, true
	}
	return e.core.Next()
}

// Advance implements replay.VirtualTarget.
func (e *Engine) Advance(t int64) {
	e.now = max(e.now, t)
	out := e.done
	e.done = nil
	for _, ev := range e.core.Advance(t) {
		r := e.open[ev.ID]
		if ev.Kind == Tokens {
			if ev.First {
				r.Times.FirstToken, r.Times.FirstVisible = ev.At, ev.At
			}
			r.Times.LastToken = ev.At
			continue
		}
		delete(e.open, ev.ID)
		r.Times.End = max(ev.At, r.Times.Sent)
		r.Failure = ev.Failure
		if ev.Failure == nil {
			r.Times.LastToken = ev.At
			r.PromptTokens, r.OutputTokens, r.ReasoningTokens = r.WantIn, ev.Tokens, 0
			r.Hits = ev.Hits
		}
		out = append(out, r)
	}
	sort.SliceStable(out, func(i, k int) bool {
		a, b := out[i], out[k]
		return a.Times.End < b.Times.End || a.Times.End == b.Times.End && a.Seq < b.Seq
	})
	for _, r := range out {
		e.sink(r)
	}
}
