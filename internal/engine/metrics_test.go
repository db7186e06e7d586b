package engine

import (
	"strings"
	"testing"
)

// TestClassify reads the spellings of the engines' metrics.
func TestClassify(t *testing.T) {
	for series, want := range map[string]Signal{
		`sglang:token_usage{tp_rank="3",dp_rank="3"}`:                                   {Engine: "sglang", Quantity: DeviceUsage, Scale: 1, Rank: 3, Replica: "3"},
		`sglang:cached_tokens_total{engine_type="unified",cache_source="storage_file"}`: {Engine: "sglang", Quantity: HitStorage, Scale: 1, Role: "unified"},
		`sglang:cached_tokens_total{engine_type="prefill",cache_source="host"}`:         {Engine: "sglang", Quantity: HitHost, Scale: 1, Role: "prefill"},
		`sglang_num_queue_reqs`: {Engine: "sglang", Quantity: Waiting, Scale: 1},
		`vllm:prompt_tokens_by_source_total{source="local_cache_hit"}`:                               {Engine: "vllm", Quantity: HitDevice, Scale: 1},
		`vllm:kv_offload_total_bytes_total{transfer_type="CPU_to_GPU"}`:                              {Engine: "vllm", Quantity: BytesToDevice, Scale: 1, Spelling: 1},
		`vllm:kv_offload_load_bytes_total{engine="0"}`:                                               {Engine: "vllm", Quantity: BytesToDevice, Scale: 1, Replica: "0"},
		`vllm:cache_config_info{block_size="16",num_gpu_blocks="1000"}`:                              {Engine: "vllm", Quantity: DeviceTokens, Scale: 16000},
		`vllm:cache_config_info{block_size="16",kv_cache_size_tokens="15000",num_gpu_blocks="1000"}`: {Engine: "vllm", Quantity: DeviceTokens, Scale: 15000},
		`vllm:cache_config_info{block_size="16",kv_cache_size_tokens="None",num_gpu_blocks="1000"}`:  {Engine: "vllm", Quantity: DeviceTokens, Scale: 16000},
		`atom:kv_cache_blocks_total`:                                                                 {Engine: "atom", Quantity: DeviceBlocks, Scale: 1},
		`atom:cache_config_info{block_size="128",num_gpu_blocks="9"}`:                                {Engine: "atom", Quantity: BlockTokens, Scale: 128},
		`atom:mtp_average_tokens_per_forward`:                                                        {Engine: "atom", Quantity: AcceptLength, Scale: 1},
		`trtllm_kv_cache_onboard_bytes_total`:                                                        {Engine: "trtllm", Quantity: BytesToDevice, Scale: 1},
		`trtllm_prompt_cache_hit_tokens_total{cache_level="1",cache_tier="host"}`:                    {Engine: "trtllm", Quantity: HitHost, Scale: 1},
		`dynamo_frontend_queued_requests{model="m"}`:                                                 {Engine: "dynamo", Quantity: FrontendWaiting, Scale: 1, Role: "router"},
		`kvbm_matched_tokens`:                                              {Engine: "dynamo", Quantity: HostLookupHits, Scale: 1},
		`atom_prefix_cache_cached_tokens`:                                  {Engine: "atom", Quantity: HitUnsplit, Scale: 1},
		`trtllm_prompt_cached_tokens_total`:                                {Engine: "trtllm", Quantity: HitUnsplit, Scale: 1},
		`dynamo_frontend_cached_tokens_sum{model="m"}`:                     {Engine: "dynamo", Quantity: FrontendHits, Scale: 1, Role: "router"},
		`sglang:num_decode_transfer_queue_reqs{engine_type="decode"}`:      {Engine: "sglang", Quantity: DecodeTransfer, Scale: 1, Role: "decode"},
		`sglang:num_prefill_prealloc_queue_reqs{engine_type="prefill"}`:    {Engine: "sglang", Quantity: PrefillBootstrap, Scale: 1, Spelling: 1, Role: "prefill"},
		`vllm:nixl_num_kv_expired_reqs_total{engine="1"}`:                  {Engine: "vllm", Quantity: TransferExpired, Scale: 1, Replica: "1"},
		`smg_router_requests_total{router_type="http"}`:                    {Engine: "smg", Quantity: RouterRequests, Scale: 1, Role: "router"},
		`sglang:realtime_tokens_total{mode="prefill_compute",tp_rank="0"}`: {Engine: "sglang", Quantity: ComputedTokens, Scale: 1},
	} {
		got := Classify(series)
		if got == nil {
			t.Errorf("%s: unknown", series)
			continue
		}
		g := *got
		g.Same, g.Percent = "", false
		if g != want {
			t.Errorf("%s: %+v, want %+v", series, g, want)
		}
	}
	for _, series := range []string{
		`sglang:cached_tokens_total{engine_type="decode",cache_source="device"}`, // repeats prefill
		`sglang:prompt_tokens_total{engine_type="decode"}`,
		`sglang:realtime_tokens_total{mode="decode"}`,
		`sglang:e2e_request_latency_seconds_bucket{le="1"}`,
		`vllm:cache_config_info{block_size="x",num_gpu_blocks="1000"}`,
		`process_cpu_seconds_total`, `up`, ``, `{`,
	} {
		if got := Classify(series); got != nil {
			t.Errorf("%s: %+v, want unknown", series, got)
		}
	}
}

