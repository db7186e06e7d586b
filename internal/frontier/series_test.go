package frontier

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weirbench/weir/internal/result"
	"github.com/weirbench/weir/internal/spec"
)

// run is a valid result with the numbers that the comparison reads.
func run(conc int, offload string, intvty, tput, hit float64) *result.Result {
	ceil := 0.96
	return &result.Result{
		ID: fmt.Sprint(offload, conc), Valid: true,
		Point: spec.Point{Model: "zai-org/GLM-5.2", Runner: "b200-dgxc", Framework: "sglang", Precision: "fp8", Conc: conc,
			Unified: &spec.Parallel{TP: 8, PP: 1, EP: 1, DCP: 1, PCP: 1}, Offload: spec.Offload{Mode: offload}},
		GPUs:       result.GPUs{Declared: 8, Used: 8},
		Intvty:     result.Intvty{E2ENorm: result.RateDist{N: 100, P90: &intvty}},
		Throughput: result.Throughput{EdgePerGPU: result.Flow{Total: &tput}},
		Hits:       result.Hits{Total: &hit, Ceiling: &ceil},
	}
}

func story() []*result.Result {
	return []*result.Result{
		run(8, "none", 50, 1000, 0.95), run(16, "none", 30, 1500, 0.94), run(32, "none", 12, 1100, 0.4), run(64, "none", 5, 900, 0.2),
		run(8, "dram", 50, 1000, 0.95), run(16, "dram", 40, 2000, 0.95), run(32, "dram", 30, 3800, 0.95), run(64, "dram", 21, 5100, 0.93),
	}
}

func axesOf(t *testing.T) (x, y *Axis) {
	x, err := ByName(DefaultX)
	if err != nil {
		t.Fatal(err)
	}
	y, err = ByName(DefaultY)
	if err != nil {
		t.Fatal(err)
	}
	return x, y
}

// TestCurvesAndSentence tells the story of a cliff in one sentence.
func TestCurvesAndSentence(t *testing.T) {
	x, y := axesOf(t)
	rs := story()
	cs := Curves(rs, x, y)
	if len(cs) != 2 || cs[0].Series.Offloaded() || !cs[1].Series.Offloaded() {
		t.Fatalf("%+v", cs)
	}
	on := map[int]bool{}
	for _, p := range cs[0].Points {
		on[p.Conc] = p.On
	}
	if !on[8] || !on[16] || on[32] || on[64] {
		t.Errorf("frontier without offload: %v", on)
	}
	g := GroupOf(rs[0])
	got := Sentence(g, cs, x, y)
	want := "GLM-5.2 on 8x B200: with offload 3.40 times the throughput per GPU at 20 tok/s/user (5,100 against 1,500 tok/s/GPU); " +
		"with offload up to 5.67 times the throughput per GPU at equal concurrency (64 agents: 5,100 against 900 tok/s/GPU, at 21 against 5 tok/s/user); " +
		"without it the cache falls off between 16 and 32 agents; with it, it holds up to 64."
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	for _, r := range rs {
		r.Intvty.E2ENorm.P90, r.Hits.Total = nil, nil
	}
	if got := Sentence(g, Curves(rs, x, y), x, y); got != "" {
		t.Errorf("nothing is known, yet: %s", got)
	}
}

// TestMissingAndInvalid: a point without a number is listed with the reason; an invalid run is
// kept, marked and never on the frontier.
func TestMissingAndInvalid(t *testing.T) {
	x, y := axesOf(t)
	rs := story()[:3]
	rs[0].Intvty.E2ENorm = result.RateDist{N: 21}
	rs[1].Valid = false
	c := Curves(rs, x, y)[0]
	if len(c.Missing) != 1 || !strings.Contains(c.Missing[0].Why, "21 samples, 64 are needed") {
		t.Errorf("missing: %+v", c.Missing)
	}
	if len(c.Points) != 2 || !c.Points[0].Invalid || c.Points[0].On || !c.Points[1].On {
		t.Errorf("points: %+v", c.Points)
	}
}

func TestTopology(t *testing.T) {
	par := func(tp, ep int, dpa bool) spec.Parallel {
		return spec.Parallel{TP: tp, EP: ep, PP: 1, DCP: 1, PCP: 1, DPAttn: dpa}
	}
	tep, dep := par(8, 8, false), par(8, 8, true)
	for want, p := range map[string]*spec.Point{
		"TEP8":         {Unified: &tep},
		"DEP8":         {Unified: &dep},
		"2xTP4+1xDEP8": {Prefill: &spec.Worker{Parallel: par(4, 1, false), Workers: 2}, Decode: &spec.Worker{Parallel: dep, Workers: 1}},
		"":             {},
	} {
		if got := Topology(p); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestAxes(t *testing.T) {
	seen := map[string]bool{}
	for _, a := range Axes {
		if seen[a.Name] || a.Label == "" || a.Short == "" || a.Better == 0 || a.Unit == "" && !a.Share {
			t.Errorf("axis %+v", a)
		}
		seen[a.Name] = true
		if v, why, ok := a.Value(&result.Result{}); ok && v != 0 || !ok && why == "" {
			t.Errorf("%s of an empty result: %v %q %v", a.Name, v, why, ok)
		}
	}
	if _, err := ByName("ttft_p42"); err == nil || !strings.Contains(err.Error(), "ttft_p90") {
		t.Errorf("%v", err)
	}
}

// TestSentenceBelowTheLevel: a gain that lies just below the asked interactivity is what the
// sentence begins with.
func TestSentenceBelowTheLevel(t *testing.T) {
	x, y := axesOf(t)
	rs := []*result.Result{
		run(16, "none", 30, 1500, 0.94), run(32, "none", 5, 900, 0.4),
		run(16, "dram", 30.5, 1500, 0.95), run(32, "dram", 19.9, 3600, 0.95),
	}
	got := Sentence(GroupOf(rs[0]), Curves(rs, x, y), x, y)
	want := "GLM-5.2 on 8x B200: with offload up to 4.00 times the throughput per GPU at equal concurrency (32 agents: 3,600 against 900 tok/s/GPU, at 19.9 against 5 tok/s/user); " +
		"offload changes the throughput per GPU at 20 tok/s/user by less than 5 % ("
	if !strings.HasPrefix(got, want) {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	rs[3] = run(32, "dram", 5, 450, 0.95)
	if got := Sentence(GroupOf(rs[0]), Curves(rs, x, y), x, y); !strings.Contains(got, "with offload down to 0.500 of the throughput per GPU at equal concurrency (32 agents") || strings.Contains(got, "offload up to") {
		t.Error(got)
	}
}
