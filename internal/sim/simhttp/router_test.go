package simhttp

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/weirbench/weir/internal/sim"
)

// startPD serves one prefill and one decode engine and a router in front; it returns their URLs.
func startPD(t testing.TB, policy string, prefills int) (router string, engines []string) {
	t.Helper()
	var o RouterOptions
	for i := range prefills + 1 {
		role := sim.RolePrefill
		if i == prefills {
			role = sim.RoleDecode
		}
		so := fast(t, 500_000, 0)
		so.Config.Role = role
		s, err := New(so)
		if err != nil {
			t.Fatal(err)
		}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		u := "http://" + l.Addr().String()
		engines = append(engines, u)
		if role == sim.RolePrefill {
			port, err := s.ListenBootstrap("127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			o.Prefill = append(o.Prefill, PrefillPeer{u, port})
		} else {
			o.Decode = append(o.Decode, u)
		}
		ctx, stop := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- s.Serve(ctx, l) }()
		t.Cleanup(func() { stop(); <-done })
	}
	o.Policy = policy
	r, err := NewRouter(o)
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(r.Handler())
	t.Cleanup(h.Close)
	return h.URL, engines
}

// TestDisaggregatedOverHTTP sends requests through a router to a prefill and a decode server:
// the answer is that of one server, cached tokens are what prefill found.
func TestDisaggregatedOverHTTP(t *testing.T) {
	router, engines := startPD(t, "cache_aware", 1)
	one := start(t, fast(t, 500_000, 0))
	text := strings.Repeat(" word", 640)
	for i, want := range []int64{0, 576} {
		status, got := post(t, router+"/v1/chat/completions", chatBody(text, 40, `,"stream":true,"stream_options":{"include_usage":true}`))
		if status != 200 {
			t.Fatal(got)
		}
		_, alone := post(t, one+"/v1/chat/completions", chatBody(text, 40, `,"stream":true,"stream_options":{"include_usage":true}`))
		a, use, done := readStream(t, got)
		b, _, _ := readStream(t, alone)
		if a != b || !done || use == nil || use.Details.Cached != want || use.Out != 40 {
			t.Errorf("request %d: %d words, usage %+v, done %v", i, len(strings.Fields(a)), use, done)
		}
	}
	_, m := get(t, engines[0]+"/metrics")
	if !strings.Contains(m, `engine_type="prefill"`) || !strings.Contains(m, "sglang:num_prefill_inflight_queue_reqs") {
		t.Error("the prefill server's metrics do not say its role")
	}
	for _, u := range engines {
		until(t, u, `"Requests":2`)
	}
	if status, body := post(t, engines[1]+"/v1/chat/completions", chatBody("x", 1, "")); status != 400 || !strings.Contains(body, "bootstrap_room") {
		t.Errorf("a decode server without a room: %d %s", status, body)
	}
	if status, body := post(t, router+"/flush_cache", ""); status != 200 {
		t.Errorf("flush through the router: %d %s", status, body)
	}
	if status, body := get(t, router+"/workers"); status != 200 || !strings.Contains(body, `"prefill_count":1`) || !strings.Contains(body, `"decode_count":1`) {
		t.Errorf("workers: %d %s", status, body)
	}
	if status, _ := get(t, router+"/readiness"); status != 200 {
		t.Error("the router is not ready")
	}
}

// TestRouterOverHTTP checks that sessions stay where they are, that errors come through, and
// that a worker that is gone makes the router unready.
func TestRouterOverHTTP(t *testing.T) {
	a, b := start(t, fast(t, 500_000, 0)), start(t, fast(t, 500_000, 0))
	r, err := NewRouter(RouterOptions{Workers: []string{a, b, "http://127.0.0.1:1"}, Policy: "round_robin"})
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(r.Handler())
	defer h.Close()
	var got []int
	for range 3 {
		status, _ := post(t, h.URL+"/v1/chat/completions", chatBody("x", 2, ""))
		got = append(got, status)
	}
	if fmt.Sprint(got) != "[200 200 502]" {
		t.Errorf("three in turn, the last to a worker that is not there: %v", got)
	}
	if status, body := get(t, h.URL+"/readiness"); status != 503 || !strings.Contains(body, "127.0.0.1:1 is not healthy") {
		t.Errorf("readiness: %d %s", status, body)
	}
	if status, _ := post(t, h.URL+"/v1/chat/completions", "{"); status != 400 {
		t.Errorf("a body that is no request: %d", status)
	}

	r, err = NewRouter(RouterOptions{Workers: []string{a, b}, Policy: "consistent_hashing"})
	if err != nil {
		t.Fatal(err)
	}
	h2 := httptest.NewServer(r.Handler())
	defer h2.Close()
	text := strings.Repeat(" other", 640)
	for _, key := range []string{"s1", "s2", "s3", "s4", "s5", "s6"} {
		var cached int64
		for i := range 2 {
			q, _ := http.NewRequest("POST", h2.URL+"/v1/chat/completions", strings.NewReader(chatBody(text+" "+key, 2, "")))
			q.Header.Set("X-SMG-Routing-Key", key)
			res, err := http.DefaultClient.Do(q)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(res.Body)
			res.Body.Close()
			if err != nil {
				t.Fatal(err)
			}
			if i == 1 {
				cached = parse(t, string(body)).Usage.Details.Cached
			}
		}
		if cached < 576 {
			t.Errorf("session %s: %d cached tokens the second time", key, cached)
		}
	}
	for _, bad := range []RouterOptions{
		{}, {Workers: []string{a}, Decode: []string{b}, Policy: "round_robin"}, {Prefill: []PrefillPeer{{a, 1}}, Policy: "round_robin"},
		{Workers: []string{"x"}, Policy: "round_robin"}, {Workers: []string{a}, Policy: "best"}, {Prefill: []PrefillPeer{{a, 0}}, Decode: []string{b}, Policy: "round_robin"},
	} {
		if _, err := NewRouter(bad); err == nil {
			t.Errorf("%+v was taken", bad)
		}
	}
}

// TestRouterMetricsSaySimulated: what the router counts is marked as its answers are.
func TestRouterMetricsSaySimulated(t *testing.T) {
	r, err := NewRouter(RouterOptions{Workers: []string{"http://127.0.0.1:1"}, Policy: "round_robin"})
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	r.Metrics().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if m := w.Header().Get(SimulatedHeader); m == "" || !ParseMark(m).Simulated {
		t.Errorf("header %q", m)
	}
}
