package engine

import (
	"fmt"
	"slices"
	"strings"
)

// Usual ports. HTTP ports of workers on one node are stride apart (SGLang server_args.py,
// sglang_router launch_router.py, srt-slurm ports.py, 2026-07).
const (
	httpPort      = 8000
	routerPort    = 30000
	routerMetrics = 29000
	bootstrapPort = 8998
	distPort      = 20000
	portStride    = 32
)

var sglangFrameworks = []string{"sglang", "sglang-disagg", "dynamo-sglang"}

// sglangAliases are SGLang's shorter spellings (server_args.py, 2026-07).
var sglangAliases = map[string]string{
	"tensor-parallel-size": "tp-size", "tp": "tp-size", "pipeline-parallel-size": "pp-size", "pp": "pp-size",
	"data-parallel-size": "dp-size", "dp": "dp-size", "expert-parallel-size": "ep-size", "ep": "ep-size",
	"model": "model-path", "nccl-init-addr": "dist-init-addr",
}

// sglangMemory are arguments that decide pool sizes.
var sglangMemory = map[string]string{
	"mem-fraction-static": "memory.fraction", "kv-cache-dtype": "memory.kv-dtype", "page-size": "memory.page-size",
	"hicache-size": "memory.host-pool", "hicache-ratio": "memory.host-pool", "hicache-write-policy": "memory.write-policy",
	"speculative-num-draft-tokens": "memory.draft-tokens", "speculative-num-steps": "memory.draft-tokens",
	"enable-hierarchical-cache": "kv-offloading of the point and memory.host-pool",
}

var _ = register(&adapter{name: "sglang", frameworks: sglangFrameworks, aliases: sglangAliases, memory: sglangMemory,
	build: func(b *build) error { return b.sglang([]string{"python3", "-m", "sglang.launch_server"}) }})

// sglangFlush empties the prefix cache; it does nothing while requests are in flight, and says
// so by the absence of its text.
var sglangFlush = []Call{
	{Method: "POST", Path: "/flush_cache", Contains: "lushed"},
	{Method: "POST", Path: "/hicache/storage-backend/clear", Optional: true},
}

// sglang starts workers and, where there is more than one or attention is data parallel, a
// router that keeps sessions on one cache.
func (b *build) sglang(program []string) error {
	if len(b.r.Command) > 0 {
		program = b.r.Command
	}
	b.takeCommon()
	var heads []Process
	for _, s := range b.slots {
		p := b.sglangWorker(program, s)
		b.d.Processes = append(b.d.Processes, p)
		if s.rank == 0 {
			heads = append(heads, p)
		}
	}
	if !b.needsRouter(len(heads)) {
		b.d.URLs = []string{heads[0].URL}
		return nil
	}
	return b.sglangRouter(heads)
}

// takeCommon consumes what every adapter acts on without an argument of its own: the image runs
// as the container, the framework chose the adapter, the plan turned budget and backend into
// the size of a pool, and num-worker is the number of processes.
func (b *build) takeCommon() {
	for _, f := range []string{"image", "framework", "dram-budget", "num-worker"} {
		b.fields.take(f)
	}
	for _, side := range []string{"prefill.", "decode."} {
		b.fields.take(side + "num-worker")
		b.nodeSettings(side)
	}
	for f := range b.r.Consumes {
		b.fields.take(f)
	}
	for name := range b.r.Ports {
		if !knownPort(name) {
			b.fail("%s: ports has no %q: it has %s", b.r.where(), name, strings.Join(portNames, ", "))
		}
	}
}

var portNames = []string{"http", "router", "router-metrics", "bootstrap", "dist", "side-channel"}

func knownPort(name string) bool {
	for _, n := range portNames {
		if n == name {
			return true
		}
	}
	return false
}

// nodeSettings checks PREFILL_NODES and DECODE_NODES of InferenceX's multi-node entries against
// the layout.
func (b *build) nodeSettings(side string) {
	name := strings.ToUpper(strings.TrimSuffix(side, ".")) + "_NODES"
	v, ok := b.fields.get(side + "settings." + name)
	if !ok {
		return
	}
	b.fields.take(side + "settings." + name)
	nodes := map[int]bool{}
	role := strings.TrimSuffix(side, ".")
	for _, s := range b.slots {
		if s.role.Name == role || len(b.v.Roles) == 1 {
			nodes[s.node] = true
		}
	}
	if v != fmt.Sprint(len(nodes)) {
		b.fail("%s: %s: %s=%s, but %s workers of the point lie on %d nodes; correct the setting", where(b.p), b.p.Key, name, v, role, len(nodes))
	}
}

// port is the number of a use on a node: the recipe's, or the usual one.
func (b *build) port(node int, name string, usual, offset int) int {
	if n := b.r.Ports[name]; n > 0 {
		return n + offset
	}
	return b.pl.port(node, usual+offset)
}

