package sim

// A writePolicy says when device pages are copied to the host.
type writePolicy uint8

const (
	writeThrough          writePolicy = iota // at the first use
	writeThroughSelective                    // at the second use
	writeBack                                // when the device evicts them; the scheduler waits
)

// loadBackMin is the least number of host tokens worth a copy to the device
// (hiradix_cache.py load_back_threshold, 2026-07).
const loadBackMin = 10

// A pendingWrite is a copy to the host under way; it locks its node until it ends.
type pendingWrite struct {
	node *node
	at   int64 // when it ends, nanoseconds
}

// countUse counts a use of n and starts its copy to the host when the policy wants one. The
// parts of a prompt that is still being computed do not count (hiradix_cache.py
// _inc_hit_count).
func (r *radix) countUse(n *node, chunk bool) {
	if r.hostCap == 0 || r.policy == writeBack || chunk {
		return
	}
	n.hits++
	need := int32(1)
	if r.policy == writeThroughSelective {
		need = 2
	}
	if n.host || n.hits < need || !n.parent.host { // a prefix on the host has no holes
		return
	}
	if r.backUp(n) {
		r.lock(n)
		at := max(r.now, r.copyFree) + r.copyNs(r.size(n))
		r.copyFree = at
		r.pending = append(r.pending, pendingWrite{n, at})
	}
}

func (r *radix) copyNs(tokens int64) int64 {
	if r.copyTime == nil {
		return 0
	}
	return r.copyTime(tokens)
}

// settleWrites ends the copies that are done at r.now.
func (r *radix) settleWrites() {
	done := 0
	for done < len(r.pending) && r.pending[done].at <= r.now {
		r.unlock(r.pending[done].node)
		done++
	}
	if done > 0 {
		r.pending = r.pending[:copy(r.pending, r.pending[done:])]
	}
}

// nextWrite is when the next copy to the host ends.
func (r *radix) nextWrite() (int64, bool) {
	if len(r.pending) == 0 {
		return 0, false
	}
	return r.pending[0].at, true
}

// backUp gives n room on the host, evicting there when it must.
func (r *radix) backUp(n *node) bool {
	size := r.size(n)
	if r.hostFree < size {
		r.evictHost(size - r.hostFree)
	}
	if r.hostFree < size {
		return false
	}
	r.hostFree -= size
	r.stats.backedUp += size
	n.host = true
	r.writeStorage(n)
	return true
}

// evictHost makes room on the host: under write_back it first drops the copies of what is also
// on the device, then, as always, nodes that are only on the host, leaves first; the longest
// unused of each first.
func (r *radix) evictHost(tokens int64) {
	for tokens > 0 && len(r.doubles.nodes) > 0 {
		n := r.doubles.nodes[0]
		n.host = false
		r.hostFree += r.size(n)
		tokens -= r.size(n)
		r.settle(n)
	}
	for tokens > 0 && len(r.hostLeafs.nodes) > 0 {
		n := r.hostLeafs.nodes[0]
		size := r.size(n)
		n.parent.used = max(n.parent.used, n.used)
		r.drop(n)
		r.stats.hostEvict += size
		tokens -= size
	}
}

// evict takes at least so many tokens off the device when that many are evictable, whole
// nodes at a time, and returns how many it took. Under write_back a node goes to the host
// first, and the caller has to wait for those copies (takeStaged).
func (r *radix) evict(tokens int64) int64 {
	var gone int64
	for gone < tokens && len(r.leaves.nodes) > 0 {
		n := r.leaves.nodes[0]
		size := r.size(n)
		if !n.host && r.hostCap > 0 && r.policy == writeBack {
			if r.backUp(n) {
				r.staged += size
			} else {
				r.stats.dropped += size
			}
		}
		r.offDevice(n)
		gone += size
		if !n.host {
			r.drop(n)
		}
	}
	return gone
}

// takeStaged returns the tokens that evictions copied to the host since the last call.
func (r *radix) takeStaged() int64 {
	n := r.staged
	r.staged = 0
	return n
}

// loadBack copies the host part of a match to the device, all of it or nothing: nothing when
// it is shorter than loadBackMin or longer than quota, or when the device has no room even
// after evicting. It returns the tokens loaded and the match that holds then.
func (r *radix) loadBack(m match, quota int64) (int64, match) {
	none := match{device: m.device, last: m.last, lastHost: m.last}
	if m.host < loadBackMin || m.host > quota || r.noLoadBack {
		return 0, none
	}
	r.lock(m.last)
	r.holdHost(m.lastHost, m.last, 1) // evicting for the copy must not drop what is copied
	ok := r.alloc(m.host)
	r.holdHost(m.lastHost, m.last, -1)
	r.unlock(m.last)
	if !ok {
		return 0, none
	}
	for n := m.lastHost; n != m.last; n = n.parent {
		n.device = true
		n.parent.devKids++
		r.evictable += r.size(n)
	}
	for n := m.lastHost; n != m.last; n = n.parent {
		r.settle(n)
	}
	r.settle(m.last)
	r.stats.loadedBack += m.host
	return m.host, match{device: m.device + m.host, last: m.lastHost, lastHost: m.lastHost}
}

// holdHost keeps the host copies from n up to, but without, the given ancestor.
func (r *radix) holdHost(n, above *node, by int32) {
	for ; n != above; n = n.parent {
		n.hostHeld += by
		r.settle(n)
	}
}
