package client

import (
	"bytes"
	"unicode/utf16"
	"unicode/utf8"
)

// maxDepth is how deep a frame may nest, the same limit as encoding/json's.
const maxDepth = 10000

// jsonScan walks one JSON text in place. It checks the whole grammar of RFC 8259 as it goes
// and allocates nothing unless a key is written with escapes. The first fault sticks: from
// then on bad is true and every method returns its zero value.
//
// A caller walks an object with
//
//	for s.enter('{'); s.key(); {
//		switch string(s.name) {
//		case "a":
//			v = s.str()
//		default:
//			s.skip()
//		}
//	}
//
// and an array with enter('[') and elem. Each key or elem must be followed by exactly one
// value being read or skipped.
type jsonScan struct {
	b     []byte
	i     int
	depth int
	fresh bool // an object or array was entered and has given no member yet
	bad   bool
	name  []byte // the key that key found, unescaped
	buf   []byte // holds name when it was written with escapes
}

func (s *jsonScan) reset(b []byte) {
	*s = jsonScan{b: b, buf: s.buf[:0]}
}

func (s *jsonScan) fail() { s.bad, s.i = true, len(s.b) }

// peek skips white space and returns the next byte, 0 at the end.
func (s *jsonScan) peek() byte {
	for s.i < len(s.b) {
		switch c := s.b[s.i]; c {
		case ' ', '\t', '\n', '\r':
			s.i++
		default:
			return c
		}
	}
	return 0
}

// end tells whether the whole text was one valid value.
func (s *jsonScan) end() bool { return !s.bad && s.peek() == 0 && s.i == len(s.b) }

// enter goes into an object or an array.
func (s *jsonScan) enter(open byte) {
	if s.peek() != open || s.depth >= maxDepth {
		s.fail()
		return
	}
	s.i++
	s.depth++
	s.fresh = true
}

// next goes to the next member of what was entered; false means that it was left.
func (s *jsonScan) next(closing byte) bool {
	if s.bad {
		return false
	}
	c := s.peek()
	if c == closing {
		s.i++
		s.depth--
		s.fresh = false
		return false
	}
	if s.fresh {
		s.fresh = false
		return true
	}
	if c != ',' {
		s.fail()
		return false
	}
	s.i++
	return true
}

// elem goes to the next element of an array.
func (s *jsonScan) elem() bool {
	if !s.next(']') {
		return false
	}
	if c := s.peek(); c == ']' || c == ',' || c == 0 {
		s.fail()
		return false
	}
	return true
}

// key goes to the next member of an object and puts its name into s.name.
func (s *jsonScan) key() bool {
	if !s.next('}') {
		return false
	}
	raw, escaped := s.text()
	if s.peek() != ':' {
		s.fail()
		return false
	}
	s.i++
	s.name = raw
	if escaped {
		s.buf = appendUnescaped(s.buf[:0], raw)
		s.name = s.buf
	}
	return !s.bad
}

// plain marks the bytes that may stand unescaped inside a string and end no string.
var plain = func() (t [256]bool) {
	for c := range t {
		t[c] = c >= 0x20 && c != '"' && c != '\\'
	}
	return t
}()

// text reads a string and returns what stands between its quotes, as written, and whether
// it has escapes.
func (s *jsonScan) text() (raw []byte, escaped bool) {
	if s.peek() != '"' {
		s.fail()
		return nil, false
	}
	b, i := s.b, s.i+1
	from := i
	for i < len(b) {
		c := b[i]
		if plain[c] {
			i++
			continue
		}
		if c == '"' {
			s.i = i + 1
			return b[from:i:i], escaped
		}
		if c != '\\' || i+1 >= len(b) {
			break
		}
		escaped = true
		switch b[i+1] {
		case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
			i += 2
		case 'u':
			if i+6 > len(b) || hex4(b[i+2:i+6]) < 0 {
				s.fail()
				return nil, false
			}
			i += 6
		default:
			s.fail()
			return nil, false
		}
	}
	s.fail()
	return nil, false
}

// str reads a value and returns what stands between the quotes, as written; nil when the
// value is no string.
func (s *jsonScan) str() []byte {
	if s.peek() != '"' {
		s.skip()
		return nil
	}
	raw, _ := s.text()
	return raw
}

