package aiperf

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirbench/weir/internal/record"
	"github.com/weirbench/weir/internal/result"
)

// golden is what AIPerf made of its own records; testdata/agentx/README.md says how it was run.
// numbers are those of one metric, as a document has them.
type numbers map[string]any

type golden struct {
	StartNs  int64              `json:"start_ns"`
	EndNs    int64              `json:"end_ns"`
	Slices   int                `json:"slices"`
	Metrics  map[string]numbers `json:"metrics"`
	Warmup   map[string]numbers `json:"warmup_metrics"`
	Examples []map[string]any   `json:"timeslices"`
	Errors   []struct {
		Details rowError `json:"error_details"`
		Count   int64    `json:"count"`
	} `json:"error_summary"`
}

// theirs reads AIPerf's profile_export.jsonl back into Weir's records.
func theirs(t *testing.T, path string, epoch int64) []*record.Request {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var out []*record.Request
	sc := bufio.NewScanner(f)
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		var x struct {
			Metadata metadata
			Metrics  map[string]struct{ Value json.RawMessage }
			Error    *rowError
		}
		if err := json.Unmarshal(sc.Bytes(), &x); err != nil {
			t.Fatal(err)
		}
		num := func(tag string) (float64, bool) {
			var v float64
			return v, json.Unmarshal(x.Metrics[tag].Value, &v) == nil
		}
		ns := func(tag string) int64 { v, _ := num(tag); return int64(math.Round(v * 1e6)) }
		count := func(tag string) int64 {
			if v, ok := num(tag); ok {
				return int64(v)
			}
			return record.Unknown
		}
		m := x.Metadata
		q := &record.Request{Seq: uint64(len(out) + 1), Trace: m.Conversation, Stream: m.Conversation, Turn: m.Turn, Depth: m.Depth, Phase: record.Pressure, Tree: "0.0",
			PromptTokens: record.Unknown, OutputTokens: record.Unknown, ReasoningTokens: record.Unknown, Hits: record.UnknownHits}
		if m.Phase == "profiling" {
			q.Phase = record.Profiling
		}
		at := record.Times{Intended: record.Never, Queued: *m.IssuedNs - epoch, Sent: m.StartNs - epoch, Headers: record.Never,
			FirstToken: record.Never, FirstVisible: record.Never, LastToken: record.Never, End: m.EndNs - epoch}
		if x.Error != nil {
			q.Failure = &record.Failure{Class: record.FailStatus, Status: x.Error.Code, Detail: x.Error.Message}
			q.Times = at
			out = append(out, q)
			continue
		}
		at.Headers = *m.AckNs - epoch
		at.FirstToken = at.Sent + ns("time_to_first_token")
		at.Headers = min(at.Headers, at.FirstToken)
		at.LastToken = at.Sent + ns("request_latency")
		if _, ok := num("time_to_first_output_token"); ok {
			at.FirstVisible = at.Sent + ns("time_to_first_output_token")
		}
		at.End = max(at.FirstToken+ns("full_decode_duration"), at.LastToken)
		q.Chunks = []record.Chunk{{At: at.FirstToken, Tokens: record.Unknown}}
		var gaps []float64
		if raw := x.Metrics["inter_chunk_latency"].Value; raw != nil {
			if err := json.Unmarshal(raw, &gaps); err != nil {
				t.Fatal(err)
			}
		}
		sum := at.FirstToken
		for _, g := range gaps {
			sum += int64(math.Round(g * 1e6))
			q.Chunks = append(q.Chunks, record.Chunk{At: sum, Tokens: record.Unknown})
		}
		q.Times = at
		q.PromptTokens, q.OutputTokens = count("input_sequence_length"), count("output_sequence_length")
		if off, ok := num("osl_mismatch_diff_pct"); ok {
			q.WantOut = int64(math.Round(float64(q.OutputTokens) / (1 + off/100)))
		}
		q.Hits.Total = count("usage_prompt_cache_read_tokens")
		wire(q, num)
		out = append(out, q)
	}
	if err := sc.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

// artifacts writes records as a bundle and its artifacts, and returns their folder.
func artifacts(t *testing.T, records []*record.Request, epoch int64, w record.Window, o Options) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "b")
	bw, err := record.CreateBundle(dir)
	if err != nil {
		t.Fatal(err)
	}
	m := record.NewMeta()
	m.PointID, m.EpochWallNs, m.Window = "p", epoch, w
	if err := bw.WriteMeta(m); err != nil {
		t.Fatal(err)
	}
	for _, q := range records {
		if err := bw.WriteRequest(q); err != nil {
			t.Fatal(err)
		}
	}
	r, err := result.Finish(bw)
	if err != nil {
		t.Fatal(err)
	}
	b, err := record.OpenBundle(dir)
	if err != nil {
		t.Fatal(err)
	}
	o.Dir = t.TempDir()
	if _, err := Export(b, r, o); err != nil {
		t.Fatal(err)
	}
	return o.Dir
}

