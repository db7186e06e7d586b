package simhttp

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/weirbench/weir/internal/record"
	"github.com/weirbench/weir/internal/sim"
)

// maxBody bounds the body of a request, bytes: a prompt of a million tokens and more.
const maxBody = 64 << 20

// dialect is how an endpoint writes its answers.
type dialect uint8

const (
	chatDialect dialect = iota
	textDialect
	generateDialect
)

func (s *Server) chat(w http.ResponseWriter, r *http.Request) {
	s.answer(w, r, chatDialect, func(q *request, p *pager) error { return q.chatPrompt(p, s.o.Template) })
}

func (s *Server) completions(w http.ResponseWriter, r *http.Request) {
	s.answer(w, r, textDialect, (*request).rawPrompt)
}

func (s *Server) generate(w http.ResponseWriter, r *http.Request) {
	s.answer(w, r, generateDialect, (*request).generatePrompt)
}

// an answering is one request that is being answered.
type answering struct {
	s           *Server
	w           http.ResponseWriter
	r           *http.Request
	d           dialect
	q           *request
	strike      struck
	id          string
	seed        uint64
	prompt      int64
	want        int64
	asked       bool // the number of tokens was asked for
	begin       time.Time
	first       time.Time
	out         int64
	hits        record.Hits
	mu          sync.Mutex
	prefillHits *record.Hits // of a decode server: what the prefill server found
	outcome     grantResult  // of a prefill server: what the decode server hears
	thought     int64        // tokens of reasoning at the start
}

