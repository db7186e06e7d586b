package cli

import (
	"testing"

	"github.com/weirbench/weir/internal/record"
)

// TestRateIsBetweenSamples: a server whose counter goes up by a thousand a second shows a thousand, however far apart
// its samples came, and nothing where no new one came.
func TestRateIsBetweenSamples(t *testing.T) {
	at := func(ns int64) []record.Sample {
		return []record.Sample{{Source: "a", At: ns, Values: map[string]float64{"sglang:prompt_tokens_total": float64(ns) / 1e6}}}
	}
	last := at(0)
	for _, ns := range []int64{2e9, 3e9, 6e9, 6.5e9} {
		next := at(ns)
		if p := between(last, next); p.Prompt == nil || *p.Prompt != 1000 {
			t.Errorf("at %d ns: %v", ns, p.Prompt)
		}
		last = next
	}
	if p := between(last, at(6.5e9)); p.Prompt != nil {
		t.Errorf("without a new sample: %v", *p.Prompt)
	}
}
