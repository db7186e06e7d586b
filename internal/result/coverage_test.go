package result

import (
	"strings"
	"testing"

	"github.com/weirbench/weir/internal/record"
)

// TestCoverageLimit: how far the last token must reach is 95 % of a long window unless the run was set
// another share, or none; what the usual share would have refused is then a warning.
func TestCoverageLimit(t *testing.T) {
	for _, x := range []struct {
		share, limit float64 // a limit of 0 is the usual one
		bad, warned  bool
	}{{0.96, 0, false, false}, {0.94, 0, true, false}, {0.97, 0.98, true, false}, {0.99, 0.98, false, false}, {0.94, 0.9, false, true}, {0.5, -1, false, true}} {
		m := record.NewMeta()
		m.Window = record.Window{StartNs: 0, EndNs: 1000e9}
		if x.limit != 0 {
			m.CoverageLimit = &x.limit
		}
		planned := 1000.0
		r := &Result{Window: Window{PlannedS: &planned, Coverage: &x.share}}
		rate := 0.0
		tl := &tally{}
		tl.req.OK, tl.req.ErrorRate = 100, &rate
		judge(r, &record.Bundle{Meta: m, State: record.Complete}, tl, nil)
		has := func(list []Finding) (bool, string) {
			for _, f := range list {
				if f.Code == Coverage {
					return true, f.Text
				}
			}
			return false, ""
		}
		bad, text := has(r.Reasons)
		if warned, _ := has(r.Warnings); bad != x.bad || warned != x.warned {
			t.Errorf("%+v: reason %v, warning %v", x, bad, warned)
		}
		if x.limit == 0.98 && bad && !strings.Contains(text, "at least 98 %") {
			t.Errorf("%+v: %s", x, text)
		}
	}
}
