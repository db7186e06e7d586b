package cli

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/weirbench/weir/internal/corpus"
	"github.com/weirbench/weir/internal/prompt"
	"github.com/weirbench/weir/internal/spec"
)

func newPromptCmd(app *App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "prompt",
		Short: "Show the prompts that a trace is turned into, and the words they are made of",
		Example: `  weir corpus generate -o traces --traces 20
  weir prompt show traces --turn 1`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			return usagef("unknown command %q (see '%s --help')", args[0], cmd.CommandPath())
		},
	}
	cmd.AddCommand(newPromptShowCmd(app), newPromptWordsCmd(app))
	return cmd
}

// promptFlags name one request and how it is written.
type promptFlags struct {
	corpus             corpusFlags
	trace, stream      string
	turn               int
	endpoint, model    string
	tokenizer          string
	salt               string
	seed               uint64
	play, lane         int
	maxOut             int64
	legacy, eos, whole bool
	extra              string
	template           prompt.Template
	body               bool
}

func newPromptShowCmd(app *App) *cobra.Command {
	var f promptFlags
	cmd := &cobra.Command{
		Use:   "show CORPUS",
		Short: "Show the messages of one recorded turn, or the body that is sent for it",
		Long: `Show the messages that one recorded turn is sent as: who they are from, the blocks they
are made of and their tokens, the template's own tokens left aside. With --body the bytes
of the request are written instead, as they would be sent.`,
		Example: `  weir prompt show traces --turn 2
  weir prompt show traces --turn 2 --body --salt first_turn_prefix | wc -c`,
		Args: exactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return showPrompt(app, args[0], &f) },
	}
	f.corpus.add(cmd)
	fl := cmd.Flags()
	fl.StringVar(&f.trace, "trace", "", "id of the trace (default: the first)")
	fl.StringVar(&f.stream, "stream", "", "id of the stream (default: the root)")
	fl.IntVar(&f.turn, "turn", 0, "turn of the stream, from 0")
	fl.BoolVar(&f.body, "body", false, "write the body of the request")
	fl.StringVar(&f.endpoint, "endpoint", "chat", "chat, completions, completions-ids, generate, messages or responses")
	fl.StringVar(&f.model, "model", "model", "model to ask for")
	fl.StringVar(&f.tokenizer, "tokenizer", "", "tokenizer.json or tiktoken.model to take the words from")
	fl.StringVar(&f.salt, "salt", "none", "none, system_prefix, system_suffix, first_turn_prefix or first_turn_suffix")
	fl.Uint64Var(&f.seed, "seed", 0, "seed of the salt")
	fl.IntVar(&f.play, "play", 0, "play of the trace, for the salt")
	fl.IntVar(&f.lane, "lane", 0, "lane, for the salt")
	fl.Int64Var(&f.maxOut, "max-tokens", -1, "tokens to ask for (default: the recorded output)")
	fl.BoolVar(&f.legacy, "use-legacy-max-tokens", false, "write max_tokens instead of max_completion_tokens")
	fl.BoolVar(&f.eos, "ignore-eos", false, "ask the server to go on to the last token")
	fl.BoolVar(&f.whole, "no-stream", false, "ask for the answer in one piece")
	fl.StringVar(&f.extra, "extra", "", "JSON object of further members")
	fl.Int64Var(&f.template.Fixed, "overhead-fixed", 0, "tokens of the template in every prompt that begins with a user message")
	fl.Int64Var(&f.template.FixedSystem, "overhead-system", 0, "the same in every prompt that begins with a system message, its header included")
	fl.Int64Var(&f.template.User, "overhead-user", 0, "tokens of the template for every user message")
	fl.Int64Var(&f.template.Assistant, "overhead-assistant", 0, "tokens of the template for every assistant message")
	fl.Int64Var(&f.template.Salt, "overhead-salt", 0, "tokens of a salt")
	return cmd
}

// promptRow is one message in --json.
type promptRow struct {
	Role   string `json:"role"`
	Blocks int    `json:"blocks"`
	Start  int    `json:"first_block"`
	Tail   int64  `json:"tail"`
	Given  int64  `json:"left_out"`
	Tokens int64  `json:"tokens"`
}

