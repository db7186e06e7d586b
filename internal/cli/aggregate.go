package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/weirbench/weir/internal/result/inferencex"
)

func newAggregateCmd(app *App) *cobra.Command {
	var resultDir, outputDir, filename, serving string
	var own bool
	cmd := &cobra.Command{
		Use:   "aggregate",
		Short: "Form InferenceX's aggregate row from AIPerf's artifacts",
		Long: `Aggregate reads what AIPerf or 'weir aiperf profile' left in RESULT_DIR/aiperf_artifacts and
the point's variables (RUNNER_TYPE, MODEL, TP, CONC, KV_OFFLOADING, ... as InferenceX sets
them), and writes the row that InferenceX's dashboard reads to
AGENTIC_OUTPUT_DIR/RESULT_FILENAME.json. Flags stand before variables.

With --serving it forms the row of a fixed-length run from the JSON of benchmark_serving.`,
		Example: `  RESULT_DIR=results RESULT_FILENAME=agg KV_OFFLOADING=none FRAMEWORK=sglang TP=8 weir aggregate`,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			env := os.LookupEnv
			if serving != "" {
				row, err := inferencex.Serving(serving, env)
				if err != nil {
					return usage(err)
				}
				return app.saveRow(row, filepath.Join(filepath.Dir(serving), "agg_"+filepath.Base(serving)))
			}
			if filename == "" {
				return usagef("RESULT_FILENAME is not set: name the row's file with it or with --filename")
			}
			row, err := inferencex.Aggregate(resultDir, env, inferencex.Options{Own: own})
			if err != nil {
				return usage(err)
			}
			return app.saveRow(row, filepath.Join(outputDir, filename+".json"))
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&resultDir, "result-dir", envOr("RESULT_DIR", "results"), "`FOLDER` of the run (default $RESULT_DIR)")
	fl.StringVar(&outputDir, "output-dir", envOr("AGENTIC_OUTPUT_DIR", "."), "`FOLDER` to write to (default $AGENTIC_OUTPUT_DIR)")
	fl.StringVar(&filename, "filename", os.Getenv("RESULT_FILENAME"), "`NAME` of the row without .json (default $RESULT_FILENAME)")
	fl.StringVar(&serving, "serving", "", "`FILE` of benchmark_serving: form the fixed-length row instead")
	fl.BoolVar(&own, "own", false, "add Weir's own numbers where it thinks the compatible ones wrong, under the key weir")
	return cmd
}

func envOr(name, def string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return def
}

// saveRow writes a row to a file and says so, or prints it.
func (a *App) saveRow(row any, path string) error {
	b, err := json.MarshalIndent(row, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return err
	}
	if err := os.WriteFile(path, b, 0o666); err != nil {
		return err
	}
	if a.JSON {
		_, err = fmt.Fprintf(a.Out, "%s\n", b)
		return err
	}
	_, err = io.WriteString(a.Out, "row in "+path+"\n")
	return err
}
