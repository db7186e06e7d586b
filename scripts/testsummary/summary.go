package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
)

// realTimeMark is material.RealTimeMark, which only tests may import.
const realTimeMark = "this test runs on the real clock, beside whatever else this machine does"

// An event is a line of `go test -json` (go doc test2json, Go 1.26).
type event struct {
	Action, Package, Test, Output string
}

// A key names a test, or with an empty test its package.
type key struct{ pkg, test string }

// top is the test that a test belongs to.
func (k key) top() key {
	k.test, _, _ = strings.Cut(k.test, "/")
	return k
}

// A log is what one `go test` said.
type log struct {
	plain    []string // lines that are no events: errors of the build
	packages []string // those that passed
	output   map[key][]string
	passed   map[key]bool
	failed   []key // in the order of their ends: subtests, tests, packages
	skipped  []key
	realTime map[key]bool    // tests that declared it
	orderly  map[key]bool    // tests that ended as failed, and packages all of whose tests have run
	broken   map[string]bool // packages in which more than a test went wrong
}

func newLog() *log {
	return &log{output: map[key][]string{}, passed: map[key]bool{}, realTime: map[key]bool{}, orderly: map[key]bool{}, broken: map[string]bool{}}
}

func (l *log) read(r io.Reader) error {
	sc := bufio.NewScanner(r)
	sc.Buffer(nil, 64<<20)
	for sc.Scan() {
		var e event
		if json.Unmarshal(sc.Bytes(), &e) != nil {
			l.plain = append(l.plain, sc.Text())
			continue
		}
		l.add(e)
	}
	return sc.Err()
}

func (l *log) add(e event) {
	k := key{e.Package, e.Test}
	switch e.Action {
	case "output", "build-output":
		l.output[k] = append(l.output[k], e.Output)
		if strings.HasSuffix(strings.TrimSpace(e.Output), realTimeMark) && k == k.top() {
			l.realTime[k] = true
		}
		if e.Output == "FAIL\n" && k.test == "" || strings.HasPrefix(e.Output, "--- FAIL: "+k.test+" (") {
			l.orderly[k] = true
		}
		// These end a whole process, or concern more than the test that was running.
		for _, s := range []string{"panic: ", "fatal error: ", "WARNING: DATA RACE"} {
			if strings.HasPrefix(e.Output, s) {
				l.broken[e.Package] = true
			}
		}
	case "pass":
		if e.Test == "" {
			l.packages = append(l.packages, e.Package)
		} else {
			l.passed[k] = true
		}
		delete(l.output, k)
	case "skip":
		if e.Test != "" {
			l.skipped = append(l.skipped, k)
		}
	case "fail":
		l.failed = append(l.failed, k)
	}
}

// nextGo lists, by package, the tests that may run again after a go: all that failed in it, where
// each of them has declared to run on the real clock, nothing but tests failed, and no test was
// left out because the process ended before.
func nextGo(first *log) []string {
	var order []string
	tests := map[string][]string{}
	refused := map[string]bool{}
	for _, k := range first.failed {
		if k.test == "" {
			continue
		}
		if !slices.Contains(order, k.pkg) {
			order = append(order, k.pkg)
		}
		k = k.top()
		if !first.realTime[k] || !first.orderly[k] || !first.orderly[key{k.pkg, ""}] || first.broken[k.pkg] {
			refused[k.pkg] = true
		} else if !slices.Contains(tests[k.pkg], k.test) {
			tests[k.pkg] = append(tests[k.pkg], k.test)
		}
	}
	var out []string
	for _, pkg := range order {
		if !refused[pkg] {
			out = append(out, fmt.Sprintf("%s ^(%s)$", pkg, strings.Join(tests[pkg], "|")))
		}
	}
	return out
}

// A verdict is what a run and its second go amount to.
type verdict struct {
	passed   int
	failed   []key // tests, subtests among them, and packages
	unsteady []key // tests that failed and then passed
	skipped  []key
	mute     int // what the first run ended with where nothing says why, else 0
}

// judge compares a run, which ended with the status, with the further goes of what nextGo has
// listed after each. A test that was skipped or did not run in any of them has not passed.
func judge(status int, first *log, later ...*log) verdict {
	v := verdict{passed: len(first.passed), skipped: first.skipped}
	listed := map[string]bool{}
	for _, line := range nextGo(first) {
		pkg, _, _ := strings.Cut(line, " ")
		listed[pkg] = true
	}
	passed := func(k key) bool {
		return slices.ContainsFunc(later, func(l *log) bool { return l.passed[k.top()] })
	}
	steadied := map[string]bool{} // packages of which nothing but unsteady tests failed
	for pkg := range listed {
		steadied[pkg] = !slices.ContainsFunc(first.failed, func(k key) bool {
			return k.pkg == pkg && k.test != "" && !passed(k)
		})
	}
	for _, k := range first.failed {
		switch {
		case k.test == "" && steadied[k.pkg]:
		case k.test != "" && listed[k.pkg] && passed(k):
			if k == k.top() {
				v.unsteady = append(v.unsteady, k)
				v.passed++
			}
		default:
			v.failed = append(v.failed, k)
		}
	}
	if status != 0 && len(first.failed) == 0 {
		v.mute = status
	}
	return v
}

func (v verdict) good(ci bool) bool {
	return len(v.failed) == 0 && v.mute == 0 && v.passed > 0 && !(ci && len(v.skipped) > 0)
}

// text is the report: the closing line counts tests.
func (v verdict) text(first *log, later ...*log) string {
	var b strings.Builder
	for _, l := range slices.Concat([]*log{first}, later) {
		for _, line := range l.plain {
			fmt.Fprintln(&b, line)
		}
	}
	for _, p := range first.packages {
		fmt.Fprintln(&b, "ok  ", p)
	}
	tests := 0
	for _, k := range v.failed {
		if k.test != "" {
			tests++
		}
		fmt.Fprintf(&b, "FAIL %s %s\n%s", k.pkg, k.test, strings.Join(first.output[k], ""))
		for _, l := range later {
			for _, f := range l.failed { // a top test with its parts, which end before it
				if f.pkg == k.pkg && f.test != "" && f.top() == k {
					fmt.Fprintf(&b, "and when run again:\n%s", strings.Join(l.output[f], ""))
				}
			}
		}
	}
	for _, k := range v.unsteady {
		fmt.Fprintf(&b, "\n*** unsteady: failed, and passed when run again: %s %s\n", k.pkg, k.test)
		for _, l := range slices.Concat([]*log{first}, later) {
			for _, f := range l.failed { // its subtests ended before it
				if f.test == "" || f.top() != k {
					continue
				}
				for line := range strings.Lines(strings.Join(l.output[f], "")) {
					b.WriteString("    | " + strings.Replace(line, "--- FAIL:", "--- failed:", 1))
				}
			}
		}
	}
	if len(v.skipped) > 0 {
		fmt.Fprintln(&b, "skipped:")
		for _, k := range v.skipped {
			fmt.Fprintf(&b, "  %s %s: %s\n", k.pkg, k.test, strings.TrimSpace(strings.Join(first.output[k], " ")))
		}
	}
	if v.mute != 0 {
		fmt.Fprintf(&b, "go test ended with %d and no test says why\n", v.mute)
	}
	fmt.Fprintf(&b, "%d passed, %d failed, %d skipped", v.passed, tests, len(v.skipped))
	if n := len(v.unsteady); n > 0 {
		fmt.Fprintf(&b, ", %d unsteady", n)
	}
	return b.String() + "\n"
}
