package spec

// A config is one named entry of a master file as it stands there, with the place of every
// value. Defaults are not filled in: what the file does not give has no place.
type config struct {
	key  string
	at   Pos
	node *node

	image, model, modelPrefix scalar[string]
	precision, framework      scalar[string]
	runner                    scalar[string]
	multinode, disagg         scalar[bool]
	router                    *component
	transfer                  scalar[string]

	fixed, agentic []*block
	weir           weirFields

	runnerKnown bool      // runners.yaml lists the runner
	hardware    *hardware // of the runner; nil when runners.yaml has none
}

// A block is one scenario of a config: a pair of sequence lengths or one agentic load.
type block struct {
	at          Pos
	scenario    Scenario
	isl, osl    scalar[int]
	utilization scalar[string] // of host memory, a decimal number as written
	entries     []*entry
}

// An entry is one line of a search space: one topology with its concurrencies.
type entry struct {
	at   Pos
	node *node

	tp, pp, ep, dcp, pcp scalar[int] // single-node
	dpAttn               scalar[bool]
	prefill, decode      *worker // multi-node

	spec     scalar[string]
	offload  scalar[string]
	backend  *component
	router   *component
	transfer scalar[string]

	concStart, concEnd scalar[int]
	concList           []int
	concAt             Pos // of the list

	weir   weirFields
	budget int64 // decimal GB, see dramBudgetGB
}

// worker is one role of a multi-node entry. keys holds the order of the file, in which the rows
// of the matrix have them.
type worker struct {
	at                   Pos
	keys                 []string
	count                scalar[int]
	tp, pp, ep, dcp, pcp scalar[int]
	dpAttn               scalar[bool]
	hardware             scalar[string]
	settings             []string
	settingsAt           Pos
}

// component is a named part. bare says that the file gives a plain string, the older form.
type component struct {
	at            Pos
	name, version scalar[string]
	bare          bool
}

func (c *component) value() Component {
	if c == nil {
		return Component{}
	}
	return Component{Name: c.name.V, Version: c.version.V}
}

func (w *worker) parallel() Parallel {
	return Parallel{TP: w.tp.V, PP: w.pp.or(1), EP: w.ep.or(1), DCP: w.dcp.or(1), PCP: w.pcp.or(1), DPAttn: w.dpAttn.V}
}

func (e *entry) parallel() Parallel {
	return Parallel{TP: e.tp.V, PP: e.pp.or(1), EP: e.ep.or(1), DCP: e.dcp.or(1), PCP: e.pcp.or(1), DPAttn: e.dpAttn.V}
}

// blocks are the scenarios of the config in the order in which they are expanded.
func (c *config) blocks() []*block {
	return append(append(make([]*block, 0, len(c.fixed)+len(c.agentic)), c.fixed...), c.agentic...)
}

var (
	singleNodeKeys = []string{"image", "model", "model-prefix", "precision", "framework", "runner",
		"multinode", "disagg", "router", "scenarios", "weir"}
	multiNodeKeys = []string{"image", "model", "model-prefix", "precision", "framework", "runner",
		"multinode", "disagg", "router", "kv-p2p-transfer", "scenarios", "weir"}

	concKeys   = []string{"conc-start", "conc-end", "conc-list"}
	workerKeys = []string{"num-worker", "tp", "pp", "ep", "dcp-size", "pcp-size", "dp-attn",
		"hardware", "additional-settings"}
	singleEntryKeys = append([]string{"tp", "pp", "ep", "dcp-size", "pcp-size", "dp-attn",
		"spec-decoding", "router", "weir"}, concKeys...)
	multiEntryKeys = append([]string{"prefill", "decode", "spec-decoding", "router",
		"kv-p2p-transfer", "weir"}, concKeys...)
	offloadKeys = []string{"kv-offloading", "kv-offload-backend"}

	singleAgenticKeys = append(append([]string{}, singleEntryKeys...), offloadKeys...)
	multiAgenticKeys  = append(append([]string{}, multiEntryKeys...), offloadKeys...)

	specDecodings = []string{"mtp", "draft_model", "none"}
	offloadModes  = []string{"none", "dram"}
)

