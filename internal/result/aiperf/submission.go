package aiperf

import (
	"slices"

	"github.com/weirbench/weir/internal/result"
)

// Reasons why a run is no valid submission, as AIPerf writes them (agentx-harness 1.0.12,
// exporters/aggregate and records_manager.py, 2026-10), and WeirInvalid, which stands alone when
// only a rule of Weir's own is broken.
const (
	UnsafeOverride = "unsafe_override"
	OverflowRate   = "context_overflow_rate_exceeded"
	RunCancelled   = "run_cancelled"
	MetricCoverage = "insufficient_profile_metric_coverage"
	WeirInvalid    = "weir_invalid"
)

// OverflowAccepted is AIPerf's Options.OverflowRate.
const OverflowAccepted = 0.01

// cancelling are Weir's reasons of runs that ended before their time, as AIPerf's do when a primer
// or too many requests fail.
var cancelling = []result.Code{result.Cancelled, result.RootWarmup, result.Stalled, result.RunFailed, result.RunCut}

// submission says in AIPerf's words why the run is no valid submission; nothing when it is one.
func (s *summary) submission() []string {
	var why []string
	if len(s.o.Violations) > 0 {
		why = append(why, UnsafeOverride)
	}
	if n := len(s.profiling) + s.skipped; n > 0 && float64(s.overflows()) > s.o.OverflowRate*float64(n) {
		why = append(why, OverflowRate)
	}
	has := func(codes ...result.Code) bool {
		return slices.ContainsFunc(s.result.Reasons, func(f result.Finding) bool { return slices.Contains(codes, f.Code) })
	}
	if s.meta.Cancelled != "" || has(cancelling...) {
		why = append(why, RunCancelled)
	}
	if has(result.Coverage) {
		why = append(why, MetricCoverage)
	}
	if len(why) == 0 && !s.result.Valid {
		why = append(why, WeirInvalid)
	}
	return why
}

// overflows are the profiling requests whose prompts were too long for the server.
func (s *summary) overflows() int {
	n := s.skipped
	for i := range s.profiling {
		if s.profiling[i].overflow {
			n++
		}
	}
	return n
}

// metadata says what was run. Only a scenario makes a submission of a run. Keys that begin with
// weir_ are Weir's own: its reasons, in its words, stand beside AIPerf's.
func (s *summary) metadata() map[string]any {
	m := map[string]any{"dataset": s.meta.Dataset}
	if s.o.Scenario != "" {
		why := s.submission()
		m["scenario"], m["submission_valid"] = s.o.Scenario, len(why) == 0
		if len(why) > 0 {
			m["submission_invalid_reasons"] = why
		}
		if len(s.o.Violations) > 0 {
			m["scenario_violations"] = s.o.Violations
		}
	}
	if !s.result.Valid {
		own := []string{}
		for _, f := range s.result.Reasons {
			own = append(own, string(f.Code))
		}
		m["weir_invalid_reasons"] = own
	}
	if s.meta.Simulated {
		m["weir_simulated"] = true
	}
	return m
}
