package record

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// State says how far a bundle came.
type State string

const (
	Incomplete State = "incomplete" // no end was written: to be resumed or redone
	Complete   State = "complete"
	Failed     State = "failed"
)

// maxLine bounds one record; a request with a million chunks takes about 40 MB.
const maxLine = 256 << 20

// A Bundle is a bundle on disk, opened for reading.
type Bundle struct {
	Dir   string
	State State
	Meta  *Meta
	End   End // zero when State is Incomplete
}

// ErrSchema is returned for a bundle of another layout than this program's.
var ErrSchema = errors.New("schema")

// Status tells how far the bundle in dir came without reading it. A folder without a bundle,
// or no folder, is Incomplete.
func Status(dir string) State {
	if _, err := os.Stat(filepath.Join(dir, CompleteFile)); err == nil {
		return Complete
	}
	if _, err := os.Stat(filepath.Join(dir, FailedFile)); err == nil {
		return Failed
	}
	return Incomplete
}

// OpenBundle reads point.json and the end marker of the bundle in dir. An incomplete bundle
// opens too, as long as it has a point.json; its streams may end in an error.
func OpenBundle(dir string) (*Bundle, error) {
	b := &Bundle{Dir: dir, State: Status(dir)}
	raw, err := os.ReadFile(filepath.Join(dir, PointFile))
	if err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("%s is not a bundle: it has no %s", dir, PointFile)
		}
		return nil, err
	}
	b.Meta = NewMeta()
	b.Meta.Schema = 0 // a file that does not say its own is none of a bundle
	if err := json.Unmarshal(raw, b.Meta); err != nil {
		return nil, jsonError(filepath.Join(dir, PointFile), raw, err)
	}
	if b.Meta.Schema == 0 {
		return nil, fmt.Errorf("%s: it names no schema, so it is no bundle's", filepath.Join(dir, PointFile))
	}
	if b.Meta.Schema != SchemaVersion {
		return nil, fmt.Errorf("%s: %w %d, this program reads %d", filepath.Join(dir, PointFile), ErrSchema, b.Meta.Schema, SchemaVersion)
	}
	if b.State == Incomplete {
		return b, nil
	}
	name := filepath.Join(dir, CompleteFile)
	if b.State == Failed {
		name = filepath.Join(dir, FailedFile)
	}
	raw, err = os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(raw, &b.End); err != nil {
		return nil, jsonError(name, raw, err)
	}
	return b, nil
}

// jsonError adds file and line to an error of encoding/json.
func jsonError(file string, raw []byte, err error) error {
	off := int64(-1)
	var se *json.SyntaxError
	var te *json.UnmarshalTypeError
	switch {
	case errors.As(err, &se):
		off = se.Offset
	case errors.As(err, &te):
		off = te.Offset
	}
	if off < 0 || off > int64(len(raw)) {
		return fmt.Errorf("%s: %w", file, err)
	}
	return fmt.Errorf("%s:%d: %w", file, 1+bytes.Count(raw[:off], []byte("\n")), err)
}

// Requests yields the requests in the order in which they ended. After an error it yields
// nothing more.
func (b *Bundle) Requests() iter.Seq2[*Request, error] {
	return unpacked(filepath.Join(b.Dir, RequestsFile), ReadRequests)
}

// Samples yields the scrapes in the order in which they came. Of a torn file it yields those of
// whole blocks, and then an error. Of a run that was killed it yields also those in no block yet.
func (b *Bundle) Samples() iter.Seq2[*Sample, error] {
	name := filepath.Join(b.Dir, MetricsFile)
	if _, err := os.Stat(name); errors.Is(err, os.ErrNotExist) {
		if old := filepath.Join(b.Dir, OldMetricsFile); isThere(old) {
			return unpacked(old, ReadSamples)
		}
	}
	return func(yield func(*Sample, error) bool) {
		f, err := os.Open(name)
		if err != nil {
			yield(nil, err)
			return
		}
		defer f.Close()
		var open io.Reader
		if o, err := os.Open(filepath.Join(b.Dir, openFile)); err == nil {
			defer o.Close()
			open = bufio.NewReader(o)
		}
		for s, err := range readBlocks(f, name, open) {
			if !yield(s, err) {
				return
			}
		}
	}
}

