package sim

// offload is vLLM's native CPU tier (OffloadingConnector with CPUOffloadingSpec, 2026-07): an
// LRU of block hashes. Every full block is stored when it was computed; a prompt loads what is
// there behind its device hit. Stores and loads run beside the steps.
type offload struct {
	capacity int64 // blocks
	byHash   map[uint64]int32
	entries  []offloaded // entry 0 is the head of the list, longest unused first
	unused   []int32
	storeEnd int64 // when the last store under way ends
	loadEnd  int64 // when the last load under way ends
	copyTime func(tokens int64) int64
	page     int64
	stored   int64 // blocks, since the start
	loaded   int64
	skipped  int64 // blocks that found no room
}

type offloaded struct {
	hash       uint64
	ready      int64 // when its store ends
	held       int32 // loads under way
	prev, next int32
}

func newOffload(tokens, page int64, copyTime func(int64) int64) *offload {
	o := &offload{capacity: tokens / page, page: page, copyTime: copyTime}
	o.reset()
	return o
}

func (o *offload) reset() {
	o.byHash = map[uint64]int32{}
	o.entries = make([]offloaded, 1, 64)
	o.unused = nil
}

// find is the number of hashes from the first on that are stored by now.
func (o *offload) find(hashes []uint64, now int64) (n int64) {
	for _, h := range hashes {
		e, ok := o.byHash[h]
		if !ok || o.entries[e].ready > now {
			break
		}
		n++
	}
	return n
}

// load begins a copy to the device and returns when it ends. What is loaded stays until
// loadDone.
func (o *offload) load(hashes []uint64, now int64) int64 {
	for _, h := range hashes {
		e := o.byHash[h]
		o.entries[e].held++
		o.unlink(e)
		o.link(e)
	}
	o.loaded += int64(len(hashes))
	o.loadEnd = max(now, o.loadEnd) + o.copyTime(int64(len(hashes))*o.page)
	return o.loadEnd
}

func (o *offload) loadDone(hashes []uint64) {
	for _, h := range hashes {
		o.entries[o.byHash[h]].held--
	}
}

// store begins the copies of blocks that were computed, making room by what has been unused the
// longest; a block for which there is no room is skipped.
func (o *offload) store(hashes []uint64, now int64) {
	n := int64(0)
	for _, h := range hashes {
		if e, ok := o.byHash[h]; ok {
			o.unlink(e)
			o.link(e)
			continue
		}
		if int64(len(o.byHash)) >= o.capacity && !o.drop() {
			o.skipped++
			continue
		}
		var e int32
		if k := len(o.unused); k > 0 {
			e = o.unused[k-1]
			o.unused = o.unused[:k-1]
		} else {
			o.entries = append(o.entries, offloaded{})
			e = int32(len(o.entries) - 1)
		}
		n++
		o.entries[e] = offloaded{hash: h, ready: max(now, o.storeEnd) + o.copyTime(n*o.page)}
		o.byHash[h] = e
		o.link(e)
	}
	if n > 0 {
		o.storeEnd = max(now, o.storeEnd) + o.copyTime(n*o.page)
		o.stored += n
	}
}

// drop forgets the block that has been unused the longest and that no load holds.
func (o *offload) drop() bool {
	for e := o.entries[0].next; e != 0; e = o.entries[e].next {
		if o.entries[e].held == 0 {
			o.unlink(e)
			delete(o.byHash, o.entries[e].hash)
			o.unused = append(o.unused, e)
			return true
		}
	}
	return false
}

func (o *offload) unlink(e int32) {
	k := &o.entries[e]
	o.entries[k.prev].next = k.next
	o.entries[k.next].prev = k.prev
}

func (o *offload) link(e int32) {
	last := o.entries[0].prev
	o.entries[e].prev, o.entries[e].next = last, 0
	o.entries[last].next = e
	o.entries[0].prev = e
}

func (o *offload) check() string {
	n := 0
	for e := o.entries[0].next; e != 0; e = o.entries[e].next {
		if o.byHash[o.entries[e].hash] != e {
			return "an offloaded block cannot be found"
		}
		if n++; n > len(o.byHash) {
			return "the offloaded blocks are not so many as counted"
		}
	}
	if n != len(o.byHash) || int64(n) > o.capacity {
		return "more blocks on the host than it holds"
	}
	return ""
}
