package spec

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirbench/weir/internal/material"
)

// lintDir writes files and returns the folder.
func lintDir(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// found are the findings of a run without the folder, one a line.
func found(dir string, fs []Finding) string {
	var out []string
	for _, f := range fs {
		out = append(out, strings.ReplaceAll(f.String(), dir+"/", ""))
	}
	return strings.Join(out, "\n")
}

const goldenCurve = "glm-5.2-fp8:\n  thinking_on: { 1: 1.84, 2: 2.50, 3: 2.99 }\n  thinking_off: { 1: 1.70, 2: 2.20, 3: 2.60 }\n"

// A PD config whose recipe is at hand.
const lintMaster = `c:
  image: lmsysorg/sglang:v0.5.17
  model: zai-org/GLM-5.2-FP8
  model-prefix: glm5.2
  precision: fp8
  framework: dynamo-sglang
  runner: cluster:b300-nv
  kv-p2p-transfer: nixl
  multinode: true
  disagg: true
  scenarios:
    agentic-coding:
    - dram-utilization: 0.80
      search-space:
      - kv-offloading: dram
        kv-offload-backend: { name: hicache }
        spec-decoding: mtp
        conc-list: [8]
        prefill: { num-worker: 1, tp: 4, ep: 1, dp-attn: false, additional-settings: ["CONFIG_FILE=recipes/r.yaml"] }
        decode: { num-worker: 2, tp: 8, ep: 8, dp-attn: true }
`

const lintRecipe = `name: r
model: { path: glm5.2, container: lmsysorg/sglang:v0.5.17 }
backend:
  decode_environment: { SGLANG_SIMULATE_ACC_LEN: '2.50' }
  sglang_config:
    prefill: { context-length: 1000, page-size: 64, hicache-size: 270 }
    decode: { context-length: 1000, page-size: 64, speculative-num-steps: 2 }
benchmark:
  env: { AGENTIC_WARMUP_GRACE_PERIOD: 1800 }
`

// Every rule finds what it is about, and nothing else in a sound project.
func TestEveryLintRule(t *testing.T) {
	sound := map[string]string{"m.yaml": lintMaster, "runners.yaml": testRunners, "recipes/r.yaml": lintRecipe,
		"golden/glm5.2_mtp.yaml": goldenCurve, "docs/a.md": "# A\n", "docs/a_zh.md": "# 甲页\n"}
	run := func(t *testing.T, files map[string]string) (string, *LintReport) {
		t.Helper()
		dir := lintDir(t, files)
		rep, err := Lint(LintInput{Masters: []string{dir + "/m.yaml"}, Runners: dir + "/runners.yaml",
			Recipes: []string{dir + "/recipes"}, Golden: dir + "/golden", Bilingual: []string{dir + "/docs"}})
		if err != nil {
			t.Fatal(err)
		}
		return found(dir, rep.Findings), rep
	}
	if got, rep := run(t, sound); got != "" || len(rep.Skipped) > 0 {
		t.Fatalf("a sound project has findings: %s, skipped %v", got, rep.Skipped)
	}
	tested := map[string]bool{}
	for _, c := range []struct {
		rule, file, old, new, want string
	}{
		{"dram-share", "recipes/r.yaml", "hicache-size: 270", "hicache-size: 400",
			"recipes/r.yaml:6:67: dram-share: hicache-size: 400 GB x 4 ranks = 1600 GB, without pools that this size does not count, is over the share 1499.999 GB (2999.999 GB the 3 TB cap x 4/8 GPUs); use 374.999 GB or less per rank"},
		{"dram-share", "m.yaml", "conc-list: [8]", "conc-list: [8]\n        weir: { host-gb-per-rank: 375.1 }",
			"m.yaml:19:35: dram-share: host-gb-per-rank: 375.1 GB x 4 ranks = 1500.4 GB, without pools that this size does not count, is over the share 1499.999 GB (2999.999 GB the 3 TB cap x 4/8 GPUs); use 374.999 GB or less per rank"},
		{"dram-share", "m.yaml", "additional-settings: [", `additional-settings: ["TOTAL_CPU_DRAM_GB=1300", `,
			"m.yaml:19:86: dram-share: c sets 1300 GB and the share is 1199 GB; remove the setting or lower it to 1199"},
		{"golden-al", "recipes/r.yaml", "'2.50'", "'2.99'",
			"recipes/r.yaml:4:50: golden-al: sglang-simulate-acc-len is 2.99, and no golden curve of glm5.2 with thinking_on has it; use 2.50 for 2 draft tokens (glm5.2_mtp)"},
		{"golden-al", "recipes/r.yaml", "name: r", "name: r # {\"thinking\": false}",
			"recipes/r.yaml:4:50: golden-al: sglang-simulate-acc-len is 2.50, and no golden curve of glm5.2 with thinking_off has it; use 2.20 for 2 draft tokens (glm5.2_mtp)"},
		{"golden-al", "m.yaml", `dp-attn: true }`, `dp-attn: true, additional-settings: ["SYNTHETIC_ACCEPTANCE_LENGTH=2.5", "DECODE_MTP_SIZE=3"] }`,
			"m.yaml:20:84: golden-al: SYNTHETIC_ACCEPTANCE_LENGTH is 2.5, and no golden curve of glm5.2 with thinking_on has it; use 2.99 for 3 draft tokens (glm5.2_mtp)"},
		{"golden-al", "m.yaml", "model-prefix: glm5.2", "model-prefix: glm9",
			"recipes/r.yaml:4:50: golden-al: sglang-simulate-acc-len is 2.50, and there is no golden curve of glm9; measure the curve first, or run without simulated acceptance"},
		{"engine-patch", "recipes/r.yaml", "benchmark:", "setup: git apply fix.diff\nbenchmark:",
			"recipes/r.yaml:8:1: engine-patch: the recipe changes the engine of the image: git apply; use an image that has the change, or file a waiver document"},
		{"engine-patch", "recipes/r.yaml", "benchmark:", "setup: sed -i s/a/b/ /usr/lib/python3/site-packages/sglang/x.py\nbenchmark:",
			"recipes/r.yaml:8:1: engine-patch: the recipe changes the engine of the image: sed -i s/a/b/ /usr/lib/python3/site-p...; use an image that has the change, or file a waiver document"},
		{"image-recipe", "recipes/r.yaml", "sglang:v0.5.17", "sglang:v0.5.16",
			"recipes/r.yaml:2:35: image-recipe: the recipe runs lmsysorg/sglang:v0.5.16 and config c (m.yaml:2:10) says lmsysorg/sglang:v0.5.17; use one image in both"},
		{"pd-equal", "recipes/r.yaml", "decode: { context-length: 1000", "decode: { context-length: 2000",
			"recipes/r.yaml:7:31: pd-equal: context-length is 2000 on decode and 1000 on prefill (line 6); use 1000 on both"},
		{"pd-equal", "recipes/r.yaml", "page-size: 64, spec", "page-size: 128, spec",
			"recipes/r.yaml:7:48: pd-equal: page-size is 128 on decode and 64 on prefill (line 6); use 64 on both"},
		{"warmup-window", "recipes/r.yaml", "1800", "3601",
			"recipes/r.yaml:9:39: warmup-window: agentic-warmup-grace-period of 3601 s is above the window of 3600 s; lower it to the window or less"},
		{"warmup-window", "recipes/r.yaml", "1800 }", "1800, DURATION: 1200 }",
			"recipes/r.yaml:9:39: warmup-window: agentic-warmup-grace-period of 1800 s is above the window of 1200 s (line 9); lower it to the window or less"},
		{"no-version", "m.yaml", "image: lmsysorg/sglang:v0.5.17", "image: lmsysorg/sglang",
			"m.yaml:2:10: no-version: image lmsysorg/sglang has no tag; add the tag or digest of a release\n" +
				"recipes/r.yaml:2:35: image-recipe: the recipe runs lmsysorg/sglang:v0.5.17 and config c (m.yaml:2:10) says lmsysorg/sglang; use one image in both"},
		{"latest-tag", "m.yaml", `additional-settings: [`, `additional-settings: ["CLIENT_IMAGE=a/b:latest", `,
			"m.yaml:19:86: latest-tag: image a/b:latest has the moving tag latest; use the tag of a release, or a digest"},
		{"bilingual", "docs/a.md", "# A", "", "docs/a_zh.md:1:1: bilingual: the page has no English version; add a.md"},
		{"bilingual", "docs/a_zh.md", "# 甲页", "# A", "docs/a_zh.md:1:1: bilingual: the page is not in Chinese; translate it"},
		{"bilingual", "docs/b.md", "", "# B", "docs/b.md:1:1: bilingual: the page has no Chinese version; add b_zh.md"},
		{"no-effect", "m.yaml", "kv-offloading: dram\n        kv-offload-backend: { name: hicache }\n", "kv-offloading: none\n",
			"m.yaml:13:25: no-effect: c.scenarios.agentic-coding[0].dram-utilization: dram-utilization has no effect: no entry has kv-offloading: dram; remove it"},
		{"deprecated-scenario", "m.yaml", "", "\nd:\n  image: a/b:v1\n  model: m\n  model-prefix: m\n  precision: fp8\n  framework: sglang\n  runner: cluster:b300-nv\n  multinode: false\n  scenarios: { fixed-seq-len: [{ isl: 1024, osl: 1024, search-space: [{ tp: 8, conc-list: [1] }] }] }\n",
			"m.yaml:30:39: deprecated-scenario: d uses 1k1k (isl 1024, osl 1024); remove the scenario or archive the config"},
		{"chat-template", "recipes/x_mtp.sh", "", "run_benchmark_serving --model a\n",
			"recipes/x_mtp.sh:1:1: chat-template: the recipe speculates and sends prompts without the chat template; add --use-chat-template or use the chat endpoint"},
		{"waiver", "m.yaml", "  image:", "  # weir:waive latest-tag: old\n  image:", "m.yaml:2:3: waiver: the waiver of latest-tag waives nothing; remove it"},
		{"waiver", "m.yaml", "  image:", "  # weir:waive latest-tga: old\n  image:", `m.yaml:2:3: waiver: no rule has the id "latest-tga"; did you mean latest-tag?`},
		{"waiver", "m.yaml", "  image:", "  # weir:waive latest-tag\n  image:", "m.yaml:2:3: waiver: the waiver of latest-tag gives no reason; write it behind a colon"},
	} {
		tested[c.rule] = true
		files := map[string]string{}
		for k, v := range sound {
			files[k] = v
		}
		text := files[c.file]
		switch {
		case c.old == "":
			text += c.new
		case !strings.Contains(text, c.old):
			t.Fatalf("%s: %s has no %q", c.rule, c.file, c.old)
		default:
			text = strings.Replace(text, c.old, c.new, 1)
		}
		files[c.file] = text
		if c.rule == "bilingual" && c.new == "" {
			delete(files, c.file)
		}
		if strings.Contains(c.new, "host-gb-per-rank") { // the pool is sized: no share is computed
			files[c.file] = strings.Replace(text, "dram-utilization: 0.80\n      ", "", 1)
			c.want = strings.Replace(c.want, ":19:35", ":18:35", 1)
		}
		if got, _ := run(t, files); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.rule, got, c.want)
		}
	}
	for _, r := range LintRules() {
		if !tested[r.ID] {
			t.Errorf("rule %s has no test", r.ID)
		}
		if r.Reason == "" || r.What == "" {
			t.Errorf("rule %s says nothing", r.ID)
		}
	}
}

