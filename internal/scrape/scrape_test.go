package scrape

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirbench/weir/internal/engine"
	"github.com/weirbench/weir/internal/material"
	"github.com/weirbench/weir/internal/record"
)

// TestBadEndpoints scrapes endpoints that are slow, huge, malformed, dying and absent beside a
// good one: the good one has its samples, every other its error.
func TestBadEndpoints(t *testing.T) {
	material.RealTime(t)
	var n atomic.Int64
	serve := func(h http.HandlerFunc) string {
		s := httptest.NewServer(h)
		t.Cleanup(s.Close)
		return s.URL
	}
	good := serve(func(w http.ResponseWriter, _ *http.Request) {
		if n.Add(1)%2 == 0 { // a proxy that compresses what it likes, on the same connection
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			fmt.Fprintf(z, "good_total %d\n", n.Load())
			z.Close()
			return
		}
		fmt.Fprintf(w, "good_total %d\n", n.Load())
	})
	released := make(chan struct{})
	t.Cleanup(func() { close(released) })
	var dying atomic.Bool
	urls := map[string]string{
		serve(func(w http.ResponseWriter, r *http.Request) {
			select {
			case <-r.Context().Done():
			case <-released:
			}
		}): "no whole answer within 6s",
		serve(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, strings.Repeat("a 1\n", 1<<16)) }):  "65536 bytes",
		serve(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "good 1\nbad\n") }):                 `line 2: "bad" has no value`,
		serve(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, `{"a": 1}`) }):                      "JSON",
		serve(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusServiceUnavailable) }): "503",
		serve(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			io.WriteString(w, "a 1\n")
		}): "broke off after 4 bytes",
		serve(func(w http.ResponseWriter, _ *http.Request) {
			if dying.Swap(true) {
				c, _, _ := w.(http.Hijacker).Hijack()
				c.Close()
				return
			}
			io.WriteString(w, "a 1\n")
		}): "EOF",
		serve(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			io.WriteString(w, "a 1\n")
		}): "called gzip and is not",
		serve(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			io.WriteString(z, strings.Repeat("a 1\n", 1<<16))
			z.Close()
		}): "65536 bytes",
		serve(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "br")
			io.WriteString(w, "a 1\n")
		}): "\"br\", which was not asked for",
		"http://127.0.0.1:1": "refused",
	}
	var mu sync.Mutex
	samples := map[string][]*record.Sample{}
	begin := time.Now()
	s, err := New(Options{
		URLs: append([]string{good}, keys(urls)...), Every: 20 * time.Millisecond, Timeout: 6 * time.Second, Limit: 1 << 16,
		Require: []string{"good"},
		Now:     func() int64 { return int64(time.Since(begin)) },
		Write: func(s *record.Sample) error {
			mu.Lock()
			defer mu.Unlock()
			s.Spread()
			samples[s.Source] = append(samples[s.Source], s)
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Baseline(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.Start()
	for begin, whole := time.Now(), 0; whole < 10; time.Sleep(5 * time.Millisecond) {
		mu.Lock()
		whole = 0
		for _, s := range samples[good+"/metrics"] {
			if s.Error == "" {
				whole++
			}
		}
		mu.Unlock()
		if time.Since(begin) > 2*time.Minute {
			t.Fatal("no ten samples of the good endpoint")
		}
	}
	reports, err := s.Stop(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range reports {
		base := strings.TrimSuffix(r.URL, "/metrics")
		if base == good {
			if r.Scrapes-r.Failed < 10 {
				t.Errorf("the good endpoint: %+v", r)
			}
			continue
		}
		said := r.Error
		for _, s := range samples[r.URL] {
			said += "\n" + s.Error
		}
		if want := urls[base]; r.Failed == 0 || !strings.Contains(said, want) {
			t.Errorf("%s: %+v, want an error with %q", base, r, want)
		}
	}
	got := samples[good+"/metrics"]
	for i, v := 0, 0.0; i < len(got); i++ {
		if s := got[i]; s.Error == "" {
			if s.Delta != (v > 0) || s.Values["good_total"] <= v {
				t.Errorf("sample %d after %v: %+v", i, v, s)
			}
			v = s.Values["good_total"]
		}
	}
}

func keys(m map[string]string) []string {
	var out []string
	for k := range maps.Keys(m) {
		out = append(out, k)
	}
	return out
}

// TestRequired: a family that no endpoint has fails by name before the load.
func TestRequired(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "a_total 1\n# TYPE declared_total counter\n")
	}))
	defer srv.Close()
	s, err := New(Options{URLs: []string{srv.URL, "127.0.0.1:1"}, Require: []string{"a", "z|a", "declared", "sglang:cached_tokens"}, Now: func() int64 { return 0 }})
	if err != nil {
		t.Fatal(err)
	}
	err = s.Baseline(t.Context())
	var missing *MissingError
	if !errors.As(err, &missing) || !strings.Contains(err.Error(), "sglang:cached_tokens is on none") || !strings.Contains(err.Error(), "refused") {
		t.Errorf("error %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Baseline(ctx); err != context.Canceled {
		t.Errorf("cancelled: %v", err)
	}
}

// TestElsewhere finds TensorRT-LLM's Prometheus text behind a /metrics of JSON.
func TestElsewhere(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/prometheus/metrics" {
			io.WriteString(w, "trtllm_num_requests_running 3\n")
			return
		}
		io.WriteString(w, `[{"iter": 1}]`)
	}))
	defer srv.Close()
	s, err := New(Options{URLs: []string{srv.URL}, Now: func() int64 { return 0 }})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Baseline(t.Context()); err != nil {
		t.Fatal(err)
	}
	v := s.Views()[0]
	if n, ok := v.Get(engine.Running); !ok || n != 3 || v.Engine != "trtllm" {
		t.Errorf("running %v %t of %q", n, ok, v.Engine)
	}
}

