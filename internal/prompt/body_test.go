package prompt

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"

	"github.com/weirbench/weir/internal/corpus"
)

// text is the body as bytes; its length must be its Len.
func text(tb interface{ Fatalf(string, ...any) }, b *Body, err error) []byte {
	if err != nil {
		tb.Fatalf("body: %v", err)
	}
	data, err := io.ReadAll(iotest.OneByteReader(b.Open()))
	if err != nil {
		tb.Fatalf("read: %v", err)
	}
	if int64(len(data)) != b.Len() {
		tb.Fatalf("body has %d bytes, Len says %d", len(data), b.Len())
	}
	var w bytes.Buffer
	if n, err := b.Open().(*Reader).WriteTo(&w); err != nil || n != b.Len() || !bytes.Equal(w.Bytes(), data) {
		tb.Fatalf("WriteTo wrote %d of %d bytes, equal %v, err %v", n, len(data), bytes.Equal(w.Bytes(), data), err)
	}
	return data
}

type message struct{ Role, Content string }

type chatBody struct {
	Model               string
	Stream              bool
	Messages            []message
	Input               []message
	System              string
	Prompt              json.RawMessage
	InputIDs            []int32 `json:"input_ids"`
	MaxTokens           int64   `json:"max_tokens"`
	MaxCompletionTokens int64   `json:"max_completion_tokens"`
	MaxOutputTokens     int64   `json:"max_output_tokens"`
	IgnoreEOS           bool    `json:"ignore_eos"`
	StreamOptions       *struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
	SamplingParams map[string]any `json:"sampling_params"`
	TopP           float64        `json:"top_p"`
}

func decode(tb interface{ Fatalf(string, ...any) }, data []byte) chatBody {
	var c chatBody
	if err := json.Unmarshal(data, &c); err != nil {
		tb.Fatalf("%v in %.300s", err, data)
	}
	return c
}

func TestChatBody(t *testing.T) {
	b := mustBuilder(t, Options{Models: []string{"m"}, IgnoreEOS: true, Extra: []byte(`{"top_p":0.5,"stream_options":null}`)})
	y, err := b.Chat(Request{Trace: worked(), Turn: 1, MaxOut: 30})
	data := text(t, y, err)
	c := decode(t, data)
	if c.Model != "m" || !c.Stream || !c.IgnoreEOS || c.MaxCompletionTokens != 30 || c.MaxTokens != 0 || c.TopP != 0.5 || c.StreamOptions != nil {
		t.Errorf("members: %+v", c)
	}
	var got []string
	for _, m := range c.Messages {
		got = append(got, fmt.Sprintf("%s %d", m.Role, len(strings.Fields(m.Content))))
		if m.Content[0] != ' ' || strings.Contains(m.Content, "  ") {
			t.Errorf("content begins %.20q", m.Content)
		}
	}
	if s := strings.Join(got, ", "); s != "system 192, user 128, assistant 128, user 72" {
		t.Error(s)
	}
	if y.Tokens() != 520 || y.Recorded() != 520 || y.Messages() != 4 {
		t.Errorf("tokens %d of %d in %d messages", y.Tokens(), y.Recorded(), y.Messages())
	}
}

func TestMembers(t *testing.T) {
	tr := worked()
	req := Request{Trace: tr, Stream: 1, MaxOut: 7, Extra: []byte(` {"stream":false, "a<b":{"x":[1, 2]}}`)}
	b := mustBuilder(t, Options{Models: []string{"big", "small"}, LegacyMaxTokens: true})
	y, err := b.Chat(req)
	head, _, _ := strings.Cut(string(text(t, y, err)), `"messages"`)
	if want := `{"model":"small","stream":false,"max_tokens":7,"stream_options":{"include_usage":true},"a<b":{"x":[1,2]},`; head != want {
		t.Errorf("got  %s\nwant %s", head, want)
	}
	for _, c := range []struct{ extra, want string }{
		{`{"messages":[]}`, `"messages": it holds the prompt`},
		{`[1]`, "want a JSON object"},
		{`{"a":}`, `extra field "a"`},
		{`{"a":1} 2`, "something follows"},
		{`{"a":1`, "extra fields"},
	} {
		if _, err := New(Default(), Options{Extra: []byte(c.extra)}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", c.extra, err, c.want)
		}
		req.Extra = []byte(c.extra)
		if _, err := b.Chat(req); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", c.extra, err, c.want)
		}
	}
	for _, q := range []Request{{}, {Trace: tr, Stream: 2}, {Trace: tr, Turn: 2}, {Trace: tr, Turn: -1}, {Trace: tr, Stream: -1}} {
		if _, err := b.Chat(q); err == nil {
			t.Errorf("%+v was accepted", q)
		}
	}
}

