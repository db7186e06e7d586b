package simhttp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/weirbench/weir/internal/sim"
)

// RouterOptions say what stands behind a router.
type RouterOptions struct {
	Workers []string      // base URLs of unified servers
	Prefill []PrefillPeer // of a disaggregated cluster, with Decode
	Decode  []string      // base URLs of decode servers, which take turns
	Policy  string        // round_robin, cache_aware or consistent_hashing
	Client  *http.Client  // nil for one without a limit on connections
}

// PrefillPeer is a prefill server and its bootstrap port.
type PrefillPeer struct {
	URL  string
	Port int
}

// Router forwards requests as SGLang's router does: to one worker, or, disaggregated, the same
// request to a prefill and a decode server with a room in which they meet; the answer is the
// decode server's.
type Router struct {
	o       RouterOptions
	mu      sync.Mutex
	policy  *sim.Router
	turn    int
	sent    []int64 // requests forwarded to each worker
	active  []int64 // requests under way at each decode server
	failed  int64
	workers []string
	mux     *http.ServeMux
}

// NewRouter makes a router.
func NewRouter(o RouterOptions) (*Router, error) {
	if len(o.Workers) > 0 == (len(o.Prefill)+len(o.Decode) > 0) {
		return nil, errors.New("a router needs workers, or prefill and decode servers")
	}
	if len(o.Prefill) > 0 != (len(o.Decode) > 0) {
		return nil, errors.New("a disaggregated router needs at least one prefill and one decode server")
	}
	r := &Router{o: o, workers: slices.Clone(o.Workers)}
	for _, p := range o.Prefill {
		if p.Port < 1 || p.Port > 65535 {
			return nil, fmt.Errorf("prefill server %s has bootstrap port %d: it lies between 1 and 65535", p.URL, p.Port)
		}
		r.workers = append(r.workers, p.URL)
	}
	for _, u := range slices.Concat(r.workers, o.Decode) {
		if p, err := url.Parse(u); err != nil || p.Scheme != "http" || p.Host == "" {
			return nil, fmt.Errorf("worker %q is not a base URL such as http://127.0.0.1:30001", u)
		}
	}
	var err error
	if r.policy, err = sim.NewRouter(o.Policy, r.workers); err != nil {
		return nil, err
	}
	r.sent, r.active = make([]int64, len(r.workers)), make([]int64, len(o.Decode))
	if r.o.Client == nil {
		r.o.Client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1024, IdleConnTimeout: 90 * time.Second}}
	}
	m := http.NewServeMux()
	for _, p := range []string{"/v1/chat/completions", "/v1/completions", "/generate"} {
		m.HandleFunc("POST "+p, r.forward)
	}
	m.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(200) })
	m.HandleFunc("GET /liveness", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(200) })
	m.HandleFunc("GET /readiness", r.ready)
	m.HandleFunc("GET /v1/models", r.first)
	m.HandleFunc("GET /get_server_info", r.first)
	m.HandleFunc("GET /workers", r.list)
	m.HandleFunc("GET "+StatsPath, r.weirStats)
	m.HandleFunc("POST /flush_cache", r.flush)
	r.mux = m
	return r, nil
}

// Handler is the router's HTTP handler.
func (r *Router) Handler() http.Handler { return r.mux }

// Metrics is the handler of the separate metrics address; the serving address has none, as
// SGLang's.
func (r *Router) Metrics() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		r.mu.Lock()
		defer r.mu.Unlock()
		var t text
		t.family("smg_worker_pool_size", "gauge", "Workers.")
		t.sample("smg_worker_pool_size", `worker_type="regular"`, float64(len(r.workers)+len(r.o.Decode)))
		t.family("smg_worker_requests_active", "gauge", "Requests under way on a worker.")
		loads := r.policy.Loads()
		for i, u := range r.workers {
			t.sample("smg_worker_requests_active", fmt.Sprintf("worker=%q", u), float64(loads[i]))
		}
		for i, u := range r.o.Decode {
			t.sample("smg_worker_requests_active", fmt.Sprintf("worker=%q", u), float64(r.active[i]))
		}
		t.family("smg_worker_selection_total", "counter", "Requests sent to a worker.")
		all := int64(0)
		for i, u := range r.workers {
			t.sample("smg_worker_selection_total", fmt.Sprintf("worker=%q,policy=%q", u, r.o.Policy), float64(r.sent[i]))
			all += r.sent[i]
		}
		t.family("smg_router_requests_total", "counter", "Requests.")
		t.sample("smg_router_requests_total", `router_type="http"`, float64(all))
		t.family("smg_router_request_errors_total", "counter", "Requests that failed.")
		t.sample("smg_router_request_errors_total", `router_type="http"`, float64(r.failed))
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		w.Header().Set(SimulatedHeader, "router of simulated engines")
		io.WriteString(w, t.b.String())
	})
}

