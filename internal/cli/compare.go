package cli

import (
	"cmp"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/weirbench/weir/internal/frontier"
	"github.com/weirbench/weir/internal/result"
	"github.com/weirbench/weir/internal/store"
)

func newCompareCmd(app *App) *cobra.Command {
	var db string
	var names []string
	cmd := &cobra.Command{
		Use:   "compare A B",
		Short: "Say what differs between two sets of results, and how sure that is",
		Long: `Compare matches the points of A and B by series and concurrency (by concurrency alone when each
side is one series) and gives the change with a 95 % interval: from pairs of repeats with equal
seeds, else from independent repeats, else, of single runs, from the traces that both replayed.
Where the interval lies around another change than that of the shown values it says so.

A and B are folders with bundles, or, with --db, names of sweeps. Either may end in a filter,
as in runs/quickstart:offload=none, and with --db the name may be left out: :hw=b200,prec=fp8.
Filters are config, model, hw, engine, prec and offload; offload=dram takes every backend.`,
		Example: `  weir compare weir-runs/monday weir-runs/tuesday
  weir compare weir-runs/quickstart:offload=none weir-runs/quickstart:offload=dram`,
		Args: exactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			var axes []*frontier.Axis
			for _, n := range names {
				a, err := frontier.ByName(n)
				if err != nil {
					return usage(err)
				}
				axes = append(axes, a)
			}
			var sides [2][]*result.Result
			bundles := map[*result.Result]string{}
			for i, arg := range args {
				entries, err := sideOf(cmd, db, arg)
				if err != nil {
					return err
				}
				if len(entries) == 0 {
					return usagef("%s selects no run", arg)
				}
				for _, e := range entries {
					sides[i] = append(sides[i], e.Result)
					bundles[e.Result] = e.Bundle
				}
			}
			c := frontier.Compare(sides[0], sides[1], axes, func(a, b *result.Result) *result.Paired {
				p, err := result.PairDirs(bundles[a], bundles[b])
				if err != nil { // then the runs are compared by what their results say
					return nil
				}
				return p
			})
			if app.JSON {
				return app.printJSON(c)
			}
			return printComparison(app, args, &c)
		},
	}
	cmd.Flags().StringVar(&db, "db", "", "take sweeps from this store: a `FILE` or postgres://user@host/database")
	cmd.Flags().StringSliceVar(&names, "axis", []string{frontier.DefaultY, frontier.DefaultX, "ttft_p90", "hit_total"}, "`AXES` to compare")
	return cmd
}

// sideOf reads the results that an argument names.
func sideOf(cmd *cobra.Command, db, arg string) ([]store.Entry, error) {
	source, text := arg, ""
	if _, err := os.Stat(arg); err != nil || db != "" { // a folder may have a colon in its name
		source, text, _ = strings.Cut(arg, ":")
	}
	keep, err := parseSideFilter(text)
	if err != nil {
		return nil, usagef("%s: %w", arg, err)
	}
	var all []store.Entry
	if db != "" {
		var f filterFlags
		if source != "" {
			f.f = store.Filter{Sweeps: []string{source}}
		}
		if all, err = queryStore(cmd, db, &f); err != nil {
			return nil, err
		}
	} else if all, err = derived(source); err != nil {
		return nil, err
	}
	var out []store.Entry
	for _, e := range all {
		if keep(e.Result) {
			out = append(out, e)
		}
	}
	return out, nil
}

func parseSideFilter(text string) (func(*result.Result) bool, error) {
	fields := map[string]func(*result.Result) []string{
		"config":  func(r *result.Result) []string { return []string{r.Point.Key} },
		"model":   func(r *result.Result) []string { return []string{r.Point.Model, frontier.ModelName(&r.Point)} },
		"hw":      func(r *result.Result) []string { return []string{frontier.Hardware(&r.Point)} },
		"engine":  func(r *result.Result) []string { return []string{r.Point.Framework} },
		"prec":    func(r *result.Result) []string { return []string{r.Point.Precision} },
		"offload": func(r *result.Result) []string { return []string{r.Point.Offload.Mode, frontier.SeriesOf(r).Offload} },
	}
	want := map[string]string{}
	for _, part := range strings.Split(text, ",") {
		if part == "" {
			continue
		}
		k, v, ok := strings.Cut(part, "=")
		if !ok || fields[k] == nil {
			return nil, fmt.Errorf("filter %q is not one of config=, model=, hw=, engine=, prec=, offload=", part)
		}
		want[k] = v
	}
	return func(r *result.Result) bool {
		for k, v := range want {
			hit := false
			for _, have := range fields[k](r) {
				hit = hit || have == v
			}
			if !hit {
				return false
			}
		}
		return true
	}, nil
}

