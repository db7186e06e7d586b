package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weirbench/weir/internal/corpus"
	"github.com/weirbench/weir/internal/material"
	"github.com/weirbench/weir/internal/record"
	"github.com/weirbench/weir/internal/result"
	"github.com/weirbench/weir/internal/result/inferencex"
)

// TestAIPerfProfile runs the command as InferenceX does, against the simulated server, and has
// InferenceX's aggregate formed from the folder.
func TestAIPerfProfile(t *testing.T) {
	material.RealTime(t)
	url := simServer(t, 150_000, 600_000)
	dir := t.TempDir()
	c, err := corpus.Generate(corpus.GenerateOptions{Seed: 5, Traces: 6, Turns: 12, FirstIn: 20000, Growth: 200, ThinkNs: 1e9})
	if err != nil {
		t.Fatal(err)
	}
	traces := filepath.Join(dir, "traces")
	if err := corpus.WriteWekaDir(traces, c); err != nil {
		t.Fatal(err)
	}
	artifacts := filepath.Join(dir, "results", "aiperf_artifacts")
	args := strings.Fields(`aiperf profile --scenario inferencex-agentx-mvp --endpoint /v1/chat/completions --endpoint-type chat --streaming
		--model glm-5.2 --tokenizer some/model --concurrency 4 --benchmark-duration 3 --stats-interval 30 --random-seed 42 --failed-request-threshold 0.10
		--trajectory-start-min-ratio 0.25 --trajectory-start-max-ratio 0.75 --warmup-requests-per-lane 1 --trace-idle-gap-cap-seconds 0.05
		--system-idle-gap-cap-seconds 0.05 --warmup-grace-period 1800 --use-server-token-count --extra-inputs {"top_k":5} --no-gpu-telemetry
		--tokenizer-trust-remote-code --max-context-length 1000000 --num-dataset-entries 393 --slice-duration 1.0 --client-limit none --unsafe-override`)
	args = append(args, "--url", url, "--server-metrics", url+"/metrics", "--input-file", traces, "--output-artifact-dir", artifacts, "--api-key", "a-secret")
	code, out, errOut := weir(args...)
	if code != exitOK {
		t.Fatalf("exit code %d\n%s\n%s", code, out, errOut)
	}
	for _, want := range []string{"--tokenizer-trust-remote-code has no effect", "--tokenizer some/model is no file here", "submission_valid is false"} {
		if !strings.Contains(errOut, want) {
			t.Errorf("standard error lacks %q:\n%s", want, errOut)
		}
	}

	var s struct {
		Requests struct{ Avg float64 }             `json:"request_count"`
		TTFT     map[string]any                    `json:"time_to_first_token"`
		Ceiling  struct{ Avg, Sum, Count float64 } `json:"theoretical_prefix_cache_hit"`
		Metadata struct {
			Valid   *bool          `json:"submission_valid"`
			Reasons []string       `json:"submission_invalid_reasons"`
			Dataset map[string]any `json:"dataset"`
		}
		Start string `json:"start_time"`
	}
	raw := read(t, artifacts, "profile_export_aiperf.json")
	if err := json.Unmarshal(raw, &s); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(raw), "a-secret") {
		t.Error("the key stands in the summary")
	}
	if s.Metadata.Valid == nil || *s.Metadata.Valid || !slices.Equal(s.Metadata.Reasons, []string{"unsafe_override"}) {
		t.Errorf("metadata %+v", s.Metadata)
	}
	if s.Metadata.Dataset["entries"] != 6.0 || s.TTFT["unit"] != "ms" || s.Ceiling.Count == 0 || s.Ceiling.Sum > s.Ceiling.Count {
		t.Errorf("summary %+v", s)
	}

	bundles, _ := filepath.Glob(filepath.Join(artifacts, "weir-bundle-*"))
	if len(bundles) != 1 {
		t.Fatalf("bundles %v", bundles)
	}
	var r result.Result
	if err := json.Unmarshal(read(t, bundles[0], "result.json"), &r); err != nil {
		t.Fatal(err)
	}
	if r.Requests.OK < 4 || float64(r.Requests.OK) != s.Requests.Avg {
		t.Errorf("%d requests in the bundle, %v in the summary", r.Requests.OK, s.Requests.Avg)
	}
	if got := s.TTFT["p50"].(float64); math.Abs(got-1000**r.Latency.TTFT.P50) > 1e-6 {
		t.Errorf("median TTFT is %v ms in the summary, %v s in the bundle", got, *r.Latency.TTFT.P50)
	}

	env := map[string]string{"KV_OFFLOADING": "dram", "KV_OFFLOAD_BACKEND": "hicache", "KV_OFFLOAD_BACKEND_METADATA": `{"name":"hicache"}`,
		"FRAMEWORK": "sglang", "TP": "8", "CONC": "4", "TOTAL_CPU_DRAM_GB": "100"}
	row, err := inferencex.Aggregate(filepath.Dir(artifacts), func(n string) (string, bool) { v, ok := env[n]; return v, ok }, inferencex.Options{Own: true})
	if err != nil {
		t.Fatal(err)
	}
	if int64(row.Successful) != r.Requests.OK || row.Server.Adapter != "sglang" || row.PoolTokens == nil || *row.PoolTokens != *r.Pools.DeviceTokens {
		t.Errorf("row: %d requests, adapter %s, pool %v; bundle: %d, pool %v", row.Successful, row.Server.Adapter, row.PoolTokens, r.Requests.OK, *r.Pools.DeviceTokens)
	}
	for _, x := range []struct {
		name string
		row  *inferencex.Number
		ours *float64
	}{{"device", row.Server.Cache.GPU, r.Hits.Device}, {"host", row.Server.Cache.CPU, r.Hits.Host}, {"overall", row.Server.Cache.Overall, r.Hits.Total}} {
		if x.row == nil || x.ours == nil || math.Abs(float64(*x.row)-*x.ours) > 1e-5 {
			t.Errorf("%s hit rate is %v in the row, %v in the bundle", x.name, x.row, x.ours)
		}
	}
	if row.Server.Tokens.Prompt == nil || *row.Server.Tokens.Prompt != *r.Tokens.Input {
		t.Errorf("prompt tokens %v in the row, %d in the bundle", row.Server.Tokens.Prompt, *r.Tokens.Input)
	}

	// The bundle alone gives the same row, key by key, and says what it lacks.
	for k, v := range env {
		t.Setenv(k, v)
	}
	t.Setenv("TP", "8") // what the point cannot say of a server that ran already
	code, out, errOut = weir("aggregate", bundles[0], "--output-dir", filepath.Join(dir, "rows"), "--json")
	if code != exitOK {
		t.Fatalf("exit code %d: %s", code, errOut)
	}
	want, err := json.Marshal(row)
	if err != nil {
		t.Fatal(err)
	}
	var a, b map[string]any
	if err := errors.Join(json.Unmarshal(want, &a), json.Unmarshal([]byte(out), &b)); err != nil {
		t.Fatal(err)
	}
	// The point of the bundle knows the model; the variables above do not.
	if b["model"] != "glm-5.2" || b["precision"] != "" || a["model"] != "" {
		t.Errorf("model %v and precision %q from the bundle, model %v from the variables", b["model"], b["precision"], a["model"])
	}
	b["model"] = a["model"]
	// Both rows say that no engine ran, and that a rule was set aside, the bundle's in more words.
	for of, m := range map[string]map[string]any{"the bundle": b, "artifacts": a} {
		if m["weir_simulated"] != true || m["weir_valid"] != false || !strings.Contains(strings.ReplaceAll(fmt.Sprint(m["weir_reasons"]), "_", "-"), "unsafe-override") {
			t.Errorf("marks of the row of %s: %v, %v, %v", of, m["weir_simulated"], m["weir_valid"], m["weir_reasons"])
		}
		delete(m, "weir_reasons")
	}
	if d := cmp.Diff(a, b); d != "" {
		t.Errorf("the row by way of artifacts and that of the bundle differ (-artifacts +bundle):\n%s", d)
	}
	// Weir's own numbers stand beside InferenceX's unless they are not wanted.
	code, out, errOut = weir("aggregate", bundles[0], "--output-dir", filepath.Join(dir, "plain"), "--own=false", "--json")
	if code != exitOK || !strings.Contains(fmt.Sprint(b), "weir_error_rate") || strings.Contains(out, "weir_error_rate") {
		t.Errorf("exit code %d, %s\nwith own numbers %v\nwithout %s", code, errOut, b, out)
	}
	// Without the summary nobody knows whether an engine ran, and that is said.
	if err := os.Remove(filepath.Join(artifacts, inferencex.SummaryFile)); err != nil {
		t.Fatal(err)
	}
	code, _, errOut = weir("aggregate", "--result-dir", filepath.Dir(artifacts), "--output-dir", dir, "--filename", "bare")
	if code != exitOK || !strings.Contains(errOut, "there is no "+inferencex.SummaryFile) {
		t.Errorf("without the summary: exit code %d, %s", code, errOut)
	}
	os.Unsetenv("TP")
	if code, _, errOut := weir("aggregate", bundles[0], "--output-dir", dir); code != exitUsage || !strings.Contains(errOut, "does not say how many GPUs served it: set TP") {
		t.Errorf("without TP: exit code %d, %s", code, errOut)
	}
	if err := os.Truncate(filepath.Join(bundles[0], record.RequestsFile), 0); err != nil {
		t.Fatal(err)
	}
	if code, _, errOut := weir("aggregate", bundles[0], "--output-dir", filepath.Join(dir, "damaged")); code != exitUsage || !strings.Contains(errOut, "recorded were") {
		t.Errorf("of a damaged bundle: exit code %d, %s", code, errOut)
	}
}

