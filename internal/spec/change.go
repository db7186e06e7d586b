package spec

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// A Change is what was added to a changelog, with the configs that it is about.
type Change struct {
	Entries          []*ChangelogEntry
	Head, Base       *Set // Base is nil unless an entry is append-only
	BaseRef, HeadRef string
}

// Buckets expands the change into jobs.
func (c Change) Buckets(opt ChangelogOptions) (*Buckets, error) {
	opt.Base = c.Base
	return c.Head.Changelog(c.Entries, opt)
}

func appends(entries []*ChangelogEntry) bool {
	for _, e := range entries {
		if e.AppendOnly {
			return true
		}
	}
	return false
}

// ChangeOfRevisions reads a change between two revisions of git; every file is read as it stands
// in its revision.
func ChangeOfRevisions(ctx context.Context, base, head, file string, masters []string, runners string) (Change, error) {
	c := Change{BaseRef: base, HeadRef: head}
	old, err := GitFile(ctx, base, file)
	if err != nil {
		return c, err
	}
	now, err := GitFile(ctx, head, file)
	if err != nil {
		return c, err
	}
	if c.Entries, err = AddedEntries(base+":"+file, old, head+":"+file, now); err != nil {
		return c, err
	}
	if c.Head, err = LoadRevision(ctx, head, masters, runners); err != nil {
		return c, err
	}
	if appends(c.Entries) {
		c.Base, err = LoadRevision(ctx, base, masters, runners)
	}
	return c, err
}

// ChangeOfFiles reads a change between two changelog files. The configs before the change are
// needed for append-only entries only.
func ChangeOfFiles(base, head string, masters []string, runners string, baseMasters []string, baseRunners string) (Change, error) {
	c := Change{BaseRef: base, HeadRef: head}
	old, err := readFile(base)
	if err != nil {
		return c, fmt.Errorf("%s: %w", base, err)
	}
	now, err := readFile(head)
	if err != nil {
		return c, fmt.Errorf("%s: %w", head, err)
	}
	if c.Entries, err = AddedEntries(base, old, head, now); err != nil {
		return c, err
	}
	if c.Head, err = Load(masters, runners); err != nil {
		return c, err
	}
	if appends(c.Entries) && len(baseMasters) > 0 {
		if baseRunners == "" {
			baseRunners = runners
		}
		c.Base, err = Load(baseMasters, baseRunners)
	}
	return c, err
}

// CheckEntry says whether the configs that an entry names are in the set.
func (s *Set) CheckEntry(e *ChangelogEntry) error {
	q := *e
	q.keysAt = make([]Pos, len(e.ConfigKeys))
	if _, ps := s.changelogConfigs(&q); len(ps) > 0 {
		lines := make([]string, len(ps))
		for i, p := range ps {
			lines[i] = strings.TrimPrefix(p.String(), ": ")
		}
		return fmt.Errorf("%s", strings.Join(lines, "\n"))
	}
	return nil
}

// AppendChangelog writes an entry at the end of a changelog and returns the line it begins on.
// The bytes before stay as they are: the file is opened for appending and written once, after the
// whole was checked by ParseChangelog's rules.
func AppendChangelog(file string, e *ChangelogEntry) (line int, err error) {
	old, err := readFile(file)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", file, err)
	}
	var b strings.Builder
	if len(old) > 0 && old[len(old)-1] != '\n' {
		b.WriteByte('\n')
	}
	if len(old) > 0 && !strings.HasSuffix(string(old), "\n\n") {
		b.WriteByte('\n')
	}
	gap := b.String()
	b.WriteString(e.yaml())
	addition := b.String()
	if _, err := ParseChangelog(file, append(old[:len(old):len(old)], addition...)); err != nil {
		return 0, err
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return 0, err
	}
	if _, err := f.WriteString(addition); err != nil {
		f.Close()
		return 0, err
	}
	if err := f.Close(); err != nil {
		return 0, err
	}
	return strings.Count(string(old)+gap, "\n") + 1, nil
}

// yaml writes the entry as the changelog has them.
func (e *ChangelogEntry) yaml() string {
	var b strings.Builder
	list := func(key string, items []string, quote bool) {
		if b.Len() == 0 {
			b.WriteString("- ")
		} else {
			b.WriteString("  ")
		}
		b.WriteString(key + ":\n")
		for _, it := range items {
			if quote || !plainYAML(it) {
				it = quoteYAML(it)
			}
			b.WriteString("    - " + it + "\n")
		}
	}
	list("config-keys", e.ConfigKeys, false)
	if len(e.Scenarios) > 0 {
		names := make([]string, len(e.Scenarios))
		for i, s := range e.Scenarios {
			names[i] = string(s)
		}
		list("scenario-type", names, false)
	}
	list("description", e.Description, true)
	link := e.PRLink
	if !plainYAML(link) {
		link = quoteYAML(link)
	}
	b.WriteString("  pr-link: " + link + "\n")
	for _, f := range []struct {
		key string
		on  bool
	}{{"evals-only", e.EvalsOnly}, {"all-evals", e.AllEvals}, {"append-only", e.AppendOnly}} {
		if f.on {
			b.WriteString("  " + f.key + ": true\n")
		}
	}
	if e.EvalMinPrefillEP != 0 {
		b.WriteString("  eval-min-prefill-ep: " + strconv.Itoa(e.EvalMinPrefillEP) + "\n")
	}
	return b.String()
}

// plainYAML says whether a text is the same without quotes.
func plainYAML(s string) bool {
	const safe = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:"
	return s != "" && strings.Trim(s, safe) == "" && s[0] >= 'A' && !strings.HasSuffix(s, ":") &&
		!strings.Contains(s, ": ") && plainIsString(s)
}

func plainIsString(s string) bool {
	if _, isBool := boolOf(s); isBool {
		return false
	}
	switch s {
	case "null", "Null", "NULL", "y", "Y", "n", "N":
		return false
	}
	return true
}

// quoteYAML writes a double-quoted scalar.
func quoteYAML(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r < 0x20 || r == 0x7f || r == 0x85 || r == 0x2028 || r == 0x2029 || r == 0xfeff:
			fmt.Fprintf(&b, `\u%04X`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}
