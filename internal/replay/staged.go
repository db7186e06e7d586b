package replay

import (
	"fmt"

	"github.com/weirbench/weir/internal/record"
)

// ramp names what a ramp opens one by one.
type ramp uint8

const (
	none     ramp = iota
	sessions      // slots of Concurrency
	waiting       // of PrefillConcurrency
	steps
)

// ramps opens what no ramp holds back, and sets when the rest follows: the first slot at once, the last
// one at the end of the ramp.
func (l *load) ramps(t int64) {
	for _, r := range []struct {
		what  ramp
		slots int
		over  int64
	}{{sessions, l.o.Concurrency, l.o.RampNs}, {waiting, l.o.PrefillConcurrency, l.o.PrefillRampNs}} {
		l.open[r.what] = r.slots
		if !l.o.AsAIPerf || r.over <= 0 {
			continue
		}
		l.open[r.what] = min(1, r.slots)
		for k := 1; k < r.slots; k++ {
			l.seq++
			at := t + int64(float64(r.over)*float64(k)/float64(r.slots-1))
			l.events.push(loadEvent{at: at, seq: l.seq, step: r.what})
		}
	}
}

// widen takes a step of a ramp.
func (l *load) widen(e loadEvent) {
	if l.open[e.step]++; e.step == sessions && l.o.Arrival == Closed {
		l.fill(func(int) int64 { return e.at })
	}
}

// Warmup is a load before the one that counts: it ends with the first of its bounds, and when all that it sent
// has ended the load that counts begins.
type Warmup struct {
	// Load has the arrivals, the concurrency and the bounds: MaxRequests, MaxConversations, DurationNs with
	// GraceNs. Seed, AsAIPerf, EachTurn, Sampling, MaxOut, FreeOutput, DrainNs and NoGaps are those of the load that counts.
	Load
	// Conversations of its own, at the end of the list, are sent again and again until a bound and not in the
	// load that counts, so that nothing is warm; 0 takes those of that load.
	Conversations int `json:"conversations,omitempty"`
}

// warmed puts the warm-up before a load.
func (l *load) warmed() error {
	o := l.o.Warmup.Load
	o.Seed, o.AsAIPerf, o.Sampling, o.MaxOut, o.FreeOutput, o.DrainNs, o.NoGaps = l.o.Seed, l.o.AsAIPerf, l.o.Sampling, l.o.MaxOut, l.o.FreeOutput, l.o.DrainNs, l.o.NoGaps
	o.Loop = true
	switch {
	case o.Warmup != nil || o.WarmupRequests != 0:
		return fmt.Errorf("it has no warm-up of its own")
	case o.Arrival > Gamma:
		return fmt.Errorf("it is a closed loop or at a rate")
	}
	if err := o.check(len(l.warm)); err != nil {
		return err
	}
	w := newLoad(o)
	w.phase, w.units, w.s, w.seen, w.o = record.Primer, l.warm, l.s, l.seen, o.settled()
	l.s.firstTokens = l.s.firstTokens || o.PrefillConcurrency > 0
	l.o.WarmupRequests = 0
	l.s.m = &staged{now: w, then: l}
	return nil
}

// staged is a load after a warm-up.
type staged struct {
	now  *load // what is going on
	then *load // what comes after it; nil once it goes on
}

func (g *staged) next() {
	if g.then != nil && g.now.idle() {
		g.now, g.then = g.then, nil
	}
}

func (g *staged) due(t int64) {
	g.now.due(t)
	if g.then != nil && g.now.idle() {
		g.next()
		g.now.due(t)
	}
}

func (g *staged) wake() (int64, bool) {
	g.next()
	return g.now.wake()
}

func (g *staged) outcome(t int64, f *flight, r *record.Request) { g.now.outcome(t, f, r) }

func (g *staged) firstToken(seq uint64) { g.now.firstToken(seq) }

func (g *staged) stop(t int64) {
	g.now.stop(t)
	if g.then != nil {
		g.then.stop(t)
	}
}

func (g *staged) idle() bool { return g.now.idle() && (g.then == nil || g.then.idle()) }

func (g *staged) counts(n *Counts) { g.now.counts(n) }