// Serve answers on a listener until ctx ends.
func (r *Router) Serve(ctx context.Context, l net.Listener) error {
	h := &http.Server{Handler: r.mux, ReadHeaderTimeout: time.Minute, BaseContext: func(net.Listener) context.Context { return ctx }}
	context.AfterFunc(ctx, func() { h.Close() })
	if err := h.Serve(l); ctx.Err() == nil || !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func (r *Router) fail(w http.ResponseWriter, status int, message string) {
	r.mu.Lock()
	r.failed++
	r.mu.Unlock()
	writeJSON(w, status, map[string]any{"error": map[string]any{"message": message, "type": "RouterError", "code": status}})
}

// pick chooses the worker of a request and, disaggregated, the decode server, else -1.
func (r *Router) pick(session uint64, pages []uint64) (worker, decode int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	worker, decode = r.policy.Pick(session, pages), -1
	r.sent[worker]++
	if n := len(r.o.Decode); n > 0 {
		decode = r.turn % n
		r.active[decode]++
		r.turn++
	}
	return worker, decode
}

func (r *Router) forward(w http.ResponseWriter, q *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, q.Body, maxBody))
	if err != nil {
		r.fail(w, 400, err.Error())
		return
	}
	var parsed request
	if err := json.Unmarshal(body, &parsed); err != nil {
		r.fail(w, 400, "the body is not a request: "+err.Error())
		return
	}
	p := pager{page: 64}
	switch q.URL.Path {
	case "/v1/chat/completions":
		err = parsed.chatPrompt(&p, 0)
	case "/v1/completions":
		err = parsed.rawPrompt(&p)
	default:
		err = parsed.generatePrompt(&p)
	}
	if err != nil {
		r.fail(w, 400, err.Error())
		return
	}
	first := p.acc
	if len(p.pages) > 0 {
		first = p.pages[0]
	}
	worker, decode := r.pick(sessionOf(q, first), p.pages)
	defer func() {
		r.mu.Lock()
		r.policy.Done(worker)
		if decode >= 0 {
			r.active[decode]--
		}
		r.mu.Unlock()
	}()
	ctx, stop := context.WithCancel(q.Context())
	defer stop()
	answer := r.workers[worker]
	if decode >= 0 {
		peer := r.o.Prefill[worker]
		if body, err = withRoom(body, peer); err != nil {
			r.fail(w, 400, err.Error())
			return
		}
		answer = r.o.Decode[decode]
		prefill := make(chan error, 1)
		go func() { prefill <- r.prefill(ctx, q, peer.URL, body) }()
		go func() { // a prefill that fails ends the decode too
			if err := <-prefill; err != nil {
				stop()
			}
		}()
	}
	res, err := r.send(ctx, q, answer, body)
	if err != nil {
		if q.Context().Err() == nil {
			r.fail(w, 502, err.Error())
		}
		return
	}
	defer res.Body.Close()
	maps.Copy(w.Header(), res.Header)
	w.WriteHeader(res.StatusCode)
	c := http.NewResponseController(w)
	buf := make([]byte, 32<<10)
	for {
		n, err := res.Body.Read(buf)
		if n > 0 {
			if _, err := w.Write(buf[:n]); err != nil {
				return
			}
			c.Flush()
		}
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil { // the worker broke off: so does the router
			panic(http.ErrAbortHandler)
		}
	}
}

// prefill sends the request to the prefill server, whose answer nobody needs.
func (r *Router) prefill(ctx context.Context, q *http.Request, base string, body []byte) error {
	res, err := r.send(ctx, q, base, body)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		return err
	}
	if res.StatusCode != 200 {
		return fmt.Errorf("prefill server: HTTP %d", res.StatusCode)
	}
	return nil
}

