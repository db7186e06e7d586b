package engine

import (
	"math"
	"strconv"
	"strings"
)

// A Timing is a number of requests or transfers that engines publish as a histogram: a time in seconds, a
// size in bytes or a speed in bytes per second.
type Timing int

const (
	TimeToFirst   Timing = iota // of a request, as the engine sees it
	BetweenToken                // between two tokens of a request
	WholeRequest                // from arrival to end
	InQueue                     // of a request before it first ran
	TransferTime                // of the KV of a request between prefill and decode
	TransferBytes               // of it, bytes
	TransferSpeed               // of it, bytes per second
	Timings                     // how many there are
)

// published is a timing and what turns the engine's unit into ours.
type published struct {
	timing Timing
	scale  float64
}

// timings are the families by name (SGLang and vLLM of 2026-07, TensorRT-LLM of 2026-06). Dynamo's
// frontend repeats what its engines publish and is left out. SGLang's MB and GB of transfers are
// 2^20 and 2^30 bytes (managers/schedule_batch.py and observability/req_time_stats.py); its prefill
// side counts transfers, and vLLM's decode side, which fetches.
var timings = map[string]published{
	"sglang:time_to_first_token_seconds": {TimeToFirst, 1}, "vllm:time_to_first_token_seconds": {TimeToFirst, 1}, "trtllm_time_to_first_token_seconds": {TimeToFirst, 1},
	"sglang:inter_token_latency_seconds": {BetweenToken, 1}, "vllm:inter_token_latency_seconds": {BetweenToken, 1}, "vllm:time_per_output_token_seconds": {BetweenToken, 1},
	"trtllm_time_per_output_token_seconds": {BetweenToken, 1},
	"sglang:e2e_request_latency_seconds":   {WholeRequest, 1}, "vllm:e2e_request_latency_seconds": {WholeRequest, 1}, "trtllm_e2e_request_latency_seconds": {WholeRequest, 1},
	"sglang:queue_time_seconds": {InQueue, 1}, "vllm:request_queue_time_seconds": {InQueue, 1}, "trtllm_request_queue_time_seconds": {InQueue, 1},
	"sglang:kv_transfer_latency_ms": {TransferTime, 1e-3}, "vllm:nixl_xfer_time_seconds": {TransferTime, 1},
	"sglang:kv_transfer_total_mb": {TransferBytes, 1 << 20}, "vllm:nixl_bytes_transferred": {TransferBytes, 1},
	"sglang:kv_transfer_speed_gb_s": {TransferSpeed, 1 << 30},
}

// HistogramPart is what a series of a histogram counts.
type HistogramPart int

const (
	BucketPart HistogramPart = iota
	CountPart
	SumPart
)

// A TimingSignal is what one series of a histogram says.
type TimingSignal struct {
	Timing Timing
	Part   HistogramPart
	Le     float64 // a bucket's upper bound in the timing's unit
	Scale  float64 // turns a sum into the timing's unit, 1 for counts
	// Same, Rank and Replica are as in a Signal.
	Same    string
	Rank    int
	Replica string
}

// ClassifyTiming says which timing a series belongs to; false for any other series.
func ClassifyTiming(series string) (s TimingSignal, ok bool) {
	name, labels, _ := strings.Cut(series, "{")
	for p, suffix := range []string{"_bucket", "_count", "_sum"} {
		family, found := strings.CutSuffix(name, suffix)
		if !found {
			continue
		}
		of, known := timings[family]
		if !known {
			return s, false
		}
		labels = strings.TrimSuffix(labels, "}")
		s = TimingSignal{Timing: of.timing, Part: HistogramPart(p), Scale: 1, Replica: replica(EngineOfMetric(family), labels)}
		s.Same, s.Rank = sameRank(name, labels)
		switch s.Part {
		case SumPart:
			s.Scale = of.scale
		case BucketPart:
			v, err := strconv.ParseFloat(Label(labels, "le"), 64)
			if err != nil || math.IsNaN(v) {
				return TimingSignal{}, false
			}
			s.Le = scaled(v, of.scale)
		}
		return s, true
	}
	return s, false
}

// scaled is a bound in our unit; thousandths are divided, which leaves 5 ms at 0.005 s.
func scaled(v, scale float64) float64 {
	if scale == 1e-3 {
		return v / 1000
	}
	return v * scale
}
