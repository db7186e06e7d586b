package spec

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const testRunners = `labels:
  cluster:b200-dgxc: [b200-dgxc_00]
  cluster:b300-nv: [b300-nv_01, b300-nv_02]
  b200: [b200-dgxc_00]
hardware:
  cluster:b200-dgxc: { available-cpu-dram-mib: 3_095_781, gpus-per-node: 8 }
  cluster:b300-nv: { available-cpu-dram-mib: 2_964_436, gpus-per-node: 8 }
`

// loadText loads one master file and, unless runners is empty, a runners file.
func loadText(t testing.TB, master, runners string) (*Set, error) {
	t.Helper()
	files, data := []string{"m.yaml"}, [][]byte{[]byte(master)}
	if runners != "" {
		files, data = append(files, "runners.yaml"), append(data, []byte(runners))
	}
	return parseSet(files, data, runners != "")
}

const agenticMaster = `glm-fp8-b300-sglang:
  image: lmsysorg/sglang:v0.5.17
  model: zai-org/GLM-5.2-FP8
  model-prefix: glm5.2
  precision: fp8
  framework: sglang
  runner: cluster:b300-nv
  multinode: false
  weir: { recipe: recipes/glm.yaml, mem-fraction: 0.83, kv-dtype: fp8 }
  scenarios:
    agentic-coding:
    - dram-utilization: 0.80
      search-space:
      - { tp: 8, kv-offloading: none, conc-list: [1, 4] }
      - tp: 4
        kv-offloading: dram
        kv-offload-backend: { name: hicache }
        spec-decoding: mtp
        conc-start: 2
        conc-end: 10
        weir: { write-policy: write_back, page-size: 64, seeds: [1, 2] }
`

func TestPointsOfAnAgenticConfig(t *testing.T) {
	s, err := loadText(t, agenticMaster, testRunners)
	if err != nil {
		t.Fatal(err)
	}
	points, err := s.Points(Selection{Keys: []string{"glm*"}})
	if err != nil {
		t.Fatal(err)
	}
	if len(points) != 2+2*4 { // conc 1 4, then 2 4 8 10 for two seeds
		t.Fatalf("got %d points", len(points))
	}
	last := points[len(points)-1]
	if last.Name != "glm5.2_tp4_conc10_kvdram-hicache_spec-mtp" || last.Conc != 10 {
		t.Errorf("last point is %s at %d", last.Name, last.Conc)
	}
	// Half of the node: 2,861,022 MiB x 2^20 x 0.8 x 4/8 / 10^9, rounded down.
	if got := last.Offload.BudgetGB; got != 1199 {
		t.Errorf("budget %d GB, want 1199", got)
	}
	want := WeirFields{Recipe: "recipes/glm.yaml", Seed: 2, MemFractionPPM: 830000, KVDType: "fp8",
		WritePolicy: "write_back", PageSize: 64, Repeats: 1}
	if last.Weir != want {
		t.Errorf("weir fields %+v, want %+v", last.Weir, want)
	}
	if last.Origin != (Origin{"m.yaml", 15}) {
		t.Errorf("origin %+v", last.Origin)
	}
	if points[0].Weir.Seed != defaultSeed || points[0].Offload.Mode != "none" || points[0].Offload.BudgetGB != 0 {
		t.Errorf("first point %+v", points[0])
	}
	if _, _, total := last.GPUs(); total != 4 {
		t.Errorf("%d GPUs, want 4", total)
	}
	ids := map[string]bool{}
	for _, p := range points {
		ids[p.ID()] = true
	}
	if len(ids) != len(points) {
		t.Errorf("%d ids for %d points", len(ids), len(points))
	}
}

func TestLoadReportsEachFaultInOneLine(t *testing.T) {
	edit := func(old, new string) string { return strings.Replace(agenticMaster, old, new, 1) }
	for name, c := range map[string]struct{ master, want string }{
		"unknown key": {edit("multinode:", "multinod: 1\n  multinode:"),
			"m.yaml:8:3: glm-fp8-b300-sglang.multinod: unknown key; did you mean multinode?"},
		"wrong type": {edit("conc-start: 2", "conc-start: two"),
			`m.yaml:19:21: glm-fp8-b300-sglang.scenarios.agentic-coding[0].search-space[1].conc-start: "two" is not a whole number; write it as a whole number`},
		"unknown runner": {edit("cluster:b300-nv", "cluster:b300-nw"),
			"m.yaml:7:11: glm-fp8-b300-sglang.runner: runner cluster:b300-nw is not in runners.yaml; did you mean cluster:b300-nv? Or add it to the labels there"},
		"tp 0": {edit("tp: 4", "tp: 0"),
			"m.yaml:15:13: glm-fp8-b300-sglang.scenarios.agentic-coding[0].search-space[1].tp: 0 is less than 1; write 1 or more"},
	} {
		_, err := loadText(t, c.master, testRunners)
		if err == nil || err.Error() != c.want {
			t.Errorf("%s:\n got %v\nwant %s", name, err, c.want)
		}
	}
}

func TestLoadReadsFiles(t *testing.T) {
	dir := t.TempDir()
	m, r := filepath.Join(dir, "m.yaml"), filepath.Join(dir, "runners.yaml")
	os.WriteFile(m, []byte(agenticMaster), 0o644)
	os.WriteFile(r, []byte(testRunners), 0o644)
	s, err := Load([]string{m}, r)
	if err != nil || len(s.Keys()) != 1 {
		t.Fatal(s, err)
	}
	_, err = Load([]string{filepath.Join(dir, "none.yaml")}, r)
	if err == nil || !strings.Contains(err.Error(), "none.yaml: cannot be read: no such file") {
		t.Fatal(err)
	}
}
