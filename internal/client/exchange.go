package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/weirbench/weir/internal/record"
	"github.com/weirbench/weir/internal/replay"
)

// doneGrace is how long the end of a body is waited for after the stream said [DONE].
const doneGrace = int64(2 * time.Second)

// excerptGrace is how long the text of a refusal is waited for after its head: the status has said
// what happened, and a server that then falls silent must not hold its request as a queue may.
const excerptGrace = int64(2 * time.Second)

// lateWriter is how long a writer may take to notice that its request was answered before a
// connection is given up that the server did not read to the end.
const lateWriter = time.Second

// An exchange is one request on its way: at most two attempts that went out, one outcome.
//
// The goroutine that sends and the one that reads share it in a fixed order: everything is
// set before the first byte is written, after that only the reader touches it, except for
// the atomics.
type exchange struct {
	t    *Target
	q    replay.Request
	rec  *record.Request
	host *host

	http     http1
	ans      answer
	inflate  *inflater
	begun    bool  // a byte of the answer came
	over     bool  // the outcome stands
	reusable bool  // the connection can be used again
	doneAt   int64 // when the stream said [DONE], Never before
	lastAt   int64 // instant of the last read
	made     Body
	wire     atomic.Pointer[wire] // where a poller reads

	traffic   traffic
	out       *sending  // of the attempt under way
	h2        *h2Stream // its stream, over HTTP/2
	unsent    int       // attempts over HTTP/2 of which nothing went out
	firstAt   int64     // when the first byte of the answer came, Never before
	readAt    int64     // instant of the last read with bytes of the answer,
	readIn    arrival   // and what is known of it
	ctx       context.Context
	stop      context.CancelFunc
	cancelled atomic.Bool
	cut       atomic.Pointer[func()] // ends the waiting of the reader
	bodyFault atomic.Pointer[error]  // the body could not be made

	progress progress
	expired  atomic.Bool // the watch over an HTTP/2 stream ended it
}

// A sending is how the first bytes of an attempt went out. Its writer may still be at it when
// another attempt has begun.
type sending struct {
	at   int64        // Times.Sent
	took atomic.Int64 // from then to the end of the first write, Unknown before
}

func newSending() *sending {
	s := &sending{}
	s.took.Store(record.Unknown)
	return s
}

// wrote notes that a write has ended.
func (s *sending) wrote(now int64) { s.took.CompareAndSwap(record.Unknown, now-s.at) }

// progress is how far an exchange has come, for those who do not own it: instants, Never
// before.
type progress struct {
	sent, headers, token, complete atomic.Int64
	frames                         atomic.Int64
	refused                        atomic.Bool // the head has a status that is no success
}

func (p *progress) reset() {
	p.sent.Store(record.Never)
	p.headers.Store(record.Never)
	p.token.Store(record.Never)
	p.complete.Store(record.Never)
	p.frames.Store(0)
	p.refused.Store(false)
}

// tell publishes how far the exchange has come, and its first token to whoever asked.
func (x *exchange) tell() {
	t, p := &x.rec.Times, &x.progress
	p.headers.Store(t.Headers)
	p.complete.Store(x.doneAt)
	p.refused.Store(x.ans.mode == modeError)
	if n := x.ans.frames; n != p.frames.Load() {
		first := p.frames.Swap(n) == 0
		p.token.Store(t.LastToken)
		x.t.tokenAt(t.LastToken)
		if first && x.t.onFirst != nil {
			x.t.onFirst(x.q.Seq)
		}
	}
}

func newExchange(t *Target, q replay.Request) *exchange {
	x := &exchange{t: t, q: q, host: t.choose(&q), doneAt: record.Never, lastAt: record.Never, out: newSending()}
	x.rec = replay.NewRecord(&q)
	x.progress.reset()
	x.rec.URL, x.rec.Model = x.host.base, t.cfg.Model
	x.ctx, x.stop = context.WithCancel(context.Background())
	return x
}

// cancel ends the exchange from outside.
func (x *exchange) cancel() {
	x.cancelled.Store(true)
	x.stop()
	if cut := x.cut.Load(); cut != nil {
		(*cut)()
	}
	x.cancelWire()
}

