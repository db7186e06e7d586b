package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirbench/weir/internal/material"
	"github.com/weirbench/weir/internal/result"
)

// weirProcess starts this binary as weir with --json and returns the JSON object that it
// prints when it listens. The process is interrupted when the test ends.
func weirProcess(t *testing.T, out any, args ...string) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(context.Background(), 10*time.Minute)
	cmd := exec.CommandContext(ctx, exe)
	cmd.Args = append([]string{"weir"}, append(args, "--json")...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = time.Minute
	var errOut bytes.Buffer
	cmd.Stderr = &errOut
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop()
		cmd.Wait()
		if cmd.ProcessState.ExitCode() != 0 {
			t.Errorf("weir %v ended with %v: %s", args, cmd.ProcessState, errOut.String())
		}
	})
	if err := json.NewDecoder(bufio.NewReader(pipe)).Decode(out); err != nil {
		t.Fatalf("weir %v: %v: %s", args, err, errOut.String())
	}
}

// TestDisaggregatedProcesses runs a prefill-decode point end to end over HTTP: two prefill
// engines, a decode engine, a router and the client as five processes on loopback. The hits
// that the client sees are those of the prefill engines.
func TestDisaggregatedProcesses(t *testing.T) {
	material.RealTime(t)
	type engine struct {
		URL     string `json:"url"`
		Port    int    `json:"bootstrap_port"`
		Metrics string `json:"metrics"`
	}
	common := []string{"sim", "serve", "--addr", "127.0.0.1:0", "--model", "glm-5.2", "--gpu", "b200", "--tp", "8", "--speed", "50"}
	var p1, p2, d, r engine
	weirProcess(t, &p1, append(common, "--role", "prefill", "--bootstrap-port", "0")...)
	weirProcess(t, &p2, append(common, "--role", "prefill", "--bootstrap-port", "0")...)
	weirProcess(t, &d, append(common, "--role", "decode")...)
	port := func(e engine) string { b, _ := json.Marshal(e.Port); return e.URL + "," + string(b) }
	weirProcess(t, &r, "sim", "router", "--addr", "127.0.0.1:0", "--metrics-addr", "127.0.0.1:0", "--prefill", port(p1), "--prefill", port(p2), "--decode", d.URL, "--policy", "consistent_hashing")

	dir := t.TempDir()
	corpus, out := filepath.Join(dir, "traces"), filepath.Join(dir, "bundle")
	exe, _ := os.Executable()
	run := func(args ...string) {
		t.Helper()
		ctx, stop := context.WithTimeout(context.Background(), 5*time.Minute)
		defer stop()
		cmd := exec.CommandContext(ctx, exe)
		cmd.Args = append([]string{"weir"}, args...)
		b, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("weir %v: %v\n%s", args, err, b)
		}
	}
	run("corpus", "generate", "-o", corpus, "--traces", "4", "--seed", "7")
	run("replay", "--url", r.URL, "--model", "glm-5.2", "--corpus", corpus, "-c", "2", "--duration", "4m", "--max-requests", "60", "--no-gaps",
		"--max-output", "40", "--warmup-requests-per-lane", "0", "--session-header", "X-SMG-Routing-Key", "--client-limit", "none",
		"--metrics", p1.URL, "--metrics", p2.URL, "--metrics", d.URL, "--metrics", r.Metrics, "-o", out)
	b, err := os.ReadFile(filepath.Join(out, "result.json"))
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Valid     bool    `json:"valid"`
		Simulated bool    `json:"simulated"`
		SimError  string  `json:"sim_error"`
		SimSpeed  float64 `json:"sim_speed"`
		Warnings  []struct {
			Code string `json:"code"`
		} `json:"warnings"`
		Requests struct {
			OK     int `json:"ok"`
			Failed int `json:"failed"`
		} `json:"requests"`
		Hits struct {
			Total   float64 `json:"total"`
			Ceiling float64 `json:"ceiling"`
		} `json:"hits"`
		Server result.Server `json:"server"`
	}
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	byRole(t, &got.Server)
	if h := got.Hits; !got.Valid || got.Requests.OK == 0 || got.Requests.Failed != 0 || h.Total < h.Ceiling-0.05 || h.Total > h.Ceiling {
		t.Errorf("the point came out as %+v: want it valid, with hits near the ceiling", got)
	}
	warned := false
	for _, w := range got.Warnings {
		warned = warned || w.Code == "simulated-speed"
	}
	if !got.Simulated || !strings.Contains(got.SimError, "fitted to") || got.SimSpeed != 50 || !warned {
		t.Errorf("through the router nothing says that the numbers are simulated, how far off and how fast: %+v", got)
	}
}

// byRole: each role of a disaggregated deployment has its queues, and what it alone counts.
func byRole(t *testing.T, s *result.Server) {
	t.Helper()
	pre, dec, router := s.ByRole["prefill"], s.ByRole["decode"], s.ByRole["router"]
	if len(s.ByEndpoint) != 4 || pre == nil || dec == nil || router == nil {
		t.Fatalf("%d endpoints and the roles %v: want four of prefill, decode and router", len(s.ByEndpoint), s.ByRole)
	}
	some := func(what string, n *int64, want bool) {
		t.Helper()
		if (n != nil && *n > 0) != want {
			t.Errorf("%s: %v, want some: %t", what, n, want)
		}
	}
	if pre.Endpoints != 2 || pre.BootstrapMean == nil || pre.InflightMean == nil || pre.PreallocMean != nil {
		t.Errorf("prefill has the queues %v, %v, %v over %d endpoints", pre.BootstrapMean, pre.InflightMean, pre.PreallocMean, pre.Endpoints)
	}
	if dec.Endpoints != 1 || dec.PreallocMean == nil || dec.TransferMean == nil || dec.BootstrapMean != nil {
		t.Errorf("decode has the queues %v, %v, %v over %d endpoints", dec.PreallocMean, dec.TransferMean, dec.BootstrapMean, dec.Endpoints)
	}
	some("prefill's device pool", pre.DevicePool, true)
	some("prefill's prompt tokens", pre.Prompt, true)
	some("prefill's hits", pre.Hit, true)
	some("decode's prompt tokens", dec.Prompt, false)
	some("prefill's output tokens", pre.Output, false)
	some("decode's output tokens", dec.Output, true)
	if x := pre.Transfer; x == nil || x.N == 0 || x.Time == nil || *x.Time.Mean <= 0 || x.Time.P50 == nil || x.Speed == nil || dec.Transfer != nil && dec.Transfer.N > 0 {
		t.Errorf("transfers of prefill %+v, of decode %+v", pre.Transfer, dec.Transfer)
	} else {
		some("transferred bytes", x.Bytes, true)
	}
	if router.Router == nil || router.RunningMean != nil {
		t.Errorf("router %+v", router)
	} else {
		some("routed requests", router.Router.Requests, true)
	}
}
