package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"time"

	"golang.org/x/net/http2"

	"github.com/weirbench/weir/internal/record"
)

// newH2 makes the HTTP/2 transport of a host. It opens another connection when the server's
// limit of streams is reached, so nothing waits for a free stream.
func (t *Target) newH2(h *host) *http2.Transport {
	return &http2.Transport{
		AllowHTTP:          true,
		DisableCompression: true,
		IdleConnTimeout:    t.cfg.Timeouts.Idle,
		ReadIdleTimeout:    0,
		DialTLSContext: func(ctx context.Context, _, _ string, _ *tls.Config) (net.Conn, error) {
			c, err := t.dial(ctx, h, http2.NextProtoTLS)
			if err != nil {
				return nil, err
			}
			if tc, ok := c.Conn.(*tls.Conn); ok && tc.ConnectionState().NegotiatedProtocol != http2.NextProtoTLS {
				c.Close()
				return nil, &dialFault{record.FailTLS, fmt.Errorf("%s does not speak h2 over TLS", h.address)}
			}
			return t.watchH2(c.Conn, c.tcp, c.arrived), nil
		},
	}
}

// runH2 is the whole life of an exchange over HTTP/2. Its instants are those at which the
// connection had its frames, see h2Watch.
func (x *exchange) runH2() {
	defer x.t.finished(x)
	defer x.stop()
	body, err := x.t.cfg.Bodies.Body(&x.q)
	if err != nil {
		x.refuse(record.FailClient, "making the body: %v", err)
		return
	}
	x.h2 = x.t.await(x.t.cfg.requestHeaders(&x.q)[0][1])
	defer x.t.letGo(x.h2)
	for x.onH2(body) {
		x.t.takeBack(x.h2, x.ctx.Done())
		x.rec.Times.Sent = record.Never
	}
}

// onH2 makes one attempt and tells whether another one is due.
func (x *exchange) onH2(body Body) (again bool) {
	x.begin()
	x.progress.sent.Store(record.Never)
	ctx := httptrace.WithClientTrace(x.ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { x.progress.sent.Store(x.t.clock.Now()) },
	})
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, x.host.url.String(), &promised{r: body.Open(), left: body.Len(), x: x})
	if err != nil {
		x.refuse(record.FailClient, "%v", err)
		return false
	}
	req.ContentLength = body.Len()
	for _, h := range append(x.t.cfg.fixedHeaders(), x.t.cfg.requestHeaders(&x.q)...) {
		req.Header.Add(h[0], h[1])
	}
	watch := x.watch()
	defer watch.Stop()
	resp, err := x.host.h2.RoundTrip(req)
	at := x.t.clock.Now()
	x.rec.Times.Sent = x.progress.sent.Load()
	if out := x.h2.sent(); out != nil {
		x.out, x.rec.Times.Sent = out, out.at
		x.rec.Resent = x.h2.resent()
	}
	if err != nil {
		again, why := x.again(err)
		if again {
			return true
		}
		if why != "" && x.h2.resent() {
			err = fmt.Errorf("%s, also when it was sent again", why)
		} else if why != "" {
			err = errors.New(why)
		}
		x.lostH2(err, at)
		return false
	}
	defer resp.Body.Close()
	x.http.head = head{status: resp.StatusCode, media: mediaType(resp.Header.Get("Content-Type")),
		encoding: strings.ToLower(resp.Header.Get("Content-Encoding")), length: -1}
	if x.http.head.encoding == "identity" {
		x.http.head.encoding = ""
	}
	at = x.came(x.h2.answer(at))
	if err := x.headers(&x.http.head); err != nil {
		x.ans.fail(record.FailMalformed, "%v", err)
		x.finish(at, nil, false)
		return false
	}
	x.tell()
	x.readH2(resp.Body)
	return false
}

func mediaType(v string) string {
	media, _, _ := strings.Cut(v, ";")
	return strings.ToLower(strings.TrimSpace(media))
}

