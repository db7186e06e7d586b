package client

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/weirbench/weir/internal/record"
)

const (
	maxExcerpt = 16 << 10 // bytes of an error body that are read
	maxDetail  = 500      // bytes of Failure.Detail
)

// bodyMode is what the body of a response turned out to be.
type bodyMode uint8

const (
	modeUnknown bodyMode = iota
	modeEvents           // an event stream
	modeJSON             // one JSON text, read whole
	modeError            // the body of a status other than 2xx
)

// An answer makes the record of one response out of its head, the decoded bytes of its body
// and the instants at which they came. It has no clock and no connection.
type answer struct {
	rec      *record.Request
	endpoint Endpoint
	limits   answerLimits
	overflow []string // lower-case texts that mean that the prompt is too long
	chunks   bool     // keep chunk times

	mode     bodyMode
	events   eventStream
	scan     jsonScan
	frame    frame
	mold     mold
	use      usage
	whole    []byte // a body that is read whole, or the excerpt of an error
	at       int64  // instant of the bytes under way
	seen     int    // events in the read under way
	firstIn  bool   // the first token came in the read under way
	lastIn   bool   // a token came in it
	doubt    record.Doubt
	probe    func(lane int, data []byte, at int64) // sees every event, to calibrate
	shared   int64                                 // content frames that shared their read with an earlier one
	lastRead int64                                 // instant of the last read with a content frame
	frames   int64                                 // content frames
	bytes    int64                                 // of their text
	textLen  int                                   // SGLang's generate: length of the text so far
	ids      int                                   // and of the ids
	outSoFar int64                                 // output tokens that usage frames have reported so far
	done     bool                                  // the stream said that it is complete: [DONE] or the dialect's last event
	finished bool                                  // a finish reason was seen
	failure  *record.Failure
	keep     bool // collect the text
	called   bool // a tool was called
	text     []byte
	thoughts []byte
	usageRaw bool // usage was seen
}

type answerLimits struct {
	frame int // bytes of one event
	whole int // bytes of an answer that is not streamed
}

// stop ends a stream from inside a sink; the failure is in the answer.
type stopError struct{}

func (stopError) Error() string { return "the answer is over" }

func (a *answer) fail(class record.Class, format string, args ...any) error {
	if a.failure == nil {
		a.failure = failure(class, fmt.Sprintf(format, args...))
	}
	return stopError{}
}

// failure builds a Failure whose detail is one line of at most 500 bytes.
func failure(class record.Class, detail string) *record.Failure {
	detail = strings.Join(strings.Fields(strings.ToValidUTF8(detail, "\ufffd")), " ")
	if len(detail) > maxDetail {
		detail = clip(detail, maxDetail-3)
	}
	return &record.Failure{Class: class, Detail: detail}
}

// headers notes the response head, which came at a.at.
func (a *answer) headers(h *head) error {
	a.rec.Times.Headers = a.at
	a.lastRead = record.Never
	a.events.limit = a.limits.frame
	switch {
	case h.status < 200 || h.status > 299:
		a.mode = modeError
	case h.media == "text/event-stream":
		a.mode = modeEvents
	case h.media == "application/json":
		a.mode = modeJSON
	}
	return nil
}

// body takes decoded bytes of the body, which came at a.at.
func (a *answer) body(p []byte) error {
	if a.mode == modeUnknown {
		if p = a.sniff(p); p == nil {
			return nil
		}
	}
	switch a.mode {
	case modeEvents:
		err := a.events.feed(p, a)
		if err == errFrameTooLong {
			return a.fail(record.FailMalformed, "a frame is longer than %d bytes", a.limits.frame)
		}
		return err
	case modeJSON:
		if len(a.whole)+len(p) > a.limits.whole {
			return a.fail(record.FailMalformed, "an answer that is no stream is longer than %d bytes", a.limits.whole)
		}
		a.whole = append(a.whole, p...)
	case modeError:
		a.whole = append(a.whole, p[:min(len(p), maxExcerpt-len(a.whole))]...)
	}
	return nil
}

