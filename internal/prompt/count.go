package prompt

import (
	"fmt"
	"strings"
)

// A Counter counts the tokens of any text by a model's own rules, to check the counts of a
// server. It is safe for concurrent use.
type Counter struct{ t *tokenizer }

// NewCounter makes a counter of a tokenizer.json with byte-level BPE, SentencePiece BPE or
// Unigram. A file with a rule that Weir knows for its own words alone is refused by the name of
// the rule: what it counted would be a guess.
func NewCounter(name string, file []byte) (*Counter, error) {
	t, err := ReadTokenizer(name, file)
	if err != nil {
		return nil, err
	}
	return t.Counter()
}

// Counter is the counter that NewCounter makes.
func (r *Tokenizer) Counter() (*Counter, error) {
	t, name := r.t, r.name
	if t.inexact != "" {
		return nil, fmt.Errorf("%s: tokens of any text cannot be counted: %s", name, t.inexact)
	}
	return &Counter{t}, nil
}

// longestRun is the most bytes that are merged as one; words are shorter.
const longestRun = 1 << 10

// Count is the number of tokens of a text. Marks of the start and the end of a sequence, which
// are no text, are not in it.
func (c *Counter) Count(text []byte) int64 { return c.count(string(text), 0) }

// count counts a text without the added tokens before the given one.
func (c *Counter) count(text string, from int) (n int64) {
	for i := from; i < len(c.t.added); i++ {
		if before, after, ok := strings.Cut(text, c.t.added[i]); ok {
			return c.count(before, i+1) + 1 + c.count(after, i)
		}
	}
	if text == "" {
		return 0
	}
	pieces := []string{text}
	for _, s := range c.t.pipe {
		pieces = s.apply(pieces)
	}
	for _, p := range pieces {
		for len(p) > longestRun {
			cut := longestRun
			for cut > 0 && p[cut]&0xc0 == 0x80 { // not inside a character
				cut--
			}
			cut = max(cut, 1)
			n += int64(len(c.t.model.encode(p[:cut])))
			p = p[cut:]
		}
		n += int64(len(c.t.model.encode(p)))
	}
	return n
}
