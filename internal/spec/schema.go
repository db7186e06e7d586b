package spec

import (
	"encoding/json"
	"fmt"
	"reflect"
	"sort"
	"strings"
)

// schemaDialect is the JSON Schema version of all schemas.
const schemaDialect = "https://json-schema.org/draft/2020-12/schema"

// schema is a JSON schema while it is built.
type schema map[string]any

// SchemaNames are the files that Schema describes.
func SchemaNames() []string {
	return []string{"master", "runners", "changelog", "fleet", "point"}
}

// Schema is the JSON schema of a file that this package reads or of a point, indented. What a
// schema cannot say (a value that depends on another) the readers check.
func Schema(name string) ([]byte, error) {
	var s schema
	switch name {
	case "master":
		s = masterSchema()
	case "runners":
		s = runnersSchema()
	case "changelog":
		s = changelogSchema()
	case "fleet":
		s = fleetSchema()
	case "point":
		return TypeSchema("point", "A Weir point: one executable benchmark.", Point{}), nil
	default:
		msg := fmt.Sprintf("no schema has the name %q; use %s", name, orList(SchemaNames()))
		return nil, fmt.Errorf("%s", msg)
	}
	return finishSchema(name, s), nil
}

func finishSchema(name string, s schema) []byte {
	s["$schema"] = schemaDialect
	s["$id"] = "urn:weir:schema:" + name
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil { // only maps, lists and scalars
		panic(err)
	}
	return append(b, '\n')
}

func (s schema) with(key string, v any) schema { s[key] = v; return s }

func text(about string) schema { return schema{"type": "string", "minLength": 1, "description": about} }
func enum(about string, words ...string) schema {
	return schema{"enum": words, "description": about}
}
func whole(about string, lo int) schema {
	return schema{"type": "integer", "minimum": lo, "description": about}
}
func flagSchema(about string) schema { return schema{"type": "boolean", "description": about} }
func above0(about string) schema {
	return schema{"type": "number", "exclusiveMinimum": 0, "description": about}
}
func list(items schema, about string) schema {
	return schema{"type": "array", "items": items, "minItems": 1, "description": about}
}

// object is a mapping that has no other keys.
func objectSchema(about string, props map[string]schema, required ...string) schema {
	s := schema{"type": "object", "additionalProperties": false, "properties": props, "description": about}
	if len(required) > 0 {
		sort.Strings(required)
		s["required"] = required
	}
	return s
}

func componentSchema(about string, versioned bool) schema {
	version := schema{"type": "string", "minLength": 1, "not": schema{"pattern": "^image:"},
		"description": "release, package version or commit of the component itself, not an image"}
	props := map[string]schema{"name": text("name of the component"), "version": version}
	full := objectSchema(about, props, "name")
	if versioned {
		full["required"] = []string{"name", "version"}
	}
	return schema{"anyOf": []schema{full, {"type": "string", "minLength": 1, "description": "older form: the name only"}}}
}

func weirSchema() schema {
	return objectSchema("Weir's own fields; those of an entry stand before those of its config.", map[string]schema{
		"recipe":           text("recipe that starts the engine"),
		"corpus":           text("traces to replay"),
		"seed":             whole("seed of the replay, 42 if not given", 0),
		"seeds":            list(whole("seed", 0), "one point a seed").with("uniqueItems", true),
		"mem-fraction":     above0("share of HBM for weights and KV").with("maximum", 1),
		"kv-dtype":         enum("type of cached keys and values", kvDTypes...),
		"host-ratio":       above0("host pool as a multiple of the device pool").with("maximum", 1000),
		"host-gb-per-rank": above0("host pool of a rank in decimal GB"),
		"write-policy":     enum("when KV is written to the host tier", writePolicies...),
		"page-size":        whole("tokens of a page", 1),
		"schedule-policy":  enum("order of the engine's queue", schedulePolicies...),
		"draft-tokens":     whole("tokens drafted in a step", 1).with("maximum", 64),
		"repeats":          whole("runs of the same point", 1),
		"slo": objectSchema("service levels", map[string]schema{
			"ttft-p90-s":          above0("time to first token, seconds, at most"),
			"itl-p90-ms":          above0("inter-token latency, milliseconds, at most"),
			"e2e-norm-intvty-p90": above0("interactivity, tokens/s/user, at least"),
		}),
	})
}

// oneConcurrency allows a list, or both ends of a range.
func oneConcurrency(s schema) schema {
	none := func(keys ...string) schema {
		var any []schema
		for _, k := range keys {
			any = append(any, schema{"required": []string{k}})
		}
		return schema{"not": schema{"anyOf": any}}
	}
	s["oneOf"] = []schema{
		{"required": []string{"conc-list"}, "allOf": []schema{none("conc-start", "conc-end")}},
		{"required": []string{"conc-start", "conc-end"}, "allOf": []schema{none("conc-list")}},
	}
	return s
}

