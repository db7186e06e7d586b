package told

import (
	"regexp"
	"strings"
)

// A rule reads facts out of lines that hold a word. Sources, as of 2026-07 to 2026-09 and older
// spellings beside them: SGLang managers/scheduler.py ("max_total_num_tokens=", printed by tensor
// rank 0), mem_cache/memory_pool.py ("KV Cache is allocated"), mem_cache/pool_host
// ("Allocating N GB host memory", decimal), launch ("server_args="); vLLM v1/core/kv_cache_utils.py
// ("KV cache size"), v1/worker ("Available KV cache memory"), v1/engine/core.py ("Initializing a V1
// LLM engine"), entrypoints ("non-default args", the banner), distributed/parallel_state.py ("is
// assigned as"), and the block line of its V0 engine; TensorRT-LLM
// batch_manager/kvCacheManager.cpp ("Allocated N GiB for max tokens in paged KV cache", "Number of
// blocks in KV cache primary pool"); ATOM model_engine/model_runner.py ("num_kvcache_blocks=");
// Weir's own 'weir sim serve'. Dynamo's workers print what the engine in them prints.
type rule struct {
	engine, word string
	re           *regexp.Regexp
	names        []string // of the groups; empty leaves one out
}

const (
	gb  = 1_000_000_000
	gib = 1 << 30
)

// units of facts that are not counts.
var units = map[string]int64{DeviceBytes + "/gib": gib, HostBytes + "/gb": gb, DeviceBytes + "/gb": gb}

var rules = []rule{
	// What follows the number must be there: a number that another rank's line broke off is none.
	{"sglang", "max_total_num_tokens=", regexp.MustCompile(`(?:^|[^\w])max_total_num_tokens=(\d+), `), []string{DeviceTokens}},
	{"sglang", "max_total_num_tokens=", regexp.MustCompile(`, max_running_requests=(\d+)(?:,|\s|$)`), []string{MaxRunning}},
	{"sglang", "max_total_num_tokens=", regexp.MustCompile(`, context_len=(\d+)(?:,|\s|$)`), []string{ContextTokens}},
	{"sglang", "KV Cache is allocated", regexp.MustCompile(`KV Cache is allocated\.(?: dtype: [\w.]+,)? #tokens: (\d+),`), []string{AllocTokens}},
	{"sglang", "host memory for", regexp.MustCompile(`Allocating (\d+\.\d+) GB host memory for hierarchical KV cache`), []string{HostBytes + "/gb"}},

	{"vllm", "KV cache size", regexp.MustCompile(`\b[A-Z]{3} KV cache size: (\d[\d,]*) tokens`), []string{DeviceTokens}},
	{"vllm", "Available KV cache memory", regexp.MustCompile(`Available KV cache memory: (\d+\.\d+) GiB`), []string{DeviceBytes + "/gib"}},
	{"vllm", "Maximum concurrency for", regexp.MustCompile(`Maximum concurrency for (\d[\d,]*) tokens per request`), []string{ContextTokens}},
	{"vllm", "CPU blocks:", regexp.MustCompile(`# \w+ blocks: (\d+), # CPU blocks: (\d+)`), []string{DeviceBlocks, HostBlocks}},
	{"vllm", "LLM engine (v", regexp.MustCompile(`Initializing a V\d LLM engine \(v([\w.+-]+)\) with config`), []string{Version}},
	{"vllm", "API server version", regexp.MustCompile(`vLLM API server version (\d[\w.+-]*)`), []string{Version}},
	{"vllm", "█", regexp.MustCompile(`█ +version (\d[\w.+-]*)$`), []string{Version}},
	{"vllm", "in world size", regexp.MustCompile(`(rank \d+ in world size \d+ is assigned as DP rank \d+, .*EP rank (?:\d+|N/A)(?:, EPLB rank (?:\d+|N/A))?)\s*$`), []string{Assigned}},

	{"trtllm", "in paged KV cache (", regexp.MustCompile(`Allocated (\d+\.\d+) GiB for max tokens in paged KV cache \((\d+)\)`), []string{DeviceBytes + "/gib", DeviceTokens}},
	{"trtllm", "in KV cache primary pool", regexp.MustCompile(`blocks in KV cache primary pool: (\d+)(?:\s|$)`), []string{DeviceBlocks}},
	{"trtllm", "in KV cache secondary pool", regexp.MustCompile(`blocks in KV cache secondary pool: (\d+),`), []string{HostBlocks}},
	{"trtllm", "tokens per block", regexp.MustCompile(`Number of tokens per block: (\d+)\.`), []string{BlockTokens}},
	{"trtllm", "secondary blocks=", regexp.MustCompile(`tokens per block=(\d+), primary blocks=(\d+), secondary blocks=(\d+),`), []string{BlockTokens, DeviceBlocks, HostBlocks}},
	{"trtllm", "LLM version", regexp.MustCompile(`TensorRT[- ]LLM version: (\d[\w.+-]*)`), []string{Version}},
	{"trtllm", "max_num_requests=", regexp.MustCompile(`max_seq_len=(\d+), max_num_requests=(\d+), `), []string{ContextTokens, MaxRunning}},

	{"atom", "num_kvcache_blocks=", regexp.MustCompile(`(?:^|[\s,(])num_kvcache_blocks=(\d+)(?:[\s,)]|$)`), []string{DeviceBlocks}},
	{"atom", "kv_cache_block_size=", regexp.MustCompile(`(?:^|[\s,(])kv_cache_block_size=(\d+)[\s,)]`), []string{BlockTokens}},
	{"atom", "available_for_kv=", regexp.MustCompile(`(?:^|\s)available_for_kv=(\d+\.\d+)GB(?:\s|$)`), []string{DeviceBytes + "/gb"}},

	{"sim", "simulated pools:", regexp.MustCompile(`simulated pools: device (\d+) tokens, host (\d+) tokens, `), []string{DeviceTokens, HostTokens}},
}

