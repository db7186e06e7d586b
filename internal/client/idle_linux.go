package client

import "sync"

// idleWires are the wires of a host that wait for a request, the last used on top.
type idleWires struct {
	mu   sync.Mutex
	list []*wire
}

func (h *host) getWire(now int64) *wire {
	h.wires.mu.Lock()
	defer h.wires.mu.Unlock()
	n := len(h.wires.list)
	if n == 0 {
		return nil
	}
	w := h.wires.list[n-1]
	h.wires.list[n-1] = nil
	h.wires.list = h.wires.list[:n-1]
	return w
}

func (h *host) putWire(w *wire) {
	h.wires.mu.Lock()
	h.wires.list = append(h.wires.list, w)
	h.wires.mu.Unlock()
}

// stale takes the wires out that have been idle too long, all of them when all is set.
func (h *host) stale(now int64, all bool) []*wire {
	h.wires.mu.Lock()
	defer h.wires.mu.Unlock()
	var out []*wire
	kept := h.wires.list[:0]
	for _, w := range h.wires.list {
		if all || now-w.since >= w.keep {
			out = append(out, w)
		} else {
			kept = append(kept, w)
		}
	}
	clear(h.wires.list[len(kept):])
	h.wires.list = kept
	return out
}

func (h *host) dropWire(w *wire) {
	h.wires.mu.Lock()
	defer h.wires.mu.Unlock()
	for i, o := range h.wires.list {
		if o == w {
			h.wires.list = append(h.wires.list[:i], h.wires.list[i+1:]...)
			return
		}
	}
}

// closeAll closes idle wires that were taken out of their host's list.
func closeAll(ws []*wire) {
	for _, w := range ws {
		w.mu.Lock()
		if w.x == nil {
			w.shut()
			w.closeIfDone()
		}
		w.mu.Unlock()
	}
}

func (h *host) closeWires() { closeAll(h.stale(0, true)) }
