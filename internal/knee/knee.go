// Package knee predicts, without a GPU, at which concurrency a KV pool of a given size falls
// over: the hit rate of an LRU prefix cache for every capacity at once, the ceiling that an
// infinite one would reach, and what has to be held in between.
//
// The replay scheduler runs in virtual time with recorded or modelled service times; one pass
// over what it sends gives the whole curve, by stack distances. A prefix hit is the leading
// run of a prompt's blocks that are held; a prompt touches its blocks from its end to its
// start, so that a prefix always outlives what extends it, as in an engine that evicts leaves
// first.
//
// It is a prediction of the cache alone: the times do not slow down when hits fall, outputs
// take no room and requests in flight pin nothing. Package sim has all of that.
package knee

import (
	"context"
	"fmt"
	"math/bits"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/weirbench/weir/internal/corpus"
	"github.com/weirbench/weir/internal/record"
	"github.com/weirbench/weir/internal/replay"
)

// Tolerance is the share of the ceiling that a hit rate may miss at the knee, parts per million.
const Tolerance = 50_000

// Config says how the load is made. Lanes in Options is overwritten.
type Config struct {
	Options replay.Options
	Service Service
	// Progress, if any, is told now and then how far one concurrency is, first when it begins;
	// from several goroutines at once.
	Progress func(Progress)
}

// Progress is how far the replay of one concurrency is.
type Progress struct {
	Concurrency int
	Requests    int64   // sent, warm-up included; 0 when it begins
	Share       float64 // of the profiling time that has passed in virtual time, 0 to 1
}

// progressEvery is the number of requests between two reports of progress.
const progressEvery = 1000

// Service is how long a request takes.
type Service struct {
	// Modelled takes the speeds below for every request. Otherwise recorded times are taken
	// and the speeds stand in where none was recorded.
	Modelled bool
	// PrefillSpeed and DecodeSpeed are tokens per second of one request; 0 means 10,000 and 50.
	PrefillSpeed, DecodeSpeed float64
}

// Time is the service time of a request in nanoseconds, at least 1 ms.
func (s Service) Time(q *replay.Request) int64 {
	t := &q.Trace.Streams[q.Stream].Turns[q.Turn]
	prefill, decode := s.PrefillSpeed, s.DecodeSpeed
	if prefill <= 0 {
		prefill = 10_000
	}
	if decode <= 0 {
		decode = 50
	}
	first := int64(float64(t.In) / prefill * 1e9)
	ns := first + int64(float64(q.MaxOut-1)/decode*1e9)
	if !s.Modelled {
		switch {
		case q.MaxOut == 1 && t.Out != 1 && t.TTFTNs > 0:
			ns = t.TTFTNs
		case q.MaxOut == 1 && t.Out != 1 && t.APINs > 0:
			ns = min(first, t.APINs)
		case t.APINs > 0:
			ns = t.APINs
		}
	}
	return max(ns, int64(time.Millisecond))
}

// A Curve is what one concurrency needs of a cache. Tokens are prompt tokens of the requests
// of the profiling phase.
type Curve struct {
	Concurrency   int
	Requests      int64
	PromptTokens  int64
	CeilingTokens int64 // found by an infinite cache that was clean before the warm-up
	// DistinctTokens were sent at least once, warm-up included.
	DistinctTokens int64
	// WorkingSetTokens are the tokens that were sent and will be sent again, the mean over the
	// profiling phase: what a cache holds at the least that misses nothing. WorkingSetPeak is
	// the largest of WorkingSet, its course in equal steps of time.
	WorkingSetTokens, WorkingSetPeak int64
	WorkingSet                       []int64
	StepNs                           int64

	unit int64   // tokens
	hits []int64 // hits[i] are the tokens found at a capacity of i units
}

// HitRate is the share of the prompt tokens that an LRU cache of a capacity finds; unknown, ok
// is false, when there is no request.
func (c *Curve) HitRate(capacity int64) (rate float64, ok bool) {
	if c.PromptTokens == 0 {
		return 0, false
	}
	i := min(capacity/c.unit, int64(len(c.hits))-1)
	if i < 0 {
		return 0, true
	}
	return float64(c.hits[i]) / float64(c.PromptTokens), true
}

// Ceiling is the hit rate of an infinite cache.
func (c *Curve) Ceiling() (rate float64, ok bool) {
	if c.PromptTokens == 0 {
		return 0, false
	}
	return float64(c.CeilingTokens) / float64(c.PromptTokens), true
}

// Near tells whether an LRU cache of a capacity stays within Tolerance of the ceiling.
func (c *Curve) Near(capacity int64) bool {
	i := min(capacity/c.unit, int64(len(c.hits))-1)
	return i >= 0 && c.near(c.hits[i])
}

func (c *Curve) near(hits int64) bool {
	// hits/ceiling >= (1 - tolerance), in 128 bits
	ah, al := bits.Mul64(uint64(hits), 1_000_000)
	bh, bl := bits.Mul64(uint64(c.CeilingTokens), 1_000_000-Tolerance)
	return ah > bh || ah == bh && al >= bl
}

// Needs is the smallest capacity in tokens that stays within Tolerance of the ceiling.
func (c *Curve) Needs() int64 {
	i, _ := slices.BinarySearchFunc(c.hits, 0, func(h int64, _ int) int {
		if c.near(h) {
			return 1
		}
		return -1
	})
	return int64(i) * c.unit
}

