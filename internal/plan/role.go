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
	st, err := b.settings(w, sp)
	if err != nil {
		return fmt.Errorf("%s: %w", w.name, err)
	}
	r := Role{Name: w.name, Workers: w.workers, Spread: sp, PageSize: st.pageSize, KVDType: st.kvDType}
	b.divides(w, sp)
	if b.speculative() && b.model.DraftLayers == 0 {
		b.warn(w.name, "draft-unknown", "the point decodes with a draft whose layers are not known (%s): its pool and weights are left out",
			first(b.model.Unknown["draft_layers"], "no fact"))
	}
	shapes := b.shapes(sp, st)
	for _, s := range shapes {
		r.BytesPerToken = satAdd(r.BytesPerToken, s.scaled())
	}
	r.BytesPerToken = ceilDiv(r.BytesPerToken, scale)
	if st.recipe != nil {
		r.WeightOffloadBytes = st.recipe.WeightOffloadBytes
	}
	b.device(&r, st, shapes)
	if b.hasHost(w) {
		r.WritePolicy = st.writePolicy
		b.host(&r, w, st, shapes)
	} else {
		b.sum(&r)
		if r.Node.MemoryBytes.N > 0 && r.Node.MarginBytes < 0 {
			b.find(w.name, OOMHost, "use nodes with more memory", "%s on a node are more than the %s that %s less 5 %% and 10 GiB leave",
				GB(r.Node.TotalBytes), GB(r.Node.LimitBytes), GB(r.Node.MemoryBytes.N))
		}
	}
	b.v.Roles = append(b.v.Roles, r)
	return nil
}

// divides refuses a tensor parallelism that the model's heads cannot be split by, and a
// single-node point that needs more GPUs than a node has.
func (b *bench) divides(w worker, sp Spread) {
	if !b.p.Multinode && sp.GPUs > b.gpusPerNode {
		b.find(w.name, EngineRejects, fmt.Sprintf("use at most %d GPUs", b.gpusPerNode),
			"the point runs on one node and needs %d GPUs, but a node of %s has %d", sp.GPUs, b.p.Runner, b.gpusPerNode)
	}
	if b.model.Heads > 0 && b.model.Heads%sp.AttnTP != 0 {
		b.find(w.name, EngineRejects, fmt.Sprintf("choose a tp that divides %d", b.model.Heads),
			"tp %d does not divide the %d query heads of %s", sp.AttnTP, b.model.Heads, b.model.Name)
	}
	for _, l := range b.model.Layers {
		switch l.Kind {
		case facts.MHA, facts.SWA, facts.Sparse:
			if l.KVHeads%sp.AttnTP != 0 && sp.AttnTP%l.KVHeads != 0 {
				b.find(w.name, EngineRejects, fmt.Sprintf("choose a tp that divides %d or is a multiple of it", l.KVHeads),
					"tp %d neither divides the %d KV heads of %s nor is a multiple of them", sp.AttnTP, l.KVHeads, b.model.Name)
				return
			}
			if sp.AttnTP > l.KVHeads {
				b.warn(w.name, "kv-replicated", "%d KV heads at tp %d: every head is kept %d times", l.KVHeads, sp.AttnTP, sp.AttnTP/l.KVHeads)
				return
			}
		}
	}
}

// hasHost says whether the workers of a role keep a host tier: with disaggregation only
// prefill does (InferenceX generate_sweep_configs.py:140-186).
func (b *bench) hasHost(w worker) bool { return b.p.Offload.Mode == "dram" && w.name != "decode" }

// against lays a sum beside the memory of a node; 0 is unknown.
func (n *NodeSum) against(memory Value) {
	n.MemoryBytes, n.LimitBytes, n.MarginBytes = memory, 0, 0
	if memory.N > 0 {
		n.LimitBytes = max(0, memory.N-mulDiv(memory.N, SafetyPPM, 1_000_000)-HostReserveBytes)
		n.MarginBytes = n.LimitBytes - n.TotalBytes
	}
}

// sum adds up one node.
func (b *bench) sum(r *Role) {
	n := &r.Node
	*n = NodeSum{Ranks: int(r.RanksPerNode * r.WorkersPerNode)}
	if r.Host != nil {
		n.HostPoolBytes = satMul(r.Host.Bytes, int64(n.Ranks))
	}
	n.TotalBytes = n.HostPoolBytes
	add := func(name string, perRank int64, from string) {
		if perRank > 0 {
			it := Item{name, satMul(perRank, int64(n.Ranks)), fmt.Sprintf("%d x %s, %s", n.Ranks, GB(perRank), from)}
			n.Other = append(n.Other, it)
			n.TotalBytes = satAdd(n.TotalBytes, it.Bytes)
		}
	}
	hp := b.hostProcess()
	add("engine processes", hp.Bytes, cite(hp.Source))
	add("weights kept on the host", r.WeightOffloadBytes, "the recipe")
	n.against(b.nodeBytes)
	if r.Host != nil && b.p.Offload.BudgetGB > 0 {
		n.PolicyBytes = Value{satMul(satMul(b.p.Offload.BudgetGB, 1_000_000_000), r.WorkersPerNode),
			fmt.Sprintf("the configured share of a node, %d GB for the %d ranks of a worker on it", b.p.Offload.BudgetGB, r.RanksPerNode)}
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
