package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

// TestWordsAreKept: the second reading of a tokenizer takes the list that the first kept, and one
// that was spoilt is made again.
func TestWordsAreKept(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	vocab, merges := map[string]int{}, []string{}
	for a := 'a'; a <= 'z'; a++ { // every word of three letters of six is a token, alone and behind a space
		vocab[string(a)] = len(vocab)
	}
	vocab["Ġ"] = len(vocab)
	pair := func(l, r string) string {
		if _, known := vocab[l+r]; !known {
			vocab[l+r] = len(vocab)
			merges = append(merges, l+" "+r)
		}
		return l + r
	}
	for _, w := range []string{"the"} {
		pair(pair(pair("Ġ", w[:1]), w[1:2]), w[2:])
	}
	for _, a := range "abcdef" {
		for _, b := range "ghijkl" {
			for _, c := range "mnopqr" {
				pair(pair(pair("Ġ", string(a)), string(b)), string(c))
				pair(pair(string(a), string(b)), string(c))
			}
		}
	}
	raw, err := json.Marshal(map[string]any{"pre_tokenizer": map[string]any{"type": "ByteLevel", "add_prefix_space": false},
		"model": map[string]any{"type": "BPE", "vocab": vocab, "merges": merges}})
	if err != nil {
		t.Fatal(err)
	}
	_, first, err := readTokenizer("t", raw)
	if err != nil {
		t.Fatal(err)
	}
	kept, err := filepath.Glob(filepath.Join(cache, "weir", "words", "*.json"))
	if err != nil || len(kept) != 1 {
		t.Fatalf("kept %v, %v", kept, err)
	}
	good, err := os.ReadFile(kept[0])
	if err != nil {
		t.Fatal(err)
	}
	if _, again, err := readTokenizer("t", raw); err != nil || !reflect.DeepEqual(first, again) {
		t.Errorf("from the cache: %v, another list", err)
	}
	if err := os.WriteFile(kept[0], good[:len(good)/2], 0o644); err != nil {
		t.Fatal(err)
	}
	if _, again, err := readTokenizer("t", raw); err != nil || !reflect.DeepEqual(first, again) {
		t.Errorf("from a spoilt cache: %v, another list", err)
	}
	if now, err := os.ReadFile(kept[0]); err != nil || string(now) != string(good) {
		t.Errorf("the spoilt list was not made again: %v", err)
	}
}
