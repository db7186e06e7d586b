package record

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func request(i int) *Request {
	r := &Request{
		Seq: uint64(i + 1), Lane: i % 4, Tree: fmt.Sprintf("%d.0", i%4), Trace: "t1", Stream: "t1", Turn: i,
		Phase: Profiling, Start: "snapshot", WantIn: 100, WantOut: 10,
		Times:        Times{0, 1, 2, 3, 4, Never, 6, 7},
		PromptTokens: 100, OutputTokens: 10, ReasoningTokens: Unknown, Hits: Hits{Device: 64, Host: 0, Storage: 0, Total: 64},
		CeilingTokens: 64,
	}
	if i%5 == 0 {
		r.Failure = &Failure{Class: FailStatus, Status: 500, Detail: "a <b> & c"}
		r.OutputTokens = Unknown
	}
	return r
}

func writeBundle(t *testing.T, dir string, n int) *BundleWriter {
	t.Helper()
	w, err := CreateBundle(dir)
	if err != nil {
		t.Fatal(err)
	}
	m := NewMeta()
	m.PointID = "0123456789ab"
	m.Point = []byte(`{"key":"k"}`)
	if err := w.WriteMeta(m); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		if err := w.WriteRequest(request(i)); err != nil {
			t.Fatal(err)
		}
		if i%10 == 0 {
			s := &Sample{At: int64(i), Source: "sim", Values: map[string]float64{"a": float64(i), "b": math.NaN()}}
			if err := w.WriteSample(s); err != nil {
				t.Fatal(err)
			}
			if len(s.Values) != 2 {
				t.Fatal("WriteSample changed its argument")
			}
		}
	}
	return w
}

// TestRoundTrip writes a bundle and reads the same records from it.
func TestRoundTrip(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "s", "p")
	w := writeBundle(t, dir, 1000)
	if got := Status(dir); got != Incomplete {
		t.Fatalf("before the end: %s", got)
	}
	if err := w.Complete(); err != nil {
		t.Fatal(err)
	}
	b, err := OpenBundle(dir)
	if err != nil {
		t.Fatal(err)
	}
	if b.State != Complete || b.Meta.PointID != "0123456789ab" {
		t.Fatalf("state %s, meta %+v", b.State, b.Meta)
	}
	i := 0
	for r, err := range b.Requests() {
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(request(i), r); d != "" {
			t.Fatalf("request %d: %s", i, d)
		}
		i++
	}
	if i != 1000 {
		t.Fatalf("read %d requests", i)
	}
	n := 0
	for s, err := range b.Samples() {
		if err != nil {
			t.Fatal(err)
		}
		if len(s.Values) != 1 || s.Values["a"] != float64(s.At) {
			t.Fatalf("sample %+v", s)
		}
		n++
	}
	if n != 100 {
		t.Fatalf("read %d samples", n)
	}
	if err := b.Verify(); err != nil {
		t.Fatal(err)
	}
	if _, err := CreateBundle(dir); !errors.Is(err, ErrComplete) {
		t.Fatalf("CreateBundle over a complete bundle: %v", err)
	}
}

// TestDeterministicBytes: equal records give equal files.
func TestDeterministicBytes(t *testing.T) {
	a, b := filepath.Join(t.TempDir(), "a"), filepath.Join(t.TempDir(), "b")
	for _, dir := range []string{a, b} {
		if err := writeBundle(t, dir, 5000).Complete(); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{PointFile, RequestsFile, MetricsFile, CompleteFile} {
		x, err := os.ReadFile(filepath.Join(a, name))
		if err != nil {
			t.Fatal(err)
		}
		y, err := os.ReadFile(filepath.Join(b, name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(x, y) {
			t.Errorf("%s differs", name)
		}
	}
}

// TestInterrupted: a bundle without its end is incomplete, its torn stream is an error and not
// a short list, and CreateBundle starts it afresh.
func TestInterrupted(t *testing.T) {
	dir := t.TempDir()
	w := writeBundle(t, dir, 3000)
	if err := w.Seal(); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, RequestsFile)
	raw, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for _, cut := range []int{len(raw) / 2, len(raw) - 1, 3} {
		if err := os.WriteFile(name, raw[:cut], 0o666); err != nil {
			t.Fatal(err)
		}
		b, err := OpenBundle(dir)
		if err != nil {
			t.Fatal(err)
		}
		if b.State != Incomplete {
			t.Fatalf("state %s", b.State)
		}
		var last error
		for _, err := range b.Requests() {
			last = err
		}
		if last == nil {
			t.Errorf("cut to %d of %d bytes: read without an error", cut, len(raw))
		}
	}
	if err := writeBundle(t, dir, 7).Fail("crash", "engine ended with 1"); err != nil {
		t.Fatal(err)
	}
	b, err := OpenBundle(dir)
	if err != nil {
		t.Fatal(err)
	}
	if b.State != Failed || b.End.Class != "crash" {
		t.Fatalf("%+v", b)
	}
	if err := writeBundle(t, dir, 7).Complete(); err != nil {
		t.Fatal(err)
	}
	if got := Status(dir); got != Complete {
		t.Fatalf("redone: %s", got)
	}
}

// TestVerify finds a changed byte.
func TestVerify(t *testing.T) {
	dir := t.TempDir()
	if err := writeBundle(t, dir, 100).Complete(); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, PointFile)
	raw, _ := os.ReadFile(name)
	if err := os.WriteFile(name, append(raw, ' '), 0o666); err != nil {
		t.Fatal(err)
	}
	b, err := OpenBundle(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Verify(); err == nil || !strings.Contains(err.Error(), PointFile) {
		t.Fatalf("Verify: %v", err)
	}
}

// TestOpenErrors: what is no bundle is refused with file and line.
func TestOpenErrors(t *testing.T) {
	dir := t.TempDir()
	if _, err := OpenBundle(dir); err == nil || !strings.Contains(err.Error(), "is not a bundle") {
		t.Errorf("empty folder: %v", err)
	}
	for text, want := range map[string]string{
		"{\n \"schema\": 1,\n oops": "point.json:3:",
		`{"schema": 99}`:            "schema 99",
		`null`:                      "names no schema",
		`{}`:                        "names no schema",
		`{"schema": "x"}`:           "point.json:1:",
	} {
		if err := os.WriteFile(filepath.Join(dir, PointFile), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenBundle(dir); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
