package facts

import (
	"fmt"
	"maps"
	"slices"
)

// Coefficients are the few numbers of the step-time model that are not facts about a model or
// a GPU: how close kernels come to the peaks, and what a layer, a step and a request cost
// beside them. They are fitted to measurements; Fit says to which and how far off they are.
type Coefficients struct {
	Name string `json:"name" yaml:"name"` // "b200", "b200/glm-5.2" or "b200/glm-5.2/fp4": the GPU, and for one model and precision only

	// Shares of a peak, above 0 and at most 1; by precision where kernels differ by it.
	DenseFLOPS  map[string]float64 `json:"dense_flops" yaml:"dense_flops"`   // projections and dense layers
	DenseBytes  map[string]float64 `json:"dense_bytes" yaml:"dense_bytes"`   // reading their weights, of HBM bandwidth
	ExpertFLOPS map[string]float64 `json:"expert_flops" yaml:"expert_flops"` // grouped expert products, experts cut over ranks
	ExpertBytes float64            `json:"expert_bytes" yaml:"expert_bytes"` // reading expert weights, of HBM bandwidth
	AttnFLOPS   float64            `json:"attn_flops" yaml:"attn_flops"`     // attention over all keys, of bf16
	SparseFLOPS float64            `json:"sparse_flops" yaml:"sparse_flops"` // attention over selected keys, of bf16
	IndexFLOPS  float64            `json:"index_flops" yaml:"index_flops"`   // scores of the indexer, of fp8
	KVBytes     float64            `json:"kv_bytes" yaml:"kv_bytes"`         // reading keys and values, of HBM bandwidth
	LinkBytes   float64            `json:"link_bytes" yaml:"link_bytes"`     // an all-reduce, of the scale-up link
	HostBytes   float64            `json:"host_bytes" yaml:"host_bytes"`     // KV copies from and to the host, of the host link
	NICBytes    float64            `json:"nic_bytes" yaml:"nic_bytes"`       // KV between engines, of the network link
	// WholeExperts is how much faster expert products are when experts lie whole on a rank
	// (expert parallelism), at least 1.
	WholeExperts float64 `json:"whole_experts" yaml:"whole_experts"`

	// Nanoseconds beside the peaks.
	AttnLayerNs   float64 `json:"attn_layer_ns" yaml:"attn_layer_ns"`     // a layer's attention with keys and values per head
	LatentLayerNs float64 `json:"latent_layer_ns" yaml:"latent_layer_ns"` // a layer's latent attention
	IndexLayerNs  float64 `json:"index_layer_ns" yaml:"index_layer_ns"`   // a layer's indexer
	IndexTokenNs  float64 `json:"index_token_ns" yaml:"index_token_ns"`   // a token of the longest context, in an indexer at decode
	ExpertLayerNs float64 `json:"expert_layer_ns" yaml:"expert_layer_ns"` // a layer's experts
	AllReduceNs   float64 `json:"all_reduce_ns" yaml:"all_reduce_ns"`     // one all-reduce
	DecodeStepNs  float64 `json:"decode_step_ns" yaml:"decode_step_ns"`   // a decode step
	PrefillStepNs float64 `json:"prefill_step_ns" yaml:"prefill_step_ns"` // a step with prefill in it
	DraftStepNs   float64 `json:"draft_step_ns" yaml:"draft_step_ns"`     // a pass of the draft model beside its layers
	SequenceNs    float64 `json:"sequence_ns" yaml:"sequence_ns"`         // a sequence in a step
	RequestNs     float64 `json:"request_ns" yaml:"request_ns"`           // a request before it is queued
	PromptTokenNs float64 `json:"prompt_token_ns" yaml:"prompt_token_ns"` // a prompt token before the request is queued
	Fit           Fit     `json:"fit" yaml:"fit"`                         // where they come from
}

// Fit says what coefficients were fitted to and how far off they are.
type Fit struct {
	To   string `json:"to" yaml:"to"`     // what they were fitted to
	Date string `json:"date" yaml:"date"` // when
	// Errors are mean absolute errors on points that were held out, by what is predicted
	// ("ttft", "itl", "throughput" in parts per million, "hit_rate" in parts per million of
	// one); what was not checked is absent.
	Errors map[string]int64 `json:"errors,omitempty" yaml:"errors"`
}

