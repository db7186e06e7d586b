package cli

import (
	"bytes"
	"cmp"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/weirbench/weir/internal/facts"
	"github.com/weirbench/weir/internal/material"
	"github.com/weirbench/weir/internal/record"
	"github.com/weirbench/weir/internal/replay"
	"github.com/weirbench/weir/internal/result"
	"github.com/weirbench/weir/internal/sim"
	"github.com/weirbench/weir/internal/sim/simhttp"
	"github.com/weirbench/weir/internal/spec"
)

// simServer serves a simulated engine on loopback until the test ends.
func simServer(t *testing.T, device, host int64) string { return simEngine(t, "sglang", device, host) }

func simEngine(t *testing.T, engine string, device, host int64) string {
	t.Helper()
	_, url := startSim(t, engine, device, host)
	return url
}

func startSim(t *testing.T, engine string, device, host int64) (*simhttp.Server, string) {
	t.Helper()
	m, err := facts.ModelByName("glm-5.2")
	if err != nil {
		t.Fatal(err)
	}
	g, err := facts.GPUByName("b200")
	if err != nil {
		t.Fatal(err)
	}
	s, err := simhttp.New(simhttp.Options{
		Config: sim.Config{
			Model: m, GPU: g, Parallel: spec.Parallel{TP: 8, PP: 1, EP: 1, DCP: 1, PCP: 1}, WeightPrecision: "fp4", KVDType: "fp8",
			KVBytesPerToken: 55_800, DeviceTokens: device, HostTokens: host, WritePolicy: "write_back",
		},
		Engine: engine, Speed: 50,
	})
	if err != nil {
		t.Fatal(err)
	}
	return s, material.Serve(t, s)
}

// weir runs the program and returns its exit code and output.
func weir(args ...string) (code int, out, errOut string) {
	var o, e bytes.Buffer
	code = Main(args, strings.NewReader(""), &o, &e)
	return code, o.String(), e.String()
}

// TestOverflowProvesTheHostTier: the second pass finds nothing without a host tier and nearly
// everything with one.
func TestOverflowProvesTheHostTier(t *testing.T) {
	for _, c := range []struct {
		host int64
		code int
		want string
	}{{1_000_000, exitOK, ""}, {0, exitInvalid, "less than 0.900: the host tier did not keep them"}} {
		url := simServer(t, 120_000, c.host)
		code, out, errOut := weir("load", "--url", url, "--model", "glm-5.2", "--mode", "overflow", "--tokens", "300000",
			"--isl", "8192", "--osl", "1", "-c", "4", "--expect-hits", "0.9", "--client-limit", "none", "-o", filepath.Join(t.TempDir(), "b"))
		if code != c.code || !strings.Contains(out, "PASS  REQUESTS") {
			t.Errorf("host pool %d: exit code %d, want %d\n%s%s", c.host, code, c.code, out, errOut)
		}
		if c.code != exitOK && !strings.Contains(errOut, c.want) {
			t.Errorf("host pool %d: %s", c.host, errOut)
		}
	}
}

// TestOverflowMustOverflow: prompts that the device pool holds prove no host tier, however much of
// them is found again.
func TestOverflowMustOverflow(t *testing.T) {
	url := simServer(t, 120_000, 1_000_000)
	for _, expect := range []bool{false, true} {
		args := []string{"load", "--url", url, "--model", "glm-5.2", "--mode", "overflow", "--tokens", "60000", "--isl", "8192", "--osl", "1", "-c", "2",
			"--client-limit", "none", "-o", filepath.Join(t.TempDir(), "b")}
		want := exitOK
		if expect {
			args, want = append(args, "--expect-hits", "0.9", "--seed", "9"), exitInvalid
		}
		code, out, errOut := weir(args...)
		if code != want || !strings.Contains(out, "fits into the device pool of 120000") || expect != strings.Contains(errOut, "--expect-hits cannot be judged: a pass of ") {
			t.Errorf("expected %v: exit code %d, want %d\n%s%s", expect, code, want, out, errOut)
		}
	}
}