func TestFormats(t *testing.T) {
	b, tr := mustBuilder(t, Options{Models: []string{"m"}, IgnoreEOS: true, Extra: []byte(`{"sampling_params":{"temperature":0}}`)}), worked()
	q := Request{Trace: tr, Turn: 1, MaxOut: 30}

	y, err := b.Body(EndpointMessages, q)
	c := decode(t, text(t, y, err))
	if n := len(strings.Fields(c.System)); n != 192 || len(c.Messages) != 3 || c.Messages[0].Role != "user" || c.MaxTokens != 30 {
		t.Errorf("messages: system %d words, %d messages, max_tokens %d", n, len(c.Messages), c.MaxTokens)
	}
	y, err = b.Body(EndpointResponses, q)
	c = decode(t, text(t, y, err))
	if len(c.Input) != 4 || c.Input[0].Role != "system" || c.MaxOutputTokens != 30 || c.StreamOptions != nil {
		t.Errorf("responses: %d messages, max_output_tokens %d", len(c.Input), c.MaxOutputTokens)
	}
	y, err = b.Body(EndpointCompletions, q)
	c = decode(t, text(t, y, err))
	var s string
	if err := json.Unmarshal(c.Prompt, &s); err != nil || len(strings.Fields(s)) != 520 || c.MaxTokens != 30 {
		t.Errorf("completions: %d words, %v", len(strings.Fields(s)), err)
	}
	y, err = b.Body(EndpointCompletionsIDs, q)
	c = decode(t, text(t, y, err))
	var ids []int32
	if err := json.Unmarshal(c.Prompt, &ids); err != nil || len(ids) != 520 || ids[0] < 1000 {
		t.Errorf("completions of ids: %d, %v", len(ids), err)
	}
	y, err = b.Body(EndpointGenerateIDs, q)
	c = decode(t, text(t, y, err))
	if len(c.InputIDs) != 520 || c.SamplingParams["max_new_tokens"] != 30.0 || c.SamplingParams["ignore_eos"] != true || c.SamplingParams["temperature"] != 0.0 {
		t.Errorf("generate: %d ids, %v", len(c.InputIDs), c.SamplingParams)
	}

	noSystem := &corpus.Trace{ID: "n", BlockSize: 4, Streams: []corpus.Stream{{ID: "n", Turns: []corpus.Turn{{In: 6, Blocks: []uint32{1}}}}}}
	y, err = b.Body(EndpointMessages, Request{Trace: noSystem})
	c = decode(t, text(t, y, err))
	if c.System != "" || len(c.Messages) != 1 || c.MaxTokens != 1024 {
		t.Errorf("messages without a system prompt: %+v", c)
	}
	for _, empty := range []Endpoint{EndpointChat, EndpointCompletions, EndpointCompletionsIDs, EndpointGenerateIDs, EndpointMessages, EndpointResponses} {
		y, err = b.Body(empty, Request{Trace: &corpus.Trace{ID: "e", BlockSize: 4, Streams: []corpus.Stream{{ID: "e", Turns: []corpus.Turn{{}}}}}})
		decode(t, text(t, y, err))
	}
}

// TestReadsOfAnySize reads a body in pieces of random sizes: the bytes are the same.
func TestReadsOfAnySize(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tr := drawTrace(t)
		p := Placement(rapid.IntRange(0, 4).Draw(t, "placement"))
		b, err := New(Default(), Options{Salt: p})
		if err != nil {
			t.Fatal(err)
		}
		q := Request{Trace: tr, Turn: rapid.IntRange(0, len(tr.Streams[0].Turns)-1).Draw(t, "turn"), Salt: "[rid:123]\"\n"}
		write := Endpoint(rapid.IntRange(0, len(endpoints)-1).Draw(t, "endpoint"))
		y, err := b.Body(write, q)
		want := text(t, y, err)
		if !json.Valid(want) {
			t.Fatalf("not JSON: %s", want)
		}
		r := rand.New(rand.NewPCG(1, uint64(len(want))))
		z := y.Open()
		var got []byte
		for {
			p := make([]byte, 1+r.IntN(1+r.IntN(20_000)))
			n, err := z.Read(p)
			got = append(got, p[:n]...)
			if err == io.EOF {
				break
			}
			if err != nil || n == 0 {
				t.Fatalf("read %d, %v", n, err)
			}
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("%d bytes read, %d expected", len(got), len(want))
		}
	})
}

