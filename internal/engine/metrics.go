package engine

import (
	"strconv"
	"strings"
	"sync"
)

// A Quantity is what one metric of an engine says, whatever the engine calls it.
type Quantity uint8

// Quantities that engines publish. Tokens are tokens, shares are between 0 and 1.
const (
	NoQuantity Quantity = iota

	DeviceUsage      // share of the device pool that requests hold
	DeviceUsed       // tokens of the device pool that requests hold
	DeviceEvictable  // cached tokens on the device that nobody holds
	DeviceTokens     // size of the device pool
	HostUsage        // share of the host pool in use
	HostUsed         // tokens in the host pool
	HostTokens       // size of the host pool
	Running          // requests that run
	Waiting          // requests that wait
	AcceptLength     // tokens that a decode step yields with speculative decoding
	PrefillBootstrap // requests that wait for room at decode
	PrefillInflight  // requests whose KV is on its way
	DecodePrealloc   // requests without room
	DecodeTransfer   // requests whose KV has not come
	FrontendWaiting  // requests before their first token as a frontend sees them, those in engines included
	DeviceBlocks     // size of the device pool in blocks
	UsedBlocks       // blocks of the device pool that requests hold
	IndexedBlocks    // blocks of the device pool that a prefix can be found in
	BlockTokens      // tokens of a block
	RouterActive     // requests that a router has at its workers; disaggregated, each counts at prefill and at decode

	PromptTokens        // prompt tokens, reused prefix included
	OutputTokens        // generated tokens
	HitDevice           // prompt tokens found on the device
	HitHost             // prompt tokens found on the host, or brought by a connector
	HitStorage          // prompt tokens found in storage
	HitUnsplit          // prompt tokens found, the engine does not say where
	ComputedTokens      // prompt tokens that were computed
	LookedUp            // prompt tokens looked up on the device
	LookupHits          // of which found
	HostLookedUp        // prompt tokens looked up beyond the device
	HostLookupHits      // of which found
	EvictedTokens       // tokens taken off the device
	LoadedBack          // tokens brought from the host to the device
	BackedUp            // tokens copied from the device to the host
	Retracted           // requests taken back for want of room
	Preempted           // requests preempted for want of room
	BytesToHost         // bytes from device to host
	BytesToDevice       // bytes from host to device
	TransferFailed      // requests whose KV transfer failed
	TransferExpired     // requests whose KV nobody fetched in time
	BootstrapFailed     // requests whose two sides did not find each other
	RouterRequests      // requests that a router took
	RouterErrors        // of which failed
	FrontendPrompt      // prompt tokens that a frontend before the engines saw
	FrontendHits        // of which the engines reused
	FrontendOutput      // generated tokens that the frontend saw
	EndedRequests       // requests that ended
	DraftSteps          // decode steps with drafted tokens
	DraftAccepted       // drafted tokens that were accepted in them
	quantityCount   int = iota
)

// Quantities is the number of quantities, NoQuantity included.
const Quantities = quantityCount

var quantityNames = [Quantities]string{
	DeviceUsage: "device_usage", DeviceUsed: "device_used_tokens", DeviceEvictable: "device_evictable_tokens",
	DeviceTokens: "device_pool_tokens", HostUsage: "host_usage", HostUsed: "host_used_tokens", HostTokens: "host_pool_tokens",
	Running: "running", Waiting: "waiting", AcceptLength: "accept_length",
	FrontendWaiting: "frontend_waiting", DeviceBlocks: "device_pool_blocks", UsedBlocks: "device_used_blocks",
	IndexedBlocks: "device_indexed_blocks", BlockTokens: "block_tokens",
	PrefillBootstrap: "prefill_bootstrap_queue", PrefillInflight: "prefill_inflight_queue",
	DecodePrealloc: "decode_prealloc_queue", DecodeTransfer: "decode_transfer_queue",
	PromptTokens: "prompt_tokens", OutputTokens: "output_tokens", HitDevice: "hit_device_tokens", HitHost: "hit_host_tokens",
	HitStorage: "hit_storage_tokens", HitUnsplit: "hit_unsplit_tokens", ComputedTokens: "computed_tokens",
	LookedUp: "looked_up_tokens", LookupHits: "looked_up_hit_tokens",
	HostLookedUp: "host_looked_up_tokens", HostLookupHits: "host_looked_up_hit_tokens",
	EvictedTokens: "evicted_tokens", LoadedBack: "loaded_back_tokens", BackedUp: "backed_up_tokens",
	Retracted: "retracted_requests", Preempted: "preempted_requests", BytesToHost: "bytes_to_host", BytesToDevice: "bytes_to_device",
	TransferFailed: "transfer_failed_requests", TransferExpired: "transfer_expired_requests", BootstrapFailed: "bootstrap_failed_requests",
	RouterActive: "router_active", RouterRequests: "router_requests", RouterErrors: "router_errors",
	FrontendPrompt: "frontend_prompt_tokens", FrontendHits: "frontend_hit_tokens",
	FrontendOutput: "frontend_output_tokens", EndedRequests: "ended_requests",
	DraftSteps: "draft_steps", DraftAccepted: "draft_accepted_tokens",
}

