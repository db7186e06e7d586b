package spec

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// Valid configs, one a kind; the tests below break one thing at a time.
const (
	fixedMaster = `c:
  image: lmsysorg/sglang:v0.5.17
  model: deepseek-ai/DeepSeek-R1
  model-prefix: dsr1
  precision: fp8
  framework: sglang
  runner: cluster:b300-nv
  multinode: false
  scenarios:
    fixed-seq-len:
    - isl: 8192
      osl: 1024
      search-space:
      - { tp: 8, ep: 8, dp-attn: true, conc-start: 4, conc-end: 64, spec-decoding: mtp }
`
	agentMaster = `c:
  image: lmsysorg/sglang:v0.5.17
  model: zai-org/GLM-5.2-FP8
  model-prefix: glm5.2
  precision: fp8
  framework: sglang
  runner: cluster:b300-nv
  multinode: false
  scenarios:
    agentic-coding:
    - dram-utilization: 0.80
      search-space:
      - { tp: 8, kv-offloading: none, conc-list: [1, 4] }
      - { tp: 8, kv-offloading: dram, kv-offload-backend: { name: hicache, version: "1.2" }, conc-list: [1, 4] }
`
	multiMaster = `c:
  image: lmsysorg/sglang:v0.5.17
  model: zai-org/GLM-5.2-FP8
  model-prefix: glm5.2
  precision: fp8
  framework: dynamo-sglang
  runner: cluster:b300-nv
  router: { name: dynamo-router, version: "1.2" }
  kv-p2p-transfer: nixl
  multinode: true
  disagg: true
  scenarios:
    agentic-coding:
    - dram-utilization: 0.80
      search-space:
      - kv-offloading: dram
        kv-offload-backend: { name: hicache }
        conc-list: [8]
        prefill: { num-worker: 1, tp: 4, ep: 1, dp-attn: false, additional-settings: ["A=1"] }
        decode: { num-worker: 2, tp: 8, ep: 8, dp-attn: true }
`
)

// ruleCase breaks one rule: old is replaced by new in the master, and want is the whole error,
// with the path of the config left out where it begins "c".
type ruleCase struct {
	name, master, old, new, want string
}

