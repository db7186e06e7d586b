package client

import "bytes"

// A frame is what one event of a streamed answer, or a whole answer that was not streamed,
// said.
type frame struct {
	reasoning bool // it holds non-empty reasoning text
	visible   bool // it holds non-empty content or tool-call text
	called    bool // it holds a tool call
	finished  bool // it says why the answer ended, or that it did
	last      bool // it is the last event of its dialect
	usage     usage
	hasUsage  bool
	failed    bool   // it is an error object
	message   []byte // the error, as written

	// SGLang's generate repeats the whole text in every frame unless told otherwise, so
	// that a frame has a token when one of these grew.
	textLen, ids int

	said int    // how many texts were said, also of those that were forgotten or left out
	only []byte // the last of them, as it stands in the data

	bytes               int64 // of text, as written
	keep                bool  // collect what was said
	content, reasonings []byte
}

func (f *frame) reset(keep bool) {
	*f = frame{keep: keep, content: f.content[:0], reasonings: f.reasonings[:0]}
}

// forget drops what was said so far: a key that occurs twice counts as it stands last.
func (f *frame) forget() {
	f.reasoning, f.visible, f.called, f.bytes = false, false, false, 0
	f.content, f.reasonings = f.content[:0], f.reasonings[:0]
}

func (f *frame) say(raw []byte) {
	if len(raw) == 0 {
		return
	}
	f.visible = true
	f.said, f.only = f.said+1, raw
	f.bytes += int64(len(raw))
	if f.keep {
		f.content = appendUnescaped(f.content, raw)
	}
}

func (f *frame) think(raw []byte) {
	if len(raw) == 0 {
		return
	}
	f.reasoning = true
	f.said, f.only = f.said+1, raw
	f.bytes += int64(len(raw))
	if f.keep {
		f.reasonings = appendUnescaped(f.reasonings, raw)
	}
}

// fail notes an error object, unless the value is null, false, "" or {}.
func (f *frame) fail(s *jsonScan) {
	raw := s.raw()
	switch string(raw) {
	case "", "null", "false", `""`, "{}":
		return
	}
	f.failed, f.message = true, raw
}

// read parses the data of one event in the dialect of an endpoint. It returns false when
// the data is not one JSON object.
func (f *frame) read(e Endpoint, s *jsonScan, data []byte) bool {
	s.reset(data)
	if s.peek() != '{' {
		return false
	}
	switch e {
	case Chat, Completions, CompletionsIDs:
		f.openAI(s)
	case Generate:
		f.generate(s)
	case Responses:
		f.responses(s)
	case Messages:
		f.messages(s)
	}
	if !s.end() {
		return false
	}
	if f.failed && len(f.message) == 0 {
		f.message = data
	}
	return true
}

func (f *frame) openAI(s *jsonScan) {
	for s.enter('{'); s.key(); {
		switch string(s.name) {
		case "choices":
			f.forget()
			if s.array() {
				for s.elem() {
					f.choice(s)
				}
			}
		case "sglext": // SGLang's extension of the OpenAI answer
			f.takeUsage(s)
		default:
			f.common(s)
		}
	}
}

// common reads the members that every dialect may have at its top.
func (f *frame) common(s *jsonScan) {
	switch string(s.name) {
	case "usage", "usageMetadata", "tokens":
		f.takeUsage(s)
	case "meta":
		if s.object() {
			for s.key() {
				if string(s.name) == "tokens" {
					f.takeUsage(s)
				} else {
					s.skip()
				}
			}
		}
	case "error":
		f.fail(s)
	case "object": // {"object":"error","message":...}, the older form of vLLM and SGLang
		if bytes.Equal(s.str(), []byte("error")) {
			f.failed = true
		}
	default:
		s.skip()
	}
}

func (f *frame) takeUsage(s *jsonScan) {
	if s.peek() == '{' {
		f.hasUsage = true
	}
	f.usage.read(s)
}

func (f *frame) choice(s *jsonScan) {
	if !s.object() {
		return
	}
	var d delta
	for s.key() {
		switch string(s.name) {
		case "delta", "message":
			d.read(s, f)
		case "text":
			d.text = s.str()
		case "finish_reason":
			f.finishReason(s)
		case "usage", "sglext": // Moonshot puts usage into the choice
			f.takeUsage(s)
		default:
			s.skip()
		}
	}
	f.think(d.reasoning)
	f.think(d.reasoningContent)
	f.say(d.text)
	f.say(d.content)
	f.say(d.refusal)
}

