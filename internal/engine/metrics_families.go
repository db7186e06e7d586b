package engine

// families says what the metrics of engines mean, by name without _total. Names of histograms
// stand with _sum. Sources: SGLang observability/metrics_collector.py and
// managers/schedule_batch.py (2026-07), vLLM v1/metrics and its offloading connector (2026-07,
// older spellings beside), TensorRT-LLM metrics/collector.py (2026-07), Dynamo's frontend and
// component metrics (2026-07), ATOM's metrics (2026-07).
//
// In a disaggregated SGLang the decode side repeats the prompt and its hits, and the prefill side
// the first output token, so each side's repetition is left out.
var families = map[string][]metric{
	"sglang:token_usage":                      {{quantity: DeviceUsage}},
	"sglang:kv_used_tokens":                   {{quantity: DeviceUsed}},
	"sglang:num_used_tokens":                  {{quantity: DeviceUsed, spelling: 1}},
	"sglang:kv_evictable_tokens":              {{quantity: DeviceEvictable}},
	"sglang:max_total_num_tokens":             {{quantity: DeviceTokens}},
	"sglang:hicache_host_used_tokens":         {{quantity: HostUsed}},
	"sglang:hicache_host_total_tokens":        {{quantity: HostTokens}},
	"sglang:num_running_reqs":                 {{quantity: Running}},
	"sglang:num_queue_reqs":                   {{quantity: Waiting}},
	"sglang:spec_accept_length":               {{quantity: AcceptLength}},
	"sglang:num_prefill_bootstrap_queue_reqs": {{quantity: PrefillBootstrap}},
	"sglang:num_prefill_inflight_queue_reqs":  {{quantity: PrefillInflight}},
	"sglang:num_decode_prealloc_queue_reqs":   {{quantity: DecodePrealloc}},
	"sglang:num_decode_transfer_queue_reqs":   {{quantity: DecodeTransfer}},
	"sglang:prompt_tokens":                    {{quantity: PromptTokens, notRole: "decode"}},
	"sglang:generation_tokens":                {{quantity: OutputTokens, notRole: "prefill"}},
	"sglang:num_requests":                     {{quantity: EndedRequests, notRole: "prefill"}},
	"sglang:evicted_tokens":                   {{quantity: EvictedTokens}},
	"sglang:load_back_tokens":                 {{quantity: LoadedBack}},
	"sglang:backuped_tokens":                  {{quantity: BackedUp}},
	"sglang:num_retracted_requests":           {{quantity: Retracted}},
	"sglang:num_transfer_failed_reqs":         {{quantity: TransferFailed}},
	"sglang:num_bootstrap_failed_reqs":        {{quantity: BootstrapFailed}},
	// Releases of 2025 called the bootstrap queue so.
	"sglang:num_prefill_prealloc_queue_reqs": {{quantity: PrefillBootstrap, spelling: 1}},
	"sglang:cached_tokens": {
		{quantity: HitDevice, label: "cache_source", value: "device", notRole: "decode"},
		{quantity: HitHost, label: "cache_source", value: "host", notRole: "decode"},
		{quantity: HitStorage, label: "cache_source", value: "storage", notRole: "decode"},
		{quantity: HitUnsplit, label: "cache_source", value: "total", notRole: "decode"},
	},
	"sglang:realtime_tokens": {{quantity: ComputedTokens, label: "mode", value: "prefill_compute", notRole: "decode"}},

	"vllm:kv_cache_usage_perc":             {{quantity: DeviceUsage, percent: true}},
	"vllm:gpu_cache_usage_perc":            {{quantity: DeviceUsage, percent: true, spelling: 1}},
	"vllm:cpu_kv_cache_usage_perc":         {{quantity: HostUsage, percent: true, spelling: 1}},
	"vllm:gpu_prefix_cache_queries":        {{quantity: LookedUp, spelling: 1}},
	"vllm:gpu_prefix_cache_hits":           {{quantity: LookupHits, spelling: 1}},
	"vllm:kv_offload_cpu_cache_usage_perc": {{quantity: HostUsage, percent: true}},
	"vllm:num_requests_running":            {{quantity: Running}},
	"vllm:num_requests_waiting":            {{quantity: Waiting}},
	"vllm:prompt_tokens":                   {{quantity: PromptTokens}},
	"vllm:generation_tokens":               {{quantity: OutputTokens}},
	"vllm:request_success":                 {{quantity: EndedRequests}},
	"vllm:prefix_cache_queries":            {{quantity: LookedUp}},
	"vllm:prefix_cache_hits":               {{quantity: LookupHits}},
	"vllm:external_prefix_cache_queries":   {{quantity: HostLookedUp}},
	"vllm:external_prefix_cache_hits":      {{quantity: HostLookupHits}},
	"vllm:num_preemptions":                 {{quantity: Preempted}},
	"vllm:prompt_tokens_by_source": {
		{quantity: ComputedTokens, label: "source", value: "local_compute"},
		{quantity: HitDevice, label: "source", value: "local_cache_hit"},
		{quantity: HitHost, label: "source", value: "external_kv_transfer"},
	},
	"vllm:kv_offload_store_bytes":          {{quantity: BytesToHost}},
	"vllm:kv_offload_load_bytes":           {{quantity: BytesToDevice}},
	"vllm:kv_offload_bytes_gpu_to_cpu":     {{quantity: BytesToHost, spelling: 2}},
	"vllm:kv_offload_bytes_cpu_to_gpu":     {{quantity: BytesToDevice, spelling: 2}},
	"vllm:spec_decode_num_drafts":          {{quantity: DraftSteps}},
	"vllm:spec_decode_num_accepted_tokens": {{quantity: DraftAccepted}},
	"vllm:nixl_num_failed_transfers":       {{quantity: TransferFailed}},
	"vllm:nixl_num_kv_expired_reqs":        {{quantity: TransferExpired}},

	"trtllm_kv_cache_utilization":          {{quantity: DeviceUsage, percent: true}},
	"trtllm_kv_cache_host_utilization":     {{quantity: HostUsage, percent: true}},
	"trtllm_num_requests_running":          {{quantity: Running}},
	"trtllm_num_requests_waiting":          {{quantity: Waiting}},
	"trtllm_prompt_tokens":                 {{quantity: PromptTokens}},
	"trtllm_generation_tokens":             {{quantity: OutputTokens}},
	"trtllm_prompt_cached_tokens":          {{quantity: HitUnsplit}},
	"trtllm_request_success":               {{quantity: EndedRequests}},
	"trtllm_kv_cache_onboard_bytes":        {{quantity: BytesToDevice}},
	"trtllm_kv_cache_offload_bytes":        {{quantity: BytesToHost}},
	"trtllm_kv_cache_max_blocks":           {{quantity: DeviceBlocks}},
	"trtllm_kv_cache_used_blocks":          {{quantity: UsedBlocks}},
	"trtllm_kv_cache_tokens_per_block":     {{quantity: BlockTokens}},
	"trtllm_spec_decode_acceptance_length": {{quantity: AcceptLength}},
	"trtllm_prompt_cache_hit_tokens": {
		{quantity: HitDevice, label: "cache_tier", value: "gpu"},
		{quantity: HitHost, label: "cache_tier", value: "host"},
		{quantity: HitStorage, label: "cache_tier", value: "disk"},
	},

	"dynamo_frontend_input_sequence_tokens_sum": {{quantity: FrontendPrompt}},
	"dynamo_frontend_cached_tokens_sum":         {{quantity: FrontendHits}},
	"dynamo_frontend_output_tokens":             {{quantity: FrontendOutput}},
	"dynamo_frontend_queued_requests":           {{quantity: FrontendWaiting}},
	"dynamo_component_gpu_cache_usage_percent":  {{quantity: DeviceUsage, percent: true}},
	"kvbm_matched_tokens":                       {{quantity: HostLookupHits}},

	"smg_worker_requests_active": {{quantity: RouterActive}},
	"smg_router_requests":        {{quantity: RouterRequests}},
	"smg_router_request_errors":  {{quantity: RouterErrors}},

	"atom:kv_cache_usage_ratio":           {{quantity: DeviceUsage}},
	"atom:kv_cache_blocks_total":          {{quantity: DeviceBlocks}},
	"atom:kv_cache_blocks_used":           {{quantity: UsedBlocks}},
	"atom:kv_cache_blocks_indexed":        {{quantity: IndexedBlocks}},
	"atom:lmcache_saved_tokens":           {{quantity: BackedUp}},
	"atom:mtp_average_tokens_per_forward": {{quantity: AcceptLength}},
	"atom:requests_running":               {{quantity: Running}},
	"atom:requests_waiting":               {{quantity: Waiting}},
	"atom:requests_finished":              {{quantity: EndedRequests}},
	"atom:preemptions":                    {{quantity: Preempted}},
	"atom:prompt_tokens":                  {{quantity: PromptTokens}},
	"atom:generation_tokens":              {{quantity: OutputTokens}},
	"atom:prefix_cache_cached_tokens":     {{quantity: HitUnsplit}},
	"atom:prefix_cache_full_tokens":       {{quantity: LookedUp}},
	"atom:lmcache_loaded_tokens":          {{quantity: HitHost}},
}

