package corpus

import "bytes"

// A logged is one request of an OpenAI-style log.
type logged struct {
	pos      int
	session  string
	model    string
	messages []message
	tools    []byte
	t        int64
	hasTime  bool
	api      int64
	hasAPI   bool
	prompt   int64 // recorded prompt tokens; 0 for none
	out      int64
	hasOut   bool
	answer   int64 // weight of the recorded answer
}

type message struct {
	role string
	text []byte
}

// readMessages reads logs of chat requests, one JSON object a line (or an array): the body of
// a request, alone or under "body" or "request", with what is known of the response beside it
// or under "response". docs/corpus.md lists the fields.
//
// Requests with one session_id (or conversation_id, or trace_id) are a trace; without, the
// file is one. Agents that ran side by side are found by their prefixes, as in Weka traces.
func readMessages(it *item, s *scanner, opt *LoadOptions) {
	lines := eachLine(s, func() *logged {
		l := &logged{}
		s.peek()
		l.pos = s.pos
		readLogged(s, l, it)
		if s.err == nil && len(l.messages) == 0 {
			s.failAt(l.pos, "the line has no field \"messages\", or it is empty")
		}
		return l
	})
	if s.err != nil {
		it.fail(s.err)
		return
	}
	bySession := map[string][]*logged{}
	var order []string
	for _, l := range lines {
		if bySession[l.session] == nil {
			order = append(order, l.session)
		}
		bySession[l.session] = append(bySession[l.session], l)
	}
	for _, id := range order {
		name := id
		if id == "" {
			name = fileID(s.file)
		}
		t, err := logTrace(it, s, name, bySession[id], opt)
		if err != nil {
			it.fail(err)
			continue
		}
		it.add(t)
	}
	it.noteEstimated()
}

func logTrace(it *item, s *scanner, id string, lines []*logged, opt *LoadOptions) (*Trace, error) {
	rec := &recording{file: s.file, id: id, blockSize: textBlockSize(opt)}
	// Where prompts were counted, the rule of thumb is scaled so that their sum is met.
	var weight, counted int64
	for _, l := range lines {
		if l.prompt > 0 {
			counted += l.prompt
			for _, m := range l.messages {
				weight += weigh(m.text) + messageTokens*weightToken
			}
			weight += weigh(l.tools)
		}
	}
	ratio := 1.0
	if counted > 0 && weight > 0 {
		ratio = min(max(float64(counted)*weightToken/float64(weight), 0.1), 10)
	}
	table := blockTable{}
	models := map[string]int{}
	var last int64
	var start int64
	timed := lines[0].hasTime
	for i, l := range lines {
		p := newTextPrompt(rec.blockSize, ratio)
		p.add(l.tools)
		for _, m := range l.messages {
			p.message(m.role)
			p.add(m.text)
		}
		r := request{outer: i, pos: l.pos, api: l.api, hasAPI: l.hasAPI, in: l.prompt, out: l.out}
		if r.in == 0 {
			r.in = p.tokens()
		}
		if !l.hasOut {
			r.out = assumedOut
			if l.answer > 0 {
				r.out = max(1, int64(float64(l.answer)/p.perToken))
			} else {
				it.assume()
			}
		}
		if timed != l.hasTime {
			return nil, s.fault(l.pos, []step{{key: "timestamp"}}, "some requests of %q have a time and others don't", id)
		}
		if l.hasTime {
			if i == 0 {
				start = l.t
			}
			r.t = l.t - start
		}
		if r.t < last {
			return nil, s.fault(l.pos, []step{{key: "timestamp"}}, "%s s is before the request above it at %s s: times must not decrease; sort the lines by time", seconds(r.t), seconds(last))
		}
		last = r.t
		ids := p.ids
		if full := r.in / rec.blockSize; int64(len(ids)) > full {
			ids = ids[:full]
		}
		r.blocks = table.of(ids)
		m, ok := models[l.model]
		if !ok {
			m = len(models)
			models[l.model] = m
			name := l.model
			if name == "" {
				name = "recorded"
			}
			rec.models = append(rec.models, name)
		}
		r.model = m
		rec.requests = append(rec.requests, r)
	}
	t, err := rec.build()
	if err != nil {
		return nil, err
	}
	t.Estimated = true
	return t, nil
}

