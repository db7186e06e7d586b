package cli

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirbench/weir/internal/client"
	"github.com/weirbench/weir/internal/client/pace"
)

func newCalibrateCmd(app *App) *cobra.Command {
	var (
		streams []int
		load    client.Load
		serve   bool
		listen  string
		speak   pace.Options
	)
	cmd := &cobra.Command{
		Use:   "calibrate",
		Short: "Measure the load generator's own error on this machine",
		Long: `Calibrate runs the load generator against a server on this machine that writes its own send
times, and prints how far the two are apart. The server is a process of its own and shares the
processors, so the figures are larger than against a server elsewhere.`,
		Example: `  weir calibrate --streams 1,100 --for 2s
  weir calibrate --json --streams 10 --for 1s`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if serve {
				l, err := net.Listen("tcp", listen)
				if err != nil {
					return err
				}
				fmt.Fprintf(app.Out, "%s%s://%s\n", client.ListenPrefix, speak.Scheme(), l.Addr())
				return speak.Serve(l)
			}
			exe, err := self()
			if err != nil {
				return err
			}
			if slices.Min(streams) < 1 || load.Tokens < 1 || load.TTFT < 0 || load.Gap < 0 || load.For <= 0 {
				return usagef("--streams, --tokens and --for must be positive, --ttft and --gap not negative")
			}
			switch {
			case speak.H2 && speak.TLS:
				load.Protocol = client.HTTP2
			case speak.H2:
				load.Protocol = client.H2C
			default:
				load.TLS = speak.TLS
			}
			var all []*client.Calibration
			for _, load.Streams = range streams {
				c, err := calibrateOnce(cmd, exe, load, speak)
				if err != nil {
					return err
				}
				all = append(all, c)
			}
			if app.JSON {
				return app.printJSON(all)
			}
			return printCalibrations(app, all)
		},
	}
	f := cmd.Flags()
	f.IntSliceVar(&streams, "streams", []int{1, 10, 100}, "streams at a time, one calibration for each")
	f.DurationVar(&load.TTFT, "ttft", 50*time.Millisecond, "time from request to first token")
	f.DurationVar(&load.Gap, "gap", 10*time.Millisecond, "time between tokens")
	f.IntVar(&load.Tokens, "tokens", 100, "tokens a stream")
	f.DurationVar(&load.For, "for", 5*time.Second, "how long each calibration runs")
	f.BoolVar(&speak.TLS, "tls", false, "over TLS, with a certificate that the server makes itself")
	f.BoolVar(&speak.H2, "h2", false, "over HTTP/2: h2 with --tls, h2c without")
	f.BoolVar(&serve, "serve", false, "be the server: print the base URL and serve until killed")
	f.StringVar(&listen, "listen", "127.0.0.1:0", "address of the server")
	return cmd
}

func calibrateOnce(cmd *cobra.Command, exe string, load client.Load, speak pace.Options) (*client.Calibration, error) {
	url, stop, err := client.StartPace(cmd.Context(), []string{exe, "calibrate", "--serve"}, speak)
	if err != nil {
		return nil, err
	}
	defer stop()
	c, err := client.Calibrate(cmd.Context(), url, load)
	if many := (*client.TooMany)(nil); errors.As(err, &many) {
		return nil, refused(err)
	}
	if err != nil {
		return nil, err
	}
	return c, c.Bad()
}

func printCalibrations(app *App, all []*client.Calibration) error {
	w := tabwriter.NewWriter(app.Out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "streams\trequests\tevents/s\tTTFT error p50\tp99\tover plan p50\tp99\tITL error p99\tgap p99\tserver's p99\tread lag p99\tbound TTFT\tITL\tCPU\t")
	for _, c := range all {
		b := c.Bound(c.Health)
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%.0f%%\t\n", count(c.Load.Streams), count(c.Requests),
			number(float64(c.Health.Events)/c.Health.Wall.Seconds(), 0),
			short(c.TTFTError.P50), short(c.TTFTError.P99), short(c.OverPlan.P50), short(c.OverPlan.P99), short(c.ITLError.P99),
			short(c.Gap.P99), short(c.ServerGap.P99), short(c.Health.ReadLag.P99), short(b.TTFT), short(b.ITL),
			100*c.Health.CPU.Seconds()/c.Health.Wall.Seconds())
	}
	return w.Flush()
}

// short prints nanoseconds with three digits.
func short(ns int64) string {
	d := time.Duration(ns)
	switch {
	case d >= time.Millisecond:
		return d.Round(10 * time.Microsecond).String()
	case d >= time.Microsecond:
		return d.Round(100 * time.Nanosecond).String()
	}
	return d.String()
}