// sniff decides by the first byte what a body without a known media type is, and returns the
// bytes to go on with.
func (a *answer) sniff(p []byte) []byte {
	a.whole = append(a.whole, p...)
	lead := bytes.TrimLeft(a.whole, " \t\r\n")
	if len(lead) == 0 {
		return nil
	}
	p = append([]byte(nil), a.whole...)
	a.whole = a.whole[:0]
	a.mode = modeEvents
	if lead[0] == '{' {
		a.mode = modeJSON
	}
	return p
}

// event takes one event of the stream.
func (a *answer) event(name, data []byte) error {
	a.seen++
	if a.probe != nil {
		a.probe(a.rec.Lane, data, a.at)
	}
	if a.done {
		return nil // what follows the end is not part of the answer
	}
	if len(data) == 0 {
		return nil
	}
	if trimmed := bytes.TrimSpace(data); string(trimmed) == "[DONE]" {
		a.done = true
		return nil
	}
	a.frame.reset(a.keep)
	if len(name) == 0 && a.mold.fits(&a.frame, data) {
		return a.take()
	}
	if !a.frame.read(a.endpoint, &a.scan, data) {
		if string(name) == "error" {
			return a.streamError(data)
		}
		return a.fail(record.FailMalformed, "event %d is no JSON object: %s", a.frames+1, clip(string(data), 200))
	}
	if string(name) == "error" && !a.frame.failed {
		a.frame.failed, a.frame.message = true, data
	}
	a.mold.take(a.endpoint, &a.frame, data)
	return a.take()
}

// take notes what a.frame said.
func (a *answer) take() error {
	f := &a.frame
	if f.hasUsage {
		a.usageRaw = true
		a.use.merge(&f.usage)
	}
	if f.failed {
		return a.streamError(f.message)
	}
	if a.endpoint == Generate {
		a.grown()
	}
	if f.reasoning || f.visible {
		a.token()
	}
	if n := a.use.outputTokens(); n > a.outSoFar {
		a.outSoFar = n
	}
	a.finished = a.finished || f.finished
	a.done = a.done || f.last
	return nil
}

// grown decides whether a frame of SGLang's generate, which repeats the text so far unless
// told otherwise, has a token: when the count of tokens grew or, without one, when the text
// or the ids are not what they were.
func (a *answer) grown() {
	f := &a.frame
	if !f.visible {
		return
	}
	if n := a.use.output.value(); n != record.Unknown {
		f.visible = n > a.outSoFar
	} else {
		f.visible = f.textLen != a.textLen && f.textLen > 0 || f.ids != a.ids && f.ids > 0
	}
	f.bytes = 0 // whether the text so far stands in it once more cannot be told by its length
	if a.keep {
		cumulative := f.textLen >= a.textLen && bytes.HasPrefix(f.content, a.text)
		if cumulative {
			a.text = a.text[:0]
		}
	}
	a.textLen, a.ids = f.textLen, f.ids
}

// token notes a content frame at a.at.
func (a *answer) token() {
	t := &a.rec.Times
	if t.FirstToken == record.Never {
		t.FirstToken = a.at
		a.firstIn = true
	}
	a.lastIn = true
	a.called = a.called || a.frame.called
	if a.frame.visible && t.FirstVisible == record.Never {
		t.FirstVisible = a.at
	}
	t.LastToken = a.at
	a.frames++
	a.bytes += a.frame.bytes
	if a.lastRead == a.at {
		a.shared++
	}
	a.lastRead = a.at
	if a.keep {
		a.text = append(a.text, a.frame.content...)
		a.thoughts = append(a.thoughts, a.frame.reasonings...)
	}
	if a.chunks {
		c := record.Chunk{At: a.at, Tokens: record.Unknown}
		if n := a.use.outputTokens(); a.frame.hasUsage && n != record.Unknown {
			c.Tokens = max(n-a.outSoFar, 0)
		}
		a.rec.Chunks = append(a.rec.Chunks, c)
	}
}

