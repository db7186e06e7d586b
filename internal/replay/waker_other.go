//go:build !linux

package replay

import "time"

// waker waits on the runtime's timers, which are exact to about a millisecond.
type waker struct {
	c     chan struct{}
	timer *time.Timer
}

const maxWait = int64(time.Second)

func newWaker() (*waker, error) {
	return &waker{make(chan struct{}, 1), time.NewTimer(time.Hour)}, nil
}

// wait returns after ns nanoseconds, or when wake was called; a negative ns is as long as it takes.
func (w *waker) wait(ns int64) {
	if ns < 0 || ns > maxWait {
		ns = maxWait
	}
	w.timer.Reset(time.Duration(ns))
	select {
	case <-w.c:
	case <-w.timer.C:
	}
}

// wake ends the wait that runs or the next one. It may be called from any goroutine.
func (w *waker) wake() {
	select {
	case w.c <- struct{}{}:
	default:
	}
}

func (w *waker) close() { w.timer.Stop() }
