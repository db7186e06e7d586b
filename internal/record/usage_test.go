package record

import "testing"

func TestUsageDoubt(t *testing.T) {
	n := func(v int64) *int64 { return &v }
	for _, c := range []struct {
		r     Request
		doubt bool
	}{
		{Request{OutputTokens: 100, Frames: 100, TextBytes: 400}, false},
		{Request{OutputTokens: 100, Frames: 25, TextBytes: 400}, false}, // several tokens a frame
		{Request{OutputTokens: 50, Frames: 100, TextBytes: 400}, true},
		{Request{OutputTokens: 500, Frames: 100, TextBytes: 400}, true},
		{Request{OutputTokens: 500, Frames: 100}, false}, // ids: no text to hold against it
		{Request{OutputTokens: 1000, Frames: 900, TextBytes: 4000, LocalOutput: n(960)}, true},
		{Request{OutputTokens: 1000, Frames: 900, TextBytes: 4000, LocalOutput: n(990)}, false},
		{Request{OutputTokens: Unknown, Frames: 100, TextBytes: 4}, false},
		{Request{OutputTokens: 1, Frames: 100, TextBytes: 400, Failure: &Failure{}}, false},
	} {
		if got := c.r.UsageDoubt(); (got != "") != c.doubt {
			t.Errorf("%+v: %q", c.r, got)
		}
	}
}
