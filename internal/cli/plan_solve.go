package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/weirbench/weir/internal/knee"
	"github.com/weirbench/weir/internal/plan"
	"github.com/weirbench/weir/internal/replay"
	"github.com/weirbench/weir/internal/spec"
)

func (f *planFlags) printSolutions(ctx context.Context, app *App, pts []*spec.Point, opt plan.Options) error {
	if f.workingSet < 0 || f.upTo < 1 || f.upTo > 100_000 {
		return usagef("--working-set %d is negative or --up-to %d is not within 1 to 100000", f.workingSet, f.upTo)
	}
	if f.workingSet > 0 && f.corpusPath != "" {
		return usagef("--working-set stands beside --corpus; keep one")
	}
	var vs []*plan.Verdict
	var sols []plan.Solution
	for _, p := range pts {
		v, s, err := plan.Solve(p, opt)
		if err != nil {
			return usage(err)
		}
		vs, sols = append(vs, v), append(sols, s...)
	}
	switch {
	case f.workingSet > 0:
		for i := range sols {
			sols[i].HoldsDevice = &plan.Holds{Conc: sols[i].DeviceTokens / f.workingSet}
			sols[i].Holds = &plan.Holds{Conc: sols[i].UniqueTokens / f.workingSet}
		}
	case f.corpusPath != "":
		if err := f.holds(ctx, app, sols); err != nil {
			return err
		}
	}
	var err error
	if app.JSON {
		err = app.printJSON(sols)
	} else {
		err = printSolutionTable(app, sols)
	}
	if err != nil {
		return err
	}
	return refusal(vs)
}

// holds finds the largest concurrency of every pool at which an LRU cache of its size stays
// within knee.Tolerance of an infinite one, by replaying the corpus in virtual time.
func (f *planFlags) holds(ctx context.Context, app *App, sols []plan.Solution) error {
	c, err := f.corpus.load(app, f.corpusPath)
	if err != nil {
		return err
	}
	var pools []knee.Pool
	for _, s := range sols {
		pools = append(pools, knee.Pool{Name: s.Key, Tier: "device", Tokens: s.DeviceTokens}, knee.Pool{Name: s.Key, Tier: "device+host", Tokens: s.UniqueTokens})
	}
	o := replay.InferenceX(1, time.Hour)
	o.Seed, o.PressureRequests = 42, 10
	cfg := knee.Config{Options: o, Service: knee.Service{PrefillSpeed: 10_000, DecodeSpeed: 50}}
	var concs []int
	for n := 1; n < f.upTo; n *= 2 {
		concs = append(concs, n)
	}
	concs = append(concs, f.upTo)
	progress := newLines(app, "plan", concs)
	defer progress.clear()
	cfg.Progress = progress.note
	curves, err := knee.Compute(ctx, c, cfg, concs)
	if err != nil {
		return usage(err)
	}
	if curves, err = knee.Refine(ctx, c, cfg, curves, pools); err != nil {
		return err
	}
	held := func(tokens int64) *plan.Holds {
		h := &plan.Holds{}
		for _, v := range curves {
			if !v.Near(tokens) {
				return h
			}
			h.Conc, h.AtLeast = int64(v.Concurrency), v.Concurrency == f.upTo
		}
		return h
	}
	for i := range sols {
		sols[i].HoldsDevice, sols[i].Holds = held(sols[i].DeviceTokens), held(sols[i].UniqueTokens)
		sols[i].SkippedTraces = len(c.Skipped)
	}
	return nil
}

func printSolutionTable(app *App, sols []plan.Solution) error {
	rows := [][]string{{"KEY", "CONC", "ROLE", "SETTING", "POOLS/NODE", "BOUND BY", "DEVICE TOK", "BOTH TIERS", "DEVICE HOLDS", "BOTH HOLD"}}
	dash := func(s string) string {
		if s == "" {
			return "-"
		}
		return s
	}
	held, skipped := false, 0
	for _, s := range sols {
		bytes := ""
		if s.Flag != "" {
			bytes = plan.GB(s.HostBytes)
		}
		held, skipped = held || s.Holds != nil, s.SkippedTraces
		rows = append(rows, []string{s.Key, fmt.Sprint(s.Conc), s.Role, dash(s.Flag), dash(bytes), dash(s.Bound),
			fmt.Sprint(s.DeviceTokens), fmt.Sprint(s.UniqueTokens), s.HoldsDevice.String(), s.Holds.String()})
	}
	if err := printMerged(app, rows, 1); err != nil {
		return err
	}
	if held {
		fmt.Fprintf(app.Out, "\nHOLDS: the largest concurrency whose working set fits; predicted, see 'weir knee'%s\n", skippedText(skipped))
	}
	return nil
}