func (a *answer) streamError(message []byte) error {
	if len(bytes.TrimSpace(message)) == 0 {
		message = []byte("the server sent an error without a message")
	}
	class := record.FailStreamError
	if a.overflows(message) {
		class = record.FailContextOverflow
	}
	return a.fail(class, "%s", clip(string(message), 2*maxDetail))
}

func (a *answer) overflows(message []byte) bool {
	low := strings.ToLower(string(message))
	for _, s := range a.overflow {
		if strings.Contains(low, s) {
			return true
		}
	}
	return false
}

// excerptFull tells whether enough of an error body was read to go on without the rest.
func (a *answer) excerptFull() bool { return a.mode == modeError && len(a.whole) >= maxExcerpt }

// finish ends the answer at an instant. cut is nil when the body ended as its HTTP said,
// declared false when the end was only the end of the connection.
func (a *answer) finish(status int, at int64, cut error, declared bool) {
	a.at = at
	defer a.seal()
	switch {
	case a.failure != nil:
		return
	case a.mode == modeError:
		class := record.FailStatus
		if a.overflows(a.whole) {
			class = record.FailContextOverflow
		}
		text := clip(string(a.whole), 2*maxDetail)
		if status >= 300 && status < 400 {
			text = "a redirect, which is not followed: give the URL that it leads to; " + text
		}
		a.fail(class, "HTTP status %d: %s", status, text)
		return
	case a.done: // every token is here, however the rest ended
	case cut != nil:
		a.fail(record.FailResetAfter, "%v after %d content frames", cut, a.frames)
		return
	case a.mode == modeEvents:
		if a.events.finish(a) != nil {
			return
		}
		if !declared && !a.done && !a.finished && !a.usageRaw {
			a.fail(record.FailResetAfter, "the connection ended after %d content frames without [DONE], a finish reason or usage", a.frames)
			return
		}
	default:
		a.single()
	}
	if a.failure == nil && a.frames == 0 {
		a.fail(record.FailNoTokens, "the answer ended without a token")
	}
}

// single reads an answer that was not streamed.
func (a *answer) single() {
	body := bytes.TrimSpace(a.whole)
	if len(body) == 0 {
		return
	}
	a.frame.reset(a.keep)
	if !a.frame.read(a.endpoint, &a.scan, body) {
		a.fail(record.FailMalformed, "the answer is neither an event stream nor a JSON object: %s", clip(string(body), 200))
		return
	}
	if a.take() == nil && a.frames > 0 {
		a.finished = true
	}
}

// settle notes, after each read, how much too late the instants in it may be. loose bounds
// that for any read. A read that held one event and nothing of the next, and has the kernel's
// time, is as exact as the clock; with several events the kernel's time is that of the last.
func (a *answer) settle(loose int64, stamped bool) {
	if a.lastIn {
		d := loose
		if stamped && a.seen <= 1 && !a.events.pending() {
			d = stampNoise
		}
		a.doubt.Last = d
		if a.firstIn {
			a.doubt.First = d
		}
	}
	a.seen, a.firstIn, a.lastIn = 0, false, false
}

// stampNoise is what may lie between two readings of the clocks that a kernel's time is
// converted with, nanoseconds.
const stampNoise = 1000

// seal writes the counts and the end into the record.
func (a *answer) seal() {
	r := a.rec
	r.Times.End = max(a.at, r.Times.LastToken, r.Times.Headers)
	r.PromptTokens = a.use.promptTokens()
	r.OutputTokens = a.use.outputTokens()
	r.ReasoningTokens = a.use.reasoning.value()
	r.Hits = a.use.hits()
	r.BadCount = a.use.refused
	r.Failure = a.failure
	r.Frames, r.TextBytes = a.frames, a.bytes
}
