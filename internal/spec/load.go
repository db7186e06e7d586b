package spec

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

const (
	// fileLimit is the size of a file that is still read, in bytes.
	fileLimit = 16 << 20
	// markLimit bounds what a file can unfold to before it is parsed: it counts the bytes that
	// can begin a value.
	markLimit = 1_000_000
)

// A Set is the content of master files and runners.yaml after all rules passed.
type Set struct {
	Files    []string // masters, then runners, as they were named
	Warnings Problems // what is accepted and has no effect

	configs []*config // in the order of the files
	byKey   map[string]*config
	runners *runners
}

// Keys are the names of the configs in the order of the files.
func (s *Set) Keys() []string {
	out := make([]string, len(s.configs))
	for i, c := range s.configs {
		out[i] = c.key
	}
	return out
}

// Load reads master files and runners.yaml and checks every rule. The error is Problems: all
// violations of all files, in file order. Without runners ("") no runner is checked, and a config
// that needs a budget of host memory has budget 0.
func Load(masters []string, runnersFile string) (*Set, error) {
	files := append([]string{}, masters...)
	if runnersFile != "" {
		files = append(files, runnersFile)
	}
	data := make([][]byte, len(files))
	var problems Problems
	for i, f := range files {
		b, err := readFile(f)
		if err != nil {
			problems = append(problems, Problem{At: Pos{File: f}, What: err.Error(), Fix: "name a file that can be read"})
		}
		data[i] = b
	}
	if len(problems) > 0 {
		return nil, problems
	}
	return parseSet(files, data, runnersFile != "")
}

// readFile reads a file up to the limit; what is longer comes back one byte longer than it.
func readFile(name string) ([]byte, error) {
	return readUpTo(name, fileLimit+1)
}

// ReadFile reads a configuration file of at most limit bytes. It takes a regular file, or the
// pipe of a process substitution, which has to end within a minute; a named pipe, a socket or a
// device is refused before it is opened.
func ReadFile(name string, limit int64) ([]byte, error) {
	b, err := readUpTo(name, limit+1)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s %w", name, err)
	case int64(len(b)) > limit:
		return nil, fmt.Errorf("%s has more than %d bytes, the most that is read of such a file", name, limit)
	}
	return b, nil
}

// pipeDeadline is how long a pipe may take to end.
const pipeDeadline = time.Minute

// readable refuses what would wait for ever or never end. A pipe without a name in the file
// system, which a shell passes as /dev/fd/N, ends with its writer.
func readable(name string) error {
	info, err := os.Stat(name)
	if err != nil {
		return err
	}
	switch m := info.Mode(); {
	case m&fs.ModeNamedPipe != 0:
		if _, err := filepath.EvalSymlinks(name); err == nil {
			return errors.New("it is a named pipe; name a regular file")
		}
	case m&fs.ModeSocket != 0:
		return errors.New("it is a socket; name a regular file")
	case m&fs.ModeDevice != 0:
		return errors.New("it is a device; name a regular file")
	}
	return nil
}

func readUpTo(name string, n int64) ([]byte, error) {
	err := readable(name)
	var f *os.File
	if err == nil {
		f, err = os.Open(name)
	}
	if err != nil {
		var pe *os.PathError
		if errors.As(err, &pe) {
			err = pe.Err
		}
		return nil, fmt.Errorf("cannot be read: %w", err)
	}
	defer f.Close()
	_ = f.SetReadDeadline(time.Now().Add(pipeDeadline)) // a regular file knows none and needs none
	b, err := io.ReadAll(io.LimitReader(f, n))
	if err != nil {
		return nil, fmt.Errorf("cannot be read: %w", err)
	}
	return b, nil
}

