package client

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/h2c"

	"github.com/weirbench/weir/internal/material"
	"github.com/weirbench/weir/internal/record"
	"github.com/weirbench/weir/internal/replay"
)

// stopped is a clock that stands still.
type stopped int64

func (s stopped) Now() int64 { return int64(s) }

// decode gives the bytes of a connection to an exchange in pieces and returns the record.
func decode(data []byte, sizes []int) *record.Request {
	cfg := Config{Endpoint: Chat, Chunks: true}
	cfg.defaults()
	t := &Target{cfg: cfg, clock: stopped(5), overflow: overflowTexts, hosts: []*host{{base: "http://test"}},
		limits: answerLimits{frame: 1 << 20, whole: 1 << 20}}
	x := newExchange(t, request(1))
	x.begin()
	x.rec.Times.Sent = 1
	for i := 0; len(data) > 0 && !x.over; i++ {
		n := min(max(sizes[i%len(sizes)], 1), len(data))
		x.take(bytes.Clone(data[:n]), arrival{at: 5, loose: record.Unknown})
		data = data[n:]
	}
	if !x.over {
		x.lost(io.EOF, 5, false, func() bool { return true })
	}
	return x.rec
}

// FuzzResponse feeds any bytes as an answer: there is one outcome, and how the bytes were
// split changes nothing of it.
func FuzzResponse(f *testing.F) {
	for _, s := range []string{
		sseHead + chunk(roleOnly) + chunk(token("a")+token("b")) + chunk(usageEvent+doneEvent) + "0\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 44\r\n\r\n" + `{"choices":[{"message":{"content":"a"}}]}   `,
		"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 500 X\r\n\r\nmaximum context",
		"HTTP/1.0 200 OK\nContent-Encoding: gzip\n\n\x1f\x8b\x08\x00",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n5;x=y\r\ndata:\r\n1\r\n\n\r\n0\r\nA: b\r\n\r\n",
	} {
		f.Add([]byte(s), uint64(1))
	}
	f.Fuzz(func(t *testing.T, data []byte, seed uint64) {
		whole := decode(data, []int{len(data)})
		checkTimes(t, whole)
		rng := rand.New(rand.NewPCG(seed, 1))
		sizes := make([]int, 6)
		for i := range sizes {
			sizes[i] = 1 + rng.IntN(40)
		}
		pieces := decode(data, sizes)
		for _, r := range []*record.Request{whole, pieces} {
			if r.Failure != nil && r.Failure.Class == record.FailMalformed {
				r.Failure = &record.Failure{Class: r.Failure.Class} // the text says how far it came
				r.Times = record.Times{}
			}
		}
		a, _ := json.Marshal(whole)
		b, _ := json.Marshal(pieces)
		if !bytes.Equal(a, b) {
			t.Fatalf("in one read:\n%s\nin pieces of %v:\n%s", a, sizes, b)
		}
	})
}

func gzipped(s string) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	for _, part := range strings.SplitAfter(s, "\n\n") {
		io.WriteString(w, part)
		w.Flush()
	}
	w.Close()
	return b.Bytes()
}

