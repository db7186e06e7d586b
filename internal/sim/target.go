package sim

import (
	"fmt"
	"sort"

	"github.com/weirbench/weir/internal/record"
	"github.com/weirbench/weir/internal/replay"
)

// Engine is a simulated engine as a target in virtual time. It is not safe for concurrent
// use; the sink is called from Advance only.
type Engine struct {
	c    Config
	g    *group
	keys *keyer
	sink func(*record.Request)
	now  int64
	next int // rank of the next request when nothing keeps it anywhere

	records map[*job]*record.Request
	refused []*record.Request // outcomes that are due at once
}

var _ replay.VirtualTarget = (*Engine)(nil)

// New makes an engine. It fails when facts that the model needs are unknown or sizes do not
// fit together; the error says which.
func New(c Config) (*Engine, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	e := &Engine{c: c, keys: newKeyer(), records: map[*job]*record.Request{}}
	if e.g, err = newGroup(&e.c); err != nil {
		return nil, err
	}
	return e, nil
}

// Start implements replay.Target.
func (e *Engine) Start(sink func(*record.Request)) { e.sink = sink }

// Send implements replay.Target. The request is sent at the time of the last Advance or, when
// that is later, of its own Queued.
func (e *Engine) Send(q replay.Request) {
	r := replay.NewRecord(&q)
	r.Model = e.c.ModelName
	at := max(e.now, q.Queued)
	r.Times.Sent, r.Times.Headers = at, at
	t := &q.Trace.Streams[q.Stream].Turns[q.Turn]
	j := &job{
		id: q.Seq, prompt: t.In, maxOut: q.MaxOut, first: record.Never, own: q.Seq, fill: t.In,
		session: e.keys.tree(q.Tree),
	}
	if f := e.refusal(j); f != nil {
		e.refuse(r, f)
		return
	}
	j.keys = e.keys.pages(&q, e.c.PageSize)
	e.records[j] = r
	rank := 0
	if n := len(e.g.ranks); n > 1 { // sessions stay on their rank
		rank = int(mix(j.session, 0) % uint64(n))
	}
	co := e.c.Coefficients
	e.g.submit(at+int64(co.RequestNs)+int64(co.PromptTokenNs*float64(t.In)), rank, j)
}

// refusal says why a job cannot be served at all.
func (e *Engine) refusal(j *job) *record.Failure {
	switch {
	case j.prompt < 1 || j.maxOut < 1:
		return &record.Failure{Class: record.FailStatus, Status: 400,
			Detail: fmt.Sprintf("a request of %d prompt tokens and %d output tokens: both must be at least 1", j.prompt, j.maxOut)}
	case j.prompt+j.maxOut > e.c.ContextLen:
		return &record.Failure{Class: record.FailContextOverflow, Status: 400,
			Detail: fmt.Sprintf("%d prompt tokens and %d output tokens exceed the model's maximum context length of %d tokens", j.prompt, j.maxOut, e.c.ContextLen)}
	case !e.g.ranks[0].fits(j):
		return &record.Failure{Class: record.FailStatus, Status: 400,
			Detail: fmt.Sprintf("%d prompt tokens and %d output tokens do not fit a pool of %d tokens", j.prompt, j.maxOut, e.c.DeviceTokens)}
	}
	return nil
}

func (e *Engine) refuse(r *record.Request, f *record.Failure) {
	r.Failure = f
	r.Times.End = r.Times.Sent
	e.refused = append(e.refused, r)
}

// Cancel implements replay.Target.
func (e *Engine) Cancel() {
	why := &record.Failure{Class: record.FailCancelled, Detail: "cancelled"}
	g := e.g
	for _, a := range g.arrivals {
		a.j.failure = why
		g.done = append(g.done, a.j)
	}
	g.arrivals = nil
	for _, r := range g.ranks {
		r.cancel(why)
		g.collect(r)
	}
	g.busy = false
}

// Next implements replay.VirtualTarget.
func (e *Engine) Next() (int64, bool) {
	if len(e.refused) > 0 {
		return e.now, true
	}
	return e.g.next()
}

// Advance implements replay.VirtualTarget.
func (e *Engine) Advance(t int64) {
	e.now = max(e.now, t)
	out := e.refused
	e.refused = nil
	for {
		e.g.advance(t)
		ended := e.g.take()
		if len(ended) == 0 {
			break
		}
		for _, j := range ended {
			out = append(out, e.close(j))
		}
	}
	sort.Slice(out, func(i, k int) bool {
		a, b := out[i], out[k]
		return a.Times.End < b.Times.End || a.Times.End == b.Times.End && a.Seq < b.Seq
	})
	for _, r := range out {
		e.sink(r)
	}
}

// close fills in what was measured of a job that ended now.
func (e *Engine) close(j *job) *record.Request {
	r := e.records[j]
	delete(e.records, j)
	r.Times.End = max(e.g.now, r.Times.Sent)
	r.Failure = j.failure
	if j.first >= 0 {
		r.Times.FirstToken, r.Times.FirstVisible = j.first, j.first
		r.Times.LastToken = r.Times.End
	}
	if j.failure == nil {
		r.PromptTokens, r.OutputTokens, r.ReasoningTokens = j.prompt, j.out, 0
		r.Hits = j.hits
	}
	return r
}
