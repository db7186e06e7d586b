package engine

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Scripts are one shell script a node with what would run there, in order, ready to be started
// by hand. Other nodes are named $WEIR_NODE_0, $WEIR_NODE_1 and so on.
func (d *Deployment) Scripts() []string {
	out := make([]string, max(1, d.Nodes))
	for n := range out {
		out[n] = d.script(n)
	}
	return out
}

func (d *Deployment) script(node int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "#!/usr/bin/env bash\n# node %d of %d, recipe %s, engine %s\n# image %s\nset -euo pipefail\n", node, max(1, d.Nodes), d.Recipe, d.Engine, d.Image)
	body := ""
	for _, p := range d.ordered() {
		if p.Node == node {
			body += p.script()
		}
	}
	for n := range d.Nodes {
		if ref := fmt.Sprintf("$WEIR_NODE_%d", n); strings.Contains(body, ref) {
			fmt.Fprintf(&b, ": \"${WEIR_NODE_%d:?address of node %d}\"\n", n, n)
		}
	}
	b.WriteString(body)
	b.WriteString("\nwait\n")
	return b.String()
}

// ordered are the processes in the order of the start.
func (d *Deployment) ordered() []Process {
	ps := slices.Clone(d.Processes)
	slices.SortStableFunc(ps, func(a, b Process) int { return a.Stage - b.Stage })
	return ps
}

func (p *Process) script() string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n# %s", p.Name)
	if p.GPUs > 0 {
		fmt.Fprintf(&b, ", %d GPUs", p.GPUs)
	}
	if p.Stage > 0 {
		fmt.Fprintf(&b, ", once stage %d serves", p.Stage-1)
	}
	b.WriteString("\n")
	for _, name := range slices.Sorted(maps.Keys(p.Files)) {
		fmt.Fprintf(&b, "cat >%s <<'EOF'\n%sEOF\n", Quote(name), p.Files[name])
	}
	if len(p.Argv) == 0 {
		fmt.Fprintf(&b, "# serves at %s already\n", p.URL)
		return b.String()
	}
	b.WriteString("env")
	for _, v := range p.Env {
		fmt.Fprintf(&b, " \\\n  %s", Quote(v.Name+"="+v.Value))
	}
	if len(p.Env) > 0 {
		b.WriteString(" \\\n ")
	}
	for i, w := range p.Argv {
		if i > 0 && strings.HasPrefix(w, "-") {
			b.WriteString(" \\\n   ")
		}
		b.WriteString(" " + Quote(w))
	}
	fmt.Fprintf(&b, " \\\n    >%s.log 2>&1 &\n", p.Name)
	if p.URL != "" && p.Health != "" {
		fmt.Fprintf(&b, "until curl -fsS -o /dev/null %s; do sleep 2; done\n", Quote(p.URL+p.Health))
	}
	return b.String()
}

// Quote writes a word for a shell. A reference to a node stays one.
func Quote(s string) string {
	if s != "" && strings.IndexFunc(s, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:=,@%+", r))
	}) < 0 {
		return s
	}
	if !strings.Contains(s, "$WEIR_NODE_") {
		return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
	}
	s = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "`", "\\`", "$", `\$`).Replace(s)
	return `"` + strings.ReplaceAll(s, `\$WEIR_NODE_`, "$WEIR_NODE_") + `"`
}