// TestAIPerfFixedLengths runs the command without a scenario: every prompt has the length that was
// asked for, every request is in the summary, and its identities are those of the headers it carried.
func TestAIPerfFixedLengths(t *testing.T) {
	engine, _ := startSim(t, "sglang", 150_000, 0)
	var mu sync.Mutex
	carried := map[string]string{} // the conversation of a request
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if id := r.Header.Get("X-Correlation-ID"); id != "" && id == r.Header.Get("X-SMG-Routing-Key") {
			mu.Lock()
			carried[r.Header.Get("X-Request-ID")] = id
			mu.Unlock()
		}
		engine.Handler().ServeHTTP(w, r)
	}))
	t.Cleanup(front.Close)
	url := front.URL
	t.Setenv("AIPERF_HTTP_X_SMG_ROUTING_KEY_FROM_CORRELATION_ID", "true")
	exporter := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "# TYPE DCGM_FI_DEV_POWER_USAGE gauge\nDCGM_FI_DEV_POWER_USAGE{gpu=\"2\",UUID=\"GPU-2\",modelName=\"B200\"} 350.5\n")
	}))
	t.Cleanup(exporter.Close)
	artifacts := filepath.Join(t.TempDir(), "fixed")
	code, out, errOut := weir("aiperf", "profile", "--url", url, "--model", "glm-5.2", "--endpoint-type", "chat", "--streaming", "--concurrency", "4",
		"--isl", "700", "--osl", "9", "--request-count", "30", "--warmup-request-count", "3", "--extra-inputs", "ignore_eos:true", "--random-seed", "7",
		"--num-dataset-entries", "20", "--output-artifact-dir", artifacts, "--gpu-telemetry", "dashboard", exporter.URL, "--ui", "none")
	if code != 0 && !(code == exitInvalid && strings.Contains(errOut, "client-bound")) { // a busy machine may bind the client
		t.Fatalf("exit code %d\n%s\n%s", code, out, errOut)
	}
	var s struct {
		Requests struct{ Avg float64 }           `json:"request_count"`
		ISL      struct{ Min, Max, Sum float64 } `json:"input_sequence_length"`
		OSL      struct{ Min, Max float64 }      `json:"output_sequence_length"`
		Metadata map[string]any                  `json:"metadata"`
		GPUs     struct {
			Endpoints map[string]struct {
				GPUs map[string]struct{ Metrics map[string]map[string]any }
			}
		} `json:"telemetry_data"`
	}
	if err := json.Unmarshal(read(t, artifacts, "profile_export_aiperf.json"), &s); err != nil {
		t.Fatal(err)
	}
	if g := s.GPUs.Endpoints[strings.TrimPrefix(exporter.URL, "http://")].GPUs["gpu_2"]; g.Metrics["nvidia_power_usage"]["avg"] != 350.5 {
		t.Errorf("telemetry %+v", s.GPUs)
	}
	if lines := read(t, artifacts, "gpu_telemetry_export.jsonl"); !strings.Contains(string(lines), `"nvidia_power_usage":350.5`) {
		t.Errorf("telemetry %s", lines)
	}
	if s.Requests.Avg != 30 || s.ISL.Min != 700 || s.ISL.Max != 700 || s.ISL.Sum != 21000 || s.OSL.Min != 9 || s.OSL.Max != 9 {
		t.Errorf("summary %+v", s)
	}
	_, judged := s.Metadata["submission_valid"]
	if _, reasons := s.Metadata["submission_invalid_reasons"]; judged || reasons || s.Metadata["scenario"] != nil {
		t.Errorf("metadata %v: a load is no submission", s.Metadata)
	}
	warm, sent := 0, map[string]int{}
	for line := range strings.Lines(string(read(t, artifacts, "profile_export.jsonl"))) {
		var r struct {
			Metadata struct {
				Request      string `json:"x_request_id"`
				Correlation  string `json:"x_correlation_id"`
				Conversation string `json:"conversation_id"`
				Phase        string `json:"benchmark_phase"`
			}
		}
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		if m := r.Metadata; carried[m.Request] != m.Correlation || m.Correlation == "" {
			t.Errorf("%+v carried %q", m, carried[m.Request])
		}
		if r.Metadata.Phase == "warmup" {
			warm++
		} else {
			sent[r.Metadata.Conversation]++
		}
	}
	if warm != 3 || len(sent) != 20 { // 20 entries, 10 of them twice
		t.Errorf("%d requests of the warm-up, %d conversations", warm, len(sent))
	}
}

