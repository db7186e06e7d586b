package cli

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirbench/weir/internal/corpus"
)

func newCorpusCmd(app *App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "corpus",
		Short: "Look at, generate and prepare traces of agent runs",
		Example: `  weir corpus generate -o traces --traces 20
  weir corpus stats traces`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			return usagef("unknown command %q (see '%s --help')", args[0], cmd.CommandPath())
		},
	}
	cmd.AddCommand(
		newCorpusStatsCmd(app),
		newCorpusShowCmd(app),
		newCorpusGenerateCmd(app),
	)
	return cmd
}

// corpusFlags are the flags of every command that reads a corpus.
type corpusFlags struct{ skipBroken bool }

func (f *corpusFlags) add(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.skipBroken, "skip-broken", false, "leave out traces that can't be read, and count them")
}

// load reads a corpus and says once what was passed over.
func (f *corpusFlags) load(app *App, path string) (*corpus.Corpus, error) {
	c, err := corpus.Load(path, corpus.LoadOptions{SkipBroken: f.skipBroken})
	if err != nil {
		var fe *corpus.FormatError
		if errors.As(err, &fe) && !f.skipBroken {
			return nil, usagef("%w (--skip-broken leaves broken traces out)", err)
		}
		return nil, usage(err)
	}
	for _, err := range c.Skipped {
		fmt.Fprintf(app.Err, "weir: skipped: %v\n", err)
	}
	for _, n := range c.Notes {
		fmt.Fprintf(app.Err, "weir: note: %s\n", n)
	}
	return c, nil
}

func newCorpusStatsCmd(app *App) *cobra.Command {
	var f corpusFlags
	cmd := &cobra.Command{
		Use:   "stats CORPUS...",
		Short: "Print statistics of one corpus, or of several side by side",
		Example: `  weir corpus stats traces
  weir corpus stats recorded generated --json`,
		Args: minArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var all []*corpus.Stats
			for _, path := range args {
				c, err := f.load(app, path)
				if err != nil {
					return err
				}
				all = append(all, c.Stats())
			}
			if app.JSON {
				if len(all) == 1 {
					return app.printJSON(all[0])
				}
				return app.printJSON(all)
			}
			return printStats(app, all)
		},
	}
	f.add(cmd)
	return cmd
}

