package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirbench/weir/internal/run"
)

// savedCommand is the file in a sweep's folder that holds what began it.
const savedCommand = "command.json"

// saved is how a sweep was begun.
type saved struct {
	Dir  string   `json:"dir"` // working folder
	Args []string `json:"args"`
}

// saveCommand keeps the sweep's own command in its folder, so that it can be attached to.
func saveCommand(out string) error {
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	raw, err := json.MarshalIndent(saved{dir, os.Args[1:]}, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(out, 0o777); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(out, savedCommand), append(raw, '\n'), 0o666)
}

func newSweepAttachCmd(app *App) *cobra.Command {
	return &cobra.Command{
		Use:   "attach DIR",
		Short: "Take a sweep up again: adopt what runs, begin what is left",
		Long: `Attach runs the command again that began the sweep in DIR, from the folder that it was begun in.
Allocations that are waiting or running are adopted, points with whole bundles are left, the
others are begun.`,
		Example: `  weir sweep attach weir-runs/my-config`,
		Args:    exactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			raw, err := os.ReadFile(filepath.Join(args[0], savedCommand))
			if errors.Is(err, fs.ErrNotExist) {
				return usagef("%s is not the folder of a sweep: it has no %s", args[0], savedCommand)
			}
			if err != nil {
				return err
			}
			var s saved
			if err := json.Unmarshal(raw, &s); err != nil {
				return usagef("%s: %w", filepath.Join(args[0], savedCommand), err)
			}
			if len(s.Args) == 0 || s.Args[0] != "sweep" {
				return usagef("%s does not hold a sweep", filepath.Join(args[0], savedCommand))
			}
			if err := os.Chdir(s.Dir); err != nil {
				return usage(err)
			}
			again := slices.DeleteFunc(slices.Clone(s.Args), func(a string) bool {
				return strings.HasPrefix(a, "--slurm-submit-only")
			})
			root := newRoot(app)
			root.SetArgs(again)
			return root.ExecuteContext(cmd.Context())
		},
	}
}

func newSweepCancelCmd(app *App) *cobra.Command {
	var poll, limit time.Duration
	cmd := &cobra.Command{
		Use:   "cancel DIR",
		Short: "End a sweep wherever it runs, with all its allocations and processes",
		Long: `Cancel asks the process that runs the sweep in DIR to stop, on whatever machine it is; then it
cancels every allocation of the sweep and waits until none is left, and ends engines that a dead
process left on this machine. Whole bundles stay: 'weir sweep attach DIR' begins the rest.`,
		Example: `  weir sweep cancel weir-runs/my-config`,
		Args:    exactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := context.WithTimeout(cmd.Context(), limit)
			defer stop()
			c, err := run.Cancel(ctx, args[0], poll)
			if errors.Is(err, fs.ErrNotExist) && c == nil {
				return usagef("%s is not the folder of a sweep: it has no %s", args[0], run.JournalFile)
			}
			if err != nil {
				return fmt.Errorf("not all of it has ended: %w", err)
			}
			if app.JSON {
				return app.printJSON(c)
			}
			fmt.Fprintf(app.Out, "%d allocations cancelled, none is left; %d points stopped, %d were whole\n", c.Allocations, len(c.Stopped), len(c.Kept))
			if len(c.Ended) > 0 {
				fmt.Fprintln(app.Out, "Processes on this machine that the killed sweep had left, ended:")
				return processTable(app, c.Ended)
			}
			return nil
		},
	}
	durationVar(cmd.Flags(), &poll, "poll", time.Second, time.Millisecond, "time between two looks at a scheduler's queue")
	durationVar(cmd.Flags(), &limit, "timeout", 3*time.Minute, time.Second, "give up by then, and say what is left")
	return cmd
}

