package prompt

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// A server stands for one that applies a chat template: its count of a body is len of its
// tokens.
type server struct {
	begin, system, user, assistant, end, open int // tokens: BOS, headers by role, end of a message, opening of the answer
	defaultSystem                             int // tokens of the prompt it puts where there is no system message
	salt                                      int // tokens of a salt
	strict                                    bool
}

func (s server) tokens(messages []message) ([]string, error) {
	var out []string
	add := func(n int, name string) {
		for i := range n {
			out = append(out, fmt.Sprintf("<%s%d>", name, i))
		}
	}
	add(s.begin, "begin")
	if messages[0].Role != "system" {
		add(s.defaultSystem, "default")
	}
	for i, m := range messages {
		if s.strict && i > 0 && m.Role == messages[i-1].Role {
			return nil, fmt.Errorf("roles must alternate")
		}
		add(map[string]int{"system": s.system, "user": s.user, "assistant": s.assistant}[m.Role], m.Role)
		rest, marker := m.Content, ""
		if at := strings.Index(rest, "[rid:"); at >= 0 {
			end := strings.Index(rest, "]") + 1
			out = append(out, strings.Fields(rest[:at])...)
			rest, marker = rest[end:], rest[at:end]
			for i := range s.salt {
				out = append(out, fmt.Sprintf("%s.%d", marker, i))
			}
		}
		out = append(out, strings.Fields(rest)...)
		add(s.end, "end")
	}
	add(s.open, "open")
	return out, nil
}

func (s server) count(tb interface{ Fatalf(string, ...any) }, y *Body, err error) ([]string, error) {
	var messages []message
	messages = decode(tb, text(tb, y, err)).Messages
	return s.tokens(messages)
}

// learn probes a server.
func (s server) learn(tb interface{ Fatalf(string, ...any) }, b *Builder) Learned {
	var seen []Observation
	for _, p := range b.Probes(EndpointChat) {
		y, err := b.Probe(EndpointChat, p, 7)
		o := Observation{Probe: p, Tokens: -1}
		if t, err := s.count(tb, y, err); err == nil {
			o.Tokens = int64(len(t))
		}
		seen = append(seen, o)
	}
	l, err := Learn(b.words, seen)
	if err != nil {
		tb.Fatalf("learn: %v", err)
	}
	return l
}

func drawServer(t *rapid.T) server {
	n := func(name string, max int) int { return rapid.IntRange(0, max).Draw(t, name) }
	return server{begin: n("begin", 2), system: n("system", 6), user: n("user", 6), assistant: n("assistant", 8),
		end: n("end", 3), open: n("open", 8), defaultSystem: n("default", 30), salt: 1 + n("salt", 12), strict: rapid.Bool().Draw(t, "strict")}
}

func TestLearn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawServer(t)
		b, err := New(Default(), Options{Salt: Placement(rapid.IntRange(1, 4).Draw(t, "placement"))})
		if err != nil {
			t.Fatal(err)
		}
		l := s.learn(t, b)
		want := Template{
			Fixed: int64(s.begin + s.defaultSystem + s.open), FixedSystem: int64(s.begin + s.system + s.end + s.open),
			User: int64(s.user + s.end), Assistant: int64(s.assistant + s.end), Salt: int64(s.salt),
		}
		if !l.Known || l.Residual != 0 || l.Adjacent == s.strict || l.Alternate != s.strict {
			t.Fatalf("learned %+v", l)
		}
		if l.Template != want {
			t.Fatalf("learned %+v, want %+v", l.Template, want)
		}
	})
}

func TestLearnRefusesOtherWords(t *testing.T) {
	b := mustBuilder(t, Options{})
	var seen []Observation
	for _, p := range b.Probes(EndpointChat) {
		n := p.Tokens(b.words) + 5
		if p.Name == "words" {
			n += 3
		}
		seen = append(seen, Observation{p, n})
	}
	_, err := Learn(b.words, seen)
	if err == nil || !strings.Contains(err.Error(), "count 3 tokens more") {
		t.Errorf("error %v", err)
	}
	if l, err := Learn(b.words, []Observation{{b.Probes(EndpointChat)[0], -1}}); err != nil || l.Known || len(l.Refused) != 1 {
		t.Errorf("nothing counted: %+v, %v", l, err)
	}
	if _, err := Learn(b.words, []Observation{{b.Probes(EndpointChat)[0], 3}}); err == nil {
		t.Error("16 words of 3 tokens were accepted")
	}
	seen = nil
	for _, p := range b.Probes(EndpointCompletions) {
		n := p.Tokens(b.words) + 1
		if p.Salt {
			n += 9
		}
		seen = append(seen, Observation{p, n})
	}
	if l, err := Learn(b.words, seen); err != nil || l.Template != (Template{Text: 1, Salt: 9}) {
		t.Errorf("completions: %+v, %v", l, err)
	}
	if p := b.Probes(EndpointGenerateIDs); p != nil {
		t.Errorf("probes for ids: %v", p)
	}
}

