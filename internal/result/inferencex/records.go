package inferencex

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"reflect"
	"slices"
	"strings"
)

// A profiled record, as far as the row needs it. A metric that is absent is nil.
type profiled struct {
	startNs, endNs int64 // 0 when absent
	ttftMs, latencyMs, itlMs, fullITLMs,
	isl, osl *float64
}

// line is a line of profile_export.jsonl.
type line struct {
	Metadata struct {
		Phase *string         `json:"benchmark_phase"`
		Start json.RawMessage `json:"request_start_ns"`
		End   json.RawMessage `json:"request_end_ns"`
	} `json:"metadata"`
	Metrics map[string]json.RawMessage `json:"metrics"`
	Error   json.RawMessage            `json:"error"`
}

// lineLimit is the longest line of a record; inter-chunk latencies make them long.
const lineLimit = 256 << 20

// readRecords reads profile_export.jsonl. A line that is no JSON object is an error that names
// it: a torn line means that records are missing.
func readRecords(path string) ([]profiled, Accounting, error) {
	f, err := open(path)
	if err != nil {
		return nil, Accounting{}, err
	}
	defer f.Close()
	return parseRecords(f, path)
}

// parseRecords is readRecords; name stands in errors.
func parseRecords(from io.Reader, path string) ([]profiled, Accounting, error) {
	a := Accounting{Classes: map[string]int{}}
	var out []profiled
	r := bufio.NewReaderSize(from, 1<<20)
	for n := 1; ; n++ {
		b, err := readLine(r)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, a, fmt.Errorf("%s:%d: %w", path, n, err)
		}
		b = bytes.TrimSpace(b)
		if len(b) == 0 {
			continue
		}
		var l line
		if err := unmarshal(b, &l); err != nil {
			return nil, a, fmt.Errorf("%s:%d: not a record: %w; the file is torn or no AIPerf export", path, n, err)
		}
		a.Total++
		warmup := l.Metadata.Phase != nil && *l.Metadata.Phase != "profiling"
		failed := truthy(l.Error)
		if warmup {
			a.Warmup++
		}
		if failed {
			a.Errors++
			a.Classes[errorClass(l.Error)]++
		}
		if warmup || failed {
			continue
		}
		out = append(out, profiled{
			startNs: nanos(l.Metadata.Start), endNs: nanos(l.Metadata.End),
			ttftMs: l.metric("time_to_first_token"), latencyMs: l.metric("request_latency"),
			itlMs: l.metric("inter_token_latency"), fullITLMs: l.metric("full_response_inter_token_latency"),
			isl: l.metric("input_sequence_length"), osl: l.metric("output_sequence_length"),
		})
	}
	a.Profiled, a.Dropped = len(out), a.Total-len(out)
	return out, a, nil
}

func readLine(r *bufio.Reader) ([]byte, error) {
	var out []byte
	for {
		part, err := r.ReadSlice('\n')
		if err == nil && out == nil {
			return part, nil
		}
		out = append(out, part...)
		if len(out) > lineLimit {
			return nil, fmt.Errorf("a line is longer than %d bytes", lineLimit)
		}
		switch {
		case err == nil:
			return out, nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && len(out) > 0:
			return out, nil
		default:
			return nil, err
		}
	}
}

// metric is the value of a metric, given bare or as an object with unit.
func (l *line) metric(name string) *float64 {
	raw := l.Metrics[name]
	var o struct {
		Value json.RawMessage `json:"value"`
	}
	if len(raw) > 0 && raw[0] == '{' {
		if json.Unmarshal(raw, &o) != nil {
			return nil
		}
		raw = o.Value
	}
	return float(raw)
}

// float reads a number, or a string that holds one; nil for anything else and for what is not
// finite.
func float(raw json.RawMessage) *float64 {
	if len(raw) == 0 || string(raw) == "null" {
		return nil
	}
	text := strings.Trim(string(raw), `"`)
	var v float64
	if err := json.Unmarshal([]byte(text), &v); err != nil || math.IsInf(v, 0) || math.IsNaN(v) {
		return nil
	}
	return &v
}

func nanos(raw json.RawMessage) int64 {
	var n int64
	if json.Unmarshal(raw, &n) == nil {
		return n
	}
	if v := float(raw); v != nil {
		return int64(*v)
	}
	return 0
}

func truthy(raw json.RawMessage) bool {
	switch s := string(bytes.TrimSpace(raw)); s {
	case "", "null", "false", "0", `""`, "{}", "[]":
		return false
	}
	return true
}

// errorClass names an error by the first of its identifying fields, or by its message.
func errorClass(raw json.RawMessage) string {
	message := ""
	var o map[string]json.RawMessage
	if json.Unmarshal(raw, &o) == nil {
		for _, k := range []string{"type", "error_type", "code", "class", "status"} {
			if v := plainText(o[k]); v != "" {
				return v
			}
		}
		if message = plainText(o["message"]); message == "" {
			message = plainText(o["error"])
		}
	} else {
		message = plainText(raw)
	}
	first, _, _ := strings.Cut(strings.TrimSpace(message), "\n")
	first, _, _ = strings.Cut(first, ":")
	if first == "" {
		return "unknown"
	}
	if r := []rune(first); len(r) > 120 {
		first = string(r[:120])
	}
	return first
}

func plainText(raw json.RawMessage) string {
	if len(raw) == 0 || string(raw) == "null" {
		return ""
	}
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	return string(raw)
}

