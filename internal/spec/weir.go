package spec

import (
	"math/big"
)

// defaultSeed is the seed of a point that names none: InferenceX replays with --random-seed 42
// (benchmark_lib.sh, 2026-08).
const defaultSeed = 42

// weirFields are Weir's own additions under the key "weir" of a config or of a search-space
// entry; those of the entry stand before those of the config, field by field.
type weirFields struct {
	node        *node
	recipe      scalar[string]
	corpus      scalar[string]
	seeds       []uint64
	seedsAt     Pos
	memFraction scalar[int64] // parts per million
	kvDType     scalar[string]
	hostRatio   scalar[int64] // parts per million
	hostBytes   scalar[int64] // per rank
	writePolicy scalar[string]
	pageSize    scalar[int64] // tokens
	schedule    scalar[string]
	draftTokens scalar[int64]
	repeats     scalar[int]
	slo         sloFields
}

// sloFields are the service levels that a point is judged by.
type sloFields struct {
	ttft          scalar[int64] // ns, at the 90th percentile
	itl           scalar[int64] // ns, at the 90th percentile
	interactivity scalar[int64] // milli-tokens/s/user, p90 of e2e_norm_intvty
}

var (
	weirKeys = []string{"recipe", "corpus", "seed", "seeds", "mem-fraction", "kv-dtype", "host-ratio",
		"host-gb-per-rank", "write-policy", "page-size", "schedule-policy", "draft-tokens", "repeats", "slo"}
	sloKeys          = []string{"ttft-p90-s", "itl-p90-ms", "e2e-norm-intvty-p90"}
	kvDTypes         = []string{"fp8", "fp4", "bf16", "fp16"}
	schedulePolicies = []string{"fcfs", "lpm"}
	writePolicies    = []string{"write_back", "write_through", "write_through_selective"}
	// hostFields matter only to a host tier.
	hostFields = []string{"host-ratio", "host-gb-per-rank", "write-policy"}
)

func (w *weirFields) has(key string) bool { return w.node != nil && w.node.peek(key) != nil }

// sizesHost says whether the recipe itself sizes the host pool.
func (w *weirFields) sizesHost() bool { return w.hostRatio.set() || w.hostBytes.set() }

// readWeir reads the mapping under the key "weir".
func readWeir(n *node) weirFields {
	w := weirFields{node: n}
	o := n.object(weirKeys)
	str := func(key string) scalar[string] {
		if v := o.get(key); v != nil {
			return v.str()
		}
		return scalar[string]{}
	}
	w.recipe, w.corpus = str("recipe"), str("corpus")
	readSeeds(o, &w)
	if v := o.get("mem-fraction"); v != nil {
		w.memFraction = v.ppm(1, "above 0 and not above 1")
	}
	if v := o.get("kv-dtype"); v != nil {
		w.kvDType = v.oneOf(kvDTypes...)
	}
	if v := o.get("host-ratio"); v != nil {
		w.hostRatio = v.ppm(1000, "above 0 and not above 1000")
	}
	if v := o.get("host-gb-per-rank"); v != nil {
		w.hostBytes = v.gigabytes()
		if r := o.get("host-ratio"); r != nil {
			r.fail("host-ratio stands beside host-gb-per-rank", "keep one: each sizes the host pool")
		}
	}
	if v := o.get("write-policy"); v != nil {
		w.writePolicy = v.oneOf(writePolicies...)
	}
	if v := o.get("page-size"); v != nil {
		if i, ok := v.int64(1, 1<<20); ok {
			w.pageSize = scalar[int64]{i, v.pos()}
		}
	}
	if v := o.get("schedule-policy"); v != nil {
		w.schedule = v.oneOf(schedulePolicies...)
	}
	if v := o.get("draft-tokens"); v != nil {
		if i, ok := v.int64(1, 64); ok {
			w.draftTokens = scalar[int64]{i, v.pos()}
		}
	}
	w.repeats = o.optInt("repeats")
	if v := o.get("slo"); v != nil {
		readSLO(v, &w.slo)
	}
	return w
}

