package spec

import (
	"fmt"
	"math/big"
	"strconv"
	"strings"
)

// An Explained field of a point says where its value comes from.
type Explained struct {
	Field string `json:"field"`
	Value string `json:"value"`
	// At are the places in the files that the value comes from; none for a default.
	At []Pos `json:"at,omitempty"`
	// Why is the rule or default behind the value, or why a declared field cannot matter here.
	Why string `json:"why,omitempty"`
}

// An Explanation is everything about one point.
type Explanation struct {
	Point  *Point      `json:"point"`
	ID     string      `json:"id"`
	Fields []Explained `json:"fields"`
	// Inert are fields that the config declares and that cannot change this point.
	Inert []Explained `json:"inert,omitempty"`
}

// Explain explains the point whose id begins with prefix or whose name it is.
func (m *Matrix) Explain(prefix string) (*Explanation, error) {
	var found *Explanation
	for i := range m.rows {
		r := &m.rows[i]
		if r.evalOnly {
			continue
		}
		for _, p := range r.points() {
			id := p.ID()
			if prefix == "" || !strings.HasPrefix(id, prefix) && p.Name != prefix {
				continue
			}
			if found != nil && found.ID != id {
				return nil, fmt.Errorf("%q fits %s and %s; give more digits of the id", prefix, found.ID, id)
			}
			if found == nil {
				found = r.explain(p)
			}
		}
	}
	if found == nil {
		return nil, fmt.Errorf("no point of the selection has the id or name %q; 'weir matrix --points' lists them", prefix)
	}
	return found, nil
}

type explainer struct{ out []Explained }

func (x *explainer) add(field, value, why string, at ...Pos) {
	places := at[:0:0]
	for _, p := range at {
		if p.Line != 0 {
			places = append(places, p)
		}
	}
	x.out = append(x.out, Explained{Field: field, Value: value, At: places, Why: why})
}

// given adds a field that the file gives, or its default.
func given[T any](x *explainer, field string, s scalar[T], value, why string) {
	if s.set() {
		x.add(field, value, "", s.At)
	} else {
		x.add(field, value, why)
	}
}

func (r *row) explain(p *Point) *Explanation {
	c, e := r.config, r.entry
	x := &explainer{}
	x.add("key", c.key, "", c.at)
	x.add("name", p.Name, r.nameRule())
	given(x, "image", c.image, p.Image, "")
	given(x, "model", c.model, p.Model, "")
	given(x, "model-prefix", c.modelPrefix, p.ModelPrefix, "")
	given(x, "precision", c.precision, p.Precision, "")
	given(x, "framework", c.framework, p.Framework, "")
	if p.Runner == c.runner.V {
		given(x, "runner", c.runner, p.Runner, "")
	} else {
		x.add("runner", p.Runner, "a node of "+c.runner.V+" that the runner filter selects", c.runner.At)
	}
	x.add("scenario", string(p.Scenario), "", r.block.at)
	r.explainConc(x, p)
	given(x, "multinode", c.multinode, strconv.FormatBool(p.Multinode), "")
	given(x, "disagg", c.disagg, strconv.FormatBool(p.Disagg), "default")
	if r.multi() {
		explainWorker(x, "prefill", e.prefill)
		explainWorker(x, "decode", e.decode)
	} else {
		given(x, "tp", e.tp, strconv.Itoa(p.Unified.TP), "")
		given(x, "pp", e.pp, strconv.Itoa(p.Unified.PP), "default")
		if p.Unified.EP != e.ep.or(1) {
			x.add("ep", strconv.Itoa(p.Unified.EP), fmt.Sprintf("%d, capped by --max-ep", e.ep.V), e.ep.At)
		} else {
			given(x, "ep", e.ep, strconv.Itoa(p.Unified.EP), "default")
		}
		given(x, "dcp-size", e.dcp, strconv.Itoa(p.Unified.DCP), "default")
		given(x, "pcp-size", e.pcp, strconv.Itoa(p.Unified.PCP), "default")
		given(x, "dp-attn", e.dpAttn, strconv.FormatBool(p.Unified.DPAttn), "default")
	}
	_, _, gpus := p.GPUs()
	x.add("gpus", strconv.Itoa(gpus), "tp x pp x pcp-size of every worker, workers counted; dp-attn and ep reuse them")
	given(x, "spec-decoding", e.spec, p.SpecDecoding, "default")
	r.explainOffload(x, p)
	explainComponent(x, "router", r.router())
	given(x, "kv-p2p-transfer", r.transfer(), p.KVTransfer, "not given")
	if r.agentic() {
		x.add("duration-ns", strconv.FormatInt(p.DurationNs, 10), "rule: 3600 s of profiling for agentic-coding")
	} else {
		given(x, "isl", r.block.isl, strconv.FormatInt(p.ISL, 10), "")
		given(x, "osl", r.block.osl, strconv.FormatInt(p.OSL, 10), "")
		x.add("max-model-len", strconv.FormatInt(p.MaxModelLen, 10),
			fmt.Sprintf("rule: isl + osl + %d", lengthSlack), r.block.isl.At, r.block.osl.At)
	}
	if h := c.hardware; h != nil {
		x.add("gpus-per-node", strconv.Itoa(p.GPUsPerNode), "", h.gpusPerNode.At)
		x.add("node-dram-bytes", strconv.FormatInt(p.NodeDRAMBytes, 10),
			fmt.Sprintf("rule: %d MiB x 2^20", h.dramMiB.V), h.dramMiB.At)
	} else {
		x.add("gpus-per-node", "unknown", "runners.yaml has no hardware for the runner")
		x.add("node-dram-bytes", "unknown", "runners.yaml has no hardware for the runner")
	}
	w := e.weir.over(c.weir)
	r.explainWeir(x, p, w)
	return &Explanation{Point: p, ID: p.ID(), Fields: x.out, Inert: r.inert(w)}
}

