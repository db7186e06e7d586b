package spec

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// A Workflow is what a GitHub workflow says about its inputs: what it declares, what it uses and
// what it passes on to the workflows that its jobs call.
type Workflow struct {
	File   string
	inputs []workflowInput
	used   map[string]Pos // inputs that are referred to, with the first place
	calls  []workflowCall
}

// workflowInput is a declared input.
type workflowInput struct {
	name       string
	at         Pos
	kind       string // string, boolean, number; string if not given
	required   bool
	hasDefault bool
}

// workflowCall is a job that calls another workflow.
type workflowCall struct {
	job    string
	at     Pos
	uses   string
	with   []*node
	matrix string // the expression of matrix.config
}

func (w *Workflow) input(name string) *workflowInput {
	for i := range w.inputs {
		if w.inputs[i].name == name {
			return &w.inputs[i]
		}
	}
	return nil
}

var expression = regexp.MustCompile(`(?s)\$\{\{(.*?)\}\}`)

var inputRef = regexp.MustCompile(`\binputs(?:\.([A-Za-z_][A-Za-z0-9_-]*)|\[\s*['"]([A-Za-z_][A-Za-z0-9_-]*)['"]\s*\])`)

// ReadWorkflow reads a GitHub workflow file.
func ReadWorkflow(file string) (*Workflow, error) {
	data, err := readFile(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return parseWorkflow(file, data)
}

func parseWorkflow(file string, data []byte) (*Workflow, error) {
	src := &source{file: file}
	w := &Workflow{File: file, used: map[string]Pos{}}
	top := src.parse(data)
	if top != nil && top.y.Kind != yamlMapping {
		top.fail("is "+top.text()+", but must be a mapping", "name a workflow file")
	}
	if len(src.problems) > 0 {
		return nil, src.problems
	}
	// The plain key "on" is true to YAML 1.1; here keys are taken as written.
	for i := 0; i+1 < len(top.y.Content); i += 2 {
		key, value := top.y.Content[i].Value, top.y.Content[i+1]
		switch key {
		case "on":
			w.readInputs(src, value)
			continue
		case "jobs":
			w.readJobs(src.node(value, nil, "jobs", 0))
		}
		w.collect(src, value, key, 0)
	}
	if len(src.problems) > 0 {
		return nil, src.problems.sorted([]string{file})
	}
	return w, nil
}

func (w *Workflow) readInputs(src *source, on *yaml.Node) {
	for _, trigger := range []string{"workflow_call", "workflow_dispatch"} {
		inputs := child(child(on, trigger), "inputs")
		if inputs == nil || inputs.Kind != yamlMapping {
			continue
		}
		for i := 0; i+1 < len(inputs.Content); i += 2 {
			k, v := inputs.Content[i], inputs.Content[i+1]
			if w.input(k.Value) != nil {
				continue
			}
			in := workflowInput{name: k.Value, at: src.pos(k), kind: "string"}
			if t := child(v, "type"); t != nil {
				in.kind = t.Value
			}
			if r := child(v, "required"); r != nil {
				in.required, _ = boolOf(r.Value)
			}
			in.hasDefault = child(v, "default") != nil
			w.inputs = append(w.inputs, in)
		}
	}
}

func (w *Workflow) readJobs(jobs *node) {
	if jobs.y.Kind != yamlMapping {
		return
	}
	for i := 0; i+1 < len(jobs.y.Content); i += 2 {
		k, job := jobs.y.Content[i], jobs.src.node(jobs.y.Content[i+1], jobs, jobs.y.Content[i].Value, 0)
		uses := child(job.y, "uses")
		if uses == nil || job.y.Kind != yamlMapping {
			continue
		}
		c := workflowCall{job: k.Value, at: jobs.src.pos(k), uses: uses.Value}
		if m := child(child(child(job.y, "strategy"), "matrix"), "config"); m != nil {
			c.matrix = m.Value
		}
		if with := child(job.y, "with"); with != nil && with.Kind == yamlMapping {
			wn := jobs.src.node(with, job, "with", 0)
			c.with = wn.object(nil).pairs
		}
		w.calls = append(w.calls, c)
	}
}

// collect finds every reference to an input in the expressions below a value: what stands in
// ${{ }}, and the whole of an "if".
func (w *Workflow) collect(src *source, y *yaml.Node, key string, depth int) {
	if depth > 200 {
		return
	}
	if y.Kind == yaml.ScalarNode && strings.Contains(y.Value, "inputs") {
		exprs := []string{y.Value}
		if key != "if" {
			exprs = nil
			for _, m := range expression.FindAllStringSubmatch(y.Value, -1) {
				exprs = append(exprs, m[1])
			}
		}
		for _, e := range exprs {
			for _, m := range inputRef.FindAllStringSubmatch(e, -1) {
				name := m[1] + m[2]
				if _, ok := w.used[name]; !ok {
					w.used[name] = src.pos(y)
				}
			}
		}
	}
	for i, c := range y.Content { // not through aliases: their anchor is in the file
		if y.Kind == yaml.MappingNode && i%2 == 1 {
			key = y.Content[i-1].Value
		}
		w.collect(src, c, key, depth+1)
	}
}

// callee is the file of a workflow that a job calls, "" for one outside the repository.
func (w *Workflow) callee(uses string) string {
	if !strings.HasPrefix(uses, "./") {
		return ""
	}
	return filepath.Join(filepath.Dir(w.File), filepath.Base(uses))
}
