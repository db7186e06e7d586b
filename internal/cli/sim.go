package cli

import (
	"cmp"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weirbench/weir/internal/facts"
	"github.com/weirbench/weir/internal/plan"
	"github.com/weirbench/weir/internal/sim"
	"github.com/weirbench/weir/internal/spec"
)

func newSimCmd(app *App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "sim",
		Short: "Run the simulated engine, which needs no GPU",
		Long: `The simulated engine has the scheduler and the cache tiers of a real one and a model of its
step time; what it generates has no meaning. In virtual time it runs inside 'weir sweep' and
'weir demo'; 'weir sim serve' puts the same engine behind HTTP.`,
		Example: `  weir sim run --corpus traces -c 1,8,64
  weir sim serve --model glm-5.2 --gpu b200 --tp 8 --addr 127.0.0.1:30000`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			return usagef("unknown command %q (see '%s --help')", args[0], cmd.CommandPath())
		},
	}
	cmd.AddCommand(newSimRunCmd(app), newSimServeCmd(app), newSimRouterCmd(app), newSimCalibrateCmd(app), newSimPublishedCmd(app))
	return cmd
}

// maxTokens is the largest size of a pool in tokens: a thousand times what any node holds.
const maxTokens = 1 << 50

// simFlags are the flags that describe a simulated engine.
type simFlags struct {
	model, gpu, precision, kvDType string
	tp, ep                         int
	dpAttn                         bool
	device, host                   int64
	hostRatio                      float64
	page                           int64
	policy, order, balance         string
	chunk, running, context        int64
	accept                         float64
	drafts                         int64
	memFraction                    float64
	factsFile, engine              string
	fitting                        bool // step times are to be found: a GPU without any begins with the B200's
	storage                        int64
	storageGBs                     float64
	prefetch                       string
	doubles                        bool
	given                          *pflag.FlagSet
}

func (f *simFlags) add(cmd *cobra.Command) {
	fl := cmd.Flags()
	f.given = fl
	fl.StringVar(&f.factsFile, "facts", "", "`FILE` of facts to put before the embedded ones")
	fl.StringVar(&f.model, "model", "glm-5.2", "model of the facts")
	fl.StringVar(&f.gpu, "gpu", "b200", "GPU of the facts")
	fl.StringVar(&f.precision, "precision", "", "precision of the weights (the narrowest that the facts know when empty)")
	choiceVar(fl, &f.kvDType, "kv-dtype", "fp8", []string{"fp8", "bf16"}, "type of cached keys and values: fp8 or bf16")
	intVar(fl, &f.tp, "tp", 8, 1, 1024, "GPUs that share a layer")
	intVar(fl, &f.ep, "ep", 1, 1, 1024, "GPUs that experts are spread over whole; 1 cuts every expert over all")
	fl.BoolVar(&f.dpAttn, "dp-attn", false, "attention is data parallel: every rank has its own cache")
	intVar(fl, &f.device, "device-tokens", 0, 0, maxTokens, "device pool of one rank in tokens (planned from the facts when 0)")
	intVar(fl, &f.host, "host-tokens", 0, 0, maxTokens, "host pool of one rank in tokens, 0 for none")
	floatVar(fl, &f.hostRatio, "host-ratio", 0, maxRatio, "host pool as a multiple of the device pool, in place of --host-tokens")
	intVar(fl, &f.storage, "storage-tokens", 0, 0, maxTokens, "storage tier behind the host pool in tokens, 0 for none")
	f.storageGBs = 5
	floatVar(fl, &f.storageGBs, "storage-bandwidth", oneByteGB, maxGB, "what one rank reads from storage, `GB/s`")
	choiceVar(fl, &f.prefetch, "prefetch-policy", "timeout", []string{"timeout", "best_effort", "wait_complete"}, "how long a request waits for storage: timeout, best_effort or wait_complete")
	intVar(fl, &f.page, "page-size", 64, 1, 1<<20, "tokens of a page or block")
	choiceVar(fl, &f.policy, "write-policy", "write_through", []string{"write_back", "write_through", "write_through_selective"}, "write_back, write_through or write_through_selective")
	fl.BoolVar(&f.doubles, "keep-doubles", false, "write_back of SGLang before 2026-08: what was loaded back keeps its place on the host")
	choiceVar(fl, &f.order, "schedule-policy", "fcfs", []string{"fcfs", "lpm"}, "order of the queue: fcfs or lpm")
	choiceVar(fl, &f.balance, "balance", "session", []string{"session", "round_robin"}, "how ranks with own caches share requests: session or round_robin")
	intVar(fl, &f.chunk, "chunked-prefill-size", 0, 0, maxTokens, "tokens of prefill in a step (the engine's default when 0)")
	intVar(fl, &f.running, "max-running-requests", 0, 0, 1_000_000, "requests that run at once (the engine's default when 0)")
	intVar(fl, &f.context, "context-length", 0, 0, maxTokens, "longest context in tokens (the model's when 0)")
	floatVar(fl, &f.accept, "accept-length", 0, maxRatio, "tokens that a decode step yields with speculative decoding")
	intVar(fl, &f.drafts, "draft-tokens", 0, 0, 1000, "tokens drafted for a step")
	floatVar(fl, &f.memFraction, "mem-fraction", ppm, 1, "share of HBM for weights and pool, when the pool is planned")
}