// TestJudgePasses: with tiers only what came from beyond the device counts.
func TestJudgePasses(t *testing.T) {
	for _, c := range []struct {
		second replay.PassHits
		want   string // in the error; empty for none
	}{
		{replay.PassHits{}, "does not say how many"},
		{replay.PassHits{Total: 950, KnownTotal: 1000}, ""},
		{replay.PassHits{Total: 850, KnownTotal: 1000}, "found 0.850 of its prompt tokens, less than 0.900: the host tier did not keep them"},
		{replay.PassHits{Host: 950, KnownSplit: 1000, Total: 950, KnownTotal: 1000}, ""},
		{replay.PassHits{Host: 450, Storage: 500, KnownSplit: 1000, Total: 950, KnownTotal: 1000}, ""},
		{replay.PassHits{Device: 500, Host: 480, KnownSplit: 1000, Total: 980, KnownTotal: 1000}, ""},
		{replay.PassHits{Device: 992, KnownSplit: 1000, Total: 992, KnownTotal: 1000}, "beyond the device the second pass found 0.000 of the 8 prompt tokens that were not on it, less than 0.900"},
		{replay.PassHits{Device: 500, Host: 400, KnownSplit: 1000, Total: 900, KnownTotal: 1000}, "found 0.800 of the 500 prompt tokens"},
		{replay.PassHits{Device: 1000, KnownSplit: 1000, Total: 1000, KnownTotal: 1000}, "the device held all of the second pass"},
	} {
		f := loadFlags{expect: 0.9}
		err := f.judge(&result.Result{Passes: []replay.PassHits{{}, c.second}})
		if (err == nil) != (c.want == "") || err != nil && (!strings.Contains(err.Error(), c.want) || !isInvalid(err)) {
			t.Errorf("%+v: %v, want %q", c.second, err, c.want)
		}
	}
}

// TestBaseURL: a base that ends in /v1 is taken without it, and one behind which nothing is served
// is refused before the run, with what was asked for.
func TestBaseURL(t *testing.T) {
	url := simServer(t, 1_000_000, 0)
	args := []string{"load", "--model", "glm-5.2", "-c", "1", "--conversations", "2", "--isl", "64", "--osl", "2", "--client-limit", "none", "-o"}
	code, _, errOut := weir(append(args, filepath.Join(t.TempDir(), "b"), "--url", url+"/v1/")...)
	if code != exitOK || !strings.Contains(errOut, "taken as "+url+",") {
		t.Errorf("exit code %d: %s", code, errOut)
	}
	code, out, errOut := weir(append(args, filepath.Join(t.TempDir(), "b"), "--url", url+"/api")...)
	if code != exitUsage || out != "" || !strings.Contains(errOut, "404 to the first probe, POST "+url+"/api/v1/chat/completions") || !strings.Contains(errOut, "without /v1") {
		t.Errorf("exit code %d: %s%s", code, out, errOut)
	}
}

// TestChunkTimes: the time between frames is known where it was asked for, and only there.
func TestChunkTimes(t *testing.T) {
	url := simServer(t, 1_000_000, 0)
	for _, on := range []bool{false, true} {
		args := []string{"load", "--model", "glm-5.2", "--url", url, "-c", "1", "--conversations", "3", "--isl", "64", "--osl", "12", "--client-limit", "none"}
		want := int64(0)
		if on {
			args, want = append(args, "--chunk-times"), 3*11 // gaps between the frames of each answer
		}
		dir := filepath.Join(t.TempDir(), "b")
		if code, _, errOut := weir(append(args, "-o", dir)...); code != exitOK {
			t.Fatalf("exit code %d: %s", code, errOut)
		}
		raw, err := os.ReadFile(filepath.Join(dir, "result.json"))
		var r result.Result
		if err == nil {
			err = json.Unmarshal(raw, &r)
		}
		if err != nil || r.Latency.ChunkGap.N != want {
			t.Errorf("asked %t: %d gaps, want %d, %v", on, r.Latency.ChunkGap.N, want, err)
		}
	}
}

// TestRanOut: a load whose conversations end before its time says so and what gives it more.
func TestRanOut(t *testing.T) {
	material.RealTime(t)
	url := simServer(t, 1_000_000, 0)
	for loop, duration := range map[bool]string{false: "50s", true: "2s"} { // the first ends when nothing is left
		args := []string{"load", "--url", url, "--model", "glm-5.2", "--mode", "closed", "-c", "8", "--duration", duration, "--conversations", "8", "--isl", "64", "--osl", "2",
			"--client-limit", "none", "-o", filepath.Join(t.TempDir(), "b")}
		if loop {
			args = append(args, "--loop")
		}
		code, out, errOut := weir(args...)
		if said := strings.Contains(out, "the conversations ran out after") && strings.Contains(out, "--loop") && strings.Contains(out, "--conversations"); code != exitOK || said == loop {
			t.Errorf("loop %v: exit code %d\n%s%s", loop, code, out, errOut)
		}
	}
}

