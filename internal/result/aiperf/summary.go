package aiperf

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/weirbench/weir/internal/record"
	"github.com/weirbench/weir/internal/result"
)

// percents are the percentiles of every distribution.
var percents = []int64{1, 5, 10, 25, 50, 75, 90, 95, 99}

// stats are the numbers of one metric; only Unit and Avg for one that has no distribution.
type stats map[string]any

// summary gathers the records of the profiling phase.
type summary struct {
	meta   *record.Meta
	result *result.Result
	o      *Options

	values          map[string][]float64
	units           map[string]string
	valid, errors   int64
	overflow        int64
	firstNs, lastNs int64 // of valid records, since the epoch
	beginNs, endNs  int64 // of all profiling records
	errorISL        []float64
	hit, total      int64
	kinds           map[rowError]int64
}

func newSummary(m *record.Meta, r *result.Result, o *Options) *summary {
	return &summary{meta: m, result: r, o: o, values: map[string][]float64{}, units: map[string]string{}, kinds: map[rowError]int64{},
		firstNs: record.Never, beginNs: record.Never}
}

func (s *summary) add(q *record.Request, r *row) {
	if q.Phase != record.Profiling {
		return
	}
	at := q.Times
	if s.beginNs == record.Never || at.Sent < s.beginNs {
		s.beginNs = at.Sent
	}
	s.endNs = max(s.endNs, at.End)
	if r.Error != nil {
		s.errors++
		if q.Failure.Class == record.FailContextOverflow {
			s.overflow++
		}
		if q.WantIn > 0 {
			s.errorISL = append(s.errorISL, float64(q.WantIn))
		}
		s.kinds[*r.Error]++
		return
	}
	s.valid++
	if s.firstNs == record.Never || at.Sent < s.firstNs {
		s.firstNs = at.Sent
	}
	s.lastNs = max(s.lastNs, at.LastToken)
	for tag, v := range r.Metrics {
		s.units[tag] = v.Unit
		switch x := v.Value.(type) {
		case float64:
			s.values[tag] = append(s.values[tag], x)
		case int64:
			s.values[tag] = append(s.values[tag], float64(x))
		case []float64:
			s.values[tag] = append(s.values[tag], x...)
		}
	}
	if s.o.Theoretical != nil {
		if hit, total, ok := s.o.Theoretical(q.Trace, q.Stream, q.Turn); ok {
			s.hit += min(hit, total)
			s.total += total
		}
	}
}

// distribution computes AIPerf's statistics: linear percentiles, the population's deviation.
func distribution(unit string, v []float64) stats {
	v = slices.Clone(v)
	slices.Sort(v)
	sum := 0.0
	for _, x := range v {
		sum += x
	}
	n := float64(len(v))
	mean, sq := sum/n, 0.0
	for _, x := range v {
		sq += (x - mean) * (x - mean)
	}
	s := stats{"unit": unit, "avg": mean, "min": v[0], "max": v[len(v)-1], "std": math.Sqrt(sq / n), "count": len(v), "sum": sum}
	for _, p := range percents {
		s["p"+strconv.FormatInt(p, 10)] = result.Percentile(v, p)
	}
	return s
}

// metrics are all metrics of the summary by tag.
func (s *summary) metrics() map[string]stats {
	out := map[string]stats{}
	for tag, v := range s.values {
		if len(v) > 0 {
			out[tag] = distribution(s.units[tag], v)
		}
	}
	one := func(tag, unit string, v float64) { out[tag] = stats{"unit": unit, "avg": v} }
	sumOf := func(tag string) float64 {
		if d, ok := out[tag]; ok {
			return d["sum"].(float64)
		}
		return 0
	}
	if s.valid > 0 {
		one("request_count", "requests", float64(s.valid))
	}
	if s.errors > 0 {
		one("error_request_count", "requests", float64(s.errors))
	}
	if n := s.valid + s.errors; n > 0 {
		one("completed_request_count", "requests", float64(n))
		one("request_error_rate", "%", 100*float64(s.errors)/float64(n))
	}
	if s.overflow > 0 {
		one("context_overflow_count", "requests", float64(s.overflow))
	}
	if len(s.errorISL) > 0 {
		out["error_isl"] = distribution("tokens", s.errorISL)
		one("total_error_isl", "tokens", out["error_isl"]["sum"].(float64))
	}
	if s.total > 0 {
		out["theoretical_prefix_cache_hit"] = stats{"unit": "%", "avg": 100 * float64(s.hit) / float64(s.total), "sum": float64(s.hit), "count": s.total}
	}
	isl, osl := sumOf("input_sequence_length"), sumOf("output_sequence_length")
	for tag, from := range map[string]string{
		"total_isl": "input_sequence_length", "total_osl": "output_sequence_length", "total_output_tokens": "output_token_count",
		"total_reasoning_tokens": "reasoning_token_count", "total_usage_prompt_tokens": "usage_prompt_tokens",
		"total_usage_completion_tokens": "usage_completion_tokens", "total_usage_total_tokens": "usage_total_tokens",
		"total_usage_prompt_cache_read_tokens": "usage_prompt_cache_read_tokens",
	} {
		if _, ok := out[from]; ok {
			one(tag, "tokens", sumOf(from))
		}
	}
	if p := sumOf("usage_prompt_tokens"); p > 0 && out["usage_prompt_cache_read_tokens"] != nil {
		one("overall_usage_prompt_cache_read_pct", "%", 100*sumOf("usage_prompt_cache_read_tokens")/p)
	}
	if dur := float64(s.lastNs-s.firstNs) / 1e9; s.valid > 0 && dur > 0 {
		one("min_request_timestamp", "ns", float64(s.meta.EpochWallNs+s.firstNs))
		one("max_response_timestamp", "ns", float64(s.meta.EpochWallNs+s.lastNs))
		one("benchmark_duration", "sec", dur)
		one("request_throughput", "requests/sec", float64(s.valid)/dur)
		if osl > 0 {
			one("output_token_throughput", "tokens/sec", osl/dur)
			one("total_token_throughput", "tokens/sec", (isl+osl)/dur)
		}
		if isl > 0 {
			one("input_token_throughput", "tokens/sec", isl/dur)
		}
	}
	return out
}

