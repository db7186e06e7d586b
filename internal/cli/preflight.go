package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirbench/weir/internal/engine"
	"github.com/weirbench/weir/internal/plan"
	"github.com/weirbench/weir/internal/run"
	"github.com/weirbench/weir/internal/spec"
)

// preflightFlags say what a node is checked for.
type preflightFlags struct {
	one                           pickFlags
	masters                       []string
	runners, pointFile, role, out string
	recipes                       string
	conc, gpus                    int
	ports                         []int
	shm, bundle, corpus, model    string
	shmGB, diskGB, engineGB       float64
	hugePageKiB                   int64
	clock, serveClock             string
	serveFor, clockMax, timeout   time.Duration
	simulated                     bool
	mark                          string
}

func newPreflightCmd(app *App) *cobra.Command {
	var f preflightFlags
	cmd := &cobra.Command{
		Use:   "preflight [-f MASTER... -r RUNNERS KEY --conc N | --point point.json]",
		Short: "Check this node before an engine starts on it",
		Long: `Check the node that this runs on: memory that is available and that the control group allows,
locked memory, huge pages, shared memory and what earlier runs left in it, processors against
ranks, NUMA, open files for the concurrency, ports, GPUs, disk, corpus, model, and the clock of
another node. With a point, what its plan pins is laid beside the memory that is really there.

The launcher runs it on every node before it starts an engine there, outside the container, and
keeps what it saw among the logs of the bundle. It ends with 4 when a check refuses; --out writes
the same report to a file.`,
		Example: `  weir preflight
  weir preflight --point point.json --port 30000 --bundle out --out preflight.json
  weir preflight -f nvidia-master.yaml -r runners.yaml glm5.2-fp4-b200-sglang-agentic-mtp --conc 16
  weir preflight --serve-clock 10.0.0.1:7077 --serve-for 5m
  weir preflight --clock 10.0.0.1:7077`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd.Context(), app, args) },
	}
	fs := cmd.Flags()
	inputFlags(fs, &f.masters, &f.runners)
	fs.StringVar(&f.recipes, "recipes", "", "`FOLDER` of recipes, before those that come with weir")
	fs.StringVar(&f.pointFile, "point", "", "`FILE` with one point as JSON, such as a bundle's point.json")
	f.one.add(fs)
	fs.StringVar(&f.role, "role", "", "workers that run here: unified, prefill or decode; default: the first of the point")
	fs.BoolVar(&f.simulated, "simulated", false, "the engine is the simulator: of the point only the concurrency counts")
	fs.IntVar(&f.conc, "conc", 0, "concurrency; default: the point's")
	fs.IntVar(&f.gpus, "gpus", 0, "GPUs that must be there; default: the point's ranks on a node")
	fs.IntSliceVar(&f.ports, "port", nil, "TCP ports that must be free")
	fs.StringVar(&f.shm, "shm", "", "file system for shared memory; default /dev/shm")
	floatVar(fs, &f.shmGB, "shm-gb", 0, maxDiskGB, "shared memory that must be free, `GB`; default: what the point needs")
	fs.Int64Var(&f.hugePageKiB, "hugepage-kib", 0, "size of the huge pages of the host tier, `KiB`")
	fs.StringVar(&f.bundle, "bundle", "", "directory that bundles go to")
	floatVar(fs, &f.diskGB, "disk-gb", oneByteGB, maxDiskGB, "room that must be there, `GB`; default 5")
	fs.StringVar(&f.corpus, "corpus", "", "traces that must be there")
	fs.StringVar(&f.model, "model-path", "", "checkpoint that must be there, with all its shards")
	f.engineGB = -1
	floatVar(fs, &f.engineGB, "engine-gb", 0, maxGB, "host memory of one engine process beside its pools, `GB`; default: the fact")
	fs.StringVar(&f.clock, "clock", "", "compare clocks with `HOST:PORT`")
	fs.DurationVar(&f.clockMax, "max-clock-offset", time.Duration(plan.ClockLimitNs), "how far the clocks may be apart")
	fs.StringVar(&f.mark, "mark", "", "list the processes that run with `NAME=VALUE` in their environment")
	fs.StringVar(&f.serveClock, "serve-clock", "", "serve this node's clock on `HOST:PORT` instead of checking")
	fs.DurationVar(&f.serveFor, "serve-for", time.Minute, "how long to serve it")
	fs.DurationVar(&f.timeout, "timeout", 30*time.Second, "end by then whatever hangs")
	fs.StringVar(&f.out, "out", "", "write the report as JSON to `FILE` too")
	return cmd
}

func (f *preflightFlags) run(ctx context.Context, app *App, args []string) error {
	if f.serveClock != "" {
		return f.serve(ctx, app)
	}
	q, err := f.request(args)
	if err != nil {
		return err
	}
	rep, err := plan.Preflight(ctx, q)
	if err != nil {
		return usage(err)
	}
	if f.out != "" {
		b, err := json.MarshalIndent(rep, "", "  ")
		if err != nil {
			return err
		}
		if err := os.WriteFile(f.out, append(b, '\n'), 0o644); err != nil {
			return err
		}
	}
	if app.JSON {
		err = app.printJSON(rep)
	} else {
		err = printReport(app, rep)
	}
	if err != nil || rep.OK {
		return err
	}
	var names []string
	for _, c := range rep.Checks {
		if c.Level == plan.Refuse {
			names = append(names, c.Name)
		}
	}
	return refused(fmt.Errorf("%s does not pass: %s", rep.Node.Host, strings.Join(names, ", ")))
}

