package web

import (
	"fmt"
	"html/template"
	"math"
	"slices"
	"strings"

	"github.com/weirbench/weir/internal/chart"
	"github.com/weirbench/weir/internal/frontier"
	"github.com/weirbench/weir/internal/result"
)

// multiples draws what stands under the chart, all on one concurrency axis, each width wide.
func (v *groupView) multiples(curves []frontier.Curve, l *look, names []string, o viewOptions, width float64) {
	v.Stacks, v.Lines = nil, nil
	conc := concAxis(curves)
	if len(conc) < 2 {
		return
	}
	x := chart.Axis{Label: "concurrent agents", Log: true, Ticks: conc}
	rules := make([][]chart.Rule, len(curves))
	var all []chart.Rule
	for i := range curves {
		if k, ok := frontier.KneeOf(&curves[i]); ok && k.Within > 0 && k.Beyond > 0 {
			at := math.Sqrt(float64(k.Within) * float64(k.Beyond))
			rules[i] = []chart.Rule{{X: at, Text: "knee"}}
			all = append(all, chart.Rule{X: at})
		}
	}
	for i := range curves {
		if i >= maxSeries {
			break
		}
		if s := stackOf(&curves[i], orName(names[i], &curves[i]), fmt.Sprintf("%s-hits-%d", o.anchor, i), x, rules[i], width); s != "" {
			v.Stacks = append(v.Stacks, template.HTML(s))
		}
	}
	v.tierLegend(curves, len(all) > 0)
	zero, one := 0.0, 1.0
	kv := "kv_device"
	for i := range curves {
		for _, r := range allRuns(&curves[i]) {
			if r.Server.DeviceFilledMean != nil {
				kv = "kv_filled"
			}
		}
	}
	for _, m := range []struct {
		id, axis string
		log      bool
		share    bool
	}{
		{"kv", kv, false, true}, {"kvhost", "kv_host", false, true}, {"ttft", "ttft_p90", true, false}, {"tput", o.y.Name, false, false},
	} {
		a, err := frontier.ByName(m.axis)
		if err != nil {
			continue
		}
		y := axisOf(a)
		y.Log = m.log
		y.Zero = !m.log
		if m.share {
			y.Min, y.Max = &zero, &one
			y.Better = 0
		}
		p := chart.Plot{ID: o.anchor + "-" + m.id, Title: "", Width: width, Height: 222, X: x, Y: y, Small: true, Rules: all}
		p.Desc = a.Label + " against concurrency"
		some := false
		for i := range curves {
			s := lineOf(&curves[i], a, l.of(&curves[i].Series), names[i])
			some = some || len(s.Marks) > 0
			p.Series = append(p.Series, s)
		}
		if some {
			v.Lines = append(v.Lines, template.HTML(p.SVG()))
		}
	}
}

// tierLegend explains the stacks.
func (v *groupView) tierLegend(curves []frontier.Curve, knee bool) {
	if len(v.Stacks) == 0 {
		return
	}
	var host, storage, lru bool
	for i := range curves {
		for _, r := range allRuns(&curves[i]) {
			host = host || r.Hits.Host != nil && *r.Hits.Host > 0
			storage = storage || r.Hits.Storage != nil && *r.Hits.Storage > 0
			lru = lru || r.Hits.LRUDevice != nil || r.Hits.LRUHost != nil
		}
	}
	keys := []chart.Key{{Text: "found in HBM", Kind: chart.KeyTier, Tier: "device"}}
	if host {
		keys = append(keys, chart.Key{Text: "found in host DRAM", Kind: chart.KeyTier, Tier: "host"})
	}
	if storage {
		keys = append(keys, chart.Key{Text: "found in storage", Kind: chart.KeyTier, Tier: "storage"})
	}
	keys = append(keys, chart.Key{Text: "ceiling: an infinite cache", Kind: chart.KeyCeiling})
	if lru {
		keys = append(keys, chart.Key{Text: "a plain LRU of this size", Kind: chart.KeyLRU})
	}
	if knee {
		keys = append(keys, chart.Key{Text: fmt.Sprintf("knee: hits fall under %.0f %% of the ceiling", 100*frontier.KneeShare), Kind: chart.KeyRule})
	}
	v.Tiers = template.HTML(chart.Legend(v.Anchor+"-tiers", "Legend of the hit rates", 860, keys))
}

