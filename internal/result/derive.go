package result

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/weirbench/weir/internal/record"
	"github.com/weirbench/weir/internal/spec"
)

const ns = 1e9

// DeriveDir derives the result of the bundle in dir and writes it there as result.json.
func DeriveDir(dir string) (*Result, error) {
	b, err := record.OpenBundle(dir)
	if err != nil {
		return nil, err
	}
	return write(b, dir)
}

// write derives the result of a bundle and writes it into dir.
func write(b *record.Bundle, dir string) (*Result, error) {
	r, err := Derive(b)
	if err != nil {
		return nil, err
	}
	raw, err := r.JSON()
	if err != nil {
		return nil, err
	}
	return r, record.WriteResult(dir, raw)
}

// Finish seals a bundle, derives and writes its result, and completes it.
func Finish(w *record.BundleWriter) (*Result, error) {
	if err := w.Seal(); err != nil {
		return nil, err
	}
	b, err := record.OpenBundle(w.Dir())
	if err != nil {
		return nil, err
	}
	b.State = record.Complete // sealed: the marker comes once the result is there
	r, err := write(b, w.Dir())
	if err != nil {
		return nil, err
	}
	return r, w.Complete()
}

// Derive computes the result of a bundle from what was recorded and nothing else. It fails when
// the bundle cannot be read or a record contradicts itself; a run that went wrong gives a
// result that is not valid, and so does one that was cut: what can be read of it is taken.
func Derive(b *record.Bundle) (*Result, error) { return derive(b, b.Requests(), b.Samples()) }

// derive is Derive with the records taken from elsewhere than the bundle's files.
func derive(b *record.Bundle, requests iter.Seq2[*record.Request, error], samples iter.Seq2[*record.Sample, error]) (*Result, error) {
	m := b.Meta
	r := &Result{
		Definitions: Definitions,
		PointID:     m.PointID,
		Reasons:     []Finding{}, Warnings: []Finding{},
		Seed: m.Seed, Repeat: m.Repeat, ControlOf: m.ControlOf, Semantics: m.Semantics, Corpus: m.Corpus,
		Engine: m.Engine, Recorder: m.Weir,
		Simulated: m.Simulated, Virtual: m.Virtual, SimError: m.SimError, SimSpeed: m.SimSpeed,
	}
	if len(m.Point) > 0 {
		if err := json.Unmarshal(m.Point, &r.Point); err != nil {
			return nil, fmt.Errorf("%s/%s: point: %w", b.Dir, record.PointFile, err)
		}
		r.Point.Origin = spec.Origin{}
	}
	if !m.Virtual && m.EpochWallNs > 0 {
		r.MeasuredAt = time.Unix(0, m.EpochWallNs).UTC().Format("2006-01-02T15:04:05.000Z")
	}
	r.ID = id(r)
	r.GPUs = gpus(m)
	r.Pools = pools(m)

	t := newTally(m)
	passes := newPasses(m)
	r.Unanswered = b.State == record.Failed
	// A run that was cut, or whose files could not be closed, ends somewhere: torn says where.
	cut := b.State == record.Incomplete || b.State == record.Failed && len(b.End.Files) == 0
	var torn error
	for q, err := range requests {
		if err != nil && cut {
			torn = err
			break
		}
		if err != nil {
			return nil, err
		}
		r.Unanswered = r.Unanswered && !answered(q)
		if err := check(q); err != nil {
			return nil, fmt.Errorf("%s/%s: request %d: %w", b.Dir, record.RequestsFile, q.Seq, err)
		}
		t.add(q)
		passes.add(q)
	}
	t.fill(r)
	srv := newGauges(m)
	devs := newDevices(t)
	passes.begin()
	for s, err := range samples {
		if err != nil && cut {
			torn = cmp.Or(torn, err)
			break
		}
		if err != nil {
			return nil, err
		}
		srv.add(s)
		passes.sample(s)
		devs.Add(s)
	}
	r.Server = srv.server()
	srv.fallBack(r)
	r.withholdHits()
	r.Devices = devices(r, t, devs)
	r.Passes = passes.list()
	if m.Client != nil {
		r.Client = Client{
			TTFTBoundS: seconds(m.Client.TTFTBoundNs), ITLBoundS: seconds(m.Client.ITLBoundNs),
			GCPauseS: seconds(m.Client.GCPauseNs), TimerLagS: seconds(m.Client.TimerLagNs),
		}
	}
	judge(r, b, t, torn)
	r.Warnings = append(r.Warnings, srv.troubles()...)
	r.Warnings = append(r.Warnings, r.Devices.doubts(r)...)
	return r, nil
}

