package simhttp

import (
	"strings"
	"testing"
	"time"
)

// TestFlushOfEveryTier: a flush leaves the storage tier as it is, and the call that clears it is
// refused where there is none. Faults of flushes count flushes alone.
func TestFlushOfEveryTier(t *testing.T) {
	text := strings.Repeat(" ready", 2000)
	cached := func(u string) int64 {
		_, body := post(t, u+"/v1/chat/completions", chatBody(text, 2, ""))
		return parse(t, body).Usage.Details.Cached
	}
	c := config(t, 500_000, 500_000)
	if u := start(t, Options{Config: c, Speed: 1000}); true {
		if status, _ := post(t, u+"/hicache/storage-backend/clear", ""); status != 400 {
			t.Errorf("an engine without storage clears it: %d", status)
		}
	}
	c.StorageTokens, c.StorageBandwidth, c.WritePolicy = 1_000_000, 1e12, "write_through"
	u := start(t, Options{Config: c, Speed: 1000, Faults: []Fault{{Kind: "flush-refused", Skip: 1, Times: 1}}})
	cached(u)
	flush := func(want int) {
		t.Helper()
		if status, body := post(t, u+"/flush_cache", ""); status != want {
			t.Errorf("flush: %d %s, want %d", status, body, want)
		}
	}
	flush(200)
	if got := cached(u); got == 0 {
		t.Error("the storage tier was emptied by a flush")
	}
	flush(400) // the fault spares one and strikes once
	flush(200)
	if status, body := post(t, u+"/hicache/storage-backend/clear", ""); status != 200 {
		t.Errorf("clear: %d %s", status, body)
	}
	if got := cached(u); got != 0 {
		t.Errorf("%d tokens were cached after every tier was emptied", got)
	}
}

// TestCrash ends the process on the request that the fault says, and not before.
func TestCrash(t *testing.T) {
	ended := make(chan int, 10)
	u := start(t, Options{Config: config(t, 500_000, 0), Speed: 1000, Faults: []Fault{{Kind: "crash", Skip: 2}}, Exit: func(n int) { ended <- n }})
	for i := range 3 {
		post(t, u+"/v1/chat/completions", chatBody("hello", 2, ""))
		if n := len(ended); n != max(0, i-1) {
			t.Fatalf("%d crashes after request %d", n, i+1)
		}
	}
	if status := <-ended; status != 1 {
		t.Errorf("the process ended with %d", status)
	}
	post(t, u+"/weir/faults", `{"faults":[{"kind":"crash","for":"1ms"}]}`)
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Error("no crash after a time")
	}
}
