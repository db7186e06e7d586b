package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weirbench/weir/internal/engine"
	"github.com/weirbench/weir/internal/facts"
	"github.com/weirbench/weir/internal/plan"
	"github.com/weirbench/weir/internal/replay"
	"github.com/weirbench/weir/internal/run"
	"github.com/weirbench/weir/internal/spec"
)

// Sizes of files that are read whole.
const (
	factsLimit     = 16 << 20
	indexLimit     = 256 << 20 // model.safetensors.index.json
	tokenizerLimit = 512 << 20
	pointLimit     = 64 << 20
)

// planFlags select points and say how to plan them.
type planFlags struct {
	masters, keys                []string
	runners, factsFile, scenario string
	modelConfig, corpusPath      string
	recipes                      string
	ids                          []string // of the points, before their recipes filled what they leave open
	corpus                       corpusFlags
	explain, solve, asRecipe     bool
	conc                         []int
	engineGB, poolGiB            float64
	workingSet                   int64
	upTo                         int

	// A point by hand.
	runner, framework, image, precision, spec, backend string
	kvDType, writePolicy                               string
	tp, pp, ep, oneConc                                int
	dpAttn                                             bool
	fraction, ratio, hostGB                            float64
	budgetGB                                           int64
}

func newPlanCmd(app *App) *cobra.Command {
	var f planFlags
	cmd := &cobra.Command{
		Use:   "plan [-f MASTER... -r RUNNERS] [KEY...]",
		Short: "Say what fits before a GPU is touched",
		Long: `Say for every point how large the device pool and each host pool will be on every rank and
node, whether it fits the node, whether the configuration allows it, whether the engine accepts
it, and what the smallest change is that makes it pass.

Verdicts: fits, policy-violation, oom-host, oom-device, engine-rejects, unknown. The command ends
with 4 when a point is refused. In the table POOLS/NODE, the host memory that the pools of a node
pin, is held against ALLOWED, the configured share, and TOTAL/NODE, which has the engine processes
too, against LIMIT, the memory of the node less 5 % and 10 GiB. Where a point gives no size for its host tier, plan takes the
largest that fits and is allowed; --as-recipe takes what the published launch script passes.`,
		Example: `  weir plan -f nvidia-master.yaml -r runners.yaml 'glm5.2*'
  weir plan -f nvidia-master.yaml -r runners.yaml --explain --conc 16 glm5.2-fp4-b200-sglang-agentic-mtp
  weir plan -f nvidia-master.yaml -r runners.yaml --as-recipe 'glm5.2*'
  weir plan -f nvidia-master.yaml -r runners.yaml --solve 'qwen3.5-fp8-b300*'
  weir plan --model-config config.json --runner cluster:b200-dgxc --framework sglang --tp 8 --precision fp8`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			f.sortArgs(args)
			if err := f.unused(cmd.Flags()); err != nil {
				return err
			}
			return f.run(cmd.Context(), app)
		},
	}
	fs := cmd.Flags()
	inputFlags(fs, &f.masters, &f.runners)
	fs.StringVar(&f.scenario, "scenario", "", "keep one scenario: agentic-coding or fixed-seq-len")
	fs.IntSliceVar(&f.conc, "conc", nil, "keep only these concurrencies")
	fs.StringVar(&f.factsFile, "facts", "", "`FILE` of facts to put before the embedded ones")
	fs.StringVar(&f.recipes, "recipes", "", "`FOLDER` of recipes, before those that come with weir")
	fs.StringVar(&f.modelConfig, "model-config", "", "plan the model of a Hugging Face config.json instead")
	fs.BoolVar(&f.explain, "explain", false, "print the worked sum in words")
	fs.BoolVar(&f.solve, "solve", false, "print the largest host tier that fits and is allowed")
	fs.BoolVar(&f.asRecipe, "as-recipe", false, "size host tiers as the published recipes do")
	fs.StringVar(&f.corpusPath, "corpus", "", "with --solve: find the largest concurrency that is held, from the traces at this `PATH`")
	fs.IntVar(&f.upTo, "up-to", 128, "with --corpus: look no higher than this concurrency")
	fs.Int64Var(&f.workingSet, "working-set", 0, "with --solve: `TOKENS` of one lane, instead of a corpus")
	f.engineGB = -1
	floatVar(fs, &f.engineGB, "engine-gb", 0, maxGB, "host memory of one engine process beside its pools, `GB`; default: the fact")
	floatVar(fs, &f.poolGiB, "device-pool-gib", oneByteGB, maxGiB, "size of the device pool of a rank as the engine logged it, `GiB`")
	fs.AddFlagSet(f.handFlags())
	f.corpus.add(cmd)
	return cmd
}

