package prompt

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A vocabScan reads JSON in one pass without a copy of what has no escapes: a vocabulary has a
// hundred thousand strings and as many merges, and a run waits for them before it sends anything.
// After the first fault every call returns at once; err holds it.
type vocabScan struct {
	s     string
	i     int
	where string // the field that is read
	err   error
}

func (v *vocabScan) fail(format string, a ...any) {
	if v.err == nil {
		line := 1 + strings.Count(v.s[:min(v.i, len(v.s))], "\n")
		v.err = fmt.Errorf("line %d, byte %d: %s%s", line, v.i, v.where, fmt.Sprintf(format, a...))
	}
	v.i = len(v.s)
}

// peek is the next byte that is no white space, 0 at the end.
func (v *vocabScan) peek() byte {
	for ; v.i < len(v.s); v.i++ {
		switch c := v.s[v.i]; c {
		case ' ', '\n', '\t', '\r':
		default:
			return c
		}
	}
	return 0
}

func (v *vocabScan) want(c byte) bool {
	if got := v.peek(); got != c {
		if got == 0 {
			v.fail("the file ends where %q is due", c)
		} else {
			v.fail("%q where %q is due", got, c)
		}
		return false
	}
	v.i++
	return true
}

// each walks the values between open and closing; f reads one, after its key in an object.
func (v *vocabScan) each(open, closing byte, f func()) {
	if !v.want(open) {
		return
	}
	if v.peek() == closing {
		v.i++
		return
	}
	for v.err == nil {
		f()
		if v.peek() == closing {
			v.i++
			return
		}
		v.want(',')
	}
}

// object walks an object; f reads the value of a key.
func (v *vocabScan) object(f func(key string)) {
	v.each('{', '}', func() {
		if k := v.str(); v.want(':') {
			f(k)
		}
	})
}

func (v *vocabScan) array(f func()) { v.each('[', ']', f) }

// str reads a string.
func (v *vocabScan) str() string {
	if !v.want('"') {
		return ""
	}
	from := v.i
	for ; v.i < len(v.s); v.i++ {
		switch v.s[v.i] {
		case '"':
			s := v.s[from:v.i]
			v.i++
			if utf8.ValidString(s) {
				return s
			}
			return v.slow(from - 1)
		case '\\':
			for ; v.i < len(v.s) && v.s[v.i] != '"'; v.i++ {
				if v.s[v.i] == '\\' {
					v.i++
				}
			}
			if v.i < len(v.s) {
				v.i++
				return v.slow(from - 1)
			}
		}
	}
	v.fail("the file ends in a string")
	return ""
}

// slow reads the string from a quote to here by the rules of encoding/json.
func (v *vocabScan) slow(from int) (s string) {
	if err := json.Unmarshal([]byte(v.s[from:v.i]), &s); err != nil {
		v.fail("%v", err)
	}
	return s
}

// raw is the text of the next value, whatever it is.
func (v *vocabScan) raw() string {
	v.peek()
	from, depth := v.i, 0
	for v.i < len(v.s) {
		switch v.s[v.i] {
		case '"':
			v.str()
			v.i--
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth < 0 { // of what the value is in
				return v.s[from:v.i]
			}
		case ',':
			if depth == 0 {
				return v.s[from:v.i]
			}
		}
		if v.i++; depth == 0 && v.err == nil && (v.s[v.i-1] == '"' || v.s[v.i-1] == '}' || v.s[v.i-1] == ']') {
			return v.s[from:v.i]
		}
	}
	if depth > 0 {
		v.fail("the file ends in a value")
	}
	return v.s[min(from, v.i):v.i]
}

// into decodes the next value by encoding/json.
func (v *vocabScan) into(p any) {
	at := v.i
	if raw := v.raw(); v.err == nil {
		if err := json.Unmarshal([]byte(raw), p); err != nil {
			v.i = at
			v.fail("%v", err)
		}
	}
}

// id reads a token id.
func (v *vocabScan) id() int32 {
	at := v.i
	raw := strings.TrimSpace(v.raw())
	n, err := strconv.ParseInt(raw, 10, 32)
	if err != nil {
		v.i = at
		v.fail("%.40q is no token id", raw)
	}
	return int32(n)
}

// null passes over a null.
func (v *vocabScan) null() bool {
	if v.peek() == 'n' && strings.HasPrefix(v.s[v.i:], "null") {
		v.i += len("null")
		return true
	}
	return false
}

// parseTokenizerFile reads what Weir needs of a tokenizer.json.
func parseTokenizerFile(file []byte) (*tokenizerFile, error) {
	v := &vocabScan{s: string(file)}
	f := &tokenizerFile{}
	v.object(func(key string) {
		v.where = key + ": "
		switch {
		case key == "added_tokens":
			v.into(&f.AddedTokens)
		case key == "normalizer":
			v.into(&f.Normalizer)
		case key == "pre_tokenizer":
			v.into(&f.PreTokenizer)
		case key == "model" && !v.null():
			f.Model.read(v)
		default:
			v.raw()
		}
	})
	if v.where = ""; v.peek() != 0 {
		v.fail("%q after the end", v.s[v.i])
	}
	return f, v.err
}

func (m *modelFile) read(v *vocabScan) {
	v.object(func(key string) {
		v.where = "model." + key + ": "
		switch key {
		case "type":
			v.into(&m.Type)
		case "vocab":
			switch {
			case v.null():
			case v.peek() == '[':
				m.readPieces(v)
			default:
				m.readVocab(v)
			}
		case "merges":
			if !v.null() {
				m.readMerges(v)
			}
		case "ignore_merges":
			v.into(&m.IgnoreMerges)
		case "continuing_subword_prefix":
			v.into(&m.Prefix)
		case "end_of_word_suffix":
			v.into(&m.Suffix)
		case "byte_fallback":
			v.into(&m.ByteFallback)
		default:
			v.raw()
		}
	})
}

// bytesOfAToken is about what an entry of a vocabulary takes in a file.
const bytesOfAToken = 24

func (m *modelFile) readVocab(v *vocabScan) {
	m.Vocab = make(map[string]int32, (len(v.s)-v.i)/2/bytesOfAToken)
	v.object(func(token string) {
		m.Vocab[token] = v.id()
	})
}

func (m *modelFile) readPieces(v *vocabScan) {
	m.Pieces = []unigramPiece{}
	v.array(func() {
		var p unigramPiece
		n := 0
		v.array(func() {
			switch n++; n {
			case 1:
				p.text = v.str()
			case 2:
				v.into(&p.score)
			default:
				v.fail("a piece of a vocabulary is its text and its score")
			}
		})
		if n < 2 {
			v.fail("a piece of a vocabulary is its text and its score")
		}
		m.Pieces = append(m.Pieces, p)
	})
}

// readMerges reads merges, written "left right" or ["left","right"].
func (m *modelFile) readMerges(v *vocabScan) {
	m.Merges = make([]mergePair, 0, (len(v.s)-v.i)/bytesOfAToken)
	v.array(func() {
		var p mergePair
		if v.peek() == '[' {
			n := 0
			v.array(func() {
				if s := v.str(); n < len(p) {
					p[n] = s
				}
				n++
			})
			if n != len(p) {
				v.fail("a merge of %d parts; it has 2", n)
			}
		} else {
			s := v.str()
			l, r, ok := strings.Cut(s, " ")
			if !ok {
				v.fail("merge %q is not a pair", s)
			}
			p = mergePair{l, r}
		}
		m.Merges = append(m.Merges, p)
	})
}
