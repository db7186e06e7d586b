package prompt

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// grow adds to a BPE vocabulary all that is needed for a token: its beginnings, and the merges
// that make them one character after another.
func grow(vocab map[string]int, merges *[]string, token string) {
	runes := []rune(token)
	for i := range runes {
		if s := string(runes[i]); vocab[s] == 0 {
			vocab[s] = len(vocab) + 1
		}
		if s := string(runes[:i+1]); i > 0 && vocab[s] == 0 {
			vocab[s] = len(vocab) + 1
			*merges = append(*merges, string(runes[:i])+" "+string(runes[i]))
		}
	}
}

// sample is a part of the embedded list, enough for a list of its own.
func sample() (first, more []string) {
	all, n := Default().List()
	return all[:600:600], all[n : n+500 : n+500]
}

func bpeFile(t *testing.T, marker string, steps map[string]any, pairs bool, edit func(vocab map[string]int, merges *[]string)) []byte {
	t.Helper()
	vocab, merges := map[string]int{}, []string{}
	edit(vocab, &merges)
	first, more := sample()
	// Merges of words with a space come first, so that they are made whole.
	for _, s := range append(append([]string{"the"}, first...), more...) {
		grow(vocab, &merges, marker+s)
	}
	for _, s := range append([]string{"the"}, first...) {
		grow(vocab, &merges, s)
	}
	var m any = merges
	if pairs {
		var p [][]string
		for _, s := range merges {
			p = append(p, strings.Split(s, " "))
		}
		m = p
	}
	f := map[string]any{"model": map[string]any{"type": "BPE", "vocab": vocab, "merges": m}}
	for k, v := range steps {
		f[k] = v
	}
	b, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

type object = map[string]any

var (
	byteLevel = object{"pre_tokenizer": object{"type": "ByteLevel", "add_prefix_space": false}}
	// The pattern of Qwen's tokenizer.json.
	splitLevel = object{"normalizer": object{"type": "NFC"}, "pre_tokenizer": object{"type": "Sequence", "pretokenizers": []any{
		object{"type": "Split", "pattern": object{"Regex": `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`}, "behavior": "Isolated"},
		object{"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}}}}
	llama2 = object{"normalizer": object{"type": "Sequence", "normalizers": []any{
		object{"type": "Prepend", "prepend": "▁"}, object{"type": "Replace", "pattern": object{"String": " "}, "content": "▁"}}}}
	gemma3 = object{"normalizer": object{"type": "Replace", "pattern": object{"String": " "}, "content": "▁"},
		"pre_tokenizer": object{"type": "Split", "pattern": object{"String": " "}, "behavior": "MergedWithPrevious"}}
	metaspaced = object{"pre_tokenizer": object{"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first"}}
)

func TestFromTokenizer(t *testing.T) {
	first, more := sample()
	nothing := func(map[string]int, *[]string) {}
	whole, n := Default().List()
	for _, c := range []struct {
		name string
		file []byte
		drop []string // words that must not be in the list
	}{
		{"byte-level", bpeFile(t, "Ġ", byteLevel, false, nothing), nil},
		{"byte-level split by pattern", bpeFile(t, "Ġ", splitLevel, true, nothing), nil},
		{"sentencepiece, as llama2", bpeFile(t, "▁", llama2, false, nothing), nil},
		{"sentencepiece, as gemma3", bpeFile(t, "▁", gemma3, true, nothing), nil},
		{"metaspace", bpeFile(t, "▁", metaspaced, false, nothing), nil},
		// "about" is in the vocabulary and no merge reaches it, since "ou" merges first.
		{"a token out of reach", bpeFile(t, "Ġ", byteLevel, false, func(v map[string]int, m *[]string) {
			v["o"], v["u"], v["ou"] = 1, 2, 3
			*m = append(*m, "o u")
		}), []string{"about", "account"}},
		{"an added token in a word", bpeFile(t, "Ġ", object{"pre_tokenizer": byteLevel["pre_tokenizer"],
			"added_tokens": []any{object{"content": "ccount"}}}, false, nothing), []string{"account"}},
		{"unigram", unigramFile(t, first, more), nil},
		{"ranks", rankFile(first, more), nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, err := FromTokenizer("t", c.file)
			if err != nil {
				t.Fatal(err)
			}
			list, nFirst := w.List()
			for _, d := range c.drop {
				if slices.Contains(list, d) {
					t.Errorf("%q is in the list", d)
				}
			}
			if c.drop == nil {
				for _, s := range append(append([]string{}, first...), more...) {
					if !slices.Contains(list, s) {
						t.Fatalf("%q is not in the list", s)
					}
				}
				if nFirst < len(first)/2 { // some are cut by the merges of shorter words
					t.Errorf("%d words begin messages", nFirst)
				}
			}
			for i, s := range list[:nFirst] {
				if j := slices.Index(whole, s); j >= n {
					t.Fatalf("%d: %q begins messages here and not in the embedded list", i, s)
				}
			}
			if ids := w.IDs(); len(ids) != w.Len() || slices.Contains(ids, -1) {
				t.Errorf("ids %v", ids[:min(5, len(ids))])
			}
			if a := w.AsIDs(); a.word[3] != fmt.Sprintf(",%d", w.ids[3]) || a.nBlock != w.nBlock || a.idLen != w.idLen {
				t.Errorf("as ids: %q", a.word[3])
			}
		})
	}
}

// TestKeptWords: a list that was kept is the list, and one that is not this tokenizer's is refused.
func TestKeptWords(t *testing.T) {
	nothing := func(map[string]int, *[]string) {}
	file := bpeFile(t, "Ġ", byteLevel, false, nothing)
	other := bpeFile(t, "Ġ", byteLevel, false, func(v map[string]int, m *[]string) { grow(v, m, "zzz") }) // other ids
	r, err := ReadTokenizer("t", file)
	if err != nil {
		t.Fatal(err)
	}
	w, err := r.Words()
	if err != nil {
		t.Fatal(err)
	}
	got, err := r.FromKept(w.Kept())
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, w) {
		t.Errorf("the kept list is another")
	}
	o, err := ReadTokenizer("t", other)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := o.FromKept(w.Kept()); err == nil {
		t.Errorf("the list of another tokenizer was taken")
	}
	kept := w.Kept()
	for _, n := range []int{0, 1, 100, len(kept) / 2, len(kept) - 1} {
		if _, err := r.FromKept(kept[:n]); err == nil {
			t.Errorf("%d of %d bytes were taken", n, len(kept))
		}
	}
	if WordsKey(file) == WordsKey(other) {
		t.Error("two files have one key")
	}
}

func unigramFile(t *testing.T, first, more []string) []byte {
	t.Helper()
	vocab := [][]any{{"<unk>", 0.0}}
	for _, c := range "▁abcdefghijklmnopqrstuvwxyz" {
		vocab = append(vocab, []any{string(c), -12.0})
	}
	for _, s := range append(append([]string{"the"}, first...), more...) {
		vocab = append(vocab, []any{"▁" + s, -9.0 - 0.001*float64(len(s))})
	}
	b, err := json.Marshal(object{"model": object{"type": "Unigram", "unk_id": 0, "vocab": vocab},
		"normalizer":    object{"type": "Precompiled"},
		"pre_tokenizer": object{"type": "Sequence", "pretokenizers": []any{object{"type": "WhitespaceSplit"}, object{"type": "Metaspace", "replacement": "▁", "add_prefix_space": true}}}})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func rankFile(first, more []string) []byte {
	vocab, merges := map[string]int{}, []string{}
	for _, s := range append(append([]string{"the"}, first...), more...) {
		grow(vocab, &merges, " "+s)
	}
	for _, s := range append([]string{"the"}, first...) {
		grow(vocab, &merges, s)
	}
	var b strings.Builder
	for s, id := range vocab {
		fmt.Fprintf(&b, "%s %d\n", base64.StdEncoding.EncodeToString([]byte(s)), id)
	}
	return []byte(b.String())
}

// TestKeepsTheEmbeddedText: a tokenizer that has all embedded words writes the same text.
func TestKeepsTheEmbeddedText(t *testing.T) {
	all, n := Default().List()
	w, err := FromTokenizer("full", rankFile(all[:n], all[n:]))
	if err != nil {
		t.Fatal(err)
	}
	if w.ring != Default().ring || !slices.Equal(w.word, Default().word) || w.nFirst != Default().nFirst {
		t.Error("the text is another")
	}
}

func TestFromTokenizerRefuses(t *testing.T) {
	for _, c := range []struct{ file, want string }{
		{``, "empty"},
		{`{`, "tokenizer.json: line 1, byte 1: the file ends where"},
		{`{"model":{"type":"WordPiece","vocab":{}}}`, `model type "WordPiece" is not supported`},
		{`{"model":{"type":"BPE","vocab":{}}}`, "no lower-case word"},
		{`{"model":{"type":"BPE","vocab":[]}}`, "model.vocab"},
		{`{"model":{"type":"BPE","vocab":{},"merges":["ab"]}}`, `merge "ab" is not a pair`},
		{`{"model":{"type":"BPE","vocab":{},"end_of_word_suffix":"</w>"}}`, "end_of_word_suffix"},
		{`{"model":{"type":"Unigram","vocab":[["a"]]}}`, "its text and its score"},
		{`{"model":{"type":"Unigram","vocab":[[1,2]]}}`, "model.vocab"},
		{`{"pre_tokenizer":{"type":"Odd"},"model":{"type":"BPE","vocab":{}}}`, `pre_tokenizer "Odd" is not known`},
		{`{"pre_tokenizer":{"type":"Split","pattern":{"Regex":"(?<=a)"},"behavior":"Isolated"},"model":{"type":"BPE","vocab":{}}}`, "is not understood"},
		{`{"pre_tokenizer":{"type":"Split","pattern":{"String":" "},"behavior":"Odd"},"model":{"type":"BPE","vocab":{}}}`, `behavior "Odd"`},
		{`{"pre_tokenizer":{"type":"Split"},"model":{"type":"BPE","vocab":{}}}`, "no pattern"},
		{"YQ== 1\nb", "line 2"},
		{"YQ== 1\n", "no lower-case word"},
	} {
		_, err := FromTokenizer("file.json", []byte(c.file))
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "file.json: ") {
			t.Errorf("%.60q: error %v, want %q", c.file, err, c.want)
		}
	}
}

func TestMetaspaceAndSplit(t *testing.T) {
	for _, c := range []struct {
		s    step
		in   string
		want []string
	}{
		{metaspace{"▁", true, true}, "a bc d", []string{"▁a", "▁bc", "▁d"}},
		{metaspace{"▁", true, true}, " a", []string{"▁a"}},
		{metaspace{"▁", false, true}, "a b", []string{"a", "▁b"}},
		{metaspace{"▁", true, false}, "a b", []string{"▁a▁b"}},
		{metaspace{"▁", true, true}, "", []string{"▁"}},
		{splitWords{}, " a bc", []string{" a", " bc"}},
		{spaceSplit{}, " a bc", []string{"a", "bc"}},
	} {
		if got := c.s.apply([]string{c.in}); !slices.Equal(got, c.want) {
			t.Errorf("%#v of %q: %q, want %q", c.s, c.in, got, c.want)
		}
	}
	comma := ","
	for _, c := range []struct {
		behavior string
		invert   bool
		want     []string
	}{ // of "a,b,,c", as the tokenizers library documents SplitDelimiterBehavior
		{"Isolated", false, []string{"a", ",", "b", ",", ",", "c"}},
		{"Removed", false, []string{"a", "b", "c"}},
		{"Removed", true, []string{",", ",", ","}},
		{"MergedWithPrevious", false, []string{"a,", "b,", ",", "c"}},
		{"MergedWithNext", false, []string{"a", ",b", ",", ",c"}},
		{"Contiguous", false, []string{"a", ",", "b", ",,", "c"}},
	} {
		f := &stepFile{Behavior: c.behavior, Invert: c.invert}
		f.Pattern.String = &comma
		s, err := newSplit("pre_tokenizer", f)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.apply([]string{"a,b,,c"}); !slices.Equal(got, c.want) {
			t.Errorf("%s invert %v: %q, want %q", c.behavior, c.invert, got, c.want)
		}
	}
}

// FuzzFromTokenizer: any file gives a list or an error that names it.
func FuzzFromTokenizer(f *testing.F) {
	first, more := sample()
	f.Add(rankFile(first[:40], more[:40]))
	f.Add([]byte(`{"normalizer":{"type":"Strip"},"pre_tokenizer":{"type":"Metaspace"},"model":{"type":"Unigram","vocab":[["▁the",-1],["t",-2]]}}`))
	f.Add([]byte(`{"pre_tokenizer":{"type":"Split","pattern":{"Regex":"x?"},"behavior":"Removed","invert":true},"model":{"vocab":{"a":1},"merges":[["a","b"]]}}`))
	f.Fuzz(func(t *testing.T, file []byte) {
		w, err := FromTokenizer("f", file)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "f: ") {
				t.Fatalf("error %v", err)
			}
			return
		}
		if len(w.appendBlock(nil, 1, 2, 64, 0)) == 0 {
			t.Fatal("no text")
		}
	})
}
