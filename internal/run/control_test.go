package run

import (
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirbench/weir/internal/spec"
)

// examplePoints are the points of an example file that has a control beside every point with offload.
func examplePoints(t *testing.T) []*spec.Point {
	t.Helper()
	set, err := spec.Load([]string{"../../examples/quickstart/master.yaml"}, "../../examples/quickstart/runners.yaml")
	if err != nil {
		t.Fatal(err)
	}
	points, err := set.Points(spec.Selection{})
	if err != nil {
		t.Fatal(err)
	}
	return points
}

// TestControlsEqualTheFiles: a control that is added is, name and id, the point that the file
// would give, and none is added where the file has it.
func TestControlsEqualTheFiles(t *testing.T) {
	all := examplePoints(t)
	if same, of := WithControls(all); len(same) != len(all) || len(of) != 0 {
		t.Errorf("%d points became %d, though the file has every control", len(all), len(same))
	}
	var dram, none []*spec.Point
	for _, p := range all {
		if p.Offloads() {
			dram = append(dram, p)
		} else {
			none = append(none, p)
		}
	}
	if len(dram) == 0 || len(none) != len(dram) {
		t.Fatalf("the example has %d points with offload and %d without", len(dram), len(none))
	}
	got, of := WithControls(slices.Concat(dram, none[:2]))
	if len(got) != len(all) {
		t.Fatalf("%d points, want %d", len(got), len(all))
	}
	for _, p := range none {
		i := slices.IndexFunc(got, func(q *spec.Point) bool { return q.ID() == p.ID() })
		switch {
		case i < 0 || got[i].Name != p.Name:
			t.Errorf("the control of concurrency %d is not %s of the file", p.Conc, p.Name)
		case slices.Contains(none[:2], p):
			if of[p.ID()] != nil {
				t.Errorf("%s stands in the file and counts as added", p.Name)
			}
		case len(of[p.ID()]) != 1 || got[i+1].ID() != of[p.ID()][0] || got[i+1].Conc != p.Conc:
			t.Errorf("%s is the control of %v, the point behind it is %s", p.Name, of[p.ID()], got[i+1].Name)
		}
	}
	multi := &spec.Point{Multinode: true, Name: "m_p1x8_d1x8_conc4_kvdram-hicache", Conc: 4, Offload: spec.Offload{Mode: "dram", Backend: spec.Component{Name: "hicache"}, BudgetGB: 7}}
	if c := multi.WithoutOffload(); c.Name != "m_p1x8_d1x8_conc4" || c.Offload != (spec.Offload{Mode: "none"}) {
		t.Errorf("the control of a point of several nodes is %+v", c)
	}
	other := *multi
	other.Weir.HostRatioPPM = 2e6
	if got, of := WithControls([]*spec.Point{multi, &other}); len(got) != 3 || len(of[got[0].ID()]) != 2 {
		t.Errorf("two host pools of one point have %d points and the control of %v", len(got), of)
	}
}

// TestAdaptiveControls: with a file without controls, and whatever the budget and the server, no
// point with offload is measured whose control is not, and no control is measured by itself.
func TestAdaptiveControls(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var points []*spec.Point
		for _, c := range rapid.SliceOfNDistinct(rapid.IntRange(1, 4096), 1, 8, rapid.ID[int]).Draw(t, "concs") {
			points = append(points, &spec.Point{Key: "k", Conc: c, DurationNs: int64(time.Hour), Unified: &spec.Parallel{TP: 8, PP: 1, PCP: 1},
				Offload: spec.Offload{Mode: "dram", Backend: spec.Component{Name: "hicache"}}})
		}
		points, of := WithControls(points)
		var jobs []*Job
		for _, p := range points {
			jobs = append(jobs, &Job{Point: p, ControlOf: of[p.ID()]})
		}
		knee := rapid.Float64Range(0.5, 5000).Draw(t, "knee")
		a := &Adaptive{GPUHours: rapid.Float64Range(0, 200).Draw(t, "budget")}
		order, reasons, stop := drive(t, a, jobs, func(j *Job) *Outcome { return saturating(j, knee) })
		if a.GPUHours > 0 && 8*float64(len(order)) > a.GPUHours {
			t.Fatalf("%d points of 8 GPU hours with a budget of %v", len(order), a.GPUHours)
		}
		if len(order)%2 != 0 {
			t.Fatalf("%d points were measured, so one has no control: %s", len(order), stop)
		}
		for n := 0; n < len(order); n += 2 {
			p, c := jobs[order[n]], jobs[order[n+1]]
			if !offloads(p) || offloads(c) || p.Point.Conc != c.Point.Conc || !slices.Contains(c.ControlOf, p.Point.ID()) {
				t.Fatalf("%s at %d is followed by %s at %d", p.Point.Offload.Mode, p.Point.Conc, c.Point.Offload.Mode, c.Point.Conc)
			}
			if !strings.Contains(reasons[n+1], "which the file does not have and the sweep added") {
				t.Fatalf("the journal does not say that the control is the sweep's: %s", reasons[n+1])
			}
		}
	})
}
