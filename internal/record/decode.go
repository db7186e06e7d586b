package record

import (
	"encoding/json"
	"math"
)

// decodeRequest reads a line of requests.jsonl into q, which holds what a key that is absent means.
// A run's end reads every record twice, and a record has a number for each of its chunks, which
// encoding/json takes by reflection; lines as this program writes them are read here without it,
// every other line by encoding/json. last, which may be nil, is the request before: most texts are the
// same again and then share its memory.
func decodeRequest(line []byte, q, last *Request) error {
	if last == nil {
		last = &Request{}
	}
	plain := *q
	d := decoder{b: line}
	if d.request(&plain, last); !d.bad && d.at == len(line) {
		*q = plain
		return nil
	}
	return json.Unmarshal(line, q)
}

// decoder reads JSON without blanks, escapes, fractions, nulls and repeated keys. Anything else
// makes it bad, which is no error: encoding/json then says what the line means.
type decoder struct {
	b   []byte
	at  int
	bad bool
}

func (d *decoder) is(c byte) bool {
	if d.at < len(d.b) && d.b[d.at] == c {
		d.at++
		return true
	}
	return false
}

// fields calls each with every key of an object, whose value it reads. No key comes twice: each
// gives the bit of a key, or 0 for one that it does not know.
func (d *decoder) fields(each func(key []byte) uint64) {
	if !d.is('{') {
		d.bad = true
	}
	if d.bad || d.is('}') {
		return
	}
	seen := uint64(0)
	for !d.bad {
		key := d.raw()
		if !d.is(':') {
			d.bad = true
			return
		}
		bit := each(key)
		if bit == 0 || seen&bit != 0 {
			d.bad = true
			return
		}
		seen |= bit
		if d.is('}') {
			return
		}
		if !d.is(',') {
			d.bad = true
		}
	}
}

// raw is a text of printable ASCII without escapes.
func (d *decoder) raw() []byte {
	if !d.is('"') {
		d.bad = true
		return nil
	}
	for i := d.at; i < len(d.b); i++ {
		switch c := d.b[i]; {
		case c == '"':
			s := d.b[d.at:i]
			d.at = i + 1
			return s
		case c < ' ' || c > '~' || c == '\\':
			d.bad = true
			return nil
		}
	}
	d.bad = true
	return nil
}

// text is raw as a string, same where it has the same bytes.
func (d *decoder) text(same string) string {
	if s := d.raw(); string(s) != same {
		return string(s)
	}
	return same
}

// whole is a whole number.
func (d *decoder) whole() int64 {
	minus := d.is('-')
	from, v := d.at, uint64(0)
	for d.at < len(d.b) && d.b[d.at]-'0' <= 9 {
		v = 10*v + uint64(d.b[d.at]-'0')
		d.at++
	}
	n := d.at - from
	if n == 0 || n > 18 || n > 1 && d.b[from] == '0' {
		d.bad = true
	}
	if minus {
		return -int64(v)
	}
	return int64(v)
}

// natural is a whole number that an int holds everywhere.
func (d *decoder) natural() int {
	v := d.whole()
	if v < math.MinInt32 || v > math.MaxInt32 {
		d.bad = true
	}
	return int(v)
}

func (d *decoder) yes() bool {
	for _, w := range []string{"true", "false"} {
		if n := d.at + len(w); n <= len(d.b) && string(d.b[d.at:n]) == w {
			d.at = n
			return w == "true"
		}
	}
	d.bad = true
	return false
}

