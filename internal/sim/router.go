package sim

import (
	"fmt"
	"slices"
	"strings"
)

// RouterPolicies are the policies of a Router.
var RouterPolicies = []string{"round_robin", "cache_aware", "consistent_hashing"}

// A Router spreads requests over workers. It has no clock and is not safe for concurrent use.
//
//   - round_robin: one after another.
//   - consistent_hashing: a session stays on its worker as long as that worker is there; when
//     workers come or go only their own sessions move.
//   - cache_aware: to the worker that was sent the longest prefix of the prompt before, as long
//     as load is even and that prefix is long enough, else to the one with the least load
//     (SGLang's router with its defaults, sgl-model-gateway policies/cache_aware.rs, 2026-08).
type Router struct {
	policy  string
	workers []string
	ring    []ringPoint
	turn    int
	load    []int64 // requests under way
	tree    map[uint64]*prefix
	old     map[uint64]*prefix // the generation before; what is used again moves to the new one
	sizes   []int64            // pages known to be on a worker, of both generations
}

type ringPoint struct {
	at     uint64
	worker int
}

// prefix says which workers were sent a prefix.
type prefix struct{ workers []uint64 }

// Defaults of the cache-aware policy (sgl-model-gateway, 2026-08).
const (
	cacheThreshold  = 0.3 // share of the prompt that must match
	balanceAbs      = 64  // requests by which the busiest may be ahead
	balanceRelative = 1.5
	ringPoints      = 160     // of each worker
	treePages       = 1 << 20 // of one generation
)

// NewRouter makes a router over workers, which have names that are their places on the ring.
func NewRouter(policy string, workers []string) (*Router, error) {
	if !slices.Contains(RouterPolicies, policy) {
		return nil, fmt.Errorf("router policy %q is unknown: use %s", policy, strings.Join(RouterPolicies, ", "))
	}
	if len(workers) == 0 {
		return nil, fmt.Errorf("a router needs at least one worker")
	}
	r := &Router{policy: policy, workers: workers, load: make([]int64, len(workers)), sizes: make([]int64, len(workers)),
		tree: map[uint64]*prefix{}, old: map[uint64]*prefix{}}
	for w, name := range workers {
		h := uint64(14695981039346656037)
		for i := range len(name) {
			h = (h ^ uint64(name[i])) * 1099511628211
		}
		for k := range uint64(ringPoints) {
			r.ring = append(r.ring, ringPoint{mix(h, k), w})
		}
	}
	slices.SortFunc(r.ring, func(a, b ringPoint) int {
		if a.at != b.at {
			if a.at < b.at {
				return -1
			}
			return 1
		}
		return a.worker - b.worker
	})
	return r, nil
}

// Pick chooses the worker of a request by its session and the identities of its prompt's
// pages, and counts the request as under way until Done.
func (r *Router) Pick(session uint64, pages []uint64) int {
	w := 0
	switch r.policy {
	case "round_robin":
		w = r.turn % len(r.workers)
		r.turn++
	case "consistent_hashing":
		at := mix(session, 0x5eed)
		i, _ := slices.BinarySearchFunc(r.ring, at, func(p ringPoint, at uint64) int {
			if p.at < at {
				return -1
			}
			return 1
		})
		w = r.ring[i%len(r.ring)].worker
	default:
		w = r.byCache(pages)
	}
	r.load[w]++
	return w
}

// Done says that a request of a worker is over.
func (r *Router) Done(worker int) { r.load[worker]-- }

// Loads are the requests under way on each worker.
func (r *Router) Loads() []int64 { return slices.Clone(r.load) }

func (r *Router) byCache(pages []uint64) int {
	least, most := slices.Min(r.load), slices.Max(r.load)
	h, depth := uint64(0), 0
	var best []uint64
	for i, p := range pages {
		h = mix(h, p)
		k := r.lookup(h)
		if k == nil {
			break
		}
		best, depth = k.workers, i+1
	}
	w := -1
	switch {
	case most-least > balanceAbs && float64(most) > float64(least)*balanceRelative:
		w = r.idlest(nil)
	case len(pages) > 0 && float64(depth) > cacheThreshold*float64(len(pages)):
		w = r.idlest(best)
	default: // where the least is cached
		w = 0
		for i := range r.sizes {
			if r.sizes[i] < r.sizes[w] {
				w = i
			}
		}
	}
	h = 0
	for _, p := range pages {
		h = mix(h, p)
		r.add(h, w)
	}
	return w
}

// idlest is the worker with the least load, of those in the set when there is one.
func (r *Router) idlest(set []uint64) int {
	w := -1
	for i := range r.workers {
		if set != nil && set[i/64]>>(i%64)&1 == 0 {
			continue
		}
		if w < 0 || r.load[i] < r.load[w] {
			w = i
		}
	}
	return w
}

func (r *Router) lookup(h uint64) *prefix {
	if k := r.tree[h]; k != nil {
		return k
	}
	k := r.old[h]
	if k != nil {
		delete(r.old, h)
		r.put(h, k)
	}
	return k
}

func (r *Router) put(h uint64, k *prefix) {
	r.tree[h] = k
	if len(r.tree) < treePages {
		return
	}
	for _, gone := range r.old {
		for i := range r.workers {
			if gone.workers[i/64]>>(i%64)&1 == 1 {
				r.sizes[i]--
			}
		}
	}
	r.old, r.tree = r.tree, map[uint64]*prefix{}
}

func (r *Router) add(h uint64, w int) {
	k := r.lookup(h)
	if k == nil {
		k = &prefix{workers: make([]uint64, (len(r.workers)+63)/64)}
		r.put(h, k)
	}
	if k.workers[w/64]>>(w%64)&1 == 0 {
		k.workers[w/64] |= 1 << (w % 64)
		r.sizes[w]++
	}
}