// TestGzip decodes a compressed stream as it comes: the first token is known before the
// rest is there.
func TestGzip(t *testing.T) {
	stream := gzipped(token("a") + token("b") + usageEvent + doneEvent)
	head := "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Encoding: gzip\r\n"
	for name, c := range map[string]struct {
		body  string
		class record.Class
	}{
		"whole":         {head + fmt.Sprintf("Content-Length: %d\r\n\r\n", len(stream)) + string(stream), ""},
		"chunked":       {head + "Transfer-Encoding: chunked\r\n\r\n" + chunk(string(stream[:30])) + chunk(string(stream[30:])) + "0\r\n\r\n", ""},
		"cut":           {head + "\r\n" + string(stream[:len(stream)/3]), record.FailResetAfter},
		"trailer wrong": {head + "\r\n" + string(stream[:len(stream)-8]) + "xxxxxxxx", record.FailMalformed},
	} {
		for _, size := range []int{1, 7, 1 << 20} {
			r := decode([]byte(c.body), []int{size})
			switch {
			case c.class == "" && (r.Failure != nil || r.Frames != 2 || r.OutputTokens != 3):
				t.Errorf("%s by %d: %+v, %d frames", name, size, r.Failure, r.Frames)
			case c.class != "" && (r.Failure == nil || r.Failure.Class != c.class):
				t.Errorf("%s by %d: %+v, want %s", name, size, r.Failure, c.class)
			}
		}
	}
	cfg := Config{}
	cfg.defaults()
	x := newExchange(&Target{cfg: cfg, clock: stopped(5), hosts: []*host{{}}, limits: answerLimits{1 << 20, 1 << 20}}, request(1))
	x.begin()
	x.take([]byte(head+"\r\n"), arrival{at: 1})
	for i := range stream {
		x.take(stream[i:i+1], arrival{at: int64(i + 2)})
	}
	x.lost(io.EOF, int64(len(stream)+2), false, func() bool { return true })
	if tm := x.rec.Times; x.rec.Failure != nil || tm.FirstToken > tm.LastToken-10 {
		t.Errorf("tokens of a compressed stream came together: %+v %+v", tm, x.rec.Failure)
	}
}

func TestHugeFrame(t *testing.T) {
	const size = 10 << 20
	for way, blocking := range ways {
		url := rawServer(t, func(_ int, c net.Conn, r *bufio.Reader) {
			for {
				if _, _, err := readRequest(r); err != nil {
					return
				}
				body := token(strings.Repeat("x", size)) + token("b") + doneEvent
				fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
			}
		})
		var said int
		r := newRig(t, Config{URLs: []string{url}, blocking: blocking, Count: func(content, _ []byte) int64 { said = len(content); return 7 }, CountEvery: 1,
			Timeouts: patient})
		if rec := r.do(t, request(1)); rec.Failure != nil || rec.Frames != 2 || rec.LocalOutput == nil || *rec.LocalOutput != 7 || rec.TextBytes != size+1 {
			t.Errorf("%s: %+v", way, rec)
		}
		if said != size+1 {
			t.Errorf("%s: %d bytes of text", way, said)
		}

	}
}

// TestLocalCount: what is counted is all the text of every CountEvery-th answer, but not of one
// that called a tool or came as ids.
func TestLocalCount(t *testing.T) {
	say := func(deltas ...string) string {
		out := sseHead
		for _, d := range deltas {
			out += chunk(`data: {"choices":[{"delta":` + d + `}]}` + "\n\n")
		}
		return out + chunk(doneEvent) + "0\r\n\r\n"
	}
	answers := map[string]int64{
		say(`{"content":"a\u00e9"}`, `{"content":"b\n"}`):                                    5,
		say(`{"reasoning_content":"hm"}`, `{"content":"b"}`):                                 203,
		say(`{"content":"a"}`, `{"tool_calls":[{"function":{"name":"f","arguments":"1"}}]}`): -1,
	}
	for text, want := range answers {
		url := rawServer(t, func(_ int, c net.Conn, r *bufio.Reader) {
			for {
				if _, _, err := readRequest(r); err != nil {
					return
				}
				io.WriteString(c, text)
			}
		})
		r := newRig(t, Config{URLs: []string{url}, CountEvery: 2, Count: func(content, reasoning []byte) int64 {
			return int64(len(content)) + 101*int64(len(reasoning))
		}})
		for seq := range uint64(4) {
			rec := r.do(t, request(seq+1))
			if want >= 0 && rec.Seq%2 == 0 {
				if rec.LocalOutput == nil || *rec.LocalOutput != want {
					t.Errorf("%q: %+v", text, rec)
				}
			} else if rec.LocalOutput != nil {
				t.Errorf("request %d was counted: %q", rec.Seq, text)
			}
		}
	}
}

