package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestBundleForOutput: a bundle goes into a new or an empty folder, or over what a run left that
// did not end well; never over a whole one, and never beside other things.
func TestBundleForOutput(t *testing.T) {
	dir := t.TempDir()
	for name, want := range map[string]string{
		"new":                   "",
		"empty/":                "",
		"broken/point.json":     "",
		"failed/FAILED":         "",
		"whole/COMPLETE":        "holds the bundle of a run",
		"sweep/journal.jsonl":   "holds journal.jsonl and is no bundle",
		"runs/one/point.json":   "holds one and is no bundle",
		"whole2/COMPLETE/":      "holds the bundle of a run",
		"documents/letter.text": "holds letter.text and is no bundle: write -o " + filepath.Join(dir, "documents", "NAME"),
	} {
		folder, inside, _ := strings.Cut(name, "/")
		path := filepath.Join(dir, folder)
		if name != folder {
			if err := os.MkdirAll(filepath.Join(path, filepath.Dir(inside)), 0o777); err != nil {
				t.Fatal(err)
			}
		}
		if inside != "" && !strings.HasSuffix(inside, "/") {
			if err := os.WriteFile(filepath.Join(path, inside), nil, 0o666); err != nil {
				t.Fatal(err)
			}
		} else if inside != "" {
			if err := os.MkdirAll(filepath.Join(path, inside), 0o777); err != nil {
				t.Fatal(err)
			}
		}
		err := bundleForOutput(path)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v instead of %q", name, err, want)
		}
	}
}

func TestFreshFolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run")
	for _, want := range []string{path, path + "-2", path + "-3"} {
		got := freshFolder(path)
		if got != want {
			t.Errorf("%s instead of %s", got, want)
		}
		if err := os.Mkdir(got, 0o777); err != nil {
			t.Fatal(err)
		}
	}
}
