package spec

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// templateWorkflow takes single-node agentic rows; it forgets pp, takes tp as a boolean, reads an
// input that it does not declare and declares one that it does not read.
const templateWorkflow = `name: t
on:
  workflow_call:
    inputs:
      image: { required: true, type: string }
      model: { required: true, type: string }
      model-prefix: { required: true, type: string }
      precision: { required: true, type: string }
      framework: { required: true, type: string }
      runner: { required: true, type: string }
      exp-name: { required: true, type: string }
      recipe-fingerprint: { type: string }
      tp: { required: true, type: boolean }
      ep: { required: true, type: string }
      dcp-size: { required: true, type: string }
      pcp-size: { required: true, type: string }
      dp-attn: { required: true, type: boolean }
      spec-decoding: { required: true, type: string }
      conc: { required: true, type: string }
      kv-offloading: { type: string }
      kv-offload-backend: { type: string }
      kv-offload-backend-metadata: { type: string }
      total-cpu-dram-gb: { type: string, default: '0' }
      duration: { type: string }
      scenario-type: { type: string }
      router: { type: string }
      run-eval: { type: boolean }
      eval-only: { type: boolean }
      spare: { type: string }
env:
  A: ${{ inputs.image }} ${{ inputs.model }} ${{ inputs['model-prefix'] }} ${{ inputs.precision }} ${{ inputs.framework }}
  B: ${{ inputs.exp-name }} ${{ inputs.recipe-fingerprint }} ${{ inputs.tp }} ${{ inputs.ep }} ${{ inputs.dcp-size }}
  C: ${{ inputs.pcp-size }} ${{ inputs.dp-attn }} ${{ inputs.spec-decoding }} ${{ inputs.conc }} ${{ inputs.kv-offloading }}
  D: ${{ inputs.kv-offload-backend }} ${{ inputs.kv-offload-backend-metadata }} ${{ inputs.total-cpu-dram }}
  E: ${{ inputs.total-cpu-dram-gb }} ${{ inputs.duration }} ${{ inputs.scenario-type }} ${{ inputs.router }} inputs.json
jobs:
  b:
    runs-on: ${{ inputs.runner }}
    if: inputs.run-eval || inputs.eval-only
    steps:
    - run: echo inputs.json
`

const callerWorkflow = `on: push
jobs:
  sweep:
    uses: ./.github/workflows/template.yml
    strategy:
      matrix:
        config: ${{ fromJson(needs.setup.outputs.c).single_node['agentic'] }}
    with:
      image: ${{ matrix.config.image }}
      model: ${{ matrix.config.model }}
      model-prefix: ${{ matrix.config.model-prefix }}
      precision: ${{ matrix.config.precision }}
      framework: ${{ matrix.config.framework }}
      runner: ${{ matrix.config.runner }}
      exp-name: ${{ matrix.config.exp-name }}
      recipe-fingerprint: ${{ matrix.config['recipe-fingerprint'] }}
      tp: ${{ matrix.config.tp }}
      ep: ${{ matrix.config.ep }}
      dcp-size: ${{ matrix.config.dcp-size }}
      pcp-size: ${{ matrix.config.pcp-size }}
      dp-attn: ${{ matrix.config.dp-attn }}
      spec-decoding: ${{ matrix.config.spec-decoding }}
      kv-offloading: ${{ matrix.config.kv-offloading }}
      kv-offload-backend: ${{ matrix.config['kv-offload-backend'].name }}
      kv-offload-backend-metadata: ${{ toJson(matrix.config['kv-offload-backend']) }}
      duration: ${{ matrix.config.duration }}
      router: ${{ matrix.config.router }}
      run-eval: 'false'
      scenario-type: agentic-coding
      concurrency: ${{ matrix.config.conc }}
`

func findings(t *testing.T, w *Workflow) string {
	t.Helper()
	var out []string
	for _, f := range w.Check() {
		f.At.File = filepath.Base(f.At.File)
		out = append(out, f.String())
	}
	return strings.Join(out, "\n")
}

func TestCheckWorkflow(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"template.yml": templateWorkflow, "caller.yml": callerWorkflow} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	tmpl, err := ReadWorkflow(filepath.Join(dir, "template.yml"))
	if err != nil {
		t.Fatal(err)
	}
	want := `template.yml:1:1: dropped: pp: rows of single-node agentic-coding have it, and no input takes it; declare the input pp
template.yml:13:7: mistyped: tp: input tp is of type boolean and rows of single-node agentic-coding give 1; declare it as string
template.yml:29:7: unused: spare: the input is declared and nothing refers to it; use inputs.spare or remove it
template.yml:34:6: undeclared: total-cpu-dram: inputs.total-cpu-dram is read and not declared: it is always empty; did you mean inputs.total-cpu-dram-gb?`
	if got := findings(t, tmpl); got != want {
		t.Errorf("template:\n%s\nwant\n%s", got, want)
	}
	caller, err := ReadWorkflow(filepath.Join(dir, "caller.yml"))
	if err != nil {
		t.Fatal(err)
	}
	got := strings.ReplaceAll(findings(t, caller), dir+"/", "")
	want = `caller.yml:3:3: missing: conc: job sweep does not pass it, and template.yml requires it; add it under with
caller.yml:3:3: dropped: pp: rows of single-node agentic-coding have it, and job sweep passes it on nowhere; add it under with: ${{ matrix.config.pp }}
caller.yml:3:3: dropped: total-cpu-dram-gb: rows of single-node agentic-coding have it, and job sweep passes it on nowhere; add it under with: ${{ matrix.config.total-cpu-dram-gb }}
caller.yml:17:11: mistyped: tp: tp is 1 and the input is a boolean; use toJson(matrix.config.tp) and an input of type string
caller.yml:27:15: mistyped: router: router is a mapping and is passed without toJson: the job would vanish without a message; use toJson(matrix.config.router) and an input of type string
caller.yml:28:17: mistyped: run-eval: the input is a boolean and the job passes "false"; write true or false without quotes
caller.yml:30:7: undeclared: concurrency: job sweep passes it, and template.yml declares no such input; remove it or declare it there`
	if got != want {
		t.Errorf("caller:\n%s\nwant\n%s", got, want)
	}
}

