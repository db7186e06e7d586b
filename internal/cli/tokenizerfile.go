package cli

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/weirbench/weir/internal/prompt"
	"github.com/weirbench/weir/internal/spec"
)

// tokenizer reads a model's tokenizer for the words of prompts and for counting answers; without
// a file the words are the embedded ones and nothing is counted here. A file that is good for
// words alone says so on standard error.
func (a *App) tokenizer(path string) (*prompt.Words, *prompt.Counter, error) {
	if path == "" {
		return prompt.Default(), nil, nil
	}
	raw, err := spec.ReadFile(path, tokenizerLimit)
	if err != nil {
		return nil, nil, err
	}
	t, words, err := readTokenizer(path, raw)
	if err != nil {
		return nil, nil, err
	}
	return words, a.counter(t), nil
}

// counter is the tokenizer's counter, nil, said on standard error, where it is good for words alone.
func (a *App) counter(t *prompt.Tokenizer) *prompt.Counter {
	c, err := t.Counter()
	if err != nil {
		fmt.Fprintf(a.Err, "weir: %v; the server's counts of output tokens are not checked\n", err)
		return nil
	}
	return c
}

// readTokenizer reads a tokenizer and the words that prompts for it are made of. The words are kept in
// the user's cache, where the system has one: to choose them takes longer than all else before a
// run's first request. What is kept and does not fit is made again.
func readTokenizer(name string, raw []byte) (*prompt.Tokenizer, *prompt.Words, error) {
	t, err := prompt.ReadTokenizer(name, raw)
	if err != nil {
		return nil, nil, err
	}
	path := ""
	if dir, err := os.UserCacheDir(); err == nil {
		path = filepath.Join(dir, "weir", "words", prompt.WordsKey(raw)+".json")
		if kept, err := os.ReadFile(path); err == nil {
			if w, err := t.FromKept(kept); err == nil {
				return t, w, nil
			}
		}
	}
	w, err := t.Words()
	if err == nil && path != "" {
		spec.KeepFile(path, w.Kept()) // a cache that cannot be written is none
	}
	return t, w, err
}
