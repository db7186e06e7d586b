// Package run takes one point from plan to result, and a sweep of points to a set of bundles.
//
// A Job is one run of one point. An Executor measures a job: it replays the corpus against an
// engine, real or simulated, and writes what happened into a bundle. A Sweep gives every point
// to an executor, one bundle a point, and survives being stopped: a bundle is whole or it is
// not there, the journal says what happened to every point, and the same sweep again runs only
// what has no whole bundle yet.
package run

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/weirbench/weir/internal/corpus"
	"github.com/weirbench/weir/internal/engine"
	"github.com/weirbench/weir/internal/plan"
	"github.com/weirbench/weir/internal/record"
	"github.com/weirbench/weir/internal/replay"
	"github.com/weirbench/weir/internal/spec"
)

// A Job is one run of one point.
type Job struct {
	Point   *spec.Point
	Verdict *plan.Verdict // nil for a server that nobody planned
	Corpus  *corpus.Corpus
	Replay  replay.Options
	Load    *replay.Load // an open or closed loop in place of agentic replay
	Repeat  int          // from 0; every repeat has an own seed
	// Priority is the job's place among others: higher ones are begun first.
	Priority int
	// Recipe starts the engine; nil for the simulated engine in virtual time and for servers that
	// run already. CorpusPath is where Corpus was read from, for executors that run elsewhere.
	Recipe     *engine.Recipe
	CorpusPath string
	// ControlOf are the ids of points with offload that this one, without, is the control of, where
	// the sweep added it to those of the file.
	ControlOf []string
	// EngineHelp is what the engine prints for --help, where it was given; arguments are checked
	// against it.
	EngineHelp string
	// Facts is the text of facts that are put before the embedded ones; empty for none.
	Facts string
	// Chunks keeps the time of every content frame.
	Chunks bool
	// Dataset is record.Meta's: where Corpus came from.
	Dataset json.RawMessage
	// Overrides are the rules that were switched off by hand; any makes the result invalid.
	Overrides []string
	// ClientLimit is record.Meta's: the share of the median that the client's own error may reach.
	ClientLimit *float64
	// CoverageLimit is record.Meta's: the share of a long window that the last token must reach.
	CoverageLimit *float64
	// Version of the program, for the bundle.
	Version string
	// Progress is called now and then while the job runs; nil is allowed.
	Progress func(Progress)
	// Note is called with what happens to the job beside its states, for the journal; nil is allowed.
	Note func(Entry)
}

func (j *Job) note(e Entry) {
	if j.Note != nil {
		j.Note(e)
	}
}

// Progress is how far a running job is.
type Progress struct {
	Phase  record.Phase
	NowNs  int64 // since the run's epoch
	EndNs  int64 // planned end of profiling since the epoch, 0 while it is not known
	Counts replay.Counts
	// InputTokens are prompt tokens of requests that ended, and HitTokens those of them that the
	// server says it found cached, of the HitOf prompt tokens about which it says something; all
	// phases.
	InputTokens, HitTokens, HitOf int64
}

// Hit is the share of prompt tokens found in a cache so far; nil where the server says nothing.
func (p *Progress) Hit() *float64 {
	if p.HitOf <= 0 {
		return nil
	}
	v := float64(p.HitTokens) / float64(p.HitOf)
	return &v
}

// tokens counts what requests bring.
type tokens struct{ input, hit, hitOf int64 }

func (t *tokens) add(r *record.Request) {
	if r.PromptTokens <= 0 {
		return
	}
	t.input += r.PromptTokens
	h := r.Hits
	switch {
	case h.Total >= 0:
		t.hit += h.Total
	case h.Device >= 0:
		t.hit += h.Device + max(h.Host, 0) + max(h.Storage, 0)
	default:
		return
	}
	t.hitOf += r.PromptTokens
}

func (t *tokens) into(p Progress) Progress {
	p.InputTokens, p.HitTokens, p.HitOf = t.input, t.hit, t.hitOf
	return p
}

// An Executor measures a job and leaves the bundle unsealed, with point.json and all records in
// it. A run that ended early for a reason that the result must state is no error: the meta
// says so. An error means that there is nothing to derive a result from; *Failure gives it a
// class. When ctx ends, Measure stops what it started and returns ctx's error.
type Executor interface {
	Name() string
	Measure(ctx context.Context, j *Job, w *record.BundleWriter) error
}

// A Failure is why a job has no result.
type Failure struct {
	Class  string // config, capacity, start, crash, stall, client, node, cancelled
	Reason string
	Err    error // what it comes from, nil when Reason says all
}

// Unwrap is what the failure comes from.
func (f *Failure) Unwrap() error { return f.Err }

