package facts

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"
)

// ParseHFConfig reads the config.json of a Hugging Face repository as a model. What the file
// does not say, or says in a way that is not understood, is named in the model's Unknown; an
// entry "layers" there means that what the model caches is not fully known.
//
// The name is for messages and for the model; date is when the file was read, YYYY-MM-DD.
func ParseHFConfig(name string, b []byte, date string) (*Model, error) {
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(b, &raw); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if t, ok := raw["text_config"]; ok { // multimodal models keep the language model inside
		inner := map[string]json.RawMessage{}
		if err := json.Unmarshal(t, &inner); err != nil {
			return nil, fmt.Errorf("%s: text_config: %w", name, err)
		}
		for k, v := range raw {
			if _, ok := inner[k]; !ok && k != "text_config" && k != "vision_config" {
				inner[k] = v
			}
		}
		raw = inner
	}
	c := &hfConfig{raw: raw, used: map[string]bool{}}
	m, err := c.model(name, date)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return m, nil
}

// hfConfig reads keys of a config and remembers which it has read.
type hfConfig struct {
	raw  map[string]json.RawMessage
	used map[string]bool
	errs []error
}

// num is the first of the keys that is there as a whole number; 0 where none is, or null.
func (c *hfConfig) num(keys ...string) int64 {
	for _, k := range keys {
		v, ok := c.raw[k]
		if !ok || string(v) == "null" {
			continue
		}
		c.used[k] = true
		var n int64
		if err := json.Unmarshal(v, &n); err != nil {
			c.errs = append(c.errs, fmt.Errorf("%s is not a whole number: %s", k, clip(v)))
			return 0
		}
		if n < 0 || n > 1<<40 {
			c.errs = append(c.errs, fmt.Errorf("%s %d is out of range", k, n))
			return 0
		}
		return n
	}
	return 0
}

func (c *hfConfig) into(key string, v any) bool {
	raw, ok := c.raw[key]
	if !ok || string(raw) == "null" {
		return false
	}
	c.used[key] = true
	if err := json.Unmarshal(raw, v); err != nil {
		c.errs = append(c.errs, fmt.Errorf("%s is not understood: %s", key, clip(raw)))
		return false
	}
	return true
}

func clip(b []byte) string {
	if len(b) > 60 {
		return string(b[:60]) + "..."
	}
	return string(b)
}

func (c *hfConfig) model(name, date string) (*Model, error) {
	var kind string
	c.into("model_type", &kind)
	src := Source{Where: name, Date: date, Grade: "source"}
	m := &Model{
		Name: strings.ToLower(strings.TrimSuffix(lastPart(name), ".json")), Hidden: c.num("hidden_size"), Heads: c.num("num_attention_heads"),
		MaxContext: c.num("max_position_embeddings"), DraftLayers: c.num("num_nextn_predict_layers", "mtp_num_hidden_layers"),
		Unknown: map[string]string{}, Sources: map[string]Source{"*": src},
	}
	if kind != "" {
		m.Name = kind
	}
	layers := c.num("num_hidden_layers", "n_layer", "num_layers")
	if layers == 0 || layers > 1<<14 {
		return nil, errors.Join(append(c.errs, errors.New("num_hidden_layers is missing or out of range: this is not the config of a language model"))...)
	}
	c.layers(m, layers)
	c.experts(m, layers)
	if len(c.errs) > 0 {
		return nil, errors.Join(c.errs...)
	}
	for i := range m.Layers {
		if err := m.Layers[i].check(); err != nil {
			return nil, err
		}
	}
	for f, why := range map[string]string{
		"params": "a config does not say", "active_params": "a config does not say", "expert_bytes": "a config does not say",
		"weight_bytes": "a config does not say; it is read from model.safetensors.index.json where that lies beside it",
	} {
		m.Unknown[f] = why
	}
	if rest := c.ignored(); len(rest) > 0 {
		m.Unknown["layers"] = "keys about attention that are not understood: " + strings.Join(rest, ", ")
	}
	return m, nil
}

func lastPart(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }

