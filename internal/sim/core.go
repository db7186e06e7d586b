package sim

import (
	"container/heap"
	"fmt"

	"github.com/weirbench/weir/internal/record"
)

// A Task is one request for a Core.
type Task struct {
	ID     uint64 // unique; also the order among tasks that arrive at the same time
	Prompt int64  // tokens
	MaxOut int64  // tokens to generate; the task ends when they are there
	// Pages are the identities of the prompt's full pages: equal identities behind equal
	// prefixes are equal tokens. The Core keeps the slice and may append to it.
	Pages []uint64
	// Output gives the identity of a page that holds output tokens, by its index; nil makes
	// such pages the task's own.
	Output func(page int) uint64
	// Session is what a DP engine keeps on one rank.
	Session uint64
}

// EventKind says what happened to a task.
type EventKind uint8

const (
	Tokens    EventKind = iota // tokens came out; the first of them when Event.First is set
	Ended                      // the task is over; of a prefill engine: its KV has been sent
	Prefilled                  // a prefill engine has the first token and sends the last KV
	Granted                    // a decode engine has room for the task
)

// An Event is something that happened to a task.
type Event struct {
	Kind    EventKind
	ID      uint64
	At      int64 // nanoseconds
	Tokens  int64 // in this event; of an Ended one, all that were generated
	First   bool
	Hits    record.Hits
	Failure *record.Failure // of an Ended task that failed
}

// Core is one simulated engine without a clock: time is what Advance says. Its ranks step
// together: plain TP is one rank, because ranks that share every sequence hold the same tokens
// and decide the same; under DP attention each rank has its own requests and cache, and a step
// ends when the slowest rank's does. It is not safe for concurrent use.
type Core struct {
	c     Config
	model *stepModel
	ranks []scheduler
	loads []load
	turn  int // round robin over ranks

	arrivals arrivals // tasks on their way to a queue
	now      int64

	busy   bool  // a step is under way
	begin  int64 // when its first decode step began, behind the waits
	each   int64 // nanoseconds of a decode step, or of the whole prefill step
	steps  int64 // decode steps, 1 for a prefill step
	decode bool

	transfers transfers
	granted   map[uint64]bool // grants for tasks that have not come yet
	kick      bool            // something changed that may let a step begin

	events []Event
	count  Stats // of steps, for all ranks
}

// An arrival is a job on its way into a rank's queue.
type arrival struct {
	at   int64
	rank int
	j    *job
}

type arrivals []arrival

func (a arrivals) Len() int { return len(a) }
func (a arrivals) Less(i, k int) bool {
	return a[i].at < a[k].at || a[i].at == a[k].at && a[i].j.id < a[k].j.id
}
func (a arrivals) Swap(i, k int) { a[i], a[k] = a[k], a[i] }
func (a *arrivals) Push(x any)   { *a = append(*a, x.(arrival)) }
func (a *arrivals) Pop() any {
	old := *a
	x := old[len(old)-1]
	old[len(old)-1] = arrival{}
	*a = old[:len(old)-1]
	return x
}

// NewCore makes an idle engine at time 0. It fails when facts that the model needs are unknown
// or sizes do not fit together; the error says which.
func NewCore(c Config) (*Core, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	m, err := newStepModel(&c)
	if err != nil {
		return nil, fmt.Errorf("sim: %w", err)
	}
	n := c.Ranks()
	g := &Core{c: c, model: m, loads: make([]load, n), granted: map[uint64]bool{}}
	for range n {
		r, err := newScheduler(&g.c, m)
		if err != nil {
			return nil, err
		}
		g.ranks = append(g.ranks, r)
	}
	return g, nil
}

func newScheduler(c *Config, m *stepModel) (scheduler, error) {
	if c.Engine == "vllm" {
		return newVLLM(c, m), nil
	}
	policy, err := parsePolicy(c.WritePolicy)
	if err != nil {
		return nil, err
	}
	cache := newRadix(c.PageSize, c.DeviceTokens, c.HostTokens, policy)
	cache.copyTime, cache.keepDoubles = m.hostCopy, c.KeepDoubles
	if c.StorageTokens > 0 {
		perToken := float64(c.KVBytesPerToken) * 1e9 / float64(c.StorageBandwidth)
		o := newOffload(c.StorageTokens, c.PageSize, func(tokens int64) int64 { return int64(float64(tokens) * perToken) })
		cache.storage = &storageTier{offload: o, policy: c.PrefetchPolicy}
	}
	return newSGLang(c, cache, m.caps), nil
}

