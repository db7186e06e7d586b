package sim

import (
	"github.com/weirbench/weir/internal/corpus"
	"github.com/weirbench/weir/internal/replay"
)

// keyer gives the pages of a request's prompt their identities: equal identities at equal
// places of equal prefixes are equal tokens.
//
// The blocks before the salt, which are the system segment, are the same in every play of a
// trace; all others belong to the live tree. What lies beyond the recorded blocks is text of
// this turn alone.
type keyer struct {
	traces map[*corpus.Trace]uint64
	trees  map[string]uint64
}

func newKeyer() *keyer {
	return &keyer{traces: map[*corpus.Trace]uint64{}, trees: map[string]uint64{}}
}

func (k *keyer) trace(t *corpus.Trace) uint64 {
	n, ok := k.traces[t]
	if !ok {
		n = uint64(len(k.traces) + 1)
		k.traces[t] = n
	}
	return n
}

// tree is the number of a live play.
func (k *keyer) tree(name string) uint64 {
	n, ok := k.trees[name]
	if !ok {
		n = uint64(len(k.trees) + 1)
		k.trees[name] = n
	}
	return n
}

// pages returns the identities of the full pages of q's prompt.
func (k *keyer) pages(q *replay.Request, page int64) []uint64 {
	s := &q.Trace.Streams[q.Stream]
	t := &s.Turns[q.Turn]
	block := q.Trace.BlockSize
	trace, tree := 1<<62|k.trace(q.Trace)<<32, 2<<62|k.tree(q.Tree)<<32
	system := (s.SystemTokens + block - 1) / block
	covered := min(t.In/block, int64(len(t.Blocks)))
	tail := mix(mix(tree, uint64(q.Stream)), uint64(q.Turn)) >> 2 // top bits 0: no block has it
	id := func(i int64) uint64 {
		if i >= covered {
			return tail + uint64(i)
		}
		if i < system {
			return trace | uint64(t.Blocks[i])
		}
		return tree | uint64(t.Blocks[i])
	}
	n := t.In / page
	keys := make([]uint64, n, n+8)
	if page == block {
		for i := range keys {
			keys[i] = id(int64(i))
		}
		return keys
	}
	for i := range keys { // a page is what parts of which blocks it holds
		from, h := int64(i)*page, uint64(0)
		for at := from; at < from+page; {
			b := at / block
			h = mix(mix(h, id(b)), uint64(at%block))
			at = min((b+1)*block, from+page)
		}
		keys[i] = h&^(3<<62) | 1<<62
	}
	return keys
}

// mix folds b into a (splitmix64's finalizer, public domain, Vigna 2015).
func mix(a, b uint64) uint64 {
	z := (a ^ b) + 0x9e3779b97f4a7c15 + (a << 6) + (a >> 2)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