func printStats(app *App, all []*corpus.Stats) error {
	w := tabwriter.NewWriter(app.Out, 0, 0, 2, ' ', 0)
	row := func(name string, cell func(*corpus.Stats) string) {
		cells := []string{name}
		for _, s := range all {
			cells = append(cells, cell(s))
		}
		fmt.Fprintln(w, strings.Join(cells, "\t"))
	}
	num := func(name string, v func(*corpus.Stats) int64) {
		row(name, func(s *corpus.Stats) string { return fmt.Sprint(v(s)) })
	}
	row("corpus", func(s *corpus.Stats) string { return s.Name })
	row("fingerprint", func(s *corpus.Stats) string { return s.Fingerprint })
	num("traces", func(s *corpus.Stats) int64 { return int64(s.Traces) })
	num("skipped traces", func(s *corpus.Stats) int64 { return int64(s.Skipped) })
	num("streams", func(s *corpus.Stats) int64 { return int64(s.Streams) })
	kinds := []corpus.Kind{corpus.Root, corpus.SubAgent, corpus.FlatAgent, corpus.WorkerGroup, corpus.Aux}
	for _, k := range kinds {
		num("  "+k.String(), func(s *corpus.Stats) int64 { return int64(s.StreamsBy[k.String()]) })
	}
	num("  of these in the background", func(s *corpus.Stats) int64 { return int64(s.Background) })
	num("turns", func(s *corpus.Stats) int64 { return int64(s.Turns) })
	num("dropped turns", func(s *corpus.Stats) int64 { return int64(s.DroppedTurns) })
	row("sub-agents' share of turns", func(s *corpus.Stats) string { return fmt.Sprintf("%.4f", s.SubAgentShare) })
	num("compactions", func(s *corpus.Stats) int64 { return int64(s.Compactions) })
	num("input tokens", func(s *corpus.Stats) int64 { return s.InTokens })
	num("output tokens", func(s *corpus.Stats) int64 { return s.OutTokens })
	num("blocks in all prompts", func(s *corpus.Stats) int64 { return s.TotalBlocks })
	num("different blocks", func(s *corpus.Stats) int64 { return s.UniqueBlocks })
	row("hit rate, infinite cache", func(s *corpus.Stats) string {
		if s.Infinite == nil {
			return "unknown: no block ids"
		}
		return fmt.Sprintf("%.4f", s.Infinite.Rate)
	})
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(app.Out)

	w = tabwriter.NewWriter(app.Out, 0, 0, 2, ' ', tabwriter.AlignRight)
	head := "\tn\tmean\tmin\tp10\tp25\tp50\tp75\tp90\tp95\tp99\tmax\t"
	fmt.Fprintln(w, head)
	for _, d := range []struct {
		name string
		get  func(*corpus.Stats) *corpus.Dist
		prec int
	}{
		{"turns per trace", func(s *corpus.Stats) *corpus.Dist { return s.TurnsPerTrace }, 0},
		{"input tokens", func(s *corpus.Stats) *corpus.Dist { return s.In }, 0},
		{"output tokens", func(s *corpus.Stats) *corpus.Dist { return s.Out }, 0},
		{"new tokens", func(s *corpus.Stats) *corpus.Dist { return s.New }, 0},
		{"context growth", func(s *corpus.Stats) *corpus.Dist { return s.Growth }, 0},
		{"gap, s", func(s *corpus.Stats) *corpus.Dist { return s.GapSeconds }, 1},
		{"think time, s", func(s *corpus.Stats) *corpus.Dist { return s.ThinkSeconds }, 1},
		{"service time, s", func(s *corpus.Stats) *corpus.Dist { return s.APISeconds }, 1},
		{"trace duration, s", func(s *corpus.Stats) *corpus.Dist { return s.TraceSeconds }, 0},
		{"peak context", func(s *corpus.Stats) *corpus.Dist { return s.PeakContext }, 0},
		{"different tokens per trace", func(s *corpus.Stats) *corpus.Dist { return s.UniqueTokens }, 0},
		{"sub-agents per trace", func(s *corpus.Stats) *corpus.Dist { return s.AgentsPerTrace }, 0},
		{"prefix reuse per trace", func(s *corpus.Stats) *corpus.Dist { return s.PrefixReuse }, 3},
		{"infinite hit rate per trace", func(s *corpus.Stats) *corpus.Dist { return s.InfinitePerTrace }, 3},
	} {
		for i, s := range all {
			name := d.name
			if len(all) > 1 {
				name = fmt.Sprintf("%s [%d]", d.name, i+1)
			}
			v := d.get(s)
			if v == nil {
				fmt.Fprintf(w, "%s\t0\t%s\n", name, strings.Repeat("-\t", 10))
				continue
			}
			fmt.Fprintf(w, "%s\t%d\t", name, v.N)
			for _, x := range []float64{v.Mean, v.Min, v.P10, v.P25, v.P50, v.P75, v.P90, v.P95, v.P99, v.Max} {
				fmt.Fprintf(w, "%.*f\t", d.prec, x)
			}
			fmt.Fprintln(w)
		}
	}
	return w.Flush()
}

func newCorpusShowCmd(app *App) *cobra.Command {
	var f corpusFlags
	cmd := &cobra.Command{
		Use:   "show CORPUS [TRACE]",
		Short: "Draw the tree of a trace with times and joins",
		Long:  "Draw the tree of a trace: its streams, where each is spawned, and which turn waits for it.\nWithout TRACE the traces of the corpus are listed; a corpus of one trace is drawn at once.",
		Example: `  weir corpus show traces gen_0003
  weir corpus show traces/gen_0003.json`,
		Args: func(cmd *cobra.Command, args []string) error { return usage(cobra.RangeArgs(1, 2)(cmd, args)) },
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := f.load(app, args[0])
			if err != nil {
				return err
			}
			t := c.Traces[0]
			switch {
			case len(args) == 2:
				i := slices.IndexFunc(c.Traces, func(t *corpus.Trace) bool { return t.ID == args[1] })
				if i < 0 {
					return usagef("%s has no trace %q; weir corpus show %s lists them", args[0], args[1], args[0])
				}
				t = c.Traces[i]
			case len(c.Traces) > 1:
				return listTraces(app, c)
			}
			if app.JSON {
				return app.printJSON(t)
			}
			return corpus.WriteTree(app.Out, t)
		},
	}
	f.add(cmd)
	return cmd
}

