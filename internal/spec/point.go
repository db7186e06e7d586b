// Package spec says what to measure: master files, runners, fleets, recipes and the changelog,
// read strictly and expanded into points.
//
// A Point is built once here and never parsed from strings again. Every field is consumed by
// what launches, replays or records it, or refused with a message that names field, file and
// line: a field with a value and no consumer is an error at plan time, never a default.
package spec

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
)

// Scenario is the kind of load of a point.
type Scenario string

const (
	AgenticCoding Scenario = "agentic-coding"
	FixedSeqLen   Scenario = "fixed-seq-len"
)

// Component is a named part with a version, such as a router or an offload backend.
type Component struct {
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
}

// Parallel is how one worker is spread over GPUs. All sizes are at least 1.
type Parallel struct {
	TP     int  `json:"tp"`
	PP     int  `json:"pp"`
	EP     int  `json:"ep"`
	DCP    int  `json:"dcp-size"`
	PCP    int  `json:"pcp-size"`
	DPAttn bool `json:"dp-attn"`
}

// GPUs is the number of physical GPUs of one worker: TP x PP x PCP. DP attention and expert
// parallelism reuse them.
func (p Parallel) GPUs() int { return p.TP * p.PP * p.PCP }

// Worker is one role of a point that is split over several workers.
type Worker struct {
	Parallel
	Workers  int      `json:"num-worker"`
	Hardware string   `json:"hardware,omitempty"`
	Settings []string `json:"additional-settings,omitempty"` // NAME=value, as the file gives them
}

// Offload says where KV goes that does not fit on the device.
type Offload struct {
	Mode    string    `json:"mode"` // "none" or "dram"
	Backend Component `json:"backend"`
	// BudgetGB is the share of host memory that one server of the point may pin on one node,
	// in decimal GB as InferenceX computes it; 0 when Mode is "none" or when the config
	// sizes the host pool itself (WeirFields.HostRatioPPM, HostBytesPerRank).
	BudgetGB int64 `json:"budget-gb"`
}

// Origin says where a value was written.
type Origin struct {
	File string `json:"file"`
	Line int    `json:"line"`
}

// A Point is one executable benchmark: config x topology x offload x scenario x concurrency.
type Point struct {
	Key         string   `json:"key"`    // name of the entry in the master file
	Origin      Origin   `json:"origin"` // of the search-space entry; not part of the identity
	Name        string   `json:"name"`   // exp-name as InferenceX forms it
	Image       string   `json:"image"`
	Model       string   `json:"model"`
	ModelPrefix string   `json:"model-prefix"`
	Precision   string   `json:"precision"`
	Framework   string   `json:"framework"`
	Runner      string   `json:"runner"`
	Scenario    Scenario `json:"scenario"`
	Conc        int      `json:"conc"` // 0 where nothing caps what is in flight: an open load

	Multinode bool `json:"multinode"`
	Disagg    bool `json:"disagg"`
	// Unified is set for single-node points, Prefill and Decode for multi-node ones; a
	// multi-node point that is not disaggregated has Decode.Workers 0.
	Unified *Parallel `json:"unified,omitempty"`
	Prefill *Worker   `json:"prefill,omitempty"`
	Decode  *Worker   `json:"decode,omitempty"`

	SpecDecoding string    `json:"spec-decoding"` // "none", "mtp", ...
	Offload      Offload   `json:"offload"`
	Router       Component `json:"router"`
	KVTransfer   string    `json:"kv-p2p-transfer,omitempty"`

	DurationNs  int64 `json:"duration-ns"` // of the profiling phase; 0 for fixed-seq-len
	ISL         int64 `json:"isl,omitempty"`
	OSL         int64 `json:"osl,omitempty"`
	MaxModelLen int64 `json:"max-model-len,omitempty"`

	// GPUsPerNode and NodeDRAMBytes are the runner's hardware facts; 0 when runners.yaml
	// has none for it.
	GPUsPerNode   int   `json:"gpus-per-node"`
	NodeDRAMBytes int64 `json:"node-dram-bytes"`

	// Weir holds the fields that only Weir reads.
	Weir WeirFields `json:"weir"`
}

