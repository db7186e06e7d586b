package frontier

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirbench/weir/internal/result"
)

// repeats are runs at one concurrency with the given throughputs and seeds from first on.
func repeats(first uint64, tput ...float64) []*result.Result {
	var out []*result.Result
	for i, v := range tput {
		r := run(16, "none", 30, v, 0.9)
		r.Seed, r.Repeat = first+uint64(i), i
		out = append(out, r)
	}
	return out
}

func tputAxis(t testing.TB) []*Axis {
	t.Helper()
	y, err := ByName(DefaultY)
	if err != nil {
		t.Fatal(err)
	}
	return []*Axis{y}
}

func one(t testing.TB, a, b []*result.Result) Delta {
	t.Helper()
	c := Compare(a, b, tputAxis(t), nil)
	if len(c.Deltas) != 1 {
		t.Fatalf("%d deltas", len(c.Deltas))
	}
	return c.Deltas[0]
}

// TestCompare: what each kind of evidence shows.
func TestCompare(t *testing.T) {
	base := []float64{1000, 1040, 980}
	up := []float64{1100, 1145, 1077} // the same seeds, 10 % more
	if d := one(t, repeats(1, base...), repeats(1, up...)); d.How != Paired || d.Verdict != Better || math.Abs(d.Change-1.1) > .002 || *d.Low < 1.08 || *d.High > 1.12 {
		t.Errorf("paired: %+v", d)
	}
	// The same numbers with other seeds show less: their spread is not taken out.
	if d := one(t, repeats(1, base...), repeats(9, up...)); d.How != Unpaired || d.High == nil || *d.High-*d.Low < .1 {
		t.Errorf("unpaired: %+v", d)
	}
	if d := one(t, repeats(1, base...), repeats(1, base...)); d.Verdict != Identical {
		t.Errorf("with itself: %+v", d)
	}
	if d := one(t, repeats(1, 1000), repeats(1, 1500)); d.How != NoHow || d.Verdict != Unclear || d.Low != nil || math.Abs(d.Change-1.5) > 1e-9 {
		t.Errorf("single runs without intervals: %+v", d)
	}
	a, b := repeats(1, 1000), repeats(1, 1500)
	for _, r := range []*result.Result{a[0], b[0]} {
		r.Intervals = result.Intervals{Level: .95, Total: &result.Interval{7600, 8400}}
		mid, edge := 8000.0, *r.Throughput.EdgePerGPU.Total*8
		r.Throughput.Window.Total, r.Throughput.Edge.Total = &mid, &edge
	}
	if d := one(t, a, b); d.How != WithinRun || d.Verdict != Better || *d.Low < 1.3 || *d.High > 1.7 {
		t.Errorf("single runs with intervals: %+v", d)
	}
}

// TestCompareMatches: points without a partner are listed, invalid runs left out and counted,
// what else differs is said.
func TestCompareMatches(t *testing.T) {
	a, b := story()[:4], story()[4:7]
	b[0].Valid = false
	b[1].Corpus.Fingerprint = "other"
	c := Compare(a, b, tputAxis(t), nil)
	if c.Invalid != 1 || len(c.OnlyA) != 2 || len(c.OnlyB) != 0 || len(c.Deltas) != 2 {
		t.Errorf("%+v", c)
	}
	if len(c.Warnings) == 0 || !strings.Contains(strings.Join(c.Warnings, " "), "corpus") {
		t.Errorf("warnings: %q", c.Warnings)
	}
	if len(c.Reach) == 0 || c.Reach[2].X != 20 || *c.Reach[2].A != 1500 || *c.Reach[2].B != 3800 {
		t.Errorf("reach: %+v", c.Reach)
	}
}

// TestCompareTurns: comparing the other way round inverts the change and the verdict.
func TestCompareTurns(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		v := rapid.Float64Range(10, 1e6)
		n := rapid.IntRange(1, 5)
		a := repeats(1, rapid.SliceOfN(v, n.Draw(rt, "n"), 5).Draw(rt, "a")...)
		b := repeats(rapid.Uint64Range(1, 3).Draw(rt, "seed"), rapid.SliceOfN(v, n.Draw(rt, "m"), 5).Draw(rt, "b")...)
		x, y := one(t, a, b), one(t, b, a)
		if math.Abs(x.Change*y.Change-1) > 1e-9 {
			rt.Fatalf("%v and %v", x.Change, y.Change)
		}
		turned := map[Verdict]Verdict{Better: Worse, Worse: Better, Same: Same, Identical: Identical, Unclear: Unclear}
		if turned[x.Verdict] != y.Verdict {
			rt.Fatalf("%s and %s", x.Verdict, y.Verdict)
		}
		if x.Low != nil && (*x.Low > x.Change*(1+1e-9) || *x.High < x.Change*(1-1e-9) || math.Abs(*x.Low**y.High-1) > 1e-9) {
			rt.Fatalf("%v in %v to %v, and %v to %v", x.Change, *x.Low, *x.High, *y.Low, *y.High)
		}
	})
}

// TestCompareCovers: over many comparisons of equal sides, the interval holds 1 in about 95 %.
func TestCompareCovers(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	draw := func(n int) []float64 {
		out := make([]float64, n)
		for i := range out {
			out[i] = 1000 * math.Exp(0.02*rng.NormFloat64())
		}
		return out
	}
	const trials = 2000
	held := 0
	for range trials {
		if d := one(t, repeats(1, draw(4)...), repeats(9, draw(4)...)); *d.Low <= 1 && 1 <= *d.High {
			held++
		}
	}
	if share := float64(held) / trials; share < .94 || share > .985 {
		t.Errorf("the interval holds the truth in %.1f %%", 100*share)
	}
}

func TestArea(t *testing.T) {
	pts := []XY{{10, 100}, {20, 50}, {15, 40}, {5, 90}}
	if got := area(pts); got != 10*100+10*50 {
		t.Errorf("area %v", got)
	}
}

// TestCompareKinds: a comparison says what each side is.
func TestCompareKinds(t *testing.T) {
	a, b := repeats(1, 1000), repeats(1, 1000, 1100, 1200)
	a[0].Unanswered = true
	b[0].Simulated, b[1].Simulated, b[2].Simulated = true, true, true
	b[2].SimSpeed = 20
	for i, c := range []Comparison{Compare(a, b, tputAxis(t), nil), CompareRuns(a, b, tputAxis(t), nil)} {
		if want := []string{"simulated", "simulated at 20 times its own time"}; !slices.Equal(c.KindA, []string{"unknown"}) || !slices.Equal(c.KindB, want) {
			t.Errorf("%d: A is %v, B %v", i, c.KindA, c.KindB)
		}
	}
	if c := Compare(nil, nil, tputAxis(t), nil); c.KindA == nil || c.KindB == nil {
		t.Error("a side without runs has null for its kinds")
	}
}
