package cli

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirbench/weir/internal/material"
	"github.com/weirbench/weir/internal/record"
	"github.com/weirbench/weir/internal/sim"
	"github.com/weirbench/weir/internal/sim/simhttp"
)

// fixedServer serves a simulated engine with fixed times until the test is over.
func fixedServer(t *testing.T, fixed sim.Fixed, faults ...simhttp.Fault) string {
	t.Helper()
	s, err := simhttp.New(simhttp.Options{Model: "m", Fixed: &fixed, Faults: faults})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan struct{})
	go func() { defer close(served); s.Serve(ctx, l) }()
	t.Cleanup(func() { stop(); <-served })
	return "http://" + l.Addr().String()
}

// TestSlowWarmup replays against a server whose every first token takes twice as long as a gap
// between tokens, a silent run and a standing warm-up may: each prompt is explained by its length,
// so the warm-up passes and the run is whole.
func TestSlowWarmup(t *testing.T) {
	material.RealTime(t)
	traces := filepath.Join(t.TempDir(), "traces")
	if code, _, errOut := weir("corpus", "generate", "-o", traces, "--traces", "4", "--seed", "3", "--sub-agents", "-1"); code != exitOK {
		t.Fatal(errOut)
	}
	const ttft, less = 6 * time.Second, "3s"
	out := filepath.Join(t.TempDir(), "b")
	code, text, errOut := weir("replay", "--url", fixedServer(t, sim.Fixed{TTFT: int64(ttft)}), "--model", "m", "--corpus", traces, "-c", "2", "--no-probe", "--no-metrics",
		"--calibrate", "never", "--client-limit", "none", "--max-requests", "2", "--warmup-requests-per-lane", "0", "--max-output", "1", "--burst", "--no-gaps",
		"--system-idle-cap", "100ms", "--idle-cap", "100ms", "--timeout", less, "--stall-after", less, "--warmup-grace", less, "-o", out)
	if code != exitOK {
		t.Fatalf("exit code %d\n%s%s", code, text, errOut)
	}
	b, err := record.OpenBundle(out)
	if err != nil {
		t.Fatal(err)
	}
	primers := 0
	for q, err := range b.Requests() {
		if err != nil {
			t.Fatal(err)
		}
		if q.Failure != nil {
			t.Errorf("request %d: %v", q.Seq, q.Failure)
		}
		if q.Phase == record.Primer && q.Times.FirstToken-q.Times.Sent >= int64(ttft) {
			primers++
		}
	}
	if primers < 2 {
		t.Errorf("%d slow primers", primers)
	}
}

// TestSilentServer sends to a server that answers no request at all: the watchdog ends the run,
// the bundle says what each request waited for, and the result is not valid.
func TestSilentServer(t *testing.T) {
	material.RealTime(t)
	fault, err := simhttp.ParseFault("no-headers")
	if err != nil {
		t.Fatal(err)
	}
	url := fixedServer(t, sim.Fixed{TTFT: 1e6}, fault)
	out := filepath.Join(t.TempDir(), "b")
	code, text, errOut := weir("load", "--url", url, "--model", "m", "--isl", "16", "--osl", "4", "--conversations", "6", "-c", "3", "--no-probe", "--no-metrics",
		"--calibrate", "never", "--client-limit", "none", "--stall-after", "1500ms", "-o", out)
	if code != exitInvalid || !strings.Contains(errOut, "no token from any of 3 requests") {
		t.Errorf("exit code %d\n%s%s", code, text, errOut)
	}
	raw, err := os.ReadFile(filepath.Join(out, "logs", "stall.txt"))
	if err != nil {
		t.Fatal(err)
	}
	if s := string(raw); !strings.Contains(s, "3 requests in flight") || strings.Count(s, "response head") != 3 || !strings.Contains(s, url) || !strings.Contains(s, "goroutine ") {
		t.Errorf("stall.txt: %s", s[:min(len(s), 2000)])
	}
}
