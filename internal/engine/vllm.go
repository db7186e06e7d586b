package engine

import (
	"encoding/json"
	"fmt"
)

// vllmAliases are vLLM's short spellings (engine/arg_utils.py, 2026-07).
var vllmAliases = map[string]string{"tp": "tensor-parallel-size", "pp": "pipeline-parallel-size", "dp": "data-parallel-size", "dcp": "decode-context-parallel-size"}

var vllmMemory = map[string]string{
	"gpu-memory-utilization": "memory.fraction", "kv-cache-dtype": "memory.kv-dtype", "block-size": "memory.page-size",
	"kv-offloading-size": "memory.host-pool", "kv-offloading-backend": "kv-offloading of the point",
	"speculative-config": "memory.draft-tokens",
}

var _ = register(&adapter{name: "vllm", frameworks: []string{"vllm", "dynamo-vllm"}, aliases: vllmAliases, memory: vllmMemory,
	build: func(b *build) error { return b.vllm([]string{"vllm", "serve"}, false) }})

// vllmFlush empties the prefix cache; the path exists with VLLM_SERVER_DEV_MODE=1. With an
// offload connector reset_connector empties its tier too (newer releases; ignored by older ones).
var vllmFlush = []Call{{Method: "POST", Path: "/reset_prefix_cache?reset_running_requests=false&reset_connector=true"}}

func (b *build) vllm(program []string, modelFlag bool) error {
	if len(b.r.Command) > 0 {
		program = b.r.Command
	}
	// Only vllm serve takes the model without a flag.
	modelFlag = modelFlag || program[len(program)-1] != "serve"
	b.takeCommon()
	var heads []Process
	for _, s := range b.slots {
		if s.role.Nodes > 1 {
			return fmt.Errorf("%s: %s needs %d nodes for one worker: the vllm adapter starts workers of one node; use a recipe with engine external", where(b.p), b.p.Key, s.role.Nodes)
		}
		p := b.vllmWorker(program, modelFlag, s)
		b.d.Processes = append(b.d.Processes, p)
		heads = append(heads, p)
	}
	if !b.needsRouter(len(heads)) {
		b.d.URLs = []string{heads[0].URL}
		return nil
	}
	return b.vllmRouter(heads)
}

func (b *build) vllmWorker(program []string, modelFlag bool, s slot) Process {
	par, side := b.parallel(s.role.Name), b.side(s.role.Name)
	a := &argv{b: b}
	model := b.model()
	if modelFlag {
		a.set("the model", "model", model)
	}
	http := b.port(s.node, "http", httpPort, portStride*s.place)
	a.set("the model", "served-model-name", b.p.Model)
	a.set("the layout", "host", "0.0.0.0")
	a.set("the layout", "port", fmt.Sprint(http))
	p := Process{Name: s.name(), Role: s.role.Name, Node: s.node, GPUs: int(s.role.RanksPerNode), Ports: []int{http},
		URL: fmt.Sprintf("http://%s:%d", b.pl.addr(s.node), http), Health: "/health", Flush: vllmFlush}
	p.Metrics = []string{p.URL + "/metrics"}
	tp := b.fields.take(side + "tp")
	if par.DPAttn && s.role.AttnDP > 1 { // every rank has the whole attention
		b.fields.take(side + "dp-attn")
		a.set("the point's dp-attn", "data-parallel-size", fmt.Sprint(s.role.AttnDP))
		tp = fmt.Sprint(s.role.AttnTP)
	}
	a.set("the point's tp", "tensor-parallel-size", tp)
	a.field(side+"pp", "pipeline-parallel-size")
	a.field(side+"dcp-size", "decode-context-parallel-size")
	if v := b.fields.take(side + "ep"); v != "" {
		if n := fmt.Sprint(par.TP * max(1, par.PCP)); v != n {
			b.fail("%s: %sep %s: vLLM spreads experts over all of a worker's %s GPUs or none; write ep: %s or ep: 1", where(b.p), side, v, n, n)
		}
		a.set("the point's ep", "enable-expert-parallel")
	}
	if b.fields.take("weir.mem-fraction") != "" {
		a.set("memory.fraction", "gpu-memory-utilization", decimal(b.p.Weir.MemFractionPPM))
	}
	a.field("weir.kv-dtype", "kv-cache-dtype")
	a.field("weir.page-size", "block-size")
	a.field("max-model-len", "max-model-len")
	own := []Var{{"PYTHONHASHSEED", "0"}, {"VLLM_SERVER_DEV_MODE", "1"}}
	own = b.vllmOffload(a, s, own)
	own = b.vllmPD(a, s, &p, own)
	if m := b.fields.take("spec-decoding"); m != "" {
		n := b.p.Weir.DraftTokens
		b.fields.take("weir.draft-tokens")
		if n == 0 {
			b.fail("%s: %s has spec-decoding %s and nobody says how many tokens are drafted: write memory.draft-tokens in recipe %s", where(b.p), b.p.Key, m, b.r.Name)
		}
		a.set("the point's spec-decoding", "speculative-config", fmt.Sprintf(`{"method":%q,"num_speculative_tokens":%d}`, m, n))
	}
	a.recipe(s.role.Name, true)
	a.usual("enable-prompt-tokens-details")
	if ids := b.gpuList(s); ids != "" {
		own = append(own, Var{b.deviceVar(), ids})
	}
	p.Env = b.environment(s.role.Name, true, own...)
	p.Argv, p.Program = append([]string{}, program...), len(program)
	if !modelFlag {
		p.Argv = append(p.Argv, model)
	}
	p.Argv = append(p.Argv, a.words()...)
	return p
}