func isThere(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// ReadRequests reads requests.jsonl without its compression; name stands in errors.
func ReadRequests(r io.Reader, name string) iter.Seq2[*Request, error] {
	var last *Request
	return lines(r, name, func(line []byte) (*Request, error) {
		q := unreported()
		err := decodeRequest(line, q, last)
		last = q
		return q, err
	})
}

// unreported is a request of which nothing was measured.
func unreported() *Request {
	return &Request{
		Times:        Times{Never, Never, Never, Never, Never, Never, Never, Never},
		PromptTokens: Unknown, OutputTokens: Unknown, ReasoningTokens: Unknown,
		Hits: UnknownHits,
	}
}

// ReadSamples reads the metrics.jsonl of an old bundle without its compression and puts differences together again;
// name stands in errors. The Values of a sample are valid until the next one.
func ReadSamples(r io.Reader, name string) iter.Seq2[*Sample, error] {
	return func(yield func(*Sample, error) bool) {
		whole := map[string]map[string]float64{}
		for s, err := range lines(r, name, func(line []byte) (*Sample, error) {
			s := new(Sample)
			return s, json.Unmarshal(line, s)
		}) {
			switch {
			case err != nil:
			case s.Delta && whole[s.Source] == nil:
				s, err = nil, fmt.Errorf("%s: a difference at %d ns to a sample of %s that is not there", name, s.At, s.Source)
			case s.Delta:
				all := whole[s.Source]
				maps.Copy(all, s.Values)
				for _, g := range s.Gone {
					delete(all, g)
				}
				s.Values, s.Delta, s.Gone = all, false, nil
			case s.Error == "" && s.Values != nil:
				whole[s.Source] = s.Values
			}
			if !yield(s, err) {
				return
			}
		}
	}
}

// unpacked reads a compressed file.
func unpacked[T any](path string, read func(io.Reader, string) iter.Seq2[*T, error]) iter.Seq2[*T, error] {
	return func(yield func(*T, error) bool) {
		f, err := os.Open(path)
		if err != nil {
			yield(nil, err)
			return
		}
		defer f.Close()
		zr, err := zstd.NewReader(f, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(8<<20))
		if err != nil {
			yield(nil, fmt.Errorf("%s: %w", path, err))
			return
		}
		defer zr.Close()
		for v, err := range read(zr, path) {
			if !yield(v, err) {
				return
			}
		}
	}
}

func lines[T any](r io.Reader, name string, decode func(line []byte) (*T, error)) iter.Seq2[*T, error] {
	return func(yield func(*T, error) bool) {
		sc := bufio.NewScanner(r)
		sc.Buffer(make([]byte, 0, 64<<10), maxLine)
		for n := 1; sc.Scan(); n++ {
			v, err := decode(sc.Bytes())
			if err != nil {
				yield(nil, fmt.Errorf("%s: line %d: %w", name, n, err))
				return
			}
			if !yield(v, nil) {
				return
			}
		}
		if err := sc.Err(); err != nil {
			yield(nil, fmt.Errorf("%s: %w", name, err))
		}
	}
}

// Verify reads every recorded file again and compares it with the sums in the end marker.
func (b *Bundle) Verify() error {
	if b.State == Incomplete {
		return fmt.Errorf("%s: bundle is incomplete", b.Dir)
	}
	var errs []error
	if b.State == Complete {
		for _, name := range []string{PointFile, RequestsFile, MetricsFile} {
			if !slices.ContainsFunc(b.End.Files, func(f FileSum) bool { return f.Name == name || name == MetricsFile && f.Name == OldMetricsFile }) {
				errs = append(errs, fmt.Errorf("%s: %s has no sum of %s", b.Dir, CompleteFile, name))
			}
		}
	}
	for _, want := range b.End.Files {
		if want.Name != filepath.Base(want.Name) {
			errs = append(errs, fmt.Errorf("%s: %q is not a file of a bundle", b.Dir, want.Name))
			continue
		}
		got, err := sumFile(b.Dir, want.Name)
		if err != nil {
			errs = append(errs, err)
		} else if got != want {
			errs = append(errs, fmt.Errorf("%s: %d bytes with SHA-256 %s, recorded were %d bytes with %s",
				filepath.Join(b.Dir, want.Name), got.Bytes, got.SHA256, want.Bytes, want.SHA256))
		}
	}
	return errors.Join(errs...)
}

func sumFile(dir, name string) (FileSum, error) {
	f, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		return FileSum{}, err
	}
	defer f.Close()
	h := sha256.New()
	n, err := io.Copy(h, f)
	return FileSum{name, n, hex.EncodeToString(h.Sum(nil))}, err
}

// Find lists the bundles under the given folders, in order of path; a folder that is a bundle
// is listed itself. Nothing inside a bundle is searched, and none that was set aside as damaged is listed.
func Find(roots ...string) ([]string, error) {
	var out []string
	for _, root := range roots {
		n := len(out)
		from := root
		if st, err := os.Stat(root); err == nil && st.IsDir() {
			from += string(filepath.Separator) // makes a link to a folder be followed
		}
		err := filepath.WalkDir(from, func(path string, e fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			path = filepath.Clean(path)
			if !e.IsDir() {
				return nil
			}
			if path != filepath.Clean(root) && strings.HasSuffix(path, DamagedSuffix) {
				return fs.SkipDir
			}
			if _, err := os.Stat(filepath.Join(path, PointFile)); err == nil {
				out = append(out, path)
				return fs.SkipDir
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		if len(out) == n {
			return nil, fmt.Errorf("%s: no bundle in it (a bundle is a folder with %s)", root, PointFile)
		}
	}
	return out, nil
}
