package cli

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"strings"

	"github.com/weirbench/weir/internal/replay"
)

// AIPerf's defaults of made-up prompts (config/dataset, _converter_profiling.py of 0.13, 2026-10).
const (
	defaultISL      = 550
	defaultEntries  = 100
	defaultRequests = 10
)

// traceOnly are flags that say how traces are replayed.
var traceOnly = []string{
	"--trajectory-start-min-ratio", "--trajectory-start-max-ratio", "--warmup-requests-per-lane",
	"--trace-idle-gap-cap-seconds", "--system-idle-gap-cap-seconds", "--cache-bust", "--ignore-trace-delays", "--use-think-time-only",
	"--burst-phase-starts", "--allow-dataset-wrap", "--inter-turn-delay-cap-seconds", "--max-context-length", "--public-dataset",
	"--hf-weka-dataset", "--synthesis-max-osl", "--unsafe-override", "--count-primers",
}

// scheduleOnly are flags of --fixed-schedule; fileSets are what a file sets in place of a flag, paceSets what its
// times do.
var (
	scheduleOnly = []string{"--fixed-schedule-auto-offset", "--fixed-schedule-start-offset", "--fixed-schedule-end-offset"}
	fileSets     = []string{
		"--isl", "--isl-stddev", "--osl", "--osl-stddev", "--batch-size", "--session-turns-mean", "--session-turns-stddev",
		"--session-turn-delay-mean", "--session-turn-delay-stddev", "--session-delay-ratio", "--shared-system-prompt-length",
		"--prefix-prompt-length", "--prefix-prompt-pool-size", "--random-range-ratio", "--random-corpus-style", "--num-dataset-entries",
		"--sequence-distribution", "--user-context-prompt-length",
	}
	paceSets = []string{
		"--num-sessions", "--request-rate", "--arrival-pattern", "--arrival-smoothness", "--user-centric-rate", "--num-users",
		"--warmup-request-count", "--num-warmup-sessions", "--warmup-duration", "--concurrency-ramp-duration", "--request-rate-ramp-duration",
		"--request-rate-series",
	}
)

// readLoad turns the flags of a run without a scenario into a load of made-up prompts, or of a file.
func (p *profile) readLoad() {
	for _, n := range traceOnly {
		if p.has(n) {
			p.fail("%s replays agent traces, so pass --scenario inferencex-agentx-mvp or agentx with it", n)
		}
	}
	o := replay.Load{
		Concurrency: p.conc, PrefillConcurrency: p.whole("--prefill-concurrency", 0, 1),
		RampNs: p.seconds("--concurrency-ramp-duration", 0), PrefillRampNs: p.seconds("--prefill-concurrency-ramp-duration", 0),
		MaxRequests: uint64(p.whole("--request-count", 0, 0)), AsAIPerf: true,
		DurationNs: p.seconds("--benchmark-duration", 0), GraceNs: p.seconds("--benchmark-grace-period", 30),
		FailedThreshold: p.threshold(0), Seed: p.seed(false), Shape: 1, DrainNs: p.drain(),
	}
	p.load = &o
	if !p.has("--streaming") {
		p.args.notes = append(p.args.notes, "without --streaming AIPerf asks for whole answers and has no times of tokens; Weir streams all the same")
	}
	if n := p.whole("--batch-size", 1, 1); n != 1 {
		p.fail("--batch-size %d: a request of Weir has one prompt", n)
	}
	if p.scheduled() {
		p.readSchedule(&o)
		return
	}
	for _, n := range scheduleOnly {
		if p.has(n) {
			p.fail("%s is of --fixed-schedule", n)
		}
	}
	if s := p.text("--dataset-sampling-strategy", ""); s != "" {
		if err := o.Sampling.UnmarshalText([]byte(s)); err != nil {
			p.fail("--dataset-sampling-strategy: %v", err)
		}
	}
	l := replay.Lengths{Turns: 2}
	if p.has("--input-file") {
		p.readFile()
	} else {
		if p.has("--custom-dataset-type") {
			p.fail("--custom-dataset-type says what --input-file holds: pass one")
		}
		l = p.readLengths()
		l.Seed = o.Seed
		o.FreeOutput = l.Out == 0
		l.Out = max(l.Out, 1)
	}
	p.arrivals(&o, &l)

	sessions := p.whole("--num-sessions", 0, 0)
	l.Conversations = p.whole("--num-dataset-entries", defaultEntries, 1)
	switch {
	case sessions > 0 && o.MaxRequests > 0:
		p.fail("--num-sessions and --request-count are both given: pass one")
	case sessions > 0 && !p.has("--input-file") && o.Sampling == replay.Sequential: // every conversation once
		l.Conversations = sessions
	case sessions > 0:
		o.MaxConversations = sessions
	case o.DurationNs == 0 && o.MaxRequests == 0:
		o.MaxRequests = defaultRequests
	}
	if o.Arrival == replay.Users {
		switch {
		case sessions > 0 && sessions < o.NumUsers:
			p.fail("--num-sessions %d is less than --num-users %d: each user needs one", sessions, o.NumUsers)
		case o.MaxRequests > 0 && o.MaxRequests < uint64(o.NumUsers):
			p.fail("--request-count is %d, less than --num-users %d: each user needs one (without --request-count, --num-sessions and --benchmark-duration it is %d)", o.MaxRequests, o.NumUsers, defaultRequests)
		}
	}
	o.Loop = sessions == 0 || o.MaxConversations > 0
	o.Warmup = p.warmup(&o)
	if o.Warmup != nil && !p.has("--input-file") {
		l.Conversations += o.Warmup.Conversations // those of the warm-up are not sent again
	}
	p.lengths = l
}

