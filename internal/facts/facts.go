// Package facts holds the numbers that Weir did not measure: models, GPUs, nodes, engines and
// prices, embedded as data, each with where it was read and when.
//
// What is not public is Unknown here and stays unknown in everything that is computed from it:
// there is no default for a fact.
package facts

// Source says where a number was read and when.
type Source struct {
	Where string `json:"where" yaml:"where"` // document, file and line, or the formula that gave it
	Date  string `json:"date" yaml:"date"`   // when it was read, YYYY-MM-DD or YYYY-MM
	// Grade is "source" (read in source code or a vendor's sheet), "recipe" (a number in a
	// published recipe), "computed", or "estimate".
	Grade string `json:"grade" yaml:"grade"`
}

// AttentionKind is how a layer attends, which decides what it caches.
type AttentionKind string

const (
	MHA    AttentionKind = "mha"    // keys and values per KV head; GQA and MQA are MHA with fewer KV heads
	MLA    AttentionKind = "mla"    // one latent of LoraRank+RopeDim per token, the same on every rank
	DSA    AttentionKind = "dsa"    // MLA plus an indexer that selects TopK tokens
	DSV4   AttentionKind = "dsv4"   // DeepSeek-V4's compressed kinds, see Layers.Compress
	SWA    AttentionKind = "swa"    // MHA over a sliding window
	Sparse AttentionKind = "sparse" // MHA plus a keys-only block indexer (MiniMax-M3)
	Linear AttentionKind = "linear" // a fixed state per sequence (GDN, KDA, mamba); nothing per token
)

// Layers is a run of equal layers.
type Layers struct {
	Kind  AttentionKind `json:"kind" yaml:"kind"`
	Count int64         `json:"count" yaml:"count"`

	KVHeads    int64 `json:"kv_heads,omitempty" yaml:"kv_heads"` // MHA, SWA, Sparse
	HeadDim    int64 `json:"head_dim,omitempty" yaml:"head_dim"` // of keys; values too unless VHeadDim
	VHeadDim   int64 `json:"v_head_dim,omitempty" yaml:"v_head_dim"`
	LoraRank   int64 `json:"lora_rank,omitempty" yaml:"lora_rank"` // MLA, DSA
	RopeDim    int64 `json:"rope_dim,omitempty" yaml:"rope_dim"`   // MLA, DSA, DSV4
	IndexHeads int64 `json:"index_heads,omitempty" yaml:"index_heads"`
	IndexDim   int64 `json:"index_dim,omitempty" yaml:"index_dim"` // DSA, DSV4, Sparse
	TopK       int64 `json:"top_k,omitempty" yaml:"top_k"`         // tokens that a query attends to
	// SharedIndex marks DSA layers that reuse the selection of the layer before them: they
	// still store index keys but compute no index.
	SharedIndex bool  `json:"shared_index,omitempty" yaml:"shared_index"`
	Window      int64 `json:"window,omitempty" yaml:"window"`     // SWA, DSV4
	Compress    int64 `json:"compress,omitempty" yaml:"compress"` // DSV4: tokens folded into one entry, 0 for the window alone
	// StateBytes is the state of one sequence in one Linear layer over all ranks, bytes.
	StateBytes int64 `json:"state_bytes,omitempty" yaml:"state_bytes"`
	ConvBytes  int64 `json:"conv_bytes,omitempty" yaml:"conv_bytes"`
}

// MoE describes the expert layers of a model; the zero value means a dense model.
type MoE struct {
	Layers  int64 `json:"layers" yaml:"layers"` // layers with experts
	Experts int64 `json:"experts" yaml:"experts"`
	TopK    int64 `json:"top_k" yaml:"top_k"`
	Shared  int64 `json:"shared" yaml:"shared"`
	Dim     int64 `json:"dim" yaml:"dim"` // width of one expert
}

// A Model is what Weir knows of one model.
type Model struct {
	Name     string   `json:"name" yaml:"name"`         // "glm-5.2"
	Prefixes []string `json:"prefixes" yaml:"prefixes"` // model-prefix values of master files: "glm5.2"
	Aliases  []string `json:"aliases" yaml:"aliases"`   // repository ids, compared without case and owner
	Layers   []Layers `json:"layers" yaml:"layers"`
	// DraftLayers are the layers of the multi-token-prediction head that ships with the model.
	DraftLayers int64 `json:"draft_layers" yaml:"draft_layers"`
	Hidden      int64 `json:"hidden" yaml:"hidden"`
	Heads       int64 `json:"heads" yaml:"heads"` // query heads
	MoE         MoE   `json:"moe" yaml:"moe"`
	MaxContext  int64 `json:"max_context" yaml:"max_context"` // tokens
	// Params and ActiveParams are counts of parameters; 0 is unknown.
	Params       int64 `json:"params" yaml:"params"`
	ActiveParams int64 `json:"active_params" yaml:"active_params"`
	// WeightBytes is the checkpoint's size by precision ("fp4", "fp8", "bf16", "int4").
	WeightBytes map[string]int64 `json:"weight_bytes" yaml:"weight_bytes"`
	// ExpertBytes is the part of WeightBytes that is routed experts, which expert
	// parallelism spreads; the rest is replicated where attention is data parallel.
	ExpertBytes map[string]int64  `json:"expert_bytes,omitempty" yaml:"expert_bytes"`
	Notes       []string          `json:"notes,omitempty" yaml:"notes"`
	Unknown     map[string]string `json:"unknown,omitempty" yaml:"unknown"` // field -> why it is not known
	Sources     map[string]Source `json:"sources" yaml:"sources"`           // by field name
}

// NumLayers is the number of target layers, draft layers not included.
func (m *Model) NumLayers() int64 {
	var n int64
	for _, l := range m.Layers {
		n += l.Count
	}
	return n
}

// A GPU is what Weir knows of one accelerator.
type GPU struct {
	Name     string `json:"name" yaml:"name"`           // "b200"
	HBMBytes int64  `json:"hbm_bytes" yaml:"hbm_bytes"` // usable by one process
	// HBMBandwidth is the peak in bytes per second; FLOPS the dense peak per second by
	// precision ("fp4", "fp8", "bf16"), absent where the GPU has no such units.
	HBMBandwidth int64            `json:"hbm_bandwidth" yaml:"hbm_bandwidth"`
	FLOPS        map[string]int64 `json:"flops" yaml:"flops"`
	// LinkBandwidth is the scale-up link and HostBandwidth the path to host memory, both
	// one way in bytes per second; NICBandwidth the network share of one GPU.
	LinkBandwidth int64 `json:"link_bandwidth" yaml:"link_bandwidth"`
	HostBandwidth int64 `json:"host_bandwidth" yaml:"host_bandwidth"`
	NICBandwidth  int64 `json:"nic_bandwidth" yaml:"nic_bandwidth"`
	TDPWatts      int64 `json:"tdp_watts" yaml:"tdp_watts"`
	// HostLink names the path to host memory: "pcie5x16" or "c2c".
	HostLink string `json:"host_link" yaml:"host_link"`
	// AllInWatts is the GPU's share of the power of the whole node with cooling.
	AllInWatts int64 `json:"all_in_watts,omitempty" yaml:"all_in_watts"`
	// Prices are micro-dollars per GPU-hour by kind of seller; the source carries the date.
	Prices  map[string]int64  `json:"prices,omitempty" yaml:"prices"`
	Notes   []string          `json:"notes,omitempty" yaml:"notes"`
	Unknown map[string]string `json:"unknown,omitempty" yaml:"unknown"` // field -> why it is not known
	Sources map[string]Source `json:"sources" yaml:"sources"`
}
