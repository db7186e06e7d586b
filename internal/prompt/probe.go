package prompt

import (
	"fmt"
	"strings"

	"github.com/weirbench/weir/internal/corpus"
)

// probeWords is the number of words of each message of a probe.
const probeWords = 16

// A Probe is a small request whose prompt tokens, as the server counts them, tell what its
// template adds.
type Probe struct {
	Name  string
	Roles []Role // of its messages
	Words int64  // of each message; 0 is every word of the list, once, in one message
	Salt  bool   // with a salt
}

// Tokens is the number of tokens of the words of the probe.
func (p Probe) Tokens(w *Words) int64 {
	if p.Words == 0 {
		return int64(w.Len())
	}
	return p.Words * int64(max(1, len(p.Roles)))
}

// Probes lists what to ask a server of an endpoint before a run: at most nine requests for one
// token each. A server may refuse some, such as two messages of one role in a row; Learn does
// without them.
func (b *Builder) Probes(e Endpoint) []Probe {
	if !e.Roles() {
		if e.variant() == asIDs {
			return nil // what is sent is what is counted
		}
		return []Probe{
			{Name: "text", Words: probeWords},
			{Name: "text-words"},
			{Name: "text-salt", Words: probeWords, Salt: true},
		}
	}
	return []Probe{
		{Name: "user", Roles: []Role{User}, Words: probeWords},
		{Name: "words", Roles: []Role{User}},
		{Name: "system", Roles: []Role{System, User}, Words: probeWords},
		{Name: "alone", Roles: []Role{System}, Words: probeWords},
		{Name: "turns", Roles: []Role{User, Assistant, User}, Words: probeWords},
		{Name: "users", Roles: []Role{User, User}, Words: probeWords},
		{Name: "answers", Roles: []Role{User, Assistant, Assistant, User}, Words: probeWords},
		{Name: "salt", Roles: []Role{System, User}, Words: probeWords, Salt: true},
		{Name: "check", Roles: []Role{System, User, Assistant, User, Assistant, User}, Words: probeWords},
	}
}

// Probe is the body of a probe in the format of an endpoint. It asks for one token. seed makes
// its text its own, so that probes of two runs share nothing.
func (b *Builder) Probe(e Endpoint, p Probe, seed uint64) (*Body, error) {
	q := Request{MaxOut: 1}
	if p.Salt {
		q.Salt = Salt(seed, p.Name, 0, 0)
	}
	y := &Body{words: b.words, key: mix(seed ^ keyOf("probe "+p.Name)), bs: max(1, p.Words), keep: b.keep,
		turn: &corpus.Turn{}, tokens: p.Tokens(b.words), want: p.Tokens(b.words)}
	var s *segment
	for i, r := range p.Roles {
		s = &segment{parent: s, role: r, n: int32(i + 1), start: int32(i), blocks: 1}
		y.turn.Blocks = append(y.turn.Blocks, uint32(i))
	}
	if len(p.Roles) == 0 {
		s = &segment{role: User, n: 1, blocks: 1}
		y.turn.Blocks = []uint32{0}
	}
	y.segs = s.path()
	if p.Salt {
		at := len(y.segs) - 1
		if b.o.Salt == SystemPrefix || b.o.Salt == SystemSuffix {
			at = 0
		}
		y.segs[at].carrier = true
		y.before, y.behind = b.saltAround(q.Salt, e.variant(), y.segs)
	}
	if p.Words == 0 {
		s.blocks = 0
	}
	if _, err := b.wrap(e, y, &q); err != nil {
		return nil, err
	}
	if p.Words == 0 { // the whole list stands where the message opens
		y.appendToHead(strings.Join(b.words.word, ""))
	}
	return y, nil
}

// appendToHead moves the opening of the only message into the head and text behind it.
func (b *Body) appendToHead(text string) {
	b.head = append(b.appendOpening(b.head, 0), text...)
	s := *b.shape
	s.open = [3]string{}
	b.shape = &s
	b.measure()
}

// An Observation is what a server counted for a probe.
type Observation struct {
	Probe  Probe
	Tokens int64 // usage.prompt_tokens; negative when the server refused the probe or did not count
}

// Learned is what probes told of a server.
type Learned struct {
	Template Template `json:"template"`
	// Known is false where nothing was counted, so that Template is all zero by ignorance.
	Known bool `json:"known"`
	// Adjacent says that messages of one role in a row were accepted.
	Adjacent bool `json:"adjacent"`
	// Alternate says that the server counts messages whose roles alternate and refuses
	// others: Options.Alternate is needed.
	Alternate bool `json:"alternate"`
	// Residual is the count of the probe "check" less what Template says, tokens: what the
	// prompts of the run will be off by; 0 when that probe was not counted.
	Residual int64 `json:"residual"`
	// Refused lists probes that were not counted.
	Refused []string `json:"refused,omitempty"`
}

// Learn works out the overhead of a server's template from its counts. It fails when the
// counts show that the words are not one token each in the server's tokenizer.
func Learn(w *Words, seen []Observation) (Learned, error) {
	extra := map[string]int64{} // tokens that are not words
	var l Learned
	for _, o := range seen {
		if o.Tokens < 0 {
			l.Refused = append(l.Refused, o.Probe.Name)
			continue
		}
		extra[o.Probe.Name] = o.Tokens - o.Probe.Tokens(w)
	}
	for _, pair := range [][2]string{{"user", "words"}, {"text", "text-words"}} {
		short, ok := extra[pair[0]]
		if !ok {
			continue
		}
		l.Known = true
		long, ok := extra[pair[1]]
		if ok && long != short {
			return l, fmt.Errorf("the %d words of list %q count %d tokens more than as one each (%d words: %d tokens of overhead; all: %d): not all are one token in this server's tokenizer; give its tokenizer.json",
				w.Len(), w.name, long-short, probeWords, short, long)
		}
		if short < 0 {
			return l, fmt.Errorf("%d words count %d tokens, fewer than words: words merge in this server's tokenizer, or it does not count the whole prompt; give its tokenizer.json", probeWords, short+probeWords)
		}
	}
	t := &l.Template
	if n, ok := extra["text"]; ok {
		t.Text = n
		if salt, ok := extra["text-salt"]; ok {
			t.Salt = salt - n
		}
	}
	one, ok := extra["user"]
	if !ok {
		return l, nil
	}
	_, alternating := extra["turns"]
	pair := int64(0) // User + Assistant
	if three, ok := extra["turns"]; ok {
		pair = three - one
	}
	t.User = pair / 2
	if two, ok := extra["users"]; ok {
		t.User = two - one
		l.Adjacent = true
	} else if four, ok := extra["answers"]; ok { // user, assistant, assistant, user
		t.User = pair - (four - one - pair)
		l.Adjacent = true
	} else if alone, ok := extra["alone"]; ok && alone >= 0 { // some templates drop it
		if both, ok := extra["system"]; ok && both >= alone && both-alone <= pair {
			t.User = both - alone
		}
	}
	l.Alternate = alternating && !l.Adjacent
	t.Assistant = pair - t.User
	t.Fixed = one - t.User
	t.FixedSystem = t.Fixed
	if n, ok := extra["system"]; ok {
		t.FixedSystem = n - t.User
	}
	if n, ok := extra["salt"]; ok {
		t.Salt = n - t.FixedSystem - t.User
	}
	if n, ok := extra["check"]; ok {
		l.Residual = n - t.Overhead([]Role{System, User, Assistant, User, Assistant, User})
	}
	return l, nil
}
