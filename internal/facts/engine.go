package facts

import "fmt"

// An Engine is what Weir knows of a serving engine before a recipe says otherwise.
type Engine struct {
	Name        string   `json:"name" yaml:"name"`             // "sglang"
	Frameworks  []string `json:"frameworks" yaml:"frameworks"` // framework values of master files
	PageSize    int64    `json:"page_size" yaml:"page_size"`   // tokens
	KVDType     string   `json:"kv_dtype" yaml:"kv_dtype"`     // of cached keys and values
	MemFraction Fraction `json:"mem_fraction" yaml:"mem_fraction"`
	WritePolicy string   `json:"write_policy" yaml:"write_policy"`
}

// A Recipe is what a published launch script passes for points that match its first fields;
// an empty field of those matches any value.
type Recipe struct {
	Model     string `json:"model" yaml:"model"` // name of the model
	Precision string `json:"precision,omitempty" yaml:"precision"`
	GPU       string `json:"gpu" yaml:"gpu"`
	Framework string `json:"framework" yaml:"framework"`
	Role      string `json:"role,omitempty" yaml:"role"` // unified, prefill, decode
	TP        int    `json:"tp,omitempty" yaml:"tp"`
	DPAttn    *bool  `json:"dp_attn,omitempty" yaml:"dp_attn"`
	Offload   string `json:"offload,omitempty" yaml:"offload"`

	MemFractionPPM int64  `json:"mem_fraction_ppm" yaml:"mem_fraction_ppm"`
	KVDType        string `json:"kv_dtype,omitempty" yaml:"kv_dtype"`
	PageSize       int64  `json:"page_size,omitempty" yaml:"page_size"`
	WritePolicy    string `json:"write_policy,omitempty" yaml:"write_policy"`
	SWARatioPPM    int64  `json:"swa_ratio_ppm,omitempty" yaml:"swa_ratio_ppm"` // DeepSeek-V4: --swa-full-tokens-ratio
	Source         Source `json:"source" yaml:"source"`
}

// A RecipeQuery says which recipe is looked for.
type RecipeQuery struct {
	Model, Precision, GPU, Framework, Role, Offload string
	TP                                              int
	DPAttn                                          bool
}

// RecipeFor returns the first recipe that matches, nil where none does.
func (s *Set) RecipeFor(q RecipeQuery) *Recipe {
	match := func(want, have string) bool { return want == "" || want == have }
	for i := range s.Recipes {
		r := &s.Recipes[i]
		if match(r.Model, q.Model) && match(r.Precision, q.Precision) && match(r.GPU, q.GPU) &&
			match(r.Framework, q.Framework) && match(r.Role, q.Role) && match(r.Offload, q.Offload) &&
			(r.TP == 0 || r.TP == q.TP) && (r.DPAttn == nil || *r.DPAttn == q.DPAttn) {
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