// handFlags describe one point without a master file.
func (f *planFlags) handFlags() *pflag.FlagSet {
	fs := pflag.NewFlagSet("by hand", pflag.ContinueOnError)
	fs.StringVar(&f.runner, "runner", "", "plan one point by hand on this runner `LABEL`")
	fs.StringVar(&f.framework, "framework", "sglang", "by hand: framework as in a master file")
	fs.StringVar(&f.image, "image", "", "by hand: image, for the engine's version")
	fs.StringVar(&f.precision, "precision", "fp8", "by hand: precision of the weights")
	fs.StringVar(&f.spec, "spec-decoding", "none", "by hand: none, mtp, ...")
	fs.StringVar(&f.backend, "backend", "", "by hand: host tier; the engine's own by default")
	fs.StringVar(&f.kvDType, "kv-dtype", "", "by hand: type of cached keys and values")
	fs.StringVar(&f.writePolicy, "write-policy", "", "by hand: write_back, write_through, write_through_selective")
	fs.IntVar(&f.tp, "tp", 1, "by hand: tensor parallelism")
	fs.IntVar(&f.pp, "pp", 1, "by hand: pipeline parallelism")
	fs.IntVar(&f.ep, "ep", 1, "by hand: expert parallelism")
	fs.BoolVar(&f.dpAttn, "dp-attn", false, "by hand: data-parallel attention")
	fs.IntVar(&f.oneConc, "concurrency", 16, "by hand: concurrency")
	floatVar(fs, &f.fraction, "mem-fraction", ppm, 1, "by hand: share of HBM for weights and KV; default: recipe or engine")
	floatVar(fs, &f.ratio, "host-ratio", ppm, maxRatio, "by hand: host tier as a multiple of the device pool")
	floatVar(fs, &f.hostGB, "host-gb-per-rank", oneByteGB, maxGB, "by hand: host tier as the engine's own size, decimal `GB` per rank")
	fs.Int64Var(&f.budgetGB, "budget-gb", 0, "by hand: host memory that the point may pin on a node, decimal `GB`")
	return fs
}

// sortArgs parts master files from keys: several files may follow one -f.
func (f *planFlags) sortArgs(args []string) {
	for _, a := range args {
		if strings.HasSuffix(a, ".yaml") || strings.HasSuffix(a, ".yml") {
			f.masters = append(f.masters, a)
		} else {
			f.keys = append(f.keys, a)
		}
	}
}

// unused refuses a flag that was given and would not count.
func (f *planFlags) unused(given *pflag.FlagSet) error {
	var err error
	refuse := func(format string, a ...any) {
		if err == nil {
			err = usagef(format, a...)
		}
	}
	byHand, f2 := f.runner != "", planFlags{}
	switch {
	case len(f.masters) > 0 && !byHand:
		f2.handFlags().VisitAll(func(h *pflag.Flag) {
			// With a model from a config.json the precision says which weights its index counts.
			if given.Changed(h.Name) && (h.Name != "precision" || f.modelConfig == "") {
				refuse("--%s describes a point by hand, with --runner; the points of %s have their own: leave it out, or change the master file", h.Name, strings.Join(f.masters, ", "))
			}
		})
	case byHand && len(f.masters) == 0:
		for _, name := range []string{"scenario", "conc", "runner-config"} {
			if given.Changed(name) {
				refuse("--%s selects among the points of master files; --runner plans one point by hand: leave one of them out", name)
			}
		}
	}
	for _, name := range []string{"corpus", "up-to", "working-set"} {
		if !f.solve && given.Changed(name) {
			refuse("--%s needs --solve", name)
		}
	}
	for _, name := range []string{"up-to", "skip-broken", "source-block-size"} {
		if given.Changed(name) && f.corpusPath == "" {
			refuse("--%s needs --corpus", name)
		}
	}
	if f.solve && f.explain {
		refuse("--explain stands beside --solve; keep one")
	}
	return err
}

