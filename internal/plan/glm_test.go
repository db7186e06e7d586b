package plan

import (
	"math"
	"testing"

	"github.com/weirbench/weir/internal/spec"
)

// glm is GLM-5.2 at fp4 under SGLang with HiCache, as the master files have it.
func glm(runner string, tp int, budgetGB int64) *spec.Point {
	return &spec.Point{
		Key: "glm5.2-fp4", Model: "nvidia/GLM-5.2-NVFP4", ModelPrefix: "glm5.2", Precision: "fp4", Framework: "sglang",
		Image: "lmsysorg/sglang:v0.5.16-cu130", Runner: runner, Conc: 16, Scenario: spec.AgenticCoding,
		Unified: &spec.Parallel{TP: tp, PP: 1, EP: 1, DCP: 1, PCP: 1}, SpecDecoding: "mtp",
		Offload: spec.Offload{Mode: "dram", Backend: spec.Component{Name: "hicache"}, BudgetGB: budgetGB},
	}
}

func mustCompute(t *testing.T, p *spec.Point, opt Options) *Verdict {
	t.Helper()
	v, err := Compute(p, opt)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func near(t *testing.T, what string, got, want int64, rel float64) {
	t.Helper()
	if math.Abs(float64(got-want)) > rel*math.Abs(float64(want)) {
		t.Errorf("%s = %s, want %s within %g", what, thousands(got), thousands(want), rel)
	}
}

// Section 8.7 of the engines reference: 179 GiB x 0.83 - 433/8 GiB - about 8 GiB leave
// 1,676,971 tokens of 55,224 B on a B200; 2,399 GB over 8 ranks hold 5.4 million on the host.
func TestGLMOnB200(t *testing.T) {
	v := mustCompute(t, glm("cluster:b200-dgxc", 8, 2399), Options{})
	if v.Status != Fits {
		t.Fatalf("status %s: %+v", v.Status, v.Findings)
	}
	r := v.Serving()
	near(t, "device tokens", r.Device.Tokens, 1_676_971, 0.0001)
	near(t, "host tokens", r.Host.Tokens, 5_370_000, 0.01)
	if got := r.Host.Flag; got != "--hicache-size 241" {
		t.Errorf("flag %q", got)
	}
	if r.BytesPerToken != 44_928+10_296+576 {
		t.Errorf("bytes per token %d", r.BytesPerToken)
	}
	if n := r.Node; n.HostPoolBytes > 2399e9 || n.MarginBytes < 0 || n.PolicyMarginBytes < 0 {
		t.Errorf("node %+v", n)
	}
}

// Section 8.4: the engine's log says 169.98 GiB, 3,304,988 tokens, on a B300.
func TestGLMOnB300(t *testing.T) {
	v := mustCompute(t, glm("cluster:b300-nv", 8, 2399), Options{})
	near(t, "device tokens", v.Serving().Device.Tokens, 3_304_988, 0.0001)
}
