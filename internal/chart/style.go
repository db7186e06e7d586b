// Package chart draws figures as SVG: scales, axes, marks, bands and legends with one look,
// the same in the report, in the dashboard, in a pull request and in print.
//
// A figure is a value that says what is to be seen; its SVG method gives the picture. Equal
// figures have equal bytes. Colours and line styles are classes of the style sheet that CSS
// returns, which knows light, dark and print; Standalone puts it into the picture for use
// outside a page.
//
// Every encoding by colour has a second one: shape, fill, dash, hatching or a direct label.
package chart

import (
	_ "embed"
	"strings"
)

// styleSheet holds the colours (Okabe and Ito's, safe for colour-blind readers) and line styles.
//
//go:embed chart.css
var styleSheet string

// CSS is the style sheet of all figures.
func CSS() string { return styleSheet }

// Standalone makes a picture that carries its own style sheet.
func Standalone(svg string) string {
	head, rest, ok := strings.Cut(svg, ">")
	if !ok {
		return svg
	}
	return head + "><style>" + styleSheet + "</style>" + rest
}

// Hues is how many distinct hues there are; a hue beyond it repeats, told apart by shape.
const Hues = 7

// Shape is the form of a mark.
type Shape int

// The shapes have about equal areas.
const (
	Circle Shape = iota
	Square
	Triangle
	Diamond
	TriangleDown
	Pentagon
	Bar
	shapes
)

// Dash is the pattern of a line.
type Dash int

const (
	Solid Dash = iota
	Long
	Short
	DashDot
	dashes
)

// An Encoding is how a series looks.
type Encoding struct {
	Hue    int
	Shape  Shape
	Dash   Dash
	Filled bool
	// Overlay lays a cross over the mark: a run that is compared with others of its kind.
	Overlay bool
	// Dotted is for what was simulated or predicted: a thin dotted line in place of a full one.
	Dotted bool
}

func (e Encoding) hue() string { return "h" + string(rune('0'+e.Hue%Hues)) }

func (e Encoding) lineClass() string {
	c := "ln " + e.hue() + " d" + string(rune('0'+int(e.Dash)%int(dashes)))
	if e.Dotted {
		c += " dot"
	}
	return c
}

func (e Encoding) markClass() string {
	if e.Filled {
		return "mk fill " + e.hue()
	}
	return "mk hollow " + e.hue()
}

// mark draws the mark of an encoding.
func (d *doc) mark(e Encoding, x, y, r float64, class string) {
	d.shape(e.Shape, x, y, r, class)
	if e.Overlay {
		over := "over " + e.hue()
		if e.Filled {
			over = "over on"
		}
		d.cross(x, y, r*.55, over)
	}
}

// shape draws a mark of about radius r at x, y.
func (d *doc) shape(s Shape, x, y, r float64, class string) {
	poly := func(pts ...float64) {
		var b strings.Builder
		for i := 0; i+1 < len(pts); i += 2 {
			if i > 0 {
				b.WriteByte(' ')
			}
			b.WriteString(num(x+r*pts[i]) + "," + num(y+r*pts[i+1]))
		}
		d.el("polygon", "points", b.String(), "class", class)
	}
	switch s % shapes {
	case Square:
		poly(-.89, -.89, .89, -.89, .89, .89, -.89, .89)
	case Triangle:
		poly(0, -1.3, 1.17, .75, -1.17, .75)
	case TriangleDown:
		poly(0, 1.3, 1.17, -.75, -1.17, -.75)
	case Diamond:
		poly(0, -1.3, 1.2, 0, 0, 1.3, -1.2, 0)
	case Pentagon:
		poly(0, -1.15, 1.09, -.36, .68, .93, -.68, .93, -1.09, -.36)
	case Bar:
		poly(-1.35, -.58, 1.35, -.58, 1.35, .58, -1.35, .58)
	default:
		d.el("circle", "cx", num(x), "cy", num(y), "r", num(r), "class", class)
	}
}

// cross draws an x.
func (d *doc) cross(x, y, r float64, class string) {
	d.el("path", "d", "M"+num(x-r)+" "+num(y-r)+"L"+num(x+r)+" "+num(y+r)+"M"+num(x-r)+" "+num(y+r)+"L"+num(x+r)+" "+num(y-r), "class", class)
}