// TestAIPerfLoads runs what is sent without a scenario: drawn lengths with a pool of prefixes, users
// at a pace, a file at its times, and answers of any length. What was not asked for is said.
func TestAIPerfLoads(t *testing.T) {
	material.RealTime(t)
	url := simServer(t, 150_000, 0)
	file := filepath.Join(t.TempDir(), "trace.jsonl")
	lines := ""
	for i := range 6 {
		lines += fmt.Sprintf(`{"timestamp": %d, "input_length": 600, "output_length": 5, "hash_ids": [%d, %d]}`+"\n", 1000+100*i, 2*i, 2*i+1)
	}
	if err := os.WriteFile(file, []byte(lines), 0o666); err != nil {
		t.Fatal(err)
	}
	type dist struct{ Min, Max, Count float64 }
	for name, x := range map[string]struct {
		args string
		ok   func(requests float64, isl, osl dist) bool
	}{
		"drawn": {"--streaming --concurrency 4 --isl 600 --isl-stddev 60 --osl 12 --osl-stddev 4 --num-sessions 24 --prefix-prompt-length 256 --prefix-prompt-pool-size 3 --extra-inputs ignore_eos:true",
			func(n float64, isl, osl dist) bool {
				return n == 24 && isl.Min < 820 && isl.Max > 880 && osl.Min < 10 && osl.Max > 14
			}},
		"users": {"--streaming --isl 300 --osl 4 --session-turns-mean 3 --user-centric-rate 40 --num-users 8 --request-count 24 --extra-inputs ignore_eos:true",
			func(n float64, isl, osl dist) bool {
				return n == 24 && isl.Min == 300 && isl.Max > 600 && osl.Min == 4 && osl.Max == 4
			}},
		"schedule": {"--streaming --fixed-schedule --fixed-schedule-start-offset 1100 --fixed-schedule-end-offset 1400 --input-file " + file,
			func(n float64, isl, osl dist) bool { return n == 4 && isl.Min == 600 && isl.Max == 600 && osl.Max <= 5 }},
		"free": {"--concurrency 2 --isl 300 --request-count 4",
			func(n float64, isl, osl dist) bool { return n == 4 && isl.Min == 300 && isl.Max == 300 && osl.Min >= 1 }},
	} {
		dir := t.TempDir()
		args := append(strings.Fields("aiperf profile --model glm-5.2 --endpoint-type chat --use-server-token-count --random-seed 11 --client-limit none "+x.args),
			"--url", url, "--output-artifact-dir", dir)
		code, out, errOut := weir(args...)
		if code != exitOK {
			t.Errorf("%s: exit code %d\n%s\n%s", name, code, out, errOut)
			continue
		}
		var s struct {
			Requests struct{ Avg float64 } `json:"request_count"`
			ISL      dist                  `json:"input_sequence_length"`
			OSL      dist                  `json:"output_sequence_length"`
			Mismatch *dist                 `json:"osl_mismatch_diff_pct"`
		}
		if err := json.Unmarshal(read(t, dir, "profile_export_aiperf.json"), &s); err != nil {
			t.Fatal(err)
		}
		if !x.ok(s.Requests.Avg, s.ISL, s.OSL) {
			t.Errorf("%s: %v requests, input %+v, output %+v", name, s.Requests.Avg, s.ISL, s.OSL)
		}
		if free := name == "free"; free != (s.Mismatch == nil) || free != strings.Contains(errOut, "no --osl: as with AIPerf") || free != strings.Contains(errOut, "without --streaming AIPerf asks for whole answers") {
			t.Errorf("%s: mismatch %+v, standard error %s", name, s.Mismatch, errOut)
		}
	}
}

