package result

import (
	"encoding/json"
	"fmt"

	"github.com/weirbench/weir/internal/engine"
	"github.com/weirbench/weir/internal/record"
	"github.com/weirbench/weir/internal/replay"
	"github.com/weirbench/weir/internal/scrape"
)

// passes counts what each pass of a load found; nothing for a load of one pass.
type passes struct {
	more     bool
	meta     *record.Meta
	out      []replay.PassHits
	counters []*scrape.Counters // from the start of each pass on
}

func newPasses(m *record.Meta) *passes {
	var load struct {
		Passes int `json:"passes"`
	}
	return &passes{meta: m, more: json.Unmarshal(m.Replay, &load) == nil && load.Passes > 1}
}

func (p *passes) add(q *record.Request) {
	if p.more && q.Phase == record.Profiling && q.Play >= 0 && q.Play < maxPasses {
		p.out = replay.AddPass(p.out, q)
	}
}

// maxPasses bounds the passes that are told apart.
const maxPasses = 1000

// begin makes ready for samples once every record is known.
func (p *passes) begin() {
	for i := range p.out {
		at, mark := p.out[i].BeganNs, record.NextPass
		if i == 0 {
			at, mark = p.meta.Window.StartNs, record.Profiling
		}
		c := scrape.NewCounters(at, mark)
		c.Role = roles(p.meta)
		p.counters = append(p.counters, c)
	}
}

func (p *passes) sample(s *record.Sample) {
	for _, c := range p.counters {
		c.Add(s)
	}
}

// list are the passes, with tiers from the counters where usage did not tell them: what they
// grew by from the start of a pass to the end of the run, less what they grew by after it.
func (p *passes) list() []replay.PassHits {
	var after engine.TierHits
	for i := len(p.out) - 1; i >= 0; i-- {
		x := &p.out[i]
		h, ok := p.counters[i].Hits()
		if !ok || x.BeganNs < 0 || h.Prompt <= after.Prompt {
			continue
		}
		grown := h
		grown.Prompt -= after.Prompt
		grown.Device, grown.Host, grown.Storage, grown.Hit = less(h.Device, after.Device), less(h.Host, after.Host), less(h.Storage, after.Storage), less(h.Hit, after.Hit)
		after = h
		split, total := x.KnownSplit == 0 && h.Device >= 0, x.KnownTotal == 0 && h.Hit >= 0
		if !split && !total {
			continue
		}
		if x.HitsWithheld = contradiction(x, &grown); x.HitsWithheld != "" {
			continue
		}
		if split {
			x.Device, x.Host, x.Storage = grown.Device, max(grown.Host, 0), max(grown.Storage, 0)
			x.KnownSplit, x.HitsFrom = grown.Prompt, "counters"
		}
		if total {
			x.Total, x.KnownTotal, x.HitsFrom = grown.Hit, grown.Prompt, "counters"
		}
	}
	return p.out
}

// less is n without what is known of m; an unknown n stays unknown.
func less(n, m int64) int64 {
	if n < 0 {
		return n
	}
	return n - max(m, 0)
}

// passSlack is the share of a pass's prompt tokens, in percent, by which counters may differ from
// its requests, for what a server counts otherwise than its usage.
const passSlack = 1

// contradiction says why what counters grew by over a pass cannot be what its requests found.
// Failed requests may have been counted or not, so their pass may have grown by more.
func contradiction(x *replay.PassHits, g *engine.TierHits) string {
	slack := x.PromptTokens * passSlack / 100
	tiers := max(g.Device, 0) + max(g.Host, 0) + max(g.Storage, 0)
	switch {
	case g.Prompt < x.PromptTokens-slack || x.Failed == 0 && g.Prompt > x.PromptTokens+slack:
		return fmt.Sprintf("the server's counters grew by %d prompt tokens while the requests of the pass had %d: it serves others too, or publishes late", g.Prompt, x.PromptTokens)
	case g.Device < record.Unknown || g.Host < record.Unknown || g.Storage < record.Unknown || g.Hit < record.Unknown:
		return "the server's counters fell during the pass"
	case tiers > g.Prompt:
		return fmt.Sprintf("the server's counters give %d tokens found by tier of %d prompt tokens", tiers, g.Prompt)
	case x.KnownTotal > 0 && tiers > x.Total:
		return fmt.Sprintf("the server's counters give %d tokens found by tier, its usage %d in all", tiers, x.Total)
	case x.KnownTotal == 0 && g.Hit >= 0 && tiers > g.Hit:
		return fmt.Sprintf("the server's counters give %d tokens found by tier, and %d in all", tiers, g.Hit)
	}
	return ""
}
