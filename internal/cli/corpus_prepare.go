package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/weirbench/weir/internal/corpus"
)

func newCorpusValidateCmd(app *App) *cobra.Command {
	var f corpusFlags
	cmd := &cobra.Command{
		Use:   "validate CORPUS",
		Short: "List all faults of a corpus, and what is remarkable about its traces",
		Long:  "List all faults of a corpus, and what is remarkable about its traces.\nEnds with code 2 when a trace is broken, 0 when there are remarks only.",
		Example: `  weir corpus validate traces
  weir corpus validate traces --json`,
		Args: exactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			v, err := corpus.Validate(args[0], f.opt)
			if app.JSON {
				if err := app.printJSON(v); err != nil {
					return err
				}
			} else {
				remarks := 0
				for _, x := range v.Findings {
					word := "fault"
					if !x.Fault {
						word = "remark"
						remarks++
					}
					where := ""
					if x.Trace != "" {
						where = x.Trace + ": "
					}
					fmt.Fprintf(app.Out, "%s: %s%s\n", word, where, x.Text)
				}
				fmt.Fprintf(app.Out, "%d traces whole, %d broken, %d remarks\n", v.Traces, v.Broken, remarks)
			}
			if err != nil {
				return usage(err)
			}
			if v.Broken > 0 {
				return usagef("%s: %d broken traces", args[0], v.Broken)
			}
			return nil
		},
	}
	cmd.Flags().Int64Var(&f.opt.BlockSize, "source-block-size", 0, "tokens in a block, for forms that don't record it")
	return cmd
}

func newCorpusCompileCmd(app *App) *cobra.Command {
	var f corpusFlags
	var out string
	cmd := &cobra.Command{
		Use:   "compile CORPUS -o FILE",
		Short: "Prepare a corpus as one file that loads in place",
		Long: `Prepare a corpus as one file that loads in place. Every command takes the file instead of the
corpus. Nothing is written when the file holds this content already; a torn file is replaced.`,
		Example: `  weir corpus compile traces -o traces.weir
  weir corpus stats traces.weir`,
		Args: exactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if out == "" {
				return usagef("-o FILE is missing: where should the compiled corpus be written?")
			}
			done, err := corpus.Compile(args[0], out, f.opt)
			if err != nil {
				return writing(f.broken(err), err)
			}
			if !done.Fresh {
				f.tell(app, done.Corpus)
			}
			if app.JSON {
				torn := ""
				if done.Torn != nil {
					torn = done.Torn.Error()
				}
				return app.printJSON(map[string]any{"file": out, "bytes": done.Bytes, "fresh": done.Fresh, "torn": torn, "key": done.Content,
					"traces": len(done.Corpus.Traces), "skipped_traces": len(done.Corpus.Skipped), "fingerprint": done.Corpus.Fingerprint})
			}
			if done.Torn != nil {
				fmt.Fprintf(app.Err, "weir: note: replaced %s: %v\n", out, done.Torn)
			}
			state := "written"
			if done.Fresh {
				state = "up to date"
			}
			_, err = fmt.Fprintf(app.Out, "%s %s: %d traces%s, %s bytes, fingerprint %s\n", out, state, len(done.Corpus.Traces), skippedCount(done.Corpus), count(done.Bytes), done.Corpus.Fingerprint)
			return err
		},
	}
	f.add(cmd)
	cmd.Flags().StringVarP(&out, "output", "o", "", "file to write")
	return cmd
}

// writing keeps errors of the file system, such as a full disk, failures; others are marked.
func writing(marked, err error) error {
	var pe *fs.PathError
	var fe *corpus.FormatError
	if errors.As(err, &pe) && !errors.As(err, &fe) && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return marked
}

// skippedCount is part of every line about a corpus that was read with --skip-broken.
func skippedCount(c *corpus.Corpus) string { return skippedText(len(c.Skipped)) }

func skippedText(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(" (%d broken ones skipped)", n)
}

// corpusOutput is where and in which form a command writes traces.
type corpusOutput struct {
	path   string
	format string
	plain  bool
}

const outputForms = "weka, lines, mooncake or compiled"

func (o *corpusOutput) add(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVarP(&o.path, "output", "o", "", "directory or file to write")
	fl.StringVar(&o.format, "format", "", outputForms+"; default by the name: *.jsonl[.gz|.zst] is lines, *.weir compiled, else a directory of weka")
	fl.BoolVar(&o.plain, "plain", false, "mooncake without Weir's own members: what the form has no place for is lost")
}

