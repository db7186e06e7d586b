package cli

import (
	"fmt"
	"runtime/debug"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weirbench/weir/internal/spec"
)

// matrixFlags are the flags of InferenceX's generator and those that Weir adds.
type matrixFlags struct {
	configFiles, scenarioTypes, seqLens           []string
	runnerConfig, runnerNodeFilter                string
	noEvals, evalsOnly, allEvals                  bool
	modelPrefix, precision, framework, runnerType []string
	stepSize, minConc, maxConc, maxTP, maxEP      int
	singleNode, multiNode                         bool
	configKeys                                    []string
	conc                                          []int
	points                                        bool
	explain                                       string
	format                                        string
	workflows                                     []string
}

func newMatrixCmd(app *App) *cobra.Command {
	cmd := matrixCmd(app, "matrix", "Expand master files into jobs or points", "both")
	cmd.Long = `Expand master files into the jobs that InferenceX's generator prints, in its order, or into
Weir's typed points. 'full-sweep' and 'test-config' take the generator's own flags; without
either, all flags are known and --config-keys decides. A flag that takes several values takes
them after one flag (--config-files a b) or repeated.`
	cmd.Example = `  weir matrix full-sweep -f nvidia-master.yaml amd-master.yaml -r runners.yaml
  weir matrix test-config --config-keys 'glm5.2*agentic*' --no-evals -f nvidia-master.yaml -r runners.yaml
  weir matrix --points -f nvidia-master.yaml -r runners.yaml --config-keys glm5.2-fp4-b300-sglang-agentic-mtp
  weir matrix --explain 1d27847ad00d -f nvidia-master.yaml -r runners.yaml`
	cmd.AddCommand(
		matrixCmd(app, "full-sweep", "Expand all configs, filtered", "full"),
		matrixCmd(app, "test-config", "Expand named configs", "test"),
		newCheckWorkflowCmd(app),
	)
	return cmd
}

func matrixCmd(app *App, use, short, kind string) *cobra.Command {
	var f matrixFlags
	cmd := &cobra.Command{
		Use:                use,
		Short:              short,
		Args:               cobra.ArbitraryArgs,
		DisableFlagParsing: true, // several values may follow one flag; see spreadValues
	}
	if kind != "both" {
		cmd.Example = "  weir matrix " + use + " --config-files nvidia-master.yaml amd-master.yaml --runner-config runners.yaml"
		if kind == "test" {
			cmd.Example += " --config-keys 'glm5.2*agentic*'"
		}
	}
	fs := cmd.Flags()
	inputFlags(fs, &f.configFiles, &f.runnerConfig)
	fs.BoolVar(&f.noEvals, "no-evals", false, "leave evaluations out")
	fs.BoolVar(&f.evalsOnly, "evals-only", false, "keep only the rows that are evaluated")
	fs.BoolVar(&f.allEvals, "all-evals", false, "evaluate every row that can be; prints only those")
	fs.StringVar(&f.runnerNodeFilter, "runner-node-filter", "", "keep runners whose name has this part, and expand to each")
	fs.StringSliceVar(&f.scenarioTypes, "scenario-type", nil, "fixed-seq-len, agentic-coding")
	fs.StringSliceVar(&f.seqLens, "seq-lens", nil, strings.Join(spec.SeqLenNames(), ", "))
	if kind != "test" {
		fs.StringSliceVar(&f.modelPrefix, "model-prefix", nil, "beginnings of config names")
		fs.StringSliceVar(&f.precision, "precision", nil, "precisions, such as fp4 fp8")
		fs.StringSliceVar(&f.framework, "framework", nil, "frameworks, such as sglang vllm")
		fs.StringSliceVar(&f.runnerType, "runner-type", nil, "labels of runners")
		fs.IntVar(&f.stepSize, "step-size", 2, "factor between concurrencies of a range")
		fs.IntVar(&f.minConc, "min-conc", 0, "least concurrency")
		fs.IntVar(&f.maxConc, "max-conc", 0, "highest concurrency")
		fs.IntVar(&f.maxTP, "max-tp", 0, "highest tensor parallelism (single-node fixed-seq-len)")
		fs.IntVar(&f.maxEP, "max-ep", 0, "expert parallelism is capped here (single-node fixed-seq-len)")
		fs.BoolVar(&f.singleNode, "single-node", false, "keep single-node configs")
		fs.BoolVar(&f.multiNode, "multi-node", false, "keep multi-node configs")
	}
	if kind != "full" {
		fs.StringSliceVar(&f.configKeys, "config-keys", nil, "names of configs; * and ? match")
		fs.IntSliceVar(&f.conc, "conc", nil, "keep only these concurrencies")
	}
	fs.BoolVar(&f.points, "points", false, "print typed points with their ids")
	fs.StringVar(&f.explain, "explain", "", "say where every field of the point with this `ID` comes from")
	fs.StringVar(&f.format, "format", "json", "json, or github: the inputs of a workflow (needs --workflow)")
	fs.StringSliceVar(&f.workflows, "workflow", nil, "workflow files whose inputs --format github fills")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if help, err := parseSpread(cmd, args); err != nil || help {
			return err
		}
		if kind == "test" && len(f.configKeys) == 0 {
			return usagef("--config-keys is missing; name the configs, such as --config-keys 'glm5.2*'")
		}
		return f.run(app, cmd)
	}
	return cmd
}