// model is where the checkpoint lies.
func (b *build) model() string {
	m := b.fields.take("model")
	switch {
	case b.pl.Model != "":
		return b.pl.Model
	case b.r.Model != "":
		return b.r.Model
	}
	return m
}

func (b *build) sglangWorker(program []string, s slot) Process {
	par, side := b.parallel(s.role.Name), b.side(s.role.Name)
	a := &argv{b: b}
	a.set("the model", "model-path", b.model())
	a.set("the model", "served-model-name", b.p.Model)
	http := b.port(s.node, "http", httpPort, portStride*s.place)
	a.set("the layout", "host", "0.0.0.0")
	a.set("the layout", "port", fmt.Sprint(http))
	p := Process{Name: s.name(), Role: s.role.Name, Node: s.node, GPUs: int(s.role.RanksPerNode), Ports: []int{http},
		URL: fmt.Sprintf("http://%s:%d", b.pl.addr(s.node), http), Health: "/health", Flush: sglangFlush}
	p.Metrics = []string{p.URL + "/metrics"}

	a.field(side+"tp", "tp-size")
	a.field(side+"pp", "pp-size")
	a.field(side+"ep", "ep-size")
	a.field(side+"dcp-size", "dcp-size")
	a.field(side+"pcp-size", "attn-cp-size")
	if par.DPAttn {
		b.fields.take(side + "dp-attn")
		a.set("the point's dp-attn", "enable-dp-attention")
		a.set("the point's dp-attn", "dp-size", fmt.Sprint(s.role.AttnDP))
	}
	if s.role.Nodes > 1 {
		h := b.head(s)
		a.set("the layout", "nnodes", fmt.Sprint(s.role.Nodes))
		a.set("the layout", "node-rank", fmt.Sprint(s.rank))
		a.set("the layout", "dist-init-addr", fmt.Sprintf("%s:%d", b.pl.addr(h.node), b.port(h.node, "dist", distPort, 0)))
		if s.rank > 0 {
			p.URL, p.Health, p.Metrics, p.Flush = "", "", nil, nil
		}
	}
	b.sglangPD(a, s, &p)
	b.sglangMemory(a, s)
	b.sglangSpec(a, s)
	a.field("max-model-len", "context-length")
	a.field("weir.schedule-policy", "schedule-policy")
	a.recipe(s.role.Name, true)
	a.usual("enable-metrics")
	a.usual("enable-cache-report")
	var own []Var
	if ids := b.gpuList(s); ids != "" {
		own = append(own, Var{b.deviceVar(), ids})
	}
	p.Env = b.environment(s.role.Name, true, own...)
	p.Argv, p.Program = append(append([]string{}, program...), a.words()...), len(program)
	return p
}

// deviceVar is the variable that hides devices from a process.
func (b *build) deviceVar() string {
	if strings.HasPrefix(b.v.GPU, "mi") {
		return "HIP_VISIBLE_DEVICES"
	}
	return "CUDA_VISIBLE_DEVICES"
}

// sglangPD gives a worker its side of a disaggregated deployment.
func (b *build) sglangPD(a *argv, s slot, p *Process) {
	if s.role.Name != "prefill" && s.role.Name != "decode" {
		return
	}
	a.set("the role", "disaggregation-mode", s.role.Name)
	switch t := b.fields.take("kv-p2p-transfer"); t {
	case "":
		b.fail("%s: %s is disaggregated and kv-p2p-transfer is not set: choose mooncake, nixl or mori", where(b.p), b.p.Key)
	case "mooncake", "nixl", "mori":
		a.set("the point's kv-p2p-transfer", "disaggregation-transfer-backend", t)
	default:
		b.fail("%s: kv-p2p-transfer %q: SGLang knows mooncake, nixl and mori", where(b.p), t)
	}
	if s.role.Name == "prefill" && s.rank == 0 {
		port := b.port(s.node, "bootstrap", bootstrapPort, portStride*s.place)
		a.set("the layout", "disaggregation-bootstrap-port", fmt.Sprint(port))
		p.Ports = append(p.Ports, port)
	}
	if s.role.Name == "decode" {
		// Prefill serves before decode is asked; both may load at the same time.
		p.Flush = nil
	}
}

// sglangMemory passes pools as the plan has them. Both sides of a disaggregated point need the
// same page size, or transfers never end.
func (b *build) sglangMemory(a *argv, s slot) {
	if v := b.fields.take("weir.mem-fraction"); v != "" {
		a.set("memory.fraction", "mem-fraction-static", decimal(b.p.Weir.MemFractionPPM))
	}
	if v := b.fields.take("weir.kv-dtype"); v != "" {
		if v == "fp8" {
			v = "fp8_e4m3"
		}
		a.set("memory.kv-dtype", "kv-cache-dtype", v)
	}
	a.field("weir.page-size", "page-size")
	if b.fields.take("kv-offloading") == "" {
		return
	}
	backend := b.fields.take("kv-offload-backend")
	for _, f := range []string{"weir.write-policy", "weir.host-ratio", "weir.host-gb-per-rank"} {
		b.fields.take(f)
	}
	if s.role.Name == "decode" {
		return // only prefill keeps a prefix cache
	}
	name, value, ok := host(s.role)
	if !ok {
		b.fail("%s: %s offloads to dram with %q and the plan has no host pool for %s (%s): run 'weir plan --explain'", where(b.p), b.p.Key, backend, s.role.Name, b.v.Status)
		return
	}
	a.set("the point's kv-offloading", "enable-hierarchical-cache")
	a.set("the plan's host pool", name, value)
	a.set("memory.write-policy", "hicache-write-policy", s.role.WritePolicy)
	if backend == "mooncake" {
		a.set("the point's kv-offload-backend", "hicache-storage-backend", "mooncake")
	}
}

