package inferencex

import "encoding/json"

// A Row is the aggregate of one agentic run, in the order of InferenceX's keys.
type Row struct {
	HW                string     `json:"hw"`
	Conc              int        `json:"conc"`
	Image             string     `json:"image"`
	RecipeFingerprint string     `json:"recipe_fingerprint"`
	Model             string     `json:"model"`
	ModelPrefix       string     `json:"infmax_model_prefix"`
	Framework         string     `json:"framework"`
	Precision         string     `json:"precision"`
	SpecDecoding      string     `json:"spec_decoding"`
	Disagg            bool       `json:"disagg"`
	Scenario          string     `json:"scenario_type"`
	Multinode         bool       `json:"is_multinode"`
	TP                int        `json:"tp"`
	EP                int        `json:"ep"`
	DPAttention       string     `json:"dp_attention"`
	KVOffloading      string     `json:"kv_offloading"`
	Backend           *Component `json:"kv_offload_backend"`
	AllocatedDRAM     int        `json:"allocated_cpu_dram_gb"` // GB of 10^9 bytes
	Total             int        `json:"num_requests_total"`
	Successful        int        `json:"num_requests_successful"`
	Accounting        Accounting `json:"request_accounting"`
	*SingleShape                 // nil for a multi-node row
	*MultiShape                  // nil for a single-node row

	Router     *Component      `json:"router,omitempty"`
	KVTransfer string          `json:"kv_p2p_transfer,omitempty"`
	Dataset    json.RawMessage `json:"dataset,omitempty"`

	Requests   Requests `json:"request_metrics"`
	Server     Server   `json:"server_metrics"`
	PoolTokens *int64   `json:"kv_cache_pool_tokens"`
	Warnings   []string `json:"warnings,omitempty"`

	NoSummary bool `json:"-"` // AIPerf's summary, SummaryFile, was not there

	*Own  // nil where Weir's own numbers are not asked for
	*Mark // nil for a row that is measured and valid, and of artifacts that do not say they are simulated
}

// SingleShape is how a single-node point is spread.
type SingleShape struct {
	PP  int `json:"pp"`
	DCP int `json:"dcp_size"`
	PCP int `json:"pcp_size"`
}

// MultiShape is how a multi-node point is spread.
type MultiShape struct {
	PrefillWorkers     int    `json:"prefill_num_workers"`
	PrefillTP          int    `json:"prefill_tp"`
	PrefillPP          int    `json:"prefill_pp"`
	PrefillDCP         int    `json:"prefill_dcp_size"`
	PrefillPCP         int    `json:"prefill_pcp_size"`
	PrefillEP          int    `json:"prefill_ep"`
	PrefillDPAttention string `json:"prefill_dp_attention"`
	PrefillGPUs        int    `json:"num_prefill_gpu"`
	DecodeWorkers      int    `json:"decode_num_workers"`
	DecodeTP           int    `json:"decode_tp"`
	DecodePP           int    `json:"decode_pp"`
	DecodeDCP          int    `json:"decode_dcp_size"`
	DecodePCP          int    `json:"decode_pcp_size"`
	DecodeEP           int    `json:"decode_ep"`
	DecodeDPAttention  string `json:"decode_dp_attention"`
	DecodeGPUs         int    `json:"num_decode_gpu"`
	PrefillHW          string `json:"prefill_hw,omitempty"`
	DecodeHW           string `json:"decode_hw,omitempty"`
}

// Accounting says what became of every record.
type Accounting struct {
	Total    int            `json:"records_total"`
	Profiled int            `json:"records_profiled"`
	Dropped  int            `json:"records_dropped_total"`
	Warmup   int            `json:"records_warmup_dropped"`
	Errors   int            `json:"records_error_dropped"`
	Classes  map[string]int `json:"error_categories"`
}

// Requests are the numbers of the client's records.
type Requests struct {
	QPS        QPS        `json:"qps"`
	Latency    Latency    `json:"latency"`
	Tokens     Tokens     `json:"tokens"`
	Throughput Throughput `json:"throughput"`
	Cache      struct {
		Theoretical *Number `json:"theoretical_cache_hit_rate"`
	} `json:"cache"`
}

// QPS counts ended requests in windows of a second from the first end on; empty with fewer than
// two ends.
type QPS struct {
	Window  *Number `json:"window_seconds,omitempty"`
	Samples *int    `json:"samples,omitempty"`
	Spread
}

// Latency is in seconds, interactivity in tokens per second per user.
type Latency struct {
	TTFT                Spread `json:"ttft"`
	E2EL                Spread `json:"e2el"`
	ITL                 Spread `json:"itl"`
	TPOT                Spread `json:"tpot"`
	Intvty              Spread `json:"intvty"`
	E2ENormIntvty       Spread `json:"e2e_norm_intvty"`
	FullResponseITL     Spread `json:"full_response_itl"`
	FullResponseIntvtvy Spread `json:"full_response_intvty"`
}

// Tokens are per request. Expected stays empty: InferenceX takes it from a dataset in a cache
// by indices that are not those of the records (see docs/aiperf.md).
type Tokens struct {
	Input    Spread   `json:"input"`
	Output   Spread   `json:"output_actual"`
	Expected struct{} `json:"output_expected"`
}

