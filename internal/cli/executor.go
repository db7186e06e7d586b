package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/spf13/pflag"

	"github.com/weirbench/weir/internal/corpus"
	"github.com/weirbench/weir/internal/engine"
	"github.com/weirbench/weir/internal/facts"
	"github.com/weirbench/weir/internal/plan"
	"github.com/weirbench/weir/internal/run"
	"github.com/weirbench/weir/internal/spec"
)

// launchFlags say how engines are started and driven; sweep and point share them.
type launchFlags struct {
	recipes string
	facts   string
	help    string
	noGaps  bool
	maxOut  int64
	warmup  int
	limit   clientLimit
	gpu     gpuFlags
}

func (f *launchFlags) add(fl *pflag.FlagSet) {
	fl.StringVar(&f.recipes, "recipes", "", "folder of recipes, before those that come with weir")
	fl.StringVar(&f.help, "engine-help", "", "`FILE` with what the engine prints for --help; arguments are checked against it")
	fl.StringVar(&f.facts, "facts", "", "`FILE` of facts to put before the embedded ones")
	fl.BoolVar(&f.noGaps, "no-gaps", false, "leave out the recorded time between turns")
	intVar(fl, &f.maxOut, "max-output", 0, 0, noTop, "most output tokens asked for; 0 takes the recorded ones")
	intVar(fl, &f.warmup, "warmup-requests-per-lane", 10, 0, 1_000_000, "one-token requests per lane before profiling")
	f.limit.add(fl)
	f.gpu.add(fl)
}

// check refuses what is named and is not there.
func (f *launchFlags) check() error { return folderOf("recipes", f.recipes) }

// folderOf refuses a folder that a flag names and that is none.
func folderOf(flag, path string) error {
	if path == "" {
		return nil
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return usagef("--%s %s: there is no such folder", flag, path)
	case err != nil:
		return usagef("--%s: %w", flag, err)
	case !info.IsDir():
		return usagef("--%s %s: that is a file and a folder is needed", flag, path)
	}
	return nil
}

// job plans one repeat of a point with its recipe.
func (f *launchFlags) job(p *spec.Point, c *corpus.Corpus, path string, repeat int) (*run.Job, error) {
	j := &run.Job{Point: p, Corpus: c, CorpusPath: path, Replay: run.ReplayOptions(p), Repeat: repeat, Version: buildVersion(), ClientLimit: f.limit.share}
	q := p
	if p.Weir.Recipe == "" {
		return nil, fmt.Errorf("%s:%d: weir.recipe: %s names no recipe: write weir: {recipe: sim} for the simulated engine, a recipe's name to start an engine, or measure a running server with 'weir replay --url'",
			p.Origin.File, p.Origin.Line, p.Key)
	}
	if p.Weir.Recipe != run.SimRecipe {
		r, err := engine.Load(p.Weir.Recipe, f.dirs()...)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: weir.recipe: %w", p.Origin.File, p.Origin.Line, err)
		}
		if q, err = r.Planned(p); err != nil {
			return nil, err
		}
		j.Recipe = r
	}
	var err error
	if j.Facts, err = factsText(f.facts); err != nil {
		return nil, err
	}
	opt, err := j.PlanOptions()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.facts, err)
	}
	if j.Verdict, err = plan.Compute(q, opt); err != nil {
		return nil, err
	}
	if j.Recipe == nil && j.Verdict.Status == plan.Fits {
		set := cmp.Or(opt.Facts, facts.Embedded())
		if err := cmp.Or(engine.Simulated(p, j.Verdict, set), run.Simulable(p, j.Verdict, set)); err != nil {
			return nil, err
		}
	}
	if err := f.checkArguments(j, q); err != nil {
		return nil, err
	}
	j.Replay.PressureRequests = f.warmup
	j.Replay.MaxOut = f.maxOut
	j.Replay.NoGaps = f.noGaps
	if p.Scenario == spec.FixedSeqLen {
		return j, j.FixedSeqLen()
	}
	return j, j.Replay.Check(c)
}

// checkArguments refuses what the help texts at hand do not know, before anything is asked for or
// started. Where a point does not fit there is nothing to check.
func (f *launchFlags) checkArguments(j *run.Job, planned *spec.Point) error {
	if f.help != "" {
		b, err := spec.ReadFile(f.help, helpLimit)
		if err != nil {
			return err
		}
		if _, err := engine.ParseHelp(string(b)); err != nil {
			return fmt.Errorf("--engine-help %s: %w", f.help, err)
		}
		j.EngineHelp = string(b)
	}
	if j.Recipe == nil || run.Refusal(j) != nil {
		return nil
	}
	if worker, router, err := j.Recipe.Helps(j.EngineHelp); err != nil || worker == nil && router == nil {
		return err
	}
	d, err := engine.Build(planned, j.Verdict, j.Recipe, engine.Place{})
	if err != nil {
		return nil // the point says so when its turn comes
	}
	if err := j.CheckArguments(context.Background(), d, false); err != nil {
		return fmt.Errorf("%s: %w", j.Point.Key, err)
	}
	return nil
}

