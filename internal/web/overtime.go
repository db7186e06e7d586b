package web

import (
	"html/template"
	"maps"
	"math"
	"slices"

	"github.com/weirbench/weir/internal/chart"
	"github.com/weirbench/weir/internal/record"
	"github.com/weirbench/weir/internal/result"
	"github.com/weirbench/weir/internal/scrape/gpu"
)

// bins is how many intervals a run's time axis is cut into.
const bins = 60

// overTime draws what happened in the course of a run: where prompt tokens were found, how full
// the pools were, how many requests were in the server, and every time to first token. Zero is
// the start of profiling.
func overTime(m *record.Meta, reqs []*record.Request, samples []*record.Sample) []template.HTML {
	from, to := span(m.Window, reqs)
	if to <= from {
		return nil
	}
	t := &course{meta: m, from: from, to: to}
	var out []template.HTML
	for _, svg := range []string{t.sources(reqs), t.pools(samples), t.queues(reqs, samples), t.power(samples), t.ttft(reqs)} {
		if svg != "" {
			out = append(out, template.HTML(svg))
		}
	}
	return out
}

// span is the time from the first request to the last end, warm-up included.
func span(w record.Window, reqs []*record.Request) (from, to int64) {
	from, to = w.StartNs, w.EndNs
	for _, q := range reqs {
		if q.Phase == record.Calibrate {
			continue
		}
		from = min(from, begun(q))
		to = max(to, q.Times.End)
	}
	return from, to
}

// course is the time axis of one run.
type course struct {
	meta     *record.Meta
	from, to int64
}

func (t *course) x() chart.Axis {
	lo, hi := t.seconds(t.from), t.seconds(t.to)
	return chart.Axis{Label: "time since profiling began", Unit: "s", Min: &lo, Max: &hi, Tight: true}
}

func (t *course) seconds(at int64) float64 { return float64(at-t.meta.Window.StartNs) / 1e9 }

func (t *course) bin(at int64) int {
	return min(bins-1, max(0, int(float64(at-t.from)/float64(t.to-t.from)*bins)))
}

func (t *course) centre(bin int) float64 {
	return t.seconds(t.from + int64((float64(bin)+.5)/bins*float64(t.to-t.from)))
}

func (t *course) rules() []chart.Rule {
	if w := t.meta.Window; w.StartNs > t.from {
		return []chart.Rule{{X: 0, Text: "profiling"}}
	}
	return nil
}

// sources stacks prompt tokens per second by where they were found, at the instant of the
// request's first token.
func (t *course) sources(reqs []*record.Request) string {
	var sums [4][bins]float64
	some := false
	for _, q := range reqs {
		if !q.OK() || q.Hits.Device < 0 || q.PromptTokens < 0 || q.Times.FirstToken == record.Never {
			continue
		}
		some = true
		b := t.bin(q.Times.FirstToken)
		parts := [4]int64{q.Hits.Device, max(q.Hits.Host, 0), max(q.Hits.Storage, 0), 0}
		parts[3] = max(0, q.PromptTokens-parts[0]-parts[1]-parts[2])
		for i, v := range parts {
			sums[i][b] += float64(v)
		}
	}
	if !some {
		return ""
	}
	width := float64(t.to-t.from) / 1e9 / bins
	s := chart.Stack{ID: "sources", Title: "Prompt tokens by source", Desc: "Prompt tokens per second by the tier in which they were found, over time",
		Width: 640, Height: 230, X: t.x(), Y: chart.Axis{Label: "prompt tokens", Unit: "tok/s", Zero: true}, Rules: t.rules()}
	for b := range bins {
		s.At = append(s.At, t.centre(b))
	}
	for i, l := range []chart.Layer{{Name: "HBM", Class: "device"}, {Name: "host DRAM", Class: "host", Hatch: true}, {Name: "storage", Class: "storage"}, {Name: "computed", Class: "none"}} {
		total := 0.0
		for b := range bins {
			l.Values = append(l.Values, sums[i][b]/width)
			total += sums[i][b]
		}
		if total > 0 {
			s.Layers = append(s.Layers, l)
		}
	}
	return s.SVG()
}

// pools draws how full the pools were, as the server's metrics said.
func (t *course) pools(samples []*record.Sample) string {
	zero, one := 0.0, 1.0
	p := chart.Plot{ID: "pools", Title: "KV pools in use", Desc: "Share of the device and host KV pool in use over time", Width: 640, Height: 230, Small: true, NameSeries: true,
		X: t.x(), Y: chart.Axis{Label: "share of the pool", Percent: true, Min: &zero, Max: &one}, Rules: t.rules()}
	p.Series = []chart.Series{
		t.gauge("HBM, held by requests", chart.Encoding{Hue: 0}, samples, func(g result.Gauges) *float64 { return g.DeviceKV }),
		t.gauge("HBM, filled", chart.Encoding{Hue: 2, Dash: chart.Short}, samples, func(g result.Gauges) *float64 { return g.DeviceFilled }),
		t.gauge("host DRAM", chart.Encoding{Hue: 4, Dash: chart.Long}, samples, func(g result.Gauges) *float64 { return g.HostKV }),
	}
	return some(&p)
}

