package cli

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// A rangeFlag is a flag with a whole number or a time within bounds, refused by the parser, which
// names the flag. What *to holds when it is added is its default.
type rangeFlag[T int | int64 | time.Duration] struct {
	to         *T
	least, top T
	what       string // in messages: "a whole number"
	parse      func(string) (T, error)
	text       func(T) string
}

// noTop is the upper bound of a flag that has none.
const noTop = math.MaxInt64

func intVar[T int | int64](fl *pflag.FlagSet, to *T, name string, value, least, top T, about string) {
	intVarP(fl, to, name, "", value, least, top, about)
}

func intVarP[T int | int64](fl *pflag.FlagSet, to *T, name, short string, value, least, top T, about string) {
	*to = value
	fl.VarP(&rangeFlag[T]{to, least, top, "a whole number", func(s string) (T, error) {
		n, err := strconv.ParseInt(s, 0, 64)
		return T(n), err
	}, func(v T) string { return strconv.FormatInt(int64(v), 10) }}, name, short, about)
}

func durationVar(fl *pflag.FlagSet, to *time.Duration, name string, value, least time.Duration, about string) {
	*to = value
	fl.Var(&rangeFlag[time.Duration]{to, least, noTop, "a time such as 90s, 15m or 1h30m", time.ParseDuration, time.Duration.String}, name, about)
}

func (v *rangeFlag[T]) String() string {
	if v.to == nil || *v.to == 0 { // pflag shows no default that is 0
		return "0"
	}
	return v.text(*v.to)
}

func (v *rangeFlag[T]) Type() string {
	if _, ok := any(v).(*rangeFlag[time.Duration]); ok {
		return "duration"
	}
	return "int"
}

func (v *rangeFlag[T]) Set(s string) error {
	n, err := v.parse(s)
	if err != nil || n < v.least || n > v.top {
		return errors.New("want " + v.what + v.bounds())
	}
	*v.to = n
	return nil
}

func (v *rangeFlag[T]) bounds() string {
	if int64(v.top) == noTop {
		return ", at least " + v.text(v.least)
	}
	return fmt.Sprintf(" from %s to %s", v.text(v.least), v.text(v.top))
}

// A choiceFlag is a flag with one of a few words; the shell completes them.
type choiceFlag struct {
	to    *string
	known []string
}

func choiceVar(fl *pflag.FlagSet, to *string, name, value string, known []string, about string) {
	*to = value
	fl.Var(&choiceFlag{to, known}, name, about)
}

func (v *choiceFlag) String() string {
	if v.to == nil {
		return ""
	}
	return *v.to
}

func (v *choiceFlag) Type() string { return "string" }

func (v *choiceFlag) Set(s string) error {
	if !slices.Contains(v.known, s) {
		return fmt.Errorf("want one of %s", strings.Join(v.known, ", "))
	}
	*v.to = s
	return nil
}

// without refuses the given ones of flags that have no effect; why says what would give them one.
func without(given *pflag.FlagSet, why string, names ...string) error {
	for _, n := range names {
		if given != nil && given.Changed(n) {
			return usagef("--%s has no effect %s", n, why)
		}
	}
	return nil
}
