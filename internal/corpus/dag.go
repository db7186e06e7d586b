package corpus

import (
	"fmt"
	"slices"
	"strconv"
)

// A session is one line of a dag_jsonl file.
type dagSession struct {
	id    string
	pos   int
	turns []dagTurn
	pre   []dagChild // started before the first turn
	used  bool       // some turn starts it
}

type dagTurn struct {
	pos      int
	messages []message
	tools    []byte
	model    string
	out      int64
	hasOut   bool
	delay    int64 // Unbound when it was not recorded
	forks    []dagChild
	spawns   []dagChild
}

type dagChild struct {
	id         string
	background bool
	join       int // Unbound when it was not recorded
}

// readDAG reads AIPerf's dag_jsonl: a session a line, {"session_id", "turns": [{"messages",
// "max_tokens", "delay" in ms, "model", "tools", "forks", "spawns"}], "pre_session_spawns"}.
// A session that no other starts is the root of a trace. A spawned session begins with a
// context of its own, a forked one with its parent's up to that turn.
func readDAG(it *item, s *scanner, opt *LoadOptions) {
	byID := map[string]*dagSession{}
	var order []*dagSession
	lines := eachLine(s, func() *dagSession { return readDAGSession(s, it) })
	if s.err != nil {
		it.fail(s.err)
		return
	}
	for _, d := range lines {
		if other, ok := byID[d.id]; ok {
			it.fail(s.fault(d.pos, []step{{key: "session_id"}}, "%q is also the session of line %d: each needs its own", d.id, s.lineAt(other.pos)))
			return
		}
		byID[d.id] = d
		order = append(order, d)
	}
	for _, d := range order {
		for _, c := range d.children() {
			child := byID[c.id]
			if child == nil || child.used {
				why := "which is in no line"
				if child != nil {
					why = "which another turn starts too: a session runs once"
				}
				it.fail(s.fault(d.pos, []step{{key: "turns"}}, "session %q starts %q, %s", d.id, c.id, why))
				return
			}
			child.used = true
		}
	}
	built := 0
	for _, d := range order {
		if d.used {
			continue
		}
		b := &dagBuilder{byID: byID, t: &Trace{ID: d.id, BlockSize: textBlockSize(opt), Estimated: true}, table: blockTable{}, it: it}
		b.session(d, newTextPrompt(b.t.BlockSize, 1), Stream{ID: d.id, Kind: Root, Parent: Unbound, Spawn: Unbound, Join: Unbound})
		built += b.built
		it.add(b.t)
	}
	if built < len(order) {
		it.fail(&FormatError{File: s.file, Msg: fmt.Sprintf("%d of %d sessions start each other in a circle: no root leads to them", len(order)-built, len(order))})
	}
	it.noteEstimated()
}

func (d *dagSession) children() []dagChild {
	out := slices.Clone(d.pre)
	for i := range d.turns {
		out = append(out, d.turns[i].forks...)
		out = append(out, d.turns[i].spawns...)
	}
	return out
}

type dagBuilder struct {
	byID  map[string]*dagSession
	t     *Trace
	table blockTable
	it    *item
	built int // sessions that were reached
}

// session appends the stream of d and those that it starts. p is the context it begins with.
func (b *dagBuilder) session(d *dagSession, p textPrompt, st Stream) {
	b.built++
	turns := d.turns
	for k := range turns {
		// A fork without "background" ends its parent.
		if i := slices.IndexFunc(turns[k].forks, func(c dagChild) bool { return !c.background }); i >= 0 && k+1 < len(turns) {
			b.t.DroppedTurns += len(turns) - k - 1
			for _, u := range turns[k+1:] {
				for _, c := range append(slices.Clone(u.forks), u.spawns...) {
					b.drop(b.byID[c.id])
				}
			}
			turns = turns[:k+1]
			break
		}
	}
	behind := make([]textPrompt, len(turns))
	at := st.StartNs
	for k := range turns {
		u := &turns[k]
		if u.delay != Unbound && (k > 0 || st.Kind != Root) {
			at += u.delay
		}
		if k == 0 && len(u.tools) > 0 {
			p.add(u.tools)
		}
		for _, m := range u.messages {
			p.message(m.role)
			p.add(m.text)
		}
		if !u.hasOut {
			u.out = assumedOut
			b.it.assume()
		}
		name := u.model
		if name == "" {
			name = "recorded"
		}
		model := slices.Index(b.t.Models, name)
		if model < 0 {
			model = len(b.t.Models)
			b.t.Models = append(b.t.Models, name)
		}
		in := p.tokens()
		st.Turns = append(st.Turns, Turn{StartNs: at, In: in, Out: u.out, Model: model,
			Blocks: b.table.of(p.ids[:min(int64(len(p.ids)), in/b.t.BlockSize)])})
		p.message("assistant")
		p.opaque(u.out, d.id+":"+strconv.Itoa(k))
		behind[k] = p
		p = p.fork()
	}
	if len(st.Turns) == 0 {
		return
	}
	st.EndNs = at
	shareBlocks(st.Turns)
	index := len(b.t.Streams)
	b.t.Streams = append(b.t.Streams, st)
	start := func(c dagChild, k int, prompt textPrompt, join int) {
		b.session(b.byID[c.id], prompt, Stream{
			ID: b.t.ID + "::sa:" + c.id, Kind: SubAgent, Parent: index, Depth: st.Depth + 1,
			Spawn: k, Join: join, StartNs: st.Turns[k].StartNs,
		})
	}
	for _, c := range d.pre {
		start(c, 0, newTextPrompt(b.t.BlockSize, 1), Unbound)
	}
	for k := range turns {
		for _, c := range turns[k].spawns {
			join := c.join
			if join == Unbound && !c.background {
				join = k + 1
			}
			if join >= len(turns) {
				join = Unbound
			}
			start(c, k, newTextPrompt(b.t.BlockSize, 1), join)
		}
		for _, c := range turns[k].forks {
			start(c, k, behind[k].fork(), Unbound)
		}
	}
}

