package spec

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
	"pgregory.net/rapid"
)

// yamlWriter writes one field a line, so that a place names a field.
type yamlWriter struct {
	b      strings.Builder
	indent int
}

func (w *yamlWriter) line(format string, a ...any) {
	w.b.WriteString(strings.Repeat(" ", w.indent))
	fmt.Fprintf(&w.b, format, a...)
	w.b.WriteByte('\n')
}

func (w *yamlWriter) in(f func()) { w.indent += 2; f(); w.indent -= 2 }

// item writes a list item: what f writes, with the first line behind a dash.
func (w *yamlWriter) item(f func()) {
	inner := yamlWriter{indent: w.indent + 2}
	f2 := w.b
	w.b, inner.b = inner.b, f2
	w.indent += 2
	f()
	w.indent -= 2
	text := w.b.String()
	w.b = strings.Builder{}
	w.b.WriteString(inner.b.String())
	w.b.WriteString(strings.Repeat(" ", w.indent) + "- " + strings.TrimLeft(text, " "))
}

// genConfig draws a valid config with any of the fields that a config can declare.
func genConfig(t *rapid.T) string {
	w := &yamlWriter{}
	maybe := func(name string) bool { return rapid.Bool().Draw(t, name) }
	one := func(name string, of ...string) string { return rapid.SampledFrom(of).Draw(t, name) }
	num := func(name string, of ...int) int { return rapid.SampledFrom(of).Draw(t, name) }
	multi := maybe("multinode")
	disagg := multi && maybe("disagg")
	routerTop, transferTop := maybe("router at top"), maybe("transfer at top")
	agentic := maybe("agentic")
	fixed := !agentic || maybe("fixed")

	weir := func(name string, agent, dram, spec bool) {
		type f struct {
			key, value string
			ok         bool
		}
		fields := []f{
			{"recipe", "recipes/a.yaml", true}, {"corpus", "weka", agent},
			{"seed", strconv.Itoa(num("seed", 1, 7)), true}, {"mem-fraction", "0.8" + strconv.Itoa(num("mem", 1, 3, 5)), true},
			{"kv-dtype", one("kv", "fp8", "bf16"), true},
			{"write-policy", one("policy", "write_back", "write_through"), dram},
			{"page-size", strconv.Itoa(num("page", 1, 64, 256)), true},
			{"schedule-policy", one("queue", "fcfs", "lpm"), true}, {"draft-tokens", strconv.Itoa(num("draft", 1, 3)), spec},
			{"repeats", strconv.Itoa(num("repeats", 1, 3)), true},
		}
		var out []f
		for _, x := range fields {
			if x.ok && maybe(name+x.key) {
				out = append(out, x)
			}
		}
		slo := maybe(name + "slo")
		if len(out) == 0 && !slo {
			return
		}
		w.line("weir:")
		w.in(func() {
			for _, x := range out {
				w.line("%s: %s", x.key, x.value)
			}
			if slo {
				w.line("slo:")
				w.in(func() {
					w.line("ttft-p90-s: %d.5", num("ttft", 1, 2))
					w.line("itl-p90-ms: %d", num("itl", 20, 50))
					w.line("e2e-norm-intvty-p90: %d", num("intvty", 10, 30))
				})
			}
		})
	}
	topology := func() {
		tp := num("tp", 2, 4, 8)
		w.line("tp: %d", tp)
		if maybe("pp") && tp < 8 {
			w.line("pp: 2")
		}
		if maybe("ep") {
			w.line("ep: %d", num("ep", 1, 2, 8))
		}
		if maybe("dcp") {
			w.line("dcp-size: 2")
		}
		if maybe("dp") {
			w.line("dp-attn: %t", maybe("dp-attn"))
		}
	}
	hardware := maybe("hardware")
	worker := func(role string, workers int) {
		w.line("%s:", role)
		w.in(func() {
			w.line("num-worker: %d", workers)
			tp := num(role+" tp", 1, 2, 4, 8, 16)
			w.line("tp: %d", tp)
			w.line("ep: %d", num(role+" ep", 1, 2, 8))
			w.line("dp-attn: %t", maybe(role+" dp"))
			if maybe(role+" dcp") && tp > 1 {
				w.line("dcp-size: 2")
			}
			if maybe(role+" pcp") && tp < 16 {
				w.line("pcp-size: 1")
			}
			if hardware {
				w.line("hardware: %s", one(role+" hw", "h100", "h200"))
			}
			if maybe(role + " settings") {
				w.line("additional-settings: [A=%d, B=x]", num("A", 1, 2))
			}
		})
	}
	conc := func() {
		if maybe("list") {
			w.line("conc-list: [1, %d]", num("conc", 4, 8))
		} else {
			w.line("conc-start: %d", num("start", 1, 2))
			w.line("conc-end: %d", num("end", 5, 9))
		}
	}
	component := func(key string, versioned bool) {
		w.line("%s:", key)
		w.in(func() {
			w.line("name: %s", one(key+" name", "alpha", "beta"))
			if versioned || maybe(key+" version") {
				w.line(`version: v%d`, num(key+" v", 1, 2))
			}
		})
	}

	dram := agentic && maybe("any dram")
	ownSize := dram && maybe("own size")
	anySpec := maybe("any spec")
	w.line("c:")
	w.in(func() {
		w.line("image: %s", one("image", "a/b:v1", "a/b:v2"))
		w.line("model: %s", one("model", "org/one", "org/two"))
		w.line("model-prefix: %s", one("prefix", "one", "two"))
		w.line("precision: %s", one("precision", "fp4", "fp8"))
		w.line("framework: %s", one("framework", "sglang", "vllm"))
		w.line("runner: cluster:b300-nv")
		w.line("multinode: %t", multi)
		if disagg {
			w.line("disagg: true")
		}
		if routerTop {
			component("router", true)
		}
		if multi && transferTop {
			w.line("kv-p2p-transfer: %s", one("transfer", "nixl", "mooncake"))
		}
		weir("c ", agentic, dram, anySpec)
		w.line("scenarios:")
		w.in(func() {
			entries := func(agent bool) {
				n := num("entries", 1, 2)
				for i := range n {
					w.item(func() {
						first := i == 0
						spec := anySpec && first || maybe("spec")
						if multi {
							worker("prefill", 1)
							worker("decode", num("decode workers", 0, 1, 2))
							if !transferTop && (disagg || maybe("transfer")) {
								w.line("kv-p2p-transfer: %s", one("transfer", "nixl", "mooncake"))
							}
						} else {
							topology()
						}
						if spec {
							w.line("spec-decoding: mtp")
						}
						if !routerTop && maybe("router") {
							component("router", true)
						}
						conc()
						on := agent && dram && first
						if agent {
							mode := "none"
							if on {
								mode = "dram"
							}
							if !multi || on || maybe("mode") {
								w.line("kv-offloading: %s", mode)
							}
							if on {
								if maybe("bare") {
									w.line("kv-offload-backend: %s", one("backend", "hicache", "lmcache"))
								} else {
									component("kv-offload-backend", false)
								}
							}
						}
						if on && ownSize {
							w.line("weir:")
							w.in(func() { w.line("%s", one("size", "host-ratio: 1.5", "host-gb-per-rank: 120.5")) })
						} else {
							weir("e ", agent, on, spec)
						}
					})
				}
			}
			if fixed {
				w.line("fixed-seq-len:")
				w.item(func() {
					w.line("isl: %d", num("isl", 1024, 8192))
					w.line("osl: %d", num("osl", 512, 1024))
					w.line("search-space:")
					entries(false)
				})
			}
			if agentic {
				w.line("agentic-coding:")
				w.item(func() {
					if dram && !ownSize {
						w.line("dram-utilization: 0.%d", num("util", 5, 8))
					}
					w.line("search-space:")
					entries(true)
				})
			}
		})
	})
	return w.b.String()
}

