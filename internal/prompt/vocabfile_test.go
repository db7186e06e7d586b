package prompt

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestVocabulariesAreReadAsByEncodingJSON: what the one-pass reader makes of a file is what
// encoding/json makes of it, however it is indented and escaped; and half a file is refused.
func TestVocabulariesAreReadAsByEncodingJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"", "\"", "\\", "Ġthe", "a\nb", "\u2028", "}", "]", ",", "<|x|>", "\x00"}))
		vocab := rapid.MapOf(text, rapid.Int32Range(0, 1<<30)).Draw(t, "vocab")
		pairs := rapid.SliceOf(rapid.Custom(func(t *rapid.T) [2]string {
			return [2]string{strings.ReplaceAll(text.Draw(t, "l"), " ", "_"), text.Draw(t, "r")}
		})).Draw(t, "merges")
		var merges any = pairs
		if rapid.Bool().Draw(t, "joined") {
			var joined []string
			for _, p := range pairs {
				joined = append(joined, p[0]+" "+p[1])
			}
			merges = joined
		}
		f := map[string]any{"version": "1.0", "truncation": nil, "decoder": map[string]any{"a": []any{1, "]", map[string]any{}}},
			"added_tokens": []any{map[string]any{"content": "<|e|>", "id": 1}},
			"model":        map[string]any{"type": "BPE", "dropout": nil, "unk_token": "x", "vocab": vocab, "merges": merges, "ignore_merges": true}}
		raw, err := json.Marshal(f)
		if err == nil && rapid.Bool().Draw(t, "indented") {
			raw, err = json.MarshalIndent(f, "", " ")
		}
		if err != nil {
			t.Fatal(err)
		}
		got, err := parseTokenizerFile(raw)
		if err != nil {
			t.Fatalf("%v\n%s", err, raw)
		}
		var want struct {
			Model struct{ Vocab map[string]int32 }
		}
		if err := json.Unmarshal(raw, &want); err != nil {
			t.Fatal(err)
		}
		if !maps.Equal(got.Model.Vocab, want.Model.Vocab) {
			t.Fatalf("vocab %v, want %v", got.Model.Vocab, want.Model.Vocab)
		}
		if !got.Model.IgnoreMerges || got.Model.Type != "BPE" || len(got.AddedTokens) != 1 {
			t.Fatalf("%+v", got)
		}
		if !slices.EqualFunc(got.Model.Merges, pairs, func(a mergePair, b [2]string) bool {
			return a[0] == valid(t, b[0]) && a[1] == valid(t, b[1])
		}) {
			t.Fatalf("merges %q, want %q", got.Model.Merges, pairs)
		}
		cut := rapid.IntRange(0, len(raw)-1).Draw(t, "cut")
		if _, err := parseTokenizerFile(raw[:cut]); err == nil && json.Valid(raw[:cut]) == false {
			t.Fatalf("%d of %d bytes were taken for a whole file:\n%s", cut, len(raw), raw[:cut])
		}
	})
}

// valid is s as JSON carries it: bytes that are no text become U+FFFD.
func valid(t *rapid.T, s string) (out string) {
	b, err := json.Marshal(s)
	if err == nil {
		err = json.Unmarshal(b, &out)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestMergesAreThoseOfTheRule: whatever the ranks, the merges are those that the rule makes when every
// pair is asked for anew before each.
func TestMergesAreThoseOfTheRule(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		piece := rapid.StringOfN(rapid.RuneFrom([]rune("abcé")), 0, 40, -1).Draw(t, "piece")
		ranks := rapid.MapOf(rapid.StringOfN(rapid.RuneFrom([]rune("abcé")), 2, 6, -1), rapid.Int32Range(0, 9)).Draw(t, "ranks")
		rank := func(l, r string) (int32, bool) { k, ok := ranks[l+r]; return k, ok }
		var start []int32
		var want []string
		for i, c := range piece {
			start, want = append(start, int32(i)), append(want, string(c))
		}
		for {
			at := -1
			for i := range len(want) - 1 {
				if k, ok := rank(want[i], want[i+1]); ok && (at < 0 || k < ranks[want[at]+want[at+1]]) {
					at = i
				}
			}
			if at < 0 {
				break
			}
			want[at] += want[at+1]
			want = slices.Delete(want, at+1, at+2)
		}
		if got := mergeAll(piece, start, rank); !slices.Equal(got, want) {
			t.Fatalf("%q by %v: %q, want %q", piece, ranks, got, want)
		}
	})
}