func entrySchema(multi, agentic bool) schema {
	props := map[string]schema{
		"spec-decoding": enum("speculative decoding, none if not given", specDecodings...),
		"router":        componentSchema("what spreads requests over workers", true),
		"conc-start":    whole("least concurrency of a range", 1),
		"conc-end":      whole("highest concurrency of a range, always included", 1),
		"conc-list":     list(whole("concurrency", 1), "concurrencies").with("uniqueItems", true),
		"weir":          weirSchema(),
	}
	var required []string
	if multi {
		worker := func(minWorkers int) schema {
			return objectSchema("workers of one role", map[string]schema{
				"num-worker": whole("workers", minWorkers), "tp": whole("tensor parallelism", 1),
				"pp": whole("pipeline parallelism, 1 if not given", 1), "ep": whole("expert parallelism", 1),
				"dcp-size": whole("decode context parallelism, a divisor of tp", 1), "pcp-size": whole("prefill context parallelism", 1),
				"dp-attn": flagSchema("data-parallel attention"), "hardware": text("GPU of the role, for both roles or none"),
				"additional-settings": schema{"type": "array", "items": schema{"type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]*="},
					"description": "NAME=value for the launcher"},
			}, "num-worker", "tp", "ep", "dp-attn")
		}
		props["prefill"], props["decode"] = worker(1), worker(0)
		props["kv-p2p-transfer"] = text("transfer engine between prefill and decode")
		required = append(required, "prefill", "decode")
	} else {
		props["tp"], props["pp"], props["ep"] = whole("tensor parallelism", 1), whole("pipeline parallelism", 1), whole("expert parallelism", 1)
		props["dcp-size"], props["pcp-size"] = whole("decode context parallelism, a divisor of tp", 1), whole("prefill context parallelism", 1)
		props["dp-attn"] = flagSchema("data-parallel attention")
		required = append(required, "tp")
	}
	if agentic {
		props["kv-offloading"] = enum("where KV goes that does not fit on the device", offloadModes...)
		props["kv-offload-backend"] = componentSchema("what keeps KV in host memory", false)
		if !multi {
			required = append(required, "kv-offloading")
		}
	}
	s := oneConcurrency(objectSchema("one topology with its concurrencies", props, required...))
	if agentic {
		s["if"] = schema{"properties": schema{"kv-offloading": schema{"const": "dram"}}, "required": []string{"kv-offloading"}}
		s["then"] = schema{"required": []string{"kv-offload-backend"}}
		s["else"] = schema{"not": schema{"required": []string{"kv-offload-backend"}}}
	}
	return s
}

func masterSchema() schema {
	config := func(multi bool) schema {
		fixed := objectSchema("a pair of sequence lengths", map[string]schema{
			"isl": whole("input tokens", 1), "osl": whole("output tokens", 1),
			"search-space": list(entrySchema(multi, false), "topologies"),
		}, "isl", "osl", "search-space")
		agentic := objectSchema("replay of recorded agents", map[string]schema{
			"dram-utilization": above0("share of the node's memory for offload; given exactly where a budget is computed from it").with("maximum", 1),
			"search-space":     list(entrySchema(multi, true), "topologies"),
		}, "search-space")
		props := map[string]schema{
			"image": text("container image with a tag or digest"), "model": text("model as the hub names it"),
			"model-prefix": text("short name of the model"), "precision": text("precision, such as fp4"),
			"framework": text("serving framework"), "runner": text("label of runners.yaml; agentic configs need cluster:NAME"),
			"multinode": schema{"const": multi, "description": "several nodes"},
			"disagg":    schema{"const": false, "description": "prefill and decode apart"},
			"router":    componentSchema("what spreads requests over workers, for all entries", true),
			"scenarios": schema{"type": "object", "additionalProperties": false, "minProperties": 1, "properties": map[string]schema{
				"fixed-seq-len": {"type": "array", "items": fixed}, "agentic-coding": {"type": "array", "items": agentic}}},
			"weir": weirSchema(),
		}
		if multi {
			props["disagg"] = flagSchema("prefill and decode apart; needs kv-p2p-transfer")
			props["kv-p2p-transfer"] = text("transfer engine between prefill and decode, for all entries")
		}
		return objectSchema("", props, "image", "model", "model-prefix", "precision", "framework", "runner", "multinode", "scenarios")
	}
	return schema{"title": "InferenceX master file with Weir's fields", "type": "object",
		"propertyNames": schema{"not": schema{"pattern": `[*?\[]`}},
		"additionalProperties": schema{
			"if":   schema{"properties": schema{"multinode": schema{"const": true}}, "required": []string{"multinode"}},
			"then": schema{"$ref": "#/$defs/multi-node"}, "else": schema{"$ref": "#/$defs/single-node"}},
		"$defs": schema{"single-node": config(false), "multi-node": config(true)}}
}

