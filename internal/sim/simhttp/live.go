package simhttp

import (
	"context"
	"sync"
	"time"

	"github.com/weirbench/weir/internal/record"
	"github.com/weirbench/weir/internal/sim"
)

// core is what the server drives: a sim.Core, or a sim.Fixed.
type core interface {
	Refusal(prompt, maxOut int64) *record.Failure
	Submit(at int64, t sim.Task)
	Next() (int64, bool)
	Advance(t int64) []sim.Event
	Cancel(id uint64)
	CancelAll()
	Flush() bool
	Stats() []sim.Stats
}

// live drives a core by the clock of the machine: it sleeps until the core's next event, or
// until something comes in.
type live struct {
	mu    sync.Mutex
	core  core
	start time.Time
	speed float64 // engine time per time
	calls map[uint64]*call
	next  uint64
	wake  chan struct{}
	dead  *record.Failure // set when the engine died
}

// A call is one request inside the server.
type call struct {
	id     uint64
	mu     sync.Mutex
	events []sim.Event
	ready  chan struct{} // has an element when there are events
}

func newLive(c core, speed float64) *live {
	return &live{core: c, start: time.Now(), speed: speed, calls: map[uint64]*call{}, wake: make(chan struct{}, 1)}
}

// now is engine time, nanoseconds.
func (l *live) now() int64 { return int64(float64(time.Since(l.start)) * l.speed) }

// wall is how long so much engine time takes.
func (l *live) wall(ns int64) time.Duration { return time.Duration(float64(ns) / l.speed) }

// run drives the core until ctx ends.
func (l *live) run(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		l.mu.Lock()
		l.advance()
		at, ok := l.core.Next()
		now := l.now()
		l.mu.Unlock()
		wait := time.Hour
		if ok {
			wait = max(0, l.wall(at-now))
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
			return
		case <-l.wake:
		case <-timer.C:
		}
	}
}

// advance brings the core up to now and hands out what happened. l.mu is held.
func (l *live) advance() {
	for _, e := range l.core.Advance(l.now()) {
		c := l.calls[e.ID]
		if c == nil {
			continue
		}
		if e.Kind == sim.Ended {
			delete(l.calls, e.ID)
		}
		c.push(e)
	}
}

func (c *call) push(e sim.Event) {
	c.mu.Lock()
	c.events = append(c.events, e)
	c.mu.Unlock()
	select {
	case c.ready <- struct{}{}:
	default:
	}
}

// take returns the events so far.
func (c *call) take() []sim.Event {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.events
	c.events = nil
	return e
}

func (l *live) poke() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// submit sends a task to the core, or says why it cannot be served.
func (l *live) submit(t sim.Task) (*call, *record.Failure) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead != nil {
		return nil, l.dead
	}
	if f := l.core.Refusal(t.Prompt, t.MaxOut); f != nil {
		return nil, f
	}
	l.advance()
	l.next++
	t.ID = l.next
	c := &call{id: t.ID, ready: make(chan struct{}, 1)}
	l.calls[t.ID] = c
	l.core.Submit(l.now(), t)
	l.poke()
	return c, nil
}

// cancel gives a call up.
func (l *live) cancel(c *call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.calls, c.id)
	l.core.Cancel(c.id)
	l.poke()
}

// kill ends the engine: everything in flight fails, and so does all that comes.
func (l *live) kill(why *record.Failure) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dead = why
	for id, c := range l.calls {
		c.push(sim.Event{Kind: sim.Ended, ID: id, Failure: why})
	}
	clear(l.calls)
	l.core.CancelAll()
	l.core.Advance(l.now())
}

func (l *live) stats() []sim.Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.advance()
	return l.core.Stats()
}

// clearStorage empties the third tier when nothing is fetched from it.
func (l *live) clearStorage() bool {
	c, ok := l.core.(*sim.Core)
	if !ok {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.advance()
	return c.ClearStorage()
}

func (l *live) flush() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.advance()
	return l.core.Flush()
}