func printComparison(app *App, args []string, c *frontier.Comparison) error {
	fmt.Fprintf(app.Out, "A  %s\nB  %s\n", args[0], args[1])
	for _, side := range []struct {
		name  string
		kinds []string
	}{{"A", c.KindA}, {"B", c.KindB}} {
		if text := kindNote(side.kinds); text != "" {
			fmt.Fprintf(app.Out, "%s is %s\n", side.name, text)
		}
	}
	for _, w := range c.Warnings {
		fmt.Fprintln(app.Out, "note: "+w)
	}
	if c.Invalid > 0 {
		fmt.Fprintf(app.Out, "note: %d runs are not valid and left out\n", c.Invalid)
	}
	fmt.Fprintln(app.Out)
	w := tabwriter.NewWriter(app.Out, 0, 0, 2, ' ', tabwriter.AlignRight)
	series := ""
	for i, d := range c.Deltas {
		if i == 0 || d.Series != series {
			if i > 0 {
				w.Flush()
				fmt.Fprintln(app.Out)
			}
			series = d.Series
			if series != "" {
				fmt.Fprintln(app.Out, series)
			}
			fmt.Fprintln(w, "conc\taxis\tA\tB\tchange\t95 % interval\truns\tfrom\tshows\t")
		}
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\t%d/%d\t%s\t%s\t\n", d.Conc, d.Axis, shown(&d, d.A.Value), shown(&d, d.B.Value), change(&d, d.Shown()), interval(&d), d.A.N, d.B.N, d.How, verdict(&d))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if len(c.Reach) > 0 {
		fmt.Fprintf(app.Out, "\nthroughput per GPU that is reached at an end-to-end normalised interactivity (p90) of at least:\n")
		w = tabwriter.NewWriter(app.Out, 0, 0, 2, ' ', tabwriter.AlignRight)
		fmt.Fprintln(w, "tok/s/user\tA\tB\tB/A\t")
		for _, r := range c.Reach {
			fmt.Fprintf(w, "%.0f\t%s\t%s\t%s\t\n", r.X, orDash(r.A), orDash(r.B), orDash(r.Ratio))
		}
		if err := w.Flush(); err != nil {
			return err
		}
		if c.AreaA > 0 && c.AreaB > 0 {
			fmt.Fprintf(app.Out, "area under the frontier: B is %s times A\n", frontier.Three(c.AreaB/c.AreaA))
		}
	}
	for _, only := range []struct {
		side string
		list []string
	}{{"A", c.OnlyA}, {"B", c.OnlyB}} {
		if len(only.list) > 0 {
			fmt.Fprintf(app.Out, "only in %s: %s\n", only.side, strings.Join(only.list, "; "))
		}
	}
	if n := len(c.Deltas); n >= 20 {
		fmt.Fprintf(app.Out, "of %d comparisons about %d would seem to differ by chance alone\n", n, (n+10)/20)
	}
	return nil
}

// kindNote says what the runs of a side are where they are not all measured; else it is empty.
func kindNote(kinds []string) string {
	if len(kinds) == 0 || len(kinds) == 1 && kinds[0] == "measured" {
		return ""
	}
	var parts []string
	for _, k := range kinds {
		switch {
		case strings.HasPrefix(k, "simulated"):
			k += ": no engine ran"
		case k == "unknown":
			k = "of unknown kind: no request was answered"
		}
		parts = append(parts, k)
	}
	return strings.Join(parts, "; in part ")
}

func shown(d *frontier.Delta, v float64) string {
	if !d.Ratio {
		return fmt.Sprintf("%.2f %%", 100*v)
	}
	return frontier.Table(v)
}

// change is a ratio in percent, or a difference of shares in points.
func change(d *frontier.Delta, v float64) string {
	return d.ChangeText(v, "pt", "%sx")
}

func interval(d *frontier.Delta) string {
	s := d.IntervalText(func(v float64) string { return change(d, v) })
	return cmp.Or(s, "-")
}

func verdict(d *frontier.Delta) string {
	s := string(d.Verdict)
	if d.Verdict == frontier.Same && d.Detect != nil {
		unit := 100 * *d.Detect
		if d.Ratio {
			return fmt.Sprintf("%s (would show from %.1f %%)", s, unit)
		}
		return fmt.Sprintf("%s (would show from %.1f pt)", s, unit)
	}
	if d.How == frontier.WithinRun || d.How == frontier.Traces {
		return s + " (single runs)"
	}
	return s
}

func orDash(v *float64) string {
	if v == nil {
		return "-"
	}
	return frontier.Three(*v)
}