// words returns the words of a prompt without roles.
func wordsOf(tb interface{ Fatalf(string, ...any) }, b *Builder, q Request) []string {
	y, err := b.Body(EndpointCompletions, q)
	c := decode(tb, text(tb, y, err))
	var s string
	if err := json.Unmarshal(c.Prompt, &s); err != nil {
		tb.Fatalf("%v", err)
	}
	return strings.Fields(s)
}

// TestPrefixIsTheRecordedPrefix compares consecutive prompts word by word: they share the
// blocks that both have and, but for a rare equal first word of two different blocks,
// nothing more.
func TestPrefixIsTheRecordedPrefix(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tr := drawTrace(t)
		b, err := New(Default(), Options{})
		if err != nil {
			t.Fatal(err)
		}
		turns := tr.Streams[0].Turns
		for k := 1; k < len(turns); k++ {
			a := wordsOf(t, b, Request{Trace: tr, Turn: k - 1})
			c := wordsOf(t, b, Request{Trace: tr, Turn: k})
			if int64(len(c)) != turns[k].In {
				t.Fatalf("turn %d: %d words, recorded %d", k, len(c), turns[k].In)
			}
			shared := 0
			for shared < min(len(a), len(c)) && a[shared] == c[shared] {
				shared++
			}
			want := sharedBlocks(&turns[k-1], &turns[k], tr.BlockSize) * int(tr.BlockSize)
			if shared < want || shared > want+2 {
				t.Fatalf("turn %d: %d words shared, recorded %d", k, shared, want)
			}
		}
	})
}

// TestConcurrentUse asks one Builder for the same streams from many goroutines: all get the same
// bytes, which the race detector watches.
func TestConcurrentUse(t *testing.T) {
	b := mustBuilder(t, Options{Salt: FirstTurnPrefix})
	tr := longTrace(40_000, 20)
	var wg sync.WaitGroup
	sums := make([][20][sha256.Size]byte, 8)
	for g := range sums {
		wg.Go(func() {
			for i := range 20 {
				k := (i*7 + g) % 20
				y, err := b.Chat(Request{Trace: tr, Turn: k, Salt: "[rid:0123456789ab]"})
				if err != nil {
					t.Error(err)
					return
				}
				h := sha256.New()
				if n, err := io.Copy(h, y.Open()); err != nil || n != y.Len() {
					t.Errorf("turn %d: %d bytes of %d, %v", k, n, y.Len(), err)
				}
				h.Sum(sums[g][k][:0])
			}
		})
	}
	wg.Wait()
	for g := range sums {
		if sums[g] != sums[0] {
			t.Errorf("goroutine %d read other bytes", g)
		}
	}
}

func TestBlocks(t *testing.T) {
	w := Default()
	seen := map[string]uint32{}
	for _, id := range []uint32{0, 1, 2, 2047, 2048, 2049, 4096, 1 << 20, 1<<32 - 1} {
		s := string(w.appendBlock(nil, keyOf("a"), id, 64, 0))
		if n := len(strings.Fields(s)); n != 64 {
			t.Errorf("block %d has %d words", id, n)
		}
		if w.blockBytes(keyOf("a"), id, 64) != int64(len(s)) {
			t.Errorf("block %d: bytes %d, measured %d", id, len(s), w.blockBytes(keyOf("a"), id, 64))
		}
		if s == string(w.appendBlock(nil, keyOf("b"), id, 64, 0)) {
			t.Errorf("block %d is the same in another trace", id)
		}
		head := strings.Join(strings.Fields(s)[:w.idLen], " ")
		if other, ok := seen[head]; ok {
			t.Errorf("blocks %d and %d both begin with %q", id, other, head)
		}
		seen[head] = id
		for _, n := range []int{0, 1, 2, 3, 4, 63} {
			if cut := string(w.appendBlock(nil, keyOf("a"), id, n, 0)); !strings.HasPrefix(s, cut) || len(strings.Fields(cut)) != n {
				t.Errorf("the first %d words of block %d are not a beginning of it: %q", n, id, cut)
			}
		}
	}
	if list, first := w.List(); len(list) != 4096 || first != 2304 || w.nBlock != 2048 || w.idLen != 3 {
		t.Errorf("%d words, %d first, %d of them begin blocks, %d spell one", len(list), first, w.nBlock, w.idLen)
	}
}

