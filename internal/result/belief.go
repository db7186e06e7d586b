package result

import (
	"fmt"

	"github.com/weirbench/weir/internal/record"
)

// belief decides which counts of a server are believed and remembers which were not. What is
// not believed is unknown, never another number.
type belief struct {
	reported int64  // requests that gave hits and a prompt
	excess   oddity // of those, with more tokens hit than the prompt had
	refused  oddity // with a count that is none
	doubted  oddity // whose count of output tokens does not fit their text

	// Of the answers whose tokens were counted here too: how many, and both counts.
	counted, counts, local int64
	marks                  int64 // tokens that have no text in them, at most
}

// Tokens of an answer that have no text: the mark of its end, and those around reasoning that a
// server takes out.
const (
	endMark        = 1
	reasoningMarks = 6
)

// oddity counts requests and keeps what is to be said of the earliest.
type oddity struct {
	n    int64
	seq  uint64
	text string
}

func (o *oddity) add(q *record.Request, format string, a ...any) {
	o.n++
	if o.n == 1 || q.Seq < o.seq {
		o.seq, o.text = q.Seq, short(fmt.Sprintf("request %d: ", q.Seq)+fmt.Sprintf(format, a...))
	}
}

// of is q, or a copy of q in which every count that cannot be true is unknown.
func (b *belief) of(q *record.Request) *record.Request {
	c := *q
	bad := q.BadCount
	for _, f := range []struct {
		name string
		n    *int64
	}{
		{"prompt_tokens", &c.PromptTokens}, {"output_tokens", &c.OutputTokens}, {"reasoning_tokens", &c.ReasoningTokens},
		{"hits.device", &c.Hits.Device}, {"hits.host", &c.Hits.Host}, {"hits.storage", &c.Hits.Storage}, {"hits.total", &c.Hits.Total},
	} {
		if *f.n >= record.Unknown && *f.n <= record.MaxTokens {
			continue
		}
		if bad == "" {
			bad = fmt.Sprintf("%s %d", f.name, *f.n)
		}
		*f.n = record.Unknown
	}
	if bad != "" {
		b.refused.add(q, "%s", bad)
	}
	h := c.Hits
	claim := max(total(&c), max(h.Device, 0)+max(h.Host, 0)+max(h.Storage, 0))
	if total(&c) >= 0 && c.PromptTokens >= 0 {
		b.reported++
		if claim > c.PromptTokens {
			b.excess.add(q, "%d of %d prompt tokens", claim, c.PromptTokens)
			c.Hits = record.UnknownHits
		}
	}
	if c.LocalOutput != nil && c.OutputTokens >= 0 && c.OK() {
		b.counted++
		b.counts += c.OutputTokens
		b.local += *c.LocalOutput
		if b.marks += endMark; c.Times.FirstVisible != c.Times.FirstToken {
			b.marks += reasoningMarks
		}
	}
	if d := c.UsageDoubt(); d != "" {
		b.doubted.add(q, "%s", d)
	}
	return &c
}

// implausible gives the reasons why the server's usage cannot be believed as a whole.
func (t *tally) implausible(bad func(Code, string, ...any)) {
	if t.req.OK > 0 && t.output.n == 0 {
		bad(UsageMissing, "none of %d answers came with a count of output tokens%s", t.req.OK, t.belief.refused.example())
	}
	if b := &t.belief; b.reported > 0 {
		if share := float64(b.excess.n) / float64(b.reported); share > exceedLimit {
			bad(UsageImplausible, "%d of %d requests report more cached tokens than prompt tokens: %.2f %%, limit %.2f %%%s",
				b.excess.n, b.reported, 100*share, 100*exceedLimit, b.excess.example())
		}
	}
	if d := t.drift(); d != nil && t.drifted(*d) {
		bad(UsageImplausible, "the server counted %d prompt tokens where the trace recorded %d: %+.2f %%, limit %.0f %%",
			t.usageIn, t.wantIn, 100**d, 100*driftReason)
	}
}

// localDrift is the output tokens that the server counted over those that were counted here, in
// the answers that were, minus one; nil when none was. Marks, which have no text, are let pass.
func (b *belief) localDrift() *float64 {
	off := b.counts - b.local
	if off > 0 {
		off = max(off-b.marks, 0)
	}
	return ratio(float64(off), float64(b.local))
}

// drift is the prompt tokens that the server counted over those that the trace recorded, minus
// one; nil when there is nothing to compare.
func (t *tally) drift() *float64 {
	if t.wantIn == 0 {
		return nil
	}
	return ratio(float64(t.usageIn-t.wantIn), float64(t.wantIn))
}

// drifted tells whether a drift is beyond what a tokenizer and a chat template explain.
func (t *tally) drifted(d float64) bool {
	return d < -driftReason || d > driftReason && t.usageIn-t.wantIn > templateTokens*t.wantOf
}

// example is what is said of the earliest, in a form to end a sentence with.
func (o *oddity) example() string {
	if o.n == 0 {
		return ""
	}
	return "; " + o.text
}