// A waiver covers its line, the block below it, or the file; an engine patch needs a document.
func TestWaivers(t *testing.T) {
	bad := strings.Replace(fixedMaster, "image: lmsysorg/sglang:v0.5.17", "image: a/b:latest", 1)
	for name, c := range map[string]struct {
		master string
		waived int
	}{
		"line":        {strings.Replace(bad, "a/b:latest", "a/b:latest # weir:waive latest-tag: lab only", 1), 1},
		"above":       {strings.Replace(bad, "  image", "  # weir:waive latest-tag: lab only\n  # and more\n  image", 1), 1},
		"config":      {"# weir:waive latest-tag: lab only\n" + bad, 1},
		"file":        {bad + "# weir:waive-file latest-tag: lab only\n", 1},
		"another one": {"# weir:waive latest-tag: lab only\nd: &d\n" + strings.TrimPrefix(fixedMaster, "c:\n") + bad, 0},
	} {
		dir := lintDir(t, map[string]string{"m.yaml": c.master, "r.yaml": testRunners})
		rep, err := Lint(LintInput{Masters: []string{dir + "/m.yaml"}, Runners: dir + "/r.yaml"})
		if err != nil {
			t.Fatal(err)
		}
		if len(rep.Waived) != c.waived || c.waived == 1 && (len(rep.Findings) != 0 || rep.Waived[0].Waived != "lab only") {
			t.Errorf("%s: findings %q, waived %q", name, found(dir, rep.Findings), found(dir, rep.Waived))
		}
	}
	recipe := "engine: sglang\nsetup: git apply x.diff # weir:waive engine-patch: docs/waiver/7.md\n"
	for _, doc := range []string{"", "why and until when"} {
		files := map[string]string{"recipes/r.yaml": recipe}
		if doc != "" {
			files["docs/waiver/7.md"] = doc
		}
		dir := lintDir(t, files)
		rep, err := Lint(LintInput{Recipes: []string{dir + "/recipes"}})
		if err != nil {
			t.Fatal(err)
		}
		got := found(dir, rep.Findings)
		if doc == "" && !strings.Contains(got, "its waiver names no document that exists") || doc != "" && got != "" {
			t.Errorf("document %q: %s", doc, got)
		}
	}
}

// The golden curves of InferenceX fit the settings of its own files, and the files break one rule.
func TestLintOfInferenceX(t *testing.T) {
	rep, err := Lint(LintInput{Masters: []string{material.Path(t, "inferencex", "nvidia-master.yaml"), material.Path(t, "inferencex", "amd-master.yaml")},
		Runners: material.Path(t, "inferencex", "runners.yaml"), Golden: material.Path(t, "inferencex", "golden_al_distribution")})
	if err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for _, f := range rep.Findings {
		count[f.Rule]++
	}
	// Nine unused dram-utilization and eight runners without a label; one config with 1k1k.
	if len(count) != 2 || count["no-effect"] != 17 || count["deprecated-scenario"] != 1 {
		t.Errorf("findings by rule: %v", count)
	}
}
