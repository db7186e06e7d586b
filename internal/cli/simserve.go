package cli

import (
	"cmp"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirbench/weir/internal/sim"
	"github.com/weirbench/weir/internal/sim/simhttp"
)

func newSimServeCmd(app *App) *cobra.Command {
	var f simFlags
	var o simhttp.Options
	var addr string
	var ttft, itl time.Duration
	var faults []string
	var cacheReport bool
	var nodeMemory int64
	var role string
	var bootstrapPort int
	var kinds strings.Builder
	for _, k := range simhttp.FaultKinds {
		fmt.Fprintf(&kinds, "  %-18s %s\n", k.Kind, k.Does)
	}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve the simulated engine over HTTP as SGLang or vLLM would",
		Long: `Serves the simulated engine with the endpoints, usage and metric names of SGLang or vLLM. It
prints the address when it listens, so that --addr 127.0.0.1:0 can be used in scripts.

With --ttft and --itl every request gets exactly these times, whatever else runs.

Faults (--fault KIND[,skip=N][,every=N][,times=N][,after=TOKENS][,status=CODE][,for=DURATION][,once=FILE]
[,until=FILE], and at run time POST /weir/faults {"faults": [{"kind": "stall", "after": 3}]}):

` + kinds.String(),
		Example: `  weir sim serve --model glm-5.2 --gpu b200 --tp 8 --host-ratio 2 --write-policy write_back
  weir sim serve --engine vllm --addr 127.0.0.1:8000 --speed 10
  weir sim serve --ttft 200ms --itl 20ms
  weir sim serve --fault http-error,status=503,every=10
  weir sim serve --role prefill --addr 127.0.0.1:30001 --bootstrap-port 8998`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.NoCacheReport = !cacheReport
			o.Log = app.Err
			o.Version = buildVersion()
			o.NodeBytes = nodeMemory
			for _, s := range faults {
				x, err := simhttp.ParseFault(s)
				if err != nil {
					return usage(err)
				}
				o.Faults = append(o.Faults, x)
			}
			err := f.servable(o.Engine, role)
			if err != nil {
				return err
			}
			if f.given.Changed("ttft") {
				o.Fixed = &sim.Fixed{TTFT: nanos(ttft), ITL: nanos(itl), ContextLen: f.context}
				if o.Model == "" {
					o.Model = f.model
				}
			} else if o.Config, err = f.config(); err != nil {
				return usage(err)
			}
			if role != "unified" {
				o.Config.Role = role
			}
			s, err := simhttp.New(o)
			if err != nil {
				return usage(err)
			}
			l, err := net.Listen("tcp", addr)
			if err != nil {
				return err
			}
			port, also := 0, ""
			if role == sim.RolePrefill {
				host, _, _ := net.SplitHostPort(l.Addr().String())
				if port, err = s.ListenBootstrap(net.JoinHostPort(host, strconv.Itoa(bootstrapPort))); err != nil {
					l.Close()
					return err
				}
				also = fmt.Sprintf(", bootstrap port %d", port)
			}
			if err := s.Boot(); err != nil { // which says that the engine is ready: its port is bound by then
				l.Close()
				return withCode(simhttp.ExitCode(err), err)
			}
			if app.JSON {
				err = app.printJSON(struct {
					URL           string `json:"url"`
					Model         string `json:"model"`
					Role          string `json:"role"`
					BootstrapPort int    `json:"bootstrap_port,omitempty"`
				}{"http://" + l.Addr().String(), s.Model(), role, port})
			} else {
				_, err = fmt.Fprintf(app.Out, "serving %s (simulated, %s) at http://%s%s\n", s.Model(), role, l.Addr(), also)
				if pools := s.Pools(); pools != "" && err == nil {
					_, err = fmt.Fprintln(app.Out, pools)
				}
			}
			if err != nil {
				l.Close()
				return err
			}
			return s.Serve(cmd.Context(), l)
		},
	}
	f.add(cmd)
	fl := cmd.Flags()
	fl.StringVar(&addr, "addr", "127.0.0.1:30000", "address to listen on")
	choiceVar(fl, &o.Engine, "engine", "sglang", []string{"sglang", "vllm"}, "whose endpoints and metric names: sglang or vllm")
	choiceVar(fl, &role, "role", "unified", []string{"unified", sim.RolePrefill, sim.RoleDecode}, "unified, or one side of a disaggregated engine: prefill or decode")
	intVar(fl, &bootstrapPort, "bootstrap-port", 8998, 0, 65535, "port of a prefill server that decode servers post to, 0 for any")
	fl.StringVar(&o.Model, "served-model-name", "", "name that clients ask for (--model when empty)")
	o.Speed = 1
	floatVar(fl, &o.Speed, "speed", ppm, 1e6, "engine time per time: 10 is ten times as fast")
	durationVar(fl, &ttft, "ttft", 0, 0, "constant time to first token, in place of the simulation")
	durationVar(fl, &itl, "itl", 0, 0, "constant time between tokens, in place of the simulation")
	intVar(fl, &o.Template, "template-tokens", 0, 0, 1_000_000, "tokens that the chat template adds to a message")
	intVar(fl, &o.DefaultOut, "default-output", 128, 1, 1<<30, "tokens of an answer when a request does not say")
	intVar(fl, &o.ReasoningPercent, "reasoning-percent", 0, 0, 100, "share of an answer that comes as reasoning")
	fl.BoolVar(&cacheReport, "cache-report", true, "report cached tokens in usage")
	intVar(fl, &nodeMemory, "node-memory", 0, 0, noTop, "host memory of the node in bytes that host pools must fit (0: not checked)")
	fl.StringArrayVar(&faults, "fault", nil, "a fault, see above; may be given several times")
	return cmd
}

// servable refuses flags that were given and have no effect on a server.
func (f *simFlags) servable(engine, role string) error {
	var errs []error
	if f.given.Changed("ttft") != f.given.Changed("itl") {
		return usagef("--ttft and --itl belong together: every request gets both times; give both, or neither for the simulation")
	}
	if f.given.Changed("ttft") {
		if role != "unified" {
			return usagef("--role %s needs the simulation: leave --ttft and --itl out", role)
		}
		errs = append(errs, without(f.given, "beside --ttft and --itl, which take the place of the simulation", "gpu", "precision", "kv-dtype", "tp", "ep", "dp-attn",
			"device-tokens", "host-tokens", "host-ratio", "storage-tokens", "storage-bandwidth", "prefetch-policy", "page-size", "write-policy", "keep-doubles",
			"schedule-policy", "balance", "chunked-prefill-size", "max-running-requests", "accept-length", "draft-tokens", "mem-fraction", "node-memory"))
	}
	if role != sim.RolePrefill {
		errs = append(errs, without(f.given, "without --role prefill", "bootstrap-port"))
	}
	if engine == "vllm" {
		errs = append(errs, without(f.given, "with --engine vllm: it is SGLang's", "write-policy", "keep-doubles", "storage-tokens", "prefetch-policy", "storage-bandwidth"))
		if f.order == "lpm" {
			errs = append(errs, usagef("--schedule-policy lpm is SGLang's: vLLM serves first come first served"))
		}
	}
	return cmp.Or(errs...)
}