// Compute runs every concurrency, several at once. The curves come in ascending order of
// concurrency.
func Compute(ctx context.Context, c *corpus.Corpus, cfg Config, concurrencies []int) ([]*Curve, error) {
	list := slices.Clone(concurrencies)
	slices.Sort(list)
	list = slices.Compact(list)
	if err := c.NeedBlocks("the knee of a cache"); err != nil {
		return nil, err
	}
	for _, tr := range c.Traces {
		if tr.BlockSize <= 0 {
			return nil, fmt.Errorf("trace %s has a block size of %d tokens: a prefix cache needs blocks", tr.ID, tr.BlockSize)
		}
	}
	out, errs := make([]*Curve, len(list)), make([]error, len(list))
	var wg sync.WaitGroup
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	for i := len(list) - 1; i >= 0; i-- { // the longest first
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			out[i], errs[i] = one(ctx, c, cfg, list[i])
		})
	}
	wg.Wait()
	for i, err := range errs {
		if err != nil {
			return nil, fmt.Errorf("concurrency %d: %w", list[i], err)
		}
	}
	return out, nil
}

// steps is the number of samples of the working set.
const steps = 60

func one(ctx context.Context, c *corpus.Corpus, cfg Config, lanes int) (*Curve, error) {
	o := cfg.Options
	o.Lanes = lanes
	s, err := replay.NewAgentic(c, o)
	if err != nil {
		return nil, err
	}
	t := &target{service: cfg.Service, stack: newStack(c), last: map[conversation]replay.Request{}}
	if cfg.Progress != nil {
		cfg.Progress(Progress{Concurrency: lanes})
		t.progress = func(sent, nowNs int64) {
			p := Progress{Concurrency: lanes, Requests: sent}
			if start := s.Counts().ProfilingStart; start != record.Never && o.DurationNs > 0 {
				p.Share = min(1, max(0, float64(nowNs-start)/float64(o.DurationNs)))
			}
			cfg.Progress(p)
		}
	}
	if err := replay.RunVirtual(ctx, s, t, func(*record.Request) {}); err != nil {
		return nil, err
	}
	if n := s.Counts(); n.Lanes < lanes {
		return nil, fmt.Errorf("only %d of %d lanes could be filled: too few traces of %s have turns left after their start instant", n.Lanes, lanes, c.Name)
	}
	return t.curve(lanes, s.Counts()), nil
}

// A Pool is a KV cache of a given size.
type Pool struct {
	Name   string // whose it is
	Tier   string // "device", or "device+host" with what both tiers keep
	Tokens int64
	// HostOffset is what the device keeps of that for itself: a pool of n tokens needs a host
	// tier of n less HostOffset.
	HostOffset int64
	// HostBytesPerToken is the host memory of one distinct token over all ranks; 0 is unknown.
	HostBytesPerToken float64
}

// A Verdict is where a pool falls over.
type Verdict struct {
	Pool
	// Knee is the highest concurrency up to which every hit rate stays within Tolerance of the
	// ceiling; 0 when not even the lowest does.
	Knee int
	// Next is twice the knee, or the lowest concurrency where there is none. NextTokens are what
	// it needs of a pool to stay within Tolerance, NextHostBytes the host memory for that, 0
	// when it is unknown.
	Next          int
	NextTokens    int64
	NextHostBytes int64
}

// Judge finds the knee of every pool on curves in ascending order of concurrency, and what
// twice that concurrency would need, for which it computes the curves that are missing.
func Judge(ctx context.Context, c *corpus.Corpus, cfg Config, curves []*Curve, pools []Pool) ([]Verdict, error) {
	out := make([]Verdict, len(pools))
	known := map[int]*Curve{}
	for _, v := range curves {
		known[v.Concurrency] = v
	}
	var missing []int
	for i, p := range pools {
		out[i].Pool = p
		for _, v := range curves {
			if !v.Near(p.Tokens) {
				break
			}
			out[i].Knee = v.Concurrency
		}
		out[i].Next = 2 * out[i].Knee
		if out[i].Knee == 0 && len(curves) > 0 {
			out[i].Next = curves[0].Concurrency
		}
		if out[i].Next > 0 && known[out[i].Next] == nil {
			missing = append(missing, out[i].Next)
		}
	}
	more, err := Compute(ctx, c, cfg, missing)
	if err != nil {
		return nil, err
	}
	for _, v := range more {
		known[v.Concurrency] = v
	}
	for i := range out {
		v := &out[i]
		if next := known[v.Next]; next != nil {
			v.NextTokens = next.Needs()
			v.NextHostBytes = int64(float64(max(0, v.NextTokens-v.HostOffset)) * v.HostBytesPerToken)
		}
	}
	return out, nil
}

// Refine adds curves until every pool's knee is exact: the concurrency after it is there too
// and does not stay near the ceiling. It bisects between the highest given concurrency that
// does and the lowest after it that does not; beyond the highest given one it does not look.
func Refine(ctx context.Context, c *corpus.Corpus, cfg Config, curves []*Curve, pools []Pool) ([]*Curve, error) {
	for {
		var wanted []int
		for _, p := range pools {
			low := 0
			for _, v := range curves {
				if v.Near(p.Tokens) {
					low = v.Concurrency
					continue
				}
				if v.Concurrency-low > 1 {
					wanted = append(wanted, (low+v.Concurrency)/2)
				}
				break
			}
		}
		if len(wanted) == 0 {
			return curves, nil
		}
		more, err := Compute(ctx, c, cfg, wanted)
		if err != nil {
			return nil, err
		}
		curves = append(curves, more...)
		slices.SortFunc(curves, func(a, b *Curve) int { return a.Concurrency - b.Concurrency })
	}
}