func (d *decoder) request(q, last *Request) {
	d.fields(func(key []byte) uint64 {
		switch string(key) {
		case "seq":
			if d.is('-') {
				d.bad = true
			}
			q.Seq = uint64(d.whole())
			return 1 << 0
		case "lane":
			q.Lane = d.natural()
			return 1 << 1
		case "play":
			q.Play = d.natural()
			return 1 << 2
		case "tree":
			q.Tree = d.text(last.Tree)
			return 1 << 3
		case "trace":
			q.Trace = d.text(last.Trace)
			return 1 << 4
		case "stream":
			q.Stream = d.text(last.Stream)
			return 1 << 5
		case "depth":
			q.Depth = d.natural()
			return 1 << 6
		case "turn":
			q.Turn = d.natural()
			return 1 << 7
		case "outer":
			q.Outer = d.natural()
			return 1 << 8
		case "inner":
			q.Inner = d.natural()
			return 1 << 9
		case "phase":
			q.Phase = Phase(d.text(string(last.Phase)))
			return 1 << 10
		case "start":
			q.Start = d.text(last.Start)
			return 1 << 11
		case "url":
			q.URL = d.text(last.URL)
			return 1 << 12
		case "model":
			q.Model = d.text(last.Model)
			return 1 << 13
		case "want_in":
			q.WantIn = d.whole()
			return 1 << 14
		case "want_out":
			q.WantOut = d.whole()
			return 1 << 15
		case "times":
			d.times(&q.Times)
			return 1 << 16
		case "prompt_tokens":
			q.PromptTokens = d.whole()
			return 1 << 17
		case "output_tokens":
			q.OutputTokens = d.whole()
			return 1 << 18
		case "reasoning_tokens":
			q.ReasoningTokens = d.whole()
			return 1 << 19
		case "hits":
			d.hits(&q.Hits)
			return 1 << 20
		case "ceiling_tokens":
			q.CeilingTokens = d.whole()
			return 1 << 21
		case "join_wait":
			q.JoinWait = d.whole()
			return 1 << 22
		case "barrier_wait":
			q.BarrierWait = d.whole()
			return 1 << 23
		case "chunks":
			q.Chunks = d.chunks()
			return 1 << 24
		case "frames":
			q.Frames = d.whole()
			return 1 << 25
		case "text_bytes":
			q.TextBytes = d.whole()
			return 1 << 26
		case "local_output":
			v := d.whole()
			q.LocalOutput = &v
			return 1 << 27
		case "doubt":
			q.Doubt = &Doubt{}
			d.doubt(q.Doubt)
			return 1 << 28
		case "wire":
			q.Wire = &Wire{}
			d.wire(q.Wire)
			return 1 << 29
		case "resent":
			q.Resent = d.yes()
			return 1 << 30
		}
		return 0 // a failure, or a count that is none: these are few
	})
}

func (d *decoder) times(t *Times) {
	d.numbers([]string{"intended", "queued", "sent", "headers", "first_token", "first_visible", "last_token", "end"},
		[]*int64{&t.Intended, &t.Queued, &t.Sent, &t.Headers, &t.FirstToken, &t.FirstVisible, &t.LastToken, &t.End})
}

func (d *decoder) hits(h *Hits) {
	d.numbers([]string{"device", "host", "storage", "total"}, []*int64{&h.Device, &h.Host, &h.Storage, &h.Total})
}

func (d *decoder) doubt(x *Doubt) {
	d.numbers([]string{"sent", "first", "last"}, []*int64{&x.Sent, &x.First, &x.Last})
}

// numbers reads an object of whole numbers.
func (d *decoder) numbers(names []string, to []*int64) {
	d.fields(func(key []byte) uint64 {
		for i, name := range names {
			if string(key) == name {
				*to[i] = d.whole()
				return 1 << i
			}
		}
		return 0
	})
}

func (d *decoder) wire(w *Wire) {
	names := []string{"dns_ns", "connect_ns", "written", "body", "bytes_out", "bytes_in", "body_out", "body_in", "writes", "reads"}
	to := []*int64{&w.DNSNs, &w.ConnectNs, &w.Written, &w.Body, &w.BytesOut, &w.BytesIn, &w.BodyOut, &w.BodyIn, &w.Writes, &w.Reads}
	d.fields(func(key []byte) uint64 {
		if string(key) == "reused" {
			w.Reused = d.yes()
			return 1 << 63
		}
		for i, name := range names {
			if string(key) == name {
				*to[i] = d.whole()
				return 1 << i
			}
		}
		return 0
	})
}

// chunks reads a list that is not empty.
func (d *decoder) chunks() []Chunk {
	const at, tokens = `{"at":`, `,"tokens":`
	if !d.is('[') {
		d.bad = true
		return nil
	}
	n := 0
	for i := d.at; i < len(d.b) && d.b[i] != ']'; i++ {
		if d.b[i] == '}' {
			n++
		}
	}
	list := make([]Chunk, 0, n)
	for !d.bad {
		var c Chunk
		d.literal(at)
		c.At = d.whole()
		d.literal(tokens)
		c.Tokens = d.whole()
		d.literal("}")
		list = append(list, c)
		if d.is(']') {
			break
		}
		d.literal(",")
	}
	return list
}

func (d *decoder) literal(s string) {
	if n := d.at + len(s); !d.bad && n <= len(d.b) && string(d.b[d.at:n]) == s {
		d.at = n
		return
	}
	d.bad = true
}
