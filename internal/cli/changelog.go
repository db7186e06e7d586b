package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirbench/weir/internal/spec"
)

type changelogFlags struct {
	file, baseRef, headRef         string
	base, head                     string
	configFiles, baseConfigFiles   []string
	runnerConfig, baseRunnerConfig string
	trimConc, allEvals, evalsOnly  bool
	format                         string
	workflows                      []string
}

func newChangelogCmd(app *App) *cobra.Command {
	var f changelogFlags
	cmd := &cobra.Command{
		Use:   "changelog",
		Short: "Expand what a change added to perf-changelog.yaml into jobs",
		Long: `Expand what a change added to perf-changelog.yaml into jobs, in buckets by the workflow that runs
them. The change is given by two revisions of git (--base-ref, --head-ref: all files are read as
they stand there) or by two files (--base, --head, with the configs as they are on disk).`,
		Example: `  weir changelog --base-ref origin/main --head-ref HEAD -f configs/amd-master.yaml configs/nvidia-master.yaml
  weir changelog --base old.yaml --head new.yaml -f nvidia-master.yaml -r runners.yaml
  weir changelog append perf-changelog.yaml --config-keys 'glm5.2*' --description "New image" --pr-link XXX`,
		Args:               cobra.ArbitraryArgs,
		DisableFlagParsing: true,
	}
	fs := cmd.Flags()
	inputFlags(fs, &f.configFiles, &f.runnerConfig)
	fs.StringVar(&f.file, "changelog-file", "perf-changelog.yaml", "the changelog, with --base-ref and --head-ref")
	fs.StringVar(&f.baseRef, "base-ref", "", "revision before the change")
	fs.StringVar(&f.headRef, "head-ref", "", "revision of the change")
	fs.StringVar(&f.base, "base", "", "changelog before the change, a file")
	fs.StringVar(&f.head, "head", "", "changelog of the change, a file")
	fs.StringSliceVar(&f.baseConfigFiles, "base-config-files", nil, "master files before the change, for append-only entries with --base")
	fs.StringVar(&f.baseRunnerConfig, "base-runner-config", "", "runners.yaml before the change, for append-only entries with --base")
	fs.BoolVar(&f.trimConc, "trim-conc", false, "keep the lowest concurrency of every topology")
	fs.BoolVar(&f.allEvals, "all-evals", false, "evaluate everything that can be evaluated")
	fs.BoolVar(&f.evalsOnly, "evals-only", false, "no throughput jobs")
	fs.StringVar(&f.format, "format", "json", "json, or github: the inputs of a workflow (needs --workflow)")
	fs.StringSliceVar(&f.workflows, "workflow", nil, "workflow files whose inputs --format github fills")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if help, err := parseSpread(cmd, args); err != nil || help {
			return err
		}
		return f.run(app, cmd.Context())
	}
	cmd.AddCommand(newChangelogAppendCmd(app))
	return cmd
}

func (f *changelogFlags) run(app *App, ctx context.Context) error {
	byRef, byFile := f.baseRef != "" || f.headRef != "", f.base != "" || f.head != ""
	switch {
	case byRef == byFile:
		return usagef("give the change as --base-ref and --head-ref, or as --base and --head")
	case byRef && (f.baseRef == "" || f.headRef == ""):
		return usagef("--base-ref and --head-ref go together")
	case byFile && (f.base == "" || f.head == ""):
		return usagef("--base and --head go together")
	case len(f.configFiles) == 0:
		return usagef("--config-files is missing; name the master files")
	case f.format != "json" && f.format != "github":
		return usagef("--format %q is not known; use json or github", f.format)
	case f.format == "github" && len(f.workflows) == 0:
		return usagef("--format github fills the inputs of a workflow; name it with --workflow FILE")
	}
	var change spec.Change
	var err error
	if byRef {
		change, err = spec.ChangeOfRevisions(ctx, f.baseRef, f.headRef, f.file, f.configFiles, f.runnerConfig)
	} else {
		change, err = spec.ChangeOfFiles(f.base, f.head, f.configFiles, f.runnerConfig, f.baseConfigFiles, f.baseRunnerConfig)
	}
	if err != nil {
		return usage(err)
	}
	b, err := change.Buckets(spec.ChangelogOptions{TrimConc: f.trimConc, AllEvals: f.allEvals, EvalsOnly: f.evalsOnly})
	if err != nil {
		return usage(err)
	}
	if f.format == "github" {
		return printGitHub(app, b, f.workflows)
	}
	_, err = app.Out.Write(append(b.AppendJSON(nil, change.BaseRef, change.HeadRef), '\n'))
	return err
}

func newChangelogAppendCmd(app *App) *cobra.Command {
	var e spec.ChangelogEntry
	var scenarios, configFiles []string
	var runnerConfig string
	cmd := &cobra.Command{
		Use:   "append FILE",
		Short: "Write a new entry at the end of a changelog",
		Long: `Write a new entry at the end of a changelog. What is there stays byte for byte. With --config-files
the names of the configs are checked first.`,
		Example:            "  weir changelog append perf-changelog.yaml --config-keys glm5.2-fp8-h200-sglang --description \"Raise concurrency to 64\" --pr-link XXX",
		Args:               cobra.ArbitraryArgs,
		DisableFlagParsing: true,
	}
	fs := cmd.Flags()
	fs.StringSliceVar(&e.ConfigKeys, "config-keys", nil, "names of configs; * matches any text")
	fs.StringArrayVar(&e.Description, "description", nil, "what changed; repeat for several lines")
	fs.StringVar(&e.PRLink, "pr-link", "", "link of the pull request, or XXX")
	fs.StringSliceVar(&scenarios, "scenario-type", nil, "fixed-seq-len, agentic-coding; all if not given")
	fs.BoolVar(&e.EvalsOnly, "evals-only", false, "evaluate only")
	fs.BoolVar(&e.AllEvals, "all-evals", false, "evaluate everything that can be evaluated")
	fs.BoolVar(&e.AppendOnly, "append-only", false, "run only points that are new, and add them to the curve")
	fs.IntVar(&e.EvalMinPrefillEP, "eval-min-prefill-ep", 0, "evaluate multi-node jobs from this prefill ep on")
	fs.StringSliceVarP(&configFiles, "config-files", "f", nil, "master files to check the names against")
	fs.StringVarP(&runnerConfig, "runner-config", "r", "", "runners.yaml to check with")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var file string
		if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
			file, args = args[0], args[1:]
		}
		if help, err := parseSpread(cmd, args); err != nil || help {
			return err
		}
		if file == "" {
			return usagef("name the changelog first: weir changelog append FILE ...")
		}
		for _, s := range scenarios {
			e.Scenarios = append(e.Scenarios, spec.Scenario(s))
		}
		if len(configFiles) > 0 {
			set, err := spec.Load(configFiles, runnerConfig)
			if err != nil {
				return usage(err)
			}
			if err := set.CheckEntry(&e); err != nil {
				return usage(err)
			}
		}
		at, err := spec.AppendChangelog(file, &e)
		if err != nil {
			return usage(err)
		}
		if app.JSON {
			return app.printJSON(map[string]any{"file": file, "line": at})
		}
		_, err = fmt.Fprintf(app.Out, "%s:%d: entry added\n", file, at)
		return err
	}
	return cmd
}
