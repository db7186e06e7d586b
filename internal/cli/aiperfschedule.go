package cli

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"math"
	"os"
	"slices"
	"strings"

	"github.com/weirbench/weir/internal/corpus"
	"github.com/weirbench/weir/internal/replay"
)

// readSchedule reads a load that sends a file's requests at its times.
func (p *profile) readSchedule(o *replay.Load) {
	o.Arrival, o.EachTurn = replay.Schedule, true
	if !p.has("--input-file") {
		p.fail("--fixed-schedule needs a file with times: pass --input-file")
	}
	for _, n := range slices.Concat(fileSets, paceSets) {
		if p.has(n) {
			p.fail("%s does not go with the file's times, which set lengths, order and pace; --no-fixed-schedule leaves them aside", n)
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
	l, err := firstLine(path)
	if err != nil && !errors.As(err, new(*json.SyntaxError)) && !errors.As(err, new(*json.UnmarshalTypeError)) && !errors.Is(err, io.EOF) {
		return 0, err
	}
	if err != nil || l.Time == nil || l.In == nil || l.Chat != nil || !(*l.Time >= 0 && *l.Time < math.MaxInt64/1e6) {
		return 0, usagef("--fixed-schedule-start-offset and -end-offset need a Mooncake file that is not compressed, with times: the first line of %s has no \"timestamp\" beside \"input_length\"", path)
	}
	return int64(math.Round(*l.Time * 1e6)), nil
}

// formLine is what tells forms of a file apart.
type formLine struct {
	Time    *float64        `json:"timestamp"`
	In      json.RawMessage `json:"input_length"`
	Chat    json.RawMessage `json:"chat_id"` // of a form that counts in seconds
	Session json.RawMessage `json:"session_id"`
	Weir    json.RawMessage `json:"weir"` // a file that Weir wrote, whose lengths are of whole prompts
}

// firstLine reads the first object of a file.
func firstLine(path string) (l formLine, err error) {
	f, err := os.Open(path)
	if err != nil {
		return l, err
	}
	defer f.Close()
	err = json.NewDecoder(bufio.NewReader(f)).Decode(&l)
	return l, err
}

// scheduled tells that a file is sent at its times: by --fixed-schedule, or as AIPerf does where
// --custom-dataset-type names a form of traces and the first request has a time.
func (p *profile) scheduled() bool {
	switch {
	case p.has("--fixed-schedule"):
		if p.has("--no-fixed-schedule") {
			p.fail("--fixed-schedule and --no-fixed-schedule are both given: pass one")
		}
		return true
	case p.has("--no-fixed-schedule") || !slices.Contains(traceTypes, p.text("--custom-dataset-type", "")):
		return false
	}
	l, err := firstLine(p.text("--input-file", ""))
	if err != nil || l.Time == nil {
		return false
	}
	p.note("the requests of --input-file have times, so they are sent at these, as with AIPerf; --no-fixed-schedule sends them otherwise")
	return true
}

// traceTypes are the forms of AIPerf whose times set the pace; listTypes those of its other files that Weir reads.
var (
	traceTypes = []string{"mooncake_trace", "bailian_trace", "burst_gpt_trace"}
	listTypes  = []string{"single_turn", "multi_turn", "sharegpt"}
)

// readFile checks the flags of a file whose conversations are sent as made-up ones are.
func (p *profile) readFile() {
	for _, n := range fileSets {
		if p.has(n) {
			p.fail("%s does not go with --input-file, whose conversations are sent as they are", n)
		}
	}
	if t := p.text("--custom-dataset-type", ""); t != "" && !slices.Contains(traceTypes, t) && !slices.Contains(listTypes, t) {
		p.fail("--custom-dataset-type %s: without a --scenario Weir sends %s", t, strings.Join(slices.Concat(traceTypes, listTypes), ", "))
	}
	// Requests that name no session stand for themselves, whatever prefixes they share.
	if l, err := firstLine(p.text("--input-file", "")); err == nil && l.In != nil && l.Chat == nil && l.Weir == nil {
		p.load.EachTurn, p.grows = l.Session == nil, l.Session != nil
	}
	p.note("of --input-file Weir takes lengths, shared blocks and pauses; the words that it sends are its own")
}

// grow puts in front of every turn of a session the turns before it with their answers, as AIPerf does with the
// lines of a Mooncake file: there a line has what a turn adds. Blocks after the first turn's do not begin where
// those of other sessions do, so they are the session's own.
func grow(c *corpus.Corpus) error {
	for _, t := range c.Traces {
		next := uint32(0)
		for _, s := range t.Streams {
			for _, turn := range s.Turns {
				for _, b := range turn.Blocks {
					next = max(next, b)
				}
			}
		}
		for _, s := range t.Streams {
			for k := 1; k < len(s.Turns); k++ {
				turn, before := &s.Turns[k], &s.Turns[k-1]
				turn.In += before.In + before.Out
				if turn.In > maxGrown {
					return usagef("turn %d of session %s has %d tokens with the turns before it: at most %d", k+1, s.ID, turn.In, maxGrown)
				}
				if t.LengthsOnly {
					continue
				}
				blocks := slices.Clone(before.Blocks[:min(len(before.Blocks), int(before.In/t.BlockSize))])
				for int64(len(blocks)) < turn.In/t.BlockSize {
					next++
					blocks = append(blocks, next)
				}
				turn.Blocks = blocks
			}
		}
	}
	return nil
}

// maxGrown bounds the tokens of a prompt with the turns before it: their blocks stand in memory.
const maxGrown = 1 << 28
