package cli

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirbench/weir/internal/client"
	"github.com/weirbench/weir/internal/corpus"
	"github.com/weirbench/weir/internal/material"
	"github.com/weirbench/weir/internal/record"
	"github.com/weirbench/weir/internal/replay"
	"github.com/weirbench/weir/internal/sim"
	"github.com/weirbench/weir/internal/sim/simhttp"
)

// TestClientAgainstFaults sends to the simulated engine while it does each thing wrong that it
// knows, and wants the class that says so, in bounded time.
func TestClientAgainstFaults(t *testing.T) {
	material.RealTime(t)
	want := map[string]record.Class{
		"http-error": record.FailStatus, "context-overflow": record.FailContextOverflow,
		"reset-before": record.FailResetBefore, "reset-after,after=2": record.FailResetAfter,
		"stall,after=2": record.FailTimeoutStream, "no-headers": record.FailTimeoutHeaders,
		"sse-no-done": "", "sse-bad-json,after=1": record.FailMalformed, "sse-error,after=1": record.FailStreamError,
		"sse-truncated,after=2": record.FailMalformed, "sse-no-tokens": record.FailNoTokens,
		"sse-split": "", "sse-merged": "", "sse-comments": "", "sse-crlf": "", "sse-empty-choices": "",
		"usage-missing": "", "usage-wrong": "", "idle-close,for=20ms": "",
		"slow-start,for=1h": record.FailStatus, "rank-dies,for=1ms": record.FailStatus,
	}
	elsewhere := map[string]bool{"sticky-cache": true, "no-load-back": true, "flush-refused": true, "crash": true, "crash-start": true} // no client sees the first three; the others end processes
	covered := map[string]bool{}
	for spec := range want {
		kind, _, _ := strings.Cut(spec, ",")
		covered[kind] = true
	}
	for _, k := range simhttp.FaultKinds {
		if !covered[k.Kind] && !elsewhere[k.Kind] {
			t.Errorf("fault %s is not tried", k.Kind)
		}
	}
	for spec, class := range want {
		t.Run(spec, func(t *testing.T) {
			t.Parallel()
			fault, err := simhttp.ParseFault(spec)
			if err != nil {
				t.Fatal(err)
			}
			for seq, rec := range sendTo(t, simhttp.Options{Model: "m", Fixed: &sim.Fixed{TTFT: 2e6, ITL: 1e6}, Faults: []simhttp.Fault{fault}}, class) {
				if fault.Kind == "rank-dies" && seq < 3 {
					continue // it dies somewhere on the way
				}
				got := record.Class("")
				if rec.Failure != nil {
					got = rec.Failure.Class
				}
				if got != class {
					t.Errorf("request %d: %+v, want %q", seq, rec.Failure, class)
				}
				if class == "" && (rec.Frames != 5 || rec.OutputTokens != 5 && spec != "usage-missing" || rec.UsageDoubt() != "") {
					t.Errorf("request %d: %d frames, %d tokens, doubt %q", seq, rec.Frames, rec.OutputTokens, rec.UsageDoubt())
				}
				if spec == "usage-missing" && (rec.PromptTokens != record.Unknown || rec.Hits.Total != record.Unknown) {
					t.Errorf("request %d: counts that nobody gave: %+v", seq, rec)
				}
			}
		})
	}
}

// countedListener knows how many of its connections are open.
type countedListener struct {
	net.Listener
	open atomic.Int64
}

type countedConn struct {
	net.Conn
	l    *countedListener
	once sync.Once
}

func (l *countedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.open.Add(1)
	return &countedConn{Conn: c, l: l}, nil
}

func (c *countedConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() { c.l.open.Add(-1) })
	return err
}

