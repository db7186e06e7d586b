package cli

import (
	"github.com/spf13/cobra"

	"github.com/weirbench/weir/internal/result"
	"github.com/weirbench/weir/internal/store"
	"github.com/weirbench/weir/internal/web"
)

func newResultsCmd(app *App) *cobra.Command {
	var db string
	var csv bool
	var filter filterFlags
	cmd := &cobra.Command{
		Use:   "results [ID]",
		Short: "List the runs of a store, or show one",
		Long: `Results lists the runs of a store, one line each, or shows the numbers of the one whose id (a unique
beginning is enough) is given. --json prints all of a run, as its result.json has it, with sweep and bundle.`,
		Example: `  weir results --db weir.db --model GLM-5.2 --valid
  weir results --db weir.db 3f2a
  weir results --db weir.db --csv > results.csv`,
		Args: maxArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if csv && app.JSON {
				return usagef("--csv and --json contradict each other: leave out one of them")
			}
			if csv && len(args) == 1 {
				return usagef("--csv lists runs and %s names one: leave out one of them", args[0])
			}
			if len(args) == 1 {
				return showRun(cmd, app, db, args[0])
			}
			entries, err := queryStore(cmd, db, &filter)
			if err != nil {
				return err
			}
			if csv {
				var rs []*result.Result
				for _, e := range entries {
					rs = append(rs, e.Result)
				}
				b, err := web.CSV(rs)
				if err != nil {
					return err
				}
				_, err = app.Out.Write(b)
				return err
			}
			return printEntries(app, entries)
		},
	}
	cmd.Flags().StringVar(&db, "db", "weir.db", "the store: a `FILE` or postgres://user@host/database")
	cmd.Flags().BoolVar(&csv, "csv", false, "print every number of every run as CSV")
	filter.register(cmd)
	return cmd
}

// showRun prints one run.
func showRun(cmd *cobra.Command, app *App, db, id string) error {
	s, err := store.OpenExisting(db)
	if err != nil {
		return usage(err)
	}
	defer s.Close()
	e, err := s.Get(cmd.Context(), id)
	if err != nil {
		return usage(err)
	}
	if app.JSON {
		return app.printJSON(e)
	}
	return app.printRun(&e)
}

func maxArgs(n int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error { return usage(cobra.MaximumNArgs(n)(cmd, args)) }
}
