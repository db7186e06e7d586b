package spec

import (
	"bytes"
	"encoding/json"
	"os"
	"reflect"
	"testing"

	"github.com/weirbench/weir/internal/material"
)

// inferenceX loads the master files of InferenceX as they are.
func inferenceX(t testing.TB) *Set {
	t.Helper()
	s, err := Load([]string{material.Path(t, "inferencex", "nvidia-master.yaml"),
		material.Path(t, "inferencex", "amd-master.yaml")}, material.Path(t, "inferencex", "runners.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The rows of four commands of InferenceX's generator, byte for byte: values, order of the rows
// and order of the fields.
func TestRowsEqualInferenceX(t *testing.T) {
	s := inferenceX(t)
	for file, c := range map[string]struct {
		sel   Selection
		evals Evals
	}{
		"full-sweep.json": {},
		"full-sweep-multinode-agentic.json": {
			Selection{MultiNode: true, Scenarios: []Scenario{AgenticCoding}}, EvalsNone},
		"test-config-glm52-agentic.json": {Selection{Keys: []string{"glm5.2*agentic*"}}, EvalsNone},
		"test-config-evals-only.json": {Selection{Keys: []string{"qwen3.5-fp8-b200-sglang-agentic-mtp",
			"dsv4-fp4-mi355x-sglang-disagg-agentic-hicache-mtp"}}, EvalsOnly},
	} {
		t.Run(file, func(t *testing.T) {
			want, err := os.ReadFile(material.Path(t, "inferencex", "golden", file))
			if err != nil {
				t.Fatal(err)
			}
			want = bytes.TrimSpace(want)
			m, err := s.Matrix(c.sel, c.evals)
			if err != nil {
				t.Fatal(err)
			}
			got := m.AppendJSON(nil)
			if bytes.Equal(got, want) {
				return
			}
			var g, w []map[string]any
			if err := json.Unmarshal(got, &g); err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(want, &w); err != nil {
				t.Fatal(err)
			}
			if len(g) != len(w) {
				t.Fatalf("%d rows, want %d", len(g), len(w))
			}
			for i := range g {
				if !reflect.DeepEqual(g[i], w[i]) {
					t.Fatalf("row %d:\n got %v\nwant %v", i, g[i], w[i])
				}
			}
			t.Error("all values are equal, but the order of fields or the spacing differs")
		})
	}
}
