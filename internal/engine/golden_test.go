package engine_test

import (
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/weirbench/weir/examples"
	"github.com/weirbench/weir/internal/engine"
	"github.com/weirbench/weir/internal/plan"
	"github.com/weirbench/weir/internal/spec"
)

var update = flag.Bool("update", false, "write golden files")

func points(t *testing.T, keys ...string) []*spec.Point {
	t.Helper()
	return pointsOf(t, "cluster", keys...)
}

// pointsOf are the points of an example's file.
func pointsOf(t *testing.T, example string, keys ...string) []*spec.Point {
	t.Helper()
	set, err := spec.Load([]string{"../../examples/" + example + "/master.yaml"}, "../../examples/"+example+"/runners.yaml")
	if err != nil {
		t.Fatal(err)
	}
	ps, err := set.Points(spec.Selection{Keys: keys})
	if err != nil {
		t.Fatal(err)
	}
	return ps
}

func build(p *spec.Point, r *engine.Recipe) (*engine.Deployment, error) {
	q, err := r.Planned(p)
	if err != nil {
		return nil, err
	}
	v, err := plan.Compute(q, plan.Options{})
	if err != nil {
		return nil, err
	}
	return engine.Build(q, v, r, engine.Place{})
}

func recipe(t *testing.T, name, change string) *engine.Recipe {
	t.Helper()
	dir := fstest.MapFS{"changed.yaml": {Data: []byte("name: changed\nextends: " + name + "\n" + change)}}
	r, err := engine.Load("changed", dir, examples.Recipes())
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestGolden holds the scripts of every example against what was read by eye.
func TestGolden(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range slices.Concat(points(t), pointsOf(t, "launch"), pointsOf(t, "external")) {
		r, err := engine.Load(p.Weir.Recipe, examples.Recipes())
		if err != nil {
			t.Fatal(err)
		}
		seen[r.Name] = true
		d, err := build(p, r)
		if err != nil {
			t.Errorf("%s: %v", p.Key, err)
			continue
		}
		q, err := r.Planned(p)
		if err != nil {
			t.Fatal(err)
		}
		if v, err := plan.Compute(q, plan.Options{}); err != nil || v.Status != plan.Fits {
			t.Errorf("%s does not fit as it stands: %v, %v", p.Key, err, v)
		}
		for n, got := range d.Scripts() {
			file := filepath.Join("testdata", fmt.Sprintf("%s-c%d-node%d.sh", p.Key, p.Conc, n))
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o666); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("%s differs from what is rendered:\n%s", file, got)
			}
		}
	}
	files, err := fs.Glob(examples.Recipes(), "*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d recipes, %v", len(files), err)
	}
	for _, f := range files {
		if name := strings.TrimSuffix(f, ".yaml"); name != "sglang" && !seen[name] { // sglang is what others extend
			t.Errorf("no example of the recipe %s is rendered", name)
		}
	}
}

// TestUnconsumed sets every field of a point, one at a time, to a value that the example's
// recipe knows nothing about: each is passed on in the script, refused with its name, or on the
// list of those that the client, the plan and the record act on.
func TestUnconsumed(t *testing.T) {
	p := points(t, "glm5.2-fp4-b300-sglang")[0]
	r, err := engine.Load(p.Weir.Recipe, examples.Recipes())
	if err != nil {
		t.Fatal(err)
	}
	d, err := build(p, r)
	if err != nil {
		t.Fatal(err)
	}
	before := strings.Join(d.Scripts(), "")
	elsewhere := map[string]bool{"Key": true, "Origin": true, "Name": true, "ModelPrefix": true, "Scenario": true,
		"DurationNs": true, "ISL": true, "OSL": true, "Recipe": true, "Corpus": true, "Seed": true, "Repeats": true, "SLO": true,
		"File": true, "Line": true, "Unified": true, "Multinode": true, "Disagg": true, "Prefill": true, "Decode": true,
		"GPUsPerNode": true, "Budget": true, "NodeDRAMBytes": true}
	check := func(name string, change func(*spec.Point)) {
		q := *p
		u := *p.Unified
		q.Unified = &u
		change(&q)
		d, err := build(&q, r)
		if err != nil {
			return
		}
		if strings.Join(d.Scripts(), "") == before && !elsewhere[name] {
			t.Errorf("%s has another value and nothing changed", name)
		}
	}
	set := func(v reflect.Value) bool {
		switch v.Kind() {
		case reflect.String:
			v.SetString("odd")
		case reflect.Int, reflect.Int64:
			v.SetInt(v.Int()*2 + 2)
		case reflect.Uint64:
			v.SetUint(77)
		case reflect.Bool:
			v.SetBool(!v.Bool())
		default:
			return false
		}
		return true
	}
	var walk func(path []int, typ reflect.Type, at func(*spec.Point) reflect.Value)
	walk = func(path []int, typ reflect.Type, at func(*spec.Point) reflect.Value) {
		for i := range typ.NumField() {
			f := typ.Field(i)
			if f.Type.Kind() == reflect.Struct {
				walk(nil, f.Type, func(q *spec.Point) reflect.Value { return at(q).Field(i) })
				continue
			}
			check(f.Name, func(q *spec.Point) { set(at(q).Field(i)) })
		}
	}
	walk(nil, reflect.TypeFor[spec.Point](), func(q *spec.Point) reflect.Value { return reflect.ValueOf(q).Elem() })
	walk(nil, reflect.TypeFor[spec.Parallel](), func(q *spec.Point) reflect.Value { return reflect.ValueOf(q.Unified).Elem() })
}

