package spec

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// bomb nests aliases so that they expand to 10^9 values.
func bomb() string {
	var b strings.Builder
	b.WriteString("x0: &x0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n")
	for i := 1; i < 9; i++ {
		fmt.Fprintf(&b, "x%d: &x%d [", i, i)
		for j := range 10 {
			if j > 0 {
				b.WriteString(", ")
			}
			fmt.Fprintf(&b, "*x%d", i-1)
		}
		b.WriteString("]\n")
	}
	return b.String()
}

// entryBomb makes many entries of few lines: each config has the search space of all others.
func entryBomb() string {
	var b strings.Builder
	b.WriteString(strings.Replace(fixedMaster, "search-space:", "search-space: &space", 1))
	for range 1000 {
		b.WriteString("      - { tp: 8, conc-list: [4] }\n")
	}
	for i := range 3000 {
		b.WriteString(strings.Replace(strings.Replace(fixedMaster[:strings.Index(fixedMaster, "      - {")],
			"search-space:", "search-space: *space", 1), "c:", fmt.Sprintf("c%d:", i), 1))
	}
	return b.String()
}

// What a hostile file does: it ends in a message or in points, without much memory.
func TestHostileFiles(t *testing.T) {
	deep := strings.Repeat("[", 100_000)
	for name, c := range map[string]struct{ master, want string }{
		"alias bomb":          {bomb(), "m.yaml:1:5: x0: is a list, but must be a mapping"},
		"entry bomb":          {entryBomb(), "aliases expand to more than 1000000 values; write the values out"},
		"alias to itself":     {"c: &a\n  image: *a\n  scenarios: *a\n", "c.image: is a mapping, but must be a string"},
		"merge of itself":     {"c: &a\n  <<: *a\n  image: x\n", "c.<<: is not a mapping that can be merged"},
		"deep nesting":        {deep, "is not YAML: exceeded max depth of 10000"},
		"deep in a field":     {strings.Replace(fixedMaster, "fp8", deep, 1), "is not YAML: exceeded max depth of 10000"},
		"deep mappings":       {strings.Repeat("{a: ", 20_000), "is not YAML: exceeded max depth of 10000"},
		"large scalar":        {"c: " + strings.Repeat("a", fileLimit), "m.yaml: the file has more than 16 MiB; split it"},
		"large name":          {strings.Repeat("a", 1<<20) + ": 1", "is not YAML: mapping values are not allowed in this context"},
		"many values":         {"c: [" + strings.Repeat("1,", 4_100_000) + "]", "m.yaml: the file can hold more than 4000000 values; split it"},
		"not UTF-8":           {"c: \"\xff\xfe\"\n", "m.yaml:1:1: is not YAML: invalid leading UTF-8 octet"},
		"half a character":    {"c: \xe4\xb8", "m.yaml:1:1: is not YAML: incomplete UTF-8 octet sequence"},
		"control character":   {"c: \x01\n", "m.yaml:1:1: is not YAML: control characters are not allowed"},
		"tab":                 {"c:\n\timage: a\n", "m.yaml:2:1: is not YAML: found character that cannot start any token"},
		"number of a tower":   {strings.Replace(agentMaster, "0.80", "1"+strings.Repeat("0", 100_000), 1), "is not written as a plain decimal number"},
		"exponent":            {strings.Replace(agentMaster, "0.80", "1.0e+999999999", 1), "is not written as a plain decimal number"},
		"long whole number":   {strings.Replace(fixedMaster, "tp: 8", "tp: "+strings.Repeat("9", 100_000), 1), "is over the limit of 2147483647"},
		"infinity":            {strings.Replace(agentMaster, "0.80", ".inf", 1), "is not written as a plain decimal number"},
		"not a number":        {strings.Replace(agentMaster, "0.80", ".NaN", 1), "is not written as a plain decimal number"},
		"unknown anchor":      {"c: *a\n", "m.yaml:1:1: is not YAML: unknown anchor 'a' referenced"},
		"tag of another tool": {"c: !!python/object:os.system x\n", "m.yaml:1:4: c: is"},
		"nothing":             {"", "m.yaml: the file is empty; add a config"},
		"null":                {"~\n", "m.yaml:1:1: the file holds ~, but must hold a mapping"},
		"binary":              {"\x00\x01\x02", "m.yaml:1:1: is not YAML: control characters are not allowed"},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			s, err := loadText(t, c.master, testRunners)
			runtime.ReadMemStats(&after)
			if err == nil {
				t.Fatalf("is accepted with %d configs", len(s.configs))
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %.600q, want %q", err.Error(), c.want)
			}
			// The parser takes about 200 bytes a value; the limits keep it to this.
			if used := after.TotalAlloc - before.TotalAlloc; used > 1<<30 {
				t.Errorf("took %d MiB", used>>20)
			}
		})
	}
}

