package client

import (
	"bufio"
	"io"
	"net"
	"testing"

	"github.com/weirbench/weir/internal/record"
)

// TestWire: how two requests went over one connection, and nothing when nobody asked.
func TestWire(t *testing.T) {
	eachWay(t, "wire", func(t *testing.T, blocking bool) {
		sent, bodies := make(chan int64, 4), make(chan int, 4)
		answer := "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk(token("a")) + chunk("data: [DONE]\n\n") + chunk("")
		url := rawServer(t, func(_ int, c net.Conn, _ *bufio.Reader) {
			counted := &counting{r: c}
			r := bufio.NewReader(counted)
			for before := int64(0); ; before = counted.n {
				_, got, err := readRequest(r)
				if err != nil {
					return
				}
				bodies <- len(got)
				sent <- counted.n - before
				io.WriteString(c, answer)
			}
		})
		r := newRig(t, Config{URLs: []string{url}, Wire: true, blocking: blocking})
		a, b := r.do(t, request(1)), r.do(t, request(2))
		for i, q := range []*record.Request{a, b} {
			w, out, body := q.Wire, <-sent, <-bodies
			if q.Failure != nil || w == nil {
				t.Fatalf("request %d: %+v, %+v", i, q.Failure, w)
			}
			if w.Reused != (i == 1) || (w.ConnectNs > 0) != (i == 0) || w.DNSNs != 0 || w.BytesIn != int64(len(answer)) || w.BytesOut != out || w.BodyIn != int64(len(token("a")+"data: [DONE]\n\n")) || w.BodyOut != int64(body) || w.Writes != 1 || w.Reads < 1 {
				t.Errorf("request %d: %+v, %d bytes out, %d in", i, w, out, len(answer))
			}
			if w.Body < q.Times.Headers || w.Body > q.Times.End || w.Written != record.Never && w.Written < q.Times.Sent {
				t.Errorf("request %d: %+v within %+v", i, w, q.Times)
			}
		}
		if q := newRig(t, Config{URLs: []string{url}, blocking: blocking}).do(t, request(1)); q.Wire != nil {
			t.Errorf("unasked: %+v", q.Wire)
		}
	})
}

type counting struct {
	r io.Reader
	n int64
}

func (c *counting) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}
