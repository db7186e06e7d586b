package result

import (
	"fmt"
	"iter"
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
	all     levels
	roles   map[string]*levels
	sources map[string]*endpoint
	roleOf  func(source string) string
	nameOf  map[string]string // of the process behind a metrics endpoint

	counters *scrape.Counters
	timings  *scrape.Histograms
	scrapes  map[string]*scrapes
}

// scrapes is how the scraping of one endpoint went.
type scrapes struct {
	n, failed int64
	last      string
	said      bool // one of them had a series
}

// What a reading has.
const (
	deviceKV = iota
	deviceFilled
	hostKV
	runningNow
	queuedNow
	acceptNow
	bootstrapQueue
	inflightQueue
	preallocQueue
	transferQueue
	frontendNow
	routerNow
	readings // how many there are
)

// reading is the latest of one endpoint or rank; NaN is what it does not say.
type reading [readings]float64

// averaged tells whether endpoints are averaged rather than added up.
func averaged(i int) bool { return i <= hostKV || i == acceptNow }

// levels follows readings over time.
type levels [readings]meter

// set takes the readings that hold from an instant on: shares are averaged, counts added up.
func (l *levels) set(at int64, now iter.Seq[*reading], w record.Window, open bool) {
	var sums [readings]acc
	for r := range now {
		for i := range sums {
			sums[i].add(r[i])
		}
	}
	nan := math.NaN()
	for i := range sums {
		v := sums[i].sum(nan)
		if averaged(i) {
			v = sums[i].mean(nan)
		}
		l[i].set(at, v, w, open)
	}
}

// end lets the last readings hold to the end of a window that has one.
func (l *levels) end(w record.Window, open bool) {
	if open {
		return
	}
	for i := range l {
		l[i].hold(w.EndNs, w, false)
	}
}

func newGauges(m *record.Meta) *gauges {
	w := m.Window
	g := &gauges{window: w, open: w.EndNs <= w.StartNs, sources: map[string]*endpoint{}, roles: map[string]*levels{},
		roleOf: roles(m), nameOf: map[string]string{},
		counters: scrape.NewCounters(w.StartNs, record.Profiling), timings: scrape.NewHistograms(w.StartNs, record.Profiling), scrapes: map[string]*scrapes{}}
	g.counters.Role = g.roleOf
	for _, p := range m.Processes {
		for _, u := range p.Metrics {
			g.nameOf[u] = p.Name
		}
	}
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
	e.said = e.said || len(s.Values) > 0
	if s.Thinned {
		g.thinned++
	}
	if s.Error != "" {
		e.failed++
		e.last = s.Error
	}
	g.counters.Add(s)
	g.timings.Add(s)
	g.follow(s)
}

func (g *gauges) server() Server {
	g.end()
	l := &g.all
	s := Server{
		Samples:      g.samples,
		DeviceKVMean: l[deviceKV].mean(), DeviceKVMax: l[deviceKV].peak(),
		DeviceFilledMean: l[deviceFilled].mean(), DeviceFilledMax: l[deviceFilled].peak(),
		HostKVMean: l[hostKV].mean(), HostKVMax: l[hostKV].peak(),
		RunningMean: l[runningNow].mean(), QueuedMean: l[queuedNow].mean(), QueuedMax: l[queuedNow].peak(),
		AcceptMean:    l[acceptNow].mean(),
		BootstrapMean: l[bootstrapQueue].mean(), InflightMean: l[inflightQueue].mean(), PreallocMean: l[preallocQueue].mean(), TransferMean: l[transferQueue].mean(),
		Timings:  g.timed(),
		Counters: g.counted(),
	}
	all := g.counters.Only(nil, "")
	if s.AcceptMean == nil {
		s.AcceptMean = accepted(all)
	}
	s.ByRole, s.ByEndpoint = g.parts()
	return s
}

// accepted is the tokens that a decode step yields by vLLM's counts of drafts and of what was accepted
// of them, nil without.
func accepted(c scrape.Growths) *float64 {
	steps, ok1 := c.Total(engine.DraftSteps)
	found, ok2 := c.Total(engine.DraftAccepted)
	if n := ratio(found, steps); ok1 && ok2 && n != nil {
		return defined(1 + *n)
	}
	return nil
}