// TestTextNeverChanges pins the text of blocks, tails and salts. It is part of what a recorded
// result means: whoever changes it makes all prompts other prompts.
func TestTextNeverChanges(t *testing.T) {
	w, h := Default(), sha256.New()
	for id := range uint32(5000) {
		h.Write(w.appendBlock(nil, keyOf("trace_0003"), id*7919, 64, 0))
	}
	for k := range 100 {
		h.Write(w.appendTail(nil, newTail(keyOf("trace_0003::sa:a"), k, int64(k)), 0))
		h.Write([]byte(w.spell(Salt(1, "trace_0003", k, 3))))
	}
	if got, want := fmt.Sprintf("%x", h.Sum(nil)[:8]), "136696b3e85febe5"; got != want {
		t.Errorf("text has the sum %s, want %s", got, want)
	}
	if got, want := string(w.appendBlock(nil, keyOf("trace_0003"), 1, 8, 0)), " terms back gets schema mod powder represented larger"; got != want {
		t.Errorf("block 1 of trace_0003 begins %q, want %q", got, want)
	}
}

// TestSaltsPart: two plays of a trace have the same words up to the salt and part there.
func TestSaltsPart(t *testing.T) {
	tr := worked()
	for p, shared := range map[Placement]int{SystemPrefix: 0, SystemSuffix: 192, FirstTurnPrefix: 192, FirstTurnSuffix: 320} {
		b := mustBuilder(t, Options{Salt: p})
		var all [2][]string
		for play := range all {
			y, err := b.Chat(Request{Trace: tr, Turn: 1, Salt: Salt(1, tr.ID, play, 0)})
			for _, m := range decode(t, text(t, y, err)).Messages {
				all[play] = append(all[play], strings.Fields(m.Content)...)
			}
		}
		n := 0
		for all[0][n] == all[1][n] {
			n++
		}
		if n != shared+1 { // "[rid:" opens the salt
			t.Errorf("%s: plays share %d words, want %d and the opening of the salt", p, n, shared)
		}
	}
}

// TestBlockIdentity draws many pairs of blocks: their first idLen words differ, and near ones
// differ in the first word.
func TestBlockIdentity(t *testing.T) {
	ids, err := IDRange(5, 90)
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		w := rapid.SampledFrom([]*Words{Default(), ids}).Draw(t, "words")
		key := rapid.Uint64().Draw(t, "key")
		a, b := rapid.Uint32().Draw(t, "a"), rapid.Uint32().Draw(t, "b")
		if rapid.Bool().Draw(t, "near") {
			b = a + uint32(rapid.IntRange(1, int(w.nBlock)-1).Draw(t, "distance"))
		}
		if a == b {
			return
		}
		var x, y [8]uint32
		n := w.head(key, a, &x)
		w.head(key, b, &y)
		if x == y {
			t.Fatalf("blocks %d and %d both begin %v", a, b, x[:n])
		}
		if d := b - a; b > a && d < w.nBlock && x[0] == y[0] {
			t.Fatalf("blocks %d and %d are %d apart and begin with the same word", a, b, d)
		}
	})
}

func TestSaltAndPlacements(t *testing.T) {
	if a, b := Salt(1, "t", 0, 0), Salt(1, "t", 0, 0); a != b || len(a) != 18 {
		t.Errorf("salts %q and %q", a, b)
	}
	seen := map[string]bool{}
	for _, s := range []string{Salt(1, "t", 0, 0), Salt(2, "t", 0, 0), Salt(1, "u", 0, 0), Salt(1, "t", 1, 0), Salt(1, "t", 0, 1)} {
		if seen[s] {
			t.Errorf("salt %s comes twice", s)
		}
		seen[s] = true
	}
	tr := worked()
	salt := "[rid: " + strings.Join(strings.Fields(Default().spell(Salt(1, "tr1", 0, 0))), " ") + "]"
	if n := len(strings.Fields(salt)); n != 5 {
		t.Errorf("salt %s", salt)
	}
	for p, want := range map[Placement]string{
		NoSalt: "....", SystemPrefix: "<...", SystemSuffix: ">...", FirstTurnPrefix: ".<..", FirstTurnSuffix: ".>..",
	} {
		y, err := mustBuilder(t, Options{Salt: p}).Chat(Request{Trace: tr, Turn: 1, Salt: Salt(1, "tr1", 0, 0) + "\n\n"})
		got := ""
		for _, m := range decode(t, text(t, y, err)).Messages {
			switch {
			case strings.HasPrefix(m.Content, salt+"\n\n "):
				got += "<"
			case strings.HasSuffix(m.Content, "\n\n"+salt):
				got += ">"
			default:
				got += "."
			}
		}
		if got != want {
			t.Errorf("%s: %s, want %s", p, got, want)
		}
		var q Placement
		if b, err := p.MarshalText(); err != nil || q.UnmarshalText(b) != nil || q != p {
			t.Errorf("%s reads back as %s", p, q)
		}
	}
	var p Placement
	if err := p.UnmarshalText([]byte("middle")); err == nil || !strings.Contains(err.Error(), "first_turn_prefix") {
		t.Errorf("error %v", err)
	}
}
