package spec

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

const bothMaster = `c-one:
  image: a/b:v1
  model: m
  model-prefix: m
  precision: fp8
  framework: sglang
  runner: cluster:b300-nv
  multinode: false
  scenarios:
    fixed-seq-len:
    - { isl: 8192, osl: 1024, search-space: [{ tp: 8, conc-list: [8, 16, 32, 64] }] }
    agentic-coding:
    - { search-space: [{ tp: 8, kv-offloading: none, conc-list: [1, 4, 2] }] }
c-two:
  image: a/b:v1
  model: m
  model-prefix: m
  precision: fp8
  framework: dynamo
  runner: cluster:b300-nv
  multinode: true
  scenarios:
    agentic-coding:
    - search-space:
      - { conc-list: [8, 16], prefill: { num-worker: 1, tp: 8, ep: 8, dp-attn: true }, decode: { num-worker: 1, tp: 8, ep: 1, dp-attn: false } }
      - { conc-list: [32, 16], prefill: { num-worker: 1, tp: 4, ep: 1, dp-attn: false }, decode: { num-worker: 1, tp: 8, ep: 1, dp-attn: false } }
`

// jobs are the jobs of a bucket as "name conc".
func jobs(t *testing.T, set *Set, log string, opt ChangelogOptions) (map[string][]string, error) {
	t.Helper()
	entries, err := ParseChangelog("log", []byte(log))
	if err != nil {
		return nil, err
	}
	b, err := set.Changelog(entries, opt)
	if err != nil {
		return nil, err
	}
	var v map[string]any
	if err := json.Unmarshal(b.AppendJSON(nil, "base", "head"), &v); err != nil {
		t.Fatal(err)
	}
	out := map[string][]string{}
	add := func(bucket string, rows any) {
		for _, r := range rows.([]any) {
			m := r.(map[string]any)
			out[bucket] = append(out[bucket], fmt.Sprint(m["exp-name"], " ", m["conc"]))
		}
	}
	for name, x := range v {
		switch x := x.(type) {
		case []any:
			add(name, x)
		case map[string]any:
			if name != "changelog_metadata" {
				for family, rows := range x {
					add(name+"/"+family, rows)
				}
			}
		}
	}
	return out, nil
}

func logEntry(keys, rest string) string {
	return "- config-keys: [" + keys + "]\n  description: [d]\n  pr-link: XXX\n" + rest
}