// streams is a handler that behaves as the path says.
func streams(t testing.TB) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		io.Copy(io.Discard, q.Body)
		flush := w.(http.Flusher).Flush
		say := func(s string) { io.WriteString(w, s); flush() }
		w.Header().Set("Content-Type", "text/event-stream")
		switch q.URL.Path {
		case "/ok":
			say(roleOnly)
			time.Sleep(20 * time.Millisecond)
			say(token("a"))
			time.Sleep(20 * time.Millisecond)
			say(token("b") + usageEvent + doneEvent)
		case "/500":
			w.WriteHeader(500)
			say("boom")
		case "/silent":
			<-q.Context().Done()
		case "/stall":
			say(token("a"))
			<-q.Context().Done()
		case "/cut":
			say(token("a"))
			panic(http.ErrAbortHandler)
		}
	})
}

// TestProtocols sends over TLS, HTTP/2 and HTTP/2 without TLS.
func TestProtocols(t *testing.T) {
	material.RealTime(t)
	secure := httptest.NewUnstartedServer(streams(t))
	secure.EnableHTTP2 = true
	secure.Config.ErrorLog = nil
	secure.StartTLS()
	t.Cleanup(secure.Close)
	clear := httptest.NewServer(h2c.NewHandler(streams(t), &http2.Server{}))
	t.Cleanup(clear.Close)
	roots := x509.NewCertPool()
	roots.AddCert(secure.Certificate())
	for _, p := range []struct {
		protocol Protocol
		url      string
	}{{HTTP1, secure.URL}, {HTTP2, secure.URL}, {H2C, clear.URL}, {HTTP1, clear.URL}} {
		for path, want := range map[string]record.Class{"/ok": "", "/500": record.FailStatus, "/silent": record.FailTimeoutHeaders,
			"/stall": record.FailTimeoutStream, "/cut": record.FailResetAfter} {
			t.Run(fmt.Sprintf("%s-%s%s", p.protocol, p.url[:5], strings.ReplaceAll(path, "/", "-")), func(t *testing.T) {
				t.Parallel()
				r := newRig(t, Config{URLs: []string{p.url}, Path: path, Protocol: p.protocol, TLS: &tls.Config{RootCAs: roots}, Timeouts: quickTo(want)})
				apart := want != "" // a reader that was stopped sees both tokens at one instant, but not always
				for seq := uint64(0); seq < 3 || !apart && seq < 30; seq++ {
					rec := r.do(t, request(seq+1))
					got := record.Class("")
					if rec.Failure != nil {
						got = rec.Failure.Class
					}
					if got != want {
						t.Errorf("%s %s%s: %+v, want %q", p.protocol, p.url, path, rec.Failure, want)
					}
					if want == "" && rec.OutputTokens != 3 {
						t.Errorf("%s %s: %+v", p.protocol, path, rec)
					}
					apart = apart || rec.Times.LastToken-rec.Times.FirstToken >= int64(10*time.Millisecond)
				}
				if !apart {
					t.Errorf("%s %s: the two tokens never came apart", p.protocol, path)
				}
			})
		}
	}
}

func TestCancelH2C(t *testing.T) {
	clear := httptest.NewServer(h2c.NewHandler(streams(t), &http2.Server{}))
	t.Cleanup(clear.Close)
	r := newRig(t, Config{URLs: []string{clear.URL}, Path: "/silent", Protocol: H2C, Timeouts: Timeouts{Headers: time.Minute}})
	for seq := range uint64(20) {
		r.Send(request(seq + 1))
	}
	time.Sleep(50 * time.Millisecond)
	r.Cancel()
	for range 20 {
		if rec := r.wait(t); rec.Failure == nil || rec.Failure.Class != record.FailCancelled {
			t.Errorf("cancelled over h2c: %+v", rec.Failure)
		}
	}
}

