package result

import (
	"cmp"
	"iter"
	"maps"
	"math"
	"slices"

	"github.com/weirbench/weir/internal/engine"
	"github.com/weirbench/weir/internal/record"
	"github.com/weirbench/weir/internal/scrape"
)

// A Part is what the metrics of one role, one endpoint or one rank said within the window, as in
// Server and Counted; nil is what they do not say. What one side of a disaggregated deployment
// repeats of the other is left out, so that parts add up to the whole.
type Part struct {
	Endpoints int64 `json:"endpoints,omitempty"` // of a role
	Ranks     int64 `json:"ranks,omitempty"`     // of data parallelism, where there are several
	// DevicePool and HostPool are tokens, the most that was seen.
	DevicePool       *int64   `json:"device_pool_tokens,omitempty"`
	HostPool         *int64   `json:"host_pool_tokens,omitempty"`
	DeviceKVMean     *float64 `json:"device_kv_mean,omitempty"`
	DeviceKVMax      *float64 `json:"device_kv_max,omitempty"`
	DeviceFilledMean *float64 `json:"device_filled_mean,omitempty"`
	DeviceFilledMax  *float64 `json:"device_filled_max,omitempty"`
	HostKVMean       *float64 `json:"host_kv_mean,omitempty"`
	HostKVMax        *float64 `json:"host_kv_max,omitempty"`
	RunningMean      *float64 `json:"running_mean,omitempty"` // requests
	RunningMax       *float64 `json:"running_max,omitempty"`
	QueuedMean       *float64 `json:"queued_mean,omitempty"`
	QueuedMax        *float64 `json:"queued_max,omitempty"`
	AcceptMean       *float64 `json:"accept_length_mean,omitempty"`
	BootstrapMean    *float64 `json:"prefill_bootstrap_mean,omitempty"`
	BootstrapMax     *float64 `json:"prefill_bootstrap_max,omitempty"`
	InflightMean     *float64 `json:"prefill_inflight_mean,omitempty"`
	InflightMax      *float64 `json:"prefill_inflight_max,omitempty"`
	PreallocMean     *float64 `json:"decode_prealloc_mean,omitempty"`
	PreallocMax      *float64 `json:"decode_prealloc_max,omitempty"`
	TransferMean     *float64 `json:"decode_transfer_mean,omitempty"`
	TransferMax      *float64 `json:"decode_transfer_max,omitempty"`
	Counts
	Transfer *Transfer `json:"transfer,omitempty"`
	Router   *Router   `json:"router,omitempty"`
}

// An Endpoint is a Part with where it was scraped.
type Endpoint struct {
	Endpoint string `json:"endpoint"`       // its URL, or "sim" and "sim/N" in virtual time
	Name     string `json:"name,omitempty"` // of the process behind it
	Role     string `json:"role,omitempty"` // "" where neither the point nor the metrics tell
	Part
	ByRank []Rank `json:"by_rank,omitempty"` // of data parallelism, where there are several
}

// A Rank is a Part of one rank of data parallelism. Ranks that repeat each other's numbers, as those
// of tensor parallelism, are one.
type Rank struct {
	Rank string `json:"rank"`
	Part
}

// Transfer is KV on its way between prefill and decode, from the engines' histograms and counters.
type Transfer struct {
	N     int64   `json:"n,omitempty"`           // that ended
	Bytes *int64  `json:"bytes,omitempty"`       // of all
	Time  *Spread `json:"time_s,omitempty"`      // of one
	Speed *Spread `json:"bytes_per_s,omitempty"` // of one
	// Expired are requests whose KV nobody fetched in time, BootstrapFailed those whose two sides did
	// not find each other. Counts has those whose transfer failed.
	Expired         *int64 `json:"expired_requests,omitempty"`
	BootstrapFailed *int64 `json:"bootstrap_failed_requests,omitempty"`
}

// A Spread is an exact mean, and percentiles that lie within a bucket.
type Spread struct {
	Mean *float64 `json:"mean"`
	P50  *Within  `json:"p50,omitempty"` // absent for one rank
	P90  *Within  `json:"p90,omitempty"`
	P99  *Within  `json:"p99,omitempty"`
}