// write writes a corpus and prints what was written.
func (o *corpusOutput) write(app *App, c *corpus.Corpus, report any) error {
	if o.path == "" {
		return usagef("-o is missing: where should the traces be written?")
	}
	form := o.format
	if form == "" {
		name := strings.TrimSuffix(strings.TrimSuffix(o.path, ".gz"), ".zst")
		switch {
		case strings.HasSuffix(name, ".jsonl"), strings.HasSuffix(name, ".ndjson"):
			form = "lines"
		case strings.HasSuffix(name, ".weir"):
			form = "compiled"
		default:
			form = "weka"
		}
	}
	var err error
	switch form {
	case "weka":
		err = corpus.WriteWekaDir(o.path, c)
	case "lines":
		err = corpus.WriteWekaLines(o.path, c)
	case "mooncake":
		err = corpus.WriteMooncake(o.path, c, !o.plain)
	case "compiled":
		err = corpus.WriteCompiled(o.path, c)
	default:
		return usagef("--format is %q: want %s", form, outputForms)
	}
	if err != nil {
		return writing(usage(err), err)
	}
	if app.JSON {
		return app.printJSON(map[string]any{"output": o.path, "format": form, "traces": len(c.Traces), "skipped_traces": len(c.Skipped),
			"fingerprint": c.Fingerprint, "report": report})
	}
	_, err = fmt.Fprintf(app.Out, "%s: %d traces%s as %s, fingerprint %s\n", o.path, len(c.Traces), skippedCount(c), form, c.Fingerprint)
	return err
}

func newCorpusConvertCmd(app *App) *cobra.Command {
	var f corpusFlags
	var out corpusOutput
	var block int64
	cmd := &cobra.Command{
		Use:   "convert CORPUS -o OUT",
		Short: "Write a corpus in another form",
		Example: `  weir corpus convert traces -o traces.jsonl.zst
  weir corpus convert traces -o mooncake.jsonl --format mooncake --block-size 512`,
		Args: exactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			c, err := f.load(app, args[0])
			if err != nil {
				return err
			}
			if block != 0 {
				if c, err = c.Reblock(block); err != nil {
					return usage(err)
				}
			}
			return out.write(app, c, nil)
		},
	}
	f.add(cmd)
	out.add(cmd)
	cmd.Flags().Int64Var(&block, "block-size", 0, "join blocks to blocks of so many tokens")
	return cmd
}

func newCorpusFilterCmd(app *App) *cobra.Command {
	var f corpusFlags
	var out corpusOutput
	var opt corpus.FilterOptions
	cmd := &cobra.Command{
		Use:   "filter CORPUS -o OUT",
		Short: "Leave out traces or turns",
		Long: `Leave out traces or turns. --max-context leaves out whole traces with a turn of more tokens in
and out, as AIPerf's --max-context-length does; with --drop-turns only those turns go and the
others keep their times, as in the AgentX corpora named _256k.`,
		Example: `  weir corpus filter traces -o small --max-context 131072
  weir corpus filter traces -o capped --max-context 256000 --drop-turns --min-turns 2`,
		Args: exactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if opt == (corpus.FilterOptions{}) {
				return usagef("nothing to filter by: want --max-context, --min-turns, --no-sub-agents, --no-duplicates or --limit")
			}
			if opt.DropTurns && opt.MaxContext == 0 {
				return usagef("--drop-turns needs --max-context: which turns should go?")
			}
			if opt.MaxContext < 0 || opt.MinTurns < 0 || opt.Limit < 0 {
				return usagef("--max-context, --min-turns and --limit count from 0")
			}
			c, err := f.load(app, args[0])
			if err != nil {
				return err
			}
			c, rep, err := c.Filter(opt)
			if err != nil {
				return usage(err)
			}
			if !app.JSON {
				w := tabwriter.NewWriter(app.Out, 0, 0, 2, ' ', 0)
				for _, r := range []struct {
					name string
					n    int
				}{{"traces", rep.Traces}, {"left out: over the context", rep.OverContext}, {"left out: no turn left", rep.EmptiedByTurns},
					{"left out: too few turns", rep.TooShort}, {"left out: duplicates", rep.Duplicates}, {"left out: over the limit", rep.OverLimit},
					{"kept", rep.Kept}, {"turns", rep.Turns}, {"turns dropped", rep.DroppedTurns}, {"streams dropped", rep.DroppedStreams + rep.ChildrenRemoved}} {
					fmt.Fprintf(w, "%s\t%d\n", r.name, r.n)
				}
				if err := w.Flush(); err != nil {
					return err
				}
			}
			return out.write(app, c, rep)
		},
	}
	f.add(cmd)
	out.add(cmd)
	fl := cmd.Flags()
	fl.Int64Var(&opt.MaxContext, "max-context", 0, "most tokens in and out of a turn")
	fl.BoolVar(&opt.DropTurns, "drop-turns", false, "drop the turns over --max-context instead of their traces")
	fl.IntVar(&opt.MinTurns, "min-turns", 0, "fewest turns of a trace")
	fl.BoolVar(&opt.NoChildren, "no-sub-agents", false, "keep root streams only")
	fl.BoolVar(&opt.DropDuplicates, "no-duplicates", false, "of traces with equal content keep the first")
	fl.IntVar(&opt.Limit, "limit", 0, "most traces, the first ones that are left")
	return cmd
}

