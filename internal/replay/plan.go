package replay

import (
	"cmp"
	"slices"
	"strings"

	"github.com/weirbench/weir/internal/corpus"
	"github.com/weirbench/weir/internal/prompt"
)

// ref names one turn of a trace.
type ref struct{ stream, turn int32 }

// spawn starts a child stream some time after its parent's turn was sent or had ended.
type spawn struct {
	child  int32
	offset int64
}

// turnPlan is what has to hold before a turn is sent and what follows from it.
type turnPlan struct {
	start    int64   // recorded, since the trace's start
	gap      int64   // idle time after the turn before it ended
	joins    []int32 // child streams that must have ended
	barriers []ref   // turns of other streams that must have ended
	atSend   []spawn // children that began while this turn ran
	atEnd    []spawn // children that began after it had ended
	saltAt   int32   // blocks before the salt
}

type streamPlan struct {
	turns []turnPlan
	kids  []int32
}

// plan is a trace prepared for replay: its dependencies resolved, once for all plays.
type plan struct {
	trace       *corpus.Trace
	streams     []streamPlan
	played      []bool // streams that can be reached from the root and have turns
	first, last int64  // start of the first and of the last turn
	timed       bool   // turns have start times that differ
	loosened    int    // contradictory dependencies that were dropped
}

func newPlan(tr *corpus.Trace, o *Options) *plan {
	p := &plan{trace: tr, streams: make([]streamPlan, len(tr.Streams)), played: make([]bool, len(tr.Streams))}
	for si := range tr.Streams {
		p.played[si] = si == 0 || p.child(si)
	}
	n := 0
	for si := range tr.Streams {
		s := &tr.Streams[si]
		p.streams[si].turns = make([]turnPlan, len(s.Turns))
		for k := range s.Turns {
			t, tp := &s.Turns[k], &p.streams[si].turns[k]
			tp.start = t.StartNs
			if n == 0 || t.StartNs < p.first {
				p.first = t.StartNs
			}
			if n == 0 || t.StartNs > p.last {
				p.last = t.StartNs
			}
			n++
			if k > 0 {
				tp.gap = gapBefore(t, &s.Turns[k-1], o)
			}
		}
		p.saltPositions(si, o.Salt)
	}
	p.timed = p.last > p.first
	p.spawns(o)
	if o.Barriers != BarrierNone && p.timed {
		p.barriers(o.Barriers)
	}
	p.loosen()
	return p
}

// gapBefore is the recorded idle time between the end of one turn and the start of the next.
func gapBefore(t, prev *corpus.Turn, o *Options) int64 {
	if o.NoGaps {
		return 0
	}
	gap := t.StartNs - prev.StartNs - max(prev.APINs, 0)
	if o.ThinkGaps && t.ThinkNs > 0 {
		gap = t.ThinkNs
	}
	gap = max(gap, 0)
	if o.TurnGapCapNs > 0 {
		gap = min(gap, o.TurnGapCapNs)
	}
	return gap
}

// saltPositions finds, for every turn of a stream, the blocks before its salt: for a salt
// before the first user message or behind the system message those of the system segment, for
// one behind the first user message those of that message too. A turn that keeps fewer blocks
// of the one before it cuts them for good.
func (p *plan) saltPositions(si int, salt prompt.Placement) {
	at := int32(0)
	for k := range p.streams[si].turns {
		at = saltAt(p.trace, si, k, salt, at)
		p.streams[si].turns[k].saltAt = at
	}
}

// saltAt is the number of blocks before the salt of a turn, given that of the turn before it.
func saltAt(tr *corpus.Trace, si, k int, salt prompt.Placement, before int32) int32 {
	s, bs := &tr.Streams[si], tr.BlockSize
	b := s.Turns[k].Blocks
	switch {
	case salt == prompt.NoSalt:
		return int32(len(b))
	case salt == prompt.SystemPrefix || bs <= 0:
		return 0
	case k > 0:
		return int32(commonPrefix(s.Turns[k-1].Blocks, b, int(before)))
	}
	at := min(max(s.Turns[0].In, 0)/bs, int64(len(b)))
	if salt != prompt.FirstTurnSuffix {
		at = min(at, (max(s.SystemTokens, 0)+bs-1)/bs)
	}
	return int32(at)
}

// SharedBlocks returns a function that tells how many leading blocks of a turn's prompt are the
// same in every play of its trace: those before the salt.
func SharedBlocks(salt prompt.Placement) func(tr *corpus.Trace, stream, turn int) int {
	type key struct {
		trace  *corpus.Trace
		stream int
	}
	known := map[key][]int32{}
	return func(tr *corpus.Trace, stream, turn int) int {
		list, ok := known[key{tr, stream}]
		if !ok {
			at := int32(0)
			for k := range tr.Streams[stream].Turns {
				at = saltAt(tr, stream, k, salt, at)
				list = append(list, at)
			}
			known[key{tr, stream}] = list
		}
		return int(list[turn])
	}
}