// facts are the embedded ones and those of a file.
func (f *simFlags) facts() (*facts.Set, error) {
	set := facts.Embedded()
	if f.factsFile == "" {
		return set, nil
	}
	b, err := spec.ReadFile(f.factsFile, factsLimit)
	if err != nil {
		return nil, err
	}
	return set.Extend(f.factsFile, b)
}

// config makes the simulated engine that the flags describe.
func (f *simFlags) config() (sim.Config, error) {
	var c sim.Config
	set, err := f.facts()
	if err != nil {
		return c, err
	}
	m, err := set.ModelByName(f.model)
	if err != nil {
		return c, err
	}
	g, err := set.GPUByName(f.gpu)
	if err != nil {
		return c, err
	}
	precision := f.precision
	for _, p := range []string{"fp4", "int4", "fp8", "bf16"} {
		if _, ok := m.WeightBytes[p]; ok && precision == "" {
			precision = p
		}
	}
	c = sim.Config{
		Model: m, GPU: g, Parallel: spec.Parallel{TP: f.tp, PP: 1, EP: f.ep, DCP: 1, PCP: 1, DPAttn: f.dpAttn},
		WeightPrecision: precision, KVDType: f.kvDType, DeviceTokens: f.device, HostTokens: f.host, PageSize: f.page,
		WritePolicy: f.policy, KeepDoubles: f.doubles, SchedulePolicy: f.order, Balance: f.balance, ChunkedPrefill: f.chunk,
		MaxRunning: f.running, ContextLen: f.context, DraftTokens: f.drafts, AcceptPPM: int64(f.accept * 1e6),
	}
	if f.storage > 0 {
		c.StorageTokens, c.StorageBandwidth, c.PrefetchPolicy = f.storage, int64(f.storageGBs*1e9), f.prefetch
	}
	if f.ep > f.tp || f.tp%f.ep != 0 {
		return c, fmt.Errorf("--ep is %d: it divides --tp %d, whose GPUs the experts are spread over", f.ep, f.tp)
	}
	if err := f.idle(); err != nil {
		return c, err
	}
	p := spec.Point{
		Model: m.Name, Precision: precision, Framework: "sglang", Runner: g.Name, Scenario: spec.AgenticCoding, Conc: 1,
		Unified: &c.Parallel, SpecDecoding: "none", Offload: spec.Offload{Mode: "none"}, GPUsPerNode: max(8, f.tp),
		Weir: spec.WeirFields{KVDType: f.kvDType, PageSize: f.page, MemFractionPPM: int64(f.memFraction * 1e6)},
	}
	if f.drafts > 0 {
		p.SpecDecoding = "mtp"
	}
	v, err := plan.Compute(&p, plan.Options{Model: m, Facts: set})
	if err != nil {
		return c, err
	}
	c.Coefficients, err = set.CoefficientsFor(m.Name, g.Name, precision)
	if err != nil && f.fitting {
		c.Coefficients, err = set.CoefficientsFor("", "b200", "")
	}
	if err != nil {
		return c, err
	}
	r := v.Serving()
	c.KVBytesPerToken = r.BytesPerToken
	if c.DeviceTokens == 0 {
		if c.DeviceTokens = r.Device.Tokens; c.DeviceTokens == 0 {
			return c, fmt.Errorf("the device pool cannot be planned (%s): give --device-tokens", reason(v))
		}
	}
	if f.hostRatio > 0 {
		if f.host > 0 {
			return c, fmt.Errorf("--host-ratio and --host-tokens are both given: give one")
		}
		c.HostTokens = int64(float64(c.DeviceTokens) * f.hostRatio)
	}
	return c, nil
}

// idle refuses flags that were given and have no effect beside the others.
func (f *simFlags) idle() error {
	none := func(why string, names ...string) error { return without(f.given, why, names...) }
	var errs []error
	if f.host == 0 && f.hostRatio == 0 {
		errs = append(errs, none("without a host pool (--host-tokens or --host-ratio)", "write-policy", "keep-doubles", "storage-tokens", "compare"))
	}
	if f.storage == 0 {
		errs = append(errs, none("without --storage-tokens", "prefetch-policy", "storage-bandwidth"))
	}
	if f.policy != "write_back" {
		errs = append(errs, none("without --write-policy write_back", "keep-doubles"))
	}
	if !f.dpAttn {
		errs = append(errs, none("without --dp-attn: there is one cache", "balance"))
	}
	if f.device > 0 {
		errs = append(errs, none("beside --device-tokens, which sizes the pool", "mem-fraction"))
	}
	if f.drafts == 0 {
		errs = append(errs, none("without --draft-tokens", "accept-length"))
	}
	return cmp.Or(errs...)
}

func reason(v *plan.Verdict) string {
	for _, f := range v.Findings {
		return f.Reason
	}
	return string(v.Status)
}

// nanos is a duration flag in nanoseconds.
func nanos(d time.Duration) int64 { return int64(d) }
