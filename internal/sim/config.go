package sim

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weirbench/weir/internal/facts"
	"github.com/weirbench/weir/internal/spec"
)

// Config says which engine on which hardware is simulated. Zero values take the engine's own
// default where it has one.
type Config struct {
	// Engine is whose scheduler and cache are simulated: "sglang" (the default: prefill first,
	// radix tree, HiCache) or "vllm" (mixed steps, hashed blocks, native offload).
	Engine string
	// Role is RoleUnified, or one side of a disaggregated engine (SGLang only).
	Role     string
	Model    *facts.Model
	GPU      *facts.GPU
	Parallel spec.Parallel

	WeightPrecision string // "fp4", "fp8", "bf16", ...: a key of Model.WeightBytes
	KVDType         string // "fp8" or "bf16"
	// KVBytesPerToken is what one token costs on one rank over all layers, sidecars such as an
	// indexer's keys and a draft model's cache included; it decides the time of copies.
	KVBytesPerToken int64
	// DeviceTokens and HostTokens are the pools of one rank in tokens. Ranks that share
	// sequences (plain TP) hold the same tokens and count once; under DP attention each rank
	// has its own. HostTokens 0 means no host tier.
	DeviceTokens, HostTokens int64
	PageSize                 int64  // tokens, 64 when 0
	WritePolicy              string // "write_back", "write_through" or "write_through_selective"; write_through when empty

	// SchedulePolicy is "fcfs" (first come first served, SGLang's default) or "lpm" (longest
	// cached prefix first). Under fcfs a queue of agents asks for its prefixes in turn, which is
	// what LRU bears worst: once the pools are full they serve nothing any more and do not
	// recover. See docs/simulator.md.
	SchedulePolicy string
	// KeepDoubles is write_back of SGLang before pull request 33777 (2026-08): a prefix that
	// was loaded back keeps its place on the host as long as it is on the device.
	KeepDoubles bool

	// ChunkedPrefill is the number of prefill tokens in a step: 16384 with at least 160 GB of
	// HBM, else 8192. For vLLM it is the budget of a step, decodes included, 8192.
	ChunkedPrefill int64
	// StorageTokens is the size of a storage tier behind the host pool in tokens, 0 for none
	// (SGLang only); StorageBandwidth is what it reads and writes in bytes of one rank per
	// second. PrefetchPolicy says how long a request waits for it: "timeout" (the default),
	// "best_effort" or "wait_complete".
	StorageTokens, StorageBandwidth int64
	PrefetchPolicy                  string
	MaxPrefill                      int64 // tokens of new prompts in a step, 16384 when 0
	MaxRunning                      int64 // requests that run at once; the engine's formula when 0
	ContextLen                      int64 // tokens of prompt and output; Model.MaxContext when 0

	// AcceptPPM is the mean number of tokens that a decode step yields with speculative
	// decoding, in parts per million, the bonus token included; 0 or 1000000 without.
	AcceptPPM   int64
	DraftTokens int64 // tokens drafted for a step, 0 without speculative decoding

	// Balance says how a DP engine spreads tasks over its ranks: "session" (the default: what
	// belongs together stays on one rank, as a router with a session key does) or "round_robin"
	// (SGLang's own default without such a router).
	Balance string
	// Stream reports every token when it is there. Without it only the first tokens and the
	// ends of tasks are reported, and decode steps between are taken at once.
	Stream bool

	// Link carries KV from a prefill engine; nil gives it one of its own.
	Link *Link

	// Coefficients are of the step-time model; nil takes the embedded ones of model and GPU.
	Coefficients *facts.Coefficients
	// ModelName is what records name as the model; Model.Name when empty.
	ModelName string
}

// Roles of an engine.
const (
	RoleUnified = ""
	RolePrefill = "prefill"
	RoleDecode  = "decode"
)

// Defaults of SGLang (server_args.py, schedule_policy.py, 2026-07).
const (
	defaultPage       = 64
	defaultMaxPrefill = 16384
	smallChunk        = 8192
	largeChunk        = 16384
	largeChunkHBM     = 160e9 // bytes of HBM from which the larger chunk is the default
	vllmRunning       = 1024  // max_num_seqs of vLLM's server on large GPUs (arg_utils.py, 2026-07)
)

