package run

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"testing"
	"time"

	"github.com/weirbench/weir/internal/client"
	"github.com/weirbench/weir/internal/facts"
	"github.com/weirbench/weir/internal/material"
	"github.com/weirbench/weir/internal/prompt"
	"github.com/weirbench/weir/internal/record"
	"github.com/weirbench/weir/internal/replay"
	"github.com/weirbench/weir/internal/scrape"
	"github.com/weirbench/weir/internal/sim"
	"github.com/weirbench/weir/internal/sim/simhttp"
	"github.com/weirbench/weir/internal/spec"
)

// TestPassesAreToldApart: with a metrics endpoint that is slow to read its counters, the sample
// at the start of a pass still holds no request of it, so the tiers of every pass are of its own
// prompt tokens, to the token, and add up to the total that usage gives.
func TestPassesAreToldApart(t *testing.T) {
	material.RealTime(t)
	set := facts.Embedded()
	model, err := set.ModelByName("glm-5.2")
	if err != nil {
		t.Fatal(err)
	}
	gpu, err := set.GPUByName("b200")
	if err != nil {
		t.Fatal(err)
	}
	srv, err := simhttp.New(simhttp.Options{Engine: "sglang", Model: "m", Speed: 50, Config: sim.Config{
		Model: model, GPU: gpu, Parallel: spec.Parallel{TP: 8, PP: 1, EP: 1, DCP: 1, PCP: 1}, DeviceTokens: 120_000, HostTokens: 1_000_000, WritePolicy: "write_back",
		WeightPrecision: "fp4", KVDType: "fp8", KVBytesPerToken: 55_800, ContextLen: 1 << 20, ModelName: "m",
	}})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ctx, l) }()
	defer func() {
		stop()
		<-served
	}()
	to, _ := url.Parse("http://" + l.Addr().String())
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
