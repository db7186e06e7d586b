package engine

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// TensorRT-LLM, Dynamo, ATOM and commands of others go through the same form as SGLang and
// vLLM. Sources: TensorRT-LLM trtllm-serve and its llm-api options, Dynamo's components, ATOM's
// OpenAI server as the InferenceX recipes start them, 2026-08.

var _ = register(&adapter{name: "trtllm", frameworks: []string{"trt"}, flag: flagStyle{under: true}, memory: map[string]string{
	"kv-cache-free-gpu-memory-fraction": "memory.fraction", "free-gpu-memory-fraction": "memory.fraction",
}, build: (*build).trt})

// trt starts trtllm-serve with an options file: cache settings exist only there.
func (b *build) trt() error {
	b.takeCommon()
	if len(b.slots) != 1 {
		return fmt.Errorf("%s: %s has %d workers: trtllm starts one; use engine dynamo or external", where(b.p), b.p.Key, len(b.slots))
	}
	program := []string{"trtllm-serve"}
	if len(b.r.Command) > 0 {
		program = b.r.Command
	}
	s := b.slots[0]
	par := b.parallel(s.role.Name)
	a := &argv{b: b}
	http := b.port(0, "http", httpPort, 0)
	a.set("the layout", "host", "0.0.0.0")
	a.set("the layout", "port", fmt.Sprint(http))
	side := b.side(s.role.Name)
	a.field(side+"tp", "tp-size")
	a.field(side+"pp", "pp-size")
	a.field(side+"ep", "ep-size")
	a.field("max-model-len", "max-seq-len")
	cache := map[string]any{"enable_block_reuse": true}
	if b.fields.take("weir.mem-fraction") != "" {
		cache["free_gpu_memory_fraction"] = json.Number(decimal(b.p.Weir.MemFractionPPM))
	}
	if v := b.fields.take("weir.kv-dtype"); v != "" {
		cache["dtype"] = v
	}
	if b.fields.take("weir.page-size") != "" {
		cache["tokens_per_block"] = b.p.Weir.PageSize
	}
	if b.fields.take("kv-offloading") != "" {
		for _, f := range []string{"kv-offload-backend", "weir.host-ratio", "weir.host-gb-per-rank"} {
			b.fields.take(f)
		}
		if v := b.fields.take("weir.write-policy"); v != "" && v != "write_back" {
			b.fail("%s: write-policy %s: TensorRT-LLM writes back", where(b.p), v)
		}
		if s.role.Host == nil {
			b.fail("%s: %s offloads to dram and the plan has no host pool (%s)", where(b.p), b.p.Key, b.v.Status)
		} else {
			cache["host_cache_size"] = s.role.Host.Pools[0].Bytes
		}
	}
	options := map[string]any{"kv_cache_config": cache, "return_perf_metrics": true, "enable_iter_perf_stats": true}
	if par.DPAttn {
		b.fields.take(side + "dp-attn")
		options["enable_attention_dp"] = true
	}
	if m := b.fields.take("spec-decoding"); m != "" {
		b.fields.take("weir.draft-tokens")
		if m != "mtp" || b.p.Weir.DraftTokens == 0 {
			b.fail("%s: spec-decoding %s with %d draft tokens: trtllm takes mtp with memory.draft-tokens", where(b.p), m, b.p.Weir.DraftTokens)
		}
		options["speculative_config"] = map[string]any{"decoding_type": "MTP", "num_nextn_predict_layers": b.p.Weir.DraftTokens}
	}
	a.recipe(s.role.Name, true)
	raw, err := json.MarshalIndent(options, "", "  ") // JSON is YAML
	if err != nil {
		return err
	}
	const file = "trtllm-options.yaml"
	p := Process{Name: s.name(), Role: s.role.Name, GPUs: int(s.role.RanksPerNode), Ports: []int{http}, Health: "/health",
		URL: fmt.Sprintf("http://%s:%d", b.pl.addr(0), http), Files: map[string]string{file: string(raw) + "\n"}, Env: b.environment(s.role.Name, true)}
	p.Metrics = []string{p.URL + "/prometheus/metrics"}
	p.Argv, p.Program = append(append(append([]string{}, program...), b.model()), a.words()...), len(program)
	p.Argv = append(p.Argv, "--extra_llm_api_options", file)
	b.d.Processes, b.d.URLs = []Process{p}, []string{p.URL}
	// trtllm-serve names the model after its folder.
	b.d.Model = p.Argv[len(program)]
	return nil
}

