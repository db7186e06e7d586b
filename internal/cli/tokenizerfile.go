package cli

import (
	"fmt"

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
	t, err := prompt.ReadTokenizer(path, raw)
	if err != nil {
		return nil, nil, err
	}
	words, err := t.Words()
	if err != nil {
		return nil, nil, err
	}
	c, err := t.Counter()
	if err != nil {
		fmt.Fprintf(a.Err, "weir: %v; the server's counts of output tokens are not checked\n", err)
		return words, nil, nil
	}
	return words, c, nil
}
