package aiperf

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/weirbench/weir/internal/record"
	"github.com/weirbench/weir/internal/result"
)

// TestSubmission: the reasons are AIPerf's words, whatever Weir's are; without a scenario there is
// no submission; and Weir's own reasons always stand in a key of their own.
func TestSubmission(t *testing.T) {
	many := func(n, overflows int) []entry {
		list := make([]entry, n)
		for i := range overflows {
			list[i].failed, list[i].overflow = true, true
		}
		return list
	}
	for _, x := range []struct {
		name       string
		violations []string
		cancelled  string
		codes      []result.Code
		profiling  []entry
		want       []string
	}{
		{name: "valid", profiling: many(100, 1)}, // 1 % is accepted
		{name: "override", violations: []string{"short"}, codes: []result.Code{result.UnsafeOverride}, want: []string{"unsafe_override"}},
		{name: "overflows", codes: []result.Code{result.Overflow}, profiling: many(100, 2), want: []string{"context_overflow_rate_exceeded"}},
		{name: "a primer failed", cancelled: "root warm-up failure", codes: []result.Code{result.RootWarmup, result.NoOutput, result.Cancelled}, want: []string{"run_cancelled"}},
		{name: "stalled", codes: []result.Code{result.Stalled}, want: []string{"run_cancelled"}},
		{name: "coverage", codes: []result.Code{result.Coverage}, want: []string{"insufficient_profile_metric_coverage"}},
		{name: "Weir alone", codes: []result.Code{result.ClientBound, result.NoOutput}, want: []string{"weir_invalid"}},
		{name: "all", violations: []string{"short"}, cancelled: "error rate", profiling: many(10, 1),
			codes: []result.Code{result.ErrorRate, result.Overflow, result.Coverage, result.Cancelled, result.UnsafeOverride},
			want:  []string{"unsafe_override", "context_overflow_rate_exceeded", "run_cancelled", "insufficient_profile_metric_coverage"}},
	} {
		r := &result.Result{Valid: len(x.codes) == 0}
		for _, c := range x.codes {
			r.Reasons = append(r.Reasons, result.Finding{Code: c})
		}
		meta := record.NewMeta()
		meta.Cancelled = x.cancelled
		s := newSummary(meta, r, &Options{Scenario: "agentx", Violations: x.violations})
		s.profiling = x.profiling
		for _, scenario := range []string{"agentx", ""} {
			s.o.Scenario = scenario
			raw, err := json.Marshal(s.metadata())
			if err != nil {
				t.Fatal(err)
			}
			var m map[string]any
			if err := json.Unmarshal(raw, &m); err != nil {
				t.Fatal(err)
			}
			why, given := m["submission_invalid_reasons"]
			valid, asked := m["submission_valid"]
			_, named := m["scenario"]
			if scenario == "" && (given || asked || named) {
				t.Errorf("%s: without a scenario metadata are %s", x.name, raw)
			}
			if scenario != "" && (valid != (len(x.want) == 0) || given != (len(x.want) > 0) || given && fmt.Sprint(why) != fmt.Sprint(x.want)) {
				t.Errorf("%s: metadata %s, want %v", x.name, raw, x.want)
			}
			var own []result.Code
			list, _ := m["weir_invalid_reasons"].([]any)
			for _, c := range list {
				own = append(own, result.Code(c.(string)))
			}
			if !slices.Equal(own, x.codes) {
				t.Errorf("%s: Weir's own reasons are %v, want %v", x.name, own, x.codes)
			}
		}
	}
}
