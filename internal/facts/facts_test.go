package facts

import (
	"errors"
	"math"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/weirbench/weir/internal/material"
)

var (
	day    = regexp.MustCompile(`^20\d\d-\d\d(-\d\d)?$`)
	grades = []string{"source", "recipe", "computed", "estimate"}
)

func checkSource(t *testing.T, what string, s Source) {
	t.Helper()
	if s.Where == "" || !day.MatchString(s.Date) {
		t.Errorf("%s has no source or no date: %+v", what, s)
	}
	for _, g := range grades {
		if s.Grade == g {
			return
		}
	}
	t.Errorf("%s has grade %q", what, s.Grade)
}

// Every number says where it was read, when, and how good it is; every number that is missing
// says why.
func TestEveryNumberHasASource(t *testing.T) {
	s := Embedded()
	for i := range s.Models {
		m := &s.Models[i]
		fields(t, "model "+m.Name, reflect.ValueOf(m).Elem(), m.Source, m.Unknown,
			"draft_layers", "moe", "notes") // a model may have no draft, no experts
		if m.WeightBytes == nil || len(m.Prefixes) == 0 || len(m.Aliases) == 0 {
			t.Errorf("model %s has no weights, prefixes or aliases", m.Name)
		}
	}
	for i := range s.GPUs {
		g := &s.GPUs[i]
		fields(t, "gpu "+g.Name, reflect.ValueOf(g).Elem(), g.Source, g.Unknown, "host_link", "notes")
	}
	checkSource(t, "nodes", s.NodeSource)
	checkSource(t, "recipes", s.RecipeSource)
	for _, e := range s.Engines {
		checkSource(t, "fraction of "+e.Name, e.MemFraction.Source)
		if e.PageSize <= 0 || e.MemFraction.PPM <= 0 || e.KVDType == "" || e.WritePolicy == "" {
			t.Errorf("engine %+v", e)
		}
	}
	for _, r := range s.Reserves {
		checkSource(t, "reserve of "+r.Engine+" "+r.Model, r.Source)
	}
	for _, h := range s.HostProcesses {
		checkSource(t, "process of "+h.Engine, h.Source)
	}
	for _, r := range s.Recipes {
		if r.Script == "" && len(r.Configs) == 0 {
			t.Errorf("recipe %+v names no file", r)
		}
	}
}

// fields checks the yaml fields of a struct: set ones have a source, others a reason.
func fields(t *testing.T, what string, v reflect.Value, source func(string) Source, unknown map[string]string, optional ...string) {
	t.Helper()
	for i := range v.NumField() {
		name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("yaml"), ",")
		switch name {
		case "name", "prefixes", "aliases", "unknown", "sources", "expert_bytes":
			continue
		}
		if !v.Field(i).IsZero() {
			if name != "notes" && name != "host_link" {
				checkSource(t, what+" "+name, source(name))
			}
			continue
		}
		known := unknown[name] != ""
		for _, o := range optional {
			known = known || o == name
		}
		if !known {
			t.Errorf("%s: %s is missing and nothing says why", what, name)
		}
	}
}

// Experts computed from the layers, at the sizes of their types, as the entry says.
func TestExpertBytes(t *testing.T) {
	for _, m := range Embedded().Models {
		if m.MoE.Experts == 0 {
			continue
		}
		hidden := m.Hidden
		if m.Name == "kimi-k3" {
			hidden = 3584 // its experts work on a latent of that width
		}
		layer := float64(m.MoE.Experts * 3 * hidden * m.MoE.Dim)
		for precision, bytes := range m.ExpertBytes {
			var sizes []float64
			switch precision {
			case "fp8":
				sizes = []float64{1, 33. / 32, 17. / 32} // plain, MXFP8, and DeepSeek-V4's FP4 experts
			case "fp4":
				sizes = []float64{9. / 16, 17. / 32}
			case "int4":
				sizes = []float64{17. / 32}
			case "bf16":
				sizes = []float64{2}
			}
			ok := false
			for _, size := range sizes {
				for _, draft := range []float64{0, float64(m.DraftLayers) * size, float64(m.DraftLayers) * 2} {
					ok = ok || math.Abs(layer*(float64(m.MoE.Layers)*size+draft)-float64(bytes)) < 1e6
				}
			}
			if !ok {
				t.Errorf("%s %s: experts of %d bytes do not follow from %d layers of %.0f parameters", m.Name, precision, bytes, m.MoE.Layers, layer)
			}
			if total := m.WeightBytes[precision]; bytes > total {
				t.Errorf("%s %s: experts of %d in a checkpoint of %d", m.Name, precision, bytes, total)
			}
		}
	}
}

