package record

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestFindFollowsALink: a folder of bundles may be named by a link.
func TestFindFollowsALink(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"runs/a", "runs/b"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name, PointFile), []byte("{}"), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink("runs", link); err != nil {
		t.Fatal(err)
	}
	got, err := Find(link)
	want := []string{filepath.Join(link, "a"), filepath.Join(link, "b")}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v instead of %v", got, err, want)
	}
}
