package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weirbench/weir/internal/result"
	"github.com/weirbench/weir/internal/spec"
)

func entry(id string, conc int, offload string) Entry {
	v := 1.5
	return Entry{Sweep: "s1", Bundle: "/b/" + id, Result: &result.Result{
		Definitions: result.Definitions, ID: id, PointID: "p" + id, Valid: true, Reasons: []result.Finding{}, Warnings: []result.Finding{},
		Point:      spec.Point{Key: "k", Model: "o/m", Runner: "b200", Framework: "sglang", Precision: "fp8", Conc: conc, Offload: spec.Offload{Mode: offload}},
		Throughput: result.Throughput{Edge: result.Flow{Total: &v}},
	}}
}

func open(t *testing.T, path string) *Store {
	t.Helper()
	s, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// TestPutQuery puts, replaces, filters and finds by a beginning of the id, in both databases.
func TestPutQuery(t *testing.T) {
	t.Run("sqlite", func(t *testing.T) { putQuery(t, open(t, filepath.Join(t.TempDir(), "a dir?", "w#eir.db"))) })
	t.Run("postgres", func(t *testing.T) { putQuery(t, open(t, postgres(t))) })
}

func putQuery(t *testing.T, s *Store) {
	ctx := context.Background()
	if err := s.Put(ctx, entry("aa11", 8, "none"), entry("aa22", 16, "none"), entry("bb33", 8, "dram")); err != nil {
		t.Fatal(err)
	}
	e := entry("aa11", 8, "none")
	e.Result.Valid = false
	if err := s.Put(ctx, e); err != nil {
		t.Fatal(err)
	}
	all, err := s.Query(ctx, Filter{})
	if err != nil || len(all) != 3 {
		t.Fatalf("%d entries, %v", len(all), err)
	}
	got, err := s.Query(ctx, Filter{Models: []string{"m"}, Offload: []string{"none", "x"}, Conc: []int{8, 16}, ValidOnly: true})
	if err != nil || len(got) != 1 || got[0].Result.ID != "aa22" {
		t.Fatalf("%v %v", got, err)
	}
	one, err := s.Get(ctx, "bb")
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(entry("bb33", 8, "dram").Result, one.Result); d != "" {
		t.Errorf("result changed on the way: %s", d)
	}
	if one.Bundle != "/b/bb33" || one.PutAt == "" {
		t.Errorf("%+v", one)
	}
	if _, err := s.Get(ctx, "aa"); err == nil || !strings.Contains(err.Error(), "aa11, aa22") {
		t.Errorf("ambiguous: %v", err)
	}
	if _, err := s.Get(ctx, "zz"); !errors.Is(err, ErrNotFound) {
		t.Errorf("absent: %v", err)
	}
	c, err := s.Choices(ctx)
	if err != nil || len(c.Offload) != 2 || c.Offload[1] != (Choice{"none", 2}) {
		t.Errorf("%+v %v", c, err)
	}
}

// TestTwoProcesses: several openers make the tables and write at once and lose nothing.
func TestTwoProcesses(t *testing.T) {
	t.Run("sqlite", func(t *testing.T) { twoProcesses(t, filepath.Join(t.TempDir(), "weir.db")) })
	t.Run("postgres", func(t *testing.T) { twoProcesses(t, postgres(t)) })
}

func twoProcesses(t *testing.T, path string) {
	ctx := context.Background()
	var wg sync.WaitGroup
	for k := range 4 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			s, err := Open(path)
			if err != nil {
				t.Error(err)
				return
			}
			defer s.Close()
			for i := range 25 {
				if err := s.Put(ctx, entry(fmt.Sprintf("%d-%d", k, i), i+1, "none")); err != nil {
					t.Error(err)
					return
				}
			}
		}()
	}
	wg.Wait()
	all, err := open(t, path).Query(ctx, Filter{})
	if err != nil || len(all) != 100 {
		t.Fatalf("%d entries, %v", len(all), err)
	}
}

// TestNewerSchema: a store of a newer program is refused by name.
func TestNewerSchema(t *testing.T) {
	path := filepath.Join(t.TempDir(), "weir.db")
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec("PRAGMA user_version = 99"); err != nil {
		t.Fatal(err)
	}
	db.Close()
	if _, err := Open(path); err == nil || !strings.Contains(err.Error(), "schema 99") {
		t.Errorf("%v", err)
	}
}

// TestMovedTogether: a store and the bundles below it can be moved as one folder.
func TestMovedTogether(t *testing.T) {
	ctx := context.Background()
	root := t.TempDir()
	old := filepath.Join(root, "old")
	s := open(t, filepath.Join(old, "weir.db"))
	inside, outside := entry("in", 1, "none"), entry("out", 2, "none")
	inside.Bundle, outside.Bundle = filepath.Join(old, "sweep", "b1"), filepath.Join(root, "elsewhere")
	if err := s.Put(ctx, inside, outside); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(old, filepath.Join(root, "new")); err != nil {
		t.Fatal(err)
	}
	s = open(t, filepath.Join(root, "new", "weir.db"))
	for id, want := range map[string]string{"in": filepath.Join(root, "new", "sweep", "b1"), "out": outside.Bundle} {
		if e, err := s.Get(ctx, id); err != nil || e.Bundle != want {
			t.Errorf("%s: %s, %v, want %s", id, e.Bundle, err, want)
		}
	}
}
