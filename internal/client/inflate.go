package client

import (
	"errors"
	"io"
	"iter"

	"github.com/klauspost/compress/gzip"
)

// An inflater undoes gzip as bytes come: feed returns when all that could be decoded of them
// has gone to the sink. It runs the decoder as a coroutine, so that there is no second thread
// and no second clock.
type inflater struct {
	sink bodyTaker
	in   []byte // not decoded yet
	eof  bool
	next func() (struct{}, bool)
	stop func()
	err  error // why the coroutine ended
	done bool
}

type bodyTaker interface{ body([]byte) error }

var errStopped = errors.New("stopped")

func newInflater(sink bodyTaker) *inflater {
	f := &inflater{sink: sink}
	f.next, f.stop = iter.Pull(func(yield func(struct{}) bool) {
		f.err = f.decode(yield)
		f.done = true
	})
	return f
}

// A gzipSource gives the decoder what was fed, and yields when that is used up.
type gzipSource struct {
	f     *inflater
	yield func(struct{}) bool
}

func (s gzipSource) wait() error {
	for len(s.f.in) == 0 {
		if s.f.eof {
			return io.EOF
		}
		if !s.yield(struct{}{}) {
			return errStopped
		}
	}
	return nil
}

func (s gzipSource) Read(p []byte) (int, error) {
	if err := s.wait(); err != nil {
		return 0, err
	}
	n := copy(p, s.f.in)
	s.f.in = s.f.in[n:]
	return n, nil
}

func (s gzipSource) ReadByte() (byte, error) {
	if err := s.wait(); err != nil {
		return 0, err
	}
	c := s.f.in[0]
	s.f.in = s.f.in[1:]
	return c, nil
}

func (f *inflater) decode(yield func(struct{}) bool) error {
	zr, err := gzip.NewReader(gzipSource{f, yield})
	if err != nil {
		return f.fault(err)
	}
	buf := make([]byte, 16<<10)
	for {
		n, err := zr.Read(buf)
		if n > 0 {
			if err := f.sink.body(buf[:n]); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return f.fault(err)
		}
	}
}

// fault names a fault of the compressed bytes; their mere end is errCut.
func (f *inflater) fault(err error) error {
	if errors.Is(err, errStopped) {
		return err
	}
	if f.eof && (errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)) {
		return errCut
	}
	return wireErrorf("the gzip body is broken: %v", err)
}

// feed decodes the next bytes. The sink has got what they hold when it returns.
func (f *inflater) feed(p []byte) error {
	f.in = p
	if !f.done {
		f.next()
	}
	f.in = nil
	return f.err
}

// finish tells that no bytes follow; an error says that the body was not whole.
func (f *inflater) finish() error {
	f.eof = true
	if !f.done {
		f.next()
	}
	return f.err
}

func (f *inflater) close() { f.stop() }
