package plan

import (
	"fmt"

	"github.com/weirbench/weir/internal/facts"
)

// role plans one kind of worker and appends it to the verdict.
func (b *bench) role(w worker) error {
	sp, err := b.spread(w)
	if err != nil {
		return err
	}
	st, err := b.settings(w)
	if err != nil {
		return fmt.Errorf("%s: %w", w.name, err)
	}
	kvBytes, err := kvElemBytes(st.kvDType)
	if err != nil {
		return fmt.Errorf("%s: %w", w.name, err)
	}
	r := Role{Name: w.name, Workers: w.workers, Spread: sp, PageSize: st.pageSize, KVDType: st.kvDType}
	b.heads(w.name, sp)
	if b.speculative() && b.model.DraftLayers == 0 {
		b.warn(w.name, "draft-unknown", "the point decodes with a draft, but the draft layers of %s are not known: their pool is left out", b.model.Name)
	}
	shapes := b.shapes(sp, kvBytes, st.swaPPM)
	b.device(&r, w, st, shapes)
	if b.hasHost(w) {
		r.WritePolicy = st.writePolicy
		b.host(&r, st, shapes)
	} else {
		b.sum(&r)
	}
	b.v.Roles = append(b.v.Roles, r)
	return nil
}

// heads refuses a tensor parallelism that the model's heads cannot be split by.
func (b *bench) heads(role string, sp Spread) {
	if b.model.Heads > 0 && b.model.Heads%sp.AttnTP != 0 {
		b.find(role, EngineRejects, fmt.Sprintf("choose a tp that divides %d", b.model.Heads),
			"tp %d does not divide the %d query heads of %s", sp.AttnTP, b.model.Heads, b.model.Name)
	}
	for _, l := range b.model.Layers {
		switch l.Kind {
		case facts.MHA, facts.SWA, facts.Sparse:
			if l.KVHeads%sp.AttnTP != 0 && sp.AttnTP%l.KVHeads != 0 {
				b.find(role, EngineRejects, fmt.Sprintf("choose a tp that divides %d or is a multiple of it", l.KVHeads),
					"tp %d neither divides the %d KV heads of %s nor is a multiple of them", sp.AttnTP, l.KVHeads, b.model.Name)
				return
			}
			if sp.AttnTP > l.KVHeads {
				b.warn(role, "kv-replicated", "%d KV heads at tp %d: every head is kept %d times", l.KVHeads, sp.AttnTP, sp.AttnTP/l.KVHeads)
				return
			}
		}
	}
}

// hasHost says whether the workers of a role keep a host tier: with disaggregation only
// prefill does (InferenceX generate_sweep_configs.py:140-186).
func (b *bench) hasHost(w worker) bool { return b.p.Offload.Mode == "dram" && w.name != "decode" }

// sum adds up one node and judges it.
func (b *bench) sum(r *Role) {
	n := &r.Node
	workers := r.WorkersPerNode
	n.Ranks = int(r.RanksPerNode * workers)
	n.Other = nil
	var other int64
	if hp := b.hostProcess(); hp.Bytes > 0 {
		it := Item{"engine processes", satMul(hp.Bytes, int64(n.Ranks)), fmt.Sprintf("%d x %s, %s", n.Ranks, GB(hp.Bytes), cite(hp.Source))}
		n.Other = append(n.Other, it)
		other = it.Bytes
	}
	n.HostPoolBytes = 0
	if r.Host != nil {
		n.HostPoolBytes = satMul(r.Host.Bytes, int64(n.Ranks))
	}
	n.TotalBytes = satAdd(n.HostPoolBytes, other)
	n.MemoryBytes = b.nodeBytes
	if b.nodeBytes.N > 0 {
		n.LimitBytes = max(0, b.nodeBytes.N-mulDiv(b.nodeBytes.N, SafetyPPM, 1_000_000)-HostReserveBytes)
		n.MarginBytes = n.LimitBytes - n.TotalBytes
	}
	n.PolicyBytes = Value{}
	if r.Host != nil && b.p.Offload.BudgetGB > 0 {
		n.PolicyBytes = Value{satMul(satMul(b.p.Offload.BudgetGB, 1_000_000_000), workers),
			fmt.Sprintf("the configured share of the node, %d GB for a worker's %d ranks", b.p.Offload.BudgetGB, r.RanksPerNode)}
		n.PolicyMarginBytes = n.PolicyBytes.N - n.HostPoolBytes
	}
}

func (b *bench) hostProcess() facts.HostProcess {
	if n := b.opt.HostProcessBytes; n != nil {
		return facts.HostProcess{Engine: b.engine.Name, Bytes: max(0, *n), Source: facts.Source{Where: "given by hand"}}
	}
	if hp := b.set.HostProcessFor(b.engine.Name); hp != nil {
		return *hp
	}
	return facts.HostProcess{Engine: b.engine.Name}
}
