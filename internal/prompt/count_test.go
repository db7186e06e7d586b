package prompt

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestCountGolden counts what the tokenizers library counted (0.23.3, scripts/peers/tokens/golden.py):
// byte-level BPE with the patterns of GPT-2, Llama 3, Qwen, o200k and DeepSeek, and SentencePiece
// BPE with a token a byte for what it does not know.
func TestCountGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/count/*.json")
	if err != nil || len(files) != 6 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		raw, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		var g struct {
			Tokenizer json.RawMessage
			Texts     []struct {
				Text   string
				Tokens int64
			}
		}
		if err := json.Unmarshal(raw, &g); err != nil {
			t.Fatal(err)
		}
		c, err := NewCounter(f, g.Tokenizer)
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range g.Texts {
			if got := c.Count([]byte(x.Text)); got != x.Tokens {
				t.Errorf("%s: %q is %d tokens, want %d", f, x.Text, got, x.Tokens)
			}
		}
	}
}

// TestCountRefuses: a rule that is not known for any text makes no counter, though it may make
// words.
func TestCountRefuses(t *testing.T) {
	for rule, file := range map[string]string{
		"a rank file": "YQ== 0\nYg== 1\n",
		"Lowercase":   `{"normalizer":{"type":"Lowercase"},"model":{"type":"BPE","vocab":{"a":0},"merges":[]}}`,
		"Precompiled": `{"normalizer":{"type":"Precompiled"},"model":{"type":"Unigram","vocab":[["a",-1]]}}`,
	} {
		if _, err := NewCounter("f", []byte(file)); err == nil || !strings.Contains(err.Error(), rule) {
			t.Errorf("%s: %v", rule, err)
		}
	}
}

// TestCountEnds: no text takes for ever, and added tokens are one each, the longest first.
func TestCountEnds(t *testing.T) {
	c, err := NewCounter("f", []byte(`{"added_tokens":[{"content":"<a>"},{"content":"<a>b"}],"model":{"type":"BPE","vocab":{"x":0,"xx":1,"xxxx":2},"merges":["x x","xx xx"]}}`))
	if err != nil {
		t.Fatal(err)
	}
	if n := c.Count([]byte("<a>xxxx<a>b<a>xx")); n != 5 {
		t.Errorf("%d tokens, want 5", n)
	}
	begun := time.Now()
	if n := c.Count([]byte(strings.Repeat("x", 1<<16))); n != 1<<14 {
		t.Errorf("%d tokens, want %d", n, 1<<14)
	}
	if took := time.Since(begun); took > 30*time.Second {
		t.Errorf("64 kB of one letter took %v", took)
	}
}

// FuzzCount: any text has a count that is not more than its bytes and one.
func FuzzCount(f *testing.F) {
	raw, err := os.ReadFile("testdata/count/sentencepiece.json")
	if err != nil {
		f.Fatal(err)
	}
	var g struct{ Tokenizer json.RawMessage }
	if err := json.Unmarshal(raw, &g); err != nil {
		f.Fatal(err)
	}
	c, err := NewCounter("sentencepiece", g.Tokenizer)
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte("a  b\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if n := c.Count(text); n < 0 || n > 3*int64(len(text))+1 {
			t.Errorf("%d tokens of %d bytes", n, len(text))
		}
	})
}
