package cli

import (
	"bufio"
	"encoding/json"
	"math"
	"os"

	"github.com/weirbench/weir/internal/corpus"
	"github.com/weirbench/weir/internal/replay"
)

// readSchedule reads a load that sends a file's requests at its times.
func (p *profile) readSchedule(o *replay.Load) {
	o.Arrival, o.EachTurn = replay.Schedule, true
	if !p.has("--input-file") {
		p.fail("--fixed-schedule needs a file with times: pass --input-file")
	}
	for _, n := range fileSets {
		if p.has(n) {
			p.fail("%s does not go with --fixed-schedule: lengths, order and times are the file's", n)
		}
	}
	if p.text("--dataset-sampling-strategy", "sequential") != "sequential" {
		p.fail("--dataset-sampling-strategy: the order of --fixed-schedule is that of the times")
	}
	if !p.has("--concurrency") {
		o.Concurrency = 0 // no limit
	}
	from, to := p.whole("--fixed-schedule-start-offset", 0, 0), p.whole("--fixed-schedule-end-offset", 0, 0)
	o.FromNs = int64(from) * 1e6
	if o.FromSet = p.has("--fixed-schedule-start-offset"); o.FromSet && p.has("--fixed-schedule-auto-offset") {
		p.fail("--fixed-schedule-auto-offset and --fixed-schedule-start-offset are both given: pass one")
	}
	if p.has("--fixed-schedule-end-offset") {
		o.ToNs = int64(to)*1e6 + 1 // the end itself is sent too
		if to < from {
			p.fail("--fixed-schedule-start-offset %d is after --fixed-schedule-end-offset %d", from, to)
		}
	}
}

// place settles the schedule on the corpus of a file. A corpus counts from its first request; AIPerf's
// offsets are times as they stand in the file.
func (p *profile) place(c *corpus.Corpus) error {
	if n := len(c.Traces); n != 1 {
		return usagef("--fixed-schedule: %s holds %d traces, each with times of its own, since its requests have sessions: Weir keeps no time between them", p.text("--input-file", ""), n)
	}
	if !p.load.FromSet && p.load.ToNs == 0 {
		return nil
	}
	first, err := firstTime(p.text("--input-file", ""))
	if err != nil {
		return usage(err)
	}
	if p.load.FromSet {
		p.load.FromNs -= first
	}
	if p.load.ToNs > 0 {
		if p.load.ToNs -= first; p.load.ToNs <= 0 {
			return usagef("--fixed-schedule-end-offset lies before the first request, at %v ms", float64(first)/1e6)
		}
	}
	return nil
}

// firstTime is the time of the first line of a Mooncake file, nanoseconds.
func firstTime(path string) (int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	var line struct {
		Time *float64        `json:"timestamp"`
		In   json.RawMessage `json:"input_length"`
		Chat json.RawMessage `json:"chat_id"` // of a form that counts in seconds
	}
	if err := json.NewDecoder(bufio.NewReader(f)).Decode(&line); err != nil || line.Time == nil || line.In == nil || line.Chat != nil || !(*line.Time >= 0 && *line.Time < math.MaxInt64/1e6) {
		return 0, usagef("--fixed-schedule-start-offset and -end-offset need a Mooncake file that is not compressed, with times: the first line of %s has no \"timestamp\" beside \"input_length\"", path)
	}
	return int64(math.Round(*line.Time * 1e6)), nil
}
