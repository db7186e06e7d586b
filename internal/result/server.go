package result

import (
	"math"
	"strings"

	"github.com/weirbench/weir/internal/record"
)

// gauges follows what the server's metrics say about its pools and queues, under the names of
// SGLang (metrics_collector.py, 2026-07) and vLLM (v1/metrics, 2026-07). A value holds until the
// next scrape of the same endpoint.
type gauges struct {
	window  record.Window
	samples int64
	open    bool // the window has no fixed end
	device  meter
	filled  meter
	host    meter
	running meter
	queued  meter
	sources map[string]*reading
}

// reading is the latest of one endpoint.
type reading struct{ device, filled, host, running, queued float64 }

func newGauges(w record.Window) *gauges {
	return &gauges{window: w, open: w.EndNs <= w.StartNs, sources: map[string]*reading{}}
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
	if g.open && s.At >= g.window.StartNs || s.At >= g.window.StartNs && s.At < g.window.EndNs {
		g.samples++
	}
	g.sources[s.Source] = read(s)
	// Endpoints are added up for counts and averaged for shares.
	nan := math.NaN()
	var dev, fill, host, run, queue acc
	for _, r := range g.sources {
		dev.add(r.device)
		fill.add(r.filled)
		host.add(r.host)
		run.add(r.running)
		queue.add(r.queued)
	}
	g.device.set(s.At, dev.mean(nan), g.window, g.open)
	g.filled.set(s.At, fill.mean(nan), g.window, g.open)
	g.host.set(s.At, host.mean(nan), g.window, g.open)
	g.running.set(s.At, run.sum(nan), g.window, g.open)
	g.queued.set(s.At, queue.sum(nan), g.window, g.open)
}

func (g *gauges) server() Server {
	if !g.open {
		for _, m := range []*meter{&g.device, &g.filled, &g.host, &g.running, &g.queued} {
			m.hold(g.window.EndNs, g.window, false)
		}
	}
	return Server{
		Samples:      g.samples,
		DeviceKVMean: g.device.mean(), DeviceKVMax: g.device.peak(),
		DeviceFilledMean: g.filled.mean(), DeviceFilledMax: g.filled.peak(),
		HostKVMean: g.host.mean(), HostKVMax: g.host.peak(),
		RunningMean: g.running.mean(), QueuedMean: g.queued.mean(), QueuedMax: g.queued.peak(),
	}
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

// read finds the gauges of one scrape; what is not there is NaN. Ranks of tensor and pipeline
// parallelism repeat the numbers of rank 0 and are left out; ranks of data parallelism have
// their own.
func read(s *record.Sample) *reading {
	var dev, held, evictable, pool, used, size, run, queue acc
	for series, v := range s.Values {
		name, labels, _ := strings.Cut(series, "{")
		if repeats(labels) {
			continue
		}
		switch name {
		case "sglang:token_usage", "vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc":
			dev.add(v)
		case "sglang:kv_used_tokens":
			held.add(v)
		case "sglang:kv_evictable_tokens":
			evictable.add(v)
		case "sglang:max_total_num_tokens":
			pool.add(v)
		case "sglang:hicache_host_used_tokens":
			used.add(v)
		case "sglang:hicache_host_total_tokens":
			size.add(v)
		case "sglang:num_running_reqs", "vllm:num_requests_running":
			run.add(v)
		case "sglang:num_queue_reqs", "vllm:num_requests_waiting":
			queue.add(v)
		}
	}
	nan := math.NaN()
	r := &reading{device: dev.mean(nan), filled: nan, host: nan, running: run.sum(nan), queued: queue.sum(nan)}
	if pool.units > 0 && held.n > 0 && evictable.n > 0 {
		r.filled = float64(held.units+evictable.units) / float64(pool.units)
	}
	if size.n > 0 && size.units > 0 && used.n > 0 {
		r.host = float64(used.units) / float64(size.units)
	}
	return r
}

func repeats(labels string) bool {
	for _, key := range []string{`tp_rank="`, `pp_rank="`} {
		if _, rest, ok := strings.Cut(labels, key); ok && !strings.HasPrefix(rest, `0"`) {
			return true
		}
	}
	return false
}

// Gauges are what one scrape says about pools and queues; nil is what it does not say.
type Gauges struct{ DeviceKV, DeviceFilled, HostKV, Running, Queued *float64 }

// ReadGauges reads one scrape, for a picture of the run's course.
func ReadGauges(s *record.Sample) Gauges {
	r := read(s)
	return Gauges{defined(r.device), defined(r.filled), defined(r.host), defined(r.running), defined(r.queued)}
}
