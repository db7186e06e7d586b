// Package simhttp serves a simulated engine over HTTP, with the endpoints, answers, metric
// names and log lines of SGLang or vLLM, so that unmodified clients work against it: the same
// core as in virtual time, driven by the clock of the machine, at its pace or faster.
//
// What the server computes is simulated; what it tells (pool sizes, cached tokens, times) is
// what the simulated engine did. Answers are words without meaning, of the length asked for.
package simhttp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/weirbench/weir/internal/record"
	"github.com/weirbench/weir/internal/sim"
)

// Options say what is served.
type Options struct {
	Engine string     // "sglang" or "vllm": whose endpoints and metric names
	Config sim.Config // of the simulated engine; ignored when Fixed is set
	Fixed  *sim.Fixed // an engine of constant speed in its place
	// Model is the name that clients ask for; the facts' name when empty.
	Model string
	// Speed is engine time per time: at 10 a simulated second takes a tenth. 1 when 0.
	Speed float64
	// Template is the number of tokens that the chat template adds to a message and to the
	// opening of the answer.
	Template int64
	// DefaultOut is the number of tokens generated when a request does not say; 128 when 0.
	DefaultOut int64
	// ReasoningPercent is the share of an answer that comes as reasoning, 0 to 100.
	ReasoningPercent int64
	// NoCacheReport leaves cached tokens out of usage, as SGLang does without
	// --enable-cache-report.
	NoCacheReport bool
	// Version is what the version endpoints tell.
	Version string
	Faults  []Fault
	// NodeBytes is the host memory of the node that host pools must fit; 0 is not checked.
	NodeBytes int64
	Log       io.Writer // lines as the engine logs them; nil for none
	// Exit ends the process when the fault crash strikes; os.Exit when nil.
	Exit func(status int)
}

// Server is a simulated engine behind HTTP.
type Server struct {
	o       Options
	c       sim.Config // with defaults; zero for a Fixed engine
	live    *live
	faults  faults
	metrics metrics
	created int64
	mux     *http.ServeMux

	rooms             rooms // of a prefill server
	bootstrapListener net.Listener

	connMu sync.Mutex
	idle   map[net.Conn]*time.Timer
}

// New makes a server that is ready to serve.
func New(o Options) (*Server, error) {
	if o.Engine == "" {
		o.Engine = "sglang"
	}
	if o.Engine != "sglang" && o.Engine != "vllm" {
		return nil, fmt.Errorf("engine %q is unknown: use sglang or vllm", o.Engine)
	}
	if o.Speed == 0 {
		o.Speed = 1
	}
	if !(o.Speed > 0 && o.Speed <= 1e6) {
		return nil, fmt.Errorf("speed is %v: it must lie above 0 and at most at 1000000", o.Speed)
	}
	if o.DefaultOut == 0 {
		o.DefaultOut = 128
	}
	if o.DefaultOut < 0 || o.Template < 0 || o.ReasoningPercent < 0 || o.ReasoningPercent > 100 {
		return nil, errors.New("a number of tokens is negative, or a share is not between 0 and 100")
	}
	s := &Server{o: o, created: time.Now().Unix(), idle: map[net.Conn]*time.Timer{}, rooms: rooms{all: map[int64]*room{}}}
	var c core = o.Fixed
	if o.Fixed == nil {
		o.Config.Stream, o.Config.Engine = true, o.Engine
		simulated, err := sim.NewCore(o.Config)
		if err != nil {
			return nil, err
		}
		s.c, c = simulated.Config(), simulated
		if s.o.Model == "" {
			s.o.Model = s.c.ModelName
		}
	}
	if s.o.Model == "" {
		s.o.Model = "simulated"
	}
	s.live = newLive(c, o.Speed)
	s.metrics.init(s.o.Engine)
	if err := s.faults.replace(o.Faults); err != nil {
		return nil, err
	}
	s.applyFaults()
	s.routes()
	return s, nil
}

// page is the page size that prompts are cut into.
func (s *Server) page() int64 {
	if s.c.PageSize > 0 {
		return s.c.PageSize
	}
	return 64
}

func (s *Server) routes() {
	m := http.NewServeMux()
	s.mux = m
	m.HandleFunc("POST /v1/chat/completions", s.chat)
	m.HandleFunc("POST /v1/completions", s.completions)
	m.HandleFunc("GET /v1/models", s.models)
	m.HandleFunc("GET /health", s.health)
	m.HandleFunc("GET /metrics", s.serveMetrics)
	m.HandleFunc("POST /tokenize", s.tokenize)
	m.HandleFunc("GET /weir/faults", s.getFaults)
	m.HandleFunc("POST /weir/faults", s.postFaults)
	m.HandleFunc("GET "+StatsPath, s.weirStats)
	if s.o.Engine == "sglang" {
		s.sglangRoutes(m)
	} else {
		s.vllmRoutes(m)
	}
}

// Pools describes the KV pools of all ranks in a line, as the log of an engine does; empty for a
// server of constant times, which has none.
func (s *Server) Pools() string {
	if s.o.Fixed != nil {
		return ""
	}
	n := int64(s.c.Ranks())
	return fmt.Sprintf("simulated pools: device %d tokens, host %d tokens, of %d replicas", n*s.c.DeviceTokens, n*s.c.HostTokens, n)
}

