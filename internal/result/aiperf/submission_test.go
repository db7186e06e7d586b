package aiperf

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
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
		s := newSummary(meta, r, &Options{Scenario: "agentx", Violations: x.violations, OverflowRate: OverflowAccepted})
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

// TestOverflowsAreSkipped: in agentic replay a prompt that was too long has no line and is no error,
// it is counted; the slices, the error-adjusted metrics and the warm-up don't have it either. In a load
// it is an error as any other.
func TestOverflowsAreSkipped(t *testing.T) {
	for semantics, want := range map[string]struct {
		lines, failed, skipped, overflows, completed, adjusted float64
	}{
		"agentx-1": {3, 1, 2, 2, 3, 3},
		"load-1":   {6, 3, 0, 2, 5, 5},
	} {
		dir := t.TempDir()
		w, err := record.CreateBundle(filepath.Join(dir, "b"))
		if err != nil {
			t.Fatal(err)
		}
		m := record.NewMeta()
		m.PointID, m.EpochWallNs, m.Semantics, m.Window = "p", epoch, semantics, record.Window{StartNs: sec, EndNs: 8 * sec}
		if err := w.WriteMeta(m); err != nil {
			t.Fatal(err)
		}
		for i, class := range []record.Class{record.FailContextOverflow, "", "", record.FailStatus, record.FailContextOverflow, record.FailContextOverflow} {
			at := int64(i+1) * sec
			q := &record.Request{Seq: uint64(i), Trace: "t", Stream: "t", Tree: "0", Phase: record.Profiling, WantIn: 10, WantOut: 1, PromptTokens: 10, OutputTokens: 1,
				ReasoningTokens: record.Unknown, Hits: record.UnknownHits,
				Times: record.Times{Intended: at, Queued: at, Sent: at, Headers: at, FirstToken: at + msec, FirstVisible: at + msec, LastToken: at + msec, End: at + 2*msec}}
			if i == 0 {
				q.Phase = record.Primer
			}
			if i == 5 {
				q.Times.End = 9 * sec // after all others and after the planned end
			}
			if class != "" {
				q.Failure = &record.Failure{Class: class, Status: 400, Detail: "no"}
				q.PromptTokens, q.OutputTokens = record.Unknown, record.Unknown
				q.Times.FirstToken, q.Times.FirstVisible, q.Times.LastToken = record.Never, record.Never, record.Never
			}
			if err := w.WriteRequest(q); err != nil {
				t.Fatal(err)
			}
		}
		r, err := result.Finish(w)
		if err != nil {
			t.Fatal(err)
		}
		b, err := record.OpenBundle(filepath.Join(dir, "b"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Export(b, r, Options{Dir: dir, Scenario: "agentx"}); err != nil {
			t.Fatal(err)
		}
		rows, err := os.ReadFile(filepath.Join(dir, "profile_export.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		raw, err := os.ReadFile(filepath.Join(dir, "profile_export_aiperf.json"))
		if err != nil {
			t.Fatal(err)
		}
		var s map[string]any
		if err := json.Unmarshal(raw, &s); err != nil {
			t.Fatal(err)
		}
		num := func(tag, stat string) float64 {
			v, _ := s[tag].(map[string]any)
			f, _ := v[stat].(float64)
			return f
		}
		if n := float64(bytes.Count(rows, []byte("\n"))); n != want.lines {
			t.Errorf("%s: %v lines, want %v", semantics, n, want.lines)
		}
		for tag, x := range map[string][2]float64{"error_request_count": {num("error_request_count", "avg"), want.failed},
			"skipped_context_overflow_count": {num("skipped_context_overflow_count", "avg"), want.skipped}, "context_overflow_count": {num("context_overflow_count", "avg"), want.overflows},
			"completed_request_count": {num("completed_request_count", "avg"), want.completed}, "adj_time_to_first_token": {num("adj_time_to_first_token", "count"), want.adjusted},
			"request_throughput": {num("request_throughput", "avg"), 2.0 / 8}} {
			if x[0] != x[1] {
				t.Errorf("%s: %s is %v, want %v", semantics, tag, x[0], x[1])
			}
		}
		kinds := 0.0
		for _, k := range s["error_summary"].([]any) {
			kinds += k.(map[string]any)["count"].(float64)
		}
		if meta := s["metadata"].(map[string]any); kinds != want.failed || !strings.Contains(fmt.Sprint(meta["submission_invalid_reasons"]), "context_overflow_rate_exceeded") {
			t.Errorf("%s: %v errors in the summary, metadata %v", semantics, kinds, meta)
		}
		if r.Requests.Failed != 3 || r.Requests.Overflow != 2 { // Weir's own account
			t.Errorf("%s: result counts %+v", semantics, r.Requests)
		}
	}
}