// timed are the engines' own times, nil without any.
func (g *gauges) timed() *Timings {
	of := func(t engine.Timing) *Timing {
		h, ok := g.timings.Of(t)
		if !ok || h.Count >= 1<<53 {
			return nil
		}
		return &Timing{N: int64(math.Round(h.Count)), Mean: ratio(h.Sum, h.Count), P50: within(&h, 0.5), P90: within(&h, 0.9), P99: within(&h, 0.99)}
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
	return &Counted{Engines: engines, Resets: g.counters.Resets, Counts: counts(g.counters.Only(nil, ""))}
}

// counts is what counters grew by.
func counts(of scrape.Growths) Counts {
	get := func(q engine.Quantity) *int64 { return whole(of.Total(q)) }
	c := Counts{
		Prompt: get(engine.PromptTokens), Output: get(engine.OutputTokens), Ended: get(engine.EndedRequests), Computed: get(engine.ComputedTokens),
		Evicted: get(engine.EvictedTokens), LoadedBack: get(engine.LoadedBack), BackedUp: get(engine.BackedUp),
		Retracted: get(engine.Retracted), Preempted: get(engine.Preempted), TransferFailed: get(engine.TransferFailed),
		BytesToHost: get(engine.BytesToHost), BytesToDevice: get(engine.BytesToDevice),
	}
	if h, ok := of.Hits(); ok {
		c.HitsOf, c.HitPrompt = h.Engine, &h.Prompt
		c.HitDevice, c.HitHost, c.HitStorage, c.Hit = known(h.Device), known(h.Host), known(h.Storage), known(h.Hit)
	}
	return c
}

// whole is a count as an integer, nil where there is none.
func whole(v float64, ok bool) *int64 {
	if !ok || !(v >= 0 && v < 1<<53) {
		return nil
	}
	n := int64(math.Round(v))
	return &n
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
		if e.failed < e.n && !e.said && !strings.HasPrefix(u, "gpu:") {
			out = append(out, Finding{MetricsMissing, fmt.Sprintf("%d of %d scrapes of %s were answered, and no page had a series with a finite value", e.n-e.failed, e.n, u)})
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

// read finds the gauges of one scrape, or of one rank of it; what is not there is NaN.
func read(v *scrape.View) *reading {
	get := func(q engine.Quantity) float64 {
		if x, ok := v.Get(q); ok {
			return x
		}
		return math.NaN()
	}
	r := &reading{
		deviceKV: get(engine.DeviceUsage), deviceFilled: math.NaN(), hostKV: get(engine.HostUsage),
		runningNow: get(engine.Running), queuedNow: get(engine.Waiting), acceptNow: get(engine.AcceptLength),
		bootstrapQueue: get(engine.PrefillBootstrap), inflightQueue: get(engine.PrefillInflight),
		preallocQueue: get(engine.DecodePrealloc), transferQueue: get(engine.DecodeTransfer),
		frontendNow: get(engine.FrontendWaiting), routerNow: get(engine.RouterActive),
	}
	if f := (get(engine.DeviceUsed) + get(engine.DeviceEvictable)) / get(engine.DeviceTokens); !math.IsInf(f, 0) {
		r[deviceFilled] = f
	}
	if h := get(engine.HostUsed) / get(engine.HostTokens); !math.IsNaN(h) && !math.IsInf(h, 0) {
		r[hostKV] = h
	}
	return r
}

// Gauges are what one scrape says about pools and queues; nil is what it does not say.
type Gauges struct {
	DeviceKV, DeviceFilled, HostKV, Running, Queued *float64
	Watts                                           *float64 // of the GPUs of the sample together
}

// ReadGauges reads one scrape, for a picture of the run's course.
func ReadGauges(s *record.Sample) Gauges {
	v := scrape.Read(s)
	r := read(&v)
	g := Gauges{defined(r[deviceKV]), defined(r[deviceFilled]), defined(r[hostKV]), defined(r[runningNow]), defined(r[queuedNow]), nil}
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
