package spec

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"sort"
	"strings"
)

// A WorkflowFinding is one way in which a workflow loses or mistakes what a matrix gives it.
type WorkflowFinding struct {
	At   Pos    `json:"at"`
	Kind string `json:"kind"` // dropped, mistyped, unused, undeclared, missing
	Name string `json:"name"` // of the field or input
	What string `json:"what"`
	Fix  string `json:"fix"`
}

func (f WorkflowFinding) String() string {
	return fmt.Sprintf("%s: %s: %s: %s; %s", f.At, f.Kind, f.Name, f.What, f.Fix)
}

// rowShape is a kind of row of the matrix with an example of every field that it can have.
type rowShape struct {
	name           string
	multi, agentic bool
}

var rowShapes = []rowShape{
	{"single-node fixed-seq-len", false, false}, {"single-node agentic-coding", false, true},
	{"multi-node fixed-seq-len", true, false}, {"multi-node agentic-coding", true, true},
}

// fields has an example value for every field of a row of the shape.
func (s rowShape) fields() map[string]any {
	n := func(v string) json.Number { return json.Number(v) }
	m := map[string]any{"image": "i", "model": "m", "model-prefix": "p", "precision": "fp8", "framework": "f",
		"runner": "r", "spec-decoding": "none", "exp-name": "e", "recipe-fingerprint": "0",
		"router": map[string]any{"name": "n", "version": "v"}, "run-eval": true, "eval-only": true}
	if s.multi {
		worker := func() map[string]any {
			return map[string]any{"num-worker": n("1"), "tp": n("1"), "pp": n("1"), "ep": n("1"), "dcp-size": n("1"),
				"pcp-size": n("1"), "dp-attn": true, "hardware": "h", "additional-settings": []any{"A=b"}}
		}
		m["prefill"], m["decode"], m["conc"] = worker(), worker(), []any{n("1")}
		m["disagg"], m["kv-p2p-transfer"], m["eval-conc"] = true, "nixl", n("16")
	} else {
		for _, k := range []string{"tp", "pp", "ep", "dcp-size", "pcp-size", "conc"} {
			m[k] = n("1")
		}
		m["dp-attn"] = true
	}
	if s.agentic {
		m["kv-offloading"], m["total-cpu-dram-gb"], m["duration"] = "dram", n("1"), n("3600")
		m["scenario-type"] = string(AgenticCoding)
		m["kv-offload-backend"] = map[string]any{"name": "n", "version": "v"}
	} else {
		m["isl"], m["osl"], m["max-model-len"], m["disagg"] = n("1"), n("1"), n("1"), true
		if s.multi {
			m["eval-all-concs"] = true
		}
	}
	return m
}

// Check reports what the workflow would lose. A workflow with inputs is checked as the template
// of the rows that it serves; the calls of a workflow are checked against the workflow they call.
func (w *Workflow) Check() []WorkflowFinding {
	var out []WorkflowFinding
	add := func(at Pos, kind, name, what, fix string) {
		out = append(out, WorkflowFinding{at, kind, name, what, fix})
	}
	if len(w.inputs) > 0 && len(w.calls) == 0 {
		w.checkTemplate(add)
	}
	if len(w.inputs) > 0 {
		for _, in := range w.inputs {
			if _, ok := w.used[in.name]; !ok {
				add(in.at, "unused", in.name, "the input is declared and nothing refers to it", "use inputs."+in.name+" or remove it")
			}
		}
		for _, name := range sortedKeys(w.used) {
			if w.input(name) == nil {
				fix := "declare it under on.workflow_call.inputs"
				if near := nearest(name, w.inputNames()); near != "" {
					fix = "did you mean inputs." + near + "?"
				}
				add(w.used[name], "undeclared", name, "inputs."+name+" is read and not declared: it is always empty", fix)
			}
		}
	}
	for i := range w.calls {
		w.checkCall(&w.calls[i], add)
	}
	sort.SliceStable(out, func(i, j int) bool { return out[i].At.Line < out[j].At.Line })
	return out
}

