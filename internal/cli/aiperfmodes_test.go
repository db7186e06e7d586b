package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weirbench/weir/internal/corpus"
	"github.com/weirbench/weir/internal/material"
	"github.com/weirbench/weir/internal/replay"
)

// TestAIPerfModes runs loads with flags of lengths, ramps, warm-up, order and files against the simulated
// server; the lengths are those that AIPerf 0.13.0 draws with seed 42.
func TestAIPerfModes(t *testing.T) {
	material.RealTime(t)
	url := simServer(t, 150_000, 0)
	dir := t.TempDir()
	file := func(name, lines string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(lines), 0o666); err != nil {
			t.Fatal(err)
		}
		return path
	}
	mooncake := file("mooncake.jsonl", `{"timestamp": 0, "input_length": 700, "output_length": 5, "hash_ids": [1, 2]}
{"timestamp": 150, "input_length": 900, "output_length": 6, "hash_ids": [1, 3]}
{"timestamp": 300, "input_length": 1300, "output_length": 7, "hash_ids": [1, 2, 4]}
`)
	sessions := file("sessions.jsonl", `{"session_id": "a", "input_length": 700, "output_length": 5, "hash_ids": [1, 2]}
{"session_id": "b", "input_length": 900, "output_length": 6, "hash_ids": [1, 3]}
{"session_id": "a", "delay": 20, "input_length": 600, "output_length": 7, "hash_ids": [4, 5]}
`)
	for name, x := range map[string]struct {
		args string
		warm int      // requests
		want [][2]int // input and output of the profiling requests in order of start
		says string
	}{
		"pairs":   {"--sequence-distribution 256|10,128|5:40;512,64:60 --request-count 4", 0, [][2]int{{512, 64}, {268, 128}, {257, 134}, {255, 124}}, ""},
		"range":   {"--isl 400 --osl 20 --random-range-ratio 0.3 --request-count 4", 0, [][2]int{{497, 20}, {334, 26}, {288, 15}, {446, 26}}, ""},
		"sglang":  {"--isl 400 --osl 20 --random-range-ratio 0.5 --random-corpus-style sglang --request-count 3", 0, [][2]int{{381, 15}, {245, 20}, {207, 11}}, ""},
		"context": {"--isl 200 --osl 4 --shared-system-prompt-length 128 --user-context-prompt-length 192 --num-sessions 2", 0, [][2]int{{520, 4}, {520, 4}}, ""},
		"ramps": {"--isl 100 --osl 3 --request-rate 50 --request-rate-ramp-duration 0.4 --concurrency 4 --concurrency-ramp-duration 0.2 --prefill-concurrency 4 --prefill-concurrency-ramp-duration 0.1 --request-count 6", 0,
			[][2]int{{100, 3}, {100, 3}, {100, 3}, {100, 3}, {100, 3}, {100, 3}}, ""},
		"warm": {"--isl 100 --osl 3 --request-count 2 --warmup-request-count 5 --warmup-request-rate 100 --warmup-arrival-pattern constant --warmup-concurrency 2 --warmup-request-rate-ramp-duration 0.2", 5,
			[][2]int{{100, 3}, {100, 3}}, ""},
		"warm sessions": {"--isl 100 --osl 3 --session-turns-mean 2 --num-sessions 1 --num-warmup-sessions 3", 6, [][2]int{{100, 3}, {203, 3}}, ""},
		"promoted":      {"--custom-dataset-type mooncake_trace --input-file " + mooncake, 0, [][2]int{{700, 5}, {900, 6}, {1300, 7}}, "sent at these, as with AIPerf"},
		"file":          {"--custom-dataset-type mooncake_trace --no-fixed-schedule --request-count 5 --num-warmup-sessions 1 --input-file " + mooncake, 1, [][2]int{{700, 5}, {900, 6}, {1300, 7}, {700, 5}, {900, 6}}, "the words that it sends are its own"},
		"sessions":      {"--input-file " + sessions + " --num-sessions 3 --dataset-sampling-strategy sequential", 0, [][2]int{{700, 5}, {1305, 7}, {900, 6}, {700, 5}, {1305, 7}}, ""},
	} {
		out := filepath.Join(dir, strings.ReplaceAll(name, " ", "-"))
		args := append(strings.Fields("aiperf profile --model glm-5.2 --streaming --use-server-token-count --random-seed 42 --client-limit none --extra-inputs ignore_eos:true "+x.args),
			"--url", url, "--output-artifact-dir", out)
		code, _, errOut := weir(args...)
		if code != exitOK || !strings.Contains(errOut, x.says) {
			t.Errorf("%s: exit code %d\n%s", name, code, errOut)
			continue
		}
		type request struct {
			Metadata struct {
				Phase string `json:"benchmark_phase"`
				Start int64  `json:"request_start_ns"`
			}
			Metrics struct {
				ISL struct{ Value int } `json:"input_sequence_length"`
				OSL struct{ Value int } `json:"output_sequence_length"`
			}
		}
		var all []request
		for line := range strings.Lines(string(read(t, out, "profile_export.jsonl"))) {
			var r request
			if err := json.Unmarshal([]byte(line), &r); err != nil {
				t.Fatal(err)
			}
			all = append(all, r)
		}
		slices.SortFunc(all, func(a, b request) int { return int(a.Metadata.Start - b.Metadata.Start) })
		warm := 0
		var got [][2]int
		for _, r := range all {
			if r.Metadata.Phase == "warmup" {
				warm++
				continue
			}
			got = append(got, [2]int{r.Metrics.ISL.Value, r.Metrics.OSL.Value})
		}
		if warm != x.warm || !slices.Equal(got, x.want) {
			t.Errorf("%s: %d warm, %v; want %d and %v", name, warm, got, x.warm, x.want)
		}
	}
}

