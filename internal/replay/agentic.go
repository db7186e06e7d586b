package replay

import (
	"fmt"
	"math"
	"slices"

	"github.com/weirbench/weir/internal/corpus"
	"github.com/weirbench/weir/internal/prompt"
	"github.com/weirbench/weir/internal/record"
)

type stage uint8

const (
	primers stage = iota
	pressure
	profiling
	stopped
)

// agentic is the machine of agentic replay: lanes that hold one tree each, and one clock.
type agentic struct {
	s      *Scheduler
	c      *corpus.Corpus
	o      Options
	plans  map[*corpus.Trace]*plan
	shared map[*corpus.Trace]*blockSet // blocks before the salt, over all plays
	passes map[string]int              // salts minted, by trace
	draw   sampler
	trees  uint64 // started

	lanes   lanes
	stage   stage
	started bool
	now     int64  // of the call of due that runs
	timerN  uint64 // timers ever set
	pending int    // timers set and not fired
	shift   int64  // taken out of all timers by the system idle cap

	primersLeft int
	inflight    int
	idleSince   int64 // when inflight became 0
	moved       int64 // last dispatch or outcome of the warm-up
	warmupCut   bool

	pressureEnd int64 // of pressure by time
	paused      bool  // pressure is over: nothing more is sent before the handoff
	pressedAll  int   // pressure requests of all lanes

	end    int64 // of the profiling phase
	graced bool  // the grace after it is over
}

// NewAgentic prepares the replay of a corpus. The machine starts at the time of the first call
// of Due; Wake is 0 until then.
func NewAgentic(c *corpus.Corpus, o Options) (*Scheduler, error) {
	if err := o.Check(c); err != nil {
		return nil, err
	}
	s := newScheduler(o.DrainNs, o.FailedThreshold, o.Lanes)
	s.skips = true
	a := &agentic{
		s: s, c: c, o: o,
		plans: map[*corpus.Trace]*plan{}, shared: map[*corpus.Trace]*blockSet{}, passes: map[string]int{},
		draw: newSampler(len(c.Traces), o.Sampling, o.Seed),
		end:  math.MaxInt64, pressureEnd: math.MaxInt64,
	}
	s.m = a
	a.fillLanes()
	if len(a.lanes.at) == 0 {
		return nil, fmt.Errorf("no trace of %s has anything left to send after its start instant", c.Name)
	}
	return s, nil
}

// fillLanes gives every lane a trace and a start instant in it. Traces without a stream to
// send are passed over, lanes + 2 x traces of them at most.
func (a *agentic) fillLanes() {
	for tries := a.o.Lanes + 2*len(a.c.Traces); len(a.lanes.at) < a.o.Lanes && tries > 0; tries-- {
		if a.o.MaxTrees > 0 && a.trees >= a.o.MaxTrees {
			break
		}
		p := a.plan(a.draw.next())
		if p == nil {
			continue
		}
		lane := len(a.lanes.at)
		tr := newTree(p, lane, 0)
		a.snapshot(tr)
		if tr.live == 0 {
			continue
		}
		a.adopt(tr)
		a.lanes.at = append(a.lanes.at, &laneState{index: lane, tree: tr, key: math.MaxInt64, pos: lane})
	}
	a.lanes.heap = slices.Clone(a.lanes.at)
}

// plan prepares a trace on first use; nil when it has nothing to play.
func (a *agentic) plan(i int) *plan {
	t := a.c.Traces[i]
	if len(t.Streams) == 0 || len(t.Streams[0].Turns) == 0 {
		return nil
	}
	p := a.plans[t]
	if p == nil {
		p = newPlan(t, &a.o)
		a.plans[t] = p
		a.shared[t] = &blockSet{}
		a.s.n.LoosenedEdges += p.loosened
	}
	return p
}

