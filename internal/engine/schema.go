package engine

import (
	"encoding/json"
)

// Schema is the JSON schema (2020-12) of a recipe, indented. What it cannot say, such as an
// argument that the point gives too, Build checks.
func Schema() []byte {
	type m = map[string]any
	scalar := m{"type": []string{"string", "number", "boolean"}}
	text := func(about string) m { return m{"type": "string", "minLength": 1, "description": about} }
	object := func(about string, props m, required ...string) m {
		o := m{"type": "object", "properties": props, "additionalProperties": false}
		if about != "" {
			o["description"] = about
		}
		if len(required) > 0 {
			o["required"] = required
		}
		return o
	}
	words := func(about string) m { return m{"type": "array", "items": scalar, "description": about} }
	args := func(about string) m {
		return m{"type": "object", "description": about, "additionalProperties": m{"anyOf": []m{scalar, {"type": "array", "items": scalar}, {"type": "object"}}}}
	}
	wait := func(about string) m {
		return m{"type": "string", "pattern": `^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$`, "description": about}
	}
	asked := m{}
	for _, c := range conditions {
		asked[c] = m{"anyOf": []m{scalar, {"type": "array", "items": scalar, "minItems": 1}}}
	}
	when := m{"type": "array", "description": "arguments for points that meet all conditions; a later case stands",
		"items": object("", m{"if": m{"type": "object", "properties": asked, "additionalProperties": false, "minProperties": 1},
			"args": args("arguments"), "env": args("variables")}, "if")}
	parts := m{}
	for _, r := range roles {
		parts[r] = object("what role "+r+" adds or changes", m{"args": args("arguments"), "env": args("variables"), "when": when,
			"command": words("of the router: program in place of its own"), "help": text("of the router: file with what it prints for --help")})
	}
	ports := m{}
	for _, p := range portNames {
		ports[p] = m{"type": "integer", "minimum": 1, "maximum": 65535}
	}
	s := object("how an engine is started for a config", m{
		"name":    text("name, that of the file"),
		"extends": text("name of the recipe that this one changes"),
		"engine":  m{"enum": Names(), "description": "engine"},
		"version": text("release that the recipe was written for, such as 0.5.16"),
		"model":   text("where the checkpoint lies on the nodes"),
		"command": words("program in place of the engine's own"),
		"help":    text("file beside the recipe with what the engine prints for --help"),
		"device":  m{"enum": []string{"gpu", "cpu"}, "description": "what the engine runs on"},
		"memory": object("what decides pool sizes; the plan reads it too", m{
			"fraction":     text("share of HBM for weights and KV"),
			"kv-dtype":     text("type of cached keys and values"),
			"page-size":    m{"type": "integer", "minimum": 1, "description": "tokens"},
			"write-policy": m{"enum": []string{"write_back", "write_through", "write_through_selective"}},
			"draft-tokens": m{"type": "integer", "minimum": 1, "description": "tokens drafted for a step"},
			"host-pool": m{"description": "auto is the largest that fits and is allowed", "anyOf": []m{{"const": "auto"},
				object("", m{"ratio": m{"type": []string{"number", "string"}}}, "ratio"),
				object("", m{"gb-per-rank": m{"type": "integer", "minimum": 1}}, "gb-per-rank")}},
		}),
		"args":     args("arguments of all workers; true is a bare flag, false takes one back"),
		"env":      args("variables of all processes"),
		"when":     when,
		"roles":    object("what roles add or change", parts),
		"router":   m{"enum": []string{"auto", "always"}},
		"consumes": m{"type": "object", "additionalProperties": text("the reason"), "description": "fields of the point that need no argument"},
		"ports":    object("other ports than the usual ones", ports),
		"ready": object("how long to wait", m{"start": wait("until the canary answers"), "drain": wait("for requests before a flush"),
			"stop": wait("from TERM to KILL"), "silent": wait("without a token before a run counts as stalled")}),
		"require-metrics": words("metric families that must be there before the load, in place of the engine's own"),
		"external": object("a command that brings endpoints up", m{"up": words("brings them up"), "down": words("takes them down"),
			"urls": words("where they are"), "metrics": words("where their metrics are"), "flush": words("URLs to POST to"),
			"session-headers": words("headers that carry the conversation")}, "urls"),
	}, "name")
	s["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	s["$id"] = "urn:weir:schema:recipe"
	s["title"] = "recipe of Weir"
	s["anyOf"] = []m{{"required": []string{"engine"}}, {"required": []string{"extends"}}}
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil { // only maps, lists and scalars
		panic(err)
	}
	return append(b, '\n')
}
