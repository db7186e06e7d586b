package prompt

import (
	"io"
	"sync"

	"github.com/weirbench/weir/internal/corpus"
)

// A Body is the body of one request, written while it is read: it holds the plan of the prompt
// and never its text, a few kilobytes for a prompt of any length. It is read once by one
// goroutine; Reopen gives another from the start, for a second try.
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

	size   int64
	tokens int64
	want   int64

	// reading
	seg, stage int // message, and in it: 0 opening, 1 blocks, 2 tail, 3 closing
	block      int // block or piece of the tail
	piece      int // piece of the block
	headAt     int // bytes of head written
	footAt     int
	begun      bool   // a word was written
	pending    []byte // of a piece that did not fit into the caller's buffer
	scratch    []byte
}

// A shape is how a prompt lies in JSON: what stands before and behind each message.
type shape struct {
	open, close [3]string // by role
	sep         string    // between messages
	// systemApart says that the system message stands outside the list, so that no
	// separator follows it.
	systemApart bool
}

// Size is the exact length of the body in bytes: its Content-Length.
func (b *Body) Size() int64 { return b.size }

// Tokens is the number of prompt tokens that the server should count. It is the recorded count
// unless the prompt is too short to make room for the template's own tokens; then it is
// more.
func (b *Body) Tokens() int64 { return b.tokens }

// Recorded is the number of prompt tokens of the recorded turn.
func (b *Body) Recorded() int64 { return b.want }

// Messages is the number of messages of the prompt.
func (b *Body) Messages() int { return len(b.segs) }

// Reopen returns the same body, to be read from its start.
func (b *Body) Reopen() *Body {
	c := *b
	c.seg, c.stage, c.block, c.piece, c.headAt, c.footAt, c.begun = 0, 0, 0, 0, 0, 0, false
	c.pending, c.scratch = nil, nil
	return &c
}

// Close does nothing; it makes a Body an io.ReadCloser.
func (b *Body) Close() error { return nil }

// room is enough for any piece that step appends.
func (b *Body) room() int {
	return int(min(b.bs, pieceWords))*b.words.longest + len(b.before) + len(b.behind) + 256
}

// Read writes the next bytes of the body into p.
func (b *Body) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	n := copy(p, b.pending)
	b.pending = b.pending[n:]
	m := copy(p[n:], b.head[b.headAt:])
	b.headAt, n = b.headAt+m, n+m
	room := b.room()
	for n < len(p) && b.headAt == len(b.head) && b.seg < len(b.segs) {
		if len(p)-n >= room {
			n = len(b.step(p[:n]))
			continue
		}
		if b.scratch == nil {
			b.scratch = make([]byte, 0, room)
		}
		b.pending = b.step(b.scratch)
		m := copy(p[n:], b.pending)
		b.pending, n = b.pending[m:], n+m
	}
	if b.seg == len(b.segs) && len(b.pending) == 0 {
		m := copy(p[n:], b.foot[b.footAt:])
		b.footAt, n = b.footAt+m, n+m
	}
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

var buffers = sync.Pool{New: func() any { b := make([]byte, 64<<10); return &b }}

// WriteTo writes the rest of the body to w.
func (b *Body) WriteTo(w io.Writer) (int64, error) {
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	var sum int64
	for {
		n, err := b.Read(*buf)
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

// opening and closing are what stands around message i besides its words.
func (b *Body) appendOpening(dst []byte, i int) []byte {
	s := b.segs[i]
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
	return append(dst, b.shape.close[s.role]...)
}

// step appends the next piece of the messages.
func (b *Body) step(dst []byte) []byte {
	at := len(dst)
	s := b.segs[b.seg]
	switch b.stage {
	case 0:
		dst = b.appendOpening(dst, b.seg)
		b.next(1)
	case 1:
		if b.block == int(s.blocks) {
			b.next(2)
			break
		}
		n := int(s.blockTokens(b.block, b.bs, b.keep))
		dst = b.words.appendBlock(dst, b.key, b.turn.Blocks[int(s.start)+b.block], n, b.piece)
		if b.piece++; b.piece*pieceWords >= n {
			b.block, b.piece = b.block+1, 0
		}
	case 2:
		if n := b.tail.n; b.seg < len(b.segs)-1 || int64(b.block)*pieceWords >= n {
			b.next(3)
			break
		}
		dst = b.words.appendTail(dst, b.tail, int64(b.block))
		b.block++
	case 3:
		dst = b.appendClosing(dst, b.seg)
		b.next(0)
		b.seg++
	}
	if b.bare && !b.begun && len(dst) > at {
		b.begun = true
		dst = append(dst[:at], dst[at+1:]...)
	}
	return dst
}

func (b *Body) next(stage int) { b.stage, b.block, b.piece = stage, 0, 0 }

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
