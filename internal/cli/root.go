package cli

import (
	"strings"

	"github.com/spf13/cobra"
)

// newRoot lists the commands, one line each, in the order in which data flows.
func newRoot(app *App) *cobra.Command {
	root := &cobra.Command{
		Use:   "weir",
		Short: "Measure LLM inference servers under agentic load",
		Long: `Weir measures an LLM inference server where its KV cache spills over: from HBM to host
DRAM to nothing. It does the whole chain in one binary, with or without GPUs:

  search space -> points -> will it fit? -> launch -> replay -> record -> derive -> frontier

Where commands or other tools spell a flag differently, either works everywhere: --file and --config-files,
--runners and --runner-config, --out and --output, --conc and --concurrency, --addr and --listen.`,
		Example: `  weir demo
  weir sweep --help`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			near := strings.Join(cmd.SuggestionsFor(args[0]), ", ")
			if near != "" {
				near = "; did you mean " + near + "?"
			}
			return usagef("unknown command %q%s (see 'weir --help')", args[0], near)
		},
	}
	root.SetOut(app.Out)
	root.SetErr(app.Err)
	root.SetIn(app.In)
	root.PersistentFlags().BoolVar(&app.JSON, "json", false, "print data as JSON")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usagef("%w (see '%s --help')", err, cmd.CommandPath())
	})
	root.AddCommand(
		newDemoCmd(app),
		newSweepCmd(app),
		newRenderCmd(app),
		newPointCmd(app),
		newReplayCmd(app),
		newLoadCmd(app),
		newCorpusCmd(app),
		newPromptCmd(app),
		newDeriveCmd(app),
		newAIPerfCmd(app),
		newAggregateCmd(app),
		newScrapeCmd(app),
		newGPUCmd(app),
		newReportCmd(app),
		newChartCmd(app),
		newResultsCmd(app),
		newCompareCmd(app),
		newServeCmd(app),
		newCalibrateCmd(app),
		newSimCmd(app),
		newVersionCmd(app),
		newMatrixCmd(app),
		newPlanCmd(app),
		newKneeCmd(app),
		newPreflightCmd(app),
		newChangelogCmd(app),
		newLintCmd(app),
		newSchemaCmd(app),
	)
	completeValues(root)
	finishFlags(root)
	root.SetUsageTemplate(usageTemplate(root.UsageTemplate()))
	return root
}
