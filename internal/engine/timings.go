package engine

import (
	"math"
	"strconv"
	"strings"
)

// A Timing is a time that engines publish as a histogram, in seconds.
type Timing int

const (
	TimeToFirst  Timing = iota // of a request, as the engine sees it
	BetweenToken               // between two tokens of a request
	WholeRequest               // from arrival to end
	InQueue                    // of a request before it first ran
	Timings                    // how many there are
)

// timings are the families by name (SGLang and vLLM of 2026-07, TensorRT-LLM of 2026-06). Dynamo's
// frontend repeats what its engines publish and is left out.
var timings = map[string]Timing{
	"sglang:time_to_first_token_seconds": TimeToFirst, "vllm:time_to_first_token_seconds": TimeToFirst, "trtllm_time_to_first_token_seconds": TimeToFirst,
	"sglang:inter_token_latency_seconds": BetweenToken, "vllm:inter_token_latency_seconds": BetweenToken, "vllm:time_per_output_token_seconds": BetweenToken,
	"trtllm_time_per_output_token_seconds": BetweenToken,
	"sglang:e2e_request_latency_seconds":   WholeRequest, "vllm:e2e_request_latency_seconds": WholeRequest, "trtllm_e2e_request_latency_seconds": WholeRequest,
	"sglang:queue_time_seconds": InQueue, "vllm:request_queue_time_seconds": InQueue, "trtllm_request_queue_time_seconds": InQueue,
}

// HistogramPart is what a series of a histogram counts.
type HistogramPart int

const (
	BucketPart HistogramPart = iota
	CountPart
	SumPart
)

// ClassifyTiming says which timing a series belongs to and, for a bucket, its upper bound; false for any
// other series and for those of ranks that repeat the first.
func ClassifyTiming(series string) (t Timing, part HistogramPart, le float64, ok bool) {
	name, labels, _ := strings.Cut(series, "{")
	for p, suffix := range []string{"_bucket", "_count", "_sum"} {
		family, found := strings.CutSuffix(name, suffix)
		if !found {
			continue
		}
		if t, ok = timings[family]; !ok {
			return 0, 0, 0, false
		}
		labels = strings.TrimSuffix(labels, "}")
		for _, rank := range []string{"tp_rank", "pp_rank"} {
			if r := Label(labels, rank); r != "" && r != "0" {
				return 0, 0, 0, false
			}
		}
		part = HistogramPart(p)
		if part == BucketPart {
			v, err := strconv.ParseFloat(Label(labels, "le"), 64)
			if err != nil || math.IsNaN(v) {
				return 0, 0, 0, false
			}
			le = v
		}
		return t, part, le, true
	}
	return 0, 0, 0, false
}
