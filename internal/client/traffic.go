package client

import (
	"context"
	"net/http/httptrace"
	"sync/atomic"

	"github.com/weirbench/weir/internal/record"
)

// traffic counts what one attempt sent and received. The sender's part is atomic, since the
// answer may end before the sender has looked at the clock.
type traffic struct {
	known              bool // over HTTP/1.1
	reused             bool
	made               dialed
	in, reads          int64 // the reader's
	body               int64 // instant of the first byte of the body, the reader's
	bodyIn             int64 // without heads and the lengths between chunks, the reader's
	out, writes, whole atomic.Int64
	heads              atomic.Int64 // of out; set before an attempt begins
}

// dialed is how long a new connection took, nanoseconds.
type dialed struct{ dns, connect int64 }

func (f *traffic) reset() {
	f.known, f.reused, f.made = false, false, dialed{}
	f.in, f.reads, f.body, f.bodyIn = 0, 0, record.Never, 0
	f.out.Store(0)
	f.writes.Store(0)
	f.whole.Store(record.Never)
}

// on notes the connection of an attempt.
func (f *traffic) on(reused bool, made dialed) { f.known, f.reused, f.made = true, reused, made }

func (f *traffic) read(n int) {
	f.in += int64(n)
	f.reads++
}

// write notes bytes that are about to be written: the answer may come before the sender goes on.
func (f *traffic) write(n int) {
	f.out.Add(int64(n))
	f.writes.Add(1)
}

func (f *traffic) wire() *record.Wire {
	if !f.known {
		return nil
	}
	return &record.Wire{
		Reused: f.reused, DNSNs: f.made.dns, ConnectNs: f.made.connect, Written: f.whole.Load(), Body: f.body,
		BytesOut: f.out.Load(), BytesIn: f.in, BodyOut: max(f.out.Load()-f.heads.Load(), 0), BodyIn: f.bodyIn, Writes: f.writes.Load(), Reads: f.reads,
	}
}

// dialTimed dials and says how long the look-up of the name and the rest took.
func (t *Target) dialTimed(ctx context.Context, h *host, protocols ...string) (*conn, dialed, error) {
	if !t.cfg.Wire {
		c, err := t.dial(ctx, h, protocols...)
		return c, dialed{}, err
	}
	var from, dns atomic.Int64
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		DNSStart: func(httptrace.DNSStartInfo) { from.Store(t.clock.Now()) },
		DNSDone:  func(httptrace.DNSDoneInfo) { dns.Store(t.clock.Now() - from.Load()) },
	})
	begun := t.clock.Now()
	c, err := t.dial(traced, h, protocols...)
	took := t.clock.Now() - begun
	return c, dialed{dns: dns.Load(), connect: max(took-dns.Load(), 0)}, err
}
