package cli

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/weirbench/weir/internal/result"
)

// A clientLimit is the flag that says what share of the median the client's own error may
// reach before a result is not valid.
type clientLimit struct{ share *float64 } // as record.Meta.ClientLimit has it

// maxLimit is the largest limit in percent: an error that is ten times what it spoils.
const maxLimit = 1000

func (l *clientLimit) add(fl *pflag.FlagSet) {
	fl.Var(l, "client-limit", "`PERCENT` of the median TTFT or ITL that the client's own error may reach before the result is not valid; none only warns")
}

func (l *clientLimit) String() string {
	switch {
	case l.share == nil:
		return plainFloat(100 * result.ClientLimit)
	case *l.share < 0:
		return "none"
	}
	return plainFloat(100 * *l.share)
}

func (l *clientLimit) Type() string { return "percent" }

func (l *clientLimit) Set(s string) error {
	if s == "none" {
		off := -1.0
		l.share = &off
		return nil
	}
	v, err := strconv.ParseFloat(strings.TrimSuffix(s, "%"), 64)
	if err != nil || !(v >= 0 && v <= maxLimit) {
		return fmt.Errorf("want a percentage from 0 to %d, or none", maxLimit)
	}
	v /= 100
	l.share = &v
	return nil
}
