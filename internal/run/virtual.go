package run

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/weirbench/weir/internal/facts"
	"github.com/weirbench/weir/internal/plan"
	"github.com/weirbench/weir/internal/record"
	"github.com/weirbench/weir/internal/replay"
	"github.com/weirbench/weir/internal/sim"
	"github.com/weirbench/weir/internal/spec"
)

// SimRecipe is the name of the recipe that runs a point on the simulated engine.
const SimRecipe = "sim"

// Virtual measures a job on the simulated engine in virtual time. Its results are the same
// bytes for the same job, on every machine.
type Virtual struct {
	Facts *facts.Set // nil takes the embedded facts
}

// Name is "sim".
func (Virtual) Name() string { return SimRecipe }

// progressEvery is how many ended requests lie between two progress reports.
const progressEvery = 256

// Measure implements Executor.
func (v Virtual) Measure(ctx context.Context, j *Job, w *record.BundleWriter) error {
	set := v.Facts
	if set == nil && j.Facts != "" {
		opt, err := j.PlanOptions()
		if err != nil {
			return failf("config", "%v", err)
		}
		set = opt.Facts
	}
	eng, cfg, err := simulated(j.Point, j.Verdict, set)
	if err != nil {
		return failf("config", "%v", err)
	}
	s, duration, err := j.scheduler()
	if err != nil {
		return failf("config", "%v", err)
	}
	m, err := j.meta()
	if err != nil {
		return err
	}
	m.Simulated, m.Virtual = true, true
	m.SimError = cfg.StatedError()
	m.Engine = record.Engine{Name: "sim", Version: m.Weir, Image: j.Point.Image,
		Facts: map[string]string{"simulates": j.Point.Framework}}
	m.ObservedPools = m.Pools
	clean := true // a new engine holds nothing
	m.CacheClean = &clean
	if err := w.WriteMeta(m); err != nil {
		return err
	}

	var writeErr error
	ended := 0
	meter, turns := j.meter(), j.recorded()
	var seen tokens
	simulating, giveUp := context.WithCancel(ctx)
	defer giveUp()
	wrote := func(err error) {
		if err != nil && writeErr == nil {
			writeErr = err
			giveUp()
		}
	}
	target := &sampled{simTarget: eng, write: func(smp *record.Sample) { wrote(w.WriteSample(smp)) }}
	err = replay.RunVirtual(simulating, s, target, func(r *record.Request) {
		meter.Add(r)
		turns.add(r)
		seen.add(r)
		wrote(w.WriteRequest(r))
		if ended++; ended%progressEvery == 0 && j.Progress != nil {
			j.Progress(seen.into(progress(s, r.Times.End, duration)))
		}
	})
	switch {
	case ctx.Err() != nil && err != nil:
		return ctx.Err()
	case writeErr != nil:
		return writeErr
	case err != nil:
		return failf("crash", "%v", err)
	}
	finish(m, s, duration)
	j.lru(m, meter)
	turns.into(m)
	return w.WriteMeta(m)
}

// progress turns the scheduler's counts into a Progress.
func progress(s *replay.Scheduler, now, duration int64) Progress {
	n := s.Counts()
	p := Progress{Phase: n.Phase, NowNs: now, Counts: n}
	if n.ProfilingStart != record.Never && duration > 0 {
		p.EndNs = n.ProfilingStart + duration
	}
	return p
}

// finish writes into the meta how the schedule ended.
func finish(m *record.Meta, s *replay.Scheduler, duration int64) {
	n := s.Counts()
	if n.ProfilingStart != record.Never {
		m.Window = record.Window{StartNs: n.ProfilingStart, EndNs: n.ProfilingStart + duration}
	}
	if reason, detail := s.Abort(); reason != "" && reason != replay.AbortErrorRate {
		m.Cancelled = strings.TrimSuffix(reason+": "+detail, ": ")
	}
	m.RanOutNs = s.RanOut()
}

