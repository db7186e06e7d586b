package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/weirbench/weir/examples"
	"github.com/weirbench/weir/internal/engine"
	"github.com/weirbench/weir/internal/plan"
	"github.com/weirbench/weir/internal/run"
	"github.com/weirbench/weir/internal/spec"
)

func newRenderCmd(app *App) *cobra.Command {
	var masters []string
	var runners, recipes, out, help, model, factsFile string
	var conc []int
	cmd := &cobra.Command{
		Use:   "render -f MASTER... -r RUNNERS [KEY...]",
		Short: "Print what would run on which node, as scripts",
		Long: `Render plans every point of a search space and prints the processes that its recipe makes of it,
one script a node, that can be started by hand. Nodes are named $WEIR_NODE_0, $WEIR_NODE_1 and so
on. A field of a point that nothing passes to the engine, an argument that point and recipe both
give, and a point that does not fit are errors.

--engine-help checks every argument against the text that the engine prints for --help.`,
		Example: `  weir render -f examples/cluster/master.yaml -r examples/cluster/runners.yaml glm5.2-fp4-b300-sglang
  weir render -f examples/cluster/master.yaml -r examples/cluster/runners.yaml dsv4-fp4-mi355x-sglang-pd -o scripts/`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(masters) == 0 {
				return usagef("no master file: name one with -f (see 'weir render --help')")
			}
			set, err := spec.Load(masters, runners)
			if err != nil {
				return usage(err)
			}
			points, err := selected(set, spec.Selection{Keys: args, Conc: conc})
			if err != nil {
				return usage(err)
			}
			if len(points) == 0 {
				return usagef("the selection has no point: check the key, --conc and the scenario")
			}
			have, err := factsText(factsFile)
			if err != nil {
				return usage(err)
			}
			opt, err := (&run.Job{Facts: have}).PlanOptions()
			if err != nil {
				return usage(fmt.Errorf("%s: %w", factsFile, err))
			}
			text := ""
			if help != "" {
				raw, err := os.ReadFile(help)
				if err != nil {
					return usage(err)
				}
				text = string(raw)
			}
			var errs []error
			var all []rendered
			for _, p := range points {
				r, err := render(p, recipeDirs(recipes), model, opt)
				if err != nil {
					errs = append(errs, err)
					continue
				}
				if err := (&run.Job{Recipe: r.recipe, EngineHelp: text}).CheckArguments(cmd.Context(), r.Deployment, false); err != nil {
					errs = append(errs, fmt.Errorf("%s: %w", p.Key, err))
				}
				all = append(all, r)
			}
			if err := errors.Join(errs...); err != nil {
				var code *codeError
				if errors.As(err, &code) {
					return withCode(code.code, err)
				}
				return usage(err)
			}
			if app.JSON {
				return app.printJSON(all)
			}
			for _, r := range all {
				if err := r.print(app, out); err != nil {
					return err
				}
			}
			return nil
		},
	}
	fl := cmd.Flags()
	fl.StringSliceVarP(&masters, "file", "f", nil, "master file; may be repeated")
	fl.StringVarP(&runners, "runners", "r", "", "runners.yaml")
	fl.StringVar(&recipes, "recipes", "", "folder of recipes, before those that come with weir")
	fl.StringVar(&factsFile, "facts", "", "`FILE` of facts to put before the embedded ones")
	fl.IntSliceVar(&conc, "conc", nil, "keep only these concurrencies")
	fl.StringVarP(&out, "out", "o", "", "write scripts into this folder instead")
	fl.StringVar(&help, "engine-help", "", "`FILE` with what the engine prints for --help")
	fl.StringVar(&model, "model-path", "", "where the checkpoint lies on the nodes")
	return cmd
}

// rendered is one point with what would run for it.
type rendered struct {
	Point      *spec.Point        `json:"point"`
	Deployment *engine.Deployment `json:"deployment"`
	Scripts    []string           `json:"scripts"`
	recipe     *engine.Recipe
}

// recipeDirs are the folders of recipes: the user's, then those that come with the program.
func recipeDirs(dir string) []fs.FS {
	if dir == "" {
		return []fs.FS{examples.Recipes()}
	}
	return []fs.FS{os.DirFS(dir), examples.Recipes()}
}

func render(p *spec.Point, dirs []fs.FS, model string, opt plan.Options) (rendered, error) {
	out := rendered{Point: p}
	if p.Weir.Recipe == "" {
		return out, fmt.Errorf("%s:%d: %s names no recipe: write weir: {recipe: NAME}", p.Origin.File, p.Origin.Line, p.Key)
	}
	r, err := engine.Load(p.Weir.Recipe, dirs...)
	if err != nil {
		return out, err
	}
	out.recipe = r
	q, err := r.Planned(p)
	if err != nil {
		return out, err
	}
	v, err := plan.Compute(q, opt)
	if err != nil {
		return out, err
	}
	if err := run.Refusal(&run.Job{Verdict: v}); err != nil {
		return out, refused(fmt.Errorf("%s: %w", p.Key, err))
	}
	out.Deployment, err = engine.Build(q, v, r, engine.Place{Model: model})
	if err != nil {
		return out, err
	}
	out.Scripts = out.Deployment.Scripts()
	return out, nil
}

// print writes scripts to the output, or to files NAME-nodeN.sh.
func (r *rendered) print(app *App, dir string) error {
	for n, s := range r.Scripts {
		if dir == "" {
			fmt.Fprintf(app.Out, "### %s, node %d\n%s\n", r.Point.Name, n, s)
			continue
		}
		if err := os.MkdirAll(dir, 0o777); err != nil {
			return err
		}
		file := filepath.Join(dir, fmt.Sprintf("%s-%s-node%d.sh", fileName(r.Point.Name), r.Point.ID(), n))
		if err := os.WriteFile(file, []byte(s), 0o755); err != nil {
			return err
		}
		fmt.Fprintln(app.Out, file)
	}
	return nil
}
