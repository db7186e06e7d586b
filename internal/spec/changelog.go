package spec

import (
	"bytes"
	"fmt"
	"strings"
)

// A ChangelogEntry asks for the points of some configs to be measured again.
type ChangelogEntry struct {
	ConfigKeys       []string   `json:"config-keys"` // * matches any text
	Description      []string   `json:"description"`
	PRLink           string     `json:"pr-link"`
	EvalsOnly        bool       `json:"evals-only"`
	AllEvals         bool       `json:"all-evals"`
	AppendOnly       bool       `json:"append-only"`
	EvalMinPrefillEP int        `json:"eval-min-prefill-ep,omitempty"` // 0 keeps all
	Scenarios        []Scenario `json:"scenario-type,omitempty"`       // empty is all

	keysAt []Pos
	at     Pos
}

var changelogKeys = []string{"config-keys", "description", "pr-link", "evals-only", "all-evals",
	"append-only", "eval-min-prefill-ep", "scenario-type"}

// ParseChangelog reads perf-changelog.yaml. The error is Problems.
func ParseChangelog(file string, data []byte) ([]*ChangelogEntry, error) {
	src := &source{file: file}
	var out []*ChangelogEntry
	if top := src.parse(data); top != nil {
		for _, it := range top.items() {
			out = append(out, readChangelogEntry(it))
		}
	}
	if len(src.problems) > 0 {
		return nil, src.problems.sorted([]string{file})
	}
	return out, nil
}

func readChangelogEntry(n *node) *ChangelogEntry {
	e := &ChangelogEntry{at: n.pos()}
	o := n.object(changelogKeys)
	if v := o.need("config-keys", "[name-of-a-config]"); v != nil {
		for _, it := range v.items() {
			if s := it.str(); s.set() {
				e.ConfigKeys = append(e.ConfigKeys, s.V)
				e.keysAt = append(e.keysAt, s.At)
			}
		}
		if v.y.Kind == yamlSequence && len(v.y.Content) == 0 {
			v.fail("is empty", "name a config")
		}
	}
	if v := o.need("description", "[what changed]"); v != nil {
		for _, it := range v.items() {
			if s := it.str(); s.set() {
				e.Description = append(e.Description, s.V)
			}
		}
		if v.y.Kind == yamlSequence && len(v.y.Content) == 0 {
			v.fail("is empty", "say what changed")
		}
	}
	if v := o.need("pr-link", "XXX"); v != nil {
		e.PRLink = v.str().V
	}
	flag := func(key string) bool {
		if v := o.get(key); v != nil {
			return v.boolean().V
		}
		return false
	}
	e.EvalsOnly, e.AllEvals, e.AppendOnly = flag("evals-only"), flag("all-evals"), flag("append-only")
	e.EvalMinPrefillEP = o.optInt("eval-min-prefill-ep").V
	if v := o.get("scenario-type"); v != nil {
		for _, it := range v.items() {
			if s := it.oneOf(string(FixedSeqLen), string(AgenticCoding)); s.set() {
				e.Scenarios = append(e.Scenarios, Scenario(s.V))
			}
		}
		if v.y.Kind == yamlSequence && len(v.y.Content) == 0 {
			v.fail("is empty", "name a scenario or remove the key")
		}
	}
	if e.AppendOnly {
		for _, key := range []string{"evals-only", "all-evals", "eval-min-prefill-ep"} {
			if v := o.get(key); v != nil && (key == "eval-min-prefill-ep" || v.boolean().V) {
				v.fail(key+" stands beside append-only, which adds throughput points only", "remove one of the two")
			}
		}
	}
	return e
}

// A piece is the text of one entry: its lines without trailing blanks and without empty lines,
// and where each stands.
type piece struct {
	text  string
	lines []string
	first int // line of the file, from 1
	at    []int
}