func TestChangelogBuckets(t *testing.T) {
	set, err := loadText(t, bothMaster, testRunners)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		log  string
		opt  ChangelogOptions
		want map[string]string
	}{
		"all of one": {logEntry("c-one", ""), ChangelogOptions{}, map[string]string{
			"single_node/8k1k":    "m_8k1k 8, m_8k1k 16, m_8k1k 32, m_8k1k 64",
			"single_node/agentic": "m_tp8_conc1_kvnone 1, m_tp8_conc4_kvnone 4, m_tp8_conc2_kvnone 2",
			"evals":               "m_8k1k 32, m_8k1k 64", // the highest and the upper median of 16 32 64
			"agentic_evals":       "m_tp8_conc4_kvnone 4"}},
		"several nodes": {logEntry(`"c-t*"`, ""), ChangelogOptions{}, map[string]string{
			"multi_node/agentic":      "m_p1x8ep8dpa_d1x8_conc8 [8], m_p1x8ep8dpa_d1x8_conc16 [16], m_p1x4_d1x8_conc32 [32], m_p1x4_d1x8_conc16 [16]",
			"multinode_agentic_evals": "m_p1x8ep8dpa_d1x8_conc16 [16], m_p1x4_d1x8_conc32 [32]"}},
		"a scenario": {logEntry("c-one", "  scenario-type: [agentic-coding]\n"), ChangelogOptions{}, map[string]string{
			"single_node/agentic": "m_tp8_conc1_kvnone 1, m_tp8_conc4_kvnone 4, m_tp8_conc2_kvnone 2",
			"agentic_evals":       "m_tp8_conc4_kvnone 4"}},
		"overlapping entries": {logEntry(`"c-*"`, "  scenario-type: [agentic-coding]\n") + logEntry("c-one", ""), ChangelogOptions{TrimConc: true}, map[string]string{
			"single_node/8k1k":        "m_8k1k 8",
			"single_node/agentic":     "m_tp8_conc1_kvnone 1",
			"multi_node/agentic":      "m_p1x8ep8dpa_d1x8_conc8 [8], m_p1x8ep8dpa_d1x8_conc16 [16], m_p1x4_d1x8_conc32 [32], m_p1x4_d1x8_conc16 [16]",
			"evals":                   "m_8k1k 32, m_8k1k 64",
			"agentic_evals":           "m_tp8_conc4_kvnone 4",
			"multinode_agentic_evals": "m_p1x8ep8dpa_d1x8_conc16 [16], m_p1x4_d1x8_conc32 [32]"}},
		"evaluations only": {logEntry("c-one", "  evals-only: true\n"), ChangelogOptions{}, map[string]string{
			"evals": "m_8k1k 32, m_8k1k 64", "agentic_evals": "m_tp8_conc4_kvnone 4"}},
		"all evaluations, which win over a later narrower entry": {logEntry("c-one", "") + logEntry("c-one", "  all-evals: true\n"), ChangelogOptions{}, map[string]string{
			"single_node/8k1k":    "m_8k1k 8, m_8k1k 16, m_8k1k 32, m_8k1k 64",
			"single_node/agentic": "m_tp8_conc1_kvnone 1, m_tp8_conc4_kvnone 4, m_tp8_conc2_kvnone 2",
			"evals":               "m_8k1k 8, m_8k1k 16, m_8k1k 32, m_8k1k 64",
			"agentic_evals":       "m_tp8_conc1_kvnone 1, m_tp8_conc4_kvnone 4, m_tp8_conc2_kvnone 2"}},
		"merged evaluations": {logEntry("c-two", "  all-evals: true\n"), ChangelogOptions{}, map[string]string{
			"multinode_agentic_evals": "m_p1x8ep8dpa_d1x8_conc8 [8 16], m_p1x4_d1x8_conc32 [16 32]"}},
		"from a prefill ep on": {logEntry("c-two", "  evals-only: true\n  eval-min-prefill-ep: 8\n"), ChangelogOptions{}, map[string]string{
			"multinode_agentic_evals": "m_p1x8ep8dpa_d1x8_conc16 [16]"}},
	} {
		got, err := jobs(t, set, c.log, c.opt)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for bucket := range merged(got, c.want) {
			if g := strings.Join(got[bucket], ", "); g != c.want[bucket] {
				t.Errorf("%s: %s\n got %s\nwant %s", name, bucket, g, c.want[bucket])
			}
		}
	}
}

func merged[A, B any](a map[string]A, b map[string]B) map[string]bool {
	out := map[string]bool{}
	for k := range a {
		out[k] = true
	}
	for k := range b {
		out[k] = true
	}
	return out
}

