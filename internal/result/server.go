package result

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/weirbench/weir/internal/engine"
	"github.com/weirbench/weir/internal/record"
	"github.com/weirbench/weir/internal/scrape"
	"github.com/weirbench/weir/internal/scrape/gpu"
)

// gauges follows what the server's metrics say about its pools, queues and counters; package
// engine knows their names. A gauge holds until the next scrape of the same endpoint.
type gauges struct {
	window  record.Window
	samples int64
	thinned int64 // of all scrapes
	open    bool  // the window has no fixed end
	device  meter
	filled  meter
	host    meter
	running meter
	queued  meter
	accept  meter
	pd      [4]meter
	sources map[string]*reading

	counters *scrape.Counters
	timings  *scrape.Histograms
	scrapes  map[string]*scrapes
}

// scrapes is how the scraping of one endpoint went.
type scrapes struct {
	n, failed int64
	last      string
}

// reading is the latest of one endpoint.
type reading struct {
	device, filled, host, running, queued, accept float64
	pd                                            [4]float64
}

func newGauges(m *record.Meta) *gauges {
	w := m.Window
	g := &gauges{window: w, open: w.EndNs <= w.StartNs, sources: map[string]*reading{},
		counters: scrape.NewCounters(w.StartNs, record.Profiling), timings: scrape.NewHistograms(w.StartNs, record.Profiling), scrapes: map[string]*scrapes{}}
	g.counters.Role = roles(m)
	return g
}

// roles tells the role of the process behind a metrics endpoint, "" where it is not known.
func roles(m *record.Meta) func(source string) string {
	of := map[string]string{}
	for _, p := range m.Processes {
		for _, u := range p.Metrics {
			of[u] = p.Role
		}
	}
	return func(source string) string { return of[source] }
}

// meter integrates a step function over time.
type meter struct {
	at, span int64
	value    float64
	area     float64
	max      float64
	has      bool
}

func (m *meter) set(at int64, v float64, w record.Window, open bool) {
	m.hold(at, w, open)
	if math.IsNaN(v) {
		m.has = false
		return
	}
	m.value, m.at, m.has = v, at, true
	if open && at >= w.StartNs || at >= w.StartNs && at < w.EndNs {
		m.max = max(m.max, v)
	}
}

func (m *meter) hold(at int64, w record.Window, open bool) {
	if !m.has {
		return
	}
	from, to := max(m.at, w.StartNs), at
	if !open {
		to = min(to, w.EndNs)
	}
	if to > from {
		m.area += float64(m.value * float64(to-from))
		m.span += to - from
		m.max = max(m.max, m.value)
	}
	m.at = max(m.at, at)
}

func (m *meter) mean() *float64 { return ratio(m.area, float64(m.span)) }

func (m *meter) peak() *float64 {
	if m.span == 0 {
		return nil
	}
	return defined(m.max)
}

func (g *gauges) add(s *record.Sample) {
	if inside := g.open && s.At >= g.window.StartNs || s.At >= g.window.StartNs && s.At < g.window.EndNs; inside && !strings.HasPrefix(s.Source, "gpu:") {
		g.samples++
	}
	e := g.scrapes[s.Source]
	if e == nil {
		e = &scrapes{}
		g.scrapes[s.Source] = e
	}
	e.n++
	if s.Thinned {
		g.thinned++
	}
	if s.Error != "" {
		e.failed++
		e.last = s.Error
	}
	g.counters.Add(s)
	g.timings.Add(s)
	g.sources[s.Source] = read(s)
	// Endpoints are added up for counts and averaged for shares.
	nan := math.NaN()
	var dev, fill, host, run, queue, accept acc
	var pd [4]acc
	for _, r := range g.sources {
		dev.add(r.device)
		fill.add(r.filled)
		host.add(r.host)
		run.add(r.running)
		queue.add(r.queued)
		accept.add(r.accept)
		for i := range pd {
			pd[i].add(r.pd[i])
		}
	}
	g.device.set(s.At, dev.mean(nan), g.window, g.open)
	g.filled.set(s.At, fill.mean(nan), g.window, g.open)
	g.host.set(s.At, host.mean(nan), g.window, g.open)
	g.running.set(s.At, run.sum(nan), g.window, g.open)
	g.queued.set(s.At, queue.sum(nan), g.window, g.open)
	g.accept.set(s.At, accept.mean(nan), g.window, g.open)
	for i := range pd {
		g.pd[i].set(s.At, pd[i].sum(nan), g.window, g.open)
	}
}

