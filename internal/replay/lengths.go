package replay

import (
	"cmp"
	"fmt"

	"github.com/weirbench/weir/internal/corpus"
)

// Lengths describe conversations of fixed size, for the loads that are not recorded.
type Lengths struct {
	Name          string
	Conversations int     // at least 1
	Turns         int     // of each; 0 means 1
	In            int64   // new prompt tokens of a turn, without the prefix; at least 1
	Out           int64   // output tokens of a turn, at least 1
	RangeRatio    float64 // a length is uniform in [ratio x length, length]; 1 is fixed, 0 means 1
	// Prefix is a number of tokens at the head of every prompt; SharedShare of it, from its
	// start, is the same for all conversations, the rest is a conversation's own.
	Prefix      int64
	SharedShare float64
	Seed        uint64
}

const lengthsBlock = 64 // tokens in a block of a made-up conversation

// Corpus makes the conversations, as the streams of one trace: equal block identities are
// equal tokens there, so that a prefix can be shared and everything else is distinct. With another
// seed all tokens are others, so that a server that has seen one finds nothing of the other. Shared
// and own parts of the prefix are cut at whole blocks.
//
// With a range ratio lengths are drawn as InferenceX's fixed-seq-len scenario draws them
// (benchmark_serving.py --random-range-ratio, 2026-08): uniform integers from
// max(1, int(ratio x length)) to length.
func (l Lengths) Corpus() (*corpus.Corpus, error) {
	ratio, turns := l.RangeRatio, max(l.Turns, 1)
	if ratio == 0 {
		ratio = 1
	}
	switch {
	case l.Conversations < 1:
		return nil, fmt.Errorf("%d conversations: need at least 1", l.Conversations)
	case l.In < 1 || l.Out < 1:
		return nil, fmt.Errorf("input length %d and output length %d: both need at least 1 token", l.In, l.Out)
	case !(ratio > 0 && ratio <= 1):
		return nil, fmt.Errorf("range ratio %v: need more than 0 and at most 1", l.RangeRatio)
	case l.Prefix < 0 || !(l.SharedShare >= 0 && l.SharedShare <= 1):
		return nil, fmt.Errorf("prefix of %d tokens with a shared part of %v: need at least 0 tokens and a share from 0 to 1", l.Prefix, l.SharedShare)
	}
	perTurn := (l.Prefix+l.In)/lengthsBlock + (l.Out+lengthsBlock-1)/lengthsBlock + 2
	if need := float64(perTurn) * float64(turns) * float64(l.Conversations); need > 1<<31 {
		return nil, fmt.Errorf("%d conversations of %d turns need %.0f blocks: at most %d can be told apart", l.Conversations, turns, need, 1<<31)
	}
	rng := newPCG64(laneSeed(l.Seed, "lengths", 0))
	draw := func(n int64) int64 {
		low := max(1, int64(ratio*float64(n)))
		return low + int64(rng.intn(uint32(min(n-low, 1<<32-2)+1)))
	}
	tr := &corpus.Trace{ID: l.Name, BlockSize: lengthsBlock, Models: []string{""}}
	if tr.ID == "" {
		tr.ID = "lengths"
	}
	tr.ID += fmt.Sprintf("-%d", l.Seed) // which the words of blocks are drawn from
	next := uint32(1)
	fresh := func(blocks []uint32, upTo int64) []uint32 {
		for int64(len(blocks)) < upTo {
			blocks = append(blocks, next)
			next++
		}
		return blocks
	}
	shared := fresh(nil, int64(l.SharedShare*float64(l.Prefix))/lengthsBlock)
	for i := range l.Conversations {
		s := corpus.Stream{
			ID: fmt.Sprintf("%s-%06d", tr.ID, i), Parent: corpus.Unbound, Spawn: corpus.Unbound, Join: corpus.Unbound,
			SystemTokens: l.Prefix,
		}
		in := l.Prefix
		var blocks []uint32
		for k := range turns {
			in += draw(l.In)
			if k == 0 {
				blocks = append(make([]uint32, 0, in/lengthsBlock+1), shared...)
			}
			blocks = fresh(blocks[:len(blocks):cap(blocks)], in/lengthsBlock)
			t := corpus.Turn{In: in, Out: draw(l.Out), Blocks: blocks[:len(blocks):len(blocks)]}
			s.Turns = append(s.Turns, t)
			in += t.Out // the answer becomes part of the prompt after it
		}
		tr.Streams = append(tr.Streams, s)
	}
	return &corpus.Corpus{Name: cmp.Or(l.Name, "lengths"), Traces: []*corpus.Trace{tr}}, nil
}
