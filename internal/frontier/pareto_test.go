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

func TestSigned(t *testing.T) {
	for _, c := range []struct {
		v    float64
		want string
	}{
		{0, "0.00"}, {-1e-12, "0.00"}, {-0.001, "-0.0010"}, {0.0049, "+0.0049"}, {0.005, "+0.01"}, {12.345, "+12.35"}, {-3, "-3.00"}, {2e-7, "+0.00000020"},
	} {
		if got := Signed(c.v); got != c.want {
			t.Errorf("Signed(%v) = %s, want %s", c.v, got, c.want)
		}
	}
}

// TestShownChange: the change stands between the values beside it, and an interval that was made
// from something else says what it lies around.
func TestShownChange(t *testing.T) {
	low, high := 0.99, 1.01
	d := Delta{A: Estimate{Value: 8000}, B: Estimate{Value: 8010}, Ratio: true, Change: 1, Low: &low, High: &high}
	text := func(v float64) string { return d.ChangeText(v, "pt", "%sx") }
	if got := text(d.Shown()); got != "+0.12 %" {
		t.Errorf("8000 to 8010 is %s", got)
	}
	if got := d.IntervalText(text); got != "-1.00 % to +1.00 % around 0.00 %" {
		t.Errorf("interval %s", got)
	}
	d.Change = d.Shown()
	if got := d.IntervalText(text); got != "-1.00 % to +1.00 %" {
		t.Errorf("interval %s", got)
	}
	share := Delta{A: Estimate{Value: 0.5}, B: Estimate{Value: 0.49999}}
	if got := share.ChangeText(share.Shown(), "pt", "%sx"); got != "-0.0010 pt" {
		t.Errorf("shares: %s", got)
	}
}

// TestDecimals: the numbers of a column have as many decimals as the least of them needs.
func TestDecimals(t *testing.T) {
	for _, c := range []struct {
		column []float64
		want   int
	}{
		{nil, 0}, {[]float64{1, 64}, 0}, {[]float64{12371, 8645.1}, 0}, {[]float64{0.0823, 3.4}, 4}, {[]float64{0.0823, 720.4}, 3}, {[]float64{1.2, 160.4}, 2}, {[]float64{0, 0.5}, 3},
	} {
		if got := Decimals(c.column); got != c.want {
			t.Errorf("Decimals(%v) = %d, want %d", c.column, got, c.want)
		}
	}
	if got := Fixed(8645.1, 0) + " " + Fixed(12371.4, 0) + " " + Fixed(1234.5, 2); got != "8,645 12,371 1,234.50" {
		t.Error(got)
	}
}

func TestSignificant(t *testing.T) {
	for _, c := range []struct {
		v    float64
		n    int
		want string
	}{
		{0, 3, "0"}, {3.4149, 3, "3.41"}, {12345, 3, "12,300"}, {999.9, 3, "1,000"}, {9.999, 3, "10.0"}, {0.051234, 3, "0.0512"},
		{1234.5, 5, "1,234.5"}, {123456.7, 5, "123,460"}, {-0.5, 3, "-0.500"}, {99.95, 3, "100"}, {1e6, 3, "1,000,000"}, {0.09996, 3, "0.100"},
	} {
		if got := Significant(c.v, c.n); got != c.want {
			t.Errorf("Significant(%v, %d) = %s, want %s", c.v, c.n, got, c.want)
		}
	}
}