// inputFlags are the flags that name master files and runners.yaml.
func inputFlags(fs *pflag.FlagSet, masters *[]string, runners *string) {
	fs.StringSliceVarP(masters, "config-files", "f", nil, "master files")
	fs.StringVarP(runners, "runner-config", "r", "configs/runners.yaml", "runners.yaml")
}

// parseSpread parses flags of which several values may follow one; help says that the help was
// printed.
func parseSpread(cmd *cobra.Command, args []string) (help bool, err error) {
	cmd.DisableFlagParsing = false
	if err := cmd.ParseFlags(spreadValues(cmd.Flags(), args)); err != nil {
		return false, usagef("%w (see '%s --help')", err, cmd.CommandPath())
	}
	if h, _ := cmd.Flags().GetBool("help"); h {
		return true, cmd.Help()
	}
	if rest := cmd.Flags().Args(); len(rest) > 0 {
		return false, usagef("unexpected argument %q; flags of %s begin with -- (see '%s --help')", rest[0], cmd.CommandPath(), cmd.CommandPath())
	}
	return false, nil
}

// spreadValues repeats a list flag before each value that follows it, so that
// "--config-files a b" reads as "--config-files a --config-files b".
func spreadValues(fs *pflag.FlagSet, args []string) []string {
	out := make([]string, 0, len(args)+8)
	for i := 0; i < len(args); i++ {
		arg := args[i]
		out = append(out, arg)
		if arg == "--" {
			return append(out, args[i+1:]...)
		}
		if !strings.HasPrefix(arg, "-") || strings.Contains(arg, "=") {
			continue
		}
		flag := fs.Lookup(strings.TrimPrefix(arg, "--"))
		if flag == nil && len(arg) == 2 {
			flag = fs.ShorthandLookup(arg[1:])
		}
		if flag == nil || flag.NoOptDefVal != "" {
			continue
		}
		many := strings.HasSuffix(flag.Value.Type(), "Slice")
		for n := 0; i+1 < len(args); n++ {
			next := args[i+1]
			if n > 0 && (!many || strings.HasPrefix(next, "-")) {
				break
			}
			if n > 0 {
				out = append(out, arg)
			}
			out = append(out, next)
			i++
		}
	}
	return out
}

func (f *matrixFlags) run(app *App, cmd *cobra.Command) error {
	evals, err := f.evals()
	if err != nil {
		return err
	}
	sel, err := f.selection(cmd.Flags())
	if err != nil {
		return err
	}
	if f.format != "json" && f.format != "github" {
		return usagef("--format %q is not known; use json or github", f.format)
	}
	if f.format == "github" && len(f.workflows) == 0 {
		return usagef("--format github fills the inputs of a workflow; name it with --workflow FILE")
	}
	// The whole of it allocates about 15 MB: collecting on the way would cost a third of the time.
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	set, err := loadSet(app, f.configFiles, f.runnerConfig)
	if err != nil {
		return err
	}
	if f.points || f.explain != "" {
		evals = spec.EvalsNone
	}
	m, err := set.Matrix(sel, evals)
	if err != nil {
		return usage(err)
	}
	if f.explain == "" && m.Len() == 0 {
		fmt.Fprintln(app.Err, "warning: no row: no config of "+strings.Join(f.configFiles, ", ")+" has all that was asked for; 'weir matrix full-sweep' without filters prints what there is")
	}
	switch {
	case f.explain != "":
		return printExplanation(app, m, f.explain)
	case f.points:
		return printPoints(app, m.Points())
	case f.format == "github":
		return printGitHub(app, m.Buckets(), f.workflows)
	}
	_, err = app.Out.Write(append(m.AppendJSON(nil), '\n'))
	return err
}

func (f *matrixFlags) evals() (spec.Evals, error) {
	switch {
	case f.noEvals && (f.allEvals || f.evalsOnly):
		return 0, usagef("--no-evals stands beside --all-evals or --evals-only; keep one")
	case f.noEvals:
		return spec.EvalsNone, nil
	case f.allEvals:
		return spec.EvalsAll, nil
	case f.evalsOnly:
		return spec.EvalsOnly, nil
	}
	return spec.EvalsMarked, nil
}

