package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirbench/weir/internal/scrape/gpu"
)

func newGPUCmd(app *App) *cobra.Command {
	var tool string
	var every, span time.Duration
	var devices []string
	cmd := &cobra.Command{
		Use:   "gpu",
		Short: "Show what the GPUs of this machine draw, hold and do",
		Long: `GPU reads the GPUs of this machine with nvidia-smi or amd-smi and shows them, every period anew
with --every. What a tool does not tell is shown as -.

With --json each reading is a line of its own; a point on a cluster reads the nodes of its
engines that way.`,
		Example: `  weir gpu
  weir gpu --every 2s --for 1m --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if every != 0 && every < 100*time.Millisecond {
				return usagef("--every is %s: at least 100ms, or 0 for one reading", every)
			}
			paths, err := gpu.Find(tool)
			if err != nil {
				return usage(fmt.Errorf("--gpu: %w", err))
			}
			nothing := errors.New("neither nvidia-smi nor amd-smi is on PATH")
			if tool == "none" {
				nothing = errors.New("--gpu none reads no GPUs: leave it out, or give nvidia-smi, amd-smi or the path of one")
			}
			if len(paths) == 0 && !app.JSON {
				return nothing
			}
			var readers []*gpu.Reader
			for _, p := range paths {
				r, err := gpu.NewReader(gpu.Options{Tool: p, Devices: devices, Now: func() int64 { return 0 }})
				if err != nil {
					return usage(err)
				}
				readers = append(readers, r)
			}
			return app.readGPUs(cmd.Context(), readers, nothing, every, span)
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&tool, "gpu", "auto", "auto (what is on PATH), nvidia-smi, amd-smi, or the path of one")
	fl.DurationVar(&every, "every", 0, "time between two readings; 0 reads once")
	fl.DurationVar(&span, "for", 0, "end after this time; 0 goes on until interrupted")
	fl.StringSliceVar(&devices, "devices", nil, "numbers of the GPUs that are read, such as 0,1; all when empty")
	return cmd
}

// readGPUs reads and prints until the time is over or ctx ends; an interrupt is no failure.
// Without readers a reading says nothing's text.
func (a *App) readGPUs(ctx context.Context, readers []*gpu.Reader, nothing error, every, span time.Duration) error {
	if span > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, span)
		defer cancel()
	}
	read := false // something came of a reading, be it an error
	for {
		began := time.Now()
		var all []gpu.Device
		var errs []error
		for _, r := range readers {
			d, err := r.Read(ctx)
			all, errs = append(all, d...), append(errs, err)
		}
		if ctx.Err() != nil {
			if !read && errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return fmt.Errorf("no reading ended within %s: %s hangs or is slow; give --for more time", span, tools(readers))
			}
			return nil
		}
		read = true
		err := errors.Join(errs...)
		said := err
		if len(readers) == 0 {
			said = nothing
		}
		if err := a.printGPUs(all, said, time.Since(began), every > 0); err != nil {
			return err
		}
		if every == 0 {
			if len(all) == 0 {
				return err
			}
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(max(time.Until(began.Add(every)), 3*time.Since(began))):
		}
	}
}

// tools names the commands of readers.
func tools(readers []*gpu.Reader) string {
	if len(readers) == 1 {
		return "the command that reads GPUs"
	}
	return "one of the commands that read GPUs"
}

func (a *App) printGPUs(all []gpu.Device, err error, took time.Duration, again bool) error {
	if a.JSON {
		l := gpu.Line{TookNs: int64(took)}
		if len(all) > 0 || err == nil {
			l.Values = gpu.Values(all)
		} else {
			l.Error = err.Error()
		}
		raw, err := json.Marshal(l)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(a.Out, "%s\n", raw)
		return err
	}
	if err != nil {
		fmt.Fprintf(a.Err, "weir: %v\n", err)
	}
	if len(all) == 0 {
		return nil
	}
	tw := tabwriter.NewWriter(a.Out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tw, "GPU\tNAME\tW\tUTIL\tMEM GiB\tOF GiB\tMHz\t°C\tECC\tSLOWED BY\t")
	for _, d := range all {
		text := func(q gpu.Quantity, scale float64, digits int) string {
			v, ok := d.Values[q]
			if !ok {
				return "-"
			}
			return number(math.Round(float64(v)*scale*1e3)/1e3, digits)
		}
		slow := "-"
		if m, ok := d.Values[gpu.Throttle]; ok {
			slow = ""
			for i, r := range gpu.Reasons(m) {
				if i > 0 {
					slow += ","
				}
				slow += r
			}
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s/%s\t%s\t\n", d.Index, cmp.Or(d.Name, "-"), text(gpu.Power, 1e-3, 0), text(gpu.Utilization, 1e-3, 2),
			text(gpu.MemoryUsed, 1.0/(1<<30), 1), text(gpu.MemoryTotal, 1.0/(1<<30), 1), text(gpu.Clock, 1, 0), text(gpu.Temperature, 1e-3, 0),
			text(gpu.Corrected, 1, 0), text(gpu.Uncorrected, 1, 0), slow)
	}
	if again {
		fmt.Fprintln(tw)
	}
	return tw.Flush()
}