// commonPrefix is the number of leading blocks that two prompts share, at most limit.
func commonPrefix(a, b []uint32, limit int) int {
	n := min(len(a), len(b), limit)
	if n <= 0 || &a[0] == &b[0] {
		return max(n, 0)
	}
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// spawns hangs children on the turns that start and join them. Children of one turn that join
// at the same turn form a branch, sub-agents apart from agents that were found; a branch that began while its turn ran starts with the
// sending of that turn, another with its end, each child at its recorded offset from there
// (AIPerf branch_orchestrator.py, 2026-08).
func (p *plan) spawns(o *Options) {
	type branch struct {
		parent, spawn, join int
		called              bool // as a sub-agent, not found in a flat list of requests
	}
	starts := map[branch]int64{}
	of := func(si int) branch {
		s := &p.trace.Streams[si]
		return branch{s.Parent, s.Spawn, s.Join, p.scope(si) != ""}
	}
	begin := func(s *corpus.Stream) int64 {
		if s.StartNs > 0 && s.StartNs < s.Turns[0].StartNs {
			return s.StartNs
		}
		return s.Turns[0].StartNs
	}
	for si := 1; si < len(p.trace.Streams); si++ {
		s := &p.trace.Streams[si]
		if !p.played[si] {
			continue
		}
		at := begin(s)
		if old, ok := starts[of(si)]; !ok || at < old {
			starts[of(si)] = at
		}
	}
	for si := 1; si < len(p.trace.Streams); si++ {
		s := &p.trace.Streams[si]
		if !p.played[si] {
			continue
		}
		parent := &p.trace.Streams[s.Parent]
		p.streams[s.Parent].kids = append(p.streams[s.Parent].kids, int32(si))
		t := &parent.Turns[s.Spawn]
		tp := &p.streams[s.Parent].turns[s.Spawn]
		start, first := starts[of(si)], s.Turns[0].StartNs
		offset := func(from int64) spawn {
			if o.NoGaps {
				return spawn{child: int32(si)}
			}
			return spawn{int32(si), max(0, first-from)}
		}
		if t.APINs > 0 && start < t.EndNs() {
			tp.atSend = append(tp.atSend, offset(t.StartNs))
		} else {
			tp.atEnd = append(tp.atEnd, offset(start))
		}
		if s.Join > s.Spawn && s.Join < len(parent.Turns) {
			join := &p.streams[s.Parent].turns[s.Join]
			join.joins = append(join.joins, int32(si))
		}
	}
}

// child tells whether a stream can be played as a child: it has turns, and a turn of a stream
// that is played spawns it.
func (p *plan) child(si int) bool {
	s := &p.trace.Streams[si]
	return len(s.Turns) > 0 && s.Parent >= 0 && s.Parent < si && p.played[s.Parent] &&
		s.Spawn >= 0 && s.Spawn < len(p.trace.Streams[s.Parent].Turns)
}

// scope is the sub-agent within whose recorded order a stream belongs, "" for the root's.
func (p *plan) scope(si int) string {
	id := p.trace.Streams[si].ID
	if _, agent, ok := strings.Cut(id, "::sa:"); ok {
		for _, nested := range []string{":aux:", ":fa:", ":wg:"} {
			if i := strings.LastIndex(agent, nested); i >= 0 {
				agent = agent[:i]
			}
		}
		return agent
	}
	for i := si; i > 0; i = p.trace.Streams[i].Parent {
		if p.trace.Streams[i].Kind == corpus.SubAgent {
			return p.trace.Streams[i].ID
		}
	}
	return ""
}

// barriers finds what each turn waits for by recorded order: of every other stream in its
// scope the latest turn that had ended when this one started, leaving out those that a later
// one of them implies. Overlapping turns are unordered, equal starts too, and a turn without
// a recorded service time has no width.
func (p *plan) barriers(mode Barriers) {
	type end struct {
		ref
		start, end int64
	}
	scopes := make([]string, len(p.streams))
	var turns []end
	for si := range p.streams {
		if !p.played[si] {
			continue
		}
		scopes[si] = p.scope(si)
		for k := range p.streams[si].turns {
			t := &p.trace.Streams[si].Turns[k]
			turns = append(turns, end{ref{int32(si), int32(k)}, t.StartNs, t.StartNs + max(t.APINs, 0)})
		}
	}
	// At equal ends the later start comes last, and so stands as the latest of its stream.
	byEnd := slices.Clone(turns)
	slices.SortFunc(byEnd, func(a, b end) int {
		return cmp.Or(cmp.Compare(a.end, b.end), cmp.Compare(a.start, b.start), cmp.Compare(a.turn, b.turn))
	})
	slices.SortFunc(turns, func(a, b end) int {
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.stream, b.stream), cmp.Compare(a.turn, b.turn))
	})
	latest := make([]end, len(p.streams))
	for i := range latest {
		latest[i].stream = -1
	}
	var known []int32 // streams with a turn that has ended
	next := 0
	var pointlike []end // ended exactly now with no width: ordered before later starts only
	for i := 0; i < len(turns); {
		now := turns[i].start
		for _, e := range pointlike {
			if latest[e.stream].stream < 0 {
				known = append(known, e.stream)
			}
			latest[e.stream] = e
		}
		pointlike = pointlike[:0]
		for ; next < len(byEnd) && byEnd[next].end <= now; next++ {
			e := byEnd[next]
			if e.start == now {
				pointlike = append(pointlike, e)
				continue
			}
			if latest[e.stream].stream < 0 {
				known = append(known, e.stream)
			}
			latest[e.stream] = e
		}
		for ; i < len(turns) && turns[i].start == now; i++ {
			t := turns[i]
			newest := int64(-1 << 62)
			in := func(other int32) bool {
				return other != t.stream &&
					(scopes[other] == scopes[t.stream] || mode == BarrierTree && scopes[t.stream] == "")
			}
			for _, s := range known {
				if in(s) {
					newest = max(newest, latest[s].start)
				}
			}
			var out []ref
			for _, s := range known {
				if e := latest[s]; in(s) && !(e.start < newest && e.end <= newest) {
					out = append(out, e.ref)
				}
			}
			slices.SortFunc(out, func(a, b ref) int {
				return cmp.Or(cmp.Compare(a.stream, b.stream), cmp.Compare(a.turn, b.turn))
			})
			p.streams[t.stream].turns[t.turn].barriers = out
		}
	}
}

