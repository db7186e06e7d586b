package web

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirbench/weir/internal/record"
)

// TestTimelineLayout: every request is there once, no two streams of a lane share a row at one
// time, roots have the first row, and lanes don't overlap.
func TestTimelineLayout(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 120).Draw(t, "n")
		var reqs []*record.Request
		for i := range n {
			l := rapid.IntRange(0, 3).Draw(t, "lane")
			depth := rapid.IntRange(0, 1).Draw(t, "depth")
			stream := "r"
			if depth > 0 {
				stream = fmt.Sprint("sa", rapid.IntRange(0, 4).Draw(t, "stream"))
			}
			at := rapid.Int64Range(0, 100).Draw(t, "at") * 1e9
			reqs = append(reqs, &record.Request{Seq: uint64(n - i), Lane: l, Depth: depth, Stream: stream, Phase: record.Profiling,
				Times: record.Times{Queued: at, Sent: at, FirstToken: record.Never, LastToken: record.Never, End: at + rapid.Int64Range(1, 20).Draw(t, "for")*1e9}})
		}
		tl := newTimeline(record.Window{}, reqs)
		if len(tl.Req.Seq) != n {
			t.Fatalf("%d of %d requests", len(tl.Req.Seq), n)
		}
		type span struct {
			stream     int
			start, end float64
		}
		rows := map[int][]span{}
		merged := map[[2]int]*span{}
		for i := range tl.Req.Seq {
			if i > 0 && tl.Req.Seq[i] <= tl.Req.Seq[i-1] {
				t.Fatal("not in order of dispatch")
			}
			k := [2]int{tl.Req.Row[i], tl.Req.Stream[i]}
			if merged[k] == nil {
				merged[k] = &span{tl.Req.Stream[i], tl.Req.Queued[i], tl.Req.End[i]}
			}
			merged[k].start = min(merged[k].start, tl.Req.Queued[i])
			merged[k].end = max(merged[k].end, tl.Req.End[i])
			inside := false
			for _, l := range tl.Lanes {
				if r := tl.Req.Row[i]; r >= l.Row && r < l.Row+l.Rows {
					inside = true
					if (r == l.Row) != (tl.Req.Depth[i] == 0) {
						t.Fatalf("depth %d in row %d of its lane", tl.Req.Depth[i], r-l.Row)
					}
				}
			}
			if !inside {
				t.Fatal("row in no lane")
			}
		}
		for k, s := range merged {
			for _, o := range rows[k[0]] {
				if s.start < o.end && o.start < s.end {
					t.Fatalf("row %d holds two streams at once", k[0])
				}
			}
			rows[k[0]] = append(rows[k[0]], *s)
		}
	})
}
