package result

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weirbench/weir/internal/record"
)

// TestPools lays what plan, metrics, log and info endpoint say of a pool beside each other.
func TestPools(t *testing.T) {
	fact := func(process, rank, from, value string) record.Fact {
		return record.Fact{Engine: "vllm", Name: "device_tokens", Process: process, Rank: rank, From: from, Value: value}
	}
	for _, c := range []struct {
		name    string
		plan    int64
		metrics int64
		told    []record.Fact
		from    string
		tokens  int64
		off     float64 // NaN-free: -9 where there is none
		warns   string
	}{
		{"nothing is known", -1, -1, nil, "", -1, -9, ""},
		{"only planned", 100, -1, nil, "plan", 100, -9, ""},
		{"the log", 1000, -1, []record.Fact{fact("w", "", "log", "1001")}, "log", 1001, 0.001, ""},
		{"the log, off", 1000, -1, []record.Fact{fact("w", "", "log", "900")}, "log", 900, -0.1, "has 900 tokens, the plan 1000: -10.00 %"},
		{"the metrics before the log", 1000, 1000, []record.Fact{fact("w", "", "log", "990")}, "metrics", 1000, 0, "log tells of 990 tokens in the device pool, its metrics of 1000"},
		{"an info endpoint alone", -1, -1, []record.Fact{fact("http://a", "", "info", "50")}, "info", 50, -9, ""},
		{"two replicas and a decode side", 200, -1, []record.Fact{fact("w", "EngineCore_DP0", "log", "100"), fact("w", "EngineCore_DP1", "log", "100"), fact("d", "", "log", "777")}, "log", 200, 0, ""},
		{"ranks that disagree", 100, -1, []record.Fact{fact("w", "EngineCore_DP0", "log", "100"), fact("w", "EngineCore_DP0", "log", "99")}, "log", 99, -0.01, "ranks tell different device_tokens"},
	} {
		m := record.NewMeta()
		m.Pools.DeviceTokens, m.ObservedPools.DeviceTokens, m.Told = c.plan, c.metrics, c.told
		m.Processes = []record.Process{{Name: "w", Role: "prefill"}, {Name: "d", Role: "decode"}}
		p := pools(m)
		tokens, off := int64(-1), -9.0
		if p.DeviceTokens != nil {
			tokens = *p.DeviceTokens
		}
		if p.DeviceOff != nil {
			off = *p.DeviceOff
		}
		if tokens != c.tokens || p.From != c.from || off < c.off-1e-9 || off > c.off+1e-9 || p.Observed != (c.from != "" && c.from != "plan") {
			t.Errorf("%s: %d tokens from %q, off %v, %+v", c.name, tokens, p.From, off, p)
		}
		var warned []string
		p.doubt(m, func(code Code, format string, a ...any) {
			warned = append(warned, string(code)+" "+fmt.Sprintf(format, a...))
		})
		if all := strings.Join(warned, "\n"); (c.warns == "") != (all == "") || !strings.Contains(all, c.warns) {
			t.Errorf("%s: warnings %q, want %q", c.name, all, c.warns)
		}
	}
}
