package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/weirbench/weir/internal/material"
)

func TestMark(t *testing.T) {
	if realTimeMark != material.RealTimeMark {
		t.Errorf("looks for %q, material logs %q", realTimeMark, material.RealTimeMark)
	}
}

// say makes a log of what tests of package p did: "A pass", "A fail", "A fail real" (declared),
// "A/x fail" (its part), "A died real" (the process ended under it), "A skip", "p ok", "p FAIL",
// "p killed"; any other line is output of the package.
func say(t *testing.T, lines ...string) *log {
	t.Helper()
	l := newLog()
	text := &strings.Builder{}
	put := func(e event) {
		raw, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		text.Write(append(raw, '\n'))
	}
	for _, line := range lines {
		f := strings.Fields(line)
		if len(f) > 2 && f[2] == "real" {
			put(event{"output", "p", f[0], "    a_test.go:1: " + material.RealTimeMark + "\n"})
		}
		switch {
		case line == "p ok":
			put(event{"pass", "p", "", ""})
		case line == "p FAIL":
			put(event{"output", "p", "", "FAIL\n"})
			put(event{"fail", "p", "", ""})
		case line == "p killed":
			put(event{"output", "p", "", "signal: killed\n"})
			put(event{"fail", "p", "", ""})
		case len(f) > 1 && f[1] == "fail":
			put(event{"output", "p", f[0], "    a_test.go:2: too late\n"})
			put(event{"output", "p", f[0], "--- FAIL: " + f[0] + " (0.10s)\n"})
			put(event{"fail", "p", f[0], ""})
		case len(f) > 1 && f[1] == "died":
			put(event{"fail", "p", f[0], ""})
		case len(f) > 1 && (f[1] == "pass" || f[1] == "skip"):
			put(event{f[1], "p", f[0], ""})
		default:
			put(event{"output", "p", "", line + "\n"})
		}
	}
	if err := l.read(strings.NewReader(text.String())); err != nil {
		t.Fatal(err)
	}
	return l
}

func TestNextGo(t *testing.T) {
	for _, c := range []struct {
		name          string
		first, second []string
		again         string
		passed        int
		failed        []string // "" is the package
		unsteady      []string
	}{
		{"all pass", []string{"A pass", "B pass", "p ok"}, nil, "", 2, nil, nil},
		{"one passes again", []string{"A fail real", "B pass", "p FAIL"}, []string{"A pass real", "p ok"}, "p ^(A)$", 2, nil, []string{"A"}},
		{"fails twice", []string{"A fail real", "B pass", "p FAIL"}, []string{"A fail real", "p FAIL"}, "p ^(A)$", 1, []string{"A", ""}, nil},
		{"one of two", []string{"A fail real", "B fail real", "C pass", "p FAIL"}, []string{"A pass", "B fail real", "p FAIL"}, "p ^(A|B)$", 2, []string{"B", ""}, []string{"A"}},
		{"undeclared", []string{"A fail", "p FAIL"}, []string{"A pass", "p ok"}, "", 0, []string{"A", ""}, nil},
		{"one undeclared", []string{"A fail real", "B fail", "p FAIL"}, []string{"A pass", "B pass", "p ok"}, "", 0, []string{"A", "B", ""}, nil},
		{"a part of it", []string{"A/x fail", "A/y pass", "A fail real", "p FAIL"}, []string{"A/x pass", "A pass", "p ok"}, "p ^(A)$", 2, nil, []string{"A"}},
		{"the part declares", []string{"A/x fail real", "A fail", "p FAIL"}, []string{"A pass"}, "", 0, []string{"A/x", "A", ""}, nil},
		{"skipped the second time", []string{"A fail real", "p FAIL"}, []string{"A skip", "p ok"}, "p ^(A)$", 0, []string{"A", ""}, nil},
		{"not run the second time", []string{"A fail real", "p FAIL"}, []string{"p ok"}, "p ^(A)$", 0, []string{"A", ""}, nil},
		{"panic", []string{"A fail real", "panic: boom", "p FAIL"}, []string{"A pass"}, "", 0, []string{"A", ""}, nil},
		{"race", []string{"A fail real", "WARNING: DATA RACE", "p FAIL"}, []string{"A pass"}, "", 0, []string{"A", ""}, nil},
		{"killed under it", []string{"A died real", "p killed"}, []string{"A pass"}, "", 0, []string{"A", ""}, nil},
		{"killed after it", []string{"A fail real", "p killed"}, []string{"A pass"}, "", 0, []string{"A", ""}, nil},
		{"package alone", []string{"B pass", "p FAIL"}, nil, "", 1, []string{""}, nil},
	} {
		first, second := say(t, c.first...), say(t, c.second...)
		if got := strings.Join(nextGo(first), "\n"); got != c.again {
			t.Errorf("%s: runs again %q, want %q", c.name, got, c.again)
		}
		status := 0
		if len(first.failed) > 0 {
			status = 1
		}
		v := judge(status, first, second)
		var failed, unsteady []string
		for _, k := range v.failed {
			failed = append(failed, k.test)
		}
		for _, k := range v.unsteady {
			unsteady = append(unsteady, k.test)
		}
		if v.passed != c.passed || !slices.Equal(failed, c.failed) || !slices.Equal(unsteady, c.unsteady) {
			t.Errorf("%s: %d passed, failed %q, unsteady %q; want %d, %q, %q", c.name, v.passed, failed, unsteady, c.passed, c.failed, c.unsteady)
		}
		if good := v.good(true); good != (len(c.failed) == 0) {
			t.Errorf("%s: good is %t", c.name, good)
		}
	}
}

