package sim

// leafHeap orders nodes by their last use, the longest unused first. A node knows its place
// in each heap it can be in, so that it can be moved and taken out.
type leafHeap struct {
	nodes []*node
	which int // which of a node's places this heap uses
}

func (h *leafHeap) place(n *node) *int32 { return &n.place[h.which] }

func (h *leafHeap) has(n *node) bool { return *h.place(n) >= 0 }

// set puts n in, moves it to where its last use belongs, or takes it out.
func (h *leafHeap) set(n *node, in bool) {
	at := *h.place(n)
	switch {
	case in && at < 0:
		h.nodes = append(h.nodes, n)
		*h.place(n) = int32(len(h.nodes) - 1)
		h.up(len(h.nodes) - 1)
	case in:
		h.up(int(at))
		h.down(int(*h.place(n)))
	case at >= 0:
		last := len(h.nodes) - 1
		h.swap(int(at), last)
		h.nodes[last] = nil
		h.nodes = h.nodes[:last]
		*h.place(n) = -1
		if int(at) < last {
			moved := h.nodes[at]
			h.up(int(at))
			h.down(int(*h.place(moved)))
		}
	}
}

func (h *leafHeap) swap(i, j int) {
	h.nodes[i], h.nodes[j] = h.nodes[j], h.nodes[i]
	*h.place(h.nodes[i]) = int32(i)
	*h.place(h.nodes[j]) = int32(j)
}

func (h *leafHeap) up(i int) {
	for i > 0 {
		p := (i - 1) / 2
		if h.nodes[p].used <= h.nodes[i].used {
			return
		}
		h.swap(i, p)
		i = p
	}
}

func (h *leafHeap) down(i int) {
	for {
		c := 2*i + 1
		if c >= len(h.nodes) {
			return
		}
		if c+1 < len(h.nodes) && h.nodes[c+1].used < h.nodes[c].used {
			c++
		}
		if h.nodes[i].used <= h.nodes[c].used {
			return
		}
		h.swap(i, c)
		i = c
	}
}
