package corpus

import (
	"cmp"
	"errors"
	"math"
	"slices"
)

// A recording is a trace as the Weka form records it: a flat list of requests and sub-agents,
// before package corpus has found out which request belongs to which stream.
type recording struct {
	file         string
	id           string
	blockSize    int64
	toolTokens   int64
	systemTokens int64
	models       []string
	requests     []request // the flat list
	agents       []agent   // recorded sub-agents
	unknown      []string  // fields that the schema doesn't know
	extra        string    // members that are kept as they are
	placed       bool      // the places in the list are those of a Weka trace
	apart        bool      // the list holds conversations that have nothing to do with each other
}

// A request is one recorded request.
type request struct {
	outer  int // place in the list of requests and sub-agents
	pos    int // place in the file, for messages
	t      int64
	api    int64
	hasAPI bool
	think  int64
	ttft   int64
	in     int64
	out    int64
	model  int
	extra  string
	blocks []uint32
	// partial is 1 when one more id stands behind blocks, for the last block that isn't full.
	partial int
}

func (r *request) end() int64 { return r.t + r.api }

// An agent is a recorded sub-agent.
type agent struct {
	outer        int
	pos          int
	t            int64
	id           string
	label        string
	duration     int64 // Unbound when it was not recorded
	toolTokens   int64
	systemTokens int64
	extra        string
	requests     []request
}

// errWide says that a trace has block ids over 32 bits and must be read with a table.
var errWide = errors.New("wide block ids")

// wekaReader reads one trace of the Weka form. Schema: the traces of kv-cache-tester, as
// AIPerf's weka_trace_models.py validates it (2026-06); see docs/corpus.md.
type wekaReader struct {
	s       *scanner
	rec     *recording
	wide    map[uint64]uint32 // block ids by their number in order of first use; nil when ids fit
	isWide  bool
	scratch []uint32
	names   map[string]string // strings that came before
	members []byte
}

// readWeka reads one trace from s, which stands at its opening brace.
func readWeka(s *scanner) (*recording, error) {
	start := *s
	w := &wekaReader{s: s, names: map[string]string{}}
	rec, err := w.trace()
	if !errors.Is(err, errWide) {
		return rec, err
	}
	*s = start
	w = &wekaReader{s: s, wide: map[uint64]uint32{}, names: map[string]string{}}
	return w.trace()
}

// once refuses a key that comes twice in one object.
type once struct{ seen uint64 }

func (o *once) check(s *scanner, bit uint) {
	if o.seen&(1<<bit) != 0 {
		s.fail("the field comes twice")
	}
	o.seen |= 1 << bit
}

func (o *once) has(bit uint) bool { return o.seen&(1<<bit) != 0 }

func (w *wekaReader) trace() (*recording, error) {
	s := w.s
	w.rec = &recording{file: s.file, placed: true}
	rec := w.rec
	var o once
	var extra []byte
	at := s.pos
	s.object(func(key []byte) {
		switch string(key) {
		case "id":
			o.check(s, 0)
			rec.id = string(s.str())
			if s.err == nil && rec.id == "" {
				s.fail("is empty")
			}
		case "models":
			o.check(s, 1)
			if !s.null() {
				s.array(func(int) { w.model() })
			}
		case "block_size":
			o.check(s, 2)
			rec.blockSize = s.count(1 << 20)
			if s.err == nil && rec.blockSize == 0 {
				s.fail("is 0: a block has at least one token")
			}
		case "hash_id_scope":
			o.check(s, 3)
			if scope := s.str(); s.err == nil && string(scope) != "local" {
				s.fail("is %q: only \"local\" is known, where ids mean something within one trace", scope)
			}
		case "tool_tokens":
			o.check(s, 4)
			rec.toolTokens = s.optCount()
		case "system_tokens":
			o.check(s, 5)
			rec.systemTokens = s.optCount()
		case "requests":
			o.check(s, 6)
			s.array(w.entry)
		case "totals":
			extra = w.keep(extra, key)
		default:
			extra = w.unknown(extra, "", key)
		}
	})
	rec.extra = string(extra)
	if w.isWide {
		return nil, errWide
	}
	if s.err == nil {
		switch {
		case !o.has(0):
			s.failAt(at, "the trace has no field \"id\"")
		case !o.has(6):
			s.failAt(at, "the trace has no field \"requests\"")
		case len(rec.requests)+len(rec.agents) == 0:
			s.failAt(at, "the trace has no requests")
		}
	}
	if s.err != nil {
		return nil, s.err
	}
	if rec.blockSize == 0 {
		rec.blockSize = 64
	}
	rec.trim()
	return rec, nil
}

