package web

import (
	"fmt"
	"net/http"

	"github.com/weirbench/weir/internal/frontier"
	"github.com/weirbench/weir/internal/result"
)

// comparePage shows what differs between two sets of runs.
type comparePage struct {
	shell
	A, B     []string
	Lead     string
	Rows     []compareRow
	Warnings []string
	Invalid  int
}

type compareRow struct {
	Label, Unit string
	A, B        string
	Change      string
	Interval    string
	From        string
	Shows       string
	Class       string
}

// compareAxes are the axes of a comparison of runs.
var compareAxes = []string{"total_per_gpu", "output_per_gpu", "fresh_per_gpu", "e2e_norm_p50", "e2e_norm_p90", "intvty_p90", "ttft_p50", "ttft_p90", "e2el_p90",
	"itl_p90", "hit_total", "hit_device", "hit_host", "ceiling", "jobs_per_hour_per_gpu", "error_rate"}

// sides reads the runs that a and b name.
func (h *Handler) sides(r *http.Request) (out [2][]*result.Result, names [2][]string, pair frontier.Pairer, err error) {
	bundles := map[string]string{}
	pair = func(a, b *result.Result) *result.Paired {
		p, err := result.PairDirs(bundles[a.ID], bundles[b.ID])
		if err != nil { // then the runs are compared by what their results say
			return nil
		}
		return p
	}
	for i, name := range []string{"a", "b"} {
		for _, id := range r.URL.Query()[name] {
			e, err := h.store.Get(r.Context(), id)
			if err != nil {
				return out, names, nil, err
			}
			bundles[e.Result.ID] = e.Bundle
			s := frontier.SeriesOf(e.Result)
			out[i] = append(out[i], e.Result)
			names[i] = append(names[i], fmt.Sprintf("%s on %s, %s", frontier.ModelName(&e.Result.Point), s.Name(), e.Result.Point.Agents()))
		}
		if len(out[i]) == 0 {
			return out, names, nil, fmt.Errorf("a comparison needs runs on both sides: /compare?a=ID&b=ID")
		}
	}
	return out, names, pair, nil
}

func axesByName(names []string) []*frontier.Axis {
	var out []*frontier.Axis
	for _, n := range names {
		if a, err := frontier.ByName(n); err == nil {
			out = append(out, a)
		}
	}
	return out
}

func (h *Handler) compare(w http.ResponseWriter, r *http.Request) {
	sides, names, pair, err := h.sides(r)
	if err != nil {
		h.fail(w, http.StatusBadRequest, err)
		return
	}
	axes := axesByName(compareAxes)
	c := frontier.CompareRuns(sides[0], sides[1], axes, pair)
	p := comparePage{shell: newShell("Weir: comparison"), A: names[0], B: names[1], Warnings: c.Warnings, Invalid: c.Invalid}
	for _, d := range c.Deltas {
		a, err := frontier.ByName(d.Axis)
		if err != nil {
			continue
		}
		row := compareRow{Label: a.Label, Unit: a.Unit, A: number(a, d.A.Value, 4), B: number(a, d.B.Value, 4), Change: changeText(&d, d.Shown()), From: string(d.How), Shows: string(d.Verdict)}
		row.Interval = d.IntervalText(func(v float64) string { return changeText(&d, v) })
		if d.Verdict == frontier.Worse {
			row.Class = "bad"
		}
		p.Rows = append(p.Rows, row)
		if a.Name == frontier.DefaultY && d.Ratio {
			p.Lead = fmt.Sprintf("B has %s times the throughput per GPU of A: %s.", frontier.Three(d.Shown()), d.Verdict)
		}
	}
	h.page(w, http.StatusOK, "compare", p)
}

// changeText is a ratio in percent or as a factor, or a difference of shares in points.
func changeText(d *frontier.Delta, v float64) string {
	return d.ChangeText(v, "points", "×%s")
}

func (h *Handler) apiCompare(w http.ResponseWriter, r *http.Request) {
	sides, _, pair, err := h.sides(r)
	if err != nil {
		h.apiFail(w, http.StatusBadRequest, err)
		return
	}
	h.json(w, http.StatusOK, frontier.CompareRuns(sides[0], sides[1], axesByName(compareAxes), pair))
}
