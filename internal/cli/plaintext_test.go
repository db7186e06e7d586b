package cli

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestPlainMessages: what is wrong with files, numbers and times is said in words, with the
// place or the flag and what is wanted, never as a library says it.
func TestPlainMessages(t *testing.T) {
	dir := t.TempDir()
	traces, none := filepath.Join(dir, "traces"), filepath.Join(dir, "none")
	if code, _, errOut := weir("corpus", "generate", "--traces", "2", "-o", traces); code != exitOK {
		t.Fatal(errOut)
	}
	missing := none + ": there is no such file or folder"
	example := "-f ../../examples/quickstart/master.yaml -r ../../examples/quickstart/runners.yaml "
	for line, want := range map[string]string{
		"report " + none:                          missing,
		"chart hit_total " + none:                 missing,
		"derive " + none:                          missing,
		"results --db " + none:                    missing,
		"compare " + none + " x":                  missing,
		"corpus stats " + none:                    missing,
		"corpus validate " + none:                 missing,
		"knee --corpus " + none:                   missing,
		"sim run --corpus " + none:                missing,
		"serve --db " + none + "/x":               "there is no such file or folder",
		"sim serve --facts " + none:               "no such file",
		"sim serve --fault stall,every=x":         `"x" is not a whole number`,
		"sim serve --fault stall,for=x":           `"x" is not a time such as 90s`,
		"knee --corpus " + traces + " -c 1,x":     `"x" is not a whole number`,
		"knee --corpus " + traces + " -c 0":       "--concurrency [0]: every value is within 1 to",
		"plan " + example + "--conc 1,x":          `"--conc" flag: "x" is not a whole number`,
		"plan " + example + "--conc 0":            "--conc 0: no point of the selection",
		"render " + example + "--conc 0":          "--conc 0: no point of the selection",
		"sweep " + example + "--conc 0":           "--conc 0: no point of the selection",
		"corpus generate -o x --think -4s":        `"--think" flag: want a time such as 90s`,
		"corpus generate -o x --think 9999h":      "think time is 9999h0m0s: want 0s to 720h",
		"corpus generate -o x --traces 0":         `"--traces" flag: want a whole number from 1`,
		"load --url http://127.0.0.1:1 --model m": "--concurrency is 0: --mode closed",
	} {
		code, out, errOut := weir(strings.Fields(line)...)
		if code != exitUsage || !strings.Contains(errOut, want) {
			t.Errorf("weir %s: exit %d, want %q\n%s", line, code, want, errOut)
		}
		for _, raw := range []string{"strconv.", "stat " + none, "time: ", "000000000"} {
			if strings.Contains(errOut+out, raw) {
				t.Errorf("weir %s says %q:\n%s%s", line, raw, out, errOut)
			}
		}
	}
}