// optCount reads a count or null, which counts as 0.
func (s *scanner) optCount() int64 {
	if s.null() {
		return 0
	}
	return s.count(maxTokens)
}

// unknown keeps a member that the schema doesn't know and remembers its name. A null is the
// same as no member: some writers put one for every field that any other row has.
func (w *wekaReader) unknown(extra []byte, where string, key []byte) []byte {
	if w.s.null() {
		return extra
	}
	if name := where + string(key); !slices.Contains(w.rec.unknown, name) && len(w.rec.unknown) < 64 {
		w.rec.unknown = append(w.rec.unknown, name)
	}
	return w.keep(extra, key)
}

// keep appends a member as it stands.
func (w *wekaReader) keep(extra []byte, key []byte) []byte {
	w.s.peek()
	from := w.s.pos
	w.s.skip()
	if w.s.err != nil {
		return extra
	}
	if len(extra) > 0 {
		extra = append(extra, ',')
	}
	extra = appendString(extra, string(key))
	extra = append(extra, ':')
	return append(extra, w.s.buf[from:w.s.pos]...)
}

// name returns b as a string, the same one for equal bytes.
func (w *wekaReader) name(b []byte) string {
	s, ok := w.names[string(b)]
	if !ok {
		s = string(b)
		w.names[s] = s
	}
	return s
}

func (w *wekaReader) model() int {
	name := w.s.str()
	for i, m := range w.rec.models {
		if m == string(name) {
			return i
		}
	}
	w.rec.models = append(w.rec.models, string(name))
	return len(w.rec.models) - 1
}

// entry reads one element of the list: a request or a sub-agent.
func (w *wekaReader) entry(i int) {
	if w.entryType() == "subagent" {
		w.agent(i)
		return
	}
	r := request{outer: i, pos: w.s.pos}
	w.request(&r, nil)
	if w.s.err != nil {
		return
	}
	w.rec.requests = append(w.rec.requests, r)
}

// entryType looks ahead for the member "type" without moving on.
func (w *wekaReader) entryType() string {
	ahead := *w.s
	ahead.path = nil
	typ := ""
	ahead.object(func(key []byte) {
		if string(key) == "type" {
			typ = string(ahead.str())
			ahead.err = &FormatError{}
			return
		}
		ahead.skip()
	})
	return typ
}

func (w *wekaReader) agent(i int) {
	s := w.s
	a := agent{outer: i, pos: s.pos, duration: Unbound}
	var o once
	var extra []byte
	at := s.pos
	s.object(func(key []byte) {
		switch string(key) {
		case "t":
			o.check(s, 0)
			a.t = w.time()
		case "type":
			o.check(s, 1)
			s.str()
		case "agent_id":
			o.check(s, 2)
			a.id = string(s.str())
			if s.err == nil && a.id == "" {
				s.fail("is empty")
			}
		case "subagent_type":
			o.check(s, 3)
			if !s.null() {
				a.label = string(s.str())
			}
		case "duration_ms":
			o.check(s, 4)
			if !s.null() {
				a.duration = w.duration(1_000_000)
			}
		case "tool_tokens":
			o.check(s, 5)
			a.toolTokens = s.optCount()
		case "system_tokens":
			o.check(s, 6)
			a.systemTokens = s.optCount()
		case "requests":
			o.check(s, 7)
			s.array(func(j int) {
				r := request{outer: j, pos: s.pos}
				w.request(&r, &a)
				a.requests = append(a.requests, r)
			})
		case "models":
			s.skip()
		case "status", "total_tokens", "tool_use_count":
			extra = w.keep(extra, key)
		default:
			extra = w.unknown(extra, "requests[].", key)
		}
	})
	if string(extra) != plainAgent {
		a.extra = w.name(extra)
	}
	switch {
	case s.err != nil:
		return
	case !o.has(0):
		s.failAt(at, "the sub-agent has no field \"t\"")
	case !o.has(2):
		s.failAt(at, "the sub-agent has no field \"agent_id\"")
	case !o.has(7):
		s.failAt(at, "the sub-agent has no field \"requests\"")
	}
	// Times of older recordings count from the sub-agent's start: one time before it shows
	// that all do.
	for j := range a.requests {
		if a.requests[j].t+epsilonNs < a.t {
			for k := range a.requests {
				a.requests[k].t += a.t
			}
			break
		}
	}
	w.rec.agents = append(w.rec.agents, a)
}

