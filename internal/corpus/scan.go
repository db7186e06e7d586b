package corpus

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A FormatError is a fault in a file that a reader refused.
type FormatError struct {
	File  string
	Line  int    // from 1; 0 when the fault is in the file as a whole
	Col   int    // byte in the line, from 1
	Field string // such as requests[3].in; empty when the fault is in no field
	Msg   string
}

func (e *FormatError) Error() string {
	var b strings.Builder
	b.WriteString(e.File)
	if e.Line > 0 {
		fmt.Fprintf(&b, ":%d:%d", e.Line, e.Col)
	}
	b.WriteString(": ")
	if e.Field != "" {
		b.WriteString(e.Field + ": ")
	}
	b.WriteString(e.Msg)
	return b.String()
}

// maxDepth is how deep objects and arrays may nest in a file.
const maxDepth = 256

// A step is one part of the path of the value that is being read.
type step struct {
	key string
	idx int // used when key is empty
}

// A scanner reads JSON in place. After the first fault every call returns at once and err
// holds the fault, so readers check it once a value.
type scanner struct {
	buf   []byte
	pos   int
	file  string
	line0 int // lines before buf[0], for JSON lines
	path  []step
	err   *FormatError
}

func newScanner(buf []byte, file string) *scanner { return &scanner{buf: buf, file: file} }

func (s *scanner) failAt(pos int, format string, a ...any) {
	if s.err == nil {
		s.err = s.fault(pos, nil, format, a...)
	}
}

// fault is a fault at a position, in a field below the one that is read. It does not end the
// reading.
func (s *scanner) fault(pos int, below []step, format string, a ...any) *FormatError {
	before := s.buf[:min(pos, len(s.buf))]
	return &FormatError{
		File:  s.file,
		Line:  s.line0 + 1 + bytes.Count(before, []byte{'\n'}),
		Col:   len(before) - bytes.LastIndexByte(before, '\n'),
		Field: fieldName(slices.Concat(s.path, below)),
		Msg:   fmt.Sprintf(format, a...),
	}
}

func (s *scanner) fail(format string, a ...any) { s.failAt(s.pos, format, a...) }

// lineAt is the line of a position.
func (s *scanner) lineAt(pos int) int {
	return s.line0 + 1 + bytes.Count(s.buf[:min(pos, len(s.buf))], []byte{'\n'})
}