func newSweepStatusCmd(app *App) *cobra.Command {
	var watch bool
	cmd := &cobra.Command{
		Use:   "status DIR",
		Short: "Say where every point of a sweep stands",
		Long: `Status reads the folder of a sweep, while it runs or after it, and says where every point stands. On the
machine where its engines run it lists their processes with number and start, and says whether
the process that began them is still there and what ends them.`,
		Example: `  weir sweep status weir-runs/my-config --watch`,
		Args:    exactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			for {
				ps, err := run.ReadStatus(args[0])
				if errors.Is(err, fs.ErrNotExist) {
					return usagef("%s is not the folder of a sweep: it has no %s", args[0], run.JournalFile)
				}
				if err != nil {
					return err
				}
				if app.JSON {
					return app.printJSON(ps)
				}
				if watch && isTerminal(app.Out) {
					fmt.Fprint(app.Out, "\033[H\033[J")
				}
				if err := printStatus(app, args[0], ps); err != nil {
					return err
				}
				if !watch || settled(ps) {
					return nil
				}
				select {
				case <-cmd.Context().Done():
					return nil
				case <-time.After(time.Second):
				}
			}
		},
	}
	cmd.Flags().BoolVar(&watch, "watch", false, "go on until every point has ended")
	return cmd
}

func settled(ps []*run.PointStatus) bool {
	return !slices.ContainsFunc(ps, func(p *run.PointStatus) bool { return !p.State.Settled() })
}

func printStatus(app *App, dir string, ps []*run.PointStatus) error {
	tw := tabwriter.NewWriter(app.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "point\tname\tstate\tjob\tsince\ttokens in\ttokens out\thit\tleft\tdetail")
	for _, p := range ps {
		in, out, left, hit := "", "", "", ""
		if p.Progress != nil {
			in, out = count(p.Progress.InputTokens), count(p.Progress.Counts.OutputTokens)
		}
		if p.Left > 0 {
			left = p.Left.Round(time.Second).String()
		}
		if p.Hit != nil {
			hit = num(p.Hit, 3)
		}
		detail := p.Detail
		if p.Retries > 0 {
			detail = strings.TrimSpace(fmt.Sprintf("%s (retried %d times)", detail, p.Retries))
		}
		if len(detail) > 100 {
			detail = detail[:100] + "..."
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", p.Point, p.Name, p.State, p.Job, p.Since.Local().Format(time.TimeOnly), in, out, hit, left, detail)
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	if err := printProcesses(app, dir, ps); err != nil {
		return err
	}
	sim, res := 0, 0
	for _, p := range ps {
		if p.Valid != nil {
			res++
		}
		if p.Simulated {
			sim++
		}
	}
	switch {
	case sim == 0:
	case sim == res:
		fmt.Fprintln(app.Out, "These points are simulated: no engine ran.")
	default:
		fmt.Fprintf(app.Out, "%d of %d points with results are simulated: no engine ran for them.\n", sim, res)
	}
	return nil
}

// printProcesses lists what runs on this machine for a sweep, and what ends it.
func printProcesses(app *App, dir string, ps []*run.PointStatus) error {
	var all []run.Running
	left := false
	for _, p := range ps {
		all = append(all, p.Processes...)
		left = left || p.LeftOver
	}
	if len(all) == 0 {
		return nil
	}
	if left {
		fmt.Fprintf(app.Out, "No process runs this sweep any more, and these of its engines still run on this machine. 'weir sweep cancel %s' ends them;\n"+
			"so does the same sweep when it is begun again ('weir sweep attach %s').\n", dir, dir)
	} else {
		fmt.Fprintln(app.Out, "Engines that run on this machine; each ends with its point, and with the sweep.")
	}
	return processTable(app, all)
}

func processTable(app *App, all []run.Running) error {
	tw := tabwriter.NewWriter(app.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "point\tprocess\tpid\tsince")
	for _, r := range all {
		fmt.Fprintf(tw, "%s\t%s\t%d\t%s\n", r.Point, r.Name, r.PID, r.Since.Local().Format(time.DateTime))
	}
	return tw.Flush()
}