// readLogged reads an object of a log: a line, or the body or response in it.
func readLogged(s *scanner, l *logged, it *item) {
	w := &wekaReader{s: s}
	s.object(func(key []byte) {
		switch string(key) {
		case "body", "request", "response":
			if s.null() {
				return
			}
			if s.peek() != '{' {
				s.skip()
				return
			}
			readLogged(s, l, it)
		case "messages":
			if s.null() {
				return
			}
			l.messages = nil
			s.array(func(int) { l.messages = append(l.messages, readMessage(s)) })
		case "tools":
			if s.null() {
				return
			}
			s.peek()
			from := s.pos
			s.skip()
			if s.err == nil {
				l.tools = bytes.Clone(s.buf[from:s.pos])
			}
		case "model":
			if !s.null() {
				l.model = string(s.str())
			}
		case "session_id", "conversation_id", "trace_id":
			l.session = s.nameOrNumber()
		case "timestamp", "created", "start_time":
			if s.null() || l.hasTime {
				if !l.hasTime {
					return
				}
				s.skip()
				return
			}
			l.t, l.hasTime = readInstant(s), true
		case "duration_ms", "latency_ms":
			if !s.null() {
				l.api, l.hasAPI = w.duration(1_000_000), true
			}
		case "usage":
			readUsage(s, l)
		case "max_tokens", "max_completion_tokens":
			// The limit stands in for the length of an answer that isn't known.
			if s.null() {
				return
			}
			if v := s.count(maxTokens); !l.hasOut {
				l.out, l.hasOut = v, true
			}
		case "output_length":
			if !s.null() {
				l.out, l.hasOut = s.count(maxTokens), true
			}
		case "choices":
			if s.null() {
				return
			}
			s.array(func(int) {
				s.object(func(key []byte) {
					if string(key) == "message" && s.peek() == '{' {
						l.answer += weigh(readMessage(s).text)
						return
					}
					s.skip()
				})
			})
		case "custom_id", "method", "url", "id", "object", "stream", "temperature", "top_p", "seed", "stop", "n", "user",
			"tool_choice", "stream_options", "response_format", "metadata", "status_code", "request_id", "error":
			s.skip()
		default:
			it.noteUnknown(s, "", key)
		}
	})
}

// readUsage reads prompt and completion tokens under the names of OpenAI and Anthropic.
func readUsage(s *scanner, l *logged) {
	if s.null() {
		return
	}
	s.object(func(key []byte) {
		switch string(key) {
		case "prompt_tokens", "input_tokens":
			l.prompt = s.optCount()
		case "completion_tokens", "output_tokens":
			if !s.null() {
				l.out, l.hasOut = s.count(maxTokens), true
			}
		default:
			s.skip()
		}
	})
}

// readMessage reads a message; content is a string or a list of parts, and tool calls count
// by their JSON.
func readMessage(s *scanner) message {
	var m message
	s.object(func(key []byte) {
		switch string(key) {
		case "role":
			m.role = string(s.str())
		case "content":
			switch {
			case s.null():
			case s.peek() == '"':
				m.text = append(m.text, s.str()...)
			default:
				s.array(func(int) {
					if s.peek() == '"' {
						m.text = append(m.text, s.str()...)
						return
					}
					m.text = append(m.text, readPart(s)...)
				})
			}
		case "tool_calls", "function_call", "reasoning_content", "tool_call_id", "name":
			if s.null() {
				return
			}
			s.peek()
			from := s.pos
			s.skip()
			if s.err == nil {
				m.text = append(m.text, s.buf[from:s.pos]...)
			}
		default:
			s.skip()
		}
	})
	return m
}

// readPart reads a part of a message: its text, or its JSON when it is something else.
func readPart(s *scanner) []byte {
	s.peek()
	from := s.pos
	var text []byte
	found := false
	s.object(func(key []byte) {
		if string(key) == "text" && s.peek() == '"' {
			text, found = bytes.Clone(s.str()), true
			return
		}
		s.skip()
	})
	if s.err == nil && !found {
		return s.buf[from:s.pos]
	}
	return text
}

// readInstant reads a time: seconds or milliseconds since 1970 or since the start, or a date.
func readInstant(s *scanner) int64 {
	at := s.pos
	var text []byte
	if s.peek() == '"' {
		text = s.str()
	} else {
		text = s.number()
	}
	if s.err != nil {
		return 0
	}
	if isNumber(text) {
		// Numbers over a hundred thousand million are milliseconds: as seconds they would lie
		// beyond the year 5000.
		if ns, ok := decimal(text, 1_000_000); ok && ns >= 100_000_000_000*1_000_000 {
			return ns
		}
	}
	ns, err := stamp(string(text))
	if err != nil {
		s.failAt(at, "%v", err)
	}
	return ns
}
