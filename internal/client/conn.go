package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/weirbench/weir/internal/record"
)

// A conn is one connection to a host, driven by the goroutine of the exchange that has it.
type conn struct {
	net.Conn
	tcp    *net.TCPConn
	reused bool
	since  int64  // when it became idle
	keep   int64  // nanoseconds that it may be idle
	base   uint64 // bytes acknowledged when the exchange began
	whole  bool   // the whole request is with the kernel; the writer's until it has ended
	// arrived tells when the bytes of the last Read came, nil where nobody knows.
	arrived func() arrival
}

// idleConns are the connections of a host that wait for a request, the last used on top.
type idleConns struct {
	mu   sync.Mutex
	list []*conn
}

// get takes the connection that was used last and is still open.
func (h *host) get(now int64) *conn {
	h.idle.mu.Lock()
	defer h.idle.mu.Unlock()
	for n := len(h.idle.list); n > 0; n = len(h.idle.list) {
		c := h.idle.list[n-1]
		h.idle.list[n-1] = nil
		h.idle.list = h.idle.list[:n-1]
		if now-c.since < c.keep && quiet(c.tcp) {
			c.reused = true
			return c
		}
		c.Close()
	}
	return nil
}

func (h *host) put(c *conn, now int64) {
	c.since = now
	h.idle.mu.Lock()
	defer h.idle.mu.Unlock()
	old := 0 // those at the bottom have waited longest
	for old < len(h.idle.list) && now-h.idle.list[old].since >= h.idle.list[old].keep {
		h.idle.list[old].Close()
		old++
	}
	h.idle.list = append(h.idle.list[:0], h.idle.list[old:]...)
	h.idle.list = append(h.idle.list, c)
}

func (h *host) closeIdle() {
	h.idle.mu.Lock()
	defer h.idle.mu.Unlock()
	for _, c := range h.idle.list {
		c.Close()
	}
	h.idle.list = nil
}

// dialFault is a connection that could not be made, with the class of its failure.
type dialFault struct {
	class record.Class
	err   error
}

func (e *dialFault) Error() string { return e.err.Error() }

// dial makes a connection within the Connect timeout.
func (t *Target) dial(ctx context.Context, h *host, protocols ...string) (*conn, error) {
	ctx, cancel := context.WithTimeout(ctx, t.cfg.Timeouts.Connect)
	defer cancel()
	nc, err := t.dialer.DialContext(ctx, "tcp", h.address)
	if err != nil {
		class := record.FailConnect
		var dns *net.DNSError
		switch {
		case errors.As(err, &dns):
			class = record.FailDNS
		case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE), errors.Is(err, syscall.EADDRNOTAVAIL):
			class = record.FailClient
		}
		return nil, &dialFault{class, err}
	}
	c := &conn{Conn: nc, tcp: nc.(*net.TCPConn), keep: int64(t.cfg.Timeouts.Idle)}
	var under arriver
	if h.secure || len(t.pollers) == 0 { // a poller takes its own stamps
		under = t.stampTCP(c.tcp)
	}
	if under != nil {
		c.Conn, c.arrived = under, under.arrived
	}
	if h.secure {
		cfg := t.tls.Clone()
		if cfg.ServerName == "" {
			cfg.ServerName = h.name
		}
		cfg.NextProtos = protocols
		if under != nil {
			r := &recordWatch{arriver: under}
			c.Conn, c.arrived = r, r.arrived
		}
		tc := tls.Client(c.Conn, cfg)
		if err := tc.HandshakeContext(ctx); err != nil {
			nc.Close()
			return nil, &dialFault{record.FailTLS, fmt.Errorf("TLS with %s: %w", h.address, err)}
		}
		c.Conn = tc
	}
	return c, nil
}

// run is the whole life of an exchange over HTTP/1.1.
func (x *exchange) run() {
	defer x.t.finished(x)
	defer x.stop()
	body, err := x.t.cfg.Bodies.Body(&x.q)
	if err != nil {
		x.refuse(record.FailClient, "making the body: %v", err)
		return
	}
	for {
		var made dialed
		var c *conn
		if now := x.t.clock.Now(); !x.rec.Resent { // what goes out again meets no second idle connection
			c = x.host.get(now)
		}
		if c == nil {
			c, made, err = x.t.dialTimed(x.ctx, x.host, "http/1.1")
		}
		if err != nil {
			fault := err.(*dialFault)
			x.refuse(fault.class, "%v", fault.err)
			return
		}
		if !x.on(c, made, body) {
			return
		}
	}
}