func runnersSchema() schema {
	labels := schema{"type": "object", "additionalProperties": list(text("runner"), "runners of the label")}
	return schema{"title": "runners.yaml of InferenceX", "anyOf": []schema{
		objectSchema("labels with their runners, and facts of the nodes", map[string]schema{
			"labels": labels,
			"hardware": {"type": "object", "additionalProperties": objectSchema("facts of a node", map[string]schema{
				"available-cpu-dram-mib": whole("host memory that jobs may use, MiB", 1),
				"gpus-per-node":          whole("GPUs of a node", 1)}, "available-cpu-dram-mib", "gpus-per-node")},
		}, "labels"),
		{"description": "older form: the labels at the top", "type": "object", "not": schema{"required": []string{"labels"}},
			"additionalProperties": list(text("runner"), "runners of the label")},
	}}
}

func changelogSchema() schema {
	return schema{"title": "perf-changelog.yaml of InferenceX", "type": "array", "items": objectSchema("an entry", map[string]schema{
		"config-keys": list(text("name of a config; * matches any text"), "what is measured again"),
		"description": list(text("line"), "what changed"), "pr-link": text("link of the pull request, or XXX"),
		"evals-only": flagSchema("evaluate only"), "all-evals": flagSchema("evaluate everything that can be"),
		"append-only":         flagSchema("run only new points and add them to the curve"),
		"eval-min-prefill-ep": whole("evaluate multi-node jobs from this prefill ep on", 1),
		"scenario-type":       list(enum("scenario", string(FixedSeqLen), string(AgenticCoding)), "scenarios, all if not given"),
	}, "config-keys", "description", "pr-link")}
}

// TypeSchema is the JSON schema of what encoding/json writes for a value, from its fields and
// their json tags.
func TypeSchema(name, about string, v any) []byte {
	defs := schema{}
	s := typeSchema(reflect.TypeOf(v), defs)
	root := schema{"title": about}
	for k, x := range s {
		root[k] = x
	}
	if len(defs) > 0 {
		root["$defs"] = defs
	}
	return finishSchema(name, root)
}

func typeSchema(t reflect.Type, defs schema) schema {
	if t.Implements(reflect.TypeFor[json.Marshaler]()) && t.Kind() != reflect.Pointer {
		return schema{}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return schema{"anyOf": []schema{typeSchema(t.Elem(), defs), {"type": "null"}}}
	case reflect.Bool:
		return schema{"type": "boolean"}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return schema{"type": "integer"}
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return schema{"type": "integer", "minimum": 0}
	case reflect.Float32, reflect.Float64:
		return schema{"type": "number"}
	case reflect.String:
		return schema{"type": "string"}
	case reflect.Slice, reflect.Array:
		s := schema{"type": "array", "items": typeSchema(t.Elem(), defs)}
		if t.Kind() == reflect.Slice {
			s["type"] = []string{"array", "null"}
		}
		return s
	case reflect.Map:
		return schema{"type": []string{"object", "null"}, "additionalProperties": typeSchema(t.Elem(), defs)}
	case reflect.Struct:
		name := t.Name()
		if name == "" {
			return structSchema(t, defs)
		}
		if i := strings.LastIndexByte(t.PkgPath(), '/'); i >= 0 { // packages may share names
			name = t.PkgPath()[i+1:] + "." + name
		}
		if _, ok := defs[name]; !ok {
			defs[name] = schema{} // holds the place of a type that holds itself
			defs[name] = structSchema(t, defs)
		}
		return schema{"$ref": "#/$defs/" + name}
	}
	return schema{}
}

func structSchema(t reflect.Type, defs schema) schema {
	props := map[string]schema{}
	var required []string
	var fields func(t reflect.Type)
	fields = func(t reflect.Type) {
		for i := range t.NumField() {
			f := t.Field(i)
			tag, opts, _ := strings.Cut(f.Tag.Get("json"), ",")
			if f.Anonymous && tag == "" && f.Type.Kind() == reflect.Struct {
				fields(f.Type)
				continue
			}
			if !f.IsExported() || tag == "-" {
				continue
			}
			if tag == "" {
				tag = f.Name
			}
			props[tag] = typeSchema(f.Type, defs)
			if !strings.Contains(opts, "omitempty") && !strings.Contains(opts, "omitzero") {
				required = append(required, tag)
			}
		}
	}
	fields(t)
	return objectSchema(t.Name(), props, required...)
}
