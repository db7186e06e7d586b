package engine

import (
	"fmt"
	"slices"

	"github.com/weirbench/weir/internal/facts"
	"github.com/weirbench/weir/internal/plan"
	"github.com/weirbench/weir/internal/spec"
)

// The simulated engine runs as processes of this program ('weir sim serve'), so that everything
// around an engine can be run where there is no GPU. It takes its pools from the plan.
var _ = register(&adapter{name: "sim", memory: map[string]string{
	"kv-dtype": "memory.kv-dtype", "page-size": "memory.page-size", "mem-fraction": "memory.fraction",
	"write-policy": "memory.write-policy", "host-tokens": "memory.host-pool", "host-ratio": "memory.host-pool",
	"draft-tokens": "memory.draft-tokens", "device-tokens": "memory.fraction",
}, build: (*build).sim})

// simTiers are the host tiers that the simulator models, by what points call them.
var simTiers = []string{"", "hicache", "native"}

// Simulated says whether the simulator models all that a planned point says: a field with a value
// that nothing acts on is an error, as it is for an engine that is started.
func Simulated(p *spec.Point, v *plan.Verdict, set *facts.Set) error {
	_, err := buildWith(p, v, &Recipe{Name: "sim", Engine: "sim"}, Place{}, set)
	return err
}

func (b *build) sim() error {
	b.takeCommon()
	b.d.Simulated = true
	program := b.pl.Weir
	if program == "" {
		program = "weir"
	}
	var heads []Process
	for _, s := range b.slots {
		if s.rank > 0 {
			continue // one simulated process stands for all nodes of its worker
		}
		p := b.simWorker([]string{program, "sim", "serve"}, s)
		b.d.Processes = append(b.d.Processes, p)
		heads = append(heads, p)
	}
	if !b.needsRouter(len(heads)) {
		b.d.URLs = []string{heads[0].URL}
		return nil
	}
	if len(b.r.Roles["router"].Command) > 0 {
		return b.sglangRouter(heads) // a real router, before engines that are not
	}
	b.fields.take("router")
	b.fields.take("router.version")
	port := b.port(0, "router", routerPort, 0)
	a := &argv{b: b}
	a.set("the layout", "addr", fmt.Sprintf("%s:%d", b.pl.addr(0), port))
	for _, h := range heads {
		if h.Role == "unified" {
			a.list = append(a.list, given{name: "worker", values: []string{h.URL}, by: "the roles"})
		} else {
			target := h.URL
			if h.Role == "prefill" {
				target += fmt.Sprintf(",%d", h.Ports[1])
			}
			a.list = append(a.list, given{name: h.Role, values: []string{target}, by: "the roles"})
		}
	}
	a.recipe("router", false)
	a.usual("policy", "consistent_hashing")
	p := Process{Name: "router", Role: "router", Stage: 1, Ports: []int{port}, URL: fmt.Sprintf("http://%s:%d", b.pl.addr(0), port),
		Health: "/readiness", Env: b.environment("router", false)}
	p.Argv, p.Program = append([]string{program, "sim", "router"}, a.words()...), 3
	b.d.Processes = append(b.d.Processes, p)
	b.d.URLs = []string{p.URL}
	b.d.SessionHeaders = []string{"X-SMG-Routing-Key"}
	return nil
}

func (b *build) simWorker(program []string, s slot) Process {
	side := b.side(s.role.Name)
	a := &argv{b: b}
	http := b.port(s.node, "http", httpPort, portStride*s.place)
	b.fields.take("model")
	a.set("the model", "model", b.v.Model)
	a.set("the model", "served-model-name", b.p.Model)
	a.set("the layout", "addr", fmt.Sprintf("%s:%d", b.pl.addr(s.node), http))
	if b.v.Engine == "vllm" {
		a.set("the point's framework", "engine", "vllm")
	}
	p := Process{Name: s.name(), Role: s.role.Name, Node: s.node, GPUs: int(s.role.Ranks), Ports: []int{http},
		URL: fmt.Sprintf("http://%s:%d", b.pl.addr(s.node), http), Health: "/health", Flush: sglangFlush}
	if b.v.Engine == "vllm" {
		p.Flush = vllmFlush
	}
	p.Metrics = []string{p.URL + "/metrics"}
	a.set("the runner", "gpu", b.v.GPU)
	switch s.role.Name {
	case "prefill":
		port := b.port(s.node, "bootstrap", bootstrapPort, portStride*s.place)
		a.set("the role", "role", "prefill")
		a.set("the layout", "bootstrap-port", fmt.Sprint(port))
		p.Ports = append(p.Ports, port)
	case "decode":
		a.set("the role", "role", "decode")
		p.Flush = nil
	}
	a.field("precision", "precision")
	a.field(side+"tp", "tp")
	if b.fields.take(side+"dp-attn") != "" {
		a.set("the point's dp-attn", "dp-attn")
	}
	for _, f := range []string{"pp", "ep", "dcp-size", "pcp-size"} {
		if v, ok := b.fields.get(side + f); ok {
			b.fields.take(side + f)
			if f == "ep" {
				a.set("the point's ep", f, v)
			} else {
				b.fail("%s: %s%s %s: the simulated engine does not model it", where(b.p), side, f, v)
			}
		}
	}
	b.fields.take("weir.mem-fraction") // the plan made device-tokens of it
	a.set("the plan's device pool", "device-tokens", fmt.Sprint(s.role.Device.Tokens))
	b.fields.take("weir.kv-dtype")
	a.set("the plan", "kv-dtype", s.role.KVDType)
	b.fields.take("weir.page-size")
	a.set("the plan", "page-size", fmt.Sprint(s.role.PageSize))
	a.field("max-model-len", "context-length")
	a.field("weir.schedule-policy", "schedule-policy")
	if b.fields.take("kv-offloading") != "" {
		if t := b.p.Offload.Backend.Name; !slices.Contains(simTiers, t) {
			b.fail("%s: kv-offload-backend %s: the simulated engine models SGLang's hicache and vLLM's native offload; name one of them, or start the engine with a recipe", where(b.p), t)
		}
		for _, f := range []string{"kv-offload-backend", "weir.write-policy", "weir.host-ratio", "weir.host-gb-per-rank"} {
			b.fields.take(f)
		}
		if s.role.Name != "decode" {
			if s.role.Host == nil {
				b.fail("%s: %s offloads to dram and the plan has no host pool (%s)", where(b.p), b.p.Key, b.v.Status)
			} else {
				a.set("the plan's host pool", "host-tokens", fmt.Sprint(s.role.Host.Tokens))
				if b.v.Engine != "vllm" { // which has one way to write
					a.set("memory.write-policy", "write-policy", s.role.WritePolicy)
				}
			}
		}
	}
	if m := b.fields.take("spec-decoding"); m != "" {
		n := b.p.Weir.DraftTokens
		b.fields.take("weir.draft-tokens")
		b.fields.take("decode.settings.DECODE_MTP_SIZE")
		ppm, ok := b.set.AcceptedPPM(b.v.Model, m, n)
		if !ok {
			b.fail("%s: nobody measured how many of %d drafted tokens %s accepts with %s (facts, acceptances)", where(b.p), n, b.v.Model, m)
		} else {
			a.set("draft-tokens", "draft-tokens", fmt.Sprint(n))
			a.set("draft-tokens", "accept-length", decimal(ppm))
		}
	}
	b.fields.take("kv-p2p-transfer") // the simulator has one way to transfer
	a.recipe(s.role.Name, true)
	p.Env = b.environment(s.role.Name, true)
	p.Argv, p.Program = append(append([]string{}, program...), a.words()...), len(program)
	return p
}
