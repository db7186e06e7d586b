package plan

import (
	"fmt"
	"strings"

	"github.com/weirbench/weir/internal/facts"
)

// A Pool is one allocation of KV or of what belongs to it, on one rank.
type Pool struct {
	Name         string `json:"name"` // kv, indexer, draft-kv, swa, c4, ..., state
	BytesPerSlot int64  `json:"bytes_per_slot"`
	Slots        int64  `json:"slots"`
	Bytes        int64  `json:"bytes"`
	// Counted says that the engine's own size setting counts this pool.
	Counted bool   `json:"counted"`
	Formula string `json:"formula"` // how BytesPerSlot comes about
}

// shape is a pool before it has a size: what one slot takes and how many slots one token needs.
type shape struct {
	name     string
	bytes    int64 // of one slot on one rank
	num, den int64 // slots per token
	formula  string
	draft    bool
}

// scale is a common multiple of all slot denominators: 4, 128 and a ratio in parts per million.
const scale = 128_000_000

// scaled is the bytes that one token takes in the pool, times scale.
func (s shape) scaled() int64 { return mulDiv(satMul(s.bytes, s.num), scale, s.den) }

// pool gives the shape slots for a number of tokens.
func (s shape) pool(tokens int64) Pool {
	p := Pool{Name: s.name, BytesPerSlot: s.bytes, Slots: mulDiv(tokens, s.num, s.den), Formula: s.formula}
	p.Bytes = satMul(p.Slots, p.BytesPerSlot)
	return p
}

// DeepSeek-V4's constants (SGLang pool_configurator.py:574-830, 2026-07): a row of 448 fp8
// values, 64 bf16 rope values and 8 scale bytes, an index row of 128 fp8 and one fp32 scale,
// and fp32 states of the two compressors.
const (
	dsv4Row        = 448 + 64*2 + 8
	dsv4Index      = 128 + 4
	dsv4Page       = 256
	dsv4State      = 2 * 2 * 512 * 4 // of one ring entry of one 4:1 layer
	dsv4IndexState = 2 * 2 * 128 * 4
	dsv4C128State  = 2 * 512 * 4 // of one ring entry of one 128:1 layer
)

// rings are the lengths of the compressors' state rings, doubled by speculative decoding.
func (b *bench) rings() (ring4, ring128 int64) {
	if b.speculative() {
		return 16, 256
	}
	return 8, 128
}

// speculative says whether the point decodes with a draft.
func (b *bench) speculative() bool {
	return b.p.SpecDecoding != "" && b.p.SpecDecoding != "none"
}

// terms collects the terms of a sum over layers, equal ones in one.
type terms []struct {
	text   string
	layers int64
}

func (t *terms) add(layers int64, format string, a ...any) {
	text := fmt.Sprintf(format, a...)
	if n := len(*t); n > 0 && (*t)[n-1].text == text {
		(*t)[n-1].layers += layers
		return
	}
	*t = append(*t, struct {
		text   string
		layers int64
	}{text, layers})
}

func (t terms) String() string {
	parts := make([]string, len(t))
	for i, e := range t {
		parts[i] = fmt.Sprintf("%s x %d layers", e.text, e.layers)
	}
	return strings.Join(parts, " + ")
}

// heads is how many KV heads of a layer one rank keeps: at least one, so that more ranks than
// heads keep copies.
func heads(l facts.Layers, sp Spread) int64 { return max(1, l.KVHeads/sp.AttnTP) }

// row is what one layer caches for one token on one rank, keys and values, without an index.
func row(l facts.Layers, sp Spread, kv elem) (bytes int64, text string) {
	switch l.Kind {
	case facts.MHA, facts.SWA, facts.Sparse:
		vd := l.VHeadDim
		if vd == 0 {
			vd = l.HeadDim
		}
		h := heads(l, sp)
		return kv.of(h * (l.HeadDim + vd)), fmt.Sprintf("%d heads x (%d+%d) x %s B", h, l.HeadDim, vd, kv)
	case facts.MLA, facts.DSA:
		return kv.of(l.LoraRank + l.RopeDim), fmt.Sprintf("(%d+%d) x %s B", l.LoraRank, l.RopeDim, kv)
	}
	return 0, ""
}

