//go:build !linux

package client

import (
	"net"
	"testing"
	"time"
)

// kept is the number of idle connections of a host.
func (h *host) kept() int {
	h.idle.mu.Lock()
	defer h.idle.mu.Unlock()
	return len(h.idle.list)
}

// goodbye closes a connection and gives the peer's kernel time to take note.
func goodbye(_ testing.TB, c net.Conn) {
	c.Close()
	time.Sleep(200 * time.Millisecond)
}
