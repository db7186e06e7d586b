package spec

import (
	"fmt"
	"math/big"
	"strings"
)

// maxNodeDRAMMiB caps what InferenceX counts of a node's host memory: 3 TB in MiB
// (generate_sweep_configs.py, 2026-08).
const maxNodeDRAMMiB = 2_861_022

// dramBudgetGB is the host memory that one server may pin on a node, in decimal GB:
//
//	floor(min(node MiB, 2,861,022) x 2^20 x utilization x GPUs used / GPUs per node / 10^9)
//
// The product is exact; only the last step rounds, down. GPUs used are those of the single-node
// point, or of one prefill worker on one node (InferenceX agentic_dram_offload_gb, 2026-08).
func dramBudgetGB(nodeMiB int64, utilization *big.Rat, gpus, gpusPerNode int) int64 {
	num := new(big.Int).Mul(big.NewInt(min(nodeMiB, maxNodeDRAMMiB)<<20), utilization.Num())
	num.Mul(num, big.NewInt(int64(gpus)))
	den := new(big.Int).Mul(utilization.Denom(), big.NewInt(int64(gpusPerNode)))
	den.Mul(den, big.NewInt(1_000_000_000))
	return num.Quo(num, den).Int64()
}

// workerGPUsOnNode is how many GPUs of one node a worker takes. A worker within a node has to
// divide it, a larger one has to fill whole nodes.
func workerGPUsOnNode(p Parallel, gpusPerNode int) (int, error) {
	g := p.GPUs()
	switch {
	case g > gpusPerNode && g%gpusPerNode != 0:
		return 0, fmt.Errorf("tp x pp x pcp = %d x %d x %d = %d GPUs spans nodes of %d and does not fill them",
			p.TP, p.PP, p.PCP, g, gpusPerNode)
	case g > gpusPerNode:
		return gpusPerNode, nil
	case gpusPerNode%g != 0:
		return 0, fmt.Errorf("tp x pp x pcp = %d x %d x %d = %d GPUs does not divide a node of %d",
			p.TP, p.PP, p.PCP, g, gpusPerNode)
	}
	return g, nil
}

// readUtilization reads dram-utilization and computes the budgets of the entries that need it.
func readUtilization(o object, b *block, c *config) {
	v := o.get("dram-utilization")
	var util *big.Rat
	if v != nil {
		if r, ok := v.decimal(); ok {
			if r.Sign() <= 0 || r.Cmp(big.NewRat(1, 1)) > 0 {
				v.fail(v.y.Value+" is not above 0 and not above 1", "write a share such as 0.80")
			} else {
				util = r
				b.utilization = scalar[string]{strings.ReplaceAll(v.y.Value, "_", ""), v.pos()}
			}
		}
	}
	needs, held, weir := 0, 0, c.weir.node != nil
	for _, e := range b.entries {
		weir = weir || e.weir.node != nil
		if e.offload.V != "dram" {
			continue
		}
		// A pool that is sized by itself is held against the share where there is one.
		if own := e.weir.over(c.weir); own.sizesHost() {
			held++
		} else {
			needs++
		}
		if c.hardware == nil || v == nil {
			continue
		}
		e.budget = budgetOf(o, e, c, util)
	}
	switch {
	case needs > 0 && v == nil && o.ok:
		o.fail(fmt.Sprintf("dram-utilization is missing: %d of %d entries have kv-offloading: dram and no host pool size of their own",
			needs, len(b.entries)), "add 'dram-utilization: 0.80'")
	case needs+held > 0 && v != nil && c.hardware == nil && c.runnerKnown:
		v.fail("the budget needs the host memory of runner "+c.runner.V+", and runners.yaml has no hardware for it",
			"add hardware: "+c.runner.V+": { available-cpu-dram-mib: ..., gpus-per-node: ... }")
	case needs+held == 0 && v != nil:
		what := "dram-utilization has no effect: no entry has kv-offloading: dram"
		if weir {
			v.fail(what, "remove it")
		} else { // files of InferenceX have it in places
			v.warnAt(v.pos(), what, "remove it")
		}
	}
}

// budgetOf computes the budget of an entry; 0 with a problem reported when its topology does not
// tile a node.
func budgetOf(o object, e *entry, c *config, util *big.Rat) int64 {
	per := c.hardware.gpusPerNode.V
	var gpus int
	if e.prefill != nil {
		if !e.prefill.tp.set() {
			return 0
		}
		g, err := workerGPUsOnNode(e.prefill.parallel(), per)
		if err != nil {
			o.failPath(e.prefill.at, e.node.path()+".prefill", err.Error()+" of runner "+c.runner.V,
				"use a tp x pp x pcp that divides or fills a node")
			return 0
		}
		gpus = g
	} else {
		gpus = e.parallel().GPUs()
		if gpus == 0 || gpus > per { // reported by checkFits
			return 0
		}
	}
	if util == nil {
		return 0
	}
	return dramBudgetGB(c.hardware.dramMiB.V, util, gpus, per)
}
