package aiperf

import (
	"bytes"
	"encoding/csv"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/weirbench/weir/internal/record"
	"github.com/weirbench/weir/internal/result"
)

// entry is one request, as far as a summary needs it.
type entry struct {
	span
	issued   int64 // when it was handed out, Never when nobody knows
	last     int64 // last content
	failed   bool
	overflow bool
	mismatch bool // its output missed what was asked for
	values   measured
}

// summary gathers the requests of the two phases.
type summary struct {
	meta   *record.Meta
	result *result.Result
	o      *Options

	devices           *telemetry // nil where no GPU was read
	profiling, warmup []entry
	skipped           int   // profiling requests without a line: see skips
	skippedEnd        int64 // when the last of them ended, record.Never without one
	kinds             map[rowError]int64
}

func newSummary(m *record.Meta, r *result.Result, o *Options) *summary {
	return &summary{meta: m, result: r, o: o, kinds: map[rowError]int64{}, skippedEnd: record.Never}
}

func (s *summary) add(q *record.Request, r *row) {
	at := q.Times
	if skips(s.meta, q) {
		if q.Phase == record.Profiling {
			s.skipped, s.skippedEnd = s.skipped+1, max(s.skippedEnd, at.End)
		}
		return
	}
	e := entry{
		span:   span{start: at.Sent, first: record.Never, end: max(at.End, at.Sent), isl: -1, osl: -1},
		issued: at.Queued, last: at.LastToken, failed: r.err != nil, values: r.metrics,
	}
	profiling := q.Phase == record.Profiling
	if e.failed {
		e.overflow = q.Failure.Class == record.FailContextOverflow
		if profiling {
			s.kinds[*r.err]++
		}
	} else {
		e.first, e.isl = at.FirstToken, q.PromptTokens
		if q.OutputTokens > 0 {
			e.osl = q.OutputTokens
			e.mismatch = q.WantOut > 0 && math.Abs(float64(e.osl-q.WantOut)) > min(mismatchShare*float64(q.WantOut), mismatchTokens)
		}
		if len(q.Chunks) > 0 {
			e.chunks = make([]int64, len(q.Chunks))
			for i, c := range q.Chunks {
				e.chunks[i] = c.At
			}
		}
	}
	if profiling {
		s.profiling = append(s.profiling, e)
	} else {
		s.warmup = append(s.warmup, e)
	}
}

// An output misses what was asked for when it differs by more than this share of it, and more
// than so many tokens in any case (METRICS_OSL_MISMATCH_*).
const (
	mismatchShare  = 0.05
	mismatchTokens = 50
)

// withFailed are the metrics that have an error-adjusted twin.
var withFailed = []string{"time_to_first_token", "request_latency", "decode_duration", "full_decode_duration", "inter_token_latency", "full_response_inter_token_latency"}

// sums are derived by adding a metric up.
var sums = map[string]string{
	"total_isl": "input_sequence_length", "total_osl": "output_sequence_length", "total_output_tokens": "output_token_count",
	"total_reasoning_tokens": "reasoning_token_count", "total_usage_prompt_tokens": "usage_prompt_tokens",
	"total_usage_completion_tokens": "usage_completion_tokens", "total_usage_reasoning_tokens": "usage_reasoning_tokens",
	"total_usage_total_tokens": "usage_total_tokens", "total_usage_prompt_cache_read_tokens": "usage_prompt_cache_read_tokens",
}

// values are those of one metric over some requests.
type values struct {
	unit string
	v    []float64
}

