package layering

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/weirbench/weir/"

// TestLayering reads every Go file of the repository and refuses an import from the same row
// or a row below, an import of material outside tests, and a folder that no row names.
func TestLayering(t *testing.T) {
	root := filepath.Join("..", "..")
	files := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".") && path != root) {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, ".go") {
			return nil
		}
		files++
		rel, _ := filepath.Rel(root, path)
		check(t, filepath.ToSlash(rel), path)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if files < 10 {
		t.Fatalf("read only %d Go files", files)
	}
	entries, err := os.ReadDir(filepath.Join(root, "internal"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.IsDir() && !slices.Contains(Rows, e.Name()) && !slices.Contains(Outside, e.Name()) {
			t.Errorf("internal/%s is in no row: name it in Rows and in docs/architecture.md", e.Name())
		}
	}
}

func check(t *testing.T, rel, path string) {
	f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
	if err != nil {
		t.Errorf("%s: %v", rel, err)
		return
	}
	test := strings.HasSuffix(rel, "_test.go")
	own := row(strings.TrimPrefix(rel, "internal/"))
	for _, im := range f.Imports {
		p, _ := strconv.Unquote(im.Path.Value)
		sub, ok := strings.CutPrefix(p, module+"internal/")
		if !ok {
			continue
		}
		if strings.HasPrefix(rel, "cmd/") {
			if sub != "cli" {
				t.Errorf("%s imports %s: cmd is nothing but wiring and imports cli", rel, p)
			}
			continue
		}
		if sub == "material" {
			if !test {
				t.Errorf("%s imports %s outside a test", rel, p)
			}
			continue
		}
		other := row(sub)
		same := strings.Split(strings.TrimPrefix(rel, "internal/"), "/")[0] == strings.Split(sub, "/")[0]
		if own >= 0 && other >= own && !same {
			t.Errorf("%s imports %s, which is not above it", rel, p)
		}
	}
}

func row(sub string) int { return slices.Index(Rows, strings.Split(sub, "/")[0]) }