// Router is what a router or frontend counts, requests.
type Router struct {
	Requests *int64 `json:"requests,omitempty"`
	Errors   *int64 `json:"errors,omitempty"`
	// ActiveMean and ActiveMax are under way at workers; SGLang's router counts a disaggregated
	// request at prefill and at decode.
	ActiveMean *float64 `json:"active_mean,omitempty"`
	ActiveMax  *float64 `json:"active_max,omitempty"`
	// WaitingMean and WaitingMax have no first token yet as Dynamo's frontend sees them.
	WaitingMean *float64 `json:"waiting_mean,omitempty"`
	WaitingMax  *float64 `json:"waiting_max,omitempty"`
}

// endpoint is what one endpoint said so far.
type endpoint struct {
	role   string // "" where it is not known
	known  bool   // an adapter knows something of it
	now    *reading
	levels levels
	sizes  sizes
	ranks  map[string]*rank
}

// rank is what one rank of data parallelism said so far.
type rank struct {
	levels levels
	sizes  sizes
}

// sizes are pools in tokens, the most that was seen; negative is unknown.
type sizes struct{ device, host float64 }

var noSizes = sizes{-1, -1}

func (s *sizes) see(v *scrape.View) {
	if n, ok := v.Get(engine.DeviceTokens); ok {
		s.device = max(s.device, n)
	}
	if n, ok := v.Get(engine.HostTokens); ok {
		s.host = max(s.host, n)
	}
}

// add is for pools of several endpoints together; one that is unknown adds nothing.
func (s *sizes) add(o sizes) {
	if o.device >= 0 {
		s.device = max(s.device, 0) + o.device
	}
	if o.host >= 0 {
		s.host = max(s.host, 0) + o.host
	}
}

// silent is a reading that says nothing.
var silent = func() *reading {
	var r reading
	for i := range r {
		r[i] = math.NaN()
	}
	return &r
}()

// one is a sequence of one reading.
func one(r *reading) iter.Seq[*reading] { return func(yield func(*reading) bool) { yield(r) } }

// of are the readings of the endpoints of a role, of all where it is empty.
func (g *gauges) of(role string) iter.Seq[*reading] {
	return func(yield func(*reading) bool) {
		for _, e := range g.sources {
			if (role == "" || e.role == role) && !yield(e.now) {
				return
			}
		}
	}
}

// follow takes the gauges of the next sample: they hold until the next of the same endpoint.
func (g *gauges) follow(s *record.Sample) {
	v := scrape.Read(s)
	e := g.sources[s.Source]
	if e == nil {
		e = &endpoint{sizes: noSizes, ranks: map[string]*rank{}}
		switch r := g.roleOf(s.Source); r {
		case "prefill", "decode", "unified", "router":
			e.role = r
		}
		g.sources[s.Source] = e
	}
	e.role = cmp.Or(e.role, v.Role)
	e.known = e.known || v.Engine != "" || v.Role != ""
	e.now = read(&v)
	e.sizes.see(&v)
	set := func(l *levels, now iter.Seq[*reading]) { l.set(s.At, now, g.window, g.open) }
	set(&e.levels, one(e.now))
	for name, k := range e.ranks {
		if !slices.ContainsFunc(v.Ranks, func(r scrape.RankView) bool { return r.Rank == name }) {
			set(&k.levels, one(silent))
		}
	}
	for i := range v.Ranks {
		r := &v.Ranks[i]
		k := e.ranks[r.Rank]
		if k == nil {
			k = &rank{sizes: noSizes}
			e.ranks[r.Rank] = k
		}
		k.sizes.see(&r.View)
		set(&k.levels, one(read(&r.View)))
	}
	set(&g.all, g.of(""))
	if e.role != "" {
		if g.roles[e.role] == nil {
			g.roles[e.role] = &levels{}
		}
		set(g.roles[e.role], g.of(e.role))
	}
}

// end lets all readings hold to the end of the window.
func (g *gauges) end() {
	g.all.end(g.window, g.open)
	for _, l := range g.roles {
		l.end(g.window, g.open)
	}
	for _, e := range g.sources {
		e.levels.end(g.window, g.open)
		for _, k := range e.ranks {
			k.levels.end(g.window, g.open)
		}
	}
}