// Every rule with its exact message.
var ruleCases = []ruleCase{
	// What a value is.
	{"empty string", fixedMaster, "image: lmsysorg/sglang:v0.5.17", `image: ""`,
		`m.yaml:2:10: c.image: is an empty string; give it a value`},
	{"no value", fixedMaster, "image: lmsysorg/sglang:v0.5.17", `image:`,
		`m.yaml:1:1: c: image is missing; add 'image: lmsysorg/sglang:v0.5.17'`},
	{"list for a string", fixedMaster, "image: lmsysorg/sglang:v0.5.17", `image: [a]`,
		`m.yaml:2:10: c.image: is a list, but must be a string; write one value`},
	{"number for a string", fixedMaster, "precision: fp8", `precision: 8`,
		`m.yaml:5:14: c.precision: 8 is read as a whole number, but must be a string; write "8"`},
	{"float for a string", agentMaster, `version: "1.2"`, `version: 1.2`,
		`m.yaml:14:85: c.scenarios.agentic-coding[0].search-space[1].kv-offload-backend.version: 1.2 is read as a number, but must be a string; write "1.2"`},
	{"bool for a string", fixedMaster, "precision: fp8", `precision: no`,
		`m.yaml:5:14: c.precision: no is read as true or false, but must be a string; write "no"`},
	{"date for a string", agentMaster, `version: "1.2"`, `version: 2026-08-01`,
		`m.yaml:14:85: c.scenarios.agentic-coding[0].search-space[1].kv-offload-backend.version: 2026-08-01 is read as a date or time, but must be a string; write "2026-08-01"`},
	{"unknown word, near", fixedMaster, "spec-decoding: mtp", "spec-decoding: mpt",
		`m.yaml:14:84: c.scenarios.fixed-seq-len[0].search-space[0].spec-decoding: "mpt" is not known here; did you mean mtp? It must be mtp, draft_model or none`},
	{"unknown word", agentMaster, "kv-offloading: none", "kv-offloading: floppy",
		`m.yaml:13:33: c.scenarios.agentic-coding[0].search-space[0].kv-offloading: "floppy" is not known here; use none or dram`},
	{"not a bool", fixedMaster, "dp-attn: true", "dp-attn: 1",
		`m.yaml:14:34: c.scenarios.fixed-seq-len[0].search-space[0].dp-attn: 1 is not true or false; write true or false`},
	{"quoted bool", fixedMaster, "dp-attn: true", `dp-attn: "true"`,
		`m.yaml:14:34: c.scenarios.fixed-seq-len[0].search-space[0].dp-attn: "true" is not true or false; write true without quotes`},
	{"multinode not a bool", fixedMaster, "multinode: false", `multinode: maybe`,
		`m.yaml:8:14: c.multinode: "maybe" is not true or false; write true or false`},
	{"not a number", fixedMaster, "isl: 8192", "isl: 8k",
		`m.yaml:11:12: c.scenarios.fixed-seq-len[0].isl: "8k" is not a whole number; write it as a whole number`},
	{"quoted number", fixedMaster, "isl: 8192", `isl: "8192"`,
		`m.yaml:11:12: c.scenarios.fixed-seq-len[0].isl: "8192" is not a whole number; write 8192 without quotes`},
	{"float for a whole number", fixedMaster, "tp: 8", `tp: 8.0`,
		`m.yaml:14:15: c.scenarios.fixed-seq-len[0].search-space[0].tp: 8.0 is not a whole number; write it as a whole number`},
	{"octal", fixedMaster, "osl: 1024", `osl: 010`,
		`m.yaml:12:12: c.scenarios.fixed-seq-len[0].osl: 010 is 8 to YAML 1.1 and 10 to YAML 1.2; write 8 or 10`},
	{"leading zero", fixedMaster, "osl: 1024", `osl: 089`,
		`m.yaml:12:12: c.scenarios.fixed-seq-len[0].osl: 089 has a leading zero; write 89`},
	{"too large", fixedMaster, "osl: 1024", `osl: 4_000_000_000`,
		`m.yaml:12:12: c.scenarios.fixed-seq-len[0].osl: 4_000_000_000 is over the limit of 2147483647; write 2147483647 or less`},
	{"tp 0", fixedMaster, "tp: 8", `tp: 0`,
		`m.yaml:14:15: c.scenarios.fixed-seq-len[0].search-space[0].tp: 0 is less than 1; write 1 or more`},
	{"negative", fixedMaster, "ep: 8", `ep: -8`,
		`m.yaml:14:22: c.scenarios.fixed-seq-len[0].search-space[0].ep: -8 is less than 1; write 1 or more`},
	{"pp 0", fixedMaster, "ep: 8", `pp: 0`,
		`m.yaml:14:22: c.scenarios.fixed-seq-len[0].search-space[0].pp: 0 is less than 1; write 1 or more`},
	{"isl 0", fixedMaster, "isl: 8192", "isl: 0",
		`m.yaml:11:12: c.scenarios.fixed-seq-len[0].isl: 0 is less than 1; write 1 or more`},
	{"not a decimal", agentMaster, "dram-utilization: 0.80", "dram-utilization: most",
		`m.yaml:11:25: c.scenarios.agentic-coding[0].dram-utilization: "most" is not a number; write it as a decimal number`},
	{"quoted decimal", agentMaster, "dram-utilization: 0.80", `dram-utilization: "0.80"`,
		`m.yaml:11:25: c.scenarios.agentic-coding[0].dram-utilization: "0.80" is not a number; write 0.80 without quotes`},
	{"exponent", agentMaster, "dram-utilization: 0.80", `dram-utilization: 8.0e-1`,
		`m.yaml:11:25: c.scenarios.agentic-coding[0].dram-utilization: 8.0e-1 is not written as a plain decimal number; write it with digits and a dot, such as 0.8`},
	{"mapping for a list", fixedMaster, "search-space:\n      - {", "search-space:\n        {",
		`m.yaml:14:9: c.scenarios.fixed-seq-len[0].search-space: is a mapping, but must be a list; write it as a list: [a, b] or lines that begin with '- '`},
	{"string for a mapping", fixedMaster, "- { tp: 8, ep: 8, dp-attn: true, conc-start: 4, conc-end: 64, spec-decoding: mtp }", "- tp8",
		`m.yaml:14:9: c.scenarios.fixed-seq-len[0].search-space[0]: is "tp8", but must be a mapping; write it as 'key: value' lines`},
	{"key twice", fixedMaster, "precision: fp8", "precision: fp8\n  precision: fp4",
		`m.yaml:6:3: c.precision: the key is given twice, first in line 5; remove one`},
	{"key not a name", fixedMaster, "precision: fp8", "precision: fp8\n  [a]: 1",
		`m.yaml:6:3: c: a key of the mapping is not a name; write the key as a plain word`},

	{"item without a value", agentMaster, "kv-offloading: none, conc-list: [1, 4]", "kv-offloading: none, conc-list: [1, ~]",
		`m.yaml:13:54: c.scenarios.agentic-coding[0].search-space[0].conc-list[1]: has no value; write it as a whole number`},
	{"setting without a value", multiMaster, `["A=1"]`, `[~]`,
		`m.yaml:19:87: c.scenarios.agentic-coding[0].search-space[0].prefill.additional-settings[0]: has no value; give it one`},
	{"merge of a word", fixedMaster, "precision: fp8", "precision: fp8\n  <<: a",
		`m.yaml:6:7: c.<<: is "a", but must be a mapping; name an anchored mapping: <<: *name`},
	{"merge that merges", fixedMaster, "precision: fp8", "precision: fp8\n  <<: { <<: { a: b } }",
		`m.yaml:6:9: c.<<: a merged mapping merges again; write the values out`},

	// Keys.
	{"unknown key, near", fixedMaster, "precision: fp8", "precision: fp8\n  precison: fp8",
		`m.yaml:6:3: c.precison: unknown key; did you mean precision?`},
	{"unknown key", fixedMaster, "precision: fp8", "precision: fp8\n  colour: red",
		`m.yaml:6:3: c.colour: unknown key; remove it; known here: image, model, model-prefix, precision, framework, runner, multinode, disagg, router, scenarios, weir`},
	{"key of another scenario", fixedMaster, "tp: 8,", "tp: 8, kv-offloading: none,",
		`m.yaml:14:18: c.scenarios.fixed-seq-len[0].search-space[0].kv-offloading: unknown key; remove it; only entries of an agentic-coding scenario have it`},
	{"utilization of a fixed scenario", fixedMaster, "osl: 1024", "osl: 1024\n      dram-utilization: 0.8",
		`m.yaml:13:7: c.scenarios.fixed-seq-len[0].dram-utilization: unknown key; remove it; it belongs beside the search-space of an agentic-coding scenario`},
	{"transfer of a single node", fixedMaster, "precision: fp8", "precision: fp8\n  kv-p2p-transfer: nixl",
		`m.yaml:6:3: c.kv-p2p-transfer: unknown key; remove it; only multi-node configs (multinode: true) have it`},
	{"topology of another kind", multiMaster, "conc-list: [8]", "conc-list: [8]\n        pcp-size: 2",
		`m.yaml:19:9: c.scenarios.agentic-coding[0].search-space[0].pcp-size: unknown key; remove it; in a multi-node entry it belongs under prefill and decode`},
	{"missing key", fixedMaster, "  framework: sglang\n", "",
		`m.yaml:1:1: c: framework is missing; add 'framework: sglang'`},
	{"missing tp", fixedMaster, "tp: 8, ", "",
		`m.yaml:14:9: c.scenarios.fixed-seq-len[0].search-space[0]: tp is missing; add 'tp: 8'`},
	{"missing decode", multiMaster, "        decode: { num-worker: 2, tp: 8, ep: 8, dp-attn: true }\n", "",
		`m.yaml:16:9: c.scenarios.agentic-coding[0].search-space[0]: decode is missing; add 'decode: { num-worker: 1, tp: 8, ep: 1, dp-attn: false }'`},
	{"missing num-worker", multiMaster, "decode: { num-worker: 2, ", "decode: { ",
		`m.yaml:20:9: c.scenarios.agentic-coding[0].search-space[0].decode: num-worker is missing; add 'num-worker: 1'`},
	{"no prefill worker", multiMaster, "prefill: { num-worker: 1", "prefill: { num-worker: 0",
		`m.yaml:19:32: c.scenarios.agentic-coding[0].search-space[0].prefill.num-worker: 0 is less than 1; write 1 or more`},
	{"wildcard in a name", fixedMaster, "c:\n", "c*:\n",
		`m.yaml:1:1: c*: the name of a config has a wildcard; remove *, ? and [ from the name`},
	{"no scenario", fixedMaster, "fixed-seq-len:\n    - isl: 8192\n      osl: 1024\n      search-space:\n      - { tp: 8, ep: 8, dp-attn: true, conc-start: 4, conc-end: 64, spec-decoding: mtp }", "fixed-seq-len: []",
		`m.yaml:10:5: c.scenarios: has no scenario; add an entry under fixed-seq-len or agentic-coding`},
	{"empty search space", fixedMaster, "search-space:\n      - { tp: 8, ep: 8, dp-attn: true, conc-start: 4, conc-end: 64, spec-decoding: mtp }", "search-space: []",
		`m.yaml:13:21: c.scenarios.fixed-seq-len[0].search-space: is empty; add an entry`},

	// Concurrency.
	{"both forms", fixedMaster, "conc-end: 64", "conc-end: 64, conc-list: [1]",
		`m.yaml:14:80: c.scenarios.fixed-seq-len[0].search-space[0].conc-list: conc-list stands beside conc-start or conc-end; keep the list or the range`},
	{"no form", fixedMaster, "conc-start: 4, conc-end: 64, ", "",
		`m.yaml:14:9: c.scenarios.fixed-seq-len[0].search-space[0]: has no concurrency; add conc-list: [1, 8] or conc-start and conc-end`},
	{"start without end", fixedMaster, "conc-end: 64, ", "",
		`m.yaml:14:52: c.scenarios.fixed-seq-len[0].search-space[0].conc-start: conc-start has no conc-end; add conc-end, or use conc-list`},
	{"end without start", fixedMaster, "conc-start: 4, ", "",
		`m.yaml:14:50: c.scenarios.fixed-seq-len[0].search-space[0].conc-end: conc-end has no conc-start; add conc-start, or use conc-list`},
	{"start above end", fixedMaster, "conc-start: 4", "conc-start: 65",
		`m.yaml:14:52: c.scenarios.fixed-seq-len[0].search-space[0].conc-start: 65 is above conc-end 64; swap them`},
	{"start 0", fixedMaster, "conc-start: 4", "conc-start: 0",
		`m.yaml:14:52: c.scenarios.fixed-seq-len[0].search-space[0].conc-start: 0 is less than 1; write 1 or more`},
	{"empty list", agentMaster, "kv-offloading: none, conc-list: [1, 4]", "kv-offloading: none, conc-list: []",
		`m.yaml:13:50: c.scenarios.agentic-coding[0].search-space[0].conc-list: is empty; add a concurrency`},
	{"not positive", agentMaster, "kv-offloading: none, conc-list: [1, 4]", "kv-offloading: none, conc-list: [1, -4]",
		`m.yaml:13:54: c.scenarios.agentic-coding[0].search-space[0].conc-list[1]: -4 is less than 1; write 1 or more`},
	{"not unique", agentMaster, "kv-offloading: none, conc-list: [1, 4]", "kv-offloading: none, conc-list: [1, 4, 1]",
		`m.yaml:13:57: c.scenarios.agentic-coding[0].search-space[0].conc-list[2]: 1 is in the list twice; remove one`},

	// Topology.
	{"dcp does not divide", fixedMaster, "ep: 8", "dcp-size: 3",
		`m.yaml:14:28: c.scenarios.fixed-seq-len[0].search-space[0].dcp-size: 3 does not divide tp 8; use a divisor of 8`},
	{"dcp of a worker", multiMaster, "tp: 4, ep: 1", "tp: 4, ep: 1, dcp-size: 8",
		`m.yaml:19:59: c.scenarios.agentic-coding[0].search-space[0].prefill.dcp-size: 8 does not divide tp 4; use a divisor of 4`},
	{"more than a node", fixedMaster, "ep: 8", "pcp-size: 2",
		`m.yaml:14:15: c.scenarios.fixed-seq-len[0].search-space[0].tp: tp x pp x pcp-size = 8 x 1 x 2 = 16 GPUs, and a node of runner cluster:b300-nv has 8; use fewer GPUs or a multi-node config`},
	{"hardware of one role", multiMaster, "num-worker: 2, tp: 8", "num-worker: 2, hardware: h200, tp: 8",
		`m.yaml:20:44: c.scenarios.agentic-coding[0].search-space[0].decode.hardware: hardware is given for decode and not for prefill; give it for both or for neither`},
	{"not a setting", multiMaster, `"A=1"`, `"A"`,
		`m.yaml:19:87: c.scenarios.agentic-coding[0].search-space[0].prefill.additional-settings[0]: "A" is not NAME=value; write it as NAME=value`},
	{"worker does not divide a node", multiMaster, "tp: 4, ep: 1", "tp: 3, ep: 1",
		`m.yaml:19:18: c.scenarios.agentic-coding[0].search-space[0].prefill: tp x pp x pcp = 3 x 1 x 1 = 3 GPUs does not divide a node of 8 of runner cluster:b300-nv; use a tp x pp x pcp that divides or fills a node`},
	{"worker does not fill nodes", multiMaster, "tp: 4, ep: 1", "tp: 12, ep: 1",
		`m.yaml:19:18: c.scenarios.agentic-coding[0].search-space[0].prefill: tp x pp x pcp = 12 x 1 x 1 = 12 GPUs spans nodes of 8 and does not fill them of runner cluster:b300-nv; use a tp x pp x pcp that divides or fills a node`},

	// Components and scopes.
	{"component without a version", multiMaster, `, version: "1.2"`, "",
		`m.yaml:8:3: c.router: version is missing; add 'version: "0.3.2"'`},
	{"image for a version", multiMaster, `version: "1.2"`, `version: "image:1.2"`,
		`m.yaml:8:43: c.router.version: "image:1.2" is an image, not a version; give the release, package version or commit of the component itself`},
	{"router at two scopes", multiMaster, "conc-list: [8]", `conc-list: [8]
        router: { name: a, version: "1" }`,
		`m.yaml:8:11: c.router: router is given here and in 1 of 1 search-space entries; keep it at one of the two`},
	{"transfer at two scopes", multiMaster, "conc-list: [8]", "conc-list: [8]\n        kv-p2p-transfer: mori",
		`m.yaml:9:20: c.kv-p2p-transfer: kv-p2p-transfer is given here and in 1 of 1 search-space entries; keep it at one of the two`},
	{"disagg without transfer", multiMaster, "  kv-p2p-transfer: nixl\n", "",
		`m.yaml:10:11: c.disagg: disagg: true needs a transfer engine; add 'kv-p2p-transfer: mooncake' (or nixl, mori) to the config or to every entry`},
	{"disagg on one node", fixedMaster, "multinode: false", "multinode: false\n  disagg: true",
		`m.yaml:9:11: c.disagg: disagg: true needs several nodes; set multinode: true or remove disagg`},

	// Runner and offload.
	{"agentic without a cluster", strings.Replace(agentMaster, "kv-offloading: dram, kv-offload-backend: { name: hicache, version: \"1.2\" }", "kv-offloading: none", 1), "runner: cluster:b300-nv", "runner: b200",
		`m.yaml:7:11: c.runner: agentic-coding needs one exact cluster, and runner b200 is not one; use a label that begins with cluster:`},
	{"runner unknown", agentMaster, "runner: cluster:b300-nv", "runner: cluster:b300-nx",
		`m.yaml:7:11: c.runner: runner cluster:b300-nx is not in runners.yaml; did you mean cluster:b300-nv? Or add it to the labels there`},
	{"no hardware", agentMaster, "runner: cluster:b300-nv", "runner: cluster:bare",
		`m.yaml:11:25: c.scenarios.agentic-coding[0].dram-utilization: the budget needs the host memory of runner cluster:bare, and runners.yaml has no hardware for it; add hardware: cluster:bare: { available-cpu-dram-mib: ..., gpus-per-node: ... }`},
	{"no offload mode", agentMaster, "kv-offloading: none, ", "",
		`m.yaml:13:9: c.scenarios.agentic-coding[0].search-space[0]: kv-offloading is missing; add 'kv-offloading: none'`},
	{"dram without a backend", multiMaster, "        kv-offload-backend: { name: hicache }\n", "",
		`m.yaml:16:24: c.scenarios.agentic-coding[0].search-space[0].kv-offloading: kv-offloading: dram names no backend; add 'kv-offload-backend: { name: hicache }'`},
	{"none with a backend", agentMaster, "kv-offloading: none, ", "kv-offloading: none, kv-offload-backend: hicache, ",
		`m.yaml:13:59: c.scenarios.agentic-coding[0].search-space[0].kv-offload-backend: kv-offloading: none has no backend; remove kv-offload-backend or use kv-offloading: dram`},
	{"backend without a mode", strings.Replace(multiMaster, "dram-utilization: 0.80\n      ", "", 1), "kv-offloading: dram\n        ", "",
		`m.yaml:15:29: c.scenarios.agentic-coding[0].search-space[0].kv-offload-backend: kv-offload-backend without kv-offloading has no effect; add 'kv-offloading: dram' or remove it`},
	{"utilization missing", agentMaster, "dram-utilization: 0.80\n      ", "",
		`m.yaml:11:7: c.scenarios.agentic-coding[0]: dram-utilization is missing: 1 of 2 entries have kv-offloading: dram and no host pool size of their own; add 'dram-utilization: 0.80'`},
	{"utilization 0", agentMaster, "0.80", "0",
		`m.yaml:11:25: c.scenarios.agentic-coding[0].dram-utilization: 0 is not above 0 and not above 1; write a share such as 0.80`},
	{"utilization over 1", agentMaster, "0.80", "1.01",
		`m.yaml:11:25: c.scenarios.agentic-coding[0].dram-utilization: 1.01 is not above 0 and not above 1; write a share such as 0.80`},
	{"utilization without effect", agentMaster, "dram, kv-offload-backend: { name: hicache, version: \"1.2\" }", "none, weir: { page-size: 64 }",
		`m.yaml:11:25: c.scenarios.agentic-coding[0].dram-utilization: dram-utilization has no effect: no entry has kv-offloading: dram; remove it`},

	// Weir's own fields.
	{"memory share", agentMaster, "precision: fp8", "precision: fp8\n  weir: { mem-fraction: 1.5 }",
		`m.yaml:6:25: c.weir.mem-fraction: 1.5 is not above 0 and not above 1; write a number above 0 and not above 1`},
	{"decimals", agentMaster, "precision: fp8", "precision: fp8\n  weir: { mem-fraction: 0.1234567 }",
		`m.yaml:6:25: c.weir.mem-fraction: 0.1234567 has more than six decimals; round it to six`},
	{"unknown weir key", agentMaster, "precision: fp8", "precision: fp8\n  weir: { recipy: a }",
		`m.yaml:6:11: c.weir.recipy: unknown key; did you mean recipe?`},
	{"two seeds", agentMaster, "precision: fp8", "precision: fp8\n  weir: { seed: 1, seeds: [2] }",
		`m.yaml:6:27: c.weir.seeds: seeds stands beside seed; keep one`},
	{"seed twice", agentMaster, "precision: fp8", "precision: fp8\n  weir: { seeds: [2, 2] }",
		`m.yaml:6:22: c.weir.seeds[1]: 2 is in the list twice; remove one; 'repeats' repeats a seed`},
	{"two pool sizes", agentMaster, "kv-offloading: dram,", "weir: { host-ratio: 2, host-gb-per-rank: 10 }, kv-offloading: dram,",
		"m.yaml:14:38: c.scenarios.agentic-coding[0].search-space[1].weir.host-ratio: host-ratio stands beside host-gb-per-rank; keep one: each sizes the host pool"},
	{"host field without a host tier", agentMaster, "kv-offloading: none,", "weir: { write-policy: write_back }, kv-offloading: none,",
		`m.yaml:13:40: c.scenarios.agentic-coding[0].search-space[0].weir.write-policy: write-policy has no effect without kv-offloading: dram; remove it`},
	{"host field of a config without one", fixedMaster, "precision: fp8", "precision: fp8\n  weir: { host-ratio: 2 }",
		`m.yaml:6:23: c.weir.host-ratio: host-ratio has no effect: no entry has kv-offloading: dram; remove it`},
	{"corpus without replay", fixedMaster, "precision: fp8", "precision: fp8\n  weir: { corpus: weka }",
		`m.yaml:6:19: c.weir.corpus: corpus has no effect: the config has no agentic-coding scenario; remove it`},
	{"corpus of a fixed entry", fixedMaster, "tp: 8,", "tp: 8, weir: { corpus: weka },",
		`m.yaml:14:34: c.scenarios.fixed-seq-len[0].search-space[0].weir.corpus: corpus has no effect in a fixed-seq-len scenario; remove it`},
	{"draft without speculation", agentMaster, "precision: fp8", "precision: fp8\n  weir: { draft-tokens: 3 }",
		`m.yaml:6:25: c.weir.draft-tokens: draft-tokens has no effect: no entry has spec-decoding; remove it or set spec-decoding`},
	{"draft of an entry without speculation", agentMaster, "kv-offloading: none,", "weir: { draft-tokens: 3 }, kv-offloading: none,",
		`m.yaml:13:40: c.scenarios.agentic-coding[0].search-space[0].weir.draft-tokens: draft-tokens has no effect with spec-decoding: none; remove it or set spec-decoding`},
	{"level not above 0", agentMaster, "precision: fp8", "precision: fp8\n  weir: { slo: { ttft-p90-s: 0 } }",
		`m.yaml:6:30: c.weir.slo.ttft-p90-s: 0 is not above 0; write a number above 0`},
	{"level too fine", agentMaster, "precision: fp8", "precision: fp8\n  weir: { slo: { itl-p90-ms: 0.0000001 } }",
		`m.yaml:6:30: c.weir.slo.itl-p90-ms: 0.0000001 has too many decimals; round it`},
	{"level too large", agentMaster, "precision: fp8", "precision: fp8\n  weir: { slo: { ttft-p90-s: 99999999999 } }",
		`m.yaml:6:30: c.weir.slo.ttft-p90-s: 99999999999 is too large; write a smaller number`},

	// Files.
	{"not YAML", fixedMaster, "precision: fp8", "precision: [fp8",
		`m.yaml:5:1: is not YAML: did not find expected ',' or ']'; correct the syntax`},
	{"tab", fixedMaster, "  precision: fp8", "\tprecision: fp8",
		`m.yaml:5:1: is not YAML: found a tab character that violates indentation; correct the syntax`},
	{"second document", fixedMaster, "c:\n", "d: 1\n---\nc:\n",
		`m.yaml:2:1: a second document begins; keep one document a file`},
	{"top is a list", "- a\n", "", "",
		`m.yaml:1:1: is a list, but must be a mapping; write it as 'key: value' lines`},
	{"top is a word", "a\n", "", "",
		`m.yaml:1:1: the file holds "a", but must hold a mapping; write 'name: ...' lines`},
	{"empty file", "# nothing\n", "", "",
		`m.yaml: the file is empty; add a config`},
	{"config is a word", "c: 1\n", "", "",
		`m.yaml:1:4: c: is 1, but must be a mapping; write it as 'key: value' lines`},
}