// TestSpread sends two trees of two conversations to three servers.
func TestSpread(t *testing.T) {
	var urls []string
	for range 3 {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) { http.Error(w, "", 500) }))
		defer s.Close()
		urls = append(urls, s.URL)
	}
	for spread, same := range map[Spread]func(a, b *replay.Request) bool{
		SpreadTree:         func(a, b *replay.Request) bool { return a.Lane == b.Lane },
		SpreadConversation: func(a, b *replay.Request) bool { return a.Lane == b.Lane && a.Stream == b.Stream },
	} {
		r := newRig(t, Config{URLs: urls, Spread: spread})
		var sent []replay.Request
		at := map[uint64]string{}
		for seq := range uint64(24) {
			q := request(seq + 1)
			q.Lane, q.Stream = int(seq%2), int(seq/2%2)
			sent = append(sent, q)
			at[q.Seq] = r.do(t, q).URL
		}
		used := map[string]bool{}
		for i := range sent {
			used[at[sent[i].Seq]] = true
			for j := range sent {
				if same(&sent[i], &sent[j]) && at[sent[i].Seq] != at[sent[j].Seq] {
					t.Errorf("%s: requests %d and %d went to two servers", spread, i, j)
				}
			}
		}
		if len(used) < 2 {
			t.Errorf("%s: one server got all", spread)
		}
	}
}

func TestFits(t *testing.T) {
	one, two := []string{"http://a"}, []string{"http://a", "http://b"}
	big := machine{files: 1 << 20, ports: 28000, memory: 1 << 40}
	few := machine{files: 20000, ports: 28000, memory: 1 << 40}
	small := machine{files: 1 << 20, ports: 28000, memory: 64 << 20}
	for _, c := range []struct {
		cfg  Config
		plan Plan
		m    machine
		want string // empty where it fits
	}{
		{Config{URLs: one}, Plan{Units: 1000}, few, ""},
		{Config{URLs: one}, Plan{}, machine{}, ""},
		{Config{URLs: one}, Plan{Units: 19936}, few, ""},
		{Config{URLs: one}, Plan{Units: 19937}, few, "19937 requests in flight need 20001 open files and there are 20000; raise the hard limit with ulimit -Hn 20001 or plan 19936 requests in flight"},
		{Config{URLs: one}, Plan{Units: 1600, Each: 13, Unit: "lanes", Of: "trace t at once"}, few,
			"20800 requests in flight (1600 lanes x 13 of trace t at once) need 20864 open files and there are 20000; raise the hard limit with ulimit -Hn 20864 or plan 1533 lanes"},
		{Config{URLs: one}, Plan{Units: 1533, Each: 13, Unit: "lanes"}, few, ""},
		{Config{URLs: one}, Plan{Units: 50000}, big, "need 50000 local ports towards one base URL and there are 28000; widen net.ipv4.ip_local_port_range, give 2 base URLs or plan 28000 requests in flight"},
		{Config{URLs: two}, Plan{Units: 50000}, big, ""},
		{Config{URLs: one, Protocol: H2C}, Plan{Units: 50000}, few, ""},
		{Config{URLs: one, Protocol: H2C}, Plan{Units: 2_000_000}, few, "need 20064 open files"},
		{Config{URLs: one}, Plan{Units: 1024}, small, ""},
		{Config{URLs: one}, Plan{Units: 1025}, small, "need 67174400 bytes of memory, 65536 each, and there are 67108864; free memory or plan 1024 requests in flight"},
		{Config{URLs: []string{"https://a"}}, Plan{Units: 1024}, small, "need 134217728 bytes of memory, 131072 each,"},
	} {
		err := c.cfg.fits(&c.plan, c.m)
		many := (*TooMany)(nil)
		if (err == nil) != (c.want == "") || err != nil && (!errors.As(err, &many) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%+v on %+v: %v, want %q", c.plan, c.m, err, c.want)
		}
	}
	if m, err := thisMachine(); err != nil || m.files == 0 || m.ports == 0 || m.memory == 0 {
		t.Errorf("this machine: %+v, %v", m, err)
	}
	if _, err := New(Config{URLs: []string{"http://127.0.0.1:1"}, Bodies: onePrompt, InFlight: 1 << 30}); err == nil {
		t.Error("a run of a billion requests in flight was not refused")
	}
}

