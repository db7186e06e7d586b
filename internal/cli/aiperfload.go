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
	"--input-file", "--hf-weka-dataset", "--custom-dataset-type", "--synthesis-max-osl", "--unsafe-override",
}

// readLoad turns the flags of a run without a scenario into a load of made-up prompts.
func (p *profile) readLoad() {
	for _, n := range traceOnly {
		if p.has(n) {
			p.fail("%s replays agent traces, so pass --scenario inferencex-agentx-mvp or agentx with it", n)
		}
	}
	same := func(name, what string) { // only one value is one of Weir's
		if p.number(name, 0, 0, 1e9) != 0 {
			p.fail("%s: Weir's %s do not vary by a deviation; --random-range-ratio with --random-corpus-style sglang draws lengths", name, what)
		}
	}
	same("--isl-stddev", "prompts")
	same("--osl-stddev", "outputs")
	same("--session-turns-stddev", "conversations")
	if n := p.whole("--batch-size", 1, 1); n != 1 {
		p.fail("--batch-size %d: a request of Weir has one prompt", n)
	}
	if s := p.text("--dataset-sampling-strategy", "sequential"); s != "sequential" {
		p.fail("--dataset-sampling-strategy %s: made-up conversations are distinct, so their order is sequential", s)
	}
	l := replay.Lengths{
		Name: "session", Turns: p.whole("--session-turns-mean", 1, 1), In: int64(p.whole("--isl", defaultISL, 1)),
		Out: int64(p.whole("--osl", 0, 0)), RangeRatio: 1, Prefix: int64(p.whole("--shared-system-prompt-length", 0, 0)), SharedShare: 1,
	}
	if l.Out == 0 {
		p.fail("no --osl: say how many tokens to ask for")
	}
	if p.has("--random-range-ratio") {
		if s := p.text("--random-corpus-style", "vllm"); s != "sglang" {
			p.fail("--random-range-ratio in the style of %s draws above the length too; Weir draws from ratio x length to the length: pass --random-corpus-style sglang", s)
		}
		l.RangeRatio = p.number("--random-range-ratio", 1, 1e-9, 1)
	} else if p.has("--random-corpus-style") {
		p.fail("--random-corpus-style without --random-range-ratio chooses a pool of tokens, which Weir does not have")
	}
	o := replay.Load{
		Concurrency: p.conc, PrefillConcurrency: p.whole("--prefill-concurrency", 0, 1), RampNs: p.seconds("--concurrency-ramp-duration", 0),
		WarmupRequests: p.whole("--warmup-request-count", 0, 0), MaxRequests: uint64(p.whole("--request-count", 0, 0)),
		DurationNs: p.seconds("--benchmark-duration", 0), GraceNs: p.seconds("--benchmark-grace-period", 30),
		FailedThreshold: p.threshold(0), Seed: p.seed(false), Shape: 1,
	}
	l.Seed = o.Seed
	p.arrivals(&o)

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
	o.Loop = sessions == 0
	l.Conversations += o.WarmupRequests // those of the warm-up are not sent again
	p.load, p.lengths = &o, l
}

// arrivals reads --request-rate and how requests come at it.
func (p *profile) arrivals(o *replay.Load) {
	o.Rate = p.number("--request-rate", 0, 0, 1e6)
	pattern := strings.ReplaceAll(p.text("--arrival-pattern", "poisson"), "-", "_")
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
	return fmt.Sprintf("%s_isl%d_osl%d_conc%d", p.model, l.In, l.Out, p.conc)
}
