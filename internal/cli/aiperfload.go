package cli

import (
	"fmt"
	"math"
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
	"--trajectory-start-min-ratio", "--trajectory-start-max-ratio", "--warmup-requests-per-lane", "--warmup-duration",
	"--trace-idle-gap-cap-seconds", "--system-idle-gap-cap-seconds", "--cache-bust", "--ignore-trace-delays", "--use-think-time-only",
	"--burst-phase-starts", "--allow-dataset-wrap", "--inter-turn-delay-cap-seconds", "--max-context-length", "--public-dataset",
	"--input-file", "--hf-weka-dataset", "--custom-dataset-type", "--synthesis-max-osl", "--unsafe-override", "--count-primers",
}

// scheduleOnly are flags of --fixed-schedule, fileSets what its file sets in place of a flag.
var (
	scheduleOnly = []string{"--fixed-schedule-auto-offset", "--fixed-schedule-start-offset", "--fixed-schedule-end-offset"}
	fileSets     = []string{
		"--isl", "--isl-stddev", "--osl", "--osl-stddev", "--batch-size", "--session-turns-mean", "--session-turns-stddev",
		"--session-turn-delay-mean", "--session-turn-delay-stddev", "--session-delay-ratio", "--shared-system-prompt-length",
		"--prefix-prompt-length", "--prefix-prompt-pool-size", "--random-range-ratio", "--random-corpus-style", "--num-dataset-entries",
		"--num-sessions", "--request-rate", "--arrival-pattern", "--arrival-smoothness", "--user-centric-rate", "--num-users",
		"--warmup-request-count", "--concurrency-ramp-duration",
	}
)

