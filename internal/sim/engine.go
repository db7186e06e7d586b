package sim

import (
	"container/heap"
	"sort"

	"github.com/weirbench/weir/internal/record"
)

// group is one engine: ranks that step together. Plain TP is one rank, because ranks that
// share every sequence hold the same tokens and decide the same; under DP attention each rank
// has its own requests and cache, and a step ends when the slowest rank's does.
type group struct {
	c     *Config
	model *stepModel
	ranks []*scheduler
	loads []load

	arrivals arrivals // requests that are not yet in a queue
	now      int64

	busy   bool  // a step is under way
	begin  int64 // when its first decode step began, behind the waits
	each   int64 // nanoseconds of a decode step, or of the whole prefill step
	steps  int64 // decode steps, 1 for a prefill step
	decode bool

	done []*job // ended and not yet reported
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

func newGroup(c *Config) (*group, error) {
	m, err := newStepModel(c)
	if err != nil {
		return nil, err
	}
	policy, err := parsePolicy(c.WritePolicy)
	if err != nil {
		return nil, err
	}
	n := 1
	if c.Parallel.DPAttn {
		n = c.Parallel.TP
	}
	g := &group{c: c, model: m, loads: make([]load, n)}
	for range n {
		cache := newRadix(c.PageSize, c.DeviceTokens, c.HostTokens, policy)
		cache.copyTime = m.hostCopy
		g.ranks = append(g.ranks, newScheduler(c, cache, m.caps))
	}
	return g, nil
}

// submit sends a job to a rank; it reaches the queue at the given time.
func (g *group) submit(at int64, rank int, j *job) {
	heap.Push(&g.arrivals, arrival{at, rank, j})
	g.cut(at)
}

// cut ends a run of decode steps at the first step boundary at or after t, because a request
// that arrives then comes before the next decode step.
func (g *group) cut(t int64) {
	if !g.busy || !g.decode || g.steps == 1 {
		return
	}
	n := int64(1)
	if t > g.begin {
		n = (t - g.begin + g.each - 1) / g.each
	}
	g.steps = min(g.steps, max(1, n))
}

func (g *group) stepEnd() int64 { return g.begin + g.each*g.steps }

// next is when something happens next.
func (g *group) next() (int64, bool) {
	if len(g.done) > 0 {
		return g.now, true
	}
	if g.busy {
		return g.stepEnd(), true
	}
	t, ok := int64(0), false
	if len(g.arrivals) > 0 {
		t, ok = g.arrivals[0].at, true
	}
	for _, r := range g.ranks { // a queue may wait for a copy to end
		if w, pending := r.cache.nextWrite(); pending && r.busy() && (!ok || w < t) {
			t, ok = w, true
		}
	}
	return max(t, g.now), ok
}

// advance moves to t, ending and beginning steps on the way.
func (g *group) advance(t int64) {
	for len(g.done) == 0 { // the caller takes what ended before time goes on
		e, ok := g.next()
		if !ok || e > t {
			g.now = max(g.now, t)
			return
		}
		g.now = e
		if g.busy && e == g.stepEnd() {
			g.endStep()
		}
		if !g.busy {
			g.beginStep()
		}
	}
}

func (g *group) endStep() {
	g.busy = false
	for _, r := range g.ranks {
		steps := int64(0)
		if g.decode && r.step.steps > 0 {
			steps = g.steps
		} else if !g.decode && r.step.steps > 0 {
			steps = 1
		}
		r.finish(g.now, steps)
		g.collect(r)
	}
}

func (g *group) collect(r *scheduler) {
	g.done = append(g.done, r.ended...)
	clear(r.ended)
	r.ended = r.ended[:0]
}

// beginStep lets every rank plan and starts the step that follows.
func (g *group) beginStep() {
	for len(g.arrivals) > 0 && g.arrivals[0].at <= g.now {
		a := heap.Pop(&g.arrivals).(arrival)
		a.j.arrived = a.at
		r := g.ranks[a.rank]
		r.waiting = append(r.waiting, a.j)
	}
	var staged, loaded int64
	steps := int64(maxJump)
	any, prefill := false, false
	for i, r := range g.ranks {
		p := r.next(g.now)
		if r.busy() && len(p.prefill) == 0 && p.steps == 0 {
			if _, pending := r.cache.nextWrite(); !pending && len(r.ended) == 0 {
				r.giveUp()
			}
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
}

// giveUp fails the request that can never go on: nothing runs and nothing is on its way that
// would make room for it.
func (s *scheduler) giveUp() {
	j := s.chunked
	if j != nil {
		s.chunked = nil
	} else {
		j = s.waiting[0]
		s.waiting = append(s.waiting[:0], s.waiting[1:]...)
	}
	s.release(j)
	j.failure = &record.Failure{Class: record.FailStatus, Status: 500, Detail: "the pool cannot hold this request"}
	s.ended = append(s.ended, j)
}

// take returns what ended, in the order in which it came.
func (g *group) take() []*job {
	d := g.done
	g.done = nil
	sort.Slice(d, func(i, k int) bool { return d[i].id < d[k].id })
	return d
}
