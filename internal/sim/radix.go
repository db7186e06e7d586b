package sim

// A node of the radix tree is a run of pages that follow its parent's. It is on the device,
// on the host, or on both; a node on neither is taken out of the tree. Nodes on the device
// form a tree that contains the root: below a node that is only on the host nothing is on the
// device.
type node struct {
	parent *node
	kids   kids
	keys   []uint64 // identities of its pages; runs that were split share memory

	device bool
	host   bool

	devKids  int32 // children on the device
	locks    int32 // users of this node or of one below it
	hostHeld int32 // users of its host copy
	hits     int32 // for write_through_selective
	used     int64 // logical time of the last use

	place [3]int32 // in the three heaps, -1 when not in
}

func newNode() *node { return &node{place: [3]int32{-1, -1, -1}} }

// kids are a node's children by the identity of their first page. Most nodes have one.
type kids struct {
	few  []*node
	many map[uint64]*node
}

const manyKids = 12

func (k *kids) get(key uint64) *node {
	if k.many != nil {
		return k.many[key]
	}
	for _, n := range k.few {
		if n.keys[0] == key {
			return n
		}
	}
	return nil
}

func (k *kids) add(n *node) {
	k.few = append(k.few, n)
	if k.many != nil {
		k.many[n.keys[0]] = n
	} else if len(k.few) > manyKids {
		k.many = make(map[uint64]*node, 2*len(k.few))
		for _, c := range k.few {
			k.many[c.keys[0]] = c
		}
	}
}

// replace puts n where the child with the same first page was.
func (k *kids) replace(n *node) {
	for i, c := range k.few {
		if c.keys[0] == n.keys[0] {
			k.few[i] = n
		}
	}
	if k.many != nil {
		k.many[n.keys[0]] = n
	}
}

func (k *kids) remove(n *node) {
	for i, c := range k.few {
		if c == n {
			last := len(k.few) - 1
			k.few[i] = k.few[last]
			k.few[last] = nil
			k.few = k.few[:last]
			break
		}
	}
	if k.many != nil {
		delete(k.many, n.keys[0])
	}
}

// radix is SGLang's prefix cache: a radix tree over pages whose unlocked device leaves are
// evicted, longest unused first, and with a host tier behind it when hostCap is above 0
// (radix_cache.py and hiradix_cache.py, 2026-07; see hicache.go for the host tier).
//
// All sizes are tokens and multiples of page. What is neither free nor in the tree belongs to
// running requests; the cache does not know whose it is.
type radix struct {
	page     int64
	capacity int64 // device
	free     int64 // device tokens that nobody holds
	// evictable and protected are the device tokens in the tree without and with a lock.
	evictable, protected int64

	root      *node
	tick      int64
	leaves    leafHeap // device leaves without a lock
	hostCap   int64
	hostFree  int64
	hostLeafs leafHeap // nodes on the host only, without children, that nobody holds
	// doubles are nodes on both tiers whose host copy nobody holds. Under write_back the host
	// drops such copies first (SGLang pull request 33777, 2026-08); keepDoubles is SGLang
	// before that, where a prefix that was loaded back keeps its place on the host.
	doubles     leafHeap
	keepDoubles bool

	policy  writePolicy
	stats   cacheStats
	pending []pendingWrite // copies to the host under way, in order of their end
	// staged are the tokens that evictions copied to the host since takeStaged: with
	// write_back the scheduler waits for them.
	staged int64
	// copyTime is how long the copy of so many tokens takes, nanoseconds; copyFree is when
	// the last copy that is under way ends.
	copyTime func(tokens int64) int64
	copyFree int64
	now      int64        // set by the scheduler before it calls, nanoseconds
	storage  *storageTier // nil without one
	// noLoadBack makes the host tier useless: what is on the host is never loaded.
	noLoadBack bool
}

// cacheStats count tokens since the start.
type cacheStats struct {
	evicted    int64 // taken off the device, whether or not the host has them
	backedUp   int64 // copied to the host
	loadedBack int64 // copied from the host
	dropped    int64 // lost without a copy although the policy wanted one
	hostEvict  int64 // taken off the host
}

func newRadix(page, capacity, hostCapacity int64, policy writePolicy) *radix {
	r := &radix{
		page: page, capacity: capacity / page * page, hostCap: hostCapacity / page * page,
		policy: policy, hostLeafs: leafHeap{which: 1}, doubles: leafHeap{which: 2},
	}
	r.reset()
	return r
}

