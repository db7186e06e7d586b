package aiperf

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// judged are the metrics of one request that --goodput may bound, and whether more of them is better:
// then the bound is the least that is good, else the most (metrics/types of agentx-harness 1.0.12,
// 2026-10).
var judged = map[string]bool{
	"time_to_first_token": false, "time_to_first_output_token": false, "time_to_second_token": false, "request_latency": false,
	"decode_duration": false, "full_decode_duration": false, "inter_token_latency": false, "full_response_inter_token_latency": false,
	"output_token_throughput_per_user": true, "full_response_output_token_throughput_per_user": true, "e2e_output_token_throughput": true,
	"prefill_throughput_per_user": true, "input_sequence_length": true, "output_sequence_length": true, "output_token_count": true,
	"reasoning_token_count": true, "usage_prompt_tokens": true, "usage_completion_tokens": true, "usage_total_tokens": true,
	"usage_reasoning_tokens": true, "usage_prompt_cache_read_tokens": true, "osl_mismatch_diff_pct": false,
}

// ParseGoodput reads --goodput: pairs TAG:VALUE by spaces, each value in the unit of its metric.
func ParseGoodput(text string) (map[string]float64, error) {
	out := map[string]float64{}
	for pair := range strings.FieldsSeq(text) {
		tag, v, ok := strings.Cut(pair, ":")
		f, err := strconv.ParseFloat(v, 64)
		if !ok || err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
			return nil, fmt.Errorf("%q: write TAG:NUMBER", pair)
		}
		if _, known := judged[tag]; !known {
			return nil, fmt.Errorf("%q is no metric of a request that can be bounded: %s are", tag, strings.Join(slices.Sorted(maps.Keys(judged)), ", "))
		}
		out[tag] = f
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("it is empty: write pairs TAG:NUMBER")
	}
	return out, nil
}

// good tells that a request that succeeded keeps to every bound. A metric that it does not have is
// not kept.
func (o *Options) good(e *entry) bool {
	for tag, bound := range o.Goodput {
		m := e.values.get(tag)
		if m == nil || m.list != nil {
			return false
		}
		x := m.v
		if judged[tag] && x < bound || !judged[tag] && x > bound {
			return false
		}
	}
	return true
}
