package chart

import (
	"math"
	"strconv"
)

// A Scale maps values to positions along one axis of the picture.
type Scale struct {
	Log      bool
	Min, Max float64 // of the values
	From, To float64 // of the positions
}

// At is the position of v. Values outside Min and Max land outside From and To.
func (s *Scale) At(v float64) float64 {
	lo, hi := s.Min, s.Max
	if s.Log {
		if v <= 0 {
			v = lo
		}
		v, lo, hi = math.Log(v), math.Log(lo), math.Log(hi)
	}
	if hi == lo {
		return (s.From + s.To) / 2
	}
	return s.From + (s.To-s.From)*(v-lo)/(hi-lo)
}

// linearTicks are round values that span lo to hi, about n of them, the first at or below lo
// and the last at or above hi.
func linearTicks(lo, hi float64, n int) []float64 {
	if !(hi > lo) {
		hi = lo + 1
	}
	raw := (hi - lo) / float64(n)
	mag := math.Pow(10, math.Floor(math.Log10(raw)))
	step := 10 * mag
	for _, m := range []float64{1, 2, 2.5, 5} {
		if raw <= m*mag*1.0001 {
			step = m * mag
			break
		}
	}
	first := math.Floor(lo/step + 1e-9)
	last := math.Ceil(hi/step - 1e-9)
	var out []float64
	for i := first; i <= last; i++ {
		out = append(out, i*step)
	}
	return out
}

// logTicks are 1, 2 and 5 times powers of ten from at most lo to at least hi; only powers of
// ten where they span more than the given number of decades.
func logTicks(lo, hi, decades float64) []float64 {
	var out []float64
	steps := []float64{1, 2, 5}
	if math.Log10(hi/lo) > decades {
		steps = steps[:1]
	}
	for e := math.Floor(math.Log10(lo)) - 1; e <= math.Ceil(math.Log10(hi))+1; e++ {
		for _, m := range steps {
			out = append(out, m*math.Pow(10, e))
		}
	}
	i, j := 0, len(out)-1
	for i+1 < len(out) && out[i+1] <= lo*1.0001 {
		i++
	}
	for j > 0 && out[j-1] >= hi*0.9999 {
		j--
	}
	if i >= j {
		return []float64{lo, hi}
	}
	return out[i : j+1]
}

// tickText writes a tick with as many decimals as all ticks need, on a log scale with as many
// as it needs itself.
func tickText(v float64, ticks []float64, percent, log bool) string {
	if percent {
		v *= 100
	}
	if log {
		ticks = []float64{v}
		percent = false
	}
	decimals := 0
	for _, t := range ticks {
		if percent {
			t *= 100
		}
		for decimals < 4 && math.Abs(t-roundTo(t, decimals)) > 1e-9*math.Max(1, math.Abs(t)) {
			decimals++
		}
	}
	return grouped(strconv.FormatFloat(v, 'f', decimals, 64))
}

func roundTo(v float64, decimals int) float64 {
	p := math.Pow(10, float64(decimals))
	return math.Round(v*p) / p
}

// grouped puts a thin space between thousands from five digits on.
func grouped(s string) string {
	whole := s
	frac := ""
	for i := range s {
		if s[i] == '.' {
			whole, frac = s[:i], s[i:]
			break
		}
	}
	sign := ""
	if len(whole) > 0 && whole[0] == '-' {
		sign, whole = "−", whole[1:]
	}
	if len(whole) > 4 {
		out := ""
		for i, r := range whole {
			if i > 0 && (len(whole)-i)%3 == 0 {
				out += "\u202f"
			}
			out += string(r)
		}
		whole = out
	}
	return sign + whole + frac
}
