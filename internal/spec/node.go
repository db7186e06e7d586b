package spec

import (
	"fmt"
	"math/big"
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

// scalarKind is what a plain scalar means to the YAML 1.1 readers that InferenceX uses.
type scalarKind int

const (
	kindString scalarKind = iota
	kindNull
	kindBool
	kindInt
	kindFloat
	kindOther // a date or a sexagesimal number: YAML 1.1 only
)

func (k scalarKind) String() string {
	return [...]string{"a string", "empty", "true or false", "a whole number", "a number", "a date or time"}[k]
}

// kindOf resolves a scalar. Quoted scalars are strings.
func kindOf(y *yaml.Node) scalarKind {
	if y.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) != 0 {
		return kindString
	}
	if y.Style&yaml.TaggedStyle != 0 {
		switch y.ShortTag() {
		case "!!str":
			return kindString
		case "!!null":
			return kindNull
		}
	}
	v := y.Value
	if v == "" || v == "~" || v == "null" || v == "Null" || v == "NULL" {
		return kindNull
	}
	if _, ok := boolOf(v); ok {
		return kindBool
	}
	c := v[0]
	if c != '-' && c != '+' && c != '.' && (c < '0' || c > '9') {
		return kindString
	}
	body := strings.TrimLeft(v, "+-")
	if len(v)-len(body) > 1 || body == "" {
		return kindString
	}
	switch strings.ToLower(body) {
	case ".inf", ".nan":
		return kindFloat
	}
	if body[0] == '0' && len(body) > 2 && (body[1] == 'x' || body[1] == 'b') {
		if strings.Trim(body[2:], "0123456789abcdefABCDEF_") == "" {
			return kindInt
		}
		return kindString
	}
	switch strings.Trim(body, "0123456789_") {
	case "":
		if body[0] == '_' {
			return kindString
		}
		return kindInt
	}
	if isDecimal(body) {
		return kindFloat
	}
	if sexagesimal(body) {
		return kindOther
	}
	return kindString
}

// boolOf knows the words for true and false of YAML 1.1.
func boolOf(v string) (value, ok bool) {
	switch v {
	case "true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON":
		return true, true
	case "false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF":
		return false, true
	}
	return false, false
}

// isDecimal accepts digits with one dot and, as YAML 1.1 has it, an exponent with a sign.
func isDecimal(s string) bool {
	mant, exp, hasExp := strings.Cut(strings.ToLower(s), "e")
	a, b, dot := strings.Cut(mant, ".")
	digits := func(s string) bool { return strings.Trim(s, "0123456789_") == "" }
	if !dot || a+b == "" || !digits(a) || !digits(b) {
		return false
	}
	if !hasExp {
		return true
	}
	return len(exp) > 1 && (exp[0] == '-' || exp[0] == '+') && strings.Trim(exp[1:], "0123456789") == ""
}

