// Package aiperf writes a bundle as AIPerf's artifacts, under AIPerf's file names, metric names,
// units and phases, so that what reads those reads a run of Weir: profile_export.jsonl,
// profile_export_aiperf.json and .csv, server_metrics_export.json and .csv.
//
// Where AIPerf's definition differs from Weir's, the artifact follows AIPerf's (docs/aiperf.md
// lists them); Weir's own number stands in the bundle's result.json. What nobody measured is
// absent, as it is there.
//
// Sources: AIPerf 0.13 and agentx-harness 1.0.12 (metrics/types, exporters, server_metrics;
// 2026-10).
package aiperf

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/weirbench/weir/internal/client"
	"github.com/weirbench/weir/internal/record"
	"github.com/weirbench/weir/internal/result"
)

// SchemaVersion of profile_export_aiperf.json.
const SchemaVersion = "1.4"

// Options say what the artifacts hold beside the records.
type Options struct {
	Dir    string // where the artifacts go
	Prefix string // of the file names; empty for profile_export
	// Program stands as aiperf_version, so that a reader sees who wrote the file.
	Program string
	Command string // the command line
	// Scenario is the lock that was asked for, Violations what it would have refused.
	Scenario   string
	Violations []string
	// OverflowRate is the share of the profiling requests that may overflow the context in a valid
	// submission, 0 to 1.
	OverflowRate float64
	Input        map[string]any // input_config
	SliceNs      int64          // length of a time slice; 0 writes none
	// Goodput bounds the metrics of good requests, each in its unit; empty counts none.
	Goodput   map[string]float64
	NoRecords bool // leave profile_export.jsonl out
	NoServer  bool // leave server_metrics_export out
}

// Files are the paths that Export wrote.
type Files []string

// Export writes the artifacts of a bundle. It removes nothing.
func Export(b *record.Bundle, r *result.Result, o Options) (Files, error) {
	if err := os.MkdirAll(o.Dir, 0o777); err != nil {
		return nil, err
	}
	name := func(own, suffix string) string {
		if o.Prefix != "" {
			own = o.Prefix + suffix
		}
		return filepath.Join(o.Dir, own)
	}
	var files Files
	s := newSummary(b.Meta, r, &o)
	recordsPath := name("profile_export.jsonl", ".jsonl")
	if err := records(b, s, recordsPath, o.NoRecords); err != nil {
		return files, err
	}
	if !o.NoRecords {
		files = append(files, recordsPath)
	}
	devicesPath := name("gpu_telemetry_export.jsonl", "_gpu_telemetry.jsonl")
	var err error
	if s.devices, err = readTelemetry(b, devicesPath); err != nil {
		return files, err
	}
	if s.devices != nil && len(s.devices.devices) > 0 {
		files = append(files, devicesPath)
	}
	w, err := s.write()
	if err != nil {
		return files, err
	}
	for _, f := range []struct {
		path string
		data []byte
	}{
		{name("profile_export_aiperf.json", ".json"), w.js}, {name("profile_export_aiperf.csv", ".csv"), w.table},
		{name("profile_export_aiperf_timeslices.json", "_timeslices.json"), w.slicesJS},
		{name("profile_export_aiperf_timeslices.csv", "_timeslices.csv"), w.slicesCSV},
	} {
		if f.data == nil {
			continue
		}
		if err := whole(f.path, os.WriteFile(f.path, f.data, 0o666)); err != nil {
			return files, err
		}
		files = append(files, f.path)
	}
	if o.NoServer {
		return files, nil
	}
	m, err := readMetrics(b, &o)
	if err != nil || m == nil {
		return files, err
	}
	js, table, err := m.write(&o)
	if err != nil {
		return files, err
	}
	for _, f := range []struct {
		path string
		data []byte
	}{{name("server_metrics_export.json", "_server_metrics.json"), js}, {name("server_metrics_export.csv", "_server_metrics.csv"), table}} {
		if err := whole(f.path, os.WriteFile(f.path, f.data, 0o666)); err != nil {
			return files, err
		}
		files = append(files, f.path)
	}
	return files, nil
}

// whole leaves no torn file where writing one failed, which its readers would take for the run.
func whole(path string, err error) error {
	if at, statErr := os.Stat(path); err == nil || statErr != nil || !at.Mode().IsRegular() {
		return err
	}
	return errors.Join(err, os.Remove(path))
}

