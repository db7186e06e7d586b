package replay

import (
	"fmt"
	"math"
	"time"
)

// A Watchdog tells a run that stands still from one that is slow. A run that makes tokens is
// never stopped. One that makes none has a budget: what its waiting prompts would take at the
// prefill speed that was measured, several times over, and never less than MinSilenceNs.
type Watchdog struct {
	MinSilenceNs int64   // time without a token that is always allowed; 0 means 600 s
	Factor       float64 // how many times over; 0 means 4
	// FloorSpeed is the prefill speed in tokens per second that is assumed before one was
	// measured, and the least that a measurement counts as; 0 means 50.
	FloorSpeed float64
	// GuessNs is the most that a budget may be, unless MinSilenceNs is more, before any speed was
	// measured: a server that never answers has an end however much it was asked. 0 means 2 h.
	GuessNs int64

	tokens, ns int64 // measured
}

// Prefilled adds a measurement: prompt tokens whose first output token arrived, and the time
// in which they were worked on. Time that went into decoding makes the speed smaller and the
// budget larger, which is the safe side.
func (w *Watchdog) Prefilled(tokens, ns int64) {
	w.tokens += max(tokens, 0)
	w.ns += max(ns, 0)
}

// Speed is the prefill speed in tokens per second that budgets are made of.
func (w *Watchdog) Speed() float64 {
	floor := w.FloorSpeed
	if floor <= 0 {
		floor = 50
	}
	if w.tokens == 0 || w.ns == 0 {
		return floor
	}
	return max(floor, float64(w.tokens)/(float64(w.ns)/1e9))
}

// Budget is the time without a token that a number of waiting prompt tokens explains.
func (w *Watchdog) Budget(waiting int64) int64 {
	least, factor, most := w.MinSilenceNs, w.Factor, int64(math.MaxInt64/4)
	if least <= 0 {
		least = int64(600 * time.Second)
	}
	if factor <= 0 {
		factor = 4
	}
	if w.tokens == 0 {
		if most = w.GuessNs; most <= 0 {
			most = int64(2 * time.Hour)
		}
	}
	need := factor * float64(max(waiting, 0)) / w.Speed() * 1e9
	return max(least, int64(min(need, float64(most))))
}

// Check says whether a run stands still: nil when it does not. lastProgress is when the last
// token of any request arrived, or when there was nothing in flight, whichever is later;
// waiting are the prompt tokens of the requests in flight.
func (w *Watchdog) Check(now, lastProgress int64, inFlight int, waiting int64) *Stall {
	budget := w.Budget(waiting)
	if inFlight == 0 || now-lastProgress <= budget {
		return nil
	}
	return &Stall{SilentNs: now - lastProgress, BudgetNs: budget, InFlight: inFlight, Waiting: waiting, Speed: w.Speed()}
}

// A Stall is the verdict on a run that makes no token any more.
type Stall struct {
	SilentNs, BudgetNs int64
	InFlight           int
	Waiting            int64   // prompt tokens in flight
	Speed              float64 // prefill tokens per second, measured or assumed
	Goroutines         []byte  // stacks at that time, when a driver took them
	Connections        []byte  // what the target had in flight, when it can tell
}

func (s *Stall) Error() string {
	return fmt.Sprintf("no token from any of %d requests for %v; their %d prompt tokens at %.0f tokens/s explain %v",
		s.InFlight, time.Duration(s.SilentNs).Round(time.Second), s.Waiting, s.Speed, time.Duration(s.BudgetNs).Round(time.Second))
}