func (r *Router) send(ctx context.Context, q *http.Request, base string, body []byte) (*http.Response, error) {
	out, err := http.NewRequestWithContext(ctx, "POST", base+q.URL.Path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	for k, v := range q.Header {
		if k != "Connection" && k != "Content-Length" && k != "Accept-Encoding" {
			out.Header[k] = v
		}
	}
	return r.o.Client.Do(out)
}

// withRoom adds to a request where its two halves meet.
func withRoom(body []byte, p PrefillPeer) ([]byte, error) {
	var m map[string]json.RawMessage
	if err := json.Unmarshal(body, &m); err != nil {
		return nil, err
	}
	u, err := url.Parse(p.URL)
	if err != nil {
		return nil, err
	}
	host, _ := json.Marshal(u.Hostname())
	m["bootstrap_host"] = host
	m["bootstrap_port"] = json.RawMessage(strconv.Itoa(p.Port))
	m["bootstrap_room"] = json.RawMessage(strconv.FormatInt(rand.Int64(), 10))
	return json.Marshal(m)
}

// ready answers 200 when every worker is healthy.
func (r *Router) ready(w http.ResponseWriter, q *http.Request) {
	for _, u := range slices.Concat(r.workers, r.o.Decode) {
		ctx, stop := context.WithTimeout(q.Context(), 5*time.Second)
		out, err := http.NewRequestWithContext(ctx, "GET", u+"/health", nil)
		var res *http.Response
		if err == nil {
			res, err = r.o.Client.Do(out)
		}
		stop()
		if err == nil {
			res.Body.Close()
			if res.StatusCode == 200 {
				continue
			}
			err = fmt.Errorf("HTTP %d", res.StatusCode)
		}
		writeJSON(w, 503, map[string]any{"error": map[string]any{"message": fmt.Sprintf("%s is not healthy: %v", u, err), "type": "RouterError", "code": 503}})
		return
	}
	writeJSON(w, 200, map[string]any{"status": "ready", "total_workers": len(r.workers) + len(r.o.Decode)})
}

// first asks the first worker.
func (r *Router) first(w http.ResponseWriter, q *http.Request) {
	out, err := http.NewRequestWithContext(q.Context(), "GET", r.workers[0]+q.URL.Path, nil)
	if err != nil {
		r.fail(w, 500, err.Error())
		return
	}
	res, err := r.o.Client.Do(out)
	if err != nil {
		r.fail(w, 502, err.Error())
		return
	}
	defer res.Body.Close()
	maps.Copy(w.Header(), res.Header)
	w.WriteHeader(res.StatusCode)
	io.Copy(w, res.Body)
}

func (r *Router) list(w http.ResponseWriter, _ *http.Request) {
	var all []map[string]any
	kind := "regular"
	if len(r.o.Decode) > 0 {
		kind = "prefill"
	}
	for _, u := range r.workers {
		all = append(all, map[string]any{"url": u, "worker_type": kind})
	}
	for _, u := range r.o.Decode {
		all = append(all, map[string]any{"url": u, "worker_type": "decode"})
	}
	writeJSON(w, 200, map[string]any{"workers": all, "total": len(all), "stats": map[string]any{
		"prefill_count": len(r.o.Prefill), "decode_count": len(r.o.Decode), "regular_count": len(r.o.Workers),
	}})
}

// flush empties the cache of every worker; it fails when one does.
func (r *Router) flush(w http.ResponseWriter, q *http.Request) {
	for _, u := range slices.Concat(r.workers, r.o.Decode) {
		out, err := http.NewRequestWithContext(q.Context(), "POST", u+"/flush_cache", nil)
		if err == nil {
			var res *http.Response
			if res, err = r.o.Client.Do(out); err == nil {
				res.Body.Close()
				if res.StatusCode != 200 {
					err = fmt.Errorf("HTTP %d", res.StatusCode)
				}
			}
		}
		if err != nil {
			r.fail(w, 400, fmt.Sprintf("%s: %v", u, err))
			return
		}
	}
	io.WriteString(w, "Cache flushed on all workers.\n")
}
