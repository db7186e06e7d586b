package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weirbench/weir/internal/corpus"
	"github.com/weirbench/weir/internal/record"
	"github.com/weirbench/weir/internal/run"
	"github.com/weirbench/weir/internal/spec"
	"github.com/weirbench/weir/internal/store"
	"github.com/weirbench/weir/internal/web"
)

// sweepFlags are what sweep and demo share.
type sweepFlags struct {
	out      string
	duration time.Duration
	parallel int
	failFast bool
	conc     []int
	seed     int64
	launch   launchFlags
	fleet    string
	poll     time.Duration
	submit   bool
	adaptive bool
	renew    bool // import images again
	bare     bool // no control of the sweep's own
	gpuHours float64
	share    bool
	unclean  string
	priority []string
	release  []string
	corpus   string // where the traces were read from
	command  string // that made the sweep, for the report
	save     bool   // keep the command for 'weir sweep attach'
}

func (f *sweepFlags) add(cmd *cobra.Command) {
	fl := cmd.Flags()
	durationVar(fl, &f.duration, "duration", 0, 0, "profiling time of a point; 0 takes the file's")
	intVarP(fl, &f.parallel, "parallel", "j", 0, 0, 10_000, "points at once; 0 takes a processor each on the simulated engine and one where engines are started here")
	fl.BoolVar(&f.failFast, "fail-fast", false, "begin no more points after one that failed")
	fl.IntSliceVar(&f.conc, "conc", nil, "keep only these concurrencies")
	intVar(fl, &f.seed, "seed", -1, -1, noTop, "seed of every point; -1 takes the file's")
	f.launch.add(fl)
}

// check refuses flags that have no effect, and what cannot be.
func (f *sweepFlags) check(given *pflag.FlagSet) error {
	if f.adaptive {
		if err := without(given, "with --adaptive, which takes one point at a time", "parallel", "share-server", "priority"); err != nil {
			return err
		}
	}
	if !f.adaptive {
		if err := without(given, "without --adaptive, which adds controls", "no-control"); err != nil {
			return err
		}
	}
	if !f.share {
		if err := without(given, "without --share-server", "unclean"); err != nil {
			return err
		}
	}
	switch run.Unclean(f.unclean) {
	case "", run.UncleanInvalid, run.UncleanRestart:
	default:
		return usagef("--unclean %q: it is invalid or restart", f.unclean)
	}
	if f.fleet == "" {
		if err := without(given, "without --fleet, which names a cluster", "poll", "slurm-submit-only", "release-node", "renew-images"); err != nil {
			return err
		}
	}
	return f.launch.check()
}

// selected are the points of a selection; a concurrency that none of them has is refused.
func selected(set *spec.Set, sel spec.Selection) ([]*spec.Point, error) {
	points, err := set.Points(sel)
	if err != nil || len(sel.Conc) == 0 {
		return points, usage(err)
	}
	missing := slices.DeleteFunc(slices.Clone(sel.Conc), func(n int) bool {
		return slices.ContainsFunc(points, func(p *spec.Point) bool { return p.Conc == n })
	})
	if len(missing) == 0 {
		return points, nil
	}
	sel.Conc = nil
	all, err := set.Points(sel)
	if err != nil {
		return nil, usage(err)
	}
	var have []int
	for _, p := range all {
		have = append(have, p.Conc)
	}
	slices.Sort(have)
	return nil, usagef("--conc %d: no point of the selection has this concurrency; they have %s", missing[0],
		strings.Trim(strings.ReplaceAll(fmt.Sprint(slices.Compact(have)), " ", ", "), "[]"))
}

