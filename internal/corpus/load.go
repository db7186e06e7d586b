package corpus

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// LoadOptions say how to read a corpus.
type LoadOptions struct {
	// SkipBroken leaves traces out that can't be read, instead of failing. They are listed in
	// Corpus.Skipped.
	SkipBroken bool
	// Workers is how many files are read at once; 0 takes one a CPU.
	Workers int
}

// maxFileBytes bounds one file after decompression, so that a small archive can't fill memory.
const maxFileBytes = 2 << 30

// extensions are the names of files that a directory is searched for; .gz and .zst may follow.
var extensions = []string{".json", ".jsonl", ".ndjson", ".csv"}

// Load reads a corpus: a file, or all files of a directory and its subdirectories in order of
// their names. The form of a file is found out from its content.
//
// A fault in a file is a *FormatError. It ends the load, unless SkipBroken is set; a corpus
// without a single trace is an error all the same.
func Load(path string, opt LoadOptions) (*Corpus, error) {
	files, err := list(path)
	if err != nil {
		return nil, err
	}
	workers := opt.Workers
	if workers <= 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	workers = min(workers, len(files))

	out := make([]part, len(files))
	next := make(chan int)
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			var buf []byte
			for i := range next {
				buf = out[i].read(files[i], buf)
			}
		})
	}
	for i := range files {
		next <- i
	}
	close(next)
	wg.Wait()

	c := &Corpus{Name: path}
	var digests [][]byte
	first := map[string]string{}
	notes := notebook{}
	for i := range out {
		notes.add(out[i].unknown, files[i])
		for j, t := range out[i].traces {
			if other, ok := first[t.ID]; ok {
				out[i].faults = append(out[i].faults, &FormatError{File: files[i], Field: "id",
					Msg: fmt.Sprintf("trace %q is also in %s: each trace needs its own id", t.ID, other)})
				continue
			}
			first[t.ID] = files[i]
			c.Traces = append(c.Traces, t)
			digests = append(digests, out[i].digests[j])
		}
		for _, err := range out[i].faults {
			if !opt.SkipBroken {
				return nil, err
			}
			c.Skipped = append(c.Skipped, err)
		}
	}
	c.Notes = notes.lines()
	if len(c.Traces) == 0 {
		if len(c.Skipped) > 0 {
			return nil, fmt.Errorf("%s: all %d traces are broken; the first: %w", path, len(c.Skipped), c.Skipped[0])
		}
		return nil, fmt.Errorf("%s: no trace in it", path)
	}
	c.Fingerprint = fingerprint(digests)
	return c, nil
}

// list names the files to read.
func list(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	var files []string
	err = filepath.WalkDir(path, func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case p != path && strings.HasPrefix(d.Name(), "."):
			if d.IsDir() {
				return filepath.SkipDir
			}
			return nil
		case d.IsDir() || !isTraceName(d.Name()):
			return nil
		}
		if info, err := os.Stat(p); err != nil || info.IsDir() {
			return err
		}
		files = append(files, p)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s: no traces in this directory: want files named *%s, each also as .gz or .zst",
			path, strings.Join(extensions, ", *"))
	}
	slices.Sort(files)
	return files, nil
}

func isTraceName(name string) bool {
	name = strings.TrimSuffix(strings.TrimSuffix(strings.ToLower(name), ".gz"), ".zst")
	return slices.Contains(extensions, filepath.Ext(name))
}

// A part is what one file gave.
type part struct {
	traces  []*Trace
	digests [][]byte // of the traces
	faults  []error
	unknown []string
}

// read reads a file; buf is memory to use again, and what is returned is it or its successor.
func (p *part) read(file string, buf []byte) []byte {
	buf, err := slurp(file, buf[:0])
	if err != nil {
		p.faults = append(p.faults, err)
		return buf
	}
	p.parse(file, buf)
	for _, t := range p.traces {
		p.digests = append(p.digests, digest(t))
	}
	return buf
}

// slurp appends the content of a file, decompressed, to buf.
func slurp(file string, buf []byte) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return buf, err
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() < maxFileBytes {
		buf = slices.Grow(buf, int(info.Size())+1)
	}
	buf, err = readAll(f, buf, file)
	if err != nil {
		return buf, err
	}
	var r io.Reader
	switch {
	case bytes.HasPrefix(buf, []byte{0x1f, 0x8b}):
		r, err = gzip.NewReader(bytes.NewReader(buf))
	case bytes.HasPrefix(buf, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		var d *zstd.Decoder
		d, err = zstd.NewReader(bytes.NewReader(buf), zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(1<<30))
		if err == nil {
			defer d.Close()
			r = d
		}
	default:
		return buf, nil
	}
	if err == nil {
		var plain []byte
		plain, err = readAll(r, nil, file)
		if err == nil {
			return plain, nil
		}
	}
	var fe *FormatError
	if errors.As(err, &fe) {
		return buf, err
	}
	return buf, &FormatError{File: file, Msg: "can't decompress: " + err.Error()}
}

func readAll(r io.Reader, buf []byte, file string) ([]byte, error) {
	for {
		if len(buf) == cap(buf) {
			buf = slices.Grow(buf, max(len(buf), 64<<10))
		}
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if len(buf) > maxFileBytes {
			return buf, &FormatError{File: file, Msg: fmt.Sprintf("holds more than %d bytes", int64(maxFileBytes))}
		}
		if err == io.EOF {
			return buf, nil
		}
		if err != nil {
			return buf, err
		}
	}
}

// parse recognises the form of a file and reads it.
func (p *part) parse(file string, buf []byte) {
	buf = bytes.TrimPrefix(buf, []byte("\xef\xbb\xbf"))
	s := newScanner(buf, file)
	if s.peek() == 0 && s.pos == len(buf) {
		p.faults = append(p.faults, &FormatError{File: file, Msg: "the file is empty"})
		return
	}
	for n := 0; s.pos < len(buf); n++ {
		t, unknown, err := readOneWeka(s)
		p.unknown = append(p.unknown, unknown...)
		if err != nil {
			p.faults = append(p.faults, err)
			if !nextLine(s) {
				return
			}
			continue
		}
		p.traces = append(p.traces, t)
		s.peek()
	}
}

func readOneWeka(s *scanner) (*Trace, []string, error) {
	rec, err := readWeka(s)
	if err != nil {
		return nil, nil, err
	}
	if err := rec.check(s); err != nil {
		return nil, rec.unknown, err
	}
	t, err := rec.build()
	return t, rec.unknown, err
}

// nextLine moves a scanner behind a fault to the next line, if the file has one trace a line.
func nextLine(s *scanner) bool {
	i := bytes.IndexByte(s.buf[s.pos:], '\n')
	if i < 0 {
		return false
	}
	s.pos += i + 1
	s.err, s.path = nil, nil
	return s.peek() == '{'
}

// A notebook collects what is to be said once over all files.
type notebook map[string]note

type note struct {
	count int
	first string
}

func (n notebook) add(unknown []string, file string) {
	for _, u := range unknown {
		e := n[u]
		if e.count == 0 {
			e.first = file
		}
		e.count++
		n[u] = e
	}
}

func (n notebook) lines() []string {
	var out []string
	for field, e := range n {
		out = append(out, fmt.Sprintf("unknown field %s passed over in %d traces, first in %s", field, e.count, e.first))
	}
	slices.Sort(out)
	return out
}