// leaf is a declared value: a scalar, or a list of scalars.
type leaf struct {
	key string
	y   *yaml.Node
}

func leaves(key string, y *yaml.Node) []leaf {
	switch y.Kind {
	case yaml.ScalarNode:
		return []leaf{{key, y}}
	case yaml.SequenceNode:
		if len(y.Content) > 0 && y.Content[0].Kind == yaml.ScalarNode {
			return []leaf{{key, y}}
		}
		var out []leaf
		for _, c := range y.Content {
			out = append(out, leaves(key, c)...)
		}
		return out
	}
	var out []leaf
	for i := 0; i+1 < len(y.Content); i += 2 {
		out = append(out, leaves(y.Content[i].Value, y.Content[i+1])...)
	}
	return out
}

// changed is another valid value for a field, as it would be written; "" where there is none.
func changed(l leaf) string {
	if l.y.Kind == yaml.SequenceNode {
		if l.key == "conc-list" {
			return "[3]"
		}
		return "[Z=9]"
	}
	v := l.y.Value
	switch l.key {
	case "multinode", "disagg", "kv-offloading", "runner", "spec-decoding":
		return "" // changes which fields are valid; seen in the fields that it decides
	case "dp-attn":
		return strconv.FormatBool(v != "true")
	case "kv-dtype":
		return "fp4"
	case "write-policy":
		return "write_through_selective"
	case "schedule-policy":
		if v == "lpm" {
			return "fcfs"
		}
		return "lpm"
	case "mem-fraction", "dram-utilization":
		return "0.71"
	case "host-ratio", "host-gb-per-rank", "ttft-p90-s":
		return "3.25"
	}
	if n, err := strconv.Atoi(v); err == nil {
		if l.key == "tp" || l.key == "pp" || l.key == "pcp-size" || l.key == "dcp-size" {
			if n == 2 {
				return "4"
			}
			return "2"
		}
		return strconv.Itoa(n + 1)
	}
	return v + "x"
}