// on makes one attempt over a connection and tells whether another one is due.
func (x *exchange) on(c *conn, made dialed, body Body) (again bool) {
	x.begin()
	x.traffic.on(c.reused, made)
	cut := func() { c.SetDeadline(time.Unix(1, 0)) }
	c.base, c.whole = acked(c.tcp), false
	out := x.out
	out.at = x.t.clock.Now()
	x.rec.Times.Sent = out.at
	x.progress.sent.Store(out.at)
	x.cut.Store(&cut)
	if x.cancelled.Load() {
		cut()
	}
	writer := make(chan struct{})
	if body.Len() < inlineBody { // fits the socket's buffer: no second goroutine
		x.write(c, body, out)
		close(writer)
	} else {
		go func() {
			defer close(writer)
			x.write(c, body, out)
		}()
	}
	again = x.read(c)
	x.cut.Store(nil)
	if x.reusable {
		c.SetWriteDeadline(time.Now().Add(lateWriter))
		<-writer
	}
	if x.reusable && c.whole {
		c.SetDeadline(time.Time{})
		if k := x.http.head.keepAlive; k > 0 {
			c.keep = min(c.keep, k*int64(time.Second)-int64(time.Second)/2)
		}
		x.host.put(c, x.t.clock.Now())
		return again
	}
	c.Close()
	<-writer
	return again
}

// inlineBody is the size under which a request is written before its answer is read, bytes.
const inlineBody = 24 << 10

var buffers = sync.Pool{New: func() any { b := make([]byte, 32<<10); return &b }}

// read takes the answer from the connection.
func (x *exchange) read(c *conn) (again bool) {
	b := buffers.Get().(*[]byte)
	defer buffers.Put(b)
	armed := int64(0)
	for {
		if d := x.deadline(); armed == 0 {
			armed = d
			c.SetReadDeadline(time.Now().Add(time.Duration(d - x.t.clock.Now())))
			if x.cancelled.Load() || x.bodyFault.Load() != nil { // it was set before, to no avail
				c.SetReadDeadline(time.Unix(1, 0))
			}
		} else if d < armed { // a shorter phase began
			armed = 0
			continue
		}
		n, err := c.Read(*b)
		at := x.t.clock.Now()
		if n > 0 {
			in := arrival{at: at, loose: record.Unknown}
			if c.arrived != nil {
				in = c.arrived()
			}
			if x.take((*b)[:n], in) {
				return false
			}
		}
		if err == nil {
			continue
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return x.lost(err, at, c.reused, func() bool { return acked(c.tcp) != c.base })
		}
		if !x.cancelled.Load() && x.bodyFault.Load() == nil && at < x.deadline() {
			armed = 0 // tokens came since it was set
			continue
		}
		x.expire(at)
		return false
	}
}

// write sends the request. What goes wrong with the connection is the reader's to see.
func (x *exchange) write(c *conn, body Body, out *sending) {
	b := buffers.Get().(*[]byte)
	defer buffers.Put(b)
	err := x.produce(body, *b, func(p []byte, last bool) error {
		x.traffic.write(len(p))
		_, err := c.Write(p)
		out.wrote(x.t.clock.Now())
		c.whole = err == nil && last
		return err
	})
	if fault := (*bodyFault)(nil); errors.As(err, &fault) {
		x.bodyFault.Store(&fault.err)
		c.SetReadDeadline(time.Unix(1, 0))
	}
}

// bodyFault is a body that did not give what it had promised.
type bodyFault struct{ err error }

func (e *bodyFault) Error() string { return e.err.Error() }

// produce makes the request in pieces of at most the size of b and says which is the last.
func (x *exchange) produce(body Body, b []byte, send func(p []byte, last bool) error) error {
	size := body.Len()
	n := len(x.t.appendHead(b[:0], x, size))
	x.traffic.heads.Store(int64(n))
	r := body.Open()
	if c, ok := r.(io.Closer); ok {
		defer c.Close()
	}
	for left := size; ; {
		want := int(min(int64(len(b)-n), left))
		got, err := io.ReadFull(r, b[n:n+want])
		if err != nil {
			return &bodyFault{fmt.Errorf("the body ended after %d of %d bytes: %w", size-left+int64(got), size, err)}
		}
		left -= int64(got)
		if err := send(b[:n+got], left == 0); err != nil {
			return err
		}
		if left == 0 && x.t.cfg.Wire {
			x.traffic.whole.Store(x.t.clock.Now())
		}
		if n = 0; left == 0 {
			break
		}
	}
	if n, _ := r.Read(b[:1]); n > 0 {
		return &bodyFault{fmt.Errorf("the body is longer than the %d bytes that it promised", size)}
	}
	return nil
}

// appendHead writes the head of a request. A head that does not fit is a fault of the
// configuration and was refused by New.
func (t *Target) appendHead(b []byte, x *exchange, size int64) []byte {
	b = append(b, x.host.request...)
	b = append(b, t.fixed...)
	for _, h := range t.cfg.requestHeaders(&x.q) {
		b = append(append(append(append(b, h[0]...), ": "...), h[1]...), "\r\n"...)
	}
	return fmt.Appendf(b, "Content-Length: %d\r\n\r\n", size)
}
