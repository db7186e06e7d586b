package spec

import (
	"fmt"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// valueLimit bounds the values read of one file, aliases expanded: a file whose aliases blow up
// ends in a message. The largest master file of InferenceX has 40,000.
const valueLimit = 1_000_000

// source is one file while it is read.
type source struct {
	file     string
	problems Problems
	warnings Problems

	values int // read so far, see valueLimit
	blown  bool
}

// A node is a value of a file with the way to it, for messages.
type node struct {
	src *source
	y   *yaml.Node // never an alias
	up  *node
	key string // of the mapping that holds it; "" in a list
	idx int
	kl  int // line and column of the key, 0 in a list
	kc  int
}

// scalar is a value and where it stands; At.Line 0 says that the file does not give it.
type scalar[T any] struct {
	V  T
	At Pos
}

func (s scalar[T]) set() bool { return s.At.Line != 0 }

// or returns the value, or d when the file gives none.
func (s scalar[T]) or(d T) T {
	if s.set() {
		return s.V
	}
	return d
}

func (s *source) node(y *yaml.Node, up *node, key string, idx int) *node {
	for hops := 0; y.Kind == yaml.AliasNode && y.Alias != nil && hops < 100; hops++ {
		y = y.Alias
	}
	if s.values++; s.values > valueLimit && !s.blown {
		s.blown = true
		s.problems = append(s.problems, Problem{At: s.pos(y),
			What: fmt.Sprintf("aliases expand to more than %d values", valueLimit),
			Fix:  "write the values out"})
	}
	return &node{src: s, y: y, up: up, key: key, idx: idx}
}

func (s *source) pos(y *yaml.Node) Pos { return Pos{s.file, y.Line, y.Column} }

func (n *node) pos() Pos { return n.src.pos(n.y) }

// keyPos is where the key of the node stands, or the node itself in a list.
func (n *node) keyPos() Pos {
	if n.kl == 0 {
		return n.pos()
	}
	return Pos{n.src.file, n.kl, n.kc}
}

// path names the node from the top of its file: a.b[0].c.
func (n *node) path() string {
	if n.up == nil {
		return n.key
	}
	head := n.up.path()
	switch {
	case n.key == "":
		return head + "[" + strconv.Itoa(n.idx) + "]"
	case head == "":
		return n.key
	}
	return head + "." + n.key
}

func (n *node) fail(what, fix string) { n.failAt(n.pos(), what, fix) }

func (n *node) failAt(at Pos, what, fix string) {
	if n.src.blown && len(n.src.problems) > 1000 {
		return
	}
	n.src.problems = append(n.src.problems, Problem{At: at, Field: n.path(), What: what, Fix: fix})
}

// failPath reports a problem of a place that was read before.
func (n *node) failPath(at Pos, path, what, fix string) {
	n.src.problems = append(n.src.problems, Problem{At: at, Field: path, What: what, Fix: fix})
}

func (n *node) warnAt(at Pos, what, fix string) {
	n.src.warnings = append(n.src.warnings, Problem{At: at, Field: n.path(), What: what, Fix: fix})
}

// text shows the node in a message.
func (n *node) text() string {
	switch n.y.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	v := n.y.Value
	if len(v) > 60 {
		v = strings.ToValidUTF8(v[:57], "") + "..."
	}
	if kindOf(n.y) == kindString {
		return strconv.Quote(v)
	}
	if v == "" {
		return "empty"
	}
	return v
}

func (n *node) isNull() bool { return n.y.Kind == yaml.ScalarNode && kindOf(n.y) == kindNull }

func (n *node) scalarKind() (scalarKind, bool) {
	if n.y.Kind != yaml.ScalarNode {
		return 0, false
	}
	return kindOf(n.y), true
}

// items reads a list.
func (n *node) items() []*node {
	if n.y.Kind != yaml.SequenceNode {
		n.fail("is "+n.text()+", but must be a list", "write it as a list: [a, b] or lines that begin with '- '")
		return nil
	}
	out := make([]*node, 0, len(n.y.Content))
	for i, c := range n.y.Content {
		if n.src.blown {
			break
		}
		out = append(out, n.src.node(c, n, "", i))
	}
	return out
}

// object is a mapping with its keys in the order of the file.
type object struct {
	*node
	pairs  []*node
	ok     bool
	hinted []string // known keys that the message of an unknown one suggests
}

// object reads a mapping. Keys that are no strings, are given twice or are not known are
// reported; with known nil every key is taken.
func (n *node) object(known []string) object {
	o := object{node: n}
	if n.y.Kind != yaml.MappingNode {
		n.fail("is "+n.text()+", but must be a mapping", "write it as 'key: value' lines")
		return o
	}
	o.ok = true
	o.pairs = make([]*node, 0, len(n.y.Content)/2)
	o.add(n.y, known, true)
	return o
}

// add takes the pairs of a mapping; a merge key (<<) brings those of the mappings it names where
// the mapping itself has none.
func (o *object) add(y *yaml.Node, known []string, own bool) {
	var merges []*yaml.Node
	var lines map[string]int
	if own && len(y.Content) > 64 {
		lines = make(map[string]int, len(y.Content)/2)
	}
	for i := 0; i+1 < len(y.Content) && !o.src.blown; i += 2 {
		k := y.Content[i]
		if k.Kind == yaml.ScalarNode && k.Value == "<<" && k.Style == 0 {
			merges = append(merges, y.Content[i+1])
			continue
		}
		child := o.src.node(y.Content[i+1], o.node, k.Value, 0)
		child.kl, child.kc = k.Line, k.Column
		if k.Kind != yaml.ScalarNode || k.Value == "" {
			o.failAt(o.src.pos(k), "a key of the mapping is not a name", "write the key as a plain word")
			continue
		}
		if first := o.lineOf(k.Value, lines); first != 0 {
			if own {
				child.failAt(o.src.pos(k), fmt.Sprintf("the key is given twice, first in line %d", first), "remove one")
			}
			continue
		}
		if known != nil && !contains(known, k.Value) {
			o.unknown(k, child, known)
			continue
		}
		if lines != nil {
			lines[k.Value] = k.Line
		}
		o.pairs = append(o.pairs, child)
	}
	for _, m := range merges {
		target := o.src.node(m, o.node, "<<", 0)
		switch target.y.Kind {
		case yaml.MappingNode:
			o.merge(target, known)
		case yaml.SequenceNode:
			for _, it := range target.items() {
				o.merge(it, known)
			}
		default:
			target.fail("is "+target.text()+", but must be a mapping", "name an anchored mapping: <<: *name")
		}
	}
}

func (o *object) merge(target *node, known []string) {
	depth := 0
	for up := o.node; up != nil; up = up.up {
		depth++
	}
	if target.y.Kind != yaml.MappingNode || target.y == o.y || depth > 100 || o.src.blown {
		target.fail("is not a mapping that can be merged", "name another anchored mapping")
		return
	}
	sub := object{node: &node{src: o.src, y: target.y, up: o.up, key: o.key, idx: o.idx}}
	if o.src.values += len(target.y.Content); o.src.values > valueLimit {
		return
	}
	for i := 0; i+1 < len(target.y.Content); i += 2 {
		k := target.y.Content[i]
		if k.Value == "<<" {
			target.failAt(o.src.pos(k), "a merged mapping merges again", "write the values out")
			continue
		}
		if o.lineOf(k.Value, nil) != 0 {
			continue
		}
		child := o.src.node(target.y.Content[i+1], sub.node, k.Value, 0)
		if known != nil && !contains(known, k.Value) {
			o.unknown(k, child, known)
			continue
		}
		o.pairs = append(o.pairs, child)
	}
}

func (o *object) lineOf(key string, lines map[string]int) int {
	if lines != nil {
		return lines[key]
	}
	for _, p := range o.pairs {
		if p.key == key {
			return max(1, p.kl)
		}
	}
	return 0
}

func (o *object) unknown(k *yaml.Node, child *node, known []string) {
	fix := "remove it; known here: " + strings.Join(known, ", ")
	if near := nearest(k.Value, known); near != "" {
		fix = "did you mean " + near + "?"
		o.hinted = append(o.hinted, near)
	} else if why := elsewhere[k.Value]; why != "" {
		fix = "remove it; " + why
	}
	child.failAt(o.src.pos(k), "unknown key", fix)
}

// elsewhere says where a known field belongs that stands in a wrong place.
var elsewhere = map[string]string{
	"dram-utilization":   "it belongs beside the search-space of an agentic-coding scenario",
	"kv-offloading":      "only entries of an agentic-coding scenario have it",
	"kv-offload-backend": "only entries of an agentic-coding scenario have it",
	"kv-p2p-transfer":    "only multi-node configs (multinode: true) have it",
	"prefill":            "only multi-node configs (multinode: true) have it",
	"decode":             "only multi-node configs (multinode: true) have it",
	"tp":                 "in a multi-node entry it belongs under prefill and decode",
	"ep":                 "in a multi-node entry it belongs under prefill and decode",
	"pp":                 "in a multi-node entry it belongs under prefill and decode",
	"dcp-size":           "in a multi-node entry it belongs under prefill and decode",
	"pcp-size":           "in a multi-node entry it belongs under prefill and decode",
	"dp-attn":            "in a multi-node entry it belongs under prefill and decode",
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

// get returns the value of a key; a null value counts as not given.
func (o object) get(key string) *node {
	for _, p := range o.pairs {
		if p.key == key {
			if p.isNull() {
				return nil
			}
			return p
		}
	}
	return nil
}

// need returns the value of a key that must be there.
func (o object) need(key, example string) *node {
	if n := o.get(key); n != nil {
		return n
	}
	if o.ok && !contains(o.hinted, key) { // else one correction is enough
		o.failAt(o.keyPos(), key+" is missing", "add '"+key+": "+example+"'")
	}
	return nil
}
