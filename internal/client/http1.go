package client

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode"
)

// head is what a response head said that matters here.
type head struct {
	status    int
	length    int64 // Content-Length, -1 when there was none
	chunked   bool
	close     bool   // the connection will not be used again
	media     string // Content-Type without parameters, in lower case
	encoding  string // Content-Encoding in lower case, empty for identity
	keepAlive int64  // seconds that the server says it keeps an idle connection, 0 when it does not say
}

// A bodySink takes the decoded parts of one response in order.
type bodySink interface {
	// headers is called once, for the final response.
	headers(*head) error
	// body takes the next bytes of the body; they are only valid during the call.
	body([]byte) error
}

// maxHead is the longest response head that is read, bytes.
const maxHead = 256 << 10

type http1State uint8

const (
	inHead http1State = iota
	inSized
	inUntilClose
	inChunkSize
	inChunkData
	inChunkEnd
	inTrailer
	http1Done
)

// http1 decodes one HTTP/1.1 response from the bytes of a connection, in place: body bytes
// go to the sink as they lie in the read (RFC 9112, 2022-06).
type http1 struct {
	state http1State
	held  []byte // an unfinished head or line of earlier reads
	left  int64  // bytes left of the body or chunk
	head  head
}

func (h *http1) reset() { *h = http1{held: h.held[:0]} }

// wireError is a fault of the server's HTTP.
type wireError string

func (e wireError) Error() string { return string(e) }

func wireErrorf(format string, a ...any) error { return wireError(fmt.Sprintf(format, a...)) }

var errLongHead = wireErrorf("a response head is longer than %d bytes", maxHead)

// feed takes the next bytes of the connection and returns how many belong to this response;
// fewer than all only when the response is done.
func (h *http1) feed(p []byte, sink bodySink) (int, error) {
	all := len(p)
	for h.state != http1Done {
		if h.state == inSized || h.state == inChunkData || h.state == inUntilClose {
			n := len(p)
			if h.state != inUntilClose {
				n = int(min(int64(n), h.left))
			}
			if n > 0 {
				h.left -= int64(n)
				if err := sink.body(p[:n]); err != nil {
					return all - len(p), err
				}
				p = p[n:]
			}
			if h.state == inUntilClose || h.left > 0 {
				break
			}
			if h.state == inSized {
				h.state = http1Done
			} else {
				h.state = inChunkEnd
			}
			continue
		}
		if len(p) == 0 {
			break
		}
		rest, err := h.line(p, sink)
		if err != nil {
			return all - len(p), err
		}
		p = rest
	}
	return all - len(p), nil
}

// line handles what ends with a line break: the head, chunk sizes, trailers.
func (h *http1) line(p []byte, sink bodySink) ([]byte, error) {
	if h.state == inHead {
		return h.heads(p, sink)
	}
	nl := bytes.IndexByte(p, '\n')
	if nl < 0 {
		if len(h.held)+len(p) > maxHead {
			return nil, errLongHead
		}
		h.held = append(h.held, p...)
		return nil, nil
	}
	line, rest := p[:nl], p[nl+1:]
	if len(h.held) > 0 {
		h.held = append(h.held, line...)
		line = h.held
		h.held = h.held[:0]
	}
	line = bytes.TrimSuffix(line, []byte("\r"))
	switch h.state {
	case inChunkSize:
		n, err := chunkSize(line)
		if err != nil {
			return nil, err
		}
		h.left, h.state = n, inChunkData
		if n == 0 {
			h.state = inTrailer
		}
	case inChunkEnd:
		if len(line) > 0 {
			return nil, wireErrorf("a chunk is followed by %q, not by a line break", clip(string(line), 40))
		}
		h.state = inChunkSize
	case inTrailer:
		if len(line) == 0 {
			h.state = http1Done
		}
	}
	return rest, nil
}

func chunkSize(line []byte) (int64, error) {
	var n int64
	digits := 0
	for _, c := range line {
		v, ok := hexDigit(c)
		if !ok {
			if c == ';' || c == ' ' || c == '\t' {
				break
			}
			return 0, wireErrorf("%q is no chunk size", clip(string(line), 40))
		}
		if digits++; digits > 15 {
			return 0, wireErrorf("chunk size %q is too large", clip(string(line), 40))
		}
		n = n<<4 | v
	}
	if digits == 0 {
		return 0, wireErrorf("%q is no chunk size", clip(string(line), 40))
	}
	return n, nil
}

func hexDigit(c byte) (int64, bool) {
	switch {
	case c >= '0' && c <= '9':
		return int64(c - '0'), true
	case c >= 'a' && c <= 'f':
		return int64(c-'a') + 10, true
	case c >= 'A' && c <= 'F':
		return int64(c-'A') + 10, true
	}
	return 0, false
}