// TestSeedsAreCold: on a server that keeps its cache the first pass of another seed finds nothing,
// that of the same seed finds what the last run left.
func TestSeedsAreCold(t *testing.T) {
	url := simServer(t, 120_000, 1_000_000)
	found := func(seed string) float64 {
		_, out, errOut := weir("load", "--url", url, "--model", "glm-5.2", "--mode", "overflow", "--tokens", "200000", "--seed", seed,
			"--isl", "8192", "--osl", "1", "-c", "4", "--client-limit", "none", "--json", "-o", filepath.Join(t.TempDir(), "b"))
		var o struct {
			Result struct{ Passes []replay.PassHits }
		}
		if err := json.Unmarshal([]byte(out), &o); err != nil || len(o.Result.Passes) != 2 || o.Result.Passes[0].KnownTotal == 0 {
			t.Fatalf("%v\n%s%s", err, out, errOut)
		}
		return float64(o.Result.Passes[0].Total) / float64(o.Result.Passes[0].KnownTotal)
	}
	if a, b, again := found("7"), found("8"), found("8"); a > 0.02 || b > 0.02 || again < 0.9 {
		t.Errorf("the first passes of seeds 7, 8 and 8 again found %.3f, %.3f and %.3f", a, b, again)
	}
}

// TestOverflowTiers: whatever usage says, the server's counters tell the passes' hits by tier,
// and both engines' second pass comes from the host.
func TestOverflowTiers(t *testing.T) {
	material.RealTime(t)
	for _, engine := range []string{"sglang", "vllm"} {
		url := simEngine(t, engine, 120_000, 1_000_000)
		dir := filepath.Join(t.TempDir(), "b")
		code, out, errOut := weir("load", "--url", url, "--model", "glm-5.2", "--mode", "overflow", "--tokens", "300000",
			"--isl", "8192", "--osl", "1", "-c", "4", "--metrics-every", "100ms", "--json", "-o", dir)
		if code != exitOK && !strings.Contains(errOut, "client-bound") {
			t.Fatalf("%s: exit code %d: %s", engine, code, errOut)
		}
		var o struct {
			Result struct {
				Server struct {
					Samples  int
					Timings  *result.Timings
					Counters *struct {
						Host int64 `json:"hit_host_tokens"`
					}
				}
				Passes []replay.PassHits
			}
		}
		if err := json.Unmarshal([]byte(out), &o); err != nil {
			t.Fatal(err)
		}
		p := o.Result.Passes
		if len(p) != 2 || p[1].HitsFrom != "counters" || o.Result.Server.Samples == 0 {
			t.Fatalf("%s: %+v", engine, o.Result)
		}
		sum := p[0].Host + p[1].Host
		if found := p[1].Device + p[1].Host; found*10 < p[1].KnownSplit*9 || p[1].Host*2 < found || p[0].Host*10 > p[0].KnownSplit {
			t.Errorf("%s: second pass %+v after %+v", engine, p[1], p[0])
		}
		if c := o.Result.Server.Counters; c == nil || c.Host != sum {
			t.Errorf("%s: the passes add up to %d, the run has %+v", engine, sum, c)
		}
		if x := o.Result.Server.Timings; x == nil || x.TTFT == nil || x.TTFT.N == 0 || x.TTFT.P50 == nil || x.TTFT.P50.Low == nil {
			t.Errorf("%s: the engine's own times are %+v", engine, x)
		}
		// The samples in the bundle, as lines: every one is whole, and the marks are there.
		code, out, errOut = weir("scrape", dir)
		if code != exitOK {
			t.Fatalf("%s: exit code %d: %s", engine, code, errOut)
		}
		marks, last := "", record.Sample{}
		for d := json.NewDecoder(strings.NewReader(out)); d.More(); {
			last = record.Sample{}
			if err := d.Decode(&last); err != nil {
				t.Fatal(err)
			}
			marks += string(last.Mark) + " "
		}
		if !strings.Contains(marks, "profiling") || !strings.Contains(marks, "pass") || len(last.Values) < 20 || last.Delta {
			t.Errorf("%s: marks %q, the last sample has %d values", engine, marks, len(last.Values))
		}
	}
}

