package frontier

import (
	"fmt"
	"math"
	"strings"
)

// askedIntvty is the interactivity, tokens/s/user, that configurations are compared at when
// both reach it.
const askedIntvty = 20

// Sentence says in words and numbers what the curves of one group show, or "" when there is
// nothing that would be true. It compares the one curve with offload against the one without.
func Sentence(g Group, curves []Curve, x, y *Axis) string {
	var off, on *Curve
	for i := range curves {
		c := &curves[i]
		switch {
		case len(c.Points) == 0:
		case c.Series.Offloaded() && on == nil:
			on = c
		case !c.Series.Offloaded() && off == nil:
			off = c
		default:
			return best(g, curves, x, y)
		}
	}
	if off == nil || on == nil || !sameBut(off.Series, on.Series) {
		return best(g, curves, x, y)
	}
	var parts []string
	same := sameConc(off, on, x, y)
	switch s, differs := gain(off, on, x, y); {
	case differs:
		parts = append(append(parts, s), same...)
	case s != "":
		parts = append(append(parts, same...), s)
	default:
		parts = append(parts, same...)
	}
	parts = append(parts, falls(off, on)...)
	if len(parts) == 0 {
		return ""
	}
	return fmt.Sprintf("%s on %s: %s.", g.Model, gpusText(off.Series), strings.Join(parts, "; "))
}

// sameBut tells whether two series differ in offload and what belongs to it alone.
func sameBut(a, b Series) bool {
	a.Offload, b.Offload, a.Variant, b.Variant = "", "", "", ""
	return a == b
}

func gpusText(s Series) string {
	return fmt.Sprintf("%dx %s", s.GPUs, strings.ToUpper(s.Hardware))
}

// told is the ratio from which on a difference is told as one.
const told = 1.05

// sameConc says by how much offload changes y most at equal concurrency, up and down; nothing
// for changes of less than 5 %.
func sameConc(off, on *Curve, x, y *Axis) []string {
	if x.Better != Higher || y.Better != Higher {
		return nil
	}
	type pair struct {
		a, b  *Point
		ratio float64
	}
	most, least := pair{ratio: told}, pair{ratio: 1 / told}
	for i := range off.Points {
		a := &off.Points[i]
		for k := range on.Points {
			b := &on.Points[k]
			if a.Conc != b.Conc || a.Invalid || b.Invalid || a.Y.Value <= 0 {
				continue
			}
			r := b.Y.Value / a.Y.Value
			if r >= most.ratio {
				most = pair{a, b, r}
			}
			if r <= least.ratio {
				least = pair{a, b, r}
			}
		}
	}
	var parts []string
	for _, m := range []struct {
		pair
		words string
	}{{most, "up to %s times"}, {least, "down to %s of"}} {
		if m.a != nil {
			parts = append(parts, fmt.Sprintf("with offload "+m.words+" the %s at equal concurrency (%d agents: %s against %s %s, at %s against %s %s)",
				Three(m.ratio), measure(y), m.a.Conc, Three(m.b.Y.Value), Three(m.a.Y.Value), unitOr(y), trim(m.b.X.Value), trim(m.a.X.Value), unitOr(x)))
		}
	}
	return parts
}

// gain compares throughput at the asked interactivity, or at the highest that both reach, and
// says whether they differ there.
func gain(off, on *Curve, x, y *Axis) (string, bool) {
	if x.Better != Higher || y.Better != Higher {
		return "", false
	}
	fOff, fOn := off.Frontier(), on.Frontier()
	if len(fOff) == 0 || len(fOn) == 0 {
		return "", false
	}
	at := math.Min(askedIntvty, math.Min(fOff[len(fOff)-1].X, fOn[len(fOn)-1].X))
	if at < askedIntvty {
		at = math.Floor(at*10) / 10
	}
	a, okA := Reach(fOff, Higher, Higher, at)
	b, okB := Reach(fOn, Higher, Higher, at)
	if !okA || !okB || a.Y <= 0 || b.Y <= 0 {
		return "", false
	}
	where := fmt.Sprintf("at %s %s", trim(at), unitOr(x))
	switch r := b.Y / a.Y; {
	case r >= told:
		return fmt.Sprintf("with offload %s times the %s %s (%s against %s %s)", Three(r), measure(y), where, Three(b.Y), Three(a.Y), unitOr(y)), true
	case r <= 1/told:
		return fmt.Sprintf("with offload only %s of the %s %s (%s against %s %s)", Three(r), measure(y), where, Three(b.Y), Three(a.Y), unitOr(y)), true
	default:
		return fmt.Sprintf("offload changes the %s %s by less than 5 %% (%s against %s %s)", measure(y), where, Three(b.Y), Three(a.Y), unitOr(y)), false
	}
}

