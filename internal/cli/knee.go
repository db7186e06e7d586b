package cli

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weirbench/weir/internal/chart"
	"github.com/weirbench/weir/internal/corpus"
	"github.com/weirbench/weir/internal/knee"
	"github.com/weirbench/weir/internal/plan"
	"github.com/weirbench/weir/internal/replay"
)

type kneeFlags struct {
	corpusFlags
	given *pflag.FlagSet
	plan  planFlags

	corpus, svg, courseSVG string
	course                 bool
	conc                   []int
	capacity               []int64
	duration               time.Duration
	seed                   uint64
	modelled               bool
	prefill, decode        float64
	pressure               int
	device, host           int64
	exclusive, exact       bool
}

func newKneeCmd(app *App) *cobra.Command {
	var f kneeFlags
	cmd := &cobra.Command{
		Use:   "knee --corpus DIR -c 1,8,64 [-f MASTER -r RUNNERS KEY...]",
		Short: "Predict at which concurrency a KV pool falls over",
		Long: `Predict, without a GPU, the hit rate of a prefix cache for every capacity and concurrency,
the ceiling that an infinite one would reach, and the working set in between.

The agents are replayed in virtual time with their recorded service times against a plain LRU
cache: a prediction of the cache alone. Times do not slow down when hits fall, outputs take no
room. Everything printed is simulated.

With the configs of a master file, or with pools by hand, it says where they fall over: the
highest concurrency at which the hit rate stays within 5 % of the ceiling, on the device alone
and with the host tier, and the host memory that twice that concurrency would need.`,
		Example: `  weir knee --corpus traces -c 1,2,4,8,16,32,64
  weir knee --corpus traces -c 8,16,32,64 --capacity 1000000,3780000 --json
  weir knee --corpus traces -c 8,16,32,64 --device-pool 3300000 --host-pool 11000000
  weir knee --corpus traces -c 8,16,32,64 -f nvidia-master.yaml -r runners.yaml 'glm5.2-fp4-b300*'`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd.Context(), app, args) },
	}
	fs := cmd.Flags()
	f.given = fs
	fs.StringVar(&f.corpus, "corpus", "", "directory or file of traces")
	fs.IntSliceVarP(&f.conc, "concurrency", "c", []int{1, 2, 4, 8, 16, 32, 64, 128}, "agents at once")
	fs.Int64SliceVar(&f.capacity, "capacity", nil, "sizes of the cache in `TOKENS`; default: powers of two")
	durationVar(fs, &f.duration, "duration", time.Hour, time.Second, "time that is replayed, after the warm-up")
	fs.Uint64Var(&f.seed, "seed", 42, "draws the start points")
	intVar(fs, &f.pressure, "warmup-requests-per-lane", 10, 0, 1_000_000, "one-token requests per agent before the time that counts")
	fs.BoolVar(&f.modelled, "modelled", false, "take service times from the speeds below instead of the recording")
	f.prefill, f.decode = 10_000, 50
	floatVar(fs, &f.prefill, "prefill-speed", minSpeed, maxSpeed, "tokens/s of one request where no time was recorded")
	floatVar(fs, &f.decode, "decode-speed", minSpeed, maxSpeed, "tokens/s of one request where no time was recorded")
	intVar(fs, &f.device, "device-pool", 0, 1, maxTokens, "find the knee of a device pool of this many distinct `TOKENS`")
	intVar(fs, &f.host, "host-pool", 0, 1, maxTokens, "with --device-pool: `TOKENS` of the host tier")
	fs.BoolVar(&f.exclusive, "exclusive", false, "with --host-pool: the tiers hold different tokens (write_back)")
	fs.BoolVar(&f.course, "working-set", false, "print the working set over time instead of hit rates")
	fs.BoolVar(&f.exact, "exact", false, "find each knee between the given concurrencies by bisection")
	fs.StringVar(&f.svg, "svg", "", "also draw hit rate against capacity into this `FILE`")
	fs.StringVar(&f.courseSVG, "working-set-svg", "", "also draw the working set over time into this `FILE`")
	fs.StringVar(&f.plan.recipes, "recipes", "", "`FOLDER` of recipes, before those that come with weir")
	fs.StringVar(&f.plan.factsFile, "facts", "", "`FILE` of facts to put before the embedded ones")
	floatVar(fs, &f.plan.poolGiB, "device-pool-gib", oneByteGB, maxGiB, "size of the device pool of a rank as the engine logged it, `GiB`")
	fs.BoolVar(&f.plan.asRecipe, "as-recipe", false, "size host tiers as the published recipes do")
	inputFlags(fs, &f.plan.masters, &f.plan.runners)
	f.corpusFlags.add(cmd)
	f.plan.engineGB = -1
	return cmd
}

