package facts

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

// list is n times a JSON value for every rule of a layer.
func list(n int, value func(int) any) string {
	out := make([]any, n)
	for i := range out {
		out[i] = value(i)
	}
	b, err := json.Marshal(out)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// Configs in the form that the published repositories have describe the same layers as the
// embedded facts.
func TestHFConfigMatchesFacts(t *testing.T) {
	kdaLayers := list(69, func(i int) any { return i })
	for name, text := range map[string]string{
		"deepseek-r1": `{"model_type":"deepseek_v3","num_hidden_layers":61,"hidden_size":7168,"num_attention_heads":128,"num_key_value_heads":128,"kv_lora_rank":512,
			"q_lora_rank":1536,"qk_rope_head_dim":64,"qk_nope_head_dim":128,"v_head_dim":128,"max_position_embeddings":163840,"num_nextn_predict_layers":1,
			"n_routed_experts":256,"num_experts_per_tok":8,"n_shared_experts":1,"moe_intermediate_size":2048,"first_k_dense_replace":3,"attention_bias":false}`,
		"glm-5.2": `{"model_type":"glm_moe_dsa","num_hidden_layers":78,"hidden_size":6144,"num_attention_heads":64,"num_key_value_heads":64,"head_dim":192,"kv_lora_rank":512,
			"q_lora_rank":2048,"qk_rope_head_dim":64,"qk_nope_head_dim":192,"v_head_dim":256,"index_head_dim":128,"index_n_heads":32,"index_topk":2048,"index_topk_freq":4,
			"index_skip_topk_offset":3,"max_position_embeddings":1048576,"num_nextn_predict_layers":1,"n_routed_experts":256,"num_experts_per_tok":8,"n_shared_experts":1,
			"moe_intermediate_size":2048,"first_k_dense_replace":3,"indexer_types":` + list(78, func(i int) any {
			if max(i-2, 0)%4 != 0 {
				return "shared"
			}
			return "full"
		}) + `}`,
		"kimi-k3": `{"model_type":"kimi_k3","text_config":{"num_hidden_layers":93,"hidden_size":7168,"num_attention_heads":96,"kv_lora_rank":512,"qk_rope_head_dim":64,
			"max_position_embeddings":1048576,"num_experts":896,"num_experts_per_token":16,"num_shared_experts":2,"moe_intermediate_size":3072,"first_k_dense_replace":1,
			"linear_attn_config":{"kda_layers":` + kdaLayers + `,"full_attn_layers":[1],"head_dim":128,"num_heads":96,"short_conv_kernel_size":4}},"vision_config":{"num_hidden_layers":1}}`,
		"qwen3.5-397b-a17b": `{"text_config":{"model_type":"qwen3_5_moe","num_hidden_layers":60,"hidden_size":4096,"num_attention_heads":32,"num_key_value_heads":2,"head_dim":256,
			"max_position_embeddings":262144,"mtp_num_hidden_layers":1,"num_experts":512,"num_experts_per_tok":10,"moe_intermediate_size":1024,
			"linear_num_key_heads":16,"linear_num_value_heads":64,"linear_key_head_dim":128,"linear_value_head_dim":128,"linear_conv_kernel_dim":4,
			"layer_types":` + list(60, func(i int) any {
			if (i+1)%4 == 0 {
				return "full_attention"
			}
			return "linear_attention"
		}) + `}}`,
		"minimax-m3": `{"model_type":"minimax_m3_vl","text_config":{"num_hidden_layers":60,"hidden_size":6144,"num_attention_heads":64,"num_key_value_heads":4,"head_dim":128,
			"max_position_embeddings":1048576,"num_local_experts":128,"num_experts_per_tok":4,"n_shared_experts":1,"intermediate_size":3072,
			"moe_layer_freq":` + list(60, func(i int) any { return min(i/3, 1) }) + `,"sparse_attention_config":{"use_sparse_attention":true,"sparse_index_dim":128,
			"sparse_num_index_heads":4,"sparse_attention_freq":` + list(60, func(i int) any { return min(i/3, 1) }) + `}}}`,
		"deepseek-v4-pro": `{"model_type":"deepseek_v4","num_hidden_layers":61,"hidden_size":7168,"num_attention_heads":128,"num_key_value_heads":1,"head_dim":512,
			"qk_rope_head_dim":64,"q_lora_rank":1536,"sliding_window":128,"index_head_dim":128,"index_n_heads":64,"index_topk":1024,"max_position_embeddings":1048576,
			"num_nextn_predict_layers":1,"n_routed_experts":384,"num_experts_per_tok":6,"n_shared_experts":1,"moe_intermediate_size":3072,"compress_ratios":` + list(62, func(i int) any {
			if i%2 == 1 {
				return 4
			}
			return 128
		}) + `}`,
		"llama-3.1-70b": `{"model_type":"llama","num_hidden_layers":80,"hidden_size":8192,"num_attention_heads":64,"num_key_value_heads":8,"max_position_embeddings":131072,"attention_dropout":0}`,
		"gpt-oss-120b": `{"model_type":"gpt_oss","num_hidden_layers":36,"hidden_size":2880,"num_attention_heads":64,"num_key_value_heads":8,"head_dim":64,"sliding_window":128,
			"max_position_embeddings":131072,"num_local_experts":128,"num_experts_per_tok":4,"intermediate_size":2880,"layer_types":` + list(36, func(i int) any {
			if i%2 == 0 {
				return "sliding_attention"
			}
			return "full_attention"
		}) + `}`,
	} {
		want, err := ModelByName(name)
		if err != nil {
			t.Error(err)
			continue
		}
		got, err := ParseHFConfig(name+".json", []byte(text), "2026-08-21")
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if why := got.Unknown["layers"]; why != "" {
			t.Errorf("%s: %s", name, why)
		}
		for _, k := range []AttentionKind{MHA, MLA, DSA, DSV4, SWA, Sparse, Linear} {
			a, b := sum(got.Layers, k), sum(want.Layers, k)
			if !reflect.DeepEqual(a, b) {
				t.Errorf("%s %s layers:\n%+v, want\n%+v", name, k, a, b)
			}
		}
		if got.Hidden != want.Hidden || got.Heads != want.Heads || got.MaxContext != want.MaxContext || got.DraftLayers != want.DraftLayers {
			t.Errorf("%s: %+v", name, got)
		}
		if g, w := got.MoE, want.MoE; g.Layers != w.Layers || g.Experts != w.Experts || g.TopK != w.TopK || g.Dim != w.Dim {
			t.Errorf("%s: experts %+v, want %+v", name, g, w)
		}
		if got.WeightBytes != nil || got.Unknown["weight_bytes"] == "" {
			t.Errorf("%s: weights %v are not in a config", name, got.WeightBytes)
		}
	}
}

// sum joins the layers of a kind, by what else they are.
func sum(layers []Layers, k AttentionKind) map[Layers]int64 {
	out := map[Layers]int64{}
	for _, l := range layers {
		if l.Kind == k {
			n := l.Count
			l.Count, l.TopK = 0, 0
			out[l] += n
		}
	}
	return out
}

func TestHFConfigSaysWhatItDoesNotKnow(t *testing.T) {
	base := `"num_hidden_layers":2,"hidden_size":64,"num_attention_heads":4`
	for text, want := range map[string]string{
		`{` + base + `,"layer_types":["full_attention","wave_attention"]}`:          `1 of kind "wave_attention"`,
		`{` + base + `,"layer_types":["full_attention","linear_attention"]}`:        `1 of kind "linear_attention"`,
		`{` + base + `,"mamba_d_state":128,"attn_new_trick":3}`:                     "attn_new_trick, mamba_d_state",
		`{` + base + `,"num_kv_shared_layers":10,"layers_block_type":["x"]}`:        "layers_block_type, num_kv_shared_layers",
		`{` + base + `,"kv_lora_rank_foo":512}`:                                     "kv_lora_rank_foo",
		`{` + base + `,"compress_ratios":[4,9],"head_dim":64,"sliding_window":8}`:   "1 layers of ratio 9",
		`{` + base + `,"sparse_attention_config":{"use_sparse_attention":true}}`:    "sparse_attention_config",
		`{` + base + `,"layer_types":["full_attention","chunked_attention"],"x":1}`: `1 of kind "chunked_attention"`,
	} {
		m, err := ParseHFConfig("x", []byte(text), "2026-08-21")
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if !strings.Contains(m.Unknown["layers"], want) {
			t.Errorf("%s: %q, want %q", text, m.Unknown["layers"], want)
		}
	}
	for text, want := range map[string]string{
		`{`: "unexpected end", `[]`: "cannot unmarshal", `{}`: "num_hidden_layers is missing", `{"num_hidden_layers":1e9}`: "num_hidden_layers",
		`{` + base + `,"layer_types":["full_attention"]}`: "1 entries for 2 layers", `{` + base + `,"head_dim":"x"}`: "head_dim is not a whole number",
		`{` + base + `,"num_key_value_heads":-1}`: "out of range", `{"num_hidden_layers":2}`: "kv_heads",
		`{` + base + `,"layer_types":["wave","wave"]}`: "no layer is understood", `{` + base + `,"text_config":[]}`: "text_config",
		`{` + base + `,"compress_ratios":[9,9]}`: "names no ratio", `{` + base + `,"linear_attn_config":{}}`: "no num_heads",
	} {
		if _, err := ParseHFConfig("x", []byte(text), "2026-08-21"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

func TestSafetensorsIndex(t *testing.T) {
	m := &Model{Unknown: map[string]string{"weight_bytes": "x"}, Sources: map[string]Source{"*": {Date: "2026-08"}}}
	if err := m.AddSafetensorsIndex("i", []byte(`{"metadata":{"total_size":465000000000},"weight_map":{}}`), "fp4"); err != nil {
		t.Fatal(err)
	}
	if m.WeightBytes["fp4"] != 465e9 || m.Unknown["weight_bytes"] != "" || m.Source("weight_bytes").Where != "i" {
		t.Errorf("%+v", m)
	}
	for _, bad := range []string{`{`, `{}`, `{"metadata":{"total_size":-1}}`, `{"metadata":{"total_size":"many"}}`} {
		if err := m.AddSafetensorsIndex("i", []byte(bad), "fp4"); err == nil {
			t.Errorf("%s is accepted", bad)
		}
	}
}

func FuzzParseHFConfig(f *testing.F) {
	f.Add([]byte(`{"num_hidden_layers":2,"hidden_size":64,"num_attention_heads":4,"layer_types":["full_attention","linear_attention"]}`))
	f.Add([]byte(`{"num_hidden_layers":2,"compress_ratios":[4,128],"head_dim":64,"sliding_window":8,"linear_attn_config":{"kda_layers":[1],"num_heads":2,"head_dim":2}}`))
	f.Add([]byte(`{"num_hidden_layers":2,"hidden_size":64,"num_attention_heads":4,"sparse_attention_config":{"sparse_index_dim":8,"sparse_attention_freq":[0,1]}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := ParseHFConfig("fuzz", b, "2026-08-21")
		if err != nil {
			return
		}
		if m.NumLayers() <= 0 {
			t.Error("a model without layers")
		}
		for i := range m.Layers {
			if err := m.Layers[i].check(); err != nil {
				t.Error(err)
			}
		}
	})
}
