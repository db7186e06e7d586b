package corpus

import "unicode/utf8"

// Forms that record text hold no token counts. Weir has no tokenizer at this point and needs
// none: it counts by a rule of thumb and says so (Trace.Estimated), and where the source
// recorded the count of a prompt, the rule is scaled to meet it.
//
// The rule weighs characters: four of ASCII are a token, two of other letters of two bytes,
// 1.5 of three bytes (Chinese, Japanese, Korean), one of four. It is additive, so that equal
// beginnings of text are equal blocks.
const (
	weightToken   = 12 // one token
	weightASCII   = 3
	weightTwo     = 6
	weightThree   = 8
	weightFour    = 12
	messageTokens = 4   // what a chat template puts around a message
	assumedOut    = 256 // length of an answer that wasn't recorded
	maxAnswer     = 1 << 22
)

// weigh is the weight of a text.
func weigh(text []byte) int64 {
	var w int64
	for i := 0; i < len(text); {
		if text[i] < utf8.RuneSelf {
			w += weightASCII
			i++
			continue
		}
		r, n := utf8.DecodeRune(text[i:])
		i += n
		w += weightOf(r, n)
	}
	return w
}

func weightOf(r rune, n int) int64 {
	switch {
	case n == 1 && r == utf8.RuneError:
		return weightASCII
	case n <= 2:
		return weightTwo
	case n == 3:
		return weightThree
	}
	return weightFour
}

// A textPrompt is a prompt that grows by text and is cut into blocks on the way. The identity
// of a block is a hash of all text up to its end. A copy continues on its own.
type textPrompt struct {
	perBlock int64 // weight of a block
	perToken float64
	weight   int64
	hash     uint64 // FNV-1a
	ids      []uint64
}

const (
	fnvOffset = 14695981039346656037
	fnvPrime  = 1099511628211
)

// newTextPrompt begins a prompt; scale is recorded tokens over estimated ones, 1 for none.
func newTextPrompt(blockSize int64, scale float64) textPrompt {
	perToken := weightToken / scale
	return textPrompt{perBlock: max(1, int64(float64(blockSize)*perToken)), perToken: perToken, hash: fnvOffset}
}

// fork returns a copy that shares no memory with p where either would write.
func (p *textPrompt) fork() textPrompt {
	q := *p
	q.ids = p.ids[:len(p.ids):len(p.ids)]
	return q
}

func (p *textPrompt) step(w int64) {
	p.weight += w
	for p.weight >= int64(len(p.ids)+1)*p.perBlock {
		p.ids = append(p.ids, p.hash^uint64(len(p.ids)))
	}
}

// add appends text.
func (p *textPrompt) add(text []byte) {
	for i := 0; i < len(text); {
		r, n := rune(text[i]), 1
		w := int64(weightASCII)
		if r >= utf8.RuneSelf {
			r, n = utf8.DecodeRune(text[i:])
			w = weightOf(r, n)
		}
		for _, b := range text[i : i+n] {
			p.hash = (p.hash ^ uint64(b)) * fnvPrime
		}
		i += n
		p.step(w)
	}
}

// message appends what a chat template puts around a message of a role.
func (p *textPrompt) message(role string) {
	p.add([]byte("\x00" + role + "\x00"))
	p.step(max(0, int64(messageTokens*p.perToken)-weigh([]byte("\x00"+role+"\x00"))))
}

// opaque appends tokens whose text isn't known, such as an answer that will only be made when
// the trace is played; name tells them from others.
func (p *textPrompt) opaque(tokens int64, name string) {
	for _, b := range []byte(name) {
		p.hash = (p.hash ^ uint64(b)) * fnvPrime
	}
	for range tokens {
		p.hash = (p.hash ^ 0xff) * fnvPrime
		p.step(int64(p.perToken))
	}
}

// tokens is the estimated length of the prompt, at least 1.
func (p *textPrompt) tokens() int64 { return max(1, int64(float64(p.weight)/p.perToken+0.5)) }

// A blockTable numbers the 64-bit identities of a trace.
type blockTable map[uint64]uint32

func (t blockTable) of(ids []uint64) []uint32 {
	out := make([]uint32, len(ids))
	for i, id := range ids {
		n, ok := t[id]
		if !ok {
			n = uint32(len(t))
			t[id] = n
		}
		out[i] = n
	}
	return out
}