// pieces splits a changelog at the lines that begin an entry. What stands before the first
// entry is a piece of its own, and so are comments at the margin.
func pieces(data []byte) []piece {
	var out []piece
	var cur *piece
	for i, raw := range bytes.Split(data, []byte("\n")) {
		line := strings.TrimRight(string(raw), " \t\r")
		if line == "" {
			continue
		}
		entry := strings.HasPrefix(line, "- ") || line == "-"
		comment := line[0] == '#' && cur != nil && cur.lines[0][0] != '#'
		if cur == nil || entry || comment {
			out = append(out, piece{first: i + 1})
			cur = &out[len(out)-1]
		}
		cur.lines = append(cur.lines, line)
		cur.at = append(cur.at, i+1)
	}
	for i := range out {
		out[i].text = strings.Join(out[i].lines, "\n")
	}
	return out
}

// AddedEntries returns the entries of head that base does not have. A changelog only grows: when
// a line of base is gone or changed in head (empty lines and blanks at the end of a line aside),
// the error names the line. Both must be changelogs by ParseChangelog's rules; of base only the
// text matters.
func AddedEntries(baseFile string, base []byte, headFile string, head []byte) ([]*ChangelogEntry, error) {
	if bytes.Equal(base, head) {
		return nil, fmt.Errorf("%s: nothing was added since %s; append an entry", headFile, baseFile)
	}
	old, now := pieces(base), pieces(head)
	added := map[int]bool{} // line of head on which an added entry begins
	j := 0
	for i, p := range old {
		from := j
		for j < len(now) && now[j].text != p.text {
			j++
		}
		if j == len(now) {
			return nil, deletedLine(baseFile, headFile, p, now, from, i)
		}
		for k := from; k < j; k++ {
			added[now[k].first] = true
		}
		j++
	}
	for ; j < len(now); j++ {
		added[now[j].first] = true
	}
	if len(added) == 0 {
		return nil, fmt.Errorf("%s: nothing was added since %s but white space; append an entry", headFile, baseFile)
	}
	// Positions count in the whole file; the rules hold for the added entries only, since old
	// ones may have been written under older rules.
	src := &source{file: headFile}
	var out []*ChangelogEntry
	if top := src.parse(head); top != nil {
		for _, it := range top.items() {
			if added[entryLine(it, now)] {
				out = append(out, readChangelogEntry(it))
			}
		}
	}
	if len(src.problems) > 0 {
		return nil, src.problems.sorted([]string{headFile})
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s: what was added since %s holds no entry; append one", headFile, baseFile)
	}
	return out, nil
}

// entryLine is the first line of the piece that holds a node.
func entryLine(n *node, ps []piece) int {
	line := 0
	for _, p := range ps {
		if p.first > n.y.Line {
			break
		}
		line = p.first
	}
	return line
}

// deletedLine finds the first line of an old piece that the new text lacks.
func deletedLine(baseFile, headFile string, p piece, now []piece, from, index int) error {
	best, common := 0, -1
	for k := from; k < len(now); k++ {
		n := 0
		for n < len(p.lines) && n < len(now[k].lines) && p.lines[n] == now[k].lines[n] {
			n++
		}
		// Pieces share their first line often, so the most common lines win.
		if n > common {
			best, common = k, n
		}
	}
	if common < 0 {
		common = 0
	}
	line := min(common, len(p.lines)-1)
	what := fmt.Sprintf("line %d of %s was deleted or changed: %q", p.at[line], baseFile, strings.TrimSpace(p.lines[line]))
	at := Pos{File: headFile}
	if common > 0 && best < len(now) {
		at = Pos{File: headFile, Line: now[best].at[min(common, len(now[best].at)-1)], Col: 1}
		if common == len(p.lines) { // only lines were added inside an old entry
			at.Line = now[best].at[min(common, len(now[best].at)-1)]
			what = fmt.Sprintf("the entry at line %d of %s was changed: %q was added to it", p.first, baseFile,
				strings.TrimSpace(now[best].lines[common]))
		}
	}
	return Problems{{At: at, What: what,
		Fix: "restore it and append a new entry: the changelog is a log, old lines stay"}}
}
