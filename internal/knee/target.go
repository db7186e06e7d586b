package knee

import (
	"cmp"
	"maps"
	"slices"

	"github.com/weirbench/weir/internal/record"
	"github.com/weirbench/weir/internal/replay"
)

// target answers after the service time and watches what the cache would do.
type target struct {
	service Service
	stack   *stack
	sink    func(*record.Request)
	flying  []flying // a heap by end, then Seq
	now     int64

	sent     int64 // warm-up included
	progress func(sent, nowNs int64)

	requests, prompt, ceiling int64
	spans                     []span
	last                      map[conversation]replay.Request // newest prompt of each conversation
}

type conversation struct {
	tree   string
	stream int
}

// span says that tokens were held over a time.
type span struct{ from, to, tokens int64 }

type flying struct {
	end int64
	q   replay.Request
}

func (a *flying) before(b *flying) bool {
	return a.end < b.end || a.end == b.end && a.q.Seq < b.q.Seq
}

func (t *target) Start(sink func(*record.Request)) { t.sink = sink }

func (t *target) Send(q replay.Request) {
	if t.sent++; t.progress != nil && t.sent%progressEvery == 0 {
		t.progress(t.sent, q.Queued)
	}
	counts := q.Phase == record.Profiling
	found := t.stack.touch(&q, q.Queued, counts, func(since, tokens int64) {
		t.spans = append(t.spans, span{since, q.Queued, tokens})
	})
	t.last[conversation{q.Tree, q.Stream}] = q
	if counts {
		t.requests++
		t.prompt += q.Trace.Streams[q.Stream].Turns[q.Turn].In
		t.ceiling += found
	}
	t.push(flying{q.Queued + t.service.Time(&q), q})
}

func (t *target) push(f flying) {
	h := append(t.flying, f)
	for i := len(h) - 1; i > 0 && h[i].before(&h[(i-1)/2]); i = (i - 1) / 2 {
		h[i], h[(i-1)/2] = h[(i-1)/2], h[i]
	}
	t.flying = h
}

func (t *target) pop() flying {
	h := t.flying
	top, n := h[0], len(h)-1
	h[0] = h[n]
	h = h[:n]
	for i := 0; ; {
		c := 2*i + 1
		if c >= n {
			break
		}
		if c+1 < n && h[c+1].before(&h[c]) {
			c++
		}
		if !h[c].before(&h[i]) {
			break
		}
		h[i], h[c] = h[c], h[i]
		i = c
	}
	t.flying = h
	return top
}

func (t *target) Next() (int64, bool) {
	if len(t.flying) == 0 {
		return 0, false
	}
	return t.flying[0].end, true
}

func (t *target) Advance(now int64) {
	t.now = now
	for len(t.flying) > 0 && t.flying[0].end <= now {
		f := t.pop()
		t.answer(&f.q, f.end, nil)
	}
}

func (t *target) answer(q *replay.Request, end int64, why *record.Failure) {
	r := replay.NewRecord(q)
	r.Times.End, r.Failure = end, why
	t.sink(r)
}

// Cancel ends everything in flight at once: the outcomes count for nothing here.
func (t *target) Cancel() {
	for len(t.flying) > 0 {
		f := t.pop()
		t.answer(&f.q, t.now, &record.Failure{Class: record.FailCancelled})
	}
}

func (t *target) curve(lanes int, n replay.Counts) *Curve {
	c := &Curve{
		Concurrency: lanes, Requests: t.requests, PromptTokens: t.prompt, CeilingTokens: t.ceiling,
		unit: t.stack.unit, hits: t.stack.hits(), DistinctTokens: t.stack.group.total * t.stack.unit,
	}
	if t.requests == 0 || n.ProfilingEnd <= n.ProfilingStart {
		return c
	}
	length := n.ProfilingEnd - n.ProfilingStart
	// What conversations that go on will send again is held beyond the end.
	newest := slices.SortedFunc(maps.Values(t.last), func(a, b replay.Request) int { return cmp.Compare(a.Seq, b.Seq) })
	for _, q := range newest {
		turns := q.Trace.Streams[q.Stream].Turns
		if q.Turn+1 < len(turns) && len(turns[q.Turn].Blocks) > 0 && len(turns[q.Turn+1].Blocks) > 0 {
			t.stack.expect(&q, alike(turns[q.Turn].Blocks, turns[q.Turn+1].Blocks), func(since, tokens int64) {
				t.spans = append(t.spans, span{since, n.ProfilingEnd, tokens})
			})
		}
	}
	c.StepNs = max(length/steps, 1)
	area := make([]float64, steps) // token nanoseconds
	total := 0.0
	for _, s := range t.spans {
		from, to := max(s.from-n.ProfilingStart, 0), min(s.to-n.ProfilingStart, length)
		if from >= to {
			continue
		}
		total += float64(to-from) * float64(s.tokens)
		for i := min(from/c.StepNs, steps-1); i < steps && i*c.StepNs < to; i++ {
			end := (i + 1) * c.StepNs
			if i == steps-1 {
				end = length
			}
			area[i] += float64(min(to, end)-max(from, i*c.StepNs)) * float64(s.tokens)
		}
	}
	c.WorkingSetTokens = int64(total / float64(length))
	for i, a := range area {
		step := c.StepNs
		if i == steps-1 {
			step = length - int64(steps-1)*c.StepNs
		}
		c.WorkingSet = append(c.WorkingSet, int64(a/float64(step)))
		c.WorkingSetPeak = max(c.WorkingSetPeak, c.WorkingSet[i])
	}
	return c
}