// HostBytes is the host memory that the host pool of one rank pins: whole pages and one more,
// as SGLang allocates it (pool_host/base.py, 2026-07).
func HostBytes(c *Config) int64 {
	if c.HostTokens <= 0 {
		return 0
	}
	page := max(1, c.PageSize)
	return (c.HostTokens/page + 1) * page * c.KVBytesPerToken
}

// Ranks is the number of ranks that hold caches of their own.
func (c *Config) Ranks() int {
	if c.Parallel.DPAttn {
		return max(1, c.Parallel.TP)
	}
	return 1
}

// StatedError says what the step times were fitted to and how far off they were where that was
// checked; empty when nobody fitted them.
func (c *Config) StatedError() string {
	if c.Coefficients == nil || c.Coefficients.Fit.To == "" {
		return ""
	}
	fit := c.Coefficients.Fit
	text := "fitted to " + fit.To + " (" + fit.Date + ")"
	for _, k := range slices.Sorted(maps.Keys(fit.Errors)) {
		text += fmt.Sprintf(", %s off by %.1f %%", strings.ReplaceAll(k, "_", " "), float64(fit.Errors[k])/1e4)
	}
	return text
}

func (c Config) withDefaults() (Config, error) {
	switch {
	case c.Engine != "" && c.Engine != "sglang" && c.Engine != "vllm":
		return c, fmt.Errorf("sim: engine %q is unknown: use sglang or vllm", c.Engine)
	case c.Role != RoleUnified && c.Role != RolePrefill && c.Role != RoleDecode:
		return c, fmt.Errorf("sim: role %q is unknown: use prefill or decode, or leave it empty", c.Role)
	case c.Role != RoleUnified && c.Engine == "vllm":
		return c, errors.New("sim: disaggregation is simulated as SGLang does it, not for vllm")
	case c.Role == RoleDecode && c.HostTokens > 0:
		return c, errors.New("sim: a decode engine has no host tier: its KV comes from prefill every turn")
	case c.Model == nil || c.GPU == nil:
		return c, errors.New("sim: a model and a GPU are needed")
	case c.Parallel.TP < 1:
		return c, fmt.Errorf("sim: tp is %d: it must be at least 1", c.Parallel.TP)
	case c.Parallel.PP > 1:
		return c, fmt.Errorf("sim: pp is %d: pipeline parallelism is not simulated, use pp 1", c.Parallel.PP)
	case c.Parallel.DCP > 1 || c.Parallel.PCP > 1:
		return c, fmt.Errorf("sim: dcp %d, pcp %d: context parallelism is not simulated, use 1", c.Parallel.DCP, c.Parallel.PCP)
	case c.KVBytesPerToken <= 0:
		return c, fmt.Errorf("sim: KV bytes per token are %d: they must be above 0", c.KVBytesPerToken)
	case c.HostTokens < 0 || c.PageSize < 0 || c.ChunkedPrefill < 0 || c.MaxPrefill < 0 || c.MaxRunning < 0 ||
		c.ContextLen < 0 || c.AcceptPPM < 0 || c.DraftTokens < 0:
		return c, errors.New("sim: a size is negative")
	}
	if c.PageSize == 0 {
		c.PageSize = defaultPage
	}
	if c.DeviceTokens < c.PageSize {
		return c, fmt.Errorf("sim: the device pool of %d tokens is smaller than one page of %d", c.DeviceTokens, c.PageSize)
	}
	if c.Engine == "vllm" {
		if c.MaxRunning == 0 {
			c.MaxRunning = vllmRunning
		}
		if c.ChunkedPrefill == 0 {
			c.ChunkedPrefill = smallChunk
		}
	}
	if c.ChunkedPrefill == 0 {
		c.ChunkedPrefill = smallChunk
		if c.GPU.HBMBytes >= largeChunkHBM {
			c.ChunkedPrefill = largeChunk
		}
	}
	if c.Parallel.DPAttn { // the engine divides its budget over the ranks
		c.ChunkedPrefill = max(c.PageSize, c.ChunkedPrefill/int64(c.Parallel.TP))
	}
	if c.ChunkedPrefill < c.PageSize {
		return c, fmt.Errorf("sim: a prefill chunk of %d tokens is smaller than one page of %d", c.ChunkedPrefill, c.PageSize)
	}
	if c.MaxPrefill == 0 {
		c.MaxPrefill = defaultMaxPrefill
	}
	if c.ContextLen == 0 {
		c.ContextLen = c.Model.MaxContext
	}
	if c.ContextLen <= 0 {
		return c, fmt.Errorf("sim: the context length of model %q is unknown: set it", c.Model.Name)
	}
	if c.MaxRunning == 0 {
		c.MaxRunning = min(max(min(c.DeviceTokens*512/c.ContextLen, 4096), 2048), max(1, c.DeviceTokens/2))
	}
	if c.AcceptPPM == 0 {
		c.AcceptPPM = 1_000_000
	}
	if c.AcceptPPM < 1_000_000 || c.AcceptPPM > 1_000_000*(c.DraftTokens+1) {
		return c, fmt.Errorf("sim: an accepted length of %d ppm does not fit %d draft tokens: it lies between 1 and draft tokens + 1", c.AcceptPPM, c.DraftTokens)
	}
	if c.SchedulePolicy == "" {
		c.SchedulePolicy = "fcfs"
	}
	if c.SchedulePolicy != "lpm" && c.SchedulePolicy != "fcfs" {
		return c, fmt.Errorf("sim: schedule policy %q is unknown: use lpm or fcfs", c.SchedulePolicy)
	}
	switch {
	case c.StorageTokens == 0:
	case c.StorageTokens < 0 || c.StorageBandwidth <= 0:
		return c, fmt.Errorf("sim: a storage tier of %d tokens at %d bytes/s: both must be above 0", c.StorageTokens, c.StorageBandwidth)
	case c.HostTokens == 0 || c.Engine == "vllm":
		return c, errors.New("sim: a storage tier lies behind SGLang's host pool: give one")
	case c.PrefetchPolicy == "":
		c.PrefetchPolicy = "timeout"
	case c.PrefetchPolicy != "timeout" && c.PrefetchPolicy != "best_effort" && c.PrefetchPolicy != "wait_complete":
		return c, fmt.Errorf("sim: prefetch policy %q is unknown: use timeout, best_effort or wait_complete", c.PrefetchPolicy)
	}
	if c.Balance == "" {
		c.Balance = "session"
	}
	if c.Balance != "session" && c.Balance != "round_robin" {
		return c, fmt.Errorf("sim: balance %q is unknown: use session or round_robin", c.Balance)
	}
	if c.Coefficients == nil {
		co, err := facts.Embedded().CoefficientsFor(c.Model.Name, c.GPU.Name, c.WeightPrecision)
		if err != nil {
			return c, fmt.Errorf("sim: %w", err)
		}
		c.Coefficients = co
	}
	if err := c.Coefficients.Check(); err != nil {
		return c, fmt.Errorf("sim: %w", err)
	}
	if c.Role == RolePrefill {
		if c.GPU.NICBandwidth <= 0 {
			return c, fmt.Errorf("sim: the network bandwidth of GPU %q is unknown: a prefill engine needs one", c.GPU.Name)
		}
		if c.Link == nil {
			c.Link = &Link{}
		}
	}
	if c.ModelName == "" {
		c.ModelName = c.Model.Name
	}
	return c, nil
}

func parsePolicy(s string) (writePolicy, error) {
	switch s {
	case "", "write_through":
		return writeThrough, nil
	case "write_through_selective":
		return writeThroughSelective, nil
	case "write_back":
		return writeBack, nil
	}
	return 0, fmt.Errorf("sim: write policy %q is unknown: use write_back, write_through or write_through_selective", s)
}
