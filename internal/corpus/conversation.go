package corpus

import (
	"fmt"
	"strconv"
)

// This file reads the forms in which a line is a conversation with text: AIPerf's multi_turn
// and ShareGPT.

// assume notes that an output length was not recorded.
func (it *item) assume() {
	note := fmt.Sprintf("turns without a recorded output length: %d tokens assumed", assumedOut)
	for _, n := range it.notes {
		if n == note {
			return
		}
	}
	it.notes = append(it.notes, note)
}

func (it *item) noteEstimated() {
	it.notes = append(it.notes, "tokens counted from text by a rule of thumb, four ASCII characters a token")
}

func textBlockSize(opt *LoadOptions) int64 {
	if opt.BlockSize > 0 {
		return opt.BlockSize
	}
	return 64
}

// A said is one turn of a conversation: what a person or a tool said, and the length of the
// answer.
type said struct {
	text    []byte
	role    string
	hasTime bool
	t       int64
	delay   int64 // Unbound when it was not recorded
	out     int64
	hasOut  bool
	answer  []byte // its text, when it was recorded
	model   string
	pos     int
}

// conversation makes a trace of turns, each of which sends all that was said before it.
func conversation(it *item, s *scanner, id string, turns []said, opt *LoadOptions) {
	if len(turns) == 0 {
		it.fail(&FormatError{File: s.file, Line: s.lineAt(s.pos), Col: 1, Msg: fmt.Sprintf("conversation %q has no turns", id)})
		return
	}
	t := &Trace{ID: id, BlockSize: textBlockSize(opt), Estimated: true}
	root := Stream{ID: id, Kind: Root, Parent: Unbound, Spawn: Unbound, Join: Unbound}
	p := newTextPrompt(t.BlockSize, 1)
	table := blockTable{}
	var last int64
	var start int64
	for k := range turns {
		u := &turns[k]
		if k == 0 {
			start = u.t
		}
		at := last
		switch {
		case u.hasTime:
			at = u.t - start
		case u.delay != Unbound && k > 0:
			at = last + u.delay
		}
		if at < last {
			it.fail(s.fault(u.pos, []step{{key: "turns"}, {idx: k}, {key: "timestamp"}},
				"%s s is before the turn before it at %s s: times must not decrease", seconds(at), seconds(last)))
			return
		}
		last = at
		p.message(u.role)
		p.add(u.text)
		if !u.hasOut {
			u.out = assumedOut
			it.assume()
		}
		if u.model == "" {
			u.model = "recorded"
		}
		model := -1
		for i, m := range t.Models {
			if m == u.model {
				model = i
			}
		}
		if model < 0 {
			model = len(t.Models)
			t.Models = append(t.Models, u.model)
		}
		in := p.tokens()
		blocks := table.of(p.ids[:min(int64(len(p.ids)), in/t.BlockSize)])
		root.Turns = append(root.Turns, Turn{StartNs: at, In: in, Out: u.out, Model: model, Blocks: blocks})
		p.message("assistant")
		if u.answer != nil {
			p.add(u.answer)
		} else {
			p.opaque(u.out, id+":"+strconv.Itoa(k))
		}
	}
	root.EndNs = last
	shareBlocks(root.Turns)
	t.Streams = []Stream{root}
	it.add(t)
}

// readMultiTurn reads AIPerf's multi_turn JSON lines: {"session_id", "turns": [{"text" or
// "texts", "timestamp" or "delay" in ms, "output_length", "role"}]}.
func readMultiTurn(it *item, s *scanner, opt *LoadOptions) {
	n := 0
	objects(it, s, func() {
		n++
		id := fmt.Sprintf("%s_%06d", fileID(s.file), n)
		var turns []said
		s.object(func(key []byte) {
			switch string(key) {
			case "session_id":
				if name := s.nameOrNumber(); name != "" {
					id = name
				}
			case "turns":
				s.array(func(int) { turns = append(turns, readSaid(s, it)) })
			default:
				it.noteUnknown(s, "", key)
			}
		})
		if s.err == nil {
			conversation(it, s, id, turns, opt)
		}
	})
	it.noteEstimated()
}

