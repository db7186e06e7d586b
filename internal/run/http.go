package run

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/weirbench/weir/internal/client"
	"github.com/weirbench/weir/internal/engine/told"
	"github.com/weirbench/weir/internal/prompt"
	"github.com/weirbench/weir/internal/record"
	"github.com/weirbench/weir/internal/replay"
	"github.com/weirbench/weir/internal/scrape"
	"github.com/weirbench/weir/internal/sim/simhttp"
)

// HTTP measures a job against servers that are running already.
type HTTP struct {
	// Client says where and how to send; its Bodies, Clock, Model and InFlight are set here.
	Client client.Config
	// Prompt says how bodies are written; its Template is learned from the server unless
	// NoProbe is set.
	Prompt  prompt.Options
	Words   *prompt.Words // nil takes the list of words that are one token in common tokenizers
	NoProbe bool
	// Counter, when set, counts what every countEvery-th answer said, to check the server's count.
	Counter *prompt.Counter
	// Scrape says which metrics endpoints are sampled into the bundle while the job runs; its
	// Now and Write are set here. Nil scrapes nothing.
	Scrape *scrape.Options
	// ObservedGPUs is the number of GPUs that the server was seen to use; Unknown where
	// nobody looked.
	ObservedGPUs int64
	// Watchdog says when a run stands still.
	Watchdog replay.Watchdog
	// Calibrator measures the client's own error before the run, or knows it from before; nil
	// leaves the bound to what the run measures of itself.
	Calibrator *client.Calibrator
	// SaltKey, when set, makes the salts of this run others than those of a run with another key
	// and the same seed, so that their prompts share nothing; a run without salts stays without.
	SaltKey string
	// GPU says how devices are read; nil reads none. Watch are commands that read them where the
	// engines run; nil reads those of this machine.
	GPU   *GPUs
	Watch []Watch
	// Told is what the servers are known to have told of themselves; nil asks their info endpoints.
	Told []record.Fact
	// Edit, when set, adds to the meta what started the servers; it is called before every write.
	Edit func(*record.Meta)
}

// countEvery is how many answers there are to one whose tokens are counted here too.
const countEvery = 8

// Name is "http".
func (*HTTP) Name() string { return "http" }

