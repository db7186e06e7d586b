package cli

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirbench/weir/internal/client"
	"github.com/weirbench/weir/internal/prompt"
	"github.com/weirbench/weir/internal/record"
	"github.com/weirbench/weir/internal/replay"
	"github.com/weirbench/weir/internal/result"
	"github.com/weirbench/weir/internal/run"
	"github.com/weirbench/weir/internal/spec"
)

func newReplayCmd(app *App) *cobra.Command {
	var (
		cf                               clientFlags
		model, corpusPath, out, tok, ext string
		conc, gpus                       int
		duration                         time.Duration
		knobs                            replayKnobs
		cover                            coverageLimit
		seed                             uint64
		noProbe, legacy                  bool
		traces                           corpusFlags
		mf                               metricsFlags
	)
	cmd := &cobra.Command{
		Use:   "replay --url URL --model NAME --corpus DIR -c N --duration D",
		Short: "Replay agent traces against a running server: one point",
		Long: `Replay sends what the recorded agents sent, when they would have sent it, to any
OpenAI-compatible server, and writes a bundle with its result. It ends with exit code 3
when the result is not valid, and says why.`,
		Example: `  weir replay --url http://127.0.0.1:8000 --model my-model --corpus traces/ -c 8 --duration 10m`,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := cf.config(app.Err)
			if err != nil {
				return usage(err)
			}
			calibrator, err := cf.calibrator(duration)
			if err != nil {
				return usage(err)
			}
			switch {
			case model == "":
				return usagef("no model: name the served model with --model")
			case corpusPath == "":
				return usagef("no corpus: name a directory or file of traces with --corpus")
			case duration <= 0 && knobs.o.MaxRequests == 0 && knobs.o.MaxTrees == 0:
				return usagef("nothing ends the run: set --duration, --max-requests or --max-trees")
			}
			if err := withoutOther(cmd.Flags()); err != nil {
				return err
			}
			words, counter, err := app.tokenizer(tok)
			if err != nil {
				return usage(err)
			}
			c, err := traces.load(app, corpusPath)
			if err != nil {
				return err
			}
			p := &spec.Point{
				Key: "replay", Name: fmt.Sprintf("%s_conc%d", model, conc), Model: model, Framework: "external",
				Scenario: spec.AgenticCoding, Conc: conc, SpecDecoding: "none", Offload: spec.Offload{Mode: "none"},
				DurationNs: int64(duration), Weir: spec.WeirFields{Seed: seed},
			}
			if gpus > 0 {
				p.Unified = &spec.Parallel{TP: gpus, PP: 1, EP: 1, DCP: 1, PCP: 1}
			}
			opt := knobs.options(run.ReplayOptions(p))
			if _, err := replay.NewAgentic(c, opt); err != nil { // refused before anything is sent
				return usage(err)
			}
			ex := &run.HTTP{
				Client: cfg, Calibrator: calibrator, Watchdog: cf.watchdog(),
				Prompt: prompt.Options{Models: []string{model}, IgnoreEOS: true, LegacyMaxTokens: legacy,
					Salt: opt.Salt, Extra: []byte(ext)},
				Words: words, Counter: counter, NoProbe: noProbe, ObservedGPUs: record.Unknown,
			}
			if ex.Scrape, err = mf.options(cfg); err != nil {
				return usage(err)
			}
			if ex.GPU, err = mf.gpu.beside(cfg.URLs); err != nil {
				return usage(err)
			}
			j := &run.Job{Point: p, Corpus: c, Replay: opt, Version: buildVersion(), ClientLimit: cf.limit.share, CoverageLimit: cover.share}
			if err := ex.Fits(j); err != nil {
				return failure(err)
			}
			if out == "" {
				stamp := time.Now().UTC().Format("20060102T150405")
				out = freshFolder(filepath.Join("weir-runs", fmt.Sprintf("replay-%s-c%d-%s", fileName(model), conc, stamp)))
			}
			if err := bundleForOutput(out); err != nil {
				return err
			}
			status := newStatus(app, "replay")
			j.Progress = status.show
			r, err := run.Measure(cmd.Context(), ex, j, out)
			status.clear()
			if err != nil {
				return failure(err)
			}
			return app.printPoint(r, out)
		},
	}
	fl := cmd.Flags()
	cf.add(fl)
	mf.add(fl)
	fl.StringVar(&model, "model", "", "name of the served model")
	fl.StringVar(&corpusPath, "corpus", "", "directory or file of traces")
	intVarP(fl, &conc, "concurrency", "c", 1, 1, replay.MaxLanes, "agents at once")
	durationVar(fl, &duration, "duration", 0, 0, "profiling time")
	fl.StringVarP(&out, "out", "o", "", "folder of the bundle (default weir-runs/replay-...)")
	fl.StringVar(&tok, "tokenizer", "", "the model's tokenizer.json: every eighth answer is counted here to check the server; without it the words that are one token in common tokenizers are used")
	fl.StringVar(&ext, "extra", "", "JSON object whose members are added to every body")
	intVar(fl, &gpus, "gpus", 0, 0, 1_000_000, "GPUs behind the server; 0 leaves per-GPU numbers out")
	knobs.add(fl)
	cover.add(fl)
	fl.Uint64Var(&seed, "seed", 42, "draws start points and salts")
	traces.add(cmd)
	fl.BoolVar(&noProbe, "no-probe", false, "don't learn what the chat template adds")
	fl.BoolVar(&legacy, "legacy-max-tokens", false, "send max_tokens instead of max_completion_tokens")
	return cmd
}

// failure gives a run's failure its exit code: a configuration that cannot work is wrong usage,
// one that this machine cannot hold is refused.
func failure(err error) error {
	var f *run.Failure
	if asFailure(err, &f) && f.Class == "config" {
		return usage(err)
	}
	if many := (*client.TooMany)(nil); errors.As(err, &many) {
		return refused(err)
	}
	return err
}

// fileName makes a model's name fit for a folder.
func fileName(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '.' || r == '-' || r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '_'
	}, s)
}

// printPoint prints the result of one point and returns the error of an invalid one.
func (a *App) printPoint(r *result.Result, dir string) error {
	if a.JSON {
		if err := a.printJSON(map[string]any{"bundle": dir, "result": r}); err != nil {
			return err
		}
	} else {
		tw := tabwriter.NewWriter(a.Out, 0, 0, 2, ' ', 0)
		line := func(name, format string, v ...any) { fmt.Fprintf(tw, "%s\t"+format+"\n", append([]any{name}, v...)...) }
		if r.Simulated {
			line("engine", "%s", r.Kind())
			if r.SimError != "" {
				line("simulation", "%s", r.SimError)
			}
		}
		line("corpus", "%d traces of %s%s", r.Corpus.Traces, r.Corpus.Name, skippedText(r.Corpus.Skipped))
		a.numberLines(r, line)
		for _, w := range r.Warnings {
			line("warning", "%s", w.Text)
		}
		line("bundle", "%s", dir)
		if err := tw.Flush(); err != nil {
			return err
		}
	}
	if !r.Valid {
		var why []string
		for _, f := range r.Reasons {
			why = append(why, fmt.Sprintf("%s (%s)", f.Text, f.Code))
		}
		return invalid(fmt.Errorf("the result is not valid: %s", strings.Join(why, "; ")))
	}
	return nil
}
