package inferencex

import (
	"bytes"
	"io"
)

// unsliced is a reader that empties the arrays under the key "timeslices" of a JSON
// text on the way: they are nearly all of a large file, and no row needs them. What is
// inside is not checked beyond its strings and brackets.
type unsliced struct {
	r     io.Reader
	buf   []byte
	rest  []byte // read and not looked at
	state sliceState
	key   []byte // string under way
	// candidate says that it can still be the key.
	candidate bool
	esc       bool
	depth     int
	err       error
}

type sliceState uint8

const (
	between  sliceState = iota
	inString            // and key holds what it began with
	afterKey            // the key has ended
	afterColon
	inside       // the array of slices
	insideString // a string in it
)

var slicesKey = []byte("timeslices")

func newUnsliced(r io.Reader) *unsliced { return &unsliced{r: r, buf: make([]byte, 1<<20)} }

func (u *unsliced) Read(p []byte) (int, error) {
	n := 0
	for n < len(p) {
		if len(u.rest) == 0 {
			if n > 0 {
				return n, nil
			}
			if u.err != nil {
				return 0, u.err
			}
			k, err := u.r.Read(u.buf)
			u.rest, u.err = u.buf[:k], err
			continue
		}
		switch u.state {
		case inside:
			u.skip()
			if u.state != between {
				continue
			}
			p[n] = ']'
			n++
			continue
		case insideString:
			u.skipString()
			continue
		}
		c := u.rest[0]
		u.rest = u.rest[1:]
		p[n] = c
		n++
		u.step(c)
	}
	return n, nil
}

// step follows one byte outside an array of slices.
func (u *unsliced) step(c byte) {
	switch u.state {
	case inString:
		switch {
		case u.esc:
			u.esc = false
		case c == '\\':
			u.esc, u.candidate = true, false
		case c == '"':
			u.state = between
			if u.candidate && bytes.Equal(u.key, slicesKey) {
				u.state = afterKey
			}
			return
		}
		if u.candidate {
			u.key = append(u.key, c)
			u.candidate = len(u.key) <= len(slicesKey)
		}
	default:
		switch {
		case c == ' ' || c == '\n' || c == '\r' || c == '\t':
		case c == '"':
			u.state, u.key, u.candidate = inString, u.key[:0], true
		case c == ':' && u.state == afterKey:
			u.state = afterColon
		case c == '[' && u.state == afterColon:
			u.state, u.depth = inside, 1
		default:
			u.state = between
		}
	}
}

// skip passes over what stands in the array, to its end or to a string.
func (u *unsliced) skip() {
	for i, c := range u.rest {
		switch c {
		case '"':
			u.state, u.rest = insideString, u.rest[i+1:]
			return
		case '[', '{':
			u.depth++
		case ']', '}':
			if u.depth--; u.depth == 0 {
				u.state, u.rest = between, u.rest[i+1:]
				return
			}
		}
	}
	u.rest = nil
}

func (u *unsliced) skipString() {
	for i, c := range u.rest {
		switch {
		case u.esc:
			u.esc = false
		case c == '\\':
			u.esc = true
		case c == '"':
			u.state, u.rest = inside, u.rest[i+1:]
			return
		}
	}
	u.rest = nil
}