func read(t *testing.T, elem ...string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(elem...))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestScrape watches the simulated server while requests run: the sources add up to the prompt.
func TestScrape(t *testing.T) {
	material.RealTime(t)
	url, dir := simServer(t, 120_000, 400_000), t.TempDir()
	enough, ended := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() { <-ended })
	go func() { // load for as long as somebody watches
		defer close(ended)
		for i := 0; ; i++ {
			select {
			case <-enough:
				return
			default:
				weir("load", "--url", url, "--model", "glm-5.2", "--mode", "overflow", "--tokens", "200000", "--isl", "8192", "--osl", "1", "-c", "4",
					"--seed", fmt.Sprint(i), "--calibrate", "never", "-o", filepath.Join(dir, fmt.Sprint(i)))
			}
		}
	}()
	defer close(enough)
	prompt, parts := 0.0, 0.0
	for try := 0; try < 20 && prompt == 0; try++ {
		code, out, errOut := weir("scrape", "--every", "200ms", "--for", "2s", "--json", url)
		if code != 0 {
			t.Fatalf("exit code %d\n%s", code, errOut)
		}
		for d := json.NewDecoder(strings.NewReader(out)); d.More(); {
			var p period
			if err := d.Decode(&p); err != nil {
				t.Fatal(err)
			}
			if p.DeviceKV == nil || p.Running == nil || p.HostKV == nil {
				t.Fatalf("period %+v", p)
			}
			for _, v := range []*float64{p.Device, p.Host, p.Storage, p.Computed} {
				if v != nil {
					parts += *v
				}
			}
			if p.Prompt != nil {
				prompt += *p.Prompt
			}
		}
	}
	if prompt <= 0 || math.Abs(parts-prompt) > 1e-6*prompt {
		t.Errorf("%v prompt tokens per second, the sources add up to %v", prompt, parts)
	}
	if code, out, _ := weir("scrape", "--every", "100ms", "--for", "250ms", url); code != 0 || !strings.Contains(out, "prompt, tokens/s") {
		t.Errorf("exit code %d, %s", code, out)
	}
}