// AtomBlock is the tokens of an ATOM block where atom:cache_config_info does not say: releases
// before it had 16 (ATOM's scheduler, 2026-07).
const AtomBlock = 16

func init() {
	// ATOM's name of a gauge ends like a counter's.
	families["atom:kv_cache_blocks"] = families["atom:kv_cache_blocks_total"]
	delete(families, "atom:kv_cache_blocks_total")
	// vLLM before its split of directions; later releases still publish it beside the others.
	families["vllm:kv_offload_total_bytes"] = []metric{
		{quantity: BytesToHost, label: "transfer_type", value: "GPU_to_CPU", spelling: 1},
		{quantity: BytesToDevice, label: "transfer_type", value: "CPU_to_GPU", spelling: 1},
	}
	// ATOM and SGLang are also seen with an underscore in place of the colon.
	for name, rows := range families {
		for _, e := range []string{"atom", "sglang"} {
			if len(name) > len(e) && name[:len(e)+1] == e+":" {
				families[e+"_"+name[len(e)+1:]] = rows
			}
		}
	}
}

// A TierHits is prompt tokens by where they were found, from an engine's counters; a negative
// number is unknown.
type TierHits struct {
	Engine                             string
	Prompt, Device, Host, Storage, Hit int64
}

// HitsOf reads prompt tokens by tier from what counters grew by; get gives the growth of an
// engine's counter and whether it has it. With several engines the one that says most is taken;
// false when none says anything.
//
// SGLang gives the split per ended request. vLLM's prompt_tokens_by_source stands before its
// prefix-cache counters where it exists. TensorRT-LLM gives the tiers from 2026-09 on, before
// that a total; ATOM gives a total, which may hold what LMCache loaded. A frontend's numbers count when no engine's are there.
func HitsOf(get func(engine string, q Quantity) (float64, bool)) (TierHits, bool) {
	num := func(e string, q Quantity) int64 {
		if v, ok := get(e, q); ok && v >= 0 && v < 1<<53 {
			return int64(v + 0.5)
		}
		return -1
	}
	if h, prompt := num("sglang", HitDevice), num("sglang", PromptTokens); prompt > 0 {
		t := TierHits{"sglang", prompt, h, -1, -1, -1}
		total := num("sglang", HitUnsplit)
		if h >= 0 || num("sglang", HitHost) >= 0 || num("sglang", HitStorage) >= 0 {
			t.Device, t.Host, t.Storage = max(h, 0), max(num("sglang", HitHost), 0), max(num("sglang", HitStorage), 0)
			t.Hit = t.Device + t.Host + t.Storage + max(total, 0)
			if total > 0 { // some requests did not say where
				t.Device, t.Host, t.Storage = -1, -1, -1
			}
			return t, true
		}
		if total >= 0 {
			t.Device, t.Hit = -1, total
			return t, true
		}
	}
	if local, moved := num("vllm", HitDevice), num("vllm", HitHost); local >= 0 || moved >= 0 {
		if all := max(local, 0) + max(moved, 0) + max(num("vllm", ComputedTokens), 0); all > 0 {
			return TierHits{"vllm", all, max(local, 0), max(moved, 0), 0, max(local, 0) + max(moved, 0)}, true
		}
	}
	if asked, found := num("vllm", LookedUp), num("vllm", LookupHits); asked > 0 && found >= 0 {
		host := max(num("vllm", HostLookupHits), 0)
		return TierHits{"vllm", asked, found, host, 0, found + host}, true
	}
	if prompt := num("trtllm", PromptTokens); prompt > 0 {
		d, h, s := num("trtllm", HitDevice), num("trtllm", HitHost), num("trtllm", HitStorage)
		all := num("trtllm", HitUnsplit)
		if d >= 0 || h >= 0 || s >= 0 {
			d, h, s = max(d, 0), max(h, 0), max(s, 0)
			return TierHits{"trtllm", prompt, d, h, s, d + h + s}, true
		}
		if all >= 0 {
			return TierHits{"trtllm", prompt, -1, -1, -1, all}, true
		}
	}
	if full, found := num("atom", LookedUp), num("atom", HitUnsplit); full > 0 && found >= 0 {
		return TierHits{"atom", full, -1, num("atom", HitHost), -1, found}, true
	}
	if prompt, found := num("dynamo", FrontendPrompt), num("dynamo", FrontendHits); prompt > 0 && found >= 0 {
		return TierHits{"dynamo", prompt, -1, num("dynamo", HostLookupHits), -1, found}, true
	}
	return TierHits{}, false
}