// layers fills the layer list from what attention the config describes.
func (c *hfConfig) layers(m *Model, n int64) {
	full := c.fullLayer()
	switch {
	case c.raw["compress_ratios"] != nil:
		c.compressed(m, n)
		return
	case c.raw["linear_attn_config"] != nil:
		c.kda(m, n, full)
		return
	case c.raw["sparse_attention_config"] != nil:
		c.sparse(m, n, full)
		return
	}
	kinds := c.layerKinds(n)
	var out []Layers
	add := func(l Layers) {
		l.Count = 1
		if k := len(out); k > 0 {
			prev := out[k-1]
			prev.Count = 1
			if prev == l {
				out[k-1].Count++
				return
			}
		}
		out = append(out, l)
	}
	window := c.num("sliding_window")
	freq := c.num("index_topk_freq")
	var indexers []string
	c.into("indexer_types", &indexers)
	unknown := map[string]int{}
	for i, kind := range kinds {
		l := full
		switch kind {
		case "full_attention", "attention", "global", "deepseek_sparse_attention":
			switch {
			case l.Kind == DSA && i < len(indexers):
				l.SharedIndex = indexers[i] == "shared"
			case l.Kind == DSA && freq > 1:
				l.SharedIndex = int64(i)%freq != 0
			}
		case "sliding_attention", "chunked_attention", "local":
			l.Kind, l.Window = SWA, max(window, c.num("attention_chunk_size"))
			if l.LoraRank > 0 || l.Window == 0 {
				unknown[kind]++
				continue
			}
		case "linear_attention":
			lin, ok := c.gdn()
			if !ok {
				unknown[kind]++
				continue
			}
			l = lin
		default:
			unknown[kind]++
			continue
		}
		add(l)
	}
	m.Layers = out
	if len(unknown) > 0 {
		var parts []string
		for k, n := range unknown {
			parts = append(parts, fmt.Sprintf("%d of kind %q", n, k))
		}
		sort.Strings(parts)
		m.Unknown["layers"] = "layers that are not understood: " + strings.Join(parts, ", ")
	}
	if len(out) == 0 {
		c.errs = append(c.errs, fmt.Errorf("no layer is understood: %s", m.Unknown["layers"]))
	}
}

// fullLayer is the layer that attends to everything.
func (c *hfConfig) fullLayer() Layers {
	heads := c.num("num_attention_heads")
	if rank := c.num("kv_lora_rank"); rank > 0 {
		l := Layers{Kind: MLA, LoraRank: rank, RopeDim: c.num("qk_rope_head_dim")}
		c.num("q_lora_rank", "qk_nope_head_dim")
		c.num("qk_nope_head_dim")
		c.num("v_head_dim")
		if dim := c.num("index_head_dim"); dim > 0 {
			l.Kind, l.IndexDim, l.IndexHeads, l.TopK = DSA, dim, c.num("index_n_heads"), c.num("index_topk")
		}
		return l
	}
	l := Layers{Kind: MHA, KVHeads: c.num("num_key_value_heads", "num_kv_heads"), HeadDim: c.num("head_dim"), VHeadDim: c.num("v_head_dim")}
	if l.KVHeads == 0 {
		l.KVHeads = heads
	}
	if hidden := c.num("hidden_size"); l.HeadDim == 0 && heads > 0 {
		l.HeadDim = hidden / heads
	}
	if l.VHeadDim == l.HeadDim {
		l.VHeadDim = 0
	}
	return l
}

// layerKinds says of every layer how it attends.
func (c *hfConfig) layerKinds(n int64) []string {
	var kinds []string
	if c.into("layer_types", &kinds) {
		if int64(len(kinds)) != n {
			c.errs = append(c.errs, fmt.Errorf("layer_types has %d entries for %d layers", len(kinds), n))
		}
		return kinds
	}
	kinds = slices.Repeat([]string{"full_attention"}, int(n))
	every := c.num("full_attention_interval", "sliding_window_pattern")
	other := "linear_attention"
	if c.raw["sliding_window_pattern"] != nil {
		other = "sliding_attention"
	}
	for i := range kinds {
		if every > 1 && (int64(i)+1)%every != 0 {
			kinds[i] = other
		}
	}
	return kinds
}