func replaceAt(text string, y *yaml.Node, with string) string {
	lines := strings.Split(text, "\n")
	l := lines[y.Line-1]
	lines[y.Line-1] = l[:y.Column-1] + with
	return strings.Join(lines, "\n")
}

// identity is what the points say, apart from where they were written.
func identity(t *rapid.T, s *Set) string {
	points, err := s.Points(Selection{})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range points {
		p.Origin = Origin{}
	}
	b, err := json.Marshal(points)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Every declared field is in at least one point: changing it changes a point, and an explanation
// cites its place. A field that changes no point is explained as one that cannot matter.
func TestEveryDeclaredFieldIsVisible(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := genConfig(t)
		s, err := loadText(t2(t), text, testRunners)
		if err != nil {
			t.Fatalf("the config is refused: %v\n%s", err, text)
		}
		m, err := s.Matrix(Selection{}, EvalsNone)
		if err != nil {
			t.Fatal(err)
		}
		shown, inert := map[Pos]bool{}, map[Pos]string{}
		for _, p := range m.Points() {
			e, err := m.Explain(p.ID())
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range e.Fields {
				for _, at := range f.At {
					shown[at] = true
				}
			}
			for _, f := range e.Inert {
				for _, at := range f.At {
					if f.Why == "" {
						t.Fatalf("%s is inert without a reason", f.Field)
					}
					inert[at] = f.Why
				}
			}
		}
		before := identity(t, s)
		for _, l := range leaves("", s.configs[0].node.y) {
			at := Pos{"m.yaml", l.y.Line, l.y.Column}
			if !shown[at] && inert[at] == "" {
				t.Fatalf("%s at %s is in no point and no explanation\n%s", l.key, at, text)
			}
			with := changed(l)
			if with == "" {
				continue
			}
			other, err := loadText(t2(t), replaceAt(text, l.y, with), testRunners)
			if err != nil {
				continue // the change broke a rule that ties fields together
			}
			same := identity(t, other) == before
			switch {
			case shown[at] && same:
				t.Fatalf("%s at %s is said to matter, and %q changes no point\n%s", l.key, at, with, text)
			case !shown[at] && !same:
				t.Fatalf("%s at %s is said not to matter (%s), and %q changes a point\n%s", l.key, at, inert[at], with, text)
			}
		}
	})
}

// t2 gives the helpers of this package a testing.TB: those of rapid fail through panics of their
// own, and loadText only marks itself as a helper.
func t2(*rapid.T) testing.TB { return quiet{} }

type quiet struct{ testing.TB }

func (quiet) Helper() {}
