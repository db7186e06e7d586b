package corpus

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// A lineRequest is one line of a Mooncake or Bailian file.
type lineRequest struct {
	request
	session string // session_id or chat_id
	parent  string // parent_chat_id
	chat    bool   // the line is of the Bailian form
	turn    int64
	stamp   []byte // timestamp as it stands
	hasTime bool
	hasOut  bool
	delay   int64 // Unbound when it was not recorded
	ext     *extension
}

// readMooncake reads files with a request a line that carries the ids of its blocks: Mooncake
// (FAST'25 traces and AIPerf's mooncake_trace: timestamp in ms, blocks of 512 tokens) and
// Bailian (chat_id, parent_chat_id, turn, timestamp in s, blocks of 16 tokens).
//
// Block ids mean something within the file. Lines with a session_id are a trace a session, so
// that each can be played on a lane of its own; lines without are one trace for the file, in
// which conversations are found by their prefixes and start at their recorded times.
func readMooncake(it *item, s *scanner, opt *LoadOptions) {
	start := *s
	m := &mooncakeReader{wekaReader: wekaReader{s: s}, it: it, last: map[string][]uint32{}}
	lines := eachLine(s, m.line)
	if m.isWide && s.err == nil {
		// Ids over 32 bits: once more, with a table.
		*s = start
		m = &mooncakeReader{wekaReader: wekaReader{s: s, wide: map[uint64]uint32{}}, it: it, last: map[string][]uint32{}}
		lines = eachLine(s, m.line)
	}
	if s.err != nil {
		it.fail(s.err)
		return
	}
	if lines[0].ext != nil {
		readExtended(it, s, lines, m.wide != nil)
		return
	}
	blockSize := opt.BlockSize
	if blockSize == 0 {
		blockSize = 512
		if lines[0].chat {
			blockSize = 16
		}
	}
	var list []*lineRequest
	sessions := map[string][]*lineRequest{}
	var order []string
	for _, l := range lines {
		if l.session == "" || l.chat {
			list = append(list, l)
			continue
		}
		if sessions[l.session] == nil {
			order = append(order, l.session)
		}
		sessions[l.session] = append(sessions[l.session], l)
	}
	if len(list) > 0 {
		rec := &recording{file: s.file, id: fileID(s.file), apart: true}
		finishLines(it, s, rec, list, blockSize)
	}
	for _, id := range order {
		finishLines(it, s, &recording{file: s.file, id: id}, sessions[id], blockSize)
	}
	if len(order) > 1 && shareIDs(it.traces) {
		it.notes = append(it.notes, "sessions share block ids: each session is a trace of its own, and hits from one to another are not kept")
	}
}

// fileID names a trace after its file.
func fileID(file string) string {
	name := filepath.Base(file)
	for _, ext := range append([]string{".gz", ".zst"}, extensions...) {
		name = strings.TrimSuffix(name, ext)
	}
	return name
}

// eachLine reads the objects of a file with one on a line, or of an array. It gives nothing
// when s has a fault.
func eachLine[T any](s *scanner, read func() T) []T {
	var out []T
	if s.peek() == '[' {
		s.array(func(int) { out = append(out, read()) })
		s.end()
	} else {
		for s.err == nil && (s.peek() != 0 || s.pos < len(s.buf)) {
			out = append(out, read())
		}
	}
	if s.err == nil && len(out) == 0 {
		s.fail("the file holds no request")
	}
	return out
}

func (it *item) noteUnknown(s *scanner, where string, key []byte) {
	if s.null() {
		return
	}
	if name := where + string(key); !slices.Contains(it.unknown, name) && len(it.unknown) < 64 {
		it.unknown = append(it.unknown, name)
	}
	s.skip()
}

type mooncakeReader struct {
	wekaReader
	it   *item
	last map[string][]uint32 // ids of the line before in a session that Weir wrote
}

