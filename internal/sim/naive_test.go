package sim

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// naiveRadix is the radix cache written down without any books: it scans where the real one
// keeps heaps and sums.
type naiveRadix struct {
	page, capacity, hostCap int64
	policy                  writePolicy
	keepDoubles             bool
	nodes                   []*naiveNode
	root                    *naiveNode
	tick                    int64
	owned                   int64 // device tokens of requests
}

type naiveNode struct {
	parent       *naiveNode
	keys         []uint64
	device, host bool
	locks, hits  int
	used         int64
}

func newNaive(page, capacity, hostCap int64, p writePolicy, keep bool) *naiveRadix {
	return &naiveRadix{page: page, capacity: capacity, hostCap: hostCap, policy: p, keepDoubles: keep, root: &naiveNode{device: true, host: true}}
}

func (r *naiveRadix) kids(n *naiveNode) (k []*naiveNode) {
	for _, c := range r.nodes {
		if c.parent == n {
			k = append(k, c)
		}
	}
	return k
}

func (r *naiveRadix) child(n *naiveNode, key uint64) *naiveNode {
	for _, c := range r.kids(n) {
		if c.keys[0] == key {
			return c
		}
	}
	return nil
}

func (r *naiveRadix) size(n *naiveNode) int64 { return int64(len(n.keys)) * r.page }

func (r *naiveRadix) sum(f func(*naiveNode) bool) (t int64) {
	for _, n := range r.nodes {
		if f(n) {
			t += r.size(n)
		}
	}
	return t
}

func (r *naiveRadix) free() int64 {
	return r.capacity - r.owned - r.sum(func(n *naiveNode) bool { return n.device })
}

func (r *naiveRadix) hostFree() int64 {
	return r.hostCap - r.sum(func(n *naiveNode) bool { return n.host })
}

// step goes down from n along keys by one node, splitting it where keys leave it.
func (r *naiveRadix) step(n *naiveNode, keys []uint64) *naiveNode {
	if len(keys) == 0 {
		return nil
	}
	c := r.child(n, keys[0])
	if c == nil {
		return nil
	}
	k := 0
	for k < len(c.keys) && k < len(keys) && c.keys[k] == keys[k] {
		k++
	}
	if k < len(c.keys) {
		up := *c
		up.keys = c.keys[:k]
		c.keys, c.parent = c.keys[k:], &up
		r.nodes = append(r.nodes, &up)
		c = &up
	}
	r.tick++
	c.used = r.tick
	return c
}

func (r *naiveRadix) find(keys []uint64) (device, host int64, path []*naiveNode) {
	for at := r.root; ; {
		c := r.step(at, keys)
		if c == nil {
			return device, host, path
		}
		if c.device {
			device += r.size(c)
		} else {
			host += r.size(c)
		}
		path = append(path, c)
		at, keys = c, keys[len(c.keys):]
	}
}

func (r *naiveRadix) lock(n *naiveNode, by int) {
	for ; n != r.root; n = n.parent {
		n.locks += by
	}
}

func (r *naiveRadix) remove(n *naiveNode) {
	for _, c := range r.kids(n) {
		r.remove(c)
	}
	r.nodes = slices.DeleteFunc(r.nodes, func(x *naiveNode) bool { return x == n })
}

func (r *naiveRadix) oldest(f func(*naiveNode) bool) *naiveNode {
	var best *naiveNode
	for _, n := range r.nodes {
		if f(n) && (best == nil || n.used < best.used) {
			best = n
		}
	}
	return best
}

func (r *naiveRadix) hostRoom(tokens int64, held map[*naiveNode]bool) bool {
	for r.hostFree() < tokens && r.policy == writeBack && !r.keepDoubles {
		n := r.oldest(func(n *naiveNode) bool { return n.device && n.host && !held[n] })
		if n == nil {
			break
		}
		n.host = false
	}
	for r.hostFree() < tokens {
		n := r.oldest(func(n *naiveNode) bool { return !n.device && len(r.kids(n)) == 0 && !held[n] })
		if n == nil {
			return false
		}
		n.parent.used = max(n.parent.used, n.used)
		r.remove(n)
	}
	return true
}

// room evicts until so many device tokens are free.
func (r *naiveRadix) room(tokens int64, held map[*naiveNode]bool) bool {
	for r.free() < tokens {
		n := r.oldest(func(n *naiveNode) bool {
			return n.device && n.locks == 0 && !slices.ContainsFunc(r.kids(n), func(c *naiveNode) bool { return c.device })
		})
		if n == nil {
			return false
		}
		if !n.host && r.hostCap > 0 && r.policy == writeBack && r.hostRoom(r.size(n), held) {
			n.host = true
		}
		n.device = false
		n.parent.used = max(n.parent.used, n.used)
		if !n.host {
			r.remove(n)
		}
	}
	return true
}