func (f *preflightFlags) request(args []string) (plan.Request, error) {
	q := plan.Request{
		Role: f.role, GPUs: f.gpus, Conc: f.conc, Ports: f.ports, ShmPath: f.shm, ShmBytes: int64(f.shmGB * 1e9),
		HugePageBytes: f.hugePageKiB << 10, BundleDir: f.bundle, DiskBytes: int64(f.diskGB * 1e9), Corpus: f.corpus, Model: f.model,
		ClockAddr: f.clock, ClockMaxNs: f.clockMax.Nanoseconds(), ProbeDeadline: f.timeout, Simulated: f.simulated, Mark: f.mark,
	}
	for _, n := range []struct {
		name       string
		value, top int64
	}{{"hugepage-kib", f.hugePageKiB, 1 << 40}, {"gpus", int64(f.gpus), 1 << 16}, {"conc", int64(f.conc), 1e9}} {
		if n.value < 0 || n.value > n.top {
			return q, usagef("--%s %d is not within 0 to %d", n.name, n.value, n.top)
		}
	}
	for _, p := range f.ports {
		if p < 1 || p > 65535 {
			return q, usagef("--port %d is not within 1 to 65535", p)
		}
	}
	if f.mark != "" && !strings.Contains(strings.Trim(f.mark, "="), "=") {
		return q, usagef("--mark %q: write NAME=VALUE", f.mark)
	}
	if f.timeout <= 0 || f.clockMax <= 0 {
		return q, usagef("--timeout %v and --max-clock-offset %v: both must be more than 0", f.timeout, f.clockMax)
	}
	if f.engineGB >= 0 {
		n := int64(f.engineGB * 1e9)
		q.Options.HostProcessBytes = &n
	}
	var err error
	q.Point, err = f.point(args, &q)
	return q, err
}

// point reads the point that is checked for, if any.
func (f *preflightFlags) point(args []string, q *plan.Request) (*spec.Point, error) {
	if f.pointFile != "" {
		if len(f.masters) > 0 || len(args) > 0 || f.one != (pickFlags{}) {
			return nil, usagef("--point stands beside master files or a key; keep one")
		}
		b, err := spec.ReadFile(f.pointFile, pointLimit)
		if err != nil {
			return nil, usage(err)
		}
		return readPoint(f.pointFile, b, q)
	}
	pf := planFlags{masters: f.masters, runners: f.runners, recipes: f.recipes}
	var keys []string
	for _, a := range args {
		if strings.HasSuffix(a, ".yaml") || strings.HasSuffix(a, ".yml") {
			pf.masters = append(pf.masters, a)
		} else {
			keys = append(keys, a)
		}
	}
	if len(pf.masters) == 0 && len(keys) == 0 {
		if f.one != (pickFlags{}) {
			return nil, usagef("--id and --offload have no effect without master files: they choose one of their points")
		}
		return nil, nil
	}
	if f.conc > 0 {
		pf.conc = []int{f.conc}
	}
	pts, err := pf.points(keys, plan.Options{})
	if err != nil {
		return nil, err
	}
	which, err := f.one.pick(pts, pf.ids, "the node is checked for one")
	if err != nil {
		return nil, err
	}
	return pts[which], nil
}

// readPoint reads a point, alone or as the field "point" of a bundle's point.json or of a job's
// file; then it is planned as it was there, with the recipe and the facts that stand beside it.
func readPoint(name string, b []byte, q *plan.Request) (*spec.Point, error) {
	var j run.Job
	outer := struct {
		Point  **spec.Point    `json:"point"`
		Recipe **engine.Recipe `json:"recipe"`
		Facts  *string         `json:"facts"`
	}{&j.Point, &j.Recipe, &j.Facts}
	if err := json.Unmarshal(b, &outer); err != nil {
		return nil, usagef("%s: %w", name, err)
	}
	if j.Point == nil {
		if err := json.Unmarshal(b, &j.Point); err != nil {
			return nil, usagef("%s: %w", name, err)
		}
		if j.Point.Runner == "" || j.Point.Framework == "" {
			return nil, usagef("%s is not a point: it has no runner and no framework", name)
		}
	}
	opt, err := j.PlanOptions()
	if err == nil && j.Recipe != nil {
		q.NoGPUs = j.Recipe.Device == "cpu"
		j.Point, err = j.Recipe.Planned(j.Point)
	}
	if err != nil {
		return nil, usagef("%s: %w", name, err)
	}
	q.Options.Facts = opt.Facts
	return j.Point, nil
}

func printReport(app *App, rep *plan.Report) error {
	tw := tabwriter.NewWriter(app.Out, 0, 4, 2, ' ', 0)
	for _, c := range rep.Checks {
		fmt.Fprintf(tw, "%s\t%s\t%s\n", c.Level, c.Name, c.Seen)
		if c.Change != "" {
			fmt.Fprintf(tw, "\t\t  smallest change: %s\n", c.Change)
		}
	}
	for _, m := range rep.Node.Marked {
		fmt.Fprintf(tw, "-\tmark\tprocess %d runs: %s\n", m.PID, m.Command)
	}
	for _, p := range rep.Node.Problems {
		fmt.Fprintf(tw, "%s\t-\t%s\n", plan.NotSeen, p)
	}
	return tw.Flush()
}

func (f *preflightFlags) serve(ctx context.Context, app *App) error {
	if f.serveFor <= 0 {
		return usagef("--serve-for %v is not above 0", f.serveFor)
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", f.serveClock)
	if err != nil {
		return usage(err)
	}
	ctx, cancel := context.WithTimeout(ctx, f.serveFor)
	defer cancel()
	fmt.Fprintf(app.Out, "clock served on %s for %v\n", l.Addr(), f.serveFor)
	return plan.ServeClock(ctx, l, nil)
}
