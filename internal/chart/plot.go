package chart

import (
	"math"
	"slices"
	"strings"
)

// An Axis describes one axis of a plot.
type Axis struct {
	Label   string
	Unit    string
	Better  int // +1 when more is better, -1 when less is, 0 when neither
	Log     bool
	Percent bool      // values are shares, shown in percent
	Zero    bool      // zero is shown
	Min     *float64  // fixed ends, nil to fit the data
	Max     *float64  //
	Ticks   []float64 // fixed ticks, nil for round ones
	Tight   bool      // the scale ends where the data ends, not at a round value
}

// State says how a mark stands among the others.
type State int

const (
	Normal    State = iota
	Dominated       // another point of the curve is better on both axes: grey
	Invalid         // the run is not valid: a red cross
)

// A Mark is one point of a series.
type Mark struct {
	X, Y float64
	// Low and High are the ends of an interval around the value on each axis; none is drawn
	// where they are equal.
	XLow, XHigh, YLow, YHigh float64
	Label                    string // a few characters beside the mark
	ID                       string // joins the mark with what else shows the same run
	Tip                      []string
	State                    State
	Href                     string
	Gap                      bool // in a Bare series, the line does not come from the mark before
}

// A Missing is a point whose value on y is withheld; it is drawn as an open bracket at its x.
type Missing struct {
	X    float64
	Note string // "n 21"
	ID   string
	Tip  []string
}

// A Series is a set of marks that look alike and the lines through them.
type Series struct {
	Name  string
	Enc   Encoding
	Marks []Mark
	// Line and Trail are indices of marks: Line is drawn in the hue, Trail in grey beneath.
	Line  []int
	Trail []int
	// Missing stand on the x axis.
	Missing []Missing
	// Bare draws a line through all marks and no marks; Dots draws small dots and no line.
	Bare, Dots bool
}

// A Rule is a hairline across the plot at one x.
type Rule struct {
	X    float64
	Text string
}

// A Plot is a plane of two axes.
type Plot struct {
	ID            string // unique in the page
	Title         string // shown above; empty for none
	Desc          string // for those who can't see it
	Width, Height float64
	X, Y          Axis
	Series        []Series
	Rules         []Rule
	Small         bool // a small multiple: fewer ticks, smaller marks, no labels at marks
	NameSeries    bool // write the names of the series beside their curves
}

type box struct{ x0, y0, x1, y1 float64 }

func (b box) meets(o box) bool { return b.x0 < o.x1 && o.x0 < b.x1 && b.y0 < o.y1 && o.y0 < b.y1 }

func (b box) inside(o box) bool { return b.x0 >= o.x0 && b.x1 <= o.x1 && b.y0 >= o.y0 && b.y1 <= o.y1 }

// frame is a plot's inner rectangle and its scales.
type frame struct {
	box    // plot area
	sx, sy Scale
	xt, yt []float64
	xText  func(float64) string
	yText  func(float64) string
}

// SVG draws the plot.
func (p *Plot) SVG() string {
	var d doc
	openFigure(&d, p.ID, p.Width, p.Height, p.Title, p.Desc)
	f := p.layout()
	heading := f.drawAxes(&d, &p.X, &p.Y, p.Title, p.Small)
	placed := p.rules(&d, f, heading)
	p.lines(&d, f)
	placed = append(placed, p.marks(&d, f, placed)...)
	if p.NameSeries {
		p.names(&d, f, placed)
	}
	d.end("svg")
	return d.String()
}

func openFigure(d *doc, id string, w, h float64, title, desc string) {
	d.open("svg", "class", "weir", "viewBox", "0 0 "+num(w)+" "+num(h), "role", "img", "aria-labelledby", id+"-t "+id+"-d", "xmlns", "http://www.w3.org/2000/svg")
	d.leaf("title", title, "id", id+"-t")
	d.leaf("desc", desc, "id", id+"-d")
}

func extent(a *Axis, values []float64) (lo, hi float64, ok bool) {
	lo, hi = math.Inf(1), math.Inf(-1)
	for _, v := range values {
		if math.IsNaN(v) || math.IsInf(v, 0) || a.Log && v <= 0 {
			continue
		}
		lo, hi = math.Min(lo, v), math.Max(hi, v)
	}
	if lo > hi {
		lo, hi = 0, 1
		if a.Log {
			lo, hi = 1, 10
		}
	} else {
		ok = true
	}
	if a.Zero && !a.Log {
		lo, hi = math.Min(0, lo), math.Max(0, hi)
	}
	if a.Min != nil {
		lo = *a.Min
	}
	if a.Max != nil {
		hi = *a.Max
	}
	return lo, hi, ok
}

func (a *Axis) ticks(lo, hi float64, n int) []float64 {
	switch {
	case a.Ticks != nil:
		return a.Ticks
	case a.Log:
		return logTicks(lo, hi, float64(n)/2)
	default:
		return linearTicks(lo, hi, n)
	}
}

