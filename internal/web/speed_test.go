package web

import (
	"bytes"
	"strings"
	"testing"

	"github.com/weirbench/weir/internal/frontier"
	"github.com/weirbench/weir/internal/record"
	"github.com/weirbench/weir/internal/result"
)

// TestSimulatedSpeed puts a run at 20 times the engine's time beside one in its own time: they
// are two series, and the report names the speed and the stated error.
func TestSimulatedSpeed(t *testing.T) {
	var rs []*result.Result
	for _, speed := range []float64{0, 20} {
		rs = append(rs, derive(t, cliffPoint("none", 8), func(m *record.Meta, qs []*record.Request) []*record.Request {
			m.SimSpeed, m.SimError = speed, "fitted to five points"
			return qs
		}))
	}
	if frontier.SeriesOf(rs[0]) == frontier.SeriesOf(rs[1]) {
		t.Error("both runs are in one series")
	}
	var b bytes.Buffer
	if err := WriteReport(&b, rs, ReportOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"simulated at 20 times its own time", "fitted to five points", "no engine&#39;s"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the report does not say %q", want)
		}
	}
}
