package result

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weirbench/weir/internal/record"
	"github.com/weirbench/weir/internal/spec"
)

const (
	ms  = int64(1e6)
	sec = int64(1e9)
)

// ok is a valid profiling request of 1000 prompt tokens, sent at at, whose first token comes
// after ttft and whose osl tokens follow itl apart.
func ok(seq int, at, ttft, itl, osl int64) *record.Request {
	first := at + ttft
	last := first + itl*(osl-1)
	return &record.Request{
		Seq: uint64(seq), Lane: seq % 2, Tree: "0.0", Trace: fmt.Sprint("t", seq%3), Stream: "s", Phase: record.Profiling, Start: "snapshot",
		WantIn: 1000, WantOut: osl,
		Times:        record.Times{Intended: at, Queued: at, Sent: at, Headers: at, FirstToken: first, FirstVisible: first, LastToken: last, End: last + ms},
		PromptTokens: 1000, OutputTokens: osl, ReasoningTokens: 0,
		Hits:          record.Hits{Device: 500, Host: 250, Storage: 0, Total: 750},
		CeilingTokens: 900,
	}
}

func fail(seq int, at int64, class record.Class) *record.Request {
	q := ok(seq, at, ms, ms, 1)
	q.Times = record.Times{Intended: at, Queued: at, Sent: at, Headers: record.Never, FirstToken: record.Never, FirstVisible: record.Never, LastToken: record.Never, End: at + ms}
	q.PromptTokens, q.OutputTokens, q.ReasoningTokens, q.Hits = record.Unknown, record.Unknown, record.Unknown, record.UnknownHits
	q.Failure = &record.Failure{Class: class}
	return q
}

func meta() *record.Meta {
	m := record.NewMeta()
	p := spec.Point{Key: "glm5.2-fp8-b200-sglang", Model: "zai-org/GLM-5.2", Runner: "b200", Precision: "fp8", Framework: "sglang",
		Conc: 2, Unified: &spec.Parallel{TP: 8, PP: 1, EP: 1, DCP: 1, PCP: 1}, Scenario: spec.AgenticCoding,
		Offload: spec.Offload{Mode: "none"}, Origin: spec.Origin{File: "/somewhere/master.yaml", Line: 3}}
	m.PointID = p.ID()
	m.Point, _ = json.Marshal(p)
	m.GPUs = record.GPUs{Total: 8}
	m.Window = record.Window{StartNs: 0, EndNs: 1000 * sec}
	m.Virtual, m.Simulated = true, true
	m.EpochWallNs = 1_700_000_000 * sec
	return m
}

