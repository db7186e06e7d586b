package web

import (
	"cmp"
	"fmt"
	"html/template"
	"math"
	"slices"
	"sort"
	"strings"

	"github.com/weirbench/weir/internal/chart"
	"github.com/weirbench/weir/internal/frontier"
	"github.com/weirbench/weir/internal/result"
)

// A groupView is one comparison group as a page shows it.
type groupView struct {
	Anchor    string
	Heading   string // model and scenario
	Sentence  string
	Load      string // corpus and window in words
	Frontier  template.HTML
	Legend    template.HTML
	Tiers     template.HTML // legend of the stacks
	Stacks    []template.HTML
	Lines     []template.HTML
	Columns   int // of the small multiples
	Rows      []row
	Unplaced  []string
	Repeats   string   // what the intervals are, empty without repeats
	NotShown  []string // series that the default view leaves out
	ShowAll   string   // address of the view with all of them, empty in a report
	Simulated bool
	SimError  string
	Joined    string // what the lines between points are
	XName     string
	YName     string
	XShort    string
	YShort    string
	Invalid   []string // why runs are not valid
	More      [][]cell // the full table
	MoreHead  []head
}

// A row is one run in the table beside the chart.
type row struct {
	ID, Href  string
	Key       template.HTML // the mark of its series
	Series    string
	First     bool // first row of its series
	Conc      int
	Hit       string
	Ceiling   string
	TTFT      string
	X, Y      string
	On        bool
	Valid     bool
	Why       string
	Simulated bool
}

type head struct{ Short, Label, Unit string }

type cell struct {
	Text string
	Why  string
}

// maxSeries is how many curves a default view shows at most.
const maxSeries = 6

// look assigns hue by hardware, shape by engine, dash by precision, fill by offload and a cross
// to sweeps that are laid over the first one.
type look struct{ hardware, engines, precisions, runs []string }

func newLook(curves []frontier.Curve) *look {
	l := &look{}
	for _, c := range curves {
		l.hardware = appendNew(l.hardware, c.Series.Hardware)
		l.engines = appendNew(l.engines, c.Series.Engine)
		l.precisions = appendNew(l.precisions, c.Series.Precision)
		l.runs = appendNew(l.runs, c.Series.Run)
	}
	return l
}

func appendNew(list []string, v string) []string {
	if slices.Contains(list, v) {
		return list
	}
	return append(list, v)
}

func (l *look) of(s *frontier.Series) chart.Encoding {
	return chart.Encoding{
		Hue:    slices.Index(l.hardware, s.Hardware),
		Shape:  chart.Shape(slices.Index(l.engines, s.Engine)),
		Dash:   chart.Dash(slices.Index(l.precisions, s.Precision)),
		Filled: s.Offloaded(),
		// The first of several sweeps is the one that others are laid over.
		Overlay: slices.Index(l.runs, s.Run) > 0,
		Dotted:  s.Simulated,
	}
}

// shortNames are the names of series without what all of them share. A setting of the host pool
// is shared when all series with offload have it.
func shortNames(curves []frontier.Curve) []string {
	type part struct {
		text string
		of   string // which curves must have it for it to be shared: "all" or "offload"
	}
	parts := make([][]part, len(curves))
	var offloaded int
	for i := range curves {
		s := &curves[i].Series
		off := "no offload"
		if s.Offloaded() {
			off = "offload " + s.Offload
			offloaded++
		}
		spec := s.Spec
		if spec == "none" {
			spec = "no spec. decoding"
		}
		for _, t := range []string{strings.ToUpper(s.Hardware), s.Engine, s.Precision, s.Topology, fmt.Sprintf("%d GPUs", s.GPUs), spec, s.Kind, image(s.Image)} {
			parts[i] = append(parts[i], part{t, "all"})
		}
		if len(curves) == 1 {
			return []string{off}
		}
		parts[i] = append(parts[i], part{off, "all"})
		for _, t := range strings.Split(s.Variant, "; ") {
			if strings.HasPrefix(t, "host ") {
				parts[i] = append(parts[i], part{t, "offload"})
			} else {
				parts[i] = append(parts[i], part{t, "all"})
			}
		}
		parts[i] = append(parts[i], part{s.Run, "all"})
	}
	have := map[part]int{}
	for i := range parts {
		for _, p := range parts[i] {
			have[p]++
		}
	}
	out := make([]string, len(curves))
	for i := range parts {
		var keep []string
		for _, p := range parts[i] {
			shared := have[p] == len(curves) || p.of == "offload" && have[p] == offloaded
			if p.text != "" && !shared {
				keep = append(keep, p.text)
			}
		}
		out[i] = strings.Join(keep, ", ")
	}
	return out
}

