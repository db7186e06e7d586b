package cli

import "github.com/weirbench/weir/internal/frontier"

// Numbers in what commands print for people are written here: thousands with commas, as in the report.

// count is a whole number.
func count[T ~int | ~int64 | ~uint64](n T) string { return frontier.Fixed(float64(n), 0) }

// counted is a count that may be unknown.
func counted(n *int64) string {
	if n == nil {
		return "n/a"
	}
	return count(*n)
}

// number is a number with so many decimals.
func number(v float64, decimals int) string { return frontier.Fixed(v, decimals) }

// num is a number that may be unknown.
func num(v *float64, decimals int) string { return scaled(v, 1, decimals, "") }

// secs is a time of seconds, in milliseconds where two decimals of a second say little; millis is one in
// milliseconds, percent a share.
func secs(v *float64) string {
	if v != nil && *v < 0.1 {
		return millis(v)
	}
	return scaled(v, 1, 2, " s")
}
func millis(v *float64) string  { return scaled(v, 1000, 1, " ms") }
func percent(v *float64) string { return scaled(v, 100, 1, " %") }

func scaled(v *float64, times float64, decimals int, unit string) string {
	if v == nil {
		return "n/a"
	}
	return number(times**v, decimals) + unit
}
