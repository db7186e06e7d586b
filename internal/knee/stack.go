package knee

import (
	"github.com/weirbench/weir/internal/corpus"
	"github.com/weirbench/weir/internal/replay"
)

// stack is the recency stack of an LRU prefix cache of unbounded size, as a radix tree whose
// nodes are runs of blocks that were last touched by the same prompt.
//
// A prompt touches its blocks from the last to the first, so the stack is a sequence of
// groups, one a prompt, the newest on top, and in a group the shallower block lies above the
// deeper one. Whoever touches a block later touches all that is before it too: what is left
// of a group is always the deep end of its prompt. The distance of a block is therefore what
// is left of all newer groups, plus what of its own group lies before it on the way from the
// root, plus itself. A cache of capacity C holds exactly the blocks at a distance of at most C.
type stack struct {
	unit  int64 // tokens: a common divisor of all block sizes
	nodes []node
	roots map[*corpus.Trace]int32
	trees map[string]uint32
	group fenwick // units that are left, by prompt
	path  []int32
	left  []removal
	hist  []int64 // differences: tokens found at a distance of that many units
	miss  int64   // tokens that were never seen before
}

type node struct {
	ids           []uint32
	tree          uint32 // 0 before the salt
	child, next   int32  // first child, next sibling; 0 is none
	last          int32  // prompt that touched it last
	lastNs        int64
	width, tokens int64 // of one block: units, tokens
	awaited       int   // leading blocks that expect has told of
}

type removal struct {
	group int32
	units int64
}

