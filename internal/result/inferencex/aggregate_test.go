package inferencex

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weirbench/weir/internal/material"
)

func environment(t *testing.T, path string) Env {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var m map[string]string
	if err := json.Unmarshal(b, &m); err != nil {
		t.Fatal(err)
	}
	return func(name string) (string, bool) { v, ok := m[name]; return v, ok }
}

// TestGoldenAggregates compares rows with those of InferenceX's own aggregator, key by key and
// in the spelling of every number.
func TestGoldenAggregates(t *testing.T) {
	for _, name := range []string{"sglang-hicache", "vllm-by-source", "disagg", "no-metrics"} {
		t.Run(name, func(t *testing.T) {
			dir := material.Path(t, "inferencex", "aggregate", name)
			want, err := os.ReadFile(filepath.Join(dir, "expected.json"))
			if err != nil {
				t.Fatal(err)
			}
			for _, own := range []bool{false, true} {
				row, err := Aggregate(dir, environment(t, filepath.Join(dir, "env.json")), Options{Own: own})
				if err != nil {
					t.Fatal(err)
				}
				b, err := json.Marshal(row)
				if err != nil {
					t.Fatal(err)
				}
				got := parsed(t, b).(map[string]any)
				added := 0
				for k := range got {
					if strings.HasPrefix(k, "weir_") { // never a key of InferenceX
						delete(got, k)
						added++
					}
				}
				if d := cmp.Diff(parsed(t, want), any(got)); d != "" {
					t.Errorf("row differs (-want +got):\n%s", d)
				}
				if (added == 6) != own || !own && added > 0 {
					t.Errorf("own numbers %t: %d keys of Weir's", own, added)
				}
			}
		})
	}
}

// parsed keeps numbers as they are spelled.
func parsed(t *testing.T, b []byte) any {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%v\n%s", err, b)
	}
	return v
}
