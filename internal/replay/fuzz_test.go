package replay

import (
	"context"
	"strings"
	"testing"

	"github.com/weirbench/weir/internal/corpus"
	"github.com/weirbench/weir/internal/record"
)

// bytesOf hands out the numbers that a fuzzer's bytes spell.
type bytesOf struct{ b []byte }

func (s *bytesOf) next(n int) int {
	if len(s.b) == 0 || n <= 0 {
		return 0
	}
	v := int(s.b[0])
	s.b = s.b[1:]
	return v % n
}

// wide is a number of any sign and size up to about eleven days in nanoseconds.
func (s *bytesOf) wide() int64 {
	v := int64(s.next(256)) - 64
	return v * []int64{1, 1e3, 1e7, 1e9, 1e12}[s.next(5)]
}

// hostile makes a trace without any of the promises that a loader gives: parents, spawns and
// joins that do not exist, times that go back, turns without blocks, streams without turns.
func hostile(s *bytesOf) *corpus.Corpus {
	c := &corpus.Corpus{Name: "hostile"}
	for range s.next(3) + 1 {
		tr := &corpus.Trace{ID: "t", BlockSize: int64(s.next(20)) - 1}
		for range s.next(6) {
			st := corpus.Stream{
				ID: []string{"t", "t::sa:x", "t::sa:x:fa:1", "t::fa:2", ""}[s.next(5)], Kind: corpus.Kind(s.next(6)),
				Parent: s.next(9) - 3, Spawn: s.next(9) - 3, Join: s.next(9) - 3, StartNs: s.wide(), SystemTokens: s.wide(),
			}
			for range s.next(6) {
				turn := corpus.Turn{StartNs: s.wide(), APINs: s.wide(), ThinkNs: s.wide(), In: s.wide(), Out: s.wide()}
				for range s.next(5) {
					turn.Blocks = append(turn.Blocks, uint32(s.next(8))<<(s.next(5)*7))
				}
				st.Turns = append(st.Turns, turn)
			}
			tr.Streams = append(tr.Streams, st)
		}
		c.Traces = append(c.Traces, tr)
	}
	return c
}

// FuzzAgentic plays hostile corpora: no panic, no hang, every request accounted for once.
func FuzzAgentic(f *testing.F) {
	f.Add([]byte("0"))
	f.Add([]byte("a corpus is no more than some bytes with a meaning, and these have none at all: 0123456789"))
	f.Fuzz(func(t *testing.T, b []byte) {
		s := &bytesOf{b}
		o := InferenceX(s.next(4)+1, 0)
		o.MaxRequests, o.DurationNs = uint64(s.next(40)), 1e9*int64(s.next(100)+1)
		o.PressureRequests = s.next(4)
		o.NoWarmup, o.Burst, o.NoGaps, o.ThinkGaps = s.next(2) == 1, s.next(2) == 1, s.next(8) == 1, s.next(2) == 1
		o.Barriers, o.Sampling = Barriers(s.next(3)), Sampling(s.next(3))
		o.SystemIdleCapNs, o.TraceIdleCapNs, o.GraceNs = s.wide(), s.wide(), s.wide()
		o.FailedThreshold = 0
		fails := s.next(3)
		c := hostile(s)
		sched, err := NewAgentic(c, o)
		if err != nil {
			return
		}
		target := newHeapTarget(func(q *Request) int64 { return 1e6 + int64(q.Seq%7)*1e8 })
		sent, ended := 0, map[uint64]bool{}
		target.fail = func(q *Request) *record.Failure {
			if fails > 0 && q.Phase != record.Primer && q.Seq%5 == 0 {
				return &record.Failure{Class: []record.Class{record.FailContextOverflow, record.FailStatus}[fails-1]}
			}
			return nil
		}
		err = RunVirtual(context.Background(), sched, target, func(r *record.Request) {
			if ended[r.Seq] {
				t.Fatalf("request %d ended twice", r.Seq)
			}
			ended[r.Seq] = true
		})
		sent = len(target.sent)
		if err != nil {
			t.Fatal(err)
		}
		if n := sched.Counts(); sent != len(ended) || n.InFlight != 0 || n.Stray != 0 || n.Live > o.Lanes {
			t.Fatalf("%d sent, %d ended: %+v", sent, len(ended), n)
		}
	})
}

// TestNoTimeAtAll: turns that take no time against a target that takes none either would be
// sent for ever; the driver says so.
func TestNoTimeAtAll(t *testing.T) {
	c := &corpus.Corpus{Name: "c", Traces: []*corpus.Trace{{ID: "t", BlockSize: 16, Streams: []corpus.Stream{
		{ID: "t", Parent: corpus.Unbound, Turns: []corpus.Turn{{In: 1, Out: 1}}},
	}}}}
	s, err := NewAgentic(c, Options{Lanes: 1, DurationNs: second})
	if err != nil {
		t.Fatal(err)
	}
	target := newHeapTarget(func(*Request) int64 { return 0 })
	if err := RunVirtual(context.Background(), s, target, func(*record.Request) {}); err == nil || !strings.Contains(err.Error(), "stands still") {
		t.Errorf("error %v", err)
	}
}
