package client

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/weirbench/weir/internal/record"
)

// A wire is one plain connection whose reads a poller does. The goroutine of an exchange
// dials and writes; from the first byte on whatever comes back is handled by the poller.
//
// mu guards everything that both touch, the exchange's state included while it is attached.
type wire struct {
	fd   int
	slot int32
	p    *poller
	h    *host
	keep int64 // nanoseconds that it may be idle

	mu       sync.Mutex
	x        *exchange // nil while idle
	reused   bool
	dead     bool // shut down: no exchange may use it
	writing  bool // a goroutine is inside a write: the descriptor must stay
	closed   bool
	since    int64     // when it became idle
	acked    uint64    // bytes acknowledged when the exchange began
	older    int64     // what is read next came after this instant, where the last read left some behind; else Never
	hup      bool      // the server ended its side: read until the end is seen
	pending  bool      // goes back among the idle once its writer has left
	owed     *exchange // its outcome waits for that, for a moment; nil otherwise
	waiting  atomic.Bool
	writable chan struct{}
}

// newWire takes the descriptor of a fresh connection out of the Go runtime's hands, so that
// its bytes wake only the poller.
func (t *Target) newWire(c *conn, h *host) (*wire, error) {
	raw, err := c.tcp.SyscallConn()
	if err != nil {
		return nil, err
	}
	fd := -1
	if cerr := raw.Control(func(s uintptr) { fd, err = unix.FcntlInt(s, unix.F_DUPFD_CLOEXEC, 0) }); cerr != nil {
		err = cerr
	}
	c.Close()
	if err != nil {
		return nil, err
	}
	stampSocket(fd)
	w := &wire{fd: fd, h: h, keep: c.keep, writable: make(chan struct{}, 1), p: t.pollers[t.nextPoller.Add(1)%uint64(len(t.pollers))]}
	if err := w.p.add(w); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return w, nil
}

// runWire is the sending half of an exchange over HTTP/1.1 without TLS.
func (x *exchange) runWire() {
	body, err := x.t.cfg.Bodies.Body(&x.q)
	if err != nil {
		x.abandon(record.FailClient, "making the body: %v", err)
		return
	}
	x.sendWire(body)
}

// abandon ends an exchange that no wire has.
func (x *exchange) abandon(class record.Class, format string, args ...any) {
	x.refuse(class, format, args...)
	x.stop()
	x.t.finished(x)
}

func (x *exchange) sendWire(body Body) {
	b := buffers.Get().(*[]byte)
	defer buffers.Put(b)
	var w *wire
	whole := false
	var out *sending
	err := x.produce(body, *b, func(p []byte, last bool) (err error) {
		if w == nil {
			if w, out, err = x.attach(body); err != nil {
				return err
			}
		}
		x.traffic.write(len(p))
		err = w.write(p)
		out.wrote(x.t.clock.Now())
		whole = err == nil && last
		return err
	})
	fault := (*bodyFault)(nil)
	isFault := errors.As(err, &fault)
	if w == nil {
		switch dial := (*dialFault)(nil); {
		case isFault:
			x.abandon(record.FailClient, "%v", fault.err)
		case errors.As(err, &dial):
			x.abandon(dial.class, "%v", dial.err)
		default:
			x.abandon(record.FailClient, "%v", err)
		}
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writing = false
	if isFault && w.x == x {
		x.bodyFault.Store(&fault.err)
		x.expire(x.t.clock.Now())
		w.detach()
	}
	if w.pending && !w.dead {
		if whole {
			w.h.putWire(w)
		} else {
			w.shut()
		}
	}
	w.pending = false
	w.closeIfDone()
	w.pay(x)
}

// attach finds or makes a wire, gives it the exchange and stamps Sent.
func (x *exchange) attach(body Body) (*wire, *sending, error) {
	for {
		var made dialed
		var w *wire
		if now := x.t.clock.Now(); !x.rec.Resent { // what goes out again meets no second idle connection
			w = x.host.getWire(now)
		}
		if w == nil {
			c, took, err := x.t.dialTimed(x.ctx, x.host)
			made = took
			if err != nil {
				return nil, nil, err
			}
			if w, err = x.t.newWire(c, x.host); err != nil {
				return nil, nil, fmt.Errorf("taking over the connection: %w", err)
			}
		}
		w.mu.Lock()
		if now := x.t.clock.Now(); w.dead || w.reused && (now-w.since >= w.keep || !quietFd(w.fd)) {
			w.shut()
			w.closeIfDone()
			w.mu.Unlock()
			continue
		}
		x.begin()
		x.traffic.on(w.reused, made)
		x.made = body
		x.wire.Store(w)
		if x.cancelled.Load() {
			w.dead = true
			w.shut()
			w.closeIfDone()
			w.mu.Unlock()
			return nil, nil, errors.New("cancelled")
		}
		w.acked, w.older = w.ackedBytes(), record.Never
		w.x, w.writing = x, true
		out := x.out // the exchange has another once the connection is lost
		out.at = x.t.clock.Now()
		x.rec.Times.Sent = out.at
		x.progress.sent.Store(out.at)
		w.mu.Unlock()
		return w, out, nil
	}
}

// write sends all of p, waiting for room where there is none.
func (w *wire) write(p []byte) error {
	for len(p) > 0 {
		n, err := writeNow(w.fd, p)
		if err == unix.EAGAIN {
			w.waiting.Store(true)
			if n, err = writeNow(w.fd, p); err == unix.EAGAIN {
				<-w.writable
				w.waiting.Store(false)
				continue
			}
			w.waiting.Store(false)
		}
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		p = p[n:]
	}
	return nil
}

// writeNow writes to a socket that does not wait; see epollNow. p is not empty.
func writeNow(fd int, p []byte) (int, error) {
	n, _, errno := unix.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(&p[0])), uintptr(len(p)))
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// wake lets a writer try again.
func (w *wire) wake() {
	select {
	case w.writable <- struct{}{}:
	default:
	}
}