func (g *gauges) server() Server {
	if !g.open {
		for _, m := range []*meter{&g.device, &g.filled, &g.host, &g.running, &g.queued, &g.accept, &g.pd[0], &g.pd[1], &g.pd[2], &g.pd[3]} {
			m.hold(g.window.EndNs, g.window, false)
		}
	}
	s := Server{
		Samples:      g.samples,
		DeviceKVMean: g.device.mean(), DeviceKVMax: g.device.peak(),
		DeviceFilledMean: g.filled.mean(), DeviceFilledMax: g.filled.peak(),
		HostKVMean: g.host.mean(), HostKVMax: g.host.peak(),
		RunningMean: g.running.mean(), QueuedMean: g.queued.mean(), QueuedMax: g.queued.peak(),
		AcceptMean:    g.accept.mean(),
		BootstrapMean: g.pd[0].mean(), InflightMean: g.pd[1].mean(), PreallocMean: g.pd[2].mean(), TransferMean: g.pd[3].mean(),
		Timings:  g.timed(),
		Counters: g.counted(),
	}
	if s.AcceptMean == nil { // vLLM counts drafts and what was accepted of them
		steps, ok1 := g.counters.Total(engine.DraftSteps)
		accepted, ok2 := g.counters.Total(engine.DraftAccepted)
		if n := ratio(accepted, steps); ok1 && ok2 && n != nil {
			s.AcceptMean = defined(1 + *n)
		}
	}
	return s
}

// timed are the engines' own times, nil without any.
func (g *gauges) timed() *Timings {
	of := func(t engine.Timing) *Timing {
		h, ok := g.timings.Of(t)
		if !ok || h.Count >= 1<<53 {
			return nil
		}
		within := func(q float64) *Within {
			v, low, high, ok := h.Quantile(q)
			if !ok {
				return nil
			}
			return &Within{Value: defined(v), Low: defined(low), High: defined(high)}
		}
		return &Timing{N: int64(math.Round(h.Count)), Mean: ratio(h.Sum, h.Count), P50: within(0.5), P90: within(0.9), P99: within(0.99)}
	}
	t := Timings{TTFT: of(engine.TimeToFirst), ITL: of(engine.BetweenToken), E2EL: of(engine.WholeRequest), Queue: of(engine.InQueue)}
	if t == (Timings{}) {
		return nil
	}
	return &t
}

// counted is what the engine's counters grew by from the start of the window to the last
// sample, nil without any.
func (g *gauges) counted() *Counted {
	engines := g.counters.Engines()
	if len(engines) == 0 {
		return nil
	}
	get := func(q engine.Quantity) *int64 {
		v, ok := g.counters.Total(q)
		if !ok || v < 0 || v >= 1<<53 {
			return nil
		}
		n := int64(math.Round(v))
		return &n
	}
	c := &Counted{
		Engines: engines, Resets: g.counters.Resets,
		Prompt: get(engine.PromptTokens), Output: get(engine.OutputTokens), Ended: get(engine.EndedRequests), Computed: get(engine.ComputedTokens),
		Evicted: get(engine.EvictedTokens), LoadedBack: get(engine.LoadedBack), BackedUp: get(engine.BackedUp),
		Retracted: get(engine.Retracted), Preempted: get(engine.Preempted), TransferFailed: get(engine.TransferFailed),
		BytesToHost: get(engine.BytesToHost), BytesToDevice: get(engine.BytesToDevice),
	}
	if h, ok := g.counters.Hits(); ok {
		c.HitsOf, c.HitPrompt = h.Engine, &h.Prompt
		c.HitDevice, c.HitHost, c.HitStorage, c.Hit = known(h.Device), known(h.Host), known(h.Storage), known(h.Hit)
	}
	return c
}