// parts are what the roles and the endpoints said; nothing where one endpoint of one rank is all
// there is, which the whole says already.
func (g *gauges) parts() (map[string]*Part, []Endpoint) {
	var list []Endpoint
	for _, url := range slices.Sorted(maps.Keys(g.sources)) {
		e := g.sources[url]
		if !e.known {
			continue
		}
		here := func(source string) bool { return source == url }
		p := Endpoint{Endpoint: url, Name: g.nameOf[url], Role: e.role, Part: g.part(&e.levels, e.sizes, here, "")}
		if len(e.ranks) > 1 {
			p.Ranks = int64(len(e.ranks))
			for _, name := range scrape.SortRanks(maps.Keys(e.ranks)) {
				k := e.ranks[name]
				p.ByRank = append(p.ByRank, Rank{name, g.part(&k.levels, k.sizes, here, name)})
			}
		}
		list = append(list, p)
	}
	if len(list) == 1 && list[0].Ranks == 0 && (list[0].Role == "" || list[0].Role == "unified") && list[0].Transfer == nil {
		return nil, nil
	}
	var roles map[string]*Part
	for name, l := range g.roles {
		all, endpoints, ranks, several := noSizes, int64(0), int64(0), false
		for i := range list {
			if e := &list[i]; e.Role == name {
				endpoints++
				ranks += max(e.Ranks, 1)
				several = several || e.Ranks > 0
				all.add(g.sources[e.Endpoint].sizes)
			}
		}
		p := g.part(l, all, func(source string) bool { e := g.sources[source]; return e != nil && e.role == name }, "")
		if p.Endpoints = endpoints; several {
			p.Ranks = ranks
		}
		if roles == nil {
			roles = map[string]*Part{}
		}
		roles[name] = &p
	}
	return roles, list
}

// part is what some endpoints, or one rank of one, said.
func (g *gauges) part(l *levels, s sizes, sources func(string) bool, rank string) Part {
	c := g.counters.Only(sources, rank)
	p := Part{
		DevicePool: whole(s.device, true), HostPool: whole(s.host, true),
		DeviceKVMean: l[deviceKV].mean(), DeviceKVMax: l[deviceKV].peak(),
		DeviceFilledMean: l[deviceFilled].mean(), DeviceFilledMax: l[deviceFilled].peak(),
		HostKVMean: l[hostKV].mean(), HostKVMax: l[hostKV].peak(),
		RunningMean: l[runningNow].mean(), RunningMax: l[runningNow].peak(),
		QueuedMean: l[queuedNow].mean(), QueuedMax: l[queuedNow].peak(),
		AcceptMean:    l[acceptNow].mean(),
		BootstrapMean: l[bootstrapQueue].mean(), BootstrapMax: l[bootstrapQueue].peak(),
		InflightMean: l[inflightQueue].mean(), InflightMax: l[inflightQueue].peak(),
		PreallocMean: l[preallocQueue].mean(), PreallocMax: l[preallocQueue].peak(),
		TransferMean: l[transferQueue].mean(), TransferMax: l[transferQueue].peak(),
		Counts: counts(c),
	}
	if p.AcceptMean == nil {
		p.AcceptMean = accepted(c)
	}
	t := Transfer{Expired: whole(c.Total(engine.TransferExpired)), BootstrapFailed: whole(c.Total(engine.BootstrapFailed))}
	spread := func(of engine.Timing) *Spread {
		h, ok := g.timings.Only(of, sources, rank)
		if !ok || h.Count >= 1<<53 {
			return nil
		}
		t.N = max(t.N, int64(math.Round(h.Count)))
		if of == engine.TransferBytes {
			t.Bytes = whole(h.Sum, true)
		}
		s := &Spread{Mean: ratio(h.Sum, h.Count)}
		if rank == "" {
			s.P50, s.P90, s.P99 = within(&h, 0.5), within(&h, 0.9), within(&h, 0.99)
		}
		return s
	}
	t.Time, t.Speed = spread(engine.TransferTime), spread(engine.TransferSpeed)
	spread(engine.TransferBytes)
	if t != (Transfer{}) {
		p.Transfer = &t
	}
	r := Router{
		Requests: whole(c.Growth("smg", engine.RouterRequests)), Errors: whole(c.Growth("smg", engine.RouterErrors)),
		ActiveMean: l[routerNow].mean(), ActiveMax: l[routerNow].peak(),
		WaitingMean: l[frontendNow].mean(), WaitingMax: l[frontendNow].peak(),
	}
	if r != (Router{}) {
		p.Router = &r
	}
	return p
}

// within is a percentile of a histogram, nil without buckets.
func within(h *scrape.Histogram, q float64) *Within {
	v, low, high, ok := h.Quantile(q)
	if !ok {
		return nil
	}
	return &Within{Value: defined(v), Low: defined(low), High: defined(high)}
}
