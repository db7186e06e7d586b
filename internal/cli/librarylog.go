package cli

import (
	"bytes"
	"io"
	"sync"
)

// A libraryLog is where what libraries log by themselves goes, such as net/http of a server that breaks
// HTTP: each text once and few in all, since a run meets the same server thousands of times and
// what it did stands in the records.
type libraryLog struct {
	w    io.Writer
	mu   sync.Mutex
	seen map[string]bool
}

// maxLibraryLines is how many different texts are shown.
const maxLibraryLines = 20

// Write takes one text.
func (l *libraryLog) Write(p []byte) (int, error) {
	text := string(bytes.TrimSpace(p))
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.seen[text] || len(l.seen) >= maxLibraryLines {
		return len(p), nil
	}
	if l.seen == nil {
		l.seen = map[string]bool{}
	}
	l.seen[text] = true
	_, _ = io.WriteString(l.w, "weir: "+text+"\n")
	return len(p), nil
}
