package frontier

import (
	"fmt"
	"math"
	"strings"
)

// Three is v with three significant digits, in digits a person reads: 3.41, 12,300, 0.0512.
func Three(v float64) string { return Significant(v, 3) }

// Significant is v with n significant digits, thousands grouped, never in exponent form for
// what a measurement gives (between 1e-9 and 1e15).
func Significant(v float64, n int) string {
	if v == 0 {
		return "0"
	}
	exp := int(math.Floor(math.Log10(math.Abs(v))))
	s := fmt.Sprintf("%.*f", max(0, n-1-exp), v)
	if exp >= n { // round to n digits before the point
		unit := math.Pow(10, float64(exp-n+1))
		s = fmt.Sprintf("%.0f", math.Round(v/unit)*unit)
	}
	// 9.999 rounds up to 10.00 with a digit too many.
	if f := strings.IndexByte(s, '.'); f >= 0 && digits(s) > n {
		s = strings.TrimSuffix(s[:len(s)-1], ".")
	}
	return group(s)
}

// Table is v with five significant digits, whole numbers without decimals.
func Table(v float64) string {
	if v == math.Trunc(v) && math.Abs(v) < 1e15 {
		return group(fmt.Sprintf("%.0f", v))
	}
	return Significant(v, 5)
}

// digits counts significant digits of a decimal number.
func digits(s string) int {
	s = strings.TrimLeft(strings.Replace(strings.TrimPrefix(s, "-"), ".", "", 1), "0")
	return len(s)
}

func group(s string) string {
	sign := ""
	if strings.HasPrefix(s, "-") {
		sign, s = "-", s[1:]
	}
	whole, frac, point := strings.Cut(s, ".")
	if len(whole) > 4 {
		var b strings.Builder
		for i, d := range whole {
			if i > 0 && (len(whole)-i)%3 == 0 {
				b.WriteByte(',')
			}
			b.WriteRune(d)
		}
		whole = b.String()
	}
	if point {
		return sign + whole + "." + frac
	}
	return sign + whole
}
