package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weirbench/weir/internal/corpus"
	"github.com/weirbench/weir/internal/prompt"
	"github.com/weirbench/weir/internal/record"
	"github.com/weirbench/weir/internal/replay"
	"github.com/weirbench/weir/internal/run"
	"github.com/weirbench/weir/internal/spec"
)

// loadModes are the values of --mode, in the order in which help lists them.
var loadModes = []struct {
	name    string
	arrival replay.Arrival
}{
	{"closed", replay.Closed}, {"constant", replay.Constant}, {"poisson", replay.Poisson}, {"gamma", replay.Gamma},
	{"schedule", replay.Schedule}, {"users", replay.Users}, {"overflow", replay.Closed}, {"fixed-seq-len", replay.Closed},
}

type loadFlags struct {
	corpusFlags
	client                             clientFlags
	model, corpus, mode, out, tok, ext string
	load                               replay.Load
	lengths                            replay.Lengths
	duration, grace, ramp              time.Duration
	tokens                             int64
	gpus                               int
	expect, fromS, toS                 float64
	noProbe, legacy, eachTurn          bool
	metrics                            metricsFlags
	given                              *pflag.FlagSet
}

func newLoadCmd(app *App) *cobra.Command {
	var f loadFlags
	cmd := &cobra.Command{
		Use:   "load --url URL --model NAME --mode MODE",
		Short: "Send an open or closed loop to a running server: one point",
		Long: `Load sends what is not agentic replay: prompts of fixed length or conversations of a corpus,
in a closed loop, at a rate, on a schedule or by users at a pace, and writes a bundle with its
result. A request that goes out late is recorded as late; its intended time stays.

Made-up prompts are the same for the same --seed: sent again to a server that has kept its cache
they are found there, also by a first pass of overflow. With another --seed they are cold.

Modes:
  closed         --concurrency conversations at once, the next when one ends
  constant, poisson, gamma   --rate requests per second (gamma: --shape), --concurrency caps them
  schedule       every request of --corpus at its recorded time, --speed times as fast, whatever the
                 others do; --each-turn=false sends root streams alone, a turn never before the
                 one before it has ended
  users          --users users that send --rate turns per second together
  overflow       distinct prompts until --tokens were sent, then the same again in order: what
                 the second pass finds is what a host tier kept
  fixed-seq-len  InferenceX's scenario: 10 prompts of --isl and --osl for each unit of
                 concurrency after 2 for warm-up, lengths within --range-ratio (0.8 there)`,
		Example: `  weir load --url http://127.0.0.1:8000 --model my-model --mode fixed-seq-len --isl 8192 --osl 1024 -c 16
  weir load --url http://127.0.0.1:8000 --model my-model --mode poisson --rate 4 --isl 1024 --osl 128 --conversations 1000
  weir load --url http://127.0.0.1:8000 --model my-model --mode overflow --tokens 4000000 --isl 32768 --osl 1 -c 8`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd.Context(), app) },
	}
	fl := cmd.Flags()
	f.given = fl
	f.client.add(fl)
	f.metrics.add(fl)
	fl.StringVar(&f.model, "model", "", "name of the served model")
	fl.StringVar(&f.mode, "mode", "closed", "how requests are spread over time; see above")
	fl.StringVar(&f.corpus, "corpus", "", "directory or file of traces that are sent in place of made-up prompts: their root streams, or with --each-turn every request")
	fl.BoolVar(&f.eachTurn, "each-turn", false, "send every request of --corpus on its own, in the order of its times, those of sub-agents and of files without sessions too; schedule does so unless this is false")
	intVarP(fl, &f.load.Concurrency, "concurrency", "c", 0, 0, replay.MaxLanes, "conversations at once; 0 is no limit")
	intVar(fl, &f.load.PrefillConcurrency, "prefill-concurrency", 0, 0, replay.MaxLanes, "requests at once that wait for their first token; 0 is no limit")
	durationVar(fl, &f.ramp, "ramp", 0, 0, "closed: open the slots one by one over this time")
	fl.Float64Var(&f.load.Rate, "rate", 0, "requests per second")
	fl.Float64Var(&f.load.Shape, "shape", 1, "gamma: below 1 bursty, 1 is poisson, above 1 even")
	fl.Float64Var(&f.load.Speed, "speed", 1, "schedule: times faster than recorded")
	floatVar(fl, &f.fromS, "from", 0, maxSeconds, "schedule: leave out what was recorded before this second")
	floatVar(fl, &f.toS, "to", 0, maxSeconds, "schedule: leave out what was recorded from this second on; 0 is the end")
	intVar(fl, &f.load.NumUsers, "users", 1, 1, replay.MaxLanes, "users: how many at once")
	intVar(fl, &f.tokens, "tokens", 0, 1, noTop, "overflow: prompt tokens of one pass, more than the device pool holds")
	intVar(fl, &f.lengths.In, "isl", 1024, 1, noTop, "prompt tokens of a made-up turn, without the prefix")
	intVar(fl, &f.lengths.Out, "osl", 128, 1, noTop, "output tokens of a made-up turn")
	fl.Float64Var(&f.lengths.RangeRatio, "range-ratio", 1, "made-up lengths are uniform in [ratio x length, length]")
	intVar(fl, &f.lengths.Conversations, "conversations", 100, 1, 1e9, "made-up conversations")
	intVar(fl, &f.lengths.Turns, "turns", 1, 1, 1e9, "turns of a made-up conversation")
	intVar(fl, &f.lengths.Prefix, "prefix", 0, 0, noTop, "tokens at the head of every made-up prompt")
	fl.Float64Var(&f.lengths.SharedShare, "shared-share", 1, "share of the prefix that all conversations share")
	intVar(fl, &f.load.WarmupRequests, "warmup-requests", 0, 0, 1e9, "requests before the time that counts")
	fl.BoolVar(&f.load.Loop, "loop", false, "begin the list again for as long as the run lasts")
	fl.BoolVar(&f.load.NoGaps, "no-gaps", false, "send a turn as soon as the one before it has ended")
	fl.Uint64Var(&f.load.MaxRequests, "max-requests", 0, "end after this many requests; 0 is no limit")
	durationVar(fl, &f.duration, "duration", 0, 0, "profiling time; 0 sends the whole list")
	fl.DurationVar(&f.grace, "grace", 30*time.Second, "for what is in flight after --duration; negative is unlimited")
	fl.Float64Var(&f.load.FailedThreshold, "failed-request-threshold", 0, "end when more than this share of the requests failed; 0 is off")
	floatVar(fl, &f.expect, "expect-hits", 0, 1, "overflow: the share of the second pass that must be found, else the result is invalid: in the host tier or storage, of what the device pool did not hold, where the server tells tiers; anywhere, of everything, where it does not")
	fl.StringVarP(&f.out, "out", "o", "", "folder of the bundle (default weir-runs/load-...)")
	fl.StringVar(&f.tok, "tokenizer", "", "the model's tokenizer.json: its words are sent, and every eighth answer is counted here to check the server")
	fl.StringVar(&f.ext, "extra", "", "JSON object whose members are added to every body")
	intVar(fl, &f.gpus, "gpus", 0, 0, 1_000_000, "GPUs behind the server; 0 leaves per-GPU numbers out")
	fl.Uint64Var(&f.load.Seed, "seed", 42, "draws arrivals, lengths and the words of made-up prompts: a server that keeps its cache finds nothing of another seed's")
	fl.BoolVar(&f.noProbe, "no-probe", false, "don't learn what the chat template adds")
	fl.BoolVar(&f.legacy, "legacy-max-tokens", false, "send max_tokens instead of max_completion_tokens")
	f.corpusFlags.add(cmd)
	return cmd
}

