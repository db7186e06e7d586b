package client

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirbench/weir/internal/corpus"
	"github.com/weirbench/weir/internal/material"
	"github.com/weirbench/weir/internal/record"
	"github.com/weirbench/weir/internal/replay"
)

// text is a Body of fixed bytes.
type text string

func (t text) Len() int64      { return int64(len(t)) }
func (t text) Open() io.Reader { return strings.NewReader(string(t)) }

var onePrompt = BodiesFunc(func(*replay.Request) (Body, error) {
	return text(`{"model":"m","messages":[{"role":"user","content":"hi"}],"stream":true}`), nil
})

// oneTrace has a root and a sub-agent of many turns.
var oneTrace = &corpus.Trace{ID: "t", BlockSize: 64, Models: []string{"m"}, Streams: []corpus.Stream{
	{ID: "t", Parent: corpus.Unbound, Turns: make([]corpus.Turn, 100)},
	{ID: "t::sa:0", Kind: corpus.SubAgent, Parent: 0, Depth: 1, Turns: make([]corpus.Turn, 100)},
}}

func request(seq uint64) replay.Request {
	return replay.Request{Seq: seq, Phase: record.Profiling, Tree: "0.0", Trace: oneTrace, Turn: int(seq-1) % 100, MaxOut: 8}
}

// patient are timeouts that end only what hangs, on the busiest machine.
var patient = Timeouts{Connect: time.Minute, Headers: time.Minute, First: time.Minute, Stream: time.Minute, Total: 2 * time.Minute}

// hang is when a test gives up waiting.
const hang = 2 * time.Minute

// quickTo are timeouts of which only the one of a class is short.
func quickTo(class record.Class) Timeouts {
	const short = 400 * time.Millisecond
	w := patient
	switch class {
	case record.FailTimeoutHeaders:
		w.Headers = short
	case record.FailTimeoutFirst:
		w.First = short
	case record.FailTimeoutStream:
		w.Stream = short
	}
	return w
}

// rig is a target whose outcomes are collected.
type rig struct {
	*Target
	mu   sync.Mutex
	got  map[uint64]*record.Request
	each chan *record.Request
}

func newRig(t testing.TB, cfg Config) *rig {
	t.Helper()
	if cfg.Bodies == nil {
		cfg.Bodies = onePrompt
	}
	if cfg.Timeouts == (Timeouts{}) {
		cfg.Timeouts = patient
	}
	target, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{Target: target, got: map[uint64]*record.Request{}, each: make(chan *record.Request, 10000)}
	target.Start(func(q *record.Request) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.got[q.Seq] != nil {
			t.Errorf("request %d has two outcomes", q.Seq)
		}
		r.got[q.Seq] = q
		r.each <- q
	})
	t.Cleanup(func() { target.Close() })
	return r
}

func (r *rig) wait(t testing.TB) *record.Request {
	t.Helper()
	select {
	case q := <-r.each:
		checkTimes(t, q)
		return q
	case <-time.After(hang):
		t.Fatalf("no outcome; %d requests are in flight", r.InFlight())
		return nil
	}
}

func (r *rig) do(t testing.TB, q replay.Request) *record.Request {
	t.Helper()
	r.Send(q)
	return r.wait(t)
}

// checkTimes holds what is true of every record: the instants that happened never decrease,
// and End always happened.
func checkTimes(t testing.TB, q *record.Request) {
	t.Helper()
	last := q.Times.Queued
	for _, at := range []int64{q.Times.Sent, q.Times.Headers, q.Times.FirstToken, q.Times.LastToken, q.Times.End} {
		if at == record.Never {
			continue
		}
		if at < last {
			t.Errorf("request %d: times go back: %+v", q.Seq, q.Times)
		}
		last = at
	}
	if q.Times.End == record.Never {
		t.Errorf("request %d has no end", q.Seq)
	}
	if v := q.Times.FirstVisible; v != record.Never && (v < q.Times.FirstToken || v > q.Times.LastToken) {
		t.Errorf("request %d: first visible outside: %+v", q.Seq, q.Times)
	}
	if q.Failure == nil && q.Times.FirstToken == record.Never {
		t.Errorf("request %d succeeded without a token", q.Seq)
	}
	if q.Failure != nil && (len(q.Failure.Detail) > maxDetail || strings.Contains(q.Failure.Detail, "\n")) {
		t.Errorf("detail is not one line of at most %d bytes: %q", maxDetail, q.Failure.Detail)
	}
}

