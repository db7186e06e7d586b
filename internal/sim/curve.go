package sim

import (
	"context"
	"fmt"
	"slices"

	"github.com/weirbench/weir/internal/corpus"
	"github.com/weirbench/weir/internal/record"
	"github.com/weirbench/weir/internal/replay"
)

// A CurvePoint is what one concurrency gave on a simulated engine. Rates are shares of the
// prompt tokens of profiling requests that succeeded; times are nanoseconds.
type CurvePoint struct {
	Concurrency int     `json:"concurrency"`
	Requests    int     `json:"requests"`
	Failed      int     `json:"failed"` // cut at the end of the window, mostly
	HitRate     float64 `json:"hit_rate"`
	Device      float64 `json:"device_hit_rate"`
	Host        float64 `json:"host_hit_rate"`
	Storage     float64 `json:"storage_hit_rate"`
	Ceiling     float64 `json:"ceiling"` // of an infinite cache
	TTFTP50     float64 `json:"ttft_p50_ns"`
	TTFTP90     float64 `json:"ttft_p90_ns"`
	ITLP50      float64 `json:"itl_p50_ns"`
	PerGPU      float64 `json:"tokens_per_gpu_s"` // prompt and output tokens
	Retracted   int64   `json:"retracted"`
	SimulatedNs int64   `json:"simulated_ns"` // virtual time, warm-up included
}

// Near tells whether the hit rate is within 5 % of the ceiling; without a request it is not.
func (p *CurvePoint) Near() bool { return p.Requests > 0 && p.HitRate >= 0.95*p.Ceiling }

// Knee is the highest concurrency up to which every point is near its ceiling, 0 when the
// first is not.
func Knee(points []CurvePoint) (conc int) {
	for i := range points {
		if !points[i].Near() {
			break
		}
		conc = points[i].Concurrency
	}
	return conc
}

// Curve replays a corpus on a simulated engine at one concurrency after another, in virtual
// time, each on a fresh engine.
func Curve(ctx context.Context, c Config, traces *corpus.Corpus, o replay.Options, concs []int) ([]CurvePoint, error) {
	concs = slices.Clone(concs)
	slices.Sort(concs)
	var out []CurvePoint
	for _, conc := range slices.Compact(concs) {
		e, err := New(c)
		if err != nil {
			return nil, err
		}
		o.Lanes = conc
		s, err := replay.NewAgentic(traces, o)
		if err != nil {
			return nil, err
		}
		p := CurvePoint{Concurrency: conc}
		var rs []*record.Request
		var in, device, host, storage, ceiling int64
		err = replay.RunVirtual(ctx, s, e, func(r *record.Request) {
			p.SimulatedNs = max(p.SimulatedNs, r.Times.End)
			if r.Phase != record.Profiling {
				return
			}
			if !r.OK() {
				p.Failed++
				return
			}
			rs = append(rs, r)
			in += r.PromptTokens
			device += r.Hits.Device
			host += r.Hits.Host
			storage += r.Hits.Storage
			ceiling += r.CeilingTokens
		})
		if err != nil {
			return nil, fmt.Errorf("concurrency %d: %w", conc, err)
		}
		m := measure(rs)
		p.Requests, p.TTFTP50, p.TTFTP90, p.ITLP50 = m.Requests, m.TTFTP50, m.TTFTP90, m.ITLP50
		p.PerGPU = m.Throughput / float64(max(1, c.Parallel.TP))
		if in > 0 {
			p.Device, p.Host, p.Ceiling = float64(device)/float64(in), float64(host)/float64(in), float64(ceiling)/float64(in)
			p.Storage = float64(storage) / float64(in)
			p.HitRate = p.Device + p.Host + p.Storage
		}
		for _, n := range e.core.Stats() {
			p.Retracted += n.Retracted
		}
		out = append(out, p)
	}
	return out, nil
}