// Config is the configuration with its defaults filled in.
func (g *Core) Config() Config { return g.c }

// Refusal says why a task cannot be served at all, nil when it can.
func (g *Core) Refusal(prompt, maxOut int64) *record.Failure {
	if f := refuse(prompt, maxOut, g.c.ContextLen); f != nil {
		return f
	}
	if !g.ranks[0].fits(prompt, maxOut) {
		return &record.Failure{Class: record.FailStatus, Status: 400,
			Detail: fmt.Sprintf("%d prompt tokens and %d output tokens do not fit a pool of %d tokens", prompt, maxOut, g.c.DeviceTokens)}
	}
	return nil
}

func refuse(prompt, maxOut, contextLen int64) *record.Failure {
	if prompt < 1 || maxOut < 1 {
		return &record.Failure{Class: record.FailStatus, Status: 400,
			Detail: fmt.Sprintf("a request of %d prompt tokens and %d output tokens: both must be at least 1", prompt, maxOut)}
	}
	if prompt > contextLen-maxOut {
		return &record.Failure{Class: record.FailContextOverflow, Status: 400,
			Detail: fmt.Sprintf("%d prompt tokens and %d output tokens exceed the model's maximum context length of %d tokens", prompt, maxOut, contextLen)}
	}
	return nil
}

// Submit sends a task that Refusal accepts; it is received at the given time, which must not
// lie before the last Advance, and queued when it has been tokenized.
func (g *Core) Submit(at int64, t Task) {
	j := &job{
		id: t.ID, session: t.Session, prompt: t.Prompt, maxOut: t.MaxOut, fill: t.Prompt,
		keys: t.Pages, output: t.Output, own: t.ID, first: record.Never, hits: record.UnknownHits,
	}
	at += int64(g.c.Coefficients.RequestNs) + int64(g.c.Coefficients.PromptTokenNs*float64(t.Prompt))
	rank := 0
	if n := len(g.ranks); n > 1 {
		if g.c.Balance == "round_robin" {
			rank = g.turn % n
			g.turn++
		} else {
			rank = int(mix(t.Session, 0) % uint64(n))
		}
	}
	heap.Push(&g.arrivals, arrival{at, rank, j})
	g.cut(at)
}

// cut ends a run of decode steps at the first step boundary at or after t, because a request
// that arrives then comes before the next decode step.
func (g *Core) cut(t int64) {
	if !g.busy || !g.decode || g.steps == 1 {
		return
	}
	n := int64(1)
	if t > g.begin {
		n = (t - g.begin + g.each - 1) / g.each
	}
	g.steps = min(g.steps, max(1, n))
}

func (g *Core) stepEnd() int64 { return g.begin + g.each*g.steps }

// Next is when something happens next; ok is false when nothing will unless a task comes.
func (g *Core) Next() (t int64, ok bool) {
	if len(g.events) > 0 {
		return g.now, true
	}
	return g.nextStep()
}

// nextStep is when a step ends or could begin.
func (g *Core) nextStep() (t int64, ok bool) {
	if len(g.transfers) > 0 {
		t, ok = g.transfers[0].at, true
	}
	if g.busy {
		if end := g.stepEnd(); !ok || end < t {
			t = end
		}
		return t, true
	}
	if g.kick {
		return g.now, true
	}
	if len(g.arrivals) > 0 && (!ok || g.arrivals[0].at < t) {
		t, ok = g.arrivals[0].at, true
	}
	for _, r := range g.ranks { // a queue may wait for a copy to end
		if w, pending := r.wake(); pending && !r.empty() && (!ok || w < t) {
			t, ok = w, true
		}
	}
	return max(t, g.now), ok
}

// Advance moves to t, ending and beginning steps on the way, and returns what happened, in
// order of time.
func (g *Core) Advance(t int64) []Event {
	for {
		e, ok := g.nextStep()
		if !ok || e > t {
			break
		}
		g.now = e
		g.sent()
		if g.busy {
			if g.stepEnd() > e {
				continue
			}
			g.endStep()
		}
		g.kick = false
		g.beginStep()
	}
	g.now = max(g.now, t)
	out := g.events
	g.events = nil
	return out
}

