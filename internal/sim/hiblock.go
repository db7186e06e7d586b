package sim

// blockPool is vLLM's prefix cache: blocks of tokens that carry the hash of their content and
// of all before it. A block that nobody uses stays findable until the pool needs it; the one
// that has been free the longest goes first (v1/core/block_pool.py and kv_cache_utils.py,
// 2026-07).
type blockPool struct {
	blocks []block // block 0 is the head of the list of free blocks
	free   int64
	byHash map[uint64]int32
	frees  int64 // counts blocks that became free, to know when trying again makes sense
	evict  int64 // hashed blocks that were taken for something else
}

type block struct {
	hash       uint64 // valid when hashed
	hashed     bool
	refs       int32
	prev, next int32 // in the list of free blocks, 0 ends it
	twin       int32 // another block with the same hash, 0 for none
}

func newBlockPool(n int64) *blockPool {
	p := &blockPool{blocks: make([]block, n+1), byHash: map[uint64]int32{}}
	p.reset()
	return p
}

func (p *blockPool) size() int64 { return int64(len(p.blocks) - 1) }

// reset makes every block free and unknown.
func (p *blockPool) reset() {
	clear(p.byHash)
	n := int32(len(p.blocks))
	for i := range p.blocks {
		p.blocks[i] = block{prev: int32(i) - 1, next: int32(i) + 1}
	}
	p.blocks[0].prev = n - 1
	p.blocks[n-1].next = 0
	p.free = int64(n - 1)
	p.frees++
}

// find returns the blocks of the longest run of hashes from the first that are there.
func (p *blockPool) find(dst []int32, hashes []uint64) []int32 {
	for _, h := range hashes {
		b, ok := p.byHash[h]
		if !ok {
			break
		}
		dst = append(dst, b)
	}
	return dst
}

// idle is how many of the blocks nobody uses: taking them takes free blocks away.
func (p *blockPool) idle(blocks []int32) (n int64) {
	for _, b := range blocks {
		if p.blocks[b].refs == 0 {
			n++
		}
	}
	return n
}

// touch uses blocks that were found.
func (p *blockPool) touch(blocks []int32) {
	for _, b := range blocks {
		if p.blocks[b].refs == 0 {
			p.unlink(b)
		}
		p.blocks[b].refs++
	}
}

// take takes n free blocks, the longest free first; what they held is forgotten. The caller
// knows that there are so many.
func (p *blockPool) take(dst []int32, n int64) []int32 {
	for range n {
		b := p.blocks[0].next
		p.unlink(b)
		p.forget(b)
		p.blocks[b].refs = 1
		dst = append(dst, b)
	}
	return dst
}

// name gives a block the hash by which it is found.
func (p *blockPool) name(b int32, hash uint64) {
	k := &p.blocks[b]
	if k.hashed {
		return
	}
	k.hash, k.hashed = hash, true
	k.twin = p.byHash[hash]
	p.byHash[hash] = b
}

func (p *blockPool) forget(b int32) {
	k := &p.blocks[b]
	if !k.hashed {
		return
	}
	p.evict++
	if first := p.byHash[k.hash]; first == b {
		if k.twin != 0 {
			p.byHash[k.hash] = k.twin
		} else {
			delete(p.byHash, k.hash)
		}
	} else {
		for first != 0 {
			if p.blocks[first].twin == b {
				p.blocks[first].twin = k.twin
				break
			}
			first = p.blocks[first].twin
		}
	}
	k.hashed, k.twin = false, 0
}

// release gives blocks of one sequence back, the last first, so that later blocks are taken
// before those that more prompts begin with.
func (p *blockPool) release(blocks []int32) {
	for i := len(blocks) - 1; i >= 0; i-- {
		k := &p.blocks[blocks[i]]
		if k.refs--; k.refs == 0 {
			last := p.blocks[0].prev
			k.prev, k.next = last, 0
			p.blocks[last].next = blocks[i]
			p.blocks[0].prev = blocks[i]
			p.free++
			p.frees++
		}
	}
}

func (p *blockPool) unlink(b int32) {
	k := &p.blocks[b]
	p.blocks[k.prev].next = k.next
	p.blocks[k.next].prev = k.prev
	k.prev, k.next = 0, 0
	p.free--
}

// check returns what is wrong with the books, or "".
func (p *blockPool) check() string {
	n, prev := int64(0), int32(0)
	for b := p.blocks[0].next; b != 0; b = p.blocks[b].next {
		if p.blocks[b].refs != 0 {
			return "a block in use is on the free list"
		}
		if p.blocks[b].prev != prev {
			return "the free list is broken"
		}
		prev = b
		if n++; n > p.size() {
			return "the free list has a loop"
		}
	}
	if n != p.free {
		return "the free blocks are not so many as counted"
	}
	hashed := 0
	for b := int32(1); b < int32(len(p.blocks)); b++ {
		k := &p.blocks[b]
		if k.refs == 0 {
			n--
		}
		if k.refs < 0 {
			return "a block has fewer than no users"
		}
		if k.hashed {
			hashed++
		}
	}
	if n != 0 {
		return "a free block is not on the free list"
	}
	for h, b := range p.byHash {
		for ; b != 0; b = p.blocks[b].twin {
			if !p.blocks[b].hashed || p.blocks[b].hash != h {
				return "a hash leads to a block that was taken for something else"
			}
			hashed--
		}
	}
	if hashed != 0 {
		return "a hashed block cannot be found"
	}
	return ""
}
