package replay

import (
	"context"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/weirbench/weir/internal/corpus"
	"github.com/weirbench/weir/internal/material"
	"github.com/weirbench/weir/internal/record"
)

var recordedCorpus = sync.OnceValues(func() (*corpus.Corpus, error) {
	return corpus.Load(recordedPath, corpus.LoadOptions{})
})

var recordedPath string

func loadRecorded(tb testing.TB) *corpus.Corpus {
	tb.Helper()
	recordedPath = material.Path(tb, "traces", "weka")
	c, err := recordedCorpus()
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

// asRecorded answers with the recorded service time, one-token requests in a tenth of it.
func asRecorded(q *Request) int64 {
	api := q.Trace.Streams[q.Stream].Turns[q.Turn].APINs
	if q.MaxOut == 1 {
		api /= 10
	}
	return max(api, int64(time.Millisecond))
}

// TestRecordedHour plays an hour at concurrency 64 on the recorded runs.
func TestRecordedHour(t *testing.T) {
	c := loadRecorded(t)
	s, err := NewAgentic(c, InferenceX(64, time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	f := newHeapTarget(asRecorded)
	records, profiling := 0, 0
	var in, ceiling int64
	if err := RunVirtual(context.Background(), s, f, func(r *record.Request) {
		records++
		if r.Phase == record.Profiling {
			profiling++
			in += r.WantIn
			ceiling += r.CeilingTokens
		}
		if r.CeilingTokens > r.WantIn || r.CeilingTokens < 0 {
			t.Errorf("ceiling %d of %d tokens", r.CeilingTokens, r.WantIn)
		}
	}); err != nil {
		t.Fatal(err)
	}
	n := s.Counts()
	t.Logf("%d records, %+v, ceiling %.4f", records, n, float64(ceiling)/float64(in))
	if n.Pressure != 64*10 {
		t.Errorf("%d pressure requests, want 10 on each of 64 lanes", n.Pressure)
	}
	if n.ProfilingEnd-n.ProfilingStart != int64(time.Hour) {
		t.Errorf("the profiling phase lasted %d ns", n.ProfilingEnd-n.ProfilingStart)
	}
	if profiling < 1000 || math.Abs(float64(ceiling)/float64(in)-0.96) > 0.04 {
		t.Errorf("%d profiling requests with a ceiling of %.3f", profiling, float64(ceiling)/float64(in))
	}
}

// TestRecordedTimesComeBack plays every recorded run from its start with its recorded service
// times: the root's turns go out when they did, to the nanosecond.
func TestRecordedTimesComeBack(t *testing.T) {
	c := loadRecorded(t)
	o := InferenceX(len(c.Traces), 0)
	o.NoWarmup, o.StartMin, o.StartMax = true, 0, 0
	o.SystemIdleCapNs, o.TraceIdleCapNs = 0, 0
	o.MaxTrees = uint64(len(c.Traces))
	s, err := NewAgentic(c, o)
	if err != nil {
		t.Fatal(err)
	}
	overlapped := map[string]bool{} // roots that had two requests out at once
	for _, tr := range c.Traces {
		turns := tr.Streams[0].Turns
		for k := 1; k < len(turns); k++ {
			overlapped[tr.ID] = overlapped[tr.ID] || turns[k].StartNs < turns[k-1].EndNs()
		}
	}
	turns, sent := 0, 0
	for _, tr := range c.Traces {
		for i := range tr.Streams {
			turns += len(tr.Streams[i].Turns)
		}
	}
	target := newHeapTarget(func(q *Request) int64 { return q.Trace.Streams[q.Stream].Turns[q.Turn].APINs })
	if err := RunVirtual(context.Background(), s, target, func(r *record.Request) { sent++ }); err != nil {
		t.Fatal(err)
	}
	if sent != turns {
		t.Errorf("%d requests sent, the recording has %d", sent, turns)
	}
	checked := 0
	for _, q := range target.sent {
		want := s.Counts().ProfilingStart + q.Trace.Streams[q.Stream].Turns[q.Turn].StartNs - q.Trace.Streams[0].Turns[0].StartNs
		if q.Stream == 0 && !overlapped[q.Trace.ID] {
			checked++
			if q.Intended != want {
				t.Fatalf("%s turn %d: meant for %d, recorded at %d", q.Trace.ID, q.Turn, q.Intended, want)
			}
		}
	}
	if checked < turns/2 {
		t.Errorf("only %d of %d turns could be compared", checked, turns)
	}
}

func BenchmarkRecordedHour64(b *testing.B) {
	c := loadRecorded(b)
	b.ReportAllocs()
	for b.Loop() {
		s, err := NewAgentic(c, InferenceX(64, time.Hour))
		if err != nil {
			b.Fatal(err)
		}
		n := 0
		if err := RunVirtual(context.Background(), s, newHeapTarget(asRecorded), func(*record.Request) { n++ }); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(n), "requests")
	}
}

// heapTarget answers every request after its service time.
type heapTarget struct {
	service func(q *Request) int64
	sink    func(*record.Request)
	h       []*record.Request
	sent    []Request
	fail    func(q *Request) *record.Failure
	now     int64
}

func newHeapTarget(service func(q *Request) int64) *heapTarget { return &heapTarget{service: service} }

func (f *heapTarget) Start(sink func(*record.Request)) { f.sink = sink }
func (f *heapTarget) less(i, j int) bool {
	a, b := f.h[i], f.h[j]
	return a.Times.End < b.Times.End || a.Times.End == b.Times.End && a.Seq < b.Seq
}

func (f *heapTarget) Send(q Request) {
	f.sent = append(f.sent, q)
	r := NewRecord(&q)
	r.Times.End = q.Queued + f.service(&q)
	if f.fail != nil {
		r.Failure = f.fail(&q)
	}
	f.h = append(f.h, r)
	for i := len(f.h) - 1; i > 0 && f.less(i, (i-1)/2); i = (i - 1) / 2 {
		f.h[i], f.h[(i-1)/2] = f.h[(i-1)/2], f.h[i]
	}
}

func (f *heapTarget) Next() (int64, bool) {
	if len(f.h) == 0 {
		return 0, false
	}
	return f.h[0].Times.End, true
}

func (f *heapTarget) Advance(t int64) {
	f.now = t
	for len(f.h) > 0 && f.h[0].Times.End <= t {
		r := f.h[0]
		n := len(f.h) - 1
		f.h[0] = f.h[n]
		f.h = f.h[:n]
		for i := 0; ; {
			c := 2*i + 1
			if c >= n {
				break
			}
			if c+1 < n && f.less(c+1, c) {
				c++
			}
			if !f.less(c, i) {
				break
			}
			f.h[i], f.h[c] = f.h[c], f.h[i]
			i = c
		}
		f.sink(r)
	}
}

func (f *heapTarget) Cancel() {
	for _, r := range f.h {
		r.Times.End = f.now
		r.Failure = &record.Failure{Class: record.FailCancelled}
	}
}