const ruleRunners = testRunners

// TestSizedPoolHasABudget: a share beside a pool that is sized by itself is what the pool is held
// against.
func TestSizedPoolHasABudget(t *testing.T) {
	budget := func(master string) int64 {
		t.Helper()
		set, err := loadText(t, master, ruleRunners)
		if err != nil {
			t.Fatal(err)
		}
		points, err := set.Points(Selection{})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range points {
			if p.Offload.Mode == "dram" {
				return p.Offload.BudgetGB
			}
		}
		t.Fatal("no point has a host tier")
		return 0
	}
	sized := strings.Replace(agentMaster, "kv-offloading: dram,", "weir: { host-ratio: 2 }, kv-offloading: dram,", 1)
	if got, want := budget(sized), budget(agentMaster); got != want || want == 0 {
		t.Errorf("a budget of %d GB beside a ratio, %d GB without one", got, want)
	}
}

func TestEveryRule(t *testing.T) {
	runners := strings.Replace(ruleRunners, "labels:\n", "labels:\n  cluster:bare: [b]\n", 1)
	for _, m := range []string{fixedMaster, agentMaster, multiMaster} {
		if _, err := loadText(t, m, runners); err != nil {
			t.Fatalf("the unbroken file is refused: %v", err)
		}
	}
	for _, c := range ruleCases {
		t.Run(strings.ReplaceAll(c.name, " ", "_"), func(t *testing.T) {
			if c.old != "" && !strings.Contains(c.master, c.old) {
				t.Fatalf("the file has no %q to break", c.old)
			}
			_, err := loadText(t, strings.Replace(c.master, c.old, c.new, 1), runners)
			if err == nil {
				t.Fatal("is accepted")
			}
			if err.Error() != c.want {
				t.Errorf("\n got %s\nwant %s", err, c.want)
			}
		})
	}
}

