package cli

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/weirbench/weir/internal/record"
)

// TestAIPerfCalibrated: a profile run has its client's bound in the result from the calibration
// that --calibrate makes, or that is kept; one of less than a minute makes none by itself.
func TestAIPerfCalibrated(t *testing.T) {
	weir, err := exec.LookPath("weir")
	if err != nil {
		t.Fatal(err)
	}
	url, dir := simOver(t, false, 1), t.TempDir()
	run := func(name string, flags ...string) (m measured) {
		t.Helper()
		out := filepath.Join(dir, name)
		args := append([]string{"aiperf", "profile", "--model", "m", "--url", url, "--isl", "256", "--osl", "8", "--request-count", "10", "--concurrency", "2",
			"--streaming", "--use-server-token-count", "--no-server-metrics", "--no-gpu-telemetry", "--client-limit", "none", "--output-artifact-dir", out}, flags...)
		cmd := exec.CommandContext(t.Context(), weir, args...)
		cmd.Env = append(os.Environ(), "XDG_CACHE_HOME="+filepath.Join(dir, "cache"))
		if b, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("weir %v: %v\n%s", args, err, b)
		}
		bundles, err := filepath.Glob(filepath.Join(out, "weir-bundle-*"))
		if err != nil || len(bundles) != 1 {
			t.Fatal(bundles, err)
		}
		for name, into := range map[string]any{"point.json": &m.point, "result.json": &m.result} {
			if err := json.Unmarshal(read(t, bundles[0], name), into); err != nil {
				t.Fatal(err)
			}
		}
		return m
	}
	for _, c := range []struct{ name, flag string }{{"short", "auto"}, {"never", "never"}} {
		if m := run(c.name, "--calibrate", c.flag); m.point.Client.TTFT != record.Unknown || m.result.Client.TTFT != nil || m.point.Client.Detail.Calibration != nil {
			t.Errorf("--calibrate %s, nothing kept: %+v", c.flag, m.point.Client)
		}
	}
	made := run("made", "--calibrate", "always")
	cal := made.point.Client.Detail.Calibration
	if cal == nil || cal.Load.Streams != 2 || made.result.Client.TTFT == nil || *made.result.Client.TTFT <= 0 || made.result.Client.ITL == nil {
		t.Fatalf("--calibrate always: %+v, calibration %+v", made.result.Client, cal)
	}
	kept := run("kept")
	if again := kept.point.Client.Detail.Calibration; again == nil || !again.When.Equal(cal.When) || kept.result.Client.TTFT == nil {
		t.Errorf("the kept calibration was not taken: %+v", again)
	}
}
