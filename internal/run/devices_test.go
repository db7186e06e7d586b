package run

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirbench/weir/internal/client"
	"github.com/weirbench/weir/internal/engine"
	"github.com/weirbench/weir/internal/material"
	"github.com/weirbench/weir/internal/prompt"
	"github.com/weirbench/weir/internal/record"
	"github.com/weirbench/weir/internal/replay"
	"github.com/weirbench/weir/internal/scrape"
	"github.com/weirbench/weir/internal/scrape/gpu"
	"github.com/weirbench/weir/internal/sim"
	"github.com/weirbench/weir/internal/sim/simhttp"
	"github.com/weirbench/weir/internal/spec"
)

// TestDevicesRead measures a point with a fake nvidia-smi that draws 500 W on one device and loses
// another, and with a DCGM exporter among the metrics: both are in the result.
func TestDevicesRead(t *testing.T) {
	material.RealTime(t)
	url := simServer(t, simhttp.Options{Engine: "sglang", Model: "m", Speed: 1,
		Fixed: &sim.Fixed{TTFT: int64(20 * time.Millisecond), ITL: int64(time.Millisecond), ContextLen: 1 << 20}})
	dcgm := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "# HELP DCGM_FI_DEV_POWER_USAGE Power draw (in W).\n# TYPE DCGM_FI_DEV_POWER_USAGE gauge\n"+
			`DCGM_FI_DEV_POWER_USAGE{gpu="7",UUID="GPU-7",pci_bus_id="00000000:1B:00.0",device="nvidia7",modelName="NVIDIA H100 80GB HBM3",Hostname="n2"} 250`+"\n")
	}))
	defer dcgm.Close()
	dir := t.TempDir()
	tool := filepath.Join(dir, "nvidia-smi")
	row := func(i int) string {
		return fmt.Sprintf("%d, GPU-%d, NVIDIA H100 80GB HBM3, 500.00, 1000, 81559, 90, 1755, 2619, 64, 78, 0, 0, 0x0000000000000000", i, i)
	}
	script := "#!/bin/sh\necho '" + row(0) + "'\nif [ -e " + dir + "/once ]; then echo 'Unable to determine the device handle for GPU0000:3B:00.0: GPU is lost.'; exit 15; fi\n: >" + dir + "/once\necho '" + row(1) + "'\n"
	if err := os.WriteFile(tool, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	p := &spec.Point{Key: "replay", Name: "test", Model: "m", Framework: "external", Scenario: spec.AgenticCoding,
		Conc: 2, SpecDecoding: "none", Offload: spec.Offload{Mode: "none"}, DurationNs: int64(4 * time.Second), Weir: spec.WeirFields{Seed: 1},
		Unified: &spec.Parallel{TP: 1, PP: 1, EP: 1, DCP: 1, PCP: 1}}
	opt := ReplayOptions(p)
	opt.PressureRequests = 0
	opt.SystemIdleCapNs, opt.TraceIdleCapNs, opt.GraceNs = int64(50*time.Millisecond), int64(50*time.Millisecond), int64(time.Minute)
	ex := &HTTP{
		Client: client.Config{URLs: []string{url}}, Prompt: prompt.Options{Models: []string{"m"}}, ObservedGPUs: record.Unknown,
		Scrape: &scrape.Options{URLs: []string{url, dcgm.URL}, Every: 100 * time.Millisecond},
		GPU:    &GPUs{Tool: tool, Every: 50 * time.Millisecond},
	}
	r, err := Measure(t.Context(), ex, &Job{Point: p, Corpus: smallCorpus(t), Replay: opt, Version: "test"}, filepath.Join(t.TempDir(), "b"))
	if err != nil {
		t.Fatal(err)
	}
	if r.Requests.OK == 0 {
		t.Fatalf("%+v", r.Requests)
	}
	d := r.Devices
	if d == nil || d.Count != 3 && d.Count != 2 { // the lost one may have been read before the window alone
		t.Fatalf("devices %+v", d)
	}
	power := map[string]float64{}
	for _, x := range d.List {
		if x.PowerMean != nil {
			power[x.ID] = *x.PowerMean
		}
	}
	if power["GPU-0"] != 500 || power["GPU-7"] != 250 {
		t.Errorf("power %v of %+v", power, d.List)
	}
	covered := map[string]float64{}
	for _, x := range d.List {
		if x.Covered != nil {
			covered[x.ID] = *x.Covered
		}
		if x.ID == "GPU-0" && (*x.UtilMean != 0.9 || *x.MemoryMax != 1000<<20) {
			t.Errorf("%+v", x)
		}
	}
	if covered["GPU-1"] >= covered["GPU-0"] { // the second reading lacks it, whenever that came
		t.Errorf("covered are %v of the window, the lost device for as long as the other", covered)
	}
	// Beside a simulated engine nothing is read unless a command is named.
	if list, err := (&HTTP{GPU: &GPUs{Tool: "auto"}}).devices(true, replay.NewClock(), nil); err != nil || len(list) != 0 {
		t.Errorf("%v %v", list, err)
	}
	if _, err := (&HTTP{GPU: &GPUs{Tool: dir + "/nowhere/nvidia-smi"}}).devices(false, replay.NewClock(), nil); err == nil || !strings.Contains(err.Error(), "config: ") {
		t.Errorf("a command that is not there: %v", err)
	}
}