// notRebuilt are those that AIPerf's records do not hold.
var notRebuilt = map[string]string{
	"theoretical_prefix_cache_hit": "needs the traces",
}

// TestGoldenMetrics compares every metric, of the run, of its warm-up and of slices of time, with
// what AIPerf computed from the same records.
func TestGoldenMetrics(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join("testdata", "agentx", "expected.json"))
	if err != nil {
		t.Fatal(err)
	}
	var want golden
	if err := json.Unmarshal(raw, &want); err != nil {
		t.Fatal(err)
	}
	// AIPerf's warm-up begins before its profiling phase.
	epoch := want.StartNs - 60*sec
	records := theirs(t, filepath.Join("testdata", "agentx", "profile_export.jsonl"), epoch)
	dir := artifacts(t, records, epoch, record.Window{StartNs: want.StartNs - epoch, EndNs: want.EndNs - epoch}, Options{SliceNs: sec})

	var got map[string]json.RawMessage
	if raw, err = os.ReadFile(filepath.Join(dir, "profile_export_aiperf.json")); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &got); err != nil {
		t.Fatal(err)
	}
	metrics := map[string]numbers{}
	for tag, v := range got {
		var s numbers
		if json.Unmarshal(v, &s) == nil && s["unit"] != nil {
			metrics[tag] = s
		}
	}
	same(t, "run", want.Metrics, metrics, true)
	var warm map[string]numbers
	if err := json.Unmarshal(got["warmup_metrics"], &warm); err != nil {
		t.Fatal(err)
	}
	for tag := range want.Warmup { // the time of AIPerf's warm-up is in no file
		_, all := want.Warmup[tag]["count"]
		if !all && (strings.HasSuffix(tag, "_throughput") || strings.HasPrefix(tag, "active_") || strings.HasPrefix(tag, "effective_") || tag == "tokens_in_flight") {
			delete(want.Warmup, tag)
			delete(warm, tag)
		}
	}
	same(t, "warm-up", want.Warmup, warm, false)

	var cut struct{ Timeslices []map[string]any }
	if raw, err = os.ReadFile(filepath.Join(dir, "profile_export_aiperf_timeslices.json")); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &cut); err != nil {
		t.Fatal(err)
	}
	if len(cut.Timeslices) != want.Slices {
		t.Fatalf("%d slices, want %d", len(cut.Timeslices), want.Slices)
	}
	pick := func(m map[string]any) map[string]numbers {
		out := map[string]numbers{}
		for k, v := range m {
			if s, ok := v.(map[string]any); ok {
				out[k] = s
			}
		}
		return out
	}
	for _, x := range want.Examples {
		i := int(x["index"].(float64))
		g := cut.Timeslices[i]
		if a, b := g["start_ns"].(float64), x["start_ns"].(float64); math.Abs(a-b) > 512 || g["is_complete"] != x["is_complete"] {
			t.Errorf("slice %d begins at %v, want %v; complete %v, want %v", i, a, b, g["is_complete"], x["is_complete"])
		}
		same(t, fmt.Sprintf("slice %d", i), pick(x), pick(g), true)
	}

	f, err := os.Open(filepath.Join(dir, "profile_export_aiperf.csv"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r := csv.NewReader(f)
	r.FieldsPerRecord = -1
	rows, err := r.ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	titles := map[string]bool{}
	for _, row := range rows {
		titles[row[0]] = true
	}
	for tag, s := range want.Metrics {
		name := header(tag)
		if u := s["unit"].(string); u != "requests" && u != "count" {
			name += " (" + u + ")"
		}
		if notRebuilt[tag] == "" && !titles[name] {
			t.Errorf("the table has no %s", name)
		}
	}

	lines, err := os.ReadFile(filepath.Join(dir, "profile_export.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	original, err := os.ReadFile(filepath.Join("testdata", "agentx", "profile_export.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	a, b := bytes.Split(bytes.TrimSpace(original), []byte("\n")), bytes.Split(bytes.TrimSpace(lines), []byte("\n"))
	if len(a) != len(b) {
		t.Fatalf("%d records, want %d", len(b), len(a))
	}
	for i := range a {
		sameKeys(t, i, a[i], b[i])
	}
}

// sameKeys compares which metrics a record has.
func sameKeys(t *testing.T, i int, want, got []byte) {
	t.Helper()
	var a, b struct {
		Metrics map[string]struct{ Unit string }
	}
	if err := json.Unmarshal(want, &a); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(got, &b); err != nil {
		t.Fatal(err)
	}
	for tag, v := range a.Metrics {
		if b.Metrics[tag] != v {
			t.Errorf("record %d: %s has the unit %q, want %q", i, tag, b.Metrics[tag].Unit, v.Unit)
		}
	}
	for tag := range b.Metrics {
		if _, ok := a.Metrics[tag]; !ok {
			t.Errorf("record %d: AIPerf has no %s", i, tag)
		}
	}
}

// same compares metrics. Curves over time are AIPerf's to the 256 ns that its instants, which
// are floating-point nanoseconds since 1970, are rounded to: adjacent steps can overlap by that, so a curve's extreme
// values are not compared.
func same(t *testing.T, what string, want, got map[string]numbers, whole bool) {
	t.Helper()
	for tag, w := range want {
		if notRebuilt[tag] != "" {
			continue
		}
		g, ok := got[tag]
		if !ok {
			t.Errorf("%s: %s is missing", what, tag)
			continue
		}
		curve := strings.HasPrefix(tag, "active_") || strings.HasPrefix(tag, "effective_") && tag != "effective_latency" || tag == "tokens_in_flight"
		for stat, x := range w {
			y, ok := g[stat]
			if !ok {
				t.Errorf("%s: %s has no %s", what, tag, stat)
				continue
			}
			a, isNumber := number(x)
			if !isNumber {
				if x != y {
					t.Errorf("%s: %s.%s is %v, want %v", what, tag, stat, y, x)
				}
				continue
			}
			b, _ := number(y)
			allowed := 1e-6*math.Abs(a) + 1e-9
			switch {
			case curve && (stat == "min" || stat == "max" || stat == "std" || stat == "p99"):
				continue
			case strings.HasPrefix(tag, "http_req_") && stat == "sum":
				continue
			case tag == "http_req_receiving" || tag == "http_req_duration" || tag == "http_req_total": // to the last read, not to the end
				allowed = 2e-3*math.Abs(a) + 1.2
			case curve:
				allowed = 2e-3*math.Abs(a) + 1e-6
			case strings.HasPrefix(tag, "http_req_") || strings.Contains(tag, "full_") || strings.HasSuffix(tag, "effective_latency"): // instants of other layers there
				allowed = 2e-3*math.Abs(a) + 0.3
			case tag == "credit_to_start_latency" || strings.HasSuffix(tag, "_throughput") || tag == "benchmark_duration":
				allowed = 1e-5*math.Abs(a) + 1e-3
			}
			if math.Abs(a-b) > allowed {
				t.Errorf("%s: %s.%s is %v, want %v", what, tag, stat, y, x)
			}
		}
		for stat := range g {
			if _, ok := w[stat]; !ok && whole && strings.HasPrefix(what, "run") {
				t.Errorf("%s: %s has a %s that AIPerf has not", what, tag, stat)
			}
		}
	}
	for tag := range got {
		if _, ok := want[tag]; !ok && !onlyWeir[tag] {
			t.Errorf("%s: AIPerf has no %s", what, tag)
		}
	}
}

// onlyWeir are metrics that AIPerf leaves out of a phase without a failure.
var onlyWeir = map[string]bool{"completed_request_count": true, "request_error_rate": true}

func number(v any) (float64, bool) { f, ok := v.(float64); return f, ok }

// wire reads back how a request went over its connection.
func wire(q *record.Request, num func(string) (float64, bool)) {
	v := func(tag string) float64 { x, _ := num(tag); return x }
	ns := func(tag string) int64 { return int64(math.Round(v(tag) * 1e6)) }
	w := &record.Wire{Reused: v("http_req_connection_reused") == 1, DNSNs: ns("http_req_dns_lookup"), ConnectNs: ns("http_req_connecting"),
		BytesOut: int64(v("http_req_data_sent") * 1024), BytesIn: int64(v("http_req_data_received") * 1024),
		Writes: 7 * int64(v("http_req_chunks_sent")), // AIPerf's is the body as a whole, however many writes it takes
		Reads:  int64(v("http_req_chunks_received"))}
	w.Written = q.Times.Sent + ns("http_req_sending")
	w.Body = w.Written + ns("http_req_waiting")
	q.Wire = w
}