// gdn is a gated-delta-net layer: a state of key x value dimensions for every value head in
// fp32, and a convolution over queries, keys and values in bf16.
func (c *hfConfig) gdn() (Layers, bool) {
	kh, vh := c.num("linear_num_key_heads"), c.num("linear_num_value_heads")
	kd, vd := c.num("linear_key_head_dim"), c.num("linear_value_head_dim")
	conv := c.num("linear_conv_kernel_dim")
	if vh == 0 || kd == 0 || vd == 0 {
		return Layers{}, false
	}
	return Layers{Kind: Linear, StateBytes: vh * kd * vd * 4, ConvBytes: (2*kh*kd + vh*vd) * max(0, conv-1) * 2}, true
}

// kda reads Kimi's linear attention: its layers are listed, the others are full.
func (c *hfConfig) kda(m *Model, n int64, full Layers) {
	var cfg struct {
		KDA  []int64 `json:"kda_layers"`
		Full []int64 `json:"full_attn_layers"`
		Num  int64   `json:"num_heads"`
		Dim  int64   `json:"head_dim"`
		Conv int64   `json:"short_conv_kernel_size"`
	}
	if !c.into("linear_attn_config", &cfg) {
		return
	}
	if cfg.Num <= 0 || cfg.Dim <= 0 || cfg.Num > 1<<16 || cfg.Dim > 1<<16 || int64(len(cfg.KDA)) > n {
		c.errs = append(c.errs, errors.New("linear_attn_config has no num_heads and head_dim, or more layers than the model"))
		return
	}
	lin := Layers{Kind: Linear, Count: int64(len(cfg.KDA)), StateBytes: cfg.Num * cfg.Dim * cfg.Dim * 4, ConvBytes: 3 * cfg.Num * cfg.Dim * max(0, cfg.Conv-1) * 2}
	full.Count = n - lin.Count
	if full.Count > 0 {
		m.Layers = append(m.Layers, full)
	}
	if lin.Count > 0 {
		m.Layers = append(m.Layers, lin)
	}
}

// sparse reads MiniMax-M3's block-sparse layers: a list says which they are.
func (c *hfConfig) sparse(m *Model, n int64, full Layers) {
	var cfg struct {
		Use  *bool   `json:"use_sparse_attention"`
		Dim  int64   `json:"sparse_index_dim"`
		Num  int64   `json:"sparse_num_index_heads"`
		Freq []int64 `json:"sparse_attention_freq"`
	}
	if !c.into("sparse_attention_config", &cfg) {
		return
	}
	var sparse int64
	for _, f := range cfg.Freq[:min(int64(len(cfg.Freq)), n)] {
		if f != 0 {
			sparse++
		}
	}
	if cfg.Use != nil && !*cfg.Use {
		sparse = 0
	} else if sparse == 0 || cfg.Dim <= 0 || cfg.Dim > 1<<20 {
		m.Unknown["layers"] = "sparse_attention_config names no sparse_attention_freq and sparse_index_dim"
		sparse = 0
	}
	if full.Count = n - sparse; full.Count > 0 {
		m.Layers = append(m.Layers, full)
	}
	if sparse > 0 {
		l := full
		l.Kind, l.Count, l.IndexDim, l.IndexHeads = Sparse, sparse, cfg.Dim, cfg.Num
		m.Layers = append(m.Layers, l)
	}
}

// compressed reads DeepSeek-V4's list of compression ratios, one for each layer.
func (c *hfConfig) compressed(m *Model, n int64) {
	var ratios []int64
	if !c.into("compress_ratios", &ratios) {
		return
	}
	counts := map[int64]int64{}
	for _, r := range ratios[:min(int64(len(ratios)), n)] { // draft layers may follow
		counts[r]++
	}
	base := Layers{Kind: DSV4, KVHeads: 1, HeadDim: c.num("head_dim"), RopeDim: c.num("qk_rope_head_dim"), Window: c.num("sliding_window")}
	var odd []string
	for _, r := range []int64{0, 4, 128} { // 0: the window alone
		if counts[r] > 0 {
			l := base
			l.Count, l.Compress = counts[r], r
			if r == 4 {
				l.IndexDim, l.IndexHeads, l.TopK = c.num("index_head_dim"), c.num("index_n_heads"), c.num("index_topk")
			}
			m.Layers = append(m.Layers, l)
		}
		delete(counts, r)
	}
	for r, k := range counts {
		odd = append(odd, fmt.Sprintf("%d layers of ratio %d", k, r))
	}
	if len(odd) > 0 {
		sort.Strings(odd)
		m.Unknown["layers"] = "compression that is not understood: " + strings.Join(odd, ", ")
	}
	if len(m.Layers) == 0 {
		c.errs = append(c.errs, errors.New("compress_ratios names no ratio of 0, 4 or 128"))
	}
}

