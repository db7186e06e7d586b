package replay

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/weirbench/weir/internal/corpus"
	"github.com/weirbench/weir/internal/record"
)

// unit is a conversation of the corpus.
type unit struct {
	trace  *corpus.Trace
	stream int
	first  int  // its first turn
	alone  bool // and its last
}

func (u unit) turns() []corpus.Turn {
	all := u.trace.Streams[u.stream].Turns
	if u.alone {
		return all[u.first : u.first+1]
	}
	return all[u.first:]
}
func (u unit) start() int64 { return u.turns()[0].StartNs }

// talk is a conversation that is being sent. Its next turn goes out once its time has come
// and the turn before it has ended.
type talk struct {
	unit, pass int
	turn       int
	turns      int // that it sends; 0 is all
	lane       int
	due        int64 // when the next turn is meant to go out
	timed      bool  // ... which has come
	busy       bool  // the turn before it is in flight
	warmup     bool
}

// loadEvent is the time of a talk, or without one an arrival of the rate, or of a ramp that opens a slot.
type loadEvent struct {
	at   int64
	seq  uint64
	talk *talk
	step ramp
}

func (a loadEvent) before(b loadEvent) bool { return a.at < b.at || a.at == b.at && a.seq < b.seq }

// load is the machine of open and closed loops.
type load struct {
	s     *Scheduler
	o     Load
	units []unit
	warm  []unit           // of the warm-up
	talks map[uint64]*talk // in flight, by Seq

	started, stopped, graced bool
	warming                  int   // warm-up requests that have not ended
	t0, end                  int64 // of the profiling phase
	nextUnit, pass, taken    int   // what take gives next, and how often it gave

	live      int // conversations that hold a slot
	freeLanes []int
	lanes     int
	prefills  map[uint64]bool
	open      [steps]int // slots that a ramp has opened; without one all
	phase     record.Phase

	order   []int // of a shuffled list
	shuffle *pcg64
	random  *pyRandom

	events heap[loadEvent]
	seq    uint64
	timers int // events with a talk
	ivals  intervals

	idleTalks []*talk // continuations that wait for an arrival of the rate
	ready     []*talk // have a slot, their time has come
	fresh     []*talk // need a slot, their time has come
	seen      map[*corpus.Trace]*blockSet
}

// NewLoad prepares an open or closed loop over the conversations of a corpus. An intended time
// is kept once it is set: a request that finds no slot, or whose turn before has not ended,
// goes out late and says so.
func NewLoad(c *corpus.Corpus, o Load) (*Scheduler, error) {
	l := newLoad(o)
	for _, t := range c.Traces {
		from := len(l.units)
		for i := range t.Streams {
			s := &t.Streams[i]
			for k := range s.Turns {
				if o.inWindow(&s.Turns[k]) && (o.EachTurn || s.Parent < 0 && k == 0) {
					l.units = append(l.units, unit{t, i, k, o.EachTurn})
				}
			}
		}
		if o.EachTurn { // in the order of their times, as a file of requests has them
			byStart(l.units[from:])
		}
	}
	if err := o.check(len(l.units)); err != nil {
		return nil, fmt.Errorf("load on %s: %w", c.Name, err)
	}
	if o.Arrival == Schedule {
		byStart(l.units)
		if o.FromNs == 0 && !o.FromSet {
			o.FromNs = l.units[0].start()
		}
	}
	warm := o.WarmupRequests
	if o.Warmup != nil {
		warm = o.Warmup.Conversations
	}
	if warm < 0 || warm >= len(l.units) {
		return nil, fmt.Errorf("load on %s: %d of %d conversations for the warm-up leave none to send", c.Name, warm, len(l.units))
	}
	cut := len(l.units) - warm
	l.units, l.warm = l.units[:cut], l.units[cut:]
	if o.Warmup != nil && warm == 0 {
		l.warm = l.units
	}
	l.o = o.settled()
	l.s = newScheduler(o.DrainNs, o.FailedThreshold, max(o.Concurrency, o.NumUsers))
	l.s.firstTokens = o.PrefillConcurrency > 0
	l.s.m = l
	if o.Warmup != nil {
		if err := l.warmed(); err != nil {
			return nil, fmt.Errorf("load on %s: warm-up: %w", c.Name, err)
		}
	}
	return l.s, nil
}

func byStart(units []unit) {
	slices.SortStableFunc(units, func(a, b unit) int { return cmp.Compare(a.start(), b.start()) })
}

