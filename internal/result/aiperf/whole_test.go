package aiperf

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// TestNoTornFile: a file that could not be written to its end is taken away, one that could stays, and what
// is no file is left alone.
func TestNoTornFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "profile_export.jsonl")
	if err := os.WriteFile(path, []byte(`{"metadata":`), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := whole(path, nil); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Errorf("a whole file is gone: %v", err)
	}
	full := &os.PathError{Op: "write", Path: path, Err: syscall.ENOSPC}
	if err := whole(path, full); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("said %v", err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the torn file stands: %v", err)
	}
	if err := whole(path, full); !errors.Is(err, syscall.ENOSPC) || errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a file: %v", err)
	}
	if err := whole(filepath.Dir(path), full); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("a folder: %v", err)
	}
	if _, err := os.Stat(filepath.Dir(path)); err != nil {
		t.Error(err)
	}
}
