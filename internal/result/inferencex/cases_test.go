package inferencex

import (
	"encoding/json"
	"maps"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

const (
	good   = `{"metadata":{"benchmark_phase":"profiling","request_start_ns":1000000000,"request_end_ns":3000000000},"metrics":{"time_to_first_token":{"value":500,"unit":"ms"},"request_latency":{"value":1500,"unit":"ms"},"inter_token_latency":{"value":10,"unit":"ms"},"input_sequence_length":{"value":1000,"unit":"tokens"},"output_sequence_length":{"value":101,"unit":"tokens"}}}`
	warm   = `{"metadata":{"benchmark_phase":"warmup"},"metrics":{}}`
	cut    = `{"metadata":{"benchmark_phase":"profiling"},"metrics":{},"error":{"code":499,"type":"RequestCancellationError"}}`
	dynamo = `{"metrics":{"dynamo_frontend_cached_tokens":{"type":"histogram","series":[{"labels":{},"stats":{"sum":600,"count":2}}]},
	  "dynamo_frontend_input_sequence_tokens":{"type":"histogram","series":[{"labels":{},"stats":{"sum":1000,"count":2}}]}}}`
	atomMetrics = `{"metrics":{"atom:prefix_cache_cached_tokens":{"type":"counter","series":[{"labels":{},"stats":{"total":80}}]},
	  "atom:prefix_cache_full_tokens":{"type":"counter","series":[{"labels":{},"stats":{"total":100}}]},
	  "atom:lmcache_loaded_tokens":{"type":"counter","series":[{"labels":{},"stats":{"total":20}}]}}}`
)

// folder writes a result folder; an empty text leaves the file out.
func folder(t *testing.T, records, metrics string) string {
	t.Helper()
	dir := t.TempDir()
	art := filepath.Join(dir, ArtifactDir)
	if err := os.Mkdir(art, 0o777); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{RecordsFile: records, ServerFile: metrics} {
		if text == "" && name == ServerFile {
			continue
		}
		if err := os.WriteFile(filepath.Join(art, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func envOf(change map[string]string) Env {
	m := map[string]string{"KV_OFFLOADING": "none", "FRAMEWORK": "sglang", "TP": "8", "CONC": "4"}
	maps.Copy(m, change)
	return func(name string) (string, bool) { v, ok := m[name]; return v, ok }
}

// TestFewRecords: one record has no spread, none has no statistics, and neither fails.
func TestFewRecords(t *testing.T) {
	row, err := Aggregate(folder(t, warm+"\n"+good+"\n"+cut+"\n", ""), envOf(nil), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if a := row.Accounting; a.Total != 3 || a.Profiled != 1 || a.Warmup != 1 || a.Errors != 1 || row.Successful != 1 {
		t.Errorf("accounting %+v", a)
	}
	if q := row.Requests.QPS; q.Window != nil || row.Requests.Throughput.PerGPU == nil || float64(*row.Requests.Throughput.PerGPU.Output) != 101.0/2/8 {
		t.Errorf("qps %+v, throughput %+v", q, row.Requests.Throughput)
	}
	if len(row.Warnings) != 1 || row.Server.Present {
		t.Errorf("warnings %v", row.Warnings)
	}
	for _, records := range []string{"", warm + "\n", "\n\n"} {
		row, err := Aggregate(folder(t, records, ""), envOf(nil), Options{})
		if err != nil || row.Successful != 0 || row.Requests.Throughput.Total != nil {
			t.Errorf("%q: %v, %+v", records, err, row)
		}
	}
}

// TestEngines: Dynamo before engines that are not scraped, and ATOM, whose total may hold loads.
func TestEngines(t *testing.T) {
	row, err := Aggregate(folder(t, good, dynamo), envOf(map[string]string{"FRAMEWORK": "dynamo-sglang"}), Options{Own: true})
	if err != nil {
		t.Fatal(err)
	}
	if row.Server.Adapter != "dynamo-vllm" || row.Server.Cache.Overall != nil || row.Server.Cache.Frontend == nil || *row.Server.Cache.Frontend != 0.6 {
		t.Errorf("dynamo %+v", row.Server.Cache)
	}
	if row.Own.OverallHitRate == nil || *row.Own.OverallHitRate != 0.6 {
		t.Errorf("own %+v", row.Own)
	}
	row, err = Aggregate(folder(t, good, atomMetrics), envOf(map[string]string{"FRAMEWORK": "atom"}), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if c := row.Server.Cache; row.Server.Adapter != "atom" || *c.GPU != 0.8 || *c.CPU != 0.2 || *c.Overall != 0.8 {
		t.Errorf("atom %+v", c)
	}
}

// TestRefused: what is wrong is named, with the variable or the line.
func TestRefused(t *testing.T) {
	for name, c := range map[string]struct {
		records, metrics string
		env              map[string]string
		want             string
	}{
		"torn line":    {good + "\n" + good[:60], "", nil, "profile_export.jsonl:2: not a record"},
		"a list":       {good + "\n[]", "", nil, "profile_export.jsonl:2: not a record: need an object, found array"},
		"no JSON":      {good, "{", nil, "server_metrics_export.json"},
		"unknown":      {good, `{"metrics":{"tgi_requests":{"type":"counter","series":[]}}}`, map[string]string{"FRAMEWORK": "tgi"}, "no known engine: FRAMEWORK=tgi"},
		"no offload":   {good, "", map[string]string{"KV_OFFLOADING": ""}, "KV_OFFLOADING is not set"},
		"contradicts":  {good, "", map[string]string{"KV_OFFLOAD_BACKEND": "hicache"}, "KV_OFFLOADING=none stands beside a KV_OFFLOAD_BACKEND"},
		"other names":  {good, "", map[string]string{"KV_OFFLOADING": "dram", "KV_OFFLOAD_BACKEND": "a", "KV_OFFLOAD_BACKEND_METADATA": `{"name":"b"}`}, "differ"},
		"no number":    {good, "", map[string]string{"TP": "eight"}, `TP="eight" is not a whole number`},
		"one hardware": {good, "", map[string]string{"IS_MULTINODE": "1", "PREFILL_HARDWARE": "b200"}, "set both or neither"},
	} {
		_, err := Aggregate(folder(t, c.records, c.metrics), envOf(c.env), Options{})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	for _, name := range []string{RecordsFile, SummaryFile, ServerFile} { // a pipe has nobody who writes
		dir := folder(t, good, "")
		path := filepath.Join(dir, ArtifactDir, name)
		os.Remove(path)
		if err := syscall.Mkfifo(path, 0o666); err != nil {
			t.Fatal(err)
		}
		if _, err := Aggregate(dir, envOf(nil), Options{}); err == nil || !strings.Contains(err.Error(), name+" is not a file") {
			t.Errorf("a pipe as %s: %v", name, err)
		}
	}
	if _, err := Aggregate(t.TempDir(), envOf(nil), Options{}); err == nil || !strings.Contains(err.Error(), RecordsFile) {
		t.Errorf("no records: %v", err)
	}
}

// TestBeyondNumbers: what no integer or float holds is no number with another sign, and no word of Go.
func TestBeyondNumbers(t *testing.T) {
	huge := 1e300
	if n := counter(&huge); n != nil {
		t.Errorf("1e300 tokens are %v", *n)
	}
	if _, err := json.Marshal(Number(math.Inf(1))); err == nil || !strings.Contains(err.Error(), "cannot be true") {
		t.Errorf("infinity: %v", err)
	}
}

// TestNaN: Python writes NaN and Infinity into JSON; such a value is absent, the rest counts.
func TestNaN(t *testing.T) {
	bad := strings.Replace(good, `"value":500`, `"value":NaN`, 1)
	metrics := `{"metrics":{"sglang:prompt_tokens":{"type":"counter","series":[{"labels":{},"stats":{"total":100,"rate":NaN}},{"labels":{},"stats":{"total":Infinity}}]},
	  "sglang:cached_tokens":{"type":"counter","series":[{"labels":{"cache_source":"device"},"stats":{"total":40}}]}}}`
	row, err := Aggregate(folder(t, bad+"\n"+good+"\n", metrics), envOf(nil), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if row.Successful != 2 || row.Requests.Latency.TTFT.Mean == nil || *row.Requests.Latency.TTFT.Mean != 0.5 {
		t.Errorf("ttft %+v", row.Requests.Latency.TTFT)
	}
}
