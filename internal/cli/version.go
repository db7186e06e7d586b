package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is set by the linker for releases; a build from source names its commit.
var version = "dev"

func newVersionCmd(app *App) *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version of this binary",
		Example: "  weir version --json",
		Args:    noArgs,
		RunE: func(*cobra.Command, []string) error {
			v := buildVersion()
			if app.JSON {
				return app.printJSON(map[string]string{"version": v, "go": runtime.Version()})
			}
			_, err := fmt.Fprintf(app.Out, "weir %s (%s)\n", v, runtime.Version())
			return err
		},
	}
}

func buildVersion() string {
	if version != "dev" {
		return version
	}
	if bi, ok := debug.ReadBuildInfo(); ok {
		for _, s := range bi.Settings {
			if s.Key == "vcs.revision" && len(s.Value) >= 12 {
				return "dev-" + s.Value[:12]
			}
		}
	}
	return version
}