// shapes lists what one rank caches per token: the main pool first, then side pools, then the
// draft.
//
// Sources: SGLang model_executor/pool_configurator.py:114-830 and mem_cache/pool_host, 2026-07;
// vLLM keeps the same bytes per token (v1/core/kv_cache_utils.py).
func (b *bench) shapes(sp Spread, st settings) []shape {
	var kv, swa, idx terms
	var kvB, swaB, idxB, c4, c128, window int64
	for _, l := range b.model.Layers {
		n := ceilDiv(l.Count, sp.PP*st.layerSplit)
		bytes, text := row(l, sp, st.kv)
		switch l.Kind {
		case facts.SWA:
			swaB += bytes * n
			swa.add(n, "%s", text)
		case facts.MHA, facts.MLA, facts.DSA, facts.Sparse:
			kvB += bytes * n
			kv.add(n, "%s", text)
		case facts.DSV4:
			switch l.Compress {
			case 4:
				c4 += n
			case 128:
				c128 += n
			default:
				window += n
			}
		}
		switch l.Kind {
		case facts.DSA: // one fp32 scale for 128 fp8 index keys, on every rank
			per := l.IndexDim + l.IndexDim/128*4
			idxB += per * n
			idx.add(n, "(%d+%d) B", l.IndexDim, l.IndexDim/128*4)
		case facts.Sparse: // keys only, on every rank
			idxB += st.index.of(l.IndexDim) * n
			idx.add(n, "%d x %s B", l.IndexDim, st.index)
		}
	}
	var out []shape
	add := func(name string, bytes, num, den int64, formula string) {
		if bytes > 0 && num > 0 {
			out = append(out, shape{name: name, bytes: bytes, num: num, den: den, formula: formula})
		}
	}
	add("kv", kvB, 1, 1, kv.String())
	add("swa", swaB, st.swaPPM, 1_000_000, swa.String())
	add("indexer", idxB, 1, 1, idx.String())
	if c4+c128+window > 0 {
		for _, s := range b.dsv4Shapes(c4, c128, window, st.swaPPM) {
			if s.bytes > 0 {
				out = append(out, s)
			}
		}
	}
	if d, ok := b.draftShape(sp, st, out); ok {
		out = append(out, d)
	}
	return out
}

// dsv4Shapes are the pools of DeepSeek-V4's compressed layers. The states are kept per token of
// the sliding-window pool and only by SGLang; other engines keep window and states per sequence.
func (b *bench) dsv4Shapes(c4, c128, window, swaPPM int64) []shape {
	ring, _ := b.rings()
	all := []shape{
		{name: "c4", bytes: dsv4Row * c4, num: 1, den: 4, formula: fmt.Sprintf("%d B x %d layers, one slot for 4 tokens", dsv4Row, c4)},
		{name: "c4-indexer", bytes: dsv4Index * c4, num: 1, den: 4, formula: fmt.Sprintf("%d B x %d layers, one slot for 4 tokens", dsv4Index, c4)},
		{name: "c128", bytes: dsv4Row * c128, num: 1, den: 128, formula: fmt.Sprintf("%d B x %d layers, one slot for 128 tokens", dsv4Row, c128)},
		{name: "swa", bytes: dsv4Row * (c4 + c128 + window), num: swaPPM, den: 1_000_000, formula: fmt.Sprintf("%d B x %d layers, %s slots for a token", dsv4Row, c4+c128+window, ppm(swaPPM))},
		{name: "c4-state", bytes: dsv4State * c4, num: swaPPM * ring, den: 128_000_000, formula: fmt.Sprintf("2 x 2 x 512 x 4 B x %d layers, %d slots for 128 slots of swa", c4, ring)},
		{name: "c4-indexer-state", bytes: dsv4IndexState * c4, num: swaPPM * ring, den: 128_000_000, formula: fmt.Sprintf("2 x 2 x 128 x 4 B x %d layers, %d slots for 128 slots of swa", c4, ring)},
	}
	if swaPPM == 0 {
		return all[:3]
	}
	return all
}