// heads collects a head and parses it. Heads of interim responses (1xx) are passed over.
func (h *http1) heads(p []byte, sink bodySink) ([]byte, error) {
	before := len(h.held)
	h.held = append(h.held, p[:min(len(p), maxHead+4)]...)
	end, size := headEnd(h.held, max(before-3, 0))
	if end < 0 {
		if len(h.held) > maxHead {
			return nil, errLongHead
		}
		if len(h.held) >= 5 && string(h.held[:5]) != "HTTP/" {
			return nil, wireErrorf("the answer begins with %q, which is no HTTP", clip(string(h.held), 40))
		}
		return nil, nil
	}
	rest := p[end+size-before:]
	err := h.head.parse(h.held[:end])
	h.held = h.held[:0]
	if err != nil {
		return nil, err
	}
	if h.head.status < 200 {
		if h.head.status == 101 {
			return nil, wireErrorf("status 101: the server changed the protocol unasked")
		}
		return rest, nil
	}
	switch {
	case h.head.status == 204 || h.head.status == 304:
		h.state = http1Done
	case h.head.chunked:
		h.state = inChunkSize
	case h.head.length == 0:
		h.state = http1Done
	case h.head.length > 0:
		h.left, h.state = h.head.length, inSized
	default:
		h.state, h.head.close = inUntilClose, true
	}
	return rest, sink.headers(&h.head)
}

// headEnd finds the empty line, looking from an offset on: its place and its length.
func headEnd(b []byte, from int) (end, size int) {
	for i := from; i < len(b); i++ {
		nl := bytes.IndexByte(b[i:], '\n')
		if nl < 0 {
			return -1, 0
		}
		i += nl
		if i+1 < len(b) && b[i+1] == '\n' {
			return i + 1, 1
		}
		if i+2 < len(b) && b[i+1] == '\r' && b[i+2] == '\n' {
			return i + 1, 2
		}
	}
	return -1, 0
}

func (d *head) parse(b []byte) error {
	*d = head{length: -1}
	first, b := cutLine(b)
	proto, rest, _ := strings.Cut(string(first), " ")
	code, _, _ := strings.Cut(strings.TrimLeft(rest, " "), " ")
	status, err := strconv.Atoi(code)
	if !strings.HasPrefix(proto, "HTTP/1.") || len(proto) != 8 || err != nil || len(code) != 3 || status < 100 {
		return wireErrorf("%q is no HTTP/1.1 status line", clip(string(first), 40))
	}
	d.status = status
	d.close = proto == "HTTP/1.0"
	for len(b) > 0 {
		var line []byte
		line, b = cutLine(b)
		colon := bytes.IndexByte(line, ':')
		if colon <= 0 {
			return wireErrorf("%q is no header field", clip(string(line), 40))
		}
		if err := d.field(line[:colon], string(bytes.TrimSpace(line[colon+1:]))); err != nil {
			return err
		}
	}
	if d.chunked {
		d.length = -1
	}
	return nil
}

func (d *head) field(name []byte, value string) error {
	is := func(s string) bool { return len(name) == len(s) && strings.EqualFold(string(name), s) }
	switch {
	case is("Content-Length"):
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil || n < 0 || d.length >= 0 && d.length != n {
			return wireErrorf("Content-Length %q", clip(value, 40))
		}
		d.length = n
	case is("Transfer-Encoding"):
		switch strings.ToLower(value) {
		case "chunked":
			d.chunked = true
		case "identity":
		default:
			return wireErrorf("Transfer-Encoding %q is not supported", clip(value, 40))
		}
	case is("Connection"):
		for v := range strings.SplitSeq(value, ",") {
			switch strings.ToLower(strings.TrimSpace(v)) {
			case "close":
				d.close = true
			case "keep-alive":
				d.close = false
			}
		}
	case is("Keep-Alive"):
		for v := range strings.SplitSeq(value, ",") {
			if s, ok := strings.CutPrefix(strings.ToLower(strings.TrimSpace(v)), "timeout="); ok {
				d.keepAlive, _ = strconv.ParseInt(s, 10, 32)
			}
		}
	case is("Content-Type"):
		media, _, _ := strings.Cut(value, ";")
		d.media = strings.ToLower(strings.TrimSpace(media))
	case is("Content-Encoding"):
		if e := strings.ToLower(value); e != "identity" {
			d.encoding = e
		}
	}
	return nil
}

func cutLine(b []byte) (line, rest []byte) {
	if i := bytes.IndexByte(b, '\n'); i >= 0 {
		line, rest = b[:i], b[i+1:]
	} else {
		line = b
	}
	return bytes.TrimSuffix(line, []byte("\r")), rest
}

// errCut is a connection that ended in the middle of a response.
var errCut = errors.New("the connection ended in the middle of the answer")

// eof tells the decoder that the connection ended. nil means that the response was whole.
func (h *http1) eof() error {
	if h.state == inUntilClose || h.state == http1Done {
		h.state = http1Done
		return nil
	}
	return errCut
}

// clip shortens a text for a message.
func clip(s string, n int) string {
	s = strings.Map(func(r rune) rune { // it is printed: a server must not steer the terminal
		if unicode.IsControl(r) && r != '\n' && r != '\t' && r != '\r' {
			return '?'
		}
		return r
	}, s)
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "..."
}
