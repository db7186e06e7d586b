package run

import (
	"errors"
	"strings"
	"testing"

	"github.com/weirbench/weir/internal/client"
	"github.com/weirbench/weir/internal/corpus"
	"github.com/weirbench/weir/internal/record"
	"github.com/weirbench/weir/internal/replay"
	"github.com/weirbench/weir/internal/spec"
)

// TestTooManyLanes: a job whose lanes and sub-agents cannot be in flight on any machine ends
// before anything is started or sent, as capacity, with the arithmetic.
func TestTooManyLanes(t *testing.T) {
	c, err := corpus.Generate(corpus.GenerateOptions{Seed: 7, Traces: 12, SubAgentShare: 0.3})
	if err != nil {
		t.Fatal(err)
	}
	p := &spec.Point{Key: "k", Name: "n", Model: "m", Framework: "external", Scenario: spec.AgenticCoding, Conc: replay.MaxLanes,
		SpecDecoding: "none", Offload: spec.Offload{Mode: "none"}, DurationNs: 1e9}
	j := &Job{Point: p, Corpus: c, Replay: ReplayOptions(p)}
	if plan := j.InFlight(); plan.Units != replay.MaxLanes || plan.Each < 2 {
		t.Fatalf("plan %+v", plan)
	}
	for name, ex := range map[string]Executor{
		"launch": &Launch{Client: client.Config{}},
		"http":   &HTTP{Client: client.Config{URLs: []string{"http://127.0.0.1:1"}}},
	} {
		w, err := record.CreateBundle(t.TempDir() + "/b")
		if err != nil {
			t.Fatal(err)
		}
		err = ex.Measure(t.Context(), j, w)
		w.Abandon()
		var f *Failure
		many := (*client.TooMany)(nil)
		if !errors.As(err, &f) || f.Class != "capacity" || !errors.As(err, &many) || !strings.Contains(err.Error(), "lanes x ") {
			t.Errorf("%s: %v", name, err)
		}
	}
	load := replay.Load{Arrival: replay.Closed, Concurrency: 9}
	users := replay.Load{Arrival: replay.Users, NumUsers: 5}
	open := replay.Load{Arrival: replay.Poisson, Rate: 3}
	for want, l := range map[int]*replay.Load{9: &load, 5: &users, 0: &open} {
		j := &Job{Load: l}
		if p := j.InFlight(); p.InFlight() != want {
			t.Errorf("%+v: %d in flight, want %d", *l, p.InFlight(), want)
		}
	}
}