// Throughput divides tokens of profiled records by the time from the first start to the last end.
type Throughput struct {
	Input    *PerSecond `json:"input,omitempty"`
	Output   *PerSecond `json:"output,omitempty"`
	Total    *PerSecond `json:"total,omitempty"`
	Duration *Number    `json:"duration_seconds,omitempty"`
	PerGPU   *PerGPU    `json:"per_gpu,omitempty"`
}

// PerSecond is a rate.
type PerSecond struct {
	Tokens Number `json:"tokens_per_second"`
}

// PerGPU are rates divided by GPUs; empty when there are none.
type PerGPU struct {
	Total  *Number `json:"total_tput_tps,omitempty"`
	Output *Number `json:"output_tput_tps,omitempty"`
	Input  *Number `json:"input_tput_tps,omitempty"`
}

// Server is what the engine's own metrics say.
type Server struct {
	Present bool         `json:"present"`
	Adapter string       `json:"adapter"`
	Count   int          `json:"metric_count"`
	Cache   ServerCache  `json:"cache"`
	KV      ServerKV     `json:"kv_cache"`
	Offload Offload      `json:"kv_offload"`
	Tokens  ServerTokens `json:"tokens"`
	Sources []Source     `json:"sources"`
}

// ServerCache holds hit rates, 0 to 1, and the counts that they come from, tokens.
type ServerCache struct {
	GPU             *Number           `json:"gpu_cache_hit_rate"`
	CPU             *Number           `json:"cpu_cache_hit_rate"`
	External        *Number           `json:"external_cache_hit_rate"`
	Overall         *Number           `json:"overall_cache_hit_rate"`
	Hits            *Number           `json:"prefix_cache_hits"`
	Queries         *Number           `json:"prefix_cache_queries"`
	ExternalHits    *Number           `json:"external_prefix_cache_hits"`
	ExternalQueries *Number           `json:"external_prefix_cache_queries"`
	BySource        map[string]Number `json:"cached_tokens_by_source"`
	Frontend        *Number           `json:"frontend_cache_hit_rate"`
	RouterKV        *Number           `json:"router_kv_hit_rate"`
	RouterShared    *Number           `json:"router_shared_cache_hit_rate"`
	FrontendCached  *Number           `json:"frontend_cached_tokens"`
	FrontendInput   *Number           `json:"frontend_input_tokens"`
}

// ServerKV are the pools.
type ServerKV struct {
	GPUUsage  *Number `json:"gpu_usage_pct"` // 0 to 1 in spite of its name
	GPUTokens *int64  `json:"gpu_total_tokens"`
	CPUUsage  *Number `json:"cpu_usage_pct"`
	CPUUsed   *Number `json:"cpu_used_tokens"`
	CPUTokens *Number `json:"cpu_total_tokens"`
}

// Offload is the traffic between the tiers, bytes and seconds.
type Offload struct {
	BytesOut     *Number `json:"bytes_gpu_to_cpu"`
	BytesIn      *Number `json:"bytes_cpu_to_gpu"`
	TimeOut      *Number `json:"time_gpu_to_cpu"`
	TimeIn       *Number `json:"time_cpu_to_gpu"`
	BandwidthOut *Number `json:"bandwidth_gpu_to_cpu_bytes_per_second"`
	BandwidthIn  *Number `json:"bandwidth_cpu_to_gpu_bytes_per_second"`
}

// ServerTokens are totals over the run.
type ServerTokens struct {
	Prompt     *int64 `json:"prompt_total"`
	Generation *int64 `json:"generation_total"`
	Completed  int    `json:"requests_completed"`
	BySource   struct {
		GPU      *Number           `json:"gpu_cache_hit"`
		External *Number           `json:"cpu_or_external_cache_hit"`
		Computed *Number           `json:"computed"`
		Raw      map[string]Number `json:"raw"`
	} `json:"prompt_by_source"`
}

// A Source is one engine behind vLLM's metrics.
type Source struct {
	ID         string  `json:"id"`
	Role       string  `json:"role"`
	Prompt     *Number `json:"prompt_tokens"`
	Generation *Number `json:"generation_tokens"`
	HitRate    *Number `json:"prefix_cache_hit_rate"`
	KVUsage    *Number `json:"gpu_kv_cache_usage_pct"`
}

// Own are Weir's numbers beside compatible ones that it thinks wrong. InferenceX's readers take keys
// by name and pass over others.
type Own struct {
	// StorageHitRate are tokens found in storage over prompt tokens; they are in the overall
	// rate of the row and in none of its tiers.
	StorageHitRate *Number `json:"weir_storage_cache_hit_rate"`
	// OverallHitRate falls back to what Dynamo's frontend, or its router, saw reused where the
	// engines' counters are not scraped: InferenceX computes that and leaves it out of the row.
	OverallHitRate *Number `json:"weir_overall_cache_hit_rate"`
	// PoolTokens counts every data-parallel rank of an endpoint once, whatever tensor-parallel
	// ranks report it too.
	PoolTokens *int64 `json:"weir_kv_cache_pool_tokens"`
	// OffloadOut and OffloadIn are bytes between the tiers under any of vLLM's three spellings.
	OffloadOut *Number `json:"weir_kv_offload_bytes_gpu_to_cpu"`
	OffloadIn  *Number `json:"weir_kv_offload_bytes_cpu_to_gpu"`
	// ErrorRate is failed records over failed and profiled ones.
	ErrorRate *Number `json:"weir_error_rate"`
}
