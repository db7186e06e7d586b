package spec

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
)

// agenticDuration is how long the profiling phase of an agentic point lasts, in seconds
// (InferenceX DEFAULT_AGENTIC_DURATION_SECONDS, 2026-08).
const agenticDuration = 3600

// lengthNames are the pairs of sequence lengths that have a short name.
var lengthNames = []struct {
	name     string
	isl, osl int
}{{"1k1k", 1024, 1024}, {"8k1k", 8192, 1024}}

// SeqLenNames are the values that Selection.SeqLens takes.
func SeqLenNames() []string {
	out := make([]string, len(lengthNames))
	for i, l := range lengthNames {
		out[i] = l.name
	}
	return out
}

// seqLenName is the short name of a pair of lengths, or "isl_osl".
func seqLenName(isl, osl int) string {
	for _, l := range lengthNames {
		if l.isl == isl && l.osl == osl {
			return l.name
		}
	}
	return strconv.Itoa(isl) + "_" + strconv.Itoa(osl)
}

// A Selection says which part of a Set is expanded and how. The zero value takes everything.
type Selection struct {
	// Keys names configs, in order; * and ? match as in a file name. Empty takes all configs in
	// the order of the files.
	Keys []string

	ModelPrefix []string // beginnings of config names
	Precision   []string
	Framework   []string
	RunnerType  []string
	// RunnerNode keeps runners whose name has it as a part and expands every point to each of
	// them.
	RunnerNode string
	SeqLens    []string // see SeqLenNames
	Scenarios  []Scenario

	Step             int // factor between concurrencies of a range; 0 is 2
	MinConc, MaxConc *int
	MaxTP, MaxEP     *int
	Conc             []int // keep only these
	// SingleNode and MultiNode keep one kind; both or none keep both.
	SingleNode, MultiNode bool
}

// A row is one job of the matrix: an entry of the search space on one runner with the
// concurrencies that share an allocation.
type row struct {
	config *config
	block  *block
	entry  *entry
	runner string
	conc   []int
	named  []int // concurrencies in the name; those of conc unless rows were merged
	ep     int   // single-node; may be capped by the selection

	hasEval  bool // run-eval is part of the row
	runEval  bool
	evalOnly bool
	evalAll  bool // eval-all-concs
	evalConc int  // 0 is none
}

func (r *row) agentic() bool { return r.block.scenario == AgenticCoding }
func (r *row) multi() bool   { return r.config.multinode.V }

// speculates says whether the row drafts tokens.
func (r *row) speculates() bool { return r.entry.speculates() }

func (e *entry) speculates() bool { return e.spec.or("none") != "none" }

// keys resolves the names of a selection.
func (s *Set) keys(patterns []string) ([]*config, error) {
	if len(patterns) == 0 {
		return s.configs, nil
	}
	var out []*config
	seen := map[string]bool{}
	for _, p := range patterns {
		found := false
		if strings.ContainsAny(p, "*?") {
			for _, c := range s.configs {
				ok, err := path.Match(globPattern(p), strings.ReplaceAll(c.key, "/", "\x00"))
				if err != nil {
					return nil, fmt.Errorf("config key %q: %w", p, err)
				}
				if ok {
					found = true
					if !seen[c.key] {
						seen[c.key] = true
						out = append(out, c)
					}
				}
			}
		} else if c := s.byKey[p]; c != nil {
			found = true
			if !seen[p] {
				seen[p] = true
				out = append(out, c)
			}
		}
		if !found {
			msg := fmt.Sprintf("no config matches %q in %s", p, strings.Join(s.masterFiles(), ", "))
			if near := nearest(p, s.Keys()); near != "" {
				msg += "; did you mean " + near + "?"
			}
			return nil, fmt.Errorf("%s", msg)
		}
	}
	return out, nil
}

func (s *Set) masterFiles() []string {
	if s.runners != nil {
		return s.Files[:len(s.Files)-1]
	}
	return s.Files
}

