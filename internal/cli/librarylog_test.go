package cli

import (
	"bytes"
	"fmt"
	"log"
	"strings"
	"testing"
)

// TestLibraryLog: what a library logs a thousand times is said once, and many different texts are bounded.
func TestLibraryLog(t *testing.T) {
	var out bytes.Buffer
	l := log.New(&libraryLog{w: &out}, "", 0)
	for range 1000 {
		l.Printf("protocol error: received DATA before a HEADERS frame")
	}
	if got := out.String(); got != "weir: protocol error: received DATA before a HEADERS frame\n" {
		t.Errorf("said %q", got)
	}
	for i := range 1000 {
		fmt.Fprintf(l.Writer(), "text %d\n", i)
	}
	if n := strings.Count(out.String(), "\n"); n != maxLibraryLines {
		t.Errorf("%d lines, want %d", n, maxLibraryLines)
	}
}
