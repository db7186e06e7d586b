// Package pace is a server that keeps time and says so: it answers every request with a
// stream whose first token is due a fixed time after the request was read and whose further
// tokens follow at a fixed gap, and writes into every frame when the frame was due and when
// it was written. A client that knows these instants knows its own error.
//
// It is no model of an inference server; internal/sim is. One goroutine writes all streams
// in the order in which their frames are due.
package pace

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"sync"
	"time"
)

// Header is the request header that carries a Plan.
const Header = "X-Weir-Pace"

// A Plan is what a stream should look like.
type Plan struct {
	TTFT   time.Duration // from the end of the request's body to the first token
	Gap    time.Duration // from one token to the next
	Tokens int           // at least 1
}

// String is the form in which a plan stands in the header.
func (p Plan) String() string { return fmt.Sprintf("%d %d %d", p.TTFT, p.Gap, p.Tokens) }

func parsePlan(s string) (p Plan, err error) {
	_, err = fmt.Sscan(s, (*int64)(&p.TTFT), (*int64)(&p.Gap), &p.Tokens)
	if err != nil || p.TTFT < 0 || p.Gap < 0 || p.Tokens < 1 {
		return p, fmt.Errorf("%q is no plan: want nanoseconds to the first token, nanoseconds between tokens, tokens", s)
	}
	return p, nil
}

// A Stamp is what a frame says about itself. Times are nanoseconds of the machine's
// monotonic clock (CLOCK_MONOTONIC), so that another process on it can compare them.
type Stamp struct {
	Read int64 // when the request had been read
	Due  int64 // when the frame was due
	Sent int64 // just before it was written
}

const (
	digits = 19
	zeros  = "0000000000000000000"
	before = `data: {"choices":[{"index":0,"delta":{"content":"t"},"finish_reason":null}],"weir_pace":["`
	frame  = before + zeros + `","` + zeros + `","` + zeros + `"]}` + "\n\n"
)

// ParseStamp reads the stamp of a frame's data; ok is false when it has none.
func ParseStamp(data []byte) (s Stamp, ok bool) {
	const at = len(before) - len("data: ")
	if len(data) < at+3*digits+6 {
		return s, false
	}
	for i, v := range []*int64{&s.Read, &s.Due, &s.Sent} {
		from := at + i*(digits+3)
		for _, c := range data[from : from+digits] {
			if c < '0' || c > '9' {
				return s, false
			}
			*v = *v*10 + int64(c-'0')
		}
	}
	return s, true
}

func put(b []byte, at int, n int64) {
	for i := at + digits - 1; i >= at; i-- {
		b[i] = byte('0' + n%10)
		n /= 10
	}
}

// A stream is one answer under way.
type stream struct {
	to     answerer
	read   int64
	due    int64
	gap    int64
	left   int
	first  bool
	failed bool
	done   chan struct{}
}

// An answerer takes the parts of an answer: the head goes with the first frame, the end with
// the last.
type answerer interface {
	send(frame []byte, first, last bool) error
}

// A server keeps time on one listener.
type server struct {
	mu   sync.Mutex
	in   []*stream // new ones, for the writer
	over bool
}

// Serve answers HTTP/1.1 in the clear on a listener until it is closed.
func Serve(l net.Listener) error { return Options{}.Serve(l) }

// Serve answers on a listener until it is closed.
func (o Options) Serve(l net.Listener) error {
	s := &server{}
	secure, err := o.secure()
	if err != nil {
		return err
	}
	go s.write()
	defer s.stop()
	for {
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil { // out of files, most likely: the client sees it as a failure
			time.Sleep(10 * time.Millisecond)
			continue
		}
		go func() {
			defer c.Close()
			switch {
			case secure != nil:
				s.serveTLS(c, secure)
			case o.H2:
				s.serveH2(c)
			default:
				s.serve(c)
			}
		}()
	}
}

