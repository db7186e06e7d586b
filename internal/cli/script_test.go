package cli

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/weirbench/weir/internal/material"
)

// TestMain lets the scripts under testdata/script call this binary as the command weir.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"weir": func() { os.Exit(Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) },
	})
}

// realTime are the scripts that start processes which must do something in time.
var realTime = map[string]bool{"calibrate": true, "containers": true, "gpu": true, "interrupt": true, "launch": true, "shareserver": true, "sweepcancel": true}

// TestScript runs the commands as commands: flags, output and exit codes.
func TestScript(t *testing.T) { runScripts(t, false) }

// TestRealTimeScript does so with the scripts that run on the real clock.
func TestRealTimeScript(t *testing.T) {
	material.RealTime(t)
	runScripts(t, true)
}

func runScripts(t *testing.T, real bool) {
	t.Helper()
	files, err := filepath.Glob("testdata/script/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	files = slices.DeleteFunc(files, func(f string) bool { return realTime[strings.TrimSuffix(filepath.Base(f), ".txtar")] != real })
	testscript.Run(t, testscript.Params{Files: files, Cmds: map[string]func(*testscript.TestScript, bool, []string){
		"exitcode":      exitcode,
		"weir-wait-for": waitFor,
		"whole-bundles": wholeBundles,
		"shared-starts": sharedStarts,
		"engines":       engines,
	}})
}

// exitcode runs a command that must end with a given code: exitcode 2 weir ...
func exitcode(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exitcode CODE COMMAND [ARG...]")
	}
	want := args[0]
	err := ts.Exec(args[1], args[2:]...)
	got := "0"
	if err != nil {
		got = exitStatus(err)
	}
	if got != want {
		ts.Fatalf("%v ended with %s, want %s", args[1:], got, want)
	}
}

// waitFor waits until a file holds a text: weir-wait-for FILE TEXT.
func waitFor(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: weir-wait-for FILE TEXT")
	}
	path := ts.MkAbs(args[0])
	for range 6000 {
		if b, err := os.ReadFile(path); err == nil && strings.Contains(string(b), args[1]) {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	ts.Fatalf("%s does not hold %q after 2 min", args[0], args[1])
}

// wholeBundles checks that every folder of a sweep is a bundle with its end.
func wholeBundles(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: whole-bundles SWEEP")
	}
	entries, err := os.ReadDir(ts.MkAbs(args[0]))
	ts.Check(err)
	n := 0
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		n++
		if _, err := os.Stat(filepath.Join(ts.MkAbs(args[0]), e.Name(), "COMPLETE")); err != nil {
			ts.Fatalf("%s is not whole: %v", e.Name(), err)
		}
	}
	if n == 0 {
		ts.Fatalf("%s holds no bundle", args[0])
	}
}