// fallBack takes from counters the hit rates that usage did not give.
func (g *gauges) fallBack(r *Result) {
	c := r.Server.Counters
	if c == nil || c.HitPrompt == nil {
		return
	}
	h, of := &r.Hits, float64(*c.HitPrompt)
	share := func(n *int64) *float64 {
		if n == nil {
			return nil
		}
		if float64(*n) > of {
			return nil // more hit than was asked for
		}
		return ratio(float64(*n), of)
	}
	if h.Device == nil && h.Host == nil && h.Storage == nil {
		h.Device, h.Host, h.Storage = share(c.HitDevice), share(c.HitHost), share(c.HitStorage)
		h.SplitFrom = "counters"
	}
	if h.Total == nil {
		h.Total = share(c.Hit)
		h.TotalFrom = "counters"
	}
}

// troubles are the endpoints whose scrapes failed, and what was not kept of others.
func (g *gauges) troubles() []Finding {
	var out []Finding
	var all int64
	for _, u := range slices.Sorted(maps.Keys(g.scrapes)) {
		e := g.scrapes[u]
		if e.failed > 0 {
			out = append(out, Finding{MetricsMissing, fmt.Sprintf("%d of %d scrapes of %s failed: %s", e.failed, e.n, u, e.last)})
		}
		all += e.n
	}
	if g.thinned > 0 {
		out = append(out, Finding{SamplesThinned, fmt.Sprintf("%d of %d scrapes are kept without the histograms and counters that no adapter reads; what those grew by over the window is exact", g.thinned, all)})
	}
	return out
}

// acc sums values in billionths, as integers, so that the order of a map's keys cannot
// change the sum.
type acc struct{ units, n int64 }

const unit = 1e-9

func (a *acc) add(v float64) {
	if !math.IsNaN(v) && math.Abs(v) < 1e9 {
		a.units += int64(math.Round(v / unit))
		a.n++
	}
}

func (a *acc) sum(none float64) float64 {
	if a.n == 0 {
		return none
	}
	return float64(a.units) * unit
}

func (a *acc) mean(none float64) float64 {
	if a.n == 0 {
		return none
	}
	return float64(a.units) / float64(a.n) * unit
}

// read finds the gauges of one scrape; what is not there is NaN.
func read(s *record.Sample) *reading {
	v := scrape.Read(s)
	get := func(q engine.Quantity) float64 {
		if x, ok := v.Get(q); ok {
			return x
		}
		return math.NaN()
	}
	r := &reading{device: get(engine.DeviceUsage), host: get(engine.HostUsage), running: get(engine.Running), queued: get(engine.Waiting),
		accept: get(engine.AcceptLength), filled: math.NaN()}
	if f := (get(engine.DeviceUsed) + get(engine.DeviceEvictable)) / get(engine.DeviceTokens); !math.IsInf(f, 0) {
		r.filled = f
	}
	if h := get(engine.HostUsed) / get(engine.HostTokens); !math.IsNaN(h) && !math.IsInf(h, 0) {
		r.host = h
	}
	for i, q := range pdQueues {
		r.pd[i] = get(q)
	}
	return r
}

// pdQueues are the queues of a disaggregated engine.
var pdQueues = [4]engine.Quantity{engine.PrefillBootstrap, engine.PrefillInflight, engine.DecodePrealloc, engine.DecodeTransfer}

// Gauges are what one scrape says about pools and queues; nil is what it does not say.
type Gauges struct {
	DeviceKV, DeviceFilled, HostKV, Running, Queued *float64
	Watts                                           *float64 // of the GPUs of the sample together
}

// ReadGauges reads one scrape, for a picture of the run's course.
func ReadGauges(s *record.Sample) Gauges {
	r := read(s)
	g := Gauges{defined(r.device), defined(r.filled), defined(r.host), defined(r.running), defined(r.queued), nil}
	if w, ok := gpu.Watts(s); ok {
		g.Watts = defined(w)
	}
	return g
}

// KeepGauges is a copy of a sample with what ReadGauges needs, for a caller that keeps samples.
func KeepGauges(s *record.Sample) *record.Sample {
	k := &record.Sample{At: s.At, Source: s.Source, Values: map[string]float64{}}
	for series, v := range s.Values {
		if sig := engine.Classify(series); sig != nil && !sig.Quantity.Counter() {
			k.Values[series] = v
		} else if d, ok := gpu.Classify(series); ok && (d.Quantity == gpu.Power || d.Quantity == gpu.Present) {
			k.Values[series] = v
		}
	}
	return k
}
