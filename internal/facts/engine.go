package facts

import (
	"fmt"
	"slices"
	"strings"
)

// An Engine is what Weir knows of a serving engine before a recipe says otherwise.
type Engine struct {
	Name        string   `json:"name" yaml:"name"`             // "sglang"
	Frameworks  []string `json:"frameworks" yaml:"frameworks"` // framework values of master files
	PageSize    int64    `json:"page_size" yaml:"page_size"`   // tokens
	KVDType     string   `json:"kv_dtype" yaml:"kv_dtype"`     // of cached keys and values
	MemFraction Fraction `json:"mem_fraction" yaml:"mem_fraction"`
	WritePolicy string   `json:"write_policy" yaml:"write_policy"`
	// FractionOfFree says that MemFraction is of what weights and activations leave free.
	FractionOfFree bool `json:"fraction_of_free,omitempty" yaml:"fraction_of_free"`
	// Backends are the host tiers that the engine has, the default first; empty for none.
	Backends []string `json:"backends,omitempty" yaml:"backends"`
}

// A Recipe is what a published launch script or configuration passes for the points that it
// serves. Its first fields say which points those are; an empty one matches any value.
type Recipe struct {
	Configs   []string `json:"configs,omitempty" yaml:"configs"` // ends of CONFIG_FILE values of multi-node points
	Model     string   `json:"model,omitempty" yaml:"model"`
	Precision string   `json:"precision,omitempty" yaml:"precision"`
	GPU       string   `json:"gpu,omitempty" yaml:"gpu"`
	Framework string   `json:"framework,omitempty" yaml:"framework"`
	Role      string   `json:"role,omitempty" yaml:"role"` // unified, prefill, decode
	TP        int      `json:"tp,omitempty" yaml:"tp"`
	DPAttn    *bool    `json:"dp_attn,omitempty" yaml:"dp_attn"`
	Concs     []int    `json:"concs,omitempty" yaml:"concs"`
	MinConc   int      `json:"min_conc,omitempty" yaml:"min_conc"`

	MemFractionPPM int64  `json:"mem_fraction_ppm,omitempty" yaml:"mem_fraction_ppm"`
	PoolBytes      int64  `json:"pool_bytes,omitempty" yaml:"pool_bytes"` // device pool of a rank, given outright
	KVDType        string `json:"kv_dtype,omitempty" yaml:"kv_dtype"`
	IndexDType     string `json:"index_dtype,omitempty" yaml:"index_dtype"`     // of a block indexer's keys
	StateDType     string `json:"state_dtype,omitempty" yaml:"state_dtype"`     // of linear layers' state
	PageSize       int64  `json:"page_size,omitempty" yaml:"page_size"`         // tokens
	WritePolicy    string `json:"write_policy,omitempty" yaml:"write_policy"`   // of the host tier
	SWARatioPPM    int64  `json:"swa_ratio_ppm,omitempty" yaml:"swa_ratio_ppm"` // --swa-full-tokens-ratio
	MaxSeqs        int64  `json:"max_seqs,omitempty" yaml:"max_seqs"`           // running sequences of a worker
	MambaSlots     int64  `json:"mamba_slots,omitempty" yaml:"mamba_slots"`     // --max-mamba-cache-size
	// KVLayerSplit says that prefill context parallelism splits the layers' KV, not only the work.
	KVLayerSplit bool `json:"kv_layer_split,omitempty" yaml:"kv_layer_split"`
	// WeightOffloadBytes are weights that the engine keeps in host memory, per rank.
	WeightOffloadBytes int64       `json:"weight_offload_bytes,omitempty" yaml:"weight_offload_bytes"`
	Host               *RecipeHost `json:"host,omitempty" yaml:"host"`
	Script             string      `json:"script,omitempty" yaml:"script"` // file that says so
	Notes              []string    `json:"notes,omitempty" yaml:"notes"`
}