func TestVerdict(t *testing.T) {
	skipped := judge(0, say(t, "A pass", "B skip", "p ok"))
	if skipped.good(true) || !skipped.good(false) {
		t.Error("a skipped test must fail CI alone")
	}
	if judge(0, newLog()).good(false) {
		t.Error("a run without tests is good")
	}
	mute := judge(2, say(t, "A pass", "p ok"))
	if mute.good(false) || !strings.Contains(mute.text(newLog()), "ended with 2") {
		t.Error("a run that failed without a failed test is good")
	}
	first, second := say(t, "A/x fail", "A fail real", "B fail real", "p FAIL"), say(t, "A pass", "B/y fail", "B fail real", "p FAIL")
	text := judge(1, first, second).text(first, second)
	for _, want := range []string{"unsteady: failed, and passed when run again: p A\n    |     a_test.go:2: too late\n    | --- failed: A/x",
		"FAIL p B\n", "and when run again:\n    a_test.go:2: too late\n--- FAIL: B/y", "1 passed, 1 failed, 0 skipped, 1 unsteady\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("the report lacks %q:\n%s", want, text)
		}
	}
	if again := nextGo(second); !slices.Equal(again, []string{"p ^(B)$"}) {
		t.Errorf("runs again after the second go: %q", again)
	}
	third := say(t, "B pass", "p ok")
	v := judge(1, first, second, third)
	if text := v.text(first, second, third); !v.good(true) || !strings.HasSuffix(text, "2 passed, 0 failed, 0 skipped, 2 unsteady\n") || !strings.Contains(text, "    | --- failed: B/y") {
		t.Errorf("what passes in its third go:\n%s", text)
	}
}

// TestRealLog takes what go test itself prints of a module with tests of each kind.
func TestRealLog(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module m\n\ngo 1.26\n",
		"a/a_test.go": `package a
import ("os"; "testing")
func TestOnce(t *testing.T) {
	t.Log("` + material.RealTimeMark + `")
	t.Run("part", func(t *testing.T) {
		if _, err := os.Stat("been"); err != nil { os.WriteFile("been", nil, 0o600); t.Fatal("first time") }
	})
}
func TestGood(t *testing.T) {}
`,
		"b/b_test.go": "package b\nimport \"testing\"\nfunc TestDies(t *testing.T) { t.Log(\"" + material.RealTimeMark + "\"); panic(1) }\n",
		"c/c_test.go": "package c\nimport (\"os\"; \"testing\")\nfunc TestExits(t *testing.T) { t.Log(\"" + material.RealTimeMark + "\"); os.Exit(3) }\n",
		"d/d_test.go": "package d\nfunc broken\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	run := func(args ...string) *log {
		cmd := exec.Command("go", append([]string{"test", "-count", "1", "-json"}, args...)...)
		cmd.Dir = dir
		out, _ := cmd.Output() // fails, as it should
		l := newLog()
		if err := l.read(strings.NewReader(string(out))); err != nil {
			t.Fatal(err)
		}
		return l
	}
	first := run("./...")
	if again := nextGo(first); !slices.Equal(again, []string{"m/a ^(TestOnce)$"}) {
		t.Fatalf("runs again %q\n%v", again, first.output)
	}
	second := run("-run", "^(TestOnce)$", "m/a")
	v := judge(1, first, second)
	if len(v.unsteady) != 1 || v.unsteady[0] != (key{"m/a", "TestOnce"}) || v.passed != 2 || v.good(false) {
		t.Errorf("verdict %+v", v)
	}
	var packages []string
	for _, k := range v.failed {
		if k.test == "" {
			packages = append(packages, k.pkg)
		}
	}
	if slices.Sort(packages); !slices.Equal(packages, []string{"m/b", "m/c", "m/d"}) {
		t.Errorf("failed packages %q\n%s", packages, v.text(first, second))
	}
}