// begin prepares an attempt.
func (x *exchange) begin() {
	x.http.reset()
	x.closeInflater()
	x.ans = answer{rec: x.rec, endpoint: x.t.cfg.Endpoint, limits: x.t.limits, overflow: x.t.overflow,
		chunks: x.t.cfg.Chunks, doubt: record.Doubt{Sent: record.Unknown, First: record.Unknown, Last: record.Unknown}, probe: x.t.probe, keep: x.t.cfg.Count != nil && x.q.Seq%max(x.t.cfg.CountEvery, 1) == 0}
	x.begun, x.reusable = false, false
	x.traffic.reset()
	x.out, x.firstAt, x.readAt, x.readIn = newSending(), record.Never, record.Never, arrival{loose: record.Unknown}
}

// take gives the exchange bytes of the connection. Once it has returned true the outcome
// stands.
func (x *exchange) take(p []byte, in arrival) bool {
	x.traffic.read(len(p))
	at := x.came(in)
	n, err := x.http.feed(p, x)
	x.settle(in)
	switch {
	case err != nil:
		var wire wireError
		if errors.As(err, &wire) {
			x.ans.fail(record.FailMalformed, "%v", err)
		}
		x.finish(at, nil, false)
	case x.http.state == http1Done:
		x.reusable = n == len(p) && !x.http.head.close
		x.finish(at, nil, true)
	case x.ans.excerptFull():
		x.finish(at, nil, true)
	case x.ans.done && x.doneAt == record.Never:
		x.doneAt = at
	}
	x.tell()
	return x.over
}

// came notes that bytes of the answer came.
func (x *exchange) came(in arrival) int64 {
	at := x.stamp(in.at)
	if !x.begun {
		x.begun, x.firstAt = true, at
	}
	x.readAt, x.readIn = at, in
	return at
}

// settle bounds the instants of the bytes that came last, once they are read. What stands in
// compressed bytes may have been whole before the last of them.
func (x *exchange) settle(in arrival) { x.ans.settle(in.loose, in.stamped && x.inflate == nil) }

// stamp notes the instant of a read. Instants never go back.
func (x *exchange) stamp(at int64) int64 {
	at = max(at, x.lastAt, x.rec.Times.Sent)
	x.lastAt, x.ans.at = at, at
	return at
}

// headers and body make the exchange the sink of its HTTP decoder.
func (x *exchange) headers(h *head) error {
	switch h.encoding {
	case "":
	case "gzip", "x-gzip":
		x.inflate = newInflater(&x.ans)
	default:
		return wireErrorf("Content-Encoding %q was not asked for", clip(h.encoding, 40))
	}
	return x.ans.headers(h)
}

func (x *exchange) body(p []byte) error {
	if x.traffic.body == record.Never {
		x.traffic.body = x.ans.at
	}
	x.traffic.bodyIn += int64(len(p))
	if x.inflate != nil {
		return x.inflate.feed(p)
	}
	return x.ans.body(p)
}

// lost tells the exchange that its connection ended. again is true when the request may be
// sent once more: the connection had been idle before, the server closed it, and not a byte
// of the request was acknowledged.
func (x *exchange) lost(err error, at int64, reused bool, acked func() bool) (again bool) {
	if x.cancelled.Load() {
		x.expire(at)
		return false
	}
	if !x.begun && reused && !x.rec.Resent && x.bodyFault.Load() == nil && !acked() {
		x.rec.Resent = true
		return true
	}
	at = x.stamp(at)
	x.clientFault()
	if !x.begun {
		x.ans.fail(record.FailResetBefore, "the connection ended before a byte of the answer: %s", reason(err))
		x.finish(at, err, false)
		return false
	}
	if errors.Is(err, io.EOF) {
		err = x.http.eof()
	} else {
		err = fmt.Errorf("the connection ended in the middle of the answer: %s", reason(err))
	}
	x.finish(at, err, false)
	return false
}

// clientFault turns a body that could not be made into the outcome.
func (x *exchange) clientFault() {
	if fault := x.bodyFault.Load(); fault != nil {
		x.ans.fail(record.FailClient, "%v", *fault)
	}
}

// reason is the text of a connection's end.
func reason(err error) string {
	if err == nil || errors.Is(err, io.EOF) {
		return "closed by the server"
	}
	return err.Error()
}