func (r *naiveRadix) use(n *naiveNode, chunk bool) {
	if r.hostCap == 0 || r.policy == writeBack || chunk {
		return
	}
	n.hits++
	need := 1
	if r.policy == writeThroughSelective {
		need = 2
	}
	if !n.host && n.hits >= need && n.parent.host && r.hostRoom(r.size(n), nil) {
		n.host = true
	}
}

func (r *naiveRadix) insert(keys []uint64, held int, chunk bool) *naiveNode {
	at, done := r.root, 0
	r.owned -= int64(len(keys)-held) * r.page
	for done < len(keys) {
		c := r.step(at, keys[done:])
		if c == nil {
			break
		}
		if c.device {
			r.use(c, chunk)
		}
		c.device = true
		done += len(c.keys)
		at = c
	}
	if done < len(keys) {
		r.tick++
		c := &naiveNode{parent: at, keys: slices.Clone(keys[done:]), device: true, used: r.tick}
		r.nodes = append(r.nodes, c)
		r.use(c, chunk)
		at = c
	}
	return at
}

// TestRadixEqualsNaive plays the same requests against both and compares every answer.
func TestRadixEqualsNaive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		host := rapid.SampledFrom([]int64{0, 12, 40}).Draw(t, "host")
		policy := rapid.SampledFrom([]writePolicy{writeThrough, writeThroughSelective, writeBack}).Draw(t, "policy")
		keep := rapid.Bool().Draw(t, "doubles")
		r, nv := newRadix(1, 40, host, policy), newNaive(1, 40, host, policy, keep)
		r.keepDoubles = keep
		type user struct {
			at    *node
			nat   *naiveNode
			held  int64
			owned int64
			keys  []uint64
		}
		var users []*user
		for i := range rapid.IntRange(1, 60).Draw(t, "steps") {
			if len(users) > 2 || len(users) > 0 && rapid.Bool().Draw(t, "end") {
				k := rapid.IntRange(0, len(users)-1).Draw(t, "who")
				u := users[k]
				users = append(users[:k], users[k+1:]...)
				r.insert(u.keys, int(u.held), false)
				r.free += u.owned - (int64(len(u.keys)) - u.held)
				r.unlock(u.at)
				nv.owned -= u.owned - (int64(len(u.keys)) - u.held)
				nv.insert(u.keys, int(u.held), false)
				nv.lock(u.nat, -1)
				r.now++
				r.settleWrites() // copies take no time here
				continue
			}
			n := rapid.IntRange(1, 18).Draw(t, "pages")
			fork := rapid.IntRange(0, n).Draw(t, "fork")
			keys := make([]uint64, n)
			for p := range keys {
				keys[p] = uint64(p)
				if p >= fork {
					keys[p] |= uint64(i+1) << 20
				}
			}
			m := r.find(keys)
			d, h, path := nv.find(keys)
			if m.device != d || m.host != h {
				t.Fatalf("found %d+%d tokens, naive %d+%d", m.device, m.host, d, h)
			}
			last := nv.root
			for _, x := range path {
				if x.device {
					last = x
				}
			}
			quota := int64(rapid.IntRange(0, 40).Draw(t, "quota"))
			loaded, lm := r.loadBack(m, quota)
			nloaded := int64(0)
			if h >= loadBackMin && h <= quota {
				held := map[*naiveNode]bool{}
				for _, x := range path {
					held[x] = !x.device
				}
				nv.lock(last, 1)
				ok := nv.room(h, held)
				nv.lock(last, -1)
				if ok {
					nloaded = h
					for _, x := range path {
						x.device = true
					}
					last = path[len(path)-1]
				}
			}
			if loaded != nloaded {
				t.Fatalf("loaded %d tokens, naive %d of %d", loaded, nloaded, h)
			}
			u := &user{at: lm.last, nat: last, held: lm.device, keys: keys}
			need := int64(n) - lm.device
			r.lock(lm.last)
			nv.lock(last, 1)
			a, b := r.alloc(need), nv.room(need, nil)
			if a != b {
				t.Fatalf("room for %d tokens: %v, naive %v", need, a, b)
			}
			r.takeStaged()
			if !a {
				r.unlock(lm.last)
				nv.lock(last, -1)
				continue
			}
			u.owned = need
			nv.owned += need
			users = append(users, u)
			if r.free != nv.free() || r.hostFree != nv.hostFree() {
				t.Fatalf("%d device and %d host tokens are free, naive %d and %d", r.free, r.hostFree, nv.free(), nv.hostFree())
			}
			if bad := r.check(); bad != "" {
				t.Fatal(bad)
			}
		}
	})
}

