package run

import (
	"github.com/weirbench/weir/internal/corpus"
	"github.com/weirbench/weir/internal/record"
)

// recorded counts which turns succeeded, to say afterwards what an infinite cache would have
// found of them in recorded order.
type recorded struct {
	corpus *corpus.Corpus
	turns  map[string]map[int]*[2]int64 // stream, turn: profiling, warm-up
}

// recorded is nil for a load, which no trace's order stands behind.
func (j *Job) recorded() *recorded {
	if j.Load != nil {
		return nil
	}
	return &recorded{corpus: j.Corpus, turns: map[string]map[int]*[2]int64{}}
}

func (r *recorded) add(q *record.Request) {
	if r == nil || !q.OK() || q.Phase == record.Calibrate {
		return
	}
	s := r.turns[q.Stream]
	if s == nil {
		s = map[int]*[2]int64{}
		r.turns[q.Stream] = s
	}
	if s[q.Turn] == nil {
		s[q.Turn] = new([2]int64)
	}
	phase := 1
	if q.Phase == record.Profiling {
		phase = 0
	}
	s[q.Turn][phase]++
}

// into writes the sums into the meta.
func (r *recorded) into(m *record.Meta) {
	if r == nil {
		return
	}
	var sum [2]record.Blocks
	for _, t := range r.corpus.Traces {
		if t.LengthsOnly {
			continue
		}
		var hits [][]int
		for i := range t.Streams {
			for turn, n := range r.turns[t.Streams[i].ID] {
				if turn < 0 || turn >= len(t.Streams[i].Turns) {
					continue
				}
				if hits == nil {
					hits = t.InfiniteHitBlocks()
				}
				for phase := range sum {
					sum[phase].Hit += n[phase] * int64(hits[i][turn])
					sum[phase].Total += n[phase] * int64(len(t.Streams[i].Turns[turn].Blocks))
				}
			}
		}
	}
	if sum[0].Total+sum[1].Total > 0 {
		m.RecordedHits = &record.RecordedHits{Profiling: sum[0], Warmup: sum[1]}
	}
}
