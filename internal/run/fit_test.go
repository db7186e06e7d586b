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

// TestCrowded: a load that nothing caps is refused when requests that go out together do not fit, and
// is told at what time to answer it outgrows the machine when only many at once would not.
func TestCrowded(t *testing.T) {
	made, err := (&replay.Lengths{In: 64, Out: 1, Turns: 1, Conversations: 400, RangeRatio: 1}).Corpus()
	if err != nil {
		t.Fatal(err)
	}
	at := func(apart int64, n int) *corpus.Corpus {
		tr := &corpus.Trace{ID: "f", BlockSize: 64, Models: []string{"m"}}
		for i := range n {
			tr.Streams = append(tr.Streams, corpus.Stream{ID: "f", Parent: min(0, i-1), Join: corpus.Unbound,
				Turns: []corpus.Turn{{StartNs: int64(i) * apart, In: 64, Out: 1, Blocks: []uint32{uint32(i)}}}})
		}
		return &corpus.Corpus{Name: "f", Traces: []*corpus.Trace{tr}}
	}
	for name, x := range map[string]struct {
		c    *corpus.Corpus
		l    replay.Load
		room int
		says string // in part; nothing when it fits
	}{
		"a rate that fits":  {made, replay.Load{Arrival: replay.Poisson, Rate: 8}, 400, ""},
		"a rate":            {made, replay.Load{Arrival: replay.Poisson, Rate: 8}, 100, "400 requests can be in flight if no answer comes, and there is room for 100 (files); at 8 requests/s that is reached when answers take 12.5s"},
		"a rate for a time": {made, replay.Load{Arrival: replay.Constant, Rate: 8, DurationNs: 10e9}, 100, ""},
		"a loop":            {made, replay.Load{Arrival: replay.Constant, Rate: 8, Loop: true, DurationNs: 100.1e9}, 100, "800 requests"},
		"a schedule":        {at(1e9, 500), replay.Load{Arrival: replay.Schedule, EachTurn: true, Speed: 10}, 100, "densest that is reached when answers take 10s"},
		"with a cap":        {made, replay.Load{Arrival: replay.Poisson, Rate: 8, Concurrency: 7}, 1, ""},
	} {
		j := Job{Corpus: x.c, Load: &x.l}
		said := ""
		if w := j.crowd(); w != nil {
			said = crowded(j.Load, w, x.room, "files")
		}
		if x.says == "" && said != "" || !strings.Contains(said, x.says) {
			t.Errorf("%s: %q, want %q", name, said, x.says)
		}
	}
	j := Job{Corpus: at(0, 100_000), Load: &replay.Load{Arrival: replay.Schedule, EachTurn: true}}
	h := &HTTP{Client: client.Config{URLs: []string{"http://127.0.0.1:1"}}}
	many := (*client.TooMany)(nil)
	if err := h.Fits(&j); !errors.As(err, &many) || many.InFlight != 100_000 {
		t.Errorf("100,000 requests at one instant: %v", err)
	}
}
