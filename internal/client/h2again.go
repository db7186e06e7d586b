package client

import (
	"errors"
	"math"
	"net"
	"sync"
	"sync/atomic"

	"golang.org/x/net/http2"

	"github.com/weirbench/weir/internal/record"
)

// h2Fate is what a connection of HTTP/2 says of requests that it did not process: a stream
// above the last one of a GOAWAY, and one that ended with REFUSED_STREAM, were not looked at
// (RFC 9113, 6.8 and 8.7). Of one that ended with the connection TCP may say the same.
type h2Fate struct {
	tcp    *net.TCPConn  // nil where nobody can ask it
	last   atomic.Uint32 // the last stream that a GOAWAY lets stand
	number uint32        // under way: what the payload of a frame begins with

	ended atomic.Uint64 // bytes acknowledged when the peer ended the connection, 0 before
	once  sync.Once
	gone  chan struct{} // the transport has given the connection up
}

func (f *h2Fate) init(tcp *net.TCPConn) {
	f.tcp, f.gone = tcp, make(chan struct{})
	f.last.Store(math.MaxInt32)
}

// first takes the first four bytes of a frame's payload, which may come in parts.
func (f *h2Fate) first(scan *frameScan, part []byte) (n uint32, whole bool) {
	for i, b := range part {
		if scan.at+i < 4 {
			f.number = f.number<<8 | uint32(b)
		}
	}
	return f.number, scan.left == 0 && scan.size >= 4
}

// frame takes a part of a frame that came and returns the error code of a stream that it ends.
func (f *h2Fate) frame(scan *frameScan, part []byte) (code http2.ErrCode, reset bool) {
	switch scan.kind {
	case http2.FrameGoAway:
		if n, whole := f.first(scan, part); whole {
			f.last.Store(min(f.last.Load(), n&math.MaxInt32))
		}
	case http2.FrameRSTStream:
		if n, whole := f.first(scan, part); whole {
			return http2.ErrCode(n), true
		}
	}
	return 0, false
}

// over notes, when the connection ends and not by the client's own hand, how much of what was
// written the peer had then.
func (f *h2Fate) over(err error) {
	if err == nil || f.tcp == nil || errors.Is(err, net.ErrClosed) {
		return
	}
	f.once.Do(func() { f.ended.Store(acked(f.tcp)) })
}

// base is what stands acknowledged as the head of a stream goes out over an idle connection, 0
// when it is not idle, was not used before, or nobody knows.
func (w *h2Watch) base(stream uint32) uint64 {
	if w.fate.tcp == nil || stream == 1 || len(w.streams) > 0 {
		return 0
	}
	return acked(w.fate.tcp)
}

// Close closes the connection. The transport does so once it gives it no further requests.
func (w *h2Watch) Close() error {
	err := w.Conn.Close()
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case <-w.fate.gone:
	default:
		close(w.fate.gone)
	}
	return err
}

// maxUnsent is how many connections may end before a byte of a request went out over them, until
// the request is given up.
const maxUnsent = 8

// neverSent is why an attempt failed of which nothing went out.
const neverSent = "the connection ended before a byte of the request went out"

// untouched says why nothing of a request was processed, when its attempt has ended; empty where
// that is not certain.
func (s *h2Stream) untouched() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.on == nil || s.answered || s.body || s.ended:
		return ""
	case s.refused:
		return "the server refused the stream before it processed anything of it (REFUSED_STREAM)"
	case s.stream > s.on.fate.last.Load():
		return "the server ended the connection before it processed anything of the stream (GOAWAY)"
	case s.unsent:
		return neverSent
	}
	if n := s.on.fate.ended.Load(); n > 0 && n <= s.acked {
		return "the server closed the idle connection before a byte of the request was acknowledged"
	}
	return ""
}

// again tells whether another attempt is due after one that ended in an error: the server
// certainly processed nothing of the first that went out, or nothing went out. why is the reason,
// empty where nobody is certain.
func (x *exchange) again(err error) (again bool, why string) {
	why = x.h2.untouched()
	if x.cancelled.Load() || x.expired.Load() || x.bodyFault.Load() != nil {
		return false, why
	}
	if x.h2.sent() == nil {
		fault := (*dialFault)(nil)
		if x.t.h2blind.Load() || x.progress.sent.Load() == record.Never || errors.As(err, &fault) {
			return false, ""
		}
		x.unsent++
		return x.unsent < maxUnsent, neverSent
	}
	return why != "" && !x.h2.resent(), why
}

// takeBack makes the connections forget an attempt, so that another can be made. A connection
// that has ended gets no request any more once takeBack returns; stop ends the waiting for that.
func (t *Target) takeBack(s *h2Stream, stop <-chan struct{}) {
	on := s.leave()
	s.mu.Lock()
	s.on, s.out = nil, nil
	s.mu.Unlock()
	if on != nil && on.fate.ended.Load() > 0 {
		on.Conn.Close()
		select {
		case <-on.fate.gone:
		case <-stop:
		}
	}
}

// leave takes a request off its connection's list and returns the connection, nil when it had
// none.
func (s *h2Stream) leave() *h2Watch {
	s.mu.Lock()
	on, stream := s.on, s.stream
	s.mu.Unlock()
	if on != nil {
		on.mu.Lock()
		delete(on.streams, stream)
		on.mu.Unlock()
	}
	return on
}
