package prompt

import (
	"fmt"
	"math"
	"strings"
	"sync"

	"github.com/weirbench/weir/internal/corpus"
)

// Options say how a Builder writes bodies.
type Options struct {
	// Models are the names to ask for, by Turn.Model, beginning again after the last; one
	// name serves all.
	Models []string
	// Whole asks for the answer in one piece instead of as a stream.
	Whole bool
	// NoUsage leaves out stream_options.include_usage.
	NoUsage bool
	// LegacyMaxTokens writes max_tokens instead of max_completion_tokens in chat requests.
	LegacyMaxTokens bool
	// IgnoreEOS asks the server to go on to the last token asked for.
	IgnoreEOS bool
	// Extra is a JSON object whose members are added to every body, in place of those of the
	// same name; null takes a member away. It must not hold the prompt.
	Extra []byte
	// Alternate writes messages of one role in a row as one, for templates that refuse them;
	// see Learned.Adjacent.
	Alternate bool
	// Salt says where the salt of a request goes.
	Salt Placement
	// Template is what the server adds to the tokens of a prompt; see Learn.
	Template Template
	// IDs is the list of words as token ids, for endpoints that take ids: see FromTokenizer
	// and IDRange. Without one, ids 1,000 to 9,191 are used.
	IDs *Words
}

// A Request names the recorded turn to send.
type Request struct {
	Trace  *corpus.Trace
	Stream int    // index in Trace.Streams
	Turn   int    // index in Stream.Turns
	Salt   string // of the tree; see Salt. Empty is none
	MaxOut int64  // tokens to ask for; 0 leaves it to the server
	// Extra is a JSON object like Options.Extra for this request alone.
	Extra []byte
}

// A Builder writes the bodies of requests. It is safe for concurrent use; it keeps the plan of
// every stream that was asked for, some 400 bytes a turn.
type Builder struct {
	words *Words
	ids   *Words
	o     Options
	extra fields
	keep  int64
	plans sync.Map // planKey -> *planEntry
}

// variant says what is added to a prompt besides its words.
type variant uint8

const (
	asChat variant = iota
	asText
	asIDs
	salted variant = 4
)

type planKey struct {
	stream *corpus.Stream
	variant
}

type planEntry struct {
	once sync.Once
	plan *plan
	err  error
}

var defaultIDs = sync.OnceValue(func() *Words {
	w, err := IDRange(1000, 1000+8192)
	if err != nil {
		panic(err) // constant arguments
	}
	return w
})

// New returns a Builder that writes prompts with the given words.
func New(words *Words, o Options) (*Builder, error) {
	if words == nil {
		words = Default()
	}
	if words.ids != nil && strings.HasPrefix(words.word[0], ",") {
		return nil, fmt.Errorf("word list %s is of token ids; it goes into Options.IDs", words.name)
	}
	extra, err := parseFields(o.Extra, "messages", "prompt", "input", "input_ids", "text", "system")
	if err != nil {
		return nil, err
	}
	if o.IDs == nil {
		o.IDs = defaultIDs()
	}
	return &Builder{words: words, ids: o.IDs, o: o, extra: extra,
		keep: int64(max(words.idLen, o.IDs.idLen) + 1)}, nil
}

// plan returns the plan of a stream, made when it is first asked for.
func (b *Builder) plan(tr *corpus.Trace, stream int, v variant) (*plan, error) {
	key := planKey{&tr.Streams[stream], v}
	e, ok := b.plans.Load(key)
	if !ok {
		e, _ = b.plans.LoadOrStore(key, new(planEntry))
	}
	pe := e.(*planEntry)
	pe.once.Do(func() {
		t := b.o.Template
		switch v &^ salted {
		case asText:
			t = Template{Fixed: t.Text, FixedSystem: t.Text, Salt: t.Salt}
		case asIDs:
			t = Template{Salt: saltWords}
		}
		p := b.o.Salt
		if v&salted == 0 {
			p = NoSalt
		}
		o := t.overhead(p)
		o.alternate = b.o.Alternate
		pe.plan, pe.err = planStream(tr, stream, b.keep, o)
	})
	return pe.plan, pe.err
}

func (b *Builder) variant(v variant, salt string) variant {
	if salt != "" && b.o.Salt != NoSalt {
		v |= salted
	}
	return v
}