// summarize computes the metrics of some requests over a time, nanoseconds since the run's
// epoch; rates divide by that time.
func (o *Options) summarize(entries []*entry, from, to int64) map[string]*stats {
	out := map[string]*stats{}
	all := map[string]*values{}
	var valid, good, failed, overflow, mismatch, answered int
	first, last := int64(math.MaxInt64), record.Never
	for _, e := range entries {
		if e.failed {
			failed++
			if e.overflow {
				overflow++
			}
			continue
		}
		valid++
		if o.good(e) {
			good++
		}
		if e.mismatch {
			mismatch++
		}
		first, last = min(first, e.start), max(last, e.last)
		for i := range e.values {
			m := &e.values[i]
			of := all[m.tag]
			if of == nil {
				of = &values{}
				all[m.tag] = of
			}
			of.unit = m.unit
			if m.list != nil {
				of.v = append(of.v, m.list...)
			} else {
				of.v = append(of.v, m.v)
			}
		}
		if e.values.get("osl_mismatch_diff_pct") != nil {
			answered++
		}
	}
	for tag, of := range all {
		if len(of.v) > 0 {
			out[tag] = distribution(of.unit, of.v)
		}
	}
	one := func(tag, unit string, v float64) { out[tag] = single(unit, v) }
	sumOf := func(tag string) float64 { return out[tag].sum() }
	if valid > 0 {
		one("request_count", "requests", float64(valid))
		if len(o.Goodput) > 0 {
			one("good_request_count", "requests", float64(good))
			one("good_request_fraction", "ratio", float64(good)/float64(valid+failed))
		}
	}
	if failed > 0 {
		one("error_request_count", "requests", float64(failed))
		one("context_overflow_count", "requests", float64(overflow))
		for _, tag := range withFailed {
			if of := all[tag]; of != nil && len(of.v) > 0 {
				out["adj_"+tag] = adjusted(of.unit, of.v, failed)
			}
		}
	}
	if n := valid + failed; n > 0 {
		one("completed_request_count", "requests", float64(n))
		one("request_error_rate", "%", 100*float64(failed)/float64(n))
	}
	if answered > 0 {
		one("osl_mismatch_count", "requests", float64(mismatch))
	}
	for tag, of := range sums {
		if _, ok := out[of]; ok {
			one(tag, "tokens", sumOf(of))
		}
	}
	if p := sumOf("usage_prompt_tokens"); p > 0 && out["usage_prompt_cache_read_tokens"] != nil {
		one("overall_usage_prompt_cache_read_pct", "%", 100*sumOf("usage_prompt_cache_read_tokens")/p)
	}
	if valid > 0 && last > first {
		one("benchmark_duration", "sec", float64(last-first)/1e9)
	}
	if dur := float64(to-from) / 1e9; valid > 0 && dur > 0 {
		isl, osl := sumOf("input_sequence_length"), sumOf("output_sequence_length")
		one("request_throughput", "requests/sec", float64(valid)/dur)
		if len(o.Goodput) > 0 {
			one("goodput", "requests/sec", float64(good)/dur)
		}
		if osl > 0 {
			one("output_token_throughput", "tokens/sec", osl/dur)
			if isl > 0 {
				one("total_token_throughput", "tokens/sec", (isl+osl)/dur)
			}
		}
		if isl > 0 {
			one("input_token_throughput", "tokens/sec", isl/dur)
		}
	}
	return out
}

// waits adds the times from when a request was handed out, to its start and to its end; failed
// ones count here.
func waits(entries []*entry, out map[string]*stats) {
	var start, end []float64
	for _, e := range entries {
		if e.issued != record.Never {
			start = append(start, float64(e.start-e.issued)/1e6)
			end = append(end, float64(e.end-e.issued)/1e6)
		}
	}
	if len(start) > 0 {
		out["credit_to_start_latency"] = distribution("ms", start)
		out["effective_latency"] = distribution("ms", end)
	}
}

// phase computes the metrics of a whole phase.
func (s *summary) phase(profiling bool) (map[string]*stats, *curves) {
	list := s.warmup
	if profiling {
		list = s.profiling
	}
	if len(list) == 0 {
		return map[string]*stats{}, nil
	}
	entries := pointers(list)
	from, to := s.window(profiling)
	out := s.o.summarize(entries, from, to)
	c := newCurves(spansOf(entries))
	c.metrics(out, from, to)
	waits(entries, out)
	if h := s.meta.RecordedHits; h != nil {
		b := h.Warmup
		if profiling {
			b = h.Profiling
		}
		if b.Total > 0 {
			x := single("%", 100*float64(b.Hit)/float64(b.Total))
			x.set(statSum, float64(b.Hit))
			x.set(statCount, float64(b.Total))
			out["theoretical_prefix_cache_hit"] = x
		}
	}
	return out, c
}

