package plan

import (
	"errors"
	"strings"
	"testing"

	"github.com/weirbench/weir/internal/facts"
	"github.com/weirbench/weir/internal/spec"
)

// Bytes of KV for a token on one rank, as section 6 of the engines reference tabulates them.
func TestKVBytesPerRank(t *testing.T) {
	for _, c := range []struct {
		model, dtype string
		tp           [4]int64 // at TP 1, 2, 4 and 8
		index        int64    // side pool, on every rank
	}{
		{"deepseek-r1", "fp8", [4]int64{35_136, 35_136, 35_136, 35_136}, 0},
		{"kimi-k2.6", "bf16", [4]int64{70_272, 70_272, 70_272, 70_272}, 0},
		{"deepseek-v3.2", "fp8", [4]int64{35_136, 35_136, 35_136, 35_136}, 8_052},
		{"glm-5.2", "fp8", [4]int64{44_928, 44_928, 44_928, 44_928}, 10_296},
		{"glm-5", "bf16", [4]int64{89_856, 89_856, 89_856, 89_856}, 10_296},
		{"kimi-k3", "fp8", [4]int64{13_824, 13_824, 13_824, 13_824}, 0},
		{"qwen3.5-397b-a17b", "fp8", [4]int64{15_360, 7_680, 7_680, 7_680}, 0},
		{"qwen3.5-397b-a17b", "bf16", [4]int64{30_720, 15_360, 15_360, 15_360}, 0},
		{"minimax-m2.5", "fp8", [4]int64{126_976, 63_488, 31_744, 15_872}, 0},
		{"minimax-m3", "fp8", [4]int64{61_440, 30_720, 15_360, 15_360}, 14_592},
		{"llama-3.1-70b", "bf16", [4]int64{327_680, 163_840, 81_920, 40_960}, 0},
		{"qwen3-235b-a22b", "bf16", [4]int64{192_512, 96_256, 48_128, 48_128}, 0},
		{"qwen3-coder-480b-a35b", "bf16", [4]int64{253_952, 126_976, 63_488, 31_744}, 0},
		{"gpt-oss-120b", "bf16", [4]int64{36_864, 18_432, 9_216, 4_608}, 0},
	} {
		m := model(t, c.model)
		kv, err := parseElem("kv-dtype", c.dtype)
		if err != nil {
			t.Fatal(err)
		}
		b := &bench{p: &spec.Point{}, model: m}
		for i, tp := range []int64{1, 2, 4, 8} {
			shapes := b.shapes(Spread{AttnTP: tp, PP: 1}, settings{kv: kv, index: 32, layerSplit: 1})
			equal(t, c.model+" "+c.dtype+" kv", shapes[0].bytes, c.tp[i])
			var index int64
			for _, s := range shapes {
				if s.name == "indexer" {
					index = s.bytes
				}
			}
			equal(t, c.model+" index", index, c.index)
		}
	}
}

// State of one sequence: Kimi-K3 434 MB fp32 and 15.3 MB of convolution over all ranks,
// 56.2 MB a rank at TP8; Qwen3.5 188.7 and 3.3 MB.
func TestSequenceState(t *testing.T) {
	for _, c := range []struct {
		model string
		tp    int64
		want  int64
	}{{"kimi-k3", 1, 449_371_000}, {"kimi-k3", 8, 56_200_000}, {"qwen3.5-397b-a17b", 1, 192_061_000}, {"qwen3.5-397b-a17b", 8, 24_008_000}} {
		b := &bench{p: &spec.Point{}, model: model(t, c.model)}
		got, formula := b.seqState(Spread{AttnTP: c.tp, PP: 1}, settings{state: 64})
		near(t, c.model, got, c.want, 0.001)
		if formula == "" {
			t.Error("no formula")
		}
	}
}

// Latent caches are copies on every rank, DP attention makes them distinct, DCP shares them.
func TestUniqueTokens(t *testing.T) {
	p := glm("cluster:b200-dgxc", 8, 2399)
	p.Weir.KVDType = "fp8"
	d := mustCompute(t, p, Options{}).Serving().Device
	equal(t, "tp8", d.UniqueTokens, d.Tokens)
	p.Unified.DPAttn, p.Unified.EP = true, 8
	d = mustCompute(t, p, Options{}).Serving().Device
	equal(t, "dep8", d.UniqueTokens, 8*d.Tokens)
	k := &spec.Point{Key: "k3", ModelPrefix: "kimik3", Precision: "fp4", Framework: "vllm", Runner: "cluster:b300-nv", Conc: 4,
		Unified: &spec.Parallel{TP: 8, PP: 1, EP: 1, DCP: 8, PCP: 1}}
	d = mustCompute(t, k, Options{}).Serving().Device
	equal(t, "dcp8", d.UniqueTokens, 8*d.Tokens)
}

