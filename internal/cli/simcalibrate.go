package cli

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/weirbench/weir/internal/facts"
	"github.com/weirbench/weir/internal/plan"
	"github.com/weirbench/weir/internal/record"
	"github.com/weirbench/weir/internal/run"
	"github.com/weirbench/weir/internal/sim"
	"github.com/weirbench/weir/internal/spec"
)

func newSimCalibrateCmd(app *App) *cobra.Command {
	var f simFlags
	var out string
	var published bool
	cmd := &cobra.Command{
		Use:   "calibrate BUNDLE...",
		Short: "Fit the simulator's step times to recorded bundles and say how far off it is",
		Long: `Runs the requests of recorded bundles again on the simulated engine, each as long after what it
waited for as it was, and turns a few coefficients of the step-time model until times to first
token, times between tokens and throughput agree. Of two or more bundles every second by
concurrency is held out; the errors on those stand in the facts file that --out writes, which
'weir plan', 'weir knee' and 'weir sim' take with --facts.

A bundle says which engine it was by its point; where it does not (a server measured with
'weir replay --url'), the flags do.

With --published it fits the coefficients that ship with Weir to published results.`,
		Example: `  weir sim calibrate sweep/*/ -o facts.yaml
  weir sim calibrate c4 c16 c64 --model qwen3-235b-a22b --gpu h100 --tp 8 --engine vllm -o facts.yaml
  weir sim calibrate --published`,
		Args: func(_ *cobra.Command, args []string) error {
			if published == (len(args) > 0) {
				return usagef("name bundles, or give --published")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			set, err := f.facts()
			if err != nil {
				return usage(err)
			}
			date := time.Now().UTC().Format("2006-01")
			progress := newStatus(app, "calibrate")
			watch := func(p sim.FitProgress) error {
				progress.fit(p)
				return cmd.Context().Err()
			}
			if published {
				return writePublished(app, set, out, watch, progress)
			}
			f.fitting = true
			var runs []sim.Observed
			for _, dir := range args {
				o, err := observed(dir, &f, set, cmd.Flags().Changed("model"))
				if err != nil {
					return usage(fmt.Errorf("%s: %w", dir, err))
				}
				runs = append(runs, o)
			}
			c := &runs[0].Config
			from, err := set.CoefficientsFor(c.Model.Name, c.GPU.Name, c.WeightPrecision)
			if err != nil {
				if from, err = set.CoefficientsFor("", "b200", ""); err != nil {
					return err
				}
			}
			co, comparisons, err := sim.Calibrate(runs, *from, date, watch)
			progress.clear()
			if err != nil {
				return err
			}
			if out != "" {
				if err := writeCoefficients(out, []facts.Coefficients{co}); err != nil {
					return err
				}
			}
			if app.JSON {
				return app.printJSON(map[string]any{"coefficients": co, "runs": comparisons})
			}
			return printCalibration(app, &co, comparisons, out)
		},
	}
	f.add(cmd)
	fl := cmd.Flags()
	fl.StringVar(&f.engine, "engine", "sglang", "whose scheduler and cache the bundles ran: sglang or vllm")
	fl.StringVarP(&out, "out", "o", "", "`FILE` of facts to write")
	fl.BoolVar(&published, "published", false, "fit to published results instead")
	return cmd
}

// observed reads a bundle. The engine is what its point says, unless a model was named by hand
// or the point was a server by URL.
func observed(dir string, f *simFlags, set *facts.Set, byHand bool) (sim.Observed, error) {
	var o sim.Observed
	b, err := record.OpenBundle(dir)
	if err != nil {
		return o, err
	}
	var p spec.Point
	if err := json.Unmarshal(b.Meta.Point, &p); err != nil {
		return o, fmt.Errorf("its point: %w", err)
	}
	o.Name, o.Conc = dir, p.Conc
	if !byHand && p.Runner != "" {
		v, err := plan.Compute(&p, plan.Options{Facts: set})
		if err != nil {
			return o, err
		}
		if o.Config, err = run.SimConfig(&p, v, set); err != nil {
			return o, err
		}
	} else {
		if !byHand {
			return o, fmt.Errorf("its point names no runner: say with --model, --gpu, --tp and --engine what was measured")
		}
		if o.Config, err = f.config(); err != nil {
			return o, err
		}
		o.Config.Engine = f.engine
	}
	if n := b.Meta.ObservedPools.DeviceTokens; n > 0 && f.device == 0 {
		o.Config.DeviceTokens = n / int64(o.Config.Ranks())
	}
	if n := b.Meta.ObservedPools.HostTokens; n > 0 && f.host == 0 {
		o.Config.HostTokens = n / int64(o.Config.Ranks())
	}
	for r, err := range b.Requests() {
		if err != nil {
			return o, err
		}
		o.Requests = append(o.Requests, r)
	}
	return o, nil
}

func printCalibration(app *App, co *facts.Coefficients, cs []sim.Comparison, out string) error {
	w := tabwriter.NewWriter(app.Out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "conc\t\tTTFT p50\tsimulated\t\tITL p50\tsimulated\t\ttok/s\tsimulated\t\thit rate\tsimulated\t\n")
	for _, c := range cs {
		use := "fitted"
		if c.HeldOut {
			use = "held out"
		}
		ttft, itl, tput, hit := c.Errors()
		m, s := c.Measured, c.Simulated
		known := fmt.Sprintf("%.3f\t%.3f %+.3f\t", m.HitRate, s.HitRate, hit)
		if m.HitRate < 0 {
			known = "unknown\t\t"
		}
		fmt.Fprintf(w, "%d\t%s\t%.3f s\t%.3f s\t%+.0f %%\t%.2f ms\t%.2f ms\t%+.0f %%\t%s\t%s\t%+.0f %%\t%s\n", c.Conc, use,
			m.TTFTP50/1e9, s.TTFTP50/1e9, ttft*100, m.ITLP50/1e6, s.ITLP50/1e6, itl*100, number(m.Throughput, 0), number(s.Throughput, 0), tput*100, known)
	}
	w.Flush()
	if len(co.Fit.Errors) == 0 {
		fmt.Fprintln(app.Out, "\nnothing was held out: give bundles of two or more concurrencies to learn how far off predictions are")
	} else {
		fmt.Fprint(app.Out, "\nheld out, mean error:")
		for _, k := range slices.Sorted(maps.Keys(co.Fit.Errors)) {
			fmt.Fprintf(app.Out, " %s %.1f %%", strings.ReplaceAll(k, "_", " "), float64(co.Fit.Errors[k])/1e4)
		}
		fmt.Fprintln(app.Out)
	}
	if out != "" {
		fmt.Fprintf(app.Out, "coefficients %s in %s\n", co.Name, out)
	}
	return nil
}

func writePublished(app *App, set *facts.Set, out string, watch sim.Watch, progress *status) error {
	cs, err := sim.FitPublished(set, "2026-08", watch)
	progress.clear()
	if err != nil {
		return err
	}
	if out != "" {
		return writeCoefficients(out, cs)
	}
	b, err := yaml.Marshal(map[string]any{"coefficients": cs})
	if err != nil {
		return err
	}
	_, err = app.Out.Write(b)
	return err
}

func writeCoefficients(path string, cs []facts.Coefficients) error {
	b, err := yaml.Marshal(map[string]any{"coefficients": cs})
	if err != nil {
		return err
	}
	return os.WriteFile(path, append([]byte("# Written by 'weir sim calibrate'; errors in parts per million.\n"), b...), 0o644)
}

func newSimPublishedCmd(app *App) *cobra.Command {
	var f simFlags
	cmd := &cobra.Command{
		Use:     "published",
		Short:   "Compare the simulator with published results, point by point",
		Example: "  weir sim published",
		Args:    noArgs,
		RunE: func(*cobra.Command, []string) error {
			set, err := f.facts()
			if err != nil {
				return usage(err)
			}
			ps, err := sim.PublishedPoints(set)
			if err != nil {
				return err
			}
			if app.JSON {
				return app.printJSON(ps)
			}
			w := tabwriter.NewWriter(app.Out, 0, 0, 2, ' ', tabwriter.AlignRight)
			fmt.Fprint(w, "series\tconc\ttok/s/GPU\tsimulated\t\ttpot\tsimulated\t\tcoefficients\t\t\n")
			for _, p := range ps {
				use := ""
				if p.Fitted {
					use = "fitted"
				}
				fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%+.0f %%\t%.1f ms\t%.1f ms\t%+.0f %%\t%s\t%s\t\n", p.Series, p.Conc, number(p.PerGPU, 0), number(p.SimPerGPU, 0), p.PerGPUErr*100,
					p.TPOTNs/1e6, p.SimTPOTNs/1e6, p.TPOTErr*100, p.Coefficients, use)
			}
			return w.Flush()
		},
	}
	cmd.Flags().StringVar(&f.factsFile, "facts", "", "`FILE` of facts to put before the embedded ones")
	return cmd
}