func (w *Workflow) inputNames() []string {
	out := make([]string, len(w.inputs))
	for i, in := range w.inputs {
		out[i] = in.name
	}
	return out
}

// serves says which rows a template is for: those whose fields it mostly declares.
func (w *Workflow) serves() []rowShape {
	multi, agentic, fixed := false, w.input("scenario-type") != nil || w.input("kv-offloading") != nil, w.input("isl") != nil
	for _, in := range w.inputs {
		multi = multi || strings.HasPrefix(in.name, "prefill-") || strings.HasPrefix(in.name, "decode-")
	}
	var out []rowShape
	for _, s := range rowShapes {
		if s.multi == multi && (s.agentic && agentic || !s.agentic && fixed) {
			out = append(out, s)
		}
	}
	return out
}

func (w *Workflow) checkTemplate(add func(Pos, string, string, string, string)) {
	reported := map[string]bool{}
	for _, s := range w.serves() {
		_, lost := w.take(s.fields())
		for _, l := range lost {
			if reported[l.field] {
				continue
			}
			reported[l.field] = true
			if l.why == "no such input" {
				input := strings.ReplaceAll(l.field, ".", "-")
				add(Pos{File: w.File, Line: 1, Col: 1}, "dropped", l.field,
					"rows of "+s.name+" have it, and no input takes it", "declare the input "+input)
				continue
			}
			in := w.input(strings.ReplaceAll(l.field, ".", "-"))
			at := Pos{File: w.File, Line: 1, Col: 1}
			if in != nil {
				at = in.at
			}
			add(at, "mistyped", l.field, l.why+" and rows of "+s.name+" give "+l.value, "declare it as string")
		}
	}
}

var configRef = regexp.MustCompile(`matrix\.config((?:\.[A-Za-z_][A-Za-z0-9_-]*|\[\s*'[^']*'\s*\]|\[\s*"[^"]*"\s*\]|\[\d+\])+)`)

// refs are the fields of the row that an expression reads, as a.b.
func refs(expr string) []string {
	var out []string
	for _, m := range configRef.FindAllStringSubmatch(expr, -1) {
		path := regexp.MustCompile(`\[\s*['"]([^'"]*)['"]\s*\]`).ReplaceAllString(m[1], ".$1")
		path = regexp.MustCompile(`\[\d+\]`).ReplaceAllString(path, "")
		out = append(out, strings.TrimPrefix(path, "."))
	}
	return out
}

// shapes guesses which rows a call passes on, from the bucket that its matrix reads.
func (c *workflowCall) shapes() (out []rowShape, evals bool) {
	multi := strings.Contains(c.matrix, "multi_node") || strings.Contains(c.matrix, "multinode")
	agentic := strings.Contains(c.matrix, "agentic")
	evals = strings.Contains(c.matrix, "evals")
	if !strings.Contains(c.matrix, "single_node") && !multi && !evals {
		for _, p := range c.with { // no bucket: by what is read
			for _, ref := range refs(p.y.Value) {
				multi = multi || strings.HasPrefix(ref, "prefill")
				agentic = agentic || ref == "kv-offloading"
			}
		}
	}
	for _, s := range rowShapes {
		if s.multi == multi && s.agentic == agentic {
			out = append(out, s)
		}
	}
	return out, evals
}