// Shares are the shares of a peak by name, for checks and for fitting.
func (c *Coefficients) Shares() map[string]*float64 {
	return map[string]*float64{
		"expert_bytes": &c.ExpertBytes, "attn_flops": &c.AttnFLOPS, "sparse_flops": &c.SparseFLOPS, "index_flops": &c.IndexFLOPS,
		"kv_bytes": &c.KVBytes, "link_bytes": &c.LinkBytes, "host_bytes": &c.HostBytes, "nic_bytes": &c.NICBytes,
	}
}

// Times are the nanoseconds by name.
func (c *Coefficients) Times() map[string]*float64 {
	return map[string]*float64{
		"attn_layer_ns": &c.AttnLayerNs, "latent_layer_ns": &c.LatentLayerNs, "index_layer_ns": &c.IndexLayerNs,
		"index_token_ns": &c.IndexTokenNs, "expert_layer_ns": &c.ExpertLayerNs, "all_reduce_ns": &c.AllReduceNs,
		"decode_step_ns": &c.DecodeStepNs, "prefill_step_ns": &c.PrefillStepNs, "draft_step_ns": &c.DraftStepNs, "sequence_ns": &c.SequenceNs,
		"request_ns": &c.RequestNs, "prompt_token_ns": &c.PromptTokenNs,
	}
}

// Check refuses a share that is none and a time that no step takes.
func (c *Coefficients) Check() error {
	share := func(name string, v float64) error {
		if !(v > 0 && v <= 1) {
			return fmt.Errorf("coefficients %q: %s is %v: a share of a peak lies above 0 and at most at 1", c.Name, name, v)
		}
		return nil
	}
	s := c.Shares()
	for _, name := range slices.Sorted(maps.Keys(s)) {
		if err := share(name, *s[name]); err != nil {
			return err
		}
	}
	for name, m := range map[string]map[string]float64{"dense_flops": c.DenseFLOPS, "dense_bytes": c.DenseBytes, "expert_flops": c.ExpertFLOPS} {
		if len(m) == 0 {
			return fmt.Errorf("coefficients %q: %s is empty: it needs a share for at least one precision", c.Name, name)
		}
		for _, p := range slices.Sorted(maps.Keys(m)) {
			if err := share(name+"."+p, m[p]); err != nil {
				return err
			}
		}
	}
	t := c.Times()
	for _, name := range slices.Sorted(maps.Keys(t)) {
		if v := *t[name]; !(v >= 0 && v < 1e12) {
			return fmt.Errorf("coefficients %q: %s is %v: a time lies between 0 and 1e12 ns", c.Name, name, v)
		}
	}
	if !(c.WholeExperts >= 1 && c.WholeExperts <= 100) {
		return fmt.Errorf("coefficients %q: whole_experts is %v: it lies between 1 and 100", c.Name, c.WholeExperts)
	}
	return nil
}

// ShareOf is the share for a precision; where there is none, that of the next wider one, or of
// any.
func ShareOf(m map[string]float64, precision string) float64 {
	for _, p := range []string{precision, "fp8", "bf16", "fp4"} {
		if v, ok := m[p]; ok {
			return v
		}
	}
	return 0
}

// CoefficientsFor finds the coefficients of a model at a precision on a GPU: those of all three
// before those of model and GPU, and those before the GPU's. A GPU that nobody measured has none.
func (s *Set) CoefficientsFor(model, gpu, precision string) (*Coefficients, error) {
	for _, name := range []string{gpu + "/" + model + "/" + precision, gpu + "/" + model, gpu} {
		for i := range s.Coefficients {
			if s.Coefficients[i].Name == name {
				return &s.Coefficients[i], nil
			}
		}
	}
	return nil, fmt.Errorf("step times of gpu %q: %w; fit some to a bundle with 'weir sim calibrate'", gpu, ErrUnknown)
}
