package run

import (
	"strings"
	"testing"

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