// reset empties the tree. It must not be called while requests hold parts of it.
func (r *radix) reset() {
	r.root = newNode()
	r.root.locks, r.root.device, r.root.host = 1, true, true
	r.free, r.hostFree = r.capacity, r.hostCap
	r.evictable, r.protected = 0, 0
	r.leaves.nodes, r.hostLeafs.nodes, r.doubles.nodes, r.pending = nil, nil, nil, nil
	if r.storage != nil {
		r.storage.busy = 0
	}
}

func (r *radix) size(n *node) int64 { return int64(len(n.keys)) * r.page }

func (r *radix) touch(n *node) {
	r.tick++
	n.used = r.tick
}

// settle puts n into the heaps of leaves that it belongs to.
func (r *radix) settle(n *node) {
	if n == r.root {
		return
	}
	r.leaves.set(n, n.device && n.devKids == 0 && n.locks == 0)
	r.hostLeafs.set(n, !n.device && n.host && len(n.kids.few) == 0 && n.hostHeld == 0)
	if r.policy == writeBack && !r.keepDoubles {
		r.doubles.set(n, n.device && n.host && n.hostHeld == 0)
	}
}

// match is what a prefix search found. Device tokens lead; host tokens follow them.
type match struct {
	device, host int64 // tokens
	last         *node // last node on the device
	lastHost     *node // last node of all
}

// find searches the longest cached prefix of keys and splits the node in which it ends.
func (r *radix) find(keys []uint64) match {
	m := match{last: r.root, lastHost: r.root}
	at := r.root
	for len(keys) > 0 {
		c := at.kids.get(keys[0])
		if c == nil {
			break
		}
		n := common(c.keys, keys)
		if n < len(c.keys) {
			c = r.split(c, n)
		}
		r.touch(c)
		r.settle(c)
		if c.device {
			m.device += r.size(c)
			m.last = c
		} else {
			m.host += r.size(c)
		}
		m.lastHost = c
		at, keys = c, keys[n:]
	}
	return m
}

