package run

import (
	"testing"

	"github.com/weirbench/weir/internal/client"
	"github.com/weirbench/weir/internal/corpus"
	"github.com/weirbench/weir/internal/replay"
	"github.com/weirbench/weir/internal/spec"
)

// TestCalibrationLoad: a calibration has the streams and the frames that the job will have, for
// every way of sending.
func TestCalibrationLoad(t *testing.T) {
	made, err := (&replay.Lengths{In: 64, Out: 100, Conversations: 20, Turns: 1, RangeRatio: 1, Seed: 1}).Corpus()
	if err != nil {
		t.Fatal(err)
	}
	timed := func(at ...int64) *corpus.Corpus {
		tr := &corpus.Trace{ID: "a", BlockSize: 64, Models: []string{"m"}, Streams: []corpus.Stream{{ID: "a", Parent: corpus.Unbound, Join: corpus.Unbound}}}
		for _, s := range at {
			tr.Streams[0].Turns = append(tr.Streams[0].Turns, corpus.Turn{StartNs: s * 1e9, APINs: 1e9, In: 64, Out: 10, Blocks: []uint32{1}})
		}
		return &corpus.Corpus{Name: "c", Traces: []*corpus.Trace{tr}}
	}
	// A root with two sub-agents that run for 10 s of its 20: two at once on average, three at most.
	agents := timed(0)
	agents.Traces[0].Streams[0].Turns[0].APINs = 20e9
	for _, id := range []string{"b", "c"} {
		agents.Traces[0].Streams = append(agents.Traces[0].Streams, corpus.Stream{ID: id, Parent: 0, Join: corpus.Unbound,
			Turns: []corpus.Turn{{StartNs: 5e9, APINs: 10e9, In: 64, Out: 10, Blocks: []uint32{2}}}})
	}
	for name, c := range map[string]struct {
		job      Job
		inFlight int
		frames   float64
	}{
		"closed":            {Job{Corpus: made, Load: &replay.Load{Arrival: replay.Closed, Concurrency: 9}}, 9, 450},
		"users":             {Job{Corpus: made, Load: &replay.Load{Arrival: replay.Users, NumUsers: 40, Rate: 30}}, 40, 2000},
		"idle users":        {Job{Corpus: made, Load: &replay.Load{Arrival: replay.Users, NumUsers: 40, Rate: 2}}, 40, 200},
		"rate, capped":      {Job{Corpus: made, Load: &replay.Load{Arrival: replay.Poisson, Rate: 4, Concurrency: 7}}, 7, 350},
		"rate":              {Job{Corpus: made, Load: &replay.Load{Arrival: replay.Gamma, Rate: 4}}, 12, 400},
		"rate, short":       {Job{Corpus: made, Load: &replay.Load{Arrival: replay.Constant, Rate: 4, MaxOut: 1}}, 5, 4},
		"rate, huge":        {Job{Corpus: made, Load: &replay.Load{Arrival: replay.Constant, Rate: 1e6}}, mostAtOnce, 25000},
		"schedule":          {Job{Corpus: timed(0, 1, 2, 4), Load: &replay.Load{Arrival: replay.Schedule, Speed: 5}}, 6, 50},
		"schedule, instant": {Job{Corpus: timed(0), Load: &replay.Load{Arrival: replay.Schedule}}, 1, 50},
		"agents":            {Job{Corpus: agents, Replay: replay.InferenceX(4, 1e9)}, 12, 400},
		"many agents":       {Job{Corpus: agents, Replay: replay.InferenceX(400, 1e9)}, mostAtOnce, 40000},
		"more agents":       {Job{Corpus: agents, Replay: replay.InferenceX(600, 1e9)}, 600, 60000},
	} {
		c.job.Point = &spec.Point{}
		inFlight, frames := c.job.expected()
		if inFlight != c.inFlight || frames < c.frames*0.999 || frames > c.frames*1.001 {
			t.Errorf("%s: %d in flight and %.1f frames/s, want %d and %.1f", name, inFlight, frames, c.inFlight, c.frames)
		}
		l := c.job.calibration(&client.Config{Protocol: client.H2C})
		if l.Streams < inFlight || l.Protocol != client.H2C {
			t.Errorf("%s: calibrated at %+v", name, l)
		}
	}
}
