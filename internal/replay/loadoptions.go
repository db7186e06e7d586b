package replay

import (
	"fmt"
	"time"
)

// Load are the knobs of every mode that is not agentic replay. Its conversations are the
// streams of the corpus that no other stream spawns, unless EachTurn is set: each sends its turns one after the other.
type Load struct {
	Arrival Arrival `json:"arrival"`
	Rate    float64 `json:"rate,omitempty"`  // arrivals per second: requests for Constant to Gamma, turns of all users for Users
	Shape   float64 `json:"shape,omitempty"` // of Gamma intervals, above 0
	Seed    uint64  `json:"seed"`            // of the intervals

	// Concurrency is the number of conversations that may be live, their gaps included; 0 is
	// no limit, which Closed does not have. RampNs opens them one by one over a time, without AsAIPerf
	// those of Closed alone.
	Concurrency int   `json:"concurrency,omitempty"`
	RampNs      int64 `json:"ramp_ns,omitempty"`
	// PrefillConcurrency is the number of requests that may wait for their first token; 0 is
	// no limit. It needs a target that tells first tokens. PrefillRampNs opens them one by one.
	PrefillConcurrency int   `json:"prefill_concurrency,omitempty"`
	PrefillRampNs      int64 `json:"prefill_ramp_ns,omitempty"`
	// RateRampNs raises the rate of Constant to Gamma over a time, in AIPerf's steps.
	// RateSeries changes it from then on in place of Rate, which is that of its first point.
	RateRampNs int64       `json:"rate_ramp_ns,omitempty"`
	RateSeries []RatePoint `json:"rate_series,omitempty"`
	// AsAIPerf draws intervals as AIPerf does from the same seed, drops an arrival that finds no free
	// slot, as AIPerf does, where else it would wait for one, and has the last slot of a ramp open at its end.
	AsAIPerf bool `json:"as_aiperf,omitempty"`

	// Speed divides recorded times of Schedule; 0 means 1. Conversations that begin outside
	// [FromNs, ToNs) of the recording are left out; a ToNs of 0 is its end.
	Speed  float64 `json:"speed,omitempty"`
	FromNs int64   `json:"from_ns,omitempty"`
	ToNs   int64   `json:"to_ns,omitempty"`

	// EachTurn makes a conversation of every turn of every stream, so that nothing waits for anything
	// but its time: a file of requests that name no session is sent as it stands.
	EachTurn bool `json:"each_turn,omitempty"`
	// FromSet takes FromNs as the zero of the recording although it is 0; else a FromNs of 0 is the
	// first conversation's start.
	FromSet bool `json:"from_set,omitempty"`

	NumUsers int `json:"users,omitempty"` // users at once
	// FromFirstTurn has the users that are there at the start send the first turns of their
	// conversations, in AIPerf's order, in place of the last ones.
	FromFirstTurn bool `json:"from_first_turn,omitempty"`

	// Passes is how often the list of conversations is sent, each pass after the one before it
	// has ended; 0 means 1. Request.Play is the pass. Loop sends it for as long as the run lasts.
	Passes int  `json:"passes,omitempty"`
	Loop   bool `json:"loop,omitempty"`
	// Sampling says in which order conversations are taken from the list; its draws are AIPerf's.
	Sampling Sampling `json:"sampling,omitempty"`
	// MaxConversations ends the list after so many conversations; 0 is no limit.
	MaxConversations int `json:"max_conversations,omitempty"`

	// WarmupRequests are first turns that are sent before, at the same concurrency: those of the
	// last conversations of the list, which is sent without them, so that nothing is warm.
	WarmupRequests int `json:"warmup_requests,omitempty"`
	// Warmup, when set, is a load of its own, in place of WarmupRequests.
	Warmup      *Warmup `json:"warmup,omitempty"`
	MaxRequests uint64  `json:"max_requests,omitempty"` // profiling requests; 0 is no limit
	DurationNs  int64   `json:"duration_ns,omitempty"`  // of the profiling phase; 0 is no limit
	GraceNs     int64   `json:"grace_ns,omitempty"`     // for what is in flight after DurationNs; negative is unlimited
	DrainNs     int64   `json:"drain_ns,omitempty"`     // for outcomes after a cancellation; 0 means 10 s
	MaxOut      int64   `json:"max_out,omitempty"`      // cap on output tokens asked for; 0 is none
	// FreeOutput asks for no number of output tokens: the server ends its answers.
	FreeOutput bool `json:"free_output,omitempty"`

	// FailedThreshold is as in Options, with the users of Users as the concurrency, and a prompt
	// that was too long is a failure.
	FailedThreshold float64 `json:"failed_threshold,omitempty"`
	NoGaps          bool    `json:"no_gaps,omitempty"` // a turn follows the one before it at once
}

