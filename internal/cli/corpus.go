package cli

import (
	"errors"
	"fmt"
	"slices"
	"text/tabwriter"

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
		newCorpusValidateCmd(app),
		newCorpusGenerateCmd(app),
		newCorpusFetchCmd(app),
		newCorpusCompileCmd(app),
		newCorpusConvertCmd(app),
		newCorpusFilterCmd(app),
		newCorpusSampleCmd(app),
		newCorpusAnonymizeCmd(app),
	)
	return cmd
}

// corpusFlags are the flags of every command that reads a corpus.
type corpusFlags struct{ opt corpus.LoadOptions }

func (f *corpusFlags) add(cmd *cobra.Command) {
	f.addSkip(cmd)
	fl := cmd.Flags()
	fl.Int64Var(&f.opt.BlockSize, "source-block-size", 0, "tokens in a block, for forms that don't record it (default 512 for Mooncake, 16 for Bailian, 64 for text)")
}

func (f *corpusFlags) addSkip(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.opt.SkipBroken, "skip-broken", false, "leave out traces that can't be read, and count them")
}

// load reads a corpus and says once what was passed over.
func (f *corpusFlags) load(app *App, path string) (*corpus.Corpus, error) {
	if f.opt.BlockSize < 0 {
		return nil, usagef("--source-block-size is %d: want at least 1", f.opt.BlockSize)
	}
	c, err := corpus.Load(path, f.opt)
	if err != nil {
		return nil, f.broken(err)
	}
	f.tell(app, c)
	return c, nil
}

// broken marks an error of reading and says how to go on without the broken traces.
func (f *corpusFlags) broken(err error) error {
	var fe *corpus.FormatError
	if errors.As(err, &fe) && !f.opt.SkipBroken {
		return usagef("%w (--skip-broken leaves broken traces out)", err)
	}
	return usage(err)
}

// tell prints what was left out and what was remarkable.
func (f *corpusFlags) tell(app *App, c *corpus.Corpus) {
	for _, err := range c.Skipped {
		fmt.Fprintf(app.Err, "weir: skipped: %v\n", err)
	}
	for _, n := range c.Notes {
		fmt.Fprintf(app.Err, "weir: note: %s\n", n)
	}
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
				return app.printJSON(viewTrace(t))
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
		return app.printJSON(map[string]any{"traces": lines, "skipped_traces": len(c.Skipped), "fingerprint": c.Fingerprint})
	}
	w := tabwriter.NewWriter(app.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "trace\tstreams\tturns\tpeak input\tseconds\tinfinite hit rate")
	for _, l := range lines {
		rate := "-"
		if l.Blocks > 0 {
			rate = fmt.Sprintf("%.3f", float64(l.HitBlocks)/float64(l.Blocks))
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", l.ID, count(l.Streams), count(l.Turns), count(l.PeakIn), number(l.Seconds, 0), rate)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(app.Out, "%d traces%s\n", len(c.Traces), skippedCount(c))
	return err
}

// traceView is a trace as JSON.
type traceView struct {
	ID           string       `json:"id"`
	BlockSize    int64        `json:"block_size"`
	Models       []string     `json:"models"`
	LengthsOnly  bool         `json:"lengths_only"`
	Estimated    bool         `json:"estimated"`
	DroppedTurns int          `json:"dropped_turns"`
	Streams      []streamView `json:"streams"`
}

type streamView struct {
	ID           string     `json:"id"`
	Kind         string     `json:"kind"`
	Label        string     `json:"label,omitempty"`
	Parent       *int       `json:"parent"`     // index of a stream; null for the root
	Spawn        *int       `json:"spawn_turn"` // of the parent
	Join         *int       `json:"join_turn"`  // of the parent; null for the root and in the background
	StartNs      int64      `json:"start_ns"`
	EndNs        int64      `json:"end_ns"`
	SystemTokens int64      `json:"system_tokens"`
	Turns        []turnView `json:"turns"`
}

type turnView struct {
	StartNs   int64  `json:"start_ns"`
	APINs     int64  `json:"service_ns"`
	ThinkNs   int64  `json:"think_ns"`
	TTFTNs    int64  `json:"ttft_ns"`
	In        int64  `json:"input_tokens"`
	Out       int64  `json:"output_tokens"`
	Model     string `json:"model"`
	Blocks    int    `json:"blocks"`
	HitBlocks *int   `json:"infinite_cache_hit_blocks"` // null when the trace records lengths only
}

func viewTrace(t *corpus.Trace) traceView {
	v := traceView{ID: t.ID, BlockSize: t.BlockSize, Models: t.Models, LengthsOnly: t.LengthsOnly, Estimated: t.Estimated, DroppedTurns: t.DroppedTurns}
	bound := func(i int) *int {
		if i == corpus.Unbound {
			return nil
		}
		return &i
	}
	hits := t.InfiniteHitBlocks()
	for i := range t.Streams {
		s := &t.Streams[i]
		sv := streamView{ID: s.ID, Kind: s.Kind.String(), Label: s.Label, Parent: bound(s.Parent), Spawn: bound(s.Spawn), Join: bound(s.Join),
			StartNs: s.StartNs, EndNs: s.EndNs, SystemTokens: s.SystemTokens}
		for k := range s.Turns {
			u := &s.Turns[k]
			tv := turnView{StartNs: u.StartNs, APINs: u.APINs, ThinkNs: u.ThinkNs, TTFTNs: u.TTFTNs, In: u.In, Out: u.Out,
				Model: t.Models[u.Model], Blocks: len(u.Blocks)}
			if !t.LengthsOnly {
				tv.HitBlocks = &hits[i][k]
			}
			sv.Turns = append(sv.Turns, tv)
		}
		v.Streams = append(v.Streams, sv)
	}
	return v
}