func (q Quantity) String() string {
	if int(q) < len(quantityNames) && quantityNames[q] != "" {
		return quantityNames[q]
	}
	return "quantity-" + strconv.Itoa(int(q))
}

// Counter tells whether the quantity only grows while the process lives.
func (q Quantity) Counter() bool { return q >= PromptTokens }

// Averaged tells whether ranks are averaged rather than added up.
func (q Quantity) Averaged() bool {
	return q == DeviceUsage || q == HostUsage || q == AcceptLength || q == BlockTokens
}

// OfPrompts tells whether the quantity counts prompts: in a disaggregated deployment the decode
// side counts them again, as hits of what the prefill side sent.
func (q Quantity) OfPrompts() bool {
	switch q {
	case PromptTokens, HitDevice, HitHost, HitStorage, HitUnsplit, ComputedTokens, LookedUp, LookupHits, HostLookedUp, HostLookupHits:
		return true
	}
	return false
}

// OfAnswers tells whether the quantity counts answers: in a disaggregated deployment the prefill
// side counts each once more, with its first token.
func (q Quantity) OfAnswers() bool { return q == OutputTokens || q == EndedRequests }

// A Signal is what one series says.
type Signal struct {
	Engine   string // "sglang", "vllm", "dynamo", "trtllm", "atom"; "smg" for SGLang's router
	Quantity Quantity
	// Same is the series without the labels of ranks that repeat each other's numbers. Of
	// several series with one Same only that with the lowest Rank counts.
	Same string
	Rank int
	// Replica is the rank of data parallelism that the series is of, which has numbers of its own;
	// "" where the series does not say.
	Replica string
	// Role is what SGLang's engine_type says: "prefill", "decode" or "unified"; "router" for what
	// only a router or frontend publishes; else "".
	Role string
	// Spelling orders names of one quantity by age, the present one first. An endpoint that has
	// several publishes one number twice, so only the lowest counts.
	Spelling int
	// Scale turns the series' value into the quantity's unit.
	Scale float64
	// Percent says that a value above 1.5 is in percent.
	Percent bool
}

// Value is the series' value in the quantity's unit.
func (s *Signal) Value(v float64) float64 {
	v *= s.Scale
	if s.Percent && v > 1.5 {
		v /= 100
	}
	return v
}

// metric is one row of an engine's table.
type metric struct {
	quantity Quantity
	scale    float64 // 0 is 1
	percent  bool
	label    string // when set, the row holds for series with this label
	value    string // whose value begins with this
	notRole  string // SGLang's engine_type for which the number is a repetition
	spelling int    // 0 for the present name, more for older ones
}

// maxCached bounds the series that Classify remembers.
const maxCached = 1 << 16

var classified struct {
	sync.RWMutex
	of map[string]*Signal
}

// Classify says what a series in Prometheus text form means; nil when no adapter knows it. The
// Signal is shared and not to be changed.
func Classify(series string) *Signal {
	classified.RLock()
	s, ok := classified.of[series]
	classified.RUnlock()
	if ok {
		return s
	}
	s = classify(series)
	classified.Lock()
	defer classified.Unlock()
	if classified.of == nil || len(classified.of) >= maxCached {
		classified.of = map[string]*Signal{}
	}
	classified.of[strings.Clone(series)] = s
	return s
}