func (f *kneeFlags) run(ctx context.Context, app *App, args []string) error {
	if err := cmp.Or(f.check(), f.idle()); err != nil {
		return err
	}
	pools, err := f.pools(app, args)
	if err != nil {
		return err
	}
	c, err := f.load(app, f.corpus)
	if err != nil {
		return err
	}
	o := replay.InferenceX(1, f.duration)
	o.Seed, o.PressureRequests = f.seed, f.pressure
	cfg := knee.Config{Options: o, Service: knee.Service{Modelled: f.modelled, PrefillSpeed: f.prefill, DecodeSpeed: f.decode}}
	wanted := slices.Compact(slices.Sorted(slices.Values(f.conc)))
	progress := newLines(app, "knee", wanted)
	defer progress.clear()
	cfg.Progress = progress.note
	curves, err := knee.Compute(ctx, c, cfg, wanted)
	if err != nil {
		return usage(err)
	}
	if f.exact {
		if curves, err = knee.Refine(ctx, c, cfg, curves, pools); err != nil {
			return err
		}
	}
	verdicts, err := knee.Judge(ctx, c, cfg, curves, pools)
	if err != nil {
		return err
	}
	progress.clear()
	curves = slices.DeleteFunc(curves, func(v *knee.Curve) bool { return !slices.Contains(wanted, v.Concurrency) })
	capacities := f.capacities(curves)
	if err := f.draw(c, curves, pools); err != nil {
		return err
	}
	if f.course {
		return printCourse(app, c, curves)
	}
	if app.JSON {
		return app.printJSON(kneeRows(c, curves, capacities, verdicts))
	}
	return printKnee(app, c, curves, capacities, verdicts)
}

func (f *kneeFlags) check() error {
	switch {
	case f.corpus == "":
		return usagef("no corpus: name a directory or file of traces with --corpus")
	case len(f.conc) == 0 || slices.Min(f.conc) < 1 || slices.Max(f.conc) > replay.MaxLanes:
		return usagef("--concurrency %v: every value is within 1 to 100000", f.conc)
	case len(f.capacity) > 0 && slices.Min(f.capacity) < 1:
		return usagef("--capacity %v: every value is at least 1 token", f.capacity)
	case f.duration <= 0:
		return usagef("--duration is %v: it must be more than 0", f.duration)
	case f.pressure < 0 || f.device < 0 || f.host < 0:
		return usagef("--warmup-requests-per-lane, --device-pool and --host-pool may not be negative")
	case f.host > 0 && f.device == 0:
		return usagef("--host-pool needs --device-pool")
	}
	return nil
}

// idle refuses flags that were given and have no effect beside the others.
func (f *kneeFlags) idle() error {
	var errs []error
	if len(f.plan.masters) == 0 {
		errs = append(errs, without(f.given, "without -f, whose points are planned", "facts", "device-pool-gib", "as-recipe", "runner-config"))
		if f.device == 0 {
			errs = append(errs, without(f.given, "without a pool (--device-pool, or points with -f)", "exact"))
		}
	}
	if f.host == 0 {
		errs = append(errs, without(f.given, "without --host-pool", "exclusive"))
	}
	if f.course {
		errs = append(errs, without(f.given, "beside --working-set, which prints no hit rates", "capacity"))
	}
	return cmp.Or(errs...)
}

