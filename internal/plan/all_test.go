package plan

import (
	"testing"

	"github.com/weirbench/weir/internal/material"
	"github.com/weirbench/weir/internal/spec"
)

// masters are all agentic points of both master files.
func masters(tb testing.TB) []*spec.Point {
	tb.Helper()
	set, err := spec.Load([]string{material.Path(tb, "inferencex", "nvidia-master.yaml"), material.Path(tb, "inferencex", "amd-master.yaml")},
		material.Path(tb, "inferencex", "runners.yaml"))
	if err != nil {
		tb.Fatal(err)
	}
	pts, err := set.Points(spec.Selection{Scenarios: []spec.Scenario{spec.AgenticCoding}})
	if err != nil {
		tb.Fatal(err)
	}
	return pts
}

// Every agentic point gets a verdict that a fact decides, and what plan chooses itself passes
// its own limits.
func TestEveryAgenticPoint(t *testing.T) {
	pts := masters(t)
	if len(pts) < 700 {
		t.Fatalf("only %d points", len(pts))
	}
	for _, p := range pts {
		v, err := Compute(p, Options{})
		if err != nil {
			t.Errorf("%v", err)
			continue
		}
		if v.Status != Fits {
			t.Errorf("%s conc %d: %s: %+v", p.Key, p.Conc, v.Status, v.Findings)
		}
		for _, r := range v.Roles {
			if r.Device.Tokens <= 0 || r.Device.UniqueTokens < r.Device.Tokens {
				t.Errorf("%s %s: device tokens %d, unique %d", p.Key, r.Name, r.Device.Tokens, r.Device.UniqueTokens)
			}
			want := p.Offload.Mode == "dram" && r.Name != "decode"
			if (r.Host != nil) != want {
				t.Errorf("%s %s: host tier %v, want %v", p.Key, r.Name, r.Host != nil, want)
			}
		}
	}
}

// The recipes' own sizes are judged too, and refusals name a setting that passes.
func TestRecipesAsTheyAre(t *testing.T) {
	seen := map[Status]int{}
	for _, p := range masters(t) {
		v, err := Compute(p, Options{AsRecipe: true})
		if err != nil {
			t.Errorf("%v", err)
			continue
		}
		seen[v.Status]++
		for _, f := range v.Findings {
			if f.Reason == "" || f.Change == "" {
				t.Errorf("%s: %+v teaches nothing", p.Key, f)
			}
		}
	}
	if seen[Unknown] != 0 || seen[PolicyViolation] == 0 || seen[Fits] == 0 {
		t.Errorf("%v", seen)
	}
}

func BenchmarkAllAgenticPoints(b *testing.B) {
	pts := masters(b)
	b.ReportAllocs()
	for b.Loop() {
		for _, p := range pts {
			if _, err := Compute(p, Options{}); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(len(pts)), "points/op")
}