func (w *mooncakeReader) line() *lineRequest {
	s := w.s
	l := &lineRequest{delay: Unbound}
	s.peek()
	l.pos = s.pos
	hasIDs := false
	var o once
	s.object(func(key []byte) {
		switch string(key) {
		case "timestamp":
			o.check(s, 0)
			if !s.null() {
				l.stamp, l.hasTime = s.number(), true
			}
		case "delay":
			o.check(s, 1)
			if !s.null() {
				l.delay = w.duration(1_000_000)
			}
		case "input_length":
			o.check(s, 2)
			l.in = s.count(maxTokens)
			if s.err == nil && l.in == 0 {
				s.fail("is 0: a request has at least one prompt token")
			}
		case "output_length":
			o.check(s, 3)
			if !s.null() {
				l.out, l.hasOut = s.count(maxTokens), true
			}
		case "hash_ids":
			o.check(s, 4)
			if !s.null() {
				w.idList()
				hasIDs = true
			}
		case "session_id", "chat_id":
			o.check(s, 5)
			l.session = s.nameOrNumber()
			l.chat = string(key) == "chat_id"
		case "parent_chat_id":
			o.check(s, 6)
			l.parent = s.nameOrNumber()
		case "turn":
			o.check(s, 7)
			l.turn = s.count(maxTokens)
		case "text_input", "messages", "payload":
			s.fail("text beside lengths: Weir reads these lines by input_length and hash_ids; a log of messages has no input_length")
		case "weir":
			l.ext = readExtension(s)
		case "type":
			s.skip()
		default:
			w.it.noteUnknown(s, "", key)
		}
	})
	if s.err != nil {
		return l
	}
	if hasIDs {
		l.blocks = w.keepIDs(l)
	}
	if !o.has(2) {
		s.failAt(l.pos, "the line has no field \"input_length\"")
		return l
	}
	if l.hasTime {
		unit := int64(1_000_000)
		if l.chat {
			unit = 1_000_000_000
		}
		ns, ok := decimal(l.stamp, unit)
		if !ok || ns < 0 || ns > maxSeconds*4*1_000_000_000 {
			s.err = s.fault(l.pos, []step{{key: "timestamp"}}, "%s lies outside 0 to %d seconds", l.stamp, int64(maxSeconds*4))
		}
		l.t = ns
	}
	return l
}

// keepIDs copies the ids of a line. A line that continues the one before it in its session
// shares its memory, when Weir wrote it and both are known to be streams.
func (w *mooncakeReader) keepIDs(l *lineRequest) []uint32 {
	ids := w.scratch
	if l.ext == nil {
		return slices.Clone(ids)
	}
	if l.ext.tail != 0 && len(ids) > 0 {
		ids = ids[:len(ids)-1]
	}
	prev := w.last[l.session]
	n := commonPrefix(prev, ids)
	if n < len(prev) {
		prev = prev[:n:n]
	}
	out := append(prev, ids[n:]...)
	w.last[l.session] = out
	return out[:len(out):len(out)]
}

// nameOrNumber reads an id that is a string or a number.
func (s *scanner) nameOrNumber() string {
	if s.null() {
		return ""
	}
	if s.peek() == '"' {
		return string(s.str())
	}
	return string(s.number())
}

// finishLines turns the lines of one trace into a trace.
func finishLines(it *item, s *scanner, rec *recording, lines []*lineRequest, blockSize int64) {
	rec.blockSize = blockSize
	rec.models = []string{"recorded"}
	noBlocks := 0
	last := int64(0)
	for i, l := range lines {
		full := l.in / blockSize
		switch n := int64(len(l.blocks)); {
		case n == 0:
			noBlocks++
		case (n-1)*blockSize >= l.in:
			it.fail(s.fault(l.pos, []step{{key: "hash_ids"}}, "%d ids of %d tokens for an input_length of %d: at most %d ids fit; is the block size another?",
				n, blockSize, l.in, (l.in+blockSize-1)/blockSize))
			return
		case n > full:
			l.partial = 1
			l.blocks = l.blocks[:full]
		}
		switch {
		case !l.hasTime && l.delay != Unbound:
			l.t = last + l.delay
		case !l.hasTime:
			l.t = last
		case l.t < last:
			it.fail(s.fault(l.pos, []step{{key: "timestamp"}}, "%s s is before the line above it at %s s: times must not decrease; sort the lines by timestamp", seconds(l.t), seconds(last)))
			return
		}
		last = l.t
		l.outer = i
		if !l.hasOut {
			l.out = assumedOut
			it.assume()
		}
	}
	start := lines[0].t
	for _, l := range lines {
		l.t -= start
		rec.requests = append(rec.requests, l.request)
	}
	t, err := rec.assemble(lines)
	if err != nil {
		it.fail(err)
		return
	}
	t.LengthsOnly = noBlocks == len(lines)
	it.add(t)
}

