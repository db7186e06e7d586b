package aiperf

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirbench/weir/internal/client"
	"github.com/weirbench/weir/internal/record"
	"github.com/weirbench/weir/internal/result"
)

const (
	msec  = int64(1e6)
	sec   = int64(1e9)
	epoch = int64(1_780_000_000_000_000_000)
)

// bundle writes a small bundle: a warm-up, two successes, a failure, one that was cut, and the
// samples of one endpoint with a restart, a birth and a failed scrape.
func bundle(t *testing.T) (*record.Bundle, *result.Result) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "b")
	w, err := record.CreateBundle(dir)
	if err != nil {
		t.Fatal(err)
	}
	m := record.NewMeta()
	m.PointID, m.EpochWallNs, m.Window = "p", epoch, record.Window{StartNs: 10 * sec, EndNs: 20 * sec}
	m.RecordedHits = &record.RecordedHits{Profiling: record.Blocks{Hit: 5, Total: 8}}
	if err := w.WriteMeta(m); err != nil {
		t.Fatal(err)
	}
	never := record.Never
	req := func(seq uint64, phase record.Phase, sent, first, last, end, in, out int64) *record.Request {
		return &record.Request{Seq: seq, Trace: "tr", Stream: "tr::sa:a", Depth: 1, Turn: int(seq), Phase: phase, Tree: "0.0", WantIn: in, WantOut: out,
			Times:        record.Times{Intended: sent - 2*msec, Queued: sent - msec, Sent: sent, Headers: sent + msec, FirstToken: first, FirstVisible: first, LastToken: last, End: end},
			PromptTokens: in, OutputTokens: out, ReasoningTokens: record.Unknown, Hits: record.UnknownHits}
	}
	failed := req(4, record.Profiling, 12*sec, never, never, 13*sec, 700, 5)
	failed.Times.FirstVisible, failed.PromptTokens, failed.OutputTokens = never, -1, -1
	failed.Failure = &record.Failure{Class: record.FailStatus, Status: 500, Detail: "no"}
	cut := *failed
	cut.Seq, cut.Failure = 5, &record.Failure{Class: record.FailCancelled}
	cut.Times.End = 20 * sec
	for _, q := range []*record.Request{
		req(1, record.Primer, sec, sec+50*msec, sec+50*msec, sec+51*msec, 90, 1),
		req(2, record.Profiling, 10*sec, 10*sec+200*msec, 10*sec+1200*msec, 10*sec+1210*msec, 100, 11),
		req(3, record.Profiling, 11*sec, 11*sec+400*msec, 11*sec+400*msec, 11*sec+405*msec, 300, 1),
		failed, &cut,
	} {
		if err := w.WriteRequest(q); err != nil {
			t.Fatal(err)
		}
	}
	const src = "http://h/metrics"
	fam := map[string]record.Family{"x_total": {Type: "counter", Help: "How many."}, "g_perc": {Type: "gauge"}, "h_seconds": {Type: "histogram"}, "s": {Type: "summary"}}
	for _, s := range []record.Sample{
		{At: 9 * sec, Source: src, Families: fam, Values: map[string]float64{`x_total{a="1"}`: 100, "g_perc": 0.9, "h_seconds_count": 5, "h_seconds_sum": 5,
			`h_seconds_bucket{le="1.0"}`: 5, `h_seconds_bucket{le="+Inf"}`: 5, "s_count": 4, "process_start_time_seconds": 1, "y_created": 7}},
		{At: 12 * sec, Source: src, Delta: true, Values: map[string]float64{`x_total{a="1"}`: 130, `x_total{a="2"}`: 7, "g_perc": 0.5, "h_seconds_count": 7,
			"h_seconds_sum": 6, `h_seconds_bucket{le="1.0"}`: 7, `h_seconds_bucket{le="+Inf"}`: 7}},
		{At: 14 * sec, Source: src, Error: "late"},
		{At: 21 * sec, Source: src, Delta: true, Values: map[string]float64{`x_total{a="1"}`: 190, "g_perc": 0.7}},
	} {
		if err := w.WriteSample(&s); err != nil {
			t.Fatal(err)
		}
	}
	r, err := result.Finish(w)
	if err != nil {
		t.Fatal(err)
	}
	b, err := record.OpenBundle(dir)
	if err != nil {
		t.Fatal(err)
	}
	return b, r
}