// A job goes out only when every field of its row has an input, with the input's type.
func TestGitHubInputs(t *testing.T) {
	s, err := loadText(t, agentMaster, testRunners)
	if err != nil {
		t.Fatal(err)
	}
	m, err := s.Matrix(Selection{}, EvalsNone)
	if err != nil {
		t.Fatal(err)
	}
	bad, err := parseWorkflow("t.yml", []byte(templateWorkflow))
	if err != nil {
		t.Fatal(err)
	}
	_, err = m.Buckets().AppendGitHub(nil, []*Workflow{bad})
	want := `m.yaml:13:9: pp: a job of c would lose it: t.yml takes no pp = 1 (no such input), no tp = 8 (input tp is of type boolean); declare the input in the workflow or remove the field
m.yaml:14:9: pp: a job of c would lose it: t.yml takes no pp = 1 (no such input), no tp = 8 (input tp is of type boolean); declare the input in the workflow or remove the field`
	if err == nil || err.Error() != want {
		t.Errorf("\n got %v\nwant %s", err, want)
	}
	good, err := parseWorkflow("t.yml", []byte(strings.Replace(templateWorkflow, "tp: { required: true, type: boolean }",
		"tp: { required: true, type: number }\n      pp: { type: string }", 1)))
	if err != nil {
		t.Fatal(err)
	}
	out, err := m.Buckets().AppendGitHub(nil, []*Workflow{good})
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Single map[string][][]map[string]any `json:"single_node"`
	}
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatal(err)
	}
	rows := got.Single["agentic"]
	if len(rows) != 1 || len(rows[0]) != 4 {
		t.Fatalf("matrices %v", rows)
	}
	r := rows[0][3]
	for field, want := range map[string]any{"tp": 8.0, "pp": "1", "conc": "4", "dp-attn": false, "total-cpu-dram-gb": "2399",
		"kv-offload-backend": "hicache", "kv-offload-backend-metadata": `{"name":"hicache","version":"1.2"}`,
		"scenario-type": "agentic-coding"} {
		if r[field] != want {
			t.Errorf("%s is %#v, want %#v", field, r[field], want)
		}
	}
	// Weir's own fields need an input too.
	s, err = loadText(t, strings.Replace(agentMaster, "precision: fp8", "precision: fp8\n  weir: { page-size: 64 }", 1), testRunners)
	if err != nil {
		t.Fatal(err)
	}
	m, _ = s.Matrix(Selection{}, EvalsNone)
	if _, err := m.Buckets().AppendGitHub(nil, []*Workflow{good}); err == nil ||
		!strings.HasPrefix(err.Error(), `m.yaml:14:9: weir: a job of c would lose it: t.yml takes no weir = {"page-size":64,"repeats":1,"seeds":[...`) {
		t.Errorf("error %v", err)
	}
}

// A matrix of GitHub has at most 256 jobs.
func TestGitHubMatrixSize(t *testing.T) {
	var concs []string
	for i := range 600 {
		concs = append(concs, mustString(i+1))
	}
	s, err := loadText(t, strings.Replace(agentMaster, "kv-offloading: none, conc-list: [1, 4]",
		"kv-offloading: none, conc-list: ["+strings.Join(concs, ",")+"]", 1), testRunners)
	if err != nil {
		t.Fatal(err)
	}
	m, _ := s.Matrix(Selection{}, EvalsNone)
	good, err := parseWorkflow("t.yml", []byte(strings.Replace(templateWorkflow, "tp: { required: true, type: boolean }",
		"tp: { type: string }\n      pp: { type: string }", 1)))
	if err != nil {
		t.Fatal(err)
	}
	out, err := m.Buckets().AppendGitHub(nil, []*Workflow{good})
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Single map[string][][]map[string]any `json:"single_node"`
	}
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatal(err)
	}
	sizes := []int{}
	for _, m := range got.Single["agentic"] {
		sizes = append(sizes, len(m))
	}
	if len(sizes) != 3 || sizes[0] != 256 || sizes[1] != 256 || sizes[2] != 90 {
		t.Errorf("matrices of %v jobs", sizes)
	}
}

func mustString(v any) string { return string(mustJSON(v)) }