// What YAML 1.1 means and YAML 1.2 does not: InferenceX reads with 1.1.
func TestScalarsOfYAML11(t *testing.T) {
	for value, want := range map[string]string{
		"yes": "a", "no": "", "On": "a", "off": "", "TRUE": "a", "False": "",
	} {
		s, err := loadText(t, strings.Replace(fixedMaster, "dp-attn: true", "dp-attn: "+value, 1), testRunners)
		if err != nil {
			t.Errorf("%s: %v", value, err)
			continue
		}
		p, _ := s.Points(Selection{})
		if p[0].Unified.DPAttn != (want == "a") {
			t.Errorf("dp-attn: %s is %t", value, p[0].Unified.DPAttn)
		}
	}
	for value, want := range map[string]int{"1_000": 1000, "0x10": 16, "0b11": 3, "+8": 8} {
		s, err := loadText(t, strings.Replace(fixedMaster, "conc-end: 64", "conc-end: "+value, 1), "")
		if want < 4 { // below the start: a rule, not a reading
			if err == nil {
				t.Errorf("%s is not read as %d", value, want)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", value, err)
			continue
		}
		p, _ := s.Points(Selection{})
		if got := p[len(p)-1].Conc; got != want {
			t.Errorf("conc-end: %s is %d, want %d", value, got, want)
		}
	}
	// A commit id that looks like a number to YAML 1.2 only.
	for _, version := range []string{"5e638087", "71eb001e17", "1.2.3", "v1", "1e3", "0o17", "12e03", "0.3.2rc1"} {
		if _, err := loadText(t, strings.Replace(multiMaster, `"1.2"`, version, 1), testRunners); err != nil {
			t.Errorf("version %s: %v", version, err)
		}
	}
}

// Merge keys and anchors, as a YAML 1.1 reader takes them.
func TestAnchorsAndMerges(t *testing.T) {
	text := strings.Replace(fixedMaster, "c:\n", "c: &base\n", 1) + "d:\n  <<: *base\n  precision: fp4\n"
	s, err := loadText(t, text, testRunners)
	if err != nil {
		t.Fatal(err)
	}
	p, err := s.Points(Selection{Keys: []string{"d"}})
	if err != nil || len(p) != 5 {
		t.Fatal(len(p), err)
	}
	if p[0].Precision != "fp4" || p[0].Model != "deepseek-ai/DeepSeek-R1" {
		t.Errorf("merged point %+v", p[0])
	}
}

// Older forms of InferenceX: a backend that is only named, runners without hardware.
func TestOlderForms(t *testing.T) {
	old := strings.Replace(agentMaster, `{ name: hicache, version: "1.2" }`, "hicache", 1)
	a, err := loadText(t, old, testRunners)
	if err != nil {
		t.Fatal(err)
	}
	b, err := loadText(t, strings.Replace(agentMaster, `, version: "1.2"`, "", 1), testRunners)
	if err != nil {
		t.Fatal(err)
	}
	m1, _ := a.Matrix(Selection{}, EvalsNone)
	m2, _ := b.Matrix(Selection{}, EvalsNone)
	if !bytes.Equal(m1.AppendJSON(nil), m2.AppendJSON(nil)) {
		t.Errorf("rows differ: %s\n%s", m1.AppendJSON(nil), m2.AppendJSON(nil))
	}
	s, err := loadText(t, fixedMaster, "cluster:b300-nv:\n- b300-nv_01\n- b300-nv_02\n")
	if err != nil {
		t.Fatal(err)
	}
	p, err := s.Points(Selection{RunnerNode: "_02"})
	if err != nil || len(p) != 5 || p[0].Runner != "b300-nv_02" || p[0].GPUsPerNode != 0 {
		t.Errorf("%d points, %v", len(p), err)
	}
}

// checkAccepted holds for every set that a reader accepts.
func checkAccepted(t *testing.T, s *Set) {
	for _, evals := range []Evals{EvalsMarked, EvalsNone, EvalsOnly, EvalsAll} {
		m, err := s.Matrix(Selection{}, evals)
		if err != nil {
			t.Fatal(err)
		}
		if m.Len() > 20_000 {
			return
		}
		if out := m.AppendJSON(nil); !json.Valid(out) {
			t.Fatalf("the matrix is not JSON: %.200s", out)
		}
		if evals != EvalsNone {
			continue
		}
		for i, p := range m.Points() {
			if p.GPUsPerNode < 0 || p.Conc < 1 || p.Offload.BudgetGB < 0 || p.Offload.BudgetGB > 1<<40 {
				t.Fatalf("point %+v", p)
			}
			if i < 3 {
				if _, err := m.Explain(p.ID()); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

func FuzzMaster(f *testing.F) {
	for _, s := range []string{fixedMaster, agentMaster, multiMaster, agenticMaster, "c: &a [*a]\n", "a: {<<: [{b: 1}, {c: 2}]}\n"} {
		f.Add([]byte(s))
	}
	forty, err := os.ReadFile(filepath.Join("testdata", "forty.yaml"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(forty)
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := parseSet([]string{"m.yaml", "runners.yaml"}, [][]byte{data, []byte(testRunners)}, true)
		if err == nil {
			checkAccepted(t, s)
			return
		}
		for _, line := range strings.Split(err.Error(), "\n") {
			if !strings.HasPrefix(line, "m.yaml") && len(data) < 200 && !bytes.ContainsAny(data, "\n\r\u0085\u2028\u2029") {
				t.Fatalf("message without a place: %q", line)
			}
		}
	})
}

func FuzzRunners(f *testing.F) {
	f.Add([]byte(testRunners))
	f.Add([]byte("a: [b]\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := parseSet([]string{"m.yaml", "runners.yaml"}, [][]byte{[]byte(agentMaster), data}, true)
		if err == nil {
			checkAccepted(t, s)
		}
	})
}

func FuzzChangelog(f *testing.F) {
	f.Add([]byte(oldLog), []byte(oldLog+"\n- config-keys: [c]\n  description: [d]\n  pr-link: XXX\n"))
	f.Add([]byte("# a\n"), []byte("# a\n- config-keys: [\"*\"]\n  description: [d]\n  pr-link: XXX\n  append-only: true\n"))
	set, err := parseSet([]string{"m.yaml", "runners.yaml"}, [][]byte{[]byte(agentMaster), []byte(testRunners)}, true)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, base, head []byte) {
		entries, err := AddedEntries("base", base, "head", head)
		if err != nil {
			return
		}
		b, err := set.Changelog(entries, ChangelogOptions{Base: set})
		if err != nil {
			return
		}
		if out := b.AppendJSON(nil, "a", "b"); !json.Valid(out) {
			t.Fatalf("the buckets are not JSON: %.200s", out)
		}
	})
}

func FuzzWorkflow(f *testing.F) {
	f.Add([]byte(templateWorkflow))
	f.Add([]byte(callerWorkflow))
	f.Fuzz(func(t *testing.T, data []byte) {
		w, err := parseWorkflow("w.yml", data)
		if err != nil {
			return
		}
		w.Check()
	})
}