// globPattern lets * match a slash, and takes a backslash as it stands.
func globPattern(p string) string {
	return strings.NewReplacer("/", "\x00", `\`, `\\`).Replace(p)
}

// rows expands a selection in the order of InferenceX's generator. With Keys it expands as its
// command test-config does, without as full-sweep: they differ in what RunnerNode matches.
func (s *Set) rows(sel Selection) ([]row, error) {
	if sel.Step == 0 {
		sel.Step = 2
	}
	if sel.Step < 2 {
		return nil, fmt.Errorf("step size %d is not above 1; use 2 or more", sel.Step)
	}
	if sel.MinConc != nil && sel.MaxConc != nil && *sel.MinConc > *sel.MaxConc {
		return nil, fmt.Errorf("min concurrency %d is above max concurrency %d; swap them", *sel.MinConc, *sel.MaxConc)
	}
	for _, t := range sel.RunnerType {
		if s.runners != nil && !s.runners.known(t) {
			msg := fmt.Sprintf("runner type %q is not in %s", t, s.runners.file)
			if near := nearest(t, s.runners.names); near != "" {
				msg += "; did you mean " + near + "?"
			}
			return nil, fmt.Errorf("%s", msg)
		}
	}
	for _, l := range sel.SeqLens {
		if !contains(SeqLenNames(), l) {
			return nil, fmt.Errorf("sequence lengths %q have no such name; use %s", l, orList(SeqLenNames()))
		}
	}
	for _, sc := range sel.Scenarios {
		if sc != FixedSeqLen && sc != AgenticCoding {
			return nil, fmt.Errorf("scenario type %q is not known; use %s or %s", sc, FixedSeqLen, AgenticCoding)
		}
	}
	configs, err := s.keys(sel.Keys)
	if err != nil {
		return nil, err
	}
	var out []row
	for _, c := range configs {
		if sel.takes(c) {
			out = s.expand(out, c, sel)
		}
	}
	return out, nil
}

// takes says whether the filters on the config itself let it through.
func (sel *Selection) takes(c *config) bool {
	if len(sel.ModelPrefix) > 0 {
		found := false
		for _, p := range sel.ModelPrefix {
			found = found || strings.HasPrefix(c.key, p)
		}
		if !found {
			return false
		}
	}
	in := func(list []string, v string) bool { return len(list) == 0 || contains(list, v) }
	if !in(sel.Precision, c.precision.V) || !in(sel.Framework, c.framework.V) || !in(sel.RunnerType, c.runner.V) {
		return false
	}
	if sel.SingleNode != sel.MultiNode {
		return c.multinode.V == sel.MultiNode
	}
	return true
}

// runnersOf are the runner values that a config expands to.
func (s *Set) runnersOf(c *config, sel Selection) []string {
	if sel.RunnerNode == "" {
		return []string{c.runner.V}
	}
	var candidates, out []string
	if len(sel.Keys) > 0 {
		candidates = append(candidates, c.runner.V)
	}
	if s.runners != nil {
		candidates = append(candidates, s.runners.labels[c.runner.V]...)
	}
	for _, r := range candidates {
		if strings.Contains(r, sel.RunnerNode) && (len(sel.Keys) == 0 || !contains(out, r)) {
			out = append(out, r)
		}
	}
	return out
}

func (s *Set) expand(out []row, c *config, sel Selection) []row {
	runners := s.runnersOf(c, sel)
	if len(runners) == 0 {
		return out
	}
	has := func(sc Scenario) bool {
		for _, x := range sel.Scenarios {
			if x == sc {
				return true
			}
		}
		return len(sel.Scenarios) == 0
	}
	for _, b := range c.blocks() {
		if !has(b.scenario) {
			continue
		}
		if b.scenario == FixedSeqLen && len(sel.SeqLens) > 0 && !contains(sel.SeqLens, seqLenName(b.isl.V, b.osl.V)) {
			continue
		}
		for _, e := range b.entries {
			r := row{config: c, block: b, entry: e, ep: e.ep.or(1)}
			conc, ok := sel.concurrencies(&r)
			if !ok {
				continue
			}
			switch {
			case c.multinode.V && b.scenario == FixedSeqLen:
				for _, r.runner = range runners {
					r.conc = conc
					out = append(out, r)
				}
			case c.multinode.V: // one allocation a concurrency
				for _, r.runner = range runners {
					for i := range conc {
						r.conc = conc[i : i+1 : i+1]
						out = append(out, r)
					}
				}
			default:
				for i := range conc {
					for _, r.runner = range runners {
						r.conc = conc[i : i+1 : i+1]
						out = append(out, r)
					}
				}
			}
		}
	}
	return out
}

// concurrencies are those of an entry that the selection keeps; false drops the entry. The
// limits act per kind of entry as in InferenceX: fixed-seq-len runs at the maximum where all
// values are above it, agentic-coding drops what is outside.
func (sel *Selection) concurrencies(r *row) ([]int, bool) {
	e, lo, hi := r.entry, sel.MinConc, sel.MaxConc
	var conc []int
	switch {
	case r.agentic():
		conc = keep(e.concurrencies(sel.Step), func(c int) bool {
			return (lo == nil || c >= *lo) && (hi == nil || c <= *hi)
		})
	default:
		if lo != nil && *lo <= 0 || hi != nil && *hi <= 0 {
			return nil, false
		}
		if !r.multi() {
			if sel.MaxTP != nil && e.tp.V > *sel.MaxTP {
				return nil, false
			}
			if sel.MaxEP != nil && *sel.MaxEP <= 0 {
				return nil, false
			}
			if sel.MaxEP != nil && e.ep.set() {
				r.ep = min(r.ep, *sel.MaxEP)
			}
		}
		if !r.multi() && len(e.concList) == 0 {
			start, end := e.concStart.V, e.concEnd.V
			if lo != nil {
				if end < *lo {
					return nil, false
				}
				start = max(start, *lo)
			}
			if hi != nil {
				start, end = min(start, *hi), min(end, *hi)
			}
			conc = steps(start, end, sel.Step)
			break
		}
		conc = e.concurrencies(sel.Step)
		if lo != nil {
			if conc = keep(conc, func(c int) bool { return c >= *lo }); len(conc) == 0 {
				return nil, false
			}
		}
		if hi != nil {
			if conc = keep(conc, func(c int) bool { return c <= *hi }); len(conc) == 0 {
				conc = []int{*hi}
			}
		}
	}
	if len(sel.Conc) > 0 {
		conc = keep(conc, func(c int) bool {
			for _, x := range sel.Conc {
				if x == c {
					return true
				}
			}
			return false
		})
	}
	return conc, len(conc) > 0
}

func keep(in []int, ok func(int) bool) []int {
	out := make([]int, 0, len(in))
	for _, c := range in {
		if ok(c) {
			out = append(out, c)
		}
	}
	return out
}

// concurrencies are those of the entry: its list, or the range by factor with its exact end.
func (e *entry) concurrencies(step int) []int {
	if len(e.concList) > 0 {
		return e.concList
	}
	return steps(e.concStart.V, e.concEnd.V, step)
}

func steps(start, end, step int) []int {
	var out []int
	for c := start; c < end; c *= step {
		out = append(out, c)
		if c > end/step {
			break
		}
	}
	return append(out, end)
}

// name is exp-name as InferenceX forms it.
func (r *row) name() string {
	c, e := r.config, r.entry
	if !r.agentic() {
		return c.modelPrefix.V + "_" + seqLenName(r.block.isl.V, r.block.osl.V)
	}
	b := make([]byte, 0, 80)
	b = append(b, c.modelPrefix.V...)
	if r.multi() {
		b = appendWorkerTag(append(b, "_p"...), e.prefill)
		b = appendWorkerTag(append(b, "_d"...), e.decode)
		b = append(b, "_conc"...)
		conc := r.conc
		if r.named != nil {
			conc = r.named
		}
		for i, v := range conc {
			if i > 0 {
				b = append(b, 'x')
			}
			b = strconv.AppendInt(b, int64(v), 10)
		}
		if e.offload.V == "dram" {
			b = append(append(b, "_kvdram-"...), e.backend.name.V...)
		}
		return string(b)
	}
	b = strconv.AppendInt(append(b, "_tp"...), int64(e.tp.V), 10)
	b = strconv.AppendInt(append(b, "_conc"...), int64(r.conc[0]), 10)
	if e.offload.V == "dram" {
		b = append(append(b, "_kvdram-"...), e.backend.name.V...)
	} else {
		b = append(b, "_kvnone"...)
	}
	if s := e.spec.or("none"); s != "none" {
		b = append(append(b, "_spec-"...), s...)
	}
	return string(b)
}

func appendWorkerTag(b []byte, w *worker) []byte {
	b = strconv.AppendInt(b, int64(w.count.V), 10)
	b = strconv.AppendInt(append(b, 'x'), int64(w.tp.V), 10)
	if ep := w.ep.or(1); ep != 1 {
		b = strconv.AppendInt(append(b, "ep"...), int64(ep), 10)
	}
	if w.dpAttn.V {
		b = append(b, "dpa"...)
	}
	return b
}

// Points expands a selection into points, one a concurrency and seed, in the order of the matrix.
// Entries that give the same point give it once, with the origin of the first.
func (s *Set) Points(sel Selection) ([]*Point, error) {
	rows, err := s.rows(sel)
	if err != nil {
		return nil, err
	}
	var out []*Point
	for i := range rows {
		out = append(out, rows[i].points()...)
	}
	return once(out), nil
}

// once leaves out points that are equal to one before but for where they were written.
func once(points []*Point) []*Point {
	seen := make(map[string]bool, len(points))
	return slices.DeleteFunc(points, func(p *Point) bool {
		id := p.ID()
		again := seen[id]
		seen[id] = true
		return again
	})
}

func (r *row) points() []*Point {
	w := r.entry.weir.over(r.config.weir)
	seeds := w.seedList()
	out := make([]*Point, 0, len(r.conc)*len(seeds))
	for _, conc := range r.conc {
		for _, seed := range seeds {
			out = append(out, r.point(conc, w.fields(seed, r.entry)))
		}
	}
	return out
}

func (r *row) point(conc int, weir WeirFields) *Point {
	c, e := r.config, r.entry
	one := *r
	one.conc = []int{conc}
	p := &Point{
		Key: c.key, Origin: Origin{File: e.at.File, Line: e.at.Line}, Name: one.name(),
		Image: c.image.V, Model: c.model.V, ModelPrefix: c.modelPrefix.V, Precision: c.precision.V,
		Framework: c.framework.V, Runner: r.runner, Scenario: r.block.scenario, Conc: conc,
		Multinode: c.multinode.V, Disagg: c.disagg.V, SpecDecoding: e.spec.or("none"),
		Offload: Offload{Mode: "none"}, Router: r.router().value(), KVTransfer: r.transfer().V,
		Weir: weir,
	}
	if r.multi() {
		p.Prefill, p.Decode = e.prefill.value(), e.decode.value()
	} else {
		u := e.parallel()
		u.EP = r.ep
		p.Unified = &u
	}
	if e.offload.V == "dram" {
		p.Offload = Offload{Mode: "dram", Backend: e.backend.value(), BudgetGB: e.budget}
	}
	if r.agentic() {
		p.DurationNs = agenticDuration * 1e9
	} else {
		p.ISL, p.OSL = int64(r.block.isl.V), int64(r.block.osl.V)
		p.MaxModelLen = p.ISL + p.OSL + lengthSlack
	}
	if h := c.hardware; h != nil {
		p.GPUsPerNode, p.NodeDRAMBytes = h.gpusPerNode.V, h.dramMiB.V<<20
	}
	return p
}

// lengthSlack is what InferenceX adds to isl + osl for the model length, in tokens.
const lengthSlack = 256

func (w *worker) value() *Worker {
	return &Worker{Parallel: w.parallel(), Workers: w.count.V, Hardware: w.hardware.V, Settings: w.settings}
}

// router and transfer are given at the config or in the entry, never in both.
func (r *row) router() *component {
	if r.entry.router != nil {
		return r.entry.router
	}
	return r.config.router
}

func (r *row) transfer() scalar[string] {
	if r.entry.transfer.set() {
		return r.entry.transfer
	}
	return r.config.transfer
}
