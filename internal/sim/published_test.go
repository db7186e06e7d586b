package sim

import (
	"math"
	"testing"

	"github.com/weirbench/weir/internal/facts"
)

// TestPublishedPoints checks the shipped coefficients against what others measured: on points
// that no coefficient was fitted to, the mean error is what the facts say, to the digit they
// say it with.
func TestPublishedPoints(t *testing.T) {
	set := facts.Embedded()
	ps, err := PublishedPoints(set)
	if err != nil {
		t.Fatal(err)
	}
	f, err := readPublished()
	if err != nil {
		t.Fatal(err)
	}
	tputFitted := map[string]bool{}
	for _, s := range f.Series {
		tputFitted[s.Name] = !s.TPOTOnly
	}
	type mean struct{ tpot, tput, nt, np float64 }
	errs := map[string]*mean{}
	for _, p := range ps {
		if p.Fitted {
			continue
		}
		m := errs[p.Coefficients]
		if m == nil {
			m = &mean{}
			errs[p.Coefficients] = m
		}
		m.tpot += math.Abs(p.TPOTErr)
		m.nt++
		if tputFitted[p.Series] {
			m.tput += math.Abs(p.PerGPUErr)
			m.np++
		}
	}
	if len(errs) < 8 {
		t.Fatalf("only %d sets of coefficients were checked", len(errs))
	}
	for name, m := range errs {
		for i := range set.Coefficients {
			c := &set.Coefficients[i]
			if c.Name != name {
				continue
			}
			said := float64(c.Fit.Errors["itl"]) / ppm
			if got := m.tpot / m.nt; math.Abs(got-said) > 0.01 {
				t.Errorf("%s: tpot is off by %.3f, the facts say %.3f", name, got, said)
			}
			said = float64(c.Fit.Errors["throughput"]) / ppm
			if got := m.tput / max(1, m.np); m.np > 0 && math.Abs(got-said) > 0.01 {
				t.Errorf("%s: throughput is off by %.3f, the facts say %.3f", name, got, said)
			}
		}
	}
}

// TestOperatorTimes checks the model against operator times of AIConfigurator's tables for
// GLM-5.2 at TP8 on B200 (SGLang 0.5.14, 2026-08), from which its coefficients come, and
// against the two worked steps that the tables give together.
func TestOperatorTimes(t *testing.T) {
	c, err := glm(t, 1_000_000, 0).withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	c.DraftTokens, c.AcceptPPM = 0, 0
	m, err := newStepModel(&c)
	if err != nil {
		t.Fatal(err)
	}
	var full, shared *attention
	for i := range m.attention {
		if m.attention[i].indexNs > 0 {
			full = &m.attention[i]
		} else {
			shared = &m.attention[i]
		}
	}
	layer := func(a *attention, count float64, l load) float64 {
		one := *m
		one.attention = []attention{*a}
		return one.attend(&l) / count / 1e6
	}
	projections := m.denseFlop / float64(m.layers) / 1e6 // of one layer and token, ms: the tables count them with attention
	decode := func(n, ctx int64) load {
		return load{decodes: n, ctx: n * ctx, longest: ctx, capped: []int64{n * min(ctx, 2048)}}
	}
	for _, k := range []struct {
		what          string
		got, want, by float64
	}{
		{"prefill 8192 at 64k, full layer", layer(full, 20, load{spans: []span{{8192, 65536}}}) + 8192*projections, 5.79, 0.15},
		{"prefill 8192 at 131k, full layer", layer(full, 20, load{spans: []span{{8192, 131072}}}) + 8192*projections, 9.51, 0.15},
		{"prefill 8192 at 262k, full layer", layer(full, 20, load{spans: []span{{8192, 262144}}}) + 8192*projections, 19.5, 0.15},
		{"prefill 8192 at 524k, full layer", layer(full, 20, load{spans: []span{{8192, 524288}}}) + 8192*projections, 37.3, 0.15},
		{"prefill 8192 at 1M, full layer", layer(full, 20, load{spans: []span{{8192, 1048576}}}) + 8192*projections, 78.7, 0.15},
		{"prefill 8192, shared layer", layer(shared, 58, load{spans: []span{{8192, 131072}}}) + 8192*projections, 1.67, 0.2},
		{"decode 1 at 131k, full layer", layer(full, 20, decode(1, 131072)), 0.123, 0.15},
		{"decode 1 at 524k, full layer", layer(full, 20, decode(1, 524288)), 0.295, 0.15},
		{"decode 8 at 32k, full layer", layer(full, 20, decode(8, 32768)), 0.091, 0.15},
		{"decode 64 at 4k, full layer", layer(full, 20, decode(64, 4096)), 0.107, 0.45},
		{"decode, shared layer", layer(shared, 58, decode(1, 131072)), 0.033, 0.3},
	} {
		if e := k.got/k.want - 1; math.Abs(e) > k.by {
			t.Errorf("%s: %.3f ms, measured %.3f: off by %+.0f %%", k.what, k.got, k.want, e*100)
		}
	}
	experts := func(tokens int64) float64 {
		at := min(tokens, int64(len(m.touched)-1))
		return (float64(tokens)*m.expertFlop + m.touched[at]*m.expertByteNs + m.expertNs) / 75 / 1e6
	}
	for tokens, want := range map[int64]float64{1: 0.018, 64: 0.107, 1024: 0.209, 8192: 0.500} {
		if e := experts(tokens)/want - 1; math.Abs(e) > 0.25 {
			t.Errorf("experts of %d tokens: %.3f ms, measured %.3f: off by %+.0f %%", tokens, experts(tokens), want, e*100)
		}
	}
	for bytes, want := range map[float64]float64{8192: 0.006, 1 << 20: 0.030, 64 << 20: 0.397, 128 << 20: 0.719} {
		got := (m.reduceNs/156 + bytes/12288*m.reduceTokNs/156) / 1e6
		if e := got/want - 1; math.Abs(e) > 0.65 || bytes > 1<<20 && math.Abs(e) > 0.1 {
			t.Errorf("all-reduce of %.0f bytes: %.4f ms, measured %.4f: off by %+.0f %%", bytes, got, want, e*100)
		}
	}
	if got := float64(m.time([]load{decode(1, 131072)})) / 1e6; math.Abs(got/7.0-1) > 0.25 {
		t.Errorf("a decode step at 131k takes %.2f ms, the tables give about 7.0", got)
	}
	if got := float64(m.time([]load{{spans: []span{{8192, 131072}}}})) / 1e6; math.Abs(got/410-1) > 0.1 {
		t.Errorf("a prefill of 8192 tokens at 131k takes %.0f ms, the tables give about 410", got)
	}
}
