package client

import (
	"net"
	"sync"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/weirbench/weir/internal/record"
)

// An h2Watch lies between an HTTP/2 connection and the transport that drives it and reads the
// frames that pass (RFC 9113, 4.1): which stream a request became, when its head went out,
// and when each piece of its answer came. The transport hands bytes over from goroutine to
// goroutine; the instants are those of the connection.
//
// A request is known again by its X-Request-ID, so the heads that go out are decoded.
type h2Watch struct {
	net.Conn
	t       *Target
	arrived func() arrival // of the last Read, nil where nobody knows

	in, out frameScan
	dec     *hpack.Decoder // of the heads that go out
	id      string         // X-Request-ID of the head under way
	lost    bool           // a head could not be decoded: no further request is known

	mu      sync.Mutex
	streams map[uint32]*h2Stream
	fate    h2Fate
}

// h2Preface is what a connection begins with (RFC 9113, 3.4).
const h2Preface = http2.ClientPreface

// maxHeadTable is the largest dynamic table that the transport's encoder may use.
const maxHeadTable = 1 << 20

// watchH2 puts a watch over a connection. tcp is what carries it, nil when nobody can ask TCP.
func (t *Target) watchH2(c net.Conn, tcp *net.TCPConn, arrived func() arrival) *h2Watch {
	w := &h2Watch{Conn: c, t: t, arrived: arrived, streams: map[uint32]*h2Stream{}, out: frameScan{skip: len(h2Preface)}}
	w.dec = hpack.NewDecoder(4096, func(f hpack.HeaderField) {
		if f.Name == "x-request-id" && w.t.awaited(f.Value) != nil {
			w.id = f.Value
		}
	})
	w.fate.init(tcp)
	w.dec.SetAllowedMaxDynamicTableSize(maxHeadTable)
	return w
}

// Read reads once and notes when frames came.
func (w *h2Watch) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	w.fate.over(err)
	if n <= 0 {
		return n, err
	}
	in := arrival{at: w.t.clock.Now(), loose: record.Unknown}
	if w.arrived != nil {
		in = w.arrived()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.in.pass(p[:n], func(f *frameScan, part []byte, rest int) {
		code, reset := w.fate.frame(f, part)
		if s := w.streams[f.stream]; s != nil {
			here := in
			here.stamped = in.stamped && rest == 0 // the kernel's time is that of the last byte
			s.came(f, part, here)
			if reset && code == http2.ErrCodeRefusedStream {
				s.refuse()
			}
		}
	})
	return n, err
}

// Write writes and notes when heads went out.
func (w *h2Watch) Write(p []byte) (int, error) {
	before := w.t.clock.Now()
	type begun struct {
		s   *h2Stream
		out *sending
	}
	var all []begun
	w.mu.Lock()
	w.out.pass(p, func(f *frameScan, part []byte, _ int) {
		if s := w.head(f, part); s != nil {
			s.begin(w, f.stream, before)
			w.streams[f.stream] = s
			all = append(all, begun{s, s.sent()})
		}
	})
	w.mu.Unlock()
	n, err := w.Conn.Write(p)
	w.fate.over(err)
	if len(all) > 0 {
		after := w.t.clock.Now()
		for _, b := range all {
			b.s.wrote(b.out, after, n > 0)
		}
	}
	return n, err
}

// head decodes what goes out of a head and returns the stream that it began, once it is whole.
func (w *h2Watch) head(f *frameScan, part []byte) *h2Stream {
	if w.lost || f.kind != http2.FrameHeaders && f.kind != http2.FrameContinuation {
		return nil
	}
	if _, err := w.dec.Write(f.content(part)); err != nil {
		w.lost = true
		w.t.h2blind.Store(true)
		return nil
	}
	if f.left > 0 || !f.flags.Has(http2.FlagHeadersEndHeaders) {
		return nil
	}
	id := w.id
	w.id = ""
	if w.dec.Close() != nil {
		w.lost = true
		w.t.h2blind.Store(true)
		return nil
	}
	return w.t.awaited(id)
}

// An h2Stream is what is known of the connection's side of one request. What a goroutine has
// not yet read lies in pieces. Only its own fields are under mu.
type h2Stream struct {
	id string

	mu       sync.Mutex
	on       *h2Watch
	stream   uint32
	out      *sending // nil before its head went out
	heads    int      // how often it did
	acked    uint64   // bytes of the connection that were acknowledged before, 0 unless it was idle
	refused  bool     // the stream ended with REFUSED_STREAM
	unsent   bool     // the connection took no byte of the head
	headers  arrival
	answered bool // headers is set
	body     bool // a piece of the body came
	pieces   []piece
	ended    bool
	end      arrival
}

// A piece is bytes of a body that came together.
type piece struct {
	n  int
	in arrival
}

// await makes the connections look out for a request, until it is let go.
func (t *Target) await(id string) *h2Stream {
	s := &h2Stream{id: id}
	t.h2mu.Lock()
	defer t.h2mu.Unlock()
	t.h2out[id] = s
	return s
}

func (t *Target) awaited(id string) *h2Stream {
	t.h2mu.Lock()
	defer t.h2mu.Unlock()
	return t.h2out[id]
}

