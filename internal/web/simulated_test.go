package web

import (
	"strings"
	"testing"

	"github.com/weirbench/weir/internal/record"
	"github.com/weirbench/weir/internal/result"
)

func measured(t testing.TB, offload string, conc int) *result.Result {
	t.Helper()
	return derive(t, cliffPoint(offload, conc), func(m *record.Meta, q []*record.Request) []*record.Request {
		m.Simulated, m.Virtual = false, false
		return q
	})
}

// TestSimulatedIsSaid: a picture and a report say of simulated data that they are, and of measured
// data that nothing else is.
func TestSimulatedIsSaid(t *testing.T) {
	simulated, real := cliff(t, "none", 1, 4), []*result.Result{measured(t, "none", 1), measured(t, "none", 4)}
	for _, c := range []struct {
		name        string
		rs          []*result.Result
		svg, report string
		not         string
	}{
		{"simulated", simulated, "(simulated: no engine ran)", "Lines join simulated points", "measured points"},
		{"measured", real, "", "Lines join measured points and are no measurement", "simulated points"},
		{"mixed", append(append([]*result.Result{}, simulated...), real...), ">simulated<", "Lines join measured points, dotted ones simulated points", "no measurement"},
	} {
		svg, err := Figure(c.rs, "hit_total", 760, 340)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(svg, c.svg) || c.svg == "" && strings.Contains(svg, "simulated") {
			t.Errorf("%s: the picture has not %q, or says simulated", c.name, c.svg)
		}
		page := report(t, c.rs)
		if !strings.Contains(page, c.report) || strings.Contains(page, c.not) {
			t.Errorf("%s: the report has not %q, or has %q", c.name, c.report, c.not)
		}
	}
}

// TestCutIsNotFailed: the timeline tells what Weir ended itself from what failed.
func TestCutIsNotFailed(t *testing.T) {
	js := asset("timeline.js")
	if !strings.Contains(js, `q.failure[i] === "`+string(record.FailCancelled)+`"`) || !strings.Contains(js, "cut ? color.muted : failed ? color.bad") {
		t.Error("the timeline draws what was cut as failed")
	}
	if !strings.Contains(style, ".sw.cut {") || !strings.Contains(embedded(t, "templates/run.tmpl"), `<i class="sw cut"></i>cut at the end`) {
		t.Error("the legend has no entry for what was cut")
	}
}

func embedded(t *testing.T, name string) string {
	t.Helper()
	b, err := files.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
