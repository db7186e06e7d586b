package spec

import (
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/weirbench/weir/internal/material"
)

// The case that stands beside InferenceX's files: one entry added, six jobs and four evaluations.
func TestChangelogEqualsInferenceX(t *testing.T) {
	at := func(name string) string { return material.Path(t, "inferencex", "changelog-49ac5c0a0", name) }
	read := func(name string) []byte {
		b, err := os.ReadFile(at(name))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	set, err := Load([]string{at("amd-master.yaml"), at("nvidia-master.yaml")}, at("runners.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	entries, err := AddedEntries("base", read("base-perf-changelog.yaml"), "head", read("head-perf-changelog.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 1 || entries[0].ConfigKeys[0] != "minimaxm3-fp4-gb300-dynamo-vllm-agentic-mtp-disagg" {
		t.Fatalf("entries %+v", entries)
	}
	b, err := set.Changelog(entries, ChangelogOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var got, want map[string]any
	if err := json.Unmarshal(b.AppendJSON(nil, "base", "head"), &got); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(read("expected.json"), &want); err != nil {
		t.Fatal(err)
	}
	delete(got, "changelog_metadata")
	normalize(got)
	normalize(want)
	if !reflect.DeepEqual(got, want) {
		g, _ := json.MarshalIndent(got, "", " ")
		w, _ := json.MarshalIndent(want, "", " ")
		t.Errorf("got %s\nwant %s", g, w)
	}
}

// normalize removes fingerprints and fields that have their default.
func normalize(v any) {
	switch v := v.(type) {
	case map[string]any:
		delete(v, "recipe-fingerprint")
		for k, e := range v {
			if e == false && (k == "run-eval" || k == "eval-only" || k == "eval-all-concs") {
				delete(v, k)
				continue
			}
			if l, ok := e.([]any); ok && len(l) == 0 && k == "additional-settings" {
				delete(v, k)
				continue
			}
			normalize(e)
		}
	case []any:
		for _, e := range v {
			normalize(e)
		}
	}
}

const oldLog = `- config-keys:
    - a
  description:
    - "one"
  pr-link: XXX

- config-keys:
    - b
  description:
    - "two"
  pr-link: XXX
`

func TestChangelogOnlyGrows(t *testing.T) {
	more := "\n- config-keys: [c]\n  description: [\"three\"]\n  pr-link: XXX\n"
	keys := func(es []*ChangelogEntry) (out []string) {
		for _, e := range es {
			out = append(out, e.ConfigKeys...)
		}
		return out
	}
	for name, head := range map[string]string{
		"at the end":           oldLog + more,
		"white space changed":  strings.ReplaceAll(oldLog, "XXX\n\n", "XXX  \n\n\n") + more,
		"without a last line":  strings.TrimSuffix(oldLog+more, "\n"),
		"between two entries":  strings.Replace(oldLog, "\n- config-keys:\n    - b", more+"\n- config-keys:\n    - b", 1),
		"with a comment":       oldLog + "\n# after the move\n" + more,
		"before the first one": strings.TrimPrefix(more, "\n") + "\n" + oldLog,
	} {
		es, err := AddedEntries("base", []byte(oldLog), "head", []byte(head))
		if err != nil || len(es) != 1 || keys(es)[0] != "c" {
			t.Errorf("%s: %v, %v", name, keys(es), err)
		}
	}
	for name, c := range map[string]struct{ head, want string }{
		"deleted entry": {"- config-keys:\n    - a\n  description:\n    - \"one\"\n  pr-link: XXX\n" + more,
			`head: line 7 of base was deleted or changed: "- config-keys:"; restore it and append a new entry: the changelog is a log, old lines stay`},
		"edited line": {strings.Replace(oldLog, "two", "2", 1) + more,
			`head:10:1: line 10 of base was deleted or changed: "- \"two\""; restore it and append a new entry: the changelog is a log, old lines stay`},
		"line added to an old entry": {strings.Replace(oldLog, `"one"`, "\"one\"\n    - \"more\"", 1),
			`head:5:1: line 5 of base was deleted or changed: "pr-link: XXX"; restore it and append a new entry: the changelog is a log, old lines stay`},
		"line added at the end of an old entry": {oldLog + "  evals-only: true\n",
			`head:12:1: the entry at line 7 of base was changed: "evals-only: true" was added to it; restore it and append a new entry: the changelog is a log, old lines stay`},
		"only a comment": {oldLog + "# the end\n", "head: what was added since base holds no entry; append one"},
		"nothing":        {oldLog, "head: nothing was added since base; append an entry"},
		"white space":    {oldLog + "\n\n", "head: nothing was added since base but white space; append an entry"},
	} {
		_, err := AddedEntries("base", []byte(oldLog), "head", []byte(c.head))
		if err == nil || err.Error() != c.want {
			t.Errorf("%s:\n got %v\nwant %s", name, err, c.want)
		}
	}
}