func TestAppendOnly(t *testing.T) {
	base, err := loadText(t, bothMaster, testRunners)
	if err != nil {
		t.Fatal(err)
	}
	entry := logEntry("c-one", "  append-only: true\n  scenario-type: [agentic-coding]\n")
	for name, c := range map[string]struct{ old, new, want string }{
		"a concurrency":      {"conc-list: [1, 4, 2]", "conc-list: [1, 4, 2, 8]", "m_tp8_conc8_kvnone 8"},
		"a topology":         {"conc-list: [1, 4, 2] }]", "conc-list: [1, 4, 2] }, { tp: 4, kv-offloading: none, conc-list: [1] }]", "m_tp4_conc1_kvnone 1"},
		"layout and comment": {"conc-list: [1, 4, 2] }] }", "conc-list: [8, 1, 4, 2] }] } # more", "m_tp8_conc8_kvnone 8"},
		"nothing":            {"", "", "log:1:3: append-only, and no point was added; add one, or use an entry without append-only"},
		"a point less":       {"[1, 4, 2]", "[1, 4, 8]", "log:1:3: append-only, and concurrency 2 of m_tp8_conc1_kvnone was removed; restore it"},
		"another topology":   {"tp: 8, kv-offloading", "tp: 4, kv-offloading", "log:1:3: append-only, and the points of m_tp8_conc1_kvnone of the base revision (line 13) were removed or changed; restore them"},
		"another scenario":   {"tp: 8, conc-list: [8,", "tp: 8, conc-list: [4, 8,", "m.yaml:11:5: append-only for other scenarios, and fixed-seq-len of c-one changed; name the scenario in scenario-type or restore it"},
		"another config":     {"framework: dynamo", "framework: other", "m.yaml:14:1: append-only, and config c-two changed, which no entry names; make it two changes"},
		"a field of all":     {"image: a/b:v1", "image: a/b:v2", "m.yaml:1:1: append-only for some scenarios, and image of c-one changed, which reaches the others; restore it"},
		"a new series":       {"conc-list: [1, 4, 2] }]", "conc-list: [1, 4, 2] }, { tp: 8, kv-offloading: dram, kv-offload-backend: hicache, weir: { host-ratio: 1 }, conc-list: [1] }]", "m.yaml:13:78: append-only, and m_tp8_conc1_kvdram-hicache belongs to no curve of the base revision with the image a/b:v1; use an entry without append-only"},
	} {
		head, err := loadText(t, strings.Replace(bothMaster, c.old, c.new, 1), testRunners)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got, err := jobs(t, head, entry, ChangelogOptions{Base: base})
		if err != nil {
			if err.Error() != c.want {
				t.Errorf("%s:\n got %v\nwant %s", name, err, c.want)
			}
			continue
		}
		if g := strings.Join(got["single_node/agentic"], ", "); g != c.want || len(got) != 1 {
			t.Errorf("%s: %v, want %s", name, got, c.want)
		}
	}
	without := func(text, from, to string) string {
		i := strings.Index(text, from)
		return text[:i] + text[i+strings.Index(text[i:], to):]
	}
	fixedOnly := without(bothMaster, "    agentic-coding:", "c-two:")
	for name, c := range map[string]struct{ base, head, log, want string }{
		"a new config": {fixedOnly[:strings.Index(fixedOnly, "c-two:")], bothMaster, logEntry("c-two", "  append-only: true\n"),
			"m.yaml:1:1: append-only, and config c-one changed, which no entry names; make it two changes\nm.yaml:14:1: append-only, and config c-two is not in the base revision; use an entry without append-only"},
		"a config less": {bothMaster, bothMaster[:strings.Index(bothMaster, "c-two:")], entry,
			"log:1:3: append-only, and config c-two was removed; restore it"},
		"a scenario more": {fixedOnly, bothMaster, entry,
			"m.yaml:1:1: append-only, and scenario agentic-coding of c-one was added or removed; use an entry without append-only"},
		"no points before": {fixedOnly, fixedOnly, entry,
			"log:1:3: append-only, and the base revision has no points for this entry; use an entry without append-only"},
	} {
		base, err := loadText(t, c.base, testRunners)
		if err != nil {
			t.Fatal(err)
		}
		head, err := loadText(t, c.head, testRunners)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := jobs(t, head, c.log, ChangelogOptions{Base: base}); err == nil || err.Error() != c.want {
			t.Errorf("%s:\n got %v\nwant %s", name, err, c.want)
		}
	}
	for name, c := range map[string]struct {
		log  string
		opt  ChangelogOptions
		want string
	}{
		"with others":     {entry + logEntry("c-two", ""), ChangelogOptions{Base: base}, "log:1:3: append-only stands in one change with other entries; make them two changes"},
		"without base":    {entry, ChangelogOptions{}, "log:1:3: append-only needs the configs of the base revision; give them: --base-ref, or --base-config-files with --base-runner-config"},
		"all evaluations": {entry, ChangelogOptions{Base: base, AllEvals: true}, "log:1:3: append-only adds throughput points only, and all evaluations were asked for; leave out --all-evals and --evals-only"},
	} {
		if _, err := jobs(t, base, c.log, c.opt); err == nil || err.Error() != c.want {
			t.Errorf("%s:\n got %v\nwant %s", name, err, c.want)
		}
	}
}