// Handler is the server's HTTP handler. Every answer says in SimulatedHeader what it is.
func (s *Server) Handler() http.Handler {
	mark := s.stats().mark()
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set(SimulatedHeader, mark)
		s.mux.ServeHTTP(w, q)
	})
}

// Serve answers on a listener until ctx ends.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	h := &http.Server{
		Handler:           s.Handler(),
		ConnState:         s.connState,
		ReadHeaderTimeout: time.Minute,
		BaseContext:       func(net.Listener) context.Context { return ctx },
	}
	go s.live.run(ctx)
	go s.watchFaults(ctx)
	context.AfterFunc(ctx, func() { h.Close() })
	if s.bootstrapListener != nil {
		b := &http.Server{Handler: s.bootstrap(), ReadHeaderTimeout: time.Minute, BaseContext: h.BaseContext}
		context.AfterFunc(ctx, func() { b.Close() })
		go b.Serve(s.bootstrapListener)
	}
	err := h.Serve(l)
	if ctx.Err() != nil && errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// connState closes idle connections when the fault says so.
func (s *Server) connState(c net.Conn, state http.ConnState) {
	s.connMu.Lock()
	defer s.connMu.Unlock()
	if t := s.idle[c]; t != nil {
		t.Stop()
		delete(s.idle, c)
	}
	if state != http.StateIdle {
		return
	}
	if f, ok := s.faults.standing("idle-close"); ok {
		d := time.Duration(f.For)
		if d == 0 {
			d = time.Second
		}
		s.idle[c] = time.AfterFunc(d, func() { c.Close() })
	}
}

// watchFaults makes the engine die when that fault is due.
func (s *Server) watchFaults(ctx context.Context) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		f, ok := s.faults.standing("rank-dies")
		if ok && time.Since(f.since) >= time.Duration(f.For) {
			s.live.kill(&record.Failure{Class: record.FailStatus, Status: 503, Detail: "a rank died"})
		}
		if f, ok := s.faults.standing("crash"); ok && f.For > 0 && time.Since(f.since) >= time.Duration(f.For) {
			s.crash("after " + time.Duration(f.For).String())
		}
	}
}

// crash ends the process as an engine's own fault does.
func (s *Server) crash(when string) {
	s.logf("Scheduler hit an exception: RuntimeError: a crash that was asked for, %s", when)
	exit := s.o.Exit
	if exit == nil {
		exit = os.Exit
	}
	exit(1)
}

// applyFaults hands the core what strikes inside it.
func (s *Server) applyFaults() {
	c, ok := s.live.core.(*sim.Core)
	if !ok {
		return
	}
	_, off := s.faults.standing("no-load-back")
	s.live.mu.Lock()
	c.NoLoadBack(off)
	s.live.mu.Unlock()
}

func (s *Server) getFaults(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, 200, map[string]any{"faults": s.faults.list()})
}

// postFaults replaces the set of faults: {"faults": [{"kind": "stall", "after": 3}]}.
func (s *Server) postFaults(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Faults []Fault `json:"faults"`
	}
	dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&body); err != nil {
		s.fail(w, 400, "BadRequestError", err.Error())
		return
	}
	if err := s.faults.replace(body.Faults); err != nil {
		s.fail(w, 400, "BadRequestError", err.Error())
		return
	}
	s.applyFaults()
	s.getFaults(w, r)
}

func (s *Server) weirStats(w http.ResponseWriter, _ *http.Request) {
	st := s.stats()
	st.Ranks = s.live.stats()
	writeJSON(w, 200, st)
}

// down reports, and answers for, an engine that is not there yet or any more.
func (s *Server) down(w http.ResponseWriter) bool {
	if f, ok := s.faults.standing("slow-start"); ok && time.Since(f.since) < time.Duration(f.For) {
		s.fail(w, 503, "ServiceUnavailableError", "the engine is starting")
		return true
	}
	s.live.mu.Lock()
	dead := s.live.dead
	s.live.mu.Unlock()
	if dead != nil {
		s.fail(w, 503, "ServiceUnavailableError", dead.Detail)
		return true
	}
	return false
}

func (s *Server) health(w http.ResponseWriter, _ *http.Request) {
	if !s.down(w) {
		w.WriteHeader(200)
	}
}

func (s *Server) models(w http.ResponseWriter, _ *http.Request) {
	if s.down(w) {
		return
	}
	writeJSON(w, 200, map[string]any{"object": "list", "data": []any{map[string]any{
		"id": s.o.Model, "object": "model", "created": s.created, "owned_by": s.o.Engine,
		"root": s.o.Model, "parent": nil, "max_model_len": s.contextLen(),
	}}})
}

func (s *Server) contextLen() int64 {
	if s.o.Fixed != nil {
		return s.o.Fixed.ContextLen
	}
	return s.c.ContextLen
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		status, b = 500, []byte(`{}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(append(b, '\n'))
}

// fail answers with an error in the engine's form.
func (s *Server) fail(w http.ResponseWriter, status int, kind, message string) {
	writeJSON(w, status, s.errorBody(status, kind, message))
}

func (s *Server) errorBody(status int, kind, message string) map[string]any {
	e := map[string]any{"message": message, "type": kind, "param": nil, "code": status}
	if s.o.Engine == "sglang" {
		e["object"] = "error"
		return e
	}
	return map[string]any{"error": e}
}
