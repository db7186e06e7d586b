package inferencex

import (
	"maps"
	"slices"
	"strings"
)

// An adapter fills the server's side of a row from one engine's metrics. The order of adapters
// is that of detection.
type adapter struct {
	name     string
	matches  func(m *scraped, framework string) bool
	fill     func(m *scraped, s *Server)
	capacity func(logs []string) *int64 // nil where logs do not tell
}

var adapters = []adapter{
	{"dynamo-vllm", func(m *scraped, framework string) bool {
		return strings.HasPrefix(framework, "dynamo") || m.has("dynamo_")
	}, fillDynamo, vllmCapacity},
	{"atom", engineOf("atom", "atom:", "atom_"), fillATOM, nil},
	{"sglang", engineOf("sglang", "sglang:"), fillSGLang, sglangCapacity},
	{"vllm", engineOf("vllm", "vllm:"), fillVLLM, vllmCapacity},
}

// engineOf matches metrics by prefix and, without any metrics, the framework by name.
func engineOf(framework string, prefixes ...string) func(*scraped, string) bool {
	return func(m *scraped, f string) bool {
		return m.has(prefixes...) || len(m.families) == 0 && f == framework
	}
}

func adapterFor(m *scraped, framework string) *adapter {
	for i := range adapters {
		if adapters[i].matches(m, strings.ToLower(framework)) {
			return &adapters[i]
		}
	}
	return nil
}

func numbers(m map[string]float64) map[string]Number {
	out := make(map[string]Number, len(m))
	for k, v := range m {
		out[k] = Number(v)
	}
	return out
}

// of is the value of a key, nil when the map does not have it.
func of(m map[string]float64, key string) *float64 {
	if v, ok := m[key]; ok {
		return &v
	}
	return nil
}

func fillSGLang(m *scraped, s *Server) {
	prompt := total(m.find("sglang:prompt_tokens"), totals, nil)
	s.Tokens.Prompt = counter(prompt)
	s.Tokens.Generation = counter(total(m.find("sglang:generation_tokens"), totals, nil))
	cached := byLabel(m.find("sglang:cached_tokens"), "cache_source")
	device, host := of(cached, "device"), of(cached, "host")
	var all *float64
	if len(cached) > 0 {
		t := sum(slices.Collect(maps.Values(cached)))
		all = &t
	}
	overall := ratio(all, prompt)
	if overall == nil {
		overall = fraction(mean(m.find("sglang:cache_hit_rate"), average))
	}
	s.Cache.GPU, s.Cache.CPU = numberOf(ratio(device, prompt)), numberOf(ratio(host, prompt))
	s.Cache.External, s.Cache.Overall = s.Cache.CPU, numberOf(overall)
	s.Cache.BySource = numbers(cached)

	s.KV.GPUUsage = numberOf(fraction(most(m.find("sglang:token_usage"), maxima, nil)))
	s.KV.GPUTokens = counter(total(m.find("sglang:max_total_num_tokens"), []string{"max", "avg", "total", "sum"}, nil))
	used := most(m.find("sglang:hicache_host_used_tokens"), maxima, nil)
	size := most(m.find("sglang:hicache_host_total_tokens"), maxima, nil)
	s.KV.CPUUsage, s.KV.CPUUsed, s.KV.CPUTokens = numberOf(ratio(used, size)), numberOf(used), numberOf(size)

	s.Tokens.BySource.GPU, s.Tokens.BySource.External = numberOf(device), numberOf(host)
	s.Tokens.BySource.Computed = numberOf(total(m.find("sglang:realtime_tokens"), totals,
		func(x *series) bool { return x.label("mode") == "prefill_compute" }))
	s.Tokens.BySource.Raw = numbers(cached)
}

func fillVLLM(m *scraped, s *Server) {
	fillBlocks(m, s, total(m.find("vllm:prompt_tokens"), totals, nil), total(m.find("vllm:generation_tokens"), totals, nil))
}

// fillBlocks reads vLLM's metrics; totals of tokens may come from a frontend before it.
func fillBlocks(m *scraped, s *Server, prompt, generation *float64) {
	s.Tokens.Prompt, s.Tokens.Generation = counter(prompt), counter(generation)
	sumOf := func(name string) *float64 { return total(m.find(name), totals, nil) }
	hits, queries := sumOf("vllm:prefix_cache_hits"), sumOf("vllm:prefix_cache_queries")
	extHits, extQueries := sumOf("vllm:external_prefix_cache_hits"), sumOf("vllm:external_prefix_cache_queries")
	gpu, ext := ratio(hits, queries), ratio(extHits, extQueries)
	overall := gpu
	if sources := byLabel(m.find("vllm:prompt_tokens_by_source"), "source"); len(sources) > 0 {
		local, moved := of(sources, "local_cache_hit"), of(sources, "external_kv_transfer")
		overall = nil
		if all := sum(slices.Collect(maps.Values(sources))); all > 0 {
			var cached float64
			if local != nil {
				gpu = ratio(local, &all)
				cached += *local
			}
			if moved != nil {
				ext = ratio(moved, &all)
				cached += *moved
			}
			overall = ratio(&cached, &all)
		}
		s.Tokens.BySource.GPU, s.Tokens.BySource.External = numberOf(local), numberOf(moved)
		s.Tokens.BySource.Computed = numberOf(of(sources, "local_compute"))
		s.Tokens.BySource.Raw = numbers(sources)
	}
	s.Cache.GPU, s.Cache.CPU, s.Cache.External, s.Cache.Overall = numberOf(gpu), numberOf(ext), numberOf(ext), numberOf(overall)
	s.Cache.Hits, s.Cache.Queries = numberOf(hits), numberOf(queries)
	s.Cache.ExternalHits, s.Cache.ExternalQueries = numberOf(extHits), numberOf(extQueries)
	s.KV.GPUUsage = numberOf(fraction(most(m.find("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"), maxima, nil)))
	s.KV.CPUUsage = numberOf(fraction(most(m.find("vllm:cpu_kv_cache_usage_perc"), maxima, nil)))

	out, in := sumOf("vllm:kv_offload_bytes_gpu_to_cpu"), sumOf("vllm:kv_offload_bytes_cpu_to_gpu")
	outTime, inTime := sumOf("vllm:kv_offload_time_gpu_to_cpu"), sumOf("vllm:kv_offload_time_cpu_to_gpu")
	s.Offload = Offload{
		BytesOut: numberOf(out), BytesIn: numberOf(in), TimeOut: numberOf(outTime), TimeIn: numberOf(inTime),
		BandwidthOut: numberOf(ratio(out, outTime)), BandwidthIn: numberOf(ratio(in, inTime)),
	}
	s.Sources = vllmSources(m)
}