// snapshot draws the start instant of a tree: uniform between two shares of the span of its
// turns' starts, from a generator seeded by seed, trace and lane.
func (a *agentic) snapshot(tr *tree) {
	p := tr.plan
	rng := newPCG64(laneSeed(a.o.Seed, p.trace.ID, tr.lane))
	if n := len(p.streams[0].turns); !p.timed && n > 1 {
		lo, hi := min(int(a.o.StartMin*float64(n)), n-2), min(int(a.o.StartMax*float64(n)), n-2)
		if n == 2 {
			lo, hi = 0, 0
		}
		tr.splitAt(int32(lo) + int32(rng.intn(uint32(hi-lo+1))))
		return
	}
	first := float64(p.first) / 1e6
	span := float64(p.last)/1e6 - first
	lo, hi := first+float64(a.o.StartMin*span), first+float64(a.o.StartMax*span)
	at := lo
	if hi > lo {
		at = rng.uniform(lo, hi)
	}
	tr.snapshotAt(at)
}

// adopt makes a tree the play of its lane: salt, ceiling and accounting.
func (a *agentic) adopt(tr *tree) {
	id := tr.plan.trace.ID
	if a.o.Salt != prompt.NoSalt {
		tr.salt = prompt.Salt(a.o.Seed, id, a.passes[id], tr.lane)
	}
	a.passes[id]++
	a.trees++
	tr.shared = a.shared[tr.plan.trace]
}

// recycle puts the next trace on a lane whose tree has drained, from turn 0.
func (a *agentic) recycle(l *laneState, t int64) {
	l.tree = nil
	if a.o.MaxTrees > 0 && a.trees >= a.o.MaxTrees {
		a.fix(l)
		return
	}
	for range 2 * len(a.c.Traces) {
		p := a.plan(a.draw.next())
		if p == nil {
			continue
		}
		l.plays++
		tr := newTree(p, l.index, l.plays)
		tr.idleSince = t
		a.adopt(tr)
		l.tree = tr
		a.arm(tr, 0, t)
		return
	}
}

// arm sets the timer of a stream's next turn.
func (a *agentic) arm(tr *tree, si int32, at int64) {
	a.timerN++
	a.pending++
	tr.timers.push(timer{at: at + tr.shift + a.shift, seq: a.timerN, stream: si})
	a.fix(a.lanes.at[tr.lane])
}

// fix puts a lane in its place among the lanes after its timers or its idleness changed.
func (a *agentic) fix(l *laneState) {
	key, seq := int64(math.MaxInt64), uint64(math.MaxUint64)
	if tr := l.tree; tr != nil && len(tr.timers) > 0 {
		key, seq = a.raw(tr), tr.timers[0].seq
		if a.stage == profiling && tr.inflight == 0 && a.o.TraceIdleCapNs > 0 {
			key = min(key, tr.idleSince+a.o.TraceIdleCapNs)
		}
	}
	a.lanes.update(l, key, seq)
}

// raw is the time of a tree's next timer, no idle cap applied.
func (a *agentic) raw(tr *tree) int64 { return tr.timers[0].at - tr.shift - a.shift }

func (a *agentic) due(t int64) {
	a.now = t
	if !a.started {
		a.begin(t)
	}
	for a.stage != stopped || !a.graced {
		if a.stage == profiling && t >= a.end {
			a.endProfiling(a.end)
		}
		at, what := a.nextEvent()
		if what == nothing || at > t {
			return
		}
		switch what {
		case laneTimer:
			a.fire(at)
		case phaseEnd:
			a.endProfiling(at)
		case graceEnd:
			a.graced = true
			a.s.cutNow(at)
		case pressureOver:
			a.pressureEnd = math.MaxInt64
			a.paused = true
			a.relieve(at)
		case warmupStuck:
			a.warmupCut, a.paused = true, true
			a.s.cutNow(at)
		}
	}
}

// warmupGrace is how long the warm-up may stand: WarmupGraceNs, or what the prompts in flight
// explain at the prefill speed that was measured, where a watchdog measures one.
func (a *agentic) warmupGrace() int64 {
	if a.s.watch == nil || a.o.WarmupGraceFixed {
		return a.o.WarmupGraceNs
	}
	return max(a.o.WarmupGraceNs, a.s.watch.Budget(a.s.waiting))
}

type event uint8

const (
	nothing event = iota
	laneTimer
	phaseEnd
	graceEnd
	pressureOver
	warmupStuck
)