// TestProbeBodies: every probe is valid in every format and has the words that it says.
func TestProbeBodies(t *testing.T) {
	b := mustBuilder(t, Options{Models: []string{"m"}, Salt: FirstTurnPrefix})
	for _, e := range []Endpoint{EndpointChat, EndpointCompletions, EndpointMessages, EndpointResponses} {
		for _, p := range b.Probes(e) {
			y, err := b.Probe(e, p, 1)
			c := decode(t, text(t, y, err))
			all := append(append([]message{{Content: c.System}}, c.Messages...), c.Input...)
			if e == EndpointCompletions {
				var s string
				if err := json.Unmarshal(c.Prompt, &s); err != nil {
					t.Fatal(err)
				}
				all = []message{{Content: s}}
			}
			words, salts := 0, 0
			for _, m := range all {
				words += len(strings.Fields(m.Content))
				if strings.Contains(m.Content, "[rid: ") {
					salts++
					words -= 1 + saltWords
				}
			}
			if int64(words) != p.Tokens(b.words) || (salts == 1) != p.Salt || c.Model != "m" {
				t.Errorf("%s %s: %d words and %d salts, want %d", e, p.Name, words, salts, p.Tokens(b.words))
			}
		}
	}
}

// TestTemplateCountsExactly replays drawn traces against a server with a template. What a Body
// says is what the server counts, always; it is the recorded count wherever the prompt has
// room; and the tokens of the shared blocks are shared to the last.
func TestTemplateCountsExactly(t *testing.T) {
	exact, off := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		s := drawServer(t)
		o := Options{Alternate: s.strict, Salt: Placement(rapid.IntRange(0, 4).Draw(t, "placement"))}
		b, err := New(Default(), o)
		if err != nil {
			t.Fatal(err)
		}
		o.Template = s.learn(t, b).Template
		if b, err = New(Default(), o); err != nil {
			t.Fatal(err)
		}
		tr := drawTrace(t)
		var before []string
		for k, turn := range tr.Streams[0].Turns {
			q := Request{Trace: tr, Turn: k, Salt: "[rid:000000000000]"}
			y, err := b.Chat(q)
			now, _ := s.count(t, y, err)
			if int64(len(now)) != y.Tokens() {
				t.Fatalf("turn %d: the server counts %d, the body says %d", k, len(now), y.Tokens())
			}
			if y.Tokens() == turn.In {
				exact++
			} else {
				off++
			}
			if k > 0 {
				lcp := sharedBlocks(&tr.Streams[0].Turns[k-1], &turn, tr.BlockSize)
				n := tokensTo(s, b, y, lcp)
				if n > len(before) || !slices.Equal(before[:n], now[:n]) {
					t.Fatalf("turn %d: the first %d tokens hold %d shared blocks and differ", k, n, lcp)
				}
			}
			before = now
		}
	})
	t.Logf("%d turns exact, %d without room", exact, off)
}

// tokensTo is the number of the server's tokens up to the end of the first lcp blocks.
func tokensTo(s server, b *Builder, y *Body, lcp int) int {
	if lcp == 0 {
		return 0
	}
	n := s.begin
	if y.segs[0].role != System {
		n += s.defaultSystem
	}
	for i, g := range y.segs {
		if !y.joins(i) {
			n += [...]int{s.system, s.user, s.assistant}[g.role]
		}
		if g.carrier && y.before != "" {
			n += s.salt
		}
		for j := range int(g.blocks) {
			n += int(g.blockTokens(j, y.bs, y.keep))
			if int(g.start)+j+1 == lcp {
				return n
			}
		}
		if g.carrier && y.behind != "" {
			n += s.salt
		}
		if !y.joins(i + 1) {
			n += s.end
		}
	}
	return n
}

// TestTemplateOnRecordedTraces shortens the recorded prompts for a template of the size that
// models have, and counts the turns that miss their recorded count.
func TestTemplateOnRecordedTraces(t *testing.T) {
	for _, alternate := range []bool{false, true} {
		o := Options{Alternate: alternate, Salt: FirstTurnPrefix, Template: Template{Fixed: 25, FixedSystem: 10, User: 5, Assistant: 9, Salt: 10}}
		t.Run(fmt.Sprintf("alternate %v", alternate), func(t *testing.T) { countRecorded(t, mustBuilder(t, o)) })
	}
}

func countRecorded(t *testing.T, b *Builder) {
	turns, off, worst := 0, 0, int64(0)
	for _, tr := range recorded(t) {
		for s := range tr.Streams {
			for k, turn := range tr.Streams[s].Turns {
				y, err := b.body(&Request{Trace: tr, Stream: s, Turn: k, Salt: "s"}, asChat)
				if err != nil {
					t.Fatal(err)
				}
				sum := y.Tokens()
				turns++
				if sum != turn.In {
					off++
					worst = max(worst, sum-turn.In, turn.In-sum)
				}
			}
		}
	}
	t.Logf("%d turns, %d off their count, by %d tokens at most", turns, off, worst)
	if off > 0 {
		t.Errorf("%d of %d turns are off their recorded count, by %d tokens at most", off, turns, worst)
	}
}