func sexagesimal(s string) bool {
	parts := strings.Split(s, ":")
	if len(parts) >= 2 && strings.Trim(strings.ReplaceAll(s, ":", ""), "0123456789_") == "" && parts[0] != "" && parts[0][0] != '0' {
		for _, p := range parts[1:] {
			if len(p) == 0 || len(p) > 2 || p[0] > '5' && len(p) == 2 {
				return false
			}
		}
		return true
	}
	d := strings.Split(s, "-")
	return len(d) == 3 && len(d[0]) == 4 && len(d[1]) == 2 && len(d[2]) == 2 &&
		strings.Trim(s, "0123456789-") == ""
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

// str reads a string that is not empty.
func (n *node) str() scalar[string] {
	k, ok := n.scalarKind()
	switch {
	case ok && k == kindString && strings.TrimSpace(n.y.Value) != "":
		return scalar[string]{n.y.Value, n.pos()}
	case ok && k == kindString:
		n.fail("is an empty string", "give it a value")
	case !ok:
		n.fail("is "+n.text()+", but must be a string", "write one value")
	case k == kindNull:
		n.fail("has no value", "give it one")
	default:
		n.fail(n.text()+" is read as "+k.String()+", but must be a string",
			`write "`+n.y.Value+`"`)
	}
	return scalar[string]{}
}

// oneOf reads a string that must be one of the words.
func (n *node) oneOf(words ...string) scalar[string] {
	s := n.str()
	if !s.set() {
		return s
	}
	for _, w := range words {
		if w == s.V {
			return s
		}
	}
	fix := "use " + orList(words)
	if near := nearest(s.V, words); near != "" {
		fix = "did you mean " + near + "? It must be " + orList(words)
	}
	n.fail(fmt.Sprintf("%q is not known here", s.V), fix)
	return scalar[string]{}
}

func orList(words []string) string {
	if len(words) == 1 {
		return words[0]
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}

// boolean reads true or false, also in the spellings of YAML 1.1.
func (n *node) boolean() scalar[bool] {
	if k, ok := n.scalarKind(); ok && k == kindBool {
		v, _ := boolOf(n.y.Value)
		return scalar[bool]{v, n.pos()}
	}
	fix := "write true or false"
	if v, ok := boolOf(n.y.Value); ok && n.y.Kind == yaml.ScalarNode {
		fix = fmt.Sprintf("write %t without quotes", v)
	}
	n.fail(n.text()+" is not true or false", fix)
	return scalar[bool]{}
}

// integer reads a whole number from lo to 2^31-1. 1_000 is a thousand; a leading zero is
// refused because YAML 1.1 reads it as octal and YAML 1.2 does not.
func (n *node) integer(lo int) scalar[int] {
	v, ok := n.int64(int64(lo), 1<<31-1)
	if !ok {
		return scalar[int]{}
	}
	return scalar[int]{int(v), n.pos()}
}

func (n *node) int64(lo, hi int64) (int64, bool) {
	k, isScalar := n.scalarKind()
	raw := n.y.Value
	if !isScalar || k != kindInt {
		fix := "write it as a whole number"
		if _, err := strconv.ParseInt(raw, 10, 64); err == nil && isScalar && k == kindString {
			fix = "write " + raw + " without quotes"
		}
		what := n.text() + " is not a whole number"
		if isScalar && k == kindNull {
			what = "has no value"
		}
		n.fail(what, fix)
		return 0, false
	}
	digits := strings.ReplaceAll(raw, "_", "")
	body := strings.TrimLeft(digits, "+-")
	if len(body) > 1 && body[0] == '0' && body[1] >= '0' && body[1] <= '9' {
		dec := strings.TrimLeft(body, "0")
		if dec == "" {
			dec = "0"
		}
		if oct, err := strconv.ParseInt(body, 8, 64); err == nil {
			n.fail(fmt.Sprintf("%s is %d to YAML 1.1 and %s to YAML 1.2", raw, oct, dec),
				fmt.Sprintf("write %d or %s", oct, dec))
		} else {
			n.fail(raw+" has a leading zero", "write "+dec)
		}
		return 0, false
	}
	v, err := strconv.ParseInt(digits, 0, 64)
	if err != nil || v > hi {
		n.fail(fmt.Sprintf("%s is over the limit of %d", clip(raw), hi), fmt.Sprintf("write %d or less", hi))
		return 0, false
	}
	if v < lo {
		n.fail(fmt.Sprintf("%s is less than %d", raw, lo), fmt.Sprintf("write %d or more", lo))
		return 0, false
	}
	return v, true
}

func clip(s string) string {
	if len(s) > 40 {
		return s[:37] + "..."
	}
	return s
}

// decimal reads a number exactly: digits with at most one dot, no exponent.
func (n *node) decimal() (*big.Rat, bool) {
	k, ok := n.scalarKind()
	if !ok || k != kindInt && k != kindFloat {
		fix := "write it as a decimal number"
		if ok && k == kindString && isDecimal(n.y.Value) {
			fix = "write " + n.y.Value + " without quotes"
		}
		n.fail(n.text()+" is not a number", fix)
		return nil, false
	}
	v := strings.ReplaceAll(n.y.Value, "_", "")
	if len(v) <= 40 && strings.Trim(v, "+-.0123456789") == "" {
		if r, ok := new(big.Rat).SetString(v); ok {
			return r, true
		}
	}
	n.fail(clip(n.y.Value)+" is not written as a plain decimal number", "write it with digits and a dot, such as 0.8")
	return nil, false
}

var million = big.NewRat(1_000_000, 1)

// ppm reads a number in parts per million, above lo and not above hi (in whole units).
func (n *node) ppm(hi int64, range_ string) scalar[int64] {
	r, ok := n.decimal()
	if !ok {
		return scalar[int64]{}
	}
	if r.Sign() <= 0 || r.Cmp(big.NewRat(hi, 1)) > 0 {
		n.fail(n.y.Value+" is not "+range_, "write a number "+range_)
		return scalar[int64]{}
	}
	r = new(big.Rat).Mul(r, million)
	if !r.IsInt() {
		n.fail(n.y.Value+" has more than six decimals", "round it to six")
		return scalar[int64]{}
	}
	return scalar[int64]{r.Num().Int64(), n.pos()}
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