func classify(series string) *Signal {
	name, labels, _ := strings.Cut(series, "{")
	labels = strings.TrimSuffix(labels, "}")
	family := strings.TrimSuffix(name, "_total")
	e := EngineOfMetric(family)
	if e == "" {
		return nil
	}
	switch family {
	case "vllm:cache_config_info":
		s := vllmPool(labels)
		if s != nil {
			s.Replica = replica(e, labels)
		}
		return s
	case "atom:cache_config_info", "atom_cache_config_info":
		return infoNumber("atom", BlockTokens, family, labels, "block_size")
	}
	for _, m := range families[family] {
		if m.label != "" && !strings.HasPrefix(Label(labels, m.label), m.value) {
			continue
		}
		if m.notRole != "" && Label(labels, "engine_type") == m.notRole {
			return nil
		}
		s := &Signal{Engine: e, Quantity: m.quantity, Scale: m.scale, Percent: m.percent, Spelling: m.spelling}
		if s.Scale == 0 {
			s.Scale = 1
		}
		s.Same, s.Rank = sameRank(family, labels)
		s.Replica, s.Role = replica(e, labels), role(family, e, labels)
		return s
	}
	return nil
}

// EngineOfMetric names the engine that publishes a metric, by its prefix; empty when unknown.
func EngineOfMetric(name string) string {
	for _, p := range []struct{ prefix, engine string }{
		{"sglang:", "sglang"}, {"sglang_", "sglang"}, {"vllm:", "vllm"}, {"dynamo_", "dynamo"},
		{"kvbm_", "dynamo"}, {"trtllm_", "trtllm"}, {"atom:", "atom"}, {"atom_", "atom"}, {"smg_", "smg"},
	} {
		if strings.HasPrefix(name, p.prefix) {
			return p.engine
		}
	}
	return ""
}

// Label reads one label of a label set in Prometheus text form, without braces.
func Label(labels, name string) string {
	for labels != "" {
		key, rest, ok := strings.Cut(labels, `="`)
		if !ok {
			return ""
		}
		end := 0
		for end < len(rest) && rest[end] != '"' {
			if rest[end] == '\\' {
				end++
			}
			end++
		}
		if end >= len(rest) {
			return ""
		}
		if strings.TrimLeft(key, ", ") == name {
			return rest[:end]
		}
		labels = rest[end+1:]
	}
	return ""
}

// sameRank takes out the labels of ranks inside one replica. Ranks of data parallelism have
// numbers of their own; with attention data parallelism the tensor rank differs with it, so the
// lowest rank that is there counts, not rank 0.
func sameRank(family, labels string) (string, int) {
	rank := 0
	same := labels
	for _, l := range []string{"pp_rank", "tp_rank", "moe_ep_rank"} {
		v := Label(labels, l)
		if v == "" {
			continue
		}
		n, _ := strconv.Atoi(v)
		rank = rank*4096 + n
		same = strings.Replace(same, l+`="`+v+`"`, "", 1)
	}
	return family + "{" + same + "}", rank
}

// replica is the rank of data parallelism in a label set: SGLang and Dynamo label it dp_rank, vLLM
// numbers its engines.
func replica(engine, labels string) string {
	if engine == "vllm" {
		return Label(labels, "engine")
	}
	return Label(labels, "dp_rank")
}

// role is that of the process which publishes a metric, "" where the metric does not tell.
func role(family, engine, labels string) string {
	switch {
	case engine == "sglang":
		switch r := Label(labels, "engine_type"); r {
		case "prefill", "decode", "unified":
			return r
		}
	case engine == "smg" || strings.HasPrefix(family, "dynamo_frontend_"):
		return "router"
	}
	return ""
}

// vllmPool reads the size of the pool from the labels of vLLM's info metric.
func vllmPool(labels string) *Signal {
	// Releases from 2026 on tell the tokens themselves, which with groups of layers of several kinds
	// are not the product.
	if n, err := strconv.ParseInt(Label(labels, "kv_cache_size_tokens"), 10, 64); err == nil && n > 0 && n < 1<<50 {
		return &Signal{Engine: "vllm", Quantity: DeviceTokens, Same: "vllm:cache_config_info{" + labels + "}", Scale: float64(n)}
	}
	blocks, err1 := strconv.ParseInt(Label(labels, "num_gpu_blocks"), 10, 64)
	size, err2 := strconv.ParseInt(Label(labels, "block_size"), 10, 64)
	if err1 != nil || err2 != nil || blocks < 0 || size <= 0 {
		return nil
	}
	return &Signal{Engine: "vllm", Quantity: DeviceTokens, Same: "vllm:cache_config_info{" + labels + "}", Scale: float64(blocks) * float64(size)}
}

// infoNumber reads a number that stands in a label of an info metric.
func infoNumber(of string, q Quantity, family, labels, label string) *Signal {
	n, err := strconv.ParseInt(Label(labels, label), 10, 64)
	if err != nil || n <= 0 || n > 1<<32 {
		return nil
	}
	return &Signal{Engine: of, Quantity: q, Same: family + "{" + labels + "}", Scale: float64(n)}
}
