package material

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// SmallDisk mounts a file system that lives in memory and returns its folder; size is as mount takes it, "4m". It
// is gone when the test ends. Only root can.
func SmallDisk(tb testing.TB, size string) string {
	tb.Helper()
	Root(tb)
	dir := tb.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			tb.Error(err)
		}
	})
	return dir
}

// Fill takes all that is left of the disk of a folder with a file in it, and returns its path.
func Fill(tb testing.TB, dir string) string {
	tb.Helper()
	path := filepath.Join(dir, "filler")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o666)
	if err != nil {
		tb.Fatal(err)
	}
	defer f.Close()
	for size := 1 << 20; size > 0; {
		if _, err := f.Write(make([]byte, size)); errors.Is(err, syscall.ENOSPC) {
			size /= 2
		} else if err != nil {
			tb.Fatal(err)
		}
	}
	return path
}