func (s *Server) answer(w http.ResponseWriter, r *http.Request, d dialect, prompt func(*request, *pager) error) {
	if s.down(w) {
		return
	}
	a := &answering{s: s, w: w, r: r, d: d, q: &request{}, strike: s.faults.strike(), begin: time.Now()}
	if a.struckBefore() {
		return
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(a.q); err != nil {
		s.fail(w, 400, "BadRequestError", "the body is not a request: "+err.Error())
		return
	}
	p := pager{page: s.page()}
	if err := prompt(a.q, &p); err != nil {
		s.fail(w, 400, "BadRequestError", err.Error())
		return
	}
	if a.q.N != nil && *a.q.N != 1 {
		s.fail(w, 400, "BadRequestError", fmt.Sprintf("n is %d: only one answer is generated", *a.q.N))
		return
	}
	if s.o.Engine == "vllm" && a.q.Model != s.o.Model {
		s.fail(w, 404, "NotFoundError", fmt.Sprintf("The model `%s` does not exist.", a.q.Model))
		return
	}
	if err := s.checkRole(a.q); err != nil {
		s.fail(w, 400, "BadRequestError", err.Error())
		return
	}
	a.prompt = p.n
	a.want, a.asked = a.q.want(s.o.DefaultOut)
	a.outcome.Error = "the prefill server gave the request up"
	a.thought = a.want * s.o.ReasoningPercent / 100
	a.seed = fold(fold(p.acc, uint64(p.n)), uint64(len(p.pages)))
	for _, k := range p.pages {
		a.seed = fold(a.seed, k)
	}
	call, failure := s.live.submit(sim.Task{
		Prompt: p.n, MaxOut: a.want, Pages: p.pages, Output: outputPages(p, a.seed), Session: sessionOf(r, a.seed),
	})
	if failure != nil {
		a.refused(failure)
		return
	}
	s.metrics.session(r)
	prefix := "chatcmpl-"
	if d != chatDialect {
		prefix = "cmpl-"
	}
	if s.c.Role == sim.RolePrefill {
		s.enter(*a.q.BootstrapRoom, call.id)
		defer func() { s.leave(*a.q.BootstrapRoom, a.outcome) }()
	}
	a.id = prefix + strconv.FormatUint(call.id, 10)
	a.serve(call)
}

// checkRole refuses a request that lacks what a disaggregated server needs.
func (s *Server) checkRole(q *request) error {
	switch {
	case s.c.Role == sim.RoleUnified:
		return nil
	case q.BootstrapRoom == nil:
		return fmt.Errorf("this is a %s server: a request needs bootstrap_room, as a router adds it", s.c.Role)
	case s.c.Role == sim.RoleDecode && (q.BootstrapHost == "" || q.BootstrapPort < 1 || q.BootstrapPort > 65535):
		return errors.New("this is a decode server: a request needs bootstrap_host and bootstrap_port, as a router adds them")
	}
	return nil
}

// sessionOf is what keeps a session on one rank: a routing key, else the prompt itself.
func sessionOf(r *http.Request, seed uint64) uint64 {
	if h, ok := routingKey(r); ok {
		return h
	}
	return seed
}

// routingKey is the session that a request names, if it does.
func routingKey(r *http.Request) (uint64, bool) {
	for _, h := range []string{"X-SMG-Routing-Key", "X-Session-ID", "X-Correlation-ID"} {
		if v := r.Header.Get(h); v != "" {
			return tokenHash(v), true
		}
	}
	return 0, false
}

func (a *answering) refused(f *record.Failure) {
	a.s.metrics.aborted()
	kind := "BadRequestError"
	if f.Status >= 500 {
		kind = "InternalServerError"
	}
	a.s.fail(a.w, f.Status, kind, f.Detail)
}

// struckBefore does what faults do before anything is computed.
func (a *answering) struckBefore() bool {
	switch {
	case a.strike.has("crash") && a.strike["crash"].For == 0:
		a.s.crash("on a request")
		return true
	case a.strike.has("http-error"):
		status := a.strike["http-error"].Status
		if status == 0 {
			status = 500
		}
		a.s.fail(a.w, status, "InternalServerError", "a fault that was asked for")
	case a.strike.has("context-overflow"):
		a.s.fail(a.w, 400, "BadRequestError", fmt.Sprintf("The prompt is longer than the model's maximum context length of %d tokens.", a.s.contextLen()))
	case a.strike.has("reset-before"):
		a.reset()
	case a.strike.has("no-headers"):
		f := a.strike["no-headers"]
		a.hold(f)
		if f.over() {
			return false
		}
		a.reset()
	default:
		return false
	}
	return true
}

// reset closes the connection with a TCP reset where there is one.
func (a *answering) reset() {
	conn, _, err := http.NewResponseController(a.w).Hijack()
	if err != nil { // HTTP/2, or hijacked before
		panic(http.ErrAbortHandler)
	}
	if l, ok := conn.(interface{ SetLinger(int) error }); ok {
		l.SetLinger(0)
	}
	conn.Close()
}

// hold lasts as long as a stall does, or until the client is gone.
func (a *answering) hold(f Fault) {
	t := time.NewTimer(f.wait())
	defer t.Stop()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for !f.over() {
		select {
		case <-a.r.Context().Done():
			return
		case <-t.C:
			return
		case <-look.C:
		}
	}
}

var errGone = errors.New("the client is gone")

// serve answers with what the core makes of the call.
func (a *answering) serve(c *call) {
	var out writer = &whole{a: a}
	if a.q.Stream {
		out = newStream(a)
	}
	if err := out.begin(); err != nil {
		a.s.live.cancel(c)
		return
	}
	for {
		select {
		case <-a.r.Context().Done():
			a.s.live.cancel(c)
			a.s.metrics.aborted()
			return
		case <-c.ready:
		}
		for _, e := range c.take() {
			a.hits = e.Hits
			a.mu.Lock()
			if a.prefillHits != nil {
				a.hits = *a.prefillHits
			}
			a.mu.Unlock()
			if e.Kind == sim.Granted {
				go a.fetch(c)
				continue
			}
			if e.Kind == sim.Prefilled {
				e.Tokens = 1
			}
			if e.Kind == sim.Tokens || e.Kind == sim.Prefilled {
				if err := a.tokens(out, e.Tokens); err != nil {
					a.s.live.cancel(c)
					return
				}
				continue
			}
			if e.Failure != nil {
				a.s.metrics.aborted()
				a.outcome.Error = e.Failure.Detail
				if a.s.isDead() {
					a.reset()
					return
				}
				out.fail(e.Failure)
				return
			}
			a.s.metrics.ended(a)
			a.outcome = grantResult{Hits: e.Hits}
			out.end()
			return
		}
	}
}

func (s *Server) isDead() bool {
	s.live.mu.Lock()
	defer s.live.mu.Unlock()
	return s.live.dead != nil
}

// tokens passes on n tokens that came out of a step.
func (a *answering) tokens(out writer, n int64) error {
	now := time.Now()
	if a.out == 0 {
		a.first = now
		a.s.metrics.firstToken(now.Sub(a.begin))
	}
	for _, f := range []string{"reset-after", "stall", "sse-error", "sse-bad-json", "sse-truncated", "sse-no-tokens"} {
		x, ok := a.strike[f]
		if !ok || a.out < x.After && f != "sse-no-tokens" {
			continue
		}
		delete(a.strike, f)
		switch f {
		case "reset-after":
			a.reset()
			return errGone
		case "stall":
			a.hold(x)
			if a.r.Context().Err() != nil {
				return errGone
			}
		default:
			if err := out.broken(f); err != nil {
				return err
			}
		}
	}
	from := a.out
	a.out += n
	return out.tokens(from, n)
}

// split returns how many of the tokens from..from+n are reasoning.
func (a *answering) reasoning(from, n int64) int64 { return max(0, min(n, a.thought-from)) }

func (a *answering) finish() string {
	if a.asked {
		return "length"
	}
	return "stop"
}

// usage is what the answer says about tokens, nil when a fault takes it away.
func (a *answering) usage() map[string]any {
	if a.strike.has("usage-missing") {
		return nil
	}
	prompt, cached := a.prompt, max(0, a.hits.Total)
	if a.strike.has("usage-wrong") {
		prompt += prompt/10 + 1
		cached = prompt + 1
	}
	u := map[string]any{
		"prompt_tokens": prompt, "completion_tokens": a.out, "total_tokens": prompt + a.out,
		"prompt_tokens_details": nil,
	}
	if !a.s.o.NoCacheReport {
		u["prompt_tokens_details"] = map[string]any{"cached_tokens": cached}
	}
	if a.s.o.Engine == "sglang" {
		u["reasoning_tokens"] = min(a.out, a.thought)
	} else if a.thought > 0 {
		u["completion_tokens_details"] = map[string]any{"reasoning_tokens": min(a.out, a.thought)}
	}
	return u
}

// A writer turns tokens into an answer.
type writer interface {
	begin() error
	tokens(from, n int64) error
	broken(fault string) error // does what a fault does in the middle of an answer
	fail(*record.Failure)
	end()
}

// whole is an answer in one piece.
type whole struct{ a *answering }

func (o *whole) begin() error              { return nil }
func (o *whole) tokens(int64, int64) error { return nil }

func (o *whole) broken(fault string) error {
	switch fault {
	case "sse-error":
		o.a.s.fail(o.a.w, 500, "InternalServerError", "a fault that was asked for")
		return errGone
	case "sse-bad-json", "sse-truncated":
		o.a.w.Header().Set("Content-Type", "application/json")
		o.a.w.Write([]byte(`{"id":"`))
		return errGone
	}
	return nil
}

func (o *whole) fail(f *record.Failure) {
	o.a.s.fail(o.a.w, max(f.Status, 500), "InternalServerError", f.Detail)
}

func (o *whole) end() {
	a := o.a
	if a.d == generateDialect {
		writeJSON(a.w, 200, map[string]any{"text": answer(a.seed, 0, a.out), "meta_info": a.meta()})
		return
	}
	thought := a.reasoning(0, a.out)
	choice := map[string]any{"index": 0, "logprobs": nil, "finish_reason": a.finish()}
	kind := "text_completion"
	if a.d == chatDialect {
		kind = "chat.completion"
		m := map[string]any{"role": "assistant", "content": answer(a.seed, thought, a.out-thought), "tool_calls": nil, "reasoning_content": nil}
		if thought > 0 {
			m["reasoning_content"] = answer(a.seed, 0, thought)
		}
		choice["message"] = m
	} else {
		choice["text"] = answer(a.seed, 0, a.out)
	}
	body := map[string]any{"id": a.id, "object": kind, "created": a.begin.Unix(), "model": a.s.o.Model, "choices": []any{choice}}
	if u := a.usage(); u != nil {
		body["usage"] = u
	}
	writeJSON(a.w, 200, body)
}

// meta is meta_info of SGLang's /generate.
func (a *answering) meta() map[string]any {
	return map[string]any{
		"id": a.id, "prompt_tokens": a.prompt, "completion_tokens": a.out, "cached_tokens": max(0, a.hits.Total),
		"cached_tokens_details": map[string]any{"device": max(0, a.hits.Device), "host": max(0, a.hits.Host)},
		"finish_reason":         map[string]any{"type": a.finish(), "length": a.out},
		"e2e_latency":           time.Since(a.begin).Seconds(),
	}
}
