package client

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestMoldsSayWhatReadingSays: whatever frames follow each other, the one that fits the mold of the
// one before says what reading it says.
func TestMoldsSayWhatReadingSays(t *testing.T) {
	texts := rapid.OneOf(rapid.SampledFrom([]string{"", "a", "the", "content", "stop", `\"`, `\\`, "é", "\x01", `a","finish_reason":"stop`, `x"},{"delta":{"content":"y`, "null"}), rapid.StringN(0, 6, -1))
	frames := []string{
		`{"id":"a","choices":[{"index":0,"delta":{"content":"%[1]s"}}]}`,
		`{"id":"a","choices":[{"index":0,"delta":{"role":"assistant","content":"%[1]s"},"finish_reason":null}],"usage":null}`,
		`{"choices":[{"delta":{"reasoning":"%[1]s","reasoning_content":"%[2]s","content":""}}]}`,
		`{"choices":[{"delta":{"reasoning_content":"%[1]s"}}]}`,
		`{"choices":[{"delta":{"reasoning":"%[2]s","content":"%[1]s"}}]}`,
		`{"choices":[{"delta":{"content":"%[1]s"},"finish_reason":"%[2]s"}]}`,
		`{"choices":[{"delta":{"content":"%[1]s"}},{"delta":{"content":"%[2]s"}}]}`,
		`{"choices":[{"delta":{"content":"%[1]s"}}],"choices":[{"delta":{"content":"%[2]s"}}]}`,
		`{"choices":[{"delta":{"content":"%[2]s","content":"%[1]s"}}]}`,
		`{"choices":[{"text":"%[1]s","delta":{}}],"usage":{"completion_tokens":3}}`,
		`{"choices":[{"text":"%[1]s"}],"error":"%[2]s"}`,
		`{"choices":[{"delta":{"tool_calls":[{"function":{"name":"%[1]s","arguments":"%[2]s"}}]}}]}`,
		`{"choices":[{"delta":{"content":[{"type":"text","text":"%[1]s"}]}}]}`,
		`{"text":"%[1]s","choices":[]} `,
	}
	for i, same := range frames {
		fitted := false
		rapid.Check(t, func(t *rapid.T) {
			e := rapid.SampledFrom([]Endpoint{Chat, Chat, Completions, Generate, Responses, Messages}).Draw(t, "endpoint")
			keep := rapid.Bool().Draw(t, "keep")
			var m mold
			var scan jsonScan
			var f frame
			for range rapid.IntRange(2, 6).Draw(t, "frames") {
				form := same
				if rapid.IntRange(0, 4).Draw(t, "another") == 0 {
					form = rapid.SampledFrom(frames).Draw(t, "frame")
				}
				data := fmt.Appendf(nil, form+"%.0[1]s%.0[2]s", texts.Draw(t, "text"), texts.Draw(t, "other"))
				var want frame
				want.reset(keep)
				good := want.read(e, &scan, bytes.Clone(data))
				f.reset(keep)
				if !m.fits(&f, data) {
					f.reset(keep)
					if f.read(e, &scan, data) {
						m.take(e, &f, data)
					}
					continue
				}
				fitted = fitted || form == same
				if !good || f.failed != want.failed || f.finished != want.finished || f.called != want.called || f.hasUsage != want.hasUsage ||
					f.last != want.last || f.visible != want.visible || f.reasoning != want.reasoning || f.bytes != want.bytes ||
					!bytes.Equal(f.content, want.content) || !bytes.Equal(f.reasonings, want.reasonings) {
					t.Fatalf("%s\nby the mold %+v\nread (%v) %+v", data, f, good, want)
				}
			}
		})
		if !fitted && slices.Contains([]int{0, 1, 3}, i) { // the usual ones
			t.Errorf("no frame fitted the mold of %s", same)
		}
	}
}
