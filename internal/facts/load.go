package facts

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"
)

//go:embed data/*.yaml
var data embed.FS

// A Set is a consistent collection of facts. Embedded returns the one in the binary; Extend
// adds a file to it. A Set is not changed after it is built and may be shared.
type Set struct {
	Models        []Model       `yaml:"models"`
	GPUs          []GPU         `yaml:"gpus"`
	Nodes         []Node        `yaml:"nodes"`
	NodeSource    Source        `yaml:"source"`
	Engines       []Engine      `yaml:"engines"`
	Reserves      []Reserve     `yaml:"reserves"`
	HostProcesses []HostProcess `yaml:"host_processes"`
	Recipes       []Recipe      `yaml:"recipes"`
	Acceptances   []Acceptance  `yaml:"acceptances"`
	RecipeSource  Source        `yaml:"recipe_source"`
	// Coefficients are of the simulator's step-time model.
	Coefficients []Coefficients `yaml:"coefficients"`
}

// ErrUnknown is in the chain of every error about a model, GPU, runner or framework that no
// fact names.
var ErrUnknown = errors.New("no facts")

var embedded = sync.OnceValues(func() (*Set, error) {
	entries, err := data.ReadDir("data")
	if err != nil {
		return nil, err
	}
	set := &Set{}
	for _, e := range entries {
		b, err := data.ReadFile("data/" + e.Name())
		if err != nil {
			return nil, err
		}
		if set, err = set.Extend(e.Name(), b); err != nil {
			return nil, err
		}
	}
	return set, nil
})

// Embedded returns the facts in the binary. It panics only if the binary was built with
// broken data, which a test excludes.
func Embedded() *Set {
	s, err := embedded()
	if err != nil {
		panic(err)
	}
	return s
}

