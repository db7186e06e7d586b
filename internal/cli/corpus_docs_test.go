package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCorpusGuide runs the commands of the guide, one behind the other in one directory.
func TestCorpusGuide(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "corpus.md"))
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	ran, shell := 0, false
	for _, line := range strings.Split(string(text), "\n") {
		if strings.HasPrefix(line, "```") {
			shell = line == "```sh"
			continue
		}
		args, found := strings.CutPrefix(line, "weir ")
		if !shell || !found {
			continue
		}
		args, _, _ = strings.Cut(args, "#")
		var out, errOut bytes.Buffer
		if code := Main(strings.Fields(args), strings.NewReader(""), &out, &errOut); code != 0 {
			t.Errorf("weir %s ended with %d: %s", args, code, errOut.String())
		}
		if out.Len() == 0 {
			t.Errorf("weir %s prints nothing", args)
		}
		ran++
	}
	if ran < 10 {
		t.Errorf("only %d commands were found", ran)
	}
}