func newStack(c *corpus.Corpus) *stack {
	unit := int64(0)
	for _, t := range c.Traces {
		unit = gcd(unit, t.BlockSize)
	}
	return &stack{
		unit: max(unit, 1), nodes: make([]node, 1), roots: map[*corpus.Trace]int32{}, trees: map[string]uint32{},
	}
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// touch looks a prompt up and makes it the newest. Where it counts, what it finds goes into the
// histogram. held is told the tokens of each run that was held since an instant for this
// prompt; it returns the tokens found by an unbounded cache.
func (s *stack) touch(q *replay.Request, now int64, counts bool, held func(since, tokens int64)) (found int64) {
	t := &q.Trace.Streams[q.Stream].Turns[q.Turn]
	blocks := t.Blocks
	tree, ok := s.trees[q.Tree]
	if !ok {
		tree = uint32(len(s.trees)) + 1
		s.trees[q.Tree] = tree
	}
	at := s.root(q.Trace)
	split := min(q.Shared, len(blocks))
	s.path, s.left = s.path[:0], s.left[:0]
	all, run := int64(0), int64(0) // units of the prompt; units before the run in its group
	group, newer := int32(-1), int64(0)
	over := max(0, int64(len(blocks))*q.Trace.BlockSize-t.In) // tokens that the last block lacks
	for pos := 0; pos < len(blocks); {
		end, key := split, uint32(0)
		if pos >= split {
			end, key = len(blocks), tree
		}
		n, seen := s.descend(at, key, blocks[pos:end], q.Trace.BlockSize)
		x := &s.nodes[n]
		units := int64(len(x.ids)) * x.width
		if seen {
			if x.last != group {
				group, run = x.last, 0
				newer = s.group.total - s.group.sum(int(group)+1)
			}
			tokens := int64(len(x.ids)) * x.tokens
			lack := int64(0)
			if pos+len(x.ids) == len(blocks) {
				lack = over
			}
			found += tokens - lack
			held(x.lastNs, tokens)
			if counts {
				s.record(newer+run, x, lack)
			}
			run += units
			if k := len(s.left) - 1; k >= 0 && s.left[k].group == group {
				s.left[k].units += units
			} else {
				s.left = append(s.left, removal{group, units})
			}
		}
		all += units
		pos += len(x.ids)
		s.path = append(s.path, n)
		at = n
	}
	for _, r := range s.left {
		s.group.add(int(r.group), -r.units)
	}
	id := int32(s.group.append(all))
	for _, n := range s.path {
		s.nodes[n].last, s.nodes[n].lastNs = id, now
	}
	if counts {
		s.miss += t.In - found
	}
	return found
}

// expect tells held of the first n blocks of a prompt that was touched, each block once over
// all calls: they are held for a prompt that is still to come.
func (s *stack) expect(q *replay.Request, n int, held func(since, tokens int64)) {
	blocks := q.Trace.Streams[q.Stream].Turns[q.Turn].Blocks
	at, split, tree := s.root(q.Trace), min(q.Shared, len(blocks)), s.trees[q.Tree]
	for pos := 0; pos < n; {
		end, key := split, uint32(0)
		if pos >= split {
			end, key = len(blocks), tree
		}
		child, _ := s.descend(at, key, blocks[pos:end], q.Trace.BlockSize)
		x := &s.nodes[child]
		if part := min(len(x.ids), n-pos); part > x.awaited {
			held(x.lastNs, int64(part-x.awaited)*x.tokens)
			x.awaited = part
		}
		pos += len(x.ids)
		at = child
	}
}

func (s *stack) root(t *corpus.Trace) int32 {
	r, ok := s.roots[t]
	if !ok {
		s.nodes = append(s.nodes, node{})
		r = int32(len(s.nodes) - 1)
		s.roots[t] = r
	}
	return r
}

// descend finds the child of a node that begins like blocks, cut where they part, or adds one
// that holds them all.
func (s *stack) descend(at int32, tree uint32, blocks []uint32, size int64) (n int32, seen bool) {
	for n = s.nodes[at].child; n != 0; n = s.nodes[n].next {
		x := &s.nodes[n]
		if x.tree == tree && x.ids[0] == blocks[0] {
			if m := alike(x.ids, blocks); m < len(x.ids) {
				s.cut(n, m)
			}
			return n, true
		}
	}
	s.nodes = append(s.nodes, node{ids: blocks, tree: tree, next: s.nodes[at].child, width: size / s.unit, tokens: size})
	n = int32(len(s.nodes) - 1)
	s.nodes[at].child = n
	return n, false
}

// cut splits a node behind its first m blocks.
func (s *stack) cut(n int32, m int) {
	x := s.nodes[n]
	s.nodes = append(s.nodes, node{
		ids: x.ids[m:], tree: x.tree, child: x.child, last: x.last, lastNs: x.lastNs, width: x.width, tokens: x.tokens,
	})
	s.nodes[n].ids = x.ids[:m:m]
	s.nodes[n].child = int32(len(s.nodes) - 1)
}

// alike is the number of leading blocks that are equal. Turns share memory, so that most
// comparisons end at once.
func alike(a, b []uint32) int {
	n := min(len(a), len(b))
	if &a[0] == &b[0] {
		return n
	}
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// record counts the blocks of a run that begins behind a number of units of the stack.
func (s *stack) record(above int64, x *node, lack int64) {
	n := int64(len(x.ids))
	last := above + n*x.width
	if need := last + 2 - int64(len(s.hist)); need > 0 {
		s.hist = append(s.hist, make([]int64, need)...)
	}
	if x.width == 1 {
		s.hist[above+1] += x.tokens
		s.hist[last+1] -= x.tokens
	} else {
		for k := int64(1); k <= n; k++ {
			s.hist[above+k*x.width] += x.tokens
			s.hist[above+k*x.width+1] -= x.tokens
		}
	}
	s.hist[last] -= lack
	s.hist[last+1] += lack
}

// hits are the tokens found at a capacity of 0, 1, ... units.
func (s *stack) hits() []int64 {
	out := make([]int64, max(len(s.hist), 1))
	at, sum := int64(0), int64(0)
	for i, d := range s.hist {
		at += d
		sum += at
		out[i] = sum
	}
	return out
}

// fenwick sums a growing sequence.
type fenwick struct {
	tree  []int64 // from 1
	total int64
}

// append adds an element and returns its index from 0.
func (f *fenwick) append(v int64) int {
	if len(f.tree) == 0 {
		f.tree = append(f.tree, 0)
	}
	i := len(f.tree)
	sum := v
	for j := i - 1; j > i-(i&-i); j -= j & -j {
		sum += f.tree[j]
	}
	f.tree = append(f.tree, sum)
	f.total += v
	return i - 1
}

func (f *fenwick) add(i int, v int64) {
	f.total += v
	for i++; i < len(f.tree); i += i & -i {
		f.tree[i] += v
	}
}

// sum is the sum of the first n elements.
func (f *fenwick) sum(n int) (v int64) {
	for ; n > 0; n -= n & -n {
		v += f.tree[n]
	}
	return v
}