// TestBlockPoolEqualsNaive plays the same sequences against the pool and against a list that
// is searched from end to end.
func TestBlockPoolEqualsNaive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const size = 24
		p := newBlockPool(size)
		type slot struct {
			id     int32
			hash   uint64
			hashed bool
			refs   int
		}
		var all [size + 1]*slot
		var free []*slot
		for i := int32(1); i <= size; i++ {
			all[i] = &slot{id: i}
			free = append(free, all[i])
		}
		type seq struct{ blocks []int32 }
		var seqs []*seq
		for i := range rapid.IntRange(1, 60).Draw(t, "steps") {
			if len(seqs) > 2 || len(seqs) > 0 && rapid.Bool().Draw(t, "end") {
				k := rapid.IntRange(0, len(seqs)-1).Draw(t, "who")
				s := seqs[k]
				seqs = append(seqs[:k], seqs[k+1:]...)
				p.release(s.blocks)
				for x := len(s.blocks) - 1; x >= 0; x-- {
					b := all[s.blocks[x]]
					if b.refs--; b.refs == 0 {
						free = append(free, b)
					}
				}
			} else {
				n := rapid.IntRange(1, 12).Draw(t, "blocks")
				fork := rapid.IntRange(0, n).Draw(t, "fork")
				var hashes []uint64
				h := uint64(0)
				for x := range n {
					k := uint64(x)
					if x >= fork {
						k |= uint64(i+1) << 20
					}
					h = mix(h, k)
					hashes = append(hashes, h)
				}
				got := p.find(nil, hashes)
				var want []uint64
				for _, h := range hashes {
					if !slices.ContainsFunc(all[1:], func(b *slot) bool { return b.hashed && b.hash == h }) {
						break
					}
					want = append(want, h)
				}
				if len(got) != len(want) {
					t.Fatalf("%d blocks were found, naive %d", len(got), len(want))
				}
				idle := p.idle(got)
				if need := int64(n - len(got)); need+idle > p.free {
					if int64(len(free)) != p.free {
						t.Fatalf("%d blocks are free, naive %d", p.free, len(free))
					}
					continue
				}
				p.touch(got)
				for _, b := range got {
					if all[b].refs == 0 {
						free = slices.DeleteFunc(free, func(s *slot) bool { return s.id == b })
					}
					all[b].refs++
				}
				s := &seq{blocks: p.take(slices.Clone(got), int64(n-len(got)))}
				for x := len(got); x < n; x++ {
					b := free[0]
					free = free[1:]
					if s.blocks[x] != b.id {
						t.Fatalf("block %d was taken, naive %d", s.blocks[x], b.id)
					}
					b.refs, b.hash, b.hashed = 1, hashes[x], true
					p.name(b.id, hashes[x])
				}
				seqs = append(seqs, s)
			}
			if bad := p.check(); bad != "" {
				t.Fatal(bad)
			}
			if int64(len(free)) != p.free {
				t.Fatalf("%d blocks are free, naive %d", p.free, len(free))
			}
		}
	})
}

// TestOffloadKeepsItsBooks checks capacity, order and holds of vLLM's host tier.
func TestOffloadKeepsItsBooks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := newOffload(16, 1, func(n int64) int64 { return n * 10 })
		var lru []uint64 // longest unused first
		held := map[uint64]int{}
		type load struct{ hashes []uint64 }
		var loads []load
		now := int64(0)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now += 1000 // every store has ended
			switch op := rapid.IntRange(0, 2).Draw(t, "op"); {
			case op == 0 && len(loads) > 0:
				o.loadDone(loads[0].hashes)
				for _, h := range loads[0].hashes {
					held[h]--
				}
				loads = loads[1:]
			case op == 1:
				base := rapid.Uint64Range(1, 4).Draw(t, "family") << 8
				n := rapid.IntRange(1, 8).Draw(t, "n")
				var hs []uint64
				for i := range n {
					hs = append(hs, base+uint64(i))
				}
				got := o.find(hs, now)
				want := 0
				for want < n && slices.Contains(lru, hs[want]) {
					want++
				}
				if got != int64(want) {
					t.Fatalf("%d blocks found on the host, naive %d", got, want)
				}
				if want > 0 {
					hs = hs[:want]
					if end := o.load(hs, now); end < now+int64(want)*10 {
						t.Fatalf("a load of %d blocks ends after %d ns", want, end-now)
					}
					for _, h := range hs {
						held[h]++
						lru = append(slices.DeleteFunc(lru, func(x uint64) bool { return x == h }), h)
					}
					loads = append(loads, load{hs})
				}
			default:
				base := rapid.Uint64Range(1, 4).Draw(t, "family") << 8
				n := rapid.IntRange(1, 8).Draw(t, "n")
				var hs []uint64
				for i := range n {
					hs = append(hs, base+uint64(i))
				}
				o.store(hs, now)
				for _, h := range hs {
					if slices.Contains(lru, h) {
						lru = append(slices.DeleteFunc(lru, func(x uint64) bool { return x == h }), h)
						continue
					}
					if len(lru) == 16 {
						k := slices.IndexFunc(lru, func(x uint64) bool { return held[x] == 0 })
						if k < 0 {
							continue
						}
						lru = slices.Delete(lru, k, k+1)
					}
					lru = append(lru, h)
				}
			}
			if bad := o.check(); bad != "" {
				t.Fatal(bad)
			}
			if len(lru) != len(o.byHash) {
				t.Fatalf("%d blocks on the host, naive %d", len(o.byHash), len(lru))
			}
		}
	})
}