func check(q *Request) error {
	switch {
	case q.Trace == nil:
		return fmt.Errorf("prompt: no trace given")
	case q.Stream < 0 || q.Stream >= len(q.Trace.Streams):
		return fmt.Errorf("trace %s has %d streams; %d was asked for", q.Trace.ID, len(q.Trace.Streams), q.Stream)
	case q.Turn < 0 || q.Turn >= len(q.Trace.Streams[q.Stream].Turns):
		s := &q.Trace.Streams[q.Stream]
		return fmt.Errorf("trace %s stream %s has %d turns; %d was asked for", q.Trace.ID, s.ID, len(s.Turns), q.Turn)
	case q.Trace.BlockSize > math.MaxInt32:
		return fmt.Errorf("trace %s: block size %d is over %d", q.Trace.ID, q.Trace.BlockSize, math.MaxInt32)
	}
	return nil
}

// body makes the body of a request but for its head, foot and shape.
func (b *Builder) body(q *Request, v variant) (*Body, error) {
	if err := check(q); err != nil {
		return nil, err
	}
	p, err := b.plan(q.Trace, q.Stream, b.variant(v, q.Salt))
	if err != nil {
		return nil, err
	}
	s := &q.Trace.Streams[q.Stream]
	t, last := &s.Turns[q.Turn], p.heads[q.Turn]
	bs := q.Trace.BlockSize
	y := &Body{
		turn: t, words: b.words, alternate: b.o.Alternate, key: keyOf(q.Trace.ID), bs: bs, keep: min(b.keep, bs),
		segs: last.path(), tokens: t.In + last.debt, want: t.In,
	}
	y.tail = newTail(keyOf(s.ID), q.Turn, last.tailTokens(bs, y.keep))
	if v == asIDs {
		y.words, y.form, y.bare = b.ids, 1, true
	}
	if q.Salt != "" {
		y.before, y.behind = b.saltAround(q.Salt, v, y.segs)
	}
	return y, nil
}

// saltAround is the salt as it is written before and behind the message that carries it.
func (b *Builder) saltAround(salt string, v variant, segs []*segment) (before, behind string) {
	p := b.o.Salt
	if p == SystemSuffix && segs[0].role != System { // where the system message would end
		p = FirstTurnPrefix
	}
	if v != asIDs {
		before, behind = b.words.saltText(salt, p)
		return inString(before), inString(behind)
	}
	if p == NoSalt {
		return "", ""
	}
	ids := b.ids.spell(strings.Trim(salt, "\n"))
	if p == SystemSuffix || p == FirstTurnSuffix {
		return "", ids
	}
	return ids, ""
}

// inString is s as it stands within a JSON string.
func inString(s string) string {
	q := quote(s)
	return string(q[1 : len(q)-1])
}

// Segments returns the messages of a chat prompt in order, for a tree with or without a salt.
// Blocks x block size + Tail - Given is the number of tokens of a message's text.
func (b *Builder) Segments(tr *corpus.Trace, stream, turn int, withSalt bool) ([]Segment, error) {
	q := Request{Trace: tr, Stream: stream, Turn: turn}
	if withSalt {
		q.Salt = "s"
	}
	y, err := b.body(&q, asChat)
	if err != nil {
		return nil, err
	}
	out := make([]Segment, len(y.segs))
	for i, s := range y.segs {
		out[i] = Segment{Role: s.role, Start: int(s.start), Blocks: int(s.blocks), Tail: s.tail, Given: s.given}
	}
	return out, nil
}

// Shared is what a chat prompt has in common with the one of the turn before it.
type Shared struct {
	Recorded int64 // tokens of the whole blocks that both have
	Message  int   // index of the message that the last of these blocks is in
	Words    int64 // words of that message up to the end of that block
}

// SharedWithPrevious tells where the prompt of a turn parts from the one before it; the first
// turn of a stream shares nothing.
func (b *Builder) SharedWithPrevious(q Request) (Shared, error) {
	y, err := b.body(&q, asChat)
	if err != nil || q.Turn == 0 {
		return Shared{}, err
	}
	s := &q.Trace.Streams[q.Stream]
	lcp := sharedBlocks(&s.Turns[q.Turn-1], &s.Turns[q.Turn], y.bs)
	out := Shared{Recorded: int64(lcp) * y.bs}
	message, words := -1, int64(0)
	for i, g := range y.segs {
		if !y.joins(i) {
			message, words = message+1, 0
		}
		n := min(lcp-int(g.start), int(g.blocks))
		for j := range max(n, 0) {
			words += g.blockTokens(j, y.bs, y.keep)
		}
		if n > 0 {
			out.Message, out.Words = message, words
		}
	}
	return out, nil
}
