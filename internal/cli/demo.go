package cli

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/weirbench/weir/examples"
	"github.com/weirbench/weir/internal/corpus"
	"github.com/weirbench/weir/internal/spec"
)

// demoSeed makes the demo's traces; the points bring their own seed.
const demoSeed = 6

func newDemoCmd(app *App) *cobra.Command {
	var f sweepFlags
	var traces int
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run the whole chain on a generated corpus and a simulated engine",
		Long: `Demo generates agent traces, sweeps one model on one simulated eight-GPU node over
concurrency 1 to 64 with host offload off and on, and draws the report. It needs no GPU,
no network and no files. What it writes can be looked at and run again: the traces, the
master file, a bundle a point, the store and the report.`,
		Example: "  weir demo",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := folderForOutput(f.out); err != nil {
				return err
			}
			if err := f.launch.check(); err != nil {
				return err
			}
			master, runners, err := writeDemoFiles(f.out)
			if err != nil {
				return err
			}
			set, err := spec.Load([]string{master}, runners)
			if err != nil {
				return err
			}
			points, err := selected(set, spec.Selection{Conc: f.conc})
			if err != nil {
				return err
			}
			c, err := corpus.Generate(corpus.GenerateOptions{Seed: demoSeed, Traces: traces})
			if err != nil {
				return usage(err)
			}
			if _, err := f.ready(points, c); err != nil {
				return err
			}
			if c, err = demoTraces(filepath.Join(f.out, "traces"), c); err != nil {
				return err
			}
			f.command = "weir demo"
			return app.sweep(cmd.Context(), points, c, f)
		},
	}
	cmd.Flags().StringVarP(&f.out, "out", "o", "weir-demo", "folder of the demo")
	intVar(cmd.Flags(), &traces, "traces", 64, 1, 1_000_000, "agent traces to generate")
	f.add(cmd)
	return cmd
}

// demoTraces leaves traces in dir, in place of those of an earlier demo that differ,
// and reads them back, as a sweep of recorded traces would.
func demoTraces(dir string, c *corpus.Corpus) (*corpus.Corpus, error) {
	if have, err := corpus.Load(dir, corpus.LoadOptions{}); err == nil && have.Fingerprint == c.Fingerprint {
		return have, nil
	}
	old, err := filepath.Glob(filepath.Join(dir, "gen_*.json"))
	for _, f := range old {
		err = errors.Join(err, os.Remove(f))
	}
	if err = errors.Join(err, corpus.WriteWekaDir(dir, c)); err != nil {
		return nil, err
	}
	return corpus.Load(dir, corpus.LoadOptions{})
}

// writeDemoFiles puts the demo's configuration into dir.
func writeDemoFiles(dir string) (master, runners string, err error) {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return "", "", err
	}
	for _, name := range []string{"master.yaml", "runners.yaml"} {
		b, err := examples.Files.ReadFile("demo/" + name)
		if err != nil {
			return "", "", err
		}
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o666); err != nil {
			return "", "", err
		}
	}
	return filepath.Join(dir, "master.yaml"), filepath.Join(dir, "runners.yaml"), nil
}
