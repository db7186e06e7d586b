package result

import (
	"encoding/json"

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
		if x.KnownSplit == 0 && h.Device >= 0 {
			x.Device, x.Host, x.Storage = h.Device-max(after.Device, 0), max(h.Host, 0)-max(after.Host, 0), max(h.Storage, 0)-max(after.Storage, 0)
			x.KnownSplit, x.HitsFrom = h.Prompt-after.Prompt, "counters"
		}
		if x.KnownTotal == 0 && h.Hit >= 0 {
			x.Total, x.KnownTotal, x.HitsFrom = h.Hit-max(after.Hit, 0), h.Prompt-after.Prompt, "counters"
		}
		after = h
	}
	return p.out
}
