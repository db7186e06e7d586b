package cli

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/weirbench/weir/internal/corpus"
)

func newCorpusStatsCmd(app *App) *cobra.Command {
	var f corpusFlags
	var curve bool
	cmd := &cobra.Command{
		Use:   "stats CORPUS...",
		Short: "Print statistics of one corpus, or of several side by side",
		Example: `  weir corpus stats traces
  weir corpus stats recorded generated --json`,
		Args: minArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var all []*corpus.Stats
			for _, path := range args {
				c, err := f.load(app, path)
				if err != nil {
					return err
				}
				st := c.Stats()
				if curve {
					if st.Curve, err = c.HitCurve(); err != nil {
						return usage(err)
					}
				}
				all = append(all, st)
			}
			if app.JSON {
				if len(all) == 1 {
					return app.printJSON(all[0])
				}
				return app.printJSON(all)
			}
			return printStats(app, all)
		},
	}
	f.add(cmd)
	cmd.Flags().BoolVar(&curve, "curve", false, "also the hit rate of an LRU cache by capacity, traces played one by one")
	return cmd
}

func printStats(app *App, all []*corpus.Stats) error {
	w := tabwriter.NewWriter(app.Out, 0, 0, 2, ' ', 0)
	row := func(name string, cell func(*corpus.Stats) string) {
		cells := []string{name}
		for _, s := range all {
			cells = append(cells, cell(s))
		}
		fmt.Fprintln(w, strings.Join(cells, "\t"))
	}
	num := func(name string, v func(*corpus.Stats) int64) {
		row(name, func(s *corpus.Stats) string { return count(v(s)) })
	}
	row("corpus", func(s *corpus.Stats) string { return s.Name })
	row("fingerprint", func(s *corpus.Stats) string { return s.Fingerprint })
	num("traces", func(s *corpus.Stats) int64 { return int64(s.Traces) })
	num("skipped traces", func(s *corpus.Stats) int64 { return int64(s.Skipped) })
	num("streams", func(s *corpus.Stats) int64 { return int64(s.Streams) })
	kinds := []corpus.Kind{corpus.Root, corpus.SubAgent, corpus.FlatAgent, corpus.WorkerGroup, corpus.Aux}
	for _, k := range kinds {
		num("  "+k.String(), func(s *corpus.Stats) int64 { return int64(s.StreamsBy[k.String()]) })
	}
	num("  of these in the background", func(s *corpus.Stats) int64 { return int64(s.Background) })
	num("turns", func(s *corpus.Stats) int64 { return int64(s.Turns) })
	num("dropped turns", func(s *corpus.Stats) int64 { return int64(s.DroppedTurns) })
	row("sub-agents' share of turns", func(s *corpus.Stats) string { return fmt.Sprintf("%.4f", s.SubAgentShare) })
	num("compactions", func(s *corpus.Stats) int64 { return int64(s.Compactions) })
	num("input tokens", func(s *corpus.Stats) int64 { return s.InTokens })
	num("output tokens", func(s *corpus.Stats) int64 { return s.OutTokens })
	num("blocks in all prompts", func(s *corpus.Stats) int64 { return s.TotalBlocks })
	num("different blocks", func(s *corpus.Stats) int64 { return s.UniqueBlocks })
	row("hit rate, infinite cache", func(s *corpus.Stats) string {
		if s.Infinite == nil {
			return "unknown: no block ids"
		}
		return fmt.Sprintf("%.4f", s.Infinite.Rate)
	})
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(app.Out)

	w = tabwriter.NewWriter(app.Out, 0, 0, 2, ' ', tabwriter.AlignRight)
	head := "\tn\tmean\tmin\tp10\tp25\tp50\tp75\tp90\tp95\tp99\tmax\t"
	fmt.Fprintln(w, head)
	for _, d := range []struct {
		name string
		get  func(*corpus.Stats) *corpus.Dist
		prec int
	}{
		{"turns per trace", func(s *corpus.Stats) *corpus.Dist { return s.TurnsPerTrace }, 0},
		{"input tokens", func(s *corpus.Stats) *corpus.Dist { return s.In }, 0},
		{"output tokens", func(s *corpus.Stats) *corpus.Dist { return s.Out }, 0},
		{"new tokens", func(s *corpus.Stats) *corpus.Dist { return s.New }, 0},
		{"context growth", func(s *corpus.Stats) *corpus.Dist { return s.Growth }, 0},
		{"gap, s", func(s *corpus.Stats) *corpus.Dist { return s.GapSeconds }, 1},
		{"think time, s", func(s *corpus.Stats) *corpus.Dist { return s.ThinkSeconds }, 1},
		{"service time, s", func(s *corpus.Stats) *corpus.Dist { return s.APISeconds }, 1},
		{"trace duration, s", func(s *corpus.Stats) *corpus.Dist { return s.TraceSeconds }, 0},
		{"peak context", func(s *corpus.Stats) *corpus.Dist { return s.PeakContext }, 0},
		{"different tokens per trace", func(s *corpus.Stats) *corpus.Dist { return s.UniqueTokens }, 0},
		{"sub-agents per trace", func(s *corpus.Stats) *corpus.Dist { return s.AgentsPerTrace }, 0},
		{"prefix reuse per trace", func(s *corpus.Stats) *corpus.Dist { return s.PrefixReuse }, 3},
		{"infinite hit rate per trace", func(s *corpus.Stats) *corpus.Dist { return s.InfinitePerTrace }, 3},
	} {
		for i, s := range all {
			name := d.name
			if len(all) > 1 {
				name = fmt.Sprintf("%s [%d]", d.name, i+1)
			}
			v := d.get(s)
			if v == nil {
				fmt.Fprintf(w, "%s\t0\t%s\n", name, strings.Repeat("-\t", 10))
				continue
			}
			fmt.Fprintf(w, "%s\t%s\t", name, count(v.N))
			for _, x := range []float64{v.Mean, v.Min, v.P10, v.P25, v.P50, v.P75, v.P90, v.P95, v.P99, v.Max} {
				fmt.Fprint(w, number(x, d.prec), "\t")
			}
			fmt.Fprintln(w)
		}
	}
	if err := w.Flush(); err != nil || all[0].Curve == nil {
		return err
	}
	fmt.Fprintln(app.Out)
	w = tabwriter.NewWriter(app.Out, 0, 0, 2, ' ', tabwriter.AlignRight)
	longest := all[0].Curve
	for _, s := range all {
		if len(s.Curve) > len(longest) {
			longest = s.Curve
		}
	}
	for i, p := range longest {
		fmt.Fprintf(w, "hit rate, %s tokens\t", count(p.CapacityTokens))
		for _, s := range all {
			// Beyond the largest trace of a corpus its curve is flat.
			fmt.Fprintf(w, "%.4f\t", s.Curve[min(i, len(s.Curve)-1)].HitRate)
		}
		fmt.Fprintln(w)
	}
	return w.Flush()
}