// sendTo sends four requests, one after the other, to a simulated engine. Only the timeout of a
// class is short. The fourth is sent when what the fault does between requests has happened.
func sendTo(t *testing.T, o simhttp.Options, class record.Class) []*record.Request {
	const short, hang = 500 * time.Millisecond, 2 * time.Minute
	s, err := simhttp.New(o)
	if err != nil {
		t.Fatal(err)
	}
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &countedListener{Listener: inner}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan struct{})
	go func() { defer close(served); s.Serve(ctx, l) }()
	t.Cleanup(func() { stop(); <-served })
	url := "http://" + l.Addr().String()
	wait := client.Timeouts{Connect: hang, Headers: hang, First: hang, Stream: hang, Total: hang}
	switch class {
	case record.FailTimeoutHeaders:
		wait.Headers = short
	case record.FailTimeoutStream:
		wait.Stream = short
	}
	target, err := client.New(client.Config{
		URLs: []string{url}, Model: "m", Timeouts: wait,
		Bodies: client.BodiesFunc(func(*replay.Request) (client.Body, error) { return fiveTokens{}, nil }),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { target.Close() })
	settled := func(i int) bool {
		switch o.Faults[0].Kind {
		case "idle-close":
			return l.open.Load() == 0
		case "rank-dies":
			r, err := http.Get(url + "/health")
			if err != nil {
				return false
			}
			r.Body.Close()
			return i < 3 || r.StatusCode == http.StatusServiceUnavailable
		}
		return true
	}
	trace := &corpus.Trace{ID: "t", BlockSize: 64, Models: []string{"m"},
		Streams: []corpus.Stream{{ID: "t", Parent: corpus.Unbound, Turns: make([]corpus.Turn, 4)}}}
	out := make(chan *record.Request, 1)
	target.Start(func(r *record.Request) { out <- r })
	var all []*record.Request
	for i := range 4 {
		for begin := time.Now(); i > 0 && !settled(i); time.Sleep(time.Millisecond) {
			if time.Since(begin) > hang {
				t.Fatalf("the fault shows nothing before request %d", i+1)
			}
		}
		target.Send(replay.Request{Seq: uint64(i + 1), Tree: "0.0", Trace: trace, Turn: i, MaxOut: 5})
		select {
		case r := <-out:
			all = append(all, r)
		case <-time.After(hang):
			t.Fatalf("request %d has no outcome after %v", i+1, hang)
		}
	}
	return all
}

// fiveTokens asks for five tokens.
type fiveTokens struct{}

const fiveTokensBody = `{"model":"m","messages":[{"role":"user","content":"hello there"}],"max_tokens":5,"ignore_eos":true,"stream":true,"stream_options":{"include_usage":true}}`

func (fiveTokens) Len() int64      { return int64(len(fiveTokensBody)) }
func (fiveTokens) Open() io.Reader { return strings.NewReader(fiveTokensBody) }

// TestBundleKnowsItsClient wants what the client measured of itself in the bundle of a run,
// and no bound where there was no calibration. Every request has
// a bound, also one that is answered before its sender runs again.
func TestBundleKnowsItsClient(t *testing.T) {
	material.RealTime(t)
	dir := filepath.Join(t.TempDir(), "b")
	_, out, errOut := weir("load", "--url", simServer(t, 120_000, 0), "--model", "glm-5.2", "--isl", "1024", "--osl", "8",
		"--conversations", "20", "-c", "4", "--calibrate", "never", "-o", dir)
	raw, err := os.ReadFile(filepath.Join(dir, "point.json"))
	if err != nil {
		t.Fatal(err, out, errOut)
	}
	var m struct {
		Client struct {
			TTFT   int64 `json:"ttft_bound_ns"`
			Detail struct{ Health client.Health }
		}
	}
	if err := json.Unmarshal(raw, &m); err != nil {
		t.Fatal(err)
	}
	h := m.Client.Detail.Health
	if m.Client.TTFT != record.Unknown || h.TTFT.N != 20 || h.Unbounded != 0 || h.Events != 160 || h.MostFlying < 1 || h.MostFlying > 4 || h.CPU <= 0 {
		t.Errorf("client %+v", m.Client)
	}
}