// rawServer answers each connection with a script: it reads a request, then hands the
// connection over.
func rawServer(t testing.TB, serve func(n int, c net.Conn, r *bufio.Reader)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var open []net.Conn
	wg.Add(1)
	go func() {
		defer wg.Done()
		for n := 0; ; n++ {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open = append(open, c)
			mu.Unlock()
			wg.Add(1)
			go func() {
				defer wg.Done()
				defer c.Close()
				serve(n, c, bufio.NewReader(c))
			}()
		}
	}()
	t.Cleanup(func() {
		l.Close()
		mu.Lock()
		for _, c := range open {
			c.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
	return "http://" + l.Addr().String()
}

func readRequest(r *bufio.Reader) (*http.Request, []byte, error) {
	q, err := http.ReadRequest(r)
	if err != nil {
		return nil, nil, err
	}
	b, err := io.ReadAll(q.Body)
	return q, b, err
}

const sseHead = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"

func chunk(s string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(s), s) }

func token(s string) string {
	return `data: {"choices":[{"index":0,"delta":{"content":"` + s + `"},"finish_reason":null}]}` + "\n\n"
}

const roleOnly = `data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}` + "\n\n"
const usageEvent = `data: {"choices":[],"usage":{"prompt_tokens":100,"completion_tokens":3,"total_tokens":103,` +
	`"prompt_tokens_details":{"cached_tokens":64},"completion_tokens_details":{"reasoning_tokens":1}}}` + "\n\n"
const doneEvent = "data: [DONE]\n\n"

func TestOneRequest(t *testing.T) {
	material.RealTime(t)
	const pause = 30 * time.Millisecond
	type seen struct {
		*http.Request
		body []byte
	}
	sent := make(chan seen, 2)
	url := rawServer(t, func(_ int, c net.Conn, r *bufio.Reader) {
		for {
			q, b, err := readRequest(r)
			if err != nil {
				return
			}
			sent <- seen{q, b}
			io.WriteString(c, sseHead+chunk(roleOnly))
			time.Sleep(pause)
			io.WriteString(c, chunk(`data: {"choices":[{"delta":{"reasoning_content":"hm"}}]}`+"\n\n"))
			time.Sleep(pause)
			io.WriteString(c, chunk(token("a")))
			time.Sleep(pause)
			io.WriteString(c, chunk(token("b")))
			time.Sleep(pause)
			io.WriteString(c, chunk(usageEvent)+chunk(doneEvent)+"0\r\n\r\n")
		}
	})
	r := newRig(t, Config{URLs: []string{url}, Model: "m", APIKey: "k", Chunks: true, RunID: "run",
		Header: http.Header{"X-Extra": {"1"}}, SessionHeaders: []string{"X-Correlation-ID", "X-SMG-Routing-Key"},
		ParentHeader: "X-Dynamo-Parent-Session-ID"})
	for try := 1; ; try++ {
		q := request(uint64(try))
		q.Stream, q.Turn = 1, 0
		rec := r.do(t, q)
		if rec.Failure != nil {
			t.Fatal(rec.Failure)
		}
		if rec.PromptTokens != 100 || rec.OutputTokens != 3 || rec.ReasoningTokens != 1 || rec.Hits.Total != 64 || rec.Hits.Device != record.Unknown {
			t.Errorf("counts: %+v", rec)
		}
		if len(rec.Chunks) != 3 || rec.Chunks[0].At != rec.Times.FirstToken || rec.Chunks[2].At != rec.Times.LastToken {
			t.Errorf("chunks %v, times %+v", rec.Chunks, rec.Times)
		}
		tm, short := rec.Times, ""
		for what, d := range map[string]int64{"headers to first token": tm.FirstToken - tm.Headers, "first token to first visible": tm.FirstVisible - tm.FirstToken,
			"first visible to last token": tm.LastToken - tm.FirstVisible, "last token to end": tm.End - tm.LastToken} {
			if d < int64(pause)*9/10 {
				short += fmt.Sprintf("%s: %v, the server waited %v\n", what, time.Duration(d), pause)
			}
		}
		if short == "" {
			break
		}
		if try == 20 { // a reader that was stopped sees several pieces at one instant, but not always
			t.Fatal(short)
		}
		<-sent
	}
	got := <-sent
	if want := `{"model":"m","messages":[{"role":"user","content":"hi"}],"stream":true}`; string(got.body) != want {
		t.Errorf("body %s", got.body)
	}
	h := got.Header
	if got.URL.Path != "/v1/chat/completions" || h.Get("Authorization") != "Bearer k" || h.Get("X-Extra") != "1" || h.Get("Accept") != "text/event-stream" {
		t.Errorf("request %v %v", got.URL, h)
	}
	id, parent := h.Get("X-Correlation-ID"), h.Get("X-Dynamo-Parent-Session-ID")
	if id == "" || id != h.Get("X-SMG-Routing-Key") || parent == "" || parent == id {
		t.Errorf("session headers %v", h)
	}
	if again := r.do(t, request(100)); again.Failure != nil || again.Resent {
		t.Errorf("second request: %+v", again)
	}
	if h := (<-sent).Header; h.Get("X-Correlation-ID") != parent {
		t.Errorf("the root conversation's id is %q, its child named %q", h.Get("X-Correlation-ID"), parent)
	}
}

// ways are the two ways in which connections are read.
var ways = map[string]bool{"poller": false, "goroutine": true}

// TestFailures sends to servers that go wrong in every way and wants the class that says how.
func TestFailures(t *testing.T) {
	material.RealTime(t)
	head := func(status, body string) string {
		return fmt.Sprintf("HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", status, len(body), body)
	}
	const stall = "\x00stall" // keep the connection open
	const reset = "\x00reset" // close with RST
	for _, c := range []struct {
		name, answer string
		class        record.Class
		status       int
		detail       string
	}{
		{"redirect", head("307 Temporary Redirect", ""), record.FailStatus, 307, "not followed: give the URL that it leads to"},
		{"control characters", head("500 Internal Server Error", "a\x1b[2J\x00b\u009bc"), record.FailStatus, 500, "a?[2J?b?c"},
		{"500", head("500 Internal Server Error", `{"error":"boom"}`), record.FailStatus, 500, "boom"},
		{"503 without length", "HTTP/1.1 503 Busy\r\n\r\nqueue full", record.FailStatus, 503, "queue full"},
		{"500 without an end", "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 100\r\n\r\nboom" + stall, record.FailStatus, 500, "boom"},
		{"500 and half a text", "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 100\r\n\r\nboom", record.FailStatus, 500, "boom"},
		{"overflow", head("400 Bad Request", `{"error":{"message":"This model's maximum context length is 10 tokens."}}`), record.FailContextOverflow, 400, "maximum context"},
		{"overflow of llama.cpp", head("400 Bad Request", `{"error":{"code":400,"message":"the request exceeds the available context size, try increasing it"}}`), record.FailContextOverflow, 400, ""},
		{"closes at once", "", record.FailResetBefore, 0, "closed"},
		{"resets at once", reset, record.FailResetBefore, 0, ""},
		{"says nothing", stall, record.FailTimeoutHeaders, 0, "400ms"},
		{"head only", sseHead + stall, record.FailTimeoutFirst, 0, ""},
		{"role only", sseHead + chunk(roleOnly) + stall, record.FailTimeoutFirst, 0, ""},
		{"stalls", sseHead + chunk(token("a")) + stall, record.FailTimeoutStream, 0, "1 content frames"},
		{"stalls in comments", sseHead + chunk(token("a")) + chunk(": ping\n\n") + stall, record.FailTimeoutStream, 0, ""},
		{"half and closes", sseHead + chunk(token("a")), record.FailResetAfter, 0, "1 content frames"},
		{"half a head", "HTTP/1.1 200 OK\r\nContent-", record.FailResetAfter, 0, ""},
		{"half and resets", sseHead + chunk(token("a")) + reset, record.FailResetAfter, 0, ""},
		{"no HTTP", "SSH-2.0-OpenSSH_9.6\r\n", record.FailMalformed, 0, "SSH"},
		{"broken chunk size", sseHead + "zz\r\n", record.FailMalformed, 0, "chunk size"},
		{"garbage event", sseHead + chunk("data: \x01\x02garbage\n\n"), record.FailMalformed, 0, "no JSON"},
		{"cut JSON", sseHead + chunk(token("a")+"data: {\"choices\":[{\"del\n\n"), record.FailMalformed, 0, ""},
		{"HTML", "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 13\r\n\r\n<html></html>", record.FailNoTokens, 0, ""},
		{"error object", sseHead + chunk(token("a")) + chunk(`data: {"error":{"message":"CUDA out of memory","code":500}}`+"\n\n") + stall, record.FailStreamError, 0, "CUDA"},
		{"error event", sseHead + chunk("event: error\ndata: worker died\n\n") + stall, record.FailStreamError, 0, "worker died"},
		{"overflow in a stream", sseHead + chunk(`data: {"error":{"message":"Prompt is too long"}}`+"\n\n"), record.FailContextOverflow, 0, ""},
		{"empty stream", sseHead + chunk(roleOnly) + chunk(doneEvent) + "0\r\n\r\n", record.FailNoTokens, 0, ""},
		{"only usage", sseHead + chunk(usageEvent) + "0\r\n\r\n", record.FailNoTokens, 0, ""},
		{"empty JSON", head("200 OK", ""), record.FailNoTokens, 0, ""},
		{"close-delimited half", "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + token("a"), record.FailResetAfter, 0, ""},
		{"unknown coding", "HTTP/1.1 200 OK\r\nContent-Encoding: br\r\n\r\nxx", record.FailMalformed, 0, "br"},
		{"half a gzip", "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 10\r\n\r\n\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff", record.FailMalformed, 0, "ends in its middle"},
		{"broken gzip", "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 12\r\n\r\nnot gzip at ", record.FailMalformed, 0, "gzip"},
	} {
		if strings.HasPrefix(c.answer, "HTTP/1.1 200") && strings.Contains(c.answer, "\r\n\r\n") {
			c.status = 200
		}
		eachWay(t, c.name, func(t *testing.T, blocking bool) {
			token := make(chan struct{})
			url := rawServer(t, func(_ int, conn net.Conn, r *bufio.Reader) {
				if _, _, err := readRequest(r); err != nil {
					return
				}
				answer, stalls := strings.CutSuffix(c.answer, stall)
				answer, resets := strings.CutSuffix(answer, reset)
				io.WriteString(conn, answer)
				if stalls {
					r.ReadByte()
				}
				if resets {
					if answer != "" {
						<-token
					}
					conn.(*net.TCPConn).SetLinger(0)
				}
			})
			r := newRig(t, Config{URLs: []string{url}, blocking: blocking, Timeouts: quickTo(c.class)})
			r.OnFirstToken(func(uint64) { close(token) })
			rec := r.do(t, request(1))
			if rec.Failure == nil {
				t.Fatalf("no failure: %+v", rec)
			}
			if rec.Failure.Class != c.class || rec.Failure.Status != c.status || !strings.Contains(rec.Failure.Detail, c.detail) {
				t.Errorf("got %+v, want class %s status %d with %q", *rec.Failure, c.class, c.status, c.detail)
			}
		})
	}
}

// TestGoodEndings are streams that end in an unusual way and are whole all the same.
func TestGoodEndings(t *testing.T) {
	close := "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
	for name, answer := range map[string]string{
		"done, then cut":            sseHead + chunk(token("a")+doneEvent),
		"done, then held open":      sseHead + chunk(token("a")+doneEvent) + "hold",
		"no done":                   sseHead + chunk(token("a")) + "0\r\n\r\n",
		"close with done":           close + token("a") + doneEvent,
		"close with done, no blank": close + token("a") + "data: [DONE]",
		"close with finish reason":  close + `data: {"choices":[{"text":"x","delta":{"content":"x"},"finish_reason":"stop"}]}` + "\n\n",
		"close with usage":          close + token("a") + usageEvent,
		"usage first":               sseHead + chunk(usageEvent+token("a")+doneEvent) + "0\r\n\r\n",
		"interim":                   "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + sseHead + chunk(token("a")) + "0\r\nTrailer: 1\r\n\r\n",
		"not streamed":              "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n" + `{"choices":[{"message":{"role":"assistant","content":"all of it"},"finish_reason":"stop"}],"usage":{"prompt_tokens":100,"completion_tokens":3}}`,
		"no media type":             "HTTP/1.1 200 OK\r\n\r\n\n" + token("a") + doneEvent,
		"1.0":                       "HTTP/1.0 200 OK\nContent-Type: text/event-stream\n\n" + token("a") + doneEvent,
	} {
		eachWay(t, name, func(t *testing.T, blocking bool) {
			url := rawServer(t, func(_ int, conn net.Conn, r *bufio.Reader) {
				if _, _, err := readRequest(r); err != nil {
					return
				}
				answer, hold := strings.CutSuffix(answer, "hold")
				for _, b := range []byte(answer) { // byte by byte
					conn.Write([]byte{b})
				}
				if hold {
					r.ReadByte()
				}
			})
			r := newRig(t, Config{URLs: []string{url}, blocking: blocking})
			rec := r.do(t, request(1))
			if rec.Failure != nil {
				t.Fatalf("failure: %+v", *rec.Failure)
			}
			if strings.Contains(answer, `"usage"`) && (rec.PromptTokens != 100 || rec.OutputTokens != 3) {
				t.Errorf("usage: %+v", rec)
			}
		})
	}
}

// TestEarlyAnswer has a server that refuses a large request without reading it.
func TestEarlyAnswer(t *testing.T) {
	for way, blocking := range ways {
		url := rawServer(t, func(n int, c net.Conn, r *bufio.Reader) {
			io.ReadFull(r, make([]byte, 1000))
			io.WriteString(c, "HTTP/1.1 413 Too Large\r\nContent-Length: 7\r\n\r\ntoo big")
			if n == 1 { // does not even close
				time.Sleep(3 * time.Second)
			}
		})
		big := BodiesFunc(func(*replay.Request) (Body, error) { return text(bytes.Repeat([]byte("x"), 32<<20)), nil })
		r := newRig(t, Config{URLs: []string{url}, Bodies: big, blocking: blocking})
		for seq := range uint64(3) {
			rec := r.do(t, request(seq+1))
			if rec.Failure == nil || rec.Failure.Class != record.FailStatus || rec.Failure.Status != 413 {
				t.Errorf("%s: %+v", way, rec.Failure)
			}
		}
	}
}

func eachWay(t *testing.T, name string, f func(t *testing.T, blocking bool)) {
	for way, blocking := range ways {
		t.Run(strings.ReplaceAll(name, " ", "-")+"/"+way, func(t *testing.T) {
			t.Parallel()
			f(t, blocking)
		})
	}
}

func TestCannotConnect(t *testing.T) {
	l, _ := net.Listen("tcp", "127.0.0.1:0")
	refusing := "http://" + l.Addr().String()
	l.Close()
	plain := strings.Replace(rawServer(t, func(_ int, c net.Conn, r *bufio.Reader) { io.WriteString(c, "HTTP/1.1 400 no\r\n\r\n") }), "http:", "https:", 1)
	for _, c := range []struct {
		url   string
		class record.Class
	}{{refusing, record.FailConnect}, {"http://no-such-host.invalid", record.FailDNS}, {plain, record.FailTLS}} {
		r := newRig(t, Config{URLs: []string{c.url}, Timeouts: patient})
		rec := r.do(t, request(1))
		if rec.Failure == nil || rec.Failure.Class != c.class {
			t.Errorf("%s: %+v, want %s", c.url, rec.Failure, c.class)
		}
		if rec.Times.Sent != record.Never {
			t.Errorf("%s: sent at %d without a connection", c.url, rec.Times.Sent)
		}
	}
}

func TestBodyFaults(t *testing.T) {
	url := rawServer(t, func(_ int, c net.Conn, r *bufio.Reader) { readRequest(r); r.ReadByte() })
	cases := map[string]Bodies{
		"error": BodiesFunc(func(*replay.Request) (Body, error) { return nil, errors.New("no such block") }),
		"short": BodiesFunc(func(*replay.Request) (Body, error) { return lying{10, "short"}, nil }),
		"long":  BodiesFunc(func(*replay.Request) (Body, error) { return lying{3, "longer"}, nil }),
		"short and large": BodiesFunc(func(*replay.Request) (Body, error) {
			return lying{1 << 20, strings.Repeat("x", 1<<19)}, nil
		}),
	}
	for name, bodies := range cases {
		for way, blocking := range ways {
			r := newRig(t, Config{URLs: []string{url}, Bodies: bodies, blocking: blocking})
			rec := r.do(t, request(1))
			if rec.Failure == nil || rec.Failure.Class != record.FailClient {
				t.Errorf("%s, %s: %+v", name, way, rec.Failure)
			}
		}
	}
}

type lying struct {
	n int64
	s string
}

func (l lying) Len() int64      { return l.n }
func (l lying) Open() io.Reader { return strings.NewReader(l.s) }

// TestCancel cancels requests in every phase and wants one outcome each, and none touched
// that is sent afterwards.
func TestCancel(t *testing.T) {
	for way, blocking := range ways {
		t.Run(way, func(t *testing.T) { testCancel(t, blocking) })
	}
}

func testCancel(t *testing.T, blocking bool) {
	cancelled := make(chan struct{})
	url := rawServer(t, func(n int, c net.Conn, r *bufio.Reader) {
		if n%4 == 0 {
			io.Copy(io.Discard, io.LimitReader(r, 1000)) // stops reading the body
			<-cancelled
			return
		}
		if _, _, err := readRequest(r); err != nil {
			return
		}
		switch n % 4 {
		case 2:
			io.WriteString(c, sseHead)
		case 3:
			io.WriteString(c, sseHead+chunk(token("a")))
		}
		r.ReadByte()
	})
	big := BodiesFunc(func(*replay.Request) (Body, error) { return text(bytes.Repeat([]byte("x"), 8<<20)), nil })
	r := newRig(t, Config{URLs: []string{url}, Bodies: big, blocking: blocking})
	const n = 40
	for i := range uint64(n) {
		r.Send(request(i + 1))
	}
	time.Sleep(100 * time.Millisecond)
	r.Cancel()
	close(cancelled)
	for range n {
		if rec := r.wait(t); rec.Failure == nil || rec.Failure.Class != record.FailCancelled {
			t.Errorf("%+v", rec.Failure)
		}
	}
	r.Send(request(n + 1))
	select {
	case rec := <-r.each:
		if rec.Failure != nil && rec.Failure.Class == record.FailCancelled {
			t.Errorf("sent after Cancel: %+v", rec.Failure)
		}
	case <-time.After(200 * time.Millisecond):
	}
}
