package cli

import (
	"bytes"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"pgregory.net/rapid"

	"github.com/weirbench/weir/internal/knee"
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
	l := newLines(&App{Err: &out}, "knee", []int{4, 8})
	l.note(knee.Progress{Concurrency: 8, Requests: 1000, Share: 0.5})
	if out.Len() > 0 {
		t.Fatalf("%q was written at once where there is no terminal", out.String())
	}
	l.begun = l.begun.Add(-2 * sayEvery)
	l.note(knee.Progress{Concurrency: 8, Requests: 1000, Share: 0.5})
	// Of the work, 8 of 12 parts are concurrency 8's: a third is done after 20 s.
	if got, want := out.String(), "knee: 20s, concurrency 8 at 50 %, 1,000 requests of 2 replays, about 40s left\n"; got != want {
		t.Fatalf("%q instead of %q", got, want)
	}
	out.Reset()
	l.tty, l.at = true, time.Time{}
	l.note(knee.Progress{Concurrency: 8, Requests: 2000, Share: 1})
	l.at = l.at.Add(time.Hour) // the next one is too soon after the line before it
	l.note(knee.Progress{Concurrency: 4, Requests: 500})
	l.clear()
	if got := out.String(); !strings.Contains(got, "concurrency 8 at 100 %") || strings.Contains(got, "concurrency 4") || !strings.HasSuffix(got, "\r\033[K") {
		t.Fatalf("%q", got)
	}
}