// arrivals reads --request-rate and how requests come at it, or the users of --user-centric-rate.
func (p *profile) arrivals(o *replay.Load, l *replay.Lengths) {
	if p.has("--user-centric-rate") || p.has("--num-users") {
		o.Arrival, o.FromFirstTurn, o.Concurrency = replay.Users, true, 0
		o.Rate, o.NumUsers = p.number("--user-centric-rate", 0, 1e-6, 1e6), p.whole("--num-users", 0, 1)
		if !p.has("--user-centric-rate") || !p.has("--num-users") {
			p.fail("--user-centric-rate and --num-users need each other")
		}
		if l.Turns < 2 {
			p.fail("--user-centric-rate needs --session-turns-mean of at least 2: users come back")
		}
		for _, n := range []string{"--request-rate", "--arrival-pattern", "--arrival-smoothness", "--concurrency-ramp-duration", "--request-rate-ramp-duration", "--request-rate-series", "--session-turn-delay-mean"} {
			if p.has(n) {
				p.fail("%s does not go with --user-centric-rate, which sets the pace", n)
			}
		}
		return
	}
	o.Rate = p.number("--request-rate", 0, 0, 1e6)
	if path := p.text("--request-rate-series", ""); path != "" {
		if p.has("--request-rate") {
			p.fail("--request-rate and --request-rate-series are both given: pass one")
		}
		var err error
		if o.RateSeries, err = readSeries(path); err != nil {
			p.fail("--request-rate-series: %v", err)
			return
		}
		o.Rate = o.RateSeries[0].Rate
	}
	pattern := "--arrival-pattern"
	if o.Rate == 0 {
		if v := p.text(pattern, ""); v != "" && strings.ReplaceAll(v, "-", "_") != "concurrency_burst" {
			p.fail("--arrival-pattern %s needs a --request-rate above 0", v)
		}
		if p.has("--request-rate-ramp-duration") {
			p.fail("--request-rate-ramp-duration needs a --request-rate above 0 to end at")
		}
		o.Arrival = replay.Closed
		return
	}
	if !p.has("--concurrency") {
		o.Concurrency = 0 // no limit
	}
	o.RateRampNs = p.seconds("--request-rate-ramp-duration", 0)
	p.pattern(o, pattern, p.text(pattern, ""))
	if p.has("--arrival-smoothness") && o.Arrival != replay.Gamma {
		p.fail("--arrival-smoothness is of --arrival-pattern gamma")
	}
}

// readSeries reads the points of a file: a JSON array of {"time_s": T, "qps": R}, or an object with it as "points".
func readSeries(path string) ([]replay.RatePoint, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var points []replay.RatePoint
	var doc struct{ Points *[]replay.RatePoint }
	if err = json.Unmarshal(raw, &points); err != nil {
		if json.Unmarshal(raw, &doc) == nil && doc.Points != nil {
			points, err = *doc.Points, nil
		}
	}
	if err != nil || len(points) == 0 {
		return nil, fmt.Errorf("%s: need a JSON array of points, each {\"time_s\": SECONDS, \"qps\": RATE}", path)
	}
	return points, nil
}

// pattern reads how requests come at a rate.
func (p *profile) pattern(o *replay.Load, flag, v string) {
	if v == "" {
		v = "poisson"
		if p.has("--arrival-smoothness") {
			v = "gamma"
		}
	}
	switch v {
	case "constant":
		o.Arrival = replay.Constant
	case "poisson":
		o.Arrival = replay.Poisson
	case "gamma":
		o.Arrival, o.Shape = replay.Gamma, p.number("--arrival-smoothness", 1, 1e-9, math.MaxFloat32)
	default:
		p.fail("%s %q: use constant, poisson or gamma", flag, v)
	}
}

// loadName says what is sent, for the result.
func (p *profile) loadName() string {
	l := p.lengths
	switch {
	case p.load.Arrival == replay.Schedule:
		return fmt.Sprintf("%s_schedule", p.model)
	case p.has("--input-file"):
		return fmt.Sprintf("%s_file_conc%d", p.model, p.conc)
	case p.load.FreeOutput:
		return fmt.Sprintf("%s_isl%d_conc%d", p.model, l.In, p.conc)
	}
	return fmt.Sprintf("%s_isl%d_osl%d_conc%d", p.model, l.In, l.Out, p.conc)
}
