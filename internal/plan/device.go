package plan

import (
	"fmt"

	"github.com/weirbench/weir/internal/facts"
)

// weights is what the checkpoint takes on one rank: experts lie over ExpertShards, the rest
// over the ranks of one attention group, all of it over the pipeline's stages. Without DP
// attention this is checkpoint / TP.
func (b *bench) weights(sp Spread, st settings) (Value, bool) {
	total, ok := b.model.WeightBytes[b.p.Precision]
	if !ok || total <= 0 {
		return Value{}, false
	}
	from := cite(b.model.Source("weight_bytes"))
	experts := b.model.ExpertBytes[b.p.Precision]
	var v Value
	if experts <= 0 || experts > total || sp.ExpertShards == sp.AttnTP {
		v = Value{ceilDiv(total, sp.AttnTP*sp.PP), fmt.Sprintf("%s / (tp %d x pp %d); %s", GB(total), sp.AttnTP, sp.PP, from)}
	} else {
		v.N = ceilDiv(ceilDiv(experts, sp.ExpertShards)+ceilDiv(total-experts, sp.AttnTP), sp.PP)
		v.From = fmt.Sprintf("(%s of experts / %d + %s of the rest / %d) / pp %d; %s",
			GB(experts), sp.ExpertShards, GB(total-experts), sp.AttnTP, sp.PP, from)
	}
	if st.recipe != nil && st.recipe.WeightOffloadBytes > 0 {
		off := min(v.N, st.recipe.WeightOffloadBytes)
		v.N -= off
		v.From += fmt.Sprintf("; less %s that the recipe keeps in host memory", GB(off))
	}
	return v, true
}

// device sizes the device pool of one rank:
//
//	pool   = HBM x fraction - weights - reserve - per-sequence state
//	tokens = pool / cell, floored to a page
//
// (SGLang kv_cache_configurator.py:1527-1570, 2026-07; vLLM does the same with activations
// profiled.) TensorRT-LLM's fraction is of what weights and reserve leave free.
func (b *bench) device(r *Role, st settings, shapes []shape) {
	d := &r.Device
	d.HBMBytes = Value{b.gpu.HBMBytes, b.gpu.Name + ", " + cite(b.gpu.Source("hbm_bytes"))}
	d.FractionPPM = st.fraction
	cell := b.cell(shapes, r.Spread, st)
	switch {
	case b.opt.DevicePoolBytes > 0:
		// An engine's log of its KV size counts the target's pools only.
		d.PoolBytes, d.PoolFrom = b.opt.DevicePoolBytes, "given by hand"
		cell = 0
		for _, s := range shapes {
			if !s.draft {
				cell = satAdd(cell, s.scaled())
			}
		}
	case st.recipe != nil && st.recipe.PoolBytes > 0:
		d.PoolBytes, d.PoolFrom = st.recipe.PoolBytes, "set outright by "+b.citeRecipe(st.recipe)
		if wb, ok := b.weights(r.Spread, st); ok {
			d.WeightBytes = wb
			if need := satAdd(wb.N, d.PoolBytes); need > d.HBMBytes.N {
				b.find(r.Name, OOMDevice, "give the worker more GPUs or a smaller pool", "%s of weights and a pool of %s are more than %s of HBM",
					GiB(wb.N), GiB(d.PoolBytes), GiB(d.HBMBytes.N))
			}
		}
		if !b.takeState(r, st) {
			return
		}
	default:
		d.PoolFrom = "HBM x fraction - weights - reserve - state"
		if !b.deviceBudget(r, st) || !b.takeState(r, st) {
			return
		}
	}
	tokens := mulDiv(d.PoolBytes, scale, cell)
	tokens -= tokens % st.pageSize
	d.Tokens = tokens
	d.UniqueTokens = satMul(tokens, r.AttnDP*r.DCP)
	for _, s := range shapes {
		d.Pools = append(d.Pools, s.pool(tokens))
	}
	if d.StateBytes > 0 {
		d.Pools = append(d.Pools, Pool{Name: "state", BytesPerSlot: d.StateBytesPerSeq, Slots: d.StateSlots, Bytes: d.StateBytes, Formula: d.stateFormula})
	}
	if tokens == 0 {
		b.find(r.Name, OOMDevice, "give the worker more GPUs", "the device pool of %s holds not one page of %d tokens", GiB(d.PoolBytes), st.pageSize)
		return
	}
	if limit := b.p.MaxModelLen; limit > 0 && d.UniqueTokens/max(1, r.AttnDP) < limit {
		b.warn(r.Name, "context", "the device pool holds %s tokens, fewer than the longest context of %s", thousands(tokens*r.DCP), thousands(limit))
	}
	if b.kind(facts.DSA) && st.kv == 16 && b.engine.Name == "sglang" && (b.gpu.Name == "h100" || b.gpu.Name == "h200") {
		b.warn(r.Name, "dsa-row", "on Hopper the FlashMLA backends keep fp8 rows of 656 B where the engine budgets 576: the pool may overshoot by 14 %%")
	}
}

