package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/weirbench/weir/internal/frontier"
	"github.com/weirbench/weir/internal/record"
	"github.com/weirbench/weir/internal/result"
	"github.com/weirbench/weir/internal/store"
)

func newDeriveCmd(app *App) *cobra.Command {
	var db, sweep string
	var verify, noVerify bool
	cmd := &cobra.Command{
		Use:   "derive BUNDLE...",
		Short: "Derive the results of bundles again",
		Long: `Derive reads what was recorded and computes every number from it, by the definitions of this
version (` + result.Definitions + `), and writes result.json into each bundle. The same bundle gives the same
result.json byte for byte on every machine. A folder is searched for bundles.

First the recorded files are compared with the sizes and SHA-256 sums in the bundle's COMPLETE or FAILED. Of
a bundle that does not have them no result is written, the others get theirs, and derive ends with 1.
--no-verify leaves the comparison out: the files are then read once and not twice. A run that was cut has
no sums: what can be read of it is taken, and its result is not valid.

In the table [n 20] stands for a percentile that 20 samples are too few for. It ends with 3 when a result is not valid.`,
		Example: `  weir derive weir-runs/quickstart
  weir derive --db weir.db weir-runs/quickstart
  weir derive --no-verify weir-runs/quickstart`,
		Args: minArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if fl := cmd.Flags(); fl.Changed("verify") && fl.Changed("no-verify") && verify == noVerify {
				return usagef("--verify and --no-verify contradict each other: leave out one of them")
			}
			if cmd.Flags().Changed("verify") {
				noVerify = !verify
			}
			dirs, err := record.Find(args...)
			if err != nil {
				return usage(err)
			}
			var entries []store.Entry
			var damaged []error
			for _, dir := range dirs {
				r, err := deriveOne(dir, !noVerify)
				if err != nil {
					damaged = append(damaged, err)
					continue
				}
				entries = append(entries, store.Entry{Result: r, Sweep: sweepName(sweep, dir), Bundle: absolute(dir)})
			}
			if db != "" {
				if err := putAll(cmd.Context(), db, entries); err != nil {
					return err
				}
			}
			if len(entries) > 0 || app.JSON {
				if err := printEntries(app, entries); err != nil {
					return err
				}
			}
			if len(damaged) > 0 {
				return errors.Join(damaged...)
			}
			return invalidEntries(entries)
		},
	}
	cmd.Flags().StringVar(&db, "db", "", "also put the results into this store: a `FILE` or postgres://user@host/database")
	cmd.Flags().StringVar(&sweep, "sweep", "", "`NAME` of the sweep in the store (default: the folder that holds the bundle)")
	cmd.Flags().BoolVar(&noVerify, "no-verify", false, "don't compare the recorded files with their sums first")
	cmd.Flags().BoolVar(&verify, "verify", true, "")
	cmd.Flags().MarkHidden("verify") // the default; it was none once
	return cmd
}

// deriveOne derives the result of the bundle in dir, after a comparison of its files with their
// sums where there are some.
func deriveOne(dir string, verify bool) (*result.Result, error) {
	if verify && record.Status(dir) != record.Incomplete {
		b, err := record.OpenBundle(dir)
		if err != nil {
			return nil, err
		}
		if err := b.Verify(); err != nil {
			return nil, fmt.Errorf("%s is not what was recorded, so no result is derived from it (--no-verify derives it all the same):\n%w", dir, err)
		}
	}
	return result.DeriveDir(dir)
}

// derived are the results of all bundles under the given folders, computed from what was recorded
// and without a comparison with their sums. Nothing is written.
func derived(folders ...string) ([]store.Entry, error) {
	dirs, err := record.Find(folders...)
	if err != nil {
		return nil, usage(err)
	}
	var out []store.Entry
	for _, dir := range dirs {
		b, err := record.OpenBundle(dir)
		if err != nil {
			return nil, err
		}
		r, err := result.Derive(b)
		if err != nil {
			return nil, err
		}
		out = append(out, store.Entry{Result: r, Bundle: dir})
	}
	return out, nil
}

func sweepName(given, dir string) string {
	if given != "" {
		return given
	}
	return filepath.Base(filepath.Dir(absolute(dir)))
}

func absolute(dir string) string {
	if abs, err := filepath.Abs(dir); err == nil {
		return abs
	}
	return dir
}

func putAll(ctx context.Context, db string, entries []store.Entry) error {
	s, err := store.Open(db)
	if err != nil {
		return err
	}
	defer s.Close()
	return s.Put(ctx, entries...)
}

func invalidEntries(entries []store.Entry) error {
	n := 0
	var first error
	for _, e := range entries {
		if !e.Result.Valid {
			n++
			if first == nil {
				f := e.Result.Reasons[0]
				first = fmt.Errorf("%s at concurrency %d: %s: %s", e.Result.Point.Key, e.Result.Point.Conc, f.Code, f.Text)
			}
		}
	}
	if n == 0 {
		return nil
	}
	if n > 1 {
		first = fmt.Errorf("%d results are not valid; the first: %w", n, first)
	}
	return invalid(first)
}

// printEntries prints one line a run.
func printEntries(app *App, entries []store.Entry) error {
	if app.JSON {
		if entries == nil {
			entries = []store.Entry{}
		}
		return app.printJSON(entries)
	}
	x, err := frontier.ByName(frontier.DefaultX)
	if err != nil {
		return err
	}
	ttft, err := frontier.ByName("ttft_p90")
	if err != nil {
		return err
	}
	y, err := frontier.ByName(frontier.DefaultY)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(app.Out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "id\tmodel\thardware\tengine\tprec\toffload\tconc\thit %\tceiling %\tTTFT p90 s\tE2E intvty p90\ttok/s/GPU\tstate\t")
	cellTTFT, cellX, cellY := axisColumn(ttft, entries), axisColumn(x, entries), axisColumn(y, entries)
	sorted := slices.Clone(entries)
	slices.SortStableFunc(sorted, func(a, b store.Entry) int { return frontier.Order(a.Result, b.Result) })
	for _, e := range sorted {
		r := e.Result
		s := frontier.SeriesOf(r)
		state := "valid"
		if !r.Valid {
			state = "invalid: " + string(r.Reasons[0].Code)
		}
		if r.Simulated {
			state += ", " + r.Kind()
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t\n", r.ID, frontier.ModelName(&r.Point), s.Hardware, s.Engine, s.Precision, s.Offload,
			r.Point.Conc, sharePercent(r.Hits.Total), sharePercent(r.Hits.Ceiling), cellTTFT(r), cellX(r), cellY(r), state)
	}
	return w.Flush()
}

func sharePercent(v *float64) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf("%.1f", 100**v)
}

// axisColumn writes the numbers of runs on an axis with the same decimals, the sample count in
// brackets where one is withheld.
func axisColumn(a *frontier.Axis, entries []store.Entry) func(*result.Result) string {
	var column []float64
	for _, e := range entries {
		if v, _, ok := a.Value(e.Result); ok {
			column = append(column, v)
		}
	}
	decimals := frontier.Decimals(column)
	return func(r *result.Result) string {
		v, why, ok := a.Value(r)
		if ok {
			return frontier.Fixed(v, decimals)
		}
		if n, found := withheldCount(why); found {
			return "[n " + n + "]"
		}
		return "-"
	}
}

func withheldCount(why string) (string, bool) {
	var n, need int
	if _, err := fmt.Sscanf(why, "withheld: %d samples, %d are needed", &n, &need); err != nil {
		return "", false
	}
	return fmt.Sprint(n), true
}