// deadline is the instant at which the exchange ends unless something happens before.
func (x *exchange) deadline() int64 {
	w := &x.t.cfg.Timeouts
	if x.doneAt != record.Never {
		return x.doneAt + doneGrace
	}
	d := x.rec.Times.Sent + int64(w.Total)
	switch {
	case x.rec.Times.Headers == record.Never:
		d = min(d, x.rec.Times.Sent+int64(w.Headers))
	case x.ans.mode == modeError:
		d = min(d, x.rec.Times.Headers+excerptGrace, x.rec.Times.Sent+int64(w.First))
	case x.rec.Times.FirstToken == record.Never:
		d = min(d, x.rec.Times.Sent+int64(w.First))
	default:
		d = min(d, x.rec.Times.LastToken+int64(w.Stream))
	}
	return d
}

// expire ends the exchange because it was cancelled or its deadline passed.
func (x *exchange) expire(at int64) {
	at = x.stamp(at)
	t := &x.rec.Times
	w := &x.t.cfg.Timeouts
	x.clientFault()
	switch {
	case x.ans.failure != nil:
	case x.cancelled.Load():
		x.ans.fail(record.FailCancelled, "cancelled after %s with %d content frames", since(t.Sent, at), x.ans.frames)
	case x.doneAt != record.Never:
		at = x.doneAt // complete; only the server did not end the body
	case x.ans.mode == modeError: // refused; only the text of it did not end
	case t.Headers == record.Never:
		x.ans.fail(record.FailTimeoutHeaders, "no response head within %s of sending (limits: head %v, total %v)", since(t.Sent, at), w.Headers, w.Total)
	case t.FirstToken == record.Never:
		x.ans.fail(record.FailTimeoutFirst, "no token within %s of sending (limits: first token %v, total %v)", since(t.Sent, at), w.First, w.Total)
	default:
		x.ans.fail(record.FailTimeoutStream, "no token for %s, %s after sending, with %d content frames (limits: gap %v, total %v)",
			since(t.LastToken, at), since(t.Sent, at), x.ans.frames, w.Stream, w.Total)
	}
	x.finish(at, nil, false)
}

func since(from, to int64) time.Duration {
	if from == record.Never {
		return 0
	}
	return time.Duration(to - from).Round(time.Millisecond)
}

// finish makes the outcome.
func (x *exchange) finish(at int64, cut error, declared bool) {
	if x.over {
		return
	}
	x.over = true
	if cut == nil && x.inflate != nil && x.ans.failure == nil {
		if err := x.inflate.finish(); err != nil && !x.ans.done {
			if cut = err; declared { // the connection held
				x.ans.fail(record.FailMalformed, "the gzip body ends in its middle, after %d content frames", x.ans.frames)
			}
		}
	}
	x.closeInflater()
	if cut == nil && declared {
		x.ans.finish(x.http.head.status, at, nil, true)
	} else {
		x.ans.finish(x.http.head.status, at, cut, false)
	}
	if f := x.rec.Failure; f != nil && x.begun {
		f.Status = x.http.head.status
	}
	last := x.readIn // a token that only the end of the body showed came with the last bytes
	if d := x.ans.at - x.readAt; last.loose != record.Unknown && d > 0 {
		last = arrival{loose: last.loose + d}
	}
	x.settle(last)
	x.sealDoubt()
	if x.t.cfg.Wire {
		x.rec.Wire = x.traffic.wire()
	}
}

// sealDoubt puts what is known of the instants' errors into the record and the run's sums.
func (x *exchange) sealDoubt() {
	d := x.ans.doubt
	d.Sent = x.out.took.Load()
	if x.begun && x.out.at != 0 { // nobody answers what was not sent, however long the write takes to return
		if answered := max(x.firstAt-x.out.at, 0); d.Sent == record.Unknown || answered < d.Sent {
			d.Sent = answered
		}
	}
	x.rec.Doubt = &d
	x.t.health.note(&x.ans)
}

func (x *exchange) closeInflater() {
	if x.inflate != nil {
		x.inflate.close()
		x.inflate = nil
	}
}

// refuse makes the outcome of a request that was never sent.
func (x *exchange) refuse(class record.Class, format string, args ...any) {
	if x.cancelled.Load() {
		class, format, args = record.FailCancelled, "cancelled before it was sent", nil
	}
	x.rec.Times.End = x.t.clock.Now()
	x.rec.Failure = failure(class, fmt.Sprintf(format, args...))
	x.over = true
}
