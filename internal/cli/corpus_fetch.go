package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirbench/weir/internal/corpus"
	"github.com/weirbench/weir/internal/corpus/hub"
)

func newCorpusFetchCmd(app *App) *cobra.Command {
	var revision string
	var offline bool
	cmd := &cobra.Command{
		Use:   "fetch [NAME]",
		Short: "Fetch a data set from a Hugging Face hub into its cache",
		Long: `Fetch a data set from a Hugging Face hub, by its name or an AgentX alias, into the cache that
the hub's own tools use. A fetch that was cut goes on where it stopped; every file is checked
by size and hash; a filled cache works without a network. Without NAME the aliases are listed.

HF_ENDPOINT, HF_TOKEN, HF_HUB_CACHE, HF_HOME and HF_HUB_OFFLINE are honoured.`,
		Example: `  weir corpus fetch
  weir corpus fetch agentx-256k
  weir corpus fetch owner/name --revision main`,
		Args: func(cmd *cobra.Command, args []string) error { return usage(cobra.MaximumNArgs(1)(cmd, args)) },
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return listAliases(app)
			}
			client, err := hub.FromEnv(os.Getenv)
			if err != nil {
				return usage(err)
			}
			client.Offline = client.Offline || offline
			repo, rev := args[0], revision
			if a, ok := hub.Lookup(args[0]); ok {
				repo = a.Repo
				if rev == "" {
					rev = a.Revision
				}
			} else if strings.Count(repo, "/") != 1 {
				return usagef("%q is neither an alias nor owner/name; 'weir corpus fetch' lists the aliases", repo)
			}
			client.Progress = progress(app)
			snap, err := client.Fetch(cmd.Context(), repo, rev, wantedFile)
			if err != nil {
				return err
			}
			if app.JSON {
				return app.printJSON(snap)
			}
			from := "fetched"
			switch {
			case snap.Offline:
				from = "from the cache, the hub was not asked or not reached"
			case snap.Fetched == 0:
				from = "in the cache already"
			}
			fmt.Fprintf(app.Out, "%s at %s: %d files, %s bytes, %s\n", snap.Repo, snap.Commit, len(snap.Files), count(snap.Total), from)
			for _, f := range snap.Files {
				fmt.Fprintf(app.Out, "  %s\n", filepath.Join(snap.Dir, filepath.FromSlash(f)))
			}
			_, err = fmt.Fprintf(app.Out, "use it as: weir corpus stats %s\n", snap.Dir)
			return err
		},
	}
	cmd.Flags().StringVar(&revision, "revision", "", "branch, tag or commit; default the alias's, else main")
	cmd.Flags().BoolVar(&offline, "offline", false, "use what the cache holds and ask nobody")
	return cmd
}

// wantedFile chooses the files of a data set that can hold traces.
func wantedFile(name string) bool {
	switch base := filepath.Base(name); base {
	case "dataset_infos.json", "dataset_info.json", "dataset_dict.json", "state.json", "config.json":
		return false
	default:
		return corpus.IsTraceFile(base)
	}
}

// progress prints a line every few seconds while a file comes.
func progress(app *App) func(string, int64, int64) {
	var last time.Time
	return func(file string, done, total int64) {
		if app.JSON || time.Since(last) < 2*time.Second {
			return
		}
		last = time.Now()
		fmt.Fprintf(app.Err, "weir: %s: %d of %d MB\n", file, done>>20, total>>20)
	}
}

func listAliases(app *App) error {
	if app.JSON {
		return app.printJSON(hub.Aliases)
	}
	w := tabwriter.NewWriter(app.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "alias\tdata set\trevision\twhat")
	for _, a := range hub.Aliases {
		rev := a.Revision
		if len(rev) == 40 {
			rev = rev[:12]
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", a.Name, a.Repo, rev, a.About)
	}
	return w.Flush()
}