// readLoad turns the flags of a run without a scenario into a load of made-up prompts, or of a file
// with times.
func (p *profile) readLoad() {
	schedule := p.has("--fixed-schedule")
	for _, n := range traceOnly {
		switch {
		case !p.has(n), schedule && (n == "--input-file" || n == "--custom-dataset-type"):
		case n == "--input-file":
			p.fail("--input-file replays agent traces, so pass --scenario inferencex-agentx-mvp or agentx with it, or --fixed-schedule to send at its times; 'weir load --corpus' sends it otherwise")
		default:
			p.fail("%s replays agent traces, so pass --scenario inferencex-agentx-mvp or agentx with it", n)
		}
	}
	o := replay.Load{
		Concurrency: p.conc, PrefillConcurrency: p.whole("--prefill-concurrency", 0, 1), RampNs: p.seconds("--concurrency-ramp-duration", 0),
		WarmupRequests: p.whole("--warmup-request-count", 0, 0), MaxRequests: uint64(p.whole("--request-count", 0, 0)),
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
	if schedule {
		p.readSchedule(&o)
		return
	}
	for _, n := range scheduleOnly {
		if p.has(n) {
			p.fail("%s is of --fixed-schedule", n)
		}
	}
	if s := p.text("--dataset-sampling-strategy", "sequential"); s != "sequential" {
		p.fail("--dataset-sampling-strategy %s: made-up conversations are distinct, so their order is sequential", s)
	}
	l := p.readLengths()
	l.Seed = o.Seed
	o.FreeOutput = !p.has("--osl")
	p.arrivals(&o, &l)

	sessions := p.whole("--num-sessions", 0, 0)
	l.Conversations = p.whole("--num-dataset-entries", defaultEntries, 1)
	switch {
	case sessions > 0 && o.MaxRequests > 0:
		p.fail("--num-sessions and --request-count are both given: pass one")
	case sessions > 0: // every conversation once
		l.Conversations = sessions
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
	o.Loop = sessions == 0
	l.Conversations += o.WarmupRequests // those of the warm-up are not sent again
	p.lengths = l
}

// readLengths reads what the made-up prompts are like.
func (p *profile) readLengths() replay.Lengths {
	l := replay.Lengths{
		Name: "session", Turns: p.whole("--session-turns-mean", 1, 1), In: int64(p.whole("--isl", defaultISL, 1)),
		Out: int64(p.whole("--osl", 1, 1)), RangeRatio: 1, SharedShare: 1,
		InDev: p.number("--isl-stddev", 0, 0, 1e9), OutDev: p.number("--osl-stddev", 0, 0, 1e9), TurnsDev: p.number("--session-turns-stddev", 0, 0, 1e6),
		Pause: p.number("--session-turn-delay-mean", 0, 0, replay.MaxPause), PauseDev: p.number("--session-turn-delay-stddev", 0, 0, replay.MaxPause),
		PauseRatio: p.number("--session-delay-ratio", 1, 0, 1e6),
	}
	if l.PauseRatio == 0 {
		l.Pause = 0
	}
	if !p.has("--osl") {
		if l.Turns > 1 || l.TurnsDev > 0 {
			p.fail("no --osl: conversations of several turns carry answers of a length that Weir has to know")
		}
		if p.has("--osl-stddev") {
			p.fail("--osl-stddev needs --osl")
		}
		p.args.notes = append(p.args.notes, "no --osl: as with AIPerf nothing is asked of the length of answers, so the server ends them")
	}
	l.Prefix = int64(p.whole("--shared-system-prompt-length", 0, 0))
	if p.has("--prefix-prompt-length") || p.has("--prefix-prompt-pool-size") {
		if p.has("--shared-system-prompt-length") {
			p.fail("--prefix-prompt-length and --shared-system-prompt-length are both given: pass one")
		}
		if !p.has("--prefix-prompt-length") || !p.has("--prefix-prompt-pool-size") {
			p.fail("--prefix-prompt-length and --prefix-prompt-pool-size need each other")
		}
		l.Prefix, l.Prefixes = int64(p.whole("--prefix-prompt-length", 0, 1)), p.whole("--prefix-prompt-pool-size", 1, 1)
	}
	if p.has("--random-range-ratio") {
		if s := p.text("--random-corpus-style", "vllm"); s != "sglang" {
			p.fail("--random-range-ratio in the style of %s draws above the length too; Weir draws from ratio x length to the length: pass --random-corpus-style sglang", s)
		}
		if l.InDev > 0 || l.OutDev > 0 {
			p.fail("--random-range-ratio and a stddev of lengths are both given: pass one")
		}
		l.RangeRatio = p.number("--random-range-ratio", 1, 1e-9, 1)
	} else if p.has("--random-corpus-style") {
		p.fail("--random-corpus-style without --random-range-ratio chooses a pool of tokens, which Weir does not have")
	}
	return l
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
		for _, n := range []string{"--request-rate", "--arrival-pattern", "--arrival-smoothness", "--concurrency-ramp-duration", "--session-turn-delay-mean"} {
			if p.has(n) {
				p.fail("%s does not go with --user-centric-rate, which sets the pace", n)
			}
		}
		return
	}
	o.Rate = p.number("--request-rate", 0, 0, 1e6)
	usual := "poisson"
	if p.has("--arrival-smoothness") {
		usual = "gamma"
	}
	pattern := strings.ReplaceAll(p.text("--arrival-pattern", usual), "-", "_")
	if o.Rate == 0 {
		if p.has("--arrival-pattern") && pattern != "concurrency_burst" {
			p.fail("--arrival-pattern %s needs a --request-rate above 0", pattern)
		}
		o.Arrival = replay.Closed
		return
	}
	if !p.has("--concurrency") {
		o.Concurrency = 0 // no limit
	}
	switch pattern {
	case "constant":
		o.Arrival = replay.Constant
	case "poisson":
		o.Arrival = replay.Poisson
	case "gamma":
		o.Arrival, o.Shape = replay.Gamma, p.number("--arrival-smoothness", 1, 1e-9, math.MaxFloat32)
	default:
		p.fail("--arrival-pattern %q: use constant, poisson or gamma", pattern)
	}
	if p.has("--arrival-smoothness") && o.Arrival != replay.Gamma {
		p.fail("--arrival-smoothness is of --arrival-pattern gamma")
	}
}

// loadName says what is sent, for the result.
func (p *profile) loadName() string {
	l := p.lengths
	switch {
	case p.load.Arrival == replay.Schedule:
		return fmt.Sprintf("%s_schedule", p.model)
	case p.load.FreeOutput:
		return fmt.Sprintf("%s_isl%d_conc%d", p.model, l.In, p.conc)
	}
	return fmt.Sprintf("%s_isl%d_osl%d_conc%d", p.model, l.In, l.Out, p.conc)
}
