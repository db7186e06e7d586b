package record

import (
	"errors"
	"math/rand/v2"
	"os"
	"sync"
	"syscall"
)

// Room is a file that holds room on a disk, so that a little can still be written when the disk is
// full. It is safe for concurrent use.
type Room struct {
	mu   sync.Mutex
	path string // empty when nothing is held
	full error  // what the disk said for which the room was given back
}

// filler has bytes that no file system packs into less.
var filler = sync.OnceValue(func() []byte {
	b := make([]byte, 64<<10)
	rand.NewChaCha8([32]byte{}).Read(b)
	return b
})

// HoldRoom writes a file of the given size to path. A file that is there is replaced.
func HoldRoom(path string, size int64) (*Room, error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	for left := size; left > 0 && err == nil; left -= int64(len(filler())) {
		_, err = f.Write(filler()[:min(left, int64(len(filler())))])
	}
	if err = errors.Join(err, f.Close()); err != nil {
		os.Remove(path)
		return nil, err
	}
	return &Room{path: path}, nil
}

// NoRoom says whether an error is that of a full disk or quota.
func NoRoom(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }

// GiveBack frees the room for an error of a full disk and keeps the error. It tells whether it did:
// not for another error, and not twice.
func (r *Room) GiveBack(err error) bool {
	if r == nil || !NoRoom(err) {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.full == nil {
		r.full = err
	}
	return r.free()
}

// Full is the error for which the room was given back; nil while there was none.
func (r *Room) Full() error {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.full
}

// Free gives the room back without need.
func (r *Room) Free() {
	if r != nil {
		r.mu.Lock()
		r.free()
		r.mu.Unlock()
	}
}

func (r *Room) free() bool {
	if r.path == "" {
		return false
	}
	err := os.Remove(r.path)
	r.path = ""
	return err == nil
}

// write writes b to f, into the room held when the disk is full.
func (r *Room) write(f *os.File, b []byte) (int, error) {
	n, err := f.Write(b)
	if err != nil && r.GiveBack(err) {
		var m int
		m, err = f.Write(b[n:])
		n += m
	}
	return n, err
}
