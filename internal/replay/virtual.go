package replay

import (
	"context"
	"fmt"

	"github.com/weirbench/weir/internal/record"
)

// maxAtOnce bounds the requests of one instant: more are a loop of turns that take no time.
const maxAtOnce = 1 << 18

// RunVirtual plays a scheduler against a target in virtual time, from 0, until it is done:
// time jumps to the next event of either. At one instant outcomes come before what is due.
// Every request that was sent reaches sink exactly once, in the order in which they ended.
//
// It fails when ctx ends, or when the run can make no progress because the target keeps a
// request without any event to come.
func RunVirtual(ctx context.Context, s *Scheduler, target VirtualTarget, sink func(*record.Request)) error {
	var ended []*record.Request
	target.Start(func(r *record.Request) { ended = append(ended, r) })
	var tokens []uint64
	if err := onFirstToken(s, target, func(seq uint64) { tokens = append(tokens, seq) }); err != nil {
		return err
	}
	take := func(now int64) {
		for _, seq := range tokens {
			s.FirstToken(seq)
		}
		tokens = tokens[:0]
		for i := 0; i < len(ended); i++ {
			r := ended[i]
			s.Outcome(now, r)
			sink(r)
		}
		ended = ended[:0]
	}
	now, instant, sends := int64(0), int64(-1), 0
	send := func(q Request) {
		if sends++; now != instant {
			instant, sends = now, 0
		}
		target.Send(q)
	}
	for step := 0; ; step++ {
		if step%1024 == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if sends > maxAtOnce {
			return fmt.Errorf("virtual time stands still at %d ns: %d requests were sent at one instant; turns without recorded times need a target that takes time", now, sends)
		}
		s.Due(now, send)
		if s.Cut() {
			target.Cancel()
		}
		take(now)
		for _, q := range s.Lost() {
			sink(lostRecord(&q, now))
		}
		if s.Done() {
			return nil
		}
		at, ok := s.Wake()
		if next, has := target.Next(); has && (!ok || next <= at) {
			now = max(now, next)
			target.Advance(now)
			take(now)
		} else if ok {
			now = max(now, at)
			if has {
				target.Advance(now)
			}
		} else {
			n := s.Counts()
			return fmt.Errorf("virtual time stands still at %d ns: %d requests in flight, %d turns blocked, and the target has no event to come", now, n.InFlight, n.Blocked)
		}
	}
}

// lostRecord accounts for a request whose outcome never came.
func lostRecord(q *Request, now int64) *record.Request {
	r := NewRecord(q)
	r.Times.End = now
	r.Failure = &record.Failure{Class: record.FailCancelled, Detail: "no outcome arrived after the cancellation"}
	return r
}

// onFirstToken asks a target for first tokens where the scheduler needs them.
func onFirstToken(s *Scheduler, target Target, f func(seq uint64)) error {
	if !s.NeedsFirstTokens() {
		return nil
	}
	t, ok := target.(FirstTokenTarget)
	if !ok {
		return fmt.Errorf("a limit on requests in prefill needs to know when first tokens arrive, which this target does not tell; leave the limit out")
	}
	t.OnFirstToken(f)
	return nil
}