// traceLine is one row of the list of traces.
type traceLine struct {
	ID        string  `json:"id"`
	Streams   int     `json:"streams"`
	Turns     int     `json:"turns"`
	PeakIn    int64   `json:"peak_input_tokens"`
	Seconds   float64 `json:"seconds"`
	Blocks    int64   `json:"blocks"`
	HitBlocks int64   `json:"hit_blocks"`
}

func listTraces(app *App, c *corpus.Corpus) error {
	var lines []traceLine
	for _, t := range c.Traces {
		h := t.InfiniteHits()
		l := traceLine{ID: t.ID, Streams: len(t.Streams), Blocks: h.TotalBlocks, HitBlocks: h.HitBlocks}
		var end int64
		for i := range t.Streams {
			l.Turns += len(t.Streams[i].Turns)
			for k := range t.Streams[i].Turns {
				l.PeakIn = max(l.PeakIn, t.Streams[i].Turns[k].In)
				end = max(end, t.Streams[i].Turns[k].EndNs())
			}
		}
		l.Seconds = float64(end-t.Streams[0].StartNs) / 1e9
		lines = append(lines, l)
	}
	if app.JSON {
		return app.printJSON(lines)
	}
	w := tabwriter.NewWriter(app.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "trace\tstreams\tturns\tpeak input\tseconds\tinfinite hit rate")
	for _, l := range lines {
		rate := "-"
		if l.Blocks > 0 {
			rate = fmt.Sprintf("%.3f", float64(l.HitBlocks)/float64(l.Blocks))
		}
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%.0f\t%s\n", l.ID, l.Streams, l.Turns, l.PeakIn, l.Seconds, rate)
	}
	return w.Flush()
}

func newCorpusGenerateCmd(app *App) *cobra.Command {
	var opt corpus.GenerateOptions
	var dir string
	var think time.Duration
	cmd := &cobra.Command{
		Use:   "generate -o DIR",
		Short: "Write made-up agent runs that follow measured distributions",
		Long: `Write made-up agent runs in the Weka form: their lengths, growth, pauses, prefix reuse and
sub-agents follow what was measured on recorded runs. A knob that is 0 takes the measured value.
Equal flags give equal files on any machine.`,
		Example: `  weir corpus generate -o traces --traces 100 --seed 7
  weir corpus generate -o long --turns 200 --growth 2000 --sub-agents 0.24`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			if dir == "" {
				return usagef("-o DIR is missing: where should the traces be written?")
			}
			opt.ThinkNs = int64(think)
			c, err := corpus.Generate(opt)
			if err != nil {
				return usage(err)
			}
			if err := corpus.WriteWekaDir(dir, c); err != nil {
				var pe *os.PathError
				if errors.As(err, &pe) {
					return err
				}
				return usage(err)
			}
			if app.JSON {
				return app.printJSON(map[string]any{"directory": dir, "traces": len(c.Traces), "fingerprint": c.Fingerprint})
			}
			_, err = fmt.Fprintf(app.Out, "%d traces in %s, fingerprint %s\n", len(c.Traces), dir, c.Fingerprint)
			return err
		},
	}
	fl := cmd.Flags()
	fl.StringVarP(&dir, "output", "o", "", "directory for the traces")
	fl.IntVar(&opt.Traces, "traces", 64, "number of traces")
	fl.Uint64Var(&opt.Seed, "seed", 1, "seed")
	fl.Int64Var(&opt.Turns, "turns", 0, "median turns of an agent")
	fl.Int64Var(&opt.SystemTokens, "system", 0, "median tokens of tools and system prompt")
	fl.BoolVar(&opt.SharedSystem, "shared-system", false, "give every trace a system prompt of one length")
	fl.Int64Var(&opt.FirstIn, "first-input", 0, "median tokens of the first prompt")
	fl.Int64Var(&opt.Growth, "growth", 0, "median tokens that a turn adds")
	fl.Int64Var(&opt.Out, "out", 0, "median output tokens of a turn")
	fl.Int64Var(&opt.Context, "context", 0, "median context at which a run is compacted")
	fl.DurationVar(&think, "think", 0, "median think time")
	fl.Float64Var(&opt.SubAgentShare, "sub-agents", 0, "share of turns in sub-agents; negative for none")
	fl.IntVar(&opt.FanOut, "fan-out", 0, "most sub-agents that start side by side")
	fl.Float64Var(&opt.Rewrites, "rewrites", 0, "share of turns that rewrite the context; negative for none")
	fl.Int64Var(&opt.BlockSize, "block-size", 64, "tokens in a block")
	return cmd
}
