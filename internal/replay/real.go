package replay

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"runtime"
	"sync"
	"time"

	"github.com/weirbench/weir/internal/record"
)

// A Clock tells the nanoseconds since a run's epoch. It never goes back. Client, scheduler
// and records of one run share one.
type Clock interface{ Now() int64 }

// MonoClock is a Clock on the machine's monotonic clock.
type MonoClock struct{ epoch time.Time }

// NewClock starts a clock: its epoch is now.
func NewClock() MonoClock { return MonoClock{time.Now()} }

// Now is the time since the epoch in nanoseconds.
func (c MonoClock) Now() int64 { return int64(time.Since(c.epoch)) }

// Epoch is the wall-clock time of the epoch, read once when the clock was started.
func (c MonoClock) Epoch() time.Time { return c.epoch }

// RunReal plays a scheduler against a target under the real clock until it is done. One
// goroutine, the caller's, owns the machine; outcomes may come from any. Every request that
// was sent reaches sink exactly once, from the caller's goroutine.
//
// A request that goes out late says so: its Intended stays when the schedule wanted it, its
// Queued is when it was handed over. When ctx ends the scheduler is cancelled, what is in
// flight has the scheduler's drain time to end, and RunReal returns the cause. So it does with
// a *Stall when the scheduler has a watchdog and the target, a TokenTarget, makes no token.
func RunReal(ctx context.Context, s *Scheduler, target Target, clock Clock, sink func(*record.Request)) error {
	w, err := newWaker()
	if err != nil {
		return fmt.Errorf("timer of the replay driver: %w", err)
	}
	defer w.close()
	in := &inbox{wake: w.wake}
	target.Start(in.put)
	if err := onFirstToken(s, target, in.putToken); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, w.wake)
	defer stop()
	tokens, _ := target.(TokenTarget)
	var cause error
	for {
		list, firsts := in.take()
		for _, seq := range firsts {
			s.FirstToken(seq)
		}
		for _, r := range list {
			at := clock.Now()
			if r.Times.End >= 0 {
				at = min(at, r.Times.End)
			}
			s.Outcome(at, r)
			sink(r)
		}
		if cause == nil {
			if cause = mustStop(ctx, s, tokens, clock); cause != nil {
				s.Cancel(clock.Now())
			}
		}
		s.Due(clock.Now(), target.Send)
		if s.Cut() {
			target.Cancel()
		}
		for _, q := range s.Lost() {
			sink(lostRecord(&q, clock.Now()))
		}
		if s.Done() {
			return cause
		}
		at, ok := s.Wake()
		if ok {
			if wait := at - clock.Now(); wait > 0 {
				w.wait(wait)
			}
			continue
		}
		if s.Counts().InFlight == 0 && !in.waiting() {
			return fmt.Errorf("the replay stands still: nothing is in flight and no turn has a time to come (%d blocked)", s.Counts().Blocked)
		}
		w.wait(-1)
	}
}

// A TokenTarget tells when the last token of any request arrived, on the clock of the run;
// record.Never before the first. It is called from the driver's goroutine.
type TokenTarget interface {
	Target
	LastToken() int64
}

// mustStop says why the run has to end now: its context is over, or it stands still.
func mustStop(ctx context.Context, s *Scheduler, tokens TokenTarget, clock Clock) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if tokens == nil {
		return nil
	}
	if stall := s.stalled(clock.Now(), tokens.LastToken()); stall != nil {
		buf := make([]byte, 1<<20)
		stall.Goroutines = buf[:runtime.Stack(buf, true)]
		if d, ok := tokens.(interface{ Dump(io.Writer) }); ok {
			var table bytes.Buffer
			d.Dump(&table)
			stall.Connections = table.Bytes()
		}
		return stall
	}
	return nil
}

// inbox takes outcomes and first tokens from any goroutine.
type inbox struct {
	mu     sync.Mutex
	list   []*record.Request
	tokens []uint64
	wake   func()
}

func (b *inbox) put(r *record.Request) {
	b.mu.Lock()
	first := len(b.list)+len(b.tokens) == 0
	b.list = append(b.list, r)
	b.mu.Unlock()
	if first {
		b.wake()
	}
}

func (b *inbox) putToken(seq uint64) {
	b.mu.Lock()
	first := len(b.list)+len(b.tokens) == 0
	b.tokens = append(b.tokens, seq)
	b.mu.Unlock()
	if first {
		b.wake()
	}
}

func (b *inbox) take() ([]*record.Request, []uint64) {
	b.mu.Lock()
	l, tokens := b.list, b.tokens
	b.list, b.tokens = nil, nil
	b.mu.Unlock()
	return l, tokens
}

func (b *inbox) waiting() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.list)+len(b.tokens) > 0
}
