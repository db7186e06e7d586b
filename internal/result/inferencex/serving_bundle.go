package inferencex

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/weirbench/weir/internal/record"
	"github.com/weirbench/weir/internal/result"
	"github.com/weirbench/weir/internal/spec"
)

// benchmark is what InferenceX's benchmark_serving would have written of a fixed-seq-len run
// (utils/bench_serving, 2026-08), without its lists: latency is to the last content, the time of
// the benchmark from the first request to the last end, prompt tokens are those that were asked for, and
// only what succeeded counts.
func benchmark(b *record.Bundle, p *spec.Point) (map[string]json.RawMessage, error) {
	var ttft, tpot, itl, e2el []float64 // seconds
	var input, output int64
	first, last := record.Never, record.Never
	for q, err := range b.Requests() {
		if err != nil {
			return nil, err
		}
		at := q.Times
		if q.Phase != record.Profiling || at.Sent == record.Never {
			continue
		}
		if first == record.Never || at.Sent < first {
			first = at.Sent
		}
		last = max(last, at.End)
		if !q.OK() || at.FirstToken == record.Never {
			continue
		}
		out := q.OutputTokens
		if out < 0 {
			return nil, fmt.Errorf("%s: request %d has no count of output tokens, and nothing here can count them", b.Dir, q.Seq)
		}
		if input += q.WantIn; q.WantIn <= 0 {
			input += max(q.PromptTokens, 0)
		}
		output += out
		ttft = append(ttft, float64(at.FirstToken-at.Sent)/1e9)
		e2el = append(e2el, float64(at.LastToken-at.Sent)/1e9)
		if out > 1 {
			tpot = append(tpot, float64(at.LastToken-at.FirstToken)/1e9/float64(out-1))
		}
		for i := 1; i < len(q.Chunks); i++ {
			itl = append(itl, float64(q.Chunks[i].At-q.Chunks[i-1].At)/1e9)
		}
	}
	if len(ttft) == 0 {
		return nil, fmt.Errorf("%s: no request succeeded: there is no row", b.Dir)
	}
	dur := float64(last-first) / 1e9
	if dur <= 0 {
		return nil, fmt.Errorf("%s: its requests took no time", b.Dir)
	}
	v := map[string]any{
		"max_concurrency": p.Conc, "model_id": p.Model, "duration": dur, "completed": len(ttft), "total_input_tokens": input, "total_output_tokens": output,
		"request_throughput": float64(len(ttft)) / dur, "output_throughput": float64(output) / dur, "total_token_throughput": float64(input+output) / dur,
	}
	for name, list := range map[string][]float64{"ttft": ttft, "tpot": tpot, "itl": itl, "e2el": e2el} {
		if len(list) == 0 {
			continue // unknown, where benchmark_serving says 0
		}
		slices.Sort(list)
		m := momentsOf(list)
		v["mean_"+name+"_ms"], v["std_"+name+"_ms"], v["median_"+name+"_ms"] = m.mean*1000, m.sd*1000, m.p50*1000
		v["p90_"+name+"_ms"], v["p99_"+name+"_ms"], v["p99.9_"+name+"_ms"] = m.p90*1000, result.Percentile(list, 99)*1000, quantile(list, 0.999)*1000
	}
	out := map[string]json.RawMessage{}
	for k, x := range v {
		raw, err := json.Marshal(x)
		if err != nil {
			return nil, err
		}
		out[k] = raw
	}
	return out, nil
}

// quantile interpolates linearly in sorted values.
func quantile(sorted []float64, q float64) float64 {
	k := float64(len(sorted)-1) * q
	i := int(k)
	if i+1 >= len(sorted) {
		return sorted[i]
	}
	return sorted[i] + (k-float64(i))*(sorted[i+1]-sorted[i])
}
