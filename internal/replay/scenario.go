package replay

import (
	"fmt"

	"github.com/weirbench/weir/internal/record"
)

// FixedSeqLen is the load of InferenceX's fixed-seq-len scenario: ten prompts for each unit of
// concurrency in a closed loop at full concurrency, after two others for each as a warm-up
// (benchmark_serving.py as its recipes call it, 2026-08; its range ratio is 0.8).
func FixedSeqLen(isl, osl int64, concurrency int, rangeRatio float64, seed uint64) (Lengths, Load) {
	return Lengths{
			Name: fmt.Sprintf("fixed-%d-%d", isl, osl), Conversations: 12 * concurrency,
			In: isl, Out: osl, RangeRatio: rangeRatio, Seed: seed,
		}, Load{
			Arrival: Closed, Concurrency: concurrency, WarmupRequests: 2 * concurrency, Seed: seed,
		}
}

// Overflow is the quick proof that a host tier works: distinct prompts until a number of
// tokens has been sent, more than the device pool holds, then the same again in order. What
// the second pass finds, an LRU device pool alone could not have kept.
func Overflow(tokens, isl, osl int64, concurrency int, seed uint64) (Lengths, Load, error) {
	if tokens < 1 || isl < 1 {
		return Lengths{}, Load{}, fmt.Errorf("overflow by %d tokens in prompts of %d: both must be at least 1", tokens, isl)
	}
	return Lengths{
			Name: fmt.Sprintf("overflow-%d", tokens), Conversations: int((tokens + isl - 1) / isl),
			In: isl, Out: osl, Seed: seed,
		}, Load{
			Arrival: Closed, Concurrency: concurrency, Passes: 2, Seed: seed,
		}, nil
}

// PassHits are the prompt tokens of one pass over the conversations, by the tier in which
// their prefix was found, over the requests that succeeded.
type PassHits struct {
	Pass         int   `json:"pass"`
	Requests     int64 `json:"requests"`
	Failed       int64 `json:"failed"`
	PromptTokens int64 `json:"prompt_tokens"`
	// Device to Total are summed over the requests for which the server told them; known says
	// of how many prompt tokens that is.
	Device     int64 `json:"device"`
	Host       int64 `json:"host"`
	Storage    int64 `json:"storage"`
	Total      int64 `json:"total"`
	KnownSplit int64 `json:"known_split_tokens"` // prompt tokens with a known split by tier
	KnownTotal int64 `json:"known_total_tokens"`
	Ceiling    int64 `json:"ceiling_tokens"` // an infinite cache would have found
	TTFTMeanNs int64 `json:"ttft_mean_ns"`   // record.Never when there was no first token
	// HitsFrom is "usage", or "counters" when the tiers come from the growth of the server's
	// counters from the start of the pass to that of the next one; empty when neither told.
	HitsFrom string `json:"hits_from,omitempty"`
	// HitsWithheld says why the server's counters were not taken although they are there: they
	// contradict what the requests of the pass say.
	HitsWithheld string `json:"hits_withheld,omitempty"`

	BeganNs     int64 `json:"-"` // when its first request was sent
	firstTokens int64
	ttft        int64
}

// AddPass counts a profiling record of a load to the pass that it belongs to.
func AddPass(out []PassHits, r *record.Request) []PassHits {
	for len(out) <= r.Play {
		out = append(out, PassHits{Pass: len(out) + 1, TTFTMeanNs: record.Never, BeganNs: record.Never})
	}
	out[r.Play].add(r)
	return out
}

func (p *PassHits) add(r *record.Request) {
	p.Requests++
	if at := r.Times.Sent; at >= 0 && (p.BeganNs < 0 || at < p.BeganNs) {
		p.BeganNs = at
	}
	if !r.OK() {
		p.Failed++
		return
	}
	in := r.PromptTokens
	if in == record.Unknown {
		in = r.WantIn
	}
	p.PromptTokens += in
	p.Ceiling += r.CeilingTokens
	h := r.Hits
	if h.Device >= 0 && h.Host >= 0 {
		p.Device += h.Device
		p.Host += h.Host
		p.Storage += max(h.Storage, 0)
		p.KnownSplit += in
		p.HitsFrom = "usage"
	}
	if h.Total >= 0 {
		p.Total += h.Total
		p.KnownTotal += in
		p.HitsFrom = "usage"
	}
	if t := &r.Times; t.FirstToken >= 0 && t.Sent >= 0 {
		p.firstTokens++
		p.ttft += t.FirstToken - t.Sent
		p.TTFTMeanNs = p.ttft / p.firstTokens
	}
}