// falls says where the caches of both curves fall off.
func falls(off, on *Curve) []string {
	var parts []string
	kOff, ok := KneeOf(off)
	switch {
	case !ok:
		return nil
	case kOff.Beyond == 0:
		return []string{fmt.Sprintf("the cache holds up to %d agents without offload", kOff.Within)}
	case kOff.Within == 0:
		parts = append(parts, fmt.Sprintf("without it the cache is over its size at %d agents already", kOff.Beyond))
	default:
		parts = append(parts, fmt.Sprintf("without it the cache falls off between %d and %d agents", kOff.Within, kOff.Beyond))
	}
	kOn, ok := KneeOf(on)
	switch {
	case !ok:
	case kOn.Beyond == 0:
		parts = append(parts, fmt.Sprintf("with it, it holds up to %d", kOn.Within))
	case kOn.Within > 0:
		parts = append(parts, fmt.Sprintf("with it, between %d and %d", kOn.Within, kOn.Beyond))
	}
	return parts
}

// best names the best curve at the asked interactivity.
func best(g Group, curves []Curve, x, y *Axis) string {
	if x.Better != Higher || y.Better != Higher {
		return ""
	}
	type reach struct {
		c *Curve
		p XY
	}
	var first, second *reach
	reached := 0
	for i := range curves {
		p, ok := Reach(curves[i].Frontier(), Higher, Higher, askedIntvty)
		if !ok {
			continue
		}
		reached++
		r := &reach{&curves[i], p}
		switch {
		case first == nil || p.Y > first.p.Y:
			first, second = r, first
		case second == nil || p.Y > second.p.Y:
			second = r
		}
	}
	if first == nil {
		return ""
	}
	s := fmt.Sprintf("%s: at %d %s, %s reaches the most, %s %s", g.Model, askedIntvty, unitOr(x), first.c.Series.Name(), Three(first.p.Y), unitOr(y))
	if second != nil {
		s += fmt.Sprintf(", %s times the next, %s", Three(first.p.Y/second.p.Y), second.c.Series.Name())
	}
	if n := len(curves) - reached; n > 0 {
		s += fmt.Sprintf("; %d of %d configurations don't get there", n, len(curves))
	}
	return s + "."
}

// Name is a series in words.
func (s *Series) Name() string {
	parts := []string{gpusText(*s)}
	for _, p := range []string{s.Engine, s.Precision, s.Topology} {
		if p != "" {
			parts = append(parts, p)
		}
	}
	if s.Spec != "none" && s.Spec != "" {
		parts = append(parts, s.Spec)
	}
	if s.Offloaded() {
		parts = append(parts, "offload "+s.Offload)
	} else {
		parts = append(parts, "no offload")
	}
	if s.Variant != "" {
		parts = append(parts, "("+s.Variant+")")
	}
	if s.Run != "" {
		parts = append(parts, "of "+s.Run)
	}
	return strings.Join(parts, " ")
}

// measure is the label of an axis in the middle of a sentence.
func measure(a *Axis) string { return strings.ToLower(a.Label[:1]) + a.Label[1:] }

func unitOr(a *Axis) string {
	if a.Unit == "" {
		return a.Short
	}
	return a.Unit
}

func trim(v float64) string { return strings.TrimSuffix(fmt.Sprintf("%.1f", v), ".0") }
