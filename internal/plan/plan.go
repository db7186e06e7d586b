// Package plan answers, before a GPU is touched, whether a point fits: how large the device
// pool and every host pool will be on every rank and node, whether the node holds them,
// whether the configuration allows them, whether the engine accepts them, and what the
// smallest change is that makes a refused point pass.
//
// Everything is integer bytes; an engine's GB and GiB are converted at the edge by the
// engine's own rule. Nothing here reads a clock or a device: Compute is a function of a point
// and of facts. Preflight, which does look at a node, is apart in preflight.go.
package plan

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/weirbench/weir/internal/facts"
	"github.com/weirbench/weir/internal/spec"
)

// Status is the outcome of a plan, from best to worst.
type Status string

const (
	Fits            Status = "fits"
	Unknown         Status = "unknown"          // a fact that decides is not known
	PolicyViolation Status = "policy-violation" // fits the node but not the share that the configuration allows
	OOMHost         Status = "oom-host"
	OOMDevice       Status = "oom-device"
	EngineRejects   Status = "engine-rejects"
)

var severity = map[Status]int{Fits: 0, Unknown: 1, PolicyViolation: 2, OOMHost: 3, OOMDevice: 4, EngineRejects: 5}

// HostReserveBytes is what SGLang leaves free when it checks for host memory (pool_host/base.py:25).
const HostReserveBytes = 10 << 30

// SafetyPPM is the share of a node's memory that a plan leaves free, parts per million: the
// kernel, page cache that a cgroup is charged for, and what no formula knows.
const SafetyPPM = 50_000

// Options vary a plan. The zero value plans with the embedded facts.
type Options struct {
	// Facts are the facts to plan with; nil means the embedded ones.
	Facts *facts.Set
	// Model stands in for the point's model, such as one read from a config.json.
	Model *facts.Model
	// HostProcessBytes is the host memory of one engine process beside its pools; nil
	// takes the fact, 0 counts none.
	HostProcessBytes *int64
	// AsRecipe sizes host tiers as the published recipe does where the point gives no size.
	AsRecipe bool
	// DevicePoolBytes is the size of the device pool as an engine's log gave it, per rank;
	// 0 computes it.
	DevicePoolBytes int64
	// NodeBytes is the memory that a node was seen to have for the job (the smaller of
	// MemAvailable and the cgroup's headroom); 0 takes the runner's fact.
	NodeBytes int64
}

// A Finding is a reason against a point.
type Finding struct {
	Status Status `json:"status"`
	Role   string `json:"role,omitempty"`
	Reason string `json:"reason"` // with the arithmetic
	Change string `json:"change"` // the smallest change that would pass; empty where there is none
}

// A Warning does not refuse a point.
type Warning struct {
	Code    string `json:"code"`
	Role    string `json:"role,omitempty"`
	Message string `json:"message"`
}

// A Verdict is what a plan found for one point.
type Verdict struct {
	PointID   string `json:"point_id"`
	Key       string `json:"key"`
	Name      string `json:"name"`
	Conc      int    `json:"conc"`
	Runner    string `json:"runner"`
	Model     string `json:"model"`
	GPU       string `json:"gpu"`
	Engine    string `json:"engine"`
	Version   string `json:"version,omitempty"` // of the engine, from the image tag; empty is unknown
	Precision string `json:"precision"`

	Status   Status    `json:"status"`
	Findings []Finding `json:"findings,omitempty"`
	Warnings []Warning `json:"warnings,omitempty"`
	Roles    []Role    `json:"roles"`
	// UniqueTokens are distinct tokens that all workers that compute prefill keep, on the
	// device alone and over both tiers.
	DeviceUniqueTokens int64 `json:"device_unique_tokens"`
	UniqueTokens       int64 `json:"unique_tokens"`
}

// OK says whether nothing speaks against the point.
func (v *Verdict) OK() bool { return v.Status == Fits }

// Serving is the role that holds the prefix cache: the unified or the prefill workers.
func (v *Verdict) Serving() *Role {
	if len(v.Roles) == 0 {
		return nil
	}
	return &v.Roles[0]
}

