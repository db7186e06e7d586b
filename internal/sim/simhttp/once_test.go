package simhttp

import (
	"path/filepath"
	"testing"
)

// TestFaultOnce: of all faults that name a file one strikes, once, behind what it spares.
func TestFaultOnce(t *testing.T) {
	file := filepath.Join(t.TempDir(), "struck")
	var faults [2]Fault
	for i := range faults {
		var err error
		if faults[i], err = ParseFault("no-headers,skip=1,once=" + file); err != nil {
			t.Fatal(err)
		}
	}
	var got []bool
	for range 3 {
		for i := range faults {
			got = append(got, faults[i].hit())
		}
	}
	for i, hit := range got {
		if hit != (i == 2) {
			t.Fatalf("%v: the third occasion alone strikes", got)
		}
	}
}
