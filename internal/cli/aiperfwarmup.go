package cli

import (
	"github.com/weirbench/weir/internal/replay"
)

// warmupOnly are flags of a warm-up that one of its bounds has to start.
var warmupOnly = []string{
	"--warmup-concurrency", "--warmup-request-rate", "--warmup-arrival-pattern", "--warmup-prefill-concurrency",
	"--warmup-concurrency-ramp-duration", "--warmup-prefill-concurrency-ramp-duration", "--warmup-request-rate-ramp-duration", "--warmup-grace-period",
}

// warmup reads the load before the one that counts; nil is none. What no flag of its own says is as in the
// load that counts (config/flags/_converter_warmup.py of 0.13, 2026-10).
func (p *profile) warmup(o *replay.Load) *replay.Warmup {
	requests, sessions := p.whole("--warmup-request-count", 0, 0), p.whole("--num-warmup-sessions", 0, 0)
	w := replay.Warmup{Load: replay.Load{
		MaxRequests: uint64(requests), DurationNs: p.seconds("--warmup-duration", 0), GraceNs: -1, Shape: 1,
		PrefillConcurrency: p.whole("--warmup-prefill-concurrency", o.PrefillConcurrency, 1),
	}}
	if requests == 0 && sessions == 0 && w.DurationNs == 0 {
		for _, n := range warmupOnly {
			if p.has(n) {
				p.fail("%s: nothing is warmed up without --warmup-request-count, --num-warmup-sessions or --warmup-duration", n)
			}
		}
		return nil
	}
	if p.has("--warmup-grace-period") {
		if w.DurationNs == 0 {
			p.fail("--warmup-grace-period is of --warmup-duration: what other bounds have sent is waited for")
		}
		w.GraceNs = p.seconds("--warmup-grace-period", 0)
	}
	or := func(name, other string) int64 {
		if p.has(name) {
			return p.seconds(name, 0)
		}
		return p.seconds(other, 0)
	}
	w.RampNs = or("--warmup-concurrency-ramp-duration", "--concurrency-ramp-duration")
	w.PrefillRampNs = or("--warmup-prefill-concurrency-ramp-duration", "--prefill-concurrency-ramp-duration")
	main := 0.0
	if o.Arrival >= replay.Constant && o.Arrival <= replay.Gamma {
		main = o.Rate
	}
	if w.Rate = p.number("--warmup-request-rate", main, 0, 1e6); w.Rate > 0 {
		flag := "--warmup-arrival-pattern"
		p.pattern(&w.Load, flag, p.text(flag, p.text("--arrival-pattern", "")))
		w.RateRampNs = or("--warmup-request-rate-ramp-duration", "--request-rate-ramp-duration")
		w.Concurrency = p.whole("--warmup-concurrency", p.whole("--concurrency", 0, 1), 1)
	} else {
		w.Concurrency = p.whole("--warmup-concurrency", p.conc, 1)
		if p.has("--warmup-request-rate-ramp-duration") {
			p.fail("--warmup-request-rate-ramp-duration needs --warmup-request-rate")
		}
	}
	w.MaxConversations = sessions
	switch {
	case p.has("--input-file"): // the file's first, as with AIPerf
	case sessions > 0 || requests > 0:
		w.Conversations = max(sessions, requests)
	default: // sent again and again until the time is over
		w.Conversations = p.whole("--num-dataset-entries", defaultEntries, 1)
	}
	return &w
}