// vllmOffload passes the host tier. --kv-offloading-size is GiB over all ranks of an engine
// (config/cache.py:180); the plan has converted it.
func (b *build) vllmOffload(a *argv, s slot, own []Var) []Var {
	if b.fields.take("kv-offloading") == "" {
		return own
	}
	backend := b.fields.take("kv-offload-backend")
	for _, f := range []string{"weir.host-ratio", "weir.host-gb-per-rank"} {
		b.fields.take(f)
	}
	if v := b.fields.take("weir.write-policy"); v != "" && v != "write_through" {
		b.fail("%s: write-policy %s: vLLM's offloading writes through", where(b.p), v)
	}
	if s.role.Name == "decode" {
		return own
	}
	name, value, ok := host(s.role)
	switch {
	case !ok && s.role.Host == nil:
		b.fail("%s: %s offloads to dram and the plan has no host pool for %s (%s): run 'weir plan --explain'", where(b.p), b.p.Key, s.role.Name, b.v.Status)
	case backend == "" || backend == "native":
		a.set("the plan's host pool", name, value)
		a.set("the point's kv-offload-backend", "kv-offloading-backend", "native")
	case backend == "vllm-simple":
		per := s.role.Host.Pools[0].Bytes
		a.set("the plan's host pool", "kv-transfer-config", fmt.Sprintf(
			`{"kv_connector":"SimpleCPUOffloadConnector","kv_role":"kv_both","kv_connector_extra_config":{"cpu_bytes_to_use_per_rank":%d}}`, per))
	default:
		b.fail("%s: kv-offload-backend %q: the vllm adapter starts native and vllm-simple; LMCache and Mooncake need a server beside the engine: use a recipe with engine external", where(b.p), backend)
	}
	return own
}

// vllmPD gives a worker its connector: the decode side pulls from the prefill side.
func (b *build) vllmPD(a *argv, s slot, p *Process, own []Var) []Var {
	if s.role.Name != "prefill" && s.role.Name != "decode" {
		return own
	}
	connector := map[string]string{"nixl": "NixlConnector", "mooncake": "MooncakeConnector", "mori": "MoRIIOConnector"}
	t := b.fields.take("kv-p2p-transfer")
	c, ok := connector[t]
	if !ok {
		b.fail("%s: kv-p2p-transfer %q: the vllm adapter knows nixl, mooncake and mori", where(b.p), t)
		return own
	}
	role := map[string]string{"prefill": "kv_producer", "decode": "kv_consumer"}[s.role.Name]
	if t == "nixl" {
		role = "kv_both"
	}
	if a.has("kv-transfer-config") {
		b.fail("%s: offload backend and kv-p2p-transfer both need kv-transfer-config: choose backend native", where(b.p))
		return own
	}
	v, _ := json.Marshal(map[string]string{"kv_connector": c, "kv_role": role})
	a.set("the point's kv-p2p-transfer", "kv-transfer-config", string(v))
	port := b.port(s.node, "side-channel", 5600, portStride*s.place)
	p.Ports = append(p.Ports, port)
	return append(own, Var{"VLLM_NIXL_SIDE_CHANNEL_HOST", b.pl.addr(s.node)}, Var{"VLLM_NIXL_SIDE_CHANNEL_PORT", fmt.Sprint(port)})
}

func (b *build) vllmRouter(heads []Process) error {
	b.fields.take("router")
	b.fields.take("router.version")
	a := &argv{b: b}
	port, prom := b.port(0, "router", routerPort, 0), b.port(0, "router-metrics", routerMetrics, 0)
	a.set("the layout", "host", "0.0.0.0")
	a.set("the layout", "port", fmt.Sprint(port))
	a.set("the layout", "prometheus-port", fmt.Sprint(prom))
	var targets []string
	if b.p.Disagg {
		a.set("the roles", "vllm-pd-disaggregation")
		for _, h := range heads {
			targets = append(targets, "--"+h.Role, h.URL)
		}
	} else {
		targets = append(targets, "--worker-urls")
		for _, h := range heads {
			targets = append(targets, h.URL)
		}
	}
	a.recipe("router", false)
	a.usual("policy", "consistent_hash")
	p := Process{Name: "router", Role: "router", Stage: 1, Ports: []int{port, prom}, URL: fmt.Sprintf("http://%s:%d", b.pl.addr(0), port),
		Health: "/readiness", Env: b.environment("router", false), Metrics: []string{fmt.Sprintf("http://%s:%d/metrics", b.pl.addr(0), prom)}}
	program := b.routerProgram("vllm-router")
	p.Argv, p.Program = append(append(program, a.words()...), targets...), len(program)
	b.d.Processes = append(b.d.Processes, p)
	b.d.URLs = []string{p.URL}
	b.d.SessionHeaders = []string{"X-Session-ID"}
	return nil
}
