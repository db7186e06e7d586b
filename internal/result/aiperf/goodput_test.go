package aiperf

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirbench/weir/internal/record"
)

// TestGoodput: of two successes and two failures, those are good that keep to every bound: at most a
// time, at least a rate, and not without the metric. The share is of all that ended.
func TestGoodput(t *testing.T) {
	b, r := bundle(t) // TTFT 200 and 400 ms; 11 tokens at 10 a second, and 1 token without a rate
	for flag, want := range map[string]float64{
		"time_to_first_token:400": 2, "time_to_first_token:399.9": 1, "time_to_first_token:10": 0,
		"output_token_throughput_per_user:10": 1, "output_token_throughput_per_user:10.1": 0,
		"time_to_first_token:300 inter_token_latency:100": 1, "time_to_first_token:300 inter_token_latency:99": 0, "output_sequence_length:1": 2,
	} {
		g, err := ParseGoodput(flag)
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		if _, err := Export(b, r, Options{Dir: dir, Goodput: g, SliceNs: 4 * sec}); err != nil {
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
		for tag, x := range map[string]float64{"good_request_count": want, "good_request_fraction": want / 4, "goodput": want / 10} {
			m, _ := s[tag].(map[string]any)
			if v, ok := m["avg"].(float64); !ok || math.Abs(v-x) > 1e-9 {
				t.Errorf("%s: %s is %v, want %v", flag, tag, s[tag], x)
			}
		}
	}
	for _, flag := range []string{"", "x:1", "time_to_first_token", "time_to_first_token:NaN", "time_to_first_token:fast", "inter_chunk_latency:1"} {
		if _, err := ParseGoodput(flag); err == nil {
			t.Errorf("%q is taken", flag)
		}
	}
}

// TestStatusErrors: an HTTP status has AIPerf's type, code and message: the reason phrase and the body.
func TestStatusErrors(t *testing.T) {
	for want, f := range map[string]record.Failure{
		`{400 Bad Request {"error":"no"}}`:                {Class: record.FailStatus, Status: 400, Detail: `HTTP status 400: {"error":"no"}`},
		`{503 Service Unavailable loading}`:               {Class: record.FailStatus, Status: 503, Detail: "HTTP status 503: loading"},
		`{500 Internal Server Error http-status}`:         {Class: record.FailStatus, Status: 500, Detail: "HTTP status 500: "},
		`{799 HTTPStatusError odd}`:                       {Class: record.FailStatus, Status: 799, Detail: "HTTP status 799: odd"},
		`{0 ConnectionError dial tcp: HTTP status 1: no}`: {Class: record.FailConnect, Detail: "dial tcp: HTTP status 1: no"},
	} {
		if got := fmt.Sprint(*errorOf(&f)); strings.TrimSpace(got) != want {
			t.Errorf("%+v is %s, want %s", f, got, want)
		}
	}
}
