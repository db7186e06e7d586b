//go:build !linux

package client

// kept is the number of idle connections of a host.
func (h *host) kept() int {
	h.idle.mu.Lock()
	defer h.idle.mu.Unlock()
	return len(h.idle.list)
}
