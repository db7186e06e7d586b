package prompt

import (
	"io"
	"sync"

	"github.com/weirbench/weir/internal/corpus"
)

// A Body is the body of one request. It holds the plan of the prompt and never its text: a few
// kilobytes for a prompt of any length. It is immutable; every Open gives its bytes anew.
type Body struct {
	turn  *corpus.Turn
	words *Words
	form  int // 0 text, 1 ids
	key   uint64
	bs    int64
	keep  int64
	segs  []*segment
	tail  tail // of the last message

	shape      *shape
	head, foot []byte // of the JSON object, up to the prompt and behind it
	// before and behind are the salt as it is written around the message that carries it.
	before, behind string
	bare           bool // the first word goes without its separator
	alternate      bool // messages of one role in a row are written as one

	size, tokens, want int64
}

// A shape is how a prompt lies in JSON: what stands before and behind each message.
type shape struct {
	open, close [3]string // by role
	sep         string    // between messages
	// systemApart says that the system message stands outside the list, so that no
	// separator follows it.
	systemApart bool
}

// Len is the exact length of the body in bytes: its Content-Length.
func (b *Body) Len() int64 { return b.size }

// Open gives the bytes of the body from the start, as a *Reader.
func (b *Body) Open() io.Reader { return &Reader{Body: b} }

// Tokens is the number of prompt tokens that the server should count. It is the recorded count
// unless the prompt is too short to make room for the template's own tokens; then it is
// more.
func (b *Body) Tokens() int64 { return b.tokens }

// Recorded is the number of prompt tokens of the recorded turn.
func (b *Body) Recorded() int64 { return b.want }

// Messages is the number of messages of the prompt.
func (b *Body) Messages() int { return len(b.segs) }

// room is enough for any piece that a Reader appends.
func (b *Body) room() int {
	return int(min(b.bs, pieceWords))*b.words.longest + len(b.before) + len(b.behind) + 256
}

// A Reader writes a body while it is read. It is for one goroutine.
type Reader struct {
	Body           *Body
	seg, stage     int    // message, and in it: 0 opening, 1 blocks, 2 tail, 3 closing
	block          int    // block, or piece of the tail
	piece          int    // piece of the block
	headAt, footAt int    // bytes of head and foot written
	begun          bool   // a word was written
	pending        []byte // of a piece that did not fit into the caller's buffer
	scratch        []byte
}

// Read writes the next bytes of the body into p.
func (r *Reader) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	b := r.Body
	n := copy(p, r.pending)
	r.pending = r.pending[n:]
	m := copy(p[n:], b.head[r.headAt:])
	r.headAt, n = r.headAt+m, n+m
	room := b.room()
	for n < len(p) && r.headAt == len(b.head) && r.seg < len(b.segs) {
		if len(p)-n >= room {
			n = len(r.step(p[:n]))
			continue
		}
		if r.scratch == nil {
			r.scratch = make([]byte, 0, room)
		}
		r.pending = r.step(r.scratch)
		m := copy(p[n:], r.pending)
		r.pending, n = r.pending[m:], n+m
	}
	if r.seg == len(b.segs) && len(r.pending) == 0 {
		m := copy(p[n:], b.foot[r.footAt:])
		r.footAt, n = r.footAt+m, n+m
	}
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

var buffers = sync.Pool{New: func() any { b := make([]byte, 64<<10); return &b }}

// WriteTo writes the rest of the body to w.
func (r *Reader) WriteTo(w io.Writer) (int64, error) {
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	var sum int64
	for {
		n, err := r.Read(*buf)
		if err == io.EOF {
			return sum, nil
		}
		m, err := w.Write((*buf)[:n])
		sum += int64(m)
		if err != nil {
			return sum, err
		}
		if m < n {
			return sum, io.ErrShortWrite
		}
	}
}

// appendOpening and appendClosing append what stands around the words of message i.
func (b *Body) appendOpening(dst []byte, i int) []byte {
	s := b.segs[i]
	if b.joins(i) {
		if s.carrier {
			dst = append(dst, b.before...)
		}
		return dst
	}
	if i > 0 && !(b.shape.systemApart && b.segs[i-1].role == System) {
		dst = append(dst, b.shape.sep...)
	}
	dst = append(dst, b.shape.open[s.role]...)
	if s.carrier {
		dst = append(dst, b.before...)
	}
	return dst
}

func (b *Body) appendClosing(dst []byte, i int) []byte {
	s := b.segs[i]
	if s.carrier {
		dst = append(dst, b.behind...)
	}
	if b.joins(i + 1) {
		return dst
	}
	return append(dst, b.shape.close[s.role]...)
}

// joins says that message i goes on where the one before it ends.
func (b *Body) joins(i int) bool {
	return b.alternate && i > 0 && i < len(b.segs) && b.segs[i].role == b.segs[i-1].role
}

// step appends the next piece of the messages.
func (r *Reader) step(dst []byte) []byte {
	at, b := len(dst), r.Body
	s := b.segs[r.seg]
	switch r.stage {
	case 0:
		dst = b.appendOpening(dst, r.seg)
		r.next(1)
	case 1:
		if r.block == int(s.blocks) {
			r.next(2)
			break
		}
		n := int(s.blockTokens(r.block, b.bs, b.keep))
		dst = b.words.appendBlock(dst, b.key, b.turn.Blocks[int(s.start)+r.block], n, r.piece)
		if r.piece++; r.piece*pieceWords >= n {
			r.block, r.piece = r.block+1, 0
		}
	case 2:
		if r.seg < len(b.segs)-1 || int64(r.block)*pieceWords >= b.tail.n {
			r.next(3)
			break
		}
		dst = b.words.appendTail(dst, b.tail, int64(r.block))
		r.block++
	case 3:
		dst = b.appendClosing(dst, r.seg)
		r.next(0)
		r.seg++
	}
	if b.bare && !r.begun && len(dst) > at {
		r.begun = true
		dst = append(dst[:at], dst[at+1:]...)
	}
	return dst
}

func (r *Reader) next(stage int) { r.stage, r.block, r.piece = stage, 0, 0 }

// measure sets the size of the body. It walks over the blocks of messages that were not
// measured before and adds up lengths; no text is made.
func (b *Body) measure() {
	var lit []byte
	sum := int64(len(b.head) + len(b.foot))
	any := false
	for i, s := range b.segs {
		lit = b.appendClosing(b.appendOpening(lit[:0], i), i)
		sum += int64(len(lit))
		n := s.bytes[b.form].Load() - 1
		if n < 0 {
			n = 0
			for j := range int(s.blocks) {
				n += b.words.blockBytes(b.key, b.turn.Blocks[int(s.start)+j], int(s.blockTokens(j, b.bs, b.keep)))
			}
			s.bytes[b.form].Store(n + 1)
		}
		sum += n
		any = any || n > 0 || len(lit) > 0
	}
	sum += b.words.tailBytes(b.tail)
	if b.bare && (any || b.tail.n > 0) {
		sum--
	}
	b.size = sum
}