func TestRunnersRules(t *testing.T) {
	for name, c := range map[string]struct{ runners, want string }{
		"no labels":     {"hardware: {}\n", `runners.yaml:1:1: labels is missing; add 'labels: { b200: [b200-0] }'`},
		"no runner":     {"labels:\n  a: []\n", `runners.yaml:2:6: labels.a: has no runner; name one, or remove the label`},
		"not a list":    {"labels:\n  a: b\n", `runners.yaml:2:6: labels.a: is "b", but must be a list; write it as a list: [a, b] or lines that begin with '- '`},
		"not a string":  {"labels:\n  a: [1]\n", `runners.yaml:2:7: labels.a[0]: 1 is read as a whole number, but must be a string; write "1"`},
		"no memory":     {"labels:\n  a: [b]\nhardware:\n  a: { gpus-per-node: 8 }\n", `runners.yaml:4:3: hardware.a: available-cpu-dram-mib is missing; add 'available-cpu-dram-mib: 2_063_837'`},
		"no GPUs":       {"labels:\n  a: [b]\nhardware:\n  a: { available-cpu-dram-mib: 1_0, gpus-per-node: 0 }\n", `runners.yaml:4:52: hardware.a.gpus-per-node: 0 is less than 1; write 1 or more`},
		"unknown key":   {"labels:\n  a: [b]\nhardwares: {}\n", `runners.yaml:3:1: hardwares: unknown key; did you mean hardware?`},
		"unknown fact":  {"labels:\n  a: [b]\nhardware:\n  a: { available-cpu-dram-mib: 1, gpus-per-node: 8, cores: 2 }\n", `runners.yaml:4:53: hardware.a.cores: unknown key; remove it; known here: available-cpu-dram-mib, gpus-per-node`},
		"older, broken": {"a: [b]\nb: 3\n", `runners.yaml:2:4: b: is 3, but must be a list; write it as a list: [a, b] or lines that begin with '- '`},
	} {
		_, err := loadText(t, "{}", c.runners)
		if err == nil || err.Error() != c.want {
			t.Errorf("%s:\n got %v\nwant %s", name, err, c.want)
		}
	}
}

