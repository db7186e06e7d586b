package replay

import (
	"fmt"
	"math"
	"slices"

	"github.com/weirbench/weir/internal/record"
)

// streamState is where one conversation of a live tree stands.
type streamState struct {
	next    int32 // turn to send next
	done    int32 // turns that have ended, whatever their outcome
	sent    int32 // last turn that this tree sent, -1 before the first
	spawned bool
	ended   bool // no turn of it will be sent any more
	timed   bool // the recorded time of next has come
	blocked bool // ... and it waits for joins or barriers
	ready   int64
	joined  int64 // when its joins had opened, at the earliest ready
}

// tree is one live play of a trace.
type tree struct {
	lane, play int
	id, salt   string
	plan       *plan
	snapshot   bool
	origin     int64 // the instant of the trace that the replay clock of this tree began at
	st         []streamState
	live       int // streams spawned and not ended
	inflight   int
	idleSince  int64
	timers     heap[timer]
	shift      int64 // taken out of all its timers by the per-tree idle cap
	blocked    []int32
	seen       blockSet
	shared     *blockSet
}

type timer struct {
	at     int64 // with the shifts of tree and system added
	seq    uint64
	stream int32
}

func (a timer) before(b timer) bool { return a.at < b.at || a.at == b.at && a.seq < b.seq }

// newTree is a play of a trace from the first turn of its root.
func newTree(p *plan, lane, play int) *tree {
	tr := &tree{
		lane: lane, play: play, id: fmt.Sprintf("%d.%d", lane, play), plan: p,
		origin: p.first, st: make([]streamState, len(p.streams)), live: 1,
	}
	if len(p.streams[0].turns) > 0 {
		tr.origin = p.streams[0].turns[0].start
	}
	for i := range tr.st {
		tr.st[i] = streamState{sent: -1, spawned: i == 0, ended: !p.played[i]}
	}
	return tr
}

// snapshotAt moves a fresh tree to an instant of its trace, in milliseconds as AIPerf counts:
// each stream to its first turn at or after it. A child lives when the turn that spawned it
// lies before the instant and it has turns left.
func (tr *tree) snapshotAt(ms float64) {
	tr.snapshot = true
	tr.origin = int64(math.Round(ms * 1e6))
	for i := range tr.st {
		turns := tr.plan.streams[i].turns
		n := slices.IndexFunc(turns, func(t turnPlan) bool { return float64(t.start)/1e6 >= ms })
		if n < 0 {
			n = len(turns)
		}
		tr.place(i, int32(n))
	}
}

// splitAt moves a fresh tree of a trace without recorded times behind turn k of its root.
func (tr *tree) splitAt(k int32) {
	tr.snapshot = true
	for i := range tr.st {
		n := int32(len(tr.plan.streams[i].turns))
		if i == 0 {
			n = k + 1
		}
		tr.place(i, n)
	}
}

// place sets the next turn of a stream whose parent has been placed.
func (tr *tree) place(i int, next int32) {
	st := &tr.st[i]
	if i > 0 {
		s := &tr.plan.trace.Streams[i]
		if st.ended || !tr.st[s.Parent].spawned || int32(s.Spawn) >= tr.st[s.Parent].next {
			return
		}
		st.spawned = true
		tr.live++
	}
	st.next, st.done = next, next
	if int(next) == len(tr.plan.streams[i].turns) {
		st.ended = true
		tr.live--
	}
}

func (tr *tree) start(si, turn int32) int64 { return tr.plan.streams[si].turns[turn].start }

// joinsOpen tells whether every child that the next turn of a stream joins has ended.
func (tr *tree) joinsOpen(si int32) bool {
	for _, c := range tr.plan.streams[si].turns[tr.st[si].next].joins {
		if !tr.st[c].ended {
			return false
		}
	}
	return true
}

// barriersOpen tells the same of the turns of other streams that it waits for.
func (tr *tree) barriersOpen(si int32) bool {
	for _, b := range tr.plan.streams[si].turns[tr.st[si].next].barriers {
		if st := &tr.st[b.stream]; !st.ended && st.done <= b.turn {
			return false
		}
	}
	return true
}

// finish ends a stream. Children that it has not spawned will never be.
func (tr *tree) finish(si int32) {
	tr.st[si].ended = true
	tr.live--
	tr.bury(si)
}

func (tr *tree) bury(si int32) {
	for _, c := range tr.plan.streams[si].kids {
		if !tr.st[c].spawned && !tr.st[c].ended {
			tr.st[c].ended = true
			tr.bury(c)
		}
	}
}

// request is the next turn of a stream, or with back 1 the one before it, as it is sent.
func (tr *tree) request(si int32, back int32, phase record.Phase) Request {
	turn := tr.st[si].next - back
	t := &tr.plan.trace.Streams[si].Turns[turn]
	known := 0
	if last := tr.st[si].sent; last >= 0 {
		prev := tr.plan.trace.Streams[si].Turns[last].Blocks
		known = commonPrefix(prev, t.Blocks, len(prev))
	}
	tr.st[si].sent = turn
	return Request{
		Phase: phase, Lane: tr.lane, Play: tr.play, Tree: tr.id, Salt: tr.salt,
		Trace: tr.plan.trace, Stream: int(si), Turn: int(turn), MaxOut: 1,
		Snapshot: tr.snapshot, Ceiling: tr.ceiling(int(si), int(turn), known),
		Shared: int(tr.plan.streams[si].turns[turn].saltAt),
	}
}
