package run

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirbench/weir/internal/spec"
)

// space is a search space of one or two series on eight GPUs for an hour a point.
func space(concs []int, modes ...string) []*Job {
	var jobs []*Job
	for _, m := range modes {
		for _, c := range concs {
			p := &spec.Point{Key: "k", Name: fmt.Sprint(m, c), Conc: c, DurationNs: int64(time.Hour),
				Unified: &spec.Parallel{TP: 8, PP: 1, PCP: 1}, Offload: spec.Offload{Mode: m}}
			jobs = append(jobs, &Job{Point: p})
		}
	}
	return jobs
}

// saturating is a server whose throughput grows up to a concurrency and whose interactivity falls.
func saturating(j *Job, knee float64) *Outcome {
	c := float64(j.Point.Conc)
	return &Outcome{Throughput: 1000 * c / (1 + math.Pow(c/knee, 1.02)), Interactivity: 100 / (1 + c/knee)}
}

func drive(t interface{ Fatalf(string, ...any) }, a *Adaptive, jobs []*Job, measure func(*Job) *Outcome) (order []int, reasons []string, stop string) {
	done := make([]*Outcome, len(jobs))
	for {
		i, why, ok := a.Next(jobs, done)
		if !ok {
			return order, reasons, why
		}
		if done[i] != nil {
			t.Fatalf("job %d was chosen twice", i)
		}
		done[i] = measure(jobs[i])
		order, reasons = append(order, i), append(reasons, why)
	}
}

// TestAdaptiveStops begins at the knee, leaves out what lies on the plateau, and measures the
// control beside every point with offload.
func TestAdaptiveStops(t *testing.T) {
	jobs := space([]int{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048}, "none", "dram")
	a := &Adaptive{Knee: func(*Job) int { return 20 }}
	order, reasons, stop := drive(t, a, jobs, func(j *Job) *Outcome { return saturating(j, 16) })
	if got := jobs[order[0]].Point.Conc; got != 16 || !strings.Contains(reasons[0], "knee") {
		t.Errorf("it began at %d (%s)", got, reasons[0])
	}
	for n, i := range order {
		if jobs[i].Point.Conc >= 2048 {
			t.Errorf("concurrency %d is far on the plateau and was measured: %s", jobs[i].Point.Conc, reasons[n])
		}
		if offloads(jobs[i]) {
			control := slices.IndexFunc(jobs, func(j *Job) bool { return !offloads(j) && j.Point.Conc == jobs[i].Point.Conc })
			if at := slices.Index(order, control); at < 0 || at > n+1 {
				t.Errorf("the control of concurrency %d came as number %d, the point as %d", jobs[i].Point.Conc, at, n)
			}
		}
	}
	if !strings.Contains(stop, "no point has a gain") || len(order) == len(jobs) {
		t.Errorf("it stopped after %d of %d points: %s", len(order), len(jobs), stop)
	}
}

// TestAdaptiveBudget: it never spends more than it may, ends always, and says why.
func TestAdaptiveBudget(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		concs := rapid.SliceOfNDistinct(rapid.IntRange(1, 4096), 1, 12, rapid.ID[int]).Draw(t, "concs")
		jobs := space(concs, "none", "dram")
		budget := rapid.Float64Range(0, 200).Draw(t, "budget")
		knee := rapid.Float64Range(0.5, 5000).Draw(t, "knee")
		bad := rapid.IntRange(1, 5000).Draw(t, "fails above")
		a := &Adaptive{GPUHours: budget, Knee: func(*Job) int { return rapid.IntRange(0, 4096).Draw(t, "predicted") }}
		order, reasons, stop := drive(t, a, jobs, func(j *Job) *Outcome {
			if j.Point.Conc > bad {
				return &Outcome{}
			}
			return saturating(j, knee)
		})
		if budget > 0 && 8*float64(len(order)) > budget {
			t.Fatalf("%d points of 8 GPU hours with a budget of %v", len(order), budget)
		}
		if stop == "" || slices.Contains(reasons, "") {
			t.Fatalf("a choice without a reason: %q, %q", reasons, stop)
		}
	})
}
