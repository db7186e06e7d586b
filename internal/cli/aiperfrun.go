package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/weirbench/weir/internal/record"
	"github.com/weirbench/weir/internal/replay"
	"github.com/weirbench/weir/internal/result"
	"github.com/weirbench/weir/internal/result/aiperf"
	"github.com/weirbench/weir/internal/run"
	"github.com/weirbench/weir/internal/spec"
)

// run measures, writes the artifacts, and judges.
func (p *profile) run(ctx context.Context) error {
	point := &spec.Point{
		Key: "aiperf", Model: p.model, Framework: "external", Conc: p.conc, SpecDecoding: "none", Offload: spec.Offload{Mode: "none"},
	}
	j := &run.Job{Point: point, Version: buildVersion(), Overrides: p.violations, ClientLimit: p.limit.share, CoverageLimit: p.cover.share}
	var err error
	if p.load != nil {
		if p.has("--input-file") {
			if j.Corpus, err = p.corpus(ctx); err == nil && p.load.Arrival == replay.Schedule {
				err = p.place(j.Corpus)
			}
			if err == nil && p.grows {
				err = grow(j.Corpus)
			}
		} else {
			p.dataset = map[string]any{"source_type": "synthetic", "entries": p.lengths.Conversations}
			j.Corpus, err = p.lengths.Corpus()
			err = usage(err)
		}
		if err != nil {
			return err
		}
		if _, err := replay.NewLoad(j.Corpus, *p.load); err != nil {
			return usage(err)
		}
		j.Load = p.load
		point.Conc = loadConc(p.load)
		point.Name, point.Scenario, point.ISL, point.OSL = p.loadName(), spec.FixedSeqLen, p.lengths.In, p.lengths.Out
		if p.load.FreeOutput {
			point.OSL = 0
		}
		point.DurationNs, point.Weir.Seed = p.load.DurationNs, p.load.Seed
	} else {
		if j.Corpus, err = p.corpus(ctx); err != nil {
			return err
		}
		if _, err := replay.NewAgentic(j.Corpus, p.opt); err != nil {
			return usage(err)
		}
		j.Replay = p.opt
		point.Name, point.Scenario = fmt.Sprintf("%s_conc%d", p.model, p.conc), spec.AgenticCoding
		point.DurationNs, point.Weir.Seed = p.opt.DurationNs, p.opt.Seed
	}
	for _, v := range p.violations {
		fmt.Fprintf(p.app.Err, "weir: --unsafe-override: %s; submission_valid is false\n", v)
	}
	p.out.Violations = p.violations
	ex := &run.HTTP{Client: p.client, Calibrator: p.calibrator, Prompt: p.body, Words: p.words, Counter: p.counter, Scrape: p.metrics, GPU: p.gpus, ObservedGPUs: record.Unknown}
	if err := ex.Fits(j); err != nil {
		return failure(err)
	}
	if text := ex.Crowded(j); text != "" {
		fmt.Fprintf(p.app.Err, "weir: %s\n", text)
	}
	bundle := filepath.Join(p.out.Dir, "weir-bundle-"+time.Now().UTC().Format("20060102T150405.000"))
	status := newStatus(p.app, "aiperf profile")
	j.Progress = status.show
	if j.Dataset, err = json.Marshal(p.dataset); err != nil {
		return err
	}
	r, err := run.Measure(ctx, ex, j, bundle)
	status.clear()
	if err != nil {
		return failure(err)
	}
	b, err := record.OpenBundle(bundle)
	if err != nil {
		return err
	}
	files, err := aiperf.Export(b, r, p.out)
	if err != nil {
		return fmt.Errorf("%w; not all of AIPerf's files are written; the run itself is whole in %s, and 'weir aggregate' reads it from there", err, bundle)
	}
	return p.say(r, bundle, files)
}

// calibrates reads what --calibrate says for the run's duration.
func (p *profile) calibrates() {
	d := p.opt.DurationNs
	if p.load != nil {
		d = p.load.DurationNs
	}
	var err error
	if p.calibrator, err = calibrator(p.text("--calibrate", "auto"), time.Duration(d)); err != nil {
		p.fail("%v", err)
	}
}

// say prints the result. What was overridden by hand alone does not make the command fail.
func (p *profile) say(r *result.Result, bundle string, files aiperf.Files) error {
	only := *r
	only.Reasons = slices.DeleteFunc(slices.Clone(r.Reasons), func(f result.Finding) bool { return f.Code == result.UnsafeOverride })
	only.Valid = len(only.Reasons) == 0
	err := p.app.printPoint(&only, bundle)
	if !p.app.JSON {
		for _, f := range files {
			fmt.Fprintln(p.app.Out, f)
		}
	}
	return err
}