func (f *Failure) Error() string { return f.Class + ": " + f.Reason }

func failf(class, format string, a ...any) *Failure {
	return &Failure{Class: class, Reason: fmt.Sprintf(format, a...)}
}

// seed is the seed of a repeat: the point's own for the first.
func (j *Job) seed() uint64 { return j.Point.Weir.Seed + uint64(j.Repeat) }

// rangeRatio is what InferenceX's recipes pass for fixed-seq-len (RANDOM_RANGE_RATIO, 2026-08).
const rangeRatio = 0.8

// FixedSeqLen gives the job the prompts and the load of the point's fixed-seq-len scenario.
func (j *Job) FixedSeqLen() error {
	p := j.Point
	lengths, load := replay.FixedSeqLen(p.ISL, p.OSL, p.Conc, rangeRatio, j.seed())
	c, err := lengths.Corpus()
	if err != nil {
		return fmt.Errorf("%s: %w", p.Key, err)
	}
	j.Corpus, j.Load, j.Chunks = c, &load, true
	return nil
}

// options and load are the job's schedule with the seed of its repeat.
func (j *Job) options() replay.Options {
	o := j.Replay
	o.Seed = j.seed()
	return o
}

func (j *Job) load() replay.Load {
	l := *j.Load
	l.Seed = j.seed()
	return l
}

// scheduler is the job's schedule, agentic replay or its load, and the duration of its
// profiling phase in nanoseconds, 0 when something else ends it.
func (j *Job) scheduler() (*replay.Scheduler, int64, error) {
	if j.Load != nil {
		s, err := replay.NewLoad(j.Corpus, j.load())
		return s, j.Load.DurationNs, err
	}
	s, err := replay.NewAgentic(j.Corpus, j.options())
	return s, j.Replay.DurationNs, err
}

// meta begins the bundle's meta from what is known before the run.
func (j *Job) meta() (*record.Meta, error) {
	m := record.NewMeta()
	raw, err := json.Marshal(j.Point)
	if err != nil {
		return nil, err
	}
	m.Weir = j.Version
	m.PointID = j.Point.ID()
	m.Point = raw
	m.Recipe, m.Facts = j.recipeJSON(), factsSum(j.Facts)
	m.Seed = j.seed()
	m.UnsafeOverrides = j.Overrides
	m.Dataset = j.Dataset
	m.ClientLimit, m.CoverageLimit = j.ClientLimit, j.CoverageLimit
	m.Repeat = j.Repeat
	m.ControlOf = j.ControlOf
	m.Semantics = replay.Semantics
	schedule := any(j.options())
	if j.Load != nil {
		m.Semantics, schedule = replay.LoadSemantics, j.load()
	}
	if m.Replay, err = json.Marshal(schedule); err != nil {
		return nil, err
	}
	m.Corpus = record.Corpus{
		Name: j.Corpus.Name, Fingerprint: j.Corpus.Fingerprint,
		Traces: len(j.Corpus.Traces), Skipped: len(j.Corpus.Skipped),
	}
	for _, t := range j.Corpus.Traces {
		if t.LengthsOnly {
			m.Corpus.LengthsOnly++
		}
	}
	pre, dec, total := j.Point.GPUs()
	m.GPUs = record.GPUs{Prefill: pre, Decode: dec, Total: total}
	if j.Verdict != nil {
		m.Pools = pools(j.Verdict)
	}
	return m, nil
}

// pools are the planned pools of the whole deployment: those of the workers that compute
// prefill, which hold the prefix cache.
func pools(v *plan.Verdict) record.Pools {
	r := v.Serving()
	if r == nil {
		return record.UnknownPools
	}
	n := int64(r.Workers)
	p := record.Pools{
		DeviceTokens: n * r.Device.UniqueTokens,
		DeviceBytes:  n * int64(r.Ranks) * r.Device.PoolBytes,
	}
	if r.Host != nil {
		p.HostTokens = n * r.Host.UniqueTokens
		p.HostBytes = n * int64(r.Ranks) * r.Host.Bytes
	}
	return p
}

// Version names the build in bundles: the module's version or the commit it was built from.
func Version() string {
	if bi, ok := debug.ReadBuildInfo(); ok {
		for _, s := range bi.Settings {
			if s.Key == "vcs.revision" && len(s.Value) >= 12 {
				return "dev-" + s.Value[:12]
			}
		}
	}
	return "dev"
}

// ReplayOptions are the options that a point is replayed with: InferenceX's, with the point's
// concurrency, duration and seed.
func ReplayOptions(p *spec.Point) replay.Options {
	o := replay.InferenceX(p.Conc, time.Duration(p.DurationNs))
	o.Seed = p.Weir.Seed
	return o
}
