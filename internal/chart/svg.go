package chart

import (
	"html"
	"math"
	"strconv"
	"strings"
)

// doc builds the text of one SVG. Numbers have at most two decimals, so that equal pictures
// have equal bytes.
type doc struct{ strings.Builder }

// el writes an element without content; attributes come in pairs.
func (d *doc) el(tag string, attrs ...string) { d.tag(tag, attrs, "/>") }

// open writes a start tag.
func (d *doc) open(tag string, attrs ...string) { d.tag(tag, attrs, ">") }

func (d *doc) tag(tag string, attrs []string, end string) {
	d.WriteString("<" + tag)
	for i := 0; i+1 < len(attrs); i += 2 {
		if attrs[i+1] == "" && attrs[i] != "alt" {
			continue
		}
		d.WriteString(" " + attrs[i] + `="` + escape(attrs[i+1]) + `"`)
	}
	d.WriteString(end)
}

func (d *doc) end(tag string) { d.WriteString("</" + tag + ">") }

// text writes a text element.
func (d *doc) text(x, y float64, class, anchor, s string) {
	d.open("text", "x", num(x), "y", num(y), "class", class, "text-anchor", anchor)
	d.WriteString(escape(s))
	d.end("text")
}

// leaf writes an element with text in it.
func (d *doc) leaf(tag, s string, attrs ...string) {
	d.open(tag, attrs...)
	d.WriteString(escape(s))
	d.end(tag)
}

func (d *doc) line(x1, y1, x2, y2 float64, class string) {
	d.el("line", "x1", num(x1), "y1", num(y1), "x2", num(x2), "y2", num(y2), "class", class)
}

// escape writes s as XML text: what XML cannot hold becomes U+FFFD.
func escape(s string) string {
	s = strings.Map(func(r rune) rune {
		if r == '\t' || r == '\n' || r == '\r' || r >= ' ' && r != 0xfffe && r != 0xffff {
			return r
		}
		return '\ufffd'
	}, strings.ToValidUTF8(s, "\ufffd"))
	return html.EscapeString(s)
}

func num(v float64) string {
	s := strconv.FormatFloat(math.Round(v*100)/100, 'f', -1, 64)
	if s == "-0" {
		return "0"
	}
	return s
}

// pathOf is the path data of a polyline.
func pathOf(pts [][2]float64) string {
	var b strings.Builder
	for i, p := range pts {
		if i == 0 {
			b.WriteByte('M')
		} else {
			b.WriteByte('L')
		}
		b.WriteString(num(p[0]) + " " + num(p[1]))
	}
	return b.String()
}

// widths of the printable ASCII characters in thousandths of an em, as in Helvetica (Adobe
// AFM); the fallback fonts of the page are close to it.
var widths = [95]int{
	278, 278, 355, 556, 556, 889, 667, 191, 333, 333, 389, 584, 278, 333, 278, 278,
	556, 556, 556, 556, 556, 556, 556, 556, 556, 556, 278, 278, 584, 584, 584, 556,
	1015, 667, 667, 722, 722, 667, 611, 778, 722, 278, 500, 667, 556, 833, 722, 778,
	667, 778, 722, 667, 611, 722, 667, 944, 667, 667, 611, 278, 278, 278, 469, 556,
	333, 556, 556, 500, 556, 556, 278, 556, 556, 222, 222, 500, 222, 833, 556, 556,
	556, 556, 333, 500, 278, 556, 500, 722, 500, 500, 500, 334, 260, 334, 584,
}

// textWidth estimates the width of s at a font size in pixels.
func textWidth(s string, size float64) float64 {
	w := 0
	for _, r := range s {
		switch {
		case r >= 32 && r < 127:
			w += widths[r-32]
		case r == '\u202f':
			w += 200
		default:
			w += 600
		}
	}
	return float64(w) / 1000 * size
}

// fit shortens s to a width, with an ellipsis for what is left out.
func fit(s string, size, width float64) string {
	if textWidth(s, size) <= width {
		return s
	}
	r := []rune(s)
	for len(r) > 0 && textWidth(string(r)+"…", size) > width {
		r = r[:len(r)-1]
	}
	return strings.TrimRight(string(r), " ,") + "…"
}
