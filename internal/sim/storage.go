package sim

// Constants of HiCache's third tier (hiradix_cache.py, unified_radix_cache.py, 2026-07).
const (
	prefetchMin      = 256           // unmatched tokens from which storage is asked
	prefetchBase     = 1_000_000_000 // nanoseconds that a prefetch may take under policy timeout
	prefetchPerToken = 250_000_000 / 1024
)

// storageTier is HiCache's third tier: pages by the chained hash of all tokens up to them. What
// is copied to the host is written there too; a request whose prompt goes on where device and
// host end has the rest fetched into the host pool while it waits.
type storageTier struct {
	*offload
	policy string // "timeout", "best_effort" or "wait_complete"
	busy   int64  // host tokens that fetches under way hold
}

// A fetch is what storage brings for one request.
type fetch struct {
	from, pages int64 // of the prompt
	begin, end  int64 // nanoseconds
	limit       int64 // when the request waits no longer
}

// hashChain are the chained hashes of the first n pages of a job.
func hashChain(keys []uint64) []uint64 {
	out := make([]uint64, len(keys))
	h := uint64(0)
	for i, k := range keys {
		h = mix(h, k)
		out[i] = h
	}
	return out
}

// path are the pages from the root to the end of n, and how many of them are n's own.
func (r *radix) path(n *node) (keys []uint64, own int) {
	total := 0
	for x := n; x != r.root; x = x.parent {
		total += len(x.keys)
	}
	keys = make([]uint64, total)
	for x := n; x != r.root; x = x.parent {
		total -= len(x.keys)
		copy(keys[total:], x.keys)
	}
	return keys, len(n.keys)
}

// writeStorage writes what was copied to the host on.
func (r *radix) writeStorage(n *node) {
	if r.storage == nil {
		return
	}
	keys, own := r.path(n)
	h := hashChain(keys)
	r.storage.store(h[len(h)-own:], r.now)
}

// prefetch begins to bring what storage has of a prompt beyond a match; nil when that is too
// little or the host has no room.
func (r *radix) prefetch(keys []uint64, m match) *fetch {
	s := r.storage
	from := (m.device + m.host) / r.page
	if s == nil || (int64(len(keys))-from)*r.page < prefetchMin {
		return nil
	}
	h := hashChain(keys)[from:]
	n := s.find(h, r.now)
	if n*r.page < prefetchMin || s.busy+n*r.page > r.hostCap/2 {
		return nil
	}
	r.holdHost(m.lastHost, r.root, 1)
	if r.hostFree < n*r.page {
		r.evictHost(n*r.page - r.hostFree)
	}
	r.holdHost(m.lastHost, r.root, -1)
	if r.hostFree < n*r.page {
		return nil
	}
	r.hostFree -= n * r.page
	s.busy += n * r.page
	end := s.load(h[:n], r.now)
	f := &fetch{from: from, pages: n, begin: end - s.copyTime(n*r.page), end: end, limit: end}
	switch s.policy {
	case "best_effort":
		f.limit = r.now
	case "timeout":
		f.limit = min(end, r.now+prefetchBase+n*r.page*prefetchPerToken)
	}
	return f
}

// fetched ends a fetch: the pages that have come by now go into the tree, behind what is there,
// and the rest of the room is given back. It returns the tokens that are new on the host.
func (r *radix) fetched(keys []uint64, f *fetch) int64 {
	s := r.storage
	s.loadDone(hashChain(keys)[f.from : f.from+f.pages])
	s.busy -= f.pages * r.page
	came := f.pages
	if r.now < f.end {
		came = 0
		if r.now > f.begin {
			came = f.pages * (r.now - f.begin) / (f.end - f.begin)
		}
	}
	added := r.insertHost(keys[:f.from+came], f.from)
	r.hostFree += f.pages*r.page - added
	return added
}

// insertHost puts the pages that a fetch brought, those of keys behind from, below what the tree
// has of keys, on the host only. When something before them was evicted meanwhile nothing is
// put: a prefix has no holes. The caller has accounted for the room.
func (r *radix) insertHost(keys []uint64, from int64) int64 {
	m := r.find(keys)
	have := (m.device + m.host) / r.page
	if have >= int64(len(keys)) || have < from {
		return 0
	}
	c := newNode()
	c.parent, c.host = m.lastHost, true
	c.keys = append([]uint64{}, keys[have:]...)
	m.lastHost.kids.add(c)
	r.touch(c)
	r.settle(m.lastHost)
	r.settle(c)
	return r.size(c)
}