// TestFollower takes the readings of a command elsewhere that prints some, garbage, and ends.
func TestFollower(t *testing.T) {
	line := func(l gpu.Line) string { b, _ := json.Marshal(l); return string(b) }
	one := gpu.Line{TookNs: 7, Values: map[string]float64{`weir_gpu_power_milliwatts{gpu="0"}`: 5, `weir_gpu_present{gpu="0"}`: 1}}
	two := gpu.Line{TookNs: 7, Values: map[string]float64{`weir_gpu_present{gpu="0"}`: 1}}
	script := "printf '%s\\n' '" + line(one) + "' '" + line(two) + "' 'no reading' '" + line(gpu.Line{Error: "hangs"}) + "'; echo gone >&2; exit 3"
	got := make(chan *record.Sample, 100)
	f := gpu.NewFollower([]string{"sh", "-c", script}, gpu.Options{Source: "gpu:n1", Now: func() int64 { return 1 }, Write: func(s *record.Sample) error {
		select {
		case got <- s:
		default:
		}
		return nil
	}})
	f.Start()
	want := []string{"map[weir_gpu_power_milliwatts{gpu=\"0\"}:5 weir_gpu_present{gpu=\"0\"}:1] [] ", "map[] [weir_gpu_power_milliwatts{gpu=\"0\"}] ",
		`map[] [] not a reading: "no reading"`, "map[] [] hangs", `map[] [] sh: exit status 3: "gone"`}
	for i, w := range want {
		select {
		case s := <-got:
			if have := fmt.Sprint(s.Values, s.Gone, s.Error); fmt.Sprintf("%v %v %s", s.Values, s.Gone, s.Error) != w || s.Source != "gpu:n1" {
				t.Errorf("sample %d: %s, want %s", i, have, w)
			}
		case <-time.After(time.Minute):
			t.Fatalf("no sample %d", i)
		}
	}
	if rep, err := f.Stop(t.Context()); err != nil || rep.Failed < 3 {
		t.Errorf("%+v %v", rep, err)
	}
}

// TestNamedDevices: only what all processes of a deployment were given is read.
func TestNamedDevices(t *testing.T) {
	env := func(v string) []engine.Var { return []engine.Var{{Name: "CUDA_VISIBLE_DEVICES", Value: v}} }
	d := &engine.Deployment{Processes: []engine.Process{{GPUs: 2, Env: env("0,1")}, {GPUs: 2, Env: env("2,3")}, {Role: "router"}}}
	if got := strings.Join(named(d), " "); got != "0 1 2 3" {
		t.Error(got)
	}
	d.Processes[1].Env = nil
	if got := named(d); got != nil {
		t.Error(got)
	}
	l := &life{Launch: &Launch{GPU: &GPUs{Tool: "auto", Every: time.Second}, Place: engine.Place{Weir: "/bin/weir"}, Nodes: []string{"n1", "n2"},
		Beside: func(node int, argv []string) []string { return append([]string{"srun", fmt.Sprint(node)}, argv...) }}, d: d}
	d.Processes[1].Node = 1
	w := l.watches()
	if len(w) != 2 || w[1].Host != "n2" || strings.Join(w[1].Argv, " ") != "srun 1 /bin/weir gpu --json --gpu auto --every 1s" {
		t.Errorf("%+v", w)
	}
	if !Here([]string{"http://127.0.0.1:1", "http://localhost:2/v1"}) || Here([]string{"http://127.0.0.1:1", "http://192.0.2.7:1"}) || Here(nil) {
		t.Error("which URLs are of this machine")
	}
}