// nextEvent is what happens next without an outcome.
func (a *agentic) nextEvent() (at int64, what event) {
	at = math.MaxInt64
	first := func(t int64, w event) {
		if t < at {
			at, what = t, w
		}
	}
	switch a.stage {
	case profiling:
		first(a.end, phaseEnd)
	case stopped:
		if a.o.GraceNs >= 0 && !a.graced && a.inflight > 0 && a.o.DurationNs > 0 {
			first(a.s.n.ProfilingStart+a.o.DurationNs+a.o.GraceNs, graceEnd)
		}
		return at, what
	case pressure:
		first(a.pressureEnd, pressureOver)
	}
	if a.stage < profiling && a.o.WarmupGraceNs > 0 && !a.warmupCut && a.inflight > 0 {
		first(a.moved+a.warmupGrace(), warmupStuck)
	}
	if l := a.lanes.top(); l.key != math.MaxInt64 {
		first(l.key, laneTimer)
	}
	return at, what
}

func (a *agentic) wake() (int64, bool) {
	if !a.started {
		return 0, true
	}
	at, what := a.nextEvent()
	return at, what != nothing
}

// fire runs the next timer of the first lane at time at. A timer beyond that time was brought
// forward by the per-tree idle cap, and with it all timers of its tree.
func (a *agentic) fire(at int64) {
	l := a.lanes.top()
	tr := l.tree
	if late := a.raw(tr) - at; late > 0 {
		tr.shift += late
		a.s.n.TreeJumps++
		a.s.n.TreeSkipped += late
	}
	tm := tr.timers.pop()
	a.pending--
	if a.stage == primers {
		a.sendPrimer(tr, tm.stream, at)
	} else {
		a.advance(tr, tm.stream, at)
	}
	a.fix(l)
	a.capIdle()
	a.relieve(at)
}

// capIdle keeps the time with nothing in flight within its cap: as soon as it begins, every
// timer moves forward by the same time so that the next one fires at its end at the latest.
func (a *agentic) capIdle() {
	if a.stage != profiling || a.inflight > 0 || a.o.SystemIdleCapNs <= 0 {
		return
	}
	next := int64(math.MaxInt64)
	for _, l := range a.lanes.at {
		if l.tree != nil && len(l.tree.timers) > 0 {
			next = min(next, a.raw(l.tree))
		}
	}
	skip := next - (a.idleSince + a.o.SystemIdleCapNs)
	if next == math.MaxInt64 || skip <= 0 {
		return
	}
	a.shift += skip
	a.s.n.IdleJumps++
	a.s.n.IdleSkipped += skip
	for _, l := range a.lanes.at {
		a.fix(l)
	}
}

func (a *agentic) launch(tr *tree, q Request, at int64) {
	tr.inflight++
	a.inflight++
	a.moved = max(a.moved, at)
	a.s.send(q, tr)
}

// advance takes a stream whose next turn's time has come as far as it goes: sent, or blocked
// behind joins and barriers, or kept for the profiling phase.
func (a *agentic) advance(tr *tree, si int32, at int64) {
	st := &tr.st[si]
	l := a.lanes.at[tr.lane]
	if a.stage == pressure && a.pressed(l) {
		return
	}
	if !st.timed {
		st.timed, st.ready, st.joined = true, at, -1
	}
	if !a.clear(tr, si, at) {
		st.blocked = true
		tr.blocked = append(tr.blocked, si)
		return
	}
	phase := record.Profiling
	if a.stage == pressure {
		phase = record.Pressure
		l.pressed++
		a.pressedAll++
	}
	q := tr.request(si, 0, phase)
	q.Intended, q.Queued = at, a.now
	q.JoinWait, q.BarrierWait = st.joined-st.ready, at-st.joined
	turn := &tr.plan.streams[si].turns[st.next]
	if phase == record.Profiling {
		q.MaxOut = max(1, tr.plan.trace.Streams[si].Turns[st.next].Out)
		if a.o.MaxOut > 0 {
			q.MaxOut = min(q.MaxOut, a.o.MaxOut)
		}
	}
	a.launch(tr, q, at)
	a.spawn(tr, turn.atSend, at)
	if a.stage == profiling && a.o.MaxRequests > 0 && a.s.n.Profiling >= a.o.MaxRequests {
		a.endProfiling(at)
	}
}