// count reads a value and returns it when it is a whole number from 0 to 2^53; ok is false
// for null and everything else.
func (s *jsonScan) count() (n int64, ok bool) {
	from := s.i
	c := s.peek()
	s.skip()
	if s.bad || c < '0' || c > '9' {
		return 0, false
	}
	for _, d := range bytes.TrimLeft(s.b[from:s.i], " \t\r\n") {
		if d == '.' { // 12.0 is written by servers that keep counts in floats
			break
		}
		if d < '0' || d > '9' || n > 1<<53 {
			return 0, false
		}
		n = n*10 + int64(d-'0')
	}
	if dot := bytes.IndexByte(s.b[from:s.i], '.'); dot >= 0 {
		if len(bytes.Trim(s.b[from+dot+1:s.i], "0")) > 0 {
			return 0, false
		}
	}
	return n, n <= 1<<53
}

// raw reads a value and returns its bytes.
func (s *jsonScan) raw() []byte {
	s.peek()
	from := s.i
	s.skip()
	if s.bad {
		return nil
	}
	return s.b[from:s.i]
}

// null reads the value when it is null and tells so; any other value is left to be read.
func (s *jsonScan) null() bool {
	if s.peek() != 'n' {
		return false
	}
	s.skip()
	return true
}

// object enters the value when it is an object; otherwise it skips the value and returns
// false.
func (s *jsonScan) object() bool {
	if s.peek() != '{' {
		s.skip()
		return false
	}
	s.enter('{')
	return !s.bad
}

// array is object's twin.
func (s *jsonScan) array() bool {
	if s.peek() != '[' {
		s.skip()
		return false
	}
	s.enter('[')
	return !s.bad
}

// skip reads any value.
func (s *jsonScan) skip() {
	switch c := s.peek(); {
	case s.bad:
	case c == '"':
		s.text()
	case c == '{':
		for s.enter('{'); s.nextKey(); {
			s.skip()
		}
	case c == '[':
		for s.enter('['); s.elem(); {
			s.skip()
		}
	case c == 't':
		s.word("true")
	case c == 'f':
		s.word("false")
	case c == 'n':
		s.word("null")
	default:
		s.number()
	}
}

// nextKey is key for an object whose names do not matter.
func (s *jsonScan) nextKey() bool {
	if !s.next('}') {
		return false
	}
	s.text()
	if s.peek() != ':' {
		s.fail()
		return false
	}
	s.i++
	return true
}

func (s *jsonScan) word(w string) {
	if len(s.b)-s.i < len(w) || string(s.b[s.i:s.i+len(w)]) != w {
		s.fail()
		return
	}
	s.i += len(w)
}

func (s *jsonScan) digits() {
	from := s.i
	for s.i < len(s.b) && s.b[s.i] >= '0' && s.b[s.i] <= '9' {
		s.i++
	}
	if s.i == from {
		s.fail()
	}
}

func (s *jsonScan) at(set string) bool {
	return s.i < len(s.b) && bytes.IndexByte([]byte(set), s.b[s.i]) >= 0
}

func (s *jsonScan) number() {
	if s.at("-") {
		s.i++
	}
	if s.at("0") {
		s.i++
	} else {
		s.digits()
	}
	if s.at(".") {
		s.i++
		s.digits()
	}
	if s.at("eE") {
		s.i++
		if s.at("+-") {
			s.i++
		}
		s.digits()
	}
}

// hex4 is the value of four hexadecimal digits, -1 when they are none.
func hex4(b []byte) rune {
	var r rune
	for _, c := range b[:4] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return -1
		}
		r = r<<4 | rune(c)
	}
	return r
}

// appendUnescaped appends the text that a valid string means. A lone surrogate and bytes that
// are no UTF-8 become U+FFFD, as encoding/json does.
func appendUnescaped(dst, raw []byte) []byte {
	for i := 0; i < len(raw); {
		c := raw[i]
		if c < utf8.RuneSelf && c != '\\' {
			dst = append(dst, c)
			i++
			continue
		}
		if c != '\\' {
			r, n := utf8.DecodeRune(raw[i:])
			dst = utf8.AppendRune(dst, r)
			i += n
			continue
		}
		switch e := raw[i+1]; e {
		case 'u':
			r := hex4(raw[i+2:])
			i += 6
			if utf16.IsSurrogate(r) {
				low := rune(-1)
				if i+6 <= len(raw) && raw[i] == '\\' && raw[i+1] == 'u' {
					low = hex4(raw[i+2:])
				}
				r = utf16.DecodeRune(r, low)
				if r != utf8.RuneError {
					i += 6
				}
			}
			dst = utf8.AppendRune(dst, r)
		default:
			dst = append(dst, unescape[e])
			i += 2
		}
	}
	return dst
}

var unescape = [256]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}