func TestLoadModes(t *testing.T) {
	url := simServer(t, 4_000_000, 0)
	traces := filepath.Join(t.TempDir(), "traces")
	if code, _, errOut := weir("corpus", "generate", "-o", traces, "--traces", "6", "--seed", "4"); code != exitOK {
		t.Fatal(errOut)
	}
	for _, args := range [][]string{
		{"--mode", "fixed-seq-len", "--isl", "512", "--osl", "16", "-c", "8", "--range-ratio", "0.8"},
		{"--mode", "closed", "-c", "4", "--prefill-concurrency", "2", "--conversations", "70", "--turns", "2", "--isl", "256", "--osl", "4", "--prefix", "512"},
		{"--mode", "poisson", "--rate", "200", "--conversations", "100", "--isl", "256", "--osl", "4"},
		{"--mode", "gamma", "--rate", "200", "--shape", "0.5", "-c", "8", "--conversations", "100", "--isl", "256", "--osl", "4"},
		{"--mode", "users", "--users", "4", "--rate", "100", "--turns", "4", "--conversations", "30", "--isl", "256", "--osl", "4"},
		{"--mode", "schedule", "--corpus", traces, "--speed", "100000", "--max-requests", "80"},
	} {
		args = append([]string{"load", "--url", url, "--model", "glm-5.2", "--json", "--client-limit", "none", "-o", filepath.Join(t.TempDir(), "b")}, args...)
		code, out, errOut := weir(args...)
		if code != exitOK || !strings.Contains(out, `"valid"`) {
			t.Errorf("%v: exit code %d\n%s%s", args, code, out, errOut)
		}
	}
	for want, args := range map[string][]string{
		`--mode "often" is not known`:          {"--mode", "often"},
		"request rate is 0":                    {"--mode", "poisson"},
		"a closed loop needs a concurrency":    {},
		"needs --corpus":                       {"--mode", "schedule"},
		"overflow by 0 tokens":                 {"--mode", "overflow", "-c", "1"},
		"range ratio 1.5":                      {"-c", "1", "--range-ratio", "1.5"},
		"gamma shape is 0":                     {"--mode", "gamma", "--rate", "1", "--shape", "0"},
		"want a whole number from 1 to 100000": {"--mode", "users", "--rate", "1", "--users", "0"},
		"nothing ends the run":                 {"-c", "1", "--loop"},
		"--rate is 0: --mode users":            {"--mode", "users", "-c", "4"},
		"request rate is 1e+300":               {"--mode", "poisson", "--rate", "1e300"},
		"request rate is 1e-300":               {"--mode", "constant", "--rate", "1e-300"},
		"gamma shape is 1e-300":                {"--mode", "gamma", "--rate", "1", "--shape", "1e-300"},
		`--url is "ftp://x"`:                   {"-c", "1", "--url", "ftp://x"},
	} {
		args = append([]string{"load", "--url", url, "--model", "glm-5.2", "-o", filepath.Join(t.TempDir(), "b")}, args...)
		code, _, errOut := weir(args...)
		if code == exitOK || !strings.Contains(errOut, want) {
			t.Errorf("%v: exit code %d and %q, want %q", args, code, errOut, want)
		}
	}
}