func (o *Load) check(n int) error {
	switch {
	case o.RampNs < 0 || o.PrefillRampNs < 0 || o.RateRampNs < 0:
		return fmt.Errorf("ramps are %v (concurrency), %v (prefill) and %v (rate): none may be negative", time.Duration(o.RampNs), time.Duration(o.PrefillRampNs), time.Duration(o.RateRampNs))
	case len(o.RateSeries) > 0 && o.checkSeries() != nil:
		return o.checkSeries()
	case (o.RateRampNs > 0 || len(o.RateSeries) > 0) && (o.Arrival < Constant || o.Arrival > Gamma):
		return fmt.Errorf("a ramp or a series of the rate needs arrivals at a rate")
	case n == 0:
		return fmt.Errorf("there is no conversation to send")
	case o.Arrival > Users:
		return fmt.Errorf("arrival %d is unknown", o.Arrival)
	case o.Concurrency < 0 || o.PrefillConcurrency < 0:
		return fmt.Errorf("concurrency %d and prefill concurrency %d: neither may be negative", o.Concurrency, o.PrefillConcurrency)
	case o.Concurrency > MaxLanes || o.PrefillConcurrency > MaxLanes || o.Arrival == Users && o.NumUsers > MaxLanes:
		return fmt.Errorf("concurrency %d, prefill concurrency %d, %d users: each is at most %d", o.Concurrency, o.PrefillConcurrency, o.NumUsers, MaxLanes)
	case o.MaxOut < 0 || o.DrainNs < 0:
		return fmt.Errorf("cap on output is %d tokens and drain %v: neither may be negative", o.MaxOut, time.Duration(o.DrainNs))
	case o.Arrival == Closed && o.Concurrency == 0:
		return fmt.Errorf("a closed loop needs a concurrency of at least 1")
	case o.Arrival >= Constant && o.Arrival <= Gamma || o.Arrival == Users:
		if !within(o.Rate, 1e-6, 1e6) {
			return fmt.Errorf("request rate is %v per second: need more than 0, from 1e-6 to 1e6", o.Rate)
		}
	}
	switch {
	case o.Arrival == Gamma && !within(o.Shape, 1e-3, 1e6):
		return fmt.Errorf("gamma shape is %v: need more than 0, from 1e-3 to 1e6 (1 is Poisson)", o.Shape)
	case o.Arrival == Users && o.NumUsers < 1:
		return fmt.Errorf("%d users: need at least 1", o.NumUsers)
	case o.Arrival == Schedule && o.Speed != 0 && !within(o.Speed, 1e-3, 1e6):
		return fmt.Errorf("speed is %v: need more than 0, from 1e-3 to 1e6", o.Speed)
	case o.Loop && o.DurationNs == 0 && o.MaxRequests == 0 && o.MaxConversations == 0:
		return fmt.Errorf("nothing ends the run: a loop needs a duration or a number of requests or conversations")
	case o.Sampling > Random || o.Sampling != Sequential && o.Arrival == Schedule:
		return fmt.Errorf("order %d of conversations: known are sequential, shuffle and random, and a schedule has its own", o.Sampling)
	case o.MaxConversations < 0:
		return fmt.Errorf("at most %d conversations: it may not be negative", o.MaxConversations)
	case o.Loop && o.Arrival == Schedule:
		return fmt.Errorf("a schedule has an end and can't be looped")
	case !(o.FailedThreshold >= 0 && o.FailedThreshold <= 1):
		return fmt.Errorf("failed-request threshold is %v: need a share from 0 to 1", o.FailedThreshold)
	}
	return nil
}

// settled is the load with what 0 stands for.
func (o Load) settled() Load {
	o.Passes = max(o.Passes, 1)
	if o.Speed == 0 {
		o.Speed = 1
	}
	return o
}

func (o *Load) checkSeries() error {
	if len(o.RateSeries) < 2 {
		return fmt.Errorf("a series of rates has %d points: need at least 2", len(o.RateSeries))
	}
	for i, p := range o.RateSeries {
		switch {
		case !(p.AtS >= 0 && p.AtS <= 1e9) || !(p.Rate > 0 && p.Rate <= 1e6):
			return fmt.Errorf("point %d of the series is %v per second at %v s: need more than 0 and at most 1e6 per second, at 0 to 1e9 s", i+1, p.Rate, p.AtS)
		case i > 0 && p.AtS <= o.RateSeries[i-1].AtS:
			return fmt.Errorf("point %d of the series is at %v s, the one before it at %v: need a later time", i+1, p.AtS, o.RateSeries[i-1].AtS)
		}
	}
	return nil
}

// within tells whether a number lies in a range; NaN lies in none. The ranges keep times apart by a nanosecond or
// more and an int64 of them from running over.
func within(v, low, high float64) bool { return v >= low && v <= high }
