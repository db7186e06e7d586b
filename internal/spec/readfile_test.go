//go:build linux

package spec

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// What would wait for ever is refused before it is opened; the pipe of a process substitution
// is read to its end, and no further than the limit.
func TestReadFile(t *testing.T) {
	dir := t.TempDir()
	pipe, link, small := filepath.Join(dir, "pipe.yaml"), filepath.Join(dir, "link.yaml"), filepath.Join(dir, "small.yaml")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("pipe.yaml", link); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(small, []byte("12345"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		pipe: "named pipe", link: "named pipe", "/dev/zero": "device", dir: "directory", filepath.Join(dir, "no"): "no such file",
	} {
		if _, err := ReadFile(name, 100); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Load([]string{pipe}, ""); err == nil || !strings.Contains(err.Error(), "pipe.yaml") {
		t.Errorf("a master file that is a pipe: %v", err)
	}
	if b, err := ReadFile(small, 5); err != nil || string(b) != "12345" {
		t.Errorf("%q, %v", b, err)
	}
	if _, err := ReadFile(small, 4); err == nil || !strings.Contains(err.Error(), "more than 4 bytes") {
		t.Errorf("%v", err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := w.WriteString("labels: {}\n"); err != nil {
		t.Fatal(err)
	}
	w.Close()
	if b, err := ReadFile(fmt.Sprintf("/dev/fd/%d", r.Fd()), 100); err != nil || string(b) != "labels: {}\n" {
		t.Errorf("%q, %v", b, err)
	}
}
