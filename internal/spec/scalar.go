package spec

import (
	"fmt"
	"math/big"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

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
