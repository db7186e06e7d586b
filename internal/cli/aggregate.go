package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirbench/weir/internal/record"
	"github.com/weirbench/weir/internal/result/inferencex"
)

func newAggregateCmd(app *App) *cobra.Command {
	var resultDir, outputDir, filename, serving string
	var own bool
	cmd := &cobra.Command{
		Use:   "aggregate [BUNDLE...]",
		Short: "Form InferenceX's aggregate row from bundles or from AIPerf's artifacts",
		Long: `Aggregate forms the row that InferenceX's dashboard reads.

From bundles, or folders of bundles such as a sweep's, it writes one row each to
AGENTIC_OUTPUT_DIR: what the point says stands for InferenceX's variables (RUNNER_TYPE, MODEL, TP,
CONC, KV_OFFLOADING, ...), and a variable that is set stands before the point. A fixed-seq-len
point gives the row of the fixed-length transformer. A bundle that is simulated or not valid is
named on standard error with the reasons, and its row has the keys weir_simulated, weir_valid and
weir_reasons beside InferenceX's.

Without bundles it reads what AIPerf or 'weir aiperf profile' left in RESULT_DIR/aiperf_artifacts and
the point's variables (RUNNER_TYPE, MODEL, TP, CONC, KV_OFFLOADING, ... as InferenceX sets
them), and writes the row that InferenceX's dashboard reads to
AGENTIC_OUTPUT_DIR/RESULT_FILENAME.json. Flags stand before variables. Where 'weir aiperf profile'
noted that the server was simulated, the row has the three keys too.

Where a number of InferenceX is known to be wrong, its key carries it, and Weir's own stands beside it
under weir_storage_cache_hit_rate, weir_overall_cache_hit_rate, weir_kv_cache_pool_tokens,
weir_kv_offload_bytes_gpu_to_cpu, weir_kv_offload_bytes_cpu_to_gpu and weir_error_rate.

With --serving it forms the row of a fixed-length run from the JSON of benchmark_serving.`,
		Example: `  weir aggregate out/ --output-dir rows
  RESULT_DIR=results RESULT_FILENAME=agg KV_OFFLOADING=none FRAMEWORK=sglang TP=8 weir aggregate`,
		RunE: func(cmd *cobra.Command, args []string) error {
			env := os.LookupEnv
			if len(args) > 0 {
				if serving != "" || cmd.Flags().Changed("result-dir") {
					return usagef("bundles stand beside --serving or --result-dir: pass one of them")
				}
				return app.aggregate(args, outputDir, filename, inferencex.Options{Own: own})
			}
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
			if row.Mark != nil {
				app.marked(resultDir, row.Mark)
			}
			if row.NoSummary {
				fmt.Fprintf(app.Err, "weir: %s: there is no %s: the row has no data set and no hit rate at infinite capacity, and nothing says whether the server was simulated\n", resultDir, inferencex.SummaryFile)
			}
			for _, w := range row.Warnings {
				fmt.Fprintf(app.Err, "weir: %s: %s\n", resultDir, w)
			}
			return app.saveRow(row, filepath.Join(outputDir, filename+".json"))
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&resultDir, "result-dir", envOr("RESULT_DIR", "results"), "`FOLDER` of the run (default $RESULT_DIR)")
	fl.StringVar(&outputDir, "output-dir", envOr("AGENTIC_OUTPUT_DIR", "."), "`FOLDER` to write to (default $AGENTIC_OUTPUT_DIR)")
	fl.StringVar(&filename, "filename", os.Getenv("RESULT_FILENAME"), "`NAME` of the row without .json (default $RESULT_FILENAME)")
	fl.StringVar(&serving, "serving", "", "`FILE` of benchmark_serving: form the fixed-length row instead")
	fl.BoolVar(&own, "own", true, "Weir's own numbers beside compatible ones that it thinks wrong, under names that begin with weir_; --own=false leaves them out")
	return cmd
}

// aggregate writes the row of every bundle. One that has none does not keep the others from theirs.
func (a *App) aggregate(roots []string, outputDir, filename string, o inferencex.Options) error {
	var dirs, names []string
	for _, root := range roots {
		found, err := record.Find(root)
		if err != nil {
			return usage(err)
		}
		for _, dir := range found {
			name, err := filepath.Rel(root, dir)
			if err != nil {
				return err
			}
			if name == "." {
				name = filepath.Base(filepath.Clean(dir))
			}
			dirs, names = append(dirs, dir), append(names, strings.ReplaceAll(filepath.ToSlash(name), "/", "_"))
		}
	}
	if len(dirs) == 1 && filename != "" {
		names[0] = filename
	} else if filename != "" {
		for i := range names {
			names[i] = filename + "_" + names[i]
		}
	}
	var problems []error
	for i, dir := range dirs {
		if k := slices.Index(names, names[i]); k < i {
			return usagef("%s and %s would both be written to %s.json: aggregate them apart", dirs[k], dir, names[i])
		}
		b, err := record.OpenBundle(dir)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		if b.State != record.Complete {
			problems = append(problems, fmt.Errorf("%s is %s: it has no row", dir, b.State))
			continue
		}
		if err := b.Verify(); err != nil { // a row of a part of the records looks like any other
			problems = append(problems, err)
			continue
		}
		row, mark, err := inferencex.FromBundle(b, os.LookupEnv, o)
		if err != nil {
			if !strings.Contains(err.Error(), dir) {
				err = fmt.Errorf("%s: %w", dir, err)
			}
			problems = append(problems, err)
			continue
		}
		if mark != nil {
			a.marked(dir, mark)
		}
		if err := a.saveRow(row, filepath.Join(outputDir, names[i]+".json")); err != nil {
			return err
		}
	}
	if len(problems) == 0 {
		return nil
	}
	return usage(errors.Join(problems...))
}

// marked says why a row is none of a valid measurement.
func (a *App) marked(dir string, m *inferencex.Mark) {
	fmt.Fprintf(a.Err, "weir: %s: the row is not of a valid measurement: %s\n", dir, strings.Join(m.Reasons, "; "))
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
