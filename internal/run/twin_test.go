package run

import (
	"math"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"github.com/weirbench/weir/internal/client"
	"github.com/weirbench/weir/internal/corpus"
	"github.com/weirbench/weir/internal/facts"
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
// agents, so that the hit rate depends on what is evicted when.
func TestSamePointOverHTTP(t *testing.T) {
	model, err := facts.ModelByName("glm-5.2")
	if err != nil {
		t.Fatal(err)
	}
	gpu, err := facts.GPUByName("b200")
	if err != nil {
		t.Fatal(err)
	}
	c, err := corpus.Generate(corpus.GenerateOptions{Seed: 11, Traces: 12, Turns: 60, FirstIn: 9000, SystemTokens: 2000,
		Growth: 400, Out: 40, Context: 40000, ThinkNs: int64(400 * time.Millisecond)})
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range []int64{0, 150_000} {
		cfg := sim.Config{
			Model: model, GPU: gpu, Parallel: spec.Parallel{TP: 8, PP: 1, EP: 1, DCP: 1, PCP: 1},
			WeightPrecision: "fp4", KVDType: "fp8", KVBytesPerToken: 55224,
			DeviceTokens: 96_000, HostTokens: host, PageSize: 64, WritePolicy: "write_back", SchedulePolicy: "fcfs", ContextLen: 1 << 20,
		}
		p := &spec.Point{Key: "twin", Name: "twin", Model: "glm-5.2", Framework: "sglang", Scenario: spec.AgenticCoding,
			Conc: 6, SpecDecoding: "none", Offload: spec.Offload{Mode: "none"}, DurationNs: int64(12 * time.Second), Weir: spec.WeirFields{Seed: 3}}
		if host > 0 {
			p.Offload = spec.Offload{Mode: "dram", Backend: spec.Component{Name: "hicache"}}
		}
		opt := ReplayOptions(p)
		opt.PressureRequests = 2
		opt.TraceIdleCapNs = int64(500 * time.Millisecond)
		opt.GraceNs = int64(2 * time.Second)
		job := func() *Job { return &Job{Point: p, Corpus: c, Replay: opt, Version: "test"} }

		virtual := virtually(t, cfg, job())
		srv, err := simhttp.New(simhttp.Options{Engine: "sglang", Config: cfg, Model: "glm-5.2", Template: 7})
		if err != nil {
			t.Fatal(err)
		}
		web := httptest.NewServer(srv.Handler())
		ex := &HTTP{
			Client:       client.Config{URLs: []string{web.URL}},
			Prompt:       prompt.Options{Models: []string{"glm-5.2"}, Salt: prompt.FirstTurnPrefix, IgnoreEOS: true},
			ObservedGPUs: record.Unknown,
		}
		real, err := Measure(t.Context(), ex, job(), filepath.Join(t.TempDir(), "b"))
		web.Close()
		if err != nil {
			t.Fatal(err)
		}
		if !real.Simulated || real.Virtual {
			t.Errorf("simulated %v, virtual %v: want a simulated engine on a real clock", real.Simulated, real.Virtual)
		}
		if real.Tokens.Drift == nil || math.Abs(*real.Tokens.Drift) > 0 {
			t.Errorf("prompts drifted by %v: the learned template should make them exact", show(real.Tokens.Drift))
		}
		if real.Requests.OK < 60 || real.Requests.Failed > 0 {
			t.Fatalf("%d requests ok, %d failed: %v", real.Requests.OK, real.Requests.Failed, real.Requests.ByClass)
		}
		v, h := *virtual.Hits.Total, *real.Hits.Total
		t.Logf("host %d: hit rate %.4f in virtual time over %d requests, %.4f over HTTP over %d; ceiling %.4f and %.4f",
			host, v, virtual.Requests.OK, h, real.Requests.OK, *virtual.Hits.Ceiling, *real.Hits.Ceiling)
		if math.Abs(v-h) > 0.02 {
			t.Errorf("host %d: hit rate %.4f in virtual time and %.4f over HTTP differ by more than 2 points", host, v, h)
		}
		if v > *virtual.Hits.Ceiling-0.05 && host == 0 {
			t.Errorf("the hit rate %.4f is at the ceiling %.4f: the pool was meant to be too small", v, *virtual.Hits.Ceiling)
		}
	}
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