// window is the time of a phase: from its start to the end of its last request, or to its
// planned end when that is later.
func (s *summary) window(profiling bool) (from, to int64) {
	list := s.warmup
	if profiling {
		list = s.profiling
	}
	from, to = list[0].start, list[0].end
	for _, e := range list {
		from, to = min(from, e.start), max(to, e.end)
	}
	if w := s.meta.Window; profiling {
		to = max(to, s.skippedEnd)
		from = min(from, max(w.StartNs, 0))
		if s.meta.Cancelled == "" && s.meta.Stalled == "" {
			to = max(to, w.EndNs)
		}
	}
	return from, to
}

func pointers(list []entry) []*entry {
	out := make([]*entry, len(list))
	for i := range list {
		out[i] = &list[i]
	}
	return out
}

func spansOf(entries []*entry) []span {
	out := make([]span, len(entries))
	for i, e := range entries {
		out[i] = e.span
	}
	return out
}

// written are the artifacts of a summary; the last two are nil without slices.
type written struct {
	js, table           []byte
	slicesJS, slicesCSV []byte
}

// write forms profile_export_aiperf.json, its table, and those of the time slices.
func (s *summary) write() (w written, err error) {
	m, c := s.phase(true)
	doc := map[string]any{}
	for tag, v := range m {
		doc[tag] = v
	}
	if warm, _ := s.phase(false); len(warm) > 0 {
		doc["warmup_metrics"] = warm
	}
	if n := s.skipped; n > 0 { // not in the table, as with AIPerf
		one := single("requests", float64(n))
		doc["context_overflow_count"], doc["skipped_context_overflow_count"] = one, one
	}
	id := s.result.ID
	doc["schema_version"], doc["aiperf_version"], doc["benchmark_id"] = SchemaVersion, s.o.Program, id
	doc["was_cancelled"] = s.meta.Cancelled != ""
	doc["input_config"] = s.o.Input
	doc["run_info"] = map[string]any{"benchmark_id": id, "random_seed": s.meta.Seed, "trial": s.meta.Repeat, "cli_command": s.o.Command}
	doc["telemetry_data"] = map[string]any{"summary": map[string]any{}, "endpoints": map[string]any{}}
	if s.devices != nil {
		doc["telemetry_data"] = s.devices.summary()
	}
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
	if len(s.profiling) > 0 {
		from, to := s.window(true)
		doc["start_time"], doc["end_time"] = local(s.meta.EpochWallNs+from), local(s.meta.EpochWallNs+to)
	}
	doc["metadata"] = s.metadata()
	if w.js, err = encode(doc); err != nil {
		return w, err
	}
	w.table = table(m)
	if s.o.SliceNs > 0 && len(s.profiling) > 0 {
		w.slicesJS, w.slicesCSV, err = s.slices(c)
	}
	return w, err
}

// table is the CSV: distributions, a blank line, single values.
func table(m map[string]*stats) []byte {
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	w.UseCRLF = true
	head := []string{"Metric"}
	for _, k := range columns {
		head = append(head, statNames[k])
	}
	w.Write(head)
	var single [][]string
	for _, tag := range slices.Sorted(maps.Keys(m)) {
		st := m[tag]
		name := header(tag)
		if u := st.unit; u != "requests" && u != "count" {
			name += " (" + u + ")"
		}
		if _, ok := st.get(statP50); !ok {
			single = append(single, []string{name, st.cell(statAvg)})
			continue
		}
		row := []string{name}
		for _, k := range columns {
			row = append(row, st.cell(k))
		}
		w.Write(row)
	}
	w.Flush()
	b.WriteString("\r\n")
	w.Write([]string{"Metric", "Value"})
	w.WriteAll(single) // flushes; writing to a buffer never fails
	return b.Bytes()
}

// cell is a number with two digits; empty for one that is not there.
func (s *stats) cell(k stat) string {
	if v, ok := s.get(k); ok {
		return string(appendCell(nil, v))
	}
	return ""
}
