package corpus

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// places writes where every turn stood in its trace.
func places(c *Corpus) string {
	var out []string
	for i := range c.Traces[0].Streams {
		s := &c.Traces[0].Streams[i]
		for k := range s.Turns {
			out = append(out, fmt.Sprintf("%s %d: %d %d", strings.TrimPrefix(s.ID, "places"), k, s.Turns[k].Outer, s.Turns[k].Inner))
		}
	}
	return strings.Join(out, ", ")
}

// TestPlaces: a turn knows its place in the list that it was recorded in, also from a compiled
// corpus; one that was compiled before turns had places is read without, and compiled again.
func TestPlaces(t *testing.T) {
	load := func(path string) *Corpus {
		t.Helper()
		c, err := Load(path, LoadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	const want = " 0: 1 0,  1: 4 0,  2: 6 0, ::sa:a 0: 2 1, ::sa:a 1: 2 2, ::fa:000 0: 3 0, ::fa:000 1: 5 0"
	source := filepath.Join("testdata", "places.json")
	if got := places(load(source)); got != want {
		t.Errorf("places %s, want %s", got, want)
	}
	old := load(filepath.Join("testdata", "places-1.weircorpus"))
	if got := places(old); got != " 0: 0 0,  1: 0 0,  2: 0 0, ::sa:a 0: 0 0, ::sa:a 1: 0 0, ::fa:000 0: 0 0, ::fa:000 1: 0 0" {
		t.Errorf("places of the older form %s", got)
	}
	if c := load(source); old.Fingerprint != c.Fingerprint {
		t.Errorf("the fingerprint is %s, was %s", c.Fingerprint, old.Fingerprint)
	}
	file := filepath.Join(t.TempDir(), "c")
	copyFile(t, filepath.Join("testdata", "places-1.weircorpus"), file)
	for i := range 2 {
		done, err := Compile(source, file, LoadOptions{})
		if err != nil || done.Torn != nil || done.Fresh != (i == 1) {
			t.Fatalf("round %d: %+v, %v", i, done, err)
		}
		if got := places(load(file)); got != want {
			t.Errorf("places after compiling %s, want %s", got, want)
		}
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	raw, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, raw, 0o666)
	}
	if err != nil {
		t.Fatal(err)
	}
}