func (f *planFlags) run(ctx context.Context, app *App) error {
	opt, err := f.options()
	if err != nil {
		return err
	}
	pts, err := f.points(f.keys, opt)
	if err != nil {
		return err
	}
	if f.solve {
		return f.printSolutions(ctx, app, pts, opt)
	}
	vs, err := verdicts(pts, opt)
	if err != nil {
		return err
	}
	for i := range f.ids {
		vs[i].PointID = f.ids[i]
	}
	switch {
	case app.JSON:
		err = app.printJSON(vs)
	case f.explain:
		for i, v := range vs {
			if i > 0 {
				fmt.Fprintln(app.Out)
			}
			fmt.Fprint(app.Out, v.Explain())
		}
	default:
		err = printVerdicts(app, vs)
	}
	if err != nil {
		return err
	}
	return refusal(vs)
}

func (f *planFlags) options() (plan.Options, error) {
	opt := plan.Options{AsRecipe: f.asRecipe, Facts: facts.Embedded()}
	if f.engineGB >= 0 {
		n := int64(f.engineGB * 1e9)
		opt.HostProcessBytes = &n
	}
	opt.DevicePoolBytes = int64(f.poolGiB * (1 << 30))
	if f.factsFile != "" {
		b, err := spec.ReadFile(f.factsFile, factsLimit)
		if err != nil {
			return opt, usage(err)
		}
		if opt.Facts, err = opt.Facts.Extend(f.factsFile, b); err != nil {
			return opt, usage(err)
		}
	}
	if f.modelConfig != "" {
		m, err := readModelConfig(f.modelConfig, f.precision)
		if err != nil {
			return opt, usage(err)
		}
		opt.Model = m
	}
	return opt, nil
}

