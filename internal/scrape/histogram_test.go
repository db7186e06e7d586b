package scrape

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirbench/weir/internal/engine"
	"github.com/weirbench/weir/internal/record"
)

// TestQuantileBounds: whatever was observed, and however endpoints restarted, the true quantile
// lies within the bounds, and the estimate too.
func TestQuantileBounds(t *testing.T) {
	bounds := []float64{0.01, 0.1, 0.5, 1, 5, math.Inf(1)}
	rapid.Check(t, func(t *rapid.T) {
		h := NewHistograms(1000, record.Profiling)
		var all []float64
		sum := 0.0
		for _, url := range []string{"a", "b"} {
			var counts [6]float64
			var total, count float64
			put := func(at int64) {
				v := map[string]float64{"vllm:time_to_first_token_seconds_sum": total, "vllm:time_to_first_token_seconds_count": count, "other_bucket": 3}
				for i, le := range bounds {
					v[fmt.Sprintf(`vllm:time_to_first_token_seconds_bucket{le="%v"}`, le)] = counts[i]
				}
				h.Add(&record.Sample{At: at, Source: url, Values: v})
			}
			observe := func(x float64) {
				for i, le := range bounds {
					if x <= le {
						counts[i]++
					}
				}
				total += x
				count++
			}
			observe(3) // before the window
			put(900)
			for i := range rapid.IntRange(1, 4).Draw(t, "samples") {
				if i > 0 && rapid.IntRange(0, 3).Draw(t, "restart") == 0 {
					counts, total, count = [6]float64{}, 0, 0
					put(int64(1100 + 10*i)) // seen empty after the restart
				}
				for _, x := range rapid.SliceOfN(rapid.Float64Range(0, 8), 0, 9).Draw(t, "times") {
					observe(x)
					all = append(all, x)
					sum += x
				}
				put(int64(1105 + 10*i))
			}
		}
		got, ok := h.Of(engine.TimeToFirst)
		if ok != (len(all) > 0) {
			t.Fatalf("%t with %d observations", ok, len(all))
		}
		if !ok {
			return
		}
		if got.Count != float64(len(all)) || math.Abs(got.Sum-sum) > 1e-9 {
			t.Fatalf("%v observations with the sum %v, want %d and %v", got.Count, got.Sum, len(all), sum)
		}
		slices.Sort(all)
		for _, q := range []float64{0.5, 0.9, 0.99} {
			true1 := all[int(math.Ceil(q*float64(len(all))))-1]
			v, low, high, ok := got.Quantile(q)
			if !ok || true1 < low || true1 > high || v < low || v > high {
				t.Fatalf("p%v of %v is %v within %v and %v, %t", q, all, v, low, high, ok)
			}
		}
		if _, ok := h.Of(engine.InQueue); ok {
			t.Fatal("a timing that nobody publishes")
		}
	})
}

func TestClassifyTiming(t *testing.T) {
	for series, want := range map[string]bool{
		`sglang:queue_time_seconds_bucket{engine_type="unified",le="0.5"}`: true,
		`vllm:request_queue_time_seconds_sum`:                              true, `vllm:request_queue_time_seconds_bucket`: false, `vllm:request_queue_time_seconds`: false, "x_bucket": false,
		`sglang:kv_transfer_total_mb`: false,
	} {
		if _, ok := engine.ClassifyTiming(series); ok != want {
			t.Errorf("%s: %t", series, ok)
		}
	}
	for series, want := range map[string]engine.TimingSignal{
		`sglang:kv_transfer_latency_ms_bucket{tp_rank="3",dp_rank="3",le="5.0"}`: {Timing: engine.TransferTime, Le: 0.005, Scale: 1, Rank: 3, Replica: "3"},
		`sglang:kv_transfer_total_mb_sum{engine_type="prefill"}`:                 {Timing: engine.TransferBytes, Part: engine.SumPart, Scale: 1 << 20},
		`sglang:kv_transfer_speed_gb_s_bucket{le="0.5"}`:                         {Timing: engine.TransferSpeed, Le: 1 << 29, Scale: 1},
		`vllm:nixl_bytes_transferred_sum{engine="1"}`:                            {Timing: engine.TransferBytes, Part: engine.SumPart, Scale: 1, Replica: "1"},
		`vllm:nixl_xfer_time_seconds_count`:                                      {Timing: engine.TransferTime, Part: engine.CountPart, Scale: 1},
	} {
		got, ok := engine.ClassifyTiming(series)
		if got.Same = ""; !ok || got != want {
			t.Errorf("%s: %+v %t, want %+v", series, got, ok, want)
		}
	}
}

// TestHistogramsOfRanks: ranks that repeat a number count once, also where none of them is rank 0, and
// those of data parallelism each.
func TestHistogramsOfRanks(t *testing.T) {
	h := NewHistograms(0, record.Profiling)
	add := func(at int64, n float64) {
		v := map[string]float64{}
		for _, labels := range []string{`dp_rank="0",tp_rank="0"`, `dp_rank="0",tp_rank="1"`, `dp_rank="1",tp_rank="2"`, `dp_rank="1",tp_rank="3"`} {
			v[`sglang:kv_transfer_total_mb_count{engine_type="prefill",`+labels+`}`] = n
			v[`sglang:kv_transfer_total_mb_sum{engine_type="prefill",`+labels+`}`] = 3 * n
		}
		h.Add(&record.Sample{At: at, Source: "a", Values: v})
	}
	add(0, 0)
	add(1e9, 10)
	if all, ok := h.Of(engine.TransferBytes); !ok || all.Count != 20 || all.Sum != 60<<20 {
		t.Errorf("all ranks: %v of %v bytes %t", all.Count, all.Sum, ok)
	}
	if one, ok := h.Only(engine.TransferBytes, nil, "1"); !ok || one.Count != 10 || one.Sum != 30<<20 {
		t.Errorf("one rank: %v of %v bytes %t", one.Count, one.Sum, ok)
	}
	if _, ok := h.Only(engine.TransferBytes, func(string) bool { return false }, ""); ok {
		t.Error("no endpoint had transfers")
	}
}
