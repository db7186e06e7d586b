package cli

import (
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/weirbench/weir/internal/material"
)

// The full sweep from cold start: the program is started, reads both master files, checks every
// rule and prints 1,820 rows. Reports the largest resident memory and how many times faster it is
// than InferenceX's generator, which needs 0.8 s without its validation (2026-08).
func BenchmarkFullSweepColdStart(b *testing.B) {
	bin := filepath.Join(b.TempDir(), "weir")
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", bin, "../../cmd/weir")
	build.Env = append(build.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	args := []string{"matrix", "full-sweep", "--config-files", material.Path(b, "inferencex", "nvidia-master.yaml"),
		material.Path(b, "inferencex", "amd-master.yaml"), "--runner-config", material.Path(b, "inferencex", "runners.yaml")}
	var peak int64
	for b.Loop() {
		cmd := exec.Command(bin, args...) // output goes to the null device
		if err := cmd.Run(); err != nil {
			b.Fatal(err)
		}
		if ru, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
			peak = max(peak, ru.Maxrss)
		}
	}
	b.ReportMetric(float64(peak)/1024, "peak-MiB")
	b.ReportMetric(0.8/(b.Elapsed().Seconds()/float64(b.N)), "x-generator")
}