// image is the end of an image's name, which tells versions apart.
func image(name string) string {
	if i := strings.LastIndexByte(name, '/'); i >= 0 {
		return name[i+1:]
	}
	return name
}

// options of a group's view.
type viewOptions struct {
	x, y   *frontier.Axis
	point  func(id string) string // address of a run's page, nil for none
	anchor string
	// all shows every series; without it a view has at most maxSeries, and showAll is the
	// address of the view that has all.
	all     bool
	showAll string
	run     func(*result.Result) string // splits series by a name of each run; nil for none
}

// pick keeps the series that reach highest, in their order, and names the others.
func (v *groupView) pick(curves []frontier.Curve, names []string, o viewOptions) ([]frontier.Curve, []string) {
	best := make([]float64, len(curves))
	order := make([]int, len(curves))
	for i := range curves {
		order[i] = i
		best[i] = math.Inf(-1)
		if p, ok := frontier.Reach(curves[i].Frontier(), o.x.Better, o.y.Better, math.Inf(-int(o.x.Better))); ok {
			best[i] = p.Y * float64(o.y.Better)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(best[b], best[a]) })
	keep := slices.Clone(order[:maxSeries])
	for _, i := range order[maxSeries:] {
		v.NotShown = append(v.NotShown, orName(names[i], &curves[i]))
	}
	slices.Sort(keep)
	var cs []frontier.Curve
	var ns []string
	for _, i := range keep {
		cs, ns = append(cs, curves[i]), append(ns, names[i])
	}
	return cs, ns
}

func viewGroup(g frontier.Group, rs []*result.Result, o viewOptions) groupView {
	curves := frontier.CurvesBy(rs, o.x, o.y, o.run)
	v := groupView{Anchor: o.anchor, XName: o.x.Label, YName: o.y.Label, XShort: o.x.Short, YShort: o.y.Short}
	v.Heading = g.Model
	if g.Scenario != "" {
		v.Heading += ", " + g.Scenario
	}
	v.Sentence = frontier.Sentence(g, curves, o.x, o.y)
	names := shortNames(curves)
	if len(curves) > maxSeries && !o.all {
		curves, names = v.pick(curves, names, o)
		v.ShowAll = o.showAll
	}
	v.Load = load(rs)
	for _, r := range rs {
		if r.Simulated {
			v.Simulated = true
			if t := simulation(r); !strings.Contains(v.SimError, t) {
				v.SimError = strings.TrimPrefix(v.SimError+"; "+t, "; ")
			}
		}
	}
	v.Joined = linesText(rs)
	l := newLook(curves)
	v.frontier(curves, l, names, o)
	v.multiples(curves, l, names, o, 420)
	v.Columns = 3
	if n := len(v.Stacks) + len(v.Lines); n == 4 || n > 6 {
		v.Columns = 4
		v.multiples(curves, l, names, o, 328)
	}
	v.table(curves, l, names, o)
	v.fullTable(curves, names)
	return v
}

// linesText says what the lines between points are.
func linesText(rs []*result.Result) string {
	measured, simulated := false, false
	for _, r := range rs {
		measured, simulated = measured || !r.Simulated, simulated || r.Simulated
	}
	switch {
	case simulated && measured:
		return "Lines join measured points, dotted ones simulated points; between the points nothing was run."
	case simulated:
		return "Lines join simulated points; between them nothing was simulated."
	}
	return "Lines join measured points and are no measurement."
}