// drop counts a session that is never started.
func (b *dagBuilder) drop(d *dagSession) {
	b.built++
	b.t.DroppedTurns += len(d.turns)
	for _, c := range d.children() {
		b.drop(b.byID[c.id])
	}
}

func readDAGSession(s *scanner, it *item) *dagSession {
	d := &dagSession{}
	s.peek()
	d.pos = s.pos
	s.object(func(key []byte) {
		switch string(key) {
		case "session_id":
			d.id = s.nameOrNumber()
		case "turns":
			s.array(func(int) { d.turns = append(d.turns, readDAGTurn(s, it)) })
		case "pre_session_spawns":
			if !s.null() {
				d.pre = readChildren(s)
			}
		default:
			it.noteUnknown(s, "", key)
		}
	})
	switch {
	case s.err != nil:
	case d.id == "":
		s.failAt(d.pos, "the line has no field \"session_id\"")
	case len(d.turns) == 0:
		s.failAt(d.pos, "session %q has no turns", d.id)
	}
	for k := range d.turns {
		for _, c := range d.turns[k].spawns {
			if s.err == nil && c.join != Unbound && (c.join <= k || c.join >= len(d.turns)) {
				s.err = s.fault(d.turns[k].pos, []step{{key: "turns"}, {idx: k}, {key: "spawns"}}, "join_at %d: want a turn behind turn %d and before turn %d", c.join, k, len(d.turns))
			}
		}
	}
	return d
}

func readDAGTurn(s *scanner, it *item) dagTurn {
	u := dagTurn{delay: Unbound}
	s.peek()
	u.pos = s.pos
	w := &wekaReader{s: s}
	found := false
	s.object(func(key []byte) {
		switch string(key) {
		case "messages":
			found = true
			s.array(func(int) { u.messages = append(u.messages, readMessage(s)) })
		case "model":
			if !s.null() {
				u.model = string(s.str())
			}
		case "max_tokens":
			if !s.null() {
				u.out, u.hasOut = s.count(maxAnswer), true
			}
		case "delay":
			if !s.null() {
				u.delay = w.duration(1_000_000)
			}
		case "tools":
			if s.null() {
				return
			}
			s.peek()
			from := s.pos
			s.skip()
			if s.err == nil {
				u.tools = s.buf[from:s.pos]
			}
		case "forks":
			if !s.null() {
				u.forks = readChildren(s)
			}
		case "spawns":
			if !s.null() {
				u.spawns = readChildren(s)
			}
		case "extra", "extra_body":
			s.skip()
		default:
			it.noteUnknown(s, "turns[].", key)
		}
	})
	if s.err == nil && !found {
		s.failAt(u.pos, "the turn has no field \"messages\"")
	}
	return u
}

// readChildren reads ids, {"child", "background"} or {"children": [...], "join_at"}.
func readChildren(s *scanner) []dagChild {
	var out []dagChild
	s.array(func(int) {
		if s.peek() == '"' {
			out = append(out, dagChild{id: string(s.str()), join: Unbound})
			return
		}
		var ids []string
		c := dagChild{join: Unbound}
		s.object(func(key []byte) {
			switch string(key) {
			case "child", "session_id":
				ids = append(ids, string(s.str()))
			case "children":
				s.array(func(int) { ids = append(ids, string(s.str())) })
			case "background":
				s.peek()
				c.background = s.pos < len(s.buf) && s.buf[s.pos] == 't'
				s.skip()
			case "join_at":
				if !s.null() {
					c.join = int(s.count(1 << 30))
				}
			default:
				s.skip()
			}
		})
		if s.err == nil && len(ids) == 0 {
			s.fail("names no session")
		}
		for _, id := range ids {
			c.id = id
			out = append(out, c)
		}
	})
	return out
}