// Measure implements Executor. When ctx ends the run is cut and its records are kept: the meta
// then says that it was cancelled, which makes the result invalid.
func (h *HTTP) Measure(ctx context.Context, j *Job, w *record.BundleWriter) error {
	for _, u := range h.Client.URLs {
		if p, err := url.Parse(u); err != nil || p.Scheme != "http" && p.Scheme != "https" || p.Host == "" {
			return failf("config", "base URL %q: write it as http://host:port", u)
		}
	}
	if err := h.Fits(j); err != nil {
		return refuse(err)
	}
	s, duration, err := j.scheduler()
	if err != nil {
		return failf("config", "%v", err)
	}
	m, err := j.meta()
	if err != nil {
		return err
	}
	m.ObservedGPUs = h.ObservedGPUs
	if err := h.writeMeta(w, m); err != nil {
		return err
	}
	words := h.Words
	if words == nil {
		words = prompt.Default()
	}
	po := h.Prompt
	if j.Load == nil {
		po.Salt = j.Replay.Salt
	}
	server, err := h.identify(ctx)
	if err != nil {
		return err
	}
	server.tell(m)
	m.Engine = record.Engine{Name: server.owner, Image: j.Point.Image, Facts: map[string]string{}}
	if m.Told = h.Told; m.Told == nil {
		m.Told = h.listen(ctx)
	}
	m.Engine.Version = told.VersionOf(m.Told)
	if !h.NoProbe {
		l, err := h.learn(ctx, words, po, j.seed(), &server)
		if err != nil {
			return err
		}
		server.tell(m)
		po.Template = l.Template
		po.Alternate = po.Alternate || l.Alternate
		raw, err := json.Marshal(l)
		if err != nil {
			return err
		}
		m.Engine.Facts["template"] = string(raw)
	}
	b, err := prompt.New(words, po)
	if err != nil {
		return failf("config", "%v", err)
	}
	endpoint, err := prompt.ParseEndpoint(h.Client.Endpoint.String())
	if err != nil {
		return failf("config", "%v", err)
	}
	var cal *client.Calibration
	if h.Calibrator != nil {
		cal, _, err = h.Calibrator.Run(ctx, j.calibration(&h.Client))
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if cal == nil && err != nil {
			return failf("client", "%v", err)
		}
	}
	s.Watch(h.Watchdog)
	clock := replay.NewClock()
	cfg := h.Client
	cfg.Clock = clock
	cfg.Chunks = cfg.Chunks || j.Chunks
	cfg.Model = strings.Join(po.Models, ",")
	inFlight := j.InFlight()
	cfg.InFlight = inFlight.InFlight()
	cfg.RunID = j.Point.ID()
	if h.Counter != nil {
		cfg.CountEvery = countEvery
		cfg.Count = func(content, reasoning []byte) int64 { return h.Counter.Count(content) + h.Counter.Count(reasoning) }
	}
	cfg.Bodies = client.BodiesFunc(func(q *replay.Request) (client.Body, error) {
		body, err := b.Body(endpoint, prompt.Request{Trace: q.Trace, Stream: q.Stream, Turn: q.Turn, Salt: h.salt(q.Salt), MaxOut: q.MaxOut})
		if err != nil {
			return nil, err
		}
		return body, nil
	})
	t, err := client.New(cfg)
	if err != nil {
		return failf("config", "%v", err)
	}
	defer t.Close()

	m.EpochWallNs = clock.Epoch().UnixNano()
	if err := h.writeMeta(w, m); err != nil { // so that a killed run has its epoch
		return err
	}
	if err := w.Live(); err != nil {
		return err
	}
	samples := &sampleWriter{w: w}
	readers, err := h.devices(m.Simulated, clock, samples.write)
	if err != nil {
		return err
	}
	sc, err := h.scraper(ctx, clock, samples.write)
	if err != nil {
		return err
	}
	for _, r := range readers {
		r.Start()
	}
	var writeErr error
	const sayEvery = int64(200 * time.Millisecond)
	lastSay := clock.Now() - sayEvery // the first record is told at once
	meter, turns := j.meter(), j.recorded()
	var seen tokens
	replaying, giveUp := context.WithCancel(ctx)
	defer giveUp()
	runErr := replay.RunReal(replaying, s, &marking{Target: t, scraper: sc, clock: clock, passes: j.Load != nil && j.Load.Passes > 1}, clock, func(r *record.Request) {
		meter.Add(r)
		turns.add(r)
		seen.add(r)
		if err := w.WriteRequest(r); err != nil && writeErr == nil {
			writeErr = err
			giveUp()
		}
		if now := clock.Now(); j.Progress != nil && now-lastSay > sayEvery {
			lastSay = now
			j.Progress(seen.into(progress(s, now, duration)))
		}
	})
	if err := errors.Join(observe(ctx, sc, m), stopReaders(ctx, readers)); err != nil && writeErr == nil {
		writeErr = err
	}
	if writeErr != nil {
		return writeErr
	}
	var stall *replay.Stall
	if errors.As(runErr, &stall) {
		m.Stalled = stall.Error()
		if err := writeStall(w, stall); err != nil {
			return err
		}
	} else if runErr != nil && ctx.Err() == nil {
		return failf("client", "%v", runErr)
	}
	m.Client = t.Self(cal)
	finish(m, s, duration)
	j.lru(m, meter)
	turns.into(m)
	if ctx.Err() != nil {
		m.Cancelled = "interrupted"
	}
	return h.writeMeta(w, m)
}

// salt is a tree's salt as it is sent.
func (h *HTTP) salt(tree string) string {
	if h.SaltKey == "" || tree == "" {
		return tree
	}
	return prompt.Salt(0, h.SaltKey+tree, 0, 0)
}

