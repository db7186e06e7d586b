package simhttp

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/weirbench/weir/internal/sim"
)

// FuzzChatBody sends bodies to every endpoint that takes one: whatever they are, the answer is
// an HTTP status and never a panic, and nothing waits for ever.
func FuzzChatBody(f *testing.F) {
	for _, s := range []string{
		`{"messages":[{"role":"user","content":"hi"}],"max_tokens":1}`,
		`{"messages":[{"role":"user","content":[{"type":"text","text":"a"}],"tool_calls":[{"function":{"name":"f","arguments":"{}"}}]}]}`,
		`{"prompt":[[1,2,3]],"max_tokens":2}`, `{"prompt":"x","stream":true,"max_tokens":1,"stream_options":{"include_usage":true}}`,
		`{"text":"x","sampling_params":{"max_new_tokens":1}}`, `{"input_ids":[1,-1]}`, `{"messages":null}`, `[]`, `{"n":2,"prompt":"a"}`,
		`{"prompt":"x","max_tokens":-5}`, `{"prompt":"x","max_tokens":99999999999}`, `{"prompt":"x","bootstrap_room":-1}`,
	} {
		f.Add(s)
	}
	s, err := New(Options{Fixed: &sim.Fixed{ContextLen: 64}, Model: "m"})
	if err != nil {
		f.Fatal(err)
	}
	go s.live.run(f.Context())
	f.Fuzz(func(t *testing.T, body string) {
		for _, path := range []string{"/v1/chat/completions", "/v1/completions", "/generate", "/tokenize", "/weir/faults"} {
			if path == "/weir/faults" && strings.Contains(body, "faults") {
				continue // they would strike the next body
			}
			w := httptest.NewRecorder()
			s.Handler().ServeHTTP(w, httptest.NewRequest("POST", path, strings.NewReader(body)))
			if w.Code < 200 || w.Code > 599 {
				t.Fatalf("%s: status %d", path, w.Code)
			}
		}
	})
}

// FuzzFault reads faults as the flag gives them: what is taken is sound.
func FuzzFault(f *testing.F) {
	f.Add("stall,after=3,for=1s,every=2,times=1")
	f.Add("http-error,status=503")
	f.Add(",,=")
	f.Fuzz(func(t *testing.T, s string) {
		x, err := ParseFault(s)
		if err == nil && x.check() != nil {
			t.Fatalf("%q was taken: %+v", s, x)
		}
	})
}
