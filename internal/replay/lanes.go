package replay

// laneState is one lane and its place among the lanes by the time of its next event.
type laneState struct {
	index int
	tree  *tree // nil when the lane has nothing left to play
	plays int
	// pressed are the pressure requests that it has sent.
	pressed int
	key     int64
	seq     uint64
	pos     int // in lanes.heap
}

// lanes is an indexed heap: the lane with the next event is on top, of several at one instant
// the one whose timer was set first.
type lanes struct {
	at   []*laneState // by lane
	heap []*laneState
}

func (h *lanes) top() *laneState { return h.heap[0] }

func (h *lanes) less(i, j int) bool {
	a, b := h.heap[i], h.heap[j]
	if a.key != b.key {
		return a.key < b.key
	}
	if a.seq != b.seq {
		return a.seq < b.seq
	}
	return a.index < b.index
}

func (h *lanes) swap(i, j int) {
	h.heap[i], h.heap[j] = h.heap[j], h.heap[i]
	h.heap[i].pos, h.heap[j].pos = i, j
}

func (h *lanes) update(l *laneState, key int64, seq uint64) {
	l.key, l.seq = key, seq
	i := l.pos
	for i > 0 && h.less(i, (i-1)/2) {
		h.swap(i, (i-1)/2)
		i = (i - 1) / 2
	}
	for {
		c := 2*i + 1
		if c >= len(h.heap) {
			return
		}
		if c+1 < len(h.heap) && h.less(c+1, c) {
			c++
		}
		if !h.less(c, i) {
			return
		}
		h.swap(i, c)
		i = c
	}
}