// readModelConfig reads a config.json and, where it lies beside it, the size of the weights.
func readModelConfig(path, precision string) (*facts.Model, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	b, err := spec.ReadFile(path, 16<<20)
	if err != nil {
		return nil, err
	}
	m, err := facts.ParseHFConfig(path, b, st.ModTime().UTC().Format(time.DateOnly))
	if err != nil {
		return nil, err
	}
	index := filepath.Join(filepath.Dir(path), "model.safetensors.index.json")
	if _, err := os.Stat(index); err == nil {
		b, err := spec.ReadFile(index, indexLimit)
		if err != nil {
			return nil, err
		}
		if err := m.AddSafetensorsIndex(index, b, precision); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (f *planFlags) points(keys []string, opt plan.Options) ([]*spec.Point, error) {
	if f.runner != "" {
		if len(f.masters) > 0 || len(keys) > 0 {
			return nil, usagef("--runner plans one point by hand and takes no master file and no key; drop one of them")
		}
		return f.byHand(opt)
	}
	if len(f.masters) == 0 {
		return nil, usagef("name master files with -f, or one point by hand with --runner")
	}
	set, err := spec.Load(f.masters, f.runners)
	if err != nil {
		return nil, usage(err)
	}
	sel := spec.Selection{Keys: keys, Conc: f.conc}
	switch s := spec.Scenario(f.scenario); s {
	case "":
	case spec.AgenticCoding, spec.FixedSeqLen:
		sel.Scenarios = []spec.Scenario{s}
	default:
		return nil, usagef("--scenario %q is not known; known: agentic-coding, fixed-seq-len", f.scenario)
	}
	pts, err := selected(set, sel)
	if err != nil {
		return nil, err
	}
	if len(pts) == 0 {
		return nil, usagef("no point is selected")
	}
	f.ids = make([]string, len(pts))
	for i, p := range pts {
		f.ids[i] = p.ID()
	}
	return withRecipes(pts, f.recipes)
}

// withRecipes are points as they are planned when they are run: with what the recipes say that
// they name, from a folder or from those that come with weir.
func withRecipes(pts []*spec.Point, folder string) ([]*spec.Point, error) {
	dirs := recipeDirs(folder)
	known := map[string]*engine.Recipe{}
	var errs []error
	for i, p := range pts {
		name := p.Weir.Recipe
		if name == "" || name == run.SimRecipe {
			continue
		}
		if known[name] == nil {
			r, err := engine.Load(name, dirs...)
			if err != nil {
				return nil, usagef("%s:%d: weir.recipe: %w", p.Origin.File, p.Origin.Line, err)
			}
			known[name] = r
		}
		q, err := known[name].Planned(p)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		pts[i] = q
	}
	return pts, usage(errors.Join(errs...))
}

func (f *planFlags) byHand(opt plan.Options) ([]*spec.Point, error) {
	if opt.Model == nil {
		return nil, usagef("--runner needs --model-config")
	}
	const million = 1_000_000
	if f.budgetGB < 0 || f.budgetGB > maxGB {
		return nil, usagef("--budget-gb %d is not within 0 to %d", f.budgetGB, int64(maxGB))
	}
	if f.oneConc < 1 || f.oneConc > replay.MaxLanes {
		return nil, usagef("--concurrency %d is not within 1 to %d", f.oneConc, replay.MaxLanes)
	}
	p := &spec.Point{
		Key: opt.Model.Name, Model: opt.Model.Name, Precision: f.precision, Framework: f.framework, Image: f.image,
		Runner: f.runner, Scenario: spec.AgenticCoding, Conc: f.oneConc, SpecDecoding: f.spec,
		Unified: &spec.Parallel{TP: f.tp, PP: f.pp, EP: f.ep, PCP: 1, DCP: 1, DPAttn: f.dpAttn},
		Offload: spec.Offload{Mode: "none"},
		Weir: spec.WeirFields{MemFractionPPM: int64(f.fraction*million + 0.5), KVDType: f.kvDType, WritePolicy: f.writePolicy,
			HostRatioPPM: int64(f.ratio*million + 0.5), HostBytesPerRank: int64(f.hostGB*1e9 + 0.5)},
	}
	if f.backend != "" || f.budgetGB != 0 || f.ratio > 0 || f.hostGB > 0 {
		p.Offload = spec.Offload{Mode: "dram", Backend: spec.Component{Name: f.backend}, BudgetGB: f.budgetGB}
	}
	return []*spec.Point{p}, nil
}

// verdicts plans points. A fact that is missing is a verdict; a point that makes no sense is a
// usage error, all of them in one.
func verdicts(pts []*spec.Point, opt plan.Options) ([]*plan.Verdict, error) {
	var errs []error
	var out []*plan.Verdict
	for _, p := range pts {
		v, err := plan.Compute(p, opt)
		switch {
		case errors.Is(err, facts.ErrUnknown):
			v = &plan.Verdict{PointID: p.ID(), Key: p.Key, Name: p.Name, Conc: p.Conc, Runner: p.Runner, Model: p.Model, Precision: p.Precision,
				Status: plan.Unknown, Findings: []plan.Finding{{Status: plan.Unknown, Reason: err.Error()}}, Roles: []plan.Role{}}
		case err != nil:
			errs = append(errs, err)
			continue
		}
		out = append(out, v)
	}
	return out, usage(errors.Join(errs...))
}

func printVerdicts(app *App, vs []*plan.Verdict) error {
	rows := [][]string{{"VERDICT", "CONC", "ROLE", "DEVICE TOK/RANK", "HOST TOK/RANK", "UNIQUE TOK", "B/TOK", "HOST/RANK", "POOLS/NODE", "ALLOWED", "TOTAL/NODE", "LIMIT", "KEY"}}
	for _, v := range vs {
		if len(v.Roles) == 0 {
			rows = append(rows, []string{string(v.Status), fmt.Sprint(v.Conc), "-", "-", "-", "-", "-", "-", "-", "-", "-", v.Key})
		}
		for _, r := range v.Roles {
			host, rank, pools, allowed, limit := "-", "-", "-", "-", "unknown"
			if r.Host != nil {
				host, rank, pools = fmt.Sprint(r.Host.Tokens), plan.GB(r.Host.Bytes), plan.GB(r.Node.HostPoolBytes)
			}
			if r.Node.PolicyBytes.N > 0 {
				allowed = plan.GB(r.Node.PolicyBytes.N)
			}
			if r.Node.MemoryBytes.N > 0 {
				limit = plan.GB(r.Node.LimitBytes)
			}
			device, unique := fmt.Sprint(r.Device.Tokens), fmt.Sprint(int64(r.Workers)*r.UniqueTokens())
			if !r.Device.Known() {
				device, unique = "unknown", "unknown"
			}
			rows = append(rows, []string{string(v.Status), fmt.Sprint(v.Conc), r.Name, device, host,
				unique, fmt.Sprint(r.BytesPerToken), rank, pools, allowed, plan.GB(r.Node.TotalBytes), limit, v.Key})
		}
	}
	if err := printMerged(app, rows, 1); err != nil {
		return err
	}
	printReasons(app, vs)
	return nil
}

// printMerged prints rows as a table; rows that follow one another and differ in one column only
// become one, with that column's values in a list.
func printMerged(app *App, rows [][]string, column int) error {
	tw := tabwriter.NewWriter(app.Out, 0, 4, 2, ' ', 0)
	for i := 0; i < len(rows); {
		row := slices.Clone(rows[i])
		values := []string{row[column]}
		k := i + 1
		for ; i > 0 && k < len(rows); k++ {
			next := slices.Clone(rows[k])
			next[column] = row[column]
			if !slices.Equal(next, row) {
				break
			}
			values = append(values, rows[k][column])
		}
		if len(values) > 6 {
			values = append(values[:2:2], "...", values[len(values)-1])
		}
		row[column] = strings.Join(values, ",")
		if _, err := fmt.Fprintln(tw, strings.Join(row, "\t")); err != nil {
			return err
		}
		i = k
	}
	return tw.Flush()
}

// printReasons prints every finding and warning once with the points that have it.
func printReasons(app *App, vs []*plan.Verdict) {
	type reason struct {
		text  string
		first *plan.Verdict
		n     int
	}
	var order []*reason
	seen := map[string]*reason{}
	note := func(v *plan.Verdict, text string) {
		r := seen[text]
		if r == nil {
			r = &reason{text: text, first: v}
			seen[text] = r
			order = append(order, r)
		}
		r.n++
	}
	for _, v := range vs {
		for _, f := range v.Findings {
			change := ""
			if f.Change != "" {
				change = "\n    smallest change: " + f.Change
			}
			note(v, fmt.Sprintf("%s: %s%s", f.Status, f.Reason, change))
		}
	}
	for _, v := range vs {
		for _, w := range v.Warnings {
			note(v, fmt.Sprintf("warning %s: %s", w.Code, w.Message))
		}
	}
	for _, r := range order {
		more := ""
		if r.n > 1 {
			more = fmt.Sprintf(" and %d more", r.n-1)
		}
		fmt.Fprintf(app.Out, "\n%s, concurrency %d%s\n  %s\n", r.first.Key, r.first.Conc, more, r.text)
	}
}

// refusal counts verdicts and refuses where one does not fit.
func refusal(vs []*plan.Verdict) error {
	count := map[plan.Status]int{}
	for _, v := range vs {
		count[v.Status]++
	}
	if count[plan.Fits] == len(vs) {
		return nil
	}
	var parts []string
	for _, s := range []plan.Status{plan.EngineRejects, plan.OOMDevice, plan.OOMHost, plan.PolicyViolation, plan.Unknown} {
		if count[s] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", count[s], s))
		}
	}
	return refused(fmt.Errorf("%d of %d points do not pass: %s", len(vs)-count[plan.Fits], len(vs), strings.Join(parts, ", ")))
}
