package web

import (
	"cmp"
	"slices"

	"github.com/weirbench/weir/internal/record"
)

// A timeline is what the request timeline of a run draws: a block of rows a lane, in each block
// the root's row first and rows for the streams that ran beside it. Times are milliseconds since
// the run's epoch. Requests are columns, one value a request, in order of dispatch.
type timeline struct {
	StartMs int64      `json:"start_ms"`
	EndMs   int64      `json:"end_ms"`
	Window  [2]int64   `json:"window_ms"` // profiling phase; what lies before is warm-up
	Lanes   []lane     `json:"lanes"`
	Trees   []treeSpan `json:"trees"`
	Streams []string   `json:"streams"`
	Rows    int        `json:"rows"`
	Req     columns    `json:"req"`
}

type lane struct {
	Lane int `json:"lane"`
	Row  int `json:"row"`  // first row of its block
	Rows int `json:"rows"` // height of the block
}

type treeSpan struct {
	Lane     int    `json:"lane"`
	Play     int    `json:"play"`
	Trace    string `json:"trace"`
	Snapshot bool   `json:"snapshot"`
	StartMs  int64  `json:"start_ms"`
	EndMs    int64  `json:"end_ms"`
	Row      int    `json:"row"`
	Rows     int    `json:"rows"`
}

// columns holds requests; -1 stands for what did not happen or nobody reported.
type columns struct {
	Seq     []uint64  `json:"seq"`
	Row     []int     `json:"row"`
	Stream  []int     `json:"stream"`
	Turn    []int     `json:"turn"`
	Depth   []int     `json:"depth"`
	Phase   []string  `json:"phase"` // first letter
	Queued  []float64 `json:"queued"`
	Sent    []float64 `json:"sent"`
	First   []float64 `json:"first"`
	Last    []float64 `json:"last"`
	End     []float64 `json:"end"`
	In      []int64   `json:"in"`
	Out     []int64   `json:"out"`
	Device  []int64   `json:"device"`
	Host    []int64   `json:"host"`
	Storage []int64   `json:"storage"`
	Ceiling []int64   `json:"ceiling"`
	Join    []float64 `json:"join"`
	Barrier []float64 `json:"barrier"`
	Failure []string  `json:"failure"`
}

// streamKey is one conversation of one live tree.
type streamKey struct {
	lane, play int
	stream     string
}

type streamSpan struct {
	key        streamKey
	depth      int
	start, end int64
	row        int // in its lane's block
}

// newTimeline lays out the requests of a run.
func newTimeline(w record.Window, reqs []*record.Request) *timeline {
	reqs = slices.DeleteFunc(slices.Clone(reqs), func(q *record.Request) bool { return q.Phase == record.Calibrate })
	slices.SortFunc(reqs, func(a, b *record.Request) int { return cmp.Compare(a.Seq, b.Seq) })
	t := &timeline{Window: [2]int64{w.StartNs / 1e6, w.EndNs / 1e6}, Lanes: []lane{}, Trees: []treeSpan{}, Streams: []string{}}

	spans := map[streamKey]*streamSpan{}
	byLane := map[int][]*streamSpan{}
	for _, q := range reqs {
		k := streamKey{q.Lane, q.Play, q.Stream}
		s := spans[k]
		if s == nil {
			s = &streamSpan{key: k, depth: q.Depth, start: begun(q), end: q.Times.End}
			spans[k] = s
			byLane[q.Lane] = append(byLane[q.Lane], s)
		}
		s.start = min(s.start, begun(q))
		s.end = max(s.end, q.Times.End)
	}
	rows := t.place(byLane)
	t.trees(reqs, byLane, rows)

	names := map[string]int{}
	for i, q := range reqs {
		if i == 0 || begun(q)/1e6 < t.StartMs {
			t.StartMs = begun(q) / 1e6
		}
		t.EndMs = max(t.EndMs, q.Times.End/1e6+1)
		name, ok := names[q.Stream]
		if !ok {
			name = len(t.Streams)
			names[q.Stream] = name
			t.Streams = append(t.Streams, q.Stream)
		}
		t.Req.add(q, rows[q.Lane]+spans[streamKey{q.Lane, q.Play, q.Stream}].row, name)
	}
	t.EndMs = max(t.EndMs, t.Window[1])
	return t
}

