package run

import (
	"context"
	"maps"
	"path/filepath"
	"slices"
	"strings"
)

// quarantined are the nodes that no point of the sweep gets any more. The journal knows those
// that earlier processes found.
func (s *Slurm) quarantined() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.recall()
	return slices.Sorted(maps.Keys(s.quarantine))
}

// recall reads the quarantine out of the journal, once. s.mu is held.
func (s *Slurm) recall() {
	if s.quarantine != nil {
		return
	}
	s.quarantine = map[string]string{}
	entries, err := ReadJournal(filepath.Join(s.Dir, JournalFile))
	if err != nil {
		return // a sweep that just begins
	}
	for _, e := range entries {
		for _, n := range e.Nodes {
			switch e.State {
			case Quarantined:
				s.quarantine[n] = e.Detail
			case Released:
				delete(s.quarantine, n)
			}
		}
	}
}

// exclude puts nodes into quarantine for the rest of the sweep.
func (s *Slurm) exclude(ctx context.Context, j *Job, list, why string) {
	out, err := slurmCommand(ctx, "scontrol", "show", "hostnames", list)
	if err != nil {
		return
	}
	s.keepOut(strings.Fields(out), why, j)
}

// keepOut puts nodes into quarantine and says so in the journal.
func (s *Slurm) keepOut(nodes []string, why string, j *Job) {
	s.mu.Lock()
	s.recall()
	for _, n := range nodes {
		s.quarantine[n] = why
	}
	s.mu.Unlock()
	j.note(Entry{State: Quarantined, Detail: why, Nodes: nodes})
}
