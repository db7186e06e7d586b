package replay

import (
	"fmt"
	"math"

	"github.com/weirbench/weir/internal/record"
)

// This file holds the way from the start instants to the profiling phase: primers, cache
// pressure, handoff.

// begin sends the primers, or what follows them where there are none.
func (a *agentic) begin(t int64) {
	a.started = true
	a.idleSince, a.moved = t, t
	if a.o.NoWarmup {
		a.handoff(t)
		return
	}
	type lead struct {
		tr *tree
		si int32
		ns int64
	}
	var leads []lead
	longest := int64(0)
	for _, l := range a.lanes.at {
		l.tree.idleSince = t
		for si := range l.tree.st {
			st := &l.tree.st[si]
			if !st.spawned || st.ended || st.next == 0 {
				continue
			}
			ns := int64(0)
			if !a.o.Burst && l.tree.plan.timed {
				ns = max(0, l.tree.origin-l.tree.start(int32(si), st.next-1))
				for _, limit := range []int64{a.o.SystemIdleCapNs, a.o.TraceIdleCapNs} {
					if limit > 0 {
						ns = min(ns, limit)
					}
				}
			}
			longest = max(longest, ns)
			leads = append(leads, lead{l.tree, int32(si), ns})
		}
	}
	a.primersLeft = len(leads)
	for _, d := range leads {
		at := t + longest - d.ns
		if !d.tr.plan.timed {
			at = t
		}
		a.arm(d.tr, d.si, at)
	}
	if len(leads) == 0 {
		a.afterPrimers(t)
	}
}

func (a *agentic) afterPrimers(t int64) {
	if a.o.PressureRequests == 0 && a.o.PressureNs == 0 {
		a.handoff(t)
		return
	}
	a.stage = pressure
	if a.o.PressureNs > 0 {
		a.pressureEnd = t + a.o.PressureNs
	}
	for _, l := range a.lanes.at {
		for si := range l.tree.st {
			if st := &l.tree.st[si]; st.spawned && !st.ended {
				a.arm(l.tree, int32(si), t)
			}
		}
	}
	a.relieve(t)
}

// pressed tells whether a lane has sent its share of the pressure.
func (a *agentic) pressed(l *laneState) bool {
	return a.paused || a.o.PressureRequests > 0 && l.pressed >= a.o.PressureRequests
}

// pressing tells whether any lane still has pressure to send.
func (a *agentic) pressing() bool {
	return a.stage == pressure && !a.paused && (a.o.PressureRequests == 0 || a.pressedAll < a.o.PressureRequests*len(a.lanes.at))
}

// relieve ends the pressure once all that it may send has returned.
func (a *agentic) relieve(t int64) {
	if a.stage == pressure && a.inflight == 0 && a.pending == 0 {
		a.handoff(t)
	}
}

// handoff begins the profiling phase: every stream that is left resumes at its next turn, all
// on one clock. The recorded offsets from the trees' start instants stay, less the smallest
// of them, so that the first request goes out at once.
func (a *agentic) handoff(t int64) {
	a.stage = profiling
	a.s.n.ProfilingStart = t
	a.idleSince = t
	if a.o.DurationNs > 0 {
		a.end = t + a.o.DurationNs
	}
	for _, l := range a.lanes.at {
		if l.tree == nil || l.tree.live == 0 {
			a.recycle(l, t)
		}
	}
	first := int64(math.MaxInt64)
	least := make([]int64, len(a.lanes.at))
	for i, l := range a.lanes.at {
		least[i] = math.MaxInt64
		a.resumable(l.tree, func(si int32, offset int64) {
			if l.tree.joinsOpen(si) {
				least[i] = min(least[i], offset)
			}
		})
		first = min(first, least[i])
	}
	for i, l := range a.lanes.at {
		if l.tree == nil {
			continue
		}
		a.pending -= len(l.tree.timers)
		l.tree.timers, l.tree.blocked = l.tree.timers[:0], l.tree.blocked[:0]
		l.tree.idleSince = t
		from := first
		if a.o.Burst {
			from = least[i]
		}
		a.resumable(l.tree, func(si int32, offset int64) {
			st := &l.tree.st[si]
			st.timed, st.blocked = false, false
			a.arm(l.tree, si, t+max(0, offset-from))
		})
		a.fix(l)
	}
	a.capIdle()
	a.exhaust(t)
}

// resumable calls f for every stream that has a turn to send, with the recorded offset of
// that turn from the instant at which the tree began.
func (a *agentic) resumable(tr *tree, f func(si int32, offset int64)) {
	if tr == nil {
		return
	}
	for si := range tr.st {
		if st := &tr.st[si]; st.spawned && !st.ended {
			f(int32(si), max(0, tr.start(int32(si), st.next)-tr.origin))
		}
	}
}

func (a *agentic) sendPrimer(tr *tree, si int32, at int64) {
	q := tr.request(si, 1, record.Primer)
	q.Intended, q.Queued = at, a.now
	if l := a.lanes.at[tr.lane]; a.o.CountPrimers && l.pressed < a.o.PressureRequests {
		l.pressed++
		a.pressedAll++
	}
	a.launch(tr, q, at)
}

func (a *agentic) primerDone(t int64, f *flight, r *record.Request) {
	a.primersLeft--
	if r.Failure != nil && f.q.Stream == 0 && a.stage != stopped {
		a.s.giveUp(t, AbortRootWarmup, fmt.Sprintf("%s turn %d on lane %d: %s %s",
			f.q.Trace.ID, f.q.Turn, f.q.Lane, r.Failure.Class, r.Failure.Detail))
		return
	}
	if a.primersLeft == 0 && a.stage == primers {
		a.afterPrimers(t)
	}
}