func (r *row) nameRule() string {
	switch {
	case !r.agentic():
		return "rule: model-prefix and sequence lengths"
	case r.multi():
		return "rule: model-prefix, workers x tp of prefill and decode, concurrency, offload"
	}
	return "rule: model-prefix, tp, concurrency, offload, spec-decoding"
}

func (r *row) explainConc(x *explainer, p *Point) {
	e := r.entry
	v := strconv.Itoa(p.Conc)
	switch {
	case len(e.concList) > 0:
		x.add("conc", v, "a value of conc-list", e.concAt)
	default:
		x.add("conc", v, fmt.Sprintf("rule: %d, times the step size, up to exactly %d", e.concStart.V, e.concEnd.V),
			e.concStart.At, e.concEnd.At)
	}
}

func explainWorker(x *explainer, role string, w *worker) {
	p := w.parallel()
	f := func(name string) string { return role + "." + name }
	given(x, f("num-worker"), w.count, strconv.Itoa(w.count.V), "")
	given(x, f("tp"), w.tp, strconv.Itoa(p.TP), "")
	given(x, f("pp"), w.pp, strconv.Itoa(p.PP), "default")
	given(x, f("ep"), w.ep, strconv.Itoa(p.EP), "")
	given(x, f("dcp-size"), w.dcp, strconv.Itoa(p.DCP), "default")
	given(x, f("pcp-size"), w.pcp, strconv.Itoa(p.PCP), "default")
	given(x, f("dp-attn"), w.dpAttn, strconv.FormatBool(p.DPAttn), "")
	given(x, f("hardware"), w.hardware, w.hardware.V, "not given: the runner's")
	x.add(f("additional-settings"), strings.Join(w.settings, " "), "", w.settingsAt)
}

func explainComponent(x *explainer, field string, c *component) {
	if c == nil {
		x.add(field+".name", "", "not given")
		return
	}
	given(x, field+".name", c.name, c.name.V, "")
	given(x, field+".version", c.version, c.version.V, "not given")
}

func (r *row) explainOffload(x *explainer, p *Point) {
	e, b, h := r.entry, r.block, r.config.hardware
	given(x, "kv-offloading", e.offload, p.Offload.Mode, "default")
	explainComponent(x, "kv-offload-backend", e.backend)
	value := strconv.FormatInt(p.Offload.BudgetGB, 10)
	w := e.weir.over(r.config.weir)
	switch {
	case p.Offload.Mode == "none":
		x.add("budget-gb", value, "rule: kv-offloading is none")
	case w.sizesHost():
		x.add("budget-gb", value, "rule: the config sizes the host pool itself", w.hostRatio.At, w.hostBytes.At)
	case h == nil || !b.utilization.set():
		x.add("budget-gb", value, "unknown: runners.yaml has no hardware for the runner", b.utilization.At)
	default:
		per := h.gpusPerNode.V
		gpus, of := e.parallel().GPUs(), "GPUs"
		if r.multi() {
			gpus, _ = workerGPUsOnNode(e.prefill.parallel(), per)
			of = "GPUs of a prefill worker on a node"
		}
		util, _ := new(big.Rat).SetString(b.utilization.V)
		x.add("budget-gb", value, fmt.Sprintf(
			"rule: min(%d, %d) MiB x 2^20 x %s x %d/%d %s / 10^9, rounded down",
			h.dramMiB.V, maxNodeDRAMMiB, trimZeros(util), gpus, per, of),
			b.utilization.At, h.dramMiB.At, h.gpusPerNode.At)
	}
}

func trimZeros(r *big.Rat) string {
	s := strings.TrimRight(r.FloatString(9), "0")
	return strings.TrimSuffix(s, ".")
}

