package replay

import (
	"cmp"
	"fmt"
	"math"

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
	// Prefixes is how many different shared parts there are; each conversation draws one. 0 means 1.
	Prefixes int
	// InDev, OutDev and TurnsDev are the deviations of normal draws around In, Out and Turns, each
	// rounded up and at least 1; 0 is fixed. They exclude a RangeRatio under 1.
	InDev, OutDev, TurnsDev float64
	// Pairs are lengths that each turn draws one of, in place of In and Out; Range bounds uniform draws of
	// both. Each excludes the other, deviations and a RangeRatio.
	Pairs []Pair
	Range *Range
	// Pause is the time from the end of a turn to the one after it, milliseconds, drawn as lengths
	// are with PauseDev, times PauseRatio; a PauseRatio of 0 means 1, a Pause of 0 is none.
	Pause, PauseDev, PauseRatio float64
	Seed                        uint64
}

// MaxPause is the longest mean time between turns and the largest deviation of it, milliseconds.
const MaxPause = 1e9

const lengthsBlock = 64 // tokens in a block of a made-up conversation

// Corpus makes the conversations, as the streams of one trace: equal block identities are
// equal tokens there, so that a prefix can be shared and everything else is distinct. With another
// seed all tokens are others, so that a server that has seen one finds nothing of the other. Shared
// and own parts of the prefix are cut at whole blocks.
//
// With a range ratio lengths are drawn as InferenceX's fixed-seq-len scenario draws them
// (benchmark_serving.py --random-range-ratio, 2026-08): uniform integers from
// max(1, int(ratio x length)) to length. Deviations, pairs, a range, pauses and one of several prefixes
// are drawn as AIPerf draws them, so that its run with the same seed has the same lengths in the same
// order (0.13, 2026-10).
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
	case !(l.InDev >= 0 && l.OutDev >= 0 && l.TurnsDev >= 0 && l.InDev <= 1e9 && l.OutDev <= 1e9 && l.TurnsDev <= 1e6):
		return nil, fmt.Errorf("deviations %v, %v and %v of input, output and turns: need 0 to 1e9 tokens and 0 to 1e6 turns", l.InDev, l.OutDev, l.TurnsDev)
	case !(l.Pause >= 0 && l.PauseDev >= 0 && l.PauseRatio >= 0 && l.Pause <= MaxPause && l.PauseDev <= MaxPause && l.PauseRatio <= 1e6):
		return nil, fmt.Errorf("pauses of %v ms, deviation %v, times %v: need 0 to %v ms and a factor of at most 1e6", l.Pause, l.PauseDev, l.PauseRatio, float64(MaxPause))
	case (l.InDev > 0 || l.OutDev > 0) && ratio != 1:
		return nil, fmt.Errorf("a range ratio of %v and deviations of lengths: give one of them", l.RangeRatio)
	case len(l.Pairs) > 0 && l.Range != nil, (len(l.Pairs) > 0 || l.Range != nil) && (l.InDev > 0 || l.OutDev > 0 || ratio != 1):
		return nil, fmt.Errorf("pairs of lengths, a range of them, a range ratio and deviations: give one of them")
	case l.Prefixes < 0 || l.Prefixes > 1 && int64(l.Prefixes) > 1<<31/max(l.Prefix/lengthsBlock, 1):
		return nil, fmt.Errorf("%d different prefixes of %d tokens: at most %d blocks can be told apart", l.Prefixes, l.Prefix, 1<<31)
	case l.Prefix < 0 || !(l.SharedShare >= 0 && l.SharedShare <= 1):
		return nil, fmt.Errorf("prefix of %d tokens with a shared part of %v: need at least 0 tokens and a share from 0 to 1", l.Prefix, l.SharedShare)
	}
	if len(l.Pairs) > 0 {
		if err := checkPairs(l.Pairs); err != nil {
			return nil, err
		}
	}
	if l.Range != nil {
		if err := l.Range.check(); err != nil {
			return nil, err
		}
	}
	mostIn, mostOut := l.largest()
	perTurn := float64(l.Prefix/lengthsBlock) + mostIn/lengthsBlock + mostOut/lengthsBlock + 3
	if need := perTurn * (float64(turns) + 12*l.TurnsDev) * float64(l.Conversations); need > 1<<31 {
		return nil, fmt.Errorf("%d conversations of %d turns need %.0f blocks: at most %d can be told apart", l.Conversations, turns, need, 1<<31)
	}
	draw, pool := l.turnDraws(), aiperfRandom(l.Seed, "dataset.prompt.prefix")
	ofTurns, ofPause := aiperfRandom(l.Seed, "composer.conversation.turn_count"), aiperfRandom(l.Seed, "composer.conversation.turn_delay")
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
	shared := make([][]uint32, max(l.Prefixes, 1))
	for i := range shared {
		shared[i] = fresh(nil, int64(l.SharedShare*float64(l.Prefix))/lengthsBlock)
	}
	for i := range l.Conversations {
		s := corpus.Stream{
			ID: fmt.Sprintf("%s-%06d", tr.ID, i), Parent: corpus.Unbound, Spawn: corpus.Unbound, Join: corpus.Unbound,
			SystemTokens: l.Prefix,
		}
		in := l.Prefix
		var blocks []uint32
		head := shared[0]
		if len(shared) > 1 {
			head = shared[pool.intn(uint32(len(shared)))]
		}
		n := turns
		if l.TurnsDev > 0 {
			n = int(ofTurns.around(float64(turns), l.TurnsDev))
		}
		for k := range n {
			length, out := draw()
			in += length
			if k == 0 {
				blocks = append(make([]uint32, 0, in/lengthsBlock+1), head...)
			}
			blocks = fresh(blocks[:len(blocks):cap(blocks)], in/lengthsBlock)
			t := corpus.Turn{In: in, Out: out, Blocks: blocks[:len(blocks):len(blocks)]}
			if k > 0 && l.Pause > 0 {
				t.ThinkNs = int64(float64(ofPause.around(math.Trunc(l.Pause), l.PauseDev)) * cmp.Or(l.PauseRatio, 1) * 1e6)
			}
			s.Turns = append(s.Turns, t)
			in += t.Out // the answer becomes part of the prompt after it
		}
		tr.Streams = append(tr.Streams, s)
	}
	return &corpus.Corpus{Name: cmp.Or(l.Name, "lengths"), Traces: []*corpus.Trace{tr}}, nil
}
