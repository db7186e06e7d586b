package plan

import (
	"fmt"
	"strings"

	"github.com/weirbench/weir/internal/facts"
)

// settings are what a point, its recipe or its engine says about memory, and who said it.
type settings struct {
	recipe      *facts.Recipe // nil where no published recipe is known
	fraction    Value
	guessed     bool // the fraction is the engine's default, not what a launch passes
	kvDType     string
	kv          elem
	index       elem // keys of a block indexer
	state       elem // state of linear layers
	pageSize    int64
	writePolicy string
	swaPPM      int64 // sliding-window slots for a slot of the full pool; 0: kept per sequence
	seqs        int64 // sequences that run at once on one rank
	layerSplit  int64 // over how many ranks context parallelism spreads the layers' KV
}

// elem is the size of one cached element in sixteenths of a byte.
type elem int64

// of is the size of n elements, in bytes, rounded up.
func (e elem) of(n int64) int64 { return ceilDiv(satMul(n, int64(e)), 16) }

func (e elem) String() string {
	if e%16 == 0 {
		return fmt.Sprint(int64(e / 16))
	}
	return fmt.Sprintf("%d/16", int64(e))
}

// parseElem is the size of an element of a type. NVFP4 keeps one fp8 scale for 16 values.
func parseElem(what, dtype string) (elem, error) {
	switch strings.ToLower(dtype) {
	case "fp4", "fp4_e2m1", "nvfp4":
		return 9, nil
	case "fp8", "fp8_e4m3", "fp8_e5m2", "fp8_ds_mla":
		return 16, nil
	case "bf16", "bfloat16", "fp16", "float16", "half":
		return 32, nil
	case "fp32", "float32":
		return 64, nil
	}
	return 0, fmt.Errorf("%s %q is not known; known: fp4, fp8, fp8_e4m3, fp8_e5m2, bf16, fp16, fp32", what, dtype)
}

// recipe finds the published recipe of a worker.
func (b *bench) recipe(w worker) *facts.Recipe {
	return b.set.RecipeFor(facts.RecipeQuery{
		Config: w.config, Model: b.model.Name, Precision: b.p.Precision, GPU: b.gpu.Name, Framework: b.p.Framework,
		Role: w.name, TP: w.par.TP, DPAttn: w.par.DPAttn, Conc: b.p.Conc,
	})
}

// cite says where a recipe's numbers stand.
func (b *bench) citeRecipe(r *facts.Recipe) string {
	s := b.set.RecipeSource
	name := r.Script
	if name == "" && len(r.Configs) > 0 {
		name = r.Configs[0]
		if len(r.Configs) > 1 {
			name += " and others"
		}
	}
	s.Where = first(name, s.Where)
	return cite(s)
}

// settings resolves in the order point, recipe, engine.
func (b *bench) settings(w worker, sp Spread) (settings, error) {
	p, e := &b.p.Weir, b.engine
	st := settings{recipe: b.recipe(w), layerSplit: 1}
	r := st.recipe
	if r == nil {
		r = &facts.Recipe{}
	}
	switch {
	case p.MemFractionPPM < 0 || p.MemFractionPPM > 1_000_000:
		return st, fmt.Errorf("mem-fraction %s is not above 0 and at most 1", ppm(max(0, p.MemFractionPPM)))
	case p.MemFractionPPM > 0:
		st.fraction = Value{p.MemFractionPPM, "the point"}
	case r.MemFractionPPM > 0:
		st.fraction = Value{r.MemFractionPPM, b.citeRecipe(r)}
	default:
		st.fraction, st.guessed = Value{e.MemFraction.PPM, cite(e.MemFraction.Source)}, true
		b.warn(w.name, "fraction-default", "no recipe is known that gives the memory fraction: %s, %s", ppm(st.fraction.N), st.fraction.From)
	}
	st.kvDType = first(p.KVDType, r.KVDType, e.KVDType)
	st.writePolicy = first(p.WritePolicy, r.WritePolicy, e.WritePolicy)
	switch st.writePolicy {
	case "write_back", "write_through", "write_through_selective":
	default:
		return st, fmt.Errorf("write-policy %q is not known; known: write_back, write_through, write_through_selective", st.writePolicy)
	}
	if p.PageSize < 0 || p.PageSize > 1<<20 {
		return st, fmt.Errorf("page-size %d is not within 1 to 1,048,576 tokens", p.PageSize)
	}
	if st.pageSize = p.PageSize; st.pageSize == 0 {
		st.pageSize = r.PageSize
	}
	if st.pageSize == 0 {
		st.pageSize = b.defaultPage()
	}
	var err error
	if st.kv, err = parseElem("kv-dtype", st.kvDType); err != nil {
		return st, err
	}
	if st.index, err = parseElem("index-dtype", first(r.IndexDType, "bf16")); err != nil {
		return st, err
	}
	if st.state, err = parseElem("state-dtype", first(r.StateDType, "fp32")); err != nil {
		return st, err
	}
	if b.engine.Name == "sglang" {
		if st.swaPPM = r.SWARatioPPM; st.swaPPM == 0 {
			st.swaPPM = 800_000 // --swa-full-tokens-ratio; DeepSeek-V4 overrides it (server_args.py)
			if b.kind(facts.DSV4) {
				st.swaPPM = 100_000
			}
		}
	}
	if r.KVLayerSplit {
		st.layerSplit = sp.PCP
	}
	st.seqs = b.sequences(w, sp, r)
	return st, nil
}

// sequences is how many sequences run at once on one rank: the recipe's cap where it has one,
// and at most twice the concurrency, which is what the InferenceX recipes pass because a tree
// has several streams.
func (b *bench) sequences(w worker, sp Spread, r *facts.Recipe) int64 {
	n := 2 * max(1, int64(b.p.Conc))
	n = ceilDiv(n, max(1, int64(w.workers)))
	groups := sp.AttnDP
	if limit := r.MaxSeqs; limit > 0 {
		if b.engine.Name == "sglang" { // --max-running-requests counts a whole worker
			return max(1, ceilDiv(limit, groups))
		}
		return max(1, min(limit, ceilDiv(n, groups)))
	}
	return max(1, ceilDiv(n, groups))
}

// kind says whether a layer of the model attends in this way.
func (b *bench) kind(k facts.AttentionKind) bool {
	for _, l := range b.model.Layers {
		if l.Kind == k {
			return true
		}
	}
	return false
}

// defaultPage is the page size that the engine falls to: DeepSeek-V4's kernels need 256, the
// DSA kernels 64 (SGLang server_args.py), otherwise the engine's own default.
func (b *bench) defaultPage() int64 {
	switch {
	case b.kind(facts.DSV4):
		return max(dsv4Page, b.engine.PageSize)
	case b.kind(facts.DSA):
		return max(64, b.engine.PageSize)
	}
	return max(1, b.engine.PageSize)
}

func first(s ...string) string {
	for _, v := range s {
		if v != "" {
			return v
		}
	}
	return ""
}

func cite(s facts.Source) string {
	var parts []string
	for _, v := range []string{s.Where, s.Date, s.Grade} {
		if v != "" {
			parts = append(parts, v)
		}
	}
	return strings.Join(parts, ", ")
}
