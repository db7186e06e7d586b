package cli

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/weirbench/weir/internal/result"
)

// A coverageLimit is the flag that says how far into its window a run's last token must come.
type coverageLimit struct{ share *float64 } // as record.Meta.CoverageLimit has it

func (l *coverageLimit) add(fl *pflag.FlagSet) {
	fl.Var(l, "coverage", "`PERCENT` of a window of 900 s or more that the last token must reach for the result to be valid; none only warns")
}

func (l *coverageLimit) String() string {
	switch {
	case l.share == nil:
		return plainFloat(100 * result.CoverageLimit)
	case *l.share < 0:
		return "none"
	}
	return plainFloat(100 * *l.share)
}

func (l *coverageLimit) Type() string { return "percent" }

func (l *coverageLimit) Set(s string) error {
	v := -1.0
	if s != "none" {
		f, err := strconv.ParseFloat(strings.TrimSuffix(s, "%"), 64)
		if err != nil || !(f >= 0 && f <= 100) {
			return fmt.Errorf("want a percentage from 0 to 100, or none")
		}
		v = f / 100
	}
	l.share = &v
	return nil
}