func (t *Target) letGo(s *h2Stream) {
	t.h2mu.Lock()
	delete(t.h2out, s.id)
	t.h2mu.Unlock()
	s.leave()
}

// begin notes that the head goes out.
func (s *h2Stream) begin(on *h2Watch, stream uint32, at int64) {
	out := newSending()
	out.at = at
	base := on.base(stream)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.on, s.stream, s.out, s.acked, s.refused, s.unsent = on, stream, out, base, false, false
	s.answered, s.body, s.ended, s.pieces = false, false, false, nil
	s.heads++
}

// came notes a part of a frame of the answer.
func (s *h2Stream) came(f *frameScan, part []byte, in arrival) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch f.kind {
	case http2.FrameData:
		if n := len(f.content(part)); n > 0 {
			s.body = true
			s.pieces = append(s.pieces, piece{n, in})
		}
	case http2.FrameHeaders, http2.FrameContinuation:
		if !s.body && f.left == 0 { // of several heads, the last before the body is the answer's
			s.headers, s.answered = in, true
		}
	}
	if f.left == 0 && f.flags.Has(http2.FlagDataEndStream) && (f.kind == http2.FrameData || f.kind == http2.FrameHeaders) {
		s.end, s.ended = in, true
	}
}

// wrote notes that the write with the head of an attempt has ended, and whether any of it went out.
func (s *h2Stream) wrote(out *sending, at int64, some bool) {
	out.wrote(at)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.out == out {
		s.unsent = !some
	}
}

func (s *h2Stream) refuse() {
	s.mu.Lock()
	s.refused = true
	s.mu.Unlock()
}

// sent tells how the head went out, nil before.
func (s *h2Stream) sent() *sending {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out
}

// resent tells whether the head went out more than once.
func (s *h2Stream) resent() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.heads > 1
}

// answer is when the head of the answer came, or the instant given when nobody saw it.
func (s *h2Stream) answer(now int64) arrival {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.answered {
		return arrival{at: now, loose: record.Unknown}
	}
	return s.headers
}

// closed is when the body ended, or the instant given when nobody saw it.
func (s *h2Stream) closed(now int64) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		return now
	}
	return s.end.at
}

// take gives the arrival of the next bytes of the body and how many of n came with it.
func (s *h2Stream) take(n int, now int64) (int, arrival) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.pieces) == 0 {
		return n, arrival{at: now, loose: record.Unknown}
	}
	p := &s.pieces[0]
	in := p.in
	if n < p.n {
		p.n -= n
		in.stamped = false
		return n, in
	}
	n = p.n
	if s.pieces = s.pieces[1:]; len(s.pieces) == 0 {
		s.pieces = nil
	}
	return n, in
}

// A frameScan follows the frames of one direction of a connection.
type frameScan struct {
	skip int // bytes before the first frame
	raw  [9]byte
	have int // bytes of the frame's head that have come

	kind   http2.FrameType
	flags  http2.Flags
	stream uint32
	size   int // of the payload
	left   int // bytes of it that have not come
	at     int // where in the payload the part that is visited begins
	pad    int // bytes of padding at its end
}

// pass takes the next bytes and visits the payload of every frame in the parts in which it
// came, an empty one once. rest is how many bytes of p stand behind the part; left is 0 in the
// last part of a frame.
func (f *frameScan) pass(p []byte, visit func(f *frameScan, part []byte, rest int)) {
	n := min(f.skip, len(p))
	f.skip, p = f.skip-n, p[n:]
	for len(p) > 0 {
		if f.have < len(f.raw) {
			n := copy(f.raw[f.have:], p)
			f.have, p = f.have+n, p[n:]
			if f.have < len(f.raw) {
				return
			}
			f.size = int(f.raw[0])<<16 | int(f.raw[1])<<8 | int(f.raw[2])
			f.kind, f.flags = http2.FrameType(f.raw[3]), http2.Flags(f.raw[4])
			f.stream = (uint32(f.raw[5])<<24 | uint32(f.raw[6])<<16 | uint32(f.raw[7])<<8 | uint32(f.raw[8])) & (1<<31 - 1)
			f.left, f.pad = f.size, 0
		}
		part := p[:min(f.left, len(p))]
		f.at = f.size - f.left
		f.left, p = f.left-len(part), p[len(part):]
		if len(part) > 0 || f.left == 0 {
			if f.at == 0 && len(part) > 0 && f.padded() {
				f.pad = int(part[0])
			}
			visit(f, part, len(p))
		}
		if f.left == 0 {
			f.have = 0
		}
	}
}

func (f *frameScan) padded() bool {
	return (f.kind == http2.FrameData || f.kind == http2.FrameHeaders) && f.flags.Has(http2.FlagDataPadded)
}

// content cuts from a part of the payload what is neither padding nor a priority.
func (f *frameScan) content(part []byte) []byte {
	from, to := 0, f.size-f.pad
	if f.padded() {
		from++
	}
	if f.kind == http2.FrameHeaders && f.flags.Has(http2.FlagHeadersPriority) {
		from += 5
	}
	from, to = max(from-f.at, 0), min(to-f.at, len(part))
	if from >= to {
		return nil
	}
	return part[from:to]
}
