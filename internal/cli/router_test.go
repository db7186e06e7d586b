package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirbench/weir/internal/material"
	"github.com/weirbench/weir/internal/record"
)

// twoEngines is a config of two engines behind a router; scripts/peers/router has the same with
// sglang-router.
const twoEngines = `%[1]s:
  image: lmsysorg/sglang:v0.5.16-cu130
  model: nvidia/GLM-5.2-NVFP4
  model-prefix: glm5.2
  runner: cluster:b200-dgxc
  precision: fp4
  framework: sglang
  multinode: true
  disagg: false
  weir: { recipe: %[1]s }
  scenarios:
    agentic-coding:
    - search-space:
      - spec-decoding: none
        conc-list: [ 4 ]
        prefill: { num-worker: 2, tp: 4, ep: 1, dp-attn: false }
        decode: { num-worker: 0, tp: 4, ep: 1, dp-attn: false }
`

// TestRouterKeepsSessions sweeps two engines behind a router, with a consistent hash and in turns.
// What the engines themselves counted while the load ran says how many of them a session met.
func TestRouterKeepsSessions(t *testing.T) {
	material.RealTime(t)
	dir := t.TempDir()
	master := ""
	for name, policy := range map[string]string{"sticky": "consistent_hashing", "turns": "round_robin"} {
		write(t, filepath.Join(dir, name+".yaml"), fmt.Sprintf("name: %s\nextends: sim-serve\nargs: { speed: 50 }\nroles: { router: { args: { policy: %s } } }\n", name, policy))
		master += fmt.Sprintf(twoEngines, name)
	}
	write(t, filepath.Join(dir, "master.yaml"), master)
	weirCommand(t, dir, "corpus", "generate", "-o", "traces", "--traces", "24", "--seed", "7", "--system", "500", "--first-input", "2000",
		"--growth", "500", "--turns", "6", "--out", "20", "--context", "8000", "--sub-agents", "-1", "--rewrites", "-1", "--resumes", "-1")
	runners, err := filepath.Abs("../../examples/launch/runners.yaml")
	if err != nil {
		t.Fatal(err)
	}
	weirCommand(t, dir, "sweep", "-f", "master.yaml", "-r", runners, "--recipes", ".", "--corpus", "traces", "-o", "out", "--duration", "10s", "--client-limit", "none", "--no-gaps",
		"--warmup-requests-per-lane", "1")
	bundles, _ := filepath.Glob(filepath.Join(dir, "out", "*", record.CompleteFile))
	if len(bundles) != 2 {
		t.Fatalf("bundles: %v", bundles)
	}
	rate := map[string]float64{}
	for _, end := range bundles {
		b, err := record.OpenBundle(filepath.Dir(end))
		if err != nil {
			t.Fatal(err)
		}
		name := policyOf(t, b)
		sessions := map[string]int{}
		var prompt, hits int64
		for r, err := range b.Requests() {
			if err != nil || r.Failure != nil {
				t.Fatalf("%s: request %+v: %v", name, r, err)
			}
			sessions[r.Tree+"/"+r.Stream]++
			prompt, hits = prompt+r.PromptTokens, hits+r.Hits.Total
		}
		grown := countersOf(t, b)
		var met, served, found float64
		for _, g := range grown {
			met += g["weir:sessions_total"]
			served += g["sglang:num_requests_total"]
			found += g["sglang:cached_tokens_total"]
		}
		longest := slices.Max(slices.Collect(maps.Values(sessions)))
		if len(grown) != 2 || longest < 3 {
			t.Fatalf("%s: %d engines, sessions of at most %d requests: nothing to see", name, len(grown), longest)
		}
		if int64(found) != hits {
			t.Errorf("%s: usage says that %d tokens were found, the engines say %.0f", name, hits, found)
		}
		if once := int(met) == len(sessions); once != (name == "consistent_hashing") {
			t.Errorf("%s: %d sessions met engines %.0f times", name, len(sessions), met)
		}
		rate[name] = float64(hits) / float64(prompt)
		t.Logf("%s: %d sessions, %.0f meetings, %.0f requests, hit rate %.3f", name, len(sessions), met, served, rate[name])
	}
	if rate["consistent_hashing"] <= rate["round_robin"] {
		t.Errorf("hit rates: %v", rate)
	}
}

// policyOf is the policy that the router of a bundle was started with.
func policyOf(t *testing.T, b *record.Bundle) string {
	t.Helper()
	for _, p := range b.Meta.Processes {
		if i := slices.Index(p.Argv, "--policy"); p.Role == "router" && i >= 0 {
			return p.Argv[i+1]
		}
	}
	raw, _ := json.Marshal(b.Meta.Processes)
	t.Fatalf("no router among %s", raw)
	return ""
}

// countersOf is by how much the counters of every engine grew from the sample before the load to
// the last one.
func countersOf(t *testing.T, b *record.Bundle) map[string]map[string]float64 {
	t.Helper()
	first, last := map[string]map[string]float64{}, map[string]map[string]float64{}
	for s, err := range b.Samples() {
		if err != nil {
			t.Fatal(err)
		}
		sums := map[string]float64{}
		for series, v := range s.Values {
			name, _, _ := strings.Cut(series, "{")
			sums[name] += v
		}
		if _, engine := sums["sglang:num_requests_total"]; !engine {
			continue
		}
		if first[s.Source] == nil {
			first[s.Source] = sums
		}
		last[s.Source] = sums
	}
	for source, sums := range last {
		for name := range sums {
			sums[name] -= first[source][name]
		}
	}
	return last
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
}

// weirCommand runs this binary as weir in a folder; it must end with 0.
func weirCommand(t *testing.T, dir string, args ...string) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(context.Background(), 10*time.Minute)
	defer stop()
	cmd := exec.CommandContext(ctx, exe)
	cmd.Args = append([]string{"weir"}, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("weir %v: %v\n%s", args, err, out)
	}
	return string(out)
}