// A Mooncake store keeps a latent once over all ranks; heads of GQA once each.
func TestMooncakeKeepsContentOnce(t *testing.T) {
	p := &spec.Point{Key: "m3", ModelPrefix: "minimaxm3", Precision: "fp8", Framework: "vllm", Runner: "cluster:h200-dgxc", Conc: 4,
		Unified: par(8), Offload: spec.Offload{Mode: "dram", Backend: spec.Component{Name: "mooncake"}, BudgetGB: 1234}}
	p.Weir.HostBytesPerRank = 100 << 30
	r := mustCompute(t, p, Options{}).Serving()
	equal(t, "flag", r.Host.Flag, `"global_segment_size": "100GB"`)
	// 8 x 100 GiB x 0.80 over 4 distinct heads of (15,360 + 14,592 B)
	per := r.BytesPerToken
	near(t, "unique", r.Host.UniqueTokens, 8*100*(1<<30)/5*4/(4*per), 0.001)
	equal(t, "a rank with its buffer", r.Host.Bytes, 104<<30)
}

func TestEngineRejects(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(*spec.Point)
		want string
	}{
		"heads":          {func(p *spec.Point) { p.Unified.TP = 7 }, "tp 7 does not divide the 64 query heads"},
		"node":           {func(p *spec.Point) { p.Unified.TP = 16 }, "needs 16 GPUs, but a node of cluster:b200-dgxc has 8"},
		"ratio":          {func(p *spec.Point) { p.Weir.HostRatioPPM = -1 }, "negative"},
		"below one GB":   {func(p *spec.Point) { p.Weir.HostBytesPerRank = 5e8 }, "whole GB"},
		"no such tier":   {func(p *spec.Point) { p.Offload.Backend.Name = "native" }, `sglang has no host tier "native"`},
		"no tier at all": {func(p *spec.Point) { p.Framework = "tilert"; p.Weir.MemFractionPPM = 900_000 }, "tilert has no host tier"},
	} {
		p := glm("cluster:b200-dgxc", 8, 2399)
		c.edit(p)
		v := mustCompute(t, p, Options{})
		equal(t, name, v.Status, EngineRejects)
		f, _ := found(v, EngineRejects)
		if !strings.Contains(f.Reason, c.want) || f.Change == "" {
			t.Errorf("%s: reason %q, change %q", name, f.Reason, f.Change)
		}
	}
}

func TestWhatMakesNoSense(t *testing.T) {
	for name, c := range map[string]struct {
		edit    func(*spec.Point)
		want    string
		unknown bool
	}{
		"size without a tier": {func(p *spec.Point) { p.Offload = spec.Offload{Mode: "none"}; p.Weir.HostRatioPPM = 1e6 }, `kv-offloading is "none"`, false},
		"two sizes":           {func(p *spec.Point) { p.Weir.HostRatioPPM = 1e6; p.Weir.HostBytesPerRank = 1e9 }, "keep one", false},
		"kv type":             {func(p *spec.Point) { p.Weir.KVDType = "int3" }, `kv-dtype "int3" is not known`, false},
		"policy":              {func(p *spec.Point) { p.Weir.WritePolicy = "sometimes" }, "write-policy", false},
		"fraction":            {func(p *spec.Point) { p.Weir.MemFractionPPM = 1_000_001 }, "mem-fraction", false},
		"tp":                  {func(p *spec.Point) { p.Unified.TP = 0 }, "tp 0", false},
		"no worker":           {func(p *spec.Point) { p.Unified = nil }, "no workers", false},
		"other hardware": {func(p *spec.Point) {
			p.Unified, p.Multinode = nil, true
			p.Prefill = &spec.Worker{Parallel: *par(8), Workers: 1, Hardware: "gb200"}
		}, "hardware gb200, but runner cluster:b200-dgxc has b200", false},
		"runner":    {func(p *spec.Point) { p.Runner = "cluster:x100-nowhere" }, `runner "cluster:x100-nowhere"`, true},
		"model":     {func(p *spec.Point) { p.ModelPrefix, p.Model = "mystery", "who/knows" }, `model-prefix "mystery"`, true},
		"framework": {func(p *spec.Point) { p.Framework = "mystery" }, `framework "mystery"`, true},
		"host":      {func(p *spec.Point) { p.Runner = "b200" }, "available-cpu-dram-mib", true},
	} {
		p := glm("cluster:b200-dgxc", 8, 2399)
		c.edit(p)
		_, err := Compute(p, Options{})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		equal(t, name+" is a missing fact", errors.Is(err, facts.ErrUnknown), c.unknown)
	}
	if _, err := Compute(nil, Options{}); err == nil {
		t.Error("a nil point is planned")
	}
}

