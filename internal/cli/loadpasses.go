package cli

import (
	"cmp"
	"fmt"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/weirbench/weir/internal/replay"
	"github.com/weirbench/weir/internal/result"
)

// printPasses prints what each pass found.
func printPasses(app *App, passes []replay.PassHits) error {
	fmt.Fprintln(app.Out)
	tw := tabwriter.NewWriter(app.Out, 0, 4, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tw, "PASS\tREQUESTS\tFAILED\tPROMPT TOKENS\tDEVICE\tHOST\tSTORAGE\tALL TIERS\tFROM\tMEAN TTFT\t")
	for _, p := range passes {
		ttft := "-"
		if p.TTFTMeanNs >= 0 {
			ttft = time.Duration(p.TTFTMeanNs).Round(time.Millisecond).String()
		}
		fmt.Fprintf(tw, "%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", p.Pass, count(p.Requests), count(p.Failed), count(p.PromptTokens),
			share(p.Device, p.KnownSplit), share(p.Host, p.KnownSplit), share(p.Storage, p.KnownSplit), share(p.Total, p.KnownTotal), cmp.Or(p.HitsFrom, "-"), ttft)
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	for _, p := range passes {
		if p.HitsWithheld != "" {
			fmt.Fprintf(app.Out, "pass %d: no tiers of counters: %s\n", p.Pass, p.HitsWithheld)
		}
	}
	return nil
}

// judge holds the second pass against --expect-hits. A pass that the device pool holds proves
// nothing; where the tiers are known only what came from beyond the device counts, of what was not
// found there.
func (f *loadFlags) judge(r *result.Result) error {
	if f.expect == 0 || len(r.Passes) < 2 {
		return nil
	}
	if i := slices.IndexFunc(r.Warnings, func(w result.Finding) bool { return w.Code == result.PassesFit }); i >= 0 {
		return invalid(fmt.Errorf("--expect-hits cannot be judged: %s (--tokens)", r.Warnings[i].Text))
	}
	second := r.Passes[1]
	const kept = "the host tier did not keep them"
	switch beyond, of := second.Host+second.Storage, second.KnownSplit-second.Device; {
	case second.KnownTotal == 0 && second.KnownSplit == 0:
		return invalid(fmt.Errorf("the server does not say how many prompt tokens it found: --expect-hits cannot be judged"))
	case second.KnownSplit > 0 && of <= 0:
		return invalid(fmt.Errorf("the device held all of the second pass: --expect-hits cannot be judged: send more (--tokens)"))
	case second.KnownSplit > 0 && float64(beyond) < f.expect*float64(of):
		return invalid(fmt.Errorf("beyond the device the second pass found %s of the %s prompt tokens that were not on it, less than %.3f: %s", share(beyond, of), count(of), f.expect, kept))
	case second.KnownSplit == 0 && float64(second.Total) < f.expect*float64(second.KnownTotal):
		return invalid(fmt.Errorf("the second pass found %s of its prompt tokens, less than %.3f: %s", share(second.Total, second.KnownTotal), f.expect, kept))
	}
	return nil
}

// share is a part of a whole, "-" where the whole is not known.
func share(part, whole int64) string {
	if whole == 0 {
		return "-"
	}
	return fmt.Sprintf("%.3f", float64(part)/float64(whole))
}
