package result

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/weirbench/weir/internal/record"
)

// Code names a reason from the closed list of why a result is not valid.
type Code string

const (
	RootWarmup     Code = "root-warmup-failed" // a root stream could not be primed
	ErrorRate      Code = "error-rate"         // too many requests failed
	Overflow       Code = "context-overflow"   // too many prompts were too long for the server
	Unsent         Code = "unsent"             // the client itself could not send requests that were due
	NoOutput       Code = "no-output-tokens"   // nothing was generated
	Coverage       Code = "coverage"           // the last token came long before the window's end
	Cancelled      Code = "cancelled"          // stopped before its end
	ClientBound    Code = "client-bound"       // the client's own error exceeds its limit
	CacheNotClean  Code = "cache-not-clean"    // the cache held something at the start
	OffloadInert   Code = "offload-inert"      // the host tier should have served hits and served none
	GPUMismatch    Code = "gpu-count-mismatch" // other GPUs were seen than declared
	Stalled        Code = "stalled"            // no token from any request for too long
	UnsafeOverride Code = "unsafe-override"    // a rule was switched off by hand
	RunFailed      Code = "run-failed"         // the bundle ends with FAILED
	RunCut         Code = "run-cut"            // the bundle has no end: the run was killed

	// These two are warnings while they concern a few requests.
	UsageMissing     Code = "usage-missing"     // no answer came with a count of output tokens
	UsageImplausible Code = "usage-implausible" // the server's counts cannot be true
)

// Codes of warnings, which do not make a result invalid.
const (
	PromptDrift     Code = "prompt-drift"     // the server counted other prompts than the trace recorded
	OffloadMismatch Code = "offload-mismatch" // the host tier served hits though offload is declared off
	HitsExceed      Code = "hits-exceed"      // more tokens hit than the prompt had
	AboveCeiling    Code = "above-ceiling"    // more hits than an infinite cache could have had
	ShortWindow     Code = "short-window"     // the window is too short for the coverage rule
	FewSamples      Code = "few-samples"      // percentiles are withheld
	MetricsMissing  Code = "metrics-missing"  // scrapes of a metrics endpoint failed
	SamplesThinned  Code = "samples-thinned"  // series that only add up are not kept at every scrape
	PoolMismatch    Code = "pool-mismatch"    // the pool has another size than planned, or than another source says
	DeviceErrors    Code = "device-errors"    // a GPU reported a fault or memory errors that were not corrected
	DeviceSlowed    Code = "device-slowed"    // a GPU was slowed down by heat or by the board
	DeviceGaps      Code = "device-gaps"      // the power of a GPU is not known for the whole window
	DeviceCount     Code = "device-count"     // other GPUs were read than the point uses
	OutputMismatch  Code = "output-mismatch"  // the server did not generate what was asked for
	PassesFit       Code = "passes-fit"       // the device pool holds a whole pass: nothing shows a host tier
	LengthsOnly     Code = "lengths-only"     // the corpus says nothing of shared prefixes: no hit rates
	SimulatedSpeed  Code = "simulated-speed"  // the simulated engine ran faster or slower than its own time
)

// Limits of validity.
const (
	ErrorRateLimit  = 0.10  // share of failed requests (AgentX harness, 2026-08)
	OverflowLimit   = 0.01  // share of requests that overflowed the context
	CoverageLimit   = 0.95  // share of the window that the last token must reach
	CoverageFromNs  = 900e9 // windows from this length on are held to CoverageLimit
	ClientLimit     = 0.05  // share of the median TTFT or ITL that the client's error may reach
	clientFloorNs   = 1e6   // a send lag below this never binds
	inertGap        = 0.05  // share of prompt tokens that the device tier missed though they were cacheable
	driftLimit      = 0.01  // from here on drift is a warning
	driftReason     = 0.05  // and from here on a reason
	localLimit      = 0.01  // share by which a local count of output tokens may differ
	templateTokens  = 32    // prompt tokens that a chat template may add to what the trace recorded
	exceedLimit     = 0.01  // share of requests that may report more hits than they had prompt
	outputLimit     = 0.01
	ceilingHeadroom = 0.005
)

// A Finding is one reason or warning with the arithmetic that shows it.
type Finding struct {
	Code Code   `json:"code"`
	Text string `json:"text"`
}

