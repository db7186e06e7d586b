package plan

import (
	"fmt"
	"strings"

	"github.com/weirbench/weir/internal/facts"
)

// A Pool is one allocation of KV or of what belongs to it, on one rank.
type Pool struct {
	Name         string `json:"name"` // kv, indexer, draft-kv, swa, c4, ...
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
	seq      bool // one slot a sequence, not a token
	// replicated pools have the same content on every rank of an attention group.
	replicated bool
}

// scale is a common multiple of all slot denominators: 4, 128 and a ratio in parts per million.
const scale = 128_000_000

// scaled is the bytes that one token takes in the pool, times scale.
func (s shape) scaled() int64 { return mulDiv(satMul(s.bytes, s.num), scale, s.den) }

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

// kvElemBytes is the size of one cached element.
func kvElemBytes(dtype string) (int64, error) {
	switch strings.ToLower(dtype) {
	case "fp8", "fp8_e4m3", "fp8_e5m2", "fp8_ds_mla":
		return 1, nil
	case "bf16", "bfloat16", "fp16", "float16", "half":
		return 2, nil
	case "fp32", "float32":
		return 4, nil
	}
	return 0, fmt.Errorf("kv dtype %q is not known; known: fp8, fp8_e4m3, fp8_e5m2, bf16, fp16, fp32", dtype)
}

// dsv4 holds DeepSeek-V4's constants (SGLang pool_configurator.py:574-830, 2026-07): a row of
// 448 fp8 values, 64 bf16 rope values and 8 scale bytes, an index row of 128 fp8 and one
// fp32 scale, and fp32 states of the two compressors.
const (
	dsv4Row        = 448 + 64*2 + 8
	dsv4Index      = 128 + 4
	dsv4Page       = 256
	dsv4State      = 2 * 2 * 512 * 4 // of one ring entry of one 4:1 layer
	dsv4IndexState = 2 * 2 * 128 * 4
	dsv4C128Ring   = 128 // doubled with speculative decoding
	dsv4C128State  = 2 * 512 * 4
)

// shapes lists what one rank caches for a model, target first, then side pools, then the draft.
//
// Sources: SGLang model_executor/pool_configurator.py:114-830 and mem_cache/pool_host, 2026-07;
// vLLM keeps the same bytes per token for MHA and MLA (v1/core/kv_cache_utils.py).
func (b *bench) shapes(sp Spread, kvBytes int64, swaPPM int64) []shape {
	m := b.model
	var kv, swa, idx terms
	var kvB, swaB, idxB int64
	var c4, c128 int64
	headsOf := func(l facts.Layers) int64 { return max(1, l.KVHeads/sp.AttnTP) }
	for _, l := range m.Layers {
		n := ceilDiv(l.Count, sp.PP)
		vd := l.VHeadDim
		if vd == 0 {
			vd = l.HeadDim
		}
		mha := headsOf(l) * (l.HeadDim + vd) * kvBytes * n
		switch l.Kind {
		case facts.MHA:
			kvB += mha
			kv.add(n, "%d heads x (%d+%d) x %d B", headsOf(l), l.HeadDim, vd, kvBytes)
		case facts.Sparse:
			kvB += mha
			kv.add(n, "%d heads x (%d+%d) x %d B", headsOf(l), l.HeadDim, vd, kvBytes)
			idxB += l.IndexDim * 2 * n // keys only, in the model's bf16
			idx.add(n, "%d x 2 B", l.IndexDim)
		case facts.SWA:
			swaB += mha
			swa.add(n, "%d heads x (%d+%d) x %d B", headsOf(l), l.HeadDim, vd, kvBytes)
		case facts.MLA, facts.DSA:
			kvB += (l.LoraRank + l.RopeDim) * kvBytes * n
			kv.add(n, "(%d+%d) x %d B", l.LoraRank, l.RopeDim, kvBytes)
			if l.Kind == facts.DSA {
				idxB += (l.IndexDim + l.IndexDim/128*4) * n
				idx.add(n, "(%d+%d) B", l.IndexDim, l.IndexDim/128*4)
			}
		case facts.DSV4:
			if l.Compress == 4 {
				c4 += n
			} else {
				c128 += n
			}
		}
	}
	replicated := m.Layers[0].Kind != facts.MHA && m.Layers[0].Kind != facts.SWA
	var out []shape
	add := func(name string, bytes, num, den int64, repl bool, formula string) {
		if bytes > 0 && num > 0 {
			out = append(out, shape{name: name, bytes: bytes, num: num, den: den, formula: formula, replicated: repl})
		}
	}
	add("kv", kvB, 1, 1, replicated, kv.String())
	add("swa", swaB, swaPPM, 1_000_000, replicated, swa.String())
	add("indexer", idxB, 1, 1, true, idx.String())
	if c4+c128 > 0 {
		ring := int64(8)
		if b.speculative() {
			ring = 16
		}
		add("swa", dsv4Row*(c4+c128), swaPPM, 1_000_000, true, fmt.Sprintf("%d B x %d layers, %s slots a token", dsv4Row, c4+c128, ppm(swaPPM)))
		add("c4", dsv4Row*c4, 1, 4, true, fmt.Sprintf("%d B x %d layers, one slot for 4 tokens", dsv4Row, c4))
		add("c4-indexer", dsv4Index*c4, 1, 4, true, fmt.Sprintf("%d B x %d layers, one slot for 4 tokens", dsv4Index, c4))
		add("c4-state", dsv4State*c4, swaPPM*ring, 128*1_000_000, true, fmt.Sprintf("2 x 2 x 512 x 4 B x %d layers, a ring of %d for 128 sliding-window tokens", c4, ring))
		add("c4-indexer-state", dsv4IndexState*c4, swaPPM*ring, 128*1_000_000, true, fmt.Sprintf("2 x 2 x 128 x 4 B x %d layers, a ring of %d for 128 sliding-window tokens", c4, ring))
		add("c128", dsv4Row*c128, 1, 128, true, fmt.Sprintf("%d B x %d layers, one slot for 128 tokens", dsv4Row, c128))
	}
	if d := b.draftShape(sp, kvBytes, replicated); d != nil {
		out = append(out, *d)
	}
	return out
}

