package result

import (
	"testing"

	"github.com/weirbench/weir/internal/record"
)

// TestThinnedIsSaid: scrapes whose histograms are not kept are counted in a warning; where all are kept there is none.
func TestThinnedIsSaid(t *testing.T) {
	g := newGauges(&record.Meta{Window: record.Window{StartNs: 10, EndNs: 20}})
	for i := range int64(3) {
		g.add(&record.Sample{At: 11 + i, Source: "http://s/metrics", Values: map[string]float64{"a": 1}, Thinned: i == 1})
	}
	got := g.troubles()
	if len(got) != 1 || got[0].Code != SamplesThinned || got[0].Text != "1 of 3 scrapes are kept without the histograms and counters that no adapter reads; what those grew by over the window is exact" {
		t.Errorf("findings %+v", got)
	}
	g = newGauges(&record.Meta{Window: record.Window{StartNs: 10, EndNs: 20}})
	g.add(&record.Sample{At: 11, Source: "http://s/metrics", Values: map[string]float64{"a": 1}})
	if got := g.troubles(); len(got) != 0 {
		t.Errorf("findings %+v", got)
	}
}

// TestEmptyPagesAreSaid: an endpoint that answers without a series is reported, one that has some is not.
func TestEmptyPagesAreSaid(t *testing.T) {
	g := newGauges(&record.Meta{Window: record.Window{StartNs: 10, EndNs: 20}})
	for i := range int64(3) {
		g.add(&record.Sample{At: 11 + i, Source: "http://empty/metrics", Values: map[string]float64{}})
		g.add(&record.Sample{At: 11 + i, Source: "http://late/metrics", Values: map[string]float64{"a": 1}})
		g.add(&record.Sample{At: 11 + i, Source: "gpu:nvidia-smi"})
	}
	got := g.troubles()
	if len(got) != 1 || got[0].Code != MetricsMissing || got[0].Text != "3 of 3 scrapes of http://empty/metrics were answered, and no page had a series with a finite value" {
		t.Errorf("findings %+v", got)
	}
}