func (x *exchange) readH2(r io.Reader) {
	b := buffers.Get().(*[]byte)
	defer buffers.Put(b)
	for {
		n, err := r.Read(*b)
		now := x.t.clock.Now()
		for p := (*b)[:n]; len(p) > 0; {
			k, in := x.h2.take(len(p), now)
			at := x.came(in)
			fault := x.body(p[:k])
			x.settle(in)
			p = p[k:]
			if x.ans.done && x.doneAt == record.Never {
				x.doneAt = at
			}
			x.tell()
			var wire wireError
			if errors.As(fault, &wire) {
				x.ans.fail(record.FailMalformed, "%v", fault)
			}
			if fault != nil || x.ans.excerptFull() {
				x.finish(at, nil, true)
				return
			}
		}
		switch {
		case err == nil:
		case err == io.EOF:
			x.finish(x.stamp(x.h2.closed(now)), nil, true)
			return
		default:
			x.lostH2(err, now)
			return
		}
	}
}

// lostH2 ends an exchange whose stream or connection broke.
func (x *exchange) lostH2(err error, at int64) {
	if x.cancelled.Load() || x.expired.Load() {
		if x.rec.Times.Sent == record.Never && x.cancelled.Load() {
			x.refuse(record.FailCancelled, "")
			return
		}
		if x.rec.Times.Sent == record.Never {
			x.refuse(record.FailConnect, "no connection within %v", x.t.cfg.Timeouts.Connect)
			return
		}
		x.expire(at)
		return
	}
	if fault := (*dialFault)(nil); errors.As(err, &fault) {
		x.refuse(fault.class, "%v", fault.err)
		return
	}
	at = x.stamp(at)
	x.clientFault()
	if !x.begun {
		x.ans.fail(record.FailResetBefore, "the stream ended before a byte of the answer: %s", reason(err))
		x.finish(at, err, false)
		return
	}
	x.finish(at, fmt.Errorf("the stream ended in the middle of the answer: %s", reason(err)), false)
}

// watch ends the exchange at its deadline. It reads only the progress, since the reader owns
// the record.
func (x *exchange) watch() *time.Timer {
	p := &x.progress
	w := &x.t.cfg.Timeouts
	begun := x.t.clock.Now()
	var timer *time.Timer
	check := func() {
		from := p.sent.Load()
		var d int64
		switch {
		case from == record.Never:
			d = begun + int64(w.Connect+time.Second) // the dialer's own limit comes first
		case p.complete.Load() != record.Never:
			d = p.complete.Load() + doneGrace
		default:
			d = from + int64(w.Total)
			if token := p.token.Load(); token != record.Never {
				d = min(d, token+int64(w.Stream))
			} else if p.refused.Load() {
				d = min(d, p.headers.Load()+excerptGrace, from+int64(w.First))
			} else if p.headers.Load() != record.Never {
				d = min(d, from+int64(w.First))
			} else {
				d = min(d, from+int64(w.Headers))
			}
		}
		if left := d - x.t.clock.Now(); left > 0 {
			timer.Reset(time.Duration(min(left, doneGrace/4)))
			return
		}
		x.expired.Store(true)
		x.stop()
	}
	timer = time.AfterFunc(time.Hour, check)
	timer.Reset(time.Millisecond)
	return timer
}

// promised is a body that must be as long as it said.
type promised struct {
	r    io.Reader
	left int64
	x    *exchange
}

func (p *promised) Read(b []byte) (int, error) {
	n, err := p.r.Read(b)
	p.left -= int64(n)
	if p.left < 0 || err == io.EOF && p.left > 0 || err != nil && err != io.EOF {
		fault := fmt.Errorf("the body has not the length it promised: %d bytes are left at its end (%v)", p.left, err)
		p.x.bodyFault.Store(&fault)
		return 0, fault
	}
	return n, err
}

func (p *promised) Close() error {
	if c, ok := p.r.(io.Closer); ok {
		return c.Close()
	}
	return nil
}