// readConfig reads one entry of a master file and reports what is wrong with it.
func readConfig(n *node, runners *runners) *config {
	c := &config{key: n.key, at: n.pos(), node: n}
	if n.y.Kind != yamlMapping {
		n.object(nil)
		return c
	}
	// The kind of config decides which keys are known, so it is read first.
	multi := false
	if m := n.peek("multinode"); m != nil {
		multi, _ = boolOf(m.Value)
	}
	keys := singleNodeKeys
	if multi {
		keys = multiNodeKeys
	}
	o := n.object(keys)
	str := func(key, example string) scalar[string] {
		if v := o.need(key, example); v != nil {
			return v.str()
		}
		return scalar[string]{}
	}
	c.image = str("image", "lmsysorg/sglang:v0.5.17")
	c.model = str("model", "zai-org/GLM-5.2-FP8")
	c.modelPrefix = str("model-prefix", "glm5.2")
	c.precision = str("precision", "fp8")
	c.framework = str("framework", "sglang")
	c.runner = str("runner", "cluster:b200-dgxc")
	if v := o.need("multinode", "false"); v != nil {
		c.multinode = v.boolean()
	}
	if v := o.get("disagg"); v != nil {
		c.disagg = v.boolean()
		if c.disagg.V && !multi {
			v.fail("disagg: true needs several nodes", "set multinode: true or remove disagg")
		}
	}
	c.router = readComponent(o.get("router"), true)
	if v := o.get("kv-p2p-transfer"); v != nil {
		c.transfer = v.str()
	}
	if v := o.get("weir"); v != nil {
		c.weir = readWeir(v)
	}
	if c.runner.set() && runners != nil {
		c.runnerKnown, c.hardware = runners.known(c.runner.V), runners.hardware[c.runner.V]
	}
	if s := o.need("scenarios", "{ agentic-coding: [...] }"); s != nil {
		readScenarios(s, c, multi)
	}
	checkScopes(o, c)
	checkWeirScope(c)
	checkRunner(o, c, runners)
	return c
}

func readScenarios(n *node, c *config, multi bool) {
	o := n.object([]string{string(FixedSeqLen), string(AgenticCoding)})
	if !o.ok {
		return
	}
	if v := o.get(string(FixedSeqLen)); v != nil {
		for _, it := range v.items() {
			c.fixed = append(c.fixed, readFixed(it, c, multi))
		}
	}
	if v := o.get(string(AgenticCoding)); v != nil {
		for _, it := range v.items() {
			c.agentic = append(c.agentic, readAgentic(it, c, multi))
		}
		if c.runner.set() && len(c.agentic) > 0 && !isCluster(c.runner.V) {
			n.up.failField("runner", "agentic-coding needs one exact cluster, and runner "+c.runner.V+" is not one",
				"use a label that begins with "+clusterPrefix)
		}
	}
	if len(c.fixed)+len(c.agentic) == 0 {
		n.fail("has no scenario", "add an entry under "+string(FixedSeqLen)+" or "+string(AgenticCoding))
	}
}

func readFixed(n *node, c *config, multi bool) *block {
	b := &block{at: n.pos(), scenario: FixedSeqLen}
	o := n.object([]string{"isl", "osl", "search-space"})
	if v := o.need("isl", "8192"); v != nil {
		b.isl = v.integer(1)
	}
	if v := o.need("osl", "1024"); v != nil {
		b.osl = v.integer(1)
	}
	keys := singleEntryKeys
	if multi {
		keys = multiEntryKeys
	}
	for _, it := range searchSpace(o) {
		e, eo := readEntry(it, keys, multi)
		checkFits(eo, e, c)
		b.entries = append(b.entries, e)
	}
	return b
}

func readAgentic(n *node, c *config, multi bool) *block {
	b := &block{at: n.pos(), scenario: AgenticCoding}
	o := n.object([]string{"dram-utilization", "search-space"})
	keys := singleAgenticKeys
	if multi {
		keys = multiAgenticKeys
	}
	for _, it := range searchSpace(o) {
		e, eo := readEntry(it, keys, multi)
		readOffload(eo, e, multi)
		checkFits(eo, e, c)
		b.entries = append(b.entries, e)
	}
	readUtilization(o, b, c)
	return b
}

func searchSpace(o object) []*node {
	v := o.need("search-space", "[...]")
	if v == nil {
		return nil
	}
	items := v.items()
	if v.y.Kind == yamlSequence && len(items) == 0 {
		v.fail("is empty", "add an entry")
	}
	return items
}

func readEntry(n *node, keys []string, multi bool) (*entry, object) {
	e := &entry{at: n.pos(), node: n}
	o := n.object(keys)
	if !o.ok {
		return e, o
	}
	if multi {
		e.prefill = readWorker(o.need("prefill", "{ num-worker: 1, tp: 8, ep: 1, dp-attn: false }"), 1)
		e.decode = readWorker(o.need("decode", "{ num-worker: 1, tp: 8, ep: 1, dp-attn: false }"), 0)
		checkHardwarePair(o, e)
		if v := o.get("kv-p2p-transfer"); v != nil {
			e.transfer = v.str()
		}
	} else {
		if v := o.need("tp", "8"); v != nil {
			e.tp = v.integer(1)
		}
		e.pp, e.ep = o.optInt("pp"), o.optInt("ep")
		e.dcp, e.pcp = o.optInt("dcp-size"), o.optInt("pcp-size")
		if v := o.get("dp-attn"); v != nil {
			e.dpAttn = v.boolean()
		}
		checkDCP(o, e.tp, e.dcp)
	}
	if v := o.get("spec-decoding"); v != nil {
		e.spec = v.oneOf(specDecodings...)
	}
	e.router = readComponent(o.get("router"), true)
	if v := o.get("weir"); v != nil {
		e.weir = readWeir(v)
	}
	readConc(o, e)
	return e, o
}

