package engine_test

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"github.com/weirbench/weir/examples"
	"github.com/weirbench/weir/internal/engine"
)

// TestSchema holds the schema against the reader: the same keys, every example valid, every
// unknown key refused by both.
func TestSchema(t *testing.T) {
	var doc map[string]any
	if err := json.Unmarshal(engine.Schema(), &doc); err != nil {
		t.Fatal(err)
	}
	same := func(name string, props any, typ reflect.Type) {
		var got, want []string
		for k := range props.(map[string]any)["properties"].(map[string]any) {
			got = append(got, k)
		}
		for i := range typ.NumField() {
			if tag, _, _ := strings.Cut(typ.Field(i).Tag.Get("yaml"), ","); tag != "" {
				want = append(want, tag)
			}
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s: schema %v, reader %v", name, got, want)
		}
	}
	props := doc["properties"].(map[string]any)
	same("recipe", doc, reflect.TypeFor[engine.Recipe]())
	same("memory", props["memory"], reflect.TypeFor[engine.Memory]())
	same("ready", props["ready"], reflect.TypeFor[engine.Ready]())
	same("external", props["external"], reflect.TypeFor[engine.External]())
	same("case", props["when"].(map[string]any)["items"], reflect.TypeFor[engine.When]())
	same("role", props["roles"].(map[string]any)["properties"].(map[string]any)["prefill"], reflect.TypeFor[engine.Part]())

	raw, err := jsonschema.UnmarshalJSON(bytes.NewReader(engine.Schema()))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("recipe.json", raw); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("recipe.json")
	if err != nil {
		t.Fatal(err)
	}
	validate := func(text []byte) error {
		var v any
		if err := yaml.Unmarshal(text, &v); err != nil {
			t.Fatal(err)
		}
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		inst, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		return s.Validate(inst)
	}
	files, err := fs.Glob(examples.Recipes(), "*.yaml")
	if err != nil || len(files) < 8 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		text, err := fs.ReadFile(examples.Recipes(), f)
		if err != nil {
			t.Fatal(err)
		}
		if err := validate(text); err != nil {
			t.Errorf("%s: %v", f, err)
		}
	}
	for _, bad := range []string{"name: x\nengine: sglang\nengin: y\n", "name: x\nengine: sglnag\n", "name: x\n", "name: x\nengine: sim\nwhen: [{if: {colour: 1}}]\n",
		"name: x\nengine: sim\nready: {start: soon}\n", "name: x\nengine: sim\nmemory: {host-pool: all}\n"} {
		if validate([]byte(bad)) == nil {
			t.Errorf("the schema takes\n%s", bad)
		}
	}
}