// simulation is what is known of how far a simulated result may be off, empty when nothing is.
func simulation(r *result.Result) string {
	t := r.SimError
	if r.OffSpeed() {
		t = strings.TrimPrefix(t+"; "+r.Kind()+", so its times and rates are no engine's", "; ")
	}
	return t
}

// load says in words what was replayed.
func load(rs []*result.Result) string {
	if len(rs) == 0 {
		return ""
	}
	r := rs[0]
	var parts []string
	if r.Corpus.Name != "" {
		parts = append(parts, fmt.Sprintf("corpus %s (%d traces, %s)", r.Corpus.Name, r.Corpus.Traces, short(r.Corpus.Fingerprint, 12)))
	}
	if r.Corpus.Skipped > 0 {
		parts = append(parts, fmt.Sprintf("%d broken traces left out", r.Corpus.Skipped))
	}
	lo, hi := math.Inf(1), 0.0
	for _, r := range rs {
		if w := r.Window.PlannedS; w != nil {
			lo, hi = math.Min(lo, *w), math.Max(hi, *w)
		}
	}
	switch {
	case hi == 0:
	case lo == hi:
		parts = append(parts, fmt.Sprintf("window %.0f s", hi))
	default:
		parts = append(parts, fmt.Sprintf("windows %.0f to %.0f s", lo, hi))
	}
	if r.Semantics != "" {
		parts = append(parts, "replay "+r.Semantics)
	}
	return strings.Join(parts, ", ")
}

func short(s string, n int) string {
	if len(s) > n {
		return s[:n]
	}
	return s
}

func axisOf(a *frontier.Axis) chart.Axis {
	return chart.Axis{Label: a.Label, Unit: a.Unit, Better: int(a.Better), Percent: a.Share}
}

func (v *groupView) frontier(curves []frontier.Curve, l *look, names []string, o viewOptions) {
	p := chart.Plot{
		ID: o.anchor + "-frontier", Width: 860, Height: 520, NameSeries: true,
		X: axisOf(o.x), Y: axisOf(o.y),
		Desc: v.Sentence,
	}
	p.X.Zero, p.Y.Zero = true, true
	any := struct{ dominated, invalid, interval, simulated, on, off bool }{}
	repeats := map[string]bool{}
	for i := range curves {
		c := &curves[i]
		s := chart.Series{Name: names[i], Enc: l.of(&c.Series)}
		var on []int
		for k, pt := range c.Points {
			m := chart.Mark{
				X: pt.X.Value, Y: pt.Y.Value, XLow: pt.X.Low, XHigh: pt.X.High, YLow: pt.Y.Low, YHigh: pt.Y.High,
				Label: fmt.Sprint(pt.Conc), ID: pt.Runs[0].ID, Tip: tip(c, &pt, o.x, o.y), Href: href(o, pt.Runs[0].ID),
			}
			switch {
			case pt.Invalid:
				m.State, any.invalid = chart.Invalid, true
			case pt.On:
				on = append(on, k)
			default:
				m.State, any.dominated = chart.Dominated, true
			}
			if !pt.Invalid {
				s.Trail = append(s.Trail, k)
			}
			if pt.X.Within || pt.Y.Within {
				any.interval = true
				repeats["95 % interval from within one run"] = true
			}
			if pt.X.N > 1 {
				any.interval = true
				if pt.X.Level > 0 {
					repeats[fmt.Sprintf("%.1f %% interval of the median of %d runs", 100*pt.X.Level, pt.X.N)] = true
				} else {
					repeats[fmt.Sprintf("range of %d runs", pt.X.N)] = true
				}
			}
			s.Marks = append(s.Marks, m)
		}
		sort.SliceStable(on, func(a, b int) bool { return s.Marks[on[a]].X < s.Marks[on[b]].X })
		s.Line = on
		any.simulated = any.simulated || c.Series.Simulated
		any.on = any.on || c.Series.Offloaded()
		any.off = any.off || !c.Series.Offloaded()
		p.Series = append(p.Series, s)
		for _, m := range c.Missing {
			v.Unplaced = append(v.Unplaced, fmt.Sprintf("%s, concurrency %d: %s", orName(names[i], c), m.Conc, m.Why))
		}
	}
	v.Frontier = template.HTML(p.SVG())
	v.Repeats = strings.Join(sortedKeys(repeats), "; ")

	var keys []chart.Key
	if len(l.hardware) > 1 || len(l.engines) > 1 || len(l.precisions) > 1 || len(curves) > 2 {
		for i := range curves {
			keys = append(keys, chart.Key{Text: orName(names[i], &curves[i]), Enc: l.of(&curves[i].Series)})
		}
	}
	if any.on {
		keys = append(keys, chart.Key{Text: "filled: offload on", Kind: chart.KeyMark, Enc: chart.Encoding{Filled: true}})
	}
	if any.off {
		keys = append(keys, chart.Key{Text: "hollow: offload off", Kind: chart.KeyMark})
	}
	if any.simulated {
		keys = append(keys, chart.Key{Text: "thin dotted: simulated", Kind: chart.KeyLine, Enc: chart.Encoding{Dotted: true}})
	}
	if any.dominated {
		keys = append(keys, chart.Key{Text: "grey: dominated", Kind: chart.KeyDominated})
	}
	if any.interval {
		keys = append(keys, chart.Key{Text: v.Repeats, Kind: chart.KeyInterval})
	}
	if any.invalid {
		keys = append(keys, chart.Key{Text: "invalid", Kind: chart.KeyInvalid})
	}
	v.Legend = template.HTML(chart.Legend(o.anchor+"-legend", "Legend", 860, keys))
}