// judge decides whether the result is valid.
func judge(r *Result, b *record.Bundle, t *tally, torn error) {
	m := b.Meta
	bad := func(c Code, format string, a ...any) {
		r.Reasons = append(r.Reasons, Finding{c, fmt.Sprintf(format, a...)})
	}
	note := func(c Code, format string, a ...any) {
		r.Warnings = append(r.Warnings, Finding{c, fmt.Sprintf(format, a...)})
	}
	if b.State == record.Incomplete {
		text := "the run was cut: its bundle has neither COMPLETE nor FAILED, so records are missing; run it again"
		if torn != nil {
			text += " (what can be read ends with " + torn.Error() + ")"
		}
		bad(RunCut, "%s", text)
	}
	if b.State == record.Failed {
		text := b.End.Class + ": " + strings.TrimPrefix(b.End.Reason, b.End.Class+": ")
		if torn != nil {
			text += " (what can be read ends with " + torn.Error() + ")"
		}
		bad(RunFailed, "%s", text)
	}
	if e := t.primerFailures.earliest(); e != nil {
		bad(RootWarmup, "%d of %d root primers failed, first that of trace %s on lane %d%s", t.primerFailures.total(), t.primers, e.trace, e.lane, t.primerFailures.most())
	}
	limit := ErrorRateLimit
	if m.ErrorRateLimit != nil {
		limit = *m.ErrorRateLimit
	}
	if n := t.req.OK + t.req.Failed; n > 0 {
		if rate := *t.req.ErrorRate; rate > limit {
			bad(ErrorRate, "%d of %d requests failed: %.2f %%, limit %.2f %%%s", t.req.Failed, n, 100*rate, 100*limit, t.failures.most())
		}
		if rate := float64(t.req.Overflow) / float64(n); rate > OverflowLimit {
			bad(Overflow, "%d of %d prompts were too long for the server: %.2f %%, limit %.2f %%; %s", t.req.Overflow, n, 100*rate, 100*OverflowLimit, t.failures.example(record.FailContextOverflow))
		}
	}
	if f := t.failures[record.FailClient]; f != nil {
		bad(Unsent, "%d requests that were due were not sent by the client, so this is not the load that was asked for; the first: %s", f.n, f.detail)
	}
	if t.req.OK == 0 || t.output.n > 0 && t.output.sum == 0 {
		bad(NoOutput, "%d requests succeeded and %d output tokens were counted%s", t.req.OK, t.output.sum, t.failures.most())
	}
	t.implausible(bad)
	if r.Window.PlannedS != nil && float64(m.Window.EndNs-m.Window.StartNs) >= CoverageFromNs {
		limit, share := CoverageLimit, 0.0
		if m.CoverageLimit != nil {
			limit = *m.CoverageLimit
		}
		if c := r.Window.Coverage; c != nil {
			share = *c
		}
		switch {
		case share < limit:
			bad(Coverage, "the last token came after %.1f %% of the window of %.0f s, at least %s %% are needed%s", 100*share, *r.Window.PlannedS, strconv.FormatFloat(100*limit, 'g', 6, 64), ranOut(m))
		case share < CoverageLimit:
			note(Coverage, "the last token came after %.1f %% of the window of %.0f s, less than the usual %.0f %%; this run was set another limit or none%s", 100*share, *r.Window.PlannedS, 100*CoverageLimit, ranOut(m))
		}
	}
	if m.Cancelled != "" {
		bad(Cancelled, "%s", m.Cancelled)
	}
	clientBound(r, m, t, bad, note)
	if m.CacheClean != nil && !*m.CacheClean {
		text := "the cache was not empty when the run began"
		if s := m.CacheStart; s != nil && s.Why != "" {
			text += ": " + s.Why
		}
		bad(CacheNotClean, "%s", text)
	}
	inert(r, bad)
	if o := r.GPUs.Observed; o != nil && *o != int64(r.GPUs.Declared) {
		bad(GPUMismatch, "%d GPUs declared, %d observed", r.GPUs.Declared, *o)
	}
	if m.Stalled != "" {
		bad(Stalled, "%s", m.Stalled)
	}
	for _, o := range m.UnsafeOverrides {
		bad(UnsafeOverride, "%s", o)
	}
	r.Valid = len(r.Reasons) == 0
	warn(r, m, t, note)
}

