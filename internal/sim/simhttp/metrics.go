package simhttp

import (
	"cmp"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/weirbench/weir/internal/sim"
)

// A histogram counts seconds in Prometheus's way.
type histogram struct {
	bounds []float64
	counts []int64 // one more than bounds
	sum    float64
	n      int64
}

func newHistogram(bounds ...float64) *histogram {
	return &histogram{bounds: bounds, counts: make([]int64, len(bounds)+1)}
}

func (h *histogram) add(v float64, n int64) {
	i := 0
	for i < len(h.bounds) && v > h.bounds[i] {
		i++
	}
	h.counts[i] += n
	h.sum += v * float64(n)
	h.n += n
}

// metrics are what the server itself measures, by the clock of the machine; the rest comes
// from the core.
type metrics struct {
	mu               sync.Mutex
	ttft, itl, e2e   *histogram
	requests, aborts int64
	lastOut          int64 // for gen_throughput
	polled           time.Time
	sessions         map[uint64]bool // that requests named; the first maxSessions of them
}

// maxSessions bounds the sessions that are told apart.
const maxSessions = 1 << 18

// session counts the session that a request names.
func (m *metrics) session(r *http.Request) {
	key, ok := routingKey(r)
	if !ok {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.sessions == nil {
		m.sessions = map[uint64]bool{}
	}
	if len(m.sessions) < maxSessions {
		m.sessions[key] = true
	}
}

func (m *metrics) init(engine string) {
	m.polled = time.Now()
	if engine == "vllm" {
		m.ttft = newHistogram(.001, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560)
		m.itl = newHistogram(.01, .025, .05, .075, .1, .15, .2, .3, .4, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80)
		m.e2e = newHistogram(.3, .5, .8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680)
		return
	}
	m.ttft = newHistogram(.1, .2, .4, .6, .8, 1, 2, 4, 6, 8, 10, 20, 40, 60, 80, 100, 200, 400)
	m.itl = newHistogram(.002, .004, .006, .008, .01, .015, .02, .025, .03, .035, .04, .06, .08, .1, .2, .4, .6, .8, 1, 2, 4, 6, 8)
	m.e2e = newHistogram(.1, .2, .4, .6, .8, 1, 2, 4, 6, 8, 10, 20, 40, 60, 80, 100, 200, 400, 600, 1200, 1800, 2400)
}

func (m *metrics) firstToken(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ttft.add(d.Seconds(), 1)
}

func (m *metrics) aborted() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.aborts++
}

func (m *metrics) ended(a *answering) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.requests++
	if a.out > 1 {
		m.itl.add(time.Since(a.first).Seconds()/float64(a.out-1), a.out-1)
	}
	m.e2e.add(time.Since(a.begin).Seconds(), 1)
}

// text writes Prometheus's text format.
type text struct{ b strings.Builder }