// TestExport reads every artifact back.
func TestExport(t *testing.T) {
	b, r := bundle(t)
	dir := t.TempDir()
	files, err := Export(b, r, Options{Dir: dir, Program: "weir-test", Scenario: "agentx", Violations: []string{"short"}, SliceNs: 4 * sec})
	if err != nil || len(files) != 7 {
		t.Fatalf("%v, %v", files, err)
	}
	raw := func(name string) []byte {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return data
	}

	lines := strings.Split(strings.TrimSpace(string(raw("profile_export.jsonl"))), "\n")
	if len(lines) != 5 {
		t.Fatalf("%d records", len(lines))
	}
	var rows []oneLine
	for _, l := range lines {
		var x oneLine
		if err := json.Unmarshal([]byte(l), &x); err != nil {
			t.Fatal(err)
		}
		rows = append(rows, x)
	}
	if rows[0].Metadata.Phase != "warmup" || rows[1].Metadata.Phase != "profiling" || rows[1].Metadata.Conversation != "tr::sa:a" || rows[1].Metadata.StartNs != epoch+10*sec {
		t.Errorf("metadata %+v", rows[1].Metadata)
	}
	if m := rows[1].Metadata; m.RequestID != client.RequestID(b.Meta.PointID, 2) || m.Correlation != client.SessionID(b.Meta.PointID, "0.0", "tr::sa:a") ||
		m.Root != client.SessionID(b.Meta.PointID, "0.0", "tr") || m.Parent != m.Root || m.Root == m.Correlation {
		t.Errorf("identities %+v are not those of the headers", m)
	}
	for tag, want := range map[string]float64{"time_to_first_token": 200, "request_latency": 1200, "inter_token_latency": 100, "full_response_inter_token_latency": 101,
		"decode_duration": 1000, "output_token_throughput_per_user": 10, "input_sequence_length": 100, "output_sequence_length": 11, "prefill_throughput_per_user": 500} {
		if got, ok := rows[1].Metrics[tag].Value.(float64); !ok || math.Abs(got-want) > 1e-9 {
			t.Errorf("%s is %v, want %v", tag, rows[1].Metrics[tag], want)
		}
	}
	if _, ok := rows[2].Metrics["inter_token_latency"]; ok {
		t.Error("one token has a time between tokens")
	}
	if e := rows[3].Error; e == nil || e.Code != 500 || rows[3].Metadata.Cancelled {
		t.Errorf("failure %+v", e)
	}
	if e := rows[4].Error; e == nil || e.Code != 499 || e.Type != "RequestCancellationError" || !rows[4].Metadata.Cancelled {
		t.Errorf("cut %+v", e)
	}

	var s map[string]any
	if err := json.Unmarshal(raw("profile_export_aiperf.json"), &s); err != nil {
		t.Fatal(err)
	}
	at := func(tag, stat string) any { m, _ := s[tag].(map[string]any); return m[stat] }
	for _, x := range []struct {
		tag, stat string
		want      float64
	}{
		{"request_count", "avg", 2}, {"error_request_count", "avg", 2}, {"completed_request_count", "avg", 4}, {"time_to_first_token", "p50", 300},
		{"time_to_first_token", "std", 100}, {"time_to_first_token", "count", 2}, {"benchmark_duration", "avg", 1.4}, {"total_osl", "avg", 12},
		{"request_throughput", "avg", 2 / 10.0}, {"effective_concurrency", "avg", (1.21 + 0.405 + 1 + 8) / 10}, {"theoretical_prefix_cache_hit", "sum", 5}, {"theoretical_prefix_cache_hit", "count", 8}, {"error_request_count", "avg", 2}, {"adj_time_to_first_token", "count", 4}, {"adj_time_to_first_token", "p25", 400},
	} {
		if got, ok := at(x.tag, x.stat).(float64); !ok || math.Abs(got-x.want) > 1e-9 {
			t.Errorf("%s.%s is %v, want %v", x.tag, x.stat, at(x.tag, x.stat), x.want)
		}
	}
	if meta := s["metadata"].(map[string]any); meta["submission_valid"] != false || meta["submission_invalid_reasons"].([]any)[0] != "unsafe_override" {
		t.Errorf("metadata %v", meta)
	}
	table := csv.NewReader(bytes.NewReader(raw("profile_export_aiperf.csv")))
	table.FieldsPerRecord = -1
	if all, err := table.ReadAll(); err != nil || all[0][0] != "Metric" || len(all[0]) != 15 {
		t.Errorf("table %v, %v", all, err)
	}

	var m struct {
		Summary map[string]any
		Metrics map[string]struct {
			Type, Unit, Description string
			Series                  []struct {
				Labels  map[string]string
				Stats   map[string]float64
				Buckets map[string]float64
				Slices  []map[string]any `json:"timeslices"`
			}
		}
	}
	if err := json.Unmarshal(raw("server_metrics_export.json"), &m); err != nil {
		t.Fatal(err)
	}
	x := m.Metrics["x"]
	if x.Type != "counter" || x.Description != "How many." || len(x.Series) != 2 || x.Series[0].Stats["total"] != 90 || x.Series[1].Stats["total"] != 7 {
		t.Errorf("counter %+v", x)
	}
	if got := x.Series[0].Slices; len(got) != 3 || got[0]["total"] != 30.0 || got[2]["is_complete"] != false {
		t.Errorf("slices %v", got)
	}
	if g := m.Metrics["g_perc"]; g.Type != "gauge" || g.Series[0].Stats["avg"] != 0.6 || math.Abs(g.Series[0].Stats["std"]-math.Sqrt(0.02)) > 1e-9 {
		t.Errorf("gauge %+v", g)
	}
	if h := m.Metrics["h_seconds"]; h.Type != "histogram" || len(h.Series) != 1 || h.Series[0].Stats["count"] != 2 || h.Series[0].Stats["sum"] != 1 || h.Series[0].Buckets["1.0"] != 2 || h.Series[0].Labels != nil {
		t.Errorf("histogram %+v", h)
	}
	for _, out := range []string{"s", "s_count", "y_created", "y"} {
		if _, ok := m.Metrics[out]; ok {
			t.Errorf("%s is exported", out)
		}
	}
}