func (r *row) explainWeir(x *explainer, p *Point, w weirFields) {
	f := p.Weir
	opt := func(field string, at Pos, value string) {
		if at.Line != 0 {
			x.add("weir."+field, value, "", at)
		}
	}
	opt("recipe", w.recipe.At, f.Recipe)
	opt("corpus", w.corpus.At, f.Corpus)
	if w.seedsAt.Line != 0 {
		x.add("weir.seed", strconv.FormatUint(f.Seed, 10), "", w.seedsAt)
	} else {
		x.add("weir.seed", strconv.FormatUint(f.Seed, 10), "default: InferenceX replays with seed 42")
	}
	opt("mem-fraction", w.memFraction.At, ppmText(f.MemFractionPPM))
	opt("kv-dtype", w.kvDType.At, f.KVDType)
	if r.entry.offload.V == "dram" {
		opt("host-ratio", w.hostRatio.At, ppmText(f.HostRatioPPM))
		opt("host-gb-per-rank", w.hostBytes.At, strconv.FormatInt(f.HostBytesPerRank, 10)+" bytes")
		opt("write-policy", w.writePolicy.At, f.WritePolicy)
	}
	opt("page-size", w.pageSize.At, strconv.FormatInt(f.PageSize, 10))
	opt("schedule-policy", w.schedule.At, f.SchedulePolicy)
	if r.speculates() {
		opt("draft-tokens", w.draftTokens.At, strconv.FormatInt(f.DraftTokens, 10))
	}
	given(x, "weir.repeats", w.repeats, strconv.Itoa(f.Repeats), "default")
	if f.SLO != nil {
		opt("slo.ttft-p90-s", w.slo.ttft.At, strconv.FormatInt(f.SLO.TTFTP90Ns, 10)+" ns")
		opt("slo.itl-p90-ms", w.slo.itl.At, strconv.FormatInt(f.SLO.ITLP90Ns, 10)+" ns")
		opt("slo.e2e-norm-intvty-p90", w.slo.interactivity.At, strconv.FormatInt(f.SLO.InteractivityP90Milli, 10)+"/1000 tokens/s/user")
	}
}

func ppmText(v int64) string { return trimZeros(big.NewRat(v, 1_000_000)) }

// inert lists what the config declares and what cannot change this point.
func (r *row) inert(w weirFields) []Explained {
	c, e := r.config, r.entry
	x := &explainer{}
	if r.block.utilization.set() && (e.offload.V != "dram" || w.sizesHost()) {
		why := "no budget is computed for an entry with kv-offloading: none"
		if e.offload.V == "dram" {
			why = "the entry sizes its host pool itself"
		}
		x.add("dram-utilization", r.block.utilization.V, why, r.block.utilization.At)
	}
	if e.offload.V != "dram" {
		for _, f := range []struct {
			name string
			at   Pos
		}{{"host-ratio", w.hostRatio.At}, {"host-gb-per-rank", w.hostBytes.At}, {"write-policy", w.writePolicy.At}} {
			if f.at.Line != 0 {
				x.add("weir."+f.name, "", "the entry has no host tier (kv-offloading: none)", f.at)
			}
		}
	}
	if !r.speculates() && w.draftTokens.set() {
		x.add("weir.draft-tokens", "", "the entry drafts nothing (spec-decoding: none)", w.draftTokens.At)
	}
	own, base := e.weir, c.weir
	over := func(field string, own, base Pos) {
		if own.Line != 0 && base.Line != 0 {
			x.add("weir."+field+" of the config", "", "the entry gives its own", base)
		}
	}
	over("recipe", own.recipe.At, base.recipe.At)
	over("corpus", own.corpus.At, base.corpus.At)
	over("seeds", own.seedsAt, base.seedsAt)
	over("mem-fraction", own.memFraction.At, base.memFraction.At)
	over("kv-dtype", own.kvDType.At, base.kvDType.At)
	over("write-policy", own.writePolicy.At, base.writePolicy.At)
	over("page-size", own.pageSize.At, base.pageSize.At)
	over("schedule-policy", own.schedule.At, base.schedule.At)
	over("draft-tokens", own.draftTokens.At, base.draftTokens.At)
	over("repeats", own.repeats.At, base.repeats.At)
	over("slo.ttft-p90-s", own.slo.ttft.At, base.slo.ttft.At)
	over("slo.itl-p90-ms", own.slo.itl.At, base.slo.itl.At)
	over("slo.e2e-norm-intvty-p90", own.slo.interactivity.At, base.slo.interactivity.At)
	if own.sizesHost() {
		x.add("weir.host-ratio of the config", "", "the entry sizes its host pool itself", base.hostRatio.At)
		x.add("weir.host-gb-per-rank of the config", "", "the entry sizes its host pool itself", base.hostBytes.At)
	}
	out := x.out[:0]
	for _, f := range x.out {
		if len(f.At) > 0 {
			out = append(out, f)
		}
	}
	return out
}
