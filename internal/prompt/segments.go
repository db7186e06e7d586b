package prompt

import (
	"fmt"
	"sync/atomic"

	"github.com/weirbench/weir/internal/corpus"
)

// Role is who a message is from.
type Role uint8

const (
	System Role = iota
	User
	Assistant
)

var roleNames = [...]string{"system", "user", "assistant"}

func (r Role) String() string { return roleNames[r] }

// A Segment is one message of a prompt: whole blocks, and behind them, in the last message
// only, a tail that no block stands for.
type Segment struct {
	Role   Role
	Start  int   // index of its first block in Turn.Blocks
	Blocks int   // whole blocks
	Tail   int64 // tokens behind them
	// Given is how many of its tokens are left out in favour of the template's own tokens
	// and of the salt; negative when it stands in for what an earlier message gave too much.
	Given int64
}

// A segment is a Segment in the plan of a stream: a node of a tree in which every turn is the
// path from its last message to the first, so that turns share what they have in common.
type segment struct {
	parent *segment
	role   Role
	n      int32 // messages up to this one, itself included
	users  int32 // of these, from users
	start  int32 // first block
	blocks int32
	tail   int64
	// cut is the number of tokens asked of this message; given as many as it has. The
	// first block gives first, up to its identity, then the next, the tail last: a message
	// that loses its end keeps its beginning to the token.
	cut, given int64
	// debt is what the messages up to this one add to the recorded count: overhead of the
	// template and salt less what was given.
	debt int64
	// carrier marks the message that holds the salt; salted, that it or one before it does.
	carrier, salted bool
	// bytes caches the length of the blocks' text plus 1; 0 is not yet known.
	bytes [2]atomic.Int64
}

// A plan holds the last message of every turn of one stream.
type plan struct {
	heads []*segment
}

// geometry is what a turn keeps of the turn before it and what it adds.
type geometry struct {
	lcp     int   // whole blocks kept
	covered int   // whole blocks of the prompt that have an identity
	tail    int64 // tokens without one
}

// covered is the number of whole blocks of a turn that have an identity.
func covered(t *corpus.Turn, bs int64) int { return int(min(t.In/bs, int64(len(t.Blocks)))) }

// sharedBlocks is the length of the longest common prefix of two turns in whole blocks.
func sharedBlocks(a, b *corpus.Turn, bs int64) int {
	x, y := a.Blocks[:covered(a, bs)], b.Blocks[:covered(b, bs)]
	n := min(len(x), len(y))
	if n > 0 && &x[0] == &y[0] { // turns share memory
		return n
	}
	x, y = x[:n], y[:n]
	for i := range x {
		if x[i] != y[i] {
			return i
		}
	}
	return n
}

func geometries(s *corpus.Stream, bs int64) []geometry {
	g := make([]geometry, len(s.Turns))
	for k := range s.Turns {
		t := &s.Turns[k]
		g[k].covered = covered(t, bs)
		g[k].tail = t.In - int64(g[k].covered)*bs
		if k > 0 {
			g[k].lcp = sharedBlocks(&s.Turns[k-1], t, bs)
		}
	}
	return g
}

// maxPrompt is the longest prompt that is planned, tokens: far more than any model takes, and
// little enough that a wrong number does not write for hours.
const maxPrompt = 1 << 30

const noCap = int(^uint(0) >> 1)

// assistantCaps bounds the blocks of the assistant's message of every turn so that a later
// turn that falls back to a shorter prompt and adds nothing still ends with a user's block
// (compute_asst_block_caps of AIPerf).
func assistantCaps(g []geometry) []int {
	caps := make([]int, len(g))
	type region struct{ turn, start, end int }
	var tile []region
	for k := range g {
		caps[k] = noCap
		for len(tile) > 0 && tile[len(tile)-1].start >= g[k].lcp {
			tile = tile[:len(tile)-1]
		}
		if n := len(tile); n > 0 {
			last := &tile[n-1]
			last.end = min(last.end, g[k].lcp)
			if k > 0 && g[k].covered <= g[k].lcp && g[k].tail == 0 && last.turn > 0 {
				caps[last.turn] = min(caps[last.turn], g[k].lcp-1-last.start)
			}
		}
		if g[k].covered > g[k].lcp {
			tile = append(tile, region{k, g[k].lcp, g[k].covered})
		}
	}
	return caps
}

// planStream works out the messages of every turn of a stream. o says what the template and
// the salt add.
//
// Of every block its first keep tokens stay.
func planStream(tr *corpus.Trace, stream int, keep int64, o overhead) (*plan, error) {
	s, bs := &tr.Streams[stream], tr.BlockSize
	if bs < 1 {
		return nil, fmt.Errorf("trace %s: block size %d; must be at least 1", tr.ID, bs)
	}
	for k := range s.Turns {
		if in := s.Turns[k].In; in < 0 || in > maxPrompt {
			return nil, fmt.Errorf("trace %s stream %s turn %d: in is %d tokens; must be 0 to %d", tr.ID, s.ID, k, in, int64(maxPrompt))
		}
	}
	keep = min(keep, bs)
	g := geometries(s, bs)
	caps := assistantCaps(g)
	p := &plan{heads: make([]*segment, len(g))}
	var head *segment
	for k := range g {
		t := &s.Turns[k]
		l := layout{bs: bs, keep: keep, o: o, geometry: g[k]}
		if k == 0 {
			sys := max(0, s.SystemTokens) / bs
			if s.SystemTokens > sys*bs {
				sys++
			}
			if sys > int64(len(t.Blocks)) {
				return nil, fmt.Errorf("trace %s stream %s: the system prompt of %d tokens takes %d blocks of %d and turn 0 has %d: the blocks that every later prefix needs were not recorded",
					tr.ID, s.ID, s.SystemTokens, sys, bs, len(t.Blocks))
			}
			head = l.first(int(sys))
		} else {
			head = l.next(head, s.Turns[k-1].Out, caps[k])
		}
		p.heads[k] = head
	}
	return p, nil
}

