package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestAIPerfFlagsAreKnown goes through every flag of 'aiperf profile': it is acted on, noted as
// without effect with a reason, or refused with one; never unknown, and with as many values as
// AIPerf takes.
func TestAIPerfFlagsAreKnown(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join("testdata", "aiperf-flags.txt"))
	if err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for line := range strings.Lines(string(raw)) {
		f := strings.Fields(line)
		if f[0] == "#" {
			continue
		}
		name, takes := f[0], f[1]
		full := name
		if n, ok := aiperfAlias[name]; ok {
			full = n
		}
		flag, ok := aiperfFlags[full]
		if !ok {
			t.Errorf("%s is unknown", name)
			continue
		}
		if (takes == "none") != (flag.kind == noValue) || takes == "many" && flag.kind == oneValue && flag.use != inert && full != "--model" {
			t.Errorf("%s takes %s in AIPerf, kind %d here", name, takes, flag.kind)
		}
		args := []string{name}
		if takes != "none" {
			args = append(args, "1")
		}
		a, err := parseAIPerf(args)
		switch flag.use {
		case closed:
			count["refused"]++
			if err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), flag.why) || flag.why == "" {
				t.Errorf("%s: %v", name, err)
			}
		case inert:
			count["without effect"]++
			if err != nil || len(a.notes) != 1 || !strings.Contains(a.notes[0], name) || flag.why == "" || len(a.values) != 0 {
				t.Errorf("%s: notes %v, %v", name, a, err)
			}
		case acted, forload:
			count["acted on"]++
			if err != nil || len(a.notes) != 0 || len(a.values[full]) != 1 || flag.use == forload && flag.why == "" {
				t.Errorf("%s: %v, %v", name, a, err)
			}
		}
		// One letter less is an error that names a flag.
		if near := name[:len(name)-1]; strings.HasPrefix(near, "--") && len(near) > 8 {
			if _, known := aiperfFlags[near]; !known && aiperfAlias[near] == "" {
				if _, err := parseAIPerf([]string{near}); err == nil || !strings.Contains(err.Error(), "did you mean --") {
					t.Errorf("%s: %v", near, err)
				}
			}
		}
	}
	t.Log(count)
	for alias, full := range aiperfAlias {
		if _, ok := aiperfFlags[full]; !ok {
			t.Errorf("%s stands for %s, which is unknown", alias, full)
		}
	}
}

// TestAIPerfHelp: the help has a line for every flag that is known, with its use and its names.
func TestAIPerfHelp(t *testing.T) {
	code, out, errOut := weir("aiperf", "profile", "--help")
	if code != exitOK {
		t.Fatal(errOut)
	}
	lines := map[string]string{}
	for _, l := range strings.Split(out, "\n") {
		for _, use := range []string{"acted on", "load", "accepted", "refused"} {
			if rest, ok := strings.CutPrefix(l, "  "+use+" "); ok {
				for _, n := range strings.Fields(strings.ReplaceAll(rest, ",", "")) {
					lines[n] = use
				}
			}
		}
	}
	for name := range aiperfFlags {
		if lines[name] == "" {
			t.Errorf("%s is not listed", name)
		}
	}
	for alias, name := range aiperfAlias {
		if lines[alias] != lines[name] {
			t.Errorf("%s is listed as %q, %s as %q", alias, lines[alias], name, lines[name])
		}
	}
	for name, use := range map[string]string{"--concurrency": "acted on", "--isl": "load", "--no-gpu-telemetry": "acted on", "--ui": "accepted", "--goodput": "acted on", "--accuracy-tasks": "refused", "-m": "acted on"} {
		if lines[name] != use {
			t.Errorf("%s is listed as %q, want %q", name, lines[name], use)
		}
	}
}
