package web

import (
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
	Repeats   string // what the intervals are, empty without repeats
	Hidden    int    // curves that the default view leaves out
	Simulated bool
	SimError  string
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

// look assigns hue by hardware, shape by engine, dash by precision, fill by offload.
type look struct{ hardware, engines, precisions []string }

func newLook(curves []frontier.Curve) *look {
	l := &look{}
	for _, c := range curves {
		l.hardware = appendNew(l.hardware, c.Series.Hardware)
		l.engines = appendNew(l.engines, c.Series.Engine)
		l.precisions = appendNew(l.precisions, c.Series.Precision)
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
		Dotted: s.Simulated,
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
		kind := "measured"
		if s.Simulated {
			kind = "simulated"
		}
		spec := s.Spec
		if spec == "none" {
			spec = "no spec. decoding"
		}
		for _, t := range []string{strings.ToUpper(s.Hardware), s.Engine, s.Precision, s.Topology, fmt.Sprintf("%d GPUs", s.GPUs), spec, kind, image(s.Image)} {
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
}

func viewGroup(g frontier.Group, rs []*result.Result, o viewOptions) groupView {
	curves := frontier.Curves(rs, o.x, o.y)
	v := groupView{Anchor: o.anchor, XName: o.x.Label, YName: o.y.Label, XShort: o.x.Short, YShort: o.y.Short}
	if len(curves) > maxSeries {
		v.Hidden = len(curves) - maxSeries
	}
	v.Heading = g.Model
	if g.Scenario != "" {
		v.Heading += ", " + g.Scenario
	}
	v.Sentence = frontier.Sentence(g, curves, o.x, o.y)
	v.Load = load(rs)
	for _, r := range rs {
		if r.Simulated {
			v.Simulated = true
			v.SimError = r.SimError
		}
	}
	l := newLook(curves)
	names := shortNames(curves)
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
		fmt.Sprintf("%d agents, %s", p.Conc, c.Series.Name()),
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
		lines = append(lines, "simulated")
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

// multiples draws what stands under the chart, all on one concurrency axis, each width wide.
func (v *groupView) multiples(curves []frontier.Curve, l *look, names []string, o viewOptions, width float64) {
	v.Stacks, v.Lines = nil, nil
	conc := concAxis(curves)
	if len(conc) < 2 {
		return
	}
	x := chart.Axis{Label: "concurrent agents", Log: true, Ticks: conc}
	rules := make([][]chart.Rule, len(curves))
	var all []chart.Rule
	for i := range curves {
		if k, ok := frontier.KneeOf(&curves[i]); ok && k.Within > 0 && k.Beyond > 0 {
			at := math.Sqrt(float64(k.Within) * float64(k.Beyond))
			rules[i] = []chart.Rule{{X: at, Text: "knee"}}
			all = append(all, chart.Rule{X: at})
		}
	}
	for i := range curves {
		if i >= maxSeries {
			break
		}
		if s := stackOf(&curves[i], orName(names[i], &curves[i]), fmt.Sprintf("%s-hits-%d", o.anchor, i), x, rules[i], width); s != "" {
			v.Stacks = append(v.Stacks, template.HTML(s))
		}
	}
	v.tierLegend(curves, len(all) > 0)
	zero, one := 0.0, 1.0
	for _, m := range []struct {
		id, axis string
		log      bool
		share    bool
	}{
		{"kv", "kv_device", false, true}, {"kvhost", "kv_host", false, true}, {"ttft", "ttft_p90", true, false}, {"tput", o.y.Name, false, false},
	} {
		a, err := frontier.ByName(m.axis)
		if err != nil {
			continue
		}
		y := axisOf(a)
		y.Log = m.log
		y.Zero = !m.log
		if m.share {
			y.Min, y.Max = &zero, &one
			y.Better = 0
		}
		p := chart.Plot{ID: o.anchor + "-" + m.id, Title: "", Width: width, Height: 222, X: x, Y: y, Small: true, Rules: all}
		p.Desc = a.Label + " against concurrency"
		some := false
		for i := range curves {
			s := lineOf(&curves[i], a, l.of(&curves[i].Series), names[i])
			some = some || len(s.Marks) > 0
			p.Series = append(p.Series, s)
		}
		if some {
			v.Lines = append(v.Lines, template.HTML(p.SVG()))
		}
	}
}

// tierLegend explains the stacks.
func (v *groupView) tierLegend(curves []frontier.Curve, knee bool) {
	if len(v.Stacks) == 0 {
		return
	}
	var host, storage, lru bool
	for i := range curves {
		for _, r := range allRuns(&curves[i]) {
			host = host || r.Hits.Host != nil && *r.Hits.Host > 0
			storage = storage || r.Hits.Storage != nil && *r.Hits.Storage > 0
			lru = lru || r.Hits.LRUDevice != nil || r.Hits.LRUHost != nil
		}
	}
	keys := []chart.Key{{Text: "found in HBM", Kind: chart.KeyTier, Tier: "device"}}
	if host {
		keys = append(keys, chart.Key{Text: "found in host DRAM", Kind: chart.KeyTier, Tier: "host"})
	}
	if storage {
		keys = append(keys, chart.Key{Text: "found in storage", Kind: chart.KeyTier, Tier: "storage"})
	}
	keys = append(keys, chart.Key{Text: "ceiling: an infinite cache", Kind: chart.KeyCeiling})
	if lru {
		keys = append(keys, chart.Key{Text: "a plain LRU of this size", Kind: chart.KeyLRU})
	}
	if knee {
		keys = append(keys, chart.Key{Text: fmt.Sprintf("knee: hits fall under %.0f %% of the ceiling", 100*frontier.KneeShare), Kind: chart.KeyRule})
	}
	v.Tiers = template.HTML(chart.Legend(v.Anchor+"-tiers", "Legend of the hit rates", 860, keys))
}

// concAxis is the measured concurrencies, thinned to at most eleven ticks.
func concAxis(curves []frontier.Curve) []float64 {
	var out []float64
	for _, c := range curves {
		for _, r := range allRuns(&c) {
			if n := float64(r.Point.Conc); n > 0 && !slices.Contains(out, n) {
				out = append(out, n)
			}
		}
	}
	slices.Sort(out)
	return out
}

// allRuns are the runs of a curve in order of concurrency, placed or not.
func allRuns(c *frontier.Curve) []*result.Result {
	var out []*result.Result
	for _, p := range c.Points {
		out = append(out, p.Runs...)
	}
	for _, m := range c.Missing {
		out = append(out, m.Runs...)
	}
	slices.SortStableFunc(out, func(a, b *result.Result) int { return a.Point.Conc - b.Point.Conc })
	return out
}

func lineOf(c *frontier.Curve, a *frontier.Axis, enc chart.Encoding, name string) chart.Series {
	s := chart.Series{Name: name, Enc: enc}
	last := -1
	for _, r := range allRuns(c) {
		conc := float64(r.Point.Conc)
		val, why, ok := a.Value(r)
		tip := []string{fmt.Sprintf("%d agents, %s", r.Point.Conc, c.Series.Name())}
		if !ok {
			s.Missing = append(s.Missing, chart.Missing{X: conc, ID: r.ID, Note: "", Tip: append(tip, a.Label+" "+why)})
			continue
		}
		m := chart.Mark{X: conc, Y: val, ID: r.ID, Tip: append(tip, a.Label+" "+number(a, val, 3))}
		if !r.Valid {
			m.State = chart.Invalid
			for _, f := range r.Reasons {
				m.Tip = append(m.Tip, "invalid: "+f.Text)
			}
		} else if r.Point.Conc != last {
			s.Line = append(s.Line, len(s.Marks))
			last = r.Point.Conc
		}
		s.Marks = append(s.Marks, m)
	}
	return s
}

// stackOf draws the hit rate of one curve by tier.
func stackOf(c *frontier.Curve, name, id string, x chart.Axis, rules []chart.Rule, width float64) string {
	zero, one := 0.0, 1.0
	s := chart.Stack{
		ID: id, Title: "Prefix hit rate by tier: " + name, Width: width, Height: 222,
		X: x, Y: chart.Axis{Label: "share of prompt tokens", Percent: true, Better: 1, Min: &zero, Max: &one},
		Rules: rules,
	}
	var dev, host, stor []float64
	nan := func(p *float64) float64 {
		if p == nil {
			return math.NaN()
		}
		return *p
	}
	some, storage := false, false
	last := -1
	for _, r := range allRuns(c) {
		if r.Point.Conc == last {
			continue
		}
		last = r.Point.Conc
		h := r.Hits
		s.At = append(s.At, float64(r.Point.Conc))
		d, ho, st := nan(h.Device), nan(h.Host), nan(h.Storage)
		if h.Device == nil { // the split is unknown
			d = nan(h.Total)
		}
		dev, host, stor = append(dev, d), append(host, ho), append(stor, st)
		s.Ceiling = append(s.Ceiling, nan(h.Ceiling))
		lru := h.LRUDevice
		if c.Series.Offloaded() {
			lru = h.LRUHost
		}
		s.LRU = append(s.LRU, nan(lru))
		some = some || h.Total != nil
		storage = storage || h.Storage != nil && *h.Storage > 0
		t := []string{fmt.Sprintf("%d agents, %s", r.Point.Conc, c.Series.Name()), "hit rate " + percent(h.Total)}
		if h.Device != nil {
			t = append(t, "HBM "+percent(h.Device)+", host "+percent(h.Host)+", storage "+percent(h.Storage))
		}
		t = append(t, "infinite cache "+percent(h.Ceiling))
		if lru != nil {
			t = append(t, "plain LRU of this size "+percent(lru))
		}
		s.Points = append(s.Points, chart.Missing{ID: r.ID, Tip: t})
	}
	if !some {
		return ""
	}
	s.Layers = []chart.Layer{{Name: "HBM", Class: "device", Values: dev}, {Name: "host DRAM", Class: "host", Hatch: true, Values: host}}
	if storage {
		s.Layers = append(s.Layers, chart.Layer{Name: "storage", Class: "storage", Values: stor})
	}
	s.Desc = "Share of prompt tokens found in each tier against concurrency, with the ceiling of an infinite cache as a line"
	return s.SVG()
}

func (v *groupView) table(curves []frontier.Curve, l *look, names []string, o viewOptions) {
	ttft, _ := frontier.ByName("ttft_p90")
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
				TTFT: tableValue(ttft, r), X: tableValue(o.x, r), Y: tableValue(o.y, r),
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
	for _, a := range frontier.Axes {
		unit := a.Unit
		if a.Share {
			unit = "%"
		}
		v.MoreHead = append(v.MoreHead, head{a.Short, a.Label, unit})
	}
	for i := range curves {
		for _, r := range allRuns(&curves[i]) {
			line := []cell{{Text: orName(names[i], &curves[i])}, {Text: fmt.Sprint(r.Point.Conc)}}
			for _, a := range frontier.Axes {
				_, why, _ := a.Value(r)
				line = append(line, cell{Text: tableValue(a, r), Why: why})
			}
			v.More = append(v.More, line)
		}
	}
}
