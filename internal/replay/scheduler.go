package replay

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/weirbench/weir/internal/record"
)

// Why a scheduler gave up. The texts are stable: results carry them.
const (
	AbortRootWarmup = "root warm-up failure"
	AbortErrorRate  = "error rate"
	AbortCancelled  = "cancelled"
)

// Counts is where a run stands. Times are nanoseconds since the run's epoch.
type Counts struct {
	Phase    record.Phase
	Lanes    int // that were asked for and could be filled
	Live     int // trees that are being played
	InFlight int
	Timers   int // turns that wait for their time
	Blocked  int // turns whose time has come and that wait for joins or barriers

	Primers, Pressure, Profiling uint64 // requests sent, by phase
	// OK to Overflow are profiling requests that ended; Overflow is part of Failed.
	OK, Failed, Cancelled, Overflow uint64
	Trees                           uint64 // trees played to their end, all phases
	OutputTokens                    int64  // reported by outcomes, all phases

	ProfilingStart int64 // record.Never until the profiling phase begins
	ProfilingEnd   int64 // when it stopped sending; record.Never until then

	// IdleJumps and IdleSkipped count what the whole-system idle cap took out, TreeJumps and
	// TreeSkipped what the per-tree cap did; nanoseconds.
	IdleJumps, TreeJumps     uint64
	IdleSkipped, TreeSkipped int64

	// LoosenedEdges are recorded dependencies that contradict each other and were dropped.
	LoosenedEdges int
	// Stray are outcomes of requests that are not in flight; always 0 with a correct target.
	Stray uint64
}

// A machine is what differs between the modes of load. It runs inside a Scheduler, which
// numbers requests and accounts for them.
type machine interface {
	// due fires everything up to t and sends through s.send.
	due(t int64)
	// wake is the time of its next event.
	wake() (int64, bool)
	// outcome takes the end of a request that was in flight.
	outcome(t int64, f *flight, r *record.Request)
	// stop ends all sending now; what is in flight may end.
	stop(t int64)
	// idle tells that nothing will be sent any more.
	idle() bool
	counts(*Counts)
}

// flight is a request that was sent and has not ended.
type flight struct {
	q    Request
	tree *tree // of agentic replay
}

// A Scheduler decides when to send what. It is a pure state machine: it never sleeps, calls or
// blocks, and two schedulers with the same corpus, options and sequence of calls behave the
// same. It is not safe for concurrent use; a driver owns it.
//
// Calls carry the current time in nanoseconds since the run's epoch. It does not decrease
// between calls of Due; the time of an Outcome may lie before that of the last Due.
type Scheduler struct {
	ranOut int64

	m       machine
	emit    func(Request)
	seq     uint64
	flights map[uint64]*flight
	n       Counts

	cut      bool  // a cancellation of everything in flight waits to be taken
	cutAt    int64 // when it was asked for, record.Never before
	drain    int64 // time after cutAt for outcomes
	over     bool
	lost     []Request
	abort    string
	abortWhy string
	limit    float64 // failed-request threshold
	floor    uint64  // profiling requests that must have ended before it counts
	// skips: a prompt that was too long ends its stream and is no failure against the threshold.
	skips bool

	firstTokens bool // the machine acts on first tokens
	watch       *Watchdog
	waiting     int64 // prompt tokens of what is in flight
	busySince   int64 // when the first of it was sent
	lastEnd     int64
}

// minThreshold is how many profiling requests have to end, at any concurrency, before the
// failed-request threshold counts (agentx-harness 1.0.12, records_manager.py, 2026-10).
const minThreshold = 10

func newScheduler(drain int64, limit float64, concurrency int) *Scheduler {
	if drain <= 0 {
		drain = int64(10 * time.Second)
	}
	return &Scheduler{
		flights: map[uint64]*flight{}, drain: drain, limit: limit, floor: uint64(max(concurrency, minThreshold)), cutAt: record.Never,
		n: Counts{ProfilingStart: record.Never, ProfilingEnd: record.Never},
	}
}

// Due hands over everything that is to be sent at time t, in order.
func (s *Scheduler) Due(t int64, emit func(Request)) {
	if s.over {
		return
	}
	s.emit = emit
	s.m.due(t)
	s.emit = nil
	if s.cutAt != record.Never && t >= s.cutAt+s.drain && len(s.flights) > 0 {
		s.abandon()
	}
	s.settle()
}

// Wake is the time at which Due must be called next, which may lie in the past; ok is false
// when nothing happens before the next Outcome.
func (s *Scheduler) Wake() (t int64, ok bool) {
	if s.over {
		return 0, false
	}
	t, ok = s.m.wake()
	if s.cutAt != record.Never && len(s.flights) > 0 {
		if end := s.cutAt + s.drain; !ok || end < t {
			t, ok = end, true
		}
	}
	return t, ok
}

