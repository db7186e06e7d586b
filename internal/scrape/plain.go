package scrape

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// A plain connection asks for pages over HTTP/1.1 and one connection, in the goroutine that scrapes.
// net/http's transport has two goroutines for a connection, and each answer goes through both:
// of a small page scraped three times a second that is most of what it costs. What is more than
// a GET without TLS (redirects, HTTP/2, names with an account) is left to net/http.
type plain struct {
	address string // HOST:PORT
	request []byte
	get     *http.Request // what is asked, for the reader of the answer

	conn   net.Conn
	reader *bufio.Reader
	left   int64 // bytes that may be read before it is too much
	used   bool  // the connection has brought an answer
}

// Bounds of what stands before a page.
const (
	maxHead    = 1 << 20 // bytes
	maxInterim = 8       // answers of 1xx
)

// newPlain is nil for an endpoint that net/http asks.
func newPlain(u string, header http.Header) *plain {
	at, err := url.Parse(u)
	if err != nil || at.Scheme != "http" || at.User != nil || at.Opaque != "" {
		return nil
	}
	host, port := at.Hostname(), at.Port()
	for i := range len(host) {
		if c := host[i]; !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '.' || c == ':') {
			return nil // a zone, or a name that has another form on the wire
		}
	}
	if host == "" || strings.HasSuffix(at.Host, ":") {
		return nil
	}
	if port == "" {
		port = "80"
	}
	get, err := http.NewRequest(http.MethodGet, u, nil)
	if err != nil {
		return nil
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "GET %s HTTP/1.1\r\nHost: %s\r\n", at.RequestURI(), at.Host)
	if header.Get("User-Agent") == "" {
		b.WriteString("User-Agent: Go-http-client/1.1\r\n") // as net/http
	}
	if header.WriteSubset(&b, map[string]bool{"Host": true, "Content-Length": true, "Transfer-Encoding": true, "Trailer": true}) != nil {
		return nil // writing to a buffer never fails
	}
	b.WriteString("\r\n")
	return &plain{address: net.JoinHostPort(host, port), request: b.Bytes(), get: get}
}

// errElse says that net/http is to ask.
var errElse = errors.New("not for a plain connection")

// ask sends the request and returns the answer, of which the head was read; the body is to be read until then too.
// Whoever calls it calls done with whether the body was read to its end.
func (p *plain) ask(ctx context.Context, until time.Time) (resp *http.Response, done func(whole bool), err error) {
	for {
		again := p.used
		if p.conn == nil {
			again = false
			if p.conn, err = (&net.Dialer{Deadline: until}).DialContext(ctx, "tcp", p.address); err != nil {
				p.conn = nil
				return nil, nil, err
			}
			p.used = false
			if p.reader == nil {
				p.reader = bufio.NewReaderSize(p, 64<<10)
			}
			p.reader.Reset(p)
		}
		conn := p.conn
		conn.SetDeadline(until) // fails only on a closed connection, of which the first write tells
		stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
		if resp, err = p.head(); err == nil {
			return resp, func(whole bool) {
				if !stop() || !whole || resp.Close || p.reader.Buffered() > 0 {
					p.close()
				}
				p.used = true
			}, nil
		}
		stop()
		none := p.left == maxHead // not a byte came
		p.close()
		if cause := context.Cause(ctx); cause != nil {
			return nil, nil, cause
		}
		// A server may close a connection that idles just as it is used; then a new one tells.
		if !again || !none {
			return nil, nil, err
		}
	}
}

// head sends the request and reads the head of the answer to it.
func (p *plain) head() (*http.Response, error) {
	p.left = maxHead
	if _, err := p.conn.Write(p.request); err != nil {
		return nil, err
	}
	for range maxInterim {
		resp, err := http.ReadResponse(p.reader, p.get)
		switch {
		case err != nil:
			return nil, err
		case resp.StatusCode == http.StatusSwitchingProtocols || resp.StatusCode/100 == 3 && resp.Header.Get("Location") != "":
			return nil, errElse
		case resp.StatusCode/100 != 1:
			p.left = math.MaxInt64
			return resp, nil
		}
	}
	return nil, fmt.Errorf("%d answers of 1xx and none behind them", maxInterim)
}

// Read implements io.Reader for the reader of answers.
func (p *plain) Read(b []byte) (int, error) {
	if p.left <= 0 {
		return 0, fmt.Errorf("the head of the answer has more than %d bytes", maxHead)
	}
	n, err := p.conn.Read(b[:min(int64(len(b)), p.left)])
	p.left -= int64(n)
	return n, err
}

func (p *plain) close() {
	if p != nil && p.conn != nil {
		p.conn.Close()
		p.conn = nil
	}
}