func (f *loadFlags) run(ctx context.Context, app *App) error {
	ex, err := f.executor(app)
	if err != nil {
		return err
	}
	c, err := f.conversations(app)
	if err != nil {
		return err
	}
	p := &spec.Point{
		Key: "load", Name: fmt.Sprintf("%s_%s", f.model, f.mode), Model: f.model, Framework: "external",
		Scenario: spec.FixedSeqLen, Conc: loadConc(&f.load), SpecDecoding: "none", Offload: spec.Offload{Mode: "none"},
		ISL: f.lengths.In, OSL: f.lengths.Out, DurationNs: f.load.DurationNs, Weir: spec.WeirFields{Seed: f.load.Seed},
	}
	if f.corpus != "" {
		p.ISL, p.OSL = 0, 0
	}
	if f.gpus > 0 {
		p.Unified = &spec.Parallel{TP: f.gpus, PP: 1, EP: 1, DCP: 1, PCP: 1}
	}
	if _, err := replay.NewLoad(c, f.load); err != nil { // refused before anything is sent
		return usage(err)
	}
	if n, of := f.load.Skips(c); n > 0 {
		fmt.Fprintf(app.Err, "weir: %d of %d requests of the corpus are not sent: they are of streams that another one spawned; --each-turn sends every request on its own\n", n, of)
	}
	if n := len(c.Traces); n > 1 && f.load.Arrival == replay.Schedule {
		fmt.Fprintf(app.Err, "weir: the corpus has %d traces, each with times of its own: all begin at once\n", n)
	}
	j := &run.Job{Point: p, Corpus: c, Load: &f.load, Chunks: f.mode == "fixed-seq-len", Version: buildVersion(), ClientLimit: f.client.limit.share}
	if err := ex.Fits(j); err != nil {
		return failure(err)
	}
	if text := ex.Crowded(j); text != "" {
		fmt.Fprintf(app.Err, "weir: %s\n", text)
	}
	if f.out == "" {
		stamp := time.Now().UTC().Format("20060102T150405")
		f.out = freshFolder(filepath.Join("weir-runs", fmt.Sprintf("load-%s-%s-%s", fileName(f.model), f.mode, stamp)))
	}
	if err := bundleForOutput(f.out); err != nil {
		return err
	}
	status := newStatus(app, "load")
	j.Progress = status.show
	r, err := run.Measure(ctx, ex, j, f.out)
	status.clear()
	if err != nil {
		return failure(err)
	}
	err = app.printPoint(r, f.out)
	if f.load.Passes < 2 || err != nil && !isInvalid(err) {
		return err
	}
	if !app.JSON {
		if failed := printPasses(app, r.Passes); failed != nil {
			return errors.Join(err, failed)
		}
	}
	return errors.Join(err, f.judge(r))
}

