package plan

import (
	"fmt"
	"strings"

	"github.com/weirbench/weir/internal/facts"
)

// settings are what a point, its recipe or its engine says about memory, and who said it.
type settings struct {
	fraction    Value
	kvDType     string
	pageSize    int64
	writePolicy string
	swaPPM      int64
	stateElem   int64 // bytes per element of a linear layer's state
}

// settings resolves in the order point, recipe, engine.
func (b *bench) settings(w worker) (settings, error) {
	p, e := &b.p.Weir, b.engine
	r := b.set.RecipeFor(facts.RecipeQuery{
		Model: b.model.Name, Precision: b.p.Precision, GPU: b.gpu.Name, Framework: b.p.Framework,
		Role: w.name, Offload: b.p.Offload.Mode, TP: w.par.TP, DPAttn: w.par.DPAttn,
	})
	if r == nil {
		r = &facts.Recipe{}
	}
	st := settings{stateElem: 4}
	switch {
	case p.MemFractionPPM < 0 || p.MemFractionPPM > 1_000_000:
		return st, fmt.Errorf("mem-fraction-ppm %d is not within 1 to 1,000,000", p.MemFractionPPM)
	case p.MemFractionPPM > 0:
		st.fraction = Value{p.MemFractionPPM, "the point"}
	case r.MemFractionPPM > 0:
		st.fraction = Value{r.MemFractionPPM, cite(r.Source)}
	default:
		st.fraction = Value{e.MemFraction.PPM, cite(e.MemFraction.Source)}
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
	st.pageSize = p.PageSize
	if st.pageSize == 0 {
		st.pageSize = r.PageSize
	}
	if st.pageSize == 0 {
		st.pageSize = b.defaultPage()
	}
	st.swaPPM = r.SWARatioPPM
	if st.swaPPM == 0 {
		st.swaPPM = 800_000 // SGLang's default; DeepSeek-V4 overrides it to 0.1
		if b.model.Layers[0].Kind == facts.DSV4 {
			st.swaPPM = 100_000
		}
	}
	return st, nil
}

// defaultPage is the page size that the engine falls to: DeepSeek-V4's kernels need 256, the
// DSA kernels 64 (SGLang server_args.py), otherwise the engine's own default.
func (b *bench) defaultPage() int64 {
	for _, l := range b.model.Layers {
		switch l.Kind {
		case facts.DSV4:
			return dsv4Page
		case facts.DSA:
			return max(64, b.engine.PageSize)
		}
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

// weights is what the checkpoint takes on one rank: experts lie over ExpertShards, the rest
// over the ranks of one attention group, all of it over the pipeline's stages. Without DP
// attention this is checkpoint / TP, as section 8.7 of the field's own arithmetic has it.
func (b *bench) weights(sp Spread) (Value, bool) {
	total, ok := b.model.WeightBytes[b.p.Precision]
	if !ok || total <= 0 {
		return Value{}, false
	}
	from := cite(b.model.Source("weight_bytes"))
	experts := b.model.ExpertBytes[b.p.Precision]
	if experts <= 0 || experts > total || sp.ExpertShards == sp.AttnTP {
		return Value{ceilDiv(total, sp.AttnTP*sp.PP), fmt.Sprintf("%s / (tp %d x pp %d); %s", GB(total), sp.AttnTP, sp.PP, from)}, true
	}
	n := ceilDiv(ceilDiv(experts, sp.ExpertShards)+ceilDiv(total-experts, sp.AttnTP), sp.PP)
	return Value{n, fmt.Sprintf("(%s of experts / %d + %s of the rest / %d) / pp %d; %s",
		GB(experts), sp.ExpertShards, GB(total-experts), sp.AttnTP, sp.PP, from)}, true
}

// device sizes the device pool of one rank (SGLang kv_cache_configurator.py:1527-1570):
//
//	pool = HBM x fraction - weights - reserve - per-sequence state
//	tokens = pool / cell, floored to a page
func (b *bench) device(r *Role, w worker, st settings, shapes []shape) {
	d := &r.Device
	d.HBMBytes = Value{b.gpu.HBMBytes, b.gpu.Name + ", " + cite(b.gpu.Source("hbm_bytes"))}
	d.FractionPPM = st.fraction
	cell := b.cell(shapes)
	if b.opt.DevicePoolBytes > 0 {
		d.PoolBytes = b.opt.DevicePoolBytes
		// An engine's log of its KV size counts the target's pools, not the draft's.
		cell = b.cell(targetOnly(shapes))
		if b.speculative() && b.model.DraftLayers > 0 {
			cell = mulDiv(cell, kvLayers(b.model), kvLayers(b.model)+b.model.DraftLayers)
		}
	} else if !b.deviceBudget(r, st) {
		return
	}
	tokens := mulDiv(d.PoolBytes, scale, cell)
	tokens -= tokens % st.pageSize
	d.Tokens = tokens
	d.UniqueTokens = satMul(tokens, r.AttnDP*r.DCP)
	for _, s := range shapes {
		if s.seq {
			continue
		}
		p := Pool{Name: s.name, BytesPerSlot: s.bytes, Slots: mulDiv(tokens, s.num, s.den), Formula: s.formula}
		p.Bytes = satMul(p.Slots, p.BytesPerSlot)
		d.Pools = append(d.Pools, p)
		r.BytesPerToken += s.scaled()
	}
	r.BytesPerToken = ceilDiv(r.BytesPerToken, scale)
	if b.opt.DevicePoolBytes == 0 && tokens == 0 {
		b.find(r.Name, OOMDevice, "give the worker more GPUs", "the device pool of %s holds not one page of %d tokens", GiB(d.PoolBytes), st.pageSize)
	}
}

func targetOnly(shapes []shape) []shape {
	var out []shape
	for _, s := range shapes {
		if !s.draft {
			out = append(out, s)
		}
	}
	return out
}

// deviceBudget fills what is left for pools; false where nothing is, or where it is not known.
func (b *bench) deviceBudget(r *Role, st settings) bool {
	d := &r.Device
	wb, ok := b.weights(r.Spread)
	if !ok {
		why := b.model.Unknown["weight_bytes."+b.p.Precision]
		if why == "" {
			why = "no fact gives the checkpoint's size at this precision"
		}
		b.find(r.Name, Unknown, fmt.Sprintf("add weight_bytes: {%s: N} of model %s to a --facts file", b.p.Precision, b.model.Name),
			"the weights of %s at %s are not known: %s", b.model.Name, b.p.Precision, why)
		return false
	}
	d.WeightBytes = wb
	if res := b.set.ReserveFor(b.engine.Name, b.model.Name, b.gpu.Name); res != nil {
		d.ReserveBytes = Value{res.Bytes, cite(res.Source)}
	}
	usable := mulDiv(d.HBMBytes.N, d.FractionPPM.N, 1_000_000)
	rest := usable - d.WeightBytes.N - d.ReserveBytes.N
	if rest <= 0 {
		change := "split the weights over more GPUs"
		if need := ceilDiv(satMul(d.WeightBytes.N+d.ReserveBytes.N+1, 1_000_000), d.HBMBytes.N); need < 970_000 {
			change = fmt.Sprintf("raise the memory fraction above %s", ppm(ceilDiv(need, 1000)*1000))
		}
		b.find(r.Name, OOMDevice, change, "%s of HBM x %s = %s, less %s of weights and %s of reserve leaves %s for KV",
			GiB(d.HBMBytes.N), ppm(d.FractionPPM.N), GiB(usable), GiB(d.WeightBytes.N), GiB(d.ReserveBytes.N), GiB(rest))
		return false
	}
	d.PoolBytes = rest
	return true
}