func TestChangelogRules(t *testing.T) {
	for want, log := range map[string]string{
		`log:1:3: [0]: config-keys is missing; add 'config-keys: [name-of-a-config]'`:                                            "- description: [d]\n  pr-link: XXX\n",
		`log:1:16: [0].config-keys: is empty; name a config`:                                                                     "- config-keys: []\n  description: [d]\n  pr-link: XXX\n",
		`log:2:16: [0].description: is "d", but must be a list; write it as a list: [a, b] or lines that begin with '- '`:        "- config-keys: [a]\n  description: d\n  pr-link: XXX\n",
		`log:2:16: [0].description: is empty; say what changed`:                                                                  "- config-keys: [a]\n  description: []\n  pr-link: XXX\n",
		`log:3:12: [0].pr-link: 7 is read as a whole number, but must be a string; write "7"`:                                    "- config-keys: [a]\n  description: [d]\n  pr-link: 7\n",
		`log:4:3: [0].evalsonly: unknown key; did you mean evals-only?`:                                                          logEntry("a", "  evalsonly: true\n"),
		`log:4:15: [0].evals-only: "x" is not true or false; write true or false`:                                                logEntry("a", "  evals-only: x\n"),
		`log:4:24: [0].eval-min-prefill-ep: 0 is less than 1; write 1 or more`:                                                   logEntry("a", "  eval-min-prefill-ep: 0\n"),
		`log:4:19: [0].scenario-type[0]: "agentic" is not known here; use fixed-seq-len or agentic-coding`:                       logEntry("a", "  scenario-type: [agentic]\n"),
		`log:4:18: [0].scenario-type: is empty; name a scenario or remove the key`:                                               logEntry("a", "  scenario-type: []\n"),
		`log:4:14: [0].all-evals: all-evals stands beside append-only, which adds throughput points only; remove one of the two`: logEntry("a", "  all-evals: true\n  append-only: true\n"),
		`log:1:1: is a mapping, but must be a list; write it as a list: [a, b] or lines that begin with '- '`:                    "a: b\n",
	} {
		if _, err := ParseChangelog("log", []byte(log)); err == nil || err.Error() != want {
			t.Errorf("\n got %v\nwant %s", err, want)
		}
	}
	set, err := loadText(t, bothMaster, testRunners)
	if err != nil {
		t.Fatal(err)
	}
	_, err = jobs(t, set, logEntry(`c-oen, "x*"`, ""), ChangelogOptions{})
	if want := "log:1:17: config-keys: no config matches \"c-oen\"; did you mean c-one?\nlog:1:24: config-keys: no config matches \"x*\"; name a config of m.yaml"; err == nil || err.Error() != want {
		t.Errorf("\n got %v\nwant %s", err, want)
	}
}

// Whatever an entry says comes back when the changelog is read, and what was there is there byte
// for byte.
func TestAppendChangelogRoundTrip(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(r *rapid.T) {
		text := rapid.StringOfN(rapid.RuneFrom([]rune("ab :#'\"\\-*&!%@`{}[]|>?,é汉字\n\t0123trueno~=")), 1, 30, -1).
			Filter(func(s string) bool { return strings.TrimSpace(s) != "" })
		e := &ChangelogEntry{ConfigKeys: rapid.SliceOfN(text, 1, 3).Draw(r, "keys"), Description: rapid.SliceOfN(text, 1, 3).Draw(r, "description"),
			PRLink: text.Draw(r, "link"), AppendOnly: rapid.Bool().Draw(r, "append")}
		if !e.AppendOnly {
			e.EvalsOnly, e.EvalMinPrefillEP = rapid.Bool().Draw(r, "evals"), rapid.IntRange(0, 9).Draw(r, "ep")
		}
		if rapid.Bool().Draw(r, "scenario") {
			e.Scenarios = []Scenario{AgenticCoding}
		}
		old := rapid.SampledFrom([]string{oldLog, strings.TrimSuffix(oldLog, "\n"), oldLog + "\n", "", "# a log\r\n"}).Draw(r, "old")
		file := filepath.Join(dir, "log.yaml")
		if err := os.WriteFile(file, []byte(old), 0o644); err != nil {
			r.Fatal(err)
		}
		line, err := AppendChangelog(file, e)
		if err != nil {
			r.Fatal(err)
		}
		now, err := os.ReadFile(file)
		if err != nil {
			r.Fatal(err)
		}
		if !bytes.HasPrefix(now, []byte(old)) {
			r.Fatalf("the old bytes changed: %q", now)
		}
		entries, err := ParseChangelog(file, now)
		if err != nil {
			r.Fatalf("%v\n%s", err, now)
		}
		got := entries[len(entries)-1]
		if got.at.Line != line {
			r.Fatalf("the entry is on line %d, said %d", got.at.Line, line)
		}
		got.at, got.keysAt = Pos{}, nil
		if string(mustJSON(got)) != string(mustJSON(e)) {
			r.Fatalf("read %s, wrote %s", mustJSON(got), mustJSON(e))
		}
		if old != "" {
			added, err := AddedEntries("base", []byte(old), "head", now)
			if err != nil || len(added) != 1 {
				r.Fatalf("added %d, %v", len(added), err)
			}
		}
	})
}
