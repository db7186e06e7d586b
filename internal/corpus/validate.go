package corpus

import (
	"errors"
	"fmt"
	"slices"
)

// A Finding is something about a trace that somebody should know.
type Finding struct {
	Fault bool   `json:"fault"` // the trace can't be used; else a remark
	Trace string `json:"trace,omitempty"`
	Text  string `json:"text"`
}

// A Validation is what Validate found.
type Validation struct {
	Name        string    `json:"name"`
	Fingerprint string    `json:"fingerprint"`
	Traces      int       `json:"traces"`
	Broken      int       `json:"broken_traces"`
	Findings    []Finding `json:"findings"`
}

// longestKnown is the most prompt tokens that a recorded corpus holds; more is an error of the
// recorder (the AgentX corpora cap a request there).
const longestKnown = 990_000

// Validate reads a corpus and lists its faults, all of them, and what is remarkable about the
// traces that can be used.
func Validate(path string, opt LoadOptions) (*Validation, error) {
	opt.SkipBroken = true
	v := &Validation{Name: path}
	c, err := Load(path, opt)
	if err != nil {
		faults := []error{err} // of the corpus as a whole, which is no trace that is broken
		var all *allBroken
		if errors.As(err, &all) {
			faults = all.faults
			v.Broken = len(faults)
		}
		for _, err := range faults {
			v.Findings = append(v.Findings, Finding{Fault: true, Text: err.Error()})
		}
		return v, err
	}
	v.Fingerprint, v.Traces, v.Broken = c.Fingerprint, len(c.Traces), len(c.Skipped)
	for _, err := range c.Skipped {
		v.Findings = append(v.Findings, Finding{Fault: true, Text: err.Error()})
	}
	for _, n := range c.Notes {
		v.Findings = append(v.Findings, Finding{Text: n})
	}
	first := map[string]string{}
	for i, sum := range digests(c.Traces) {
		t := c.Traces[i]
		if other, ok := first[string(sum)]; ok {
			v.remark(t, "has the content of %s", other)
		} else {
			first[string(sum)] = t.ID
		}
		v.trace(t)
	}
	return v, nil
}

func (v *Validation) remark(t *Trace, format string, a ...any) {
	v.Findings = append(v.Findings, Finding{Trace: t.ID, Text: fmt.Sprintf(format, a...)})
}

// trace remarks on what counts, in one line a kind.
func (v *Validation) trace(t *Trace) {
	var short, overlaps, silent, untimed, long, shortSystem int
	var models []string
	for i := range t.Streams {
		s := &t.Streams[i]
		if first := &s.Turns[0]; !t.LengthsOnly && s.SystemTokens > int64(len(first.Blocks))*t.BlockSize {
			shortSystem++
		}
		for k := range s.Turns {
			u := &s.Turns[k]
			if !t.LengthsOnly && int64(len(u.Blocks)) < u.In/t.BlockSize {
				short++
			}
			if k > 0 && u.StartNs+epsilonNs < s.Turns[k-1].EndNs() {
				overlaps++
			}
			if u.Out == 0 {
				silent++
			}
			if u.APINs == 0 {
				untimed++
			}
			if u.In > longestKnown {
				long++
			}
			if m := t.Models[u.Model]; !slices.Contains(models, m) {
				models = append(models, m)
			}
		}
	}
	for _, r := range []struct {
		n    int
		text string
	}{
		{t.DroppedTurns, "turns belong to sub-agents that no turn of the root precedes, and are not sent"},
		{shortSystem, "streams begin with fewer blocks than their system prompt has: AIPerf refuses such a trace"},
		{short, "turns have fewer block ids than whole blocks: the rest of their prompts is new each time"},
		{overlaps, "turns begin before the turn before them in their stream has ended"},
		{silent, "turns have no output tokens"},
		{untimed, "turns have no recorded service time"},
		{long, fmt.Sprintf("turns have more than %d prompt tokens", longestKnown)},
	} {
		if r.n > 0 {
			v.remark(t, "%d %s", r.n, r.text)
		}
	}
	if t.LengthsOnly {
		v.remark(t, "records lengths only: no question about caches can be answered")
	}
	if t.Estimated {
		v.remark(t, "holds tokens counted by a rule of thumb")
	}
	if len(models) > 1 {
		v.remark(t, "mixes %d models", len(models))
	}
}