// clear tells whether nothing keeps the next turn of a stream back any more.
func (a *agentic) clear(tr *tree, si int32, at int64) bool {
	st := &tr.st[si]
	if st.joined < 0 {
		if !tr.joinsOpen(si) {
			return false
		}
		st.joined = at
	}
	return tr.barriersOpen(si)
}

func (a *agentic) spawn(tr *tree, list []spawn, at int64) {
	for _, sp := range list {
		st := &tr.st[sp.child]
		if st.spawned || st.ended {
			continue
		}
		st.spawned = true
		tr.live++
		offset := sp.offset
		if a.stage == pressure {
			offset = 0
		}
		a.arm(tr, sp.child, at+offset)
	}
}

func (a *agentic) outcome(t int64, f *flight, r *record.Request) {
	tr, si := f.tree, int32(f.q.Stream)
	tr.inflight--
	a.inflight--
	if !a.o.WarmupGraceFixed {
		a.moved = max(a.moved, t)
	}
	if tr.inflight == 0 {
		tr.idleSince = max(tr.idleSince, t)
	}
	if a.inflight == 0 {
		a.idleSince = max(a.idleSince, t)
	}
	if f.q.Phase == record.Primer {
		a.primerDone(t, f, r)
		return
	}
	st := &tr.st[si]
	st.done = int32(f.q.Turn) + 1
	st.next, st.timed = st.done, false
	turn := &tr.plan.streams[si].turns[f.q.Turn]
	overflow := r.Failure != nil && r.Failure.Class == record.FailContextOverflow
	last := int(st.next) == len(tr.plan.streams[si].turns)
	if a.stage == stopped {
		if last || overflow {
			tr.finish(si)
			a.drained(tr)
		}
		return
	}
	if !overflow {
		a.spawn(tr, turn.atEnd, t)
	}
	switch {
	case last || overflow:
		tr.finish(si)
	case a.stage == pressure:
		a.arm(tr, si, t)
	default:
		a.arm(tr, si, t+tr.plan.streams[si].turns[st.next].gap)
	}
	a.release(tr, t)
	l := a.lanes.at[tr.lane]
	if a.drained(tr) && (a.stage == profiling || a.pressing()) {
		a.recycle(l, t)
	}
	a.fix(l)
	a.capIdle()
	a.relieve(t)
	a.exhaust(t)
}

func (a *agentic) drained(tr *tree) bool {
	if tr.live == 0 {
		a.s.n.Trees++
		return true
	}
	return false
}

// release lets go the streams of a tree that an outcome at t has freed.
func (a *agentic) release(tr *tree, t int64) {
	slices.Sort(tr.blocked)
	tr.blocked = slices.DeleteFunc(tr.blocked, func(si int32) bool {
		if !a.clear(tr, si, t) {
			return false
		}
		tr.st[si].blocked = false
		a.arm(tr, si, t)
		return true
	})
}

// exhaust ends the profiling phase when no tree is left to play.
func (a *agentic) exhaust(t int64) {
	if a.stage == profiling && a.inflight == 0 && a.pending == 0 {
		a.endProfiling(t)
	}
}

// endProfiling stops sending; what is in flight has its grace.
func (a *agentic) endProfiling(t int64) {
	a.s.n.ProfilingEnd = t
	a.end = t
	a.halt()
}

func (a *agentic) halt() {
	a.stage = stopped
	for _, l := range a.lanes.at {
		if l.tree != nil {
			l.tree.timers, l.tree.blocked = nil, nil
			a.fix(l)
		}
	}
	a.pending = 0
}

func (a *agentic) stop(t int64) {
	if a.stage == profiling {
		a.endProfiling(t)
	}
	a.halt()
	a.graced = true
}

func (a *agentic) idle() bool {
	return a.inflight == 0 && a.stage == stopped
}

func (a *agentic) counts(n *Counts) {
	switch {
	case a.stage == primers:
		n.Phase = record.Primer
	case a.stage == pressure:
		n.Phase = record.Pressure
	default:
		n.Phase = record.Profiling
	}
	n.Lanes, n.Timers = len(a.lanes.at), a.pending
	for _, l := range a.lanes.at {
		if l.tree != nil && l.tree.live > 0 {
			n.Live++
			n.Blocked += len(l.tree.blocked)
		}
	}
}
