//go:build !unix

package corpus

import "io"

// mapFile reads a whole file: this system has no mmap that Weir knows.
func mapFile(path string) ([]byte, error) {
	f, err := openRegular(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(f)
}

func unmap([]byte) {}

// lockDir takes no lock here: two compilers both work, and the later rename stands.
func lockDir(string) (func(), error) { return func() {}, nil }