func fieldName(path []step) string {
	var b strings.Builder
	for _, p := range path {
		if p.key == "" {
			b.WriteByte('[')
			b.WriteString(strconv.Itoa(p.idx))
			b.WriteByte(']')
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		b.WriteString(p.key)
	}
	return b.String()
}

func (s *scanner) pop() { s.path = s.path[:len(s.path)-1] }

// peek skips white space and returns the next byte, 0 at the end.
func (s *scanner) peek() byte {
	for s.pos < len(s.buf) {
		switch c := s.buf[s.pos]; c {
		case ' ', '\t', '\n', '\r':
			s.pos++
		default:
			return c
		}
	}
	return 0
}

// found names what stands at the current position, for messages.
func (s *scanner) found() string {
	if s.pos >= len(s.buf) {
		return "the end of the file"
	}
	switch c := s.buf[s.pos]; {
	case c == '"':
		return "a string"
	case c == '{':
		return "an object"
	case c == '[':
		return "an array"
	case c == '-' || c >= '0' && c <= '9':
		return "a number"
	case bytes.HasPrefix(s.buf[s.pos:], []byte("null")):
		return "null"
	case bytes.HasPrefix(s.buf[s.pos:], []byte("true")), bytes.HasPrefix(s.buf[s.pos:], []byte("false")):
		return "a boolean"
	default:
		end := s.pos
		for end < len(s.buf) && end-s.pos < 12 && s.buf[end] > ' ' && !strings.ContainsRune(",:]}\"", rune(s.buf[end])) {
			end++
		}
		if end == s.pos {
			end++
		}
		return strconv.QuoteToASCII(string(s.buf[s.pos:end]))
	}
}

func (s *scanner) expect(c byte, what string) bool {
	if s.err != nil {
		return false
	}
	if s.peek() != c {
		s.fail("want %s, found %s", what, s.found())
		return false
	}
	s.pos++
	return true
}

// object reads an object and calls member with each key; member must read the value.
func (s *scanner) object(member func(key []byte)) {
	if !s.expect('{', "an object") {
		return
	}
	if s.peek() == '}' {
		s.pos++
		return
	}
	for s.err == nil {
		if s.peek() != '"' {
			s.fail("want a key, found %s", s.found())
			return
		}
		key := s.str()
		if !s.expect(':', "':' after the key") {
			return
		}
		s.path = append(s.path, step{key: string(key)})
		member(key)
		if s.err != nil {
			return
		}
		s.pop()
		switch s.peek() {
		case ',':
			s.pos++
		case '}':
			s.pos++
			return
		default:
			s.fail("want ',' or '}', found %s", s.found())
		}
	}
}

// array reads an array and calls element with each index; element must read the value.
func (s *scanner) array(element func(i int)) {
	if !s.expect('[', "an array") {
		return
	}
	if s.peek() == ']' {
		s.pos++
		return
	}
	for i := 0; s.err == nil; i++ {
		s.path = append(s.path, step{idx: i})
		element(i)
		if s.err != nil {
			return
		}
		s.pop()
		switch s.peek() {
		case ',':
			s.pos++
		case ']':
			s.pos++
			return
		default:
			s.fail("want ',' or ']', found %s", s.found())
		}
	}
}

// str reads a string. The result may share memory with the input.
func (s *scanner) str() []byte {
	if s.err != nil {
		return nil
	}
	if s.peek() != '"' {
		s.fail("want a string, found %s", s.found())
		return nil
	}
	start := s.pos + 1
	for i := start; i < len(s.buf); i++ {
		switch c := s.buf[i]; {
		case c == '"':
			s.pos = i + 1
			return s.buf[start:i]
		case c == '\\':
			return s.escaped(start, i)
		case c < ' ':
			s.failAt(i, "control character %#02x in a string", c)
			return nil
		}
	}
	s.failAt(len(s.buf), "the file ends inside a string")
	return nil
}

func (s *scanner) escaped(start, i int) []byte {
	out := append([]byte(nil), s.buf[start:i]...)
	for i < len(s.buf) {
		c := s.buf[i]
		switch {
		case c == '"':
			s.pos = i + 1
			return out
		case c < ' ':
			s.failAt(i, "control character %#02x in a string", c)
			return nil
		case c != '\\':
			out = append(out, c)
			i++
			continue
		}
		if i+1 >= len(s.buf) {
			break
		}
		i += 2
		switch e := s.buf[i-1]; e {
		case '"', '\\', '/':
			out = append(out, e)
		case 'b':
			out = append(out, '\b')
		case 'f':
			out = append(out, '\f')
		case 'n':
			out = append(out, '\n')
		case 'r':
			out = append(out, '\r')
		case 't':
			out = append(out, '\t')
		case 'u':
			r, n := s.unicode(i)
			if n == 0 {
				s.failAt(i, "want four hexadecimal digits after \\u")
				return nil
			}
			out = utf8.AppendRune(out, r)
			i += n
		default:
			s.failAt(i-1, "unknown escape \\%c in a string", e)
			return nil
		}
	}
	s.failAt(len(s.buf), "the file ends inside a string")
	return nil
}

// unicode reads the digits after \u at i, and a second half of a surrogate pair behind it.
func (s *scanner) unicode(i int) (r rune, n int) {
	hex := func(i int) rune {
		if i+4 > len(s.buf) {
			return -1
		}
		v, err := strconv.ParseUint(string(s.buf[i:i+4]), 16, 32)
		if err != nil {
			return -1
		}
		return rune(v)
	}
	r = hex(i)
	if r < 0 {
		return 0, 0
	}
	if r < 0xd800 || r > 0xdfff {
		return r, 4
	}
	if r < 0xdc00 && i+6 <= len(s.buf) && s.buf[i+4] == '\\' && s.buf[i+5] == 'u' {
		if lo := hex(i + 6); lo >= 0xdc00 && lo <= 0xdfff {
			return (r-0xd800)<<10 + (lo - 0xdc00) + 0x10000, 10
		}
	}
	return utf8.RuneError, 4
}

// null skips a null and reports whether there was one.
func (s *scanner) null() bool {
	if s.err == nil && s.peek() == 'n' && bytes.HasPrefix(s.buf[s.pos:], []byte("null")) {
		s.pos += 4
		return true
	}
	return false
}

// skip reads one value of any kind and forgets it.
func (s *scanner) skip() {
	var open []byte // the brackets that are open
	key := false    // a key must come next
	for s.err == nil {
		c := s.peek()
		switch {
		case key:
			if c != '"' {
				s.fail("want a key, found %s", s.found())
				return
			}
			s.str()
			s.expect(':', "':' after the key")
			key = false
			continue
		case c == '{' || c == '[':
			if len(open) >= maxDepth {
				s.fail("nested deeper than %d", maxDepth)
				return
			}
			open = append(open, c)
			s.pos++
			if c == '{' {
				if s.peek() == '}' {
					break
				}
				key = true
				continue
			}
			if s.peek() == ']' {
				break
			}
			continue
		case c == '"':
			s.str()
		case c == '-' || c >= '0' && c <= '9':
			s.number()
		default:
			s.literal()
		}
		// A value or an empty bracket pair has been read: close what ends here.
		for s.err == nil && len(open) > 0 {
			last := open[len(open)-1]
			c := s.peek()
			if c == last+2 { // ']' is '[' + 2, '}' is '{' + 2
				s.pos++
				open = open[:len(open)-1]
				continue
			}
			if c != ',' {
				s.fail("want ',' or %q, found %s", string(rune(last+2)), s.found())
				return
			}
			s.pos++
			key = last == '{'
			break
		}
		if len(open) == 0 {
			return
		}
	}
}

func (s *scanner) literal() {
	for _, lit := range []string{"true", "false", "null"} {
		if bytes.HasPrefix(s.buf[s.pos:], []byte(lit)) {
			s.pos += len(lit)
			return
		}
	}
	s.fail("want a value, found %s", s.found())
}

// end refuses anything but white space behind a value.
func (s *scanner) end() {
	if s.err == nil && s.peek() != 0 {
		s.fail("want the end of the file, found %s", s.found())
	}
	if s.err == nil && s.pos < len(s.buf) {
		s.fail("want the end of the file, found %s", s.found())
	}
}
