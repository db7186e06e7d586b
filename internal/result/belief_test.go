package result

import (
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/weirbench/weir/internal/record"
)

func finding(list []Finding, c Code) string {
	for _, f := range list {
		if f.Code == c {
			return f.Text
		}
	}
	return ""
}

// TestHitsAbovePrompt: hits above the prompt are in no rate, are counted, and make the result
// invalid once more than a trifle of the requests has them, however they are spelt.
func TestHitsAbovePrompt(t *testing.T) {
	for name, h := range map[string]record.Hits{
		"total":          {Device: -1, Host: -1, Storage: -1, Total: 38_550_000},
		"device only":    {Device: 1001, Host: -1, Storage: -1, Total: -1},
		"sum of tiers":   {Device: 600, Host: 600, Storage: -1, Total: -1},
		"tiers in total": {Device: 600, Host: 300, Storage: 200, Total: 900},
	} {
		for _, lies := range []int{1, 100, 200} {
			m := meta()
			qs := steady(200, m)
			for _, q := range qs[:lies] {
				q.Hits = h
			}
			r := derived(t, m, qs...)
			if r.Hits.Exceeding != int64(lies) || r.Hits.N != int64(200-lies) {
				t.Errorf("%s: %d exceed, %d in rates, want %d and %d", name, r.Hits.Exceeding, r.Hits.N, lies, 200-lies)
			}
			if lies < 200 {
				want(t, name, r.Hits.Total, 0.75)
				want(t, name, r.Hits.Device, 0.5)
			} else if r.Hits.Total != nil || r.Throughput.Edge.Fresh != nil {
				t.Errorf("%s: a hit rate of nothing but lies", name)
			}
			if valid := lies == 1; r.Valid != valid {
				t.Errorf("%s: %d of 200: valid %v, %v", name, lies, r.Valid, r.Reasons)
			}
			if text := finding(r.Reasons, UsageImplausible); lies > 1 && !strings.Contains(text, "request 1: ") {
				t.Errorf("%s: %q", name, text)
			}
			if finding(r.Warnings, HitsExceed) == "" {
				t.Errorf("%s: not counted: %v", name, r.Warnings)
			}
		}
	}
}

// TestDrift: from 5 % on the server's prompt counts are not believed, but what a chat template
// adds to short prompts is.
func TestDrift(t *testing.T) {
	for _, c := range []struct {
		in, got int64
		valid   bool
	}{
		{20000, 10, false}, {20000, 0, false}, {1000, 940, false}, {1000, 960, true}, {1000, 1060, false}, {1000, 1040, true},
		{100, 130, true}, {100, 133, false}, {100, 90, false}, {20000, 40_000_000, false},
	} {
		m := meta()
		qs := steady(100, m)
		for _, q := range qs {
			q.WantIn, q.CeilingTokens, q.PromptTokens, q.Hits = c.in, 0, c.got, record.UnknownHits
		}
		r := derived(t, m, qs...)
		if r.Valid != c.valid || c.valid != (finding(r.Reasons, UsageImplausible) == "") {
			t.Errorf("%d counted of %d: valid %v, %v", c.got, c.in, r.Valid, r.Reasons)
		}
		if c.valid == (finding(r.Warnings, PromptDrift) == "") {
			t.Errorf("%d counted of %d: warnings %v", c.got, c.in, r.Warnings)
		}
	}
}

// TestAbsurdCounts: a recorded count that is none is unknown and warned of; it fails nothing.
func TestAbsurdCounts(t *testing.T) {
	for name, set := range map[string]func(*record.Request){
		"prompt":    func(q *record.Request) { q.PromptTokens = 1e15 },
		"output":    func(q *record.Request) { q.OutputTokens = 1e15 },
		"negative":  func(q *record.Request) { q.OutputTokens = -7 },
		"reasoning": func(q *record.Request) { q.ReasoningTokens = 1 << 62 },
		"device":    func(q *record.Request) { q.Hits.Device = 1 << 62 },
		"host":      func(q *record.Request) { q.Hits.Host = -2 },
		"storage":   func(q *record.Request) { q.Hits.Storage = 1 << 41 },
		"total":     func(q *record.Request) { q.Hits.Total = 1 << 62 },
		"at edge":   func(q *record.Request) { q.OutputTokens, q.BadCount = record.Unknown, "completion_tokens -5" },
	} {
		for _, phase := range []record.Phase{record.Profiling, record.Primer} {
			m := meta()
			qs := steady(200, m)
			plain := derived(t, m, steady(200, m)...)
			odd := ok(500, m.Window.EndNs-sec, 200*ms, 10*ms, 51)
			odd.Phase = phase
			set(odd)
			r := derived(t, m, append(qs, odd)...)
			if !r.Valid || r.Tokens.Output == nil || *r.Tokens.Output > *plain.Tokens.Output+51 {
				t.Errorf("%s: valid %v %v, output %v", name, r.Valid, r.Reasons, r.Tokens.Output)
			}
			if text := finding(r.Warnings, UsageImplausible); strings.Contains(text, "1 of 201") != (phase == record.Profiling) {
				t.Errorf("%s in %s: %q", name, phase, text)
			}
		}
	}
	m := meta()
	qs := steady(100, m)
	for _, q := range qs {
		q.OutputTokens = 1e15
	}
	if r := derived(t, m, qs...); r.Valid || !strings.Contains(finding(r.Reasons, UsageMissing), "output_tokens 1000000000000000") {
		t.Errorf("%v", r.Reasons)
	}
}

