package spec

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// maxMatrixJobs is how many jobs a matrix of GitHub Actions may have (GitHub documentation, "usage
// limits", 2026).
const maxMatrixJobs = 256

// maxOutputBytes is how large the outputs of a job may be (as above).
const maxOutputBytes = 1 << 20

// Buckets sorts the jobs of a matrix as the changelog command does: throughput jobs, and jobs that
// only evaluate.
func (m *Matrix) Buckets() *Buckets {
	b := newBuckets()
	for _, r := range m.rows {
		if r.evalOnly {
			b.addEval(r)
		} else {
			b.addThroughput(r)
		}
	}
	return b
}

// A lost field is one of a row that no input of a workflow takes.
type lostField struct {
	field, value, why string
}

// AppendGitHub appends the jobs as inputs of workflows: one object a job, every value of the type
// that the input declares, a list of matrices a bucket with at most 256 jobs each. A row goes to
// the first workflow that takes all its fields. A row that none takes whole is refused with the
// field, its origin and what each workflow lacks.
func (b *Buckets) AppendGitHub(buf []byte, workflows []*Workflow) ([]byte, error) {
	w := rowWriter{buf: append(buf, '{')}
	var problems Problems
	part := func(rows []row, print bool) {
		w.buf = append(w.buf, '[')
		start := len(w.buf)
		n := 0
		for i := range rows {
			job, err := rows[i].inputs(workflows, print)
			if err != nil {
				problems = append(problems, *err)
				continue
			}
			switch {
			case n == 0:
				if w.buf[len(w.buf)-1] == ']' {
					w.buf = append(w.buf, ", "...)
				}
				w.buf = append(w.buf, '[')
				start = len(w.buf)
			case n == maxMatrixJobs || len(w.buf)-start+len(job) > maxOutputBytes-4096:
				w.buf = append(w.buf, "], ["...)
				start, n = len(w.buf), 0
			default:
				w.buf = append(w.buf, ", "...)
			}
			w.buf = append(w.buf, job...)
			n++
		}
		if n > 0 {
			w.buf = append(w.buf, ']')
		}
		w.buf = append(w.buf, ']')
	}
	for _, g := range b.groups {
		w.key(g.name)
		if !g.family {
			part(g.rows[""], false)
			continue
		}
		w.buf = append(w.buf, '{')
		for _, f := range g.order {
			w.key(f)
			part(g.rows[f], true)
		}
		w.buf = append(w.buf, '}')
	}
	if len(problems) > 0 {
		return nil, problems.firstOfEach()
	}
	return append(w.buf, '}'), nil
}

// firstOfEach keeps one problem a place and text: the rows of one entry share their fault.
func (ps Problems) firstOfEach() Problems {
	seen := map[string]bool{}
	var out Problems
	for _, p := range ps {
		if k := p.String(); !seen[k] {
			seen[k] = true
			out = append(out, p)
		}
	}
	return out
}

// inputs is the row as an object of inputs, for the first workflow that takes it whole.
func (r *row) inputs(workflows []*Workflow, print bool) ([]byte, *Problem) {
	fields := r.decoded()
	if print {
		fields["recipe-fingerprint"] = r.fingerprint()
	}
	var lacks []string
	field := ""
	for _, wf := range workflows {
		values, lost := wf.take(fields)
		if len(lost) == 0 {
			return mustJSON(values), nil
		}
		if field == "" {
			field = lost[0].field
		}
		names := make([]string, len(lost))
		for i, l := range lost {
			names[i] = l.field + " = " + l.value + " (" + l.why + ")"
		}
		lacks = append(lacks, wf.File+" takes no "+strings.Join(names, ", no "))
	}
	if len(lacks) == 0 {
		lacks = []string{"no workflow was named"}
	}
	return nil, &Problem{At: r.entry.at, Field: field, What: fmt.Sprintf("a job of %s would lose it: %s",
		r.config.key, strings.Join(lacks, "; ")), Fix: "declare the input in the workflow or remove the field"}
}

// take fills the inputs of a workflow from the fields of a row; lost are the fields it cannot
// take.
func (wf *Workflow) take(fields map[string]any) (values map[string]any, lost []lostField) {
	values = map[string]any{}
	put := func(input, field string, v any) bool {
		in := wf.input(input)
		if in == nil {
			return false
		}
		typed, ok := in.convert(v)
		if !ok {
			lost = append(lost, lostField{field, showValue(v), fmt.Sprintf("input %s is of type %s", input, in.kind)})
			return true
		}
		values[input] = typed
		return true
	}
	miss := func(field string, v any) {
		lost = append(lost, lostField{field, showValue(v), "no such input"})
	}
	agentic := fields["scenario-type"] == string(AgenticCoding)
	for _, name := range sortedKeys(fields) {
		v := fields[name]
		switch name {
		case "prefill", "decode":
			worker := v.(map[string]any)
			for _, k := range sortedKeys(worker) {
				if !put(name+"-"+k, name+"."+k, worker[k]) {
					miss(name+"."+k, worker[k])
				}
			}
		case "conc":
			list, isList := v.([]any)
			taken := false
			if isList {
				taken = put("conc-list", name, v)
				if agentic && len(list) > 0 && wf.input("conc-list") != nil {
					put("conc", name, list[0])
				}
			}
			if !taken && !put("conc", name, v) {
				miss(name, v)
			}
		case "kv-offload-backend":
			backend := v.(map[string]any)
			named := put(name, name+".name", backend["name"])
			whole := put(name+"-metadata", name, backend)
			if !named && !whole {
				miss(name, v)
			} else if _, ok := backend["version"]; ok && !whole {
				miss(name+".version", backend["version"])
			}
		case "eval-all-concs":
			if !put(name, name, v) && !put("eval-conc", name, concText(fields["conc"])) {
				miss(name, v)
			}
		default:
			if !put(name, name, v) {
				miss(name, v)
			}
		}
	}
	// An agentic row has no lengths; where the workflow insists on them InferenceX passes 0.
	if agentic {
		for _, name := range []string{"isl", "osl", "max-model-len"} {
			if in := wf.input(name); in != nil && in.required && !in.hasDefault {
				put(name, name, json.Number("0"))
			}
		}
	}
	return values, lost
}

// convert gives a value the type of the input. A list or an object goes into a string as JSON.
func (in *workflowInput) convert(v any) (any, bool) {
	switch in.kind {
	case "boolean":
		b, ok := v.(bool)
		return b, ok
	case "number":
		n, ok := v.(json.Number)
		return n, ok
	}
	switch v := v.(type) {
	case string:
		return v, true
	case bool:
		return strconv.FormatBool(v), true
	case json.Number:
		return v.String(), true
	}
	return string(canonicalJSON(nil, v)), true
}

// concText is how InferenceX passes several concurrencies: with blanks between them.
func concText(v any) string {
	list, _ := v.([]any)
	out := make([]string, len(list))
	for i, e := range list {
		out[i] = fmt.Sprint(e)
	}
	return strings.Join(out, " ")
}

func showValue(v any) string { return clip(string(canonicalJSON(nil, v))) }