// draftShape is the pool of the draft layers: the target's KV formula per layer, without an
// index, with the target's slots (SGLang maybe_register_hicache_draft).
func (b *bench) draftShape(sp Spread, st settings, target []shape) (shape, bool) {
	m := b.model
	if !b.speculative() || m.DraftLayers == 0 {
		return shape{}, false
	}
	if b.kind(facts.DSV4) { // one more layer of all kinds (pool_configurator.py: x 62/61)
		all := int64(0)
		for _, s := range target {
			all = satAdd(all, s.scaled())
		}
		l := kvLayers(m)
		return shape{name: "draft-kv", bytes: ceilDiv(all*m.DraftLayers, l*scale), num: 1, den: 1, draft: true,
			formula: fmt.Sprintf("%d draft layers / %d layers of all pools", m.DraftLayers, l)}, true
	}
	for _, l := range m.Layers {
		if bytes, text := row(l, sp, st.kv); bytes > 0 {
			return shape{name: "draft-kv", bytes: bytes * m.DraftLayers, num: 1, den: 1, draft: true,
				formula: fmt.Sprintf("%s x %d draft layers", text, m.DraftLayers)}, true
		}
	}
	return shape{}, false
}

// seqState is what one sequence keeps on one rank whatever its length: the state of linear
// layers, and windows where the engine keeps them per sequence.
func (b *bench) seqState(sp Spread, st settings) (bytes int64, formula string) {
	var parts []string
	for _, l := range b.model.Layers {
		n := ceilDiv(l.Count, sp.PP)
		switch {
		case l.Kind == facts.Linear:
			state := st.state.of(l.StateBytes / 4)
			bytes += (ceilDiv(state, sp.AttnTP) + ceilDiv(l.ConvBytes, sp.AttnTP)) * n
			parts = append(parts, fmt.Sprintf("(%d state + %d conv) B / %d ranks x %d layers", state, l.ConvBytes, sp.AttnTP, n))
		case st.swaPPM > 0:
		case l.Kind == facts.SWA:
			per, text := row(l, sp, st.kv)
			bytes += per * n * (l.Window + st.pageSize)
			parts = append(parts, fmt.Sprintf("%s x %d layers x (%d+%d) tokens", text, n, l.Window, st.pageSize))
		case l.Kind == facts.DSV4:
			bytes += dsv4Row * n * (l.Window + st.pageSize)
			parts = append(parts, fmt.Sprintf("%d B x %d layers x (%d+%d) tokens", dsv4Row, n, l.Window, st.pageSize))
		}
	}
	return bytes, strings.Join(parts, " + ")
}

// cell is what one token takes on one rank for sizing, times scale. SGLang sizes a draft as
// (1 + draft layers / layers) of all the target's pools (pool_configurator.py); of a stage's
// layers, because the draft lies whole on the last one.
func (b *bench) cell(shapes []shape, sp Spread, st settings) int64 {
	var target, draft int64
	for _, s := range shapes {
		if s.draft {
			draft = satAdd(draft, s.scaled())
		} else {
			target = satAdd(target, s.scaled())
		}
	}
	if b.speculative() && b.model.DraftLayers > 0 && b.engine.Name == "sglang" {
		l := ceilDiv(kvLayers(b.model), sp.PP*st.layerSplit)
		return mulDiv(target, l+b.model.DraftLayers, l)
	}
	return satAdd(target, draft)
}

// kvLayers is the number of layers that cache per token.
func kvLayers(m *facts.Model) int64 {
	var n int64
	for _, l := range m.Layers {
		if l.Kind != facts.Linear {
			n += l.Count
		}
	}
	return max(n, 1)
}
