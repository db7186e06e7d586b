package replay

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weirbench/weir/internal/corpus"
	"github.com/weirbench/weir/internal/prompt"
)

// Semantics names the rules of agentic replay that NewAgentic follows. It stands in every
// result; a change of the rules is a new name.
//
// agentx-1 follows AIPerf's AgentX client as InferenceX drives it (SemiAnalysisAI/aiperf and
// agentx-harness, 2026-08).
const Semantics = "agentx-1"

// LoadSemantics names the rules of NewLoad.
const LoadSemantics = "load-1"

// Barriers says which other streams a turn waits for by recorded order. A stream belongs to
// the scope of the sub-agent that it is or was found in, or else to the root's.
type Barriers uint8

const (
	// BarrierAgent: a turn waits for streams of its own scope, so that the root's scope and
	// each sub-agent are tied by spawns and joins alone. It is what the AgentX client does
	// (agentx-harness 1.0.12, weka_trace.py, 2026-10).
	BarrierAgent Barriers = iota
	// BarrierTree: a turn of the root's scope waits for every stream of the tree too.
	BarrierTree
	// BarrierNone is dataflow: spawns, joins and the order within a stream only.
	BarrierNone
)

// Sampling says which trace a lane plays next.
type Sampling uint8

const (
	Sequential Sampling = iota // corpus order, round and round
	Shuffle                    // a new order each round
	Random                     // with replacement
)

var (
	barrierNames  = []string{"agent", "tree", "none"}
	samplingNames = []string{"sequential", "shuffle", "random"}
)

// MarshalText writes agent, tree or none.
func (b Barriers) MarshalText() ([]byte, error) { return nameOf(barrierNames, int(b)) }

// UnmarshalText reads what MarshalText writes, and dataflow for none.
func (b *Barriers) UnmarshalText(text []byte) error {
	if string(text) == "dataflow" {
		*b = BarrierNone
		return nil
	}
	i, err := indexOf("barriers", barrierNames, text)
	*b = Barriers(i)
	return err
}

// MarshalText writes sequential, shuffle or random.
func (s Sampling) MarshalText() ([]byte, error) { return nameOf(samplingNames, int(s)) }

// UnmarshalText reads what MarshalText writes.
func (s *Sampling) UnmarshalText(text []byte) error {
	i, err := indexOf("order", samplingNames, text)
	*s = Sampling(i)
	return err
}

func nameOf(names []string, i int) ([]byte, error) {
	if i < 0 || i >= len(names) {
		return nil, fmt.Errorf("%d is none of %s", i, strings.Join(names, ", "))
	}
	return []byte(names[i]), nil
}

func indexOf(what string, names []string, text []byte) (int, error) {
	if i := slices.Index(names, string(text)); i >= 0 {
		return i, nil
	}
	return 0, fmt.Errorf("%s %q is not known; known: %s", what, text, strings.Join(names, ", "))
}

// MaxLanes is the highest concurrency that is replayed. Every lane costs memory from the start,
// and no server holds more agents at once.
const MaxLanes = 100_000

// Options are the knobs of agentic replay. The zero value of a cap or limit turns it off.
// InferenceX gives the values that its scenario passes.
type Options struct {
	Lanes int    `json:"lanes"` // units of concurrency, 1 to MaxLanes
	Seed  uint64 `json:"seed"`  // draws start instants and salts

	// StartMin and StartMax bound the start instant of a tree as shares of the trace's span,
	// 0 <= StartMin <= StartMax <= 1.
	StartMin float64 `json:"start_min"`
	StartMax float64 `json:"start_max"`
	// NoWarmup leaves out primers and cache pressure; trees still start inside their traces.
	NoWarmup bool `json:"no_warmup,omitempty"`
	// PressureRequests are further one-token requests per lane after the primers, without
	// idle time, until the caches are under pressure. PressureNs is the same by time; only
	// one of them may be set.
	PressureRequests int `json:"pressure_requests,omitempty"`
	// CountPrimers counts a lane's primers to its PressureRequests, as AIPerf's forks did before
	// their 0.12.
	CountPrimers bool  `json:"count_primers,omitempty"`
	PressureNs   int64 `json:"pressure_ns,omitempty"`
	// Burst sends all primers at once and starts every lane at once, in place of keeping the
	// recorded offsets to the start instant.
	Burst bool `json:"burst,omitempty"`

	SystemIdleCapNs int64 `json:"system_idle_cap_ns,omitempty"` // longest time with nothing in flight anywhere
	TraceIdleCapNs  int64 `json:"trace_idle_cap_ns,omitempty"`  // longest time with nothing in flight in one tree

	DurationNs int64 `json:"duration_ns,omitempty"` // of the profiling phase; 0 leaves the end to MaxRequests or MaxTrees
	GraceNs    int64 `json:"grace_ns,omitempty"`    // for what is in flight at the end of DurationNs; negative is unlimited
	// WarmupGraceNs bounds a warm-up that stopped moving: the time since its last dispatch or
	// outcome. A slow warm-up that moves is not cut, nor, under a watchdog, one whose prompts explain
	// the time at the prefill speed that was measured. 0 is unlimited.
	WarmupGraceNs int64 `json:"warmup_grace_ns,omitempty"`
	// WarmupGraceFixed counts WarmupGraceNs from the last dispatch alone, as AIPerf does.
	WarmupGraceFixed bool  `json:"warmup_grace_fixed,omitempty"`
	DrainNs          int64 `json:"drain_ns,omitempty"` // for outcomes after a cancellation; 0 means 10 s

	MaxRequests uint64 `json:"max_requests,omitempty"` // profiling requests; 0 is no limit
	MaxTrees    uint64 `json:"max_trees,omitempty"`    // trees started, warm-up included; 0 is no limit

	// FailedThreshold ends the run when more than this share of the profiling requests that
	// ended had failed, once as many have ended as there are lanes, and at least 10. A prompt that
	// was too long ends its stream and counts as one that did not fail. 0 is off.
	FailedThreshold float64 `json:"failed_threshold,omitempty"`

	Barriers  Barriers         `json:"barriers"`
	Sampling  Sampling         `json:"sampling"`
	Salt      prompt.Placement `json:"salt"`                 // where the text stands that makes the prompts of a tree its own
	AllowWrap bool             `json:"allow_wrap,omitempty"` // without a salt, lanes may outnumber traces
	MaxOut    int64            `json:"max_out,omitempty"`    // cap on output tokens asked for; 0 is none

	// ThinkGaps takes the recorded think time as the gap before a turn where there is one, in
	// place of the time between the end of the turn before it and its start.
	ThinkGaps bool `json:"think_gaps,omitempty"`
	// NoGaps sends a turn as soon as the one before it ended; TurnGapCapNs caps the gap.
	NoGaps       bool  `json:"no_gaps,omitempty"`
	TurnGapCapNs int64 `json:"turn_gap_cap_ns,omitempty"`
}

