package replay

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/weirbench/weir/internal/corpus"
	"github.com/weirbench/weir/internal/record"
)

const second = int64(1e9)

// fixedTarget answers every request after a service time of its choice.
type fixedTarget struct {
	now     int64
	service func(q *Request) int64
	fail    func(q *Request) *record.Failure
	sink    func(*record.Request)
	flying  []*record.Request // by end, then Seq
	sent    []Request
	ignore  bool // keeps requests for ever, cancelled or not
}

func (f *fixedTarget) Start(sink func(*record.Request)) { f.sink = sink }

func (f *fixedTarget) Send(q Request) {
	f.sent = append(f.sent, q)
	if f.ignore {
		return
	}
	r := NewRecord(&q)
	r.Times.Sent = q.Queued
	r.Times.End = q.Queued + f.service(&q)
	if f.fail != nil {
		r.Failure = f.fail(&q)
	}
	i, _ := slices.BinarySearchFunc(f.flying, r, func(a, b *record.Request) int {
		if a.Times.End != b.Times.End {
			return int(min(max(a.Times.End-b.Times.End, -1), 1))
		}
		return int(int64(a.Seq) - int64(b.Seq))
	})
	f.flying = slices.Insert(f.flying, i, r)
}

func (f *fixedTarget) Cancel() {
	for _, r := range f.flying {
		r.Times.End = f.now
		r.Failure = &record.Failure{Class: record.FailCancelled}
	}
	slices.SortFunc(f.flying, func(a, b *record.Request) int { return int(int64(a.Seq) - int64(b.Seq)) })
}

func (f *fixedTarget) Next() (int64, bool) {
	if len(f.flying) == 0 {
		return 0, false
	}
	return f.flying[0].Times.End, true
}

func (f *fixedTarget) Advance(t int64) {
	f.now = t
	for len(f.flying) > 0 && f.flying[0].Times.End <= t {
		r := f.flying[0]
		f.flying = f.flying[1:]
		f.sink(r)
	}
}

// workedCorpus is the worked example of the semantics reference, appendix F: a root of two
// turns, the second of which joins a sub-agent of one turn.
func workedCorpus() *corpus.Corpus {
	return &corpus.Corpus{Name: "worked", Traces: []*corpus.Trace{{
		ID: "tr1", BlockSize: 64, Models: []string{"big", "small"},
		Streams: []corpus.Stream{
			{ID: "tr1", Parent: corpus.Unbound, Spawn: corpus.Unbound, Join: corpus.Unbound, SystemTokens: 192, Turns: []corpus.Turn{
				{StartNs: 0, APINs: 2 * second, In: 330, Out: 70, Blocks: []uint32{1, 2, 3, 4, 5}},
				{StartNs: 4 * second, APINs: 1500 * second / 1000, In: 520, Out: 30, Blocks: []uint32{1, 2, 3, 4, 5, 7, 8, 9}},
			}},
			{ID: "tr1::sa:a1", Kind: corpus.SubAgent, Parent: 0, Depth: 1, Spawn: 0, Join: 1, StartNs: 2500 * second / 1000, SystemTokens: 64, Turns: []corpus.Turn{
				{StartNs: 2600 * second / 1000, APINs: 1 * second, In: 128, Out: 20, Model: 1, Blocks: []uint32{40, 41}},
			}},
		},
	}}}
}

// play runs a scheduler and writes one line a request: when it was meant to go and what it is.
func play(t *testing.T, s *Scheduler, f *fixedTarget) []string {
	t.Helper()
	if err := RunVirtual(context.Background(), s, f, func(*record.Request) {}); err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, q := range f.sent {
		out = append(out, fmt.Sprintf("%.1f %s %s %s/%d max%d", float64(q.Intended)/1e9, q.Tree, q.Phase,
			strings.TrimPrefix(q.Trace.Streams[q.Stream].ID, "tr1"), q.Turn, q.MaxOut))
	}
	return out
}

// recorded answers as the recording did, one-token requests at once.
func recorded(q *Request) int64 {
	if q.MaxOut == 1 {
		return second / 10
	}
	return q.Trace.Streams[q.Stream].Turns[q.Turn].APINs
}

func TestAppendixF(t *testing.T) {
	base := InferenceX(1, 0)
	base.DurationNs = 8 * second
	base.StartMin, base.StartMax = 0.6, 0.6
	base.GraceNs = 0
	noPressure := base
	noPressure.PressureRequests = 0
	two := base
	two.PressureRequests = 2
	traceCap := noPressure
	traceCap.TraceIdleCapNs = second / 2
	// The primer goes out at 0 and ends at 0.1. t* is 2.4 s into the trace, so the child is
	// due 0.2 s after the handoff, less the shared minimum of 0.2 s, and root turn 1 1.6 s
	// after it, less 0.2 s.
	for _, c := range []struct {
		name string
		o    Options
		want []string
	}{
		{"without cache pressure", noPressure, []string{
			"0.0 0.0 primer /0 max1",
			"0.1 0.0 profiling ::sa:a1/0 max20",
			"1.5 0.0 profiling /1 max30",
			"3.0 0.1 profiling /0 max70",        // recycled at turn 0
			"5.1 0.1 profiling ::sa:a1/0 max20", // 0.1 s from the spawn, after turn 0 ended
			"7.0 0.1 profiling /1 max30",        // 2.0 s after turn 0 ended
		}},
		{"two requests of cache pressure", two, []string{
			"0.0 0.0 primer /0 max1",
			"0.1 0.0 pressure ::sa:a1/0 max1",
			"0.2 0.0 pressure /1 max1", // behind the join, without idle time
			"0.3 0.1 profiling /0 max70",
			"2.4 0.1 profiling ::sa:a1/0 max20",
			"4.3 0.1 profiling /1 max30",
			"5.8 0.2 profiling /0 max70",
			"7.9 0.2 profiling ::sa:a1/0 max20",
		}},
		{"trace cap of half a second", traceCap, []string{
			"0.0 0.0 primer /0 max1",
			"0.1 0.0 profiling ::sa:a1/0 max20",
			"1.5 0.0 profiling /1 max30",
			"3.0 0.1 profiling /0 max70",
			"5.1 0.1 profiling ::sa:a1/0 max20",
			"6.6 0.1 profiling /1 max30", // the child ended at 6.1 and left the tree idle
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, c.o.Barriers = range []Barriers{BarrierAgent, BarrierTree, BarrierNone} {
				s, err := NewAgentic(workedCorpus(), c.o)
				if err != nil {
					t.Fatal(err)
				}
				got := play(t, s, &fixedTarget{service: recorded})
				if !slices.Equal(got, c.want) {
					t.Errorf("got\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(c.want, "\n  "))
				}
			}
		})
	}
}