// loadConc is the concurrency of a load's point: 0 where nothing caps what is in flight.
func loadConc(l *replay.Load) int {
	if l.Arrival == replay.Users {
		return l.NumUsers
	}
	return l.Concurrency
}

// isInvalid tells an invalid result, which has been printed, from a failure to print it.
func isInvalid(err error) bool {
	var ce *codeError
	return errors.As(err, &ce) && ce.code == exitInvalid
}

func (f *loadFlags) executor(app *App) (*run.HTTP, error) {
	cfg, err := f.client.config(app.Err)
	if err != nil {
		return nil, usage(err)
	}
	if f.model == "" {
		return nil, usagef("no model: name the served model with --model")
	}
	words, counter, err := app.tokenizer(f.tok)
	if err != nil {
		return nil, usage(err)
	}
	calibrator, err := f.client.calibrator(f.duration)
	if err != nil {
		return nil, usage(err)
	}
	sc, err := f.metrics.options(cfg)
	if err != nil {
		return nil, usage(err)
	}
	gpus, err := f.metrics.gpu.beside(cfg.URLs)
	if err != nil {
		return nil, usage(err)
	}
	return &run.HTTP{
		Scrape: sc, GPU: gpus,
		Client: cfg, Calibrator: calibrator, Watchdog: f.client.watchdog(),
		Prompt: prompt.Options{Models: []string{f.model}, IgnoreEOS: true, LegacyMaxTokens: f.legacy, Extra: []byte(f.ext)},
		Words:  words, Counter: counter, NoProbe: f.noProbe, ObservedGPUs: record.Unknown,
	}, nil
}

// conversations settles the load by its mode and makes or reads what is sent.
func (f *loadFlags) conversations(app *App) (*corpus.Corpus, error) {
	var names []string
	known := false
	for _, m := range loadModes {
		names = append(names, m.name)
		if m.name == f.mode {
			known, f.load.Arrival = true, m.arrival
		}
	}
	if !known {
		return nil, usagef("--mode %q is not known; known: %s", f.mode, strings.Join(names, ", "))
	}
	if f.load.Rate == 0 && (f.load.Arrival >= replay.Constant && f.load.Arrival <= replay.Gamma || f.load.Arrival == replay.Users) {
		return nil, usagef("--rate is 0: --mode %s: the request rate is 0 per second: say with --rate how many requests go out in a second", f.mode)
	}
	if err := misplaced(f.given, f.mode); err != nil {
		return nil, err
	}
	if f.duration == 0 {
		if err := without(f.given, "without --duration: the whole list is sent and waited for", "grace"); err != nil {
			return nil, err
		}
	}
	f.load.EachTurn = f.eachTurn || f.load.Arrival == replay.Schedule && !f.given.Changed("each-turn")
	f.load.DurationNs, f.load.GraceNs, f.load.RampNs = int64(f.duration), int64(f.grace), int64(f.ramp)
	f.load.FromNs, f.load.ToNs = int64(f.fromS*1e9), int64(f.toS*1e9)
	f.lengths.Seed, f.lengths.Name = f.load.Seed, f.mode
	if f.load.Arrival == replay.Closed && f.load.Concurrency == 0 {
		return nil, usagef("--concurrency is 0: --mode %s: a closed loop needs a concurrency of at least 1", f.mode)
	}
	switch f.mode {
	case "fixed-seq-len":
		l, load := replay.FixedSeqLen(f.lengths.In, f.lengths.Out, f.load.Concurrency, f.lengths.RangeRatio, f.load.Seed)
		f.lengths = l
		f.load.Arrival, f.load.WarmupRequests = load.Arrival, load.WarmupRequests
	case "overflow":
		l, load, err := replay.Overflow(f.tokens, f.lengths.In, f.lengths.Out, f.load.Concurrency, f.load.Seed)
		if err != nil {
			return nil, usagef("%w (--tokens, --isl)", err)
		}
		f.lengths, f.load.Passes = l, load.Passes
	case "schedule":
		if f.corpus == "" {
			return nil, usagef("--mode schedule needs --corpus: made-up prompts have no recorded times")
		}
	}
	if f.corpus != "" {
		return f.corpusFlags.load(app, f.corpus)
	}
	c, err := f.lengths.Corpus()
	return c, usage(err)
}
