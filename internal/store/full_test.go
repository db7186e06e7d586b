package store

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/weirbench/weir/internal/material"
)

// TestFullDisk: a store on a full disk is not taken for a damaged one, and holds what it held once
// there is room again.
func TestFullDisk(t *testing.T) {
	disk := material.SmallDisk(t, "4m")
	path := filepath.Join(disk, "weir.db")
	s, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	first := entry(fmt.Sprintf("%016x", 1), 8, "none")
	if err := s.Put(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	filler := material.Fill(t, disk)
	for n := 2; err == nil && n < 10_000; n++ {
		err = s.Put(t.Context(), entry(fmt.Sprintf("%016x", n), 8, "none"))
	}
	if err == nil || Damaged(err) {
		t.Errorf("putting into a full disk: %v, damaged %v", err, Damaged(err))
	}
	t.Log(err)
	s.Close()
	material.Fill(t, disk)
	if again, err := Open(path); err == nil {
		again.Close()
	} else if t.Log(err); Damaged(err) {
		t.Errorf("taken for damaged: %v", err)
	}
	if _, err := Open(filepath.Join(disk, "other.db")); err == nil || Damaged(err) {
		t.Errorf("made on a full disk: %v, damaged %v", err, Damaged(err))
	} else {
		t.Log(err)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	s, err = Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Get(t.Context(), first.Result.ID); err != nil {
		t.Error(err)
	}
	if err := s.Put(t.Context(), entry(fmt.Sprintf("%016x", 3), 8, "none")); err != nil {
		t.Error(err)
	}
}

// TestDamaged: what is no database, and one of which pages are overwritten.
func TestDamaged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "weir.db")
	if err := os.WriteFile(path, bytes.Repeat([]byte("no database"), 1000), 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path); !Damaged(err) {
		t.Errorf("text: %v", err)
	}
	path = filepath.Join(t.TempDir(), "weir.db")
	s, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Put(t.Context(), entry(fmt.Sprintf("%016x", 1), 8, "none")); err != nil {
		t.Fatal(err)
	}
	s.Close()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := 100; i < len(raw); i++ { // all but the head of the file
		raw[i] = 0xa5
	}
	if err := os.WriteFile(path, raw, 0o666); err != nil {
		t.Fatal(err)
	}
	if s, err = Open(path); err == nil {
		defer s.Close()
		_, err = s.Get(t.Context(), "x")
	}
	if !Damaged(err) {
		t.Errorf("overwritten pages: %v", err)
	}
	for _, err := range []error{nil, os.ErrPermission} {
		if Damaged(err) {
			t.Errorf("%v is taken for damage", err)
		}
	}
}
