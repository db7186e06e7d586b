package spec

import (
	"bytes"
	"encoding/json"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"
	"pgregory.net/rapid"

	"github.com/weirbench/weir/internal/material"
)

func compiled(t testing.TB, name string) *jsonschema.Schema {
	t.Helper()
	b, err := Schema(name)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource(name+".json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile(name + ".json")
	if err != nil {
		t.Fatalf("%s is not a schema: %v", name, err)
	}
	return s
}

// yamlValue decodes YAML as an editor does: to what JSON has.
func yamlValue(t testing.TB, data []byte) any {
	t.Helper()
	var v any
	if err := yaml.Unmarshal(data, &v); err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	out, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// The files of InferenceX pass their schemas as they are.
func TestSchemasTakeInferenceX(t *testing.T) {
	for file, name := range map[string]string{
		"nvidia-master.yaml": "master", "amd-master.yaml": "master", "runners.yaml": "runners",
		"changelog-49ac5c0a0/head-perf-changelog.yaml": "changelog",
	} {
		data, err := os.ReadFile(material.Path(t, "inferencex", file))
		if err != nil {
			t.Fatal(err)
		}
		if err := compiled(t, name).Validate(yamlValue(t, data)); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}

const (
	testFleet = `clusters:
  cluster:b300-nv:
    scheduler: slurm
    slurm: { partition: batch, time-s: 28800, exclude: [{ nodes: [n7], framework: sglang, reason: slow }], client: own-node }
    container: { runtime: pyxis, mounts: ["/data:/data:ro"] }
    models: { zai-org/GLM-5.2-FP8: /data/glm }
    env: { A: b }
    node: { gpu: b300, dram-mib: 2_964_436 }
  local: { scheduler: local, client-cpus: 4, node: { shm: /shm } }
`
)

// Schema and reader agree: what a schema refuses the reader refuses, and keys are the same.
func TestSchemasAndReadersAgree(t *testing.T) {
	master, runners, changelog := compiled(t, "master"), compiled(t, "runners"), compiled(t, "changelog")
	fleet := compiled(t, "fleet")
	for _, m := range []string{fixedMaster, agentMaster, multiMaster, agenticMaster} {
		if err := master.Validate(yamlValue(t, []byte(m))); err != nil {
			t.Errorf("master: %v", err)
		}
	}
	for name, c := range map[string]struct {
		schema *jsonschema.Schema
		text   string
		reads  func([]byte) error
	}{
		"runners":       {runners, testRunners, func(b []byte) error { _, err := loadText(t, "{}", string(b)); return err }},
		"older runners": {runners, "a: [b]\n", func(b []byte) error { _, err := loadText(t, "{}", string(b)); return err }},
		"changelog":     {changelog, oldLog, func(b []byte) error { _, err := ParseChangelog("c", b); return err }},
		"fleet": {fleet, testFleet, func(b []byte) error {
			if _, ps := parseFleet("f.yaml", b); len(ps) > 0 {
				return ps
			}
			return nil
		}},
	} {
		if err := c.reads([]byte(c.text)); err != nil {
			t.Errorf("%s: the reader refuses it: %v", name, err)
		}
		if err := c.schema.Validate(yamlValue(t, []byte(c.text))); err != nil {
			t.Errorf("%s: the schema refuses it: %v", name, err)
		}
	}
	// Every fault that a schema can see: all rule cases that parse as JSON values.
	seen := 0
	for _, c := range ruleCases {
		text := strings.Replace(c.master, c.old, c.new, 1)
		var v any
		if strings.Contains(text, "---") || yaml.Unmarshal([]byte(text), &v) != nil {
			continue
		}
		if _, err := json.Marshal(v); err != nil {
			continue
		}
		if master.Validate(yamlValue(t, []byte(text))) != nil {
			seen++
		}
	}
	if seen < 45 {
		t.Errorf("the schema sees %d of %d faults", seen, len(ruleCases))
	}
}

func TestSchemaKeysAreTheReadersKeys(t *testing.T) {
	keys := func(s schema) []string { return sortedKeys(s["properties"].(map[string]schema)) }
	sorted := func(list []string) []string { return slices.Sorted(slices.Values(list)) }
	defs := masterSchema()["$defs"].(schema)
	for name, c := range map[string]struct{ got, want []string }{
		"single-node config":  {keys(defs["single-node"].(schema)), singleNodeKeys},
		"multi-node config":   {keys(defs["multi-node"].(schema)), multiNodeKeys},
		"single-node entry":   {keys(entrySchema(false, false)), singleEntryKeys},
		"single-node agentic": {keys(entrySchema(false, true)), singleAgenticKeys},
		"multi-node entry":    {keys(entrySchema(true, false)), multiEntryKeys},
		"multi-node agentic":  {keys(entrySchema(true, true)), multiAgenticKeys},
		"worker":              {keys(entrySchema(true, true)["properties"].(map[string]schema)["decode"]), workerKeys},
		"weir":                {keys(weirSchema()), weirKeys},
		"changelog":           {keys(changelogSchema()["items"].(schema)), changelogKeys},
	} {
		if !reflect.DeepEqual(c.got, sorted(c.want)) {
			t.Errorf("%s: schema %v, reader %v", name, c.got, sorted(c.want))
		}
	}
}

// Whatever the reader accepts, the schema accepts.
func TestSchemaTakesValidConfigs(t *testing.T) {
	master := compiled(t, "master")
	point := compiled(t, "point")
	rapid.Check(t, func(r *rapid.T) {
		text := genConfig(r)
		if err := master.Validate(yamlValue(t, []byte(text))); err != nil {
			r.Fatalf("%v\n%s", err, text)
		}
		s, err := loadText(t2(r), text, testRunners)
		if err != nil {
			r.Fatal(err)
		}
		points, err := s.Points(Selection{})
		if err != nil {
			r.Fatal(err)
		}
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(mustJSON(points[len(points)-1])))
		if err != nil {
			r.Fatal(err)
		}
		if err := point.Validate(doc); err != nil {
			r.Fatal(err)
		}
	})
}

func TestFleet(t *testing.T) {
	f, ps := parseFleet("fleet.yaml", []byte(testFleet))
	if len(ps) > 0 {
		t.Fatal(ps)
	}
	c, err := f.Cluster("cluster:b300-nv")
	if err != nil || c.Slurm.TimeNs != 28800e9 || !c.Slurm.Exclusive || c.Slurm.Exclude[0].Nodes[0] != "n7" || c.Node.DRAMBytes != 2964436<<20 {
		t.Errorf("%+v, %v", c, err)
	}
	if _, err := f.Cluster("cluster:b300-nw"); err == nil || err.Error() != `fleet.yaml has no cluster "cluster:b300-nw"; did you mean cluster:b300-nv?` {
		t.Errorf("error %v", err)
	}
	for want, text := range map[string]string{
		"fleet.yaml:1:1: clusters is missing":             "a: 1\n",
		"client-cpus has no effect with client: own-node": "clusters: { a: { scheduler: slurm, slurm: { client: own-node }, client-cpus: 4 } }\n",
		"client-cpus": "clusters: { a: { scheduler: local, client-cpus: 0 } }\n",
		"slurm has no effect with scheduler: local":                        "clusters: { a: { scheduler: local, slurm: {} } }\n",
		`"slurn" is not known here; did you mean slurm?`:                   "clusters: { a: { scheduler: slurn } }\n",
		`"/data" is not HOST:CONTAINER`:                                    "clusters: { a: { scheduler: local, container: { runtime: none, mounts: [/data] } } }\n",
		"clusters.a.slurm.exclude[0]: reason is missing":                   "clusters: { a: { scheduler: slurm, slurm: { exclude: [{ nodes: [n] }] } } }\n",
		"clusters.a.node.gpus-per-node: 0 is less than 1; write 1 or more": "clusters: { a: { scheduler: local, node: { gpus-per-node: 0 } } }\n",
	} {
		if _, ps := parseFleet("fleet.yaml", []byte(text)); len(ps) == 0 || !strings.Contains(ps.Error(), want) {
			t.Errorf("%s: %v", want, ps)
		}
	}
}
