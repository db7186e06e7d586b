package told

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weirbench/weir/internal/record"
)

// Paths are the info endpoints that are asked, in order; of paths that answer the same, both
// spellings. Sources: SGLang entrypoints/http_server.py (/get_server_info up to 2026-04, then
// /server_info, which repeats it), vLLM entrypoints (/version; /server_info only with
// VLLM_SERVER_DEV_MODE), TensorRT-LLM openai_server.py (/version), 2026-07.
var Paths = []string{"/server_info", "/get_server_info", "/get_model_info", "/version", "/v1/models"}

// HealthPath is asked where none of Paths but the models answered: Dynamo's frontend lists its
// instances there. SGLang's generates a token for it, so it is not asked first.
const HealthPath = "/health"

// Info reads the answer of one info endpoint of the server at base. What it does not know gives
// no facts.
func Info(base, path string, body []byte) []record.Fact {
	var top map[string]json.RawMessage
	if json.Unmarshal(body, &top) != nil {
		return nil
	}
	a := &answer{base: base, path: path}
	switch {
	case path == "/version":
		a.engine = "" // vLLM and TensorRT-LLM say no more than a number here
		a.text(top, "version", Version)
	case path == "/v1/models":
		a.models(top)
	case path == HealthPath:
		a.health(top)
	case path == "/get_model_info" || path == "/model_info":
		a.engine = "sglang"
		a.text(top, "model_path", Arg+"model_path")
		a.text(top, "weight_version", Arg+"weight_version")
	case has(top, "vllm_config"):
		a.engine = "vllm"
		a.args(top["vllm_config"])
		a.text(top, "vllm_version", Version)
	default:
		a.server(top)
	}
	Sort(a.facts)
	return a.facts
}

type answer struct {
	engine, base, path string
	facts              []record.Fact
}

func has(m map[string]json.RawMessage, k string) bool { _, ok := m[k]; return ok }

func (a *answer) add(name, rank, value, spelled string) {
	if value == "" || len(a.facts) >= maxFacts {
		return
	}
	a.facts = append(a.facts, record.Fact{Engine: a.engine, Name: name, Value: clip(plain([]byte(value))), Process: a.base, Rank: rank, From: "info",
		Text: clip(a.path + " " + plain([]byte(spelled)))})
}

// scalar is a JSON number, string or truth as text, empty for anything else.
func scalar(raw json.RawMessage) string {
	var v any
	if json.Unmarshal(raw, &v) != nil {
		return ""
	}
	switch v := v.(type) {
	case string:
		return v
	case bool, float64:
		return string(raw)
	}
	return ""
}

func (a *answer) text(m map[string]json.RawMessage, k, name string) {
	if v := scalar(m[k]); v != "" {
		a.add(name, "", v, k+": "+v)
	}
}

// count adds a whole number from 0.
func (a *answer) count(m map[string]json.RawMessage, k, name, rank string) bool {
	v := scalar(m[k])
	n, ok := whole(v)
	if v == "" || !ok || strings.Contains(v, ",") {
		return false
	}
	a.add(name, rank, text(n), k+": "+v)
	return true
}

// server reads SGLang's server info: its arguments with what the scheduler made of them, and
// the state of every data-parallel rank.
func (a *answer) server(top map[string]json.RawMessage) {
	a.engine = "sglang"
	if !has(top, "internal_states") && !has(top, "max_total_num_tokens") && !has(top, "tp_size") {
		return // not a form that is known
	}
	if scalar(top["simulated"]) == "true" {
		a.engine = "sim"
	}
	a.text(top, "version", Version)
	a.count(top, "max_running_requests", MaxRunning, "")
	a.count(top, "context_length", ContextTokens, "")
	var states []map[string]json.RawMessage
	_ = json.Unmarshal(top["internal_states"], &states) // older releases have none
	told := false
	for i, s := range states {
		var m map[string]json.RawMessage
		if json.Unmarshal(s["memory_usage"], &m) == nil {
			told = a.count(m, "token_capacity", DeviceTokens, fmt.Sprintf("DP%d", i)) || told
		}
		if a.engine == "sim" { // its own name, of each rank
			a.count(top, "hicache_host_tokens", HostTokens, fmt.Sprintf("DP%d", i))
		}
	}
	if !told {
		a.count(top, "max_total_num_tokens", DeviceTokens, "")
	}
	for _, k := range slices.Sorted(maps.Keys(top)) {
		switch k {
		case "internal_states", "version", "status", "simulated", "uptime_seconds":
			continue
		}
		if argName(k) {
			if v := scalar(top[k]); v != "" {
				if secret(k) {
					v = withheld
				}
				a.add(Arg+k, "", v, k+": "+v)
			}
		}
	}
}

// args reads vLLM's configuration, which is text or an object of objects.
func (a *answer) args(raw json.RawMessage) {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		pairs(s, "=", "", func(name, value, spelled string) { a.add(Arg+name, "", value, spelled) })
		return
	}
	var parts map[string]json.RawMessage
	if json.Unmarshal(raw, &parts) != nil {
		return
	}
	for _, part := range slices.Sorted(maps.Keys(parts)) {
		var m map[string]json.RawMessage
		if json.Unmarshal(parts[part], &m) != nil {
			continue
		}
		for _, k := range slices.Sorted(maps.Keys(m)) {
			if v := scalar(m[k]); v != "" && argName(k) {
				if secret(k) {
					v = withheld
				}
				a.add(Arg+part+"."+k, "", v, k+": "+v)
			}
		}
	}
}

// models reads /v1/models: who serves, and the longest sequence.
func (a *answer) models(top map[string]json.RawMessage) {
	var list []map[string]json.RawMessage
	if json.Unmarshal(top["data"], &list) != nil {
		return
	}
	for _, m := range list {
		by := scalar(m["owned_by"])
		a.engine = map[string]string{"vllm": "vllm", "sglang": "sglang", "tensorrt_llm": "trtllm", "atom": "atom", "nvidia": "dynamo"}[by]
		a.count(m, "max_model_len", ContextTokens, "")
	}
}

// health reads the list of instances that Dynamo's frontend gives.
func (a *answer) health(top map[string]json.RawMessage) {
	var list []map[string]json.RawMessage
	if json.Unmarshal(top["instances"], &list) != nil {
		return
	}
	a.engine = "dynamo"
	for _, m := range list {
		where := scalar(m["component"]) + "/" + scalar(m["endpoint"])
		a.add("instance", scalar(m["instance_id"]), where, where)
	}
}
