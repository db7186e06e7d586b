package spec

import (
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
)

const (
	yamlScalar   = yaml.ScalarNode
	yamlSequence = yaml.SequenceNode
	yamlMapping  = yaml.MappingNode
)

const clusterPrefix = "cluster:"

// isCluster says whether a runner label names one exact cluster.
func isCluster(runner string) bool { return strings.HasPrefix(runner, clusterPrefix) }

// isImageReference says whether a version names a container image instead of a release.
func isImageReference(version string) bool {
	return strings.HasPrefix(version, "image:") || strings.Contains(version, "/") && strings.Contains(version, ":")
}

// isSetting says whether s is NAME=value.
func isSetting(s string) bool {
	name, _, ok := strings.Cut(s, "=")
	return ok && name != "" && strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_") == "" &&
		(name[0] < '0' || name[0] > '9')
}

// peek finds the value of a key without reporting anything.
func (n *node) peek(key string) *yaml.Node {
	for i := 0; i+1 < len(n.y.Content); i += 2 {
		if n.y.Content[i].Value == key {
			return n.y.Content[i+1]
		}
	}
	return nil
}

// failField reports a problem at a key of the mapping, or at the mapping when it has no such key.
func (n *node) failField(key, what, fix string) {
	if v := n.peek(key); v != nil {
		n.src.node(v, n, key, 0).fail(what, fix)
		return
	}
	n.fail(what, fix)
}

// checkDCP: decode context parallelism splits the ranks of tensor parallelism.
func checkDCP(o object, tp, dcp scalar[int]) {
	if tp.set() && dcp.set() && tp.V%dcp.V != 0 {
		o.get("dcp-size").fail(fmt.Sprintf("%d does not divide tp %d", dcp.V, tp.V),
			"use a divisor of "+fmt.Sprint(tp.V))
	}
}

// checkHardwarePair: the kind of GPU is given for both roles or for none.
func checkHardwarePair(o object, e *entry) {
	if e.prefill == nil || e.decode == nil || e.prefill.hardware.set() == e.decode.hardware.set() {
		return
	}
	has, lacks := "prefill", "decode"
	if e.decode.hardware.set() {
		has, lacks = lacks, has
	}
	o.get(has).failField("hardware", "hardware is given for "+has+" and not for "+lacks,
		"give it for both or for neither")
}

// checkScopes: router and transfer engine stand at the config or in its entries, not in both,
// and a disaggregated config has a transfer engine for every entry.
func checkScopes(o object, c *config) {
	routers, transfers, entries := 0, 0, 0
	for _, b := range c.blocks() {
		for _, e := range b.entries {
			entries++
			if e.router != nil {
				routers++
			}
			if e.transfer.set() {
				transfers++
			}
		}
	}
	if c.router != nil && routers > 0 {
		o.get("router").fail(fmt.Sprintf("router is given here and in %d of %d search-space entries", routers, entries),
			"keep it at one of the two")
	}
	if c.transfer.set() && transfers > 0 {
		o.get("kv-p2p-transfer").fail(fmt.Sprintf("kv-p2p-transfer is given here and in %d of %d search-space entries",
			transfers, entries), "keep it at one of the two")
	}
	if c.disagg.V && c.multinode.V && !c.transfer.set() && transfers < entries {
		what := "disagg: true needs a transfer engine"
		if transfers > 0 {
			what = fmt.Sprintf("disagg: true needs a transfer engine, and %d of %d search-space entries have none",
				entries-transfers, entries)
		}
		o.get("disagg").fail(what, "add 'kv-p2p-transfer: mooncake' (or nixl, mori) to the config or to every entry")
	}
}

// readOffload reads where KV goes that does not fit on the device.
func readOffload(o object, e *entry, multi bool) {
	if !o.ok {
		return
	}
	if v := o.get("kv-offloading"); v != nil {
		e.offload = v.oneOf(offloadModes...)
		if !e.offload.set() {
			return
		}
	} else if !multi {
		o.need("kv-offloading", "none")
	}
	b := o.get("kv-offload-backend")
	e.backend = readComponent(b, false)
	switch {
	case e.offload.V == "dram" && e.backend == nil:
		o.get("kv-offloading").fail("kv-offloading: dram names no backend", "add 'kv-offload-backend: { name: hicache }'")
	case e.offload.V == "none" && e.backend != nil:
		b.fail("kv-offloading: none has no backend", "remove kv-offload-backend or use kv-offloading: dram")
	case !e.offload.set() && e.backend != nil && multi:
		b.fail("kv-offload-backend without kv-offloading has no effect", "add 'kv-offloading: dram' or remove it")
	}
	for _, key := range hostFields {
		if e.offload.V != "dram" && e.weir.has(key) {
			e.weir.node.failField(key, key+" has no effect without kv-offloading: dram", "remove it")
		}
	}
}

// checkWeirScope: what the config gives under weir has an effect in one of its entries at least.
func checkWeirScope(c *config) {
	dram, drafts := false, false
	for _, b := range c.blocks() {
		for _, e := range b.entries {
			dram = dram || e.offload.V == "dram"
			drafts = drafts || e.speculates()
			if !e.speculates() && e.weir.has("draft-tokens") {
				e.weir.node.failField("draft-tokens", "draft-tokens has no effect with spec-decoding: none", "remove it or set spec-decoding")
			}
		}
	}
	if !drafts && c.weir.has("draft-tokens") {
		c.weir.node.failField("draft-tokens", "draft-tokens has no effect: no entry has spec-decoding", "remove it or set spec-decoding")
	}
	for _, key := range hostFields {
		if !dram && c.weir.has(key) {
			c.weir.node.failField(key, key+" has no effect: no entry has kv-offloading: dram", "remove it")
		}
	}
	if len(c.agentic) == 0 && c.weir.has("corpus") {
		c.weir.node.failField("corpus", "corpus has no effect: the config has no agentic-coding scenario", "remove it")
	}
	for _, b := range c.fixed {
		for _, e := range b.entries {
			for _, key := range append([]string{"corpus"}, hostFields...) {
				if e.weir.has(key) {
					e.weir.node.failField(key, key+" has no effect in a fixed-seq-len scenario", "remove it")
				}
			}
		}
	}
}

// checkFits: a single-node entry runs on one node.
func checkFits(o object, e *entry, c *config) {
	if c.hardware == nil || e.prefill != nil || !e.tp.set() {
		return
	}
	p, per := e.parallel(), c.hardware.gpusPerNode.V
	if p.GPUs() <= per {
		return
	}
	o.get("tp").fail(fmt.Sprintf("tp x pp x pcp-size = %d x %d x %d = %d GPUs, and a node of runner %s has %d",
		p.TP, p.PP, p.PCP, p.GPUs(), c.runner.V, per), "use fewer GPUs or a multi-node config")
}

// checkRunner: the runner is a label of runners.yaml. InferenceX schedules by labels that the file
// does not list, so a config that needs nothing of the file is only warned about.
func checkRunner(o object, c *config, runners *runners) {
	if runners == nil || !c.runner.set() || runners.known(c.runner.V) {
		return
	}
	what := "runner " + c.runner.V + " is not in " + runners.file
	fix := "add it to the labels there"
	if near := nearest(c.runner.V, runners.names); near != "" {
		fix = "did you mean " + near + "? Or " + fix
	}
	weir := c.weir.node != nil
	for _, b := range c.blocks() {
		for _, e := range b.entries {
			weir = weir || e.weir.node != nil
		}
	}
	if r := o.get("runner"); len(c.agentic) > 0 || weir {
		r.fail(what, fix)
	} else {
		r.warnAt(r.pos(), what, fix)
	}
}
