package prompt

import (
	"encoding/json"
	"io"
	"testing"

	"github.com/weirbench/weir/internal/corpus"
)

// FuzzExtra: further members make a valid body or an error.
func FuzzExtra(f *testing.F) {
	for _, s := range []string{`{}`, `{"a":1}`, `{"stream":null,"model":"x"}`, `{"sampling_params":{"n":[1,{}]}}`, `[`, `{"a":1}}`} {
		f.Add(s, "[rid:0123456789ab]")
	}
	f.Fuzz(func(t *testing.T, extra, salt string) {
		b, err := New(nil, Options{Models: []string{salt}, Extra: []byte(extra), Salt: FirstTurnSuffix, IgnoreEOS: true})
		if err != nil {
			return
		}
		for e := range endpoints {
			y, err := b.Body(Endpoint(e), Request{Trace: worked(), Turn: 1, Salt: salt, MaxOut: 3, Extra: []byte(extra)})
			if err != nil {
				continue
			}
			data, err := io.ReadAll(y.Open())
			if err != nil || int64(len(data)) != y.Len() || !json.Valid(data) {
				t.Fatalf("%s: %d bytes of %d, %v, valid %v", Endpoint(e), len(data), y.Len(), err, json.Valid(data))
			}
		}
	})
}

// FuzzTrace: blocks, lengths and system prompts of any kind make bodies of their stated length,
// with the recorded number of tokens, or an error.
func FuzzTrace(f *testing.F) {
	f.Add(int64(64), int64(192), []byte{5, 10, 3, 5, 12, 2, 0, 0, 9})
	f.Add(int64(1), int64(0), []byte{})
	f.Add(int64(-1), int64(-5), []byte{1, 2, 3})
	f.Add(int64(1<<40), int64(1), []byte{1, 2, 3})
	f.Fuzz(func(t *testing.T, bs, system int64, turns []byte) {
		tr := &corpus.Trace{ID: "f", BlockSize: bs, Streams: []corpus.Stream{{ID: "f", SystemTokens: system}}}
		s := &tr.Streams[0]
		id := uint32(0)
		var blocks []uint32
		for i := 0; i+3 <= len(turns) && i < 60; i += 3 {
			keep := min(int(turns[i]), len(blocks))
			blocks = append([]uint32{}, blocks[:keep]...)
			for range turns[i+1] % 16 {
				id++
				blocks = append(blocks, id)
			}
			in := int64(len(blocks))*min(max(bs, -1000), 1000) + int64(int8(turns[i+2]))
			s.Turns = append(s.Turns, corpus.Turn{In: in, Out: int64(int8(turns[i])), Blocks: blocks})
		}
		b, err := New(nil, Options{Salt: FirstTurnPrefix, Template: Template{Fixed: 9, FixedSystem: 3, User: 5, Assistant: 7, Salt: 9}})
		if err != nil {
			t.Fatal(err)
		}
		for k := range s.Turns {
			y, err := b.Chat(Request{Trace: tr, Turn: k, Salt: "s"})
			if err != nil {
				continue
			}
			n, err := io.Copy(io.Discard, y.Open())
			if err != nil || n != y.Len() {
				t.Fatalf("turn %d: %d bytes of %d, %v", k, n, y.Len(), err)
			}
			if y, err = b.Body(EndpointCompletionsIDs, Request{Trace: tr, Turn: k}); err != nil || y.Tokens() != s.Turns[k].In {
				t.Fatalf("turn %d: %d ids of %d, %v", k, y.Tokens(), s.Turns[k].In, err)
			}
		}
	})
}
