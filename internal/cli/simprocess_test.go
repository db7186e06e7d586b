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
		URL  string `json:"url"`
		Port int    `json:"bootstrap_port"`
	}
	common := []string{"sim", "serve", "--addr", "127.0.0.1:0", "--model", "glm-5.2", "--gpu", "b200", "--tp", "8", "--speed", "50"}
	var p1, p2, d, r engine
	weirProcess(t, &p1, append(common, "--role", "prefill", "--bootstrap-port", "0")...)
	weirProcess(t, &p2, append(common, "--role", "prefill", "--bootstrap-port", "0")...)
	weirProcess(t, &d, append(common, "--role", "decode")...)
	port := func(e engine) string { b, _ := json.Marshal(e.Port); return e.URL + "," + string(b) }
	weirProcess(t, &r, "sim", "router", "--addr", "127.0.0.1:0", "--prefill", port(p1), "--prefill", port(p2), "--decode", d.URL, "--policy", "consistent_hashing")

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
		"--max-output", "40", "--warmup-requests-per-lane", "0", "--session-header", "X-SMG-Routing-Key", "--client-limit", "none", "-o", out)
	b, err := os.ReadFile(filepath.Join(out, "result.json"))
	if err != nil {
		t.Fatal(err)
	}
	var result struct {
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
	}
	if err := json.Unmarshal(b, &result); err != nil {
		t.Fatal(err)
	}
	if h := result.Hits; !result.Valid || result.Requests.OK == 0 || result.Requests.Failed != 0 || h.Total < h.Ceiling-0.05 || h.Total > h.Ceiling {
		t.Errorf("the point came out as %+v: want it valid, with hits near the ceiling", result)
	}
	warned := false
	for _, w := range result.Warnings {
		warned = warned || w.Code == "simulated-speed"
	}
	if !result.Simulated || !strings.Contains(result.SimError, "fitted to") || result.SimSpeed != 50 || !warned {
		t.Errorf("through the router nothing says that the numbers are simulated, how far off and how fast: %+v", result)
	}
}
