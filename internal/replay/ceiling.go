package replay

// blockSet is a set of block identities of one trace. Identities are small and dense in
// recorded traces; the far ones of other corpora go to a map.
type blockSet struct {
	pages []*[64]uint64
	far   map[uint32]struct{}
}

const (
	pageBits = 12 // identities a page holds, as a power of two
	farBlock = 1 << 26
)

func (s *blockSet) has(b uint32) bool {
	if b >= farBlock {
		_, ok := s.far[b]
		return ok
	}
	p := int(b >> pageBits)
	return p < len(s.pages) && s.pages[p] != nil && s.pages[p][b>>6&63]&(1<<(b&63)) != 0
}

func (s *blockSet) add(b uint32) {
	if b >= farBlock {
		if s.far == nil {
			s.far = map[uint32]struct{}{}
		}
		s.far[b] = struct{}{}
		return
	}
	p := int(b >> pageBits)
	if p >= len(s.pages) {
		s.pages = append(s.pages, make([]*[64]uint64, p+1-len(s.pages))...)
	}
	if s.pages[p] == nil {
		s.pages[p] = new([64]uint64)
	}
	s.pages[p][b>>6&63] |= 1 << (b & 63)
}

// ceiling is the number of prompt tokens of a turn that an infinite cache, clean at the start
// of the run, holds now: the leading run of blocks that were sent before. Blocks before the
// salt are the same in every play of the trace, all others in this tree alone. The turn's
// blocks are then held too.
//
// known is a number of leading blocks that this tree has sent before; only what follows costs
// time.
func (tr *tree) ceiling(si, turn int, known int) int64 {
	t := &tr.plan.trace.Streams[si].Turns[turn]
	b := t.Blocks
	own, shared := &tr.seen, tr.shared
	split := min(int(tr.plan.streams[si].turns[turn].saltAt), len(b))
	hit := min(known, len(b))
	for ; hit < len(b); hit++ {
		set := own
		if hit < split {
			set = shared
		}
		if !set.has(b[hit]) {
			break
		}
	}
	for i := hit; i < len(b); i++ {
		if i < split {
			shared.add(b[i])
		} else {
			own.add(b[i])
		}
	}
	return min(int64(hit)*tr.plan.trace.BlockSize, t.In)
}