// helpLimit bounds a help text; vLLM's has 180 kB.
const helpLimit = 8 << 20

// factsText reads a file of facts; no name is no text.
func factsText(file string) (string, error) {
	if file == "" {
		return "", nil
	}
	b, err := spec.ReadFile(file, factsLimit)
	return string(b), err
}

func (f *launchFlags) dirs() []fs.FS { return recipeDirs(f.recipes) }

// local starts engines on this machine, with this program as the simulated one.
func (f *launchFlags) local(dir string, models map[string]string) (run.Executor, error) {
	exe, err := self()
	if err != nil {
		return nil, err
	}
	scratch, err := filepath.Abs(filepath.Join(dir, run.WorkDir))
	if err != nil {
		return nil, err
	}
	gpus, err := f.gpu.read()
	if err != nil {
		return nil, usage(err)
	}
	return run.Choose(func(j *run.Job) run.Executor {
		if j.Recipe == nil {
			return run.Virtual{}
		}
		l := run.Local(exe, scratch)
		l.GPU = gpus
		l.Place.Model = models[j.Point.Model]
		return l
	}), nil
}

// self is the path of this program, under the name that it was called by: a link to it may
// have another.
func self() (string, error) {
	exe, err := os.Executable()
	if err == nil && filepath.Base(exe) == filepath.Base(os.Args[0]) {
		return exe, nil
	}
	if called, lookErr := exec.LookPath(os.Args[0]); lookErr == nil {
		return filepath.Abs(called)
	}
	return exe, err
}

// onFleet runs every point as its cluster does: here, or in an allocation of its scheduler.
func (f *sweepFlags) onFleet(here run.Executor, jobs []*run.Job) (run.Executor, int, error) {
	fleet, err := spec.LoadFleet(f.fleet)
	if err != nil {
		return nil, 0, usage(err)
	}
	if f.renew {
		for _, c := range fleet.Clusters {
			c.Container.Renew = time.Now().Unix()
		}
	}
	dir, err := filepath.Abs(f.out)
	if err != nil {
		return nil, 0, err
	}
	exe, err := self()
	if err != nil {
		return nil, 0, err
	}
	gpus, err := f.launch.gpu.read()
	if err != nil {
		return nil, 0, usage(err)
	}
	slurm := &run.Slurm{Dir: dir, Weir: exe, Poll: f.poll, Cluster: fleet.Cluster, SubmitOnly: f.submit, GPU: gpus, Share: f.share, Unclean: run.Unclean(f.unclean)}
	for i, j := range jobs {
		if i == 0 || j.Priority > slurm.Top {
			slurm.Top = j.Priority
		}
	}
	for _, j := range jobs {
		c, err := fleet.Cluster(j.Point.Runner)
		if err != nil {
			return nil, 0, usage(err)
		}
		if f.submit && c.Scheduler != "slurm" {
			return nil, 0, usagef("--slurm-submit-only: %s runs on %s, which %s gives no Slurm (scheduler: slurm): leave the flag out", j.Point.Key, j.Point.Runner, f.fleet)
		}
		if j.Recipe == nil && c.Scheduler == "slurm" {
			return nil, 0, usagef("%s:%d: recipe sim runs in virtual time and needs no cluster: leave --fleet out, or name the recipe sim-serve", j.Point.Origin.File, j.Point.Origin.Line)
		}
	}
	ex := run.Choose(func(j *run.Job) run.Executor {
		c, err := fleet.Cluster(j.Point.Runner)
		if err != nil { // checked above
			return here
		}
		switch c.Scheduler {
		case "slurm":
			return slurm
		case "docker", "podman":
			l := run.Contained(exe, filepath.Join(dir, run.WorkDir), c.Scheduler, &c.Container)
			l.GPU, l.ClientCPUs = gpus, c.ClientCPUs
			l.Place.Model = c.Models[j.Point.Model]
			return l
		}
		if j.Recipe == nil {
			return here
		}
		l := run.Local(exe, filepath.Join(dir, run.WorkDir))
		l.GPU, l.ClientCPUs = gpus, c.ClientCPUs
		l.Place.Model = c.Models[j.Point.Model]
		return l
	})
	if f.parallel > 0 {
		return ex, f.parallel, nil
	}
	for _, j := range jobs {
		if c, err := fleet.Cluster(j.Point.Runner); err == nil && c.Scheduler != "slurm" {
			return ex, 1, nil
		}
	}
	return ex, len(jobs), nil
}

// predictedKnee is how many agents the planned pools hold at their longest: the distinct tokens
// that the workers keep over the mean of what a trace grows to. 0 where nobody knows.
func predictedKnee(j *run.Job) int {
	if j.Verdict == nil || j.Corpus == nil {
		return 0
	}
	var longest, n int64
	for _, t := range j.Corpus.Traces {
		peak := int64(0)
		for _, s := range t.Streams {
			for _, u := range s.Turns {
				peak = max(peak, u.In+u.Out)
			}
		}
		longest, n = longest+peak, n+1
	}
	if longest == 0 {
		return 0
	}
	return int(min(j.Verdict.UniqueTokens/max(1, longest/n), 1<<20))
}