// Layer lists add up to the published depth.
func TestLayerCounts(t *testing.T) {
	for name, want := range map[string]int64{"deepseek-r1": 61, "deepseek-v4-pro": 61, "glm-5": 78, "glm-5.2": 78, "kimi-k2.6": 61, "kimi-k3": 93,
		"qwen3.5-397b-a17b": 60, "minimax-m2.5": 62, "minimax-m3": 60, "gpt-oss-120b": 36, "llama-3.1-70b": 80, "qwen3-235b-a22b": 94, "qwen3-coder-480b-a35b": 62} {
		m, err := ModelByName(name)
		if err != nil {
			t.Error(err)
			continue
		}
		if m.NumLayers() != want {
			t.Errorf("%s has %d layers, want %d", name, m.NumLayers(), want)
		}
	}
}

func TestLookups(t *testing.T) {
	for name, want := range map[string]string{"nvidia/GLM-5.2-NVFP4": "glm-5.2", "zai-org/glm-5.2-fp8": "glm-5.2", "GLM-5.2": "glm-5.2", "moonshotai/Kimi-K3": "kimi-k3",
		"deepseek-r1-fp4": "deepseek-r1", "Qwen/Qwen3.5-397B-A17B-FP8": "qwen3.5-397b-a17b"} {
		m, err := ModelByName(name)
		if err != nil || m.Name != want {
			t.Errorf("%s: %v %v", name, m, err)
		}
	}
	for runner, want := range map[string]string{"cluster:b200-dgxc": "b200", "b200": "b200", "b200-multinode": "b200", "cluster:mi325x-tw": "mi325x", "gb300": "gb300",
		"cluster:b300-cw": "b300", "rtx6000pro-lat": "rtx6000pro", "mi355x-disagg": "mi355x"} {
		g, err := GPUForRunner(runner)
		if err != nil || g.Name != want {
			t.Errorf("%s: %v %v", runner, g, err)
		}
	}
	for _, err := range []error{
		second(ModelByName("who/knows")), second(ModelByPrefix("mystery")), second(GPUByName("x100")), second(GPUForRunner("x100-nowhere")),
		second(NodeForRunner("cluster:mi325x-tw")), second(Embedded().EngineForFramework("mystery")),
	} {
		if !errors.Is(err, ErrUnknown) || !strings.Contains(err.Error(), "\n") && !strings.Contains(err.Error(), "--facts") {
			t.Errorf("%v does not show what to write", err)
		}
	}
	if n, err := NodeForRunner("cluster:b300-nv"); err != nil || n.DRAMBytes != 2_964_436<<20 {
		t.Errorf("%+v %v", n, err)
	}
}

func second[T any](_ T, err error) error { return err }