// loosen drops dependencies that no order of turns can meet: barriers first, then joins.
// Recorded runs hold few or none; without this such a tree would never end.
func (p *plan) loosen() {
	need := make([][]int32, len(p.streams)) // unmet dependencies of a turn
	after := map[ref][]ref{}                // turns that wait for a turn's end
	last := func(si int32) ref { return ref{si, int32(len(p.streams[si].turns)) - 1} }
	var ready, all []ref
	for si := range p.streams {
		need[si] = make([]int32, len(p.streams[si].turns))
		if !p.played[si] {
			continue
		}
		for k := range p.streams[si].turns {
			at, tp := ref{int32(si), int32(k)}, &p.streams[si].turns[k]
			all = append(all, at)
			wait := func(on ref) {
				need[si][k]++
				after[on] = append(after[on], at)
			}
			if k > 0 {
				wait(ref{int32(si), int32(k) - 1})
			} else if si > 0 {
				// Started by the sending of its spawn turn, which is not later than its end.
				s := &p.trace.Streams[si]
				wait(ref{int32(s.Parent), int32(s.Spawn)})
			}
			for _, j := range tp.joins {
				wait(last(j))
			}
			for _, b := range tp.barriers {
				wait(b)
			}
			if need[si][k] == 0 {
				ready = append(ready, at)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b ref) int {
		return cmp.Compare(p.streams[a.stream].turns[a.turn].start, p.streams[b.stream].turns[b.turn].start)
	})
	met := map[ref]bool{}
	for left := len(all); left > 0; {
		for len(ready) > 0 {
			at := ready[len(ready)-1]
			ready = ready[:len(ready)-1]
			met[at] = true
			left--
			for _, w := range after[at] {
				if need[w.stream][w.turn]--; need[w.stream][w.turn] == 0 {
					ready = append(ready, w)
				}
			}
		}
		if left == 0 {
			return
		}
		if at, ok := p.relax(all, met, need, after); ok {
			ready = append(ready, at...)
			continue
		}
		return // the tree of spawns itself is sound: nothing can be left
	}
}

// relax drops the unmet barriers, or where there are none the unmet joins, of the earliest
// turn that is stuck on them, and returns the turns that this frees.
func (p *plan) relax(all []ref, met map[ref]bool, need [][]int32, after map[ref][]ref) (freed []ref, ok bool) {
	for _, kind := range []string{"barrier", "join"} {
		for _, at := range all {
			tp := &p.streams[at.stream].turns[at.turn]
			if met[at] || at.turn > 0 && !met[ref{at.stream, at.turn - 1}] {
				continue
			}
			var cut []ref
			if kind == "barrier" {
				tp.barriers = slices.DeleteFunc(tp.barriers, func(r ref) bool {
					if !met[r] {
						cut = append(cut, r)
					}
					return !met[r]
				})
			} else {
				tp.joins = slices.DeleteFunc(tp.joins, func(c int32) bool {
					r := ref{c, int32(len(p.streams[c].turns)) - 1}
					if !met[r] {
						cut = append(cut, r)
					}
					return !met[r]
				})
			}
			if len(cut) == 0 {
				continue
			}
			p.loosened += len(cut)
			for _, on := range cut {
				i := slices.Index(after[on], at)
				after[on] = slices.Delete(after[on], i, i+1)
				need[at.stream][at.turn]--
			}
			if need[at.stream][at.turn] == 0 {
				freed = append(freed, at)
			}
			return freed, true
		}
	}
	return nil, false
}
