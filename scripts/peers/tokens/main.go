// Command tokens writes the prompts of recorded traces for check.py, which counts them with the
// models' own tokenizers.
//
//	tokens words [TOKENIZER]          the embedded word list or that of a tokenizer file, as JSON
//	tokens probes                     the bodies that Learn asks a server to count
//	tokens prompts CORPUS N [COUNTS]  the prompts of the first N traces, one JSON object a
//	                                  line; COUNTS holds what was counted for the probes, a
//	                                  JSON object of tokens by name, -1 where it was refused
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/weirbench/weir/internal/corpus"
	"github.com/weirbench/weir/internal/prompt"
)

func main() {
	out := bufio.NewWriterSize(os.Stdout, 1<<20)
	if err := run(out, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "tokens:", err)
		os.Exit(1)
	}
	if err := out.Flush(); err != nil {
		os.Exit(1)
	}
}

func run(out *bufio.Writer, args []string) error {
	enc := json.NewEncoder(out)
	o := prompt.Options{Models: []string{"m"}, Salt: prompt.FirstTurnPrefix}
	b, err := prompt.New(prompt.Default(), o)
	if err != nil {
		return err
	}
	switch {
	case len(args) >= 1 && args[0] == "words":
		w := prompt.Default()
		if len(args) > 1 {
			data, err := os.ReadFile(args[1])
			if err != nil {
				return err
			}
			if w, err = prompt.FromTokenizer(args[1], data); err != nil {
				return err
			}
		}
		words, first := w.List()
		return enc.Encode(map[string]any{"words": words, "first": first, "ids": w.IDs()})
	case len(args) == 1 && args[0] == "probes":
		for _, p := range b.Probes(prompt.EndpointChat) {
			y, err := b.Probe(prompt.EndpointChat, p, 1)
			if err != nil {
				return err
			}
			body, err := io.ReadAll(y.Open())
			if err != nil {
				return err
			}
			if err := enc.Encode(map[string]any{"name": p.Name, "body": json.RawMessage(body)}); err != nil {
				return err
			}
		}
		return nil
	case len(args) >= 3 && args[0] == "prompts":
		return prompts(out, b, args[1:])
	}
	return fmt.Errorf("usage: words | probes | prompts CORPUS N [COUNTS]")
}

func prompts(out *bufio.Writer, b *prompt.Builder, args []string) error {
	n, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	c, err := corpus.Load(args[0], corpus.LoadOptions{})
	if err != nil {
		return err
	}
	endpoint := prompt.EndpointCompletions
	var l prompt.Learned
	if len(args) > 2 {
		endpoint = prompt.EndpointChat
		if l, err = learn(b, args[2]); err != nil {
			return err
		}
	}
	b, err = prompt.New(prompt.Default(), prompt.Options{Models: []string{"m"}, Salt: prompt.FirstTurnPrefix, Template: l.Template,
		Alternate: l.Alternate})
	if err != nil {
		return err
	}
	for _, tr := range c.Traces[:min(n, len(c.Traces))] {
		for s := range tr.Streams {
			for k := range tr.Streams[s].Turns {
				q := prompt.Request{Trace: tr, Stream: s, Turn: k}
				if endpoint == prompt.EndpointChat {
					q.Salt = prompt.Salt(1, tr.ID, 0, 0)
				}
				y, err := b.Body(endpoint, q)
				if err != nil {
					return err
				}
				sh, err := b.SharedWithPrevious(q)
				if err != nil {
					return err
				}
				fmt.Fprintf(out, `{"trace":%q,"stream":%q,"turn":%d,"last":%t,"in":%d,"tokens":%d,"shared":%d,"message":%d,"words":%d,"overhead":[%d,%d,%d,%d,%d,%d],"body":`,
					tr.ID, tr.Streams[s].ID, k, k == len(tr.Streams[s].Turns)-1, y.Recorded(), y.Tokens(), sh.Recorded, sh.Message, sh.Words,
					l.Template.Fixed, l.Template.FixedSystem, l.Template.User, l.Template.Assistant, l.Template.Salt, l.Residual)
				if _, err := y.Open().(*prompt.Reader).WriteTo(out); err != nil {
					return err
				}
				fmt.Fprintln(out, "}")
			}
		}
	}
	return nil
}

func learn(b *prompt.Builder, counts string) (prompt.Learned, error) {
	var byName map[string]int64
	if err := json.Unmarshal([]byte(counts), &byName); err != nil {
		return prompt.Learned{}, err
	}
	var seen []prompt.Observation
	for _, p := range b.Probes(prompt.EndpointChat) {
		n, ok := byName[p.Name]
		if !ok {
			n = -1
		}
		seen = append(seen, prompt.Observation{Probe: p, Tokens: n})
	}
	return prompt.Learn(prompt.Default(), seen)
}
