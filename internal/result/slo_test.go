package result

import (
	"slices"
	"testing"

	"github.com/weirbench/weir/internal/spec"
)

func TestMissed(t *testing.T) {
	v := func(x float64) *float64 { return &x }
	r := &Result{}
	if m := r.Missed(); m != nil {
		t.Errorf("without levels: %v", m)
	}
	r.Point.Weir.SLO = &spec.SLO{TTFTP90Ns: 2e9, ITLP90Ns: 50e6, InteractivityP90Milli: 20_000}
	want := []string{"TTFT p90 is not known, limit 2 s", "ITL p90 is not known, limit 0.05 s",
		"e2e-normalised interactivity p90 is not known, least 20 tok/s/user"}
	if m := r.Missed(); !slices.Equal(m, want) {
		t.Errorf("nothing measured: %q", m)
	}
	r.Latency.TTFT.P90, r.Latency.ITL.P90, r.Intvty.E2ENorm.P90 = v(2), v(0.05), v(20)
	if m := r.Missed(); m != nil {
		t.Errorf("at the limits: %q", m)
	}
	r.Latency.TTFT.P90, r.Intvty.E2ENorm.P90 = v(2.5), v(19)
	want = []string{"TTFT p90 is 2.5 s, limit 2 s", "e2e-normalised interactivity p90 is 19 tok/s/user, least 20"}
	if m := r.Missed(); !slices.Equal(m, want) {
		t.Errorf("beyond: %q", m)
	}
}