// objects reads the conversations of a file, one a line or in an array. A fault within one
// goes into it.faults by itself; a fault of the form ends the file.
func objects(it *item, s *scanner, one func()) {
	if s.peek() == '[' {
		s.array(func(int) { one() })
		s.end()
	} else {
		for s.err == nil && (s.peek() != 0 || s.pos < len(s.buf)) {
			one()
		}
	}
	if s.err != nil {
		it.fail(s.err)
	} else if len(it.traces)+len(it.faults) == 0 {
		it.fail(&FormatError{File: s.file, Msg: "the file holds no conversation"})
	}
}

func readSaid(s *scanner, it *item) said {
	u := said{role: "user", delay: Unbound}
	s.peek()
	u.pos = s.pos
	w := &wekaReader{s: s}
	found := false
	s.object(func(key []byte) {
		switch string(key) {
		case "text":
			found = true
			if !s.null() {
				u.text = append(u.text, s.str()...)
			}
		case "texts":
			found = true
			if !s.null() {
				u.text = append(u.text, s.texts()...)
			}
		case "timestamp":
			if !s.null() {
				u.t, u.hasTime = w.duration(1_000_000), true
			}
		case "delay":
			if !s.null() {
				u.delay = w.duration(1_000_000)
			}
		case "output_length", "max_tokens":
			if !s.null() {
				u.out, u.hasOut = s.count(maxAnswer), true
			}
		case "role":
			if !s.null() {
				u.role = string(s.str())
			}
		case "model":
			if !s.null() {
				u.model = string(s.str())
			}
		case "image", "images", "audio", "audios", "video", "videos":
			if !s.null() {
				s.fail("media: Weir replays text")
			}
		case "extra":
			s.skip()
		default:
			it.noteUnknown(s, "turns[].", key)
		}
	})
	if s.err == nil && !found {
		s.failAt(u.pos, "the turn has no field \"text\"")
	}
	return u
}

// texts reads ["a", "b"] or [{"name": ..., "contents": ["a"]}] into one text.
func (s *scanner) texts() []byte {
	var out []byte
	s.array(func(int) {
		if s.peek() == '"' {
			out = append(out, s.str()...)
			return
		}
		s.object(func(key []byte) {
			if string(key) == "contents" {
				s.array(func(int) { out = append(out, s.str()...) })
				return
			}
			s.skip()
		})
	})
	return out
}

// readShareGPT reads [{"id", "conversations": [{"from": "human" or "gpt", "value"}]}], as an
// array or a line each. Every answer is a turn; AIPerf plays the first alone.
func readShareGPT(it *item, s *scanner, opt *LoadOptions) {
	n := 0
	objects(it, s, func() {
		n++
		id := ""
		var turns []said
		var open *said
		s.object(func(key []byte) {
			switch string(key) {
			case "id":
				id = s.nameOrNumber()
			case "conversations":
				if s.null() {
					return
				}
				s.array(func(int) {
					var from string
					var value []byte
					s.object(func(key []byte) {
						switch string(key) {
						case "from":
							from = string(s.str())
						case "value":
							if !s.null() {
								value = s.str()
							}
						default:
							s.skip()
						}
					})
					switch from {
					case "gpt", "chatgpt", "bing", "bard", "assistant":
						if open == nil {
							open = &said{role: "user", delay: Unbound}
						}
						open.answer, open.out, open.hasOut = append([]byte{}, value...), max(1, (weigh(value)+weightToken-1)/weightToken), true
						turns = append(turns, *open)
						open = nil
					default:
						if open == nil {
							open = &said{role: "user", delay: Unbound}
						}
						open.text = append(append(open.text, value...), '\n')
					}
				})
			default:
				s.skip()
			}
		})
		if s.err != nil {
			return
		}
		name := fmt.Sprintf("%s_%06d", fileID(s.file), n)
		if id != "" {
			name = id
		}
		if len(turns) == 0 {
			return // a conversation without an answer asks for nothing
		}
		for range 1000 {
			if !it.named[name] {
				break
			}
			name += "+"
		}
		if it.named == nil {
			it.named = map[string]bool{}
		}
		it.named[name] = true
		conversation(it, s, name, turns, opt)
	})
	it.noteEstimated()
}