func (w *Workflow) checkCall(c *workflowCall, add func(Pos, string, string, string, string)) {
	passesRows := false
	for _, p := range c.with {
		passesRows = passesRows || strings.Contains(p.y.Value, "matrix.config")
	}
	file := w.callee(c.uses)
	if file == "" || !passesRows {
		return
	}
	target, err := ReadWorkflow(file)
	if err != nil {
		if os.IsNotExist(err) || target == nil {
			add(c.at, "missing", c.job, "the called workflow "+c.uses+" cannot be read: "+err.Error(), "correct the path")
		}
		return
	}
	shapes, evals := c.shapes()
	given := map[string]bool{}
	read := map[string]bool{}
	for _, p := range c.with {
		given[p.key] = true
		at := p.pos()
		in := target.input(p.key)
		if in == nil {
			fix := "remove it or declare it there"
			if near := nearest(p.key, target.inputNames()); near != "" {
				fix = "did you mean " + near + "?"
			}
			add(p.keyPos(), "undeclared", p.key, "job "+c.job+" passes it, and "+target.File+" declares no such input", fix)
		}
		for _, ref := range refs(p.y.Value) {
			read[ref] = true
			if strings.HasSuffix(ref, ".name") && strings.HasPrefix(ref, "kv-offload-backend") {
				continue
			}
			for _, s := range shapes {
				if what := mistyped(p.y.Value, ref, fieldAt(s.fields(), ref), in); what != "" {
					add(at, "mistyped", p.key, what, "use toJson(matrix.config."+ref+") and an input of type string")
				}
			}
		}
		if in != nil && !strings.Contains(p.y.Value, "${{") {
			read[p.key] = true // a constant stands for the field
			if k := kindOf(p.y); in.kind == "boolean" && k != kindBool {
				add(at, "mistyped", p.key, "the input is a boolean and the job passes "+p.text(), "write true or false without quotes")
			}
		}
	}
	for _, in := range target.inputs {
		if in.required && !in.hasDefault && !given[in.name] {
			add(c.at, "missing", in.name, "job "+c.job+" does not pass it, and "+target.File+" requires it", "add it under with")
		}
	}
	for _, s := range shapes {
		fields := s.fields()
		if evals {
			delete(fields, "recipe-fingerprint")
		} else {
			delete(fields, "eval-only")
			delete(fields, "eval-conc")
			delete(fields, "eval-all-concs")
			if s.agentic {
				delete(fields, "run-eval")
			}
		}
		for _, name := range leafNames(fields) {
			if !covered(name, read) {
				add(c.at, "dropped", name, "rows of "+s.name+" have it, and job "+c.job+" passes it on nowhere",
					"add it under with: ${{ matrix.config."+name+" }}")
			}
		}
	}
}

// leafNames are the fields of a row, those of workers apart.
func leafNames(fields map[string]any) []string {
	var out []string
	for _, k := range sortedKeys(fields) {
		if m, ok := fields[k].(map[string]any); ok && (k == "prefill" || k == "decode") {
			for _, sub := range sortedKeys(m) {
				out = append(out, k+"."+sub)
			}
			continue
		}
		out = append(out, k)
	}
	return out
}

// covered says whether a field is read itself or as part of what holds it.
func covered(name string, read map[string]bool) bool {
	if read[name] || name == "eval-all-concs" && read["eval-conc"] {
		return true
	}
	head, _, nested := strings.Cut(name, ".")
	return nested && read[head]
}

func fieldAt(fields map[string]any, path string) any {
	var v any = fields
	for _, k := range strings.Split(path, ".") {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[k]
	}
	return v
}

// mistyped says why a field cannot pass through an expression into an input.
func mistyped(expr, ref string, v any, in *workflowInput) string {
	_, isList := v.([]any)
	_, isMap := v.(map[string]any)
	indexed := strings.Contains(expr, "[0]")
	wrapped := strings.Contains(strings.ToLower(expr), "tojson(") || strings.Contains(expr, "join(")
	switch {
	case (isList || isMap) && !wrapped && !indexed:
		what := "a list"
		if isMap {
			what = "a mapping"
		}
		return ref + " is " + what + " and is passed without toJson: the job would vanish without a message"
	case in == nil:
		return ""
	case in.kind == "boolean" && v != nil && !isList && !isMap:
		if _, ok := v.(bool); !ok && !strings.ContainsAny(expr, "=&|!") {
			return ref + " is " + showValue(v) + " and the input is a boolean"
		}
	case in.kind == "number" && v != nil:
		if _, ok := v.(json.Number); !ok {
			return ref + " is " + showValue(v) + " and the input is a number"
		}
	}
	return ""
}

func sortedKeys[V any](m map[string]V) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	sort.Strings(out)
	return out
}
