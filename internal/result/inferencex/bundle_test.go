package inferencex

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weirbench/weir/internal/record"
	"github.com/weirbench/weir/internal/result"
	"github.com/weirbench/weir/internal/result/aiperf"
	"github.com/weirbench/weir/internal/spec"
)

const second = int64(1e9)

// bundleOf writes a bundle of a point with a few requests and the samples of two endpoints.
func bundleOf(t *testing.T, p *spec.Point, edit func(*record.Meta)) (*record.Bundle, *result.Result) {
	t.Helper()
	w, err := record.CreateBundle(filepath.Join(t.TempDir(), "b"))
	if err != nil {
		t.Fatal(err)
	}
	m := record.NewMeta()
	m.PointID, m.EpochWallNs, m.Window = p.ID(), 1_780_000_000*second, record.Window{StartNs: 10 * second, EndNs: 20 * second}
	m.Engine.Facts = map[string]string{}
	m.RecordedHits = &record.RecordedHits{Profiling: record.Blocks{Hit: 7, Total: 9}}
	if m.Point, err = json.Marshal(p); err != nil {
		t.Fatal(err)
	}
	if edit != nil {
		edit(m)
	}
	if err := w.WriteMeta(m); err != nil {
		t.Fatal(err)
	}
	for i := range int64(6) {
		sent := (9 + i) * second
		q := &record.Request{Seq: uint64(i + 1), Trace: "t", Stream: "t", Turn: int(i), Phase: record.Profiling, Tree: "0.0", WantIn: 1000, WantOut: 5,
			Times: record.Times{Intended: sent, Queued: sent, Sent: sent, Headers: sent + 1e6, FirstToken: sent + 2e8, FirstVisible: sent + 2e8,
				LastToken: sent + 2e8 + i*1e8, End: sent + 3e8 + i*1e8},
			PromptTokens: 1010, OutputTokens: 5, ReasoningTokens: record.Unknown, Hits: record.UnknownHits}
		for k := range int64(3) {
			q.Chunks = append(q.Chunks, record.Chunk{At: q.Times.FirstToken + k*i*5e7, Tokens: record.Unknown})
		}
		switch i {
		case 0:
			q.Phase = record.Pressure
		case 5:
			q.Failure = &record.Failure{Class: record.FailStatus, Status: 503, Detail: "no"}
			q.Times.FirstToken, q.Times.FirstVisible, q.Times.LastToken = record.Never, record.Never, record.Never
			q.PromptTokens, q.OutputTokens, q.Chunks = record.Unknown, record.Unknown, nil
		}
		if err := w.WriteRequest(q); err != nil {
			t.Fatal(err)
		}
	}
	fam := map[string]record.Family{"sglang:prompt_tokens_total": {Type: "counter"}, "sglang:cached_tokens_total": {Type: "counter"},
		"sglang:token_usage": {Type: "gauge"}, "sglang:max_total_num_tokens": {Type: "gauge"}}
	for _, url := range []string{"http://a/metrics", "http://b/metrics"} {
		for i, at := range []int64{9, 12, 21} {
			n := float64(i * 1000)
			if err := w.WriteSample(&record.Sample{At: at * second, Source: url, Families: fam, Values: map[string]float64{
				`sglang:prompt_tokens_total{engine_type="unified"}`: 10 + 2*n, `sglang:cached_tokens_total{cache_source="device"}`: n,
				`sglang:cached_tokens_total{cache_source="host"}`: n / 2, "sglang:token_usage": 0.5, "sglang:max_total_num_tokens": 5000}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	r, err := result.Finish(w)
	if err != nil {
		t.Fatal(err)
	}
	b, err := record.OpenBundle(w.Dir())
	if err != nil {
		t.Fatal(err)
	}
	return b, r
}

var multi = &spec.Point{
	Key: "k", Name: "n", Image: "img", Model: "org/m", ModelPrefix: "m", Precision: "fp4", Framework: "dynamo-sglang", Runner: "gb200", Scenario: spec.AgenticCoding, Conc: 64,
	Multinode: true, Disagg: true, SpecDecoding: "mtp",
	Prefill: &spec.Worker{Parallel: spec.Parallel{TP: 4, PP: 1, EP: 4, DCP: 1, PCP: 2, DPAttn: true}, Workers: 2, Hardware: "gb200"},
	Decode:  &spec.Worker{Parallel: spec.Parallel{TP: 8, PP: 1, EP: 8, DCP: 1, PCP: 1, DPAttn: true}, Workers: 1, Hardware: "gb300"},
	Offload: spec.Offload{Mode: "dram", Backend: spec.Component{Name: "hicache", Version: "1"}, BudgetGB: 2400},
	Router:  spec.Component{Name: "dynamo", Version: "0.7"}, KVTransfer: "nixl",
}

// TestBundleRow: a bundle's row is that of its artifacts with the variables that InferenceX would
// have set, for every shape of a point.
func TestBundleRow(t *testing.T) {
	aggregated := *multi
	aggregated.Disagg, aggregated.Decode = false, nil
	aggregated.Prefill = &spec.Worker{Parallel: spec.Parallel{TP: 8, PP: 2, EP: 1, DCP: 1, PCP: 1}, Workers: 2}
	single := &spec.Point{Key: "k", Model: "org/m", Framework: "sglang", Runner: "b200", Precision: "fp8", Scenario: spec.AgenticCoding, Conc: 8, SpecDecoding: "none",
		Unified: &spec.Parallel{TP: 4, PP: 1, EP: 2, DCP: 2, PCP: 2, DPAttn: true}, Offload: spec.Offload{Mode: "none"}}
	common := map[string]string{"RUNNER_TYPE": "gb200", "CONC": "64", "IMAGE": "img", "MODEL": "org/m", "MODEL_PREFIX": "m", "FRAMEWORK": "dynamo-sglang", "PRECISION": "fp4",
		"SPEC_DECODING": "mtp", "IS_MULTINODE": "true", "KV_OFFLOADING": "dram", "KV_OFFLOAD_BACKEND": "hicache", "TOTAL_CPU_DRAM_GB": "2400",
		"KV_OFFLOAD_BACKEND_METADATA": `{"name":"hicache","version":"1"}`, "ROUTER_METADATA": `{"name":"dynamo","version":"0.7"}`, "KV_P2P_TRANSFER": "nixl"}
	with := func(m map[string]string) map[string]string {
		for k, v := range common {
			if _, ok := m[k]; !ok {
				m[k] = v
			}
		}
		return m
	}
	for name, c := range map[string]struct {
		point *spec.Point
		env   map[string]string
	}{
		"single": {single, map[string]string{"RUNNER_TYPE": "b200", "CONC": "8", "MODEL": "org/m", "FRAMEWORK": "sglang", "PRECISION": "fp8", "SPEC_DECODING": "none", "TP": "4", "EP_SIZE": "2",
			"DCP_SIZE": "2", "PCP_SIZE": "2", "DP_ATTENTION": "true", "KV_OFFLOADING": "none"}},
		"disaggregated": {multi, with(map[string]string{"DISAGG": "true", "PREFILL_NUM_WORKERS": "2", "PREFILL_TP": "4", "PREFILL_PCP_SIZE": "2", "PREFILL_EP": "4", "PREFILL_DP_ATTN": "true", "PREFILL_HARDWARE": "gb200",
			"DECODE_NUM_WORKERS": "1", "DECODE_TP": "8", "DECODE_EP": "8", "DECODE_DP_ATTN": "true", "DECODE_HARDWARE": "gb300"})},
		"aggregated over nodes": {&aggregated, with(map[string]string{"DISAGG": "false", "PREFILL_NUM_WORKERS": "2", "PREFILL_TP": "8", "PREFILL_PP_SIZE": "2", "PREFILL_EP": "1", "PREFILL_DP_ATTN": "false",
			"DECODE_NUM_WORKERS": "0", "DECODE_TP": "0", "DECODE_EP": "0", "DECODE_DP_ATTN": "false"})},
	} {
		t.Run(name, func(t *testing.T) {
			b, r := bundleOf(t, c.point, func(m *record.Meta) { m.Dataset = json.RawMessage(`{"entries":3}`) })
			dir := t.TempDir()
			if _, err := aiperf.Export(b, r, aiperf.Options{Dir: filepath.Join(dir, ArtifactDir), SliceNs: second}); err != nil {
				t.Fatal(err)
			}
			lookup := func(n string) (string, bool) { v, ok := c.env[n]; return v, ok }
			want, err := Aggregate(dir, lookup, Options{Own: true})
			if err != nil {
				t.Fatal(err)
			}
			got, _, err := FromBundle(b, nothing, Options{Own: true})
			if err != nil {
				t.Fatal(err)
			}
			got.(*Row).Mark = nil // the one difference: artifacts say nothing of it
			a, _ := json.Marshal(want)
			x, _ := json.Marshal(got)
			if d := cmp.Diff(parsed(t, a), parsed(t, x)); d != "" {
				t.Errorf("by way of artifacts and from the bundle (-artifacts +bundle):\n%s", d)
			}
			if w := want.Server; w.Adapter == "none" || w.Tokens.Prompt == nil || want.Requests.Throughput.PerGPU == nil || want.Requests.Cache.Theoretical == nil {
				t.Errorf("the row says little: %s", a)
			}
		})
	}
}

func nothing(string) (string, bool) { return "", false }

// TestBundleEnv: variables stand before the point, offload's only together, and what neither says
// is named.
func TestBundleEnv(t *testing.T) {
	p := *multi
	p.Multinode, p.Disagg, p.Prefill, p.Decode, p.Framework = false, false, nil, nil, "external"
	b, _ := bundleOf(t, &p, func(m *record.Meta) { m.Engine.Facts["metrics"] = "sglang" })
	if _, _, err := FromBundle(b, nothing, Options{}); err == nil || !strings.Contains(err.Error(), "set TP") {
		t.Errorf("without GPUs: %v", err)
	}
	row, _, err := FromBundle(b, envOnly(map[string]string{"TP": "8", "KV_OFFLOADING": "none", "RUNNER_TYPE": "h100"}), Options{})
	if err != nil {
		t.Fatal(err)
	}
	x := row.(*Row)
	if x.HW != "h100" || x.TP != 8 || x.KVOffloading != "none" || x.Backend != nil || x.Framework != "sglang" || x.Conc != 64 || x.Server.Adapter != "sglang" {
		t.Errorf("row %+v", x)
	}
	if !strings.Contains(string(x.Dataset), `"source_type":"weir"`) {
		t.Errorf("dataset %s", x.Dataset)
	}
	if _, _, err := FromBundle(b, envOnly(map[string]string{"TP": "8", "KV_OFFLOADING": "dram"}), Options{}); err == nil || !strings.Contains(err.Error(), "needs KV_OFFLOAD_BACKEND") {
		t.Errorf("half an offload: %v", err)
	}
	log := filepath.Join(b.Dir, record.LogsDir, "unified.log")
	if err := os.WriteFile(log, []byte("INFO max_total_num_tokens=777, dp_size=2\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	row, _, err = FromBundle(b, envOnly(map[string]string{"TP": "8"}), Options{})
	if err != nil || *row.(*Row).PoolTokens != 2*777 {
		t.Errorf("pool of the log: %v", err)
	}
}

func envOnly(m map[string]string) Env {
	return func(n string) (string, bool) { v, ok := m[n]; return v, ok }
}

// TestServingBundle: the row of a fixed-seq-len bundle by hand, single and multi-node.
func TestServingBundle(t *testing.T) {
	p := *multi
	p.Scenario, p.ISL, p.OSL = spec.FixedSeqLen, 1000, 5
	b, _ := bundleOf(t, &p, nil)
	row, _, err := FromBundle(b, nothing, Options{})
	if err != nil {
		t.Fatal(err)
	}
	m := row.(map[string]any)
	// Four succeeded from 10 s on; the failed one ended last, at 14 s + 0.3 s + 0.5 s.
	dur := 4.8
	for key, want := range map[string]any{
		"conc": 64, "model": "org/m", "hw": "gb200", "isl": 1000, "osl": 5, "is_multinode": true, "disagg": true, "num_prefill_gpu": 16, "num_decode_gpu": 8, "prefill_hw": "gb200",
		"output_tput_per_gpu": 20 / dur / 8, "input_tput_per_gpu": 4000 / dur / 16, "tput_per_gpu": 4020 / dur / 24,
		"mean_ttft": 0.2, "median_e2el": 0.45, "mean_tpot": 0.25 / 4, "p99_tpot": (0.3 + 0.97*0.1) / 4, "median_intvty": 4 / 0.25, "mean_itl": 0.125,
		"p99.9_e2el": 0.5 + 0.997*0.1,
	} {
		got := m[key]
		if f, ok := want.(float64); ok {
			if g, ok := got.(float64); !ok || math.Abs(g-f) > 1e-9*math.Abs(f) {
				t.Errorf("%s is %v, want %v", key, got, want)
			}
		} else if got != want {
			t.Errorf("%s is %v, want %v", key, got, want)
		}
	}
	p.Multinode, p.Disagg, p.Prefill, p.Decode, p.Unified = false, false, nil, nil, &spec.Parallel{TP: 4, PP: 1, EP: 1, DCP: 1, PCP: 1}
	b, _ = bundleOf(t, &p, nil)
	if row, _, err = FromBundle(b, nothing, Options{}); err != nil || math.Abs(row.(map[string]any)["tput_per_gpu"].(float64)-4020/dur/4) > 1e-9 {
		t.Errorf("single node: %v, %v", row, err)
	}
	p.Unified = nil
	b, _ = bundleOf(t, &p, nil)
	if _, _, err = FromBundle(b, nothing, Options{}); err == nil || !strings.Contains(err.Error(), "set TP, or give --gpus") {
		t.Errorf("without GPUs: %v", err)
	}
	row, _, err = FromBundle(b, envOnly(map[string]string{"TP": "2"}), Options{})
	if err != nil {
		t.Fatalf("with TP alone, as the documents say: %v", err)
	}
	if m := row.(map[string]any); m["tp"] != 2 || m["ep"] != 1 || m["dp_attention"] != "false" || math.Abs(m["tput_per_gpu"].(float64)-4020/dur/2) > 1e-9 {
		t.Errorf("with TP alone: %v", m)
	}
}

// TestBundleMark: a row says in keys of its own what it must not be taken for, and InferenceX's keys
// are the same with them and without.
func TestBundleMark(t *testing.T) {
	fixed := *multi
	fixed.Scenario, fixed.ISL, fixed.OSL = spec.FixedSeqLen, 1000, 5
	for _, p := range []*spec.Point{multi, &fixed} {
		row := func(edit func(*record.Meta)) (map[string]any, *Mark) {
			b, r := bundleOf(t, p, edit)
			got, mark, err := FromBundle(b, nothing, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if (mark == nil) != (r.Valid && !r.Simulated) {
				t.Fatalf("valid %v, simulated %v, mark %+v", r.Valid, r.Simulated, mark)
			}
			raw, err := json.Marshal(got)
			if err != nil {
				t.Fatal(err)
			}
			m, _ := parsed(t, raw).(map[string]any)
			return m, mark
		}
		plain, mark := row(nil)
		if mark == nil || mark.Simulated || mark.Valid || !slices.ContainsFunc(mark.Reasons, func(s string) bool { return strings.HasPrefix(s, "invalid: ") }) {
			t.Errorf("a bundle that is not valid: %+v", mark)
		}
		sim, mark := row(func(m *record.Meta) { m.Simulated, m.SimSpeed = true, 20 })
		if mark == nil || !mark.Simulated || len(mark.Reasons) < 2 || mark.Reasons[0] != "simulated: no engine ran" || mark.Reasons[1] != "20 times as fast as it says" {
			t.Errorf("a simulated bundle: %+v", mark)
		}
		if sim["weir_simulated"] != true || plain["weir_simulated"] != false || sim["weir_valid"] != mark.Valid || len(sim["weir_reasons"].([]any)) != len(mark.Reasons) {
			t.Errorf("own keys: %v %v %v", sim["weir_simulated"], sim["weir_valid"], sim["weir_reasons"])
		}
		for _, m := range []map[string]any{plain, sim} {
			for k := range m {
				if strings.HasPrefix(k, "weir_") {
					delete(m, k)
				}
			}
		}
		if d := cmp.Diff(plain, sim); d != "" {
			t.Errorf("InferenceX's keys differ:\n%s", d)
		}
	}
}
