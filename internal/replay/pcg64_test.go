package replay

import (
	"slices"
	"strconv"
	"testing"
)

// The expected values were printed by NumPy 2.4.6:
// default_rng(n).bit_generator.random_raw(4), then choice(range(k)) for k in 1 2 3 7 10 100
// 1000 5 6 on a fresh generator.
func TestPCG64EqualsNumPy(t *testing.T) {
	for _, c := range []struct {
		seed uint64
		raw  []uint64
		pick []uint32
	}{
		{0, []uint64{11749869230777074271, 4976686463289251617, 755828109848996024, 304881062738325533}, []uint32{0, 1, 1, 3, 2, 30, 40, 0, 0}},
		{1, []uint64{9441442522235856127, 17532960557476522086, 2659275481604167885, 17499493567006797778}, []uint32{0, 0, 1, 5, 9, 3, 144, 4, 5}},
		{42, []uint64{14276969152011380360, 8095878257575067585, 15838336090824644132, 12864169557245331597}, []uint32{0, 0, 2, 4, 4, 43, 858, 0, 4}},
		{1<<32 - 1, []uint64{4647538520743280031, 4041050679407036418, 5299467714154781845, 11418189674231792917}, []uint32{0, 0, 0, 5, 2, 90, 287, 1, 3}},
		{1 << 32, []uint64{16412783775159424549, 10277383025879800780, 14774146505460541886, 17644565593934502278}, []uint32{0, 1, 2, 6, 5, 30, 800, 1, 5}},
		{1 << 63, []uint64{14966662106195590397, 11002609137656754616, 16016552983271648765, 7842186852807081995}, []uint32{0, 1, 2, 2, 5, 21, 868, 2, 2}},
		{1<<64 - 1, []uint64{12544278110101001871, 15593249672699323225, 136562751618339402, 16501869284920798641}, []uint32{0, 1, 2, 6, 8, 35, 7, 0, 5}},
	} {
		p := newPCG64(c.seed)
		var raw []uint64
		for range c.raw {
			raw = append(raw, p.next64())
		}
		if !slices.Equal(raw, c.raw) {
			t.Errorf("seed %d: raw %v, NumPy gives %v", c.seed, raw, c.raw)
		}
		p = newPCG64(c.seed)
		var pick []uint32
		for _, k := range []uint32{1, 2, 3, 7, 10, 100, 1000, 5, 6} {
			pick = append(pick, p.intn(k))
		}
		if !slices.Equal(pick, c.pick) {
			t.Errorf("seed %d: choice %v, NumPy gives %v", c.seed, pick, c.pick)
		}
	}
}

// Python: rng = default_rng(int.from_bytes(sha256(f"{seed}:{trace}:{lane}".encode()).digest()[:8], "big"));
// three times rng.uniform(0.25*123456.789, 0.75*123456.789).hex()
func TestStartDrawEqualsNumPy(t *testing.T) {
	lo, hi := 0.25*float64(123456.789), 0.75*float64(123456.789)
	for _, c := range []struct {
		seed  uint64
		trace string
		lane  int
		mixed uint64
		want  [3]string
	}{
		{42, "trace_0003", 0, 10664344067386107868, [3]string{"0x1.f1cc7f14ca154p+15", "0x1.a0d5de8b41d55p+15", "0x1.c607479bfaac4p+15"}},
		{42, "trace_0003", 1, 11486098142076555682, [3]string{"0x1.988a46faaa24dp+15", "0x1.17397e0660d90p+16", "0x1.e1d6953e06c3fp+15"}},
		{42, "trace_0014", 1, 2382651772899769650, [3]string{"0x1.0c7630cdf5353p+16", "0x1.63236a652ab61p+16", "0x1.3bbd3ad29ab92p+16"}},
		{0, "a", 0, 3623581324261841801, [3]string{"0x1.cb25fd0260673p+15", "0x1.af58420ab271dp+15", "0x1.39c15c66bf8dbp+16"}},
		{1<<64 - 1, "trace::x", 777, 8780073565560930514, [3]string{"0x1.2b6c66a7bd487p+15", "0x1.e81f363625d48p+15", "0x1.4f2440ad1cb3cp+15"}},
		{7, "", 3, 4869411111790920515, [3]string{"0x1.d35909ee4a760p+15", "0x1.93b30a68e5f1ep+15", "0x1.29aa716dfec17p+16"}},
	} {
		if got := laneSeed(c.seed, c.trace, c.lane); got != c.mixed {
			t.Errorf("%d:%s:%d: seed %d, want %d", c.seed, c.trace, c.lane, got, c.mixed)
		}
		p := newPCG64(c.mixed)
		for i, want := range c.want {
			w, err := strconv.ParseFloat(want, 64)
			if err != nil {
				t.Fatal(err)
			}
			if got := p.uniform(lo, hi); got != w {
				t.Errorf("%d:%s:%d: draw %d is %x, NumPy gives %s", c.seed, c.trace, c.lane, i, got, want)
			}
		}
	}
}
