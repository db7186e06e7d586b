package engine

import "slices"

// required are families without which a point of an engine says nothing of its cache, without
// _total; spellings of one are separated by a bar. A canary has been answered before they are
// looked for, so that counters with labels are there.
var required = map[string][]string{
	"sglang": {"sglang:prompt_tokens|sglang_prompt_tokens", "sglang:token_usage|sglang_token_usage", "sglang:num_running_reqs|sglang_num_running_reqs"},
	"vllm": {"vllm:prompt_tokens", "vllm:num_requests_running", "vllm:kv_cache_usage_perc|vllm:gpu_cache_usage_perc",
		"vllm:prompt_tokens_by_source|vllm:prefix_cache_queries|vllm:gpu_prefix_cache_queries"},
	"trtllm": {"trtllm_prompt_tokens", "trtllm_kv_cache_utilization"},
	"atom":   {"atom:prompt_tokens|atom_prompt_tokens", "atom:kv_cache_usage_ratio|atom_kv_cache_usage_ratio"},
	"dynamo": {"dynamo_frontend_input_sequence_tokens"},
}

// Required are the metric families that a point of an engine needs; see Recipe.RequireMetrics.
func Required(engine string) []string { return slices.Clone(required[engine]) }

// require settles which families the deployment must publish: the recipe's, or the engine's own
// where something of it is scraped.
func (b *build) require() {
	if b.r.RequireMetrics != nil {
		b.d.Require = slices.Clone(*b.r.RequireMetrics)
		return
	}
	name := b.d.Engine
	if name == "sim" { // it publishes what the engine does that it stands for
		name = "sglang"
		if b.v.Engine == "vllm" {
			name = "vllm"
		}
	}
	b.d.Require = Required(name)
}