type metadata struct {
	Session      int    `json:"session_num"`
	RequestID    string `json:"x_request_id"`
	Correlation  string `json:"x_correlation_id"`
	Conversation string `json:"conversation_id"`
	Turn         int    `json:"turn_index"`
	StartNs      int64  `json:"request_start_ns"`
	AckNs        *int64 `json:"request_ack_ns,omitempty"`
	EndNs        int64  `json:"request_end_ns"`
	Worker       string `json:"worker_id"`
	Processor    string `json:"record_processor_id"`
	Phase        string `json:"benchmark_phase"`
	PhaseKind    string `json:"phase_kind"`
	PhaseName    string `json:"phase_name,omitempty"` // of the profiling phase, as the two after it
	PhaseIndex   *int   `json:"phase_index,omitempty"`
	Profiling    *int   `json:"profiling_index,omitempty"`
	Cancelled    bool   `json:"was_cancelled"`
	Skipped      bool   `json:"context_overflow_skip"` // false: what was skipped has no line
	CancelNs     *int64 `json:"cancellation_time_ns,omitempty"`
	IssuedNs     *int64 `json:"credit_issued_ns,omitempty"`
	Depth        int    `json:"agent_depth"`
	Parent       string `json:"parent_correlation_id,omitempty"` // where it is known to be the root
	Root         string `json:"root_correlation_id"`
	Trace        string `json:"source_trace_id,omitempty"` // of a Weka trace, as the three after it
	Outer        *int   `json:"source_outer_idx,omitempty"`
	Inner        *int   `json:"source_inner_idx,omitempty"`
	Kind         string `json:"source_kind,omitempty"`
}

type rowError struct {
	Code    int    `json:"code,omitempty"`
	Type    string `json:"type"`
	Message string `json:"message"`
}

// errorOf names a failure as AIPerf would.
func errorOf(f *record.Failure) *rowError {
	e := &rowError{Code: f.Status, Message: f.Detail}
	switch f.Class {
	case record.FailCancelled:
		e.Code, e.Type = 499, "RequestCancellationError"
	case record.FailNoTokens:
		e.Type = "InvalidInferenceResultError"
	case record.FailContextOverflow:
		e.Type = "ContextOverflowError"
	case record.FailStatus:
		// AIPerf has the reason phrase of the answer, which HTTP/2 does not carry, and its body.
		e.Type = http.StatusText(f.Status)
		if e.Type == "" {
			e.Type = "HTTPStatusError"
		}
		e.Message = strings.TrimPrefix(e.Message, fmt.Sprintf("HTTP status %d: ", f.Status))
	case record.FailTimeoutHeaders, record.FailTimeoutFirst, record.FailTimeoutStream:
		e.Type = "TimeoutError"
	case record.FailMalformed, record.FailStreamError:
		e.Type = "SSEResponseError"
	case record.FailConnect, record.FailDNS, record.FailTLS, record.FailResetBefore, record.FailResetAfter:
		e.Type = "ConnectionError"
	default:
		e.Type = string(f.Class)
	}
	if e.Message == "" {
		e.Message = string(f.Class)
	}
	return e
}

// skips tells that a request has no line and is no error: under agentic replay AIPerf only counts the
// prompts that were too long, which end their streams (records_manager.py, 2026-10).
func skips(m *record.Meta, q *record.Request) bool {
	return q.Failure != nil && q.Failure.Class == record.FailContextOverflow && strings.HasPrefix(m.Semantics, "agentx")
}

// records writes one line a request and gives every one to the summary.
func records(b *record.Bundle, s *summary, path string, none bool) (err error) {
	if none {
		return lines(b, nil, s.add)
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = whole(path, errors.Join(err, f.Close())) }()
	return lines(b, f, s.add)
}

// WriteRecords writes profile_export.jsonl without its lists of gaps between chunks.
func WriteRecords(b *record.Bundle, w io.Writer) error {
	return lines(b, w, func(_ *record.Request, r *row) {
		r.metrics = slices.DeleteFunc(r.metrics, func(m metric) bool { return m.tag == "inter_chunk_latency" })
	})
}

// lines gives each every request that went out with its line, and writes the lines to w unless it is
// nil, without those of skipped ones.
func lines(b *record.Bundle, to io.Writer, each func(*record.Request, *row)) error {
	var w *bufio.Writer
	if to != nil {
		w = bufio.NewWriterSize(to, 1<<18)
	}
	n := 0
	var raw []byte
	for q, err := range b.Requests() {
		if err != nil {
			return err
		}
		if q.Times.Sent == record.Never || q.Phase == record.Calibrate {
			continue // never went out
		}
		r := line(q, b.Meta, n)
		n++
		each(q, &r)
		if w == nil || skips(b.Meta, q) {
			continue
		}
		if raw, err = r.append(raw[:0]); err != nil {
			return err
		}
		if _, err := w.Write(raw); err != nil {
			return err
		}
	}
	if w == nil {
		return nil
	}
	return w.Flush()
}