// speculative says whether the point decodes with a draft.
func (b *bench) speculative() bool {
	return b.p.SpecDecoding != "" && b.p.SpecDecoding != "none"
}

// draftShape is the pool of the draft layers: the same per-layer formula as the target's KV,
// without an indexer, with the target's slots (SGLang maybe_register_hicache_draft).
func (b *bench) draftShape(sp Spread, kvBytes int64, replicated bool) *shape {
	m := b.model
	if !b.speculative() || m.DraftLayers == 0 {
		return nil
	}
	for _, l := range m.Layers {
		vd := l.VHeadDim
		if vd == 0 {
			vd = l.HeadDim
		}
		s := shape{name: "draft-kv", num: 1, den: 1, draft: true, replicated: replicated}
		switch l.Kind {
		case facts.MLA, facts.DSA:
			s.bytes = (l.LoraRank + l.RopeDim) * kvBytes * m.DraftLayers
			s.formula = fmt.Sprintf("(%d+%d) x %d B x %d draft layers", l.LoraRank, l.RopeDim, kvBytes, m.DraftLayers)
		case facts.MHA, facts.SWA, facts.Sparse:
			h := max(1, l.KVHeads/sp.AttnTP)
			s.bytes = h * (l.HeadDim + vd) * kvBytes * m.DraftLayers
			s.formula = fmt.Sprintf("%d heads x (%d+%d) x %d B x %d draft layers", h, l.HeadDim, vd, kvBytes, m.DraftLayers)
		default:
			continue
		}
		return &s
	}
	return nil
}

// hasState says whether the model has layers that keep a state per sequence, and how many
// bytes one sequence takes on one rank. stateBytes scales the fp32 state to another type.
func (b *bench) seqState(sp Spread, stateElem int64) (perSeq int64, formula string) {
	var parts []string
	for _, l := range b.model.Layers {
		if l.Kind != facts.Linear {
			continue
		}
		n := ceilDiv(l.Count, sp.PP)
		per := ceilDiv(l.StateBytes*stateElem/4, sp.AttnTP) + ceilDiv(l.ConvBytes, sp.AttnTP)
		perSeq += per * n
		parts = append(parts, fmt.Sprintf("(%d state + %d conv) B / %d ranks x %d layers", l.StateBytes*stateElem/4, l.ConvBytes, sp.AttnTP, n))
	}
	return perSeq, strings.Join(parts, " + ")
}

// cell is what one token takes on one rank for sizing, times scale: all pools of the target,
// times (1 + draft layers / layers) with a draft (SGLang pool_configurator.py).
func (b *bench) cell(shapes []shape) int64 {
	var sum int64
	for _, s := range shapes {
		if !s.draft && !s.seq {
			sum = satAdd(sum, s.scaled())
		}
	}
	if b.speculative() && b.model.DraftLayers > 0 {
		l := kvLayers(b.model)
		sum = mulDiv(sum, l+b.model.DraftLayers, l)
	}
	return sum
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
