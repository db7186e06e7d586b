package run

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/weirbench/weir/internal/client"
	"github.com/weirbench/weir/internal/material"
	"github.com/weirbench/weir/internal/prompt"
	"github.com/weirbench/weir/internal/record"
	"github.com/weirbench/weir/internal/scrape"
	"github.com/weirbench/weir/internal/spec"
)

// TestScraped runs a point against the simulated server as SGLang and as vLLM: its usage gives
// the total of the hits, its counters the tiers, and both agree to the token.
func TestScraped(t *testing.T) {
	material.RealTime(t)
	for _, engine := range []string{"sglang", "vllm"} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			url := poolsServer(t, engine, 20, 120_000, 400_000)
			p := &spec.Point{Key: "replay", Name: "test", Model: "m", Framework: "external", Scenario: spec.AgenticCoding,
				Conc: 4, SpecDecoding: "none", Offload: spec.Offload{Mode: "none"}, DurationNs: int64(3 * time.Minute), Weir: spec.WeirFields{Seed: 1}}
			opt := ReplayOptions(p)
			opt.PressureRequests, opt.MaxRequests = 1, 40
			opt.SystemIdleCapNs, opt.TraceIdleCapNs = int64(50*time.Millisecond), int64(50*time.Millisecond)
			opt.GraceNs = -1
			ex := &HTTP{
				Client: client.Config{URLs: []string{url}},
				Prompt: prompt.Options{Models: []string{"m"}, Salt: prompt.FirstTurnPrefix}, ObservedGPUs: record.Unknown,
				Scrape: &scrape.Options{URLs: []string{url}, Every: 50 * time.Millisecond},
			}
			r, err := Measure(t.Context(), ex, &Job{Point: p, Corpus: smallCorpus(t), Replay: opt, Version: "test"}, filepath.Join(t.TempDir(), "b"))
			if err != nil {
				t.Fatal(err)
			}
			if r.Requests.OK < 30 || r.Requests.Failed > 0 {
				t.Fatalf("%d ok, %d failed: %v", r.Requests.OK, r.Requests.Failed, r.Reasons)
			}
			s, h := r.Server, r.Hits
			if s.Samples < 3 || s.DeviceKVMax == nil || *s.DeviceKVMax <= 0 || s.RunningMean == nil || *s.RunningMean <= 0 || s.QueuedMean == nil {
				t.Errorf("server %+v", s)
			}
			if h.SplitFrom != "counters" || h.Device == nil || h.Host == nil || h.Total == nil {
				t.Fatalf("hits %+v", h)
			}
			c := s.Counters
			if engine == "sglang" { // counted when a request ends, as usage is
				if *c.HitPrompt != *r.Tokens.Input || *c.HitDevice+*c.HitHost+*c.HitStorage != int64(*h.Total*float64(*r.Tokens.Input)+0.5) {
					t.Errorf("counters %d of %d, usage %d prompt tokens and a hit rate of %v", *c.Hit, *c.HitPrompt, *r.Tokens.Input, *h.Total)
				}
			} else if off := *h.Device + *h.Host - *h.Total; off > 0.05 || off < -0.05 {
				t.Errorf("counters say %v + %v, usage %v", *h.Device, *h.Host, *h.Total)
			}
			if r.Pools.DeviceTokens == nil || *r.Pools.DeviceTokens != 120_000 || !r.Pools.Observed {
				t.Errorf("pools %+v", r.Pools)
			}
		})
	}
}
