package run

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirbench/weir/internal/client"
	"github.com/weirbench/weir/internal/corpus"
	"github.com/weirbench/weir/internal/material"
	"github.com/weirbench/weir/internal/prompt"
	"github.com/weirbench/weir/internal/record"
	"github.com/weirbench/weir/internal/replay"
	"github.com/weirbench/weir/internal/result"
	"github.com/weirbench/weir/internal/spec"
)

// smallCorpus is quick to send: short prompts, few turns.
func smallCorpus(t *testing.T) *corpus.Corpus {
	t.Helper()
	c, err := corpus.Generate(corpus.GenerateOptions{Seed: 5, Traces: 6, Turns: 12, FirstIn: 20000, Growth: 200, ThinkNs: int64(time.Second)})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// against runs one short point against a server that is given so long for an answer's head.
func against(t *testing.T, ctx context.Context, url string, conc int, head time.Duration, change func(*replay.Options)) (*result.Result, string, error) {
	t.Helper()
	p := &spec.Point{Key: "replay", Name: "test", Model: "m", Framework: "external", Scenario: spec.AgenticCoding,
		Conc: conc, SpecDecoding: "none", Offload: spec.Offload{Mode: "none"}, DurationNs: int64(2 * time.Second), Weir: spec.WeirFields{Seed: 1}}
	opt := ReplayOptions(p)
	opt.PressureRequests = 0
	opt.SystemIdleCapNs = int64(100 * time.Millisecond)
	opt.TraceIdleCapNs = int64(100 * time.Millisecond)
	opt.GraceNs = int64(time.Minute)
	if change != nil {
		change(&opt)
	}
	ex := &HTTP{
		Client: client.Config{URLs: []string{url},
			Timeouts: client.Timeouts{Headers: head, First: time.Minute, Stream: time.Minute}},
		Prompt:       prompt.Options{Models: []string{"m"}, Salt: prompt.FirstTurnPrefix},
		ObservedGPUs: record.Unknown,
	}
	dir := filepath.Join(t.TempDir(), "b")
	r, err := Measure(ctx, ex, &Job{Point: p, Corpus: smallCorpus(t), Replay: opt, Version: "test"}, dir)
	return r, dir, err
}

func sse(w http.ResponseWriter, lines ...string) {
	w.Header().Set("Content-Type", "text/event-stream")
	for _, l := range lines {
		fmt.Fprintf(w, "data: %s\n\n", l)
		w.(http.Flusher).Flush()
	}
}

const (
	token = `{"choices":[{"index":0,"delta":{"content":" word"}}]}`
	usage = `{"choices":[],"usage":{"prompt_tokens":100,"completion_tokens":2}}`
)

// TestBadServers runs a point against servers that fail in named ways: every run ends in time
// with a result that is not valid, says why, and accounts for what it sent.
func TestBadServers(t *testing.T) {
	material.RealTime(t)
	hijack := func(w http.ResponseWriter, after string) {
		c, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			panic(err)
		}
		io.WriteString(c, after)
		c.Close()
	}
	head := "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 5000\r\n\r\n"
	for _, s := range []struct {
		name  string
		serve http.HandlerFunc
		class record.Class
		code  result.Code
	}{
		{"500 to everything", func(w http.ResponseWriter, r *http.Request) { http.Error(w, "no", 500) }, record.FailStatus, result.RootWarmup},
		{"closes before an answer", func(w http.ResponseWriter, r *http.Request) { hijack(w, "") }, record.FailResetBefore, result.RootWarmup},
		{"closes mid-stream", func(w http.ResponseWriter, r *http.Request) { hijack(w, head+"data: "+token+"\n\n") }, record.FailResetAfter, result.RootWarmup},
		{"broken SSE", func(w http.ResponseWriter, r *http.Request) { sse(w, `{"choices":[{"delta":`, "[DONE]") }, record.FailMalformed, result.RootWarmup},
		{"no tokens", func(w http.ResponseWriter, r *http.Request) { sse(w, usage, "[DONE]") }, record.FailNoTokens, result.RootWarmup},
		{"error in the stream", func(w http.ResponseWriter, r *http.Request) { sse(w, `{"error":{"message":"boom"}}`) }, record.FailStreamError, result.RootWarmup},
		{"never answers", func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, record.FailTimeoutHeaders, result.RootWarmup},
	} {
		t.Run(s.name, func(t *testing.T) {
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/v1/models" {
					fmt.Fprint(w, `{"data":[{"id":"m","owned_by":"test"}]}`)
					return
				}
				io.Copy(io.Discard, r.Body)
				s.serve(w, r)
			}))
			defer srv.Close()
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			head := time.Minute
			if s.class == record.FailTimeoutHeaders {
				head = time.Second
			}
			r, dir, err := against(t, ctx, srv.URL, 2, head, nil)
			if err != nil {
				t.Fatal(err)
			}
			if r.Valid || !has(r, s.code) {
				t.Errorf("valid %v, reasons %v, want %s", r.Valid, r.Reasons, s.code)
			}
			classes := map[record.Class]int{}
			b, err := record.OpenBundle(dir)
			if err != nil {
				t.Fatal(err)
			}
			for q, err := range b.Requests() {
				if err != nil {
					t.Fatal(err)
				}
				if q.Failure != nil {
					classes[q.Failure.Class]++
				}
			}
			if classes[s.class] == 0 {
				t.Errorf("failures %v, want %s", classes, s.class)
			}
		})
	}
}

func has(r *result.Result, c result.Code) bool {
	for _, f := range r.Reasons {
		if f.Code == c {
			return true
		}
	}
	return false
}

func TestNoServer(t *testing.T) {
	srv := httptest.NewServer(http.NotFoundHandler())
	url := srv.URL
	srv.Close()
	_, dir, err := against(t, t.Context(), url, 1, time.Minute, nil)
	f, ok := err.(interface{ Unwrap() []error })
	if !ok || len(f.Unwrap()) == 0 {
		t.Fatalf("got %v", err)
	}
	b, err := record.OpenBundle(dir)
	if err != nil || b.State != record.Failed || b.End.Class != "start" {
		t.Errorf("bundle %+v, %v: want FAILED with class start", b, err)
	}
}

// TestCertificateAdvice: who does not know the server's authority is told of the flags for it.
func TestCertificateAdvice(t *testing.T) {
	srv := httptest.NewUnstartedServer(http.NotFoundHandler())
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.StartTLS()
	defer srv.Close()
	_, _, err := against(t, t.Context(), srv.URL, 1, time.Minute, nil)
	if err == nil || !strings.Contains(err.Error(), "--ca-file") || strings.Contains(err.Error(), "start it") {
		t.Errorf("got %v", err)
	}
}

// TestInterruptedReplayKeepsItsRecords: a run against a real server is worth keeping when a
// person stops it; its result says that it was cancelled.
func TestInterruptedReplayKeepsItsRecords(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var n atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		if n.Add(1) == 30 { // the person; two lanes have the outcomes of most before it
			cancel()
		}
		sse(w, token, usage, "[DONE]")
	}))
	defer srv.Close()
	r, _, err := against(t, ctx, srv.URL, 2, time.Minute, func(o *replay.Options) { o.DurationNs = int64(time.Hour) })
	if err == nil && (r.Valid || !has(r, result.Cancelled) || r.Requests.OK == 0) {
		t.Errorf("valid %v, reasons %v, %d ok", r.Valid, r.Reasons, r.Requests.OK)
	}
	if err != nil {
		t.Error(err)
	}
}