// concAxis is the measured concurrencies, thinned to at most eleven ticks.
func concAxis(curves []frontier.Curve) []float64 {
	var out []float64
	for _, c := range curves {
		for _, r := range allRuns(&c) {
			if n := float64(r.Point.Conc); n > 0 && !slices.Contains(out, n) {
				out = append(out, n)
			}
		}
	}
	slices.Sort(out)
	return out
}

// allRuns are the runs of a curve in order of concurrency, placed or not. Open loads have none.
func allRuns(c *frontier.Curve) []*result.Result {
	var out []*result.Result
	for _, p := range c.Points {
		out = append(out, p.Runs...)
	}
	for _, m := range c.Missing {
		out = append(out, m.Runs...)
	}
	out = slices.DeleteFunc(out, func(r *result.Result) bool { return r.Point.Conc == 0 })
	slices.SortStableFunc(out, func(a, b *result.Result) int { return a.Point.Conc - b.Point.Conc })
	return out
}

func lineOf(c *frontier.Curve, a *frontier.Axis, enc chart.Encoding, name string) chart.Series {
	s := chart.Series{Name: name, Enc: enc}
	last := -1
	for _, r := range allRuns(c) {
		conc := float64(r.Point.Conc)
		val, why, ok := a.Value(r)
		tip := []string{fmt.Sprintf("%s, %s", r.Point.Agents(), c.Series.Name())}
		if !ok && !strings.HasPrefix(why, "withheld") {
			continue // there is no such pool, or the server does not speak of it
		}
		if !ok {
			s.Missing = append(s.Missing, chart.Missing{X: conc, ID: r.ID, Note: "", Tip: append(tip, a.Label+" "+why)})
			continue
		}
		m := chart.Mark{X: conc, Y: val, ID: r.ID, Tip: append(tip, a.Label+" "+number(a, val, 3))}
		if !r.Valid {
			m.State = chart.Invalid
			for _, f := range r.Reasons {
				m.Tip = append(m.Tip, "invalid: "+f.Text)
			}
		} else if r.Point.Conc != last {
			s.Line = append(s.Line, len(s.Marks))
			last = r.Point.Conc
		}
		s.Marks = append(s.Marks, m)
	}
	return s
}

// stackOf draws the hit rate of one curve by tier.
func stackOf(c *frontier.Curve, name, id string, x chart.Axis, rules []chart.Rule, width float64) string {
	zero, one := 0.0, 1.0
	s := chart.Stack{
		ID: id, Title: "Prefix hit rate by tier: " + name, Width: width, Height: 222,
		X: x, Y: chart.Axis{Label: "share of prompt tokens", Percent: true, Better: 1, Min: &zero, Max: &one},
		Rules: rules,
	}
	var dev, host, stor []float64
	nan := func(p *float64) float64 {
		if p == nil {
			return math.NaN()
		}
		return *p
	}
	some, storage := false, false
	last := -1
	for _, r := range allRuns(c) {
		if r.Point.Conc == last {
			continue
		}
		last = r.Point.Conc
		h := r.Hits
		s.At = append(s.At, float64(r.Point.Conc))
		d, ho, st := nan(h.Device), nan(h.Host), nan(h.Storage)
		if h.Device == nil { // the split is unknown
			d = nan(h.Total)
		}
		dev, host, stor = append(dev, d), append(host, ho), append(stor, st)
		s.Ceiling = append(s.Ceiling, nan(h.Ceiling))
		lru := h.LRUDevice
		if c.Series.Offloaded() {
			lru = h.LRUHost
		}
		s.LRU = append(s.LRU, nan(lru))
		some = some || h.Total != nil
		storage = storage || h.Storage != nil && *h.Storage > 0
		t := []string{fmt.Sprintf("%s, %s", r.Point.Agents(), c.Series.Name()), "hit rate " + percent(h.Total)}
		if h.Device != nil {
			t = append(t, "HBM "+percent(h.Device)+", host "+percent(h.Host)+", storage "+percent(h.Storage))
		}
		t = append(t, "infinite cache "+percent(h.Ceiling))
		if lru != nil {
			t = append(t, "plain LRU of this size "+percent(lru))
		}
		s.Points = append(s.Points, chart.Missing{ID: r.ID, Tip: t})
	}
	if !some {
		return ""
	}
	s.Layers = []chart.Layer{{Name: "HBM", Class: "device", Values: dev}, {Name: "host DRAM", Class: "host", Hatch: true, Values: host}}
	if storage {
		s.Layers = append(s.Layers, chart.Layer{Name: "storage", Class: "storage", Values: stor})
	}
	s.Desc = "Share of prompt tokens found in each tier against concurrency, with the ceiling of an infinite cache as a line"
	return s.SVG()
}
