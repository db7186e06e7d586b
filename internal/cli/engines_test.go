package cli

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// engines waits until so many simulated engines run that were started in this script's folder:
// engines N.
func engines(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: engines N")
	}
	count := func() string {
		n := 0
		dirs, _ := filepath.Glob("/proc/[0-9]*")
		for _, d := range dirs {
			env, err := os.ReadFile(filepath.Join(d, "environ"))
			cmd, _ := os.ReadFile(filepath.Join(d, "cmdline"))
			if err == nil && bytes.Contains(env, []byte("WORK="+ts.Getenv("WORK")+"\x00")) && bytes.Contains(cmd, []byte("sim\x00serve\x00")) && !bytes.HasPrefix(cmd, []byte("env\x00")) {
				n++
			}
		}
		return fmt.Sprint(n)
	}
	got := count()
	for end := time.Now().Add(2 * time.Minute); got != args[0] && time.Now().Before(end); got = count() {
		time.Sleep(50 * time.Millisecond)
	}
	if got != args[0] {
		ts.Fatalf("%s simulated engines run, want %s", got, args[0])
	}
}
