package cli

import (
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/weirbench/weir/internal/spec"
)

func newLintCmd(app *App) *cobra.Command {
	var in spec.LintInput
	var rules bool
	cmd := &cobra.Command{
		Use:   "lint",
		Short: "Check master files, recipes and pages against a publisher's rules",
		Long: `Check master files, recipes and pages against the rules that a benchmark publisher enforces beyond
validity. A rule is waived in the file, with a reason:

  # weir:waive golden-al: measured with another sampler, see issue 12

at the end of a line for the line; on its own line for the value that begins below it; as
weir:waive-file for the file. Findings that are not waived end the command with code 1.`,
		Example: `  weir lint -f nvidia-master.yaml amd-master.yaml -r runners.yaml --golden golden_al_distribution
  weir lint --recipes recipes/ -f nvidia-master.yaml -r runners.yaml
  weir lint --bilingual docs/
  weir lint --rules`,
		Args:               cobra.ArbitraryArgs,
		DisableFlagParsing: true,
	}
	fs := cmd.Flags()
	fs.StringSliceVarP(&in.Masters, "config-files", "f", nil, "master files")
	fs.StringVarP(&in.Runners, "runner-config", "r", "", "runners.yaml")
	fs.StringSliceVar(&in.Recipes, "recipes", nil, "recipe files and scripts, or folders of them")
	fs.StringVar(&in.Golden, "golden", "", "folder of golden acceptance lengths")
	fs.StringSliceVar(&in.Bilingual, "bilingual", nil, "folders, pages or texts that must be in English and Chinese")
	fs.BoolVar(&rules, "rules", false, "list the rules and their reasons")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if help, err := parseSpread(cmd, args); err != nil || help {
			return err
		}
		if rules {
			return printRules(app)
		}
		if len(in.Masters)+len(in.Recipes)+len(in.Bilingual) == 0 {
			return usagef("nothing to check; name --config-files, --recipes or --bilingual")
		}
		rep, err := spec.Lint(in)
		if err != nil {
			return usage(err)
		}
		if app.JSON {
			if err := app.printJSON(rep); err != nil {
				return err
			}
		} else {
			for _, f := range rep.Findings {
				fmt.Fprintln(app.Out, f)
			}
			for _, f := range rep.Waived {
				fmt.Fprintln(app.Out, f)
			}
			for _, s := range rep.Skipped {
				fmt.Fprintln(app.Out, "not checked: "+s)
			}
		}
		if n := len(rep.Findings); n > 0 {
			return fmt.Errorf("%d findings, %d waived", n, len(rep.Waived))
		}
		return nil
	}
	return cmd
}

func printRules(app *App) error {
	rules := spec.LintRules()
	if app.JSON {
		return app.printJSON(rules)
	}
	w := tabwriter.NewWriter(app.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "RULE\tWHAT\tREASON")
	for _, r := range rules {
		fmt.Fprintf(w, "%s\t%s\t%s\n", r.ID, r.What, r.Reason)
	}
	return w.Flush()
}
