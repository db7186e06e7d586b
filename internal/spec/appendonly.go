package spec

import (
	"fmt"
	"sort"
	"strings"

	"go.yaml.in/yaml/v3"
)

// checkAppendScope refuses an append-only change that touches more than it names: configs that
// no entry selects, scenarios outside the filter, or fields that reach beyond it.
func checkAppendScope(base, head *Set, scope map[string]map[Scenario]bool, at Pos) error {
	var ps Problems
	bad := func(where Pos, what, fix string) { ps = append(ps, Problem{At: where, What: what, Fix: fix}) }
	for _, c := range head.configs {
		b := base.byKey[c.key]
		if scope[c.key] == nil {
			if b == nil || !sameYAML(b.node.y, c.node.y) {
				bad(c.at, "append-only, and config "+c.key+" changed, which no entry names", "make it two changes")
			}
			continue
		}
		if b == nil {
			bad(c.at, "append-only, and config "+c.key+" is not in the base revision", "use an entry without append-only")
			continue
		}
		checkConfigScope(b, c, scope[c.key], bad)
	}
	for _, b := range base.configs {
		if head.byKey[b.key] == nil {
			bad(at, "append-only, and config "+b.key+" was removed", "restore it")
		}
	}
	if len(ps) > 0 {
		return ps
	}
	return nil
}

func checkConfigScope(b, c *config, scope map[Scenario]bool, bad func(Pos, string, string)) {
	bs, cs := b.node.peek("scenarios"), c.node.peek("scenarios")
	outside := false
	for _, sc := range []Scenario{FixedSeqLen, AgenticCoding} {
		x, y := child(bs, string(sc)), child(cs, string(sc))
		if (x == nil) != (y == nil) {
			bad(c.at, fmt.Sprintf("append-only, and scenario %s of %s was added or removed", sc, c.key), "use an entry without append-only")
			continue
		}
		if x == nil || scope[sc] {
			continue
		}
		outside = true
		if !sameYAML(x, y) {
			bad(Pos{c.at.File, y.Line, y.Column}, fmt.Sprintf("append-only for other scenarios, and %s of %s changed", sc, c.key),
				"name the scenario in scenario-type or restore it")
		}
	}
	if !outside {
		return
	}
	for _, key := range multiNodeKeys {
		if key == "scenarios" {
			continue
		}
		if x, y := b.node.peek(key), c.node.peek(key); !sameYAML(x, y) {
			bad(c.at, fmt.Sprintf("append-only for some scenarios, and %s of %s changed, which reaches the others", key, c.key), "restore it")
		}
	}
}

func child(n *yaml.Node, key string) *yaml.Node {
	if n == nil {
		return nil
	}
	return (&node{y: n}).peek(key)
}

// sameYAML says whether two values are equal apart from comments, quotes, layout and the order of
// keys.
func sameYAML(a, b *yaml.Node) bool {
	for a != nil && a.Kind == yaml.AliasNode {
		a = a.Alias
	}
	for b != nil && b.Kind == yaml.AliasNode {
		b = b.Alias
	}
	if a == nil || b == nil {
		return a == b
	}
	if a.Kind != b.Kind || len(a.Content) != len(b.Content) {
		return false
	}
	switch a.Kind {
	case yaml.ScalarNode:
		return a.Value == b.Value && kindOf(a) == kindOf(b)
	case yaml.MappingNode:
		for i := 0; i+1 < len(a.Content); i += 2 {
			if !sameYAML(a.Content[i+1], child(b, a.Content[i].Value)) {
				return false
			}
		}
		return true
	}
	for i := range a.Content {
		if !sameYAML(a.Content[i], b.Content[i]) {
			return false
		}
	}
	return true
}

// series is what one curve of the dashboard shows: points that may be drawn as one line.
func (r *row) series() string {
	c, e := r.config, r.entry
	offload := "off"
	if e.offload.or("none") != "none" {
		offload = "on"
	}
	parts := []string{c.model.V, c.modelPrefix.V, c.precision.V, c.framework.V, r.runner,
		fmt.Sprint(c.disagg.V), offload}
	if r.agentic() {
		parts = append(parts, "agentic", "", "", "")
	} else {
		parts = append(parts, "fixed", fmt.Sprint(r.block.isl.V), fmt.Sprint(r.block.osl.V), e.spec.or("none"))
	}
	if r.multi() {
		parts = append(parts, e.prefill.hardware.V, e.decode.hardware.V)
	}
	return join(parts...)
}

// appendDelta returns the points that head adds to base. It refuses a change that drops or alters
// a point of base, adds nothing, or adds to a curve that base does not have with the same image.
func appendDelta(base, head []row, at Pos) ([]row, error) {
	refuse := func(at Pos, what, fix string) error {
		return Problems{{At: at, What: "append-only, and " + what, Fix: fix}}
	}
	if len(base) == 0 {
		return nil, refuse(at, "the base revision has no points for this entry", "use an entry without append-only")
	}
	points := func(rows []row) (map[string]map[int]bool, []string) {
		m := map[string]map[int]bool{}
		keys := make([]string, len(rows))
		for i := range rows {
			k := rows[i].recipe()
			keys[i] = k
			if m[k] == nil {
				m[k] = map[int]bool{}
			}
			for _, c := range rows[i].conc {
				m[k][c] = true
			}
		}
		return m, keys
	}
	old, oldKeys := points(base)
	now, nowKeys := points(head)
	for i, k := range oldKeys {
		if now[k] == nil {
			return nil, refuse(at, fmt.Sprintf("the points of %s of the base revision (line %d) were removed or changed",
				base[i].name(), base[i].entry.at.Line), "restore them")
		}
	}
	images := map[string]map[string]bool{}
	for i, k := range oldKeys {
		var gone []int
		for c := range old[k] {
			if !now[k][c] {
				gone = append(gone, c)
			}
		}
		if len(gone) > 0 {
			sort.Ints(gone)
			return nil, refuse(at, fmt.Sprintf("concurrency %s of %s was removed", strings.Trim(fmt.Sprint(gone), "[]"),
				base[i].name()), "restore it")
		}
		s := base[i].series()
		if images[s] == nil {
			images[s] = map[string]bool{}
		}
		images[s][base[i].config.image.V] = true
	}
	var out []row
	for i, k := range nowKeys {
		r := head[i]
		var added []int
		for _, c := range r.conc {
			if !old[k][c] && now[k][c] {
				added = append(added, c)
				delete(now[k], c) // once
			}
		}
		if len(added) == 0 {
			continue
		}
		r.conc = added
		if im := images[r.series()]; len(im) != 1 || !im[r.config.image.V] {
			return nil, refuse(r.entry.at, fmt.Sprintf("%s belongs to no curve of the base revision with the image %s",
				r.name(), r.config.image.V), "use an entry without append-only")
		}
		out = append(out, r)
	}
	if len(out) == 0 {
		return nil, refuse(at, "no point was added", "add one, or use an entry without append-only")
	}
	return out, nil
}
