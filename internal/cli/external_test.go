package cli

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirbench/weir/internal/material"
)

// TestExternalExample runs the example of a command that brings an endpoint up by itself, as it
// stands but for its port: up, canary, load, down; then nobody listens and nothing runs.
func TestExternalExample(t *testing.T) {
	material.RealTime(t)
	weir, err := exec.LookPath("weir")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	raw, err := os.ReadFile("../../examples/recipes/external.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Count(string(raw), "127.0.0.1:8000") != 2 {
		t.Fatal("the example has another address")
	}
	if err := os.WriteFile(filepath.Join(dir, "external.yaml"), []byte(strings.ReplaceAll(string(raw), "127.0.0.1:8000", addr)), 0o666); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) string {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, weir, args...)
		cmd.Env = append(os.Environ(), "EXTERNAL_TEST="+addr)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("weir %v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	traces, out := filepath.Join(dir, "traces"), filepath.Join(dir, "out")
	run("corpus", "generate", "-o", traces, "--traces", "4", "--seed", "7", "--system", "500", "--first-input", "1000", "--growth", "200", "--context", "4000", "--sub-agents", "-1")
	run("point", "-f", "../../examples/external/master.yaml", "-r", "../../examples/external/runners.yaml", "--recipes", dir, "glm5.2-external", "--corpus", traces,
		"--duration", "3s", "--client-limit", "none", "--no-gaps", "--max-output", "20", "--warmup-requests-per-lane", "0", "-o", out)
	for _, f := range []string{"COMPLETE", "result.json", "logs/external.log"} {
		if _, err := os.Stat(filepath.Join(out, f)); err != nil {
			t.Error(err)
		}
	}
	if c, err := net.DialTimeout("tcp", addr, 10*time.Second); err == nil {
		c.Close()
		t.Errorf("somebody still listens on %s", addr)
	}
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, f := range files {
		if env, err := os.ReadFile(f); err == nil && strings.Contains(string(env), fmt.Sprintf("EXTERNAL_TEST=%s\x00", addr)) {
			line, _ := os.ReadFile(filepath.Join(filepath.Dir(f), "cmdline"))
			t.Errorf("%s still runs: %q", filepath.Dir(f), line)
		}
	}
}