// What is accepted and has no effect, with its exact message.
func TestWarnings(t *testing.T) {
	for want, c := range map[string][2]string{
		"": {fixedMaster, testRunners},
		"m.yaml:7:11: c.runner: runner b200-x is not in runners.yaml; did you mean b200? Or add it to the labels there": {
			strings.Replace(fixedMaster, "cluster:b300-nv", "b200-x", 1), testRunners},
		"m.yaml:11:25: c.scenarios.agentic-coding[0].dram-utilization: dram-utilization has no effect: no entry has kv-offloading: dram; remove it": {
			strings.Replace(agentMaster, `dram, kv-offload-backend: { name: hicache, version: "1.2" }`, "none", 1), testRunners},
		"runners.yaml:8:3: hardware.x: no label has this name; add it to labels or remove it": {
			fixedMaster, testRunners + "  x: { available-cpu-dram-mib: 1, gpus-per-node: 1 }\n"},
	} {
		s, err := loadText(t, c[0], c[1])
		if err != nil {
			t.Errorf("%s: %v", want, err)
			continue
		}
		if got := s.Warnings.Error(); got != want {
			t.Errorf("\n got %s\nwant %s", got, want)
		}
	}
}

func TestSelectionRules(t *testing.T) {
	s, err := loadText(t, fixedMaster, testRunners)
	if err != nil {
		t.Fatal(err)
	}
	one, two := 1, 2
	for want, sel := range map[string]Selection{
		"step size 1 is not above 1; use 2 or more":                              {Step: 1},
		"min concurrency 2 is above max concurrency 1; swap them":                {MinConc: &two, MaxConc: &one},
		`runner type "b20" is not in runners.yaml; did you mean b200?`:           {RunnerType: []string{"b20"}},
		`sequence lengths "2k2k" have no such name; use 1k1k or 8k1k`:            {SeqLens: []string{"2k2k"}},
		`scenario type "chat" is not known; use fixed-seq-len or agentic-coding`: {Scenarios: []Scenario{"chat"}},
		`no config matches "x*" in m.yaml`:                                       {Keys: []string{"x*"}},
		`no config matches "d" in m.yaml; did you mean c?`:                       {Keys: []string{"c", "d"}},
		`config key "[*": syntax error in pattern`:                               {Keys: []string{"[*"}},
	} {
		if _, err := s.Points(sel); err == nil || err.Error() != want {
			t.Errorf("\n got %v\nwant %s", err, want)
		}
	}
	m, _ := s.Matrix(Selection{}, EvalsNone)
	if _, err := m.Explain("m_8k1k"); err == nil || !strings.HasPrefix(err.Error(), `no point of the selection has the id or name "m_8k1k"`) {
		t.Errorf("error %v", err)
	}
	if _, err := m.Explain("dsr1_8k1k"); err == nil || !strings.HasSuffix(err.Error(), "give more digits of the id") {
		t.Errorf("error %v", err)
	}
}

