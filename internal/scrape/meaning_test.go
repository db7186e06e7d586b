package scrape

import (
	"fmt"
	"maps"
	"testing"

	"github.com/weirbench/weir/internal/engine"
	"github.com/weirbench/weir/internal/record"
)

// TestOneSpellingCounts: vLLM publishes bytes that were offloaded under a present and a former
// name, and SGLang used tokens under two; each counts once.
func TestOneSpellingCounts(t *testing.T) {
	at := func(at int64, store, total float64) *record.Sample {
		return &record.Sample{At: at, Source: "a", Values: map[string]float64{
			`vllm:kv_offload_store_bytes_total{engine="0"}`:                            store,
			`vllm:kv_offload_total_bytes_total{engine="0",transfer_type="GPU_to_CPU"}`: total,
			`vllm:kv_offload_total_bytes_total{engine="0",transfer_type="CPU_to_GPU"}`: 7 * total,
			`vllm:kv_cache_usage_perc{engine="0"}`:                                     0.5,
			`vllm:gpu_cache_usage_perc{engine="0"}`:                                    0.9,
			`sglang:kv_used_tokens{dp_rank="0"}`:                                       10,
			`sglang:kv_used_tokens{dp_rank="1"}`:                                       20,
			`sglang:num_used_tokens{dp_rank="0"}`:                                      10,
			`sglang:num_used_tokens{dp_rank="1"}`:                                      20,
		}}
	}
	c := NewCounters(0, record.Profiling)
	c.Add(at(0, 0, 0))
	c.Add(at(1e9, 100, 100))
	if n, ok := c.Growth("vllm", engine.BytesToHost); !ok || n != 100 {
		t.Errorf("%v bytes to the host (%t), want 100", n, ok)
	}
	if n, ok := c.Growth("vllm", engine.BytesToDevice); !ok || n != 700 {
		t.Errorf("%v bytes to the device (%t), want 700: only the former name has this direction", n, ok)
	}
	v := Read(at(0, 0, 0))
	for q, want := range map[engine.Quantity]float64{engine.DeviceUsage: 0.5, engine.DeviceUsed: 30} {
		if n, ok := v.Get(q); !ok || n != want {
			t.Errorf("%s is %v (%t), want %v", q, n, ok, want)
		}
	}
}

// TestBlocksBecomeTokens reads the pools of engines that count in blocks.
func TestBlocksBecomeTokens(t *testing.T) {
	for _, c := range []struct {
		name               string
		values             map[string]float64
		pool, used, evict  float64
		hasPool, evictable bool
	}{
		{"atom that says its block", map[string]float64{`atom:cache_config_info{block_size="128",num_gpu_blocks="10"}`: 1,
			"atom:kv_cache_blocks_total": 10, "atom:kv_cache_blocks_used": 3, "atom:kv_cache_blocks_indexed": 7}, 1280, 384, 512, true, true},
		{"atom before it", map[string]float64{"atom:kv_cache_blocks_total": 10, "atom:kv_cache_blocks_used": 3}, 160, 48, 0, true, false},
		{"trtllm", map[string]float64{"trtllm_kv_cache_max_blocks": 100, "trtllm_kv_cache_used_blocks": 4, "trtllm_kv_cache_tokens_per_block": 32}, 3200, 128, 0, true, false},
		{"trtllm without the size of a block", map[string]float64{"trtllm_kv_cache_max_blocks": 100}, 0, 0, 0, false, false},
	} {
		v := Read(&record.Sample{Values: c.values})
		pool, ok := v.Get(engine.DeviceTokens)
		used, _ := v.Get(engine.DeviceUsed)
		evict, has := v.Get(engine.DeviceEvictable)
		if pool != c.pool || ok != c.hasPool || used != c.used || evict != c.evict || has != c.evictable {
			t.Errorf("%s: pool %v (%t), used %v, evictable %v (%t)", c.name, pool, ok, used, evict, has)
		}
	}
}

// TestRolesRepeat: in a disaggregated vLLM the decode side counts prompts again, as external
// hits, and the prefill side every answer's first token.
func TestRolesRepeat(t *testing.T) {
	worker := func(url string, at int64, prompt, external, out float64) *record.Sample {
		return &record.Sample{At: at, Source: url, Values: map[string]float64{
			`vllm:prompt_tokens_total{engine="0"}`:                                         prompt,
			`vllm:prompt_tokens_by_source_total{engine="0",source="local_compute"}`:        prompt - external,
			`vllm:prompt_tokens_by_source_total{engine="0",source="external_kv_transfer"}`: external,
			`vllm:generation_tokens_total{engine="0"}`:                                     out,
		}}
	}
	c := NewCounters(0, record.Profiling)
	c.Role = func(url string) string { return url }
	for _, url := range []string{"prefill", "decode"} {
		c.Add(worker(url, 0, 0, 0, 0))
	}
	c.Add(worker("prefill", 1e9, 1000, 200, 10))
	c.Add(worker("decode", 1e9, 1000, 990, 640))
	h, ok := c.Hits()
	if !ok || h.Prompt != 1000 || h.Host != 200 {
		t.Errorf("hits %+v (%t), want 200 of 1000", h, ok)
	}
	if n, _ := c.Total(engine.OutputTokens); n != 640 {
		t.Errorf("%v output tokens, want 640", n)
	}
	c.Role = nil
	if h, _ := c.Hits(); h.Prompt != 2000 {
		t.Errorf("without roles %+v, want all 2000 prompt tokens", h)
	}
}

// TestNoSuchNumbers: what no server can count (NaN, infinities, numbers beyond any count, less than nothing)
// leaves a quantity unknown and never makes a sum or a growth that is no number.
func TestNoSuchNumbers(t *testing.T) {
	var p page
	c := NewCounters(0, record.Profiling)
	known := map[string]float64{}
	for i, v := range []string{"1e308", "1.7e308", "NaN", "-5", "+Inf", "-Inf", "1e400", "-1e308"} {
		ch, err := p.update(fmt.Appendf(nil, "sglang:prompt_tokens_total %s\nsglang:num_running_reqs{dp_rank=\"0\"} %s\nsglang:num_running_reqs{dp_rank=\"1\"} %s\nsglang:token_usage %s\n", v, v, v, v))
		if err != nil {
			t.Fatal(err)
		}
		apply(known, ch)
		s := &record.Sample{At: int64(i), Source: "a", Values: maps.Clone(known)}
		c.Add(s)
		view := Read(s)
		for _, q := range []engine.Quantity{engine.Running, engine.DeviceUsage} {
			if x, ok := view.Get(q); ok {
				t.Errorf("%s: %s is %v", v, q, x)
			}
		}
	}
	if n, ok := c.Total(engine.PromptTokens); ok {
		t.Errorf("prompt tokens grew by %v", n)
	}
}