// The nodes are those of runners.yaml: every label with hardware, with the same memory, and
// every GPU of a label is known.
func TestNodesMatchRunners(t *testing.T) {
	b, err := os.ReadFile(material.Path(t, "inferencex", "runners.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Labels   map[string][]string `yaml:"labels"`
		Hardware map[string]struct {
			MiB  int64 `yaml:"available-cpu-dram-mib"`
			GPUs int64 `yaml:"gpus-per-node"`
		} `yaml:"hardware"`
	}
	if err := yaml.Unmarshal(b, &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Hardware) < 10 || len(file.Labels) < 20 {
		t.Fatalf("%d labels, %d hosts", len(file.Labels), len(file.Hardware))
	}
	for label, h := range file.Hardware {
		n, err := NodeForRunner(label)
		if err != nil {
			t.Error(err)
			continue
		}
		if n.DRAMBytes != h.MiB<<20 || n.GPUsPerNode != h.GPUs {
			t.Errorf("%s: %d bytes and %d GPUs, runners.yaml has %d MiB and %d", label, n.DRAMBytes, n.GPUsPerNode, h.MiB, h.GPUs)
		}
	}
	for label := range file.Labels {
		if _, err := GPUForRunner(label); err != nil {
			t.Error(err)
		}
	}
	for _, n := range Embedded().Nodes {
		if _, err := GPUByName(n.GPU); err != nil {
			t.Errorf("%s: %v", n.Cluster, err)
		}
	}
}

func TestExtend(t *testing.T) {
	s, err := Embedded().Extend("mine.yaml", []byte("gpus:\n  - {name: b200, hbm_bytes: 1}\n  - {name: x1, hbm_bytes: 2}\n"))
	if err != nil {
		t.Fatal(err)
	}
	if g, err := s.GPUByName("b200"); err != nil || g.HBMBytes != 1 {
		t.Errorf("%+v %v", g, err)
	}
	if g, err := s.GPUByName("X1"); err != nil || g.HBMBytes != 2 {
		t.Errorf("%+v %v", g, err)
	}
	if g, _ := GPUByName("b200"); g.HBMBytes == 1 {
		t.Error("the embedded facts changed")
	}
	if s, err := Embedded().Extend("empty", nil); err != nil || len(s.Models) != len(Embedded().Models) {
		t.Errorf("%v", err)
	}
	for text, want := range map[string]string{
		"gpus: [{name: a}]":   "hbm_bytes",
		"gpu: []":             "line 1",
		"models: [{name: a}]": "no layers",
		"models: [{name: a, layers: [{kind: mha, count: 1}]}]":                "kv_heads",
		"models: [{name: a, layers: [{kind: what, count: 1}]}]":               "unknown attention kind",
		"models: [{name: a, layers: [{kind: mla, count: -1, lora_rank: 1}]}]": "no layers",
		"nodes: [{cluster: a}]": "gpus_per_node",
		"models: [{layers: [{kind: mla, count: 1, lora_rank: 1}]}]": "no name",
	} {
		if _, err := Embedded().Extend("bad.yaml", []byte(text)); err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "bad.yaml") {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

func TestReserveAndRecipeMostSpecific(t *testing.T) {
	s := Embedded()
	if r := s.ReserveFor("sglang", "glm-5.2", "b200"); r == nil || r.GPU != "b200" {
		t.Errorf("%+v", r)
	}
	if r := s.ReserveFor("sglang", "glm-5.2", "h100"); r == nil || r.Model != "" {
		t.Errorf("%+v", r)
	}
	if r := s.ReserveFor("mystery", "", ""); r != nil {
		t.Errorf("%+v", r)
	}
	q := RecipeQuery{Model: "glm-5.2", Precision: "fp4", GPU: "b200", Framework: "sglang", Role: "unified", TP: 8, Conc: 16}
	if r := s.RecipeFor(q); r == nil || r.MemFractionPPM != 830_000 || r.Host.SizeGB != 270 {
		t.Errorf("%+v", r)
	}
	q.Conc = 4
	if r := s.RecipeFor(q); r == nil || r.Host.RatioPPM != 750_000 {
		t.Errorf("%+v", r)
	}
	q.Config = "recipes/sglang/glm5.2/gb300-fp4/agentic/glm5.2-agentx.yaml:zip_override_mtp_agentx_hightpt[0]"
	q.Role = "decode"
	if r := s.RecipeFor(q); r == nil || r.MemFractionPPM != 850_000 || r.MaxSeqs != 144 {
		t.Errorf("%+v", r)
	}
	q.Config = "recipes/nowhere.yaml"
	if r := s.RecipeFor(q); r != nil {
		t.Errorf("%+v", r)
	}
}

func FuzzExtend(f *testing.F) {
	for _, text := range []string{
		"models: [{name: a, prefixes: [b], layers: [{kind: mha, count: 1, kv_heads: 1, head_dim: 2}], weight_bytes: {fp8: 3}}]",
		"gpus: [{name: a, hbm_bytes: 1, sources: {\"*\": {where: x, date: 2026-08, grade: source}}}]",
		"nodes: [{cluster: a, runners: [b], gpu: c, gpus_per_node: 8}]\nsource: {where: x}",
		"engines: [{name: a, frameworks: [b], mem_fraction: {ppm: 1}}]",
		"recipes: [{model: a, host: {size_gb: 1}}]",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := Embedded().Extend("fuzz", b)
		if err == nil && len(s.Models) < len(Embedded().Models) {
			t.Error("facts got lost")
		}
	})
}
