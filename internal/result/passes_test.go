package result

import (
	"strings"
	"testing"

	"github.com/weirbench/weir/internal/engine"
	"github.com/weirbench/weir/internal/record"
	"github.com/weirbench/weir/internal/replay"
)

// TestPassContradictions: counters that cannot be what the requests of a pass found are withheld
// with the reason.
func TestPassContradictions(t *testing.T) {
	const u = record.Unknown
	for _, c := range []struct {
		name  string
		pass  replay.PassHits
		grown engine.TierHits
		want  string
	}{
		{"whole", replay.PassHits{PromptTokens: 1000, Total: 900, KnownTotal: 1000}, engine.TierHits{Prompt: 1000, Device: 100, Host: 800, Storage: u, Hit: 900}, ""},
		{"total above what usage says", replay.PassHits{PromptTokens: 1000, Total: 0, KnownTotal: 1000}, engine.TierHits{Prompt: 1000, Device: 0, Host: 51, Storage: u, Hit: 51}, "its usage 0 in all"},
		{"others", replay.PassHits{PromptTokens: 1000}, engine.TierHits{Prompt: 1100, Device: 0, Host: 0, Hit: 0}, "grew by 1100 prompt tokens"},
		{"late", replay.PassHits{PromptTokens: 1000}, engine.TierHits{Prompt: 900, Device: 0, Host: 0, Hit: 0}, "grew by 900 prompt tokens"},
		{"failed ones counted", replay.PassHits{PromptTokens: 1000, Failed: 1}, engine.TierHits{Prompt: 1100, Device: 0, Host: 0, Hit: 0}, ""},
		{"more than prompts", replay.PassHits{PromptTokens: 1000}, engine.TierHits{Prompt: 1000, Device: 900, Host: 200, Hit: u}, "1100 tokens found by tier of 1000"},
		{"more than all hits", replay.PassHits{PromptTokens: 1000}, engine.TierHits{Prompt: 1000, Device: 300, Host: 200, Hit: 400}, "and 400 in all"},
		{"fallen", replay.PassHits{PromptTokens: 1000}, engine.TierHits{Prompt: 1000, Device: 300, Host: -200, Hit: 400}, "fell"},
	} {
		got := contradiction(&c.pass, &c.grown)
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// TestPassMarkedLate: a sample at the boundary that holds requests of the second pass is found
// out, and neither pass shows tiers of it.
func TestPassMarkedLate(t *testing.T) {
	p := &passes{more: true, meta: &record.Meta{}}
	for pass := range 2 {
		p.out = append(p.out, replay.PassHits{Pass: pass + 1, Requests: 10, PromptTokens: 1000, KnownTotal: 1000, Total: int64(pass) * 900, BeganNs: int64(1+pass*10) * 1e9})
	}
	p.meta.Window.StartNs = 1e9
	p.begin()
	page := func(at int64, mark record.Phase, prompt, device, host float64) *record.Sample {
		return &record.Sample{At: at, Source: "s", Mark: mark, Values: map[string]float64{
			`sglang:prompt_tokens_total`: prompt, `sglang:cached_tokens_total{cache_source="device"}`: device, `sglang:cached_tokens_total{cache_source="host"}`: host,
		}}
	}
	for _, s := range []*record.Sample{
		page(1e9, record.Profiling, 0, 0, 0), page(11e9+1e8, record.NextPass, 1050, 0, 51), page(20e9, "", 2000, 100, 800),
	} {
		p.sample(s)
	}
	for _, x := range p.list() {
		if x.HitsWithheld == "" || x.KnownSplit != 0 || x.Device+x.Host+x.Storage != 0 {
			t.Errorf("%+v", x)
		}
	}
}
