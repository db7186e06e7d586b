package spec

// hardware is what runners.yaml says about the nodes of a label.
type hardware struct {
	at          Pos
	dramMiB     scalar[int64] // host memory that jobs may use on one node, MiB
	gpusPerNode scalar[int]
}

// runners is runners.yaml: labels with their nodes, and facts of the nodes.
type runners struct {
	file     string
	names    []string // of the labels, in file order
	labels   map[string][]string
	hardware map[string]*hardware
}

func (r *runners) known(label string) bool { _, ok := r.labels[label]; return ok }

// readRunners reads the file's top mapping. An older form has the labels at the top and no
// hardware.
func readRunners(n *node) *runners {
	r := &runners{file: n.src.file, labels: map[string][]string{}, hardware: map[string]*hardware{}}
	if n.y.Kind == yamlMapping && n.peek("labels") == nil && n.peek("hardware") == nil {
		readLabels(n, r)
		return r
	}
	o := n.object([]string{"labels", "hardware"})
	if v := o.need("labels", "{ b200: [b200-0] }"); v != nil {
		readLabels(v, r)
	}
	if v := o.get("hardware"); v != nil {
		for _, p := range v.object(nil).pairs {
			h := &hardware{at: p.pos()}
			ho := p.object([]string{"available-cpu-dram-mib", "gpus-per-node"})
			if m := ho.need("available-cpu-dram-mib", "2_063_837"); m != nil {
				if i, ok := m.int64(1, 1<<40); ok {
					h.dramMiB = scalar[int64]{i, m.pos()}
				}
			}
			if g := ho.need("gpus-per-node", "8"); g != nil {
				h.gpusPerNode = g.integer(1)
			}
			if ho.ok && h.dramMiB.set() && h.gpusPerNode.set() {
				r.hardware[p.key] = h
			}
			if !r.known(p.key) {
				p.warnAt(p.keyPos(), "no label has this name", "add it to labels or remove it")
			}
		}
	}
	return r
}

func readLabels(n *node, r *runners) {
	for _, p := range n.object(nil).pairs {
		var nodes []string
		items := p.items()
		if p.y.Kind == yamlSequence && len(items) == 0 {
			p.fail("has no runner", "name one, or remove the label")
		}
		for _, it := range items {
			if s := it.str(); s.set() {
				nodes = append(nodes, s.V)
			}
		}
		r.names = append(r.names, p.key)
		r.labels[p.key] = nodes
	}
}
