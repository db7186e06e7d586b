package spec

import (
	"sort"
	"strconv"
)

// minEvalConc is the least concurrency at which InferenceX runs an accuracy evaluation.
const minEvalConc = 16

// Evals says which rows of a matrix are evaluated and which stay.
type Evals int

const (
	// EvalsMarked marks the rows that are evaluated, agentic ones excepted.
	EvalsMarked Evals = iota
	// EvalsNone leaves evaluations out.
	EvalsNone
	// EvalsOnly keeps the rows that are evaluated, agentic ones included.
	EvalsOnly
	// EvalsAll keeps all rows that can be evaluated; rows that differ in concurrency only become
	// one.
	EvalsAll
)

// applyEvals marks and selects rows as InferenceX's generator does after expansion.
func applyEvals(rows []row, mode Evals) []row {
	if mode == EvalsNone {
		return rows
	}
	markEvals(rows, mode != EvalsMarked)
	if mode == EvalsMarked {
		return rows
	}
	if mode == EvalsAll {
		rows = mergeEvals(rows)
	}
	out := rows[:0]
	for _, r := range rows {
		if r.runEval {
			r.evalOnly = true
			out = append(out, r)
		}
	}
	return out
}

// evalLengths says whether a row has the only lengths that are evaluated: 8k1k.
func (r *row) evalLengths() bool {
	return !r.agentic() && r.block.isl.V == 8192 && r.block.osl.V == 1024
}

// topEvalConc is the highest concurrency of the row that may be evaluated, 0 if none.
func (r *row) topEvalConc() int {
	top := 0
	for _, c := range r.conc {
		if c >= minEvalConc {
			top = max(top, c)
		}
	}
	return top
}

// markEvals selects what is evaluated:
//   - single-node 8k1k, per model, runner, framework, precision, speculation and DP attention:
//     all rows at the highest and at the median concurrency of those from 16 on (of an even
//     number, the upper median);
//   - multi-node 8k1k, per set of rows that differ in concurrency only: the row with the highest
//     concurrency from 16 on;
//   - agentic, if asked for: single-node the first row with the highest concurrency per model,
//     runner, framework and precision; multi-node as above.
func markEvals(rows []row, agentic bool) {
	type group struct {
		rows  []int
		concs []int
	}
	groups := map[string]*group{}
	var order []*group // so that nothing depends on the order of a map
	type best struct{ row, conc int }
	tops := map[string]*best{}
	for i := range rows {
		r := &rows[i]
		r.hasEval, r.runEval = true, false
		c := r.config
		switch {
		case r.evalLengths() && !r.multi():
			if r.topEvalConc() == 0 {
				continue
			}
			key := join(c.model.V, r.runner, c.framework.V, c.precision.V, r.entry.spec.or("none"),
				strconv.FormatBool(r.entry.dpAttn.V))
			g := groups[key]
			if g == nil {
				g = &group{}
				groups[key] = g
				order = append(order, g)
			}
			g.rows = append(g.rows, i)
			g.concs = append(g.concs, r.conc[0])
		case r.evalLengths() || r.agentic() && agentic && r.multi():
			if conc := r.topEvalConc(); conc > 0 {
				key := r.parallelKey()
				if b := tops[key]; b == nil {
					tops[key] = &best{i, conc}
				} else if conc > b.conc {
					*b = best{i, conc}
				}
			}
		case r.agentic() && agentic:
			key := join("agentic", c.model.V, r.runner, c.framework.V, c.precision.V)
			if b := tops[key]; b == nil {
				tops[key] = &best{i, r.conc[0]}
			} else if r.conc[0] > b.conc {
				*b = best{i, r.conc[0]}
			}
		}
	}
	for _, g := range order {
		concs := uniqueSorted(g.concs)
		high, median := concs[len(concs)-1], concs[len(concs)/2]
		for _, i := range g.rows {
			if c := rows[i].conc[0]; c == high || c == median {
				rows[i].runEval = true
			}
		}
	}
	for _, b := range tops {
		rows[b.row].runEval = true
		if rows[b.row].multi() {
			rows[b.row].evalConc = b.conc
		}
	}
}

