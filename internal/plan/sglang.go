package plan

import (
	"fmt"

	"github.com/weirbench/weir/internal/facts"
)

// hicache is SGLang's host tier (mem_cache/pool_host/base.py:24-140, 2026-07). A size counts
// the main pool only, in whole decimal GB per rank; every side pool inherits its slots. A
// ratio multiplies the device's slots. Slots are rounded to pages with one page more.
type hicache struct {
	b        *bench
	r        *Role
	shapes   []shape
	page     int64
	byRatio  bool
	counted  int // how many shapes, from the front, the size setting counts
	alignTo  int64
	seqState shape
}

const (
	ratioStep = 10_000 // settings by ratio are steps of 0.01
	maxRatio  = 1000   // no ratio above this is looked for
)

// tierFor picks the host tier of the point's engine, and the setting that the point gives; 0
// where it gives none. It is false where the engine has no such tier.
func (b *bench) tierFor(r *Role, st settings, shapes []shape) (tier, int64, bool) {
	w := &b.p.Weir
	if w.HostRatioPPM < 0 || w.HostBytesPerRank < 0 {
		b.find(r.Name, EngineRejects, "give a size above 0, or none", "a host pool of ratio %s or %d bytes is negative", ppm(max(0, w.HostRatioPPM)), w.HostBytesPerRank)
		return nil, 0, false
	}
	t := &hicache{b: b, r: r, shapes: shapes, page: st.pageSize, counted: 1}
	v4 := b.model.Layers[0].Kind == facts.DSV4
	switch {
	case w.HostBytesPerRank > 0 && v4:
		b.find(r.Name, EngineRejects, "give a ratio instead", "SGLang refuses --hicache-size for DeepSeek-V4 (hybrid_pool_assembler.py:233): it takes a ratio only")
		return nil, 0, false
	case w.HostBytesPerRank > 0:
		gb := w.HostBytesPerRank / 1_000_000_000
		if gb == 0 {
			b.find(r.Name, EngineRejects, "give at least 1 GB", "--hicache-size is whole GB and %s is none: SGLang would fall back to its ratio", GB(w.HostBytesPerRank))
			return nil, 0, false
		}
		if rest := w.HostBytesPerRank % 1_000_000_000; rest > 0 {
			b.warn(r.Name, "rounding", "--hicache-size is whole GB: %d bytes of %s are lost on every rank", rest, GB(w.HostBytesPerRank))
		}
		return t, gb, true
	case w.HostRatioPPM > 0:
		t.byRatio = true
		return t, w.HostRatioPPM, true
	}
	t.byRatio = v4
	return t, 0, true
}

func (t *hicache) limits() (lo, hi int64) {
	if t.byRatio {
		return 1, maxRatio * 1_000_000 / ratioStep
	}
	return 1, max(1, t.r.Node.MemoryBytes.N/1_000_000_000)
}

func (t *hicache) size(setting int64) Host {
	h := Host{Backend: "hicache"}
	var tokens int64
	if t.byRatio {
		if t.b.p.Weir.HostRatioPPM == 0 {
			setting *= ratioStep
		}
		tokens = mulDiv(t.r.Device.Tokens, setting, 1_000_000)
		h.Flag = "--hicache-ratio " + ppm(setting)
	} else {
		var per int64
		for _, s := range t.shapes[:min(t.counted, len(t.shapes))] {
			per += s.bytes
		}
		tokens = satMul(setting, 1_000_000_000) / max(1, per)
		h.Flag = fmt.Sprintf("--hicache-size %d", setting)
	}
	tokens = satMul(tokens/t.page+1, t.page)
	h.Tokens = tokens
	h.UniqueTokens = satMul(tokens, t.r.AttnDP*t.r.DCP)
	for i, s := range t.shapes {
		p := Pool{Name: s.name, BytesPerSlot: s.bytes, Slots: mulDiv(tokens, s.num, s.den), Counted: t.byRatio || i < t.counted, Formula: s.formula}
		p.Bytes = satMul(p.Slots, p.BytesPerSlot)
		h.Pools = append(h.Pools, p)
	}
	return h
}
