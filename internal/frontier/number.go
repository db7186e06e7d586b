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

// Signed is v with its sign and two decimals, more where two would show nothing of it: +0.42,
// -0.0031. What is no more than floating point's rounding of zero is 0.00, without a sign.
func Signed(v float64) string {
	size := math.Abs(v)
	switch {
	case size < 1e-9:
		return "0.00"
	case size >= 0.005:
		return fmt.Sprintf("%+.2f", v)
	}
	return fmt.Sprintf("%+.*f", 1-int(math.Floor(math.Log10(size))), v)
}

// Decimals is the number of decimals for the numbers of one column: three significant digits of
// the least of them, unless the greatest then has more than six; none for whole numbers.
func Decimals(column []float64) int {
	least, most, whole := math.Inf(1), 0.0, true
	for _, v := range column {
		v = math.Abs(v)
		whole = whole && v == math.Trunc(v)
		most = max(most, v)
		if v > 0 {
			least = min(least, v)
		}
	}
	if whole {
		return 0
	}
	exp := func(v float64) int { return int(math.Floor(math.Log10(v))) }
	return max(0, min(2-exp(least), 5-exp(most)))
}

// Fixed is v with the given number of decimals, thousands grouped.
func Fixed(v float64, decimals int) string {
	if math.Abs(v) >= 1e15 {
		return fmt.Sprintf("%.3g", v)
	}
	return group(fmt.Sprintf("%.*f", decimals, v))
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
	if len(whole) > 3 {
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
