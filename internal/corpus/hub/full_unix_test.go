//go:build unix

package hub

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
)

// TestFullDisk fetches in a process that may not write files over 1 MB, which fails in the
// middle of a transfer as a full disk does, and then goes on without the limit.
func TestFullDisk(t *testing.T) {
	h := newHub(t, sample())
	cache := t.TempDir()
	cmd := exec.Command(os.Args[0], "-test.run=^TestFullDiskChild$")
	cmd.Env = append(os.Environ(), "WEIR_HUB_URL="+h.URL, "WEIR_HUB_CACHE="+cache)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if !strings.Contains(string(out), "no room for the rest: 1048576 of 3145728 bytes are there, 2097152 are missing; make room and fetch again") {
		t.Errorf("got %s", out)
	}
	c := h.client(t, cache)
	before := h.sent.Load()
	snap, err := c.Fetch(context.Background(), "o/d", "", jsonl)
	if err != nil {
		t.Fatal(err)
	}
	check(t, c, h.files, snap)
	if n := h.sent.Load() - before; n > 2<<20+100 {
		t.Errorf("%d bytes were sent again", n)
	}
}

func TestFullDiskChild(t *testing.T) {
	url := os.Getenv("WEIR_HUB_URL")
	if url == "" {
		return // runs in the process that TestFullDisk starts
	}
	signal.Ignore(syscall.SIGXFSZ)
	lim := syscall.Rlimit{Cur: 1 << 20, Max: 1 << 20}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &lim); err != nil {
		t.Fatal(err)
	}
	c := &Client{Endpoint: url, Cache: os.Getenv("WEIR_HUB_CACHE"), Tries: 1}
	_, err := c.Fetch(context.Background(), "o/d", "", jsonl)
	fmt.Println(err)
}
