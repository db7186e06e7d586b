package record

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/weirbench/weir/internal/material"
)

// recorded records samples live and reads them while the bundle is open, as after a kill.
func recorded(t interface {
	Fatal(...any)
	Helper()
}, dir string, samples []*Sample) (*BundleWriter, []Sample) {
	t.Helper()
	w, err := CreateBundle(dir)
	if err == nil {
		err = w.Live()
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range samples {
		if err := w.WriteSample(s); err != nil {
			t.Fatal(err)
		}
	}
	var out []Sample
	for s, err := range (&Bundle{Dir: dir}).Samples() {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, copied(s))
	}
	return w, out
}

// TestOpenSamples: samples in no block are read, none twice, up to wherever their file was cut; a
// sealed bundle has them in blocks only and gives the same.
func TestOpenSamples(t *testing.T) {
	samples := some(100) // a block of a minute, and some
	dir := t.TempDir()
	w, all := recorded(t, dir, samples)
	if len(all) != len(samples) {
		t.Fatalf("%d of %d samples", len(all), len(samples))
	}
	blocks, err := os.ReadFile(filepath.Join(dir, MetricsFile))
	if err != nil {
		t.Fatal(err)
	}
	open, err := os.ReadFile(filepath.Join(dir, openFile))
	if err != nil {
		t.Fatal(err)
	}
	inBlocks, err := unpack(blocks)
	if err != nil || len(inBlocks) == 0 || len(inBlocks) == len(all) {
		t.Fatalf("%d samples in blocks, %v", len(inBlocks), err)
	}
	read := func(open []byte) (out []Sample) {
		for s, err := range readBlocks(bytes.NewReader(blocks), "file", bytes.NewReader(open)) {
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, copied(s))
		}
		return out
	}
	last := 0
	for n := 0; n < len(open); n += 37 {
		got := read(open[:n])
		if len(got) < max(last, len(inBlocks)) || !cmp.Equal(got, all[:len(got)]) {
			t.Fatalf("%d of %d bytes: %d samples", n, len(open), len(got))
		}
		last = len(got)
		bad := bytes.Clone(open)
		bad[n]++
		if got := read(bad); !cmp.Equal(got, all[:len(got)]) {
			t.Fatalf("byte %d is wrong: %d samples", n, len(got))
		}
	}
	if got := read(open[:len(open)-1]); len(got) != len(all)-1 {
		t.Errorf("%d samples of all bytes but one, want all but one of %d", len(got), len(all))
	}
	if err := errors.Join(w.WriteMeta(NewMeta()), w.Complete()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, openFile)); !os.IsNotExist(err) {
		t.Errorf("a sealed bundle has %s: %v", openFile, err)
	}
	if err := os.WriteFile(filepath.Join(dir, openFile), open, 0o666); err != nil { // as if it had been killed before
		t.Fatal(err)
	}
	b, err := OpenBundle(dir)
	if err != nil {
		t.Fatal(err)
	}
	var sealed []Sample
	for s, err := range b.Samples() {
		if err != nil {
			t.Fatal(err)
		}
		sealed = append(sealed, copied(s))
	}
	if d := cmp.Diff(all, sealed); d != "" {
		t.Errorf("sealed and open differ (-open +sealed):\n%s", d)
	}
}

// TestOpenIsBounded: the file of samples in no block does not grow beyond its bound and one sample, however
// long the names of new series are, and no sample is lost for it.
func TestOpenIsBounded(t *testing.T) {
	dir := t.TempDir()
	w, err := CreateBundle(dir)
	if err == nil {
		err = w.Live()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abandon()
	const each = 1 << 20
	largest := int64(0)
	for i := range 12 {
		s := &Sample{At: int64(i) * 1e6, Source: "u", Delta: i > 0, Values: map[string]float64{}}
		for k := range 16 {
			s.Values[fmt.Sprintf("x%d_%d_", i, k)+strings.Repeat("y", each/16)] = float64(i)
		}
		if err := w.WriteSample(s); err != nil {
			t.Fatal(err)
		}
		fi, err := os.Stat(filepath.Join(dir, openFile))
		if err != nil {
			t.Fatal(err)
		}
		largest = max(largest, fi.Size())
	}
	if largest > maxOpen+2*each || largest < maxOpen/2 {
		t.Errorf("%s had %d bytes, the bound is %d", openFile, largest, maxOpen)
	}
	n := 0
	for s, err := range (&Bundle{Dir: dir}).Samples() {
		if err != nil {
			t.Fatal(err)
		}
		if n++; len(s.Values) != 16*n {
			t.Errorf("sample %d has %d series, want %d", n, len(s.Values), 16*n)
		}
	}
	if n != 12 {
		t.Errorf("%d samples, want 12", n)
	}
}

// TestLiveRequests: records are in the file without more records and without an end, also those
// that come after a flush; a bundle that is not live keeps them until it is sealed.
func TestLiveRequests(t *testing.T) {
	material.RealTime(t)
	dir := t.TempDir()
	w, err := CreateBundle(dir)
	if err == nil {
		err = errors.Join(w.WriteMeta(NewMeta()), w.Live())
	}
	if err != nil {
		t.Fatal(err)
	}
	count := func() (n int) {
		b, err := OpenBundle(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, err := range b.Requests() {
			if err == nil {
				n++
			}
		}
		return n
	}
	for written := range 4 {
		if err := w.WriteRequest(&Request{Seq: uint64(written + 1), Phase: Profiling}); err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(time.Minute); count() != written+1; time.Sleep(50 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%d of %d records can be read a minute later", count(), written+1)
			}
		}
	}
	if err := w.Complete(); err != nil {
		t.Fatal(err)
	}
	b, err := OpenBundle(dir)
	if err == nil {
		err = b.Verify()
	}
	if n := count(); err != nil || n != 4 {
		t.Errorf("sealed: %d records, %v", n, err)
	}
	if err := w.Live(); err == nil {
		t.Error("a sealed bundle becomes live")
	}
}

// TestFailLeft: a bundle whose writer was killed gets an end and keeps its samples.
func TestFailLeft(t *testing.T) {
	dir := t.TempDir()
	samples := some(10)
	w, _ := recorded(t, dir, samples)
	if err := w.WriteMeta(NewMeta()); err != nil {
		t.Fatal(err)
	}
	if err := FailLeft(dir, "node", "killed"); err != nil { // w is left as it is
		t.Fatal(err)
	}
	b, err := OpenBundle(dir)
	if err == nil {
		err = b.Verify()
	}
	if err != nil || b.State != Failed || b.End.Class != "node" || b.End.Reason != "killed" {
		t.Fatalf("%+v, %v", b, err)
	}
	n := 0
	for _, err := range b.Samples() {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	if n != len(samples) {
		t.Errorf("%d of %d samples", n, len(samples))
	}
	for _, name := range []string{roomFile, endRoomFile} {
		if isThere(filepath.Join(dir, name)) {
			t.Errorf("%s is left", name)
		}
	}
	w.Abandon()
}