// Skips is how many of the requests of a corpus are in no conversation of the load, since another
// stream spawned theirs.
func (o *Load) Skips(c *corpus.Corpus) (n, of int) {
	for _, t := range c.Traces {
		for i := range t.Streams {
			s := &t.Streams[i]
			if of += len(s.Turns); s.Parent >= 0 && !o.EachTurn {
				n += len(s.Turns)
			}
		}
	}
	return n, of
}

func newLoad(o Load) *load {
	return &load{
		talks: map[uint64]*talk{}, prefills: map[uint64]bool{},
		seen: map[*corpus.Trace]*blockSet{}, end: math.MaxInt64, phase: record.Profiling,
		ivals: newIntervals(&o), open: [steps]int{sessions: o.Concurrency, waiting: o.PrefillConcurrency},
	}
}

func (o *Load) inWindow(t *corpus.Turn) bool {
	at := t.StartNs
	return o.Arrival != Schedule || at >= o.FromNs && (o.ToNs <= 0 || at < o.ToNs)
}

func (l *load) begin(t int64) {
	l.started = true
	l.warming = l.o.WarmupRequests
	for i := range l.warming {
		l.fresh = append(l.fresh, &talk{unit: i, due: t, warmup: true})
	}
	if l.warming == 0 {
		l.profile(t)
	}
}

// profile begins the phase that counts.
func (l *load) profile(t int64) {
	l.t0 = t
	if l.phase == record.Profiling {
		l.s.n.ProfilingStart = t
	}
	l.ramps(t)
	if l.o.DurationNs > 0 {
		l.end = t + l.o.DurationNs
	}
	switch l.o.Arrival {
	case Closed:
		l.fill(func(slot int) int64 {
			if l.o.AsAIPerf {
				return t
			}
			return t + l.o.RampNs*int64(slot)/int64(l.o.Concurrency)
		})
	case Schedule:
		for i := range l.units {
			l.at(l.scheduled(i, 0), &talk{unit: i})
		}
		l.nextUnit = len(l.units)
	case Users:
		l.arrive(t)
	default:
		l.tick()
	}
}

// perRate is the time of n arrivals at the rate.
func (l *load) perRate(n int) int64 { return int64(math.Round(float64(n) / l.o.Rate * 1e9)) }

// scheduled is when a turn was recorded to go out, at the speed of the replay.
func (l *load) scheduled(u, turn int) int64 {
	since := l.units[u].turns()[turn].StartNs - l.o.FromNs
	return l.t0 + int64(math.Round(float64(since)/l.o.Speed))
}

// take is the next conversation of the list, nil when there is none now.
func (l *load) take() *talk {
	if !l.more() {
		return nil
	}
	if l.nextUnit == len(l.units) {
		// A counted pass begins after the one before it has ended.
		if !l.o.Loop && (l.pass+1 >= l.o.Passes || l.live > 0) {
			return nil
		}
		l.nextUnit = 0
		l.pass++
	}
	l.nextUnit++
	l.taken++
	return &talk{unit: l.sampled(l.nextUnit - 1), pass: l.pass}
}

// more tells that the list has conversations left, now or once a pass has ended.
func (l *load) more() bool {
	return (l.nextUnit < len(l.units) || l.o.Loop || l.pass+1 < l.o.Passes) && (l.o.MaxConversations == 0 || l.taken < l.o.MaxConversations)
}

// fill gives every free slot of a closed loop a conversation.
func (l *load) fill(when func(slot int) int64) {
	for l.live < l.open[sessions] {
		k := l.take()
		if k == nil {
			return
		}
		k.lane = l.lane()
		l.live++
		l.at(when(k.lane), k)
	}
}

// at sets when the next turn of a talk is meant to go out.
func (l *load) at(t int64, k *talk) {
	k.due, k.timed = t, false
	l.seq++
	l.timers++
	l.events.push(loadEvent{at: t, seq: l.seq, talk: k})
}

func (l *load) tick() {
	l.seq++
	l.events.push(loadEvent{at: l.t0 + l.ivals.next(), seq: l.seq})
}

func (l *load) due(t int64) {
	if !l.started {
		l.begin(t)
	}
	for !l.stopped {
		if t >= l.end {
			l.finish(l.end)
			break
		}
		l.pump(t)
		if l.stopped || len(l.events) == 0 || l.events[0].at > t {
			break
		}
		e := l.events.pop()
		if e.step != none {
			l.widen(e)
			continue
		}
		if e.talk == nil {
			l.arrival(e.at)
			continue
		}
		l.timers--
		e.talk.timed = true
		l.hold(e.talk)
		l.exhaust(e.at) // the turn may belong to a conversation that has ended
	}
	if at, ok := l.graceEnd(); ok && t >= at {
		l.graced = true
		l.s.cutNow(at)
	}
}

