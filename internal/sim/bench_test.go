package sim

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/weirbench/weir/internal/corpus"
	"github.com/weirbench/weir/internal/material"
	"github.com/weirbench/weir/internal/record"
	"github.com/weirbench/weir/internal/replay"
)

// recorded are the 101 recorded runs (Apache-2.0, WEKA's kv-cache-tester by Callan Fox).
func recorded(tb testing.TB) *corpus.Corpus {
	tb.Helper()
	c, err := corpus.Load(material.Path(tb, "traces", "weka"), corpus.LoadOptions{})
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

// replayOn plays a corpus on an engine and returns the number of requests.
func replayOn(tb testing.TB, c Config, traces *corpus.Corpus, conc int, d time.Duration, sink func(*record.Request)) (n int) {
	tb.Helper()
	e, err := New(c)
	if err != nil {
		tb.Fatal(err)
	}
	s, err := replay.NewAgentic(traces, replay.InferenceX(conc, d))
	if err != nil {
		tb.Fatal(err)
	}
	err = replay.RunVirtual(context.Background(), s, e, func(r *record.Request) {
		n++
		if sink != nil {
			sink(r)
		}
	})
	if err != nil {
		tb.Fatal(err)
	}
	return n
}

// TestRecordedStory checks the shape of the cliff on the recorded runs, GLM-5.2 with fp8 KV on
// eight B200: near the ceiling at concurrency 8, fallen at 64, brought back by 5.4 million host
// tokens, with more throughput than anywhere without.
func TestRecordedStory(t *testing.T) {
	traces := recorded(t)
	o := replay.InferenceX(1, time.Hour)
	c := glm(t, 1_676_971, 0)
	c.SchedulePolicy = "lpm"
	alone, err := Curve(context.Background(), c, traces, o, []int{8, 64})
	if err != nil {
		t.Fatal(err)
	}
	c.HostTokens = 5_400_000
	with, err := Curve(context.Background(), c, traces, o, []int{8, 32, 64})
	if err != nil {
		t.Fatal(err)
	}
	if p := alone[0]; !p.Near() {
		t.Errorf("at 8 the device pool alone hits %.3f of %.3f", p.HitRate, p.Ceiling)
	}
	if p := alone[1]; p.HitRate > 0.4 || p.Ceiling < 0.93 {
		t.Errorf("at 64 the device pool alone hits %.3f, ceiling %.3f", p.HitRate, p.Ceiling)
	}
	if p := with[2]; p.HitRate < 0.8 || p.PerGPU < with[1].PerGPU || p.PerGPU < 3*alone[1].PerGPU {
		t.Errorf("at 64 with the host pool: hit rate %.3f, %.0f tok/s/GPU; at 32 %.0f; without at 64 %.0f", p.HitRate, p.PerGPU, with[1].PerGPU, alone[1].PerGPU)
	}
}

// BenchmarkHour simulates hours of recorded agents; the memory is what the heap grew to.
func BenchmarkHour(b *testing.B) {
	traces := recorded(b)
	for _, hours := range []int{1, 4} {
		for _, host := range []int64{0, 5_400_000} {
			b.Run(fmt.Sprintf("conc=64/hours=%d/host=%d", hours, host), func(b *testing.B) {
				c := glm(b, 1_676_971, host)
				c.SchedulePolicy = "lpm"
				var peak uint64
				n := 0
				for b.Loop() {
					n += replayOn(b, c, traces, 64, time.Duration(hours)*time.Hour, func(*record.Request) {
						if n%500 == 0 {
							var m runtime.MemStats
							runtime.ReadMemStats(&m)
							peak = max(peak, m.HeapSys)
						}
					})
				}
				b.ReportMetric(float64(n)/float64(b.N), "requests")
				b.ReportMetric(float64(hours)*3600*float64(b.N)/b.Elapsed().Seconds(), "times-real")
				b.ReportMetric(float64(peak)/1e6, "heap-MB")
			})
		}
	}
}
