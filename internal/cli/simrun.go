package cli

import (
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirbench/weir/internal/replay"
	"github.com/weirbench/weir/internal/sim"
)

func newSimRunCmd(app *App) *cobra.Command {
	var f simFlags
	var cf corpusFlags
	var path string
	var conc []int
	var duration time.Duration
	var seed uint64
	var pressure int
	var compare bool
	cmd := &cobra.Command{
		Use:   "run --corpus DIR -c 1,8,64",
		Short: "Replay agents on a simulated engine in virtual time, one concurrency after another",
		Long: `Replays the traces of a corpus on the simulated engine in virtual time, as 'weir sweep' does,
without configuration files, bundles or a store, and prints where the cache falls over: the
highest concurrency at which the hit rate stays within 5 % of the ceiling. With --compare it
does so without the host pool first.`,
		Example: `  weir sim run --corpus traces -c 1,8,16,32,64
  weir sim run --corpus traces -c 8,16,32,64 --gpu b300 --device-tokens 3304988 --host-tokens 6009664 --write-policy write_back --compare`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if path == "" {
				return usagef("no corpus: name a directory or file of traces with --corpus")
			}
			for _, n := range conc {
				if n < 1 || n > replay.MaxLanes {
					return usagef("--concurrency %v: every value is within 1 to 100000", conc)
				}
			}
			c, err := f.config()
			if err != nil {
				return usage(err)
			}
			traces, err := cf.load(app, path)
			if err != nil {
				return err
			}
			o := replay.InferenceX(1, duration)
			o.Seed, o.PressureRequests = seed, pressure
			type run struct {
				HostTokens int64            `json:"host_tokens"`
				Knee       int              `json:"knee"`
				Points     []sim.CurvePoint `json:"points"`
			}
			out := struct {
				Simulated     bool   `json:"simulated"`
				SimError      string `json:"sim_error"`
				Model         string `json:"model"`
				GPU           string `json:"gpu"`
				TP            int    `json:"tp"`
				DeviceTokens  int64  `json:"device_tokens"`
				Traces        int    `json:"traces"`
				SkippedTraces int    `json:"skipped_traces"` // broken ones, left out by --skip-broken
				Runs          []run  `json:"runs"`
			}{true, c.StatedError(), c.Model.Name, c.GPU.Name, c.Parallel.TP, c.DeviceTokens, len(traces.Traces), len(traces.Skipped), nil}
			hosts := []int64{c.HostTokens}
			if compare && c.HostTokens > 0 {
				hosts = []int64{0, c.HostTokens}
			}
			for _, h := range hosts {
				c.HostTokens = h
				points, err := sim.Curve(cmd.Context(), c, traces, o, conc)
				if err != nil {
					return usage(err)
				}
				out.Runs = append(out.Runs, run{h, sim.Knee(points), points})
			}
			if app.JSON {
				return app.printJSON(out)
			}
			fmt.Fprintf(app.Out, "%s on %d x %s (simulated), device pool %s tokens, %v of load, %d traces of %s%s\n", out.Model, out.TP, out.GPU, count(out.DeviceTokens), duration, len(traces.Traces), traces.Name, skippedCount(traces))
			if out.SimError != "" {
				fmt.Fprintf(app.Out, "step times %s\n", out.SimError)
			}
			for _, r := range out.Runs {
				fmt.Fprintf(app.Out, "\nhost pool %s tokens\n", count(r.HostTokens))
				w := tabwriter.NewWriter(app.Out, 0, 0, 2, ' ', tabwriter.AlignRight)
				fmt.Fprint(w, "conc\trequests\thit\tdevice\thost\tceiling\tTTFT p50\tTTFT p90\tITL p50\ttok/s/GPU\t\n")
				for _, p := range r.Points {
					fmt.Fprintf(w, "%d\t%s\t%.3f\t%.3f\t%.3f\t%.3f\t%s s\t%s s\t%s ms\t%s\t\n", p.Concurrency, count(p.Requests), p.HitRate, p.Device, p.Host,
						p.Ceiling, number(p.TTFTP50/1e9, 2), number(p.TTFTP90/1e9, 2), number(p.ITLP50/1e6, 1), number(p.PerGPU, 0))
				}
				w.Flush()
				if r.Knee > 0 {
					fmt.Fprintf(app.Out, "within 5 %% of the ceiling up to concurrency %d\n", r.Knee)
				} else {
					fmt.Fprintln(app.Out, "nowhere within 5 % of the ceiling")
				}
			}
			return nil
		},
	}
	f.add(cmd)
	cf.add(cmd)
	fl := cmd.Flags()
	fl.StringVar(&path, "corpus", "", "directory or file of traces")
	fl.IntSliceVarP(&conc, "concurrency", "c", []int{1, 2, 4, 8, 16, 32, 64}, "agents at once")
	durationVar(fl, &duration, "duration", time.Hour, time.Second, "time that is replayed, after the warm-up")
	fl.Uint64Var(&seed, "seed", 42, "draws the start points")
	intVar(fl, &pressure, "warmup-requests-per-lane", 10, 0, 1_000_000, "one-token requests per agent before the time that counts")
	fl.BoolVar(&compare, "compare", false, "run without the host pool too")
	return cmd
}