func newSweepCmd(app *App) *cobra.Command {
	var masters []string
	var runners, corpusPath string
	var cf corpusFlags
	var f sweepFlags
	cmd := &cobra.Command{
		Use:        "sweep -f MASTER... -r RUNNERS [KEY...] --corpus DIR",
		SuggestFor: []string{"status", "cancel"},
		Short:      "Run the points of a master file into bundles, a store and a report",
		Long: `Sweep expands the named configs of InferenceX master files into points, plans every
point, runs those that fit, and writes a bundle a point, the store and report.html.

The same command again runs only what has no whole bundle yet. An interrupt stops the
points that are running and keeps nothing of them. Bundles of the same points that another
run made, with another corpus, other replay options, recipe or plan, are refused untouched.

weir.recipe of a config says what runs: sim is the simulated engine in virtual time; any other
name is a recipe whose processes are started for a point and stopped after it.`,
		Example: `  weir sweep -f examples/quickstart/master.yaml -r examples/quickstart/runners.yaml \
    glm5.2-fp4-b200-sglang-agentic --corpus traces/`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(masters) == 0 {
				return usagef("no master file: name one with -f (see 'weir sweep --help')")
			}
			if err := f.check(cmd.Flags()); err != nil {
				return err
			}
			set, err := spec.Load(masters, runners)
			if err != nil {
				return usage(err)
			}
			points, err := selected(set, spec.Selection{Keys: args, Conc: f.conc})
			if err != nil {
				return err
			}
			if corpusPath, err = corpusOf(points, corpusPath); err != nil {
				return usage(err)
			}
			c, err := cf.load(app, corpusPath)
			if err != nil {
				return err
			}
			if f.out == "" {
				f.out = filepath.Join("weir-runs", sweepDir(args, masters))
			}
			if err := folderForOutput(f.out); err != nil {
				return err
			}
			f.command, f.corpus, f.save = commandLine(cmd, args), corpusPath, true
			return app.sweep(cmd.Context(), points, c, f)
		},
	}
	fl := cmd.Flags()
	fl.StringSliceVarP(&masters, "file", "f", nil, "master file; may be repeated")
	fl.StringVarP(&runners, "runners", "r", "", "runners.yaml")
	fl.StringVar(&corpusPath, "corpus", "", "directory or file of traces")
	cf.addSkip(cmd)
	fl.StringVarP(&f.out, "out", "o", "", "folder of the sweep (default weir-runs/<KEY>)")
	fl.StringVar(&f.fleet, "fleet", "", "fleet.yaml: how points are run on the cluster of their runner")
	durationVar(fl, &f.poll, "poll", 2*time.Second, time.Millisecond, "time between two looks at a scheduler's queue")
	fl.BoolVar(&f.adaptive, "adaptive", false, "measure only the points that the frontier gains from")
	fl.BoolVar(&f.renew, "renew-images", false, "with --fleet, import and pull container images again that were before this sweep began")
	fl.BoolVar(&f.bare, "no-control", false, "with --adaptive, add no point without offload beside one with it where the file has none")
	floatVar(fl, &f.gpuHours, "gpu-hours", 0, 1e9, "begin no point that would take more than what is left of this; 0 is without limit")
	fl.BoolVar(&f.share, "share-server", false, "measure the concurrencies of a search-space entry one after the other on one server")
	fl.StringVar(&f.unclean, "unclean", string(run.UncleanInvalid), "with --share-server, what becomes of a point whose server could not be emptied: invalid, or restart the server")
	fl.StringArrayVar(&f.priority, "priority", nil, "`PATTERN=N`: points whose KEY@CONC matches are begun before those of a lower number; may be repeated, the last that matches holds")
	fl.StringSliceVar(&f.release, "release-node", nil, "take `NODE` out of the sweep's quarantine")
	fl.BoolVar(&f.submit, "slurm-submit-only", false, "submit the points and end; the same command without this waits for them")
	f.add(cmd)
	cmd.AddCommand(newSweepStatusCmd(app), newSweepAttachCmd(app), newSweepCancelCmd(app))
	return cmd
}

// corpusOf is the corpus of a sweep: the flag's, or the one that all points name.
func corpusOf(points []*spec.Point, flag string) (string, error) {
	name := flag
	for _, p := range points {
		switch c := p.Weir.Corpus; {
		case c == "" || c == name:
		case name == "":
			name = c
		default:
			return "", fmt.Errorf("%s:%d: weir.corpus: %s replays %s and not %s: a sweep has one corpus, so name one config or remove one of them",
				p.Origin.File, p.Origin.Line, p.Key, c, name)
		}
	}
	if name == "" {
		return "", errors.New("no corpus: name a directory or file of traces with --corpus or weir.corpus, or make one with 'weir corpus generate'")
	}
	return name, nil
}

func sweepDir(keys, masters []string) string {
	if len(keys) == 1 {
		return keys[0]
	}
	return filepath.Base(masters[0][:len(masters[0])-len(filepath.Ext(masters[0]))])
}