func (f *matrixFlags) selection(fs *pflag.FlagSet) (spec.Selection, error) {
	limit := func(name string, v *int) *int {
		if fs.Changed(name) {
			return v
		}
		return nil
	}
	sel := spec.Selection{
		Keys: f.configKeys, ModelPrefix: f.modelPrefix, Precision: f.precision, Framework: f.framework,
		RunnerType: f.runnerType, RunnerNode: f.runnerNodeFilter, SeqLens: f.seqLens, Step: f.stepSize,
		MinConc: limit("min-conc", &f.minConc), MaxConc: limit("max-conc", &f.maxConc),
		MaxTP: limit("max-tp", &f.maxTP), MaxEP: limit("max-ep", &f.maxEP), Conc: f.conc,
		SingleNode: f.singleNode, MultiNode: f.multiNode,
	}
	for _, s := range f.scenarioTypes {
		sel.Scenarios = append(sel.Scenarios, spec.Scenario(s))
	}
	if fs.Changed("step-size") && f.stepSize < 2 {
		return sel, usagef("--step-size %d is not above 1; use 2 or more", f.stepSize)
	}
	return sel, nil
}

// loadSet loads the files and prints warnings; what is wrong with them is a usage error.
func loadSet(app *App, masters []string, runners string) (*spec.Set, error) {
	if len(masters) == 0 {
		return nil, usagef("--config-files is missing; name the master files")
	}
	set, err := spec.Load(masters, runners)
	if err != nil {
		return nil, usage(err)
	}
	for i, w := range set.Warnings {
		if i == 2 && len(set.Warnings) > 3 {
			fmt.Fprintf(app.Err, "warning: and %d more; 'weir lint' lists them\n", len(set.Warnings)-i)
			break
		}
		fmt.Fprintln(app.Err, "warning: "+w.String())
	}
	return set, nil
}

type pointRow struct {
	ID string `json:"id"`
	*spec.Point
}

func printPoints(app *App, points []*spec.Point) error {
	rows := make([]pointRow, len(points))
	for i, p := range points {
		rows[i] = pointRow{p.ID(), p}
	}
	if app.JSON {
		return app.printJSON(rows)
	}
	w := tabwriter.NewWriter(app.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ID\tKEY\tNAME\tCONC\tGPUS\tBUDGET GB\tSEED\tORIGIN")
	for _, p := range rows {
		_, _, gpus := p.GPUs()
		budget := "-"
		if p.Offload.Mode != "none" {
			budget = strconv.FormatInt(p.Offload.BudgetGB, 10)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%d\t%s\t%d\t%s:%d\n", p.ID, p.Key, p.Name, p.Conc, gpus, budget,
			p.Weir.Seed, p.Origin.File, p.Origin.Line)
	}
	return w.Flush()
}

func printExplanation(app *App, m *spec.Matrix, id string) error {
	e, err := m.Explain(id)
	if err != nil {
		return usage(err)
	}
	if app.JSON {
		return app.printJSON(e)
	}
	w := tabwriter.NewWriter(app.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "id\t%s\t\n", e.ID)
	line := func(f spec.Explained) {
		from := make([]string, 0, len(f.At)+1)
		for _, p := range f.At {
			from = append(from, p.String())
		}
		if f.Why != "" {
			from = append(from, f.Why)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", f.Field, f.Value, strings.Join(from, "; "))
	}
	for _, f := range e.Fields {
		line(f)
	}
	if len(e.Inert) > 0 {
		fmt.Fprintln(w, "\nDeclared, without effect on this point:\t\t")
		for _, f := range e.Inert {
			line(f)
		}
	}
	return w.Flush()
}

func printGitHub(app *App, b *spec.Buckets, files []string) error {
	var workflows []*spec.Workflow
	for _, f := range files {
		w, err := spec.ReadWorkflow(f)
		if err != nil {
			return usage(err)
		}
		workflows = append(workflows, w)
	}
	out, err := b.AppendGitHub(nil, workflows)
	if err != nil {
		return usage(err)
	}
	_, err = app.Out.Write(append(out, '\n'))
	return err
}

func newCheckWorkflowCmd(app *App) *cobra.Command {
	return &cobra.Command{
		Use:   "check-workflow FILE...",
		Short: "Report what a GitHub workflow would lose of the matrix",
		Long: `Report what a GitHub workflow would lose of the matrix. A workflow with inputs is checked as the
template of the rows it serves: fields that no input takes (dropped), inputs of a type that cannot
hold the field (mistyped), inputs that nothing refers to (unused) and references to inputs that
are not declared (undeclared, always empty). The jobs of a workflow that call another one are
checked against that file beside it: also inputs that it requires and does not get (missing).`,
		Example: "  weir matrix check-workflow .github/workflows/run-sweep.yml",
		Args:    minArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			var all []spec.WorkflowFinding
			for _, f := range args {
				w, err := spec.ReadWorkflow(f)
				if err != nil {
					return usage(err)
				}
				all = append(all, w.Check()...)
			}
			if app.JSON {
				if all == nil {
					all = []spec.WorkflowFinding{}
				}
				if err := app.printJSON(all); err != nil {
					return err
				}
			} else {
				for _, f := range all {
					fmt.Fprintln(app.Out, f)
				}
			}
			if len(all) > 0 {
				return fmt.Errorf("%d findings in %s", len(all), strings.Join(args, ", "))
			}
			if !app.JSON {
				fmt.Fprintf(app.Out, "%s: every field of the matrix has an input of its type, every input is used\n", strings.Join(args, ", "))
			}
			return nil
		},
	}
}
