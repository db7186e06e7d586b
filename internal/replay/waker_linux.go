package replay

import (
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// waker waits on a timerfd through the runtime's poller. The runtime's own timers wait in
// epoll, which counts whole milliseconds; a timerfd wakes it to the microsecond and keeps no
// thread.
type waker struct {
	fd int
	f  *os.File
	c  chan struct{}
}

// maxWait bounds every wait, so that a lost wake-up costs no more than this.
const maxWait = int64(time.Second)

func newWaker() (*waker, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return nil, err
	}
	w := &waker{fd: fd, f: os.NewFile(uintptr(fd), "timerfd"), c: make(chan struct{}, 1)}
	go func() {
		var b [8]byte
		for {
			if _, err := w.f.Read(b[:]); err != nil {
				return // closed
			}
			w.wake()
		}
	}()
	return w, nil
}

// wait returns after ns nanoseconds, or when wake was called; a negative ns is as long as it
// takes. It may return early.
func (w *waker) wait(ns int64) {
	if ns < 0 || ns > maxWait {
		ns = maxWait
	}
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(max(ns, 1))}
	if err := unix.TimerfdSettime(w.fd, 0, &spec, nil); err != nil {
		time.Sleep(time.Duration(ns))
		return
	}
	<-w.c
}

// wake ends the wait that runs or the next one. It may be called from any goroutine.
func (w *waker) wake() {
	select {
	case w.c <- struct{}{}:
	default:
	}
}

func (w *waker) close() { _ = w.f.Close() }