func showPrompt(app *App, path string, f *promptFlags) error {
	c, err := f.corpus.load(app, path)
	if err != nil {
		return err
	}
	b, e, err := f.builder()
	if err != nil {
		return usage(err)
	}
	q, err := f.request(c)
	if err != nil {
		return usage(err)
	}
	body, err := b.Body(e, q)
	if err != nil {
		return usage(err)
	}
	if f.body {
		_, err := io.Copy(app.Out, body.Open())
		return err
	}
	segs, err := b.Segments(q.Trace, q.Stream, q.Turn, q.Salt != "")
	if err != nil {
		return usage(err)
	}
	rows := make([]promptRow, len(segs))
	for i, s := range segs {
		rows[i] = promptRow{s.Role.String(), s.Blocks, s.Start, s.Tail, s.Given, int64(s.Blocks)*q.Trace.BlockSize + s.Tail - s.Given}
	}
	s := &q.Trace.Streams[q.Stream]
	if app.JSON {
		return app.printJSON(map[string]any{
			"trace": q.Trace.ID, "stream": s.ID, "turn": q.Turn, "endpoint": e.String(), "bytes": body.Len(),
			"recorded_tokens": body.Recorded(), "prompt_tokens": body.Tokens(), "salt": q.Salt, "messages": rows,
		})
	}
	fmt.Fprintf(app.Out, "%s turn %d of %d: %s tokens recorded, %s sent, %s bytes to %s\n\n",
		s.ID, q.Turn, len(s.Turns), count(body.Recorded()), count(body.Tokens()), count(body.Len()), e.Path())
	w := tabwriter.NewWriter(app.Out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "role\tblocks\tfirst\ttail\tleft out\ttokens\t")
	for _, r := range rows {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t\n", r.Role, count(r.Blocks), count(r.Start), count(r.Tail), count(r.Given), count(r.Tokens))
	}
	return w.Flush()
}

func (f *promptFlags) builder() (*prompt.Builder, prompt.Endpoint, error) {
	e, err := prompt.ParseEndpoint(f.endpoint)
	if err != nil {
		return nil, 0, fmt.Errorf("--endpoint: %w", err)
	}
	o := prompt.Options{Models: []string{f.model}, Whole: f.whole, LegacyMaxTokens: f.legacy, IgnoreEOS: f.eos,
		Extra: []byte(f.extra), Template: f.template}
	if err := o.Salt.UnmarshalText([]byte(f.salt)); err != nil {
		return nil, 0, fmt.Errorf("--salt: %w", err)
	}
	words := prompt.Default()
	if f.tokenizer != "" {
		if words, err = readWords(f.tokenizer); err != nil {
			return nil, 0, err
		}
		o.IDs = words.AsIDs()
	}
	b, err := prompt.New(words, o)
	return b, e, err
}

func (f *promptFlags) request(c *corpus.Corpus) (prompt.Request, error) {
	q := prompt.Request{Turn: f.turn, MaxOut: f.maxOut}
	for _, t := range c.Traces {
		if f.trace == "" || t.ID == f.trace {
			q.Trace = t
			break
		}
	}
	if q.Trace == nil {
		return q, fmt.Errorf("--trace %s: %s has no trace of this id; 'weir corpus stats' lists its %d", f.trace, c.Name, len(c.Traces))
	}
	if f.stream != "" {
		q.Stream = -1
		var ids []string
		for i := range q.Trace.Streams {
			if ids = append(ids, q.Trace.Streams[i].ID); ids[i] == f.stream {
				q.Stream = i
			}
		}
		if q.Stream < 0 {
			return q, fmt.Errorf("--stream %s: trace %s has %s", f.stream, q.Trace.ID, strings.Join(ids, ", "))
		}
	}
	turns := q.Trace.Streams[q.Stream].Turns
	if f.turn < 0 || f.turn >= len(turns) {
		return q, fmt.Errorf("--turn %d: stream %s has turns 0 to %d", f.turn, q.Trace.Streams[q.Stream].ID, len(turns)-1)
	}
	if q.MaxOut < 0 {
		q.MaxOut = turns[f.turn].Out
	}
	if f.salt != "none" {
		q.Salt = prompt.Salt(f.seed, q.Trace.ID, f.play, f.lane)
	}
	return q, nil
}

func readWords(path string) (*prompt.Words, error) {
	data, err := spec.ReadFile(path, tokenizerLimit)
	if err != nil {
		return nil, err
	}
	_, words, err := readTokenizer(filepath.Base(path), data)
	return words, err
}

func newPromptWordsCmd(app *App) *cobra.Command {
	return &cobra.Command{
		Use:   "words [TOKENIZER]",
		Short: "List the words that prompts are made of: each is one token with a leading space",
		Long: `List the words that prompts are made of, one a line: the embedded list, or the words of
a tokenizer.json or tiktoken.model with their token ids. The column first tells which are
one token without the leading space too; those begin messages.`,
		Example: "  weir prompt words | head",
		Args:    func(cmd *cobra.Command, args []string) error { return usage(cobra.MaximumNArgs(1)(cmd, args)) },
		RunE: func(_ *cobra.Command, args []string) error {
			w := prompt.Default()
			if len(args) == 1 {
				var err error
				if w, err = readWords(args[0]); err != nil {
					return usage(err)
				}
			}
			list, first := w.List()
			ids := w.IDs()
			if app.JSON {
				return app.printJSON(map[string]any{"name": w.Name(), "words": list, "first": first, "ids": ids})
			}
			tw := tabwriter.NewWriter(app.Out, 0, 0, 2, ' ', 0)
			fmt.Fprintln(tw, "word\tfirst\tid")
			for i, s := range list {
				id, yes := "-", "no"
				if ids != nil {
					id = fmt.Sprint(ids[i])
				}
				if i < first {
					yes = "yes"
				}
				fmt.Fprintf(tw, "%s\t%s\t%s\n", s, yes, id)
			}
			return tw.Flush()
		},
	}
}