// pools are those whose knee is asked for: by hand, or of the points of a master file.
func (f *kneeFlags) pools(app *App, args []string) ([]knee.Pool, error) {
	var pools []knee.Pool
	if f.device > 0 {
		pools = append(pools, knee.Pool{Name: "by hand", Tier: "device", Tokens: f.device})
		if f.host > 0 {
			both, offset := max(f.device, f.host), int64(0)
			if f.exclusive {
				both, offset = f.device+f.host, f.device
			}
			pools = append(pools, knee.Pool{Name: "by hand", Tier: "device+host", Tokens: both, HostOffset: offset})
		}
	}
	var keys []string
	for _, a := range args {
		if strings.HasSuffix(a, ".yaml") || strings.HasSuffix(a, ".yml") {
			f.plan.masters = append(f.plan.masters, a)
		} else {
			keys = append(keys, a)
		}
	}
	if len(f.plan.masters) == 0 {
		if len(keys) > 0 {
			return nil, usagef("config %s needs a master file: name it with -f", strings.Join(keys, ", "))
		}
		return pools, nil
	}
	f.plan.scenario = "agentic-coding"
	opt, err := f.plan.options()
	if err != nil {
		return nil, err
	}
	pts, err := f.plan.points(keys, opt)
	if err != nil {
		return nil, err
	}
	vs, err := verdicts(pts, opt)
	if err != nil {
		return nil, err
	}
	type place struct {
		name, tier string
		tokens     int64
	}
	seen := map[place]int{}
	skipped := 0
	for _, v := range vs {
		r := v.Serving()
		if r == nil || v.DeviceUniqueTokens <= 0 {
			skipped++
			continue
		}
		for _, p := range poolsOf(v, r) {
			// Points with and without a host pool have the same device pool. What host memory would take is known
			// best from those with one.
			at := place{p.Name, p.Tier, p.Tokens}
			if i, ok := seen[at]; !ok {
				seen[at] = len(pools)
				pools = append(pools, p)
			} else if r.Host != nil {
				pools[i] = p
			}
		}
	}
	if skipped > 0 {
		fmt.Fprintf(app.Err, "weir: note: %d of %d points have no pool that plan can compute; see weir plan\n", skipped, len(vs))
	}
	return pools, nil
}

// poolsOf are the pools of the workers that hold a point's prefix cache.
func poolsOf(v *plan.Verdict, r *plan.Role) []knee.Pool {
	name := fmt.Sprintf("%s tp%d", v.Key, r.TP)
	if r.AttnDP > 1 {
		name += fmt.Sprintf(" dp%d", r.AttnDP)
	}
	if r.Workers > 1 {
		name += fmt.Sprintf(" x%d", r.Workers)
	}
	perToken := 0.0
	if r.Device.UniqueTokens > 0 {
		perToken = float64(r.Ranks) * float64(r.BytesPerToken) * float64(r.Device.Tokens) / float64(r.Device.UniqueTokens)
	}
	if r.Host != nil && r.Host.UniqueTokens > 0 {
		perToken = float64(r.Ranks) * float64(r.Host.Bytes) / float64(r.Host.UniqueTokens)
	}
	out := []knee.Pool{{Name: name, Tier: "device", Tokens: v.DeviceUniqueTokens, HostBytesPerToken: perToken}}
	if r.Host != nil && r.Host.UniqueTokens > 0 {
		both := out[0]
		both.Tier, both.Tokens = "device+host", v.UniqueTokens
		if r.Host.Exclusive {
			out[0].HostOffset, both.HostOffset = v.DeviceUniqueTokens, v.DeviceUniqueTokens
		}
		out = append(out, both)
	}
	return out
}

// capacities are those asked for, else powers of two up to where no curve rises any more.
func (f *kneeFlags) capacities(curves []*knee.Curve) []int64 {
	if len(f.capacity) > 0 {
		return slices.Compact(slices.Sorted(slices.Values(f.capacity)))
	}
	top := int64(0)
	for _, c := range curves {
		top = max(top, c.Needs())
	}
	var out []int64
	for n := int64(1 << 16); ; n *= 2 {
		out = append(out, n)
		if n >= 2*top || n >= 1<<40 {
			return out
		}
	}
}

// kneeRow is one row of the JSON output. Numbers that are not known are null.
type kneeRow struct {
	Concurrency    int      `json:"concurrency"`
	CapacityTokens int64    `json:"capacity_tokens"`
	HitRate        *float64 `json:"hit_rate"`
	Ceiling        *float64 `json:"ceiling"`
	WorkingSet     int64    `json:"working_set_tokens"`
	Requests       int64    `json:"requests"`
	PromptTokens   int64    `json:"prompt_tokens"`
	WorkingSetPeak int64    `json:"working_set_peak_tokens"`
	Needs          int64    `json:"needs_tokens"` // least capacity within 5 % of the ceiling
	Near           bool     `json:"near_ceiling"` // this capacity is within 5 % of it
	Simulated      bool     `json:"simulated"`
	Traces         int      `json:"traces"`
	SkippedTraces  int      `json:"skipped_traces"` // broken ones, left out by --skip-broken

	// Of rows that stand for a pool.
	Pool          string `json:"pool,omitempty"`
	Tier          string `json:"tier,omitempty"`
	Knee          *int   `json:"knee_concurrency,omitempty"` // 0: not even the lowest stays near
	Next          int    `json:"next_concurrency,omitempty"`
	NextTokens    int64  `json:"next_tokens,omitempty"`
	NextHostBytes int64  `json:"next_host_bytes,omitempty"`
}

