package run

import (
	"fmt"
	"strings"

	"github.com/weirbench/weir/internal/record"
	"github.com/weirbench/weir/internal/replay"
	"github.com/weirbench/weir/internal/sim"
)

// sampleEvery is the time between two samples of the simulated engine's gauges, nanoseconds.
const sampleEvery = 5e9

// sampled is the simulated engine with its gauges written down at fixed instants of virtual
// time, under SGLang's names, as a scrape of a real engine would.
type sampled struct {
	simTarget
	next  int64 // instant of the next sample
	write func(*record.Sample)
}

// Send implements replay.Target. What was due before the request comes without it.
func (s *sampled) Send(q replay.Request) {
	s.until(q.Queued - 1)
	s.simTarget.Send(q)
}

// Advance implements replay.VirtualTarget.
func (s *sampled) Advance(t int64) {
	s.until(t - 1)
	s.simTarget.Advance(t)
}

// until writes the samples that are due up to t. Nothing happens in the engine between two of
// its events, so its state now is its state then.
func (s *sampled) until(t int64) {
	for s.next <= t {
		for i, ranks := range s.Stats() {
			source := "sim"
			if i > 0 {
				source = fmt.Sprintf("sim/%d", i)
			}
			s.write(gauges(s.next, source, ranks))
		}
		s.next += sampleEvery
	}
}

func gauges(at int64, source string, ranks []sim.Stats) *record.Sample {
	v := map[string]float64{}
	for i, r := range ranks {
		var labels []string
		if r.Role != "" {
			labels = append(labels, fmt.Sprintf("engine_type=%q", r.Role))
		}
		if len(ranks) > 1 {
			labels = append(labels, fmt.Sprintf(`dp_rank="%d"`, i))
		}
		label := ""
		if len(labels) > 0 {
			label = "{" + strings.Join(labels, ",") + "}"
		}
		v["sglang:num_running_reqs"+label] = float64(r.Running)
		v["sglang:num_queue_reqs"+label] = float64(r.Waiting)
		v["sglang:kv_used_tokens"+label] = float64(r.DeviceUsed)
		v["sglang:kv_evictable_tokens"+label] = float64(r.DeviceEvictable)
		v["sglang:max_total_num_tokens"+label] = float64(r.DeviceTokens)
		if r.DeviceTokens > 0 {
			v["sglang:token_usage"+label] = float64(r.DeviceUsed) / float64(r.DeviceTokens)
		}
		if r.HostTokens > 0 {
			v["sglang:hicache_host_used_tokens"+label] = float64(r.HostUsed)
			v["sglang:hicache_host_total_tokens"+label] = float64(r.HostTokens)
		}
		switch r.Role {
		case sim.RolePrefill:
			v["sglang:num_prefill_bootstrap_queue_reqs"+label] = float64(r.Bootstrap)
			v["sglang:num_prefill_inflight_queue_reqs"+label] = float64(r.Inflight)
			for name, sum := range map[string]float64{
				"sglang:kv_transfer_latency_ms": float64(r.Transfers.Ns) / 1e6, "sglang:kv_transfer_total_mb": float64(r.Transfers.Bytes) / (1 << 20),
				"sglang:kv_transfer_speed_gb_s": r.Transfers.Speed,
			} {
				v[name+"_count"+label] = float64(r.Transfers.N)
				v[name+"_sum"+label] = sum
			}
		case sim.RoleDecode:
			v["sglang:num_decode_prealloc_queue_reqs"+label] = float64(r.Prealloc)
			v["sglang:num_decode_transfer_queue_reqs"+label] = float64(r.Transfer)
		}
	}
	return &record.Sample{At: at, Source: source, Values: v}
}