func (p *Plot) layout() *frame {
	var xs, ys []float64
	for _, s := range p.Series {
		for _, m := range s.Marks {
			xs = append(xs, m.X)
			ys = append(ys, m.Y)
			if m.XHigh > m.XLow {
				xs = append(xs, m.XLow, m.XHigh)
			}
			if m.YHigh > m.YLow {
				ys = append(ys, m.YLow, m.YHigh)
			}
		}
		for _, m := range s.Missing {
			xs = append(xs, m.X)
		}
	}
	return newFrame(&p.X, &p.Y, xs, ys, p.Width, p.Height, p.Small)
}

func newFrame(x, y *Axis, xs, ys []float64, w, h float64, small bool) *frame {
	nx, ny := 8, 6
	if small {
		nx, ny = 5, 3
	}
	f := &frame{}
	ylo, yhi, _ := extent(y, ys)
	f.yt = y.ticks(ylo, yhi, ny)
	xlo, xhi, _ := extent(x, xs)
	f.xt = x.ticks(xlo, xhi, nx)
	f.xText = func(v float64) string { return tickText(v, f.xt, x.Percent, x.Log) }
	f.yText = func(v float64) string { return tickText(v, f.yt, y.Percent, y.Log) }
	left := 0.0
	for _, t := range f.yt {
		left = math.Max(left, textWidth(f.yText(t), 11.5))
	}
	top, bottom, right := 46.0, 46.0, 18.0
	if small {
		top, bottom, right = 38, 34, 12
	}
	f.box = box{left + 12, top, w - right, h - bottom}
	pad := 0.0
	if x.Ticks != nil {
		pad = 10 // marks at the first and last tick stay inside
	}
	if x.Tight && !x.Log {
		f.xt = slices.DeleteFunc(f.xt, func(t float64) bool { return t < xlo || t > xhi })
		f.sx = Scale{Min: xlo, Max: xhi, From: f.x0, To: f.x1}
		f.sy = Scale{Log: y.Log, Min: f.yt[0], Max: f.yt[len(f.yt)-1], From: f.y1, To: f.y0}
		return f
	}
	f.sx = Scale{Log: x.Log, Min: f.xt[0], Max: f.xt[len(f.xt)-1], From: f.x0 + pad, To: f.x1 - pad}
	f.sy = Scale{Log: y.Log, Min: f.yt[0], Max: f.yt[len(f.yt)-1], From: f.y1, To: f.y0}
	return f
}

// rules draws hairlines with their texts above the frame, or inside it where the heading is in
// the way.
func (p *Plot) rules(d *doc, f *frame, heading box) []box {
	placed := []box{heading}
	rules := slices.Clone(p.Rules)
	slices.SortStableFunc(rules, func(a, b Rule) int { return int(math.Copysign(1, a.X-b.X)) })
	for _, r := range rules {
		x := f.sx.At(r.X)
		if x < f.x0-1 || x > f.x1+1 {
			continue
		}
		d.line(x, f.y0-14, x, f.y1, "hair")
		if r.Text == "" {
			continue
		}
		w := textWidth(r.Text, 11)
		anchor, at := "start", x+5
		if at+w > f.x1 {
			anchor, at = "end", x-5
		}
		b := box{at, f.y0 - 18, at + w, f.y0 - 4}
		if anchor == "end" {
			b.x0, b.x1 = at-w, at
		}
		for slices.ContainsFunc(placed, b.meets) {
			b.y0 += 14
			b.y1 += 14
		}
		d.text(at, b.y1-3, "note halo", anchor, r.Text)
		placed = append(placed, b)
	}
	return placed
}

func (p *Plot) lines(d *doc, f *frame) {
	draw := func(s *Series, at []int, class string) {
		if len(at) < 2 {
			return
		}
		pts := make([][2]float64, len(at))
		for i, k := range at {
			pts[i] = [2]float64{f.sx.At(s.Marks[k].X), f.sy.At(s.Marks[k].Y)}
		}
		d.el("path", "d", pathOf(pts), "class", class)
	}
	for i := range p.Series {
		draw(&p.Series[i], p.Series[i].Trail, strings.Replace(p.Series[i].Enc.lineClass(), "ln ", "ln trail ", 1))
	}
	for i := range p.Series {
		draw(&p.Series[i], p.Series[i].Line, p.Series[i].Enc.lineClass())
	}
	for i := range p.Series {
		switch s := &p.Series[i]; {
		case s.Bare:
			s.bare(d, f)
		case s.Dots:
			s.dots(d, f)
		}
	}
}

// bare draws a line through all marks, broken at gaps.
func (s *Series) bare(d *doc, f *frame) {
	var run [][2]float64
	flush := func() {
		if len(run) == 1 { // a value between two gaps
			run = append(run, [2]float64{run[0][0] + 1, run[0][1]})
		}
		if len(run) > 0 {
			d.el("path", "d", pathOf(run), "class", s.Enc.lineClass())
		}
		run = nil
	}
	for _, m := range s.Marks {
		if m.Gap {
			flush()
		}
		run = append(run, [2]float64{f.sx.At(m.X), f.sy.At(m.Y)})
	}
	flush()
}

