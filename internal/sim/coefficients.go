package sim

import "fmt"

// Coefficients are the few numbers of the step-time model that are not facts about a model or
// a GPU: how close kernels come to the peaks, and what a layer, a step and a request cost
// beside them. They are fitted to measurements; Fit says to which and how far off they are.
type Coefficients struct {
	Name string `json:"name" yaml:"name"` // "b200"

	// Shares of a peak, above 0 and at most 1.
	DenseFLOPS  float64 `json:"dense_flops" yaml:"dense_flops"`   // projections and dense layers, of the weights' precision
	ExpertFLOPS float64 `json:"expert_flops" yaml:"expert_flops"` // grouped expert products, of the weights' precision
	AttnFLOPS   float64 `json:"attn_flops" yaml:"attn_flops"`     // attention over all keys, of bf16
	SparseFLOPS float64 `json:"sparse_flops" yaml:"sparse_flops"` // attention over selected keys, of bf16
	IndexFLOPS  float64 `json:"index_flops" yaml:"index_flops"`   // scores of the indexer, of fp8
	WeightBytes float64 `json:"weight_bytes" yaml:"weight_bytes"` // reading weights, of HBM bandwidth
	KVBytes     float64 `json:"kv_bytes" yaml:"kv_bytes"`         // reading keys and values, of HBM bandwidth
	LinkBytes   float64 `json:"link_bytes" yaml:"link_bytes"`     // an all-reduce, of the scale-up link
	HostBytes   float64 `json:"host_bytes" yaml:"host_bytes"`     // KV copies from and to the host, of the host link
	NICBytes    float64 `json:"nic_bytes" yaml:"nic_bytes"`       // KV between engines, of the network link

	// Nanoseconds beside the peaks.
	AttnLayerNs   float64 `json:"attn_layer_ns" yaml:"attn_layer_ns"`     // a layer's attention
	IndexLayerNs  float64 `json:"index_layer_ns" yaml:"index_layer_ns"`   // a layer's indexer
	IndexTokenNs  float64 `json:"index_token_ns" yaml:"index_token_ns"`   // a token of the longest context, in an indexer at decode
	ExpertLayerNs float64 `json:"expert_layer_ns" yaml:"expert_layer_ns"` // a layer's experts
	AllReduceNs   float64 `json:"all_reduce_ns" yaml:"all_reduce_ns"`     // one all-reduce
	DecodeStepNs  float64 `json:"decode_step_ns" yaml:"decode_step_ns"`   // a decode step
	PrefillStepNs float64 `json:"prefill_step_ns" yaml:"prefill_step_ns"` // a step with prefill in it
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

func (c *Coefficients) check() error {
	for _, s := range []struct {
		name string
		v    float64
	}{
		{"dense_flops", c.DenseFLOPS}, {"expert_flops", c.ExpertFLOPS}, {"attn_flops", c.AttnFLOPS},
		{"sparse_flops", c.SparseFLOPS}, {"index_flops", c.IndexFLOPS}, {"weight_bytes", c.WeightBytes},
		{"kv_bytes", c.KVBytes}, {"link_bytes", c.LinkBytes}, {"host_bytes", c.HostBytes}, {"nic_bytes", c.NICBytes},
	} {
		if !(s.v > 0 && s.v <= 1) {
			return fmt.Errorf("coefficients %q: %s is %v: a share of a peak lies above 0 and at most at 1", c.Name, s.name, s.v)
		}
	}
	for _, s := range []struct {
		name string
		v    float64
	}{
		{"attn_layer_ns", c.AttnLayerNs}, {"index_layer_ns", c.IndexLayerNs}, {"index_token_ns", c.IndexTokenNs},
		{"expert_layer_ns", c.ExpertLayerNs}, {"all_reduce_ns", c.AllReduceNs}, {"decode_step_ns", c.DecodeStepNs},
		{"prefill_step_ns", c.PrefillStepNs}, {"request_ns", c.RequestNs}, {"prompt_token_ns", c.PromptTokenNs},
	} {
		if !(s.v >= 0 && s.v < 1e12) {
			return fmt.Errorf("coefficients %q: %s is %v: a time lies between 0 and 1e12 ns", c.Name, s.name, s.v)
		}
	}
	return nil
}

// blackwell is what the published operator tables of B200 give; see docs/simulator.md.
var blackwell = Coefficients{
	Name:       "b200",
	DenseFLOPS: 0.46, ExpertFLOPS: 0.14, AttnFLOPS: 0.5, SparseFLOPS: 0.085, IndexFLOPS: 0.25,
	WeightBytes: 0.7, KVBytes: 0.5, LinkBytes: 0.21, HostBytes: 0.86, NICBytes: 0.8,
	AttnLayerNs: 25_000, IndexLayerNs: 35_000, IndexTokenNs: 0.43, ExpertLayerNs: 15_000,
	AllReduceNs: 6_000, DecodeStepNs: 500_000, PrefillStepNs: 3_000_000,
	RequestNs: 5_000_000, PromptTokenNs: 500,
}