// InferenceX is what InferenceX passes for its agentic scenario (benchmark_lib.sh,
// build_replay_cmd, 2026-08), at a concurrency and for a duration.
func InferenceX(lanes int, d time.Duration) Options {
	return Options{
		Lanes: lanes, Seed: 42,
		StartMin: 0.25, StartMax: 0.75,
		PressureRequests: 10,
		SystemIdleCapNs:  int64(10 * time.Second),
		TraceIdleCapNs:   int64(300 * time.Second),
		DurationNs:       int64(d),
		GraceNs:          int64(30 * time.Second),
		WarmupGraceNs:    int64(1800 * time.Second),
		FailedThreshold:  0.10,
		Salt:             prompt.FirstTurnPrefix,
	}
}

// Check refuses options that contradict each other or the corpus, and a corpus of lengths only: of
// agents whose prompts share nothing that anyone knows, a cache finds nothing that says anything.
func (o *Options) Check(c *corpus.Corpus) error {
	playable := 0
	for _, t := range c.Traces {
		if len(t.Streams) > 0 && len(t.Streams[0].Turns) > 0 {
			playable++
		}
	}
	lengthsOnly := c.NeedBlocks("agentic replay")
	switch {
	case lengthsOnly != nil:
		return lengthsOnly
	case playable == 0:
		return fmt.Errorf("corpus %s has no trace with a root turn: nothing can be replayed", c.Name)
	case o.Lanes < 1:
		return fmt.Errorf("concurrency is %d: at least one lane is needed", o.Lanes)
	case o.Lanes > MaxLanes:
		return fmt.Errorf("concurrency is %d: at most %d lanes are replayed", o.Lanes, MaxLanes)
	case o.MaxOut < 0:
		return fmt.Errorf("cap on output is %d tokens: it may not be negative (0 is no cap)", o.MaxOut)
	case o.SystemIdleCapNs < 0 || o.TraceIdleCapNs < 0 || o.TurnGapCapNs < 0:
		return fmt.Errorf("caps on idle time are %v (system), %v (trace) and %v (gap): none may be negative (0 is no cap)",
			time.Duration(o.SystemIdleCapNs), time.Duration(o.TraceIdleCapNs), time.Duration(o.TurnGapCapNs))
	case o.WarmupGraceNs < 0 || o.DrainNs < 0:
		return fmt.Errorf("warm-up grace is %v and drain %v: neither may be negative", time.Duration(o.WarmupGraceNs), time.Duration(o.DrainNs))
	case !(o.StartMin >= 0 && o.StartMin <= o.StartMax && o.StartMax <= 1):
		return fmt.Errorf("start ratios are %v and %v: need 0 <= min <= max <= 1", o.StartMin, o.StartMax)
	case o.PressureRequests < 0 || o.PressureNs < 0:
		return fmt.Errorf("cache pressure is %d requests and %v: neither may be negative", o.PressureRequests, time.Duration(o.PressureNs))
	case o.PressureRequests > 0 && o.PressureNs > 0:
		return fmt.Errorf("cache pressure is given by requests (%d) and by time (%v): set one of them", o.PressureRequests, time.Duration(o.PressureNs))
	case o.DurationNs < 0:
		return fmt.Errorf("duration is %v: it may not be negative", time.Duration(o.DurationNs))
	case o.DurationNs == 0 && o.MaxRequests == 0 && o.MaxTrees == 0:
		return fmt.Errorf("nothing ends the run: set a duration, a number of requests or a number of trees")
	case !(o.FailedThreshold >= 0 && o.FailedThreshold <= 1):
		return fmt.Errorf("failed-request threshold is %v: need a share from 0 to 1", o.FailedThreshold)
	case o.Salt == prompt.NoSalt && !o.AllowWrap && o.Lanes > playable:
		return fmt.Errorf("concurrency %d exceeds the %d traces of %s while salts are off: lanes on the same trace would send the same bytes; use at most %d lanes, turn salts on or allow wrapping", o.Lanes, playable, c.Name, playable)
	}
	return nil
}
