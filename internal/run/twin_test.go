package run

import (
	"context"
	"math"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/weirbench/weir/internal/client"
	"github.com/weirbench/weir/internal/corpus"
	"github.com/weirbench/weir/internal/facts"
	"github.com/weirbench/weir/internal/material"
	"github.com/weirbench/weir/internal/prompt"
	"github.com/weirbench/weir/internal/record"
	"github.com/weirbench/weir/internal/replay"
	"github.com/weirbench/weir/internal/result"
	"github.com/weirbench/weir/internal/sim"
	"github.com/weirbench/weir/internal/sim/simhttp"
	"github.com/weirbench/weir/internal/spec"
)

// TestSamePointOverHTTP runs one point twice: in virtual time, and with the real client over
// loopback against the same simulated engine in real time. The pool is too small for the
// agents, so that the hit rate depends on what is evicted when. Both end after as many requests.
func TestSamePointOverHTTP(t *testing.T) {
	material.RealTime(t)
	model, err := facts.ModelByName("glm-5.2")
	if err != nil {
		t.Fatal(err)
	}
	gpu, err := facts.GPUByName("b200")
	if err != nil {
		t.Fatal(err)
	}
	c, err := corpus.Generate(corpus.GenerateOptions{Seed: 11, Traces: 12, Turns: 60, FirstIn: 3000, SystemTokens: 1000,
		Growth: 200, Out: 12, Context: 9000, ThinkNs: int64(200 * time.Millisecond), SubAgentShare: -1})
	if err != nil {
		t.Fatal(err)
	}
	device := int64(128_000)
	for _, host := range []int64{0, 40_000} {
		cfg := sim.Config{
			Model: model, GPU: gpu, Parallel: spec.Parallel{TP: 8, PP: 1, EP: 1, DCP: 1, PCP: 1},
			WeightPrecision: "fp4", KVDType: "fp8", KVBytesPerToken: 55224,
			DeviceTokens: device, HostTokens: host, PageSize: 64, WritePolicy: "write_back", SchedulePolicy: "fcfs", ContextLen: 1 << 20,
		}
		p := &spec.Point{Key: "twin", Name: "twin", Model: "glm-5.2", Framework: "sglang", Scenario: spec.AgenticCoding,
			Conc: 8, SpecDecoding: "none", Offload: spec.Offload{Mode: "none"}, DurationNs: int64(3 * time.Minute), Weir: spec.WeirFields{Seed: 3}}
		if host > 0 {
			p.Offload = spec.Offload{Mode: "dram", Backend: spec.Component{Name: "hicache"}}
		}
		opt := ReplayOptions(p)
		opt.PressureRequests, opt.MaxRequests = 2, 120
		opt.TraceIdleCapNs = int64(500 * time.Millisecond)
		opt.GraceNs = int64(2 * time.Second)
		job := func() *Job { return &Job{Point: p, Corpus: c, Replay: opt, Version: "test"} }

		virtual := virtually(t, cfg, job())
		for host == 0 && *virtual.Hits.Total > *virtual.Hits.Ceiling-0.04 { // a pool that is too small, but not hopeless
			if device -= 8_000; device < 32_000 {
				t.Fatal("no pool is too small for these agents")
			}
			cfg.DeviceTokens = device
			virtual = virtually(t, cfg, job())
		}
		v := *virtual.Hits.Total
		// A machine that is busy with other work delays the real run and not the virtual one, so
		// a run that is off is given four more chances.
		for try := 1; ; try++ {
			real := overHTTP(t, cfg, job())
			h := *real.Hits.Total
			t.Logf("host pool %d: hit rate %.4f in virtual time over %d requests, %.4f over HTTP over %d; ceilings %.4f and %.4f",
				host, v, virtual.Requests.OK, h, real.Requests.OK, *virtual.Hits.Ceiling, *real.Hits.Ceiling)
			if math.Abs(v-h) <= 0.02 {
				break
			}
			if try == 5 {
				t.Errorf("host pool %d: hit rate %.4f in virtual time and %.4f over HTTP differ by more than 2 points", host, v, h)
				break
			}
		}
	}
}

// overHTTP measures a job against the simulated engine behind a socket.
func overHTTP(t *testing.T, cfg sim.Config, j *Job) *result.Result {
	t.Helper()
	srv, err := simhttp.New(simhttp.Options{Engine: "sglang", Config: cfg, Model: "glm-5.2", Template: 7})
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
	ex := &HTTP{
		Client:       client.Config{URLs: []string{"http://" + l.Addr().String()}},
		Prompt:       prompt.Options{Models: []string{"glm-5.2"}, Salt: prompt.FirstTurnPrefix, IgnoreEOS: true},
		ObservedGPUs: record.Unknown,
	}
	r, err := Measure(t.Context(), ex, j, filepath.Join(t.TempDir(), "b"))
	stop()
	<-served
	if err != nil {
		t.Fatal(err)
	}
	if !r.Simulated || r.Virtual {
		t.Errorf("simulated %v, virtual %v: want a simulated engine on a real clock", r.Simulated, r.Virtual)
	}
	if r.Tokens.Drift == nil || *r.Tokens.Drift != 0 {
		t.Errorf("prompts drifted by %v: the learned template should make them exact", show(r.Tokens.Drift))
	}
	if r.Requests.OK < 100 || r.Requests.Failed > 0 {
		t.Fatalf("%d requests ok, %d failed: %v", r.Requests.OK, r.Requests.Failed, r.Requests.ByClass)
	}
	return r
}

func show(v *float64) any {
	if v == nil {
		return "unknown"
	}
	return *v
}

func virtually(t *testing.T, cfg sim.Config, j *Job) *result.Result {
	t.Helper()
	w, err := record.CreateBundle(filepath.Join(t.TempDir(), "v"))
	if err != nil {
		t.Fatal(err)
	}
	eng, err := sim.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	opt := j.Replay
	opt.Seed = j.seed()
	s, err := replay.NewAgentic(j.Corpus, opt)
	if err != nil {
		t.Fatal(err)
	}
	if err := replay.RunVirtual(t.Context(), s, eng, func(r *record.Request) {
		if err := w.WriteRequest(r); err != nil {
			t.Fatal(err)
		}
	}); err != nil {
		t.Fatal(err)
	}
	m, err := j.meta()
	if err != nil {
		t.Fatal(err)
	}
	m.Simulated, m.Virtual = true, true
	finish(m, s, opt.DurationNs)
	if err := w.WriteMeta(m); err != nil {
		t.Fatal(err)
	}
	r, err := result.Finish(w)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
