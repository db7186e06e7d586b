package web

import (
	"fmt"
	"strings"

	"github.com/weirbench/weir/internal/chart"
	"github.com/weirbench/weir/internal/frontier"
	"github.com/weirbench/weir/internal/result"
)

// Figure draws one axis of results against concurrency as a picture that carries its own style,
// for a pull request, a README or print. Results of one comparison group are expected; it fails
// when there is nothing to draw or more than one group.
func Figure(rs []*result.Result, axis string, width, height float64) (string, error) {
	a, err := frontier.ByName(axis)
	if err != nil {
		return "", err
	}
	groups, of := frontier.Groups(rs)
	switch len(groups) {
	case 0:
		return "", fmt.Errorf("no results to draw")
	case 1:
	default:
		return "", fmt.Errorf("the results are of %d comparison groups (%s and %s, ...): one figure shows one", len(groups), groups[0].Model, groups[1].Model)
	}
	x, err := frontier.ByName("conc")
	if err != nil {
		return "", err
	}
	curves := frontier.Curves(of[groups[0]], x, a)
	l := newLook(curves)
	names := shortNames(curves)
	y := axisOf(a)
	y.Zero = true
	if a.Share {
		zero, one := 0.0, 1.0
		y.Min, y.Max = &zero, &one
	}
	p := chart.Plot{
		ID: "figure", Width: width, Height: height, Y: y, Desc: a.Label + " against concurrency",
		X:          chart.Axis{Label: "concurrent agents", Log: true, Ticks: concAxis(curves)},
		NameSeries: true,
	}
	every, some := true, false
	for i := range curves {
		every, some = every && curves[i].Series.Simulated, some || curves[i].Series.Simulated
	}
	if some && every {
		p.Title = a.Label + " (simulated: no engine ran)"
		p.Desc += ", simulated"
	}
	marks := 0
	for i := range curves {
		name := orName(names[i], &curves[i])
		if curves[i].Series.Simulated && !every && !strings.Contains(name, "simulated") {
			name += " (simulated)"
		}
		s := lineOf(&curves[i], a, l.of(&curves[i].Series), name)
		marks += len(s.Marks)
		p.Series = append(p.Series, s)
	}
	if marks == 0 {
		return "", fmt.Errorf("no result has %s", a.Label)
	}
	return chart.Standalone(p.SVG()), nil
}