func (s *server) serve(c net.Conn) {
	to := newPlain(c)
	r := bufio.NewReaderSize(c, 16<<10)
	for {
		q, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		if _, err := io.Copy(io.Discard, q.Body); err != nil {
			return
		}
		read := Now()
		p, err := parsePlan(q.Header.Get(Header))
		if err != nil {
			fmt.Fprintf(c, "HTTP/1.1 400 Bad Request\r\nContent-Length: %d\r\n\r\n%s", len(err.Error()), err)
			continue
		}
		if !s.answer(to, p, read) {
			return
		}
	}
}

// answer has a plan carried out, which was read at an instant, and waits for its end.
func (s *server) answer(to answerer, p Plan, read int64) bool {
	st := &stream{to: to, read: read, due: read + int64(p.TTFT), gap: int64(p.Gap), left: p.Tokens, first: true, done: make(chan struct{})}
	s.mu.Lock()
	over := s.over
	if !over {
		s.in = append(s.in, st)
	}
	s.mu.Unlock()
	if over {
		return false
	}
	<-st.done
	return !st.failed
}

// stop ends the writer and closes what is under way.
func (s *server) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
}

const head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"

// done closes a stream: usage would be a lie, since nobody counted a prompt.
const done = "data: [DONE]\n\n"

// A plain answers over HTTP/1.1, a write a frame.
type plain struct {
	c   net.Conn
	b   []byte // head, chunk of one frame, end
	end int    // of the chunk
}

func newPlain(c net.Conn) *plain {
	p := &plain{c: c}
	p.b = fmt.Appendf(nil, "%s%x\r\n%s\r\n", head, len(frame), frame)
	p.end = len(p.b)
	p.b = fmt.Appendf(p.b, "%x\r\n%s\r\n0\r\n\r\n", len(done), done)
	return p
}

func (p *plain) send(f []byte, first, last bool) error {
	copy(p.b[p.end-2-len(frame):], f)
	from, to := len(head), p.end
	if first {
		from = 0
	}
	if last {
		to = len(p.b)
	}
	_, err := p.c.Write(p.b[from:to])
	return err
}

// write sends every frame when it is due.
func (s *server) write() {
	runtime.LockOSThread()
	var q queue
	b := []byte(frame)
	for {
		s.mu.Lock()
		for _, st := range s.in {
			q.push(st)
		}
		s.in = s.in[:0]
		over := s.over
		s.mu.Unlock()
		if over {
			for _, st := range q {
				st.failed = true
				close(st.done)
			}
			return
		}
		now := Now()
		if len(q) == 0 || q[0].due > now {
			wait := int64(time.Millisecond) // new streams are looked for this often
			if len(q) > 0 {
				wait = min(wait, q[0].due-now)
			}
			sleep(wait)
			continue
		}
		st := q[0]
		first := st.first
		st.first = false
		st.left--
		put(b, len(before), st.read)
		put(b, len(before)+digits+3, st.due)
		put(b, len(before)+2*(digits+3), Now())
		if err := st.to.send(b, first, st.left == 0); err != nil {
			st.failed, st.left = true, 0
		}
		if st.left == 0 {
			q.pop()
			close(st.done)
			continue
		}
		st.due += st.gap
		q.fix()
	}
}

// A queue is a heap of streams, the next due first.
type queue []*stream

func (q *queue) push(s *stream) {
	h := append(*q, s)
	*q = h
	for i := len(h) - 1; i > 0; {
		up := (i - 1) / 2
		if h[up].due <= h[i].due {
			return
		}
		h[up], h[i] = h[i], h[up]
		i = up
	}
}

func (q *queue) pop() {
	h := *q
	n := len(h) - 1
	h[0], h[n] = h[n], nil
	*q = h[:n]
	q.fix()
}

// fix puts the first back into its place after its time changed.
func (q *queue) fix() {
	h := *q
	for i := 0; ; {
		c := 2*i + 1
		if c >= len(h) {
			return
		}
		if c+1 < len(h) && h[c+1].due < h[c].due {
			c++
		}
		if h[i].due <= h[c].due {
			return
		}
		h[i], h[c] = h[c], h[i]
		i = c
	}
}