// clientBound compares the client's error with the medians that it would spoil. What the usual
// limit would have refused is a warning where a run has a wider one or none.
func clientBound(r *Result, m *record.Meta, t *tally, bad, note func(Code, string, ...any)) {
	if m.Virtual {
		return
	}
	limit := ClientLimit
	if m.ClientLimit != nil {
		limit = *m.ClientLimit
	}
	over := func(what string, errorNs float64, of []float64, name string) {
		med, ok := median(of)
		exceeds := func(share float64) bool { return ok && errorNs > clientFloorNs && errorNs > float64(share*med) }
		switch {
		case limit >= 0 && exceeds(limit):
			bad(ClientBound, "%s is %.2f ms, over %.1f %% of the median %s of %.2f ms", what, errorNs/1e6, 100*limit, name, med/1e6)
		case exceeds(ClientLimit) && limit < 0:
			note(ClientBound, "%s is %.2f ms, over the usual %.1f %% of the median %s of %.2f ms; this run was set no limit", what, errorNs/1e6, 100*ClientLimit, name, med/1e6)
		case exceeds(ClientLimit):
			note(ClientBound, "%s is %.2f ms, over the usual %.1f %% of the median %s of %.2f ms; this run's limit is %.1f %%", what, errorNs/1e6, 100*ClientLimit, name, med/1e6, 100*limit)
		}
	}
	if m.Client != nil {
		if e := m.Client.TTFTBoundNs; e >= 0 {
			over("the client's error bound on TTFT", float64(e), t.ttft, "TTFT")
		}
		if e := m.Client.ITLBoundNs; e >= 0 {
			over("the client's error bound on ITL", float64(e), t.itl, "ITL")
		}
		if m.Client.Beyond != "" {
			note(ClientBound, "the bounds on the client's error may be too small: %s", m.Client.Beyond)
		}
	}
	if d := r.Latency.SendLag; d.P90 != nil {
		over("the client's send lag (p90)", *d.P90*ns, t.ttft, "TTFT")
	}
}

// inert finds a host tier that served nothing although the device tier missed what was cacheable.
func inert(r *Result, bad func(Code, string, ...any)) {
	h, mode := r.Hits, r.Point.Offload.Mode
	if r.Point.Framework == external && (mode == "" || mode == "none") && r.Pools.Observed && r.Pools.HostTokens != nil && *r.Pools.HostTokens > 0 {
		mode = fmt.Sprintf("on, with a host pool of %d tokens in the server's metrics,", *r.Pools.HostTokens)
	}
	if mode == "" || mode == "none" || h.Host == nil || h.Device == nil || h.Ceiling == nil {
		return
	}
	if gap := *h.Ceiling - *h.Device; *h.Host == 0 && (h.Storage == nil || *h.Storage == 0) && gap > inertGap {
		bad(OffloadInert, "offload is %s and the host tier served no hit, though the device tier found %.1f %% of the prompt tokens and %.1f %% were cacheable",
			mode, 100**h.Device, 100**h.Ceiling)
	}
}

// external is the framework of a point of which only the server's address is known, so that
// nothing is declared about its offloading.
const external = "external"

