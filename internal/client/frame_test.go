package client

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirbench/weir/internal/record"
)

// naiveChat reads a chat frame by decoding all of it.
type naiveFrame struct {
	content, reasoning string
	finished           bool
}

func naiveChat(v map[string]any) (f naiveFrame) {
	str := func(m map[string]any, k string) string { s, _ := m[k].(string); return s }
	choices, _ := v["choices"].([]any)
	for _, c := range choices {
		choice, ok := c.(map[string]any)
		if !ok {
			continue
		}
		var deltas []map[string]any
		for _, k := range []string{"delta", "message"} {
			if d, ok := choice[k].(map[string]any); ok {
				deltas = append(deltas, d)
			}
		}
		for _, d := range deltas {
			calls, _ := d["tool_calls"].([]any)
			for _, c := range calls {
				call, _ := c.(map[string]any)
				if fn, ok := call["function"].(map[string]any); ok {
					f.content += str(fn, "name") + str(fn, "arguments")
				}
			}
			r, rc := str(d, "reasoning"), str(d, "reasoning_content")
			if r == rc {
				r = ""
			}
			f.reasoning += r + rc
		}
		f.content += str(choice, "text")
		for _, d := range deltas {
			f.content += str(d, "content") + str(d, "refusal")
		}
		if str(choice, "finish_reason") != "" {
			f.finished = true
		}
	}
	return f
}

// genJSON makes JSON text with the keys that matter in places where they do and where they
// do not.
func genJSON(t *rapid.T, depth int) string {
	kind := rapid.IntRange(0, 6).Draw(t, "kind")
	if depth <= 0 {
		kind = min(kind, 4)
	}
	ws := rapid.SampledFrom([]string{"", "", "", " ", "\n\t"}).Draw(t, "space")
	switch kind {
	case 0:
		return rapid.SampledFrom([]string{"null", "true", "false", "0", "-1", "12", "3.50", "1e3", "-0.0E-2", "12.0"}).Draw(t, "word")
	case 1, 2, 3, 4:
		return genString(t)
	case 5:
		parts := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) string { return genJSON(t, depth-1) }), 0, 3).Draw(t, "elems")
		return "[" + ws + strings.Join(parts, ws+","+ws) + ws + "]"
	default:
		keys := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"choices", "delta", "content", "error_x", "role", "index", "usage_x", "a\\u0062", ""}), 0, 4,
			func(s string) string { return s }).Draw(t, "keys")
		var parts []string
		for _, k := range keys {
			parts = append(parts, `"`+k+`"`+ws+":"+ws+genJSON(t, depth-1))
		}
		return "{" + ws + strings.Join(parts, ","+ws) + ws + "}"
	}
}

func genString(t *rapid.T) string {
	pieces := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "ü", "\\n", "\\\"", "\\\\", "\\/", "\\u0041", "\\ud83d\\ude00", "\\ud83d", "\\udc00x", "😀", "\xff", "data: ", "{", "]", ","}), 0, 5).Draw(t, "text")
	return `"` + strings.Join(pieces, "") + `"`
}

// genDelta makes a frame of the chat dialect with members in any order.
func genDelta(t *rapid.T) string {
	object := func(members ...string) string {
		return "{" + strings.Join(rapid.Permutation(members).Draw(t, "order"), ",") + "}"
	}
	maybe := func(key string, gen func() string) string {
		if rapid.Bool().Draw(t, key) {
			return fmt.Sprintf("%q:%s", key, gen())
		}
		return fmt.Sprintf("%q:null", key)
	}
	s := func() string { return genString(t) }
	other := func() string { return genJSON(t, 2) }
	call := func() string {
		return "[" + object(`"index":0`, maybe("id", s), `"function":`+object(maybe("name", s), maybe("arguments", s), maybe("x", other))) + "]"
	}
	delta := object(maybe("content", s), maybe("reasoning_content", s), maybe("reasoning", s), maybe("tool_calls", call), maybe("role", s), maybe("extra", other))
	choice := object(`"delta":`+delta, maybe("text", s), maybe("finish_reason", func() string { return rapid.SampledFrom([]string{`"stop"`, `"length"`, `""`}).Draw(t, "reason") }),
		maybe("logprobs", other), `"index":0`)
	return object(maybe("id", s), `"choices":[`+choice+`]`, maybe("x", other), maybe("model", s))
}

func TestFrameAgainstEncodingJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := genDelta(t)
		if rapid.IntRange(0, 3).Draw(t, "break") == 0 { // damage a byte
			b := []byte(text)
			b[rapid.IntRange(0, len(b)-1).Draw(t, "at")] = rapid.SampledFrom([]byte("{}[]\",:x0\x01\\ ")).Draw(t, "byte")
			text = string(b)
		}
		compareFrame(t, []byte(text))
	})
}

func TestScanAgainstEncodingJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := genJSON(t, 4)
		if rapid.Bool().Draw(t, "break") {
			b := []byte(text)
			b[rapid.IntRange(0, len(b)-1).Draw(t, "at")] = rapid.Byte().Draw(t, "byte")
			text = string(b)
		}
		var s jsonScan
		s.reset([]byte(text))
		s.skip()
		if got, want := s.end(), json.Valid([]byte(text)); got != want {
			t.Fatalf("%q: valid %v, encoding/json says %v", text, got, want)
		}
	})
}

// compareFrame holds a chat frame against a decoder of the standard library.
func compareFrame(t rapid.TB, data []byte) {
	var s jsonScan
	f := frame{}
	f.reset(true)
	ok := f.read(Chat, &s, data)
	var v map[string]any
	err := json.Unmarshal(data, &v)
	if want := err == nil && v != nil; ok != want {
		t.Fatalf("%q: read %v, encoding/json says %v (%v)", data, ok, want, err)
	}
	if !ok || repeatsKey(data) {
		return
	}
	want := naiveChat(v)
	if string(f.content) != want.content && sortedRunes(string(f.content)) != sortedRunes(want.content) {
		t.Fatalf("%q: content %q, want %q", data, f.content, want.content)
	}
	if sortedRunes(string(f.reasonings)) != sortedRunes(want.reasoning) {
		t.Fatalf("%q: reasoning %q, want %q", data, f.reasonings, want.reasoning)
	}
	if f.visible != (want.content != "") || f.reasoning != (want.reasoning != "") || f.finished != want.finished {
		t.Fatalf("%q: visible %v reasoning %v finished %v, want %+v", data, f.visible, f.reasoning, f.finished, want)
	}
}

// sortedRunes makes texts comparable whose parts may come in another order.
func sortedRunes(s string) string {
	var counts [1 << 8]int
	for _, b := range []byte(s) {
		counts[b]++
	}
	return fmt.Sprint(counts)
}

// repeatsKey tells whether an object has a key twice, or holds parts that only the frame
// reader knows, which a map cannot tell.
func repeatsKey(data []byte) bool {
	dec := json.NewDecoder(bytes.NewReader(data))
	type level struct {
		object bool
		keys   map[string]bool
		value  bool
	}
	var stack []level
	for {
		tok, err := dec.Token()
		if err == io.EOF {
			return false
		}
		if err != nil {
			return true
		}
		top := len(stack) - 1
		if d, ok := tok.(json.Delim); ok {
			switch d {
			case '{', '[':
				if top >= 0 {
					stack[top].value = false
				}
				stack = append(stack, level{object: d == '{', keys: map[string]bool{}})
				continue
			}
			stack = stack[:top]
			continue
		}
		if top >= 0 && stack[top].object && !stack[top].value {
			k := tok.(string)
			switch k {
			case "function_call", "custom", "error", "object", "input":
				return true
			}
			if stack[top].keys[k] {
				return true
			}
			stack[top].keys[k], stack[top].value = true, true
			continue
		}
		if top >= 0 {
			stack[top].value = false
		}
	}
}

