package cli

import (
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirbench/weir/internal/replay"
	"github.com/weirbench/weir/internal/run"
	"github.com/weirbench/weir/internal/spec"
)

func newPointCmd(app *App) *cobra.Command {
	var masters []string
	var runners, corpusPath, out string
	var conc int
	var job string
	var duration time.Duration
	var f launchFlags
	var cf corpusFlags
	var one pickFlags
	cmd := &cobra.Command{
		Use:   "point -f MASTER... -r RUNNERS KEY --conc N --corpus DIR",
		Short: "Run one point on this machine, with what its recipe starts",
		Long: `Point plans one point, starts the processes that its recipe makes of it, waits until a whole
generation comes back, empties the caches, replays, stops everything and leaves a bundle. A
bundle that ends with FAILED says the class of the failure: config, capacity, start, crash, stall,
client, node or cancelled.`,
		Example: `  weir point -f master.yaml -r runners.yaml my-config --conc 16 --corpus traces/ --duration 10m`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if job != "" {
				return run.Allocated(cmd.Context(), job, app.Err)
			}
			switch {
			case len(masters) == 0:
				return usagef("no master file: name one with -f (see 'weir point --help')")
			case corpusPath == "":
				return usagef("no corpus: name a directory or file of traces with --corpus")
			}
			if err := f.check(); err != nil {
				return err
			}
			set, err := spec.Load(masters, runners)
			if err != nil {
				return usage(err)
			}
			sel := spec.Selection{Keys: args}
			if conc > 0 {
				sel.Conc = []int{conc}
			}
			points, err := selected(set, sel)
			if err != nil {
				return err
			}
			ids := make([]string, len(points))
			for i, p := range points {
				ids[i] = p.ID()
			}
			which, err := one.pick(points, ids, "one is run")
			if err != nil {
				return err
			}
			p := points[which]
			if duration > 0 {
				p.DurationNs = int64(duration)
			}
			c, err := cf.load(app, corpusPath)
			if err != nil {
				return err
			}
			j, err := f.job(p, c, corpusPath, 0)
			if err != nil {
				return usage(err)
			}
			if err := run.Refusal(j); err != nil {
				return refused(fmt.Errorf("%s: %w", p.Key, err))
			}
			if out == "" {
				out = filepath.Join("weir-runs", "point-"+p.ID())
			}
			if err := bundleForOutput(out); err != nil {
				return err
			}
			ex, err := f.local(filepath.Dir(out), nil)
			if err != nil {
				return err
			}
			status := newStatus(app, p.Key)
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
	fl.StringSliceVarP(&masters, "file", "f", nil, "master file; may be repeated")
	fl.StringVarP(&runners, "runners", "r", "", "runners.yaml")
	fl.StringVar(&corpusPath, "corpus", "", "directory or file of traces")
	intVar(fl, &conc, "conc", 0, 1, replay.MaxLanes, "concurrency of the point")
	durationVar(fl, &duration, "duration", 0, 0, "profiling time; 0 takes the file's")
	fl.StringVar(&job, "job", "", "run the point of this `FILE` inside the allocation that was made for it; weir sweep writes both")
	fl.StringVarP(&out, "out", "o", "", "folder of the bundle (default weir-runs/point-ID)")
	one.add(fl)
	f.add(fl)
	cf.addSkip(cmd)
	return cmd
}
