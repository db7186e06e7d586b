package cli

import (
	"cmp"
	"fmt"
	"text/tabwriter"

	"github.com/weirbench/weir/internal/frontier"
	"github.com/weirbench/weir/internal/result"
	"github.com/weirbench/weir/internal/store"
)

// printRun prints one run of a store for people: what was measured, whether it is valid, and the numbers that
// decide, with their units. --json has all of it.
func (a *App) printRun(e *store.Entry) error {
	r := e.Result
	p := &r.Point
	series := frontier.SeriesOf(r)
	tw := tabwriter.NewWriter(a.Out, 0, 0, 2, ' ', 0)
	line := func(name, format string, v ...any) { fmt.Fprintf(tw, "%s\t"+format+"\n", append([]any{name}, v...)...) }
	line("run", "%s", r.ID)
	conc := "open load"
	if p.Conc > 0 {
		conc = "concurrency " + count(p.Conc)
	}
	line("point", "%s, %s, seed %d, repeat %d (%s)", p.Key, conc, r.Seed, r.Repeat, r.PointID)
	line("what", "%s on %s, %s, %s, offload %s, %s GPUs", frontier.ModelName(p), series.Hardware, series.Engine, series.Precision, series.Offload, count(r.GPUs.Used))
	line("when", "%s", cmp.Or(r.MeasuredAt, "in virtual time"))
	line("bundle", "%s (sweep %s)", cmp.Or(e.Bundle, "unknown"), cmp.Or(e.Sweep, "none"))
	state := "valid"
	if !r.Valid {
		state = "not valid"
	}
	line("state", "%s, %s, by %s", state, r.Kind(), r.Definitions)
	for _, f := range r.Reasons {
		line("reason", "%s (%s)", f.Text, f.Code)
	}
	a.numberLines(r, line)
	line("jobs", "%s trees completed, %s an hour and user", count(r.Jobs.Completed), num(r.Jobs.PerHourPerUser, 2))
	for _, f := range r.Warnings {
		line("warning", "%s (%s)", f.Text, f.Code)
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(a.Out)
	tw = tabwriter.NewWriter(a.Out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tw, "\tunit\tn\tmean\tp50\tp90\tp99\tmax\t")
	for _, d := range []struct {
		name, unit string
		d          *result.Dist
		times      float64
		decimals   int
	}{
		{"time to first token", "s", &r.Latency.TTFT, 1, 3},
		{"between tokens", "ms", &r.Latency.ITL, 1000, 2},
		{"whole request", "s", &r.Latency.E2EL, 1, 2},
		{"prompt", "tokens", &r.Tokens.ISL, 1, 0},
		{"answer", "tokens", &r.Tokens.OSL, 1, 0},
	} {
		cell := func(v *float64) string { return scaled(v, d.times, d.decimals, "") }
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", d.name, d.unit, count(d.d.N), cell(d.d.Mean), cell(d.d.P50), cell(d.d.P90), cell(d.d.P99), cell(d.d.Max))
	}
	return tw.Flush()
}

// numberLines print the numbers that every view of one result has.
func (a *App) numberLines(r *result.Result, line func(name, format string, v ...any)) {
	line("requests", "%s ok, %s failed, %s cut", count(r.Requests.OK), count(r.Requests.Failed), count(r.Requests.Cut))
	line("hit rate", "%s (device %s, host %s), ceiling %s", num(r.Hits.Total, 3), num(r.Hits.Device, 3), num(r.Hits.Host, 3), num(r.Hits.Ceiling, 3))
	line("TTFT", "p50 %s, p90 %s", secs(r.Latency.TTFT.P50), secs(r.Latency.TTFT.P90))
	line("ITL", "p50 %s, p90 %s", millis(r.Latency.ITL.P50), millis(r.Latency.ITL.P90))
	line("interactivity", "e2e-normalised p90 %s tok/s/user", num(r.Intvty.E2ENorm.P90, 2))
	line("throughput", "%s tok/s in, %s tok/s out", num(r.Throughput.Edge.Input, 0), num(r.Throughput.Edge.Output, 1))
	if t := r.Throughput.EdgePerGPU.Total; t != nil {
		line("per GPU", "%s tok/s", num(t, 0))
	}
	a.poolLine(r, line)
	a.serverLines(r, line)
	a.deviceLines(r, line)
}
