package chart

// A Key is one entry of a legend: a sample and what it means.
type Key struct {
	Text string
	Kind KeyKind
	Enc  Encoding
	Tier string // class of a layer, for KeyTier
}

// KeyKind says what the sample of a Key shows.
type KeyKind int

const (
	KeySeries    KeyKind = iota // line and mark
	KeyMark                     // mark alone, in the ink's colour
	KeyLine                     // line alone, in the ink's colour
	KeyDominated                // a grey mark
	KeyInvalid                  // a red cross
	KeyTier                     // a swatch
	KeyCeiling
	KeyLRU
	KeyBracket
	KeyInterval
	KeyRule
)

// Legend draws entries in rows that fit the width and returns the picture.
func Legend(id, title string, width float64, keys []Key) string {
	type at struct{ x, y float64 }
	var spots []at
	x, y := 0.0, 0.0
	for _, k := range keys {
		w := 30 + textWidth(k.Text, 11.5) + 20
		if x > 0 && x+w-20 > width {
			x, y = 0, y+19
		}
		spots = append(spots, at{x, y})
		x += w
	}
	var d doc
	openFigure(&d, id, width, y+20, title, title)
	for i, k := range keys {
		s := spots[i]
		cy := s.y + 10
		switch k.Kind {
		case KeySeries:
			d.line(s.x, cy, s.x+24, cy, k.Enc.lineClass())
			d.mark(k.Enc, s.x+12, cy, 4, k.Enc.markClass())
		case KeyMark:
			class := "mk hollow ink"
			if k.Enc.Filled {
				class = "mk fill ink"
			}
			d.shape(k.Enc.Shape, s.x+12, cy, 4, class)
		case KeyLine:
			class := "ln ink d" + string(rune('0'+int(k.Enc.Dash)%int(dashes)))
			if k.Enc.Dotted {
				class += " dot"
			}
			d.line(s.x, cy, s.x+24, cy, class)
		case KeyDominated:
			d.shape(k.Enc.Shape, s.x+12, cy, 4, "mk fill dom")
		case KeyInvalid:
			d.cross(s.x+12, cy, 4, "mk bad")
		case KeyTier:
			d.el("rect", "x", num(s.x+2), "y", num(cy-6), "width", "20", "height", "12", "class", "t-"+k.Tier)
			if k.Tier == "host" {
				for x := s.x + 2; x < s.x+20; x += 5 {
					d.line(x, cy-6, x+5, cy+6, "hatch")
				}
			}
		case KeyCeiling:
			d.line(s.x, cy, s.x+24, cy, "ceil")
		case KeyLRU:
			d.line(s.x, cy, s.x+24, cy, "lru")
		case KeyRule:
			d.line(s.x+12, cy-8, s.x+12, cy+8, "hair")
		case KeyBracket:
			d.el("path", "class", "bracket", "d", "M"+num(s.x+10)+" "+num(cy-6)+"h-4v12h4M"+num(s.x+14)+" "+num(cy-6)+"h4v12h-4")
		case KeyInterval:
			d.line(s.x+2, cy, s.x+22, cy, "bar ink")
		}
		d.text(s.x+30, cy+4, "tick", "start", k.Text)
	}
	d.end("svg")
	return d.String()
}

// Swatch is a line and a mark of an encoding as a picture for a table.
func Swatch(e Encoding) string {
	var d doc
	d.open("svg", "class", "weir swatch", "viewBox", "0 0 26 14", "width", "26", "height", "14", "aria-hidden", "true", "xmlns", "http://www.w3.org/2000/svg")
	d.line(0, 7, 26, 7, e.lineClass())
	d.mark(e, 13, 7, 4, e.markClass())
	d.end("svg")
	return d.String()
}
