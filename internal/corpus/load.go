package corpus

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
)

// LoadOptions say how to read a corpus.
type LoadOptions struct {
	// SkipBroken leaves traces out that can't be read, instead of failing. They are listed in
	// Corpus.Skipped.
	SkipBroken bool
	// Workers is how many traces are read at once; 0 takes one a CPU.
	Workers int
	// BlockSize is the number of tokens in a block for forms that don't record it; 0 takes the
	// form's own: 512 for Mooncake, 16 for Bailian, 64 for text.
	BlockSize int64
}

// maxBytes bounds one file, or one line of a file with a trace a line, after decompression,
// so that a small archive can't fill memory.
const maxBytes = 2 << 30

// extensions are the names of files that a directory is searched for; .gz and .zst may follow.
var extensions = []string{".json", ".jsonl", ".ndjson", ".csv"}

// Load reads a corpus: a compiled file, a file in any known form, or all files of a directory
// and its subdirectories in order of their names. The form is found out from the content.
//
// A fault in a file is a *FormatError. It ends the load, unless SkipBroken is set; a corpus
// without a single trace is an error all the same.
func Load(path string, opt LoadOptions) (*Corpus, error) {
	files, err := list(path)
	if err != nil {
		return nil, err
	}
	if len(files) == 1 && files[0] == path && isCompiled(path) {
		return loadCompiled(path)
	}
	return loadFiles(path, files, opt)
}

// allBroken is the error of a corpus that holds traces and none that can be read.
type allBroken struct {
	path   string
	faults []error
}

func (e *allBroken) Error() string {
	return fmt.Sprintf("%s: all %d traces are broken; the first: %v", e.path, len(e.faults), e.faults[0])
}

func (e *allBroken) Unwrap() error { return e.faults[0] }

func loadFiles(path string, files []string, opt LoadOptions) (*Corpus, error) {
	workers := opt.Workers
	if workers <= 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	l := &loader{opt: &opt, parsing: make(chan struct{}, workers)}
	out := make([]fileItems, len(files))
	reading := make(chan struct{}, workers)
	for i := range files {
		out[i].name = files[i]
		reading <- struct{}{}
		l.all.Go(func() {
			defer func() { <-reading }()
			l.file(files[i], &out[i])
		})
	}
	l.all.Wait()

	c := &Corpus{Name: path}
	var digests [][]byte
	first := map[string]string{}
	notes := notebook{}
	for i := range out {
		for _, it := range out[i].list {
			notes.add(it, files[i])
			for j, t := range it.traces {
				if other, ok := first[t.ID]; ok {
					it.faults = append(it.faults, &FormatError{File: files[i], Line: it.line, Col: 1, Field: "id",
						Msg: fmt.Sprintf("trace %q is also in %s: each trace needs its own id", t.ID, other)})
					continue
				}
				first[t.ID] = files[i]
				c.Traces = append(c.Traces, t)
				digests = append(digests, it.digests[j])
			}
			for _, err := range it.faults {
				if !opt.SkipBroken {
					return nil, err
				}
				c.Skipped = append(c.Skipped, err)
			}
		}
	}
	c.Notes = notes.lines()
	if len(c.Traces) == 0 {
		if len(c.Skipped) > 0 {
			return nil, &allBroken{path, c.Skipped}
		}
		return nil, fmt.Errorf("%s: no trace in it", path)
	}
	c.Fingerprint = fingerprint(digests)
	return c, nil
}

// list names the files to read.
func list(path string) ([]string, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &missing{path}
	}
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	var files []string
	// The separator makes a link to a directory be followed.
	root := path + string(filepath.Separator)
	err = filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case p != root && strings.HasPrefix(d.Name(), "."):
			if d.IsDir() {
				return filepath.SkipDir
			}
			return nil
		case d.IsDir() || !IsTraceFile(d.Name()):
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

// IsTraceFile reports whether a file is one by its name: .json, .jsonl, .ndjson or .csv, each
// also as .gz or .zst.
func IsTraceFile(name string) bool {
	name = strings.TrimSuffix(strings.TrimSuffix(strings.ToLower(name), ".gz"), ".zst")
	return slices.Contains(extensions, filepath.Ext(name))
}

// An item is what one file gave, or one line of a file with a trace a line.
type item struct {
	file    string
	line    int // where it began
	traces  []*Trace
	digests [][]byte // of the traces
	faults  []error
	unknown []string
	notes   []string
	named   map[string]bool // ids that were given, in forms that repeat theirs
}

func (it *item) fail(err error) { it.faults = append(it.faults, err) }

// add appends a finished trace, if it keeps the promises of the types.
func (it *item) add(t *Trace) {
	if err := t.check(); err != nil {
		it.fail(&FormatError{File: it.file, Line: it.line, Col: 1, Msg: err.Error()})
		return
	}
	it.traces = append(it.traces, t)
	it.digests = append(it.digests, digest(t))
}