func newCorpusSampleCmd(app *App) *cobra.Command {
	var f corpusFlags
	var out corpusOutput
	var n int
	var seed uint64
	cmd := &cobra.Command{
		Use:   "sample CORPUS -n N -o OUT",
		Short: "Draw traces that keep the hit rate by capacity and the working set",
		Long: `Draw traces so that the hit rate by cache capacity and the working set stay what they are in
the whole corpus, and print how well they do. Equal seeds give equal samples.`,
		Example: `  weir corpus sample traces -n 20 -o sample`,
		Args:    exactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if n == 0 {
				return usagef("-n is missing: how many traces?")
			}
			c, err := f.load(app, args[0])
			if err != nil {
				return err
			}
			c, rep, err := c.Sample(n, seed)
			if err != nil {
				return usage(err)
			}
			if !app.JSON {
				if err := printSample(app, rep); err != nil {
					return err
				}
			}
			return out.write(app, c, rep)
		},
	}
	f.add(cmd)
	out.add(cmd)
	cmd.Flags().IntVarP(&n, "traces", "n", 0, "number of traces")
	cmd.Flags().Uint64Var(&seed, "seed", 1, "seed")
	return cmd
}

func printSample(app *App, rep *corpus.SampleReport) error {
	w := tabwriter.NewWriter(app.Out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "\tall %d\tsample of %d\terror\t\n", rep.Of, rep.Traces)
	for _, r := range []struct {
		name string
		k    corpus.Kept
		prec int
	}{{"different tokens, mean", rep.WorkingSet, 0}, {"different tokens, p90", rep.WorkingSetP90, 0}, {"largest prompt, mean", rep.Peak, 0},
		{"turns, mean", rep.Turns, 1}, {"children's share of turns", rep.ChildShare, 3}} {
		fmt.Fprintf(w, "%s\t%s\t%s\t%+.1f %%\t\n", r.name, number(r.k.Full, r.prec), number(r.k.Sample, r.prec), 100*r.k.Error)
	}
	for _, p := range rep.Curve {
		fmt.Fprintf(w, "hit rate, %s tokens\t%.4f\t%.4f\t%+.4f\t\n", count(p.CapacityTokens), p.Full, p.Sample, p.Sample-p.Full)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(app.Out, "largest difference of the hit rate: %.4f at %s tokens; %d strata, best of %d draws\n", rep.MaxCurveError, count(rep.AtTokens), rep.Strata, rep.Tried)
	return err
}

func newCorpusAnonymizeCmd(app *App) *cobra.Command {
	var f corpusFlags
	var out corpusOutput
	cmd := &cobra.Command{
		Use:   "anonymize CORPUS -o OUT",
		Short: "Write a corpus under new ids and names, with the same structure",
		Long: `Write a corpus with numbered trace ids, sub-agents, models and blocks, and without any field
that the schema doesn't know. Lengths, times and structure stay, and so does the fingerprint.`,
		Example: `  weir corpus anonymize traces -o public`,
		Args:    exactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			c, err := f.load(app, args[0])
			if err != nil {
				return err
			}
			return out.write(app, c.Anonymize(), nil)
		},
	}
	f.add(cmd)
	out.add(cmd)
	return cmd
}