func line(q *record.Request, of *record.Meta, n int) row {
	at, epoch := q.Times, of.EpochWallNs
	root := q.Stream
	if q.Depth > 0 {
		root = q.Trace
	}
	wall := func(ns int64) *int64 {
		if ns == record.Never {
			return nil
		}
		v := epoch + ns
		return &v
	}
	m := metadata{
		Session: n, RequestID: client.RequestID(of.PointID, q.Seq), Correlation: client.SessionID(of.PointID, q.Tree, q.Stream),
		Root:         client.SessionID(of.PointID, q.Tree, root),
		Conversation: q.Stream, Turn: q.Turn, StartNs: epoch + at.Sent, AckNs: wall(at.Headers), EndNs: epoch + max(at.End, at.Sent),
		Worker: "weir", Processor: "weir", Phase: "warmup", IssuedNs: wall(at.Queued), Depth: q.Depth,
	}
	if q.Phase == record.Profiling {
		m.Phase, m.PhaseName, m.PhaseIndex, m.Profiling = "profiling", "profiling", new(int), new(int)
	}
	if q.Depth == 1 {
		m.Parent = m.Root
	}
	m.source(q)
	m.PhaseKind = m.Phase
	r := row{metadata: m}
	if q.Failure != nil {
		r.err = errorOf(q.Failure)
		if q.Failure.Class == record.FailCancelled {
			r.metadata.Cancelled, r.metadata.CancelNs = true, wall(at.End)
		}
		return r
	}
	r.metrics = make(measured, 0, 48)
	measure(q, &r.metrics)
	r.metrics.sort()
	return r
}

// source says where in a Weka trace a request was recorded, in AIPerf's words: in the agent's own
// list, in a conversation that was found in that list, or in the list of a sub-agent.
func (m *metadata) source(q *record.Request) {
	if q.Outer <= 0 {
		return
	}
	m.Trace, m.Outer, m.Kind = q.Trace, new(q.Outer-1), "weka_flat"
	switch {
	case q.Inner > 0:
		m.Inner, m.Kind = new(q.Inner-1), "weka_subagent"
	case q.Stream == q.Trace:
		m.Kind = "weka_main"
	}
}

// measure computes the metrics of one request that succeeded.
func measure(q *record.Request, m *measured) {
	at := q.Times
	ms := func(tag string, ns int64) { m.add(tag, "ms", float64(ns)/1e6) }
	tokens := func(tag string, n int64) { m.count(tag, "tokens", n) }
	const perUser = "tokens/sec/user"
	isl, osl := q.PromptTokens, q.OutputTokens
	if isl >= 0 {
		tokens("input_sequence_length", isl)
		tokens("usage_prompt_tokens", isl)
	}
	if osl > 0 {
		reasoning := max(q.ReasoningTokens, 0)
		tokens("output_sequence_length", osl)
		tokens("usage_completion_tokens", osl)
		tokens("output_token_count", max(osl-reasoning, 0))
		if reasoning > 0 {
			tokens("reasoning_token_count", reasoning)
			tokens("usage_reasoning_tokens", reasoning)
		}
		if isl >= 0 {
			tokens("usage_total_tokens", isl+osl)
		}
	}
	if q.Hits.Total >= 0 {
		tokens("usage_prompt_cache_read_tokens", q.Hits.Total)
	}
	if q.WantOut > 0 && osl > 0 {
		m.add("osl_mismatch_diff_pct", "%", 100*float64(osl-q.WantOut)/float64(q.WantOut))
	}
	wired(q, m)
	if at.FirstToken == record.Never || at.LastToken == record.Never {
		return
	}
	ttft, latency := at.FirstToken-at.Sent, at.LastToken-at.Sent
	ms("time_to_first_token", ttft)
	ms("request_latency", latency)
	ms("decode_duration", latency-ttft)
	ms("full_decode_duration", at.End-at.FirstToken)
	if at.FirstVisible != record.Never {
		ms("time_to_first_output_token", at.FirstVisible-at.Sent)
	}
	if n := len(q.Chunks); n > 1 {
		ms("time_to_second_token", q.Chunks[1].At-q.Chunks[0].At)
		gaps := make([]float64, n-1)
		for i := range gaps {
			gaps[i] = float64(q.Chunks[i+1].At-q.Chunks[i].At) / 1e6
		}
		*m = append(*m, metric{tag: "inter_chunk_latency", unit: "ms", list: gaps})
	}
	if osl >= 2 {
		itl := float64(latency-ttft) / float64(osl-1)
		full := float64(at.End-at.FirstToken) / float64(osl-1)
		m.add("inter_token_latency", "ms", itl/1e6)
		m.add("full_response_inter_token_latency", "ms", full/1e6)
		if itl > 0 {
			m.add("output_token_throughput_per_user", perUser, 1e9/itl)
		}
		if full > 0 {
			m.add("full_response_output_token_throughput_per_user", perUser, 1e9/full)
		}
	}
	if osl > 0 && latency > 0 {
		m.add("e2e_output_token_throughput", perUser, float64(osl)*1e9/float64(latency))
	}
	if isl > 0 && ttft > 0 {
		m.add("prefill_throughput_per_user", perUser, float64(isl)*1e9/float64(ttft))
	}
}

// local writes an instant as AIPerf does: local time without a zone.
func local(ns int64) string {
	return time.Unix(0, ns).Local().Format("2006-01-02T15:04:05.000000")
}
