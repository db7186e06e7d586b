package chart

import (
	"math"
	"slices"
)

// place finds room for a label around a mark: the first of eight places that meets nothing
// that was placed and lies inside; then the first that at least meets no mark or label even if
// a line runs through it. Without any, the anchor is empty and the label is left out.
func place(label string, size, x, y, r float64, in box, taken []box, segs [][4]float64) (box, string) {
	w, h := textWidth(label, size), size+2
	g := r + 4
	type cand struct {
		b      box
		anchor string
	}
	cands := []cand{
		{box{x + g, y - h - 1, x + g + w, y - 1}, "start"},
		{box{x - w/2, y - g - h, x + w/2, y - g}, "middle"},
		{box{x + g, y - h/2, x + g + w, y + h/2}, "start"},
		{box{x - g - w, y - h - 1, x - g, y - 1}, "end"},
		{box{x + g, y + 1, x + g + w, y + 1 + h}, "start"},
		{box{x - w/2, y + g, x + w/2, y + g + h}, "middle"},
		{box{x - g - w, y - h/2, x - g, y + h/2}, "end"},
		{box{x - g - w, y + 1, x - g, y + 1 + h}, "end"},
	}
	for _, c := range cands { // and a little farther out
		const out = 11
		dx, dy := 0.0, 0.0
		if cx := (c.b.x0 + c.b.x1) / 2; math.Abs(cx-x) > 1 {
			dx = math.Copysign(out, cx-x)
		}
		if cy := (c.b.y0 + c.b.y1) / 2; math.Abs(cy-y) > 1 {
			dy = math.Copysign(out, cy-y)
		}
		cands = append(cands, cand{box{c.b.x0 + dx, c.b.y0 + dy, c.b.x1 + dx, c.b.y1 + dy}, c.anchor})
	}
	wide := box{in.x0 - 2, in.y0 - 12, in.x1 + 16, in.y1 - 1}
	free := func(b box, lines bool) bool {
		if !b.inside(wide) || slices.ContainsFunc(taken, b.meets) {
			return false
		}
		return !lines || !slices.ContainsFunc(segs, func(s [4]float64) bool { return crosses(s, b) })
	}
	for _, lines := range []bool{true, false} {
		for _, c := range cands {
			if free(c.b, lines) {
				return c.b, c.anchor
			}
		}
	}
	return box{}, ""
}

// crosses tells whether a segment runs through a box (Liang and Barsky's clipping).
func crosses(s [4]float64, b box) bool {
	t0, t1 := 0.0, 1.0
	dx, dy := s[2]-s[0], s[3]-s[1]
	for _, e := range [4][2]float64{{-dx, s[0] - b.x0}, {dx, b.x1 - s[0]}, {-dy, s[1] - b.y0}, {dy, b.y1 - s[1]}} {
		p, q := e[0], e[1]
		if p == 0 {
			if q < 0 {
				return false
			}
			continue
		}
		t := q / p
		if p < 0 {
			t0 = math.Max(t0, t)
		} else {
			t1 = math.Min(t1, t)
		}
	}
	return t0 < t1
}

// names writes the name of each series where its curve leaves room.
func (p *Plot) names(d *doc, f *frame, taken []box) {
	for _, s := range p.Series {
		if len(s.Marks) == 0 || s.Name == "" {
			continue
		}
		path := s.Trail
		if len(path) == 0 {
			path = s.Line
		}
		if len(path) == 0 {
			path = []int{0}
			if s.Bare { // try along the whole line
				for k := len(s.Marks) - 1; k > 0; k -= max(1, len(s.Marks)/12) {
					path = append(path, k)
				}
			}
		}
		// Try the ends of the curve first, then its middle.
		tries := []int{path[len(path)-1], path[0], path[len(path)/2]}
		for _, k := range path {
			tries = append(tries, k)
		}
		for _, k := range tries {
			m := s.Marks[k]
			b, at := place(s.Name, 12.6, f.sx.At(m.X), f.sy.At(m.Y), 12, f.box, taken, p.segments(f))
			if at != "" {
				d.text(anchorX(b, at), b.y1-3, "sname halo "+s.Enc.hue(), at, s.Name)
				taken = append(taken, b)
				break
			}
		}
	}
}

func (p *Plot) segments(f *frame) [][4]float64 {
	var segs [][4]float64
	for _, s := range p.Series {
		for _, path := range [][]int{s.Line, s.Trail} {
			for i := 1; i < len(path); i++ {
				a, b := s.Marks[path[i-1]], s.Marks[path[i]]
				segs = append(segs, [4]float64{f.sx.At(a.X), f.sy.At(a.Y), f.sx.At(b.X), f.sy.At(b.Y)})
			}
		}
		for i := 1; s.Bare && i < len(s.Marks); i++ {
			a, b := s.Marks[i-1], s.Marks[i]
			segs = append(segs, [4]float64{f.sx.At(a.X), f.sy.At(a.Y), f.sx.At(b.X), f.sy.At(b.Y)})
		}
	}
	return segs
}