// A layout makes the messages of one turn.
type layout struct {
	geometry
	bs, keep int64
	o        overhead
}

// first makes the messages of turn 0: system blocks, then user.
func (l layout) first(system int) *segment {
	system = min(system, l.covered)
	var head *segment
	if system > 0 {
		head = &segment{role: System, blocks: int32(system)}
		if l.covered == system && l.tail == 0 {
			return l.close(nil, head, nil)
		}
	}
	user := &segment{role: User, start: int32(system), blocks: int32(l.covered - system), tail: l.tail}
	return l.close(nil, head, user)
}

// next makes the messages of a turn behind the one whose last message is prev: what both have
// in common, then the assistant's answer of prevOut tokens in whole blocks, then user.
func (l layout) next(prev *segment, prevOut int64, limit int) *segment {
	base := l.trim(prev)
	fresh := max(0, l.covered-l.lcp)
	if fresh == 0 && l.tail == 0 {
		if base != nil {
			return base
		}
		return l.close(nil, nil, &segment{role: User}) // an empty prompt
	}
	asst := 0
	if base != nil && base.users > 0 && prevOut > 0 {
		asst = int(min((prevOut+l.bs-1)/l.bs, int64(fresh), int64(limit)))
	}
	if l.tail == 0 && asst == fresh && asst > 0 {
		asst-- // a request ends with a user message
	}
	var answer *segment
	if asst > 0 {
		answer = &segment{role: Assistant, start: int32(l.lcp), blocks: int32(asst)}
	}
	user := &segment{role: User, start: int32(l.lcp + asst), blocks: int32(fresh - asst), tail: l.tail}
	return l.close(base, answer, user)
}

// trim cuts the messages of the turn before down to the first lcp blocks.
func (l layout) trim(s *segment) *segment {
	for s != nil && int(s.start) >= l.lcp {
		s = s.parent
	}
	if s == nil || (int(s.start+s.blocks) <= l.lcp && s.tail == 0 && s.cut >= 0) {
		return s
	}
	t := &segment{parent: s.parent, role: s.role, start: s.start,
		blocks: min(s.blocks, int32(l.lcp)-s.start), cut: max(0, s.cut)}
	l.link(t)
	return t
}

// close appends the new messages of a turn, each nil when there is none, and shares out among
// them what the template and the salt add. Every message gives for itself, since it stays
// when later ones go. What a user's short tail cannot give, the answer before it gives, and
// later turns get it back; a system message gives for itself alone, since other streams have
// the same one.
func (l layout) close(base, before, user *segment) *segment {
	if before == nil {
		user.parent = base
		l.link(user)
		user.cut = user.debt
		l.link(user)
		return user
	}
	before.parent = base
	l.link(before)
	own := before.debt
	if user == nil {
		before.cut = max(0, own)
		l.link(before)
		return before
	}
	user.parent = before
	l.link(user)
	all := user.debt
	user.cut = all - own
	l.link(user)
	before.cut = max(0, own)
	if before.role == Assistant {
		before.cut = max(0, all-user.given)
	}
	l.link(before)
	user.cut = 0
	l.link(user)
	user.cut = user.debt
	l.link(user)
	return user
}

// link sets what follows from a segment's parent, role, blocks, tail and cut.
func (l layout) link(s *segment) {
	s.n, s.users, s.salted, s.debt = 1, 0, false, l.o.fixed(s.role)
	if p := s.parent; p != nil {
		s.n, s.users, s.salted, s.debt = p.n+1, p.users, p.salted, p.debt
	}
	if !(l.o.alternate && s.parent != nil && s.parent.role == s.role) {
		s.debt += l.o.message[s.role]
	}
	s.carrier = !s.salted && (s.role == l.o.saltRole || s.role == User)
	if s.carrier {
		s.salted = true
		s.debt += l.o.salt
	}
	if s.role == User {
		s.users++
	}
	s.given = min(s.cut, s.capacity(l.bs, l.keep))
	s.debt -= s.given
}

// capacity is how many tokens a message can give.
func (s *segment) capacity(bs, keep int64) int64 {
	if s.blocks == 0 {
		return max(0, s.tail-1)
	}
	return int64(s.blocks)*(bs-keep) + s.tail
}

// blockTokens is the number of tokens that block i of the message keeps.
func (s *segment) blockTokens(i int, bs, keep int64) int64 {
	return bs - min(max(s.given-int64(i)*(bs-keep), 0), bs-keep)
}

// tailTokens is the number of tokens that its tail keeps.
func (s *segment) tailTokens(bs, keep int64) int64 {
	if s.given < 0 {
		return s.tail - s.given
	}
	return s.tail - max(0, s.given-int64(s.blocks)*(bs-keep))
}

// path returns the messages from the first to s.
func (s *segment) path() []*segment {
	if s == nil {
		return nil
	}
	p := make([]*segment, s.n)
	for ; s != nil; s = s.parent {
		p[s.n-1] = s
	}
	return p
}