func warn(r *Result, m *record.Meta, t *tally, note func(Code, string, ...any)) {
	usage(r, t, note)
	r.Pools.doubt(m, note)
	if n := r.Corpus.LengthsOnly; n > 0 {
		note(LengthsOnly, "%d of %d traces of %s record lengths and no block identities: which prompts share a prefix isn't known, so that hit rates and their ceiling are left out", n, r.Corpus.Traces, r.Corpus.Name)
	}
	if pool := r.Pools.DeviceTokens; pool != nil && len(r.Passes) > 1 && r.Passes[0].PromptTokens > 0 && r.Passes[0].PromptTokens <= *pool {
		note(PassesFit, "a pass of %d prompt tokens fits into the device pool of %d: what later passes find there says nothing of a host tier; send more", r.Passes[0].PromptTokens, *pool)
	}
	if r.OffSpeed() {
		note(SimulatedSpeed, "the simulated engine ran at %g times its own time (--speed %g): times, rates and throughput are not those of the engine that it stands for", r.SimSpeed, r.SimSpeed)
	}
	h := r.Hits
	if r.Point.Offload.Mode == "none" && r.Point.Framework != external && h.Host != nil && *h.Host > 0 {
		note(OffloadMismatch, "offload is declared none and the host tier served %.1f %% of the prompt tokens", 100**h.Host)
	}
	if e := &t.belief.excess; e.n > 0 {
		note(HitsExceed, "%d requests report more cached tokens than prompt tokens and are in no hit rate%s", e.n, e.example())
	}
	if c := r.Server.Counters; c != nil && c.HitPrompt != nil && c.Hit != nil && *c.Hit > *c.HitPrompt {
		note(HitsExceed, "the server's counters have %d hits in %d prompt tokens; no hit rate is taken from them", *c.Hit, *c.HitPrompt)
	}
	if h.Total != nil && h.Ceiling != nil && *h.Total > *h.Ceiling+ceilingHeadroom {
		note(AboveCeiling, "%.2f %% of the prompt tokens hit, an infinite cache that was clean at the start gives %.2f %%", 100**h.Total, 100**h.Ceiling)
	}
	if planned := m.Window.EndNs - m.Window.StartNs; planned > 0 && float64(planned) < CoverageFromNs {
		if c := r.Window.Coverage; c != nil && *c < CoverageLimit {
			note(ShortWindow, "the last token came after %.1f %% of a window of %.0f s; windows under %.0f s are not held to %.0f %%%s",
				100**c, float64(planned)/ns, CoverageFromNs/ns, 100*CoverageLimit, ranOut(m))
		}
	}
	if few := thin(r); t.req.OK > 0 && few != "" {
		note(FewSamples, "%s: p90 needs %d, p99 needs %d", few, Floors.P90, Floors.P99)
	}
	if t.outputAsked > 0 {
		if share := float64(t.outputOff) / float64(t.outputAsked); share > outputLimit {
			note(OutputMismatch, "%d of %d answers have another length than was asked for", t.outputOff, t.outputAsked)
		}
	}
}

// usage warns of counts that the server did not give or that were not believed.
func usage(r *Result, t *tally, note func(Code, string, ...any)) {
	if n := max(t.input.missing, t.output.missing); n > 0 {
		note(UsageMissing, "of %d answers %d came without a count of prompt tokens and %d without one of output tokens", t.req.OK, t.input.missing, t.output.missing)
	}
	if o := &t.belief.refused; o.n > 0 {
		note(UsageImplausible, "%d of %d answers came with a count that is none, which is left out%s", o.n, t.req.OK, o.example())
	}
	if o := &t.belief.doubted; o.n > 0 {
		note(UsageImplausible, "%d of %d answers came with a count of output tokens that does not fit their text%s", o.n, t.req.OK, o.example())
	}
	if d := t.belief.localDrift(); d != nil && (*d > localLimit || *d < -localLimit) {
		b := &t.belief
		note(UsageImplausible, "in %d answers that were counted here too the server counted %d output tokens and a local tokenizer %d: %+.2f %%, limit %.0f %%",
			b.counted, b.counts, b.local, 100**d, 100*localLimit)
	}
	if d := r.Tokens.Drift; d != nil && (*d > driftLimit || *d < -driftLimit) && !t.drifted(*d) {
		note(PromptDrift, "the server counted %+.2f %% prompt tokens against the trace", 100**d)
	}
}

// thin names the times that have too few samples for a p90, each with how many it has.
func thin(r *Result) string {
	l := &r.Latency
	var names []string
	for _, s := range []struct {
		name string
		n    int64
	}{{"ttft_s", l.TTFT.N}, {"e2el_s", l.E2EL.N}, {"itl_s", l.ITL.N}, {"e2el_per_output_token_s", l.E2EPerToken.N}} {
		if s.n < Floors.P90 {
			names = append(names, fmt.Sprintf("%s has %d", s.name, s.n))
		}
	}
	if len(names) == 0 {
		return ""
	}
	return strings.Join(names, ", ") + " samples"
}

// ranOut says that a load ended since nothing was left to send, and what gives it more.
func ranOut(m *record.Meta) string {
	if m.RanOutNs == 0 {
		return ""
	}
	return fmt.Sprintf("; the conversations ran out after %.1f s: --loop sends them again until the time is over, --conversations makes more up", float64(m.RanOutNs)/ns)
}
