package result

import (
	"cmp"
	"slices"

	"github.com/weirbench/weir/internal/record"
)

// jobs follows whole trees. A lane holds a tree until it has drained and then begins the next
// one, so a tree is known to be complete when its lane has begun a later play.
type jobs struct {
	window  record.Window
	trees   map[treeKey]*tree
	latest  map[int]int // play begun last, by lane
	traces  map[string]bool
	join    []float64
	barrier []float64
}

type treeKey struct{ lane, play int }

type tree struct {
	begun    int64 // first instant at which one of its requests was intended or queued
	end      int64
	whole    bool // played from its first turn
	profiled bool
	failed   bool
}

func newJobs(w record.Window) jobs {
	return jobs{window: w, trees: map[treeKey]*tree{}, latest: map[int]int{}, traces: map[string]bool{}}
}

func (j *jobs) tree(q *record.Request) *tree {
	k := treeKey{q.Lane, q.Play}
	t := j.trees[k]
	if t == nil {
		t = &tree{begun: record.Never, end: record.Never, whole: q.Start != "snapshot"}
		j.trees[k] = t
	}
	if begun := q.Times.Queued; begun != record.Never && (t.begun == record.Never || begun < t.begun) {
		t.begun = begun
	}
	t.end = max(t.end, q.Times.End)
	if p, ok := j.latest[q.Lane]; !ok || q.Play > p {
		j.latest[q.Lane] = q.Play
	}
	return t
}

func (j *jobs) warmup(q *record.Request) {
	if q.Phase != record.Calibrate {
		j.tree(q)
	}
}

func (j *jobs) add(q *record.Request) {
	t := j.tree(q)
	t.profiled = true
	t.failed = t.failed || !q.OK()
	j.traces[q.Trace] = true
	if q.JoinWait > 0 {
		j.join = append(j.join, float64(q.JoinWait))
	}
	if q.BarrierWait > 0 {
		j.barrier = append(j.barrier, float64(q.BarrierWait))
	}
}

func (j *jobs) summary(planned int64, users int, gpus int64) Jobs {
	s := Jobs{Traces: int64(len(j.traces)), JoinWait: dist(j.join, ns), BarrierWait: dist(j.barrier, ns)}
	var times []float64
	keys := make([]treeKey, 0, len(j.trees))
	for k := range j.trees {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b treeKey) int {
		return cmp.Or(cmp.Compare(a.lane, b.lane), cmp.Compare(a.play, b.play))
	})
	for _, k := range keys {
		t := j.trees[k]
		if t.profiled {
			s.Trees++
		}
		if !t.profiled || k.play >= j.latest[k.lane] {
			continue
		}
		if planned > 0 && (t.end < j.window.StartNs || t.end >= j.window.EndNs) {
			continue
		}
		s.Completed++
		if t.whole && t.begun != record.Never {
			times = append(times, float64(t.end-t.begun))
		}
	}
	s.Completion = dist(times, ns)
	if planned > 0 {
		hours := float64(planned) / ns / 3600
		s.PerHour = ratio(float64(s.Completed), hours)
		s.PerHourPerUser = ratio(float64(s.Completed), hours*float64(users))
		s.PerHourPerGPU = ratio(float64(s.Completed), hours*float64(gpus))
	}
	return s
}