// SimConfig is the simulated engine of a planned single-node point. A field of the point that
// the simulator does not act on is refused.
func SimConfig(p *spec.Point, v *plan.Verdict, set *facts.Set) (sim.Config, error) {
	if v == nil || v.Serving() == nil {
		return sim.Config{}, fmt.Errorf("point %s has no plan: the simulator takes its pools from it", p.Name)
	}
	if p.Unified == nil {
		return sim.Config{}, fmt.Errorf("point %s is multi-node: one simulated engine is not all of it", p.Name)
	}
	return roleConfig(p, v, v.Serving(), *p.Unified, set)
}

// roleConfig is the simulated engine of one worker of a role.
func roleConfig(p *spec.Point, v *plan.Verdict, r *plan.Role, par spec.Parallel, set *facts.Set) (sim.Config, error) {
	if set == nil {
		set = facts.Embedded()
	}
	var c sim.Config
	if p.Scenario != spec.AgenticCoding && p.Scenario != spec.FixedSeqLen {
		return c, fmt.Errorf("point %s has scenario %s: the virtual executor knows %s and %s", p.Name, p.Scenario, spec.AgenticCoding, spec.FixedSeqLen)
	}
	model, err := set.ModelByName(v.Model)
	if err != nil {
		return c, err
	}
	gpu, err := set.GPUByName(v.GPU)
	if err != nil {
		return c, err
	}
	c = sim.Config{
		Model: model, GPU: gpu, Parallel: par,
		WeightPrecision: p.Precision, KVDType: r.KVDType, KVBytesPerToken: r.BytesPerToken,
		DeviceTokens: r.Device.Tokens, PageSize: r.PageSize, ContextLen: p.MaxModelLen,
		ModelName: p.Model, SchedulePolicy: cmp.Or(p.Weir.SchedulePolicy, "fcfs"),
	}
	switch v.Engine {
	case "sglang":
	case "vllm":
		if p.Weir.SchedulePolicy == "lpm" {
			return c, fmt.Errorf("point %s asks for schedule-policy lpm, which vLLM has not: remove it", p.Name)
		}
		c.Engine = v.Engine
	default:
		return c, fmt.Errorf("point %s runs on %s, whose scheduler and cache are not simulated: sglang's and vllm's are", p.Name, v.Engine)
	}
	if c.Coefficients, err = set.CoefficientsFor(v.Model, v.GPU, p.Precision); err != nil {
		return c, err
	}
	if err := speculate(&c, p, v.Model, set); err != nil {
		return c, err
	}
	if r.Host != nil {
		c.HostTokens, c.WritePolicy = r.Host.Tokens, r.WritePolicy
	}
	return c, nil
}

// speculate takes the accepted length of speculative decoding from what was measured on the
// model: a simulated engine has no draft model of its own to accept from.
func speculate(c *sim.Config, p *spec.Point, model string, set *facts.Set) error {
	switch n := p.Weir.DraftTokens; {
	case p.SpecDecoding == "none" || p.SpecDecoding == "":
		if n > 0 {
			return fmt.Errorf("point %s drafts %d tokens without speculative decoding: set spec-decoding or remove draft-tokens", p.Name, n)
		}
	case n == 0:
		return fmt.Errorf("point %s has spec-decoding %s and no draft-tokens: write how many tokens a step drafts, such as draft-tokens: 3", p.Name, p.SpecDecoding)
	default:
		ppm, ok := set.AcceptedPPM(model, p.SpecDecoding, n)
		if !ok {
			return fmt.Errorf("point %s: nobody measured how many of %d drafted tokens %s accepts with %s (facts, acceptances)", p.Name, n, model, p.SpecDecoding)
		}
		c.DraftTokens, c.AcceptPPM = n, ppm
	}
	return nil
}

// Elapsed formats nanoseconds since the epoch for a table.
func Elapsed(ns int64) string { return time.Duration(ns).Round(time.Second).String() }
