package replay

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/weirbench/weir/internal/record"
)

// timedTarget answers from a goroutine of the runtime after the service time.
type timedTarget struct {
	clock   Clock
	service func(q *Request) int64
	sink    func(*record.Request)
	mu      sync.Mutex
	flying  map[uint64]*record.Request
	sent    []Request
	deaf    bool // never answers
	onSend  func()
}

func (f *timedTarget) Start(sink func(*record.Request)) {
	f.sink, f.flying = sink, map[uint64]*record.Request{}
}

func (f *timedTarget) Send(q Request) {
	r := NewRecord(&q)
	r.Times.Sent = f.clock.Now()
	f.mu.Lock()
	f.sent = append(f.sent, q)
	f.flying[q.Seq] = r
	f.mu.Unlock()
	if f.onSend != nil {
		f.onSend()
	}
	if !f.deaf {
		time.AfterFunc(time.Duration(f.service(&q)), func() { f.end(q.Seq, nil) })
	}
}

func (f *timedTarget) end(seq uint64, why *record.Failure) {
	f.mu.Lock()
	r := f.flying[seq]
	delete(f.flying, seq)
	f.mu.Unlock()
	if r != nil {
		r.Times.End, r.Failure = f.clock.Now(), why
		f.sink(r)
	}
}

func (f *timedTarget) Cancel() {
	if f.deaf {
		return
	}
	f.mu.Lock()
	var seqs []uint64
	for seq := range f.flying {
		seqs = append(seqs, seq)
	}
	f.mu.Unlock()
	for _, seq := range seqs {
		f.end(seq, &record.Failure{Class: record.FailCancelled})
	}
}

// fastOptions play the worked example at a hundredth of its time.
func fastCorpusOptions() Options {
	o := InferenceX(1, 0)
	o.StartMin, o.StartMax = 0.6, 0.6
	o.PressureRequests = 0
	return o
}

func hundredth(q *Request) int64 { return recorded(q) / 100 }

func TestRunRealSendsInOrderAndAccounts(t *testing.T) {
	c := workedCorpus()
	for i := range c.Traces[0].Streams {
		s := &c.Traces[0].Streams[i]
		s.StartNs /= 100
		for k := range s.Turns {
			s.Turns[k].StartNs /= 100
			s.Turns[k].APINs /= 100
		}
	}
	o := fastCorpusOptions()
	o.DurationNs, o.MaxRequests = int64(time.Minute), 6
	o.GraceNs = int64(time.Second)
	s, err := NewAgentic(c, o)
	if err != nil {
		t.Fatal(err)
	}
	clock := NewClock()
	f := &timedTarget{clock: clock, service: hundredth}
	var got []*record.Request
	if err := RunReal(context.Background(), s, f, clock, func(r *record.Request) { got = append(got, r) }); err != nil {
		t.Fatal(err)
	}
	if len(got) != len(f.sent) || len(got) < 6 {
		t.Fatalf("%d requests sent, %d records", len(f.sent), len(got))
	}
	for _, r := range got {
		if r.Times.Queued < r.Times.Intended || r.Times.Sent < r.Times.Queued || r.Times.End < r.Times.Sent {
			t.Errorf("times of %d decrease: %+v", r.Seq, r.Times)
		}
	}
	if n := s.Counts(); n.InFlight != 0 || n.Stray != 0 {
		t.Errorf("counts at the end: %+v", n)
	}
}

func TestRunRealCancel(t *testing.T) {
	for _, deaf := range []bool{false, true} {
		o := fastCorpusOptions()
		o.DurationNs = int64(time.Hour)
		o.DrainNs = int64(50 * time.Millisecond)
		s, err := NewAgentic(workedCorpus(), o)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancelCause(context.Background())
		why := errors.New("enough")
		clock := NewClock()
		f := &timedTarget{clock: clock, service: func(*Request) int64 { return int64(time.Hour) }, deaf: deaf,
			onSend: func() { time.AfterFunc(30*time.Millisecond, func() { cancel(why) }) }}
		n := 0
		err = RunReal(ctx, s, f, clock, func(r *record.Request) {
			n++
			if r.Failure == nil || r.Failure.Class != record.FailCancelled {
				t.Errorf("failure %+v, want cancelled", r.Failure)
			}
		})
		if !errors.Is(err, why) {
			t.Errorf("deaf %v: error %v, want the cause", deaf, err)
		}
		if n != 1 || len(f.sent) != 1 {
			t.Errorf("deaf %v: %d sent, %d records", deaf, len(f.sent), n)
		}
		if reason, _ := s.Abort(); reason != AbortCancelled {
			t.Errorf("deaf %v: abort %q", deaf, reason)
		}
	}
}

// BenchmarkTimerLag reports how late the driver wakes for a time of its choice.
func BenchmarkTimerLag(b *testing.B) {
	w, err := newWaker()
	if err != nil {
		b.Fatal(err)
	}
	defer w.close()
	clock := NewClock()
	worst, sum := int64(0), int64(0)
	for range b.N {
		at := clock.Now() + int64(3700*time.Microsecond)
		for {
			left := at - clock.Now()
			if left <= 0 {
				break
			}
			w.wait(left)
		}
		late := clock.Now() - at
		sum += late
		worst = max(worst, late)
	}
	b.ReportMetric(float64(sum)/float64(b.N), "ns-late/op")
	b.ReportMetric(float64(worst), "ns-late-max")
}