// time reads a time in seconds since the start.
func (w *wekaReader) time() int64 {
	at := w.s.pos
	ns := w.s.scaled(1_000_000_000)
	if w.s.err == nil && ns < 0 {
		w.s.failAt(at, "%d ns is negative", ns)
	}
	return ns
}

// duration reads a span of time in units of ns; null is 0.
func (w *wekaReader) duration(unit int64) int64 {
	if w.s.null() {
		return 0
	}
	at := w.s.pos
	ns := w.s.scaled(unit)
	if w.s.err == nil && ns < 0 {
		w.s.failAt(at, "%d ns is negative", ns)
	}
	return ns
}

func (w *wekaReader) request(r *request, in *agent) {
	s := w.s
	var o once
	w.members = w.members[:0]
	at := s.pos
	const second = 1_000_000_000
	s.object(func(key []byte) {
		switch string(key) {
		case "t":
			o.check(s, 0)
			r.t = w.time()
		case "type":
			o.check(s, 1)
			if typ := s.str(); s.err == nil && string(typ) != "n" && string(typ) != "s" {
				if in != nil && string(typ) == "subagent" {
					s.fail("is \"subagent\" inside a sub-agent: the form has one level")
					return
				}
				s.fail("is %q: want \"n\", \"s\" or \"subagent\"", typ)
			}
		case "model":
			o.check(s, 2)
			r.model = w.model()
		case "in":
			o.check(s, 3)
			r.in = s.count(maxTokens)
			if s.err == nil && r.in == 0 {
				s.fail("is 0: a request has at least one prompt token")
			}
		case "out":
			o.check(s, 4)
			r.out = s.count(maxTokens)
		case "hash_ids":
			o.check(s, 5)
			r.blocks = w.blocks()
		case "api_time":
			o.check(s, 6)
			if !s.null() {
				r.api, r.hasAPI = w.duration(second), true
			}
		case "think_time":
			o.check(s, 7)
			r.think = w.duration(second)
		case "ttft":
			o.check(s, 8)
			r.ttft = w.duration(second)
		case "input_types", "output_types", "stop":
			w.members = w.keep(w.members, key)
		default:
			w.members = w.unknown(w.members, "requests[].", key)
		}
	})
	if string(w.members) != plainRequest {
		r.extra = w.name(w.members)
	}
	if s.err != nil {
		return
	}
	for bit, name := range []string{"t", "type", "model", "in", "out", "hash_ids"} {
		if !o.has(uint(bit)) {
			s.failAt(at, "the request has no field %q", name)
			return
		}
	}
}

// trim drops block ids beyond the end of a prompt: they are ignored, as AIPerf does.
func (rec *recording) trim() {
	trim := func(list []request) {
		for i := range list {
			r := &list[i]
			if most := (r.in + rec.blockSize - 1) / rec.blockSize; int64(len(r.blocks)) > most {
				r.blocks = r.blocks[:most:most]
			}
		}
	}
	trim(rec.requests)
	for i := range rec.agents {
		trim(rec.agents[i].requests)
	}
}

// blocks reads an array of block ids.
func (w *wekaReader) blocks() []uint32 {
	w.idList()
	return slices.Clone(w.scratch)
}