// finishReason reads a string or SGLang's object. An answer that the server aborted is an
// error.
func (f *frame) finishReason(s *jsonScan) {
	switch s.peek() {
	case '"':
		r := s.str()
		f.finished = f.finished || len(r) > 0
		if string(r) == "abort" || string(r) == "error" {
			f.failed = true
		}
	case '{':
		from := s.i
		s.enter('{')
		for s.key() {
			if string(s.name) == "type" {
				f.finished = true
				if t := s.str(); string(t) == "abort" || string(t) == "error" {
					f.failed = true
				}
				continue
			}
			s.skip()
		}
		if f.failed && !s.bad {
			f.message = s.b[from:s.i]
		}
	default:
		s.skip()
	}
}

// delta is what one choice said. Tool calls and parts are said at once, since any of them
// counts; strings wait until the end so that the last of equal keys counts.
type delta struct {
	text, content, refusal      []byte
	reasoning, reasoningContent []byte
}

func (d *delta) read(s *jsonScan, f *frame) {
	*d = delta{text: d.text}
	if !s.object() {
		return
	}
	for s.key() {
		switch string(s.name) {
		case "content":
			if s.peek() == '[' {
				f.parts(s)
			} else {
				d.content = s.str()
			}
		case "reasoning_content":
			d.reasoningContent = s.str()
		case "reasoning":
			d.reasoning = s.str()
		case "refusal":
			d.refusal = s.str()
		case "tool_calls":
			if s.array() {
				for s.elem() {
					f.toolCall(s)
				}
			}
		case "function_call":
			f.function(s)
		default:
			s.skip()
		}
	}
	// vLLM writes the same text under both names while it renames the field.
	if len(d.reasoning) > 0 && sameText(d.reasoning, d.reasoningContent) {
		d.reasoning = nil
		f.said++
	}
}

// sameText tells whether two strings as written say the same, however they escape it.
func sameText(a, b []byte) bool {
	return bytes.Equal(a, b) || len(a) > 0 && len(b) > 0 && bytes.Equal(appendUnescaped(nil, a), appendUnescaped(nil, b))
}

func (f *frame) toolCall(s *jsonScan) {
	f.called = true
	if !s.object() {
		return
	}
	for s.key() {
		switch string(s.name) {
		case "function", "custom":
			f.function(s)
		default:
			s.skip()
		}
	}
}

// function reads the name and the arguments of a call: the model wrote both.
func (f *frame) function(s *jsonScan) {
	if !s.object() {
		return
	}
	var name, arguments []byte
	for s.key() {
		switch string(s.name) {
		case "name":
			name = s.str()
		case "arguments", "input":
			if s.peek() == '"' {
				arguments = s.str()
			} else {
				s.skip()
			}
		default:
			s.skip()
		}
	}
	f.say(name)
	f.say(arguments)
}

// parts reads content that is a list of typed parts, as Mistral, Anthropic and responses
// write it.
func (f *frame) parts(s *jsonScan) {
	if !s.array() {
		return
	}
	for s.elem() {
		f.part(s)
	}
}

func (f *frame) part(s *jsonScan) {
	if !s.object() {
		return
	}
	var text, thinking, partial, name []byte
	for s.key() {
		switch string(s.name) {
		case "text":
			text = s.str()
		case "thinking":
			if s.peek() == '[' {
				for s.enter('['); s.elem(); {
					if t := textOf(s); len(t) > 0 {
						thinking = t
					}
				}
			} else {
				thinking = s.str()
			}
		case "partial_json":
			partial = s.str()
		case "name":
			name = s.str()
		default:
			s.skip()
		}
	}
	f.think(thinking)
	f.say(name)
	f.say(text)
	f.say(partial)
	f.called = f.called || len(partial)+len(name) > 0
}

// textOf reads the member "text" of an object.
func textOf(s *jsonScan) []byte {
	if !s.object() {
		return nil
	}
	var text []byte
	for s.key() {
		if string(s.name) == "text" {
			text = s.str()
		} else {
			s.skip()
		}
	}
	return text
}

// generate reads a frame of SGLang's /generate. Whether it holds a token depends on the
// frames before it, which answer knows.
func (f *frame) generate(s *jsonScan) {
	for s.enter('{'); s.key(); {
		switch string(s.name) {
		case "text":
			f.forget()
			raw := s.str()
			f.textLen = len(raw)
			f.say(raw)
		case "output_ids":
			f.ids = 0
			if s.array() {
				for s.elem() {
					s.skip()
					f.ids++
				}
			}
		case "meta_info":
			f.metaInfo(s)
		default:
			f.common(s)
		}
	}
	f.visible = f.visible || f.ids > 0
}

func (f *frame) metaInfo(s *jsonScan) {
	if s.peek() != '{' {
		s.skip()
		return
	}
	f.hasUsage = true
	from := s.i
	f.usage.read(s)
	if s.bad {
		return
	}
	end := s.i
	s.i = from // once more for the reason, which is no count
	for s.enter('{'); s.key(); {
		if string(s.name) == "finish_reason" {
			f.finishReason(s)
		} else {
			s.skip()
		}
	}
	s.i = end
}