// answered tells whether anything of an answer came back.
func answered(q *record.Request) bool {
	return q.Failure == nil || q.Failure.Status != 0 || q.Times.Headers != record.Never || q.Times.FirstToken != record.Never
}

// id names a run by what makes it this run and no other.
func id(r *Result) string {
	raw, err := json.Marshal([]any{r.PointID, r.Point.ID(), r.Seed, r.Repeat, r.Semantics,
		r.Corpus.Fingerprint, r.Simulated, r.Virtual, r.MeasuredAt})
	if err != nil { // strings and numbers only
		panic(err)
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:8])
}

func gpus(m *record.Meta) GPUs {
	g := GPUs{Prefill: m.GPUs.Prefill, Decode: m.GPUs.Decode, Declared: m.GPUs.Total,
		Observed: known(m.ObservedGPUs), Used: int64(m.GPUs.Total)}
	if g.Observed != nil {
		g.Used = *g.Observed
	}
	return g
}

// check refuses a record whose instants run backwards or whose own counts are none. Counts that
// the server gave are not its matter: see believable.
func check(q *record.Request) error {
	for _, c := range []struct {
		name string
		n    int64
	}{{"want_in", q.WantIn}, {"want_out", q.WantOut}, {"ceiling_tokens", q.CeilingTokens}} {
		if c.n < record.Unknown || c.n > record.MaxTokens {
			return fmt.Errorf("%s is %d, which is no count of tokens", c.name, c.n)
		}
	}
	t := q.Times
	last, name := record.Never, ""
	for _, at := range []struct {
		name string
		ns   int64
	}{
		{"queued", t.Queued}, {"sent", t.Sent}, {"headers", t.Headers}, {"first_token", t.FirstToken},
		{"first_visible", t.FirstVisible}, {"last_token", t.LastToken}, {"end", t.End},
	} {
		if at.ns == record.Never {
			continue
		}
		if at.ns < 0 {
			return fmt.Errorf("%s at %d ns lies before the run", at.name, at.ns)
		}
		if at.ns < last {
			return fmt.Errorf("%s at %d ns lies before %s at %d ns", at.name, at.ns, name, last)
		}
		last, name = at.ns, at.name
	}
	if q.OK() && (t.Sent == record.Never || t.End == record.Never) {
		return fmt.Errorf("succeeded without an instant for sent and end")
	}
	return nil
}

// tally gathers what the profiling requests say.
type tally struct {
	meta *record.Meta

	req                    Requests
	ttft, visible, e2el    []float64 // nanoseconds
	itl, fullITL, perToken []float64
	gap, lag, sendLag      []float64
	isl, osl               []float64

	input, output, reasoning, fresh count
	wantIn, usageIn, wantOf         int64 // of wantOf requests whose prompt the server counted
	ceiling, ceilingOf              int64
	hit                             hits
	belief                          belief
	e2eNs, e2eOut                   int64
	outputAsked, outputOff          int64 // answers with a known length, and those that missed it

	firstSent, lastEnd, lastContent int64
	window                          flowSum
	failures, primerFailures        failures
	primers                         int64 // of root streams
	jobs                            jobs
	cl                              clusters
}

// count is a sum over requests of which some may not have reported.
type count struct{ sum, n, missing int64 }

func (c *count) add(v int64) {
	if v < 0 {
		c.missing++
		return
	}
	c.sum += v
	c.n++
}

// tolerableMissing is the share of requests without a report up to which a sum is still given.
const tolerableMissing = 0.01

// value is the sum, nil when too few reported.
func (c *count) value() *int64 {
	if c.n == 0 || float64(c.missing) > float64(tolerableMissing*float64(c.n+c.missing)) {
		return nil
	}
	return &c.sum
}

// flowSum is what happened inside the fixed window.
type flowSum struct {
	requests, input int64
	output, fresh   float64
}

func newTally(m *record.Meta) *tally {
	return &tally{
		meta: m, req: Requests{ByClass: map[string]int64{}},
		firstSent: record.Never, lastEnd: record.Never, lastContent: record.Never,
		jobs: newJobs(m.Window), cl: newClusters(),
	}
}

func (t *tally) add(q *record.Request) {
	failed := !q.OK()
	cut := failed && q.Failure.Class == record.FailCancelled
	if q.Phase != record.Profiling {
		t.jobs.warmup(q)
		t.req.Warmup++
		root := q.Phase == record.Primer && q.Depth == 0 && !cut
		if root {
			t.primers++
		}
		if failed && !cut {
			t.req.WarmupBad++
			if root {
				t.primerFailures.add(q)
			}
		}
		return
	}
	t.req.Sent++
	if q.Resent {
		t.req.Resent++
	}
	t.lastContent = max(t.lastContent, q.Times.LastToken)
	t.jobs.add(q)
	switch {
	case cut:
		t.req.Cut++
		return
	case failed:
		t.req.Failed++
		t.req.ByClass[string(q.Failure.Class)]++
		t.failures.add(q)
		if q.Failure.Class == record.FailContextOverflow {
			t.req.Overflow++
		}
		return
	}
	t.req.OK++
	t.success(q)
}