// A Role is one kind of worker of a point and what it needs on each rank and node.
type Role struct {
	Name    string `json:"name"` // "unified", "prefill", "decode"
	Workers int    `json:"workers"`
	Spread
	PageSize    int64  `json:"page_size"` // tokens
	KVDType     string `json:"kv_dtype"`
	WritePolicy string `json:"write_policy,omitempty"`
	// BytesPerToken is what one token takes on one rank of the device, all pools counted.
	BytesPerToken int64 `json:"bytes_per_token"`
	// WeightOffloadBytes are weights that the engine keeps in host memory, per rank.
	WeightOffloadBytes int64   `json:"weight_offload_bytes,omitempty"`
	Device             Device  `json:"device"`
	Host               *Host   `json:"host,omitempty"` // nil without a host tier
	Node               NodeSum `json:"node"`
}

// A Value is a number and where it came from. One that came from nowhere is unknown.
type Value struct {
	N    int64  `json:"n"`
	From string `json:"from"`
}

// Known says whether there is a number.
func (v Value) Known() bool { return v.From != "" }

// MarshalJSON writes null for a number that is not known.
func (v Value) MarshalJSON() ([]byte, error) {
	if !v.Known() {
		return []byte("null"), nil
	}
	type plain Value
	return json.Marshal(plain(v))
}

// Device is the memory of one rank.
type Device struct {
	HBMBytes     Value `json:"hbm_bytes"`
	FractionPPM  Value `json:"fraction_ppm"`
	WeightBytes  Value `json:"weight_bytes"`
	ReserveBytes Value `json:"reserve_bytes"` // context, graphs, activations, draft head
	// State is what sequences keep whatever their length: linear attention, windows where
	// they are kept per sequence, DeepSeek-V4's 128:1 compressor.
	StateBytes       int64 `json:"state_bytes"`
	StateBytesPerSeq int64 `json:"state_bytes_per_seq,omitempty"`
	StateSlots       int64 `json:"state_slots,omitempty"`
	stateFormula     string
	PoolBytes        int64  `json:"pool_bytes"` // for tokens
	PoolFrom         string `json:"pool_from"`
	// Tokens is how many tokens one rank holds, UniqueTokens how many distinct ones one
	// worker holds: ranks of one attention group hold copies or shares of the same tokens.
	Tokens       int64  `json:"tokens"`
	UniqueTokens int64  `json:"unique_tokens"`
	Pools        []Pool `json:"pools"`
}

// Known says whether the size of the pool is known, so that its zeros are none.
func (d *Device) Known() bool { return d.PoolBytes != 0 || d.WeightBytes.Known() }

// Host is the host tier of one rank.
type Host struct {
	Backend string `json:"backend"`
	Flag    string `json:"flag"`            // the engine's own setting, ready to paste
	Chosen  string `json:"chosen"`          // who chose the size
	Tokens  int64  `json:"tokens"`          // slots of the main pool of one rank
	Pools   []Pool `json:"pools"`           // of one rank
	Other   []Item `json:"other,omitempty"` // pinned by the backend beside pools, per rank
	Bytes   int64  `json:"bytes"`           // of one rank, pools and other
	Where   string `json:"where,omitempty"` // the file system that it lies in, where it is one
	Note    string `json:"note,omitempty"`
	step    int64  // bytes of one step of the setting
	// UniqueTokens is how many distinct tokens the host tier of one worker holds.
	UniqueTokens int64 `json:"unique_tokens"`
	// Exclusive says that host and device hold different tokens (write_back), so that a
	// worker keeps the sum of both; otherwise the larger of both.
	Exclusive bool `json:"exclusive"`
}

// An Item is memory by name.
type Item struct {
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
	From  string `json:"from"`
}

// NodeSum is what the workers of one role pin on one node, against what is there and allowed.
type NodeSum struct {
	Ranks         int    `json:"ranks"`
	HostPoolBytes int64  `json:"host_pool_bytes"`
	Other         []Item `json:"other,omitempty"`
	TotalBytes    int64  `json:"total_bytes"`
	// LimitBytes is what the node has for the job less reserve and safety; 0 is unknown.
	MemoryBytes Value `json:"memory_bytes"`
	LimitBytes  int64 `json:"limit_bytes"`
	MarginBytes int64 `json:"margin_bytes"`
	// PolicyBytes is the configured share of host memory; 0 where there is none.
	PolicyBytes       Value `json:"policy_bytes"`
	PolicyMarginBytes int64 `json:"policy_margin_bytes"`
}

