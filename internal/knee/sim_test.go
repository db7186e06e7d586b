package knee

import (
	"context"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/weirbench/weir/internal/corpus"
	"github.com/weirbench/weir/internal/facts"
	"github.com/weirbench/weir/internal/material"
	"github.com/weirbench/weir/internal/record"
	"github.com/weirbench/weir/internal/replay"
	"github.com/weirbench/weir/internal/sim"
	"github.com/weirbench/weir/internal/spec"
)

// TestAgainstSimulator compares with the full simulator of GLM-5.2 on eight B300. Where its
// scheduler is not the bottleneck the hit rates agree within 3 points; where requests queue
// for pages the engine falls further than a cache alone, never less far.
func TestAgainstSimulator(t *testing.T) {
	c, err := corpus.Load(material.Path(t, "traces", "weka"), corpus.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	m, err := facts.ModelByName("glm-5.2")
	if err != nil {
		t.Fatal(err)
	}
	g, err := facts.GPUByName("b300")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/knee.md")
	if err != nil {
		t.Fatal(err)
	}
	o := replay.InferenceX(0, time.Hour)
	for _, x := range []struct {
		lanes    int
		capacity int64
		queues   bool
	}{
		{4, 1_700_000, false}, {8, 1_700_000, false}, {16, 3_300_000, false}, {32, 7_000_000, false},
		{16, 1_700_000, true}, {32, 3_300_000, true},
	} {
		e, err := sim.New(sim.Config{
			Model: m, GPU: g, Parallel: spec.Parallel{TP: 8, PP: 1, EP: 1, DCP: 1, PCP: 1},
			WeightPrecision: "fp4", KVDType: "fp8", KVBytesPerToken: 55_800, DeviceTokens: x.capacity,
			DraftTokens: 3, AcceptPPM: 2_990_000,
		})
		if err != nil {
			t.Fatal(err)
		}
		o.Lanes = x.lanes
		s, err := replay.NewAgentic(c, o)
		if err != nil {
			t.Fatal(err)
		}
		var in, hits, n int64
		if err := replay.RunVirtual(context.Background(), s, e, func(r *record.Request) {
			if r.Phase == record.Profiling && r.OK() {
				in, hits, n = in+r.PromptTokens, hits+r.Hits.Total, n+1
			}
		}); err != nil {
			t.Fatal(err)
		}
		// About the engine's speeds when nothing queues.
		service := Service{Modelled: true, PrefillSpeed: 60_000, DecodeSpeed: 150}
		curves, err := Compute(context.Background(), c, Config{Options: o, Service: service}, []int{x.lanes})
		if err != nil {
			t.Fatal(err)
		}
		got, _ := curves[0].HitRate(x.capacity)
		want := float64(hits) / float64(in)
		t.Logf("%d lanes, %d tokens: %.3f over %d requests, the simulator %.3f over %d", x.lanes, x.capacity, got, curves[0].Requests, want, n)
		row := fmt.Sprintf("| %d | %d | %.3f | %.3f |\n", x.lanes, x.capacity, got, want)
		if !strings.Contains(strings.ReplaceAll(string(page), ",", ""), row) {
			t.Errorf("docs/knee.md lacks the row %s", row)
		}
		if !x.queues && math.Abs(got-want) > 0.03 || got < want-0.03 {
			t.Errorf("%d lanes, %d tokens: hit rate %.3f, the simulator has %.3f", x.lanes, x.capacity, got, want)
		}
	}
}