// Outcome tells what happened to a request, at the time at which it ended. An outcome of a
// request that is not in flight is counted as stray and otherwise ignored.
func (s *Scheduler) Outcome(t int64, r *record.Request) {
	f := s.flights[r.Seq]
	if f == nil {
		s.n.Stray++
		return
	}
	delete(s.flights, r.Seq)
	s.measure(t, f, r)
	if r.OutputTokens > 0 {
		s.n.OutputTokens += r.OutputTokens
	}
	if f.q.Phase == record.Profiling {
		switch {
		case r.Failure == nil:
			s.n.OK++
		case r.Failure.Class == record.FailCancelled:
			s.n.Cancelled++
		default:
			s.n.Failed++
			if r.Failure.Class == record.FailContextOverflow {
				s.n.Overflow++
			}
		}
	}
	s.m.outcome(t, f, r)
	if s.limit > 0 && s.abort == "" {
		ended, failed := s.n.OK+s.n.Failed, s.n.Failed
		if s.skips {
			failed -= s.n.Overflow
		}
		if ended >= s.floor && float64(failed) > s.limit*float64(ended) {
			s.giveUp(t, AbortErrorRate, "")
		}
	}
	s.settle()
}

// NeedsFirstTokens tells that the run can't be driven without FirstToken: its target has to be
// a FirstTokenTarget.
func (s *Scheduler) NeedsFirstTokens() bool { return s.firstTokens }

// FirstToken tells that the first token of a request has arrived.
func (s *Scheduler) FirstToken(seq uint64) {
	if m, ok := s.m.(interface{ firstToken(uint64) }); ok && s.flights[seq] != nil {
		m.firstToken(seq)
	}
}

// Done tells that the run is over: nothing is in flight and nothing will be sent.
func (s *Scheduler) Done() bool { return s.over }

// Cancel ends the run at time t: nothing more is sent and what is in flight is to be cancelled.
func (s *Scheduler) Cancel(t int64) {
	if !s.over {
		s.giveUp(t, AbortCancelled, "")
		s.settle()
	}
}

// Cut tells, once for each time it is so, that everything in flight has to be cancelled now:
// the driver then calls the target's Cancel.
func (s *Scheduler) Cut() bool {
	c := s.cut
	s.cut = false
	return c
}

// Lost are requests whose outcome did not arrive in time after a cancellation. They are no
// longer in flight; the driver accounts for them.
func (s *Scheduler) Lost() []Request {
	l := s.lost
	s.lost = nil
	return l
}

// Abort says why the run ended before its time, "" when it did not, with one line of detail.
func (s *Scheduler) Abort() (reason, detail string) { return s.abort, s.abortWhy }

// RanOut is how long after the start of profiling a load with a duration had sent its whole list
// and had every answer, nanoseconds; 0 when its time was over first.
func (s *Scheduler) RanOut() int64 { return s.ranOut }

// Counts says where the run stands.
func (s *Scheduler) Counts() Counts {
	n := s.n
	n.InFlight = len(s.flights)
	s.m.counts(&n)
	return n
}

func (s *Scheduler) giveUp(t int64, reason, detail string) {
	if s.abort == "" {
		s.abort, s.abortWhy = reason, detail
	}
	s.m.stop(t)
	s.cutNow(t)
}

// cutNow asks for the cancellation of everything in flight.
func (s *Scheduler) cutNow(t int64) {
	if len(s.flights) > 0 {
		s.cut, s.cutAt = true, t
	}
}

// abandon gives up on outcomes that did not come.
func (s *Scheduler) abandon() {
	for _, seq := range slices.Sorted(maps.Keys(s.flights)) {
		s.lost = append(s.lost, s.flights[seq].q)
	}
	clear(s.flights)
	s.waiting = 0
	if s.abort == "" {
		s.abort = AbortCancelled
		s.abortWhy = fmt.Sprintf("%d requests had no outcome %v after their cancellation", len(s.lost), time.Duration(s.drain))
	}
	s.m.stop(s.cutAt + s.drain)
	s.over = true
}

func (s *Scheduler) settle() {
	if len(s.flights) == 0 {
		s.cutAt = record.Never
		s.over = s.over || s.m.idle()
	}
}

// send numbers a request, accounts for it and hands it over.
func (s *Scheduler) send(q Request, tr *tree) {
	s.seq++
	q.Seq = s.seq
	switch q.Phase {
	case record.Primer:
		s.n.Primers++
	case record.Pressure:
		s.n.Pressure++
	case record.Profiling:
		s.n.Profiling++
	}
	if len(s.flights) == 0 {
		s.busySince = q.Queued
	}
	s.waiting += promptTokens(&q)
	s.flights[q.Seq] = &flight{q: q, tree: tr}
	s.emit(q)
}

func promptTokens(q *Request) int64 { return q.Trace.Streams[q.Stream].Turns[q.Turn].In }

// Watch sets the watchdog that RunReal keeps, over a target that tells when tokens arrive.
func (s *Scheduler) Watch(w Watchdog) { s.watch = &w }

// measure keeps the books of the watchdog.
func (s *Scheduler) measure(t int64, f *flight, r *record.Request) {
	s.waiting -= promptTokens(&f.q)
	since := max(s.busySince, s.lastEnd)
	s.lastEnd = max(s.lastEnd, t)
	if s.watch == nil {
		return
	}
	done := int64(0)
	if r.Times.FirstToken != record.Never || r.Failure == nil {
		done = promptTokens(&f.q)
	}
	s.watch.Prefilled(done, t-since)
}

// stalled is the watchdog's verdict at a time, given when the last token arrived.
func (s *Scheduler) stalled(now, lastToken int64) *Stall {
	if s.watch == nil {
		return nil
	}
	return s.watch.Check(now, max(lastToken, s.busySince, s.lastEnd), len(s.flights), s.waiting)
}