// begun is when a request entered the timeline.
func begun(q *record.Request) int64 {
	if q.Times.Queued != record.Never {
		return q.Times.Queued
	}
	return max(q.Times.Intended, 0)
}

// place gives every stream a row in its lane's block: the root the first, others the first row
// that is free for as long as they last. It returns the first row of each lane.
func (t *timeline) place(byLane map[int][]*streamSpan) map[int]int {
	var lanes []int
	for l := range byLane {
		lanes = append(lanes, l)
	}
	slices.Sort(lanes)
	first := map[int]int{}
	for _, l := range lanes {
		list := byLane[l]
		slices.SortFunc(list, func(a, b *streamSpan) int {
			return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.depth, b.depth), cmp.Compare(a.key.stream, b.key.stream))
		})
		busy := []int64{-1} // until when each row is taken; row 0 is the roots'
		for _, s := range list {
			if s.depth == 0 {
				continue
			}
			row := 1
			for row < len(busy) && busy[row] > s.start {
				row++
			}
			if row == len(busy) {
				busy = append(busy, 0)
			}
			busy[row] = s.end
			s.row = row
		}
		first[l] = t.Rows
		t.Lanes = append(t.Lanes, lane{l, t.Rows, len(busy)})
		t.Rows += len(busy)
	}
	return first
}

func (t *timeline) trees(reqs []*record.Request, byLane map[int][]*streamSpan, rows map[int]int) {
	type key struct{ lane, play int }
	at := map[key]int{}
	for _, q := range reqs {
		k := key{q.Lane, q.Play}
		i, ok := at[k]
		if !ok {
			i = len(t.Trees)
			at[k] = i
			t.Trees = append(t.Trees, treeSpan{Lane: q.Lane, Play: q.Play, Trace: q.Trace, Snapshot: q.Start == "snapshot",
				StartMs: begun(q) / 1e6, EndMs: q.Times.End / 1e6, Row: rows[q.Lane], Rows: 1})
		}
		s := &t.Trees[i]
		s.StartMs = min(s.StartMs, begun(q)/1e6)
		s.EndMs = max(s.EndMs, q.Times.End/1e6)
	}
	for _, list := range byLane {
		for _, s := range list {
			tr := &t.Trees[at[key{s.key.lane, s.key.play}]]
			tr.Rows = max(tr.Rows, s.row+1)
		}
	}
}

func (c *columns) add(q *record.Request, row, stream int) {
	ms := func(v int64) float64 {
		if v == record.Never {
			return -1
		}
		return float64(v/1e4) / 100
	}
	c.Seq = append(c.Seq, q.Seq)
	c.Row = append(c.Row, row)
	c.Stream = append(c.Stream, stream)
	c.Turn = append(c.Turn, q.Turn)
	c.Depth = append(c.Depth, q.Depth)
	phase := ""
	if len(q.Phase) > 1 {
		phase = string(q.Phase[:2])
	}
	c.Phase = append(c.Phase, phase)
	c.Queued = append(c.Queued, ms(q.Times.Queued))
	c.Sent = append(c.Sent, ms(q.Times.Sent))
	c.First = append(c.First, ms(q.Times.FirstToken))
	c.Last = append(c.Last, ms(q.Times.LastToken))
	c.End = append(c.End, ms(q.Times.End))
	in := q.PromptTokens
	if in == record.Unknown {
		in = q.WantIn
	}
	c.In = append(c.In, in)
	c.Out = append(c.Out, q.OutputTokens)
	c.Device = append(c.Device, q.Hits.Device)
	c.Host = append(c.Host, q.Hits.Host)
	c.Storage = append(c.Storage, q.Hits.Storage)
	c.Ceiling = append(c.Ceiling, q.CeilingTokens)
	c.Join = append(c.Join, ms(q.JoinWait))
	c.Barrier = append(c.Barrier, ms(q.BarrierWait))
	failure := ""
	if q.Failure != nil {
		failure = string(q.Failure.Class)
	}
	c.Failure = append(c.Failure, failure)
}
