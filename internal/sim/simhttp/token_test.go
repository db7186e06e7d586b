package simhttp

import (
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func tokens(s string) (out []string) {
	for len(s) > 0 {
		n := nextToken(s)
		out = append(out, s[:n])
		s = s[n:]
	}
	return out
}

func TestTokenizer(t *testing.T) {
	for text, want := range map[string]string{
		"hello world":            "hello| world",
		" a b":                   " a| b",
		"[rid:123456789012]\n\n": "[|rid|:|123|456|789|012|]|\n\n",
		"x  y":                   "x| | y",
		"ende. Über":             "ende|.| Über",
		"don't":                  "don|'|t",
		"日本 語":                   "日本| 語",
		" 12":                    " |12",
	} {
		if got := strings.Join(tokens(text), "|"); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// TestTokensAreTheText checks that tokens are never empty and put together are the text, and
// that words with leading spaces are one token each, wherever they stand.
func TestTokensAreTheText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.String().Draw(t, "text")
		if got := strings.Join(tokens(s), ""); got != s {
			t.Fatalf("%q became %q", s, got)
		}
		list := rapid.SliceOfN(rapid.StringMatching("[a-z]{1,9}"), 1, 40).Draw(t, "words")
		if n := len(tokens(" " + strings.Join(list, " "))); n != len(list) {
			t.Fatalf("%d words are %d tokens", len(list), n)
		}
	})
}

func FuzzTokenizer(f *testing.F) {
	f.Add("hello world 123\n\n[x]")
	f.Add("\xff \xf0\x9f")
	f.Fuzz(func(t *testing.T, s string) {
		n := 0
		for _, k := range tokens(s) {
			n += len(k)
			if len(k) == 0 || utf8.ValidString(s) && !utf8.ValidString(k) {
				t.Fatalf("%q has the token %q", s, k)
			}
		}
		if n != len(s) {
			t.Fatalf("%d of %d bytes in tokens", n, len(s))
		}
	})
}

// TestOutputPagesAreTheTextsPages checks that the pages of prompt and answer are those of the
// text that a client sends back.
func TestOutputPagesAreTheTextsPages(t *testing.T) {
	for _, n := range []int{0, 1, 63, 64, 100} {
		p := pager{page: 64}
		text := strings.Repeat(" word", n)
		p.text(text)
		all := pager{page: 64}
		all.text(text + answer(7, 0, 300))
		out := outputPages(p, 7)
		for i := len(p.pages); i < len(all.pages); i++ {
			if out(i) != all.pages[i] {
				t.Errorf("prompt of %d words: page %d differs", n, i)
			}
		}
	}
}
