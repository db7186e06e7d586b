package client

// responses reads an event of OpenAI's responses API, or a whole response.
func (f *frame) responses(s *jsonScan) {
	var kind, text []byte
	for s.enter('{'); s.key(); {
		switch string(s.name) {
		case "type":
			kind = s.str()
		case "delta":
			text = s.str()
		case "response":
			f.response(s)
		case "output":
			f.outputs(s)
		case "status":
			f.status(s)
		default:
			f.common(s)
		}
	}
	switch string(kind) {
	case "response.output_text.delta", "response.refusal.delta":
		f.say(text)
	case "response.function_call_arguments.delta", "response.custom_tool_call_input.delta",
		"response.mcp_call_arguments.delta", "response.code_interpreter_call_code.delta":
		f.called = true
		f.say(text)
	case "response.reasoning_text.delta", "response.reasoning_summary_text.delta",
		"response.reasoning.delta":
		f.think(text)
	case "response.completed", "response.incomplete":
		f.finished, f.last = true, true
	case "response.failed", "error":
		f.failed = true
	}
}

// response reads the response object of an event. Its output repeats what deltas have said.
func (f *frame) response(s *jsonScan) {
	if !s.object() {
		return
	}
	for s.key() {
		switch string(s.name) {
		case "status":
			f.status(s)
		case "usage", "error":
			f.common(s)
		default:
			s.skip()
		}
	}
}

func (f *frame) status(s *jsonScan) {
	switch string(s.str()) {
	case "failed", "cancelled":
		f.failed = true
	case "completed", "incomplete":
		f.finished = true
	}
}

// outputs reads the items of a response that was not streamed.
func (f *frame) outputs(s *jsonScan) {
	if !s.array() {
		return
	}
	for s.elem() {
		if !s.object() {
			continue
		}
		for s.key() {
			switch string(s.name) {
			case "content", "summary":
				f.parts(s)
			case "arguments":
				f.say(s.str())
			default:
				s.skip()
			}
		}
	}
}

// messages reads an event of Anthropic's messages API, or a whole message.
func (f *frame) messages(s *jsonScan) {
	var kind []byte
	for s.enter('{'); s.key(); {
		switch string(s.name) {
		case "type":
			kind = s.str()
		case "delta", "content_block":
			from := s.i
			f.part(s)
			end := s.i
			if s.bad {
				return
			}
			s.i = from // once more for stop_reason, which ends the answer
			if s.object() {
				for s.key() {
					if string(s.name) == "stop_reason" {
						f.finished = len(s.str()) > 0 || f.finished
					} else {
						s.skip()
					}
				}
			}
			s.i = end
		case "content":
			f.parts(s)
		case "message":
			f.messageStart(s)
		case "stop_reason":
			f.finished = len(s.str()) > 0 || f.finished
		default:
			f.common(s)
		}
	}
	switch string(kind) {
	case "message_stop":
		f.finished, f.last = true, true
	case "error":
		f.failed = true
	}
}

// messageStart reads the message object that opens a stream: it has usage and no content yet.
func (f *frame) messageStart(s *jsonScan) {
	if s.peek() == '"' { // {"type":"error","message":"..."}
		s.skip()
		return
	}
	if !s.object() {
		return
	}
	for s.key() {
		if string(s.name) == "usage" {
			f.takeUsage(s)
		} else {
			s.skip()
		}
	}
}