// RecipeHost is how a recipe sizes its host tier: one of the sizes, or a formula of the budget.
type RecipeHost struct {
	SizeGB       int64 `json:"size_gb,omitempty" yaml:"size_gb"` // --hicache-size
	RatioPPM     int64 `json:"ratio_ppm,omitempty" yaml:"ratio_ppm"`
	BytesPerRank int64 `json:"bytes_per_rank,omitempty" yaml:"bytes_per_rank"`
	TotalBytes   int64 `json:"total_bytes,omitempty" yaml:"total_bytes"` // of one engine, over its ranks
	SegmentGB    int64 `json:"segment_gb,omitempty" yaml:"segment_gb"`   // Mooncake, per rank
	BufferGB     int64 `json:"buffer_gb,omitempty" yaml:"buffer_gb"`     // Mooncake, per rank
	WatermarkPPM int64 `json:"watermark_ppm,omitempty" yaml:"watermark_ppm"`
	// Formula names how the size follows from the budget B in GB and the ranks R of a worker:
	//
	//	rank            B / R of bytes on every rank
	//	rank-gb         whole GB of B / R on every rank
	//	engine-rank     B / R of bytes for a whole engine, which divides them by its ranks again
	//	engine-gib      B for an engine, read as GiB
	//	all-on-rank     B on every rank
	//	half-gb         whole GB of B / R / 2 on every rank
	//	hybrid-gb       whole GB of (B - R) x 15/31 / R on every rank
	//	less-checkpoint (B in whole GiB - 414) / R - buffer, less weight offload, read as GB
	Formula string `json:"formula,omitempty" yaml:"formula"`
	IO      string `json:"io,omitempty" yaml:"io"`
	Layout  string `json:"layout,omitempty" yaml:"layout"`
}

// A RecipeQuery says which recipe is looked for.
type RecipeQuery struct {
	Config                                 string // CONFIG_FILE of the worker; empty for single-node points
	Model, Precision, GPU, Framework, Role string
	TP, Conc                               int
	DPAttn                                 bool
}

// RecipeFor returns the first recipe that serves a point, nil where none is known.
func (s *Set) RecipeFor(q RecipeQuery) *Recipe {
	match := func(want, have string) bool { return want == "" || want == have }
	for i := range s.Recipes {
		r := &s.Recipes[i]
		if (len(r.Configs) > 0) != (q.Config != "") {
			continue
		}
		if len(r.Configs) > 0 && !slices.ContainsFunc(r.Configs, func(c string) bool { return strings.HasSuffix(q.Config, c) }) {
			continue
		}
		if match(r.Model, q.Model) && match(r.Precision, q.Precision) && match(r.GPU, q.GPU) &&
			match(r.Framework, q.Framework) && match(r.Role, q.Role) && (r.TP == 0 || r.TP == q.TP) &&
			(r.DPAttn == nil || *r.DPAttn == q.DPAttn) && q.Conc >= r.MinConc &&
			(len(r.Concs) == 0 || slices.Contains(r.Concs, q.Conc)) {
			return r
		}
	}
	return nil
}

// EngineForFramework finds the engine behind a framework value of a master file.
func (s *Set) EngineForFramework(framework string) (*Engine, error) {
	for i := range s.Engines {
		for _, f := range s.Engines[i].Frameworks {
			if f == framework {
				return &s.Engines[i], nil
			}
		}
	}
	return nil, fmt.Errorf("framework %q: %w of its engine; add it to the frameworks of an engine in a --facts file", framework, ErrUnknown)
}

// ReserveFor returns the reserve that is most specific to engine, model and GPU, nil where
// there is none.
func (s *Set) ReserveFor(engine, model, gpu string) *Reserve {
	var best *Reserve
	score := -1
	for i := range s.Reserves {
		r := &s.Reserves[i]
		if r.Engine != engine || r.Model != "" && r.Model != model || r.GPU != "" && r.GPU != gpu {
			continue
		}
		n := 0
		if r.Model != "" {
			n += 2
		}
		if r.GPU != "" {
			n++
		}
		if n > score {
			best, score = r, n
		}
	}
	return best
}

// HostProcessFor returns the host memory of one engine process, nil where it is not known.
func (s *Set) HostProcessFor(engine string) *HostProcess {
	for i := range s.HostProcesses {
		if s.HostProcesses[i].Engine == engine {
			return &s.HostProcesses[i]
		}
	}
	return nil
}
