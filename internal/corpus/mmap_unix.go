//go:build unix

package corpus

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// mapFile maps a whole file for reading.
func mapFile(path string) ([]byte, error) {
	f, err := openRegular(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() == 0 {
		return nil, nil
	}
	if int64(int(info.Size())) != info.Size() {
		return nil, fmt.Errorf("%s: %d bytes are more than this machine can address", path, info.Size())
	}
	data, err := unix.Mmap(int(f.Fd()), 0, int(info.Size()), unix.PROT_READ, unix.MAP_PRIVATE)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return data, nil
}

func unmap(data []byte) {
	if len(data) > 0 {
		_ = unix.Munmap(data)
	}
}

// lockDir waits until no other process holds the directory's lock and takes it. Two processes
// that would compile into one directory do so one behind the other. On a file system without
// locks both go ahead, which costs time and breaks nothing.
func lockDir(dir string) (unlock func(), err error) {
	if info, err := os.Stat(dir); err == nil && !info.IsDir() {
		return nil, fmt.Errorf("%s is %s, not a directory", dir, kindOf(info.Mode()))
	}
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	deadline := time.Now().Add(lockWait)
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err != unix.EWOULDBLOCK && err != unix.EINTR {
			return func() { f.Close() }, nil
		}
		if time.Now().After(deadline) {
			f.Close()
			return nil, fmt.Errorf("%s: another process has been compiling into this directory for %s; end it, or name another directory", dir, lockWait)
		}
		time.Sleep(20 * time.Millisecond)
	}
}