// dots draws all marks as one path; marks within half a pixel of each other are one dot.
func (s *Series) dots(d *doc, f *frame) {
	var b strings.Builder
	seen := map[[2]float64]bool{}
	for _, m := range s.Marks {
		at := [2]float64{math.Round(f.sx.At(m.X)*2) / 2, math.Round(f.sy.At(m.Y)*2) / 2}
		if !seen[at] {
			seen[at] = true
			b.WriteString("M" + num(at[0]) + " " + num(at[1]) + "h0")
		}
	}
	d.el("path", "d", b.String(), "class", "dots "+s.Enc.hue())
}

// marks draws all marks and their labels and returns the room they take.
func (p *Plot) marks(d *doc, f *frame, taken []box) []box {
	r := 4.6
	if p.Small {
		r = 3.4
	}
	boxes := slices.Clone(taken)
	for _, s := range p.Series {
		if s.Bare || s.Dots {
			continue
		}
		for _, m := range s.Marks {
			x, y := f.sx.At(m.X), f.sy.At(m.Y)
			boxes = append(boxes, box{x - r - 1, y - r - 1, x + r + 1, y + r + 1})
		}
	}
	segs := p.segments(f)
	for _, s := range p.Series {
		if s.Bare || s.Dots {
			continue
		}
		// Dominated first, so that the frontier lies on top.
		order := make([]int, len(s.Marks))
		for i := range order {
			order[i] = i
		}
		slices.SortStableFunc(order, func(i, j int) int { return rank(s.Marks[i].State) - rank(s.Marks[j].State) })
		for _, i := range order {
			m := &s.Marks[i]
			x, y := f.sx.At(m.X), f.sy.At(m.Y)
			openHit(d, m.ID, m.Tip, m.Href)
			class := s.Enc.markClass()
			size := r
			if !s.Enc.Filled && m.State != Invalid {
				size = r * 1.15 // its ring shows around a filled mark in the same place
			}
			bar := "bar " + s.Enc.hue()
			switch m.State {
			case Dominated:
				class += " dom"
				bar += " dom"
			case Invalid:
				class = "mk bad"
			}
			if m.XHigh > m.XLow {
				d.line(f.sx.At(m.XLow), y, f.sx.At(m.XHigh), y, bar)
			}
			if m.YHigh > m.YLow {
				d.line(x, f.sy.At(m.YLow), x, f.sy.At(m.YHigh), bar)
			}
			d.el("circle", "cx", num(x), "cy", num(y), "r", num(r+5), "class", "ring")
			if m.State == Invalid {
				d.cross(x, y, r, class)
			} else {
				d.mark(s.Enc, x, y, size, class)
			}
			d.el("circle", "cx", num(x), "cy", num(y), "r", num(r+6), "class", "target")
			closeHit(d, m.Href)
		}
		for _, m := range s.Missing {
			x := f.sx.At(m.X)
			openHit(d, m.ID, m.Tip, "")
			y0, y1 := f.y1-26, f.y1-6
			d.el("path", "class", "bracket", "d", "M"+num(x-2)+" "+num(y0)+"h-4v"+num(y1-y0)+"h4M"+num(x+2)+" "+num(y0)+"h4v"+num(y1-y0)+"h-4")
			if !p.Small {
				d.text(x, y0-5, "note halo", "middle", m.Note)
			}
			d.el("rect", "x", num(x-8), "y", num(y0-4), "width", "16", "height", num(y1-y0+8), "class", "target")
			closeHit(d, "")
		}
	}
	if p.Small {
		return boxes
	}
	type spot struct {
		label string
		x, y  float64
	}
	var written []spot
	for _, s := range p.Series {
		for i := range s.Marks {
			m := &s.Marks[i]
			x, y := f.sx.At(m.X), f.sy.At(m.Y)
			// Marks in one place share one label.
			if m.Label == "" || slices.ContainsFunc(written, func(o spot) bool {
				return o.label == m.Label && math.Hypot(o.x-x, o.y-y) < 4
			}) {
				continue
			}
			b, at := place(m.Label, 11, x, y, r, f.box, boxes, segs)
			if at == "" {
				continue
			}
			d.text(anchorX(b, at), b.y1-3, "lbl halo", at, m.Label)
			boxes = append(boxes, b)
			written = append(written, spot{m.Label, x, y})
		}
	}
	return boxes
}

func rank(s State) int {
	switch s {
	case Dominated:
		return 0
	case Invalid:
		return 1
	}
	return 2
}

func anchorX(b box, anchor string) float64 {
	switch anchor {
	case "start":
		return b.x0
	case "end":
		return b.x1
	}
	return (b.x0 + b.x1) / 2
}

func openHit(d *doc, id string, tip []string, href string) {
	if href != "" {
		d.open("a", "href", href)
	}
	d.open("g", "class", "hit", "data-id", id, "data-tip", strings.Join(tip, "\n"))
	if len(tip) > 0 {
		d.leaf("title", strings.Join(tip, "\n"))
	}
}

func closeHit(d *doc, href string) {
	d.end("g")
	if href != "" {
		d.end("a")
	}
}
