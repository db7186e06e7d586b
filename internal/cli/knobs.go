package cli

import (
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/weirbench/weir/internal/prompt"
	"github.com/weirbench/weir/internal/replay"
)

// replayKnobs are the flags of agentic replay beside concurrency, duration and seed. Their
// defaults are what InferenceX passes.
type replayKnobs struct {
	o                                                        replay.Options
	pressureTime, systemIdle, traceIdle, grace, warmup, gaps time.Duration
}

func (k *replayKnobs) add(fl *pflag.FlagSet) {
	k.o = replay.InferenceX(1, 0)
	fl.Float64Var(&k.o.StartMin, "start-min", k.o.StartMin, "earliest start inside a trace, as a share of its span")
	fl.Float64Var(&k.o.StartMax, "start-max", k.o.StartMax, "latest start inside a trace, as a share of its span")
	fl.BoolVar(&k.o.NoWarmup, "no-warmup", false, "leave out primers and cache pressure")
	intVar(fl, &k.o.PressureRequests, "warmup-requests-per-lane", k.o.PressureRequests, 0, 1_000_000, "one-token requests per lane after the primers")
	fl.BoolVar(&k.o.CountPrimers, "count-primers", false, "count a lane's primers to --warmup-requests-per-lane, as older forks of AIPerf did")
	durationVar(fl, &k.pressureTime, "warmup-duration", 0, 0, "press the caches for this long instead of by number of requests")
	fl.BoolVar(&k.o.Burst, "burst", false, "send all primers at once and start every lane at once")
	durationVar(fl, &k.systemIdle, "system-idle-cap", time.Duration(k.o.SystemIdleCapNs), 0, "longest time with nothing in flight; 0 is no cap")
	durationVar(fl, &k.traceIdle, "idle-cap", time.Duration(k.o.TraceIdleCapNs), 0, "longest pause of one agent; 0 is no cap")
	fl.DurationVar(&k.grace, "grace", time.Duration(k.o.GraceNs), "for what is in flight at the end; negative is unlimited")
	durationVar(fl, &k.warmup, "warmup-grace", time.Duration(k.o.WarmupGraceNs), 0, "cut a warm-up that has not moved for this long; 0 never")
	fl.Uint64Var(&k.o.MaxRequests, "max-requests", 0, "end after this many profiling requests; 0 is no limit")
	fl.Uint64Var(&k.o.MaxTrees, "max-trees", 0, "start no more than this many agent runs; 0 is no limit")
	fl.Float64Var(&k.o.FailedThreshold, "failed-request-threshold", k.o.FailedThreshold, "end when more than this share of the requests failed; 0 is off")
	fl.TextVar(&k.o.Barriers, "barriers", k.o.Barriers, "`SCOPE` within which a turn waits for other streams by recorded order: agent, tree, or none (dataflow)")
	fl.TextVar(&k.o.Sampling, "order", k.o.Sampling, "`ORDER` of traces: sequential, shuffle, random")
	fl.TextVar(&k.o.Salt, "salt", prompt.FirstTurnPrefix, "`PLACE` of the salt of a play: none, system_prefix, system_suffix, first_turn_prefix, first_turn_suffix")
	fl.BoolVar(&k.o.AllowWrap, "allow-wrap", false, "without a salt, let concurrency exceed the number of traces")
	intVar(fl, &k.o.MaxOut, "max-output", 0, 0, noTop, "cap on output tokens; 0 is none")
	fl.BoolVar(&k.o.ThinkGaps, "think-time", false, "pause for the recorded think time, not from the end of one turn to the start of the next")
	fl.BoolVar(&k.o.NoGaps, "no-gaps", false, "send a turn as soon as the one before it has ended")
	durationVar(fl, &k.gaps, "gap-cap", 0, 0, "longest pause between two turns; 0 is no cap")
}

// options are the knobs over what a point gives.
func (k *replayKnobs) options(point replay.Options) replay.Options {
	o := k.o
	o.Lanes, o.Seed, o.DurationNs = point.Lanes, point.Seed, point.DurationNs
	o.PressureNs = int64(k.pressureTime)
	if o.PressureNs > 0 {
		o.PressureRequests = 0
	}
	o.SystemIdleCapNs, o.TraceIdleCapNs = int64(k.systemIdle), int64(k.traceIdle)
	o.GraceNs, o.WarmupGraceNs, o.TurnGapCapNs = int64(k.grace), int64(k.warmup), int64(k.gaps)
	return o
}

// withoutOther refuses given knobs that another given one leaves without effect.
func withoutOther(given *pflag.FlagSet) error {
	for _, k := range []struct{ over, why, names string }{
		{"no-warmup", "beside --no-warmup, which leaves the warm-up out: drop one", "warmup-requests-per-lane warmup-duration warmup-grace count-primers"},
		{"warmup-duration", "beside --warmup-duration, which presses by time and not by requests: drop one", "warmup-requests-per-lane count-primers"},
		{"no-gaps", "beside --no-gaps, which leaves all pauses between turns out: drop one", "gap-cap think-time"},
	} {
		if o := given.Lookup(k.over); !o.Changed || o.Value.String() == "false" || o.Value.String() == "0" || o.Value.String() == "0s" {
			continue
		}
		if err := without(given, k.why, strings.Fields(k.names)...); err != nil {
			return err
		}
	}
	return nil
}
