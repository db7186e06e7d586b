// Package told reads what engines tell of themselves: in the lines of their logs and on their
// info endpoints.
//
// A Log is fed the bytes of one process's log in pieces of any size and returns facts: pool sizes,
// resolved arguments, versions, ranks, each with the line and the spelling that it was read from.
// It puts up with what logs are: colours, progress bars, half lines, lines of several ranks in any
// order or written into each other, lines without end, and bytes that are no text. The facts of a
// log do not depend on how its bytes were cut or its lines were mixed. Ranks that tell different
// things keep a fact each; nothing is overwritten.
//
// Everything here is pure: reading files and asking servers is package run's.
package told

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/weirbench/weir/internal/record"
)

// Names of facts. Arguments are "arg." and their name with underscores.
const (
	Version       = "version"             // release of the engine
	DeviceTokens  = "device_tokens"       // KV pool of a replica on the device, tokens
	HostTokens    = "host_tokens"         // KV pool of a replica on the host, tokens
	DeviceBlocks  = "device_blocks"       // KV pool on the device, blocks
	HostBlocks    = "host_blocks"         // KV pool on the host, blocks
	BlockTokens   = "block_tokens"        // tokens of a block
	DeviceBytes   = "device_bytes"        // KV pool of a rank on the device, bytes, as far as two decimals tell
	HostBytes     = "host_bytes"          // KV pool of a rank on the host, bytes, as far as two decimals tell
	AllocTokens   = "kv_allocated_tokens" // one KV allocation of a rank, tokens: there are others for drafts and windows
	ContextTokens = "context_tokens"      // longest sequence, tokens
	MaxRunning    = "max_running"         // requests at once
	Assigned      = "assigned"            // which rank of which kind of parallelism a process is
	Arg           = "arg."                // prefix of arguments
)

const (
	maxLine   = 1 << 20 // bytes of a line that are read; what is behind is passed over
	maxFacts  = 1 << 14 // of one log
	maxText   = 240     // bytes of a spelling that are kept
	maxNumber = 1 << 50
)

// A Log gathers facts from one process's log. It never fails and never keeps more than a line.
type Log struct {
	process string
	line    int64 // lines ended so far
	buf     []byte
	facts   map[key]*record.Fact
}

type key struct{ engine, name, rank, value string }

// NewLog begins the log of a process, whose name the facts carry.
func NewLog(process string) *Log { return &Log{process: process, facts: map[key]*record.Fact{}} }

// Write takes the next bytes. It is an io.Writer that never fails.
func (l *Log) Write(b []byte) (int, error) {
	n := len(b)
	for len(b) > 0 {
		i := bytes.IndexAny(b, "\n\r")
		if i < 0 {
			l.keep(b)
			return n, nil
		}
		l.keep(b[:i])
		l.end()
		if b[i] == '\n' {
			l.line++
		}
		b = b[i+1:]
	}
	return n, nil
}

func (l *Log) keep(b []byte) { l.buf = append(l.buf, b[:min(len(b), maxLine-len(l.buf))]...) }

// end reads the line that is held.
func (l *Log) end() {
	if len(l.buf) > 0 {
		read(plain(l.buf), l.add)
	}
	l.buf = l.buf[:0]
}

// Close reads a last line that has no end.
func (l *Log) Close() error {
	l.end()
	return nil
}

func (l *Log) add(engine, name, rank, value, text string) {
	k := key{engine, name, rank, value}
	if f := l.facts[k]; f != nil {
		f.Count++
		return
	}
	if len(l.facts) >= maxFacts {
		return
	}
	// A line is held as a whole; a fact keeps its own bytes.
	l.facts[k] = &record.Fact{Engine: engine, Name: strings.Clone(name), Value: strings.Clone(value), Process: l.process,
		Rank: strings.Clone(rank), From: "log", Line: l.line + 1, Text: strings.Clone(text), Count: 1}
}

