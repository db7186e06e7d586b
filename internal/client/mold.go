package client

import "bytes"

// A mold is a frame that said one text and nothing else, without the text. Most frames of a stream
// are the one before with another text: what stands around it need not be read again (BenchmarkFrame).
type mold struct {
	buf      []byte // what stood before and after the text
	before   int    // bytes of it before
	thinking bool   // the text was reasoning
	set      bool
}

// maxMold bounds what is kept of a frame, bytes.
const maxMold = 2 << 10

// take keeps what a frame was read from, if it said one text and nothing else.
func (m *mold) take(e Endpoint, f *frame, data []byte) {
	m.set = false
	if e != Chat && e != Completions && e != CompletionsIDs || f.said != 1 || f.reasoning == f.visible ||
		f.called || f.finished || f.last || f.hasUsage || f.failed || len(data)-len(f.only) > maxMold {
		return
	}
	before := quotedOnce(data, f.only)
	if before < 0 {
		return
	}
	m.buf = append(append(m.buf[:0], data[:before]...), data[before+len(f.only):]...)
	m.before, m.thinking, m.set = before, f.reasoning, true
}

// fits reads data into a frame that was reset, if it is the frame of the mold with another text, and
// tells whether it was. A text that needs care, one with an escape, does not fit.
func (m *mold) fits(f *frame, data []byte) bool {
	n := len(data) - len(m.buf)
	if !m.set || n <= 0 || !bytes.Equal(data[:m.before], m.buf[:m.before]) || !bytes.Equal(data[m.before+n:], m.buf[m.before:]) {
		return false
	}
	text := data[m.before : m.before+n]
	for _, c := range text {
		if !plain[c] {
			return false
		}
	}
	if m.thinking {
		f.think(text)
	} else {
		f.say(text)
	}
	return true
}

// quotedOnce is where text stands between quotes in data, -1 if that is not at one place alone.
func quotedOnce(data, text []byte) int {
	at := -1
	for i := 0; ; i++ {
		j := bytes.Index(data[i:], text)
		if j < 0 {
			return at
		}
		i += j
		if i > 0 && data[i-1] == '"' && i+len(text) < len(data) && data[i+len(text)] == '"' {
			if at >= 0 {
				return -1
			}
			at = i
		}
	}
}