// WeirFields are a config's own additions under the key "weir" of a master file.
type WeirFields struct {
	Recipe string `json:"recipe,omitempty"`
	// Corpus is the name or directory of the traces to replay; empty leaves it to the run.
	Corpus string `json:"corpus,omitempty"`
	Seed   uint64 `json:"seed"`
	// MemFraction is the share of HBM that weights and KV may take, in parts per million;
	// 0 leaves it to the recipe or the engine.
	MemFractionPPM int64 `json:"mem-fraction-ppm,omitempty"`
	// KVDType is the type of cached keys and values ("fp8", "bf16"); empty leaves it to the recipe.
	KVDType string `json:"kv-dtype,omitempty"`
	// HostRatioPPM sizes the host pool as a multiple of the device pool in parts per
	// million, HostBytesPerRank in bytes; both 0 means the largest that fits and is allowed.
	HostRatioPPM     int64  `json:"host-ratio-ppm,omitempty"`
	HostBytesPerRank int64  `json:"host-bytes-per-rank,omitempty"`
	WritePolicy      string `json:"write-policy,omitempty"` // write_back, write_through, write_through_selective
	PageSize         int64  `json:"page-size,omitempty"`    // tokens
	// SchedulePolicy orders an engine's queue: "fcfs" (first come first served) or "lpm"
	// (longest cached prefix first); empty leaves it to the engine.
	SchedulePolicy string `json:"schedule-policy,omitempty"`
	// DraftTokens are drafted in one step of speculative decoding; 0 leaves it to the recipe.
	DraftTokens int64 `json:"draft-tokens,omitempty"`
	Repeats     int   `json:"repeats,omitempty"` // runs of the same point, at least 1
	SLO         *SLO  `json:"slo,omitempty"`
}

// SLO are the service levels that a point is judged by; a field of 0 sets none.
type SLO struct {
	TTFTP90Ns int64 `json:"ttft-p90-ns,omitempty"` // at most
	ITLP90Ns  int64 `json:"itl-p90-ns,omitempty"`  // at most
	// InteractivityP90Milli is the least p90 of e2e_norm_intvty, in thousandths of tokens/s/user.
	InteractivityP90Milli int64 `json:"e2e-norm-intvty-p90-milli,omitempty"`
}

// ID names the point by what identifies it: 12 hex digits of the SHA-256 of its canonical
// JSON without Origin. Equal points have equal ids on every machine.
func (p *Point) ID() string {
	q := *p
	q.Origin = Origin{}
	b, err := json.Marshal(&q)
	if err != nil { // a Point has only marshallable fields
		panic(err)
	}
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:6])
}

// Agents says for people how much is at work at once, such as "8 agents".
func (p *Point) Agents() string {
	if p.Conc == 0 {
		return "open load"
	}
	return fmt.Sprintf("%d agents", p.Conc)
}

// Offloads says whether KV goes elsewhere than to the device.
func (p *Point) Offloads() bool { return p.Offload.Mode != "" && p.Offload.Mode != "none" }

// WithoutOffload is the point as an entry of its file would give it that had the same topology and
// load and kv-offloading: none.
func (p *Point) WithoutOffload() *Point {
	q := *p
	tag := "_kv" + p.Offload.Mode + "-" + p.Offload.Backend.Name
	none := "_kvnone"
	if p.Multinode {
		none = ""
	}
	if p.Offloads() {
		q.Name = strings.Replace(p.Name, tag, none, 1)
	}
	q.Offload = Offload{Mode: "none"}
	q.Weir.HostRatioPPM, q.Weir.HostBytesPerRank, q.Weir.WritePolicy = 0, 0, ""
	return &q
}

// GPUs is the number of physical GPUs that the point uses, prefill and decode apart; a
// single-node point counts as prefill 0, decode 0, total TP x PP x PCP. Nothing else in the
// program counts GPUs.
func (p *Point) GPUs() (prefill, decode, total int) {
	if p.Unified != nil {
		return 0, 0, p.Unified.GPUs()
	}
	if p.Prefill != nil {
		prefill = p.Prefill.Workers * p.Prefill.GPUs()
	}
	if p.Decode != nil {
		decode = p.Decode.Workers * p.Decode.GPUs()
	}
	return prefill, decode, prefill + decode
}
