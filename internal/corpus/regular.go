package corpus

import (
	"errors"
	"io/fs"
	"os"
)

// missing is a corpus that is not there; it is an fs.ErrNotExist.
type missing struct{ path string }

func (m *missing) Error() string { return m.path + ": there is no such file or folder" }
func (m *missing) Unwrap() error { return fs.ErrNotExist }

// openRegular opens a file that is a regular one once links are followed. Anything else is
// refused before it is opened: a named pipe would wait for a writer, a device has no end, and
// what is read here is read more than once.
func openRegular(name string) (*os.File, error) {
	info, err := os.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &missing{name}
	}
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, &FormatError{File: name, Msg: "is " + kindOf(info.Mode()) + ": traces are read from regular files; copy them into one"}
	}
	return os.Open(name)
}

func kindOf(m fs.FileMode) string {
	switch {
	case m.IsRegular():
		return "a file"
	case m.IsDir():
		return "a directory"
	case m&fs.ModeNamedPipe != 0:
		return "a pipe"
	case m&fs.ModeSocket != 0:
		return "a socket"
	case m&fs.ModeDevice != 0:
		return "a device"
	}
	return "not a regular file"
}