func common(a, b []uint64) int {
	n := min(len(a), len(b))
	a, b = a[:n], b[:n]
	for i := range a {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// split cuts n after the given number of pages and returns the upper part, which is new; n
// stays the lower one, so that who holds n keeps holding all of it.
func (r *radix) split(n *node, pages int) *node {
	up := newNode()
	up.parent, up.keys = n.parent, n.keys[:pages:pages]
	up.device, up.host, up.locks, up.hostHeld = n.device, n.host, n.locks, n.hostHeld
	up.hits, up.used = n.hits, n.used
	n.parent.kids.replace(up)
	n.keys = n.keys[pages:]
	n.parent = up
	up.kids.add(n)
	if n.device {
		up.devKids = 1
	}
	r.settle(up)
	return up
}

// lock keeps n and all above it on the device.
func (r *radix) lock(n *node) {
	for ; n != r.root; n = n.parent {
		if n.locks == 0 {
			r.evictable -= r.size(n)
			r.protected += r.size(n)
		}
		n.locks++
		r.settle(n)
	}
}

func (r *radix) unlock(n *node) {
	for ; n != r.root; n = n.parent {
		n.locks--
		if n.locks == 0 {
			r.evictable += r.size(n)
			r.protected -= r.size(n)
		}
		r.settle(n)
	}
}

// insert puts keys into the tree. The first held pages are the caller's by lock; the rest are
// device pages that the caller owns and hands over. It returns the last node and how many
// tokens of those handed over were there already: their pages become free. A chunk of a
// prompt that is still being computed does not count as a use for the write policy.
func (r *radix) insert(keys []uint64, held int, chunk bool) (last *node, duplicate int64) {
	at, done := r.root, 0
	for done < len(keys) {
		c := at.kids.get(keys[done])
		if c == nil {
			break
		}
		n := common(c.keys, keys[done:])
		if n < len(c.keys) {
			c = r.split(c, n)
		}
		r.touch(c)
		if c.device {
			duplicate += int64(max(0, min(n, done+n-held))) * r.page
			r.settle(c)
			r.countUse(c, chunk)
		} else { // it was on the host only: the caller computed it again
			r.toDevice(c)
		}
		at, done = c, done+n
	}
	if done < len(keys) {
		own := make([]uint64, len(keys)-done)
		copy(own, keys[done:])
		c := newNode()
		c.parent, c.keys, c.device = at, own, true
		at.kids.add(c)
		at.devKids++
		r.touch(c)
		r.evictable += r.size(c)
		r.settle(at)
		r.settle(c)
		r.countUse(c, chunk)
		at = c
	}
	r.free += duplicate
	return at, duplicate
}

// toDevice marks a node as on the device; the caller has accounted for its tokens.
func (r *radix) toDevice(n *node) {
	n.device = true
	n.parent.devKids++
	r.evictable += r.size(n)
	r.settle(n)
	r.settle(n.parent)
}

// offDevice frees the device tokens of an unlocked leaf. The parent's last use is at least
// the child's, which matters when the parent becomes a leaf by this.
func (r *radix) offDevice(n *node) {
	n.device = false
	n.parent.devKids--
	n.parent.used = max(n.parent.used, n.used)
	r.evictable -= r.size(n)
	r.free += r.size(n)
	r.stats.evicted += r.size(n)
	r.settle(n)
	r.settle(n.parent)
}

// drop takes n, which is off the device, and all below it out of the tree.
func (r *radix) drop(n *node) {
	for len(n.kids.few) > 0 {
		r.drop(n.kids.few[len(n.kids.few)-1])
	}
	if n.host {
		r.hostFree += r.size(n)
	}
	n.host = false
	r.settle(n)
	n.parent.kids.remove(n)
	r.settle(n.parent)
}

// alloc takes tokens off the free list, evicting when there are too few. It reports whether
// it could; when not, what was evicted stays evicted, as in the engine.
func (r *radix) alloc(tokens int64) bool {
	if r.free < tokens {
		r.evict(tokens - r.free)
	}
	if r.free < tokens {
		return false
	}
	r.free -= tokens
	return true
}

// room is what could be allocated at most, now.
func (r *radix) room() int64 { return r.free + r.evictable }

// used is the share of the device pool that is not free or evictable.
func (r *radix) inUse() int64 { return r.capacity - r.free - r.evictable }

// fetching are the host tokens that fetches from storage hold.
func (r *radix) fetching() int64 {
	if r.storage == nil {
		return 0
	}
	return r.storage.busy
}

// check returns what is wrong with the books, or "".
func (r *radix) check() string {
	var evictable, protected, host int64
	leaves, hostLeafs, doubles := 0, 0, 0
	bad := ""
	var walk func(n *node)
	walk = func(n *node) {
		devKids := int32(0)
		for _, c := range n.kids.few {
			if c.parent != n || n.kids.get(c.keys[0]) != c {
				bad = "a child does not belong to its parent"
			}
			if c.device {
				devKids++
			}
			if c.device && !n.device {
				bad = "a node on the device is below one that is not"
			}
			if c.locks > n.locks && n != r.root {
				bad = "a lock does not reach the root"
			}
			walk(c)
		}
		if n == r.root {
			return
		}
		if len(n.keys) == 0 || !n.device && !n.host {
			bad = "a node holds nothing"
		}
		if devKids != n.devKids {
			bad = "the count of device children is wrong"
		}
		if n.locks < 0 || n.hostHeld < 0 || n.locks > 0 && !n.device {
			bad = "a lock is wrong"
		}
		if n.device && n.locks > 0 {
			protected += r.size(n)
		} else if n.device {
			evictable += r.size(n)
		}
		if n.host {
			host += r.size(n)
		}
		if r.leaves.has(n) {
			leaves++
		}
		if r.hostLeafs.has(n) {
			hostLeafs++
		}
		if r.doubles.has(n) {
			doubles++
		}
		if r.leaves.has(n) != (n.device && devKids == 0 && n.locks == 0) {
			bad = "a device leaf is in the wrong place"
		}
		if r.hostLeafs.has(n) != (!n.device && n.host && len(n.kids.few) == 0 && n.hostHeld == 0) {
			bad = "a host leaf is in the wrong place"
		}
	}
	walk(r.root)
	switch {
	case bad != "":
		return bad
	case evictable != r.evictable || protected != r.protected:
		return "evictable or protected tokens do not add up"
	case r.free < 0 || r.free+evictable+protected > r.capacity:
		return "more tokens on the device than it holds"
	case host+r.hostFree+r.fetching() != r.hostCap:
		return "host tokens in use and free are not the pool"
	case r.hostFree < 0:
		return "more tokens on the host than it holds"
	case leaves != len(r.leaves.nodes) || hostLeafs != len(r.hostLeafs.nodes) || doubles != len(r.doubles.nodes):
		return "a node that is gone is still a leaf"
	}
	return ""
}
