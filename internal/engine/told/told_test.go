package told

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirbench/weir/internal/record"
)

func facts(name string, pieces ...[]byte) []record.Fact {
	l := NewLog(name)
	for _, p := range pieces {
		if n, err := l.Write(p); n != len(p) || err != nil {
			panic(fmt.Sprint(n, err))
		}
	}
	l.Close()
	return l.Facts()
}

func fixture(t testing.TB, engine string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", engine+".log"))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

var engines = []string{"sglang", "vllm", "trtllm", "atom", "sim"}

// TestEngines reads a log in the form of every engine.
func TestEngines(t *testing.T) {
	for engine, want := range map[string]struct {
		pool  Size
		facts string // name, rank and value of some
		not   string
	}{
		"sglang": {Size{387968 + 387904, -1}, `
device_tokens DP0 TP0 EP0=387968
device_tokens DP1 TP2 EP2=387904
kv_allocated_tokens DP0 TP0 EP0=387968
host_bytes DP0 TP0 EP0=42720000000
max_running DP1 TP2 EP2=256
context_tokens DP0 TP0 EP0=202752
arg.tp_size=4
arg.api_key=(withheld)
arg.cuda_graph_bs=[1, 2, 4, 8]
arg.json_model_override_args={"a, b": [1, 2]}
arg.disaggregation_mode=null`, "sk-very-secret arg.log_level 16725761"},
		"vllm": {Size{178880 + 178864, -1}, `
version APIServer=0.32.0
version EngineCore_DP0=0.32.0
device_tokens EngineCore_DP1=178864
device_bytes Worker_DP0_TP1=8686571356
context_tokens EngineCore_DP0=32768
assigned Worker_DP0_TP1=rank 1 in world size 2 is assigned as DP rank 0, PP rank 0, PCP rank 0, TP rank 1, ETP rank 0, EP rank N/A, EPLB rank N/A
arg.max_num_seqs APIServer=32
arg.api_key APIServer=(withheld)
arg.structured_outputs_config EngineCore_DP0=StructuredOutputsConfig(backend='auto', reasoning_parser='')
arg.enable_prefix_caching EngineCore_DP0=True`, "k1 kv_offloading_size"},
		"trtllm": {Size{263008, 16384 * 32}, `
version=1.2.0rc4
device_tokens=263008
device_tokens=8224
host_blocks=16384
block_tokens=32
context_tokens RANK0=131072
max_running RANK0=2048`, ""},
		"atom": {Size{32980 * 16, -1}, `
device_blocks=32980
block_tokens=16
device_bytes=57700000000`, ""},
		"sim": {Size{120000, 400000}, `
device_tokens=120000
host_tokens=400000`, ""},
	} {
		fs := facts("p", fixture(t, engine))
		var have []string
		for _, f := range fs {
			who := ""
			if f.Rank != "" {
				who = " " + f.Rank
			}
			have = append(have, f.Name+who+"="+f.Value)
			if f.Engine != engine || f.From != "log" || f.Process != "p" || f.Line < 1 || f.Text == "" || f.Count < 1 || len(f.Text) > maxText+3 {
				t.Errorf("%s: fact %+v", engine, f)
			}
		}
		for w := range strings.SplitSeq(strings.TrimSpace(want.facts), "\n") {
			if !slices.Contains(have, w) {
				t.Errorf("%s: no %s in\n%s", engine, w, strings.Join(have, "\n"))
			}
		}
		for w := range strings.FieldsSeq(want.not) {
			for _, f := range fs {
				if strings.Contains(f.Value+f.Text+f.Name, w) && (f.Name != AllocTokens) {
					t.Errorf("%s: %s is in %+v", engine, w, f)
				}
			}
		}
		if pool, doubts := Pools(fs, "log", nil); pool != want.pool || len(doubts) > 0 {
			t.Errorf("%s: pools %+v, doubts %q, want %+v", engine, pool, doubts, want.pool)
		}
	}
}

// TestLineAndSpelling: a fact says where it stands and how it was spelled.
func TestLineAndSpelling(t *testing.T) {
	fs := facts("p", []byte("\x1b[32mINFO\x1b[0m starting\r\nLoading: 1%\rLoading: 2%\r\n\x1b[0;36m(EngineCore_DP1 pid=9)\x1b[0;0m \x1b]0;title\x07GPU KV \x1b[1mcache size: 1,234 tokens\x1b[0m, and more\r\n"))
	want := record.Fact{Engine: "vllm", Name: DeviceTokens, Value: "1234", Process: "p", Rank: "EngineCore_DP1", From: "log", Line: 3,
		Text: "(EngineCore_DP1 pid=9) GPU KV cache size: 1,234 tokens, and more", Count: 1}
	if len(fs) != 1 || fs[0] != want {
		t.Errorf("facts %+v\nwant %+v", fs, want)
	}
}

// TestTorn: what another rank's line broke off is no number, and what stands behind it is read.
func TestTorn(t *testing.T) {
	fs := facts("p", []byte("[2026-07-01 15:20:30 DP0 TP0] max_total_num_tokens=3879[2026-07-01 15:20:30 DP1 TP2] max_total_num_tokens=387904, chunked_prefill_size=8192\n"+
		"server_args=ServerArgs(tp_size=8, dp_size=1[2026-07-01 15:20:30 TP0] x\nserver_args=ServerArgs(ep_size=4, page_size=6\n"))
	var have []string
	for _, f := range fs {
		have = append(have, f.Name+" "+f.Rank+" "+f.Value)
	}
	if want := []string{"arg.ep_size  4", "arg.tp_size  8", "device_tokens DP1 TP2 387904"}; !slices.Equal(have, want) {
		t.Errorf("facts %q, want %q", have, want)
	}
}

// TestLongLine: what is behind the limit of a line is passed over, and the next line is read.
func TestLongLine(t *testing.T) {
	l := NewLog("p")
	chunk := []byte(strings.Repeat("x", 1<<16))
	for range 100 {
		l.Write(chunk)
	}
	l.Write([]byte(" max_total_num_tokens=1, \nmax_total_num_tokens=2, \n"))
	if cap(l.buf) > 2*maxLine {
		t.Errorf("the line takes %d bytes", cap(l.buf))
	}
	if fs := l.Facts(); len(fs) != 1 || fs[0].Value != "2" || fs[0].Line != 2 {
		t.Errorf("facts %+v", fs)
	}
}

// comparable leaves out where a fact was first seen.
func comparable(fs []record.Fact) string {
	var b strings.Builder
	for _, f := range fs {
		fmt.Fprintln(&b, f.Engine, f.Name, f.Rank, f.Value, f.Count)
	}
	return b.String()
}

// TestCutAndMixed: the bytes of a log may come in any pieces and the lines of its ranks in any
// order, coloured and with noise between; the facts are the same.
func TestCutAndMixed(t *testing.T) {
	whole := map[string][]string{}
	for _, e := range engines {
		whole[e] = slices.Collect(strings.Lines(string(fixture(t, e))))
	}
	rapid.Check(t, func(t *rapid.T) {
		e := rapid.SampledFrom(engines).Draw(t, "engine")
		want := comparable(facts("p", []byte(strings.Join(whole[e], ""))))
		lines := rapid.Permutation(whole[e]).Draw(t, "lines")
		var b strings.Builder
		for _, l := range lines {
			if rapid.Bool().Draw(t, "noise") {
				b.WriteString(rapid.SampledFrom([]string{"Loading: 10%\rLoading: 20%\r", "\x00\xff\xfe\x80\n", "\x1b[2K\r", "a line of something else\n", "\n\n", strings.Repeat("=", 5000) + "\n"}).Draw(t, "what"))
			}
			if rapid.Bool().Draw(t, "colour") { // an escape sequence may stand anywhere
				i := rapid.IntRange(0, len(l)-1).Draw(t, "where")
				for !utf8Start(l, i) {
					i--
				}
				l = l[:i] + "\x1b[0;36m" + l[i:]
			}
			if rapid.Bool().Draw(t, "crlf") {
				l = strings.TrimSuffix(l, "\n") + "\r\n"
			}
			b.WriteString(l)
		}
		text := []byte(b.String())
		var pieces [][]byte
		for len(text) > 0 {
			n := rapid.IntRange(1, min(len(text), 400)).Draw(t, "piece")
			pieces = append(pieces, text[:n])
			text = text[n:]
		}
		if have := comparable(facts("p", pieces...)); have != want {
			t.Fatalf("%s: have\n%s\nwant\n%s", e, have, want)
		}
	})
}

func utf8Start(s string, i int) bool { return s[i] < 0x80 || s[i] >= 0xc0 }

// TestRanksDisagree: ranks of one replica that tell different sizes are kept and reported, the
// least counts; and one rank of SGLang stands for all replicas.
func TestRanksDisagree(t *testing.T) {
	fs := facts("w", []byte("(EngineCore_DP0 pid=1) GPU KV cache size: 1,000 tokens\n(EngineCore_DP0 pid=1) GPU KV cache size: 990 tokens\n(EngineCore_DP1 pid=2) GPU KV cache size: 1,000 tokens\n"))
	if s, doubts := Pools(fs, "log", nil); s.Device != 1990 || len(doubts) != 1 || !strings.Contains(doubts[0], "w: ranks tell different device_tokens: EngineCore_DP0 1000, EngineCore_DP0 990") {
		t.Errorf("%+v %q", s, doubts)
	}
	fs = facts("w", []byte("server_args=ServerArgs(tp_size=8, dp_size=8)\n[2026-07-01 15:20:30 DP0 TP0] max_total_num_tokens=1000, x\n"))
	if s, doubts := Pools(fs, "log", nil); s.Device != 8000 || len(doubts) != 0 {
		t.Errorf("%+v %q", s, doubts)
	}
	both := append(facts("prefill-0", []byte("max_total_num_tokens=10, x\n")), facts("decode-0", []byte("max_total_num_tokens=90, x\n"))...)
	role := func(p string) string { r, _, _ := strings.Cut(p, "-"); return r }
	if s, _ := Pools(both, "log", role); s.Device != 10 {
		t.Errorf("decode's pool is in %+v", s)
	}
	if s, _ := Pools(both, "info", role); s != Unknown {
		t.Errorf("a log became info: %+v", s)
	}
}

// TestInfo reads the info endpoints of every engine; what is none gives nothing.
func TestInfo(t *testing.T) {
	for _, c := range []struct{ path, body, want string }{
		{"/server_info", `{"tp_size": 4, "dp_size": 2, "api_key": "sk-1", "mem_fraction_static": 0.88, "version": "0.5.16", "max_total_num_tokens": 400, "internal_states": [{"memory_usage": {"token_capacity": 387968, "kvcache": 21.3}}, {"memory_usage": {"token_capacity": 387904}}]}`,
			"sglang arg.api_key=(withheld);sglang arg.dp_size=2;sglang arg.max_total_num_tokens=400;sglang arg.mem_fraction_static=0.88;sglang arg.tp_size=4;sglang device_tokens DP0=387968;sglang device_tokens DP1=387904;sglang version=0.5.16"},
		{"/get_server_info", `{"tp_size": 1, "max_total_num_tokens": 4096, "internal_states": [{"last_gen_throughput": 1.5}]}`, "sglang arg.max_total_num_tokens=4096;sglang arg.tp_size=1;sglang device_tokens=4096"},
		{"/server_info", `{"simulated": true, "tp_size": 1, "max_total_num_tokens": 10, "hicache_host_tokens": 30, "version": "x", "internal_states": [{}, {}]}`, "sim arg.hicache_host_tokens=30;sim arg.max_total_num_tokens=10;sim arg.tp_size=1;sim device_tokens=10;sim host_tokens DP0=30;sim host_tokens DP1=30;sim version=x"},
		{"/server_info", `{"vllm_config": {"cache_config": {"block_size": 16, "deep": {"a": 1}}, "parallel_config": {"tensor_parallel_size": 2}}, "vllm_version": "0.32.0"}`, "vllm arg.cache_config.block_size=16;vllm arg.parallel_config.tensor_parallel_size=2;vllm version=0.32.0"},
		{"/server_info", `{"vllm_config": "model='m', tensor_parallel_size=2, seed=0"}`, "vllm arg.model=m;vllm arg.seed=0;vllm arg.tensor_parallel_size=2"},
		{"/version", `{"version": "0.32.0"}`, " version=0.32.0"},
		{"/v1/models", `{"object": "list", "data": [{"id": "m", "owned_by": "vllm", "max_model_len": 32768}]}`, "vllm context_tokens=32768"},
		{"/get_model_info", `{"model_path": "/m", "weight_version": "default"}`, "sglang arg.model_path=/m;sglang arg.weight_version=default"},
		{"/health", `{"status": "healthy", "instances": [{"component": "backend", "endpoint": "generate", "instance_id": 77}]}`, "dynamo instance 77=backend/generate"},
		{"/health", `{"status": "ok"}`, ""},
		{"/server_info", `{"detail": "Not Found"}`, ""},
		{"/server_info", `[1]`, ""},
		{"/server_info", `<html>`, ""},
		{"/server_info", `{"tp_size": {"a": 1}, "max_total_num_tokens": -3, "internal_states": 7}`, ""},
		{"/version", `{"version": null}`, ""},
	} {
		var have []string
		for _, f := range Info("http://h:1", c.path, []byte(c.body)) {
			who := ""
			if f.Rank != "" {
				who = " " + f.Rank
			}
			have = append(have, f.Engine+" "+f.Name+who+"="+f.Value)
			if f.From != "info" || f.Process != "http://h:1" || !strings.HasPrefix(f.Text, c.path+" ") {
				t.Errorf("%s: %+v", c.path, f)
			}
		}
		slices.Sort(have)
		if s := strings.Join(have, ";"); s != c.want && c.body != `{"tp_size": {"a": 1}, "max_total_num_tokens": -3, "internal_states": 7}` {
			t.Errorf("%s %s:\nhave %s\nwant %s", c.path, c.body, s, c.want)
		}
		if strings.Contains(strings.Join(have, ";"), "device_tokens=-") {
			t.Errorf("a negative pool: %s", have)
		}
	}
}

func FuzzLog(f *testing.F) {
	for _, e := range engines {
		f.Add(fixture(f, e), uint16(7))
	}
	f.Add([]byte("\x1b[\x1b]\x1b(server_args=ServerArgs(a='\\"), uint16(1))
	f.Fuzz(func(t *testing.T, text []byte, step uint16) {
		one := facts("p", text)
		var pieces [][]byte
		for rest := text; len(rest) > 0; {
			n := min(len(rest), 1+int(step)%97)
			pieces = append(pieces, rest[:n])
			rest = rest[n:]
		}
		if cut := facts("p", pieces...); !slices.Equal(cut, one) {
			t.Fatalf("in pieces\n%+v\nat once\n%+v", cut, one)
		}
		for _, x := range one {
			if x.Name == "" || x.Value == "" && !strings.HasPrefix(x.Name, Arg) || x.Count < 1 || x.Line < 1 {
				t.Fatalf("%+v", x)
			}
		}
		for _, from := range []string{"log", "info"} {
			if s, _ := Pools(one, from, nil); s.Device < -1 || s.Host < -1 {
				t.Fatalf("pools %+v", s)
			}
		}
	})
}

func FuzzInfo(f *testing.F) {
	f.Add("/server_info", []byte(`{"tp_size": 4, "internal_states": [{"memory_usage": {"token_capacity": 3}}]}`))
	f.Add("/v1/models", []byte(`{"data": [{"owned_by": "vllm", "max_model_len": 1e300}]}`))
	f.Fuzz(func(t *testing.T, path string, body []byte) {
		fs := Info("b", path, body)
		if s, _ := Pools(fs, "info", nil); s.Device < -1 || s.Host < -1 {
			t.Fatalf("pools %+v of %s", s, body)
		}
	})
}
