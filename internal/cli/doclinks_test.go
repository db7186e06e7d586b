package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// mdLink is a link of Markdown.
var mdLink = regexp.MustCompile(`\]\(([^)#\s]+)(#[^)]*)?\)`)

// TestDocsAreLinked: every guide can be reached from both
// READMEs and every measurement from their list.
func TestDocsAreLinked(t *testing.T) {
	root := filepath.Join("..", "..")
	linked := map[string]map[string]bool{}
	var pages []string
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/measured/*.md"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, found...)
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		linked[page] = map[string]bool{}
		for _, m := range mdLink.FindAllStringSubmatch(string(text), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			linked[page][filepath.Join(filepath.Dir(page), m[1])] = true
		}
	}
	for _, page := range pages {
		var lists []string
		switch dir := filepath.Dir(page); {
		case filepath.Base(page) == "README.md":
		case dir == filepath.Join(root, "docs"):
			lists = []string{filepath.Join(root, "README.md"), filepath.Join(root, "README_zh.md")}
		case dir == filepath.Join(root, "docs", "measured"):
			lists = []string{filepath.Join(dir, "README.md")}
		}
		for _, list := range lists {
			if !linked[list][page] {
				t.Errorf("%s has no link to %s", list, page)
			}
		}
	}
	if len(pages) < 10 {
		t.Errorf("only %d pages found", len(pages))
	}
}