// TestRefused are recipes and points that must not run, each with the words that its error has.
func TestRefused(t *testing.T) {
	p := points(t, "glm5.2-fp4-b300-sglang")[0]
	for _, c := range []struct {
		name, change, want string
		point              func(*spec.Point)
	}{
		{"argument of the point", "args: {tp: 4}\n", "changed.yaml", nil},
		{"argument of the point, spelled otherwise", "args: {tensor_parallel_size: 4}\n", "the point's tp passes it too (8)", nil},
		{"argument that the plan must know", "args: {hicache-size: 300}\n", "memory.host-pool", nil},
		{"memory fraction as an argument", "args: {mem-fraction-static: 0.9}\n", "memory.fraction", nil},
		{"value in both", "", "keep one", func(p *spec.Point) { p.Weir.PageSize = 128 }},
		{"field without a consumer", "", `field kv-p2p-transfer has the value "nixl"`, func(p *spec.Point) { p.KVTransfer = "nixl" }},
		{"another release", `version: "0.5.9"` + "\n", "was written for 0.5.9", nil},
		{"unknown reference", "args: {x: '${nothing}'}\n", "names nothing", nil},
		{"factor that is no number", "args: {x: '${conc*y}'}\n", "a reference is ${field} or ${field*N}", nil},
		{"reference without an end", "args: {x: '${conc'}\n", "a reference is ${field} or ${field*N}", nil},
		{"factor that is too large", "args: {x: '${conc*99999999999999999999}'}\n", "the factor is above", nil},
		{"another framework", "", "framework vllm", func(p *spec.Point) { p.Framework = "vllm" }},
	} {
		q := *p
		if c.point != nil {
			c.point(&q)
		}
		_, err := build(&q, recipe(t, p.Weir.Recipe, c.change))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

// TestStrict are files that are no recipes.
func TestStrict(t *testing.T) {
	for text, want := range map[string]string{
		"name: x\nengin: sglang\n":                                 "line 2: field engin not found",
		"name: x\nargs: {a: 1, a: 2}\n":                            "a is given twice",
		"name: x\nargs: {a: }\n":                                   "write true for a bare flag",
		"name: x\nmemory: {host-pool: {size: 3}}\n":                "host-pool has no \"size\"",
		"name: x\nmemory: {host-pool: {gb-per-rank: 0}}\n":         "gb-per-rank is whole decimal GB",
		"name: x\nwhen: [{if: {colour: red}, args: {a: 1}}]\n":     "cannot ask for \"colour\"",
		"name: x\nroles: {prefil: {}}\n":                           "role \"prefil\" is not known",
		"name: x\nready: {start: -1s}\n":                           "not above 0",
		"name: x\nmemory: {fraction: \"1.2\"}\n":                   "not above 0 and at most 1",
		"name: x\n---\nname: y\n":                                  "more than one document",
		"":                                                         "the file is empty",
		"name: x\ncommand: ['']\n":                                 "command has an empty word",
		"name: x\nroles: {router: {command: [a, '']}}\n":           "roles.router.command has an empty word",
		"name: x\nports: {http: 99999}\n":                          "ports.http: 99999 is no port",
		"name: x\nports: {http: -5}\n":                             "ports.http: -5 is no port",
		"name: x\nwhen: [{if: {conc: '>>4'}, args: {a: 1}}]\n":     "is no comparison",
		"name: x\nwhen: [{if: {conc: '>=many'}, args: {a: 1}}]\n":  "is no comparison",
		"name: x\nargs: [a]\n":                                     "a mapping of name to value",
		"name: x\nengine: sglang\nmemory: {host-pool: {ratio: x}}": "is not a number",
	} {
		if _, err := engine.Parse("x.yaml", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	odd := fstest.MapFS{"a.yaml": {Data: []byte("name: a\nengine: sim\nexternal: {urls: ['http://h']}\n")}}
	if _, err := engine.Load("a", odd); err == nil || !strings.Contains(err.Error(), "external is for the engine external and this recipe's is sim") {
		t.Errorf("external beside another engine: %v", err)
	}
	loop := fstest.MapFS{"a.yaml": {Data: []byte("name: a\nextends: b\n")}, "b.yaml": {Data: []byte("name: b\nextends: a\n")}}
	if _, err := engine.Load("a", loop); err == nil || !strings.Contains(err.Error(), "a -> b -> a") {
		t.Errorf("a loop: %v", err)
	}
}

// TestInheritance: a recipe changes, adds and takes back what it extends.
func TestInheritance(t *testing.T) {
	p := points(t, "glm5.2-fp4-b300-sglang")[0]
	r := recipe(t, p.Weir.Recipe, "args: {chunked-prefill-size: 4096, tool-call-parser: false, json-args: {b: 1, a: [x]}}\nenv: {EXTRA: 'a b'}\nrouter: always\n")
	d, err := build(p, r)
	if err != nil {
		t.Fatal(err)
	}
	s := d.Scripts()[0]
	for _, want := range []string{"--chunked-prefill-size 4096", `--json-args '{"b":1,"a":["x"]}'`, "'EXTRA=a b'", "launch_router", "--reasoning-parser glm45"} {
		if !strings.Contains(s, want) {
			t.Errorf("the script does not hold %q:\n%s", want, s)
		}
	}
	if strings.Contains(s, "tool-call-parser") {
		t.Error("an argument that was taken back is passed")
	}
}

// TestSeedBudget: a multi-node agentic entry with DRAM offload keeps mode, backend and budget
// down to the engine's argument.
func TestSeedBudget(t *testing.T) {
	p := points(t, "dsv4-fp4-mi355x-sglang-pd")[0]
	if p.Offload.Mode != "dram" || p.Offload.Backend.Name != "hicache" || p.Offload.BudgetGB == 0 {
		t.Fatalf("the point has lost its offload: %+v", p.Offload)
	}
	r, err := engine.Load(p.Weir.Recipe, examples.Recipes())
	if err != nil {
		t.Fatal(err)
	}
	d, err := build(p, r)
	if err != nil {
		t.Fatal(err)
	}
	for _, pr := range d.Processes {
		has := strings.Contains(strings.Join(pr.Argv, " "), "--enable-hierarchical-cache --hicache-ratio 2 --hicache-write-policy write_through")
		if has != (pr.Role == "prefill") {
			t.Errorf("%s: host pool in the arguments: %v", pr.Name, has)
		}
	}
	// With a tenth of the node and no ratio in the recipe the budget itself makes the argument.
	auto := *r
	auto.Memory.HostPool = engine.HostPool{}
	argument := func(budget int64) string {
		q := *p
		q.Offload.BudgetGB = budget
		d, err := build(&q, &auto)
		if err != nil {
			t.Fatal(err)
		}
		for i, w := range d.Processes[0].Argv {
			if w == "--hicache-ratio" {
				return d.Processes[0].Argv[i+1]
			}
		}
		return ""
	}
	whole, tenth := argument(p.Offload.BudgetGB), argument(p.Offload.BudgetGB/10)
	if whole == "" || tenth == "" || whole == tenth {
		t.Errorf("--hicache-ratio %q for the whole budget, %q for a tenth of it", whole, tenth)
	}
	q := *p
	q.Offload.Mode, q.Offload.BudgetGB, q.Offload.Backend = "none", 0, spec.Component{}
	if d, err := build(&q, &auto); err != nil || strings.Contains(strings.Join(d.Scripts(), ""), "hicache") {
		t.Errorf("offload none: %v", err)
	}
}