// The same flag pins 23 % more after an image bump: until February 2026 it counted the index.
func TestSidecarRuleByVersion(t *testing.T) {
	for image, c := range map[string]struct {
		counted bool
		warns   bool
	}{
		"lmsysorg/sglang:v0.5.16-cu130":                        {false, false},
		"lmsysorg/sglang:nightly-dev-cu13-20260805-211ee642":   {false, false},
		"lmsysorg/sglang:v0.5.8":                               {true, false},
		"lmsysorg/sglang:nightly-dev-20260215-abcdef0":         {true, false},
		"lmsysorg/sglang:v0.5.12-cu130":                        {false, true},
		"lmsysorg/sglang:latest":                               {false, true},
		"lmsysorg/sglang-rocm:v0.5.17-rocm720-mi35x-20260813":  {false, false},
		"registry:5000/lmsysorg/sglang:v0.5.16.post1-cu130-x1": {false, false},
	} {
		p := glm("cluster:b300-nv", 8, 2399)
		p.Image, p.Weir.HostBytesPerRank = image, 200e9
		v := mustCompute(t, p, Options{})
		equal(t, image, hostPool(t, v.Serving(), "indexer").Counted, c.counted)
		equal(t, image+" warns", warned(v, "sidecar-rule"), c.warns)
		want := int64(200e9)
		if !c.counted {
			want = want * 55_224 / 44_928
		}
		near(t, image, v.Serving().Host.Bytes, want, 0.0001)
	}
}

func TestParseVersion(t *testing.T) {
	for image, want := range map[string]string{
		"lmsysorg/sglang:v0.5.16-cu130":                             "v0.5.16",
		"vllm/vllm-openai:kimi-k3":                                  "",
		"nvcr.io/nvidia/tensorrt-llm/release:1.3.0rc23.post1":       "v1.3.0",
		"lmsysorg/sglang:nightly-dev-cu13-20260719-99f5a6f4":        "20260719",
		"rocm/atom-dev:nightly_202608201032":                        "20260820",
		"vllm/vllm-openai:v0.21.0-ubuntu2404":                       "v0.21.0",
		"nvcr.io/nvidia/ai-dynamo/tensorrtllm-runtime:0.8.1.post1":  "v0.8.1",
		"vllm/vllm-openai:nightly-ac7509e2b1db40fec2f03dde1ed4e9df": "",
	} {
		equal(t, image, ParseVersion(image).Text, want)
	}
	if v := ParseVersion("a:v0.5.16"); !v.AtLeast(0, 5, 16) || v.AtLeast(0, 5, 17) || v.AtLeast(1, 0, 0) || !v.AtLeast(0, 4, 99) {
		t.Errorf("%+v is ordered wrongly", v)
	}
}

func TestNormaliseHiCache(t *testing.T) {
	for _, c := range [][5]string{
		{"kernel", "page_first_direct", "", "direct", "page_first_direct"},
		{"direct", "page_first", "", "direct", "page_first_direct"},
		{"kernel", "page_first", "", "kernel", "page_first"},
		{"kernel", "layer_first", "mooncake", "kernel", "page_first"},
		{"direct", "layer_first", "mooncake", "direct", "page_first_direct"},
		{"direct", "layer_first", "", "direct", "layer_first"},
	} {
		io, layout := NormaliseHiCache(c[0], c[1], c[2])
		if io != c[3] || layout != c[4] {
			t.Errorf("%v -> %s %s", c, io, layout)
		}
	}
}

// The recipe of DeepSeek-V4 on MI355X asks for page_first with direct I/O, which SGLang rewrites.
func TestNormalisedRecipeWarns(t *testing.T) {
	p := dsv4("cluster:mi355x-amds", 8)
	p.Framework, p.Multinode, p.Disagg, p.Unified = "sglang-disagg", true, true, nil
	p.Prefill = &spec.Worker{Parallel: *par(8), Workers: 1}
	p.Decode = &spec.Worker{Parallel: *par(8), Workers: 1}
	p.Offload = spec.Offload{Mode: "dram", Backend: spec.Component{Name: "hicache"}, BudgetGB: 2399}
	v := mustCompute(t, p, Options{AsRecipe: true})
	if !warned(v, "normalised") {
		t.Errorf("no warning: %+v", v.Warnings)
	}
	equal(t, "flag", v.Serving().Host.Flag, "--hicache-ratio 3")
	equal(t, "decode keeps no prefixes", v.Roles[1].Host == nil, true)
}

// --hicache-size is decimal: a size that is whole GiB was meant for another engine.
func TestGiBFedToAGBFlag(t *testing.T) {
	p := glm("cluster:b300-nv", 8, 2399)
	p.Weir.HostBytesPerRank = 200 << 30
	v := mustCompute(t, p, Options{})
	equal(t, "flag", v.Serving().Host.Flag, "--hicache-size 214")
	equal(t, "unit", warned(v, "unit"), true)
	equal(t, "rounding", warned(v, "rounding"), true)
	p.Weir.HostBytesPerRank = 214e9
	equal(t, "unit", warned(mustCompute(t, p, Options{}), "unit"), false)
}

// Two workers on one node pin twice, and may: each brings its share.
func TestWorkersShareANode(t *testing.T) {
	p := glm("cluster:b200-dgxc", 4, 599)
	p.Multinode, p.Unified = true, nil
	p.Prefill = &spec.Worker{Parallel: *par(4), Workers: 3}
	p.Weir.KVDType, p.Weir.HostBytesPerRank = "fp8", 100e9
	r := mustCompute(t, p, Options{}).Serving()
	equal(t, "workers on a node", r.WorkersPerNode, 2)
	equal(t, "ranks", r.Node.Ranks, 8)
	equal(t, "allowed", r.Node.PolicyBytes.N, 2*599e9)
}
