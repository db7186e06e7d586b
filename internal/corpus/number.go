package corpus

import (
	"bytes"
	"math"
	"strconv"
)

// number returns the text of a number.
func (s *scanner) number() []byte {
	if s.err != nil {
		return nil
	}
	s.peek()
	start := s.pos
	i := start
	for i < len(s.buf) {
		c := s.buf[i]
		if c >= '0' && c <= '9' || c == '-' || c == '+' || c == '.' || c == 'e' || c == 'E' {
			i++
			continue
		}
		break
	}
	text := s.buf[start:i]
	if !isNumber(text) {
		s.fail("want a number, found %s", s.found())
		return nil
	}
	s.pos = i
	return text
}

// isNumber checks the JSON grammar of a number.
func isNumber(t []byte) bool {
	i := 0
	digits := func() bool {
		j := i
		for i < len(t) && t[i] >= '0' && t[i] <= '9' {
			i++
		}
		return i > j
	}
	if i < len(t) && t[i] == '-' {
		i++
	}
	if i < len(t) && t[i] == '0' {
		i++
	} else if !digits() {
		return false
	}
	if i < len(t) && t[i] == '.' {
		i++
		if !digits() {
			return false
		}
	}
	if i < len(t) && (t[i] == 'e' || t[i] == 'E') {
		i++
		if i < len(t) && (t[i] == '+' || t[i] == '-') {
			i++
		}
		if !digits() {
			return false
		}
	}
	return i == len(t) && i > 0
}

// count reads a whole number from 0 to max.
func (s *scanner) count(max int64) int64 {
	at := s.pos
	text := s.number()
	if s.err != nil {
		return 0
	}
	v, ok := wholeNumber(text)
	switch {
	case !ok:
		s.failAt(at, "want a whole number, found %s", text)
	case v < 0:
		s.failAt(at, "%s is negative", text)
	case v > max:
		s.failAt(at, "%s is over the limit of %d", text, max)
	default:
		return v
	}
	return 0
}

func wholeNumber(text []byte) (int64, bool) {
	if len(text) <= 18 {
		var v int64
		for i, c := range text {
			if c == '-' && i == 0 {
				continue
			}
			if c < '0' || c > '9' {
				goto slow
			}
			v = v*10 + int64(c-'0')
		}
		if text[0] == '-' {
			v = -v
		}
		return v, true
	}
slow:
	f, err := strconv.ParseFloat(string(text), 64)
	if err != nil || f != math.Trunc(f) {
		return 0, false
	}
	if math.Abs(f) >= 1<<62 {
		if f < 0 {
			return math.MinInt64, true
		}
		return math.MaxInt64, true
	}
	return int64(f), true
}

// maxTokens bounds the tokens of one request; it keeps every sum over a corpus inside int64.
const maxTokens = 1 << 40

// maxSeconds bounds a recorded time: about 31 years.
const maxSeconds = 1_000_000_000

// scaled reads a decimal number of units and returns it in nanoseconds, exact to the
// nanosecond; perUnit is nanoseconds in a unit, a power of ten.
func (s *scanner) scaled(perUnit int64) int64 {
	at := s.pos
	text := s.number()
	if s.err != nil {
		return 0
	}
	ns, ok := decimal(text, perUnit)
	if !ok || ns > maxSeconds*1_000_000_000 || ns < -maxSeconds*1_000_000_000 {
		s.failAt(at, "%s lies beyond %d seconds", text, maxSeconds)
		return 0
	}
	return ns
}

// decimal multiplies a decimal number by a power of ten without a detour over binary floats,
// rounding half away from zero.
func decimal(text []byte, mul int64) (int64, bool) {
	if bytes.ContainsAny(text, "eE") {
		f, err := strconv.ParseFloat(string(text), 64)
		f *= float64(mul)
		if err != nil || math.Abs(f) > 1<<62 {
			return 0, false
		}
		return int64(math.Round(f)), true
	}
	digits := 0
	for m := mul; m > 1; m /= 10 {
		digits++
	}
	neg := false
	var v int64
	seen := -1 // digits seen behind the point
	up := false
	for i, c := range text {
		switch {
		case c == '-' && i == 0:
			neg = true
		case c == '.':
			seen = 0
		default:
			if seen >= digits {
				if seen == digits {
					up = c >= '5'
				}
				seen++
				continue
			}
			if v > (math.MaxInt64-9)/10 {
				return 0, false
			}
			v = v*10 + int64(c-'0')
			if seen >= 0 {
				seen++
			}
		}
	}
	for n := max(seen, 0); n < digits; n++ {
		if v > math.MaxInt64/10 {
			return 0, false
		}
		v *= 10
	}
	if up {
		v++
	}
	if neg {
		v = -v
	}
	return v, true
}