// fileItems are the items of a file in their order.
type fileItems struct {
	name string
	mu   sync.Mutex
	list []*item
}

func (f *fileItems) next(line int) *item {
	it := &item{file: f.name, line: line}
	f.mu.Lock()
	f.list = append(f.list, it)
	f.mu.Unlock()
	return it
}

// A loader reads files side by side.
type loader struct {
	opt     *LoadOptions
	all     sync.WaitGroup
	parsing chan struct{} // bounds what is parsed at once
	buffers sync.Pool
}

func (l *loader) buffer() *[]byte {
	if b, ok := l.buffers.Get().(*[]byte); ok {
		*b = (*b)[:0]
		return b
	}
	return new([]byte)
}

// file reads one file. Weka traces that stand a line each are parsed side by side.
func (l *loader) file(name string, out *fileItems) {
	src, err := openSource(name)
	if err != nil {
		out.next(0).fail(err)
		return
	}
	defer src.close()
	head, err := src.head()
	if err != nil {
		out.next(0).fail(err)
		return
	}
	format, keys := sniff(head)
	buf := l.buffer()
	if format == Weka && firstByte(head) == '{' {
		if done := l.lines(src, buf, out); done {
			return
		}
	}
	it := out.next(1)
	*buf, err = src.rest(*buf)
	if err != nil {
		it.fail(err)
		return
	}
	l.parsing <- struct{}{}
	defer func() { <-l.parsing; l.buffers.Put(buf) }()
	s := newScanner(*buf, name)
	if format == UnknownFormat {
		it.fail(unknownForm(s, keys))
		return
	}
	readers[format](it, s, l.opt)
}

func firstByte(b []byte) byte {
	s := scanner{buf: b}
	return s.peek()
}

// lines reads a file that has a trace a line. It reports false, with what it has read in buf,
// when the first line is no whole trace and the file is to be read as one.
func (l *loader) lines(src *source, buf *[]byte, out *fileItems) bool {
	for first := true; ; first = false {
		line := src.line
		var err error
		*buf, err = src.readLine(*buf)
		if err != nil {
			out.next(line).fail(err)
			return true
		}
		last := !src.more(buf)
		if first && !last && !isWhole(*buf) {
			return false
		}
		l.parse(src.name, line, buf, out.next(line))
		if last {
			return true
		}
		buf = l.buffer()
	}
}

// parse parses one trace in the background.
func (l *loader) parse(name string, line int, buf *[]byte, it *item) {
	l.parsing <- struct{}{}
	l.all.Go(func() {
		defer func() { <-l.parsing; l.buffers.Put(buf) }()
		s := newScanner(bytes.TrimRight(*buf, " \t\r\n"), name)
		s.line0 = line - 1
		readWekaObjects(it, s, l.opt)
	})
}

// isWhole reports whether a line holds one whole JSON value.
func isWhole(line []byte) bool {
	s := newScanner(line, "")
	s.skip()
	s.end()
	return s.err == nil
}

// readWekaObjects reads Weka traces: one, several behind each other, or an array of them.
func readWekaObjects(it *item, s *scanner, _ *LoadOptions) {
	one := func() {
		rec, err := readWeka(s)
		if rec != nil {
			it.unknown = append(it.unknown, rec.unknown...)
		}
		if err == nil {
			err = rec.check(s)
		}
		var t *Trace
		if err == nil {
			t, err = rec.build()
		}
		if err != nil {
			it.fail(err)
			return
		}
		it.add(t)
	}
	if s.peek() == '[' {
		s.array(func(int) { one() })
		if s.err == nil {
			s.end()
		}
		if s.err != nil && len(it.faults) == 0 {
			it.fail(s.err)
		}
		return
	}
	for {
		one()
		if s.err != nil || s.peek() == 0 && s.pos >= len(s.buf) {
			return
		}
	}
}

// A notebook collects what is to be said once over all files.
type notebook map[string]note

type note struct {
	count int
	first string
}

func (n notebook) add(it *item, file string) {
	for _, u := range it.unknown {
		n.count("unknown field "+u+" kept and not used", file)
	}
	for _, text := range it.notes {
		n.count(text, file)
	}
}

func (n notebook) count(text, file string) {
	e := n[text]
	if e.count == 0 {
		e.first = file
	}
	e.count++
	n[text] = e
}

func (n notebook) lines() []string {
	var out []string
	for text, e := range n {
		if e.count > 1 {
			text += fmt.Sprintf(" (%d traces, first in %s)", e.count, e.first)
		} else {
			text += fmt.Sprintf(" (in %s)", e.first)
		}
		out = append(out, text)
	}
	slices.Sort(out)
	return out
}
