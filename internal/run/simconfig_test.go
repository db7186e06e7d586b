package run

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirbench/weir/internal/corpus"
	"github.com/weirbench/weir/internal/plan"
	"github.com/weirbench/weir/internal/spec"
)

// TestSimConfigFollowsTheEngine checks that a point is simulated as its own engine schedules and
// caches, and refused when that engine is not simulated.
func TestSimConfigFollowsTheEngine(t *testing.T) {
	p := spec.Point{
		Name: "x", Model: "nvidia/GLM-5.2-NVFP4", ModelPrefix: "glm5.2", Precision: "fp4", Framework: "vllm", Runner: "cluster:b200-dgxc",
		Scenario: spec.AgenticCoding, Conc: 1, SpecDecoding: "none", Offload: spec.Offload{Mode: "none"},
		Unified: &spec.Parallel{TP: 8, PP: 1, EP: 1, DCP: 1, PCP: 1},
		Weir:    spec.WeirFields{KVDType: "fp8", MemFractionPPM: 830_000},
	}
	for framework, want := range map[string]string{"sglang": "", "vllm": "vllm"} {
		p.Framework = framework
		v, err := plan.Compute(&p, plan.Options{})
		if err != nil {
			t.Fatal(err)
		}
		c, err := SimConfig(&p, v, nil)
		if err != nil || c.Engine != want || c.Coefficients == nil {
			t.Errorf("%s: engine %q, %v", framework, c.Engine, err)
		}
	}
	p.Framework = "trt"
	v, err := plan.Compute(&p, plan.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := SimConfig(&p, v, nil); err == nil || !strings.Contains(err.Error(), "not simulated") {
		t.Errorf("trt: %v", err)
	}
	p.Framework, p.Weir.SchedulePolicy = "vllm", "lpm"
	if v, err = plan.Compute(&p, plan.Options{}); err != nil {
		t.Fatal(err)
	}
	if _, err := SimConfig(&p, v, nil); err == nil || !strings.Contains(err.Error(), "lpm") {
		t.Errorf("vllm with lpm: %v", err)
	}
}

// TestDisaggregatedPoint runs a multi-node point in virtual time: two prefill workers, one decode
// worker, and the hits that the prefill side finds.
func TestDisaggregatedPoint(t *testing.T) {
	worker := func(n int) *spec.Worker {
		return &spec.Worker{Parallel: spec.Parallel{TP: 8, PP: 1, EP: 1, DCP: 1, PCP: 1}, Workers: n}
	}
	p := &spec.Point{
		Key: "pd", Name: "pd", Model: "nvidia/GLM-5.2-NVFP4", ModelPrefix: "glm5.2", Precision: "fp4", Framework: "sglang", Runner: "cluster:b200-dgxc",
		Scenario: spec.AgenticCoding, Conc: 4, SpecDecoding: "none", Offload: spec.Offload{Mode: "none"}, Multinode: true, Disagg: true,
		Prefill: worker(2), Decode: worker(1), DurationNs: int64(5 * time.Minute),
		Weir: spec.WeirFields{Seed: 5, KVDType: "fp8", MemFractionPPM: 830_000, Recipe: SimRecipe},
	}
	v, err := plan.Compute(p, plan.Options{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := corpus.Generate(corpus.GenerateOptions{Seed: 11, Traces: 6})
	if err != nil {
		t.Fatal(err)
	}
	j := &Job{Point: p, Verdict: v, Corpus: c, Replay: ReplayOptions(p), Version: "test"}
	r, err := Measure(t.Context(), Virtual{}, j, filepath.Join(t.TempDir(), "b"))
	if err != nil {
		t.Fatal(err)
	}
	if !r.Valid || r.Requests.OK < 20 || r.Hits.Total == nil || *r.Hits.Total < *r.Hits.Ceiling-0.02 {
		t.Errorf("valid %v %v, %d requests, hit rate %v, ceiling %v", r.Valid, r.Reasons, r.Requests.OK, show(r.Hits.Total), show(r.Hits.Ceiling))
	}
	if r.GPUs.Prefill != 16 || r.GPUs.Decode != 8 {
		t.Errorf("GPUs %+v: two prefill workers and one decode worker of eight", r.GPUs)
	}
	pre, dec := r.Server.ByRole["prefill"], r.Server.ByRole["decode"]
	if len(r.Server.ByRole) != 2 || pre == nil || dec == nil || len(r.Server.ByEndpoint) != 3 {
		t.Fatalf("%d roles and %d endpoints: want prefill and decode, and three engines", len(r.Server.ByRole), len(r.Server.ByEndpoint))
	}
	if pre.Endpoints != 2 || pre.BootstrapMean == nil || pre.InflightMean == nil || pre.DevicePool == nil || pre.PreallocMean != nil {
		t.Errorf("prefill %+v", pre)
	}
	if dec.Endpoints != 1 || dec.PreallocMean == nil || dec.TransferMean == nil || dec.Transfer != nil || dec.BootstrapMean != nil {
		t.Errorf("decode %+v", dec)
	}
	if x := pre.Transfer; x == nil || x.N == 0 || x.Bytes == nil || x.Time == nil || *x.Time.Mean <= 0 || x.Speed == nil {
		t.Errorf("transfers %+v", x)
	} else if mean := float64(*x.Bytes) / float64(x.N); mean < float64(v.Roles[0].BytesPerToken) {
		t.Errorf("a transfer has %.0f bytes, less than one token's", mean)
	}
}
