package aiperf

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/weirbench/weir/internal/record"
	"github.com/weirbench/weir/internal/result"
)

// TestTelemetry: what exporters and commands said of GPUs stands in AIPerf's names and units, gauges over
// the phase, counters by what they grew from the reading before it, and not among the servers' metrics.
func TestTelemetry(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "b")
	w, err := record.CreateBundle(dir)
	if err != nil {
		t.Fatal(err)
	}
	m := record.NewMeta()
	m.PointID, m.EpochWallNs, m.Window = "p", epoch, record.Window{StartNs: 10 * sec, EndNs: 20 * sec}
	if err := w.WriteMeta(m); err != nil {
		t.Fatal(err)
	}
	dcgm := func(power, energy float64) map[string]float64 {
		const labels = `{gpu="3",UUID="GPU-3",modelName="B200",Hostname="n1"}`
		return map[string]float64{"DCGM_FI_DEV_POWER_USAGE" + labels: power, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION" + labels: energy,
			"DCGM_FI_DEV_FB_USED" + labels: 1000, "go_goroutines": 7}
	}
	for _, s := range []*record.Sample{
		{At: 5 * sec, Source: "http://n1:9400/metrics", Values: dcgm(100, 1e9)},
		{At: 5 * sec, Source: "http://s/metrics", Values: map[string]float64{"vllm:num_requests_running": 3}},
		{At: 6 * sec, Source: "gpu:amd-smi", Values: map[string]float64{`weir_gpu_power_milliwatts{gpu="0"}`: 5000}},
		{At: 11 * sec, Source: "gpu:amd-smi", Values: map[string]float64{`weir_gpu_power_milliwatts{gpu="0"}`: 7000}},
		{At: 12 * sec, Source: "http://n1:9400/metrics", Values: dcgm(200, 2e9)},
		{At: 13 * sec, Source: "http://n2:9400/metrics", Error: "refused"},
		{At: 13 * sec, Source: "gpu:nvidia-smi", Error: "hangs"},
		{At: 13 * sec, Source: "http://s/metrics", Values: map[string]float64{"vllm:num_requests_running": 4}},
		{At: 14 * sec, Source: "http://n1:9400/metrics", Values: dcgm(400, 4e9)},
	} {
		if err := w.WriteSample(s); err != nil {
			t.Fatal(err)
		}
	}
	r, err := result.Finish(w)
	if err != nil {
		t.Fatal(err)
	}
	b, err := record.OpenBundle(dir)
	if err != nil {
		t.Fatal(err)
	}
	out := t.TempDir()
	if _, err := Export(b, r, Options{Dir: out}); err != nil {
		t.Fatal(err)
	}
	read := func(name string) []byte {
		t.Helper()
		raw, err := os.ReadFile(filepath.Join(out, name))
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	type gpus map[string]struct {
		Index    int                `json:"gpu_index"`
		Name     string             `json:"gpu_name"`
		UUID     string             `json:"gpu_uuid"`
		Platform string             `json:"platform"`
		Host     *string            `json:"hostname"`
		Metrics  map[string]numbers `json:"metrics"`
	}
	var doc struct {
		Telemetry struct {
			Summary struct {
				Configured []string `json:"endpoints_configured"`
				Successful []string `json:"endpoints_successful"`
			}
			Endpoints map[string]struct{ GPUs gpus }
		} `json:"telemetry_data"`
	}
	if err := json.Unmarshal(read("profile_export_aiperf.json"), &doc); err != nil {
		t.Fatal(err)
	}
	if s := doc.Telemetry.Summary; len(s.Configured) != 3 || len(s.Successful) != 2 {
		t.Errorf("summary %+v", s)
	}
	near := func(got any, want float64) bool { f, ok := got.(float64); return ok && math.Abs(f-want) < 1e-9 }
	g := doc.Telemetry.Endpoints["n1:9400"].GPUs["gpu_3"]
	if g.Index != 3 || g.Name != "B200" || g.UUID != "GPU-3" || g.Platform != "nvidia" || g.Host == nil || *g.Host != "n1" {
		t.Errorf("device %+v", g)
	}
	power, energy, memory := g.Metrics["nvidia_power_usage"], g.Metrics["nvidia_energy_consumption"], g.Metrics["nvidia_memory_used"]
	if power["unit"] != "W" || !near(power["avg"], 300) || !near(power["std"], 100*math.Sqrt2) || !near(power["count"], 2) {
		t.Errorf("power %v", power)
	}
	if energy["unit"] != "MJ" || !near(energy["avg"], 3) || len(energy) != 2 {
		t.Errorf("energy %v", energy)
	}
	if memory["unit"] != "GB" || !near(memory["p50"], 1.048576) {
		t.Errorf("memory %v", memory)
	}
	if a := doc.Telemetry.Endpoints["localhost"].GPUs["gpu_0"]; a.Platform != "amd" || a.Host != nil || !near(a.Metrics["amd_power"]["avg"], 7) {
		t.Errorf("the command's device %+v", a)
	}
	lines := bytes.Split(bytes.TrimSpace(read("gpu_telemetry_export.jsonl")), []byte("\n"))
	if len(lines) != 5 {
		t.Fatalf("%d lines", len(lines))
	}
	var line struct {
		At     int64              `json:"timestamp_ns"`
		Source string             `json:"telemetry_source_url"`
		Index  int                `json:"gpu_index"`
		Data   map[string]float64 `json:"telemetry_data"`
	}
	if err := json.Unmarshal(lines[0], &line); err != nil {
		t.Fatal(err)
	}
	if line.At != epoch+5*sec || line.Source != "http://n1:9400/metrics" || line.Index != 3 || line.Data["nvidia_power_usage"] != 100 || len(line.Data) != 3 {
		t.Errorf("first line %s", lines[0])
	}
	if server := string(read("server_metrics_export.json")); bytes.Contains([]byte(server), []byte("n1:9400")) || !bytes.Contains([]byte(server), []byte("vllm:num_requests_running")) {
		t.Errorf("servers' metrics:\n%s", server)
	}
}