func (g *Core) endStep() {
	g.busy = false
	g.count.Steps += g.steps
	if g.decode {
		g.count.DecodeNs += g.each * g.steps
	} else {
		g.count.PrefillNs += g.each
	}
	for i, r := range g.ranks {
		steps := int64(0)
		if r.planned().steps > 0 {
			steps = g.steps
		}
		r.finish(g.now, steps)
		if s, ok := r.(*sglang); ok && len(s.outgoing) > 0 {
			g.send(i, s)
		}
		g.collect(r)
	}
}

func (g *Core) collect(r scheduler) { g.events = append(g.events, r.take()...) }

// beginStep lets every rank plan and starts the step that follows.
func (g *Core) beginStep() {
	for len(g.arrivals) > 0 && g.arrivals[0].at <= g.now {
		a := heap.Pop(&g.arrivals).(arrival)
		a.j.arrived = a.at
		g.ranks[a.rank].enqueue(a.j)
		if g.granted[a.j.id] {
			delete(g.granted, a.j.id)
			g.Grant(a.j.id)
		}
	}
	var staged, loaded int64
	steps := int64(maxJump)
	if g.c.Stream {
		steps = 1
	}
	any, prefill := false, false
	for i, r := range g.ranks {
		p := r.next(g.now)
		for r.busy() && len(p.prefill) == 0 && p.steps == 0 {
			if _, pending := r.wake(); pending {
				break
			}
			r.giveUp()
			p = r.next(g.now)
		}
		g.collect(r)
		g.loads[i] = p.load
		staged, loaded = max(staged, p.staged), max(loaded, p.loaded)
		if len(p.prefill) > 0 {
			any, prefill = true, true
		}
		if p.steps > 0 {
			any = true
			steps = min(steps, p.steps)
		}
	}
	if !any {
		return
	}
	if prefill {
		steps = 1
	}
	g.busy, g.decode, g.steps = true, !prefill, steps
	g.begin = g.now + g.model.hostCopy(staged)
	g.each = g.model.time(g.loads)
	if prefill {
		g.each = g.model.overlapped(g.each, loaded)
	}
	if len(g.arrivals) > 0 {
		g.cut(g.arrivals[0].at)
	}
	for _, r := range g.ranks { // vLLM: a request whose blocks have come goes on at once
		if t, ok := r.wake(); ok && g.c.Engine == "vllm" {
			g.cut(t)
		}
	}
}

// Cancel ends one task wherever it is; nothing happens when it is unknown.
func (g *Core) Cancel(id uint64) {
	g.cancel(func(j *job) bool { return j.id == id })
}

// CancelAll ends every task.
func (g *Core) CancelAll() { g.cancel(func(*job) bool { return true }) }

func (g *Core) cancel(which func(*job) bool) {
	kept := g.arrivals[:0]
	for _, a := range g.arrivals {
		if which(a.j) {
			a.j.failure = cancelled()
			g.events = append(g.events, a.j.ended(g.now))
			continue
		}
		kept = append(kept, a)
	}
	clear(g.arrivals[len(kept):])
	g.arrivals = kept
	heap.Init(&g.arrivals)
	left := g.transfers[:0]
	for _, t := range g.transfers {
		if !which(t.j) {
			left = append(left, t)
		}
	}
	clear(g.transfers[len(left):])
	g.transfers = left
	heap.Init(&g.transfers)
	g.kick = true
	going := false
	for _, r := range g.ranks {
		r.cancel(g.now, which)
		g.collect(r)
		going = going || len(r.planned().prefill) > 0 || r.planned().steps > 0
	}
	if !going {
		g.busy = false
	}
}

func cancelled() *record.Failure {
	return &record.Failure{Class: record.FailCancelled, Detail: "cancelled"}
}

// Flush empties the caches when nothing runs or waits and reports whether it did.
func (g *Core) Flush() bool {
	for _, r := range g.ranks {
		if !r.empty() || len(g.arrivals) > 0 || g.busy {
			return false
		}
	}
	for _, r := range g.ranks {
		r.flush()
	}
	return true
}