// sglangSpec passes speculative decoding with the model's own head. Since v0.5.15 both sides of
// a disaggregated point need the same settings.
func (b *build) sglangSpec(a *argv, s slot) {
	method := b.fields.take("spec-decoding")
	if method == "" {
		return
	}
	n := b.p.Weir.DraftTokens
	b.fields.take("weir.draft-tokens")
	if v := b.fields.take("decode.settings.DECODE_MTP_SIZE"); v != "" {
		var m int64
		if _, err := fmt.Sscan(v, &m); err != nil || m < 1 {
			b.fail("%s: DECODE_MTP_SIZE=%s is not a number of tokens", where(b.p), v)
		} else if n != 0 && n != m {
			b.fail("%s: DECODE_MTP_SIZE=%d stands beside draft-tokens %d: keep one", where(b.p), m, n)
		}
		n = m
	}
	if n == 0 {
		b.fail("%s: %s has spec-decoding %s and nobody says how many tokens are drafted: write memory.draft-tokens in recipe %s", where(b.p), b.p.Key, method, b.r.Name)
		return
	}
	switch method {
	case "mtp":
		a.set("the point's spec-decoding", "speculative-algorithm", "EAGLE")
	case "eagle3":
		a.set("the point's spec-decoding", "speculative-algorithm", "EAGLE3")
	default:
		b.fail("%s: spec-decoding %q: this adapter knows mtp and eagle3", where(b.p), method)
	}
	a.set("draft-tokens", "speculative-num-steps", fmt.Sprint(n))
	a.set("draft-tokens", "speculative-eagle-topk", "1")
	a.set("draft-tokens", "speculative-num-draft-tokens", fmt.Sprint(n+1))
}

// routerProgram is the router's program: the recipe's, or its usual one.
func (b *build) routerProgram(usual ...string) []string {
	if c := b.r.Roles["router"].Command; len(c) > 0 {
		return slices.Clone(c)
	}
	return usual
}

// sglangRouter puts a router on the first node. Its session header keeps a conversation on one
// cache; data-parallel attention has a cache on every rank.
func (b *build) sglangRouter(heads []Process) error {
	b.fields.take("router") // the deployment starts sglang-router; another one is named by another engine
	if name := b.p.Router.Name; name != "" && name != "sglang-router" && name != "sglang" {
		b.fail("%s: router %q: the sglang adapter starts sglang-router", where(b.p), name)
	}
	b.fields.take("router.version")
	a := &argv{b: b}
	port, prom := b.port(0, "router", routerPort, 0), b.port(0, "router-metrics", routerMetrics, 0)
	a.set("the layout", "host", "0.0.0.0")
	a.set("the layout", "port", fmt.Sprint(port))
	a.set("the layout", "prometheus-port", fmt.Sprint(prom))
	dp, pd := false, false
	for _, s := range b.slots {
		dp = dp || s.role.AttnDP > 1
		pd = pd || s.role.Name == "prefill"
	}
	var targets []string
	if pd {
		a.set("the roles", "pd-disaggregation")
		for _, h := range heads {
			if h.Role == "prefill" {
				targets = append(targets, "--prefill", h.URL, fmt.Sprint(h.Ports[1]))
			} else {
				targets = append(targets, "--decode", h.URL)
			}
		}
	} else {
		targets = append(targets, "--worker-urls")
		for _, h := range heads {
			targets = append(targets, h.URL)
		}
	}
	a.recipe("router", false)
	a.usual("policy", "consistent_hashing")
	if dp {
		a.usual("dp-aware")
	}
	p := Process{Name: "router", Role: "router", Stage: 1, Ports: []int{port, prom}, URL: fmt.Sprintf("http://%s:%d", b.pl.addr(0), port),
		Health: "/readiness", Env: b.environment("router", false), Metrics: []string{fmt.Sprintf("http://%s:%d/metrics", b.pl.addr(0), prom)}}
	program := b.routerProgram("python3", "-m", "sglang_router.launch_router")
	p.Argv, p.Program = append(append(program, a.words()...), targets...), len(program)
	b.d.Processes = append(b.d.Processes, p)
	b.d.URLs = []string{p.URL}
	b.d.SessionHeaders = []string{"X-SMG-Routing-Key"}
	return nil
}