// unmarshal reads JSON in which Python may have written NaN or Infinity for a number: those
// are read as null, which is a value that nobody measured.
func unmarshal(b []byte, v any) error {
	err := json.Unmarshal(b, v)
	var te *json.UnmarshalTypeError
	if errors.As(err, &te) { // Go's text names Go's types
		return &typeError{te}
	}
	if err == nil || !bytes.Contains(b, []byte("NaN")) && !bytes.Contains(b, []byte("Infinity")) {
		return err
	}
	return json.NewDecoder(&finite{r: bufio.NewReader(bytes.NewReader(b))}).Decode(v)
}

// A typeError is JSON of another kind than is read there.
type typeError struct{ err *json.UnmarshalTypeError }

func (e *typeError) Error() string {
	want := "another value"
	switch t := e.err.Type; t.Kind() {
	case reflect.Struct, reflect.Map:
		want = "an object"
	case reflect.Slice, reflect.Array:
		want = "a list"
	case reflect.String:
		want = "text"
	default:
		if k := t.Kind(); k == reflect.Bool {
			want = "true or false"
		} else if k >= reflect.Int && k <= reflect.Float64 {
			want = "a number"
		}
	}
	if e.err.Field == "" {
		return fmt.Sprintf("need %s, found %s", want, e.err.Value)
	}
	return fmt.Sprintf("%s: need %s, found %s", e.err.Field, want, e.err.Value)
}

func (e *typeError) Unwrap() error { return e.err }

// open opens a file of a result: what is no file (a pipe, say) would be waited for without end.
func open(path string) (*os.File, error) {
	at, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if m := at.Mode(); m&(os.ModeNamedPipe|os.ModeSocket|os.ModeDevice) != 0 {
		return nil, fmt.Errorf("%s is not a file but %s", path, m.Type())
	}
	return os.Open(path)
}

// readFile is open and everything in it.
func readFile(path string) ([]byte, error) {
	f, err := open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(f)
}

// requestMetrics are the client's side of the row.
func requestMetrics(records []profiled, theoretical *float64) Requests {
	var r Requests
	r.QPS = qps(records)
	r.Latency = latency(records)
	input, output := tokens(records, func(p *profiled) *float64 { return p.isl }), tokens(records, func(p *profiled) *float64 { return p.osl })
	r.Tokens.Input, r.Tokens.Output = momentsOf(input).spread(), momentsOf(output).spread()
	r.Throughput = throughput(records, sum(input), sum(output))
	r.Cache.Theoretical = numberOf(theoretical)
	return r
}

// tokens are counts as integers, as the aggregator reads them.
func tokens(records []profiled, get func(*profiled) *float64) []float64 {
	var out []float64
	for i := range records {
		if v := get(&records[i]); v != nil {
			out = append(out, math.Trunc(*v))
		}
	}
	return out
}

func latency(records []profiled) Latency {
	seconds := func(get func(*profiled) *float64) []float64 {
		var out []float64
		for i := range records {
			if v := get(&records[i]); v != nil && *v > 0 {
				out = append(out, *v/1000)
			}
		}
		return out
	}
	var perToken []float64
	for _, r := range records {
		if r.latencyMs != nil && r.osl != nil && *r.latencyMs > 0 && *r.osl > 0 {
			perToken = append(perToken, *r.latencyMs/1000 / *r.osl)
		}
	}
	itl := seconds(func(p *profiled) *float64 { return p.itlMs })
	full := seconds(func(p *profiled) *float64 { return p.fullITLMs })
	return Latency{
		TTFT: momentsOf(seconds(func(p *profiled) *float64 { return p.ttftMs })).spread(),
		E2EL: momentsOf(seconds(func(p *profiled) *float64 { return p.latencyMs })).spread(),
		ITL:  momentsOf(itl).spread(), TPOT: momentsOf(itl).spread(), Intvty: rates(itl),
		E2ENormIntvty:   rates(perToken),
		FullResponseITL: momentsOf(full).spread(), FullResponseIntvtvy: rates(full),
	}
}

// qps counts ends in windows of one second from the first end on; a last window that is not
// whole is left out.
func qps(records []profiled) QPS {
	var ends []float64
	for _, r := range records {
		if r.endNs != 0 {
			ends = append(ends, float64(r.endNs)/1e9)
		}
	}
	if len(ends) < 2 {
		return QPS{}
	}
	slices.Sort(ends)
	last := ends[len(ends)-1]
	if last <= ends[0] {
		return QPS{}
	}
	var counts []float64
	at := 0
	for from := ends[0]; from+1 <= last; from++ {
		for at < len(ends) && ends[at] < from {
			at++
		}
		n := at
		for n < len(ends) && ends[n] < from+1 {
			n++
		}
		counts = append(counts, float64(n-at))
		at = n
	}
	q := QPS{Window: number(1), Samples: new(len(counts))}
	if len(counts) == 0 {
		q.Mean = number(float64(len(ends)) / (last - ends[0]))
		return q
	}
	q.Spread = momentsOf(counts).spread()
	return q
}

func throughput(records []profiled, input, output float64) Throughput {
	var first, last int64
	for _, r := range records {
		if r.startNs != 0 && (first == 0 || r.startNs < first) {
			first = r.startNs
		}
		last = max(last, r.endNs)
	}
	if first == 0 || last == 0 || last <= first {
		return Throughput{}
	}
	d := float64(last-first) / 1e9
	return Throughput{
		Input: &PerSecond{Number(input / d)}, Output: &PerSecond{Number(output / d)}, Total: &PerSecond{Number((input + output) / d)},
		Duration: number(d), PerGPU: &PerGPU{},
	}
}