// TestAIPerfLoadFlags: what flags of a load become, and that those that need another or exclude one say so.
func TestAIPerfLoadFlags(t *testing.T) {
	const base = "--model m --streaming --use-server-token-count --random-seed 1 "
	warm := func(w replay.Load, own int) *replay.Warmup {
		w.GraceNs, w.Shape = -1, 1
		return &replay.Warmup{Load: w, Conversations: own}
	}
	for line, want := range map[string]*replay.Warmup{
		"--concurrency 4 --warmup-request-count 9":                                                       warm(replay.Load{Concurrency: 4, MaxRequests: 9}, 9),
		"--concurrency 4 --concurrency-ramp-duration 3 --num-warmup-sessions 2 --warmup-request-count 9": warm(replay.Load{Concurrency: 4, MaxRequests: 9, MaxConversations: 2, RampNs: 3e9}, 9),
		"--request-rate 5 --concurrency 8 --warmup-duration 2 --warmup-concurrency 2":                    warm(replay.Load{Arrival: replay.Poisson, Rate: 5, Concurrency: 2, DurationNs: 2e9}, 100),
		"--request-rate 5 --arrival-pattern constant --warmup-duration 2 --warmup-request-rate 7":        warm(replay.Load{Arrival: replay.Constant, Rate: 7, DurationNs: 2e9}, 100),
		"--user-centric-rate 5 --num-users 2 --session-turns-mean 2 --osl 3 --num-warmup-requests 3":     warm(replay.Load{Concurrency: 1, MaxRequests: 3}, 3),
	} {
		p, err := readProfile(t, base+line)
		if err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		if diff := cmp.Diff(want, p.load.Warmup); diff != "" {
			t.Errorf("%s: %s", line, diff)
		}
	}
	for line, want := range map[string]string{
		"--warmup-concurrency 3":                                                                "--warmup-concurrency: nothing is warmed up without",
		"--warmup-request-count 3 --warmup-grace-period 4":                                      "--warmup-grace-period is of --warmup-duration",
		"--warmup-request-count 3 --warmup-request-rate-ramp-duration 4":                        "needs --warmup-request-rate",
		"--request-rate-ramp-duration 4":                                                        "needs a --request-rate",
		"--sequence-distribution 1,2:40":                                                        "", // the shares are checked when lengths are drawn
		"--sequence-distribution 1,2":                                                           `"1,2": write INPUT,OUTPUT:PERCENT`,
		"--sequence-distribution [(1,2):100] --isl 5":                                           "--isl and --sequence-distribution are both given",
		"--isl 9 --osl 9 --random-range-ratio 1":                                                "less than 1 in the style of vllm",
		"--isl 9 --random-range-ratio 0.2":                                                      "needs --isl and --osl",
		"--input-file x --isl 5":                                                                "--isl does not go with --input-file",
		"--custom-dataset-type multi_turn":                                                      "pass one",
		"--input-file x --custom-dataset-type random_pool":                                      "Weir sends mooncake_trace",
		"--fixed-schedule --no-fixed-schedule --input-file x":                                   "are both given",
		"--fixed-schedule --input-file x --num-warmup-sessions 2":                               "--num-warmup-sessions does not go with the file's times",
		"--dataset-sampling-strategy often":                                                     "--dataset-sampling-strategy",
		"--user-context-prompt-length 64 --prefix-prompt-length 64 --prefix-prompt-pool-size 2": "--prefix-prompt-length and --user-context-prompt-length are both given",
	} {
		if _, err := readProfile(t, base+line); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", line, err, want)
		}
	}
}

