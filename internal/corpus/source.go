package corpus

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/klauspost/compress/zstd"
)

// A source is a file that is read from its beginning, decompressed if need be.
type source struct {
	name string
	line int // the line that is read next, from 1
	f    *os.File
	r    *bufio.Reader
	size int64 // of the file, a hint
	end  func()
	gone error // why reading ended, io.EOF at the end
}

func openSource(name string) (*source, error) {
	f, err := openRegular(name)
	if err != nil {
		return nil, err
	}
	s := &source{name: name, line: 1, f: f, end: func() {}}
	if info, err := f.Stat(); err == nil {
		s.size = info.Size()
	}
	s.r = bufio.NewReaderSize(f, 64<<10)
	magic, err := s.r.Peek(4)
	switch {
	case err != nil && err != io.EOF:
		f.Close()
		return nil, err
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(s.r)
		if err != nil {
			f.Close()
			return nil, s.broken(err)
		}
		s.r, s.size = bufio.NewReaderSize(z, 64<<10), 0
	case bytes.HasPrefix(magic, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		z, err := zstd.NewReader(s.r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(1<<30))
		if err != nil {
			f.Close()
			return nil, s.broken(err)
		}
		s.end = z.Close
		s.r, s.size = bufio.NewReaderSize(z, 64<<10), 0
	}
	return s, nil
}

func (s *source) close() {
	s.end()
	s.f.Close()
}

// broken is an error of reading with the file's name.
func (s *source) broken(err error) error {
	var fe *FormatError
	var pe *os.PathError
	if errors.As(err, &fe) || errors.As(err, &pe) {
		return err
	}
	return &FormatError{File: s.name, Msg: "can't decompress: " + err.Error()}
}

// head returns the beginning of the content without moving on, and drops a byte order mark.
func (s *source) head() ([]byte, error) {
	if bom, _ := s.r.Peek(3); bytes.Equal(bom, []byte("\xef\xbb\xbf")) {
		s.r.Discard(3)
	}
	head, err := s.r.Peek(s.r.Size())
	if err != nil && err != io.EOF {
		return nil, s.broken(err)
	}
	return head, nil
}

// readLine appends the next line to buf.
func (s *source) readLine(buf []byte) ([]byte, error) {
	if s.line == 1 && s.size > 0 && s.size < 64<<20 {
		buf = slices.Grow(buf, int(s.size))
	}
	for {
		part, err := s.r.ReadSlice('\n')
		buf = append(buf, part...)
		switch {
		case len(buf) > maxBytes:
			return buf, &FormatError{File: s.name, Line: s.line, Col: 1, Msg: fmt.Sprintf("the line is longer than %d bytes", int64(maxBytes))}
		case err == bufio.ErrBufferFull:
			continue
		case err == io.EOF:
			return buf, nil
		case err != nil:
			return buf, s.broken(err)
		}
		s.line++
		return buf, nil
	}
}

// more moves white space to buf and reports whether anything stands behind it.
func (s *source) more(buf *[]byte) bool {
	for {
		b, err := s.r.Peek(1)
		if err != nil {
			return err != io.EOF // an error is met by the next read
		}
		switch b[0] {
		case '\n':
			s.line++
		case ' ', '\t', '\r':
		default:
			return true
		}
		*buf = append(*buf, b[0])
		s.r.Discard(1)
	}
}

// rest appends all that is left to buf.
func (s *source) rest(buf []byte) ([]byte, error) {
	if s.size > 0 && s.size < maxBytes {
		buf = slices.Grow(buf, int(s.size)+512)
	}
	for {
		if len(buf) == cap(buf) {
			buf = slices.Grow(buf, max(len(buf), 64<<10))
		}
		n, err := s.r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		switch {
		case len(buf) > maxBytes:
			return buf, &FormatError{File: s.name, Msg: fmt.Sprintf("holds more than %d bytes", int64(maxBytes))}
		case err == io.EOF:
			return buf, nil
		case err != nil:
			return buf, s.broken(err)
		}
	}
}
