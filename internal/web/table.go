package web

import (
	"fmt"
	"html/template"
	"strings"

	"github.com/weirbench/weir/internal/chart"
	"github.com/weirbench/weir/internal/frontier"
	"github.com/weirbench/weir/internal/result"
)

// table fills the rows beside the chart.
func (v *groupView) table(curves []frontier.Curve, l *look, names []string, o viewOptions) {
	ttft, _ := frontier.ByName("ttft_p90")
	runs := runsOf(curves)
	cellTTFT, cellX, cellY := tableColumn(ttft, runs), tableColumn(o.x, runs), tableColumn(o.y, runs)
	for i := range curves {
		c := &curves[i]
		on := map[string]bool{}
		for _, p := range c.Points {
			for _, r := range p.Runs {
				on[r.ID] = p.On
			}
		}
		key := template.HTML(chart.Swatch(l.of(&c.Series)))
		for k, r := range allRuns(c) {
			w := row{
				ID: r.ID, Href: href(o, r.ID), Key: key, Series: orName(names[i], c), First: k == 0, Conc: r.Point.Conc,
				Hit: tablePercent(r.Hits.Total), Ceiling: tablePercent(r.Hits.Ceiling),
				TTFT: cellTTFT(r), X: cellX(r), Y: cellY(r),
				On: on[r.ID] && r.Valid, Valid: r.Valid, Simulated: r.Simulated,
			}
			var why []string
			for _, f := range r.Reasons {
				why = append(why, f.Text)
			}
			w.Why = strings.Join(why, "; ")
			if !r.Valid {
				v.Invalid = append(v.Invalid, fmt.Sprintf("%s, concurrency %d: %s", w.Series, w.Conc, w.Why))
			}
			v.Rows = append(v.Rows, w)
		}
	}
}

func tablePercent(v *float64) string {
	if v == nil {
		return "–"
	}
	return fmt.Sprintf("%.1f", 100**v)
}

func runsOf(curves []frontier.Curve) []*result.Result {
	var out []*result.Result
	for i := range curves {
		out = append(out, allRuns(&curves[i])...)
	}
	return out
}

// tableColumn writes the numbers of runs on an axis with as many decimals for each, so that they
// line up.
func tableColumn(a *frontier.Axis, runs []*result.Result) func(*result.Result) string {
	var column []float64
	scale := 1.0
	if a.Share {
		scale = 100
	}
	for _, r := range runs {
		if v, _, ok := a.Value(r); ok {
			column = append(column, scale*v)
		}
	}
	decimals := frontier.Decimals(column)
	if a.Share {
		decimals = 1
	}
	return func(r *result.Result) string {
		if v, _, ok := a.Value(r); ok {
			return frontier.Fixed(scale*v, decimals)
		}
		return tableValue(a, r)
	}
}

func tableValue(a *frontier.Axis, r *result.Result) string {
	v, why, ok := a.Value(r)
	if !ok {
		if strings.HasPrefix(why, "withheld") {
			return "[ ]"
		}
		return "–"
	}
	if a.Share {
		return frontier.Table(100 * v)
	}
	return frontier.Table(v)
}

// fullTable holds every axis of every run.
func (v *groupView) fullTable(curves []frontier.Curve, names []string) {
	runs := runsOf(curves)
	var cells []func(*result.Result) string
	for _, a := range frontier.Axes {
		cells = append(cells, tableColumn(a, runs))
		unit := a.Unit
		if a.Share {
			unit = "%"
		}
		v.MoreHead = append(v.MoreHead, head{a.Short, a.Label, unit})
	}
	for i := range curves {
		for _, r := range allRuns(&curves[i]) {
			line := []cell{{Text: orName(names[i], &curves[i])}, {Text: fmt.Sprint(r.Point.Conc)}}
			for k, a := range frontier.Axes {
				_, why, _ := a.Value(r)
				line = append(line, cell{Text: cells[k](r), Why: why})
			}
			v.More = append(v.More, line)
		}
	}
}
