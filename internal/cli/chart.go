package cli

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirbench/weir/internal/frontier"
	"github.com/weirbench/weir/internal/result"
	"github.com/weirbench/weir/internal/web"
)

func newChartCmd(app *App) *cobra.Command {
	var out string
	var width, height float64
	cmd := &cobra.Command{
		Use:   "chart AXIS BUNDLE...",
		Short: "Draw one number of results against concurrency as SVG",
		Long: `Chart draws one axis against concurrency, one line a configuration, as a picture that
carries its own style and opens anywhere. Bundles may be named one by one or by the folder
of their sweep. The axes are those of 'weir report'.

Axes: ` + axisNames(),
		Example: `  weir chart hit_total weir-runs/quickstart -o hits.svg`,
		Args:    minArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if out != "" {
				if err := fileForOutput(out); err != nil {
					return err
				}
			}
			entries, err := derived(args[1:]...)
			if err != nil {
				return err
			}
			var rs []*result.Result
			for _, e := range entries {
				rs = append(rs, e.Result)
			}
			svg, err := web.Figure(rs, args[0], width, height)
			if err != nil {
				return usage(err)
			}
			switch {
			case out == "" && app.JSON:
				return app.printJSON(map[string]string{"svg": svg})
			case out == "":
				_, err = fmt.Fprintln(app.Out, svg)
				return err
			}
			if err := os.WriteFile(out, []byte(svg+"\n"), 0o644); err != nil {
				return err
			}
			if app.JSON {
				return app.printJSON(map[string]string{"chart": out})
			}
			return nil
		},
	}
	cmd.Flags().StringVarP(&out, "output", "o", "", "`FILE` to write; the output when empty")
	width, height = 760, 340
	floatVar(cmd.Flags(), &width, "width", minPixels, maxPixels, "width in `PIXELS`")
	floatVar(cmd.Flags(), &height, "height", minPixels, maxPixels, "height in `PIXELS`")
	return cmd
}

func axisNames() string {
	var names []string
	for _, a := range frontier.Axes {
		names = append(names, a.Name)
	}
	return strings.Join(names, ", ")
}