// invalid are the reasons why the run is no valid submission.
func (s *summary) invalid() []string {
	why := []string{}
	if len(s.o.Violations) > 0 {
		why = append(why, "unsafe_override")
	}
	for _, f := range s.result.Reasons {
		if f.Code != result.UnsafeOverride {
			why = append(why, string(f.Code))
		}
	}
	return why
}

// write forms profile_export_aiperf.json and its table.
func (s *summary) write() (js, table []byte, err error) {
	m := s.metrics()
	doc := map[string]any{}
	for tag, v := range m {
		doc[tag] = v
	}
	id := s.result.ID
	doc["schema_version"], doc["aiperf_version"], doc["benchmark_id"] = SchemaVersion, s.o.Program, id
	doc["was_cancelled"] = s.meta.Cancelled != ""
	doc["input_config"] = s.o.Input
	doc["run_info"] = map[string]any{"benchmark_id": id, "random_seed": s.meta.Seed, "trial": s.meta.Repeat, "cli_command": s.o.Command}
	doc["telemetry_data"] = map[string]any{"summary": map[string]any{}, "endpoints": map[string]any{}}
	type errorCount struct {
		Details rowError `json:"error_details"`
		Count   int64    `json:"count"`
	}
	errors := []errorCount{}
	for k, n := range s.kinds {
		errors = append(errors, errorCount{k, n})
	}
	slices.SortFunc(errors, func(a, b errorCount) int {
		if a.Count != b.Count {
			return int(b.Count - a.Count)
		}
		return strings.Compare(a.Details.Type+a.Details.Message, b.Details.Type+b.Details.Message)
	})
	doc["error_summary"] = errors
	if s.beginNs != record.Never {
		doc["start_time"], doc["end_time"] = local(s.meta.EpochWallNs+s.beginNs), local(s.meta.EpochWallNs+s.endNs)
	}
	meta := map[string]any{"dataset": s.o.Dataset, "scenario": nil, "submission_valid": nil, "submission_invalid_reasons": s.invalid()}
	if s.o.Scenario != "" {
		meta["scenario"], meta["submission_valid"] = s.o.Scenario, len(s.invalid()) == 0
		meta["scenario_violations"] = s.o.Violations
	}
	doc["metadata"] = meta
	js, err = encode(doc)
	return js, s.table(m), err
}

// encode writes a document, indented. A number that is not finite is an error.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(v)
	return b.Bytes(), err
}

var columns = []string{"avg", "min", "max", "sum", "p1", "p5", "p10", "p25", "p50", "p75", "p90", "p95", "p99", "std"}

// table is the CSV: distributions, a blank line, single values.
func (s *summary) table(m map[string]stats) []byte {
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	w.UseCRLF = true
	w.Write(append([]string{"Metric"}, columns...))
	var single [][]string
	for _, tag := range slices.Sorted(maps.Keys(m)) {
		st := m[tag]
		name := header(tag)
		if u := st["unit"].(string); u != "requests" {
			name += " (" + u + ")"
		}
		if _, ok := st["p50"]; !ok {
			single = append(single, []string{name, cell(st["avg"])})
			continue
		}
		row := []string{name}
		for _, c := range columns {
			row = append(row, cell(st[c]))
		}
		w.Write(row)
	}
	w.Flush()
	b.WriteString("\r\n")
	w.Write([]string{"Metric", "Value"})
	w.WriteAll(single) // flushes; writing to a buffer never fails
	return b.Bytes()
}

func cell(v any) string {
	switch x := v.(type) {
	case float64:
		if x == math.Trunc(x) && math.Abs(x) < 1e15 {
			return strconv.FormatInt(int64(x), 10)
		}
		return strconv.FormatFloat(x, 'f', 2, 64)
	default:
		return fmt.Sprint(x)
	}
}

// header writes a tag as a title: "time_to_first_token" is "Time to First Token".
func header(tag string) string {
	words := strings.Split(tag, "_")
	for i, w := range words {
		switch w {
		case "to", "per":
			if w == "per" {
				words[i] = "Per"
			}
		case "osl", "isl", "e2e":
			words[i] = strings.ToUpper(w)
		default:
			if w != "" {
				words[i] = strings.ToUpper(w[:1]) + w[1:]
			}
		}
	}
	return strings.Join(words, " ")
}
