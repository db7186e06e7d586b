package record

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"math"
	"os"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// Names of the files of a bundle.
const (
	PointFile    = "point.json"
	RequestsFile = "requests.jsonl.zst"
	MetricsFile  = "metrics.blocks"
	LogsDir      = "logs"
	ResultFile   = "result.json"
	CompleteFile = "COMPLETE"
	FailedFile   = "FAILED"

	// DamagedSuffix ends the name of a bundle's folder that was whole once and is not any more.
	DamagedSuffix = ".damaged"

	// OldMetricsFile is what bundles had before MetricsFile: compressed JSON lines.
	OldMetricsFile = "metrics.jsonl.zst"
)

// ErrComplete is returned by CreateBundle for a folder that holds a complete bundle.
var ErrComplete = errors.New("bundle is complete already")

// An End is the content of COMPLETE or FAILED: the hashes of what was recorded and, for
// FAILED, why. It is written last, so its presence says that the rest is whole.
type End struct {
	Files  []FileSum `json:"files"`
	Class  string    `json:"class,omitempty"`  // of a failed run: "start", "crash", "client", ...
	Reason string    `json:"reason,omitempty"` // of a failed run, with the lines that matter
}

// FileSum is the size and the SHA-256 of one recorded file.
type FileSum struct {
	Name   string `json:"name"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

// A BundleWriter writes the bundle of one run. Its order is WriteMeta as often as wanted, the
// requests and samples as they come, Seal, then (after the result was derived) Complete or
// Fail. Equal calls give equal bytes on every machine. It is not safe for concurrent use, but
// samples may come from another goroutine than the rest until Seal.
type BundleWriter struct {
	dir      string
	requests *stream
	metrics  *sampleWriter
	sums     []FileSum
	sealed   bool
	room     *Room // for what is recorded, when the disk is full
	endRoom  *Room // for the end
}

// Files that hold room in the folder of a bundle while it is written, and their sizes: buffers of
// the streams, point.json and a result; and FAILED.
const (
	roomFile    = ".room"
	endRoomFile = ".room-end"
	roomSize    = 256 << 10
	endRoomSize = 16 << 10
)

// CreateBundle begins a bundle in dir, which is made when it is absent. What an interrupted or
// failed run left there is removed; a complete bundle is never touched: ErrComplete.
func CreateBundle(dir string) (*BundleWriter, error) {
	if _, err := os.Stat(filepath.Join(dir, CompleteFile)); err == nil {
		return nil, fmt.Errorf("%s: %w", dir, ErrComplete)
	}
	if err := os.MkdirAll(filepath.Join(dir, LogsDir), 0o777); err != nil {
		return nil, err
	}
	for _, name := range []string{FailedFile, ResultFile, PointFile, RequestsFile, MetricsFile, OldMetricsFile, openFile} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
	}
	w := &BundleWriter{dir: dir}
	var err error
	if w.endRoom, err = HoldRoom(filepath.Join(dir, endRoomFile), endRoomSize); err != nil {
		return nil, fmt.Errorf("there is no room for a bundle: %w", err)
	}
	if w.room, err = HoldRoom(filepath.Join(dir, roomFile), roomSize); err != nil {
		w.endRoom.Free()
		return nil, fmt.Errorf("there is no room for a bundle: %w", err)
	}
	if w.requests, err = createStream(filepath.Join(dir, RequestsFile), w.room); err == nil {
		if w.metrics, err = createSamples(filepath.Join(dir, MetricsFile), w.room); err != nil {
			w.requests.abort()
		}
	}
	if err != nil {
		w.freeRoom()
		return nil, err
	}
	return w, nil
}

// Dir is the folder of the bundle.
func (w *BundleWriter) Dir() string { return w.dir }

// WriteMeta writes point.json as a whole; the last call stands.
func (w *BundleWriter) WriteMeta(m *Meta) error {
	if w.sealed {
		return errSealed
	}
	if m.Schema != SchemaVersion {
		return fmt.Errorf("point.json: schema %d, this program writes %d (use NewMeta)", m.Schema, SchemaVersion)
	}
	b, err := marshalIndent(m)
	if err != nil {
		return err
	}
	path := filepath.Join(w.dir, PointFile)
	if err = writeFile(path, b); err != nil && w.room.GiveBack(err) {
		err = writeFile(path, b)
	}
	return err
}

// WriteRequest appends one request to requests.jsonl.zst. An error of a full disk comes once the room
// held for it was given back: the record is kept all the same, but there should be no more of them.
func (w *BundleWriter) WriteRequest(r *Request) error {
	if w.sealed {
		return errSealed
	}
	return w.requests.append(r)
}

// WriteSample adds one scrape to the samples, which are written in blocks of some seconds. Values
// that are not finite are left out: an engine that says NaN says nothing.
func (w *BundleWriter) WriteSample(s *Sample) error {
	if w.sealed {
		return errSealed
	}
	return w.metrics.append(s)
}

// CreateLog opens a file under logs/, such as "engine.log". The caller closes it before Seal.
func (w *BundleWriter) CreateLog(name string) (*os.File, error) {
	if name == "" || name != filepath.Base(name) || strings.HasPrefix(name, ".") {
		return nil, fmt.Errorf("log name %q is not a plain file name", name)
	}
	return os.Create(filepath.Join(w.dir, LogsDir, name))
}

// Seal ends the recording: the streams are closed and fsynced. It needs a point.json.
func (w *BundleWriter) Seal() error {
	if w.sealed {
		return nil
	}
	w.sealed = true
	if err := errors.Join(w.requests.close(), w.metrics.close()); err != nil {
		return err
	}
	b, err := os.ReadFile(filepath.Join(w.dir, PointFile))
	if err != nil {
		return fmt.Errorf("bundle without %s: %w", PointFile, err)
	}
	sum := sha256.Sum256(b)
	w.sums = []FileSum{
		{PointFile, int64(len(b)), hex.EncodeToString(sum[:])},
		w.requests.sum(RequestsFile),
		w.metrics.sum(MetricsFile),
	}
	w.room.Free() // the result and the end are next
	return syncDir(w.dir)
}

// Complete seals the bundle if that has not happened and writes COMPLETE.
func (w *BundleWriter) Complete() error { return w.end(CompleteFile, End{}) }

// Fail seals the bundle if that has not happened and writes FAILED with the class and the
// reason. It works without a point.json and without a result.
func (w *BundleWriter) Fail(class, reason string) error {
	return w.end(FailedFile, End{Class: class, Reason: reason})
}

func (w *BundleWriter) end(name string, e End) error {
	if err := w.Seal(); err != nil && name == CompleteFile {
		return err
	}
	e.Files = w.sums
	if e.Files == nil {
		e.Files = []FileSum{}
	}
	b, err := marshalIndent(e)
	if err != nil {
		return err
	}
	w.room.Free()
	err = writeFile(filepath.Join(w.dir, name), b)
	if err != nil && w.endRoom.GiveBack(err) {
		err = writeFile(filepath.Join(w.dir, name), b)
	}
	w.endRoom.Free()
	return err
}

// FailLeft writes FAILED into a bundle whose writer was killed. What was recorded stays, without sums.
func FailLeft(dir, class, reason string) error {
	b, err := marshalIndent(End{Files: []FileSum{}, Class: class, Reason: reason})
	if err != nil {
		return err
	}
	for _, name := range []string{roomFile, endRoomFile} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return writeFile(filepath.Join(dir, FailedFile), b)
}

func (w *BundleWriter) freeRoom() {
	w.room.Free()
	w.endRoom.Free()
}

// Abandon closes the files and leaves the bundle without an end, to be redone.
func (w *BundleWriter) Abandon() {
	if !w.sealed {
		w.sealed = true
		w.requests.abort()
		w.metrics.abort()
	}
	w.freeRoom()
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

var errSealed = errors.New("bundle is sealed")

// stream is a zstd-compressed file of requests as JSON lines. One goroutine, a fixed level and a fixed
// window make its bytes a function of what was appended.
type stream struct {
	lateFlush
	file *os.File
	room *Room
	hash hash.Hash
	size int64
	zw   *zstd.Encoder
	bw   *bufio.Writer
	line []byte
}

func createStream(path string, room *Room) (*stream, error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	s := &stream{file: f, room: room, hash: sha256.New()}
	s.zw, err = zstd.NewWriter(writerFunc(s.write), zstd.WithEncoderConcurrency(1),
		zstd.WithEncoderLevel(zstd.SpeedDefault), zstd.WithWindowSize(1<<20), zstd.WithZeroFrames(true))
	if err != nil {
		f.Close()
		return nil, err
	}
	s.bw = bufio.NewWriterSize(s.zw, 64<<10)
	return s, nil
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

func (s *stream) write(b []byte) (int, error) {
	n, err := s.room.write(s.file, b)
	s.hash.Write(b[:n])
	s.size += int64(n)
	return n, err
}

func (s *stream) append(q *Request) (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	s.pend()
	if s.line, err = appendRequest(s.line[:0], q); err != nil {
		return err
	}
	_, err = s.bw.Write(s.line)
	return cmp.Or(err, s.room.Full())
}

func (s *stream) close() error {
	s.rest()
	err := errors.Join(s.bw.Flush(), s.zw.Close())
	if err == nil {
		err = s.file.Sync()
	}
	return errors.Join(err, s.file.Close())
}

func (s *stream) abort() {
	s.rest()
	s.zw.Close()
	s.file.Close()
}

func (s *stream) sum(name string) FileSum {
	return FileSum{name, s.size, hex.EncodeToString(s.hash.Sum(nil))}
}

// WriteResult writes result.json of a bundle as a whole.
func WriteResult(dir string, b []byte) error { return writeFile(filepath.Join(dir, ResultFile), b) }

func marshalIndent(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

// writeFile replaces path by b so that a crash leaves the old file or the new one, and
// returns when it is on disk.
func writeFile(path string, b []byte) error {
	tmp := path + ".tmp"
	f, err := os.Create(tmp)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		os.Remove(tmp)
		return err
	}
	if err := os.Rename(tmp, path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	return errors.Join(err, d.Close())
}
