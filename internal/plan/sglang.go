package plan

import (
	"fmt"

	"github.com/weirbench/weir/internal/facts"
)

// hicache is SGLang's host tier (mem_cache/pool_host/base.py:24-140, hybrid_pool_assembler.py,
// 2026-07). A size counts the main pool only, in whole decimal GB per rank; every side pool
// inherits its slots. A ratio multiplies the device's slots. Slots are rounded to pages with
// one page more. State of linear layers and a sliding-window pool get the same size again.
type hicache struct {
	b       *bench
	r       *Role
	shapes  []shape
	page    int64
	byRatio bool
	step    int64 // settings are steps of this many parts per million, or GB
	counted int   // how many shapes, from the front, the size setting counts
	l3      []Item
	// solving says that a size is looked for, not given: then hybrid models keep hybridAlign free.
	solving bool
}

const (
	ratioStep = 10_000 // a ratio that is looked for is a multiple of 0.01
	maxRatio  = 1000   // and not above this
	// hybridAlign is what the InferenceX recipes keep free on each rank for the alignment of
	// several pools of a hybrid model (qwen3.5_fp8_b300_sglang_mtp.sh, 2026-08).
	hybridAlign = 1_000_000_000
)

// hicacheFor reads what the point or its recipe says about the size.
func (b *bench) hicacheFor(r *Role, st settings, shapes []shape, backend string) (tier, int64, string, bool) {
	w := &b.p.Weir
	t := &hicache{b: b, r: r, shapes: shapes, page: st.pageSize, counted: b.countedPools(r, shapes)}
	if backend == "mooncake" {
		t.l3 = []Item{{"mooncake segment", 40 << 30, "L3, glm5.2_fp4_mi355x_sglang_mtp.sh"}, {"mooncake buffer", 4 << 30, "L3, glm5.2_fp4_mi355x_sglang_mtp.sh"}}
	}
	v4 := b.kind(facts.DSV4)
	ratio, bytes, chosen := w.HostRatioPPM, w.HostBytesPerRank, chosenByPoint
	if ratio == 0 && bytes == 0 && b.opt.AsRecipe && st.recipe != nil && st.recipe.Host != nil {
		ratio, bytes = b.hicacheRecipe(st.recipe.Host, r.Ranks)
		chosen = chosenByRecipe
	}
	switch {
	case ratio < 0 || bytes < 0:
		b.find(r.Name, EngineRejects, "give a size above 0, or none", "the size of a host tier is negative")
		return nil, 0, "", false
	case bytes > 0 && v4:
		b.find(r.Name, EngineRejects, "give a ratio instead", "SGLang refuses --hicache-size for DeepSeek-V4 (hybrid_pool_assembler.py:233): it takes a ratio only")
		return nil, 0, "", false
	case bytes > 0:
		gb := bytes / 1_000_000_000
		if gb == 0 {
			b.find(r.Name, EngineRejects, "give at least 1 GB", "--hicache-size is whole GB and %s is none: SGLang would fall back to its ratio", GB(bytes))
			return nil, 0, "", false
		}
		if rest := bytes % 1_000_000_000; rest > 0 {
			b.warn(r.Name, "rounding", "--hicache-size is whole GB: %s of %s are lost on every rank", GB(rest), GB(bytes))
		}
		if bytes%(1<<30) == 0 {
			b.warn(r.Name, "unit", "%s are exactly %d GiB, but --hicache-size is decimal GB: pass %d", GB(bytes), bytes>>30, gb)
		}
		t.step = 1
		return t, gb, chosen, true
	case ratio > 0:
		t.byRatio, t.step = true, 1
		return t, ratio, chosen, true
	}
	t.byRatio, t.step, t.solving = v4, 1, true
	if v4 {
		t.step = ratioStep
	}
	return t, 0, "", true
}

// hicacheRecipe is the setting of a published recipe.
func (b *bench) hicacheRecipe(h *facts.RecipeHost, ranks int64) (ratio, bytes int64) {
	budget := b.p.Offload.BudgetGB
	switch h.Formula {
	case "half-gb":
		return 0, budget / ranks / 2 * 1_000_000_000
	case "hybrid-gb":
		return 0, (budget - ranks) * 15 / (ranks * 31) * 1_000_000_000
	}
	return h.RatioPPM, h.SizeGB * 1_000_000_000
}

// countedPools is how many pools --hicache-size counts. Until February 2026 the size of a DSA
// model's slot included its index; v0.5.16 and trunk of July 2026 keep the index beside it.
func (b *bench) countedPools(r *Role, shapes []shape) int {
	if !b.kind(facts.DSA) {
		return 1
	}
	v := b.ver
	switch {
	case v.Date >= 20260720 || v.AtLeast(0, 5, 16):
		return 1
	case v.Known() && v.Date == 0 && !v.AtLeast(0, 5, 9), v.Date > 0 && v.Date <= 20260219:
		for i, s := range shapes {
			if s.name == "indexer" {
				return i + 1
			}
		}
		return 1
	}
	b.warn(r.Name, "sidecar-rule", "it is not known whether %s counts the index in --hicache-size: planned as if it did not, which pins more", first(v.Text, b.p.Image, "this image"))
	return 1
}

func (t *hicache) limits() (lo, hi int64) {
	if t.byRatio {
		return 1, maxRatio * 1_000_000 / t.step
	}
	return 1, max(1, t.r.Node.MemoryBytes.N/1_000_000_000)
}

func (t *hicache) size(setting int64) Host {
	r := t.r
	h := Host{Backend: "hicache", Other: t.l3}
	setting *= t.step
	var tokens int64
	if t.byRatio {
		tokens = mulDiv(r.Device.Tokens, setting, 1_000_000)
		h.Flag = "--hicache-ratio " + ppm(setting)
	} else {
		var per int64
		for _, s := range t.shapes[:min(t.counted, len(t.shapes))] {
			per += s.bytes
		}
		tokens = satMul(setting, 1_000_000_000) / max(1, per)
		h.Flag, h.step = fmt.Sprintf("--hicache-size %d", setting), 1_000_000_000
	}
	tokens = satMul(tokens/t.page+1, t.page)
	h.Tokens = tokens
	h.UniqueTokens = satMul(tokens, r.AttnDP*r.DCP)
	for i, s := range t.shapes {
		p := s.pool(tokens)
		p.Counted = t.byRatio || i < t.counted
		if s.name == "swa" && !t.byRatio && !t.b.kind(facts.DSV4) { // a pool of its own with the whole size
			p.Slots = (satMul(setting, 1_000_000_000)/max(1, s.bytes)/t.page + 1) * t.page
			p.Bytes = satMul(p.Slots, p.BytesPerSlot)
		}
		h.Pools = append(h.Pools, p)
	}
	if t.b.kind(facts.Linear) && r.Device.StateBytesPerSeq > 0 {
		p := Pool{Name: "state", BytesPerSlot: r.Device.StateBytesPerSeq, Counted: t.byRatio, Formula: r.Device.stateFormula}
		if t.byRatio {
			p.Slots = mulDiv(r.Device.StateSlots, setting, 1_000_000) + 1
		} else {
			p.Slots = satMul(setting, 1_000_000_000)/p.BytesPerSlot + 1
		}
		p.Bytes = satMul(p.Slots, p.BytesPerSlot)
		h.Pools = append(h.Pools, p)
		if t.solving {
			h.Other = append(h.Other[:len(h.Other):len(h.Other)], Item{"alignment", hybridAlign, "kept free on each rank for several pools, qwen3.5_fp8_b300_sglang_mtp.sh"})
		}
	}
	return h
}