var _ = register(&adapter{name: "dynamo", frameworks: []string{"dynamo-sglang", "dynamo-vllm"},
	aliases: merged(sglangAliases, nil), memory: merged(sglangMemory, vllmMemory), build: (*build).dynamo})

// dynamo starts etcd and NATS, the workers of an engine under Dynamo's entry point, and the
// frontend with its router.
func (b *build) dynamo() error {
	var err error
	b.bare = true
	if b.p.Framework == "dynamo-vllm" {
		b.a = &adapter{name: "dynamo", aliases: vllmAliases, memory: vllmMemory}
		err = b.vllm([]string{"python3", "-m", "dynamo.vllm"}, true)
	} else {
		err = b.sglang([]string{"python3", "-m", "dynamo.sglang"})
	}
	if err != nil {
		return err
	}
	etcd, nats := b.pl.port(0, 2379), b.pl.port(0, 4222)
	addr := b.pl.addr(0)
	infra := []Process{
		{Name: "etcd", Role: "infra", Ports: []int{etcd}, URL: fmt.Sprintf("http://%s:%d", addr, etcd), Health: "/health", Env: b.environment("infra", false),
			Argv: []string{"etcd", "--data-dir", "etcd-data", "--listen-client-urls", fmt.Sprintf("http://0.0.0.0:%d", etcd), "--advertise-client-urls", fmt.Sprintf("http://%s:%d", addr, etcd)}},
		{Name: "nats", Role: "infra", Ports: []int{nats}, Env: b.environment("infra", false), Argv: []string{"nats-server", "-js", "-p", fmt.Sprint(nats)}},
	}
	find := []Var{{"ETCD_ENDPOINTS", fmt.Sprintf("http://%s:%d", addr, etcd)}, {"NATS_SERVER", fmt.Sprintf("nats://%s:%d", addr, nats)}}
	workers := slices.DeleteFunc(b.d.Processes, func(p Process) bool { return p.Role == "router" })
	for i := range workers {
		p := &workers[i]
		p.Stage = 1
		p.Env = append(slices.Clone(find), p.Env...)
		// Workers register themselves and take their requests from the frontend; the engine's own
		// HTTP server is not started.
		p.Argv = dropArgs(p.Argv, "--host", "--port")
		p.Health, p.Flush = "", nil
		sys := b.port(p.Node, "http", 7500, portStride*i)
		p.Ports, p.URL, p.Metrics = []int{sys}, "", []string{fmt.Sprintf("http://%s:%d/metrics", b.pl.addr(p.Node), sys)}
		p.Env = append(p.Env, Var{"DYN_SYSTEM_ENABLED", "true"}, Var{"DYN_SYSTEM_PORT", fmt.Sprint(sys)})
	}
	b.fields.take("router")
	b.fields.take("router.version")
	a := &argv{b: b}
	port := b.port(0, "router", httpPort, 0)
	a.set("the layout", "http-port", fmt.Sprint(port))
	a.recipe("router", false)
	a.usual("router-mode", "kv")
	front := Process{Name: "frontend", Role: "router", Stage: 2, Ports: []int{port}, URL: fmt.Sprintf("http://%s:%d", addr, port), Health: "/health",
		Env: append(slices.Clone(find), b.environment("router", false)...), Argv: append(b.routerProgram("python3", "-m", "dynamo.frontend"), a.words()...)}
	front.Metrics = []string{front.URL + "/metrics"}
	b.d.Processes = append(append(infra, workers...), front)
	b.d.URLs, b.d.SessionHeaders = []string{front.URL}, []string{"X-Dynamo-Session-ID"}
	return nil
}

// dropArgs leaves out flags with their value.
func dropArgs(argv []string, names ...string) []string {
	var out []string
	for i := 0; i < len(argv); i++ {
		if slices.Contains(names, argv[i]) {
			i++
			continue
		}
		out = append(out, argv[i])
	}
	return out
}

var _ = register(&adapter{name: "atom", frameworks: []string{"atom"}, flag: flagStyle{under: false}, aliases: map[string]string{"tensor-parallel-size": "tp"},
	memory: map[string]string{"gpu-memory-utilization": "memory.fraction", "kv-cache-dtype": "memory.kv-dtype", "kv_cache_dtype": "memory.kv-dtype", "block-size": "memory.page-size"},
	build:  (*build).atom})