func TestLabel(t *testing.T) {
	const set = `a="1",b="x\"y,c=\"z",c="3"`
	for name, want := range map[string]string{"a": "1", "b": `x\"y,c=\"z`, "c": "3", "d": ""} {
		if got := Label(set, name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if got := Label(`a="1`, "a"); got != "" {
		t.Errorf("a torn label is %q", got)
	}
}

// TestHitsOf: the tiers of every engine, and what stays unknown.
func TestHitsOf(t *testing.T) {
	type key struct {
		e string
		q Quantity
	}
	for _, c := range []struct {
		name string
		in   map[key]float64
		want TierHits
		ok   bool
	}{
		{"sglang", map[key]float64{{"sglang", PromptTokens}: 100, {"sglang", HitDevice}: 60, {"sglang", HitStorage}: 10}, TierHits{"sglang", 100, 60, 0, 10, 70}, true},
		{"sglang, some unsplit", map[key]float64{{"sglang", PromptTokens}: 100, {"sglang", HitDevice}: 60, {"sglang", HitUnsplit}: 5}, TierHits{"sglang", 100, -1, -1, -1, 65}, true},
		{"sglang, all unsplit", map[key]float64{{"sglang", PromptTokens}: 100, {"sglang", HitUnsplit}: 5}, TierHits{"sglang", 100, -1, -1, -1, 5}, true},
		{"vllm by source", map[key]float64{{"vllm", HitDevice}: 50, {"vllm", HitHost}: 20, {"vllm", ComputedTokens}: 30, {"vllm", LookedUp}: 999, {"vllm", LookupHits}: 1}, TierHits{"vllm", 100, 50, 20, 0, 70}, true},
		{"vllm lookups", map[key]float64{{"vllm", LookedUp}: 100, {"vllm", LookupHits}: 40, {"vllm", HostLookupHits}: 7}, TierHits{"vllm", 100, 40, 7, 0, 47}, true},
		{"trtllm", map[key]float64{{"trtllm", PromptTokens}: 10, {"trtllm", HitUnsplit}: 4}, TierHits{"trtllm", 10, -1, -1, -1, 4}, true},
		{"trtllm by tier", map[key]float64{{"trtllm", PromptTokens}: 10, {"trtllm", HitUnsplit}: 6, {"trtllm", HitDevice}: 4, {"trtllm", HitHost}: 2}, TierHits{"trtllm", 10, 4, 2, 0, 6}, true},
		{"atom", map[key]float64{{"atom", LookedUp}: 10, {"atom", HitUnsplit}: 4, {"atom", HitHost}: 1}, TierHits{"atom", 10, -1, 1, -1, 4}, true},
		{"dynamo before sglang", map[key]float64{{"dynamo", FrontendPrompt}: 10, {"dynamo", FrontendHits}: 4, {"sglang", PromptTokens}: 10, {"sglang", HitDevice}: 3, {"sglang", HitHost}: 1}, TierHits{"sglang", 10, 3, 1, 0, 4}, true},
		{"dynamo alone", map[key]float64{{"dynamo", FrontendPrompt}: 10, {"dynamo", FrontendHits}: 4}, TierHits{"dynamo", 10, -1, -1, -1, 4}, true},
		{"nothing ended", map[key]float64{{"sglang", PromptTokens}: 0, {"sglang", HitDevice}: 0}, TierHits{}, false},
		{"nothing", nil, TierHits{}, false},
	} {
		got, ok := HitsOf(func(e string, q Quantity) (float64, bool) { v, has := c.in[key{e, q}]; return v, has })
		if got != c.want || ok != c.ok {
			t.Errorf("%s: %+v %t, want %+v %t", c.name, got, ok, c.want, c.ok)
		}
	}
}

// TestRequired: every family that an engine must publish is one that its adapter reads.
func TestRequired(t *testing.T) {
	for _, e := range []string{"sglang", "vllm", "trtllm", "atom", "dynamo"} {
		list := Required(e)
		if len(list) == 0 {
			t.Errorf("%s requires nothing", e)
		}
		for _, f := range list {
			for name := range strings.SplitSeq(f, "|") {
				known := false
				for _, series := range []string{name, name + "_sum", name + `{source="local_compute"}`} {
					known = known || Classify(series) != nil
				}
				if !known || EngineOfMetric(name) != e {
					t.Errorf("%s requires %s, which no adapter reads", e, name)
				}
			}
		}
	}
}
