package chart

import (
	"math"
	"strings"
)

// better is the direction of an axis in words.
func better(a *Axis, horizontal bool) string {
	switch {
	case a.Better > 0 && horizontal:
		return "better →"
	case a.Better > 0:
		return "↑ better"
	case a.Better < 0 && horizontal:
		return "← better"
	case a.Better < 0:
		return "↓ better"
	}
	return ""
}

func (a *Axis) name() string {
	s := a.Label
	unit := a.Unit
	if a.Percent {
		unit = "%"
	}
	var in []string
	if unit != "" {
		in = append(in, unit)
	}
	if a.Log {
		in = append(in, "log scale")
	}
	if len(in) > 0 {
		s += " (" + strings.Join(in, ", ") + ")"
	}
	return s
}

// drawAxes draws both axes and returns the room that their heading takes.
func (f *frame) drawAxes(d *doc, x, y *Axis, title string, small bool) box {
	for _, t := range f.yt {
		at := f.sy.At(t)
		d.line(f.x0, at, f.x1, at, "grid")
		d.text(f.x0-7, at+4, "tick", "end", f.yText(t))
	}
	lastEnd := math.Inf(-1)
	for _, t := range f.xt {
		at := f.sx.At(t)
		d.line(at, f.y1, at, f.y1+4, "base")
		label := f.xText(t)
		if w := textWidth(label, 11.5); at-w/2 > lastEnd+3 {
			d.text(at, f.y1+17, "tick", "middle", label)
			lastEnd = at + w/2
		}
	}
	d.line(f.x0, f.y1, f.x1, f.y1, "base")
	head := 14.0
	if title != "" {
		d.text(0, head, "head", "start", fit(title, 13.9, f.x1))
		head += 17
	}
	class := "axis"
	if small {
		class = "note"
		if title == "" {
			class = "head"
		}
	}
	d.text(0, head, class, "start", y.name())
	size := 12.0
	switch class {
	case "note":
		size = 11
	case "head":
		size = 13.4 // bold
	}
	w := textWidth(y.name(), size)
	if b := better(y, false); b != "" {
		d.text(w+9, head, "better", "start", b)
		w += 9 + textWidth(b, 11.5)
	}
	room := box{0, head - 12, w, head + 3}
	if small {
		d.text(f.x1, f.y1+31, "note", "end", x.name())
		return room
	}
	name, b := x.name(), better(x, true)
	d.text(f.x0, f.y1+36, "axis", "start", name)
	if b != "" {
		d.text(f.x0+textWidth(name, 12)+9, f.y1+36, "better", "start", b)
	}
	return room
}