func (o object) optInt(key string) scalar[int] {
	if v := o.get(key); v != nil {
		return v.integer(1)
	}
	return scalar[int]{}
}

func readWorker(n *node, minWorkers int) *worker {
	if n == nil {
		return nil
	}
	w := &worker{at: n.pos()}
	o := n.object(workerKeys)
	if !o.ok {
		return w
	}
	w.keys = make([]string, 0, len(o.pairs))
	for _, p := range o.pairs {
		if !p.isNull() {
			w.keys = append(w.keys, p.key)
		}
	}
	if v := o.need("num-worker", "1"); v != nil {
		w.count = v.integer(minWorkers)
	}
	if v := o.need("tp", "8"); v != nil {
		w.tp = v.integer(1)
	}
	if v := o.need("ep", "1"); v != nil {
		w.ep = v.integer(1)
	}
	if v := o.need("dp-attn", "false"); v != nil {
		w.dpAttn = v.boolean()
	}
	w.pp, w.dcp, w.pcp = o.optInt("pp"), o.optInt("dcp-size"), o.optInt("pcp-size")
	if v := o.get("hardware"); v != nil {
		w.hardware = v.str()
	}
	if v := o.get("additional-settings"); v != nil {
		w.settingsAt = v.pos()
		w.settings = []string{}
		for _, it := range v.items() {
			s := it.str()
			if s.set() && !isSetting(s.V) {
				it.fail(it.text()+" is not NAME=value", "write it as NAME=value")
			}
			w.settings = append(w.settings, s.V)
		}
	}
	checkDCP(o, w.tp, w.dcp)
	return w
}

// readComponent reads a named part; the older form is a plain string that only names it.
func readComponent(n *node, versioned bool) *component {
	if n == nil {
		return nil
	}
	c := &component{at: n.pos()}
	if n.y.Kind == yamlScalar {
		c.bare = true
		c.name = n.str()
		return c
	}
	o := n.object([]string{"name", "version"})
	if v := o.need("name", "sglang-router"); v != nil {
		c.name = v.str()
	}
	v := o.get("version")
	if v == nil && versioned {
		v = o.need("version", `"0.3.2"`)
	}
	if v != nil {
		c.version = v.str()
		if isImageReference(c.version.V) {
			v.fail(v.text()+" is an image, not a version",
				"give the release, package version or commit of the component itself")
		}
	}
	return c
}

// readConc reads the concurrencies of an entry: a list, or both ends of a range.
func readConc(o object, e *entry) {
	start, end, list := o.get("conc-start"), o.get("conc-end"), o.get("conc-list")
	if start != nil {
		e.concStart = start.integer(1)
	}
	if end != nil {
		e.concEnd = end.integer(1)
	}
	if list != nil {
		readConcList(list, e)
	}
	switch {
	case list != nil && (start != nil || end != nil):
		list.fail("conc-list stands beside conc-start or conc-end", "keep the list or the range")
	case list != nil:
	case start == nil && end == nil:
		o.fail("has no concurrency", "add conc-list: [1, 8] or conc-start and conc-end")
	case end == nil:
		start.fail("conc-start has no conc-end", "add conc-end, or use conc-list")
	case start == nil:
		end.fail("conc-end has no conc-start", "add conc-start, or use conc-list")
	case e.concStart.set() && e.concEnd.set() && e.concStart.V > e.concEnd.V:
		start.fail(start.y.Value+" is above conc-end "+end.y.Value, "swap them")
	}
}

func readConcList(list *node, e *entry) {
	e.concAt = list.pos()
	items := list.items()
	if list.y.Kind == yamlSequence && len(items) == 0 {
		list.fail("is empty", "add a concurrency")
	}
	seen := make(map[int]bool, len(items))
	for _, it := range items {
		v := it.integer(1)
		if !v.set() {
			continue
		}
		if seen[v.V] {
			it.fail(it.text()+" is in the list twice", "remove one")
			continue
		}
		seen[v.V] = true
		e.concList = append(e.concList, v.V)
	}
}