// Extend returns s with the entries of a facts file put before its own, so that they win.
// The file has the form of the embedded ones; an unknown key is an error.
func (s *Set) Extend(name string, b []byte) (*Set, error) {
	var add Set
	dec := yaml.NewDecoder(bytes.NewReader(b))
	dec.KnownFields(true)
	if err := dec.Decode(&add); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if err := add.check(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	out := &Set{
		Models:        concat(add.Models, s.Models),
		GPUs:          concat(add.GPUs, s.GPUs),
		Nodes:         concat(add.Nodes, s.Nodes),
		NodeSource:    s.NodeSource,
		RecipeSource:  s.RecipeSource,
		Engines:       concat(add.Engines, s.Engines),
		Reserves:      concat(add.Reserves, s.Reserves),
		HostProcesses: concat(add.HostProcesses, s.HostProcesses),
		Recipes:       concat(add.Recipes, s.Recipes),
		Acceptances:   concat(add.Acceptances, s.Acceptances),
		Coefficients:  concat(add.Coefficients, s.Coefficients),
	}
	if add.NodeSource != (Source{}) {
		out.NodeSource = add.NodeSource
	}
	if add.RecipeSource != (Source{}) {
		out.RecipeSource = add.RecipeSource
	}
	return out, nil
}

func concat[T any](a, b []T) []T { return append(a[:len(a):len(a)], b...) }

// check refuses what arithmetic on the facts could not bear.
func (s *Set) check() error {
	for i := range s.Coefficients {
		if err := s.Coefficients[i].Check(); err != nil {
			return err
		}
	}
	for i := range s.Models {
		m := &s.Models[i]
		if m.Name == "" {
			return errors.New("a model has no name")
		}
		if m.NumLayers() <= 0 {
			return fmt.Errorf("model %s has no layers", m.Name)
		}
		for _, l := range m.Layers {
			if err := l.check(); err != nil {
				return fmt.Errorf("model %s: %w", m.Name, err)
			}
		}
	}
	for _, g := range s.GPUs {
		if g.Name == "" || g.HBMBytes <= 0 {
			return fmt.Errorf("gpu %q needs a name and hbm_bytes above 0", g.Name)
		}
	}
	for _, n := range s.Nodes {
		if n.Cluster == "" || n.GPU == "" || n.GPUsPerNode <= 0 || n.DRAMBytes < 0 {
			return fmt.Errorf("node of cluster %q needs cluster, gpu and gpus_per_node", n.Cluster)
		}
	}
	return nil
}

func (l *Layers) check() error {
	const most = 1 << 24 // no dimension of a model comes near; keeps products inside int64
	for name, v := range map[string]int64{
		"count": l.Count, "kv_heads": l.KVHeads, "head_dim": l.HeadDim, "v_head_dim": l.VHeadDim,
		"lora_rank": l.LoraRank, "rope_dim": l.RopeDim, "index_dim": l.IndexDim, "compress": l.Compress,
	} {
		if v < 0 || v > most {
			return fmt.Errorf("%s %d is not within 0 to %d", name, v, most)
		}
	}
	need := func(ok bool, what string) error {
		if !ok {
			return fmt.Errorf("%s layers need %s", l.Kind, what)
		}
		return nil
	}
	switch l.Kind {
	case MHA:
		return need(l.KVHeads > 0 && l.HeadDim > 0, "kv_heads and head_dim")
	case SWA:
		return need(l.KVHeads > 0 && l.HeadDim > 0 && l.Window > 0, "kv_heads, head_dim and window")
	case Sparse:
		return need(l.KVHeads > 0 && l.HeadDim > 0 && l.IndexDim > 0, "kv_heads, head_dim and index_dim")
	case MLA:
		return need(l.LoraRank > 0, "lora_rank")
	case DSA:
		return need(l.LoraRank > 0 && l.IndexDim > 0, "lora_rank and index_dim")
	case DSV4:
		return need(l.HeadDim > 0 && l.Window > 0 && (l.Compress == 0 || l.Compress == 4 || l.Compress == 128), "head_dim, window and compress 0 (window alone), 4 or 128")
	case Linear:
		return need(l.StateBytes > 0, "state_bytes")
	}
	return fmt.Errorf("unknown attention kind %q; known: mha, mla, dsa, dsv4, swa, sparse, linear", l.Kind)
}

// Source is where a field of the model was read: its own entry, or the one under "*".
func (m *Model) Source(field string) Source { return sourceOf(m.Sources, field) }

// Source is where a field of the GPU was read: its own entry, or the one under "*".
func (g *GPU) Source(field string) Source { return sourceOf(g.Sources, field) }

func sourceOf(m map[string]Source, field string) Source {
	if s, ok := m[field]; ok {
		return s
	}
	return m["*"]
}

// ModelByName finds a model by its name or a repository id, compared without case and owner.
func (s *Set) ModelByName(name string) (*Model, error) {
	want := strings.ToLower(name[strings.LastIndexByte(name, '/')+1:])
	for i := range s.Models {
		m := &s.Models[i]
		if strings.ToLower(m.Name) == want {
			return m, nil
		}
		for _, a := range m.Aliases {
			if strings.ToLower(a[strings.LastIndexByte(a, '/')+1:]) == want {
				return m, nil
			}
		}
	}
	return nil, fmt.Errorf("model %q: %w; give its config.json with --model-config, or add it to a --facts file:\nmodels:\n  - {name: %s, aliases: [%s], layers: [{kind: mha, count: N, kv_heads: N, head_dim: N}], weight_bytes: {fp8: N}}",
		name, ErrUnknown, want, name)
}

// ModelByPrefix finds a model by a model-prefix value of a master file.
func (s *Set) ModelByPrefix(prefix string) (*Model, error) {
	for i := range s.Models {
		for _, p := range s.Models[i].Prefixes {
			if p == prefix {
				return &s.Models[i], nil
			}
		}
	}
	return nil, fmt.Errorf("model-prefix %q: %w; add it to a --facts file:\nmodels:\n  - {name: NAME, prefixes: [%s], layers: [{kind: mha, count: N, kv_heads: N, head_dim: N}], weight_bytes: {fp8: N}}",
		prefix, ErrUnknown, prefix)
}

// GPUByName finds a GPU by its name, such as "b200".
func (s *Set) GPUByName(name string) (*GPU, error) {
	for i := range s.GPUs {
		if s.GPUs[i].Name == strings.ToLower(name) {
			return &s.GPUs[i], nil
		}
	}
	return nil, fmt.Errorf("gpu %q: %w; add it to a --facts file:\ngpus:\n  - {name: %s, hbm_bytes: N, sources: {\"*\": {where: WHERE, date: DATE, grade: source}}}", name, ErrUnknown, name)
}

// GPUForRunner finds the GPU of a runner label: the facts of its node, or the GPU that the
// label begins with ("cluster:b200-dgxc", "b200-multinode" and "b200" are all B200).
func (s *Set) GPUForRunner(runner string) (*GPU, error) {
	if n := s.node(runner); n != nil {
		return s.GPUByName(n.GPU)
	}
	name, _, _ := strings.Cut(strings.TrimPrefix(runner, "cluster:"), "-")
	for i := range s.GPUs {
		if s.GPUs[i].Name == name {
			return &s.GPUs[i], nil
		}
	}
	return nil, fmt.Errorf("runner %q: %w of its GPU; add it to a --facts file:\nnodes:\n  - {cluster: NAME, runners: [%q], gpu: GPU, gpus_per_node: 8, dram_bytes: N}", runner, ErrUnknown, runner)
}

// NodeForRunner finds the host of a runner label. A label whose machines differ in memory has
// none.
func (s *Set) NodeForRunner(runner string) (*Node, error) {
	if n := s.node(runner); n != nil {
		return n, nil
	}
	return nil, UnknownNode(runner)
}

// UnknownNode is the error about a runner whose host no fact describes; it shows what to write.
func UnknownNode(runner string) error {
	return fmt.Errorf("runner %q: %w of its host; write under hardware in runners.yaml:\n  %s:\n    available-cpu-dram-mib: N\n    gpus-per-node: N", runner, ErrUnknown, runner)
}

func (s *Set) node(runner string) *Node {
	for i := range s.Nodes {
		for _, r := range s.Nodes[i].Runners {
			if r == runner {
				return &s.Nodes[i]
			}
		}
	}
	return nil
}

// ModelByName looks in the embedded facts.
func ModelByName(name string) (*Model, error) { return Embedded().ModelByName(name) }

// ModelByPrefix looks in the embedded facts.
func ModelByPrefix(prefix string) (*Model, error) { return Embedded().ModelByPrefix(prefix) }

// GPUByName looks in the embedded facts.
func GPUByName(name string) (*GPU, error) { return Embedded().GPUByName(name) }

// GPUForRunner looks in the embedded facts.
func GPUForRunner(runner string) (*GPU, error) { return Embedded().GPUForRunner(runner) }

// NodeForRunner looks in the embedded facts.
func NodeForRunner(runner string) (*Node, error) { return Embedded().NodeForRunner(runner) }