// mergeEvals makes every row that can be evaluated run; multi-node rows of one topology become
// one row with all concurrencies, of which agentic ones evaluate the highest and others all.
func mergeEvals(rows []row) []row {
	out := rows[:0:0]
	at := map[string]int{}
	for _, r := range rows {
		switch {
		case !r.agentic() && !r.evalLengths():
		case !r.multi():
			r.runEval = true
		default:
			key := r.parallelKey()
			if i, ok := at[key]; ok {
				m := &out[i]
				m.conc = uniqueSorted(append(append([]int{}, m.conc...), r.conc...))
				if m.agentic() {
					m.evalConc = m.conc[len(m.conc)-1]
				}
				continue
			}
			at[key] = len(out)
			r.named = r.conc // InferenceX leaves the name of the first row
			r.conc = uniqueSorted(append([]int{}, r.conc...))
			r.runEval = true
			if r.agentic() {
				r.evalConc = r.conc[len(r.conc)-1]
			} else {
				r.evalConc, r.evalAll = 0, true
			}
		}
		out = append(out, r)
	}
	return out
}

func uniqueSorted(v []int) []int {
	sort.Ints(v)
	out := v[:0]
	for _, x := range v {
		if len(out) == 0 || out[len(out)-1] != x {
			out = append(out, x)
		}
	}
	return out
}

// parallelKey identifies what a multi-node row is apart from its concurrency, name and
// evaluation.
func (r *row) parallelKey() string {
	var w rowWriter
	q := *r
	q.conc = nil
	c, e := q.config, q.entry
	w.buf = append(w.buf, '{')
	w.str("image", c.image.V)
	w.str("model", c.model.V)
	w.str("model-prefix", c.modelPrefix.V)
	w.str("precision", c.precision.V)
	w.str("framework", c.framework.V)
	w.str("runner", q.runner)
	if !q.agentic() {
		w.lengths(&q)
	}
	w.str("spec-decoding", e.spec.or("none"))
	if q.multi() {
		w.worker("prefill", sortedWorker(e.prefill))
		w.worker("decode", sortedWorker(e.decode))
		w.bool("disagg", c.disagg.V)
	} else {
		w.topology(e)
		w.int("ep", int64(q.ep))
		w.bool("dp-attn", e.dpAttn.V)
	}
	if q.agentic() {
		w.str("kv-offloading", e.offload.or("none"))
		w.int("total-cpu-dram-gb", e.budget)
		w.component("kv-offload-backend", e.backend)
	}
	w.component("router", q.router())
	w.str("kv-p2p-transfer", q.transfer().V)
	w.weir(&q)
	w.buf = append(w.buf, '}')
	return string(w.buf)
}

// sortedWorker has its fields in one order, whatever the order of the file.
func sortedWorker(k *worker) *worker {
	q := *k
	q.keys = append([]string{}, k.keys...)
	sort.Strings(q.keys)
	// A default that the file spells out equals one that it leaves out.
	q.keys = without(q.keys, "pp", "dcp-size", "pcp-size")
	q.settings = k.settings
	if q.pp.or(1) != 1 {
		q.keys = append(q.keys, "pp")
	} else {
		q.pp = scalar[int]{}
	}
	if q.dcp.or(1) != 1 {
		q.keys = append(q.keys, "dcp-size")
	} else {
		q.dcp = scalar[int]{}
	}
	if q.pcp.or(1) != 1 {
		q.keys = append(q.keys, "pcp-size")
	} else {
		q.pcp = scalar[int]{}
	}
	return &q
}

func without(list []string, drop ...string) []string {
	out := list[:0]
	for _, s := range list {
		if !contains(drop, s) {
			out = append(out, s)
		}
	}
	return out
}

func join(parts ...string) string {
	n := 0
	for _, p := range parts {
		n += len(p) + 1
	}
	b := make([]byte, 0, n)
	for _, p := range parts {
		b = append(append(b, p...), 0)
	}
	return string(b)
}
