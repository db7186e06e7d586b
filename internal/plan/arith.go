package plan

import (
	"fmt"
	"math"
	"math/bits"
)

// mulDiv is a*b/c rounded down without overflow on the way; it saturates at the largest
// int64. It is 0 where an argument is not positive.
func mulDiv(a, b, c int64) int64 {
	if a <= 0 || b <= 0 || c <= 0 {
		return 0
	}
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi >= uint64(c) {
		return math.MaxInt64
	}
	q, _ := bits.Div64(hi, lo, uint64(c))
	if q > math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(q)
}

// satMul is a*b, saturating; both are at least 0.
func satMul(a, b int64) int64 { return mulDiv(a, b, 1) }

// satAdd is a+b, saturating; both are at least 0.
func satAdd(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }

// GB prints bytes as decimal gigabytes with two decimals: "2399.00 GB".
func GB(n int64) string { return fmt.Sprintf("%s GB", decimals(n, 1_000_000_000)) }

// GiB prints bytes as binary gigabytes with two decimals: "169.98 GiB".
func GiB(n int64) string { return fmt.Sprintf("%s GiB", decimals(n, 1<<30)) }

func decimals(n, unit int64) string {
	sign := ""
	if n < 0 {
		sign = "-"
		if n == math.MinInt64 {
			n++
		}
		n = -n
	}
	whole, rest := n/unit, n%unit
	cents := mulDiv(rest, 100, unit)
	if 2*(rest*100%unit) >= unit {
		cents++
	}
	if cents == 100 {
		whole, cents = whole+1, 0
	}
	return fmt.Sprintf("%s%d.%02d", sign, whole, cents)
}

// thousands prints n with separators: 1,676,928.
func thousands(n int64) string {
	s := fmt.Sprint(n)
	neg := ""
	if n < 0 {
		neg, s = "-", s[1:]
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return neg + s
}

// ppm prints parts per million as a decimal fraction: 830000 is 0.83.
func ppm(n int64) string {
	s := fmt.Sprintf("%d.%06d", n/1_000_000, n%1_000_000)
	for s[len(s)-1] == '0' {
		s = s[:len(s)-1]
	}
	if s[len(s)-1] == '.' {
		s = s[:len(s)-1]
	}
	return s
}
