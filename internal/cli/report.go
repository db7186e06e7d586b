package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/weirbench/weir/internal/frontier"
	"github.com/weirbench/weir/internal/result"
	"github.com/weirbench/weir/internal/store"
	"github.com/weirbench/weir/internal/web"
)

func newReportCmd(app *App) *cobra.Command {
	var db, out string
	var o web.ReportOptions
	var filter filterFlags
	cmd := &cobra.Command{
		Use:   "report [BUNDLE...]",
		Short: "Write results as one HTML file that opens without a network",
		Long: `Report draws the frontier, the hit rates by tier and the table of the results of bundles, or
of a store, into one file that needs nothing else. Bundles are derived, not changed, and not compared
with their sums: weir derive does that.`,
		Example: `  weir report weir-runs/quickstart -o report.html
  weir report --db weir.db --model GLM-5.2 -o glm.html`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if (db == "") == (len(args) == 0) {
				return usagef("give bundles, or a store with --db")
			}
			if err := fileForOutput(out); err != nil {
				return err
			}
			for _, name := range []string{o.X, o.Y} {
				if name == "" {
					continue
				}
				if _, err := frontier.ByName(name); err != nil {
					return usage(err)
				}
			}
			var rs []*result.Result
			if db != "" {
				entries, err := queryStore(cmd, db, &filter)
				if err != nil {
					return err
				}
				for _, e := range entries {
					rs = append(rs, e.Result)
				}
			} else {
				entries, err := derived(args...)
				if err != nil {
					return err
				}
				for _, e := range entries {
					rs = append(rs, e.Result)
				}
				if o.Title == "" {
					o.Title = filepath.Base(absolute(args[0]))
				}
			}
			if err := writeReport(out, rs, o); err != nil {
				return err
			}
			if app.JSON {
				return app.printJSON(map[string]any{"report": out, "runs": len(rs)})
			}
			_, err := fmt.Fprintf(app.Out, "%s: %d runs\n", out, len(rs))
			return err
		},
	}
	cmd.Flags().StringVar(&db, "db", "", "take results from this store: a `FILE` or postgres://user@host/database")
	cmd.Flags().StringVarP(&out, "output", "o", "report.html", "`FILE` to write")
	cmd.Flags().StringVar(&o.Title, "title", "", "`TEXT` at the head of the report")
	cmd.Flags().StringVar(&o.X, "x", "", "`AXIS` across (default e2e_norm_p90)")
	cmd.Flags().StringVar(&o.Y, "y", "", "`AXIS` up (default total_per_gpu)")
	filter.register(cmd)
	return cmd
}

func writeReport(path string, rs []*result.Result, o web.ReportOptions) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".report-*.html")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	err = web.WriteReport(f, rs, o)
	if err == nil {
		err = f.Chmod(0o644)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// filterFlags are the flags that select runs of a store.
type filterFlags struct{ f store.Filter }

func (ff *filterFlags) register(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringSliceVar(&ff.f.Sweeps, "sweep", nil, "only runs of these `SWEEPS`")
	fl.StringSliceVar(&ff.f.Configs, "config", nil, "only runs of these `CONFIGS`")
	fl.StringSliceVar(&ff.f.Models, "model", nil, "only runs of these `MODELS`, without owner")
	fl.StringSliceVar(&ff.f.Hardware, "hardware", nil, "only runs on these `GPUS`")
	fl.StringSliceVar(&ff.f.Engines, "engine", nil, "only runs of these `ENGINES`")
	fl.StringSliceVar(&ff.f.Precision, "precision", nil, "only runs in these `PRECISIONS`")
	fl.StringSliceVar(&ff.f.Offload, "offload", nil, "only runs with these kinds of `OFFLOAD`")
	fl.IntSliceVarP(&ff.f.Conc, "concurrency", "c", nil, "only runs at these `CONCURRENCIES`")
	fl.BoolVar(&ff.f.ValidOnly, "valid", false, "only valid runs")
}

func queryStore(cmd *cobra.Command, db string, ff *filterFlags) ([]store.Entry, error) {
	s, err := store.OpenExisting(db)
	if err != nil {
		return nil, usage(err)
	}
	defer s.Close()
	return s.Query(cmd.Context(), ff.f)
}
