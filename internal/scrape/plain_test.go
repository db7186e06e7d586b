package scrape

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirbench/weir/internal/record"
)

// serveRaw answers each request on each connection with what answer gives it, the number of the connection and of
// the request on it, both from 0; an empty text closes the connection.
func serveRaw(t *testing.T, answer func(conn, n int) string) (url string, conns *atomic.Int64) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	conns = new(atomic.Int64)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			id := int(conns.Add(1)) - 1
			go func() {
				defer c.Close()
				r := bufio.NewReader(c)
				for n := 0; ; n++ {
					if _, err := http.ReadRequest(r); err != nil {
						return
					}
					text := answer(id, n)
					if _, err := io.WriteString(c, text); err != nil || text == "" {
						return
					}
				}
			}()
		}
	}()
	return "http://" + l.Addr().String() + "/metrics", conns
}

// scraper asks one URL when it is told to, and hands over what it wrote.
func scraper(t *testing.T, o Options) (ask func() record.Sample, s *Scraper) {
	t.Helper()
	var last record.Sample
	begin := time.Now()
	o.Now = func() int64 { return int64(time.Since(begin)) }
	o.Write = func(s *record.Sample) error {
		last = *s
		return nil
	}
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		s.Stop(ctx)
	})
	return func() record.Sample {
		s.once(t.Context(), s.endpoints[0], "")
		return last
	}, s
}

// TestAnswers: every form of an answer that HTTP/1.1 has is read, on one connection where the server
// keeps it, on a new one where it does not.
func TestAnswers(t *testing.T) {
	const page = "a 1\nb 2\n"
	sized := fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(page), page)
	for name, c := range map[string]struct {
		answer func(conn, n int) string
		conns  int64 // after four scrapes
		fails  string
	}{
		"with its length": {answer: func(int, int) string { return sized }, conns: 1},
		"in chunks": {answer: func(int, int) string {
			return "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\na 1\r\n5\r\n\nb 2\n\r\n0\r\nX: 1\r\n\r\n"
		}, conns: 1},
		"that closes":                {answer: func(int, int) string { return strings.Replace(sized, "\r\n", "\r\nConnection: close\r\n", 1) }, conns: 4},
		"of HTTP/1.0 without an end": {answer: func(_, n int) string { return map[bool]string{true: "HTTP/1.0 200 OK\r\n\r\n" + page}[n == 0] }, conns: 1, fails: "no whole answer"},
		"after others of 1xx": {answer: func(int, int) string {
			return "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n" + sized
		}, conns: 1},
		"on a connection that idled": {answer: func(_, n int) string { return map[bool]string{true: sized}[n == 0] }, conns: 4},
		"with more behind it":        {answer: func(int, int) string { return sized + "HTTP/1.1 200 OK\r\n" }, conns: 4},
		"of 1xx alone":               {answer: func(int, int) string { return strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", 20) }, conns: 4, fails: "1xx"},
		"with a head that never ends": {answer: func(int, int) string {
			return "HTTP/1.1 200 OK\r\n" + strings.Repeat("A: "+strings.Repeat("b", 1000)+"\r\n", 2000)
		}, conns: 4, fails: "more than 1048576 bytes"},
		"that is none":      {answer: func(int, int) string { return "HELLO\r\n\r\n" }, conns: 4, fails: "malformed HTTP"},
		"of another status": {answer: func(int, int) string { return "HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n" }, conns: 4, fails: "503"},
		"nothing":           {answer: func(int, int) string { return "" }, conns: 4, fails: "EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, conns := serveRaw(t, c.answer)
			o := Options{URLs: []string{url}, Timeout: time.Minute}
			if strings.HasPrefix(c.fails, "no whole") {
				o.Timeout = 50 * time.Millisecond
			}
			ask, s := scraper(t, o)
			s.endpoints[0].tried = true // the other path of metrics
			for i := range 4 {
				got := ask()
				if c.fails != "" {
					if !strings.Contains(got.Error, c.fails) {
						t.Fatalf("scrape %d: %q, want %q", i, got.Error, c.fails)
					}
					if c.conns == 1 {
						return
					}
				} else if got.Error != "" || i == 0 && (got.Values["a"] != 1 || got.Values["b"] != 2) {
					t.Fatalf("scrape %d: %+v", i, got)
				}
			}
			if n := conns.Load(); n != c.conns {
				t.Errorf("%d connections for four scrapes, want %d", n, c.conns)
			}
		})
	}
}

// TestLeftToOthers: a redirect is followed, and the headers that are asked for go out both ways.
func TestLeftToOthers(t *testing.T) {
	h := http.NewServeMux()
	h.HandleFunc("/from/metrics", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/metrics", http.StatusFound) })
	h.HandleFunc("/metrics", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "a{auth=%q,agent=%q,host=%q,accept=%q} 1\n", r.Header.Get("Authorization"), r.UserAgent(), r.Host, r.Header.Get("Accept"))
	})
	srv := httptest.NewServer(h)
	defer srv.Close()
	header := http.Header{"Authorization": {"Bearer x"}, "Host": {"elsewhere"}}
	var first map[string]float64
	for _, path := range []string{"/metrics", "/from/metrics"} {
		ask, s := scraper(t, Options{URLs: []string{srv.URL + path}, Header: header})
		got := ask()
		if len(got.Values) != 1 || got.Error != "" {
			t.Fatalf("%s: %+v", path, got)
		}
		if first == nil {
			first = got.Values
		}
		if !maps.Equal(first, got.Values) || !strings.Contains(fmt.Sprint(got.Values), `auth="Bearer x",agent="Go-http-client/1.1",host="127.0.0.1:`) {
			t.Errorf("net/http asks as %v, the plain connection as %v", got.Values, first)
		}
		if plain := s.endpoints[0].plain != nil; plain != (path == "/metrics") {
			t.Errorf("%s: asked over a plain connection: %v", path, plain)
		}
	}
	for u, want := range map[string]bool{
		"http://h/metrics": true, "http://h:1/metrics?a=b": true, "http://[::1]:1/metrics": true,
		"https://h/metrics": false, "http://u:p@h/metrics": false, "http://h:/metrics": false, "http://[fe80::1%25eth0]/metrics": false, "http://hé/metrics": false,
	} {
		if got := newPlain(u, nil) != nil; got != want {
			t.Errorf("%s is asked over a plain connection: %v, want %v", u, got, want)
		}
	}
}

// TestStopsAsking: an endpoint that does not answer is left when the scraper is told to stop.
func TestStopsAsking(t *testing.T) {
	arrived := make(chan struct{})
	block := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		arrived <- struct{}{}
		<-block
	}))
	defer srv.Close()
	defer close(block)
	p := newPlain(srv.URL+"/metrics", nil)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-arrived
		cancel()
	}()
	if _, _, err := p.ask(ctx, time.Now().Add(time.Minute)); !errors.Is(err, context.Canceled) {
		t.Fatalf("%v, want %v", err, context.Canceled)
	}
	if p.conn != nil {
		t.Error("the connection is kept")
	}
}
