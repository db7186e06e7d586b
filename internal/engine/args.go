package engine

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/weirbench/weir/internal/plan"
)

// flagStyle is how an engine takes a flag.
type flagStyle struct {
	under bool // --tp_size instead of --tp-size
	equal bool // --name=value
}

// argv collects the arguments of one process and knows who gave each.
type argv struct {
	b    *build
	list []given
}

type given struct {
	name   string // canonical, without dashes
	short  string // spelled "-x", for engines without a long form
	values []string
	by     string
}

// canonical is the one spelling of an argument.
func (a *adapter) canonical(name string) string {
	name = strings.ReplaceAll(strings.TrimLeft(name, "-"), "_", "-")
	if c, ok := a.aliases[name]; ok {
		return c
	}
	return name
}

// set adds an argument that the adapter passes for a reason.
func (a *argv) set(by, name string, values ...string) {
	c := a.b.a.canonical(name)
	if i := a.find(c); i >= 0 {
		a.b.fail("%s: %s would be passed twice: for %s and for %s", a.b.p.Key, "--"+c, a.list[i].by, by)
		return
	}
	a.list = append(a.list, given{name: c, values: values, by: by})
}

// field passes the value of a field of the point, if it has one, and consumes it.
func (a *argv) field(field, name string) {
	if v := a.b.fields.take(field); v != "" {
		a.set("the point's "+field, name, v)
	}
}

// usual passes an argument unless recipe gives it.
func (a *argv) usual(name string, values ...string) {
	if a.find(a.b.a.canonical(name)) < 0 {
		a.list = append(a.list, given{name: a.b.a.canonical(name), values: values, by: "the adapter"})
	}
}

func (a *argv) find(canonical string) int {
	return slices.IndexFunc(a.list, func(g given) bool { return g.name == canonical })
}

// value is the first value of an argument, "" where it is not given.
func (a *argv) value(name string) string {
	if i := a.find(a.b.a.canonical(name)); i >= 0 && len(a.list[i].values) > 0 {
		return a.list[i].values[0]
	}
	return ""
}

// has says whether an argument is given.
func (a *argv) has(name string) bool { return a.find(a.b.a.canonical(name)) >= 0 }

// recipe adds what the recipe gives to a role, refusing what the adapter passes already and
// what belongs into its section memory.
func (a *argv) recipe(role string, worker bool) {
	b := a.b
	args, _ := b.part(role, worker)
	for _, x := range args {
		c := b.a.canonical(x.Name)
		if f, ok := b.a.memory[c]; ok && worker {
			b.fail("%s:%d: --%s is decided by %s of the recipe, where the plan reads it: write it there", b.r.where(), x.Line, x.Name, f)
			continue
		}
		if i := a.find(c); i >= 0 {
			b.fail("%s:%d: --%s stands in recipe %s and %s passes it too (%s): remove it from one",
				b.r.where(), x.Line, x.Name, b.r.Name, a.list[i].by, strings.Join(a.list[i].values, " "))
			continue
		}
		g := given{name: c, by: "recipe " + b.r.Name}
		for _, v := range x.Values {
			g.values = append(g.values, b.expand(v, role, x.Line))
		}
		a.list = append(a.list, g)
	}
}

// words are the arguments as they are passed.
func (a *argv) words() []string {
	var out []string
	st := a.b.a.flag
	for _, g := range a.list {
		name := "--" + g.name
		if st.under {
			name = "--" + strings.ReplaceAll(g.name, "-", "_")
		}
		if g.short != "" {
			name = g.short
		}
		if st.equal && len(g.values) == 1 {
			out = append(out, name+"="+g.values[0])
			continue
		}
		out = append(append(out, name), g.values...)
	}
	return out
}

// part is what the recipe gives to a role: for workers what it gives to all, then conditions,
// then the role's own, then the role's conditions; a later one stands. What is off is left out.
func (b *build) part(role string, worker bool) (args, env Args) {
	env = b.r.Env
	if worker {
		args = b.r.Args
	}
	for _, w := range b.r.When {
		if b.meets(w.If, role) {
			if worker {
				args = w.Args.over(args)
			}
			env = w.Env.over(env)
		}
	}
	p := b.r.Roles[role]
	args, env = p.Args.over(args), p.Env.over(env)
	for _, w := range p.When {
		if b.meets(w.If, role) {
			args, env = w.Args.over(args), w.Env.over(env)
		}
	}
	off := func(a Arg) bool { return a.Off }
	return slices.DeleteFunc(slices.Clone(args), off), slices.DeleteFunc(slices.Clone(env), off)
}

// meets says whether a point meets every condition for a role.
func (b *build) meets(cs Conditions, role string) bool {
	for _, c := range cs {
		have := b.conditionValue(c.Field, role)
		if !slices.ContainsFunc(c.Values, func(want string) bool { return matches(have, want) }) {
			return false
		}
	}
	return true
}

