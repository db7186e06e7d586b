package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirbench/weir/internal/engine"
	"github.com/weirbench/weir/internal/result"
	"github.com/weirbench/weir/internal/spec"
)

func newSchemaCmd(app *App) *cobra.Command {
	names := append(spec.SchemaNames(), "recipe", "result")
	return &cobra.Command{
		Use:   "schema " + strings.Join(names, "|"),
		Short: "Print the JSON schema of a file, for editors",
		Long: `Print the JSON schema (2020-12) of a file that Weir reads or writes. An editor with a YAML language
server takes it from a comment in the first line:

  # yaml-language-server: $schema=weir-master.schema.json

What a schema cannot say, such as a value that depends on another file, the readers check.`,
		Example: "  weir schema master > weir-master.schema.json",
		Args:    exactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			var out []byte
			var err error
			if args[0] == "recipe" {
				out = engine.Schema()
			} else if args[0] == "result" {
				out = spec.TypeSchema("result", "A Weir result: the derived metrics of one run of a point.", result.Result{})
			} else if out, err = spec.Schema(args[0]); err != nil {
				return usagef("no schema has the name %q; use %s", args[0], strings.Join(names, ", "))
			}
			_, err = fmt.Fprintf(app.Out, "%s", out)
			return err
		},
	}
}
