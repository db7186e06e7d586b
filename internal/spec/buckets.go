package spec

import (
	"fmt"
	"regexp"
	"sort"
	"strings"
)

// ChangelogOptions change what a changelog asks for.
type ChangelogOptions struct {
	TrimConc  bool // one point a topology: the lowest concurrency
	AllEvals  bool // evaluate everything that can be
	EvalsOnly bool // no throughput points
	// Base is the Set at the base revision; append-only entries need it.
	Base *Set
}

// Buckets are the jobs that a change asks for, sorted by the workflow that runs them.
type Buckets struct {
	groups []bucketGroup
	// Entries are the changelog entries behind the jobs, in file order.
	Entries []*ChangelogEntry
}

// A bucketGroup is one field of the output. A family has the rows by sequence lengths or
// "agentic"; a plain one has one list.
type bucketGroup struct {
	name   string
	family bool
	order  []string // names of the family in order of first use
	rows   map[string][]row
}

func newBuckets() *Buckets {
	b := &Buckets{}
	for _, g := range []struct {
		name   string
		family bool
	}{{"single_node", true}, {"multi_node", true}, {"evals", false}, {"agentic_evals", false},
		{"multinode_evals", false}, {"multinode_agentic_evals", false}} {
		b.groups = append(b.groups, bucketGroup{name: g.name, family: g.family, rows: map[string][]row{}})
	}
	return b
}

func (b *Buckets) add(name, family string, r row) {
	for i := range b.groups {
		g := &b.groups[i]
		if g.name != name {
			continue
		}
		if _, ok := g.rows[family]; !ok {
			g.order = append(g.order, family)
		}
		g.rows[family] = append(g.rows[family], r)
	}
}

// addThroughput and addEval sort a row into its bucket.
func (b *Buckets) addThroughput(r row) {
	name := "single_node"
	if r.multi() {
		name = "multi_node"
	}
	family := "agentic"
	if !r.agentic() {
		family = seqLenName(r.block.isl.V, r.block.osl.V)
	}
	b.add(name, family, r)
}

func (b *Buckets) addEval(r row) {
	name := "evals"
	if r.agentic() {
		name = "agentic_evals"
	}
	if r.multi() {
		name = "multinode_" + name
	}
	b.add(name, "", r)
}

// Len is the number of jobs.
func (b *Buckets) Len() int {
	n := 0
	for _, g := range b.groups {
		for _, rows := range g.rows {
			n += len(rows)
		}
	}
	return n
}

// Changelog expands changelog entries into jobs. Configs that several entries name are measured
// once per scenario, and evaluated once per scenario.
func (s *Set) Changelog(entries []*ChangelogEntry, opt ChangelogOptions) (*Buckets, error) {
	appending := 0
	for _, e := range entries {
		if e.AppendOnly {
			appending++
		}
	}
	switch {
	case appending > 0 && appending < len(entries):
		return nil, Problems{{At: appendOnlyAt(entries), What: "append-only stands in one change with other entries",
			Fix: "make them two changes"}}
	case appending > 0 && (opt.AllEvals || opt.EvalsOnly):
		return nil, Problems{{At: entries[0].at, What: "append-only adds throughput points only, and all evaluations were asked for",
			Fix: "leave out --all-evals and --evals-only"}}
	case appending > 0 && opt.Base == nil:
		return nil, Problems{{At: entries[0].at, What: "append-only needs the configs of the base revision",
			Fix: "give them: --base-ref, or --base-config-files with --base-runner-config"}}
	}
	type resolved struct {
		entry   *ChangelogEntry
		configs []*config
	}
	var work []resolved
	var problems Problems
	for _, e := range entries {
		configs, ps := s.changelogConfigs(e)
		problems = append(problems, ps...)
		work = append(work, resolved{e, configs})
	}
	if len(problems) > 0 {
		return nil, problems
	}
	if appending > 0 {
		scope := map[string]map[Scenario]bool{}
		for _, w := range work {
			for _, c := range w.configs {
				if scope[c.key] == nil {
					scope[c.key] = map[Scenario]bool{}
				}
				for _, sc := range w.entry.scenarios() {
					scope[c.key][sc] = true
				}
			}
		}
		if err := checkAppendScope(opt.Base, s, scope, entries[0].at); err != nil {
			return nil, err
		}
	}
	// An entry that evaluates everything goes first: its broader selection wins where entries
	// overlap.
	sort.SliceStable(work, func(i, j int) bool { return work[i].entry.AllEvals && !work[j].entry.AllEvals })
	out := newBuckets()
	out.Entries = entries
	var throughput, evals []row
	measured, evaluated := map[string]bool{}, map[string]bool{}
	for _, w := range work {
		e := w.entry
		if !opt.EvalsOnly && !e.EvalsOnly && !e.AllEvals {
			for _, g := range unseen(w.configs, e.scenarios(), measured) {
				rows, err := s.rowsOf(g)
				if err != nil {
					return nil, err
				}
				if e.AppendOnly {
					base, err := opt.Base.rowsOf(g)
					if err != nil {
						return nil, err
					}
					if rows, err = appendDelta(base, rows, e.at); err != nil {
						return nil, err
					}
				}
				throughput = append(throughput, rows...)
			}
		}
		if e.AppendOnly {
			continue
		}
		mode := EvalsOnly
		if opt.AllEvals || e.AllEvals {
			mode = EvalsAll
		}
		for _, g := range unseen(w.configs, e.scenarios(), evaluated) {
			rows, err := s.rowsOf(g)
			if err != nil {
				return nil, err
			}
			for _, r := range applyEvals(rows, mode) {
				if !r.multi() || r.entry.prefill.ep.or(1) >= e.EvalMinPrefillEP {
					evals = append(evals, r)
				}
			}
		}
	}
	if opt.TrimConc {
		throughput = trimConc(throughput)
	}
	for _, r := range throughput {
		out.addThroughput(r)
	}
	for _, r := range evals {
		out.addEval(r)
	}
	return out, nil
}