// sweep runs points and leaves bundles, store and report in f.out.
func (a *App) sweep(ctx context.Context, points []*spec.Point, c *corpus.Corpus, f sweepFlags) error {
	s, err := f.ready(points, c)
	if err != nil {
		return err
	}
	jobs := s.Jobs
	if f.save {
		if err := saveCommand(f.out); err != nil {
			return err
		}
	}
	st, err := a.openStore(f.out)
	if err != nil {
		return err
	}
	defer st.Close()
	tbl := newSweepTable(a, jobs)
	var storeErr error
	s.Report = func(u run.Update) {
		if u.Result != nil {
			e := store.Entry{Result: u.Result, Sweep: filepath.Base(f.out), Bundle: run.BundleDir(f.out, jobs[u.Index])}
			if err := st.Put(context.WithoutCancel(ctx), e); err != nil && storeErr == nil { // the others say the same
				storeErr = fmt.Errorf("not every result is in the store: %w; all are in their bundles, and 'weir derive --db %s %s' puts them in", err, st.Path(), f.out)
			}
		}
		tbl.update(u)
	}
	sum, err := s.Run(ctx)
	tbl.done()
	if f.submit && err == nil && sum.Failed+sum.Refused == 0 {
		fmt.Fprintf(a.Out, "%d of %d points are submitted; 'weir sweep attach %s' waits for them\n",
			len(jobs)-sum.Complete-sum.Skipped, len(jobs), f.out)
		return storeErr
	}
	if ctx.Err() != nil {
		return fmt.Errorf("interrupted: %d of %d points have whole bundles in %s; the same command runs the rest",
			bundlesIn(f.out, jobs), len(jobs), f.out)
	}
	if errors.Is(err, run.ErrCancelled) {
		return fmt.Errorf("%w: %d of %d points have whole bundles in %s; the same command runs the rest", run.ErrCancelled, bundlesIn(f.out, jobs), len(jobs), f.out)
	}
	if errors.Is(err, run.ErrLocked) || errors.Is(err, run.ErrOtherRun) {
		return usage(err)
	}
	if err = errors.Join(err, storeErr); err != nil {
		return err
	}
	report := filepath.Join(f.out, "report.html")
	if err := writeReport(report, tbl.results(), web.ReportOptions{Title: filepath.Base(f.out), Command: f.command}); err != nil {
		return err
	}
	if a.JSON {
		if err := a.printJSON(map[string]any{"report": report, "dir": f.out, "results": tbl.results()}); err != nil {
			return err
		}
	} else {
		tbl.story(report)
	}
	if sum.NotBegun > 0 {
		fmt.Fprintf(a.Err, "%d of %d points were not begun: the budget is %g GPU hours\n", sum.NotBegun, len(jobs), f.gpuHours)
	}
	switch {
	case sum.Failed > 0:
		return fmt.Errorf("%d of %d points failed; see %s", sum.Failed, len(jobs), filepath.Join(f.out, run.JournalFile))
	case sum.Refused > 0:
		return refused(fmt.Errorf("%d of %d points were refused by plan (see 'weir plan --explain')", sum.Refused, len(jobs)))
	case sum.Invalid > 0:
		return invalid(fmt.Errorf("%d of %d results are not valid", sum.Invalid, len(jobs)))
	}
	return nil
}

// ready is the sweep of points into f.out, planned and held against what stands there. Nothing
// is written yet.
func (f *sweepFlags) ready(points []*spec.Point, c *corpus.Corpus) (*run.Sweep, error) {
	if len(points) == 0 {
		return nil, usagef("the selection has no point: check the key, --conc and the scenario")
	}
	jobs, err := prepare(points, c, *f)
	if err != nil {
		return nil, usage(err)
	}
	if err := f.prioritise(jobs); err != nil {
		return nil, err
	}
	s := &run.Sweep{Dir: f.out, Jobs: jobs, FailFast: f.failFast,
		ShareServer: f.share, Unclean: run.Unclean(f.unclean), GPUHours: f.gpuHours, Release: f.release}
	if s.Executor, s.Parallel, err = f.executor(jobs); err != nil {
		return nil, err
	}
	if f.adaptive {
		s.Adaptive = &run.Adaptive{GPUHours: f.gpuHours, Knee: predictedKnee}
	}
	if err := s.Check(); err != nil {
		return nil, usage(err)
	}
	return s, nil
}