// TestEveryLine sends a file whose requests name no session: on a schedule each goes out at its
// time, whatever the others do; other modes say what they leave out, and send all when asked.
func TestEveryLine(t *testing.T) {
	url := simServer(t, 4_000_000, 0)
	file := filepath.Join(t.TempDir(), "lines.jsonl")
	lines := `{"timestamp":0,"input_length":1100,"output_length":2,"hash_ids":[1,2,3]}
{"timestamp":40,"input_length":1100,"output_length":2,"hash_ids":[7,8,9]}
{"timestamp":80,"input_length":1700,"output_length":2,"hash_ids":[1,2,3,4]}
{"timestamp":100,"input_length":512,"output_length":2,"hash_ids":[20]}
`
	if err := os.WriteFile(file, []byte(lines), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		args, says string
		ins        []int64 // prompt tokens, in the order of sending
		at         []int64 // ms after the first, nil when the rate sets it
	}{
		{"--mode schedule", "", []int64{1100, 1100, 1700, 512}, []int64{0, 40, 80, 100}},
		{"--mode schedule --speed 2 -c 9", "", []int64{1100, 1100, 1700, 512}, []int64{0, 20, 40, 50}},
		{"--mode schedule --each-turn=false", "2 of 4 requests of the corpus are not sent", []int64{1100, 1700}, []int64{0, 80}},
		{"--mode constant --rate 200", "2 of 4 requests of the corpus are not sent", []int64{1100, 1700}, nil},
		{"--mode constant --rate 200 --each-turn", "", []int64{1100, 1100, 1700, 512}, nil},
	} {
		out := filepath.Join(t.TempDir(), "b")
		args := append([]string{"load", "--url", url, "--model", "glm-5.2", "--client-limit", "none", "--corpus", file, "-o", out}, strings.Fields(tc.args)...)
		code, _, errOut := weir(args...)
		if code != exitOK || tc.says == "" && strings.Contains(errOut, "not sent") || !strings.Contains(errOut, tc.says) {
			t.Errorf("%s: exit code %d\n%s", tc.args, code, errOut)
			continue
		}
		b, err := record.OpenBundle(out)
		if err != nil {
			t.Fatal(err)
		}
		var p spec.Point
		if err := json.Unmarshal(b.Meta.Point, &p); err != nil {
			t.Fatal(err)
		}
		if want := map[bool]int{true: 9}[strings.Contains(tc.args, "-c 9")]; p.Conc != want {
			t.Errorf("%s: the point's concurrency is %d, want %d", tc.args, p.Conc, want)
		}
		var all []record.Request
		for q, err := range b.Requests() {
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, *q)
		}
		slices.SortFunc(all, func(a, b record.Request) int { return cmp.Compare(a.Seq, b.Seq) })
		var ins, at []int64
		for _, q := range all {
			ins, at = append(ins, q.WantIn), append(at, (q.Times.Intended-all[0].Times.Intended)/1e6)
		}
		if !slices.Equal(ins, tc.ins) || tc.at != nil && !slices.Equal(at, tc.at) {
			t.Errorf("%s: sent prompts of %v at %v ms, want %v at %v", tc.args, ins, at, tc.ins, tc.at)
		}
	}
}

// TestReplayKnobs: what was asked for is what the bundle says was replayed.
func TestReplayKnobs(t *testing.T) {
	url := simServer(t, 4_000_000, 0)
	traces, out := filepath.Join(t.TempDir(), "traces"), filepath.Join(t.TempDir(), "b")
	if code, _, errOut := weir("corpus", "generate", "-o", traces, "--traces", "4"); code != exitOK {
		t.Fatal(errOut)
	}
	code, _, errOut := weir("replay", "--url", url, "--model", "glm-5.2", "--corpus", traces, "-c", "2", "--max-requests", "20",
		"--barriers", "dataflow", "--gap-cap", "20ms", "--warmup-requests-per-lane", "1", "--order", "shuffle", "--salt", "none", "--seed", "9", "--client-limit", "none", "-o", out)
	if code != exitOK {
		t.Fatalf("exit code %d: %s", code, errOut)
	}
	raw, err := os.ReadFile(filepath.Join(out, "point.json"))
	if err != nil {
		t.Fatal(err)
	}
	var m struct{ Replay map[string]any }
	if err := json.Unmarshal(raw, &m); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]any{"lanes": 2.0, "seed": 9.0, "barriers": "none", "turn_gap_cap_ns": 2e7, "pressure_requests": 1.0,
		"sampling": "shuffle", "salt": "none", "max_requests": 20.0, "trace_idle_cap_ns": 3e11, "start_min": 0.25} {
		if m.Replay[key] != want {
			t.Errorf("%s is %v, want %v", key, m.Replay[key], want)
		}
	}
	for want, args := range map[string][]string{
		"use at most 4 lanes":  {"-c", "5", "--salt", "none"},
		`"often" is not known`: {"--order", "often"},
		"need 0 <= min <= max": {"--start-min", "0.9"},
		"nothing ends the run": {"--max-requests", "0"},
	} {
		args = append([]string{"replay", "--url", url, "--model", "m", "--corpus", traces, "-c", "2", "--max-requests", "5"}, args...)
		if code, _, errOut := weir(args...); code != exitUsage || !strings.Contains(errOut, want) {
			t.Errorf("%v: exit code %d, %s", args, code, errOut)
		}
	}
}