// deviceBudget fills what is left for pools; false where nothing is, or where it is not known.
func (b *bench) deviceBudget(r *Role, st settings) bool {
	d := &r.Device
	wb, ok := b.weights(r.Spread, st)
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
	sum := fmt.Sprintf("%s of HBM x %s = %s, less %s of weights and %s of reserve",
		GiB(d.HBMBytes.N), ppm(d.FractionPPM.N), GiB(usable), GiB(d.WeightBytes.N), GiB(d.ReserveBytes.N))
	if b.engine.FractionOfFree {
		free := max(0, d.HBMBytes.N-d.WeightBytes.N-d.ReserveBytes.N)
		rest = mulDiv(free, d.FractionPPM.N, 1_000_000)
		sum = fmt.Sprintf("(%s of HBM less %s of weights and %s of reserve) x %s",
			GiB(d.HBMBytes.N), GiB(d.WeightBytes.N), GiB(d.ReserveBytes.N), ppm(d.FractionPPM.N))
	}
	if rest <= 0 {
		change := "split the weights over more GPUs"
		need := ceilDiv(mulDiv(d.WeightBytes.N+d.ReserveBytes.N, 1_000_000, d.HBMBytes.N)+1, 1000) * 1000
		if need < 970_000 && !b.engine.FractionOfFree {
			change = fmt.Sprintf("raise the memory fraction above %s, or split the weights over more GPUs", ppm(need))
		}
		if st.guessed && d.WeightBytes.N < d.HBMBytes.N {
			b.find(r.Name, Unknown, fmt.Sprintf("give mem-fraction under the key weir; %s", change),
				"no recipe is known that gives the memory fraction, and with the engine's default it would not fit: %s leaves %s for KV", sum, GiB(rest))
			return false
		}
		b.find(r.Name, OOMDevice, change, "%s leaves %s for KV", sum, GiB(rest))
		return false
	}
	d.PoolBytes = rest
	return true
}

// takeState takes what sequences keep whatever their length out of the pool. SGLang allots
// linear layers a share of what is left (mamba_full_memory_ratio 0.9: 9/19 of it) or a number
// of slots that the recipe gives; DeepSeek-V4's 128:1 states are a constant for all running
// sequences. Other engines take it from the same pool as sequences run.
func (b *bench) takeState(r *Role, st settings) bool {
	d := &r.Device
	perSeq, formula := b.seqState(r.Spread, st)
	slots := st.seqs
	switch {
	case b.engine.Name == "sglang" && b.kind(facts.DSV4):
		_, ring := b.rings()
		var c128 int64
		for _, l := range b.model.Layers {
			if l.Kind == facts.DSV4 && l.Compress == 128 {
				c128 += ceilDiv(l.Count, r.PP)
			}
		}
		if c128 == 0 {
			return true
		}
		entries := ceilDiv(st.seqs*ring+ring+1, 128) * 128
		d.StateBytesPerSeq, d.StateSlots, d.stateFormula = dsv4C128State*c128, entries,
			fmt.Sprintf("2 x 512 x 4 B x %d layers; %d sequences x a ring of %d", c128, st.seqs, ring)
		d.StateBytes = satMul(entries, dsv4C128State*c128)
	case perSeq == 0:
		return true
	case b.engine.Name == "sglang" && b.kind(facts.Linear):
		if st.recipe != nil && st.recipe.MambaSlots > 0 {
			slots = st.recipe.MambaSlots
		} else {
			slots = mulDiv(d.PoolBytes, 9, 19) / perSeq
		}
		fallthrough
	default:
		d.StateBytesPerSeq, d.StateSlots, d.stateFormula = perSeq, slots, formula
		if most := d.PoolBytes / 2 / perSeq; b.engine.Name != "sglang" && slots > most {
			// These engines take states as sequences come and let the others wait.
			b.warn(r.Name, "sequences", "%d sequences may run at once on a rank, but %d fill half of the pool with state: planned with those", slots, most)
			d.StateSlots = most
		}
		d.StateBytes = satMul(perSeq, d.StateSlots)
	}
	if d.StateBytes >= d.PoolBytes {
		status := OOMDevice
		if st.guessed {
			status = Unknown
		}
		b.find(r.Name, status, "run fewer sequences at once or give the worker more GPUs",
			"%s slots of %s B for the state of %d sequences a rank take %s of the %s that are left", thousands(d.StateSlots), thousands(d.StateBytesPerSeq), st.seqs, GiB(d.StateBytes), GiB(d.PoolBytes))
		d.PoolBytes = 0
		return false
	}
	d.PoolBytes -= d.StateBytes
	return true
}