// prepare turns points into planned jobs, one a repeat.
func prepare(points []*spec.Point, c *corpus.Corpus, f sweepFlags) ([]*run.Job, error) {
	var jobs []*run.Job
	for _, p := range points {
		if f.duration > 0 {
			p.DurationNs = int64(f.duration)
		}
		if f.seed >= 0 {
			p.Weir.Seed = uint64(f.seed)
		}
	}
	var controlOf map[string][]string
	if f.adaptive && !f.bare {
		points, controlOf = run.WithControls(points)
	}
	for _, p := range points {
		of := controlOf[p.ID()]
		for r := range max(1, p.Weir.Repeats) {
			j, err := f.launch.job(p, c, f.corpus, r)
			if err != nil && len(of) > 0 {
				return nil, fmt.Errorf("the control without offload that the sweep adds beside concurrency %d: %w; --no-control leaves it out", p.Conc, err)
			}
			if err != nil {
				return nil, err
			}
			j.ControlOf = of
			jobs = append(jobs, j)
		}
	}
	return jobs, nil
}

// prioritise sorts jobs by the priorities that patterns give them; equal ones keep their order.
func (f *sweepFlags) prioritise(jobs []*run.Job) error {
	for _, rule := range f.priority {
		pattern, number, ok := strings.Cut(rule, "=")
		n, err := strconv.Atoi(number)
		if !ok || err != nil || n < -1000 || n > 1000 {
			return usagef("--priority %q: write PATTERN=N with N from -1000 to 1000, such as '*@64=5'", rule)
		}
		hits := 0
		for _, j := range jobs {
			match, err := path.Match(pattern, fmt.Sprintf("%s@%d", j.Point.Key, j.Point.Conc))
			if err != nil {
				return usagef("--priority %q: %w", rule, err)
			}
			if match {
				j.Priority = n
				hits++
			}
		}
		if hits == 0 {
			return usagef("--priority %q matches no point: they are named KEY@CONC, such as %s@%d", rule, jobs[0].Point.Key, jobs[0].Point.Conc)
		}
	}
	slices.SortStableFunc(jobs, func(a, b *run.Job) int { return b.Priority - a.Priority })
	return nil
}

// executor is what measures the jobs, and how many at once.
func (f *sweepFlags) executor(jobs []*run.Job) (run.Executor, int, error) {
	ex, err := f.launch.local(f.out, nil)
	if f.fleet != "" {
		return f.onFleet(ex, jobs)
	}
	if f.parallel > 0 {
		return ex, f.parallel, err
	}
	for _, j := range jobs {
		if j.Recipe != nil {
			return ex, 1, err
		}
	}
	return ex, runtime.NumCPU(), err
}

// bundlesIn counts the jobs with a complete bundle, looked at in this run or not.
func bundlesIn(dir string, jobs []*run.Job) int {
	n := 0
	for _, j := range jobs {
		if _, err := os.Stat(filepath.Join(run.BundleDir(dir, j), record.CompleteFile)); err == nil {
			n++
		}
	}
	return n
}

// openStore opens the store of a sweep. One that is damaged is set aside: the bundles hold
// everything that it held, and the sweep puts them in again. One that cannot be opened for another
// reason, such as a full disk, stays as it is.
func (a *App) openStore(dir string) (*store.Store, error) {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, "weir.db")
	st, err := store.Open(path)
	if err == nil {
		return st, nil
	}
	if !store.Damaged(err) {
		return nil, fmt.Errorf("the store of the sweep cannot be opened, and is left as it is: %w", err)
	}
	aside := path + ".damaged"
	if rmErr := errors.Join(os.RemoveAll(aside), os.Rename(path, aside)); rmErr != nil {
		return nil, errors.Join(err, rmErr)
	}
	fmt.Fprintf(a.Err, "%v: set aside as %s and made again from the bundles\n", err, aside)
	return store.Open(path)
}

// commandLine is the command as it could be typed again.
func commandLine(cmd *cobra.Command, args []string) string {
	line := cmd.CommandPath()
	cmd.Flags().Visit(func(f *pflag.Flag) {
		v := strings.Trim(f.Value.String(), "[]")
		line += " --" + f.Name + "=" + v
	})
	return strings.Join(append([]string{line}, args...), " ")
}