func vllmSources(m *scraped) []Source {
	ids := map[string]bool{}
	for _, s := range m.find("vllm:prompt_tokens", "vllm:generation_tokens", "vllm:prefix_cache_hits",
		"vllm:prefix_cache_queries", "vllm:kv_cache_usage_perc", "vllm:prompt_tokens_by_source") {
		ids[sourceID(&s)] = true
	}
	out := []Source{}
	for _, id := range slices.Sorted(maps.Keys(ids)) {
		mine := func(s *series) bool { return sourceID(s) == id }
		role, _, _ := strings.Cut(id, "|")
		out = append(out, Source{
			ID: id, Role: role,
			Prompt:     numberOf(total(m.find("vllm:prompt_tokens"), totals, mine)),
			Generation: numberOf(total(m.find("vllm:generation_tokens"), totals, mine)),
			HitRate:    numberOf(ratio(total(m.find("vllm:prefix_cache_hits"), totals, mine), total(m.find("vllm:prefix_cache_queries"), totals, mine))),
			KVUsage:    numberOf(fraction(most(m.find("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"), maxima, mine))),
		})
	}
	return out
}

// sourceID names the engine that a series comes from: role, endpoint and what tells its ranks apart.
func sourceID(s *series) string {
	component := s.label("dynamo_component")
	if component == "" {
		component = s.label("component")
	}
	id := "combined"
	switch component {
	case "prefill":
		id = "prefill"
	case "backend", "decode":
		id = "decode"
	case "frontend", "router":
		id = "router"
	}
	if s.Endpoint != "" {
		id += "|" + s.Endpoint
	}
	for _, l := range []string{"worker_id", "dp_rank", "engine"} {
		if v := s.label(l); v != "" {
			id += "|" + l + "=" + v
		}
	}
	return id
}

func fillDynamo(m *scraped, s *Server) {
	first := func(names ...string) *float64 {
		for _, n := range names {
			if v := total(m.find(n), totals, nil); v != nil {
				return v
			}
		}
		return nil
	}
	input := first("dynamo_frontend_input_sequence_tokens")
	prompt, generation := first("dynamo_frontend_input_sequence_tokens", "vllm:prompt_tokens"), first("dynamo_frontend_output_tokens", "vllm:generation_tokens")
	fillBlocks(m, s, prompt, generation)
	if s.KV.GPUUsage == nil {
		s.KV.GPUUsage = numberOf(fraction(most(m.find("dynamo_component_gpu_cache_usage_percent"), maxima, nil)))
	}
	cached := first("dynamo_frontend_cached_tokens")
	s.Cache.FrontendCached, s.Cache.FrontendInput = numberOf(cached), numberOf(input)
	s.Cache.Frontend = numberOf(ratio(cached, input))
	s.Cache.RouterKV = numberOf(fraction(mean(m.find("dynamo_component_router_kv_hit_rate"), average)))
	s.Cache.RouterShared = numberOf(fraction(mean(m.find("dynamo_component_router_shared_cache_hit_rate"), average)))
}

func fillATOM(m *scraped, s *Server) {
	family := func(stem string) *float64 {
		return total(m.find("atom:"+stem, "atom_"+stem, "atom:"+stem+"_total", "atom_"+stem+"_total"), totals, nil)
	}
	s.Tokens.Prompt, s.Tokens.Generation = counter(family("prompt_tokens")), counter(family("generation_tokens"))
	cached, full, loaded := family("prefix_cache_cached_tokens"), family("prefix_cache_full_tokens"), family("lmcache_loaded_tokens")
	s.Cache.GPU = numberOf(ratio(cached, full))
	s.Cache.CPU = numberOf(ratio(loaded, full))
	s.Cache.External = s.Cache.CPU
	s.Cache.Overall = s.Cache.GPU // the cached counter may hold loads already
	s.Cache.Hits, s.Cache.Queries, s.Cache.ExternalHits, s.Cache.ExternalQueries = numberOf(cached), numberOf(full), numberOf(loaded), numberOf(full)
	s.KV.GPUUsage = numberOf(fraction(most(m.find("atom:kv_cache_usage_ratio", "atom_kv_cache_usage_ratio"), maxima, nil)))
}