func (h *HTTP) writeMeta(w *record.BundleWriter, m *record.Meta) error {
	if h.Edit != nil {
		h.Edit(m)
	}
	return w.WriteMeta(m)
}

// writeStall keeps what every request in flight waited for when the run stood still, and what every
// goroutine did.
func writeStall(w *record.BundleWriter, stall *replay.Stall) error {
	f, err := w.CreateLog("stall.txt")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "%v\n\n%s\n%s", stall, stall.Connections, stall.Goroutines)
	return errors.Join(err, f.Close())
}

// A server is what the servers of a run say of themselves.
type server struct {
	owner string
	sim   simhttp.Stats
}

// tell writes into the meta what answers.
func (s *server) tell(m *record.Meta) {
	if s.sim.Simulated {
		m.Simulated, m.SimError, m.SimSpeed = true, s.sim.Error, s.sim.Speed
	}
}

// identify asks every server for its models and whether it is a simulated engine. A server
// without /v1/models is not refused: the run itself will show whether it answers.
func (h *HTTP) identify(ctx context.Context) (server, error) {
	var s server
	seen := make([]simhttp.Stats, len(h.Client.URLs))
	var first answer
	var firstErr error
	var wg sync.WaitGroup
	for i, u := range h.Client.URLs {
		wg.Go(func() {
			models, err := h.call(ctx, u, http.MethodGet, "/v1/models", nil)
			if i == 0 {
				first, firstErr = models, err
			}
			if err != nil {
				return
			}
			seen[i] = models.sim
			if a, err := h.call(ctx, u, http.MethodGet, simhttp.StatsPath, nil); err == nil && a.status == http.StatusOK {
				if st := simhttp.ParseStats(a.raw); st.Simulated {
					seen[i] = st
				}
			}
		})
	}
	wg.Wait()
	if ctx.Err() != nil {
		return s, ctx.Err()
	}
	if firstErr != nil {
		return s, failf("start", "no server answers at %s: %s", h.Client.URLs[0], noAnswer(firstErr))
	}
	for _, st := range seen {
		st.Ranks, st.Workers = nil, nil
		s.sim = s.sim.Join(st)
	}
	var models struct {
		Data []struct {
			OwnedBy string `json:"owned_by"`
		} `json:"data"`
	}
	if first.status == http.StatusOK && json.Unmarshal(first.raw, &models) == nil {
		for _, d := range models.Data {
			s.owner = d.OwnedBy
		}
	}
	return s, nil
}

// learn sends the probes that tell what the server's chat template adds. A server that does not
// answer them leaves the template unknown, which shows as drift in the result.
func (h *HTTP) learn(ctx context.Context, words *prompt.Words, po prompt.Options, seed uint64, s *server) (prompt.Learned, error) {
	po.Whole = true
	b, err := prompt.New(words, po)
	if err != nil {
		return prompt.Learned{}, failf("config", "%v", err)
	}
	endpoint, err := prompt.ParseEndpoint(h.Client.Endpoint.String())
	if err != nil {
		return prompt.Learned{}, failf("config", "%v", err)
	}
	probes := b.Probes(endpoint)
	// They go out together: one after the other they would take as many times to first token.
	got := make([]probed, len(probes))
	var wg sync.WaitGroup
	for i := range got {
		wg.Go(func() { got[i] = h.ask(ctx, b, endpoint, probes[i], seed) })
	}
	wg.Wait()
	if ctx.Err() != nil {
		return prompt.Learned{}, ctx.Err()
	}
	seen := make([]prompt.Observation, 0, len(probes))
	for i, a := range got {
		switch {
		case a.bad != nil:
			return prompt.Learned{}, a.bad
		case i == 0 && a.status == http.StatusServiceUnavailable:
			return prompt.Learned{}, failf("start", "the server at %s answers 503 to the first probe: it is not ready; wait until it is (%s)",
				h.Client.URLs[0], excerpt(a.raw))
		case i == 0 && a.status == http.StatusNotFound:
			path := h.Client.Path
			if path == "" {
				path = endpoint.Path()
			}
			return prompt.Learned{}, failf("config", "the server answers 404 to the first probe, POST %s%s: nothing is served there, or no such model (%s); "+
				"give the URL without /v1 and without the endpoint's path, and check --endpoint and --model", strings.TrimSuffix(h.Client.URLs[0], "/"), path, excerpt(a.raw))
		}
		s.sim = s.sim.Join(a.sim)
		seen = append(seen, prompt.Observation{Probe: probes[i], Tokens: a.tokens})
		if i == 0 && a.tokens < 0 {
			break // a server that does not count the plainest probe counts none
		}
	}
	l, err := prompt.Learn(words, seen)
	if err != nil {
		return l, failf("config", "%v", err)
	}
	return l, nil
}

