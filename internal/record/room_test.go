package record

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/weirbench/weir/internal/material"
)

// TestFullDisk: when the disk fills up under a bundle, the writer says so, and the bundle ends with FAILED, its
// sums, and every request and sample that was taken.
func TestFullDisk(t *testing.T) {
	for _, live := range []bool{false, true} {
		t.Run(fmt.Sprintf("live=%v", live), func(t *testing.T) {
			disk := material.SmallDisk(t, "4m")
			dir := filepath.Join(disk, "b")
			w, err := CreateBundle(dir)
			if err == nil {
				err = w.WriteMeta(NewMeta())
			}
			if err == nil && live {
				err = w.Live()
			}
			if err != nil {
				t.Fatal(err)
			}
			filler := material.Fill(t, disk)
			requests, samples := 0, 0
			full := error(nil)
			for i := 0; full == nil; i++ {
				if i == 1_000_000 {
					t.Fatal("no error of a full disk came")
				}
				q := &Request{Seq: uint64(i + 1), Phase: Profiling, Trace: fmt.Sprintf("%x", i*i*7919)}
				full = w.WriteRequest(q)
				requests++
				if i%100 == 0 {
					full = errors.Join(full, w.WriteSample(&Sample{At: int64(i) * 1e7, Source: "u", Values: map[string]float64{"a": float64(i)}}))
					samples++
				}
			}
			if !NoRoom(full) {
				t.Fatal(full)
			}
			if err := w.Fail("node", full.Error()); err != nil {
				t.Fatalf("there was no room to say why it failed: %v", err)
			}
			b, err := OpenBundle(dir)
			if err != nil {
				t.Fatal(err)
			}
			if err := b.Verify(); err != nil || b.State != Failed || len(b.End.Files) != 3 || !strings.Contains(b.End.Reason, "no space left") {
				t.Errorf("%+v, %v", b.End, err)
			}
			gotRequests, gotSamples := 0, 0
			for _, err := range b.Requests() {
				if err != nil {
					t.Fatal(err)
				}
				gotRequests++
			}
			for _, err := range b.Samples() {
				if err != nil {
					t.Fatal(err)
				}
				gotSamples++
			}
			if gotRequests != requests || gotSamples != samples {
				t.Errorf("%d of %d requests, %d of %d samples", gotRequests, requests, gotSamples, samples)
			}
			files, err := os.ReadDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			if i := slices.IndexFunc(files, func(e os.DirEntry) bool {
				return strings.HasPrefix(e.Name(), ".") || strings.HasSuffix(e.Name(), ".tmp")
			}); i >= 0 {
				t.Errorf("%s is left", files[i].Name())
			}
			material.Fill(t, disk)
			if _, err := CreateBundle(filepath.Join(disk, "c")); err == nil || !strings.Contains(err.Error(), "no room for a bundle") {
				t.Errorf("a bundle on a full disk: %v", err)
			}
			if err := os.Remove(filler); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestFullForGood: where even the room that was held is gone, what was written before stays, and FAILED too.
func TestFullForGood(t *testing.T) {
	disk := material.SmallDisk(t, "4m")
	dir := filepath.Join(disk, "b")
	w, err := CreateBundle(dir)
	if err == nil {
		err = errors.Join(w.WriteMeta(NewMeta()), w.Live())
	}
	if err != nil {
		t.Fatal(err)
	}
	const samples = 20
	for i := range samples {
		if err := w.WriteSample(&Sample{At: int64(i) * 1e9, Source: "u", Values: map[string]float64{"a": float64(i)}}); err != nil {
			t.Fatal(err)
		}
	}
	w.room.Free()
	material.Fill(t, disk) // as a log beside it would
	if err := w.Fail("node", "no space left on device"); err != nil {
		t.Fatal(err)
	}
	b, err := OpenBundle(dir)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, err := range b.Samples() {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	if b.State != Failed || n != samples {
		t.Errorf("%s with %d of %d samples", b.State, n, samples)
	}
}

func TestRoom(t *testing.T) {
	path := filepath.Join(t.TempDir(), "room")
	r, err := HoldRoom(path, 100_000)
	if err != nil {
		t.Fatal(err)
	}
	if fi, err := os.Stat(path); err != nil || fi.Size() != 100_000 {
		t.Fatalf("%v, %v", fi, err)
	}
	if r.GiveBack(nil) || r.GiveBack(os.ErrPermission) || r.Full() != nil {
		t.Error("given back without a full disk")
	}
	full := &os.PathError{Op: "write", Path: "x", Err: syscall.ENOSPC}
	if !r.GiveBack(full) || r.Full() != full || r.GiveBack(full) {
		t.Error("not given back once")
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	r.Free()
	var none *Room
	none.Free()
	if none.GiveBack(full) || none.Full() != nil {
		t.Error("a room that is not there was given back")
	}
}
