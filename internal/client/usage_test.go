package client

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weirbench/weir/internal/record"
)

func answered(endpoint Endpoint, events ...string) *record.Request {
	rec := &record.Request{Times: record.Times{Headers: record.Never, FirstToken: record.Never, FirstVisible: record.Never, LastToken: record.Never, End: record.Never}}
	a := answer{rec: rec, endpoint: endpoint, limits: answerLimits{1 << 20, 1 << 20}, overflow: overflowTexts}
	a.headers(&head{status: 200, media: "text/event-stream"})
	for i, e := range events {
		a.at = int64(i)
		if a.body([]byte("data: "+e+"\n\n")) != nil {
			break
		}
	}
	a.finish(200, int64(len(events)), nil, true)
	return rec
}

// TestCountsThatAreNone: a count that cannot be one is unknown and noted, the others stand, and
// the answer is none the worse.
func TestCountsThatAreNone(t *testing.T) {
	for _, c := range []struct {
		value string
		want  int64
		noted bool
	}{
		{"5", 5, false}, {"5.0", 5, false}, {"0", 0, false}, {"1099511627776", 1 << 40, false}, {"null", record.Unknown, false},
		{"1099511627777", record.Unknown, true}, {"1000000000000000", record.Unknown, true}, {"9223372036854775808", record.Unknown, true},
		{"10000000000000000000000000", record.Unknown, true}, {"1e25", record.Unknown, true}, {"-1", record.Unknown, true}, {"-0", record.Unknown, true},
		{"5.5", record.Unknown, true}, {`"5"`, record.Unknown, true}, {"true", record.Unknown, true}, {"[5]", record.Unknown, true}, {`{"a":5}`, record.Unknown, true},
		{`"` + strings.Repeat("x", 5000) + `"`, record.Unknown, true},
	} {
		for _, field := range []string{"prompt_tokens", "completion_tokens", "cached_tokens"} {
			use := map[string]string{"prompt_tokens": "100", "completion_tokens": "7", "cached_tokens": "64"}
			use[field] = c.value
			rec := answered(Chat, `{"choices":[{"delta":{"content":"a"}}]}`, fmt.Sprintf(`{"choices":[],"usage":{"prompt_tokens":%s,"completion_tokens":%s,"prompt_tokens_details":{"cached_tokens":%s}}}`,
				use["prompt_tokens"], use["completion_tokens"], use["cached_tokens"]), "[DONE]")
			if rec.Failure != nil {
				t.Fatalf("%s %s: %v", field, c.value, rec.Failure)
			}
			for name, got := range map[string]int64{"prompt_tokens": rec.PromptTokens, "completion_tokens": rec.OutputTokens, "cached_tokens": rec.Hits.Total} {
				want := map[string]int64{"prompt_tokens": 100, "completion_tokens": 7, "cached_tokens": 64}[name]
				if name == field {
					want = c.want
				}
				if got != want {
					t.Errorf("%s is %.60s: %s = %d, want %d", field, c.value, name, got, want)
				}
			}
			if noted := strings.HasPrefix(rec.BadCount, field+" "); noted != c.noted || len(rec.BadCount) > maxRefused+3 || !c.noted && rec.BadCount != "" {
				t.Errorf("%s is %.60s: noted %q", field, c.value, rec.BadCount)
			}
		}
	}
}

// TestSumsOfCounts: what is added up of counts is a count too, or unknown when a part was refused.
func TestSumsOfCounts(t *testing.T) {
	const none, most = record.Unknown, "1099511627776"
	for _, c := range []struct {
		name                   string
		endpoint               Endpoint
		events                 []string
		prompt, output, cached int64
	}{
		{"too large a sum", Messages, []string{`{"type":"message_start","message":{"usage":{"input_tokens":` + most + `,"cache_read_input_tokens":` + most + `,"output_tokens":1}}}`}, none, 1, 1 << 40},
		{"a part refused", Messages, []string{`{"type":"message_start","message":{"usage":{"input_tokens":3,"cache_read_input_tokens":-1,"output_tokens":1}}}`}, none, 1, none},
		{"thoughts refused", Chat, []string{`{"usageMetadata":{"promptTokenCount":5,"candidatesTokenCount":4,"thoughtsTokenCount":1e9}}`}, 5, none, none},
		{"a tier refused", Generate, []string{`{"meta_info":{"prompt_tokens":8,"completion_tokens":1,"cached_tokens_details":{"device":4,"host":-4}}}`}, 8, 1, none},
		{"tiers too large", Generate, []string{`{"meta_info":{"prompt_tokens":8,"completion_tokens":1,"cached_tokens_details":{"device":` + most + `,"host":4}}}`}, 8, 1, none},
		{"the last count refused", Chat, []string{`{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":1}}`, `{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":1e15}}`}, 9, none, none},
		{"the first count refused", Chat, []string{`{"choices":[],"usage":{"completion_tokens":-1}}`, `{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2}}`}, 9, 2, none},
		{"another spelling is good", Chat, []string{`{"choices":[],"usage":{"completion_tokens":-1,"output_tokens":2}}`}, none, 2, none},
		{"a good one and a bad one", Chat, []string{`{"choices":[],"usage":{"output_tokens":2,"completion_tokens":-1}}`}, none, 2, none},
	} {
		rec := answered(c.endpoint, c.events...)
		if rec.PromptTokens != c.prompt || rec.OutputTokens != c.output || rec.Hits.Total != c.cached {
			t.Errorf("%s: prompt %d, output %d, cached %d, want %d, %d, %d", c.name, rec.PromptTokens, rec.OutputTokens, rec.Hits.Total, c.prompt, c.output, c.cached)
		}
		if refuses := !strings.Contains(c.name, "large"); refuses != (rec.BadCount != "") {
			t.Errorf("%s: noted %q", c.name, rec.BadCount)
		}
	}
}
