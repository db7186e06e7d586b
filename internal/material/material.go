// Package material finds the data that lies beside the repository and is used by tests and
// benchmarks through its path: recorded traces and InferenceX files. It is no part of the
// program; only tests import it.
package material

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// Path returns the path of a file or folder of the material, such as "traces/weka". The
// folder is the one that WEIR_SHARED names, or "shared" beside the repository. Where it is
// absent the test is skipped with the reason, which `make test` lists and CI refuses.
func Path(tb testing.TB, elem ...string) string {
	tb.Helper()
	root := os.Getenv("WEIR_SHARED")
	if root == "" {
		_, file, _, _ := runtime.Caller(0)
		root = filepath.Join(filepath.Dir(file), "..", "..", "..", "shared")
	}
	p := filepath.Join(append([]string{root}, elem...)...)
	if _, err := os.Stat(p); err != nil {
		tb.Skipf("material %s is absent: set WEIR_SHARED to the folder that holds it", filepath.Join(elem...))
	}
	return p
}

// Slow skips a test that takes minutes where the tests run with -short; the complete run, and CI,
// have it.
func Slow(tb testing.TB) {
	tb.Helper()
	if testing.Short() {
		tb.Skip("slow, and -short is set")
	}
}

// RealTimeMark is the line that RealTime logs. scripts/testsummary looks for it.
const RealTimeMark = "this test runs on the real clock, beside whatever else this machine does"

// RealTime declares, at the head of a test that is no subtest, that it compares real time with
// what it expects, or drives real processes, so that a machine which stops it for a second may
// fail it. scripts/test runs such a test, and no other, again where it failed, twice at most, and says so.
func RealTime(tb testing.TB) {
	tb.Helper()
	if strings.Contains(tb.Name(), "/") {
		tb.Fatal("RealTime is for a test to declare, not for a part of it")
	}
	tb.Log(RealTimeMark)
}

// Root skips a test that only root can run.
func Root(tb testing.TB) {
	tb.Helper()
	if os.Geteuid() != 0 {
		tb.Skip("only root can run this")
	}
}

// Tool returns the path of a program that a test needs, from PATH or from the places that the
// patterns name. Where it is absent the test is skipped with the reason; scripts/apt-packages
// names the package that holds it.
func Tool(tb testing.TB, name string, places ...string) string {
	tb.Helper()
	if p, err := exec.LookPath(name); err == nil {
		return p
	}
	for _, pattern := range places {
		if found, _ := filepath.Glob(pattern); len(found) > 0 {
			return found[len(found)-1]
		}
	}
	tb.Skipf("program %s is not installed (see scripts/apt-packages)", name)
	return ""
}
