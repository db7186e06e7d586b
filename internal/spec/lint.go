package spec

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strings"
)

// A LintRule is something that a benchmark publisher enforces beyond what makes a file valid.
type LintRule struct {
	ID     string `json:"id"`
	What   string `json:"what"`
	Reason string `json:"reason"`
}

// LintRules are all rules. A rule is waived in the file by a comment with a reason:
//
//	# weir:waive golden-al: measured with another sampler, see issue 12
//
// At the end of a line it covers the line; on a line of its own the value that begins on the next
// line, with all that is indented below it; as weir:waive-file the whole file.
func LintRules() []LintRule { return append([]LintRule{}, lintRules...) }

var lintRules = []LintRule{
	{"dram-share", "host memory is at most the share of the node's GPUs that are used, of at most 3 TB where the node has no standard capacity",
		"more memory per GPU than a customer would buy makes a configuration look better than it is (InferenceX MODELS.md, 2026-08)"},
	{"golden-al", "a simulated acceptance length is the golden one for model, thinking mode and draft length",
		"replayed text is accepted more often than real text; the golden curves are measured on real coding prompts"},
	{"engine-patch", "a recipe does not patch the engine; a waiver names a waiver document that exists",
		"a result has to be reproducible with the image as published (InferenceX PR checklist, 2026-08)"},
	{"image-recipe", "the image of the config is the container of its recipe",
		"a result is shown under the image of the config; another container ran otherwise"},
	{"chat-template", "a recipe with speculative decoding sends prompts through the chat template",
		"without it the draft model sees text unlike its training, and acceptance is not that of real use"},
	{"pd-equal", "context length and page size are equal on prefill and decode",
		"unequal pages cannot be transferred block by block, and unequal lengths fail late, on the longest request"},
	{"warmup-window", "the warm-up grace is not above the measured window",
		"a warm-up that may outlast the window leaves a run in which little of the load was measured"},
	{"deprecated-scenario", "no scenario is used that is no longer published",
		"1k1k is deprecated for all models since 2026-07-17 (InferenceX MODELS.md)"},
	{"no-version", "an image has a tag or digest", "a result without a version cannot be compared or repeated"},
	{"latest-tag", "an image has no moving tag", "the same file measures something else tomorrow"},
	{"bilingual", "English and Chinese stand side by side where the project asks for both",
		"readers of either language get the same instructions (InferenceX AGENTS.md, 2026-08)"},
	{"no-effect", "a field that is accepted has an effect, and a runner is listed",
		"a value without a consumer is read as if it were in force"},
	{"waiver", "a waiver names a rule, gives a reason and waives something", "stale waivers hide the next fault"},
}

func ruleIDs() []string {
	out := make([]string, len(lintRules))
	for i, r := range lintRules {
		out[i] = r.ID
	}
	return out
}

// A Finding is one place that breaks a rule. Waived is the reason when it is waived.
type Finding struct {
	At     Pos    `json:"at"`
	Rule   string `json:"rule"`
	What   string `json:"what"`
	Fix    string `json:"fix"`
	Waived string `json:"waived,omitempty"`
}

func (f Finding) String() string {
	s := fmt.Sprintf("%s: %s: %s; %s", f.At, f.Rule, f.What, f.Fix)
	if f.Waived != "" {
		s += " (waived: " + f.Waived + ")"
	}
	return s
}

// LintInput names what is checked; an empty field leaves its rules out.
type LintInput struct {
	Masters   []string
	Runners   string
	Recipes   []string // recipe files and scripts, or folders of them
	Golden    string   // folder of golden acceptance lengths
	Bilingual []string // folders and pages that must exist in both languages, texts that must hold both
}

// LintReport is the outcome. Skipped says which rules had nothing to look at, and why.
type LintReport struct {
	Findings []Finding `json:"findings"`
	Waived   []Finding `json:"waived"`
	Skipped  []string  `json:"skipped"`
}

// linter collects findings and the waivers of the files it reads.
type linter struct {
	in       LintInput
	set      *Set
	curves   []curve
	recipes  []*recipeFile
	findings []Finding
	waivers  map[string][]*waiver // by file
	files    []string
}

func (l *linter) add(at Pos, rule, what, fix string) {
	l.findings = append(l.findings, Finding{At: at, Rule: rule, What: what, Fix: fix})
}

// Lint checks the rules. Files that are not valid are an error (Problems).
func Lint(in LintInput) (*LintReport, error) {
	l := &linter{in: in, waivers: map[string][]*waiver{}}
	var skipped []string
	skip := func(rules, why string) { skipped = append(skipped, rules+": "+why) }
	if len(in.Masters) > 0 {
		set, err := Load(in.Masters, in.Runners)
		if err != nil {
			return nil, err
		}
		l.set = set
		for _, f := range set.masterFiles() {
			if err := l.readWaivers(f); err != nil {
				return nil, err
			}
		}
	} else {
		skip("dram-share, deprecated-scenario, no-effect", "no master file was named")
	}
	if in.Golden != "" {
		var err error
		if l.curves, err = readCurves(in.Golden); err != nil {
			return nil, err
		}
	} else {
		skip("golden-al", "no folder of golden curves was named (--golden)")
	}
	if len(in.Recipes) > 0 {
		if err := l.readRecipes(); err != nil {
			return nil, err
		}
	} else {
		skip("engine-patch, image-recipe, chat-template, pd-equal", "no recipe was named (--recipes)")
	}
	if len(in.Bilingual) > 0 {
		if err := l.checkBilingual(); err != nil {
			return nil, err
		}
	} else {
		skip("bilingual", "the project asks for it nowhere (--bilingual)")
	}
	if l.set != nil {
		l.checkConfigs()
	}
	for _, r := range l.recipes {
		l.checkRecipe(r)
	}
	return l.report(skipped), nil
}