func (t *tally) success(q *record.Request) {
	q = t.belief.of(q)
	at := q.Times
	if t.firstSent == record.Never || at.Sent < t.firstSent {
		t.firstSent = at.Sent
	}
	t.lastEnd = max(t.lastEnd, at.End)
	if at.Intended != record.Never {
		t.lag = append(t.lag, float64(at.Sent-at.Intended))
	}
	if at.Queued != record.Never {
		t.sendLag = append(t.sendLag, float64(at.Sent-at.Queued))
	}

	t.input.add(q.PromptTokens)
	t.output.add(q.OutputTokens)
	t.reasoning.add(q.ReasoningTokens)
	if q.PromptTokens >= 0 {
		t.isl = append(t.isl, float64(q.PromptTokens))
		if q.WantIn > 0 {
			t.wantOf++
			t.wantIn += q.WantIn
			t.usageIn += q.PromptTokens
		}
	}
	if q.WantIn > 0 && q.CeilingTokens >= 0 {
		t.ceiling += q.CeilingTokens
		t.ceilingOf += q.WantIn
	}
	if q.OutputTokens >= 0 && q.WantOut > 0 {
		t.outputAsked++
		if q.OutputTokens != q.WantOut {
			t.outputOff++
		}
	}
	t.fresh.add(t.hit.add(q))
	c := t.cl.of(q)
	if sum := total(q); sum >= 0 && q.PromptTokens > 0 {
		t.cl.hit[c] += float64(sum)
		t.cl.prompt[c] += float64(q.PromptTokens)
	}
	t.cl.spread(q, t.meta.Window)
	t.latency(q, c)
	t.inWindow(q)
}

func (t *tally) latency(q *record.Request, trace int) {
	at, osl := q.Times, q.OutputTokens
	if osl >= 0 {
		t.osl = append(t.osl, float64(osl))
	}
	if at.FirstToken == record.Never || at.LastToken == record.Never {
		return
	}
	ttft, e2el := at.FirstToken-at.Sent, at.LastToken-at.Sent
	t.ttft = append(t.ttft, float64(ttft))
	t.e2el = append(t.e2el, float64(e2el))
	t.cl.ttft = append(t.cl.ttft, sample{float64(ttft), trace})
	t.cl.e2el = append(t.cl.e2el, sample{float64(e2el), trace})
	if at.FirstVisible != record.Never {
		t.visible = append(t.visible, float64(at.FirstVisible-at.Sent))
	}
	if osl >= 2 {
		itl := float64(e2el-ttft) / float64(osl-1)
		t.itl = append(t.itl, itl)
		t.cl.itl = append(t.cl.itl, sample{itl, trace})
		t.fullITL = append(t.fullITL, float64(at.End-at.FirstToken)/float64(osl-1))
	}
	if osl >= 1 {
		per := float64(e2el) / float64(osl)
		t.perToken = append(t.perToken, per)
		t.cl.e2elPerToken = append(t.cl.e2elPerToken, sample{per, trace})
		t.e2eNs += e2el
		t.e2eOut += osl
	}
	for i := 1; i < len(q.Chunks); i++ {
		t.gap = append(t.gap, float64(q.Chunks[i].At-q.Chunks[i-1].At))
	}
}

// inWindow adds what of the request lies in the fixed window: its end, its prompt at the
// instant of the first token, and its output spread evenly from first to last token.
func (t *tally) inWindow(q *record.Request) {
	w, at := t.meta.Window, q.Times
	in := func(at int64) bool { return at >= w.StartNs && at < w.EndNs }
	if in(at.End) {
		t.window.requests++
	}
	if at.FirstToken == record.Never || at.LastToken == record.Never {
		return
	}
	if q.PromptTokens > 0 && in(at.FirstToken) {
		t.window.input += q.PromptTokens
		if f := t.hit.computed(q); f >= 0 {
			t.window.fresh += float64(f)
		}
	}
	if q.OutputTokens > 0 {
		out := 0.0
		if span := at.LastToken - at.FirstToken; span > 0 {
			over := max(0, min(at.LastToken, w.EndNs)-max(at.FirstToken, w.StartNs))
			out = float64(float64(q.OutputTokens)*float64(over)) / float64(span)
		} else if in(at.FirstToken) {
			out = float64(q.OutputTokens)
		}
		t.window.output += out
		t.window.fresh += out
	}
}