func TestRefusedConfigs(t *testing.T) {
	for name, c := range map[string]Config{
		"no URL":          {},
		"no host":         {URLs: []string{"localhost:8000"}},
		"query":           {URLs: []string{"http://h/?a=b"}},
		"user":            {URLs: []string{"http://u:p@h/"}},
		"reserved header": {URLs: []string{"http://h"}, Header: http.Header{"Content-Length": {"1"}}},
		"bad header":      {URLs: []string{"http://h"}, Header: http.Header{"X-A": {"a\r\nb"}}},
		"bad name":        {URLs: []string{"http://h"}, Header: http.Header{"X A": {"a"}}},
		"huge header":     {URLs: []string{"http://h"}, Header: http.Header{"X-A": {strings.Repeat("a", 20<<10)}}},
		"bad key":         {URLs: []string{"http://h"}, APIKey: "a\nb"},
		"bad session":     {URLs: []string{"http://h"}, SessionHeaders: []string{"Host"}},
		"h2 without TLS":  {URLs: []string{"http://h"}, Protocol: HTTP2},
		"h2c with TLS":    {URLs: []string{"https://h"}, Protocol: H2C},
		"protocol":        {URLs: []string{"http://h"}, Protocol: "http/3"},
		"spread":          {URLs: []string{"http://h"}, Spread: "x"},
		"timeout":         {URLs: []string{"http://h"}, Timeouts: Timeouts{Stream: -1}},
	} {
		c.Bodies = onePrompt
		if _, err := New(c); err == nil {
			t.Errorf("%s was not refused", name)
		}
	}
	for _, u := range []string{"http://h/v1?key=hush", "http://me:hush@h/v1", "http://h/v1#hush"} { // the error goes into the bundle
		if _, err := New(Config{URLs: []string{u}, Bodies: onePrompt}); err == nil || strings.Contains(err.Error(), "hush") || !strings.Contains(err.Error(), "http://h/v1") {
			t.Errorf("%s: %v", u, err)
		}
	}
}

// TestProgress wants first tokens, the last token and the dump to tell the truth.
func TestProgress(t *testing.T) {
	for way, blocking := range ways {
		t.Run(way, func(t *testing.T) { testProgress(t, blocking) })
	}
}

func testProgress(t *testing.T, blocking bool) {
	url := rawServer(t, func(n int, c net.Conn, r *bufio.Reader) {
		readRequest(r)
		if n == 0 {
			io.WriteString(c, sseHead+chunk(token("a"))+chunk(token("b")))
		}
		r.ReadByte()
	})
	target, err := New(Config{URLs: []string{url}, Bodies: onePrompt, blocking: blocking})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan *record.Request, 4)
	target.Start(func(r *record.Request) { done <- r })
	var mu sync.Mutex
	firsts := map[uint64]int{}
	target.OnFirstToken(func(seq uint64) { mu.Lock(); firsts[seq]++; mu.Unlock() })
	if target.LastToken() != record.Never {
		t.Error("a token before the first")
	}
	until := func(what string, ok func() bool) {
		for begin := time.Now(); !ok(); time.Sleep(time.Millisecond) {
			if time.Since(begin) > hang {
				t.Fatalf("no %s", what)
			}
		}
	}
	target.Send(request(1))
	until("token", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(firsts) > 0
	})
	target.Send(request(2))
	var dump bytes.Buffer
	until("second request", func() bool {
		dump.Reset()
		target.Dump(&dump)
		return strings.Contains(dump.String(), "response head")
	})
	if !strings.Contains(dump.String(), "next token") || !strings.Contains(dump.String(), "response head") || !strings.Contains(dump.String(), "2 requests") {
		t.Errorf("dump:\n%s", dump.String())
	}
	if target.LastToken() == record.Never {
		t.Error("no last token")
	}
	mu.Lock()
	if len(firsts) != 1 || firsts[1] != 1 {
		t.Errorf("first tokens %v", firsts)
	}
	mu.Unlock()
	target.Close()
	for range 2 {
		if r := <-done; r.Failure == nil || r.Failure.Class != record.FailCancelled {
			t.Errorf("closed: %+v", r.Failure)
		}
	}
	target.Send(request(3))
	if r := <-done; r.Failure == nil || r.Failure.Class != record.FailClient {
		t.Errorf("sent after Close: %+v", r.Failure)
	}
}
