package run

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"testing"
	"time"

	"github.com/weirbench/weir/internal/client"
	"github.com/weirbench/weir/internal/material"
	"github.com/weirbench/weir/internal/prompt"
	"github.com/weirbench/weir/internal/record"
	"github.com/weirbench/weir/internal/replay"
	"github.com/weirbench/weir/internal/scrape"
	"github.com/weirbench/weir/internal/spec"
)

// TestPassesAreToldApart: with a metrics endpoint that is slow to read its counters, the sample
// at the start of a pass still holds no request of it, so the tiers of every pass are of its own
// prompt tokens, to the token, and add up to the total that usage gives.
func TestPassesAreToldApart(t *testing.T) {
	material.RealTime(t)
	to, _ := url.Parse(poolsServer(t, "sglang", 50, 120_000, 1_000_000))
	proxy := httputil.NewSingleHostReverseProxy(to)
	proxy.FlushInterval = -1
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/metrics" {
			time.Sleep(100 * time.Millisecond)
		}
		proxy.ServeHTTP(w, r)
	}))
	defer front.Close()
	lengths, load, err := replay.Overflow(300_000, 8192, 1, 4, 7)
	if err != nil {
		t.Fatal(err)
	}
	c, err := lengths.Corpus()
	if err != nil {
		t.Fatal(err)
	}
	p := &spec.Point{Key: "load", Name: "test", Model: "m", Framework: "external", Scenario: spec.FixedSeqLen,
		Conc: 4, SpecDecoding: "none", Offload: spec.Offload{Mode: "none"}, Weir: spec.WeirFields{Seed: 7}}
	ex := &HTTP{
		Client: client.Config{URLs: []string{front.URL}},
		Prompt: prompt.Options{Models: []string{"m"}}, ObservedGPUs: record.Unknown,
		Scrape: &scrape.Options{URLs: []string{front.URL}, Every: 5 * time.Second},
	}
	r, err := Measure(t.Context(), ex, &Job{Point: p, Corpus: c, Load: &load, Version: "test"}, filepath.Join(t.TempDir(), "b"))
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Passes) != 2 {
		t.Fatalf("passes %+v", r.Passes)
	}
	for _, x := range r.Passes {
		if x.HitsFrom != "counters" || x.HitsWithheld != "" || x.KnownSplit != x.PromptTokens || x.Device+x.Host+x.Storage != x.Total {
			t.Errorf("%+v", x)
		}
	}
	if x := r.Passes[1]; x.Host*2 < x.PromptTokens {
		t.Errorf("the second pass found %d of %d tokens on the host", x.Host, x.PromptTokens)
	}
}