// ready handles events of the connection in the poller. It returns true when there may be
// more to read than its turn allowed.
func (w *wire) ready(events uint32) (more bool) {
	if events&(unix.EPOLLOUT|unix.EPOLLHUP|unix.EPOLLERR) != 0 && w.waiting.Load() {
		w.wake()
	}
	const input = unix.EPOLLIN | unix.EPOLLRDHUP | unix.EPOLLHUP | unix.EPOLLERR
	if events&input == 0 {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.dead {
		return false
	}
	w.hup = w.hup || events&^(unix.EPOLLIN|unix.EPOLLOUT) != 0
	if w.x == nil { // the server closed an idle connection, or talks without being asked
		w.h.dropWire(w)
		w.shut()
		w.closeIfDone()
		return false
	}
	r := w.p.recv
	for range readTurns {
		n, lag, err := r.recv(w.fd)
		now := w.p.t.clock.Now()
		switch {
		case err == unix.EAGAIN:
			return false
		case err == unix.EINTR:
			continue
		case err != nil:
			w.lost(err, now)
			return false
		case n == 0:
			w.lost(io.EOF, now)
			return false
		}
		if w.x.take(r.buf[:n], w.p.arrival(now, lag, w.older)) {
			w.detach()
			return false
		}
		switch full := n == len(r.buf); {
		case full && w.older == record.Never:
			w.older = w.p.askedAt
		case !full:
			w.older = record.Never
			if !w.hup {
				return false
			}
		}
	}
	return true
}

// lost handles the end of the connection while it has an exchange.
func (w *wire) lost(err error, at int64) {
	x := w.x
	if x.lost(err, at, w.reused, func() bool { return w.ackedBytes() != w.acked }) {
		w.x = nil
		w.shut()
		w.closeIfDone()
		go x.sendWire(x.made)
		return
	}
	w.detach()
}

// detach parts the wire from its exchange, whose outcome stands, and keeps or closes it.
func (w *wire) detach() {
	x := w.x
	w.x = nil
	if x.reusable && !w.hup {
		w.reused = true
		w.since = w.p.t.clock.Now()
		if k := x.http.head.keepAlive; k > 0 {
			w.keep = min(w.keep, k*int64(time.Second)-int64(time.Second)/2)
		}
		if w.pending = w.writing; w.pending {
			w.owed = x
			time.AfterFunc(writerMoment, func() {
				w.mu.Lock()
				defer w.mu.Unlock()
				w.pay(x)
			})
			time.AfterFunc(lateWriter, w.giveUp)
			return
		}
		w.h.putWire(w)
	} else {
		w.shut()
		w.closeIfDone()
	}
	x.stop()
	x.t.finished(x)
}

// pay delivers the outcome of an exchange that was answered before its writer had left.
func (w *wire) pay(x *exchange) {
	if w.owed == x {
		w.owed = nil
		x.stop()
		x.t.finished(x)
	}
}

// writerMoment is how long an outcome waits for the writer to put the connection back, so that the
// request that follows on it finds it. The writer needs it only to return from its last write.
const writerMoment = time.Millisecond

// giveUp closes a wire whose server answered without reading the request.
func (w *wire) giveUp() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.pending {
		w.shut()
	}
}

// shut ends the connection; a writer that is still at it gets an error.
func (w *wire) shut() {
	w.dead = true
	if w.writing {
		unix.Shutdown(w.fd, unix.SHUT_RDWR)
		w.wake()
	}
}

// closeIfDone closes the descriptor of a dead wire once nobody writes to it.
func (w *wire) closeIfDone() {
	if w.dead && !w.writing && !w.closed {
		w.closed = true
		w.p.remove(w)
		unix.Close(w.fd)
	}
}

func (w *wire) ackedBytes() uint64 {
	info, err := unix.GetsockoptTCPInfo(w.fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil {
		return 0
	}
	return info.Bytes_acked
}

// checkDeadline ends the exchange when its deadline has passed on a wire.
func (x *exchange) checkDeadline() {
	w := x.wire.Load()
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if now := x.t.clock.Now(); w.x == x && now >= x.deadline() {
		x.expire(now)
		w.detach()
	}
}

// cancelWire ends the exchange where it is attached to a wire.
func (x *exchange) cancelWire() {
	w := x.wire.Load()
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.x == x {
		x.expire(x.t.clock.Now())
		w.detach()
	}
}