// parseSet parses files that are in memory; the last one is runners.yaml if hasRunners.
func parseSet(files []string, data [][]byte, hasRunners bool) (*Set, error) {
	s := &Set{Files: files, byKey: map[string]*config{}}
	var problems Problems
	masters := files
	if hasRunners {
		masters = files[:len(files)-1]
		src := &source{file: files[len(files)-1]}
		if top := src.parse(data[len(files)-1]); top != nil {
			s.runners = readRunners(top)
		}
		problems = append(problems, src.problems...)
		s.Warnings = append(s.Warnings, src.warnings...)
	}
	for i, f := range masters {
		src := &source{file: f}
		if top := src.parse(data[i]); top != nil {
			s.addMaster(top)
		}
		problems = append(problems, src.problems...)
		s.Warnings = append(s.Warnings, src.warnings...)
	}
	s.Warnings.sorted(files)
	if len(problems) > 0 {
		return nil, problems.sorted(files)
	}
	return s, nil
}

// addMaster reads the configs of one master file.
func (s *Set) addMaster(top *node) {
	for _, p := range top.object(nil).pairs {
		switch first := s.byKey[p.key]; {
		case strings.ContainsAny(p.key, "*?["):
			p.failAt(p.keyPos(), "the name of a config has a wildcard", "remove *, ? and [ from the name")
		case first != nil && first.at.File != p.src.file:
			p.failAt(p.keyPos(), "the config is also in "+first.at.String(), "rename or remove one")
			continue
		}
		c := readConfig(p, s.runners)
		c.at = p.keyPos()
		s.configs = append(s.configs, c)
		s.byKey[p.key] = c
	}
}

var yamlLine = regexp.MustCompile(`^line (\d+): `)

// parse parses one YAML document and returns its top node, or nil with a problem reported.
func (s *source) parse(data []byte) *node {
	fail := func(line int, what, fix string) *node {
		at := Pos{File: s.file, Line: line}
		if line > 0 {
			at.Col = 1
		}
		s.problems = append(s.problems, Problem{At: at, What: what, Fix: fix})
		return nil
	}
	if len(data) > fileLimit {
		return fail(0, fmt.Sprintf("the file has more than %d MiB", fileLimit>>20), "split it")
	}
	marks := 0
	for _, c := range data {
		switch c {
		case ',', ':', '[', '{', '-', '\n':
			marks++
		}
	}
	if marks > 4*markLimit {
		return fail(0, fmt.Sprintf("the file can hold more than %d values", 4*markLimit), "split it")
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc yaml.Node
	if err := decode(dec, &doc); err != nil {
		if errors.Is(err, io.EOF) {
			return fail(0, "the file is empty", "add a config")
		}
		msg, line := syntaxError(err)
		if len(data) <= 1<<20 {
			line = faultLine(data, msg)
		}
		return fail(line, "is not YAML: "+msg, "correct the syntax")
	}
	var more yaml.Node
	if err := decode(dec, &more); err == nil {
		return fail(more.Line, "a second document begins", "keep one document a file")
	}
	if len(doc.Content) == 0 {
		return fail(0, "the file is empty", "add a config")
	}
	top := s.node(doc.Content[0], nil, "", 0)
	if top.y.Kind != yamlMapping && top.y.Kind != yamlSequence {
		top.fail("the file holds "+top.text()+", but must hold a mapping", "write 'name: ...' lines")
		return nil
	}
	return top
}

// syntaxError splits a message of the parser into text and line. The line is that of the
// surrounding value, and counts from 0 or 1 by the kind of error.
func syntaxError(err error) (msg string, line int) {
	msg = strings.TrimPrefix(err.Error(), "yaml: ")
	if m := yamlLine.FindStringSubmatch(msg); m != nil {
		line, _ = strconv.Atoi(m[1])
		msg = msg[len(m[0]):]
	}
	return msg, line
}

// faultLine finds the line of a syntax error: the first one with which the parser stops for the
// same reason.
func faultLine(data []byte, msg string) int {
	lines := bytes.SplitAfter(data, []byte("\n"))
	n := sort.Search(len(lines), func(i int) bool {
		var y yaml.Node
		err := decode(yaml.NewDecoder(bytes.NewReader(bytes.Join(lines[:i+1], nil))), &y)
		if err == nil {
			return false
		}
		m, _ := syntaxError(err)
		return m == msg
	})
	return min(n+1, len(lines))
}

// decode keeps a failure of the parser on hostile bytes an error.
func decode(dec *yaml.Decoder, out *yaml.Node) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the parser gave up: %v", r)
		}
	}()
	return dec.Decode(out)
}
