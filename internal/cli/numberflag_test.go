package cli

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"pgregory.net/rapid"
)

// Whatever is given, what is taken is within the bounds, and what is refused changes nothing.
func TestBoundedFloat(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		least := rapid.Float64Range(0, 100).Draw(t, "least")
		top := rapid.Float64Range(least, 1e6).Draw(t, "top")
		text := rapid.OneOf(
			rapid.Map(rapid.Float64(), plainFloat),
			rapid.Map(rapid.Float64Range(least, top), plainFloat),
			rapid.SampledFrom([]string{"NaN", "nan", "Inf", "-inf", "+Inf", "1e400", "-1e400", "1e-400", "-0", "", "x", "1_0", "0x1p-2"}),
		).Draw(t, "text")
		v, before := -1.0, -1.0
		fs := pflag.NewFlagSet("t", pflag.ContinueOnError)
		floatVar(fs, &v, "size", least, top, "")
		switch err := fs.Parse([]string{"--size=" + text}); {
		case err == nil && !(v >= least && v <= top && !math.IsInf(v, 0)):
			t.Fatalf("%q was taken as %v, which is not within %v to %v", text, v, least, top)
		case err != nil && v != before:
			t.Fatalf("%q was refused and left %v", text, v)
		case err != nil && !strings.Contains(err.Error(), "--size"):
			t.Fatalf("%q: %v does not name the flag", text, err)
		}
	})
}

func TestLinesSayHowFarReplaysAre(t *testing.T) {
	var out bytes.Buffer
	l := newLines(&App{Err: &out}, "knee")
	l.requests(8, 1000)
	if out.Len() > 0 {
		t.Fatalf("%q was written where there is no terminal", out.String())
	}
	l.tty = true
	l.requests(8, 1000)
	l.requests(4, 500) // too soon after the line before it
	l.clear()
	if got := out.String(); !strings.Contains(got, "knee: 0s: concurrency 8 has sent 1,000 requests") || strings.Contains(got, "concurrency 4") || !strings.HasSuffix(got, "\r\033[K") {
		t.Fatalf("%q", got)
	}
}