func (t *text) family(name, kind, help string) {
	fmt.Fprintf(&t.b, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
}

func (t *text) sample(name, labels string, v float64) {
	fmt.Fprintf(&t.b, "%s{%s} %s\n", name, labels, strconv.FormatFloat(v, 'g', -1, 64))
}

func (t *text) histogram(name, labels, help string, h *histogram) {
	t.family(name, "histogram", help)
	t.buckets(name, labels, h)
}

func (t *text) buckets(name, labels string, h *histogram) {
	sum := int64(0)
	for i, b := range h.bounds {
		sum += h.counts[i]
		t.sample(name+"_bucket", labels+`,le="`+strconv.FormatFloat(b, 'g', -1, 64)+`"`, float64(sum))
	}
	t.sample(name+"_bucket", labels+`,le="+Inf"`, float64(h.n))
	t.sample(name+"_sum", labels, h.sum)
	t.sample(name+"_count", labels, float64(h.n))
}

// series is one metric of every rank.
type series struct {
	name, kind, help, extra string
	value                   func(*sim.Stats) float64
}

func (s *Server) serveMetrics(w http.ResponseWriter, _ *http.Request) {
	if s.down(w) {
		return
	}
	ranks := s.live.stats()
	s.metrics.mu.Lock()
	defer s.metrics.mu.Unlock()
	var t text
	if s.o.Engine == "vllm" {
		s.vllmMetrics(&t, ranks)
	} else {
		s.sglangMetrics(&t, ranks)
	}
	t.family("weir:sessions_total", "counter", "Sessions that requests named; only the simulated engine counts them.")
	t.sample("weir:sessions_total", fmt.Sprintf("model_name=%q", s.o.Model), float64(len(s.metrics.sessions)))
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	w.Write([]byte(t.b.String()))
}

// each writes the series of all ranks, samples of one family together.
func (t *text) each(list []series, ranks []sim.Stats, labels func(rank int) string) {
	for i, x := range list {
		if i == 0 || list[i-1].name != x.name {
			t.family(x.name, x.kind, x.help)
		}
		for r := range ranks {
			l := labels(r)
			if x.extra != "" {
				l += "," + x.extra
			}
			t.sample(x.name, l, x.value(&ranks[r]))
		}
	}
}

func share(a, b int64) float64 {
	if b == 0 {
		return 0
	}
	return float64(a) / float64(b)
}

func sum(ranks []sim.Stats) sim.Stats {
	var s sim.Stats
	for _, r := range ranks {
		s.Requests += r.Requests
		s.Failed += r.Failed
		s.PromptTokens += r.PromptTokens
		s.CachedDevice += r.CachedDevice
		s.CachedHost += r.CachedHost
		s.CachedStorage += r.CachedStorage
		s.OutputTokens += r.OutputTokens
	}
	return s
}

func (s *Server) sglangMetrics(t *text, ranks []sim.Stats) {
	c := &s.c
	base := fmt.Sprintf(`model_name=%q,engine_type=%q`, s.o.Model, cmp.Or(c.Role, "unified"))
	labels := func(r int) string {
		l := base + `,tp_rank="0",pp_rank="0",moe_ep_rank="0"`
		if len(ranks) > 1 {
			l += fmt.Sprintf(`,dp_rank="%d"`, r)
		}
		return l
	}
	g, n := "gauge", "counter"
	t.each([]series{
		{"sglang:num_running_reqs", g, "Requests that run.", "", func(r *sim.Stats) float64 { return float64(r.Running) }},
		{"sglang:num_queue_reqs", g, "Requests that wait.", "", func(r *sim.Stats) float64 { return float64(r.Waiting) }},
		{"sglang:num_used_tokens", g, "Tokens that requests hold on the device.", "", func(r *sim.Stats) float64 { return float64(r.DeviceUsed) }},
		{"sglang:token_usage", g, "Share of the device pool that requests hold.", "", func(r *sim.Stats) float64 { return share(r.DeviceUsed, r.DeviceTokens) }},
		{"sglang:kv_used_tokens", g, "Tokens that requests hold on the device.", "", func(r *sim.Stats) float64 { return float64(r.DeviceUsed) }},
		{"sglang:kv_evictable_tokens", g, "Cached tokens on the device that nobody holds.", "", func(r *sim.Stats) float64 { return float64(r.DeviceEvictable) }},
		{"sglang:kv_available_tokens", g, "Free tokens on the device.", "", func(r *sim.Stats) float64 { return float64(r.DeviceTokens - r.DeviceUsed - r.DeviceEvictable) }},
		{"sglang:max_total_num_tokens", g, "Size of the device pool.", "", func(r *sim.Stats) float64 { return float64(r.DeviceTokens) }},
		{"sglang:page_size", g, "Tokens of a page.", "", func(*sim.Stats) float64 { return float64(c.PageSize) }},
		{"sglang:context_len", g, "Longest context.", "", func(*sim.Stats) float64 { return float64(s.contextLen()) }},
		{"sglang:cache_hit_rate", g, "Cached share of the last prefill step.", "", func(r *sim.Stats) float64 { return float64(r.LastHitPPM) / 1e6 }},
		{"sglang:spec_accept_length", g, "Tokens that a decode step yields.", "", func(*sim.Stats) float64 { return float64(c.AcceptPPM) / 1e6 }},
		{"sglang:hicache_host_used_tokens", g, "Tokens in the host pool.", "", func(r *sim.Stats) float64 { return float64(r.HostUsed) }},
		{"sglang:hicache_host_total_tokens", g, "Size of the host pool.", "", func(r *sim.Stats) float64 { return float64(r.HostTokens) }},
		{"sglang:num_retracted_requests_total", n, "Retractions.", "", func(r *sim.Stats) float64 { return float64(r.Retracted) }},
		{"sglang:evicted_tokens_total", n, "Tokens taken off the device.", "", func(r *sim.Stats) float64 { return float64(r.Evicted) }},
		{"sglang:load_back_tokens_total", n, "Tokens loaded from the host.", "", func(r *sim.Stats) float64 { return float64(r.LoadedBack) }},
		{"sglang:backuped_tokens_total", n, "Tokens copied to the host.", "", func(r *sim.Stats) float64 { return float64(r.BackedUp) }},
		{"sglang:realtime_tokens_total", n, "Tokens by what was done for them.", `mode="prefill_compute"`, func(r *sim.Stats) float64 { return float64(r.PrefillTokens) }},
		{"sglang:realtime_tokens_total", n, "", `mode="prefill_cache"`, func(r *sim.Stats) float64 { return float64(r.QueryHits) }},
		{"sglang:realtime_tokens_total", n, "", `mode="decode"`, func(r *sim.Stats) float64 { return float64(r.OutputTokens) }},
		{"sglang:forward_execution_seconds_total", n, "Time in steps.", `category="prefill"`, func(r *sim.Stats) float64 { return float64(r.PrefillNs) / 1e9 }},
		{"sglang:forward_execution_seconds_total", n, "", `category="decode"`, func(r *sim.Stats) float64 { return float64(r.DecodeNs) / 1e9 }},
	}, ranks, labels)
	failures := []series{
		{"sglang:num_bootstrap_failed_reqs_total", n, "Requests that the other side gave no room in time.", "", func(r *sim.Stats) float64 { return float64(r.BootstrapFailed) }},
		{"sglang:num_transfer_failed_reqs_total", n, "Requests whose KV did not come.", "", func(r *sim.Stats) float64 { return float64(r.TransferFailed) }},
	}
	switch c.Role {
	case sim.RolePrefill:
		t.each([]series{
			{"sglang:num_prefill_bootstrap_queue_reqs", g, "Requests that wait for room at decode.", "", func(r *sim.Stats) float64 { return float64(r.Bootstrap) }},
			{"sglang:num_prefill_inflight_queue_reqs", g, "Requests whose KV is on its way.", "", func(r *sim.Stats) float64 { return float64(r.Inflight) }},
		}, ranks, labels)
		t.each(failures, ranks, labels)
		for _, x := range []struct {
			name, help string
			bounds     []float64
			of         func(*sim.Transfers) (sum float64, counts []int64)
		}{
			{"sglang:kv_transfer_latency_ms", "Time of a transfer in ms.", sim.TransferMs, func(x *sim.Transfers) (float64, []int64) { return float64(x.Ns) / 1e6, x.ByMs[:] }},
			{"sglang:kv_transfer_total_mb", "Size of a transfer in MB of 2^20 bytes.", sim.TransferMB, func(x *sim.Transfers) (float64, []int64) { return float64(x.Bytes) / (1 << 20), x.ByMB[:] }},
			{"sglang:kv_transfer_speed_gb_s", "Speed of a transfer in GB of 2^30 bytes per second.", sim.TransferGBs, func(x *sim.Transfers) (float64, []int64) { return x.Speed, x.ByGBs[:] }},
		} {
			t.family(x.name, "histogram", x.help)
			for r := range ranks {
				sum, counts := x.of(&ranks[r].Transfers)
				t.buckets(x.name, labels(r), &histogram{x.bounds, counts, sum, ranks[r].Transfers.N})
			}
		}
	case sim.RoleDecode:
		t.each(failures, ranks, labels)
		t.each([]series{
			{"sglang:num_decode_prealloc_queue_reqs", g, "Requests without room.", "", func(r *sim.Stats) float64 { return float64(r.Prealloc) }},
			{"sglang:num_decode_transfer_queue_reqs", g, "Requests without KV.", "", func(r *sim.Stats) float64 { return float64(r.Transfer) }},
		}, ranks, labels)
	}
	m := &s.metrics
	all := sum(ranks)
	now := time.Now()
	rate := float64(all.OutputTokens-m.lastOut) / max(now.Sub(m.polled).Seconds(), 1e-3)
	m.lastOut, m.polled = all.OutputTokens, now
	t.family("sglang:gen_throughput", g, "Generated tokens per second since the last look.")
	t.sample("sglang:gen_throughput", labels(0), rate)
	for _, x := range []struct {
		name, help string
		v          int64
	}{
		{"sglang:prompt_tokens_total", "Prompt tokens of requests that ended.", all.PromptTokens},
		{"sglang:generation_tokens_total", "Generated tokens.", all.OutputTokens},
		{"sglang:num_requests_total", "Requests that ended.", all.Requests},
		{"sglang:num_aborted_requests_total", "Requests that were given up.", m.aborts},
	} {
		t.family(x.name, n, x.help)
		t.sample(x.name, base, float64(x.v))
	}
	t.family("sglang:cached_tokens_total", n, "Prompt tokens found in the cache, of requests that ended.")
	t.sample("sglang:cached_tokens_total", base+`,cache_source="device"`, float64(all.CachedDevice))
	t.sample("sglang:cached_tokens_total", base+`,cache_source="host"`, float64(all.CachedHost))
	if all.CachedStorage > 0 {
		t.sample("sglang:cached_tokens_total", base+`,cache_source="storage_file"`, float64(all.CachedStorage))
	}
	t.histogram("sglang:time_to_first_token_seconds", base, "Time to first token.", m.ttft)
	t.histogram("sglang:inter_token_latency_seconds", base, "Time between tokens.", m.itl)
	t.histogram("sglang:e2e_request_latency_seconds", base, "Time of a request.", m.e2e)
}

func (s *Server) vllmMetrics(t *text, ranks []sim.Stats) {
	c := &s.c
	labels := func(r int) string { return fmt.Sprintf(`model_name=%q,engine="%d"`, s.o.Model, r) }
	g, n := "gauge", "counter"
	list := []series{
		{"vllm:num_requests_running", g, "Requests that run.", "", func(r *sim.Stats) float64 { return float64(r.Running) }},
		{"vllm:num_requests_waiting", g, "Requests that wait.", "", func(r *sim.Stats) float64 { return float64(r.Waiting) }},
		{"vllm:kv_cache_usage_perc", g, "Share of KV blocks in use.", "", func(r *sim.Stats) float64 { return share(r.DeviceUsed, r.DeviceTokens) }},
		{"vllm:prefix_cache_queries_total", n, "Prompt tokens that were looked up.", "", func(r *sim.Stats) float64 { return float64(r.Queried) }},
		{"vllm:prefix_cache_hits_total", n, "Prompt tokens that were found on the device.", "", func(r *sim.Stats) float64 { return float64(r.QueryHits - r.QueryHost) }},
		{"vllm:num_preemptions_total", n, "Preemptions.", "", func(r *sim.Stats) float64 { return float64(r.Retracted) }},
		{"vllm:prompt_tokens_total", n, "Prompt tokens.", "", func(r *sim.Stats) float64 { return float64(r.Queried) }},
		{"vllm:prompt_tokens_by_source_total", n, "Prompt tokens by where they came from.", `source="local_compute"`, func(r *sim.Stats) float64 { return float64(r.Queried - r.QueryHits) }},
		{"vllm:prompt_tokens_by_source_total", n, "", `source="local_cache_hit"`, func(r *sim.Stats) float64 { return float64(r.QueryHits - r.QueryHost) }},
		{"vllm:prompt_tokens_by_source_total", n, "", `source="external_kv_transfer"`, func(r *sim.Stats) float64 { return float64(r.QueryHost) }},
		{"vllm:generation_tokens_total", n, "Generated tokens.", "", func(r *sim.Stats) float64 { return float64(r.Generated) }},
		{"vllm:request_success_total", n, "Requests that ended well.", `finished_reason="length"`, func(r *sim.Stats) float64 { return float64(r.Requests - r.Failed) }},
	}
	if c.HostTokens > 0 {
		bytes := float64(c.KVBytesPerToken) * float64(max(1, c.Parallel.TP))
		list = append(list,
			series{"vllm:external_prefix_cache_queries_total", n, "Prompt tokens looked up on the host.", "", func(r *sim.Stats) float64 { return float64(r.Queried - (r.QueryHits - r.QueryHost)) }},
			series{"vllm:external_prefix_cache_hits_total", n, "Prompt tokens found on the host.", "", func(r *sim.Stats) float64 { return float64(r.QueryHost) }},
			series{"vllm:kv_offload_load_bytes_total", n, "Bytes from host to device.", "", func(r *sim.Stats) float64 { return float64(r.LoadedBack) * bytes }},
			series{"vllm:kv_offload_store_bytes_total", n, "Bytes from device to host.", "", func(r *sim.Stats) float64 { return float64(r.BackedUp) * bytes }},
			series{"vllm:kv_offload_cpu_cache_usage_perc", g, "Share of the host pool in use.", "", func(r *sim.Stats) float64 { return share(r.HostUsed, r.HostTokens) }},
		)
	}
	t.each(list, ranks, labels)
	t.family("vllm:cache_config_info", g, "Sizes of the cache.")
	for r := range ranks {
		t.sample("vllm:cache_config_info", fmt.Sprintf(`engine="%d",block_size="%d",num_gpu_blocks="%d",enable_prefix_caching="True",cache_dtype=%q`,
			r, c.PageSize, ranks[r].DeviceTokens/max(1, c.PageSize), c.KVDType), 1)
	}
	m := &s.metrics
	l := labels(0)
	t.histogram("vllm:time_to_first_token_seconds", l, "Time to first token.", m.ttft)
	t.histogram("vllm:inter_token_latency_seconds", l, "Time between tokens.", m.itl)
	t.histogram("vllm:e2e_request_latency_seconds", l, "Time of a request.", m.e2e)
}