// queues draws requests in flight as the client saw them, and running and queued ones as the
// server's metrics said.
func (t *course) queues(reqs []*record.Request, samples []*record.Sample) string {
	p := chart.Plot{ID: "queues", Title: "Requests in the server", Desc: "Requests in flight, running and queued over time", Width: 640, Height: 230, Small: true, NameSeries: true,
		X: t.x(), Y: chart.Axis{Label: "requests, mean per interval", Zero: true}, Rules: t.rules()}
	flight := chart.Series{Name: "in flight", Enc: chart.Encoding{Hue: 0}, Bare: true}
	var busy [bins]float64
	width := float64(t.to-t.from) / bins
	for _, q := range reqs {
		if q.Times.Sent == record.Never || q.Phase == record.Calibrate {
			continue
		}
		for b := t.bin(q.Times.Sent); b <= t.bin(q.Times.End); b++ {
			lo := math.Max(float64(q.Times.Sent-t.from), float64(b)*width)
			hi := math.Min(float64(q.Times.End-t.from), float64(b+1)*width)
			busy[b] += math.Max(0, hi-lo) / width
		}
	}
	for b := range bins {
		flight.Marks = append(flight.Marks, chart.Mark{X: t.centre(b), Y: busy[b]})
	}
	p.Series = []chart.Series{
		flight,
		t.gauge("queued", chart.Encoding{Hue: 1, Dash: chart.Long}, samples, func(g result.Gauges) *float64 { return g.Queued }),
		t.gauge("running", chart.Encoding{Hue: 2, Dash: chart.Short}, samples, func(g result.Gauges) *float64 { return g.Running }),
	}
	return some(&p)
}

// power draws what the GPUs drew together, a line for each command or exporter that was read.
func (t *course) power(samples []*record.Sample) string {
	p := chart.Plot{ID: "power", Title: "Power of the GPUs", Desc: "Power that all GPUs drew together over time", Width: 640, Height: 230, Small: true, NameSeries: true,
		X: t.x(), Y: chart.Axis{Label: "power, mean per interval", Unit: "W", Zero: true}, Rules: t.rules()}
	by := map[string][]*record.Sample{}
	for _, s := range samples {
		if _, ok := gpu.Watts(s); ok {
			by[s.Source] = append(by[s.Source], s)
		}
	}
	for i, name := range slices.Sorted(maps.Keys(by)) {
		p.Series = append(p.Series, t.gauge(name, chart.Encoding{Hue: i}, by[name], func(g result.Gauges) *float64 { return g.Watts }))
	}
	return some(&p)
}

// ttft draws every time to first token as a dot at the instant of sending.
func (t *course) ttft(reqs []*record.Request) string {
	p := chart.Plot{ID: "ttfts", Title: "Time to first token, every request", Desc: "Time to first token of every request over time", Width: 640, Height: 230, Small: true,
		X: t.x(), Y: chart.Axis{Label: "TTFT", Unit: "s", Log: true, Better: -1}, Rules: t.rules()}
	s := chart.Series{Dots: true}
	for _, q := range reqs {
		if q.OK() && q.Phase != record.Calibrate && q.Times.FirstToken > q.Times.Sent {
			s.Marks = append(s.Marks, chart.Mark{X: t.seconds(q.Times.Sent), Y: float64(q.Times.FirstToken-q.Times.Sent) / 1e9})
		}
	}
	p.Series = []chart.Series{s}
	return some(&p)
}

func some(p *chart.Plot) string {
	for _, s := range p.Series {
		if len(s.Marks) > 0 {
			return p.SVG()
		}
	}
	return ""
}

// gauge is one gauge over time, as mean of the samples in each interval.
func (t *course) gauge(name string, enc chart.Encoding, samples []*record.Sample, get func(result.Gauges) *float64) chart.Series {
	s := chart.Series{Name: name, Enc: enc, Bare: true}
	var sum [bins]float64
	var n [bins]int
	for _, smp := range samples {
		if smp.At < t.from || smp.At > t.to {
			continue
		}
		if v := get(result.ReadGauges(smp)); v != nil {
			sum[t.bin(smp.At)] += *v
			n[t.bin(smp.At)]++
		}
	}
	gap := false
	for b := range bins {
		if n[b] == 0 {
			gap = true
			continue
		}
		s.Marks = append(s.Marks, chart.Mark{X: t.centre(b), Y: sum[b] / float64(n[b]), Gap: gap && len(s.Marks) > 0})
		gap = false
	}
	return s
}
