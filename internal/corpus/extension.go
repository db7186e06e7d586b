package corpus

import (
	"fmt"
	"slices"
	"strconv"
)

// An extension is what Weir adds to a Mooncake line, so that reading the line back gives the
// turn it was written from. Other tools pass it over.
type extension struct {
	trace, kind, label, model         string
	stream, parent, depth, spawn      int64
	join, system, blockSize, base     int64
	start, end, t, api, think, ttft   int64
	dropped, lengthsOnly, tail, estim int64
}

func (e *extension) ints() []*int64 {
	return []*int64{&e.stream, &e.parent, &e.depth, &e.spawn, &e.join, &e.system, &e.blockSize, &e.base, &e.start,
		&e.end, &e.t, &e.api, &e.think, &e.ttft, &e.dropped, &e.lengthsOnly, &e.tail, &e.estim}
}

// The members of an extension, in the order of ints.
var extensionNames = []string{"stream", "parent", "depth", "spawn", "join", "system_tokens", "block_size", "id_base", "start_ns",
	"end_ns", "t_ns", "api_ns", "think_ns", "ttft_ns", "dropped_turns", "lengths_only", "tail_id", "estimated"}

func readExtension(s *scanner) *extension {
	e := &extension{}
	s.object(func(key []byte) {
		switch string(key) {
		case "trace":
			e.trace = string(s.str())
		case "kind":
			e.kind = string(s.str())
		case "label":
			e.label = string(s.str())
		case "model":
			e.model = string(s.str())
		default:
			i := slices.Index(extensionNames, string(key))
			if i < 0 {
				s.skip()
				return
			}
			at := s.pos
			text := s.number()
			if s.err != nil {
				return
			}
			v, err := strconv.ParseInt(string(text), 10, 64)
			if err != nil {
				s.failAt(at, "want a whole number, found %s", text)
			}
			*e.ints()[i] = v
		}
	})
	return e
}

func (e *extension) append(b []byte) []byte {
	b = append(b, `,"weir":{"trace":`...)
	b = appendString(b, e.trace)
	b = append(b, `,"kind":`...)
	b = appendString(b, e.kind)
	b = append(b, `,"model":`...)
	b = appendString(b, e.model)
	if e.label != "" {
		b = append(b, `,"label":`...)
		b = appendString(b, e.label)
	}
	for i, v := range e.ints() {
		if *v != 0 {
			b = append(b, `,"`+extensionNames[i]+`":`...)
			b = strconv.AppendInt(b, *v, 10)
		}
	}
	return append(b, '}')
}

// readExtended builds the traces of a file that Weir wrote.
func readExtended(it *item, s *scanner, lines []*lineRequest, renumbered bool) {
	byID := map[string]*Trace{}
	bases := map[*Trace]int64{}
	var order []*Trace
	for _, l := range lines {
		bad := func(format string, a ...any) {
			it.fail(s.fault(l.pos, []step{{key: "weir"}}, format, a...))
		}
		e := l.ext
		kind := slices.Index(kindNames[:], "root")
		if e != nil {
			kind = slices.Index(kindNames[:], e.kind)
		}
		if e == nil || kind < 0 || e.blockSize <= 0 || e.trace == "" || l.session == "" {
			bad("every line of a file with Weir's members needs them all: trace, kind, block_size, session_id")
			return
		}
		t := byID[e.trace]
		if t == nil {
			t = &Trace{ID: e.trace, BlockSize: e.blockSize, DroppedTurns: int(e.dropped), LengthsOnly: e.lengthsOnly != 0, Estimated: e.estim != 0}
			byID[e.trace] = t
			order = append(order, t)
		}
		if e.stream < 0 || e.stream >= int64(len(lines)) {
			bad("stream %d of a file of %d lines", e.stream, len(lines))
			return
		}
		for int64(len(t.Streams)) <= e.stream {
			t.Streams = append(t.Streams, Stream{})
		}
		st := &t.Streams[e.stream]
		if st.ID == "" {
			*st = Stream{ID: l.session, Kind: Kind(kind), Parent: int(e.parent), Depth: int(e.depth), Spawn: int(e.spawn),
				Join: int(e.join), StartNs: e.start, EndNs: e.end, Label: e.label, SystemTokens: e.system}
		}
		model := slices.Index(t.Models, e.model)
		if model < 0 {
			model = len(t.Models)
			t.Models = append(t.Models, e.model)
		}
		u := Turn{StartNs: e.t, APINs: e.api, ThinkNs: e.think, TTFTNs: e.ttft, In: l.in, Out: l.out, Model: model, Blocks: l.blocks}
		bases[t] = e.base
		st.Turns = append(st.Turns, u)
	}
	for _, t := range order {
		for i := range t.Streams {
			shareBlocks(t.Streams[i].Turns)
			if base := bases[t]; base != 0 && !renumbered {
				if bad := moveIDs(t.Streams[i].Turns, base); bad >= 0 {
					it.fail(&FormatError{File: s.file, Field: "weir.id_base", Msg: fmt.Sprintf("id %d of trace %q is below its first, %d", bad, t.ID, base)})
					return
				}
			}
		}
		t.orderModels()
		it.add(t)
	}
}

// moveIDs subtracts base from the block ids of turns that share memory, once each. It returns
// an id that is below base, or -1.
func moveIDs(turns []Turn, base int64) int64 {
	for i := 0; i < len(turns); {
		longest := turns[i].Blocks
		j := i + 1
		for ; j < len(turns); j++ {
			b := turns[j].Blocks
			if n := min(len(b), len(longest)); n > 0 && &b[0] != &longest[0] {
				break
			}
			if len(b) > len(longest) {
				longest = b
			}
		}
		for k, id := range longest {
			if int64(id) < base {
				return int64(id)
			}
			longest[k] = id - uint32(base)
		}
		i = j
	}
	return -1
}

// orderModels numbers models by first appearance, stream by stream.
func (t *Trace) orderModels() {
	number := map[int]int{}
	var names []string
	for i := range t.Streams {
		for k := range t.Streams[i].Turns {
			u := &t.Streams[i].Turns[k]
			n, ok := number[u.Model]
			if !ok {
				n = len(names)
				number[u.Model] = n
				names = append(names, t.Models[u.Model])
			}
			u.Model = n
		}
	}
	t.Models = names
}