func readSeeds(o object, w *weirFields) {
	one, many := o.get("seed"), o.get("seeds")
	seed := func(v *node) {
		if i, ok := v.int64(0, 1<<62); ok {
			for _, s := range w.seeds {
				if s == uint64(i) {
					v.fail(v.text()+" is in the list twice", "remove one; 'repeats' repeats a seed")
					return
				}
			}
			w.seeds = append(w.seeds, uint64(i))
		}
	}
	if one != nil {
		w.seedsAt = one.pos()
		seed(one)
	}
	if many != nil {
		if one != nil {
			many.fail("seeds stands beside seed", "keep one")
			return
		}
		w.seedsAt = many.pos()
		items := many.items()
		if many.y.Kind == yamlSequence && len(items) == 0 {
			many.fail("is empty", "add a seed")
		}
		for _, it := range items {
			seed(it)
		}
	}
}

func readSLO(n *node, s *sloFields) {
	o := n.object(sloKeys)
	scaled := func(key string, unit int64) scalar[int64] {
		v := o.get(key)
		if v == nil {
			return scalar[int64]{}
		}
		return v.scaled(unit, 1<<53)
	}
	s.ttft = scaled("ttft-p90-s", 1e9)
	s.itl = scaled("itl-p90-ms", 1e6)
	s.interactivity = scaled("e2e-norm-intvty-p90", 1000)
}

// gigabytes reads decimal gigabytes as bytes.
func (n *node) gigabytes() scalar[int64] { return n.scaled(1e9, 1<<53) }

// scaled reads a positive number as whole units of 1/unit, at most hi of them.
func (n *node) scaled(unit, hi int64) scalar[int64] {
	r, ok := n.decimal()
	if !ok {
		return scalar[int64]{}
	}
	r = new(big.Rat).Mul(r, big.NewRat(unit, 1))
	switch {
	case r.Sign() <= 0:
		n.fail(n.y.Value+" is not above 0", "write a number above 0")
	case !r.IsInt():
		n.fail(n.y.Value+" has too many decimals", "round it")
	case !r.Num().IsInt64() || r.Num().Int64() > hi:
		n.fail(clip(n.y.Value)+" is too large", "write a smaller number")
	default:
		return scalar[int64]{r.Num().Int64(), n.pos()}
	}
	return scalar[int64]{}
}

// over lays the fields of an entry over those of its config.
func (w weirFields) over(base weirFields) weirFields {
	out := w
	pick(&out.recipe, base.recipe)
	pick(&out.corpus, base.corpus)
	pick(&out.memFraction, base.memFraction)
	pick(&out.kvDType, base.kvDType)
	pick(&out.writePolicy, base.writePolicy)
	pick(&out.pageSize, base.pageSize)
	pick(&out.schedule, base.schedule)
	pick(&out.draftTokens, base.draftTokens)
	pick(&out.repeats, base.repeats)
	pick(&out.slo.ttft, base.slo.ttft)
	pick(&out.slo.itl, base.slo.itl)
	pick(&out.slo.interactivity, base.slo.interactivity)
	if !out.sizesHost() { // the two ways to size the pool exclude each other
		out.hostRatio, out.hostBytes = base.hostRatio, base.hostBytes
	}
	if len(out.seeds) == 0 {
		out.seeds, out.seedsAt = base.seeds, base.seedsAt
	}
	return out
}

func pick[T any](v *scalar[T], base scalar[T]) {
	if !v.set() {
		*v = base
	}
}

// fields are the values as a point of an entry carries them, for one seed. Host fields are left out
// where there is no host tier, draft tokens where nothing is drafted.
func (w weirFields) fields(seed uint64, e *entry) WeirFields {
	f := WeirFields{
		Recipe: w.recipe.V, Corpus: w.corpus.V, Seed: seed, MemFractionPPM: w.memFraction.V,
		KVDType: w.kvDType.V, PageSize: w.pageSize.V, Repeats: w.repeats.or(1),
		SchedulePolicy: w.schedule.V,
	}
	if e.speculates() {
		f.DraftTokens = w.draftTokens.V
	}
	if e.offload.V == "dram" {
		f.HostRatioPPM, f.HostBytesPerRank, f.WritePolicy = w.hostRatio.V, w.hostBytes.V, w.writePolicy.V
	}
	if w.slo != (sloFields{}) {
		f.SLO = &SLO{TTFTP90Ns: w.slo.ttft.V, ITLP90Ns: w.slo.itl.V, InteractivityP90Milli: w.slo.interactivity.V}
	}
	return f
}

func (w weirFields) seedList() []uint64 {
	if len(w.seeds) > 0 {
		return w.seeds
	}
	return []uint64{defaultSeed}
}