func (c *hfConfig) experts(m *Model, n int64) {
	e := c.num("n_routed_experts", "num_experts", "num_local_experts")
	if e == 0 {
		return
	}
	m.MoE = MoE{Layers: n - c.num("first_k_dense_replace"), Experts: e, TopK: c.num("num_experts_per_tok", "num_experts_per_token", "experts_per_token"),
		Shared: c.num("n_shared_experts", "num_shared_experts"), Dim: c.num("moe_intermediate_size")}
	if m.MoE.Dim == 0 {
		m.MoE.Dim = c.num("intermediate_size")
	}
	var dense []int64
	if c.into("mlp_only_layers", &dense) {
		m.MoE.Layers -= int64(len(dense))
	}
	var kinds []string
	if c.into("mlp_layer_types", &kinds) && len(kinds) > 0 {
		m.MoE.Layers = 0
		for _, k := range kinds {
			if k == "sparse" {
				m.MoE.Layers++
			}
		}
	}
	var freq []int64
	if v := c.raw["moe_layer_freq"]; len(v) > 0 && v[0] == '[' && c.into("moe_layer_freq", &freq) {
		m.MoE.Layers = 0
		for _, f := range freq {
			if f != 0 {
				m.MoE.Layers++
			}
		}
	}
	m.MoE.Layers = max(0, m.MoE.Layers)
}

// harmless are keys that speak of attention and do not change what is cached.
var harmless = []string{"attention_bias", "attention_dropout", "attn_implementation", "_attn_implementation", "attn_output_gate",
	"use_sliding_window", "max_window_layers", "index_topk_pattern", "index_topk", "index_n_heads", "index_share_for_mtp_iteration", "attn_res_block_size", "latent_moe_use_norm", "attention_output_gate", "num_attention_heads", "num_key_value_heads", "compress_rope_theta", "attn_temperature", "attn_logit_softcapping",
	"attn_factor", "attn_scale", "query_pre_attn_scalar", "use_qk_norm", "sliding_window", "swa_rope_theta", "use_attention_sinks", "attention_out_bias",
	"q_lora_rank", "o_lora_rank", "indexer_rope_interleave", "index_skip_topk_offset", "mamba_ssm_dtype", "initializer_range", "attention_chunk_size"}

// ignored lists keys that were not read and look as if they said what is cached.
func (c *hfConfig) ignored() []string {
	var out []string
	for k := range c.raw {
		if c.used[k] || slices.Contains(harmless, k) {
			continue
		}
		for _, hint := range []string{"attn", "attention", "index_", "compress", "conv_kernel", "conv_size", "ssm", "mamba", "linear_", "sparse", "window", "hybrid", "latent",
			"kv_", "_kv", "key_value", "lora_rank", "block_type", "layer_type", "layers_type", "shared_layers", "cross_", "_state", "state_"} {
			if strings.Contains(k, hint) {
				out = append(out, k)
				break
			}
		}
	}
	sort.Strings(out)
	return out
}

// AddSafetensorsIndex takes the size of the weights from a model.safetensors.index.json.
func (m *Model) AddSafetensorsIndex(name string, b []byte, precision string) error {
	var index struct {
		Metadata struct {
			TotalSize json.Number `json:"total_size"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(b, &index); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	n, err := index.Metadata.TotalSize.Int64()
	if err != nil || n <= 0 {
		return fmt.Errorf("%s: metadata.total_size %q is not a size in bytes", name, index.Metadata.TotalSize)
	}
	m.WeightBytes = map[string]int64{precision: n}
	delete(m.Unknown, "weight_bytes")
	m.Sources["weight_bytes"] = Source{Where: name, Date: m.Sources["*"].Date, Grade: "source"}
	return nil
}
