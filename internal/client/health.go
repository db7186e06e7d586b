package client

import (
	"math"
	"runtime/metrics"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/weirbench/weir/internal/record"
)

// readHealth is what one poller learned about itself.
type readHealth struct {
	lag       histogram     // from the kernel having bytes to the reader taking them
	unstamped atomic.Uint64 // reads without the kernel's time
}

// health is what a target learns about itself while it runs.
type health struct {
	began    time.Time
	cpu      time.Duration
	baseline runtimeHistograms
	ttft     histogram
	itl      histogram
	loose    atomic.Uint64 // requests whose error nothing bounds

	lag histogram // of connections that no poller reads: as readHealth's

	timer  histogram
	events atomic.Uint64 // content frames
	shared atomic.Uint64 // content frames that shared a read, and so an instant
	most   atomic.Int64  // most requests in flight at once
}

// note takes the errors of a request whose outcome stands.
func (h *health) note(a *answer) {
	h.events.Add(uint64(a.frames))
	h.shared.Add(uint64(a.shared))
	if a.failure != nil || a.frames == 0 {
		return
	}
	d := a.rec.Doubt
	if e := d.TTFT(); e == record.Unknown {
		h.loose.Add(1)
	} else {
		h.ttft.observe(e)
	}
	n := max(a.rec.OutputTokens, a.frames)
	if n >= 2 && d.First != record.Unknown && d.Last != record.Unknown {
		h.itl.observe(max(d.First, d.Last) / (n - 1))
	}
}

// Health says how much a target itself may have added to its numbers, from its start to now.
type Health struct {
	Wall time.Duration `json:"wall_ns"`
	CPU  time.Duration `json:"cpu_ns"` // processor time of the whole process

	// TTFT and ITL are upper bounds, request by request, of what the client added: from
	// the instant noted as Sent to the return of the first write, plus the wait of the
	// first token's bytes for the reader; see record.Doubt.
	TTFT Quantiles `json:"ttft_error"`
	ITL  Quantiles `json:"itl_error"`
	// Unbounded counts requests for which nothing gives such a bound: those of systems whose
	// kernel does not say when bytes came.
	Unbounded uint64 `json:"unbounded"`

	// Stamps is "kernel" when instants are those at which the kernel got the bytes, "read"
	// when they are those at which the client read them.
	Stamps   string    `json:"stamps"`
	ReadLag  Quantiles `json:"read_lag"`  // from the kernel having bytes to the reader taking them
	TimerLag Quantiles `json:"timer_lag"` // by how much a sleep of 50 ms is too long
	GCPause  Quantiles `json:"gc_pause"`  // stops of the world; quantiles are upper edges of Go's buckets
	Sched    Quantiles `json:"sched_lag"` // waits of goroutines for a processor

	Events      uint64 `json:"events"`        // content frames
	Shared      uint64 `json:"shared"`        // content frames that shared a read with an earlier one
	MostFlying  int64  `json:"most_inflight"` // most requests in flight at once
	NowInFlight int    `json:"inflight"`
}

// begin starts what is measured all the time.
func (h *health) begin(over <-chan struct{}) {
	h.began, h.cpu = time.Now(), processCPU()
	h.baseline = readRuntime()
	go h.sleep(over)
}

// A sleep of a twentieth of a second tells how late timers are: one after the other for the first
// timerSleeps, then one every timerRest. Each wakes a thread or two, which is a large part of what a
// client costs that has little to do.
const (
	timerNap    = 50 * time.Millisecond
	timerSleeps = 60
	timerRest   = time.Second - timerNap
)

func (h *health) sleep(over <-chan struct{}) {
	t := time.NewTimer(timerNap)
	defer t.Stop()
	wait := func(d time.Duration) bool {
		t.Reset(d)
		select {
		case <-over:
			return false
		case <-t.C:
			return true
		}
	}
	for n := 0; ; n++ {
		if n >= timerSleeps && !wait(timerRest) {
			return
		}
		from := time.Now()
		if !wait(timerNap) {
			return
		}
		h.timer.observe(int64(max(time.Since(from)-timerNap, 0)))
	}
}

// Health tells what the target has learned about itself so far.
func (t *Target) Health() Health {
	h := &t.health
	out := Health{
		Wall: time.Since(h.began), CPU: processCPU() - h.cpu,
		TTFT: h.ttft.quantiles(), ITL: h.itl.quantiles(), Unbounded: h.loose.Load(),
		Stamps: "read", TimerLag: h.timer.quantiles(),
		Events: h.events.Load(), Shared: h.shared.Load(),
		MostFlying: h.most.Load(), NowInFlight: t.InFlight(),
	}
	var lag histogram
	lag.add(&h.lag)
	for _, p := range t.pollers {
		lag.add(&p.health.lag)
	}
	if out.ReadLag = lag.quantiles(); out.ReadLag.N > 0 {
		out.Stamps = "kernel"
	}
	now := readRuntime()
	out.GCPause = now.gc.since(h.baseline.gc)
	out.Sched = now.sched.since(h.baseline.sched)
	return out
}

// processCPU is the processor time that the process has used.
func processCPU() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// runtimeHistograms are the distributions that the Go runtime keeps of its own delays.
type runtimeHistograms struct{ gc, sched floatHistogram }

type floatHistogram struct {
	counts  []uint64
	buckets []float64
}

func readRuntime() runtimeHistograms {
	samples := []metrics.Sample{{Name: "/sched/pauses/total/gc:seconds"}, {Name: "/sched/latencies:seconds"}}
	metrics.Read(samples)
	var out [2]floatHistogram
	for i, s := range samples {
		if s.Value.Kind() == metrics.KindFloat64Histogram {
			h := s.Value.Float64Histogram()
			out[i] = floatHistogram{h.Counts, h.Buckets}
		}
	}
	return runtimeHistograms{out[0], out[1]}
}

// since summarises what was added after an earlier reading, each value counted as the upper
// edge of its bucket.
func (h floatHistogram) since(old floatHistogram) Quantiles {
	var sum histogram
	for i, c := range h.counts {
		if i < len(old.counts) {
			c -= old.counts[i]
		}
		if c == 0 {
			continue
		}
		edge := h.buckets[i+1]
		if math.IsInf(edge, 1) {
			edge = h.buckets[i]
		}
		ns := int64(edge * 1e9)
		sum.buckets[bucketOf(ns)].Add(c)
		sum.n.Add(c)
		sum.sum.Add(ns * int64(c))
		sum.max.Store(max(sum.max.Load(), ns))
	}
	return sum.quantiles()
}