// TestExportNames: a prefix renames the files, a summary leaves the records out.
func TestExportNames(t *testing.T) {
	b, r := bundle(t)
	dir := t.TempDir()
	if _, err := Export(b, r, Options{Dir: dir, Prefix: "foo", NoRecords: true}); err != nil {
		t.Fatal(err)
	}
	got, _ := filepath.Glob(filepath.Join(dir, "*"))
	for i := range got {
		got[i] = filepath.Base(got[i])
	}
	if want := "foo.csv foo.json foo_server_metrics.csv foo_server_metrics.json"; strings.Join(got, " ") != want {
		t.Errorf("files %v, want %s", got, want)
	}
}

// TestSimulatedIsMarked: the summary says in a key of its own that no engine ran, and says nothing
// more of a measured run.
func TestSimulatedIsMarked(t *testing.T) {
	b, r := bundle(t)
	var metas [2]map[string]any
	for i, simulated := range []bool{false, true} {
		b.Meta.Simulated = simulated
		dir := t.TempDir()
		if _, err := Export(b, r, Options{Dir: dir, Program: "weir-test"}); err != nil {
			t.Fatal(err)
		}
		raw, err := os.ReadFile(filepath.Join(dir, "profile_export_aiperf.json"))
		if err != nil {
			t.Fatal(err)
		}
		var s struct{ Metadata map[string]any }
		if err := json.Unmarshal(raw, &s); err != nil {
			t.Fatal(err)
		}
		metas[i] = s.Metadata
	}
	if _, has := metas[0]["weir_simulated"]; has || metas[1]["weir_simulated"] != true || len(metas[1]) != len(metas[0])+1 {
		t.Errorf("measured %v, simulated %v", metas[0], metas[1])
	}
}

// TestSource: a request of a Weka trace says where it stood there, as AIPerf does; another says nothing.
func TestSource(t *testing.T) {
	for want, q := range map[string]record.Request{
		`"source_trace_id":"t","source_outer_idx":0,"source_kind":"weka_main"`:                          {Trace: "t", Stream: "t", Outer: 1},
		`"source_trace_id":"t","source_outer_idx":6,"source_kind":"weka_flat"`:                          {Trace: "t", Stream: "t::fa:000", Depth: 1, Outer: 7},
		`"source_trace_id":"t","source_outer_idx":4,"source_inner_idx":0,"source_kind":"weka_subagent"`: {Trace: "t", Stream: "t::sa:a:fa:000", Depth: 1, Outer: 5, Inner: 1},
		`"root_correlation_id":"` + client.SessionID("", "", "t") + `"}`:                                {Trace: "t", Stream: "t"},
	} {
		raw, err := json.Marshal(line(&q, record.NewMeta(), 0).metadata)
		if err != nil || !strings.Contains(string(raw), want) {
			t.Errorf("%s, %v: want %s", raw, err, want)
		}
	}
}

// TestHistogramBounds: the true percentile of what was observed lies between the bounds, and so does
// the estimate; in the open bucket there is a lower bound alone, and of nothing there is none.
func TestHistogramBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seen := rapid.SliceOfN(rapid.Float64Range(0.001, 12), 1, 200).Draw(t, "observations")
		slices.Sort(seen)
		h := histogram{count: float64(len(seen)), buckets: map[string]float64{"+Inf": float64(len(seen))}}
		for _, le := range []float64{0.5, 1, 4, 10} {
			n, _ := slices.BinarySearch(seen, math.Nextafter(le, 99))
			h.buckets[strconv.FormatFloat(le, 'f', 1, 64)] = float64(n)
		}
		st := h.stats()
		for _, p := range []int{1, 5, 10, 25, 50, 75, 90, 95, 99} {
			key := "p" + strconv.Itoa(p)
			// The smallest value that a share of p does not exceed.
			truth := seen[max(int(math.Ceil(float64(p)/100*float64(len(seen))))-1, 0)]
			low, ok := st["weir_"+key+"_low"].(float64)
			high, closed := st["weir_"+key+"_high"].(float64)
			estimate, estimated := st[key+"_estimate"].(float64)
			if !ok || low > truth || closed && (high < truth || estimate < low || estimate > high) || closed != estimated || closed == (truth > 10) {
				t.Fatalf("%s is %v; bounds %v, %v (%v), estimate %v (%v)", key, truth, low, high, closed, estimate, estimated)
			}
		}
	})
	if st := (&histogram{buckets: map[string]float64{"1.0": 0, "+Inf": 0}}).stats(); len(st) != 2 {
		t.Errorf("statistics of nothing: %v", st)
	}
}
