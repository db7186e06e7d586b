//go:build unix

package corpus

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A pipe that nobody writes to or a device without an end would hang a reader for ever: each is
// refused by name by everything that reads a corpus.
func TestOnlyRegularFilesAreRead(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "good.json", worked)
	pipe := filepath.Join(dir, "pipe.json")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link.json")
	if err := os.Symlink("pipe.json", link); err != nil {
		t.Fatal(err)
	}
	zero := filepath.Join(t.TempDir(), "zero.json")
	if err := os.Symlink("/dev/zero", zero); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "out")
	for _, path := range []string{pipe, link, dir, zero, "/dev/zero"} {
		for what, read := range map[string]func() error{
			"load":    func() error { _, err := Load(path, LoadOptions{}); return err },
			"key":     func() error { _, err := SourceKey(path, LoadOptions{}); return err },
			"compile": func() error { _, err := Compile(path, out, LoadOptions{}); return err },
		} {
			err := read()
			var fe *FormatError
			if !errors.As(err, &fe) || !strings.Contains(fe.Msg, "pipe") && !strings.Contains(fe.Msg, "device") || path != dir && fe.File != path {
				t.Errorf("%s %s: %v", what, path, err)
			}
		}
	}
	c, err := Load(dir, LoadOptions{SkipBroken: true})
	if err != nil || len(c.Traces) != 1 || len(c.Skipped) != 2 {
		t.Errorf("%+v, %v", c, err)
	}
	if _, err := Compile(filepath.Join(dir, "good.json"), pipe, LoadOptions{}); err == nil || !strings.Contains(err.Error(), "pipe.json") {
		t.Errorf("compiled over a pipe: %v", err)
	}
	if _, err := Compile(filepath.Join(dir, "good.json"), filepath.Join(pipe, "out"), LoadOptions{}); err == nil || !strings.Contains(err.Error(), "not a directory") {
		t.Errorf("compiled below a pipe: %v", err)
	}
	// A link to a regular file is one.
	whole := filepath.Join(t.TempDir(), "whole.json")
	if err := os.Symlink(filepath.Join(dir, "good.json"), whole); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(whole, LoadOptions{}); err != nil {
		t.Error(err)
	}
}