// TestOutputDoubt: a count of output tokens that the frames contradict is warned of.
func TestOutputDoubt(t *testing.T) {
	m := meta()
	qs := steady(100, m)
	for _, q := range qs {
		q.Frames, q.TextBytes, q.OutputTokens = 50, 200, 20000
	}
	if text := finding(derived(t, m, qs...).Warnings, UsageImplausible); !strings.Contains(text, "100 of 100") || !strings.Contains(text, "only 200 bytes") {
		t.Errorf("%q", text)
	}
}

// TestFewSamplesNames: the warning names which times have too few samples.
func TestFewSamplesNames(t *testing.T) {
	m := meta()
	qs := steady(31, m)
	for _, q := range qs {
		q.OutputTokens = record.Unknown
	}
	got := finding(derived(t, m, qs...).Warnings, FewSamples)
	if got != "ttft_s has 31, e2el_s has 31, itl_s has 0, e2el_per_output_token_s has 0 samples: p90 needs 64, p99 needs 662" {
		t.Errorf("%q", got)
	}
	if got := finding(derived(t, m, steady(64, m)...).Warnings, FewSamples); got != "" {
		t.Errorf("%q", got)
	}
}

// TestWhatFailed: the reasons say which failure was the most common, with the detail of the
// earliest, whatever the order of the records.
func TestWhatFailed(t *testing.T) {
	bad := func(seq int, class record.Class, detail string) *record.Request {
		q := fail(seq, 900*sec, class)
		q.Failure.Detail = detail
		return q
	}
	m := meta()
	var qs []*record.Request
	for i := range 20 {
		qs = append(qs, bad(20-i, record.FailStatus, "HTTP status 503: loading"))
	}
	qs[19].Failure.Detail = "HTTP status 503: first"
	r := derived(t, m, qs...)
	if got := finding(r.Reasons, ErrorRate); got != "20 of 20 requests failed: 100.00 %, limit 10.00 %; 20 http-status: HTTP status 503: first" {
		t.Errorf("%q", got)
	}
	if got := finding(r.Reasons, NoOutput); !strings.HasSuffix(got, "; 20 http-status: HTTP status 503: first") {
		t.Errorf("%q", got)
	}

	qs = append(steady(80, m), bad(201, record.FailResetAfter, ""), bad(202, record.FailContextOverflow, "too\nlong"), bad(203, record.FailContextOverflow, "x"))
	if got := finding(derived(t, m, qs...).Reasons, Overflow); !strings.HasSuffix(got, "; 2 context-overflow: too long") {
		t.Errorf("%q", got)
	}

	primer := func(seq int, class record.Class, detail string) *record.Request {
		q := bad(seq, class, detail)
		q.Phase = record.Primer
		return q
	}
	qs = append(steady(80, m), primer(303, record.FailStatus, "a"), primer(302, record.FailStatus, strings.Repeat("é", 400)), primer(301, record.FailDNS, "no such host"))
	got := finding(derived(t, m, qs...).Reasons, RootWarmup)
	if !strings.HasPrefix(got, "3 of 3 root primers failed, first that of trace t1 on lane 1; 2 http-status: éé") || len(got) > 300 || !utf8.ValidString(got) {
		t.Errorf("%q", got)
	}
}

// TestAnyUsage: whatever a server counted, no rate of hits leaves 0 to 1 and nothing fails.
func TestAnyUsage(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := meta()
		var qs []*record.Request
		n := rapid.OneOf(rapid.Int64(), rapid.Int64Range(-1, 2000))
		for i := range rapid.IntRange(1, 20).Draw(t, "requests") {
			q := ok(i+1, int64(900+i)*sec, 200*ms, 10*ms, 51)
			for _, p := range []*int64{&q.PromptTokens, &q.OutputTokens, &q.ReasoningTokens, &q.Hits.Device, &q.Hits.Host, &q.Hits.Storage, &q.Hits.Total} {
				*p = n.Draw(t, "count")
			}
			qs = append(qs, q)
		}
		r, err := derive(&record.Bundle{Dir: "b", State: record.Complete, Meta: m}, each(qs), each[record.Sample](nil))
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range []*float64{r.Hits.Device, r.Hits.Host, r.Hits.Storage, r.Hits.Total} {
			if v != nil && (*v < 0 || *v > 1) {
				t.Fatalf("a hit rate of %v", *v)
			}
		}
		if _, err := r.JSON(); err != nil {
			t.Fatal(err)
		}
	})
}