func FuzzFrame(f *testing.F) {
	f.Add([]byte(`{"choices":[{"delta":{"content":"a","reasoning":null,"tool_calls":[{"function":{"arguments":"{\"x\":1}"}}]},"finish_reason":"stop"}]}`))
	f.Add([]byte(`{"usage":{"prompt_tokens":1,"prompt_tokens_details":{"cached_tokens":2}},"choices":[]}`))
	f.Add([]byte(`{"text":"x","meta_info":{"completion_tokens":1.0,"finish_reason":{"type":"length"}},"output_ids":[1,2]}`))
	f.Add([]byte(`{"type":"content_block_delta","delta":{"type":"text_delta","text":"\ud800"}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		for e := range endpoints { // no dialect reads what is no JSON object, or refuses one
			var s jsonScan
			var fr frame
			fr.reset(true)
			var v map[string]json.RawMessage
			if want := json.Unmarshal(data, &v) == nil && v != nil; fr.read(Endpoint(e), &s, data) != want {
				t.Fatalf("%v: %q: read %v, encoding/json says %v", Endpoint(e), data, !want, want)
			}
		}
		if !bytes.Contains(data, []byte(`"content":[`)) && !bytes.Contains(data, []byte(`\u`)) {
			compareFrame(t, data)
		}
	})
}

// said is what a dialect's frames said.
type said struct {
	text, thoughts             string
	frames                     int64
	prompt, output, reasoning  int64
	total, device, host, store int64
	failure                    record.Class
}

// TestDialects plays a recorded-looking answer of every endpoint.
func TestDialects(t *testing.T) {
	const none = record.Unknown
	for _, c := range []struct {
		name     string
		endpoint Endpoint
		events   []string
		want     said
	}{
		{"chat", Chat, []string{
			`{"choices":[{"delta":{"role":"assistant","content":""}}]}`,
			`{"choices":[{"delta":{"reasoning_content":"think"}}]}`,
			`{"choices":[{"delta":{"content":"a"}}],"usage":null}`,
			`{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":""}}]}}]}`,
			`{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"x\":"}}]}}]}`,
			`{"choices":[{"delta":{"content":null,"tool_calls":[]},"finish_reason":"tool_calls"}]}`,
			`{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":5,"completion_tokens_details":{"reasoning_tokens":1},"prompt_tokens_details":{"cached_tokens":4}}}`,
			`[DONE]`},
			said{"af{\"x\":", "think", 4, 9, 5, 1, 4, none, none, none, ""}},
		{"chat of vLLM with both names", Chat, []string{`{"choices":[{"delta":{"reasoning":"t","reasoning_content":"t"}}]}`},
			said{"", "t", 1, none, none, none, none, none, none, none, ""}},
		{"chat with both names, escaped in two ways", Chat, []string{`{"choices":[{"delta":{"reasoning":"\u00fc","reasoning_content":"ü"}}]}`},
			said{"", "ü", 1, none, none, none, none, none, none, none, ""}},
		{"chat with parts", Chat, []string{`{"choices":[{"delta":{"content":[{"type":"thinking","thinking":[{"type":"text","text":"t"}]},{"type":"text","text":"a"}]}}]}`},
			said{"a", "t", 1, none, none, none, none, none, none, none, ""}},
		{"chat of Moonshot", Chat, []string{`{"choices":[{"delta":{"content":"a"},"usage":{"prompt_tokens":3,"completion_tokens":1,"cached_tokens":2}}]}`},
			said{"a", "", 1, 3, 1, none, 2, none, none, none, ""}},
		{"chat of SGLang with tiers", Chat, []string{`{"choices":[{"delta":{"content":"a"}}],"usage":{"prompt_tokens":300,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":192}},"sglext":{"cached_tokens_details":{"device":128,"host":64,"storage":0,"storage_backend":"x"}}}`},
			said{"a", "", 1, 300, 1, none, 192, 128, 64, 0, ""}},
		{"chat of DeepSeek", Chat, []string{`{"choices":[{"delta":{"content":"a"}}],"usage":{"prompt_tokens":30,"completion_tokens":1,"prompt_cache_hit_tokens":20,"prompt_cache_miss_tokens":10}}`},
			said{"a", "", 1, 30, 1, none, 20, none, none, none, ""}},
		{"chat aborted", Chat, []string{`{"choices":[{"delta":{"content":"a"}}]}`, `{"choices":[{"delta":{},"finish_reason":"abort"}]}`},
			said{"a", "", 1, none, none, none, none, none, none, none, record.FailStreamError}},
		{"chat error of the old kind", Chat, []string{`{"object":"error","message":"boom","code":500}`},
			said{"", "", 0, none, none, none, none, none, none, none, record.FailStreamError}},
		{"completions", Completions, []string{`{"choices":[{"text":"a","finish_reason":null}]}`, `{"choices":[{"text":"","finish_reason":"length"}],"usage":{"prompt_tokens":2,"completion_tokens":1,"total_tokens":3}}`, `[DONE]`},
			said{"a", "", 1, 2, 1, none, none, none, none, none, ""}},
		{"generate", Generate, []string{
			`{"text":"","meta_info":{"prompt_tokens":8,"completion_tokens":0,"cached_tokens":4}}`,
			`{"text":"a","meta_info":{"prompt_tokens":8,"completion_tokens":1,"cached_tokens":4,"finish_reason":null}}`,
			`{"text":"a","meta_info":{"prompt_tokens":8,"completion_tokens":1,"cached_tokens":4}}`,
			`{"text":"ab","meta_info":{"prompt_tokens":8,"completion_tokens":2,"cached_tokens":4,"cached_tokens_details":{"device":4,"host":0}}}`,
			`{"text":"abc","meta_info":{"prompt_tokens":8,"completion_tokens":3,"cached_tokens":4,"finish_reason":{"type":"length","length":3}}}`, `[DONE]`},
			said{"abc", "", 3, 8, 3, none, 4, 4, 0, none, ""}},
		{"generate in increments", Generate, []string{`{"text":"a","meta_info":{"completion_tokens":1}}`, `{"text":"b","meta_info":{"completion_tokens":2}}`, `[DONE]`},
			said{"ab", "", 2, none, 2, none, none, none, none, none, ""}},
		{"generate without counts", Generate, []string{`{"text":"a"}`, `{"text":"a"}`, `{"text":"ab"}`},
			said{"ab", "", 2, none, none, none, none, none, none, none, ""}},
		{"generate ids", Generate, []string{`{"output_ids":[5],"meta_info":{"completion_tokens":1}}`, `{"output_ids":[5,6],"meta_info":{"completion_tokens":2}}`},
			said{"", "", 2, none, 2, none, none, none, none, none, ""}},
		{"generate aborted", Generate, []string{`{"text":"","meta_info":{"finish_reason":{"type":"abort","message":"Input is longer than the model's context length"}}}`},
			said{"", "", 0, none, none, none, none, none, none, none, record.FailContextOverflow}},
		{"responses", Responses, []string{
			`{"type":"response.created","response":{"status":"in_progress","error":null,"usage":null}}`,
			`{"type":"response.reasoning_text.delta","delta":"t"}`,
			`{"type":"response.output_text.delta","delta":"a"}`,
			`{"type":"response.function_call_arguments.delta","delta":"{}"}`,
			`{"type":"response.output_text.done","text":"a"}`,
			`{"type":"response.completed","response":{"status":"completed","output":[{"content":[{"text":"a"}]}],"usage":{"input_tokens":7,"input_tokens_details":{"cached_tokens":5},"output_tokens":3,"output_tokens_details":{"reasoning_tokens":1}}}}`},
			said{"a{}", "t", 3, 7, 3, 1, 5, none, none, none, ""}},
		{"responses failed", Responses, []string{`{"type":"response.failed","response":{"status":"failed","error":{"code":"server_error","message":"boom"}}}`},
			said{"", "", 0, none, none, none, none, none, none, none, record.FailStreamError}},
		{"messages", Messages, []string{
			`{"type":"message_start","message":{"content":[],"usage":{"input_tokens":3,"cache_creation_input_tokens":10,"cache_read_input_tokens":87,"output_tokens":1}}}`,
			`{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":""}}`,
			`{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"t"}}`,
			`{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"xx"}}`,
			`{"type":"ping"}`,
			`{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"a"}}`,
			`{"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"x","name":"f","input":{}}}`,
			`{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"{}"}}`,
			`{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":9}}`,
			`{"type":"message_stop"}`},
			said{"af{}", "t", 4, 100, 9, none, 87, none, none, none, ""}},
		{"messages error", Messages, []string{`{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`},
			said{"", "", 0, none, none, none, none, none, none, none, record.FailStreamError}},
		{"usage of Gemini", Chat, []string{`{"choices":[{"delta":{"content":"a"}}],"usageMetadata":{"promptTokenCount":50,"candidatesTokenCount":4,"thoughtsTokenCount":6,"cachedContentTokenCount":20}}`},
			said{"a", "", 1, 50, 10, 6, 20, none, none, none, ""}},
		{"usage of Cohere", Chat, []string{`{"choices":[{"delta":{"content":"a"}}],"meta":{"tokens":{"input_tokens":5,"output_tokens":1}}}`},
			said{"a", "", 1, 5, 1, none, none, none, none, none, ""}},
		{"the first spelling wins", Chat, []string{`{"choices":[{"delta":{"content":"a"}}],"usage":{"input_tokens":5,"prompt_tokens":6,"inputTokens":7,"completion_tokens":null,"output_tokens":2,"cached_tokens":1,"prompt_tokens_details":{"cached_tokens":3}}}`},
			said{"a", "", 1, 6, 2, none, 3, none, none, none, ""}},
	} {
		t.Run(strings.ReplaceAll(c.name, " ", "-"), func(t *testing.T) {
			rec := &record.Request{Times: record.Times{Headers: record.Never, FirstToken: record.Never, FirstVisible: record.Never, LastToken: record.Never, End: record.Never}}
			a := answer{rec: rec, endpoint: c.endpoint, limits: answerLimits{1 << 20, 1 << 20}, overflow: overflowTexts, keep: true}
			a.headers(&head{status: 200, media: "text/event-stream"})
			for i, e := range c.events {
				a.at = int64(i)
				if a.body([]byte("data: "+e+"\n\n")) != nil {
					break
				}
			}
			a.finish(200, int64(len(c.events)), nil, true)
			got := said{string(a.text), string(a.thoughts), a.frames, rec.PromptTokens, rec.OutputTokens, rec.ReasoningTokens,
				rec.Hits.Total, rec.Hits.Device, rec.Hits.Host, rec.Hits.Storage, ""}
			if rec.Failure != nil {
				got.failure = rec.Failure.Class
			}
			if got != c.want {
				t.Errorf("got  %+v\nwant %+v (%v)", got, c.want, rec.Failure)
			}
		})
	}
}

// TestWhole reads answers that were not streamed.
func TestWhole(t *testing.T) {
	for e, body := range map[Endpoint]string{
		Chat:        `{"choices":[{"message":{"content":"a"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":1}}`,
		Completions: `{"choices":[{"text":"a"}],"usage":{"prompt_tokens":1,"completion_tokens":1}}`,
		Generate:    `{"text":"a","meta_info":{"prompt_tokens":1,"completion_tokens":1}}`,
		Responses:   `{"status":"completed","output":[{"type":"message","content":[{"type":"output_text","text":"a"}]}],"usage":{"input_tokens":1,"output_tokens":1}}`,
		Messages:    `{"type":"message","content":[{"type":"text","text":"a"}],"stop_reason":"end_turn","usage":{"input_tokens":1,"output_tokens":1}}`,
	} {
		rec := &record.Request{Times: record.Times{FirstToken: record.Never, FirstVisible: record.Never, LastToken: record.Never}}
		a := answer{rec: rec, endpoint: e, limits: answerLimits{1 << 20, 1 << 20}, keep: true}
		a.headers(&head{status: 200, media: "application/json"})
		a.body([]byte(body[:10]))
		a.body([]byte(body[10:]))
		a.finish(200, 7, nil, true)
		if rec.Failure != nil || string(a.text) != "a" || rec.Times.FirstToken != 7 || rec.PromptTokens != 1 || rec.OutputTokens != 1 {
			t.Errorf("%v: %+v %q", e, rec, a.text)
		}
	}
}

func BenchmarkFrame(b *testing.B) {
	data := []byte(`{"id":"chatcmpl-2b9d7a5f0c1e4d8fb6a39c5e","object":"chat.completion.chunk","created":1790000000,"model":"zai-org/GLM-5.2-FP8","choices":[{"index":0,"delta":{"content":" hello","reasoning_content":null,"tool_calls":null},"logprobs":null,"finish_reason":null,"matched_stop":null}],"usage":null}`)
	b.Run("weir", func(b *testing.B) {
		var s jsonScan
		var f frame
		b.SetBytes(int64(len(data)))
		b.ReportAllocs()
		for b.Loop() {
			f.reset(false)
			if !f.read(Chat, &s, data) {
				b.Fatal("not read")
			}
		}
	})
	b.Run("like-the-one-before", func(b *testing.B) {
		var s jsonScan
		var f frame
		var m mold
		f.reset(false)
		if !f.read(Chat, &s, data) {
			b.Fatal("not read")
		}
		m.take(Chat, &f, data)
		b.SetBytes(int64(len(data)))
		b.ReportAllocs()
		for b.Loop() {
			f.reset(false)
			if !m.fits(&f, data) {
				b.Fatal("it does not fit")
			}
		}
	})
	b.Run("encoding-json", func(b *testing.B) {
		b.SetBytes(int64(len(data)))
		b.ReportAllocs()
		for b.Loop() {
			var v struct {
				Choices []struct {
					Delta struct {
						Content          string `json:"content"`
						ReasoningContent string `json:"reasoning_content"`
					} `json:"delta"`
				} `json:"choices"`
			}
			if err := json.Unmarshal(data, &v); err != nil {
				b.Fatal(err)
			}
		}
	})
}