// bundle writes a complete bundle and opens it.
func bundle(t testing.TB, m *record.Meta, qs ...*record.Request) *record.Bundle {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "b")
	w, err := record.CreateBundle(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.WriteMeta(m); err != nil {
		t.Fatal(err)
	}
	for _, q := range qs {
		if err := w.WriteRequest(q); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Complete(); err != nil {
		t.Fatal(err)
	}
	b, err := record.OpenBundle(dir)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func derived(t testing.TB, m *record.Meta, qs ...*record.Request) *Result {
	t.Helper()
	r, err := Derive(bundle(t, m, qs...))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func want(t *testing.T, name string, got *float64, want float64) {
	t.Helper()
	if got == nil {
		t.Errorf("%s is undefined, want %v", name, want)
	} else if d := *got - want; d > 1e-12*want+1e-15 || d < -1e-12*want-1e-15 {
		t.Errorf("%s = %v, want %v", name, *got, want)
	}
}

// steady is n requests of equal shape, a second apart, ending with the window.
func steady(n int, m *record.Meta) []*record.Request {
	var qs []*record.Request
	for i := range n {
		qs = append(qs, ok(i+1, m.Window.EndNs-int64(n-i)*sec, 200*ms, 10*ms, 51))
	}
	return qs
}

// TestNumbers derives numbers that were worked out by hand.
func TestNumbers(t *testing.T) {
	m := meta()
	r := derived(t, m, append(steady(100, m), fail(101, 950*sec, record.FailStatus))...)
	if !r.Valid {
		t.Errorf("not valid: %v", r.Reasons)
	}
	// Sent at 900..999 s, 0.2 s to the first token, 50 gaps of 10 ms, the end 1 ms later.
	want(t, "ttft p90", r.Latency.TTFT.P90, 0.2)
	want(t, "e2el p90", r.Latency.E2EL.P90, 0.7)
	want(t, "itl p90", r.Latency.ITL.P90, 0.01)
	want(t, "full itl p90", r.Latency.FullResponseITL.P90, 0.501/50)
	want(t, "interactivity p90", r.Intvty.Decode.P90, 100)
	want(t, "e2e_norm p90", r.Intvty.E2ENorm.P90, 51/0.7)
	want(t, "e2e_sum", r.Intvty.E2ESum, 51/0.7)
	want(t, "edge", r.Window.EdgeS, 99.701)
	want(t, "input", r.Throughput.Edge.Input, 100*1000/99.701)
	want(t, "output", r.Throughput.Edge.Output, 100*51/99.701)
	want(t, "total per GPU", r.Throughput.EdgePerGPU.Total, 100*1051/99.701/8)
	want(t, "fresh", r.Throughput.Edge.Fresh, 100*(250+51)/99.701)
	want(t, "window output", r.Throughput.Window.Output, 100*51/1000.0)
	want(t, "window input", r.Throughput.Window.Input, 100*1000/1000.0)
	want(t, "device", r.Hits.Device, 0.5)
	want(t, "host", r.Hits.Host, 0.25)
	want(t, "total", r.Hits.Total, 0.75)
	want(t, "ceiling", r.Hits.Ceiling, 0.9)
	want(t, "error rate", r.Requests.ErrorRate, 1.0/101)
	want(t, "coverage", r.Window.Coverage, 0.9997)
	if p := r.Latency.TTFT.P99; p != nil {
		t.Errorf("p99 of %d samples is shown", r.Latency.TTFT.N)
	}
	want(t, "adjusted p90", r.Adjusted.TTFT.P90, 0.2)
	if r.Point.Origin.File != "" || r.MeasuredAt != "" {
		t.Errorf("origin %v and time %q entered the result of a virtual run", r.Point.Origin, r.MeasuredAt)
	}
}

// TestGoldenTimeline is the timeline of AIPerf's test_empty_content_timeline.py: role at 1.05 s,
// empty text at 1.10, text at 1.20, an empty reasoning delta, usage, end at 1.60. Only the text
// is a token.
func TestGoldenTimeline(t *testing.T) {
	q := ok(1, sec, 200*ms, 0, 2)
	q.Times.End = sec + 600*ms
	r := derived(t, meta(), q)
	l := r.Latency
	want(t, "ttft", l.TTFT.Mean, 0.2)
	want(t, "e2el", l.E2EL.Mean, 0.2)
	want(t, "itl", l.ITL.Mean, 0)
	want(t, "full response itl", l.FullResponseITL.Mean, 0.4)
}

// TestSameBytes: the same bundle gives the same bytes in another folder, wherever its end
// stands; another seed gives another id.
func TestSameBytes(t *testing.T) {
	m := meta()
	a := bundle(t, m, steady(200, m)...)
	m.EpochWallNs += 12345 // another day
	b := bundle(t, m, steady(200, m)...)
	var out [3][]byte
	for i, x := range []*record.Bundle{a, b} {
		r, err := DeriveDir(x.Dir)
		if err != nil {
			t.Fatal(err)
		}
		out[i], _ = r.JSON()
		onDisk, err := os.ReadFile(filepath.Join(x.Dir, record.ResultFile))
		if err != nil || !bytes.Equal(onDisk, out[i]) {
			t.Fatalf("result.json differs from JSON(): %v", err)
		}
	}
	if !bytes.Equal(out[0], out[1]) {
		t.Errorf("results differ: %s", cmp.Diff(string(out[0]), string(out[1])))
	}
	m.Seed++
	if c := derived(t, m, steady(200, m)...); c.ID == derived(t, meta()).ID {
		t.Error("another seed has the same id")
	}
	if bytes.Contains(out[0], []byte("NaN")) || bytes.Contains(out[0], []byte("somewhere")) {
		t.Error("result holds NaN or a path of the machine")
	}
}

// TestReasons reaches every reason of the closed list.
func TestReasons(t *testing.T) {
	dirty := false
	for _, c := range []struct {
		code Code
		make func(m *record.Meta) []*record.Request
	}{
		{RootWarmup, func(m *record.Meta) []*record.Request {
			q := fail(500, 0, record.FailStatus)
			q.Phase = record.Primer
			return append(steady(100, m), q)
		}},
		{ErrorRate, func(m *record.Meta) []*record.Request {
			qs := steady(80, m)
			for i := range 20 {
				qs = append(qs, fail(200+i, 900*sec, record.FailResetAfter))
			}
			return qs
		}},
		{Overflow, func(m *record.Meta) []*record.Request {
			return append(steady(90, m), fail(201, 900*sec, record.FailContextOverflow))
		}},
		{NoOutput, func(m *record.Meta) []*record.Request { return []*record.Request{fail(1, 0, record.FailNoTokens)} }},
		{Coverage, func(m *record.Meta) []*record.Request { return []*record.Request{ok(1, 0, sec, ms, 20)} }},
		{Cancelled, func(m *record.Meta) []*record.Request { m.Cancelled = "interrupt"; return steady(100, m) }},
		{ClientBound, func(m *record.Meta) []*record.Request {
			m.Virtual = false
			m.Client = &record.Client{TTFTBoundNs: 11 * ms, ITLBoundNs: record.Unknown, GCPauseNs: record.Unknown, TimerLagNs: record.Unknown}
			return steady(100, m)
		}},
		{ClientBound, func(m *record.Meta) []*record.Request {
			m.Virtual = false
			limit := 0.02
			m.ClientLimit = &limit
			m.Client = &record.Client{TTFTBoundNs: 5 * ms, ITLBoundNs: record.Unknown, GCPauseNs: record.Unknown, TimerLagNs: record.Unknown}
			return steady(100, m)
		}},
		{CacheNotClean, func(m *record.Meta) []*record.Request { m.CacheClean = &dirty; return steady(100, m) }},
		{OffloadInert, func(m *record.Meta) []*record.Request {
			m.Point = []byte(`{"conc":2,"offload":{"mode":"dram"}}`)
			qs := steady(100, m)
			for _, q := range qs {
				q.Hits.Host, q.Hits.Total = 0, q.Hits.Device
			}
			return qs
		}},
		{OffloadInert, func(m *record.Meta) []*record.Request {
			// Nothing is declared of a server that ran already, but its metrics name a host pool.
			m.Point = []byte(`{"conc":2,"framework":"external"}`)
			m.ObservedPools = record.Pools{DeviceTokens: 1000, HostTokens: 3000, DeviceBytes: record.Unknown, HostBytes: record.Unknown}
			qs := steady(100, m)
			for _, q := range qs {
				q.Hits.Host, q.Hits.Total = 0, q.Hits.Device
			}
			return qs
		}},
		{GPUMismatch, func(m *record.Meta) []*record.Request { m.ObservedGPUs = 4; return steady(100, m) }},
		{UsageMissing, func(m *record.Meta) []*record.Request {
			qs := steady(100, m)
			for _, q := range qs {
				q.OutputTokens = record.Unknown
			}
			return qs
		}},
		{UsageImplausible, func(m *record.Meta) []*record.Request {
			qs := steady(100, m)
			for _, q := range qs {
				q.PromptTokens, q.Hits, q.WantIn = 10, record.Hits{Device: 0, Host: 0, Storage: 0, Total: 5}, 20000
			}
			return qs
		}},
		{Stalled, func(m *record.Meta) []*record.Request { m.Stalled = "no token for 600 s"; return steady(100, m) }},
		{UnsafeOverride, func(m *record.Meta) []*record.Request { m.UnsafeOverrides = []string{"--x"}; return steady(100, m) }},
	} {
		t.Run(string(c.code), func(t *testing.T) {
			m := meta()
			r := derived(t, m, c.make(m)...)
			if r.Valid {
				t.Fatal("valid")
			}
			codes := map[Code]string{}
			for _, f := range r.Reasons {
				codes[f.Code] = f.Text
			}
			if codes[c.code] == "" {
				t.Fatalf("reasons: %v", r.Reasons)
			}
			extra := len(codes) - 1
			if c.code == NoOutput { // nothing worked, so other rules are broken too
				extra = 0
			}
			if extra != 0 {
				t.Errorf("other reasons too: %v", r.Reasons)
			}
		})
	}
}

// TestLocalCount: a server whose counts of output differ by more than 1 % from a local tokenizer's
// is named in a warning, also where no request alone gives it away.
func TestLocalCount(t *testing.T) {
	for _, c := range []struct {
		usage, local int64
		warns        bool
	}{{51, 51, false}, {51, 50, false}, {52, 50, true}, {51, 52, true}, {60, 50, true}, {51, record.Unknown, false}} {
		m := meta()
		qs := steady(100, m)
		for i, q := range qs {
			if q.OutputTokens = c.usage; i%4 == 0 && c.local != record.Unknown {
				q.LocalOutput = &c.local
			}
		}
		warned := ""
		for _, w := range derived(t, m, qs...).Warnings {
			if w.Code == UsageImplausible {
				warned = w.Text
			}
		}
		if want := fmt.Sprintf("in 25 answers that were counted here too the server counted %d output tokens and a local tokenizer %d", 25*c.usage, 25*c.local); (warned != "") != c.warns || c.warns && !strings.HasPrefix(warned, want) {
			t.Errorf("%d by usage, %d here: %q", c.usage, c.local, warned)
		}
	}
}

// TestClientLimit: what the usual limit would refuse is a warning under a wider one or none.
func TestClientLimit(t *testing.T) {
	for _, c := range []struct {
		limit float64
		bound int64
		valid bool
		warns int
	}{
		{0.05, 9 * ms, true, 0}, {0.05, 11 * ms, false, 0}, {0.1, 11 * ms, true, 1}, {0.1, 21 * ms, false, 0},
		{-1, 9 * ms, true, 0}, {-1, 11 * ms, true, 1}, {-1, 900 * ms, true, 1}, {0, 2 * ms, false, 0}, {0, ms, true, 0},
	} {
		m := meta()
		m.Virtual = false
		m.ClientLimit = &c.limit
		m.Client = &record.Client{TTFTBoundNs: c.bound, ITLBoundNs: record.Unknown, GCPauseNs: record.Unknown, TimerLagNs: record.Unknown}
		r := derived(t, m, steady(100, m)...)
		warns := 0
		for _, w := range r.Warnings {
			if w.Code == ClientBound {
				warns++
			}
		}
		if r.Valid != c.valid || warns != c.warns {
			t.Errorf("limit %v, bound %d ms: valid %v, %d warnings; want %v and %d (%v)", c.limit, c.bound/ms, r.Valid, warns, c.valid, c.warns, r.Reasons)
		}
	}
}

// TestBeyondCalibration: bounds that a run went beyond are said to be too small perhaps, in a warning.
func TestBeyondCalibration(t *testing.T) {
	for _, beyond := range []string{"", "the run had up to 11 requests in flight"} {
		m := meta()
		m.Virtual = false
		m.Client = &record.Client{TTFTBoundNs: ms, ITLBoundNs: record.Unknown, GCPauseNs: record.Unknown, TimerLagNs: record.Unknown, Beyond: beyond}
		r := derived(t, m, steady(100, m)...)
		warned := ""
		for _, w := range r.Warnings {
			if w.Code == ClientBound {
				warned = w.Text
			}
		}
		if !r.Valid || (beyond != "") != strings.HasSuffix(warned, "may be too small: "+beyond) {
			t.Errorf("beyond %q: valid %v, %q", beyond, r.Valid, warned)
		}
	}
}

// TestUnsent: one request that the client could not send makes the result invalid and quotes why,
// whoever else failed.
func TestUnsent(t *testing.T) {
	m := meta()
	qs := steady(200, m)
	if r := derived(t, m, qs...); finding(r.Reasons, Unsent) != "" {
		t.Errorf("nothing failed: %v", r.Reasons)
	}
	qs[100].Failure = &record.Failure{Class: record.FailConnect, Detail: "refused"}
	if r := derived(t, m, qs...); finding(r.Reasons, Unsent) != "" {
		t.Errorf("the server failed: %v", r.Reasons)
	}
	qs[101].Failure = &record.Failure{Class: record.FailClient, Detail: "socket: too many open files"}
	r := derived(t, m, qs...)
	if text := finding(r.Reasons, Unsent); r.Valid || !strings.HasPrefix(text, "1 requests") || !strings.HasSuffix(text, "too many open files") {
		t.Errorf("valid %v, %v", r.Valid, r.Reasons)
	}
}

// TestFailedBundle: a bundle that ends with FAILED is never valid.
func TestFailedBundle(t *testing.T) {
	w, err := record.CreateBundle(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := w.WriteMeta(meta()); err != nil {
		t.Fatal(err)
	}
	if err := w.Fail("crash", "exit status 137"); err != nil {
		t.Fatal(err)
	}
	r, err := DeriveDir(w.Dir())
	if err != nil {
		t.Fatal(err)
	}
	if r.Valid || r.Reasons[0].Code != RunFailed || !strings.Contains(r.Reasons[0].Text, "137") {
		t.Errorf("%v", r.Reasons)
	}
}

// TestCutBundle: what a killed run left is never a valid result, torn or not.
func TestCutBundle(t *testing.T) {
	m := meta()
	w, err := record.CreateBundle(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := w.WriteMeta(m); err != nil {
		t.Fatal(err)
	}
	for _, q := range steady(100, m) {
		if err := w.WriteRequest(q); err != nil {
			t.Fatal(err)
		}
	}
	r, err := Finish(w)
	if err != nil || !r.Valid {
		t.Fatalf("whole: %v, %v", r, err)
	}
	if err := os.Remove(filepath.Join(w.Dir(), record.CompleteFile)); err != nil {
		t.Fatal(err)
	}
	cut := func(want string) {
		t.Helper()
		r, err := DeriveDir(w.Dir())
		if err != nil {
			t.Fatal(err)
		}
		if r.Valid || r.Reasons[0].Code != RunCut || !strings.Contains(r.Reasons[0].Text, want) {
			t.Errorf("%v, want %q", r.Reasons, want)
		}
	}
	cut("neither COMPLETE nor FAILED")
	name := filepath.Join(w.Dir(), record.RequestsFile)
	raw, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, raw[:len(raw)/2], 0o666); err != nil {
		t.Fatal(err)
	}
	cut("what can be read ends with")
}

// TestUnknownStaysUnknown: without usage nothing that needs token counts is given.
func TestUnknownStaysUnknown(t *testing.T) {
	m := meta()
	qs := steady(100, m)
	for _, q := range qs {
		q.PromptTokens, q.OutputTokens, q.ReasoningTokens, q.Hits = record.Unknown, record.Unknown, record.Unknown, record.UnknownHits
	}
	r := derived(t, m, qs...)
	for name, v := range map[string]*float64{
		"input": r.Throughput.Edge.Input, "output": r.Throughput.Edge.Output, "total": r.Throughput.EdgePerGPU.Total,
		"fresh": r.Throughput.Edge.Fresh, "hits": r.Hits.Total, "itl": r.Latency.ITL.P50, "e2e_norm": r.Intvty.E2ENorm.P90,
		"window output": r.Throughput.Window.Output, "kv": r.Server.DeviceKVMean,
	} {
		if v != nil {
			t.Errorf("%s = %v", name, *v)
		}
	}
	want(t, "ttft", r.Latency.TTFT.P90, 0.2)
	if r.Valid || len(r.Reasons) != 1 || r.Reasons[0].Code != UsageMissing {
		t.Errorf("reasons: %v", r.Reasons)
	}
}

// TestBackwards: a record whose instants run backwards is an error that names it.
func TestBackwards(t *testing.T) {
	q := ok(7, sec, 200*ms, ms, 5)
	q.Times.FirstToken = q.Times.Sent - 1
	_, err := Derive(bundle(t, meta(), q))
	if err == nil || !strings.Contains(err.Error(), "request 7: first_token") {
		t.Errorf("%v", err)
	}
}

// TestJobs: a tree counts once its lane has begun the next one.
func TestJobs(t *testing.T) {
	m := meta()
	var qs []*record.Request
	seq := 0
	for play := range 5 {
		for lane := range 2 {
			seq++
			q := ok(seq, int64(play)*200*sec+int64(lane)*sec, sec, 10*ms, 101)
			q.Lane, q.Play = lane, play
			if play > 0 {
				q.Start = "recycled"
			}
			qs = append(qs, q)
		}
	}
	j := derived(t, m, qs...).Jobs
	if j.Completed != 8 || j.Trees != 10 {
		t.Errorf("completed %d of %d trees, want 8 of 10", j.Completed, j.Trees)
	}
	want(t, "per hour", j.PerHour, 8*3.6)
	want(t, "per hour per user", j.PerHourPerUser, 4*3.6)
	if j.Completion.N != 6 {
		t.Errorf("completion times of %d trees, want 6", j.Completion.N)
	}
	want(t, "completion", j.Completion.Mean, 2.001)
}

// TestUnanswered: a run that failed before anything answered measured nothing.
func TestUnanswered(t *testing.T) {
	refused := fail(1, sec, record.FailConnect)
	status := fail(2, sec, record.FailStatus)
	status.Failure.Status = 500
	for name, c := range map[string]struct {
		reqs      []*record.Request
		simulated bool
		failed    bool
		want      string
	}{
		"nothing was sent":    {nil, false, true, "unknown"},
		"refused":             {[]*record.Request{refused}, false, true, "unknown"},
		"an error answered":   {[]*record.Request{refused, status}, false, true, "measured"},
		"one was answered":    {[]*record.Request{ok(1, sec, ms, ms, 2), refused}, false, true, "measured"},
		"a simulated engine":  {nil, true, true, "simulated"},
		"the bundle is whole": {[]*record.Request{refused}, false, false, "measured"},
	} {
		w, err := record.CreateBundle(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		m := meta()
		m.Simulated, m.Virtual = c.simulated, false
		if err := w.WriteMeta(m); err != nil {
			t.Fatal(err)
		}
		for _, q := range c.reqs {
			if err := w.WriteRequest(q); err != nil {
				t.Fatal(err)
			}
		}
		if c.failed {
			err = w.Fail("start", "no server answers")
		} else {
			err = w.Complete()
		}
		if err != nil {
			t.Fatal(err)
		}
		r, err := DeriveDir(w.Dir())
		if err != nil {
			t.Fatal(err)
		}
		if r.Kind() != c.want {
			t.Errorf("%s: %s, want %s", name, r.Kind(), c.want)
		}
	}
}
