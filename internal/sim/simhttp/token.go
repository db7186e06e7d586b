package simhttp

import (
	"unicode"
	"unicode/utf8"
)

// The tokenizer splits text so that a word with its leading space is one token, as real
// tokenizers do for common words; it has no vocabulary. Digits go in threes, a run of line
// breaks is one token, any other sign is one.

// nextToken returns the length in bytes of the first token of a text that is not empty.
func nextToken(s string) int {
	i := 0
	if s[0] == ' ' && len(s) > 1 && letter(s[1:]) {
		i = 1
	}
	if letter(s[i:]) {
		for i < len(s) {
			c := s[i]
			if c < utf8.RuneSelf {
				if !ascii(c) {
					break
				}
				i++
				continue
			}
			r, n := utf8.DecodeRuneInString(s[i:])
			if !unicode.IsLetter(r) && !unicode.IsMark(r) {
				break
			}
			i += n
		}
		return i
	}
	switch c := s[0]; {
	case c >= '0' && c <= '9':
		for i < len(s) && i < 3 && s[i] >= '0' && s[i] <= '9' {
			i++
		}
		return i
	case c == '\n' || c == '\r':
		for i < len(s) && (s[i] == '\n' || s[i] == '\r') {
			i++
		}
		return i
	case c == ' ' || c == '\t':
		for i < len(s) && (s[i] == ' ' || s[i] == '\t') {
			i++
		}
		if i > 1 && s[i-1] == ' ' && letter(s[i:]) { // the last space is the word's
			i--
		}
		return i
	}
	_, n := utf8.DecodeRuneInString(s)
	return n
}

func ascii(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }

func letter(s string) bool {
	if s == "" {
		return false
	}
	if s[0] < utf8.RuneSelf {
		return ascii(s[0])
	}
	r, _ := utf8.DecodeRuneInString(s)
	return unicode.IsLetter(r)
}

// tokenHash is the identity of a token's text (FNV-1a).
func tokenHash(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := 0; i < len(s); i++ {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return h
}

// vocabulary bounds the token ids that /tokenize gives.
const vocabulary = 151_552

// A pager cuts a sequence of tokens into pages and gives each an identity.
type pager struct {
	page  int64
	n     int64    // tokens so far
	acc   uint64   // of the page under way
	pages []uint64 // full pages
	ids   []int    // token ids, when they are kept
	keep  bool
}

func (p *pager) add(h uint64) {
	p.acc = fold(p.acc, h)
	p.n++
	if p.n%p.page == 0 {
		p.pages = append(p.pages, p.acc)
		p.acc = 0
	}
	if p.keep {
		p.ids = append(p.ids, int(h%vocabulary))
	}
}

func (p *pager) text(s string) {
	for len(s) > 0 {
		n := nextToken(s)
		p.add(tokenHash(s[:n]))
		s = s[n:]
	}
}

func (p *pager) id(id int64) { p.add(fold(0x1d, uint64(id))) }

// fold mixes b into a.
func fold(a, b uint64) uint64 {
	z := (a ^ b) + 0x9e3779b97f4a7c15 + (a << 6)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// words are what answers are made of; each is one token with its leading space.
var words = [...]string{
	" the", " file", " reads", " each", " line", " and", " then", " writes", " what", " it",
	" found", " into", " a", " small", " table", " with", " one", " row", " per", " test",
	" next", " we", " look", " at", " how", " this", " function", " is", " called", " from",
	" main", " because", " error", " must", " come", " out", " of", " that", " branch", " first",
	" before", " any", " other", " change", " so", " let", " me", " run", " again", " now",
	" all", " checks", " pass", " but", " two", " names", " are", " still", " wrong", " here",
	" which", " means", " more", " work",
}

// word is token i of the answer that the seed stands for.
func word(seed uint64, i int64) string {
	return words[fold(seed, uint64(i))%uint64(len(words))]
}

// answer is the text of n tokens of an answer from token i on.
func answer(seed uint64, i, n int64) string {
	b := make([]byte, 0, 6*n)
	for k := range n {
		b = append(b, word(seed, i+k)...)
	}
	return string(b)
}

// outputPages gives the identities of pages that hold output tokens: what a client sends
// again as a part of its next prompt has the same ones. start is the pager behind the prompt.
func outputPages(start pager, seed uint64) func(page int) uint64 {
	full := int(start.n / start.page)
	start.pages, start.ids, start.keep = nil, nil, false
	out := int64(0)
	return func(page int) uint64 {
		for full+len(start.pages) <= page {
			start.add(tokenHash(word(seed, out)))
			out++
		}
		return start.pages[page-full]
	}
}