// comparisons may stand before a number in a condition; the longer ones come first.
var comparisons = []string{"<=", ">=", "<", ">"}

func matches(have, want string) bool {
	for _, op := range comparisons {
		rest, ok := strings.CutPrefix(want, op)
		if !ok {
			continue
		}
		h, err1 := strconv.ParseInt(have, 10, 64)
		w, err2 := strconv.ParseInt(strings.TrimSpace(rest), 10, 64)
		if err1 != nil || err2 != nil {
			return false
		}
		switch op {
		case "<=":
			return h <= w
		case ">=":
			return h >= w
		case "<":
			return h < w
		}
		return h > w
	}
	return have == want
}

// environment is what a role's processes get: the adapter's, then the recipe's, which may not
// repeat one.
func (b *build) environment(role string, worker bool, own ...Var) []Var {
	_, env := b.part(role, worker)
	out := own
	for _, e := range env {
		if i := slices.IndexFunc(out, func(v Var) bool { return v.Name == e.Name }); i >= 0 {
			b.fail("%s:%d: %s stands in recipe %s and the adapter sets it to %s: remove it from the recipe", b.r.where(), e.Line, e.Name, b.r.Name, out[i].Value)
			continue
		}
		v := ""
		if len(e.Values) > 0 {
			v = b.expand(strings.Join(e.Values, ","), role, e.Line)
		} else {
			v = "1" // a bare true
		}
		out = append(out, Var{e.Name, v})
	}
	return out
}

var reference = regexp.MustCompile(`\$\{([a-z0-9.:A-Z_-]+)(?:\*([0-9]+))?\}`)

// expand replaces ${field} and ${field*N} by the point's values.
func (b *build) expand(s, role string, line int) string {
	if rest := reference.ReplaceAllString(s, ""); strings.Contains(rest, "${") {
		b.fail("%s:%d: %q: a reference is ${field} or ${field*N} with a whole N", b.r.where(), line, s)
		return s
	}
	return reference.ReplaceAllStringFunc(s, func(m string) string {
		g := reference.FindStringSubmatch(m)
		v, ok := b.reference(g[1], role)
		if !ok {
			b.fail("%s:%d: %s names nothing that the point %s has", b.r.where(), line, m, b.p.Key)
			return m
		}
		if g[2] != "" {
			n, err := strconv.ParseInt(v, 10, 64)
			k, kErr := strconv.ParseInt(g[2], 10, 32)
			if kErr != nil {
				b.fail("%s:%d: %s: the factor is above 2,147,483,647", b.r.where(), line, m)
				return m
			}
			if err != nil || n < 0 || n > 1<<31 {
				b.fail("%s:%d: %s: %q is not a whole number", b.r.where(), line, m, v)
				return m
			}
			v = strconv.FormatInt(n*k, 10)
		}
		return v
	})
}

func (b *build) reference(name, role string) (string, bool) {
	if knownCondition(name) {
		return b.conditionValue(name, role), true
	}
	if s, ok := strings.CutPrefix(name, "settings."); ok {
		name = b.side(role) + "settings." + s
	}
	if _, ok := b.fields.get(name); ok {
		return b.fields.take(name), true
	}
	return "", false
}

// host is the engine's own setting for the host tier, as the plan chose it.
func host(r *plan.Role) (name, value string, ok bool) {
	if r.Host == nil {
		return "", "", false
	}
	f := strings.Fields(r.Host.Flag)
	if len(f) < 2 {
		return "", "", false
	}
	return strings.Trim(f[0], "-"), f[1], true
}

// jsonText writes a YAML mapping as JSON with the keys in the order of the file.
func jsonText(n *yaml.Node) (string, error) {
	switch n.Kind {
	case yaml.MappingNode:
		var parts []string
		for i := 0; i+1 < len(n.Content); i += 2 {
			v, err := jsonText(n.Content[i+1])
			if err != nil {
				return "", err
			}
			k, _ := json.Marshal(n.Content[i].Value)
			parts = append(parts, string(k)+":"+v)
		}
		return "{" + strings.Join(parts, ",") + "}", nil
	case yaml.SequenceNode:
		var parts []string
		for _, c := range n.Content {
			v, err := jsonText(c)
			if err != nil {
				return "", err
			}
			parts = append(parts, v)
		}
		return "[" + strings.Join(parts, ",") + "]", nil
	case yaml.ScalarNode:
		var v any
		if err := n.Decode(&v); err != nil {
			return "", err
		}
		b, err := json.Marshal(v)
		return string(b), err
	}
	return "", fmt.Errorf("an alias is not taken here")
}