func (b *build) atom() error {
	b.takeCommon()
	if len(b.slots) != 1 {
		return fmt.Errorf("%s: %s has %d workers: atom starts one; use engine external", where(b.p), b.p.Key, len(b.slots))
	}
	program := []string{"python3", "-m", "atom.entrypoints.openai_server"}
	if len(b.r.Command) > 0 {
		program = b.r.Command
	}
	s := b.slots[0]
	side := b.side(s.role.Name)
	a := &argv{b: b}
	http := b.port(0, "http", httpPort, 0)
	a.set("the model", "model", b.model())
	a.set("the layout", "host", "0.0.0.0")
	a.set("the layout", "server-port", fmt.Sprint(http))
	a.list = append(a.list, given{name: "tp", short: "-tp", values: []string{b.fields.take(side + "tp")}, by: "the point's tp"})
	if b.fields.take(side+"dp-attn") != "" {
		a.set("the point's dp-attn", "enable-dp-attention")
	}
	if b.fields.take(side+"ep") != "" {
		a.set("the point's ep", "enable-expert-parallel")
	}
	if b.fields.take("weir.mem-fraction") != "" {
		a.set("memory.fraction", "gpu-memory-utilization", decimal(b.p.Weir.MemFractionPPM))
	}
	if v := b.fields.take("weir.kv-dtype"); v != "" {
		a.list = append(a.list, given{name: "kv-cache-dtype", short: "--kv_cache_dtype", values: []string{v}, by: "memory.kv-dtype"})
	}
	a.field("weir.page-size", "block-size")
	a.field("max-model-len", "max-model-len")
	var own []Var
	if b.fields.take("kv-offloading") != "" {
		for _, f := range []string{"kv-offload-backend", "weir.write-policy", "weir.host-ratio", "weir.host-gb-per-rank"} {
			b.fields.take(f)
		}
		name, value, ok := "", "", false
		if s.role.Host != nil {
			name, value, ok = strings.Cut(s.role.Host.Flag, "=")
		}
		if !ok {
			b.fail("%s: %s offloads to dram and the plan has no host pool (%s)", where(b.p), b.p.Key, b.v.Status)
		} else {
			own = append(own, Var{name, value}, Var{"LMCACHE_LOCAL_CPU", "True"})
			a.set("the point's kv-offloading", "kv-transfer-config", `{"kv_connector":"lmcache","kv_role":"kv_both"}`)
		}
	}
	if m := b.fields.take("spec-decoding"); m != "" {
		b.fields.take("weir.draft-tokens")
		a.set("the point's spec-decoding", "method", m)
		a.set("draft-tokens", "num-speculative-tokens", fmt.Sprint(b.p.Weir.DraftTokens))
	}
	a.recipe(s.role.Name, true)
	p := Process{Name: s.name(), Role: s.role.Name, GPUs: int(s.role.RanksPerNode), Ports: []int{http}, Health: "/health",
		URL: fmt.Sprintf("http://%s:%d", b.pl.addr(0), http), Env: b.environment(s.role.Name, true, own...)}
	p.Metrics = []string{p.URL + "/metrics"}
	p.Argv, p.Program = append(append([]string{}, program...), a.words()...), len(program)
	b.d.Processes, b.d.URLs = []Process{p}, []string{p.URL}
	return nil
}

var _ = register(&adapter{name: "external", build: (*build).external})

// external runs a command that brings endpoints up. It gets the whole point in its
// environment, so that it consumes every field.
func (b *build) external() error {
	e := b.r.External
	if e == nil || len(e.URLs) == 0 {
		return fmt.Errorf("%s: engine external needs external.urls: where the endpoints will be", b.r.where())
	}
	for i := range b.fields.list {
		b.fields.list[i].used = true
	}
	raw, err := json.Marshal(b.p)
	if err != nil {
		return err
	}
	const file = "point.json"
	p := Process{Name: "external", Role: "external", Files: map[string]string{file: string(raw) + "\n"},
		Env: b.environment("unified", true, Var{"WEIR_POINT", file})}
	text := func(list []string) []string {
		var out []string
		for _, s := range list {
			out = append(out, b.expand(s, "unified", 0))
		}
		return out
	}
	p.Argv, p.Stop = text(e.Up), text(e.Down)
	urls := text(e.URLs)
	p.URL = urls[0]
	for _, u := range text(e.Flush) {
		p.Flush = append(p.Flush, Call{Method: "POST", Path: u})
	}
	p.Metrics = text(e.Metrics)
	b.d.Processes, b.d.URLs, b.d.SessionHeaders = []Process{p}, urls, e.Session
	b.d.Nodes = 1
	_, _, p.GPUs = b.p.GPUs()
	b.d.Processes[0].GPUs = p.GPUs
	return nil
}