func TestEndpoint(t *testing.T) {
	for in, want := range map[string]string{
		"h:8000": "http://h:8000/metrics", "http://h:8000/": "http://h:8000/metrics", "http://h/v1": "http://h/metrics",
		"https://h/x/metrics": "https://h/x/metrics", "h:1/prometheus/metrics": "http://h:1/prometheus/metrics",
	} {
		if got, err := Endpoint(in); err != nil || got != want {
			t.Errorf("%s: %s, %v, want %s", in, got, err, want)
		}
	}
	for _, in := range []string{"", "ftp://h", "http://", "http://h:x"} {
		if got, err := Endpoint(in); err == nil {
			t.Errorf("%q became %s", in, got)
		}
	}
}

// TestCounters: reference, reset, birth, repeated ranks and decode's repetition.
func TestCounters(t *testing.T) {
	const (
		prompt = `sglang:prompt_tokens_total{engine_type="unified"}`
		device = `sglang:cached_tokens_total{engine_type="unified",cache_source="device"}`
		host   = `sglang:cached_tokens_total{engine_type="unified",cache_source="host"}`
		rank0  = `sglang:evicted_tokens_total{dp_rank="0",tp_rank="0"}`
		rank1  = `sglang:evicted_tokens_total{dp_rank="0",tp_rank="1"}`
		rank2  = `sglang:evicted_tokens_total{dp_rank="1",tp_rank="2"}`
		decode = `sglang:prompt_tokens_total{engine_type="decode"}`
	)
	c := NewCounters(1000, record.Profiling)
	for _, s := range []record.Sample{
		{At: 0, Source: "a", Values: map[string]float64{prompt: 50, device: 5}},
		{At: 900, Source: "a", Values: map[string]float64{prompt: 60, device: 6, rank0: 1, rank1: 1, rank2: 1}},
		{At: 1100, Source: "a", Mark: record.Profiling, Values: map[string]float64{prompt: 70, device: 7, rank0: 2, rank1: 2, rank2: 2}},
		{At: 1200, Source: "a", Error: "late"},
		{At: 1300, Source: "a", Values: map[string]float64{prompt: 170, device: 57, host: 10, rank0: 5, rank1: 5, rank2: 9}}, // host was born at 0
		{At: 1400, Source: "a", Values: map[string]float64{prompt: 20, device: 2, host: 1}},                                  // restarted
		{At: 1500, Source: "b", Values: map[string]float64{prompt: 1000, decode: 1000}},
		{At: 1600, Source: "b", Values: map[string]float64{prompt: 1001, decode: 2000}},
	} {
		c.Add(&s)
	}
	for q, want := range map[engine.Quantity]float64{
		engine.PromptTokens: 100 + 20 + 1, engine.HitDevice: 50 + 2, engine.HitHost: 10 + 1, engine.EvictedTokens: 3 + 7,
	} {
		if got, ok := c.Total(q); !ok || got != want {
			t.Errorf("%s grew by %v (%t), want %v", q, got, ok, want)
		}
	}
	if c.Resets != 3 {
		t.Errorf("%d resets, want 3", c.Resets)
	}
	if h, ok := c.Hits(); !ok || h.Prompt != 121 || h.Device != 52 || h.Host != 11 || h.Hit != 63 {
		t.Errorf("hits %+v %t", h, ok)
	}
}