// graceEnd is when what is in flight after the duration has to be cut.
func (l *load) graceEnd() (int64, bool) {
	return l.t0 + l.o.DurationNs + l.o.GraceNs,
		l.stopped && !l.graced && l.o.DurationNs > 0 && l.o.GraceNs >= 0 && len(l.talks) > 0
}

// hold queues the next turn of a talk when its time has come and nothing of it is in flight.
func (l *load) hold(k *talk) {
	switch {
	case !k.timed || k.busy:
	case k.turn > 0 && l.o.Arrival >= Constant && l.o.Arrival <= Gamma:
		l.idleTalks = append(l.idleTalks, k)
	case k.turn == 0 && l.o.Arrival == Schedule:
		l.fresh = append(l.fresh, k)
	default:
		l.ready = append(l.ready, k)
	}
}

// arrival gives one arrival of the rate to a continuation that waits, else to a new
// conversation.
func (l *load) arrival(at int64) {
	if len(l.idleTalks) > 0 {
		k := l.idleTalks[0]
		l.idleTalks = l.idleTalks[1:]
		k.due = at
		l.ready = append(l.ready, k)
	} else if l.o.AsAIPerf && l.o.Concurrency > 0 && l.live+len(l.fresh) >= l.open[sessions] {
		// The next arrival tries again.
	} else if k := l.take(); k != nil {
		k.due = at
		l.fresh = append(l.fresh, k)
	}
	l.tick()
}

// pump sends what is due as far as slots and prefills allow, what has a slot first.
func (l *load) pump(t int64) {
	for !l.stopped && l.mayPrefill() {
		var k *talk
		switch {
		case len(l.ready) > 0:
			k, l.ready = l.ready[0], l.ready[1:]
		case len(l.fresh) > 0 && l.hasSlot():
			k, l.fresh = l.fresh[0], l.fresh[1:]
			k.lane = l.lane()
			l.live++
		default:
			return
		}
		l.send(k, t)
	}
}

func (l *load) hasSlot() bool { return l.o.Concurrency == 0 || l.live < l.open[sessions] }

func (l *load) mayPrefill() bool {
	return l.o.PrefillConcurrency == 0 || len(l.prefills) < l.open[waiting]
}

// of is the conversation of a talk.
func (l *load) of(k *talk) unit {
	if k.warmup {
		return l.warm[k.unit]
	}
	return l.units[k.unit]
}

func (l *load) send(k *talk, t int64) {
	u := l.of(k)
	turn := &u.turns()[k.turn]
	q := Request{
		Phase: l.phase, Lane: k.lane, Play: k.pass, Tree: fmt.Sprintf("%d.%d", k.unit, k.pass),
		Trace: u.trace, Stream: u.stream, Turn: u.first + k.turn, MaxOut: max(1, turn.Out),
		Intended: k.due, Queued: t, Ceiling: l.ceiling(u.trace, turn),
		Shared: len(turn.Blocks),
	}
	if k.warmup || l.phase == record.Primer {
		q.Phase, q.Tree = record.Primer, fmt.Sprintf("warmup.%d", k.unit)
		if k.pass > 0 {
			q.Tree += fmt.Sprintf(".%d", k.pass)
		}
	}
	if l.o.MaxOut > 0 {
		q.MaxOut = min(q.MaxOut, l.o.MaxOut)
	}
	if l.o.FreeOutput {
		q.MaxOut = 0
	}
	k.busy = true
	l.s.send(q, nil)
	l.talks[l.s.seq] = k
	if l.o.PrefillConcurrency > 0 {
		l.prefills[l.s.seq] = true
	}
	if !k.warmup {
		l.pace(k)
		sent := l.s.n.Profiling
		if l.phase == record.Primer {
			sent = l.s.n.Primers
		}
		if l.o.MaxRequests > 0 && sent >= l.o.MaxRequests {
			l.finish(t)
		}
	}
}

// pace sets, where that does not depend on the end of the turn that was just sent, when the
// turn after it is meant to go out.
func (l *load) pace(k *talk) {
	more := k.turn+1 < l.length(k)
	switch l.o.Arrival {
	case Schedule:
		if more {
			l.at(l.scheduled(k.unit, k.turn+1), k)
		}
	case Users:
		// One gap after this turn was meant to go out, whenever it ends.
		next := k.due + l.perRate(l.o.NumUsers)
		if more {
			l.at(next, k)
		} else {
			l.user(k.lane, next, 0, 0)
		}
	}
}