func sortedKeys(m map[string]bool) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

func orName(name string, c *frontier.Curve) string {
	if name == "" {
		return c.Series.Name()
	}
	return name
}

func href(o viewOptions, id string) string {
	if o.point == nil {
		return ""
	}
	return o.point(id)
}

// tip is what hovering over a point says.
func tip(c *frontier.Curve, p *frontier.Point, x, y *frontier.Axis) []string {
	r := p.Runs[0]
	lines := []string{
		fmt.Sprintf("%s, %s", r.Point.Agents(), c.Series.Name()),
		axisText(y, p.Y), axisText(x, p.X),
	}
	if h := r.Hits; h.Total != nil {
		s := "hit rate " + percent(h.Total)
		if h.Device != nil {
			s += " (HBM " + percent(h.Device) + ", host " + percent(h.Host) + ")"
		}
		if h.Ceiling != nil {
			s += ", ceiling " + percent(h.Ceiling)
		}
		lines = append(lines, s)
	}
	if t := r.Latency.TTFT; t.P90 != nil {
		lines = append(lines, "TTFT p90 "+frontier.Three(*t.P90)+" s")
	}
	lines = append(lines, fmt.Sprintf("%d of %d requests succeeded", r.Requests.OK, r.Requests.Sent-r.Requests.Cut))
	if len(p.Runs) > 1 {
		lines = append(lines, fmt.Sprintf("median of %d runs", len(p.Runs)))
	}
	if r.Simulated {
		lines = append(lines, r.Kind())
	}
	for _, f := range r.Reasons {
		lines = append(lines, "invalid: "+f.Text)
	}
	return lines
}

func axisText(a *frontier.Axis, e frontier.Estimate) string {
	s := a.Label + " " + number(a, e.Value, 3)
	if e.High > e.Low {
		s += " (" + number(a, e.Low, 3) + " to " + number(a, e.High, 3) + ")"
	}
	return s
}

// number writes a value of an axis with its unit.
func number(a *frontier.Axis, v float64, digits int) string {
	if a.Share {
		return frontier.Significant(100*v, digits) + " %"
	}
	s := frontier.Significant(v, digits)
	if a.Unit != "" {
		s += " " + a.Unit
	}
	return s
}

func percent(v *float64) string {
	if v == nil {
		return "–"
	}
	return fmt.Sprintf("%.1f %%", 100**v)
}
