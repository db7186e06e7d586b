package replay

import (
	"math"
	"slices"
	"testing"
)

// TestPyRandom: what Python 3.11 prints for the same calls of random.Random(seed), one after the other:
// random twice, gauss(0, 1) three times, expovariate(1), gammavariate(0.5, 1), (3.5, 1) and (1, 1), and
// choice(range(7)) five times.
func TestPyRandom(t *testing.T) {
	near := func(what string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > 1e-13*math.Abs(want) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	for _, x := range []struct {
		seed    uint64
		uniform [2]float64
		normal  [3]float64
		exp     float64
		gamma   [3]float64
		choice  []uint32
	}{
		{0, [2]float64{0x1.b0580f98a7dbep-1, 0x1.84129978f9c1ap-1}, [3]float64{-0.6797144480784211, 0.3705035674606598, -1.016348894188071}, 1.531544847594683,
			[3]float64{0.1289556714424431, 4.015689222235787, 0.7025651019193324}, []uint32{2, 1, 6, 0, 4}},
		{5, [2]float64{0x1.3eecf89059360p-1, 0x1.7bcb8116f23eep-1}, [3]float64{0.6694689143859696, -2.293910094631911, -0.1433838383004689}, 0.02943419513745525,
			[3]float64{0.01796378307011639, 2.218341533662935, 0.8531778857348835}, []uint32{0, 5, 1, 3, 2}},
		{1<<32 - 1, [2]float64{0x1.454d9227a7013p-1, 0x1.a0274a3720bf8p-3}, [3]float64{-0.6481196186056797, -0.5183504318585298, -0.5250567230255822}, 1.166588003535172,
			[3]float64{1.2412053115798507, 2.0726546284737033, 0.1483305815572148}, []uint32{6, 3, 6, 4, 2}},
		{1 << 32, [2]float64{0x1.ced31cb3df170p-4, 0x1.abdb5477a4f26p-2}, [3]float64{1.3679793770790432, 0.14386472049630938, 0.30744103546810747}, 0.7887950641949351,
			[3]float64{0.28614203724872117, 6.472489355685113, 0.6953174489083088}, []uint32{2, 5, 3, 3, 3}},
		{12345678901234567890, [2]float64{0x1.06273c7710f4dp-1, 0x1.dd1f72a2feb81p-1}, [3]float64{-1.2245269145210904, -1.5247670359121732, -0.43909004723639117}, 0.6478909196035053,
			[3]float64{0.023661242610242546, 1.1472848402054723, 0.0054591963910111795}, []uint32{5, 2, 3, 6, 6}},
	} {
		r := newPyRandom(x.seed)
		for _, want := range x.uniform {
			if got := r.float64(); got != want {
				t.Errorf("seed %d: random() is %x, want %x", x.seed, got, want)
			}
		}
		for _, want := range x.normal {
			near("gauss", r.normal(), want)
		}
		near("expovariate", r.exp(), x.exp)
		for i, shape := range []float64{0.5, 3.5, 1} {
			near("gammavariate", r.gamma(shape), x.gamma[i])
		}
		var choice []uint32
		for range x.choice {
			choice = append(choice, r.intn(7))
		}
		if !slices.Equal(choice, x.choice) {
			t.Errorf("seed %d: choice %v, want %v", x.seed, choice, x.choice)
		}
	}
	// Past the first 624 words, and many gamma draws that are drawn again.
	r := newPyRandom(7)
	for range 2000 {
		r.float64()
	}
	if got := r.float64(); got != 0x1.487c6ee7bd400p-1 {
		t.Errorf("the 2001st is %x", got)
	}
	for shape, want := range map[float64]float64{0.3: 149.16236622982566} {
		sum := 0.0
		for range 500 {
			sum += r.gamma(shape)
		}
		near("sum of gamma", sum, want)
	}
	sum := 0.0
	for range 500 {
		sum += r.gamma(30)
	}
	near("sum of gamma(30)", sum, 14925.01243604658)
}

// TestAIPerfDraws: the first draws of AIPerf 0.13.0 with seed 42, from the generators that it derives for lengths,
// arrivals and cancellations.
func TestAIPerfDraws(t *testing.T) {
	many := func(purpose string, mean, dev float64) (all []int64) {
		r := aiperfRandom(42, purpose)
		for range 8 {
			all = append(all, r.around(mean, dev))
		}
		return all
	}
	if got, want := many("dataset.prompt.length", 600, 60), []int64{661, 610, 597, 703, 477, 530, 560, 648}; !slices.Equal(got, want) {
		t.Errorf("input %v, want %v", got, want)
	}
	if got, want := many("composer.turn.max_tokens", 12, 4), []int64{18, 6, 12, 18, 18, 16, 15, 13}; !slices.Equal(got, want) {
		t.Errorf("output %v, want %v", got, want)
	}
	r := aiperfRandom(42, "timing.request.poisson_interval")
	for _, want := range []float64{0.03657930566094416, 0.017888037435803382, 0.023438120606428154} {
		if got := r.exp() / 20; math.Abs(got-want) > 1e-14 {
			t.Errorf("interval %v, want %v", got, want)
		}
	}
}
