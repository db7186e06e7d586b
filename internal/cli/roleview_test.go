package cli

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weirbench/weir/internal/result"
)

// TestRoleLines: roles are printed where there are several, ranks where an endpoint has several, and
// only what is known.
func TestRoleLines(t *testing.T) {
	f := func(v float64) *float64 { return &v }
	n := func(v int64) *int64 { return &v }
	lines := func(s *result.Server) string {
		var b strings.Builder
		roleLines(s, func(name, format string, v ...any) { fmt.Fprintf(&b, name+": "+format+"\n", v...) })
		return b.String()
	}
	one := &result.Part{Endpoints: 4, Counts: result.Counts{Prompt: n(5)}}
	if got := lines(&result.Server{ByRole: map[string]*result.Part{"unified": one}, ByEndpoint: []result.Endpoint{{Endpoint: "a"}, {Endpoint: "b"}}}); got != "" {
		t.Errorf("one role prints %q", got)
	}
	got := lines(&result.Server{
		ByRole: map[string]*result.Part{
			"decode":  {Endpoints: 2, RunningMean: f(3), PreallocMean: f(0.25)},
			"prefill": {Endpoints: 1, Ranks: 2, DeviceKVMean: f(0.5), InflightMean: f(2), Transfer: &result.Transfer{N: 12, Bytes: n(3_000_000_000), Time: &result.Spread{Mean: f(0.004)}}},
			"router":  {Endpoints: 1, Router: &result.Router{Requests: n(40), ActiveMean: f(7)}},
		},
		ByEndpoint: []result.Endpoint{{Endpoint: "http://p", Name: "prefill-0", ByRank: []result.Rank{
			{Rank: "0", Part: result.Part{RunningMean: f(4), QueuedMean: f(0)}}, {Rank: "1", Part: result.Part{RunningMean: f(1)}}}}},
	})
	want := `prefill: 1 endpoint, 2 ranks, KV held 0.500, inflight 2.0, 12 transfers of 4.0 ms, 3.0 GB
decode: 2 endpoints, running 3.0, prealloc 0.2
router: 1 endpoint, 40 requests, active 7.0
ranks: prefill-0 has 2, running 1.0 to 4.0
`
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}