// Compute plans one point. An error means that the point cannot be planned at all: a fact that
// names nothing (see facts.ErrUnknown) or a point that makes no sense. Everything else,
// refusals too, is in the verdict.
func Compute(p *spec.Point, opt Options) (*Verdict, error) {
	b, err := newBench(p, opt)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", where(p), err)
	}
	v := b.v
	if why := b.model.Unknown["layers"]; why != "" {
		b.find("", Unknown, "add the model with its layers to a --facts file", "what %s caches is not fully known: %s", b.model.Name, why)
	}
	for _, w := range b.workers() {
		if err := b.role(w); err != nil {
			return nil, fmt.Errorf("%s: %w", where(p), err)
		}
	}
	v.Status = Fits
	for _, f := range v.Findings {
		if severity[f.Status] > severity[v.Status] {
			v.Status = f.Status
		}
	}
	if r := v.Serving(); r != nil {
		n := int64(r.Workers)
		v.DeviceUniqueTokens = n * r.Device.UniqueTokens
		v.UniqueTokens = n * r.UniqueTokens()
	}
	return v, nil
}

// UniqueTokens is how many distinct tokens one worker keeps over both tiers.
func (r *Role) UniqueTokens() int64 {
	switch {
	case r.Host == nil:
		return r.Device.UniqueTokens
	case r.Host.Exclusive:
		return satAdd(r.Device.UniqueTokens, r.Host.UniqueTokens)
	}
	return max(r.Device.UniqueTokens, r.Host.UniqueTokens)
}

func where(p *spec.Point) string {
	if p == nil {
		return "plan"
	}
	if p.Origin.File != "" {
		return fmt.Sprintf("%s:%d: %s", p.Origin.File, p.Origin.Line, p.Key)
	}
	if p.Key != "" {
		return p.Key
	}
	return "point"
}

// bench is a point with all facts about it resolved.
type bench struct {
	p      *spec.Point
	opt    Options
	set    *facts.Set
	model  *facts.Model
	gpu    *facts.GPU
	engine *facts.Engine
	ver    Version
	v      *Verdict

	gpusPerNode int64
	nodeBytes   Value
}

func newBench(p *spec.Point, opt Options) (*bench, error) {
	if p == nil {
		return nil, errors.New("no point")
	}
	b := &bench{p: p, opt: opt, set: opt.Facts, model: opt.Model}
	if b.set == nil {
		b.set = facts.Embedded()
	}
	var err error
	if b.model == nil {
		if b.model, err = b.modelOf(); err != nil {
			return nil, err
		}
	}
	if b.gpu, err = b.set.GPUForRunner(p.Runner); err != nil {
		return nil, err
	}
	if b.engine, err = b.set.EngineForFramework(p.Framework); err != nil {
		return nil, err
	}
	b.ver = ParseVersion(p.Image)
	if err := b.misplaced(); err != nil {
		return nil, err
	}
	if err := b.node(); err != nil {
		return nil, err
	}
	b.v = &Verdict{
		PointID: p.ID(), Key: p.Key, Name: p.Name, Conc: p.Conc, Runner: p.Runner,
		Model: b.model.Name, GPU: b.gpu.Name, Engine: b.engine.Name, Version: b.ver.Text, Precision: p.Precision,
	}
	return b, nil
}

// node resolves GPUs and memory of one node: what the point carries from runners.yaml, or the
// embedded facts.
func (b *bench) node() error {
	n, err := b.set.NodeForRunner(b.p.Runner)
	b.gpusPerNode = int64(b.p.GPUsPerNode)
	if b.gpusPerNode <= 0 {
		if err != nil {
			return err
		}
		b.gpusPerNode = n.GPUsPerNode
	}
	switch {
	case b.opt.NodeBytes > 0:
		b.nodeBytes = Value{b.opt.NodeBytes, "seen on the node"}
	case b.p.NodeDRAMBytes > 0:
		b.nodeBytes = Value{b.p.NodeDRAMBytes, "runners.yaml, " + b.p.Runner}
	case err == nil && n.DRAMBytes > 0:
		b.nodeBytes = Value{n.DRAMBytes, b.set.NodeSource.Where + ", " + n.Cluster}
	case b.p.Offload.Mode == "dram":
		return facts.UnknownNode(b.p.Runner)
	}
	return nil
}

func (b *bench) find(role string, s Status, change, format string, a ...any) {
	b.v.Findings = append(b.v.Findings, Finding{s, role, fmt.Sprintf(format, a...), change})
}

func (b *bench) warn(role, code, format string, a ...any) {
	b.v.Warnings = append(b.v.Warnings, Warning{code, role, fmt.Sprintf(format, a...)})
}