// list is a rule for arguments in Python's spelling.
type list struct {
	engine, word string
	pair, end    string // between name and value, and after the last
}

var lists = []list{
	{"sglang", "server_args=ServerArgs(", "=", ")"},
	{"sglang", "server_args=Namespace(", "=", ")"},
	{"vllm", "non-default args: {", ": ", "}"},
	{"vllm", ") with config: ", "=", ""},
}

// tags say which rank a line is of: SGLang's between time and bracket, vLLM's and Ray's process
// names, TensorRT-LLM's, MPI's and Slurm's.
var tags = regexp.MustCompile(`\[(?:\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d(?:[.,]\d+)?((?: (?:DP|TP|EP|PP|CP|ATTN_DP|ATTN_TP|MOE_EP)\d+)*)\]` +
	`|\((\w+)(?: rank=\d+)? pid=\d+(?:, ip=[\d.]+)?\)` +
	`|\[RANK (\d+)\]` +
	`|\[1,(\d+)\]<std(?:out|err)>:` +
	`|^ ?(\d{1,5}): `)

// read gives the facts of one line to add.
func read(line string, add func(engine, name, rank, value, text string)) {
	var marks [][]int
	looked := false
	rank := func(at int) string {
		if !looked {
			marks, looked = tags.FindAllStringSubmatchIndex(line, -1), true
		}
		out := ""
		for _, m := range marks {
			if m[0] > at {
				break
			}
			for g, lead := range []string{"", "", "RANK", "RANK", "RANK"} {
				if i := 2 + 2*g; m[i] >= 0 {
					out = lead + strings.TrimSpace(line[m[i]:m[i+1]])
				}
			}
		}
		return out
	}
	for i := range rules {
		r := &rules[i]
		if !strings.Contains(line, r.word) {
			continue
		}
		for _, m := range r.re.FindAllStringSubmatchIndex(line, -1) {
			for g, name := range r.names {
				value, ok := reading(name, line[m[2+2*g]:m[3+2*g]])
				if ok {
					name, _, _ = strings.Cut(name, "/")
					add(r.engine, name, rank(m[2+2*g]), value, around(line, m[0], m[1]))
				}
			}
		}
	}
	for i := range lists {
		l := &lists[i]
		at := strings.Index(line, l.word)
		if at < 0 {
			continue
		}
		who := rank(at)
		pairs(line[at+len(l.word):], l.pair, l.end, func(name, value, spelled string) {
			add(l.engine, Arg+name, who, value, spelled)
		})
	}
}

func reading(name, s string) (string, bool) {
	if u, ok := units[name]; ok {
		n, ok := size(s, u)
		return text(n), ok
	}
	switch name {
	case Version, Assigned:
		return s[:min(len(s), maxText)], true
	}
	n, ok := whole(s)
	return text(n), ok
}

// pairs reads "name=value, name=value" or "'name': value, ..." as Python writes them, up to what
// ends the list or the line. None is nothing told.
func pairs(s, between, end string, add func(name, value, spelled string)) {
	for s != "" {
		s = strings.TrimLeft(s, " ,")
		if end != "" && strings.HasPrefix(s, end) {
			return
		}
		i := strings.Index(s, between)
		if i <= 0 {
			return
		}
		name := strings.Trim(s[:i], `'"`)
		if !argName(name) {
			return
		}
		n := value(s[i+len(between):])
		if n < 0 || end != "" && i+len(between)+n == len(s) {
			return // broken off
		}
		v := s[i+len(between) : i+len(between)+n]
		spelled := s[:i+len(between)+n]
		s = s[i+len(between)+n:]
		if v == "None" || v == "" {
			continue
		}
		if secret(name) {
			v, spelled = withheld, name+between+withheld
		}
		if len(v) >= 2 && (v[0] == '\'' || v[0] == '"') && v[len(v)-1] == v[0] {
			v = v[1 : len(v)-1]
		}
		add(strings.ReplaceAll(name, "-", "_"), clip(v), clip(spelled))
	}
}

func clip(s string) string {
	if len(s) > maxText {
		s = strings.ToValidUTF8(s[:maxText], "") + "..."
	}
	return s
}

func argName(s string) bool {
	if s == "" || len(s) > 80 {
		return false
	}
	for _, r := range s {
		if r != '_' && r != '-' && r != '.' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') {
			return false
		}
	}
	return true
}

const withheld = "(withheld)"

// secret names are those of arguments whose value opens something.
func secret(name string) bool {
	name = strings.ToLower(name)
	for _, w := range []string{"api_key", "api-key", "apikey", "password", "secret", "hf_token", "auth_token", "access_token"} {
		if strings.Contains(name, w) {
			return true
		}
	}
	return false
}

// value is the length of a Python value at the start of s, up to the comma or bracket behind it;
// -1 when it has no end on this line. The end of the line ends a plain word.
func value(s string) int {
	var open []byte
	for i := 0; i < len(s); i++ {
		switch c := s[i]; c {
		case '\'', '"':
			j := i + 1
			for j < len(s) && s[j] != c {
				if s[j] == '\\' {
					j++
				}
				j++
			}
			if j >= len(s) {
				return -1
			}
			i = j
		case '(', '[', '{':
			open = append(open, c)
		case ')', ']', '}':
			if len(open) == 0 {
				return i
			}
			open = open[:len(open)-1]
		case ',':
			if len(open) == 0 {
				return i
			}
		}
	}
	if len(open) > 0 {
		return -1
	}
	return len(s)
}