// assemble builds the trace of a file of lines. Chats name their conversations; others are
// found by prefixes, and a session is one conversation as it stands.
func (rec *recording) assemble(lines []*lineRequest) (*Trace, error) {
	reqs := make([]*request, len(rec.requests))
	for i := range rec.requests {
		reqs[i] = &rec.requests[i]
	}
	var groups [][]*request
	switch {
	case !rec.apart:
		groups = [][]*request{reqs}
	case lines[0].chat:
		groups = chats(lines, reqs)
	default:
		main, others := splitChains(reqs)
		groups = append(groups, main)
		for _, f := range others {
			groups = append(groups, f.reqs)
		}
	}
	return rec.streams(groups), nil
}

// chats groups the requests of a Bailian file by conversation: a chat and its parents.
func chats(lines []*lineRequest, reqs []*request) [][]*request {
	root := map[string]string{}
	find := func(id string) string {
		for range len(lines) {
			up, ok := root[id]
			if !ok || up == id {
				break
			}
			id = up
		}
		return id
	}
	for _, l := range lines {
		if l.parent != "" && l.parent != "-1" {
			root[l.session] = l.parent
		}
	}
	byRoot := map[string]int{}
	var groups [][]*request
	var turns [][]int64
	for i, l := range lines {
		id := find(l.session)
		g, ok := byRoot[id]
		if !ok {
			g = len(groups)
			byRoot[id] = g
			groups, turns = append(groups, nil), append(turns, nil)
		}
		groups[g] = append(groups[g], reqs[i])
		turns[g] = append(turns[g], l.turn)
	}
	for g, list := range groups {
		order := turns[g]
		index := map[*request]int64{}
		for i, r := range list {
			index[r] = order[i]
		}
		slices.SortStableFunc(list, func(a, b *request) int {
			return cmp.Or(cmp.Compare(a.t, b.t), cmp.Compare(index[a], index[b]))
		})
	}
	return groups
}

// streams makes a trace of conversations that have nothing to do with each other: the first
// is the root, the others start at their times and nothing waits for them.
func (rec *recording) streams(groups [][]*request) *Trace {
	t := &Trace{ID: rec.id, BlockSize: rec.blockSize, Models: rec.models}
	for i, reqs := range groups {
		st := Stream{
			ID: rec.id, Kind: Root, Parent: Unbound, Spawn: Unbound, Join: Unbound,
			StartNs: reqs[0].t, EndNs: latestEnd(reqs),
		}
		if i > 0 {
			st.ID = fmt.Sprintf("%s::fa:%03d", rec.id, i-1)
			st.Kind, st.Parent, st.Depth, st.Spawn = FlatAgent, 0, 1, 0
		}
		for _, r := range reqs {
			st.Turns = append(st.Turns, Turn{
				StartNs: r.t, APINs: r.api, ThinkNs: r.think, TTFTNs: r.ttft, In: r.in, Out: r.out,
				Model: r.model, Blocks: r.blocks[:len(r.blocks)+r.partial],
			})
		}
		shareBlocks(st.Turns)
		t.Streams = append(t.Streams, st)
	}
	return t
}

// shareIDs reports whether two traces use one block id.
func shareIDs(traces []*Trace) bool {
	owner := map[uint32]int{}
	for i, t := range traces {
		for j := range t.Streams {
			for k := range t.Streams[j].Turns {
				for _, b := range t.Streams[j].Turns[k].Blocks {
					if o, ok := owner[b]; ok && o != i {
						return true
					}
					owner[b] = i
				}
			}
		}
	}
	return false
}
