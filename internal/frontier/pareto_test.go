package frontier

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// dominates is the definition.
func dominates(a, b XY, x, y Direction) bool {
	ax, ay, bx, by := float64(x)*a.X, float64(y)*a.Y, float64(x)*b.X, float64(y)*b.Y
	return ax >= bx && ay >= by && (ax > bx || ay > by)
}

// TestParetoIsTheDefinition compares with all pairs, on coarse grids where ties abound.
func TestParetoIsTheDefinition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		coord := rapid.Map(rapid.IntRange(0, 6), func(i int) float64 { return float64(i) })
		pts := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) XY { return XY{coord.Draw(t, "x"), coord.Draw(t, "y")} }), 0, 40).Draw(t, "points")
		dir := rapid.SampledFrom([]Direction{Higher, Lower})
		x, y := dir.Draw(t, "x"), dir.Draw(t, "y")
		got := Pareto(pts, x, y)
		for i, p := range pts {
			free := true
			for _, q := range pts {
				free = free && !dominates(q, p, x, y)
			}
			if free != slices.Contains(got, i) {
				t.Fatalf("point %d %v: on the frontier %v, by definition %v", i, p, !free, free)
			}
		}
		if !slices.IsSortedFunc(got, func(i, j int) int { return int(pts[i].X - pts[j].X) }) {
			t.Fatalf("not in order of x: %v", got)
		}
	})
}

// TestParetoRealRows is the frontier of a published B200 row set, 8k/1k (x median interactivity,
// y tokens/s/GPU), with dominated and undefined points thrown in.
func TestParetoRealRows(t *testing.T) {
	pts := []XY{{72.459, 2497.19}, {36.598, 4815.04}, {124.349, 1067.35}, {70, 2400}, {math.NaN(), 9000}, {20, 4815.04}, {math.Inf(1), 1}}
	if got := Pareto(pts, Higher, Higher); !slices.Equal(got, []int{1, 0, 2}) {
		t.Errorf("%v", got)
	}
	// AgentX: concurrency 4 is dominated by 8 on end-to-end latency.
	e2e := []XY{{126.9, 17199}, {33.1, 12874}, {48, 9415}, {30, 5018}, {25.8, 2600}}
	if got := Pareto(e2e, Lower, Higher); !slices.Equal(got, []int{4, 3, 1, 0}) {
		t.Errorf("%v", got)
	}
}

func TestReach(t *testing.T) {
	pts := []XY{{10, 100}, {20, 80}, {40, 30}}
	for x, want := range map[float64]float64{5: 100, 10: 100, 15: 80, 20: 80, 21: 30} {
		if p, ok := Reach(pts, Higher, Higher, x); !ok || p.Y != want {
			t.Errorf("at %v: %v %v, want %v", x, p, ok, want)
		}
	}
	if _, ok := Reach(pts, Higher, Higher, 41); ok {
		t.Error("nothing is so interactive")
	}
}

// TestEstimate: the interval of repeats is an order-statistic interval where one exists.
func TestEstimate(t *testing.T) {
	e := NewEstimate([]float64{3, 1, 2})
	if e.Value != 2 || e.Low != 1 || e.High != 3 || e.Level != 0 {
		t.Errorf("three repeats: %+v", e)
	}
	e = NewEstimate([]float64{1, 2, 3, 4, 5, 6})
	if e.Low != 1 || e.High != 6 || math.Abs(e.Level-0.96875) > 1e-12 {
		t.Errorf("six repeats: %+v", e)
	}
	e = NewEstimate([]float64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10})
	if e.Low != 2 || e.High != 9 || e.Value != 5.5 || e.Level < 0.97 {
		t.Errorf("ten repeats: %+v", e)
	}
}

func TestSignificant(t *testing.T) {
	for _, c := range []struct {
		v    float64
		n    int
		want string
	}{
		{0, 3, "0"}, {3.4149, 3, "3.41"}, {12345, 3, "12,300"}, {999.9, 3, "1000"}, {9.999, 3, "10.0"}, {0.051234, 3, "0.0512"},
		{1234.5, 5, "1234.5"}, {123456.7, 5, "123,460"}, {-0.5, 3, "-0.500"}, {99.95, 3, "100"}, {1e6, 3, "1,000,000"}, {0.09996, 3, "0.100"},
	} {
		if got := Significant(c.v, c.n); got != c.want {
			t.Errorf("Significant(%v, %d) = %s, want %s", c.v, c.n, got, c.want)
		}
	}
}
