package corpus

import (
	"cmp"
	"container/heap"
	"slices"
)

// Rules by which agents that hide in a flat list of requests are found; names and defaults
// are those of AIPerf's environment (AIPERF_DATASET_WEKA_*, 2026-06).
const (
	epsilonNs           = 1_000 // 1 µs: recorded ends and starts that are this close are equal
	seamMaxGapNs        = 3600 * 1_000_000_000
	seamMinOverlap      = 0.5
	preambleMaxOut      = 64
	auxMaxRequests      = 1
	auxInRatio          = 0.10
	auxInFloor          = 16384
	auxReductionMaxOut  = 4000
	auxReductionRatio   = 20
	workerGroupMinChain = 3
)

// A chain is a run of requests that one agent made.
type chain struct {
	requests []*request // in order of (t, outer)
	tail     *request   // last request with blocks
	// parent is the chain that this one forked from, Unbound for none, and at the request it
	// forked behind, with depth blocks in common.
	parent  int
	at      *request
	depth   int
	spliced int // the chain that this one turned out to continue, Unbound for none
}

// detection is the outcome of splitting a flat list.
type detection struct {
	chains  []*chain
	main    int   // chain of the first request
	workers []int // other chains in order of their first request
	seams   int   // chains that continued another
}

func commonPrefix(a, b []uint32) int {
	n := min(len(a), len(b))
	for i := 0; i < n; i++ {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

func byTime(a, b *request) int {
	return cmp.Or(cmp.Compare(a.t, b.t), cmp.Compare(a.outer, b.outer))
}

// splitPreamble takes the first request off when it is a throw-away call, such as one that
// makes up a title: it shares no prefix with any other and is short or shares no block at all.
// It is sent with the main chain, but must not found it.
func splitPreamble(reqs []*request) (preamble *request, rest []*request) {
	if len(reqs) < 2 {
		return nil, reqs
	}
	first, rest := reqs[0], reqs[1:]
	if len(first.blocks) == 0 {
		return nil, reqs
	}
	for _, r := range rest {
		if len(r.blocks) > 0 && r.blocks[0] == first.blocks[0] {
			return nil, reqs
		}
	}
	if first.out > preambleMaxOut {
		own := make(map[uint32]bool, len(first.blocks))
		for _, b := range first.blocks {
			own[b] = true
		}
		for _, r := range rest {
			for _, b := range r.blocks {
				if own[b] {
					return nil, reqs
				}
			}
		}
	}
	return first, rest
}

// detect splits requests, sorted by byTime, into the chains of agents.
//
// A request continues a chain when the chain's tail is a prefix of it, ran on the same model
// and had ended. Otherwise it forks from the tail with which it has most in common. A second
// pass finds the forks that are no new agent but the same one after its context was cut, by a
// compaction or an edit: the deepest fork from a tail that nothing extended continues it.
func detect(reqs []*request) *detection {
	d := &detection{}
	if len(reqs) == 0 {
		return d
	}
	owner := make(map[*request]int, len(reqs))
	forks := map[*request][]int{}
	add := func(c int, r *request) {
		ch := d.chains[c]
		ch.requests = append(ch.requests, r)
		owner[r] = c
		if len(r.blocks) > 0 {
			ch.tail = r
		}
	}
	for _, r := range reqs {
		if len(d.chains) == 0 {
			d.chains = append(d.chains, &chain{parent: Unbound, spliced: Unbound})
			add(0, r)
			continue
		}
		if len(r.blocks) == 0 {
			add(0, r)
			continue
		}
		if c := d.extends(r); c != Unbound {
			add(c, r)
			continue
		}
		parent, depth := d.deepest(r)
		if parent == Unbound && len(d.chains) == 1 && d.chains[0].tail == nil {
			add(0, r) // the first request with blocks behind some without
			continue
		}
		ch := &chain{parent: parent, depth: depth, spliced: Unbound}
		n := len(d.chains)
		d.chains = append(d.chains, ch)
		add(n, r)
		if parent != Unbound {
			ch.at = d.chains[parent].tail
			forks[ch.at] = append(forks[ch.at], n)
		}
	}
	d.spliceSeams(owner, forks)
	for _, ch := range d.chains {
		if ch.spliced == Unbound && ch.parent != Unbound {
			ch.parent = d.live(ch.parent)
		}
		slices.SortFunc(ch.requests, byTime)
	}
	d.main = d.live(owner[reqs[0]])
	for i, ch := range d.chains {
		if ch.spliced == Unbound && i != d.main {
			d.workers = append(d.workers, i)
		}
	}
	slices.SortFunc(d.workers, func(a, b int) int {
		return byTime(d.chains[a].requests[0], d.chains[b].requests[0])
	})
	return d
}

// live follows splices to the chain that still stands.
func (d *detection) live(i int) int {
	for d.chains[i].spliced != Unbound {
		i = d.chains[i].spliced
	}
	return i
}

// extends returns the chain with the longest tail that r continues.
func (d *detection) extends(r *request) int {
	best, bestLen := Unbound, 0
	for i, ch := range d.chains {
		t := ch.tail
		if t == nil {
			continue
		}
		n := len(t.blocks)
		if n <= bestLen || n > len(r.blocks) || t.model != r.model || t.end() > r.t+epsilonNs {
			continue
		}
		if t.blocks[n-1] == r.blocks[n-1] && commonPrefix(t.blocks, r.blocks) == n {
			best, bestLen = i, n
		}
	}
	return best
}

// deepest returns the chain whose tail has the longest prefix in common with r; among equals
// the longer tail, then the earlier chain.
func (d *detection) deepest(r *request) (int, int) {
	best, depth, length := Unbound, 0, 0
	for i, ch := range d.chains {
		if ch.tail == nil {
			continue
		}
		n := commonPrefix(ch.tail.blocks, r.blocks)
		if n > depth || n == depth && n > 0 && len(ch.tail.blocks) > length {
			best, depth, length = i, n, len(ch.tail.blocks)
		}
	}
	return best, depth
}

// outerHeap orders fork points by their place in the list.
type outerHeap []*request

func (h outerHeap) Len() int           { return len(h) }
func (h outerHeap) Less(i, j int) bool { return h[i].outer < h[j].outer }
func (h outerHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *outerHeap) Push(x any)        { *h = append(*h, x.(*request)) }
func (h *outerHeap) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}

// spliceSeams is the second pass. A splice moves a chain's tail, so forks that were left over
// at the old tail are compared with the new one and stand for election there again.
func (d *detection) spliceSeams(owner map[*request]int, forks map[*request][]int) {
	var todo outerHeap
	for r := range forks {
		todo = append(todo, r)
	}
	heap.Init(&todo)
	done := map[*request]bool{}
	for len(todo) > 0 {
		at := heap.Pop(&todo).(*request)
		if done[at] {
			continue
		}
		done[at] = true
		own := d.live(owner[at])
		if lastWithBlocks(d.chains[own].requests) != at {
			continue // the longer state lived on: every fork is an agent of its own
		}
		var open []int
		for _, c := range forks[at] {
			if d.chains[c].spliced == Unbound {
				open = append(open, c)
			}
		}
		elected := d.elect(at, open)
		if elected == Unbound {
			continue
		}
		target := d.chains[elected]
		d.chains[own].requests = append(d.chains[own].requests, target.requests...)
		target.spliced = own
		d.seams++
		tail := lastWithBlocks(d.chains[own].requests)
		moved := false
		for _, c := range open {
			ch := d.chains[c]
			if c == elected || ch.spliced != Unbound {
				continue
			}
			n := commonPrefix(tail.blocks, ch.requests[0].blocks)
			if n == 0 {
				continue
			}
			ch.at, ch.depth, ch.parent = tail, n, own
			forks[tail] = append(forks[tail], c)
			moved = true
		}
		if moved {
			delete(done, tail)
			heap.Push(&todo, tail)
		}
	}
}

func lastWithBlocks(reqs []*request) *request {
	for i := len(reqs) - 1; i >= 0; i-- {
		if len(reqs[i].blocks) > 0 {
			return reqs[i]
		}
	}
	return nil
}

// elect returns the fork that continues the agent whose last request is tail: the deepest on
// the same model that begins after tail ended; among equals the earliest. A fork that comes
// late and has little in common is a new session that shares a system prompt.
func (d *detection) elect(tail *request, open []int) int {
	best := Unbound
	for _, c := range open {
		ch := d.chains[c]
		first := ch.requests[0]
		if ch.depth == 0 || tail.end() > first.t+epsilonNs || first.model != tail.model {
			continue
		}
		overlap := float64(ch.depth) / float64(len(tail.blocks))
		if first.t-tail.end() > seamMaxGapNs && overlap < seamMinOverlap {
			continue
		}
		if best == Unbound || ch.depth > d.chains[best].depth ||
			ch.depth == d.chains[best].depth && first.t < d.chains[best].requests[0].t {
			best = c
		}
	}
	return best
}

// A verdict says what a chain beside the main one is.
type verdict struct {
	kind   Kind
	group  int // of a WorkerGroup
	member int
}

// classify says what each worker of d is, in order of d.workers.
func (d *detection) classify() []verdict {
	out := make([]verdict, len(d.workers))
	if len(d.workers) == 0 {
		return out
	}
	main := d.chains[d.main].requests
	peak := int64(0)
	for _, r := range main {
		peak = max(peak, r.in)
	}
	groups := d.workerGroups()
	for i, c := range d.workers {
		reqs := d.chains[c].requests
		first := reqs[0]
		switch {
		case len(reqs) <= auxMaxRequests &&
			(first.model != main[0].model || first.in < max(auxInFloor, int64(auxInRatio*float64(peak)))):
			out[i] = verdict{kind: Aux}
		case len(reqs) == 1 && first.out > 0 && first.out < auxReductionMaxOut &&
			first.in >= auxInFloor && first.in > auxReductionRatio*first.out:
			// a reduction: much input boiled down to little output
			out[i] = verdict{kind: Aux}
		default:
			out[i] = verdict{kind: FlatAgent}
			if g, ok := groups[c]; ok {
				out[i] = verdict{kind: WorkerGroup, group: g[0], member: g[1]}
			}
		}
	}
	return out
}

// workerGroups finds chains that forked from one request and ran side by side: the connected
// components of overlapping intervals, of at least workerGroupMinChain, in order of start.
func (d *detection) workerGroups() map[int][2]int {
	type span struct {
		t0, t1       int64
		outer, chain int
	}
	type point struct {
		parent int
		at     *request
	}
	var points []point
	spans := map[point][]span{}
	for _, c := range d.workers {
		ch := d.chains[c]
		if ch.depth == 0 || ch.parent == Unbound || ch.at == nil {
			continue
		}
		sp := span{t0: ch.requests[0].t, outer: ch.requests[0].outer, chain: c}
		for _, r := range ch.requests {
			sp.t1 = max(sp.t1, r.end())
		}
		p := point{ch.parent, ch.at}
		if spans[p] == nil {
			points = append(points, p)
		}
		spans[p] = append(spans[p], sp)
	}
	order := func(a, b span) int { return cmp.Or(cmp.Compare(a.t0, b.t0), cmp.Compare(a.outer, b.outer)) }
	var groups [][]span
	for _, p := range points {
		list := spans[p]
		slices.SortFunc(list, order)
		for i := 0; i < len(list); {
			end := list[i].t1
			j := i + 1
			for ; j < len(list) && list[j].t0 < end; j++ {
				end = max(end, list[j].t1)
			}
			if j-i >= workerGroupMinChain {
				groups = append(groups, list[i:j])
			}
			i = j
		}
	}
	slices.SortFunc(groups, func(a, b []span) int { return order(a[0], b[0]) })
	out := map[int][2]int{}
	for g, list := range groups {
		for m, sp := range list {
			out[sp.chain] = [2]int{g, m}
		}
	}
	return out
}