// TestParsePairs: AIPerf's three ways to write pairs of lengths say the same.
func TestParsePairs(t *testing.T) {
	want := []replay.Pair{{In: 256, InDev: 10, Out: 128, OutDev: 5.5, Share: 40}, {In: 512, Out: 64, Share: 60}}
	for _, s := range []string{
		"256|10,128|5.5:40;512,64:60", " 256|10 , 128|5.5 : 40 ; 512,64:60; ", "[(256|10,128|5.5):40,(512,64):60]", "[ (256|10, 128|5.5) : 40 , (512,64):60 ]",
		`{"pairs": [{"isl": 256, "isl_stddev": 10, "osl": 128, "osl_stddev": 5.5, "prob": 40}, {"isl": 512, "osl": 64, "prob": 60}]}`,
	} {
		got, err := parsePairs(s)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%q: %v\n%s", s, err, diff)
		}
	}
	for _, s := range []string{"", "[]", "{}", "256:40", "256,128", "(256,128):40", "256|x,128:100", `{"pairs": [{"isl": 1}]}`, "1.5,2:100", "99999999999,2:100", "1|..,2:100"} {
		if got, err := parsePairs(s); err == nil {
			t.Errorf("%q: %v", s, got)
		}
	}
}

// TestGrownSessions: a turn of a session holds the turns before it and their answers, begins with their whole blocks, and
// shares no other block with anything; a prompt past all measure is refused.
func TestGrownSessions(t *testing.T) {
	load := func(lines string) *corpus.Corpus {
		path := filepath.Join(t.TempDir(), "s.jsonl")
		if err := os.WriteFile(path, []byte(lines), 0o666); err != nil {
			t.Fatal(err)
		}
		c, err := corpus.Load(path, corpus.LoadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	c := load(`{"session_id": "a", "input_length": 1100, "output_length": 50, "hash_ids": [1, 2, 3]}
{"session_id": "a", "input_length": 600, "output_length": 9, "hash_ids": [1, 7]}
{"session_id": "a", "input_length": 10, "output_length": 9, "hash_ids": [8]}
`)
	first := slices.Clone(c.Traces[0].Streams[0].Turns[0].Blocks)
	if err := grow(c); err != nil {
		t.Fatal(err)
	}
	turns := c.Traces[0].Streams[0].Turns
	for k, in := range []int64{1100, 1750, 1769} {
		if turns[k].In != in || k > 0 && len(turns[k].Blocks) != int(in/512) {
			t.Errorf("turn %d: %d tokens in %d blocks, want %d", k+1, turns[k].In, len(turns[k].Blocks), in)
		}
	}
	a, b, z := turns[0].Blocks, turns[1].Blocks, turns[2].Blocks
	if !slices.Equal(a, first) || !slices.Equal(a[:2], b[:2]) || slices.Contains(a, b[2]) || !slices.Equal(b, z) {
		t.Errorf("blocks %v, %v, %v", a, b, z)
	}
	if err := grow(load(`{"session_id": "a", "input_length": 600, "output_length": 268435456, "hash_ids": [1, 2]}
{"session_id": "a", "input_length": 600, "output_length": 9, "hash_ids": [3, 4]}
`)); err == nil || !strings.Contains(err.Error(), "turn 2 of session") {
		t.Errorf("a prompt of 2^28 tokens: %v", err)
	}
}