func TestKeyInTwoFiles(t *testing.T) {
	_, err := parseSet([]string{"a.yaml", "b.yaml"}, [][]byte{[]byte(fixedMaster), []byte("\n" + fixedMaster)}, false)
	if want := "b.yaml:2:1: c: the config is also in a.yaml:1:1; rename or remove one"; err == nil || err.Error() != want {
		t.Errorf("\n got %v\nwant %s", err, want)
	}
}

// A file with forty faults and more gives each a message of its own, in the order of the file, in
// one run.
func TestFortyFaults(t *testing.T) {
	master, err := os.ReadFile("testdata/forty.yaml")
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("testdata/forty.txt")
	if err != nil {
		t.Fatal(err)
	}
	_, err = loadText(t, string(master), testRunners)
	ps, ok := err.(Problems)
	if !ok {
		t.Fatalf("error %v", err)
	}
	if got := ps.Error() + "\n"; got != string(want) {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
	if len(ps) != 40 {
		t.Errorf("%d messages, want 40", len(ps))
	}
	for i := 1; i < len(ps); i++ {
		if ps[i].At.Line < ps[i-1].At.Line {
			t.Errorf("message %d (line %d) stands before line %d", i, ps[i-1].At.Line, ps[i].At.Line)
		}
	}
	// Every faulty line says in a comment how many faults it has.
	marked := map[int]int{}
	for i, l := range strings.Split(string(master), "\n") {
		if _, n, ok := strings.Cut(l, "# faults: "); ok {
			fmt.Sscan(n, new(int))
			k := 0
			fmt.Sscan(n, &k)
			marked[i+1] = k
		}
	}
	for _, p := range ps {
		marked[p.At.Line]--
	}
	for line, n := range marked {
		if n != 0 {
			t.Errorf("line %d: %+d messages are missing", line, n)
		}
	}
}
