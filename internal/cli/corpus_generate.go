package cli

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirbench/weir/internal/corpus"
)

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
	intVar(fl, &opt.Traces, "traces", 64, 1, 10_000_000, "number of traces")
	fl.Uint64Var(&opt.Seed, "seed", 1, "seed")
	intVar(fl, &opt.Turns, "turns", 0, 0, 10_000_000, "median turns of an agent")
	intVar(fl, &opt.SystemTokens, "system", 0, 0, 10_000_000, "median tokens of tools and system prompt")
	fl.BoolVar(&opt.SharedSystem, "shared-system", false, "begin every agent with one system prompt, sub-agents with their root's")
	intVar(fl, &opt.FirstIn, "first-input", 0, 0, 10_000_000, "median tokens of the first prompt")
	intVar(fl, &opt.Growth, "growth", 0, 0, 10_000_000, "median tokens that a turn adds")
	intVar(fl, &opt.Out, "out", 0, 0, 10_000_000, "median output tokens of a turn")
	intVar(fl, &opt.Context, "context", 0, 0, 10_000_000, "median context at which a run is compacted")
	durationVar(fl, &think, "think", 0, 0, "median think time")
	fl.Float64Var(&opt.SubAgentShare, "sub-agents", 0, "share of turns in sub-agents; negative for none")
	intVar(fl, &opt.FanOut, "fan-out", 0, 0, 10_000_000, "most sub-agents that start side by side")
	fl.Float64Var(&opt.Rewrites, "rewrites", 0, "share of turns that rewrite the context; negative for none")
	fl.Float64Var(&opt.Resumes, "resumes", 0, "share of pauses over an hour behind which a new session begins; negative for none")
	intVar(fl, &opt.BlockSize, "block-size", 64, 1, 10_000_000, "tokens in a block")
	return cmd
}