func kneeRows(of *corpus.Corpus, curves []*knee.Curve, capacities []int64, verdicts []knee.Verdict) []kneeRow {
	rows := []kneeRow{}
	row := func(c *knee.Curve, capacity int64) kneeRow {
		r := kneeRow{
			Concurrency: c.Concurrency, CapacityTokens: capacity, WorkingSet: c.WorkingSetTokens, Requests: c.Requests,
			PromptTokens: c.PromptTokens, WorkingSetPeak: c.WorkingSetPeak, Needs: c.Needs(), Near: c.Near(capacity), Simulated: true,
			Traces: len(of.Traces), SkippedTraces: len(of.Skipped),
		}
		if x, ok := c.HitRate(capacity); ok {
			r.HitRate = &x
		}
		if x, ok := c.Ceiling(); ok {
			r.Ceiling = &x
		}
		return r
	}
	for _, c := range curves {
		for _, capacity := range capacities {
			rows = append(rows, row(c, capacity))
		}
	}
	for _, v := range verdicts {
		for _, c := range curves {
			r := row(c, v.Tokens)
			r.Pool, r.Tier, r.Knee = v.Name, v.Tier, &v.Knee
			r.Next, r.NextTokens, r.NextHostBytes = v.Next, v.NextTokens, v.NextHostBytes
			rows = append(rows, r)
		}
	}
	return rows
}