// idList reads an array of block ids into scratch. It is the hot loop of loading: nine bytes
// in ten of a trace are block ids.
func (w *wekaReader) idList() {
	s := w.s
	w.scratch = w.scratch[:0]
	if !s.expect('[', "an array") {
		return
	}
	ids := w.scratch
	if s.peek() == ']' {
		s.pos++
		return
	}
	buf := s.buf
	for {
		i := s.pos
		for i < len(buf) && (buf[i] == ' ' || buf[i] == '\n' || buf[i] == '\r' || buf[i] == '\t') {
			i++
		}
		start := i
		var v uint64
		for i < len(buf) && buf[i]-'0' < 10 {
			v = v*10 + uint64(buf[i]-'0')
			i++
		}
		n := i - start
		if n == 0 || n > 9 || buf[start] == '0' && n > 1 || i >= len(buf) || buf[i] != ',' && buf[i] != ']' {
			s.pos = start
			v = w.blockID(len(ids))
			if s.err != nil {
				return
			}
			s.peek()
			i = s.pos
			if i >= len(buf) || buf[i] != ',' && buf[i] != ']' {
				s.fail("want ',' or ']', found %s", s.found())
				return
			}
		}
		if w.wide != nil {
			id, ok := w.wide[v]
			if !ok {
				id = uint32(len(w.wide))
				w.wide[v] = id
			}
			v = uint64(id)
		} else if v > math.MaxUint32 {
			w.isWide = true
			v = 0
		}
		ids = append(ids, uint32(v))
		s.pos = i + 1
		if buf[i] == ']' {
			break
		}
	}
	w.scratch = ids
}

// blockID reads the i-th id with all checks.
func (w *wekaReader) blockID(i int) uint64 {
	s := w.s
	s.path = append(s.path, step{idx: i})
	v := w.rawID()
	if s.err == nil {
		s.pop()
	}
	return v
}

// rawID reads a whole number of 64 bits.
func (w *wekaReader) rawID() uint64 {
	s := w.s
	at := s.pos
	text := s.number()
	if s.err != nil {
		return 0
	}
	var v uint64
	for _, c := range text {
		switch {
		case c == '-':
			s.failAt(at, "%s is negative", text)
			return 0
		case c < '0' || c > '9':
			s.failAt(at, "want a whole number, found %s", text)
			return 0
		case v > (math.MaxUint64-9)/10:
			s.failAt(at, "%s is over 64 bits", text)
			return 0
		}
		v = v*10 + uint64(c-'0')
	}
	return v
}

// check refuses what a reader can't see in one request: an order that goes back in time and
// names that come twice. s is the scanner that read the recording.
func (rec *recording) check(s *scanner) error {
	backwards := func(path []step, pos int, t, before int64, outer int) error {
		return s.fault(pos, path, "%s s is before entry %d of the list at %s s: times must not decrease; sort the list by t",
			seconds(t), outer, seconds(before))
	}
	list := make([]*request, 0, len(rec.requests)+len(rec.agents))
	for i := range rec.requests {
		list = append(list, &rec.requests[i])
	}
	names := map[string]int{}
	for i := range rec.agents {
		a := &rec.agents[i]
		list = append(list, &request{outer: a.outer, t: a.t, pos: a.pos})
		if other, ok := names[a.id]; ok {
			return s.fault(a.pos, []step{{key: "requests"}, {idx: a.outer}, {key: "agent_id"}},
				"%q is also the id of requests[%d]: each sub-agent of a trace needs its own", a.id, other)
		}
		names[a.id] = a.outer
		for j := 1; j < len(a.requests); j++ {
			if r := &a.requests[j]; r.t < a.requests[j-1].t {
				return backwards([]step{{key: "requests"}, {idx: a.outer}, {key: "requests"}, {idx: j}, {key: "t"}},
					r.pos, r.t, a.requests[j-1].t, j-1)
			}
		}
	}
	slices.SortFunc(list, func(a, b *request) int { return cmp.Compare(a.outer, b.outer) })
	for i := 1; i < len(list); i++ {
		if r := list[i]; r.t < list[i-1].t {
			return backwards([]step{{key: "requests"}, {idx: r.outer}, {key: "t"}}, r.pos, r.t, list[i-1].t, list[i-1].outer)
		}
	}
	return nil
}
