package simhttp

import (
	"os"
	"path/filepath"
	"testing"
	"time"
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

// TestFaultUntil: a request that a fault holds is answered when the file is there that ends it, and
// those behind it aren't held.
func TestFaultUntil(t *testing.T) {
	for _, kind := range []string{"stall", "no-headers"} {
		dir := t.TempDir()
		struck, over := filepath.Join(dir, "struck"), filepath.Join(dir, "over")
		fault, err := ParseFault(kind + ",skip=1,once=" + struck + ",until=" + over)
		if err != nil {
			t.Fatal(err)
		}
		u := start(t, Options{Config: config(t, 500_000, 0), Speed: 1000, Faults: []Fault{fault}})
		ask := func() int {
			status, _ := post(t, u+"/v1/chat/completions", chatBody("hello", 2, ""))
			return status
		}
		if status := ask(); status != 200 {
			t.Fatalf("%s: the request that is spared: %d", kind, status)
		}
		held := make(chan int, 1)
		go func() { held <- ask() }()
		for begin := time.Now(); ; time.Sleep(time.Millisecond) {
			if _, err := os.Stat(struck); err == nil {
				break
			}
			if time.Since(begin) > hang {
				t.Fatalf("%s: no request is held", kind)
			}
		}
		select {
		case status := <-held:
			t.Fatalf("%s: the request that is held was answered with %d", kind, status)
		default:
		}
		if err := os.WriteFile(over, nil, 0o666); err != nil {
			t.Fatal(err)
		}
		if status := <-held; status != 200 {
			t.Errorf("%s: the request that was held: %d", kind, status)
		}
		if status := ask(); status != 200 {
			t.Errorf("%s: the request behind it: %d", kind, status)
		}
	}
	if _, err := ParseFault("crash,until=x"); err == nil {
		t.Error("a crash lasts until something")
	}
}
