package sim

import (
	"cmp"
	"slices"
)

// lpmLimit is the length of the queue from which matching every prompt costs more than it
// gives: the engine then serves first come first served (schedule_policy.py, 2026-07).
const lpmLimit = 128

// order sorts the queue by the scheduling policy. With "lpm" the request with the longest
// cached prefix, device and host together, comes first; equal ones keep their order of arrival.
// As in the engine, the search counts as a use of what it finds (schedule_policy.py
// match_prefix_for_req and _sort_by_longest_prefix, 2026-08).
func (s *scheduler) order() {
	if s.c.SchedulePolicy != "lpm" || len(s.waiting) < 2 || len(s.waiting) > lpmLimit {
		return
	}
	for _, j := range s.waiting {
		m := s.cache.find(j.pages((j.fill - 1) / s.c.PageSize))
		j.matched = m.device + m.host
	}
	slices.SortStableFunc(s.waiting, func(a, b *job) int { return cmp.Compare(b.matched, a.matched) })
}
