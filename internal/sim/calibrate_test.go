package sim

import (
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/weirbench/weir/internal/facts"
	"github.com/weirbench/weir/internal/record"
)

// ceilings fills in what replay would have computed for agents.
func ceilings(rs []*record.Request) {
	for _, r := range rs {
		r.CeilingTokens = 0
		if r.Turn > 0 {
			r.CeilingTokens = (200 + int64(r.Lane)*7 + int64(r.Turn-1)*(5+int64(r.Lane)%3)) * 64
		} else if r.Play > 0 {
			r.CeilingTokens = 20 * 64
		}
	}
}

// TestCalibrateFindsAnotherEngine records runs of an engine whose coefficients are not the
// shipped ones, at four concurrencies, fits to two of them and predicts the others.
func TestCalibrateFindsAnotherEngine(t *testing.T) {
	base := glm(t, 400_000, 0)
	shipped, err := facts.Embedded().CoefficientsFor("glm-5.2", "b200", "fp4")
	if err != nil {
		t.Fatal(err)
	}
	truth := *shipped
	for _, k := range knobs {
		switch k.name {
		case "compute":
			k.turn(&truth, 0.55)
		case "layers", "request":
			k.turn(&truth, 1.8)
		case "memory":
			k.turn(&truth, 0.7)
		}
	}
	var runs []Observed
	for _, conc := range []int{2, 6, 12, 20} {
		c := base
		c.Coefficients = &truth
		e, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		rs := play(t, e, agents(conc, 8), 2, 3e9)
		ceilings(rs)
		runs = append(runs, Observed{Name: fmt.Sprint("c", conc), Conc: conc, Config: base, Requests: rs})
	}
	far := func(co *facts.Coefficients) (worst float64) {
		for i := range runs {
			tw, err := newTwin(&runs[i])
			if err != nil {
				t.Fatal(err)
			}
			m, err := tw.run(co)
			if err != nil {
				t.Fatal(err)
			}
			worst = max(worst, math.Abs(rel(m.ITLP50, tw.measured.ITLP50)))
		}
		return worst
	}
	if far(&truth) > 0.01 {
		t.Fatalf("the twin of a run on the same engine is off by %.3f", far(&truth))
	}
	if far(shipped) < 0.2 {
		t.Fatal("the engine to find is the shipped one")
	}
	var seen FitProgress
	watch := func(p FitProgress) error {
		if p.Share < seen.Share || p.Share >= 1 || p.Replays <= seen.Replays || p.Of != "b200/glm-5.2/fp4" || seen.Loss > 0 && p.Loss > seen.Loss {
			t.Errorf("progress %+v after %+v", p, seen)
		}
		seen = p
		return nil
	}
	co, cs, err := Calibrate(runs, *shipped, "2026-08", watch)
	if err != nil {
		t.Fatal(err)
	}
	if seen.Share < 0.8 {
		t.Errorf("the last progress is %+v", seen)
	}
	stop := errors.New("stop")
	if _, _, err := Calibrate(runs, *shipped, "2026-08", func(FitProgress) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("stopped: %v", err)
	}
	held := 0
	for _, c := range cs {
		if !c.HeldOut {
			continue
		}
		held++
		ttft, itl, tput, hit := c.Errors()
		if math.Abs(ttft) > 0.2 || math.Abs(itl) > 0.2 || math.Abs(tput) > 0.1 || math.Abs(hit) > 0.05 {
			t.Errorf("%s: held out and off by ttft %.3f, itl %.3f, throughput %.3f, hit rate %.3f", c.Name, ttft, itl, tput, hit)
		}
	}
	if held != 2 || co.Name != "b200/glm-5.2/fp4" || co.Fit.Errors["itl"] == 0 {
		t.Errorf("%d runs were held out, name %q, errors %v", held, co.Name, co.Fit.Errors)
	}
}

// TestTwinKeepsPrefixes checks that the identities that a bundle gives bring the hits back that
// the run had.
func TestTwinKeepsPrefixes(t *testing.T) {
	c := glm(t, 190_000, 0)
	e, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	rs := play(t, e, agents(12, 9), 1, 2e9)
	ceilings(rs)
	o := Observed{Name: "x", Conc: 12, Config: c, Requests: rs}
	tw, err := newTwin(&o)
	if err != nil {
		t.Fatal(err)
	}
	m, err := tw.run(e.core.c.Coefficients)
	if err != nil {
		t.Fatal(err)
	}
	if d := m.HitRate - tw.measured.HitRate; math.Abs(d) > 0.02 || tw.measured.HitRate < 0.1 {
		t.Errorf("the run hit %.3f, its twin %.3f", tw.measured.HitRate, m.HitRate)
	}
}

func TestCalibrateRefusesNothing(t *testing.T) {
	if _, _, err := Calibrate(nil, facts.Coefficients{}, "", nil); err == nil {
		t.Error("no run was taken")
	}
	o := Observed{Name: "empty", Config: glm(t, 1000, 0), Requests: []*record.Request{{Phase: record.Primer}}}
	if _, _, err := Calibrate([]Observed{o}, facts.Coefficients{}, "", nil); err == nil {
		t.Error("a run without a request was taken")
	}
}