// ceiling is the leading run of blocks that were sent before, in tokens; blocks of one trace
// are shared by its conversations.
func (l *load) ceiling(tr *corpus.Trace, t *corpus.Turn) int64 {
	set := l.seen[tr]
	if set == nil {
		set = &blockSet{}
		l.seen[tr] = set
	}
	hit := 0
	for hit < len(t.Blocks) && set.has(t.Blocks[hit]) {
		hit++
	}
	for _, b := range t.Blocks[hit:] {
		set.add(b)
	}
	return min(int64(hit)*tr.BlockSize, t.In)
}

func (l *load) firstToken(seq uint64) { delete(l.prefills, seq) }

func (l *load) outcome(t int64, _ *flight, r *record.Request) {
	k := l.talks[r.Seq]
	delete(l.talks, r.Seq)
	delete(l.prefills, r.Seq)
	k.busy = false
	turns, length := l.of(k).turns(), l.length(k)
	overflow := r.Failure != nil && r.Failure.Class == record.FailContextOverflow
	if !k.warmup && !l.stopped && !overflow && k.turn+1 < length {
		k.turn++
		if l.o.Arrival == Schedule || l.o.Arrival == Users {
			l.hold(k)
			return
		}
		gap := int64(0)
		if !l.o.NoGaps {
			gap = max(0, turns[k.turn].StartNs-turns[k.turn-1].EndNs(), turns[k.turn].ThinkNs)
		}
		l.at(t+gap, k)
		return
	}
	if overflow && !l.stopped && l.o.Arrival == Users && k.turn+1 < length {
		l.user(k.lane, max(t, k.due), 0, 0)
	}
	l.leave(k)
	switch {
	case l.stopped:
	case k.warmup:
		if l.warming--; l.warming == 0 {
			l.profile(t)
		}
	default:
		if l.o.Arrival == Closed {
			l.fill(func(int) int64 { return t })
		}
		l.exhaust(t)
	}
}

// leave ends a conversation and frees its slot. A turn of it whose time was set is dropped.
func (l *load) leave(k *talk) {
	l.live--
	k.busy = true // nothing more of it is sent
	if l.o.Arrival != Users || k.warmup {
		l.freeLanes = append(l.freeLanes, k.lane)
	}
}

func (l *load) lane() int {
	if n := len(l.freeLanes); n > 0 {
		k := l.freeLanes[n-1]
		l.freeLanes = l.freeLanes[:n-1]
		return k
	}
	l.lanes++
	return l.lanes - 1
}

// exhaust ends the run when no conversation is left.
func (l *load) exhaust(t int64) {
	if l.live == 0 && l.timers == 0 && len(l.fresh)+len(l.ready) == 0 && !l.more() {
		if t < l.end && l.end != math.MaxInt64 && l.phase == record.Profiling {
			l.s.ranOut = max(1, t-l.t0)
		}
		l.finish(t)
	}
}

func (l *load) finish(t int64) {
	if l.s.n.ProfilingEnd == record.Never && l.s.n.ProfilingStart != record.Never {
		l.s.n.ProfilingEnd = t
	}
	l.stopped, l.end = true, min(l.end, t)
	l.events, l.ready, l.fresh, l.idleTalks, l.timers = nil, nil, nil, nil, 0
}

func (l *load) stop(t int64) {
	l.finish(t)
	l.graced = true
}

func (l *load) idle() bool { return l.stopped && len(l.talks) == 0 }

func (l *load) wake() (int64, bool) {
	switch {
	case !l.started:
		return 0, true
	case l.stopped:
		return l.graceEnd()
	case l.mayPrefill() && (len(l.ready) > 0 || len(l.fresh) > 0 && l.hasSlot()):
		return l.t0, true // what an outcome or a first token has let go
	}
	at := l.end
	if len(l.events) > 0 {
		at = min(at, l.events[0].at)
	}
	return at, at != math.MaxInt64
}

func (l *load) counts(n *Counts) {
	n.Phase = record.Profiling
	if l.started && l.s.n.ProfilingStart == record.Never {
		n.Phase = record.Primer
	}
	n.Lanes, n.Live, n.Timers = l.o.Concurrency, l.live, l.timers
	n.Blocked = len(l.ready) + len(l.fresh) + len(l.idleTalks)
	if l.o.Arrival == Users {
		n.Lanes = l.o.NumUsers
	}
}