// Facts are what was told so far, in order of name, rank and value.
func (l *Log) Facts() []record.Fact {
	out := make([]record.Fact, 0, len(l.facts))
	for _, f := range l.facts {
		out = append(out, *f)
	}
	Sort(out)
	return out
}

// Sort brings facts into the order of process, name, rank and value.
func Sort(facts []record.Fact) {
	slices.SortFunc(facts, func(a, b record.Fact) int {
		return cmp.Or(cmp.Compare(a.Process, b.Process), cmp.Compare(a.From, b.From), cmp.Compare(a.Name, b.Name),
			natural(a.Rank, b.Rank), cmp.Compare(a.Value, b.Value), cmp.Compare(a.Engine, b.Engine))
	})
}

// natural compares names that end in numbers by the number.
func natural(a, b string) int {
	cut := func(s string) (string, int) {
		t := strings.TrimRight(s, "0123456789")
		n, _ := strconv.Atoi(s[len(t):])
		return t, n
	}
	as, an := cut(a)
	bs, bn := cut(b)
	return cmp.Or(cmp.Compare(as, bs), cmp.Compare(an, bn), cmp.Compare(a, b))
}

// plain is a line without escape sequences and without bytes that are no text.
func plain(b []byte) string {
	out := make([]byte, 0, len(b))
	for i := 0; i < len(b); {
		c := b[i]
		switch {
		case c == 0x1b:
			i += escape(b[i:])
			continue
		case c < ' ' && c != '\t' || c == 0x7f:
			i++
			continue
		case c < utf8.RuneSelf:
			out = append(out, c)
			i++
			continue
		}
		r, n := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && n == 1 {
			out = append(out, '?')
		} else {
			out = append(out, b[i:i+n]...)
		}
		i += n
	}
	return string(out)
}

// escape is the length of the escape sequence that b begins with (ECMA-48): CSI up to its final
// byte, OSC up to BEL or ST, else two bytes.
func escape(b []byte) int {
	if len(b) < 2 {
		return len(b)
	}
	switch b[1] {
	case '[':
		for i := 2; i < len(b); i++ {
			if b[i] >= 0x40 && b[i] <= 0x7e {
				return i + 1
			}
			if b[i] < 0x20 || b[i] > 0x3f {
				return i // torn by something else
			}
		}
		return len(b)
	case ']':
		for i := 2; i < len(b); i++ {
			if b[i] == 0x07 {
				return i + 1
			}
			if b[i] == 0x1b {
				return min(i+2, len(b))
			}
		}
		return len(b)
	}
	return 2
}

// around is the spelling of a match: the bytes before and behind it as far as they fit.
func around(line string, from, to int) string {
	from = max(0, min(from, to-maxText/2))
	if lead := to - from; lead < maxText/2 {
		from = max(0, from-(maxText/2-lead))
	}
	end := min(len(line), from+maxText)
	for from > 0 && !utf8.RuneStart(line[from]) {
		from--
	}
	for end < len(line) && end > from && !utf8.RuneStart(line[end]) {
		end--
	}
	return strings.TrimSpace(line[from:end])
}

// whole reads a count with or without thousands separators; false beyond belief.
func whole(s string) (int64, bool) {
	n, err := strconv.ParseInt(strings.ReplaceAll(s, ",", ""), 10, 64)
	return n, err == nil && n >= 0 && n < maxNumber
}

// size turns "62.20" of a unit into bytes, exactly for the digits that are there.
func size(s string, unit int64) (int64, bool) {
	head, tail, _ := strings.Cut(s, ".")
	n, err := strconv.ParseInt(head, 10, 64)
	if err != nil || n < 0 || n > maxNumber/unit {
		return 0, false
	}
	bytes := n * unit
	if tail = tail[:min(len(tail), 6)]; tail != "" {
		f, err := strconv.ParseInt(tail, 10, 64)
		if err != nil {
			return 0, false
		}
		scale := int64(1)
		for range tail {
			scale *= 10
		}
		bytes += f * unit / scale
	}
	return bytes, true
}

func text(n int64) string { return fmt.Sprint(n) }