// probed is what a server answered to a probe; tokens is -1 when it did not count them.
type probed struct {
	answer
	tokens int64
	bad    error // the probe could not be made
}

func (h *HTTP) ask(ctx context.Context, b *prompt.Builder, e prompt.Endpoint, p prompt.Probe, seed uint64) probed {
	body, err := b.Probe(e, p, seed)
	if err != nil {
		return probed{bad: failf("config", "%v", err)}
	}
	path := h.Client.Path
	if path == "" {
		path = e.Path()
	}
	a := probed{tokens: -1}
	if a.answer, err = h.call(ctx, h.Client.URLs[0], http.MethodPost, path, body); err != nil {
		a.status = 0
	} else if a.status == http.StatusOK {
		a.tokens = promptTokens(a.raw)
	}
	return a
}

// noAnswer says why a server did not answer, and what to change.
func noAnswer(err error) string {
	var cert *tls.CertificateVerificationError
	switch {
	case errors.As(err, &cert):
		return fmt.Sprintf("%v; name the certificate's authority with --ca-file, the server as its certificate does with --url, or give --insecure", err)
	case errors.Is(err, context.DeadlineExceeded):
		return "nothing came back in time; check --url and --protocol (https beside a server without TLS ends so)"
	}
	return fmt.Sprintf("%v; start it, or check --url and --protocol", err)
}

// excerpt is the beginning of an answer on one line.
func excerpt(raw []byte) string {
	s := strings.Join(strings.Fields(string(raw[:min(len(raw), 200)])), " ")
	return strings.ToValidUTF8(s, "?")
}

// promptTokens reads usage.prompt_tokens or its synonyms; -1 when there is none.
func promptTokens(raw []byte) int64 {
	var v struct {
		Usage struct {
			Prompt *int64 `json:"prompt_tokens"`
			Input  *int64 `json:"input_tokens"`
		} `json:"usage"`
	}
	if json.Unmarshal(raw, &v) != nil {
		return -1
	}
	if v.Usage.Prompt != nil {
		return *v.Usage.Prompt
	}
	if v.Usage.Input != nil {
		return *v.Usage.Input
	}
	return -1
}

// probeTimeout bounds one request before the run, unless the client's own limit is shorter.
const probeTimeout = 60 * time.Second

// An answer is that to one small request.
type answer struct {
	status int
	raw    []byte
	sim    simhttp.Stats // as its header says
}

// call sends one small request to a server.
func (h *HTTP) call(ctx context.Context, base, method, path string, body *prompt.Body) (answer, error) {
	var a answer
	limit := probeTimeout
	if d := h.Client.Timeouts.Headers; d > 0 {
		limit = min(limit, d)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var sent client.Body
	if body != nil {
		sent = body
	}
	raw, status, header, err := h.Client.CallAt(ctx, base, method, path, sent)
	a = answer{status: status, raw: raw}
	if mark := header.Get(simhttp.SimulatedHeader); mark != "" {
		a.sim = simhttp.ParseMark(mark)
	}
	return a, err
}