func printKnee(app *App, of *corpus.Corpus, curves []*knee.Curve, capacities []int64, verdicts []knee.Verdict) error {
	tw := tabwriter.NewWriter(app.Out, 0, 4, 2, ' ', tabwriter.AlignRight)
	line := func(head string, cell func(*knee.Curve) string) {
		fmt.Fprint(tw, head)
		for _, c := range curves {
			fmt.Fprint(tw, "\t", cell(c))
		}
		fmt.Fprintln(tw, "\t")
	}
	line("CAPACITY", func(c *knee.Curve) string { return fmt.Sprintf("c=%d", c.Concurrency) })
	for _, n := range capacities {
		line(count(n), func(c *knee.Curve) string { return rate(c.HitRate(n)) })
	}
	line("ceiling", func(c *knee.Curve) string { return rate(c.Ceiling()) })
	line("needs", func(c *knee.Curve) string { return count(c.Needs()) })
	line("working set", func(c *knee.Curve) string { return count(c.WorkingSetTokens) })
	line("its peak", func(c *knee.Curve) string { return count(c.WorkingSetPeak) })
	line("requests", func(c *knee.Curve) string { return count(c.Requests) })
	if err := tw.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(app.Out, `
%d traces of %s%s
simulated: hit rate of an LRU cache over recorded or modelled times; capacities in tokens.
needs: the least capacity within 5 %% of the ceiling. working set: tokens that were sent and
will be sent again, mean over the time that counts.
`, len(of.Traces), of.Name, skippedCount(of))
	if len(verdicts) == 0 {
		return nil
	}
	fmt.Fprintln(app.Out)
	tw = tabwriter.NewWriter(app.Out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(tw, "POOL\tTIER\tTOKENS\tKNEE\tTWICE THAT\tNEEDS\tHOST MEMORY")
	for _, v := range verdicts {
		at, next, needs, bytes := "below "+strconv.Itoa(curves[0].Concurrency), "-", "-", "-"
		if v.Knee > 0 {
			at = strconv.Itoa(v.Knee)
			if v.Knee == curves[len(curves)-1].Concurrency {
				at = ">= " + at
			}
		}
		if v.Next > 0 {
			next, needs = strconv.Itoa(v.Next), count(v.NextTokens)
			if v.NextHostBytes > 0 {
				bytes = plan.GB(v.NextHostBytes)
			}
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", v.Name, v.Tier, count(v.Tokens), at, next, needs, bytes)
	}
	return tw.Flush()
}

func rate(x float64, ok bool) string {
	if !ok {
		return "-"
	}
	return fmt.Sprintf("%.3f", x)
}

// courseRow is the mean working set of one step of time.
type courseRow struct {
	Concurrency   int     `json:"concurrency"`
	FromS         float64 `json:"from_s"` // since the time that counts began
	ToS           float64 `json:"to_s"`
	WorkingSet    int64   `json:"working_set_tokens"`
	Simulated     bool    `json:"simulated"`
	SkippedTraces int     `json:"skipped_traces"`
}

func printCourse(app *App, of *corpus.Corpus, curves []*knee.Curve) error {
	if app.JSON {
		rows := []courseRow{}
		for _, c := range curves {
			for k, n := range c.WorkingSet {
				rows = append(rows, courseRow{c.Concurrency, float64(k) * float64(c.StepNs) / 1e9, float64(k+1) * float64(c.StepNs) / 1e9, n, true, len(of.Skipped)})
			}
		}
		return app.printJSON(rows)
	}
	tw := tabwriter.NewWriter(app.Out, 0, 4, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(tw, "FROM")
	steps := 0
	for _, c := range curves {
		fmt.Fprintf(tw, "\tc=%d", c.Concurrency)
		steps = max(steps, len(c.WorkingSet))
	}
	fmt.Fprintln(tw, "\t")
	for k := range steps {
		for i, c := range curves {
			if i == 0 {
				fmt.Fprint(tw, time.Duration(int64(k)*c.StepNs).Round(time.Second))
			}
			cell := "-"
			if k < len(c.WorkingSet) {
				cell = count(c.WorkingSet[k])
			}
			fmt.Fprint(tw, "\t", cell)
		}
		fmt.Fprintln(tw, "\t")
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(app.Out, "\n%d traces of %s%s\nsimulated: tokens that were sent and will be sent again, means over steps of time\n", len(of.Traces), of.Name, skippedCount(of))
	return nil
}

// draw writes the figures that are asked for.
func (f *kneeFlags) draw(of *corpus.Corpus, curves []*knee.Curve, pools []knee.Pool) error {
	if f.svg != "" {
		p := chart.Plot{
			ID: "knee", Title: "Hit rate against capacity (simulated)" + skippedCount(of), Width: 760, Height: 420, NameSeries: true,
			Desc: "Share of prompt tokens that an LRU prefix cache finds, by its capacity, one curve a concurrency",
			X:    chart.Axis{Label: "capacity", Unit: "tokens", Log: true},
			Y:    chart.Axis{Label: "hit rate", Percent: true, Zero: true, Better: 1},
		}
		top := int64(0)
		for _, c := range curves {
			top = max(top, 2*c.Needs())
		}
		for i, c := range curves {
			s := chart.Series{Name: fmt.Sprintf("c=%d", c.Concurrency), Enc: chart.Encoding{Hue: i, Shape: chart.Shape(i), Dotted: true}}
			for n := int64(1 << 14); n <= max(top, 1<<16); n += n / 4 {
				if x, ok := c.HitRate(n); ok {
					s.Line = append(s.Line, len(s.Marks))
					s.Marks = append(s.Marks, chart.Mark{X: float64(n), Y: x})
				}
			}
			p.Series = append(p.Series, s)
		}
		for _, v := range pools {
			p.Rules = append(p.Rules, chart.Rule{X: float64(v.Tokens), Text: v.Tier})
		}
		if err := os.WriteFile(f.svg, []byte(chart.Standalone(p.SVG())), 0o644); err != nil {
			return err
		}
	}
	if f.courseSVG == "" {
		return nil
	}
	p := chart.Plot{
		ID: "workingset", Title: "Working set over time (simulated)" + skippedCount(of), Width: 760, Height: 420, NameSeries: true,
		Desc: "Tokens that were sent and will be sent again, one curve a concurrency",
		X:    chart.Axis{Label: "time", Unit: "min", Zero: true},
		Y:    chart.Axis{Label: "working set", Unit: "tokens", Zero: true},
	}
	for i, c := range curves {
		s := chart.Series{Name: fmt.Sprintf("c=%d", c.Concurrency), Enc: chart.Encoding{Hue: i, Shape: chart.Shape(i), Dotted: true}}
		for k, n := range c.WorkingSet {
			s.Line = append(s.Line, k)
			s.Marks = append(s.Marks, chart.Mark{X: (float64(k) + 0.5) * float64(c.StepNs) / 60e9, Y: float64(n)})
		}
		p.Series = append(p.Series, s)
	}
	return os.WriteFile(f.courseSVG, []byte(chart.Standalone(p.SVG())), 0o644)
}