func appendOnlyAt(entries []*ChangelogEntry) Pos {
	for _, e := range entries {
		if e.AppendOnly {
			return e.at
		}
	}
	return Pos{}
}

func (e *ChangelogEntry) scenarios() []Scenario {
	if len(e.Scenarios) == 0 {
		return []Scenario{FixedSeqLen, AgenticCoding}
	}
	return e.Scenarios
}

// changelogConfigs resolves the names of an entry; only * is a wildcard there.
func (s *Set) changelogConfigs(e *ChangelogEntry) (out []*config, problems Problems) {
	seen := map[string]bool{}
	for i, key := range e.ConfigKeys {
		re := regexp.MustCompile("^(?s:" + strings.ReplaceAll(regexp.QuoteMeta(key), `\*`, ".*") + ")$")
		found := false
		for _, c := range s.configs {
			if c.key != key && (!strings.Contains(key, "*") || !re.MatchString(c.key)) {
				continue
			}
			found = true
			if !seen[c.key] {
				seen[c.key] = true
				out = append(out, c)
			}
		}
		if !found {
			fix := "name a config of " + strings.Join(s.masterFiles(), ", ")
			if near := nearest(key, s.Keys()); near != "" {
				fix = "did you mean " + near + "?"
			}
			problems = append(problems, Problem{At: e.keysAt[i], Field: "config-keys", What: fmt.Sprintf("no config matches %q", key), Fix: fix})
		}
	}
	return out, problems
}

// A scenarioGroup is a set of configs that are expanded together for some scenarios.
type scenarioGroup struct {
	keys      []string
	scenarios []Scenario
}

// unseen groups configs by the scenarios of the entry that no entry before has taken, and takes
// them.
func unseen(configs []*config, scenarios []Scenario, seen map[string]bool) []scenarioGroup {
	var out []scenarioGroup
	for _, c := range configs {
		var left []Scenario
		for _, sc := range []Scenario{FixedSeqLen, AgenticCoding} {
			for _, want := range scenarios {
				key := c.key + "\x00" + string(sc)
				if want == sc && !seen[key] {
					seen[key] = true
					left = append(left, sc)
				}
			}
		}
		if len(left) == 0 {
			continue
		}
		found := false
		for i := range out {
			if len(out[i].scenarios) == len(left) && out[i].scenarios[0] == left[0] {
				out[i].keys = append(out[i].keys, c.key)
				found = true
			}
		}
		if !found {
			out = append(out, scenarioGroup{[]string{c.key}, left})
		}
	}
	return out
}

func (s *Set) rowsOf(g scenarioGroup) ([]row, error) {
	return s.rows(Selection{Keys: g.keys, Scenarios: g.scenarios})
}

// trimConc keeps the lowest concurrency of every topology.
func trimConc(rows []row) []row {
	lowest := map[string]int{}
	keep := make([]bool, len(rows))
	for i := range rows {
		r := &rows[i]
		if r.multi() {
			if len(r.conc) > 1 {
				r.conc = uniqueSorted(append([]int{}, r.conc...))[:1]
			}
			keep[i] = true
			continue
		}
		key := r.recipe()
		j, ok := lowest[key]
		switch {
		case !ok:
			lowest[key], keep[i] = i, true
		case r.conc[0] < rows[j].conc[0]:
			keep[j], keep[i] = false, true
			lowest[key] = i
		}
	}
	out := rows[:0]
	for i, r := range rows {
		if keep[i] {
			out = append(out, r)
		}
	}
	return out
}

// AppendJSON appends the buckets as one JSON object, with the revisions they compare.
func (b *Buckets) AppendJSON(buf []byte, baseRef, headRef string) []byte {
	w := rowWriter{buf: append(buf, '{')}
	list := func(rows []row, prints bool) { // evaluations have no fingerprint in InferenceX
		w.buf = append(w.buf, '[')
		for i := range rows {
			if i > 0 {
				w.buf = append(w.buf, ", "...)
			}
			print := ""
			if prints {
				print = rows[i].fingerprint()
			}
			w.row(&rows[i], print)
		}
		w.buf = append(w.buf, ']')
	}
	for _, g := range b.groups {
		w.key(g.name)
		if !g.family {
			list(g.rows[""], false)
			continue
		}
		w.buf = append(w.buf, '{')
		for _, f := range g.order {
			w.key(f)
			list(g.rows[f], true)
		}
		w.buf = append(w.buf, '}')
	}
	w.key("changelog_metadata")
	w.buf = append(w.buf, '{')
	w.str("base_ref", baseRef)
	w.str("head_ref", headRef)
	w.key("entries")
	w.buf = append(w.buf, mustJSON(b.Entries)...)
	w.buf = append(w.buf, '}', '}')
	return w.buf
}