// fill writes what was gathered into r.
func (t *tally) fill(r *Result) {
	m := t.meta
	if n := t.req.OK + t.req.Failed; n > 0 {
		t.req.ErrorRate = ratio(float64(t.req.Failed), float64(n))
	}
	r.Requests = t.req

	planned := m.Window.EndNs - m.Window.StartNs
	if planned > 0 {
		r.Window.PlannedS = seconds(planned)
		if t.lastContent != record.Never {
			covered := min(max(t.lastContent-m.Window.StartNs, 0), planned)
			r.Window.Coverage = ratio(float64(covered), float64(planned))
		}
	}
	edge := record.Never
	if t.req.OK > 0 {
		edge = t.lastEnd - t.firstSent
		r.Window.EdgeS = seconds(edge)
	}

	r.Tokens = Tokens{
		Input: t.input.value(), Output: t.output.value(), Reasoning: t.reasoning.value(),
		ISL: dist(t.isl, 1), OSL: dist(t.osl, 1),
	}
	if f, o := t.fresh.value(), r.Tokens.Output; f != nil && o != nil {
		sum := *f + *o
		r.Tokens.Fresh = &sum
	}
	r.Tokens.Drift = t.drift()

	r.Latency = Latency{
		TTFT: dist(t.ttft, ns), FirstVisible: dist(t.visible, ns), E2EL: dist(t.e2el, ns),
		ITL: dist(t.itl, ns), FullResponseITL: dist(t.fullITL, ns), E2EPerToken: dist(t.perToken, ns),
		ChunkGap: dist(t.gap, ns), ScheduleLag: dist(t.lag, ns), SendLag: dist(t.sendLag, ns),
	}
	r.Adjusted = Adjusted{
		TTFT: adjusted(t.ttft, t.req.Failed, ns),
		E2EL: adjusted(t.e2el, t.req.Failed, ns),
		ITL:  adjusted(t.itl, t.req.Failed, ns),
	}
	r.Intvty = Intvty{
		Decode: rates(r.Latency.ITL), FullResponse: rates(r.Latency.FullResponseITL),
		E2ENorm: rates(r.Latency.E2EPerToken),
		E2ESum:  ratio(float64(float64(t.e2eOut)*ns), float64(t.e2eNs)),
	}
	t.throughput(r, edge, planned)

	r.Hits = t.hit.rates()
	r.Hits.Exceeding = t.belief.excess.n
	r.Hits.Ceiling = ratio(float64(t.ceiling), float64(t.ceilingOf))
	r.Hits.LRUDevice, r.Hits.LRUHost = m.LRUDevice, m.LRUHost
	t.cl.intervals(r, m.Window)
	r.Jobs = t.jobs.summary(planned, r.Point.Conc, r.GPUs.Used)
}

func (t *tally) throughput(r *Result, edge, planned int64) {
	per := func(v *int64, ns int64) *float64 {
		if v == nil || ns <= 0 {
			return nil
		}
		return defined(float64(*v) / (float64(ns) / 1e9))
	}
	tok := r.Tokens
	f := Flow{Requests: per(&t.req.OK, edge), Input: per(tok.Input, edge), Output: per(tok.Output, edge), Fresh: per(tok.Fresh, edge)}
	if tok.Input != nil && tok.Output != nil {
		total := *tok.Input + *tok.Output
		f.Total = per(&total, edge)
	}
	w := Flow{}
	if planned > 0 && t.req.OK > 0 {
		s := float64(planned) / 1e9
		w.Requests = defined(float64(t.window.requests) / s)
		if tok.Input != nil {
			w.Input = defined(float64(t.window.input) / s)
		}
		if tok.Output != nil {
			w.Output = defined(t.window.output / s)
		}
		if tok.Input != nil && tok.Output != nil {
			w.Total = defined((float64(t.window.input) + t.window.output) / s)
		}
		if tok.Fresh != nil {
			w.Fresh = defined(t.window.fresh / s)
		}
	}
	r.Throughput = Throughput{Edge: f, EdgePerGPU: perGPU(f, r.GPUs.Used), Window: w, WindowPerGPU: perGPU(w, r.GPUs.Used)}
}

func perGPU(f Flow, gpus int64) Flow {
	if gpus <= 0 {
		return Flow{}
	}
	div := func(v *float64) *float64 {
		if v == nil {
			return nil
		}
		return ratio(*v, float64(gpus))
	}
	return Flow{div(f.Requests), div(f.Input), div(f.Output), div(f.Total), div(f.Fresh)}
}

// median of sorted or unsorted values, false for none.
func median(values []float64) (float64, bool) {
	if len(values) == 0 {
		return 0, false
	}
	v := slices.Clone(values)
	slices.Sort(v)
	return Percentile(v, 50), true
}