// report applies the waivers and puts findings in file order.
func (l *linter) report(skipped []string) *LintReport {
	out := &LintReport{Findings: []Finding{}, Waived: []Finding{}, Skipped: append([]string{}, skipped...)}
	var kept []Finding
	for _, f := range l.findings {
		if w := l.waiverOf(f); w != nil {
			w.used = true
			if f.Rule == "engine-patch" && !w.namesFile() {
				f.What += " (its waiver names no document that exists)"
				f.Fix = "write '# weir:waive engine-patch: path/of/waiver.md' with the patch, the reason, the upstream link and when it goes"
				kept = append(kept, f)
				continue
			}
			f.Waived = w.text
			out.Waived = append(out.Waived, f)
			continue
		}
		kept = append(kept, f)
	}
	for _, file := range sortedKeys(l.waivers) {
		for _, w := range l.waivers[file] {
			switch {
			case !contains(ruleIDs(), w.rule):
				fix := "use one of " + strings.Join(ruleIDs(), ", ")
				if near := nearest(w.rule, ruleIDs()); near != "" {
					fix = "did you mean " + near + "?"
				}
				kept = append(kept, Finding{At: w.at, Rule: "waiver", What: fmt.Sprintf("no rule has the id %q", w.rule), Fix: fix})
			case w.text == "":
				kept = append(kept, Finding{At: w.at, Rule: "waiver", What: "the waiver of " + w.rule + " gives no reason", Fix: "write it behind a colon"})
			case !w.used:
				kept = append(kept, Finding{At: w.at, Rule: "waiver", What: "the waiver of " + w.rule + " waives nothing", Fix: "remove it"})
			}
		}
	}
	rank := map[string]int{}
	for i, f := range l.files {
		rank[f] = i
	}
	order := func(fs []Finding) {
		sort.SliceStable(fs, func(i, j int) bool {
			a, b := fs[i].At, fs[j].At
			if a.File != b.File {
				return rank[a.File] < rank[b.File]
			}
			return a.Line < b.Line
		})
	}
	order(kept)
	order(out.Waived)
	out.Findings = append(out.Findings, kept...)
	return out
}

// A waiver covers lines of a file for one rule.
type waiver struct {
	rule, text string
	at         Pos
	from, to   int
	used       bool
}

var waiverComment = regexp.MustCompile(`#\s*weir:waive(-file)?\s+([A-Za-z0-9-]+)\s*:?\s*(.*)$`)

// readWaivers reads the waivers of a file.
func (l *linter) readWaivers(file string) error {
	data, err := readFile(file)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	l.files = append(l.files, file)
	l.waivers[file] = parseWaivers(file, string(data))
	return nil
}

func parseWaivers(file, text string) []*waiver {
	var out []*waiver
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		m := waiverComment.FindStringSubmatchIndex(line)
		if m == nil {
			continue
		}
		w := &waiver{rule: line[m[4]:m[5]], text: strings.TrimSpace(line[m[6]:m[7]]),
			at: Pos{file, i + 1, m[0] + 1}, from: i + 1, to: i + 1}
		switch {
		case m[2] >= 0:
			w.from, w.to = 1, len(lines)
		case strings.TrimSpace(line[:m[0]]) == "":
			w.from, w.to = blockAfter(lines, i+1)
		}
		out = append(out, w)
	}
	return out
}

// blockAfter is the first line from index i on that is neither empty nor a comment, and the last
// line that is indented below it, both counted from 1.
func blockAfter(lines []string, i int) (from, to int) {
	blank := func(s string) bool {
		t := strings.TrimSpace(s)
		return t == "" || t[0] == '#'
	}
	indent := func(s string) int { return len(s) - len(strings.TrimLeft(s, " ")) }
	for i < len(lines) && blank(lines[i]) {
		i++
	}
	if i == len(lines) {
		return i, i
	}
	from, to = i+1, i+1
	for j := i + 1; j < len(lines); j++ {
		if blank(lines[j]) {
			continue
		}
		if indent(lines[j]) <= indent(lines[i]) {
			break
		}
		to = j + 1
	}
	return from, to
}

func (l *linter) waiverOf(f Finding) *waiver {
	for _, w := range l.waivers[f.At.File] {
		if w.rule == f.Rule && w.text != "" && f.At.Line >= w.from && f.At.Line <= w.to {
			return w
		}
	}
	return nil
}

// namesFile says whether the text of a waiver has the path of a file, seen from the working
// directory, from the waived file or from a folder above it.
func (w *waiver) namesFile() bool {
	for _, word := range strings.Fields(w.text) {
		word = strings.Trim(word, `"'()[],;`)
		if !strings.ContainsAny(word, "./") {
			continue
		}
		dirs := []string{"."}
		for d, n := filepath.Dir(w.at.File), 0; n < 8; d, n = filepath.Join(d, ".."), n+1 {
			dirs = append(dirs, d)
		}
		for _, d := range dirs {
			if st, err := os.Stat(filepath.Join(d, word)); err == nil && st.Mode().IsRegular() && st.Size() > 0 {
				return true
			}
		}
	}
	return false
}

// walkFiles lists the regular files of a folder with one of the endings, or the file itself.
func walkFiles(root string, endings ...string) ([]string, error) {
	st, err := os.Stat(root)
	if err != nil {
		return nil, err
	}
	if !st.IsDir() {
		return []string{root}, nil
	}
	var out []string
	// The separator makes a link to a folder be followed.
	err = filepath.WalkDir(root+string(filepath.Separator), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.Type().IsRegular() && contains(endings, filepath.Ext(path)) {
			out = append(out, path)
		}
		return nil
	})
	return out, err
}
