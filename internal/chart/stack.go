package chart

import "math"

// A Layer is one band of a stack, from bottom to top: a share at every x.
type Layer struct {
	Name   string // written in the band where it fits
	Class  string // "device", "host", "storage"
	Hatch  bool
	Values []float64
}

// A Stack shows shares that add up, by tier, against concurrency, with ceilings as lines. A
// value that is not known is NaN and leaves a gap.
type Stack struct {
	ID            string
	Title         string
	Desc          string
	Width, Height float64
	X, Y          Axis
	At            []float64 // x of the values
	Layers        []Layer
	Ceiling       []float64 // infinite cache, drawn as a line
	LRU           []float64 // LRU at capacity, drawn dotted
	Points        []Missing // one a value of At: id and tip
	Rules         []Rule
}

// SVG draws the stack.
func (s *Stack) SVG() string {
	var d doc
	openFigure(&d, s.ID, s.Width, s.Height, s.Title, s.Desc)
	f := newFrame(&s.X, &s.Y, s.At, s.tops(), s.Width, s.Height, true)
	d.open("defs")
	d.open("pattern", "id", s.ID+"-hatch", "width", "6", "height", "6", "patternUnits", "userSpaceOnUse", "patternTransform", "rotate(45)")
	d.line(0, 0, 0, 6, "hatch")
	d.end("pattern")
	d.end("defs")
	heading := f.drawAxes(&d, &s.X, &s.Y, s.Title, true)
	below := make([]float64, len(s.At))
	var rooms []room
	for i := range s.Layers {
		l := &s.Layers[i]
		top := make([]float64, len(s.At))
		for k, v := range l.Values {
			top[k] = below[k] + v
		}
		for _, run := range defined(top) {
			pts := s.band(f, run, below, top)
			d.el("path", "d", pathOf(pts)+"Z", "class", "t-"+l.Class)
			if l.Hatch {
				d.el("path", "d", pathOf(pts)+"Z", "fill", "url(#"+s.ID+"-hatch)")
			}
			if r, ok := s.room(f, run, below, top, textWidth(l.Name, 12.5)); ok {
				r.layer = l
				rooms = append(rooms, r)
			}
		}
		for k := range top {
			if !math.IsNaN(top[k]) {
				below[k] = top[k]
			}
		}
	}
	d.line(f.x0, f.y1, f.x1, f.y1, "base")
	s.line(&d, f, s.Ceiling, "ceil")
	s.line(&d, f, s.LRU, "lru")
	for _, r := range rooms {
		d.text(r.x, r.y+4, "on-"+r.layer.Class, "middle", r.layer.Name)
	}
	p := Plot{Rules: s.Rules}
	p.rules(&d, f, heading)
	for k, m := range s.Points {
		x0, x1 := f.x0, f.x1
		if k > 0 {
			x0 = (f.sx.At(s.At[k-1]) + f.sx.At(s.At[k])) / 2
		}
		if k+1 < len(s.At) {
			x1 = (f.sx.At(s.At[k]) + f.sx.At(s.At[k+1])) / 2
		}
		openHit(&d, m.ID, m.Tip, "")
		x := f.sx.At(s.At[k])
		d.line(x, f.y0, x, f.y1, "ring")
		d.el("rect", "x", num(x0), "y", num(f.y0), "width", num(x1-x0), "height", num(f.y1-f.y0), "class", "target")
		closeHit(&d, "")
	}
	d.end("svg")
	return d.String()
}

// room is where the name of a layer fits into its band.
type room struct {
	layer *Layer
	x, y  float64
}

// room finds the place along a band where a text of width w has the most air, if it has any.
func (s *Stack) room(f *frame, run [2]int, below, top []float64, w float64) (best room, ok bool) {
	edge := func(v []float64, x float64) float64 {
		for k := run[0]; k < run[1]; k++ {
			x0, x1 := f.sx.At(s.At[k]), f.sx.At(s.At[k+1])
			if x >= x0 && x <= x1 && x1 > x0 {
				y0, y1 := f.sy.At(v[k]), f.sy.At(v[k+1])
				return y0 + (y1-y0)*(x-x0)/(x1-x0)
			}
		}
		return math.NaN()
	}
	const height = 15.0
	most := height
	lo, hi := f.sx.At(s.At[run[0]])+w/2+3, f.sx.At(s.At[run[1]])-w/2-3
	for i := 0; i <= 40 && hi > lo; i++ {
		x := lo + (hi-lo)*float64(i)/40
		ceil, floor := math.Inf(-1), math.Inf(1) // y grows downwards
		for _, at := range []float64{x - w/2 - 2, x, x + w/2 + 2} {
			ceil = math.Max(ceil, edge(top, at))
			floor = math.Min(floor, edge(below, at))
		}
		// Of places with about as much air, the one nearest the middle is best.
		if air := floor - ceil; air > most+.5 || ok && air > most-.5 && math.Abs(x-(lo+hi)/2) < math.Abs(best.x-(lo+hi)/2) {
			most, best, ok = math.Max(most, air), room{x: x, y: (ceil + floor) / 2}, true
		}
	}
	return best, ok
}

// tops are the sums of all layers, for the scale.
func (s *Stack) tops() []float64 {
	out := make([]float64, len(s.At))
	for _, l := range s.Layers {
		for k, v := range l.Values {
			if !math.IsNaN(v) {
				out[k] += v
			}
		}
	}
	return out
}

func (s *Stack) band(f *frame, run [2]int, below, top []float64) [][2]float64 {
	var pts [][2]float64
	for k := run[0]; k <= run[1]; k++ {
		pts = append(pts, [2]float64{f.sx.At(s.At[k]), f.sy.At(top[k])})
	}
	if run[0] == run[1] { // one value alone: a bar
		x := f.sx.At(s.At[run[0]])
		return [][2]float64{{x - 5, pts[0][1]}, {x + 5, pts[0][1]}, {x + 5, f.sy.At(below[run[0]])}, {x - 5, f.sy.At(below[run[0]])}}
	}
	for k := run[1]; k >= run[0]; k-- {
		pts = append(pts, [2]float64{f.sx.At(s.At[k]), f.sy.At(below[k])})
	}
	return pts
}

func (s *Stack) line(d *doc, f *frame, values []float64, class string) {
	for _, run := range defined(values) {
		var pts [][2]float64
		for k := run[0]; k <= run[1]; k++ {
			pts = append(pts, [2]float64{f.sx.At(s.At[k]), f.sy.At(values[k])})
		}
		if len(pts) == 1 {
			pts = [][2]float64{{pts[0][0] - 5, pts[0][1]}, {pts[0][0] + 5, pts[0][1]}}
		}
		d.el("path", "d", pathOf(pts), "class", class)
	}
}

// defined are the runs of values that are not NaN, as first and last index.
func defined(values []float64) [][2]int {
	var out [][2]int
	start := -1
	for i, v := range values {
		switch {
		case math.IsNaN(v) && start >= 0:
			out = append(out, [2]int{start, i - 1})
			start = -1
		case !math.IsNaN(v) && start < 0:
			start = i
		}
	}
	if start >= 0 {
		out = append(out, [2]int{start, len(values) - 1})
	}
	return out
}
