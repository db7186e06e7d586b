//go:build !unix

package corpus

import "os"

// mapFile reads a whole file: this system has no mmap that Weir knows.
func mapFile(path string) ([]byte, error) { return os.ReadFile(path) }

func unmap([]byte) {}

// lockDir takes no lock here: two compilers both work, and the later rename stands.
func lockDir(string) (func(), error) { return func() {}, nil }
