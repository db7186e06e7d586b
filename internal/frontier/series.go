package frontier

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/weirbench/weir/internal/facts"
	"github.com/weirbench/weir/internal/result"
	"github.com/weirbench/weir/internal/spec"
)

// A Group is what may be compared with each other: one model under one load.
type Group struct {
	Model    string `json:"model"`
	Scenario string `json:"scenario"`
	Corpus   string `json:"corpus"` // fingerprint
}

// GroupOf names the comparison group of a result.
func GroupOf(r *result.Result) Group {
	return Group{Model: ModelName(&r.Point), Scenario: string(r.Point.Scenario), Corpus: r.Corpus.Fingerprint}
}

// ModelName is the model without its owner.
func ModelName(p *spec.Point) string {
	if i := strings.LastIndexByte(p.Model, '/'); i >= 0 {
		return p.Model[i+1:]
	}
	return p.Model
}

// Hardware is the GPU of a point: what the facts know for its runner, else the first word of the
// runner's name ("cluster:b200-dgxc" runs on b200).
func Hardware(p *spec.Point) string {
	if g, err := facts.GPUForRunner(p.Runner); err == nil {
		return g.Name
	}
	name := p.Runner
	if _, rest, ok := strings.Cut(name, ":"); ok {
		name = rest
	}
	name, _, _ = strings.Cut(name, "-")
	return name
}

// A Series is one curve: everything that identifies a point but its concurrency.
type Series struct {
	Hardware  string `json:"hardware"`
	Engine    string `json:"engine"`
	Precision string `json:"precision"`
	Topology  string `json:"topology"` // "TP8", "2xTP4+1xDEP32"
	GPUs      int64  `json:"gpus"`
	Offload   string `json:"offload"` // "none", or mode and backend
	Spec      string `json:"spec_decoding"`
	Image     string `json:"image"`
	// Variant lists what else was set, parted by "; ": KV type, page size, router, context
	// length, and, beginning with "host ", size and policy of the host pool.
	Variant   string `json:"variant"`
	Simulated bool   `json:"simulated"`
	// Kind is result.Result.Kind: "measured", "simulated" or "simulated at 20 times its own time".
	Kind string `json:"kind"`
	// Run tells runs apart that are compared with each other, such as sweeps; empty otherwise.
	Run string `json:"run,omitempty"`
}

// SeriesOf names the series of a result.
func SeriesOf(r *result.Result) Series {
	p := &r.Point
	off := p.Offload.Mode
	if off == "" {
		off = "none"
	}
	if off != "none" && p.Offload.Backend.Name != "" {
		off += " (" + p.Offload.Backend.Name + ")"
	}
	sp := p.SpecDecoding
	if sp == "" {
		sp = "none"
	}
	return Series{Hardware: Hardware(p), Engine: p.Framework, Precision: p.Precision, Topology: Topology(p),
		GPUs: r.GPUs.Used, Offload: off, Spec: sp, Image: p.Image, Variant: variant(p), Simulated: r.Simulated, Kind: r.Kind()}
}

// variant lists the settings of a point that nothing else of its series shows.
func variant(p *spec.Point) string {
	var parts []string
	add := func(ok bool, format string, a ...any) {
		if ok {
			parts = append(parts, fmt.Sprintf(format, a...))
		}
	}
	w := &p.Weir
	add(w.KVDType != "", "KV %s", w.KVDType)
	add(w.PageSize != 0, "page %d", w.PageSize)
	add(w.MemFractionPPM != 0, "memory fraction %s", Significant(float64(w.MemFractionPPM)/1e6, 3))
	add(w.HostRatioPPM != 0, "host ratio %s", Significant(float64(w.HostRatioPPM)/1e6, 3))
	add(w.HostBytesPerRank != 0, "host %s GB a rank", Significant(float64(w.HostBytesPerRank)/1e9, 4))
	add(w.WritePolicy != "", "host %s", w.WritePolicy)
	add(p.Router.Name != "", "router %s %s", p.Router.Name, p.Router.Version)
	add(p.KVTransfer != "", "transfer %s", p.KVTransfer)
	add(p.MaxModelLen != 0, "context %d", p.MaxModelLen)
	add(p.ISL != 0 || p.OSL != 0, "%d/%d tokens", p.ISL, p.OSL)
	add(w.Recipe != "", "recipe %s", w.Recipe)
	return strings.Join(parts, "; ")
}

// Offloaded tells whether the series keeps KV outside the device.
func (s *Series) Offloaded() bool { return s.Offload != "none" && s.Offload != "" }

// Topology is the short form of how a point is spread over GPUs.
func Topology(p *spec.Point) string {
	if p.Unified != nil {
		return parallel(p.Unified)
	}
	var parts []string
	for _, w := range []*spec.Worker{p.Prefill, p.Decode} {
		if w != nil && w.Workers > 0 {
			parts = append(parts, fmt.Sprintf("%dx%s", w.Workers, parallel(&w.Parallel)))
		}
	}
	return strings.Join(parts, "+")
}

func parallel(p *spec.Parallel) string {
	s := ""
	switch {
	case p.EP > 1 && p.EP == p.TP && p.DPAttn:
		s = fmt.Sprintf("DEP%d", p.EP)
	case p.EP > 1 && p.EP == p.TP:
		s = fmt.Sprintf("TEP%d", p.EP)
	case p.DPAttn:
		s = fmt.Sprintf("DPA-TP%d", p.TP)
	default:
		s = fmt.Sprintf("TP%d", p.TP)
	}
	if p.EP > 1 && p.EP != p.TP {
		s += fmt.Sprintf("-EP%d", p.EP)
	}
	if p.PP > 1 {
		s += fmt.Sprintf("-PP%d", p.PP)
	}
	if p.PCP > 1 {
		s += fmt.Sprintf("-PCP%d", p.PCP)
	}
	if p.DCP > 1 {
		s += fmt.Sprintf("-DCP%d", p.DCP)
	}
	return s
}

// A Point is one point of a curve: the repeats of one configuration at one concurrency.
type Point struct {
	Conc    int
	X, Y    Estimate
	On      bool // on the frontier of its curve
	Runs    []*result.Result
	Invalid bool // every run is invalid; then X and Y are of the invalid runs
}

// Missing is a point that cannot be placed on the axes, with the reason.
type Missing struct {
	Conc int
	Runs []*result.Result
	Why  string
}

// A Curve is the points of one series in order of concurrency.
type Curve struct {
	Series  Series
	Points  []Point
	Missing []Missing
}

// XY lists the points that are on the frontier, in order of rising X.
func (c *Curve) Frontier() []XY {
	var out []XY
	for _, p := range c.Points {
		if p.On {
			out = append(out, XY{p.X.Value, p.Y.Value})
		}
	}
	slices.SortFunc(out, func(a, b XY) int { return cmp.Or(cmp.Compare(a.X, b.X), cmp.Compare(a.Y, b.Y)) })
	return out
}

// Groups sorts results into comparison groups, in order of model, scenario and corpus.
func Groups(rs []*result.Result) (groups []Group, of map[Group][]*result.Result) {
	of = map[Group][]*result.Result{}
	for _, r := range rs {
		g := GroupOf(r)
		if _, ok := of[g]; !ok {
			groups = append(groups, g)
		}
		of[g] = append(of[g], r)
	}
	slices.SortFunc(groups, func(a, b Group) int {
		return cmp.Or(cmp.Compare(a.Model, b.Model), cmp.Compare(a.Scenario, b.Scenario), cmp.Compare(a.Corpus, b.Corpus))
	})
	return groups, of
}

// Curves sorts the results of one group into curves on two axes. Invalid results are kept and
// marked, and never count for the frontier while a valid repeat exists.
func Curves(rs []*result.Result, x, y *Axis) []Curve { return CurvesBy(rs, x, y, nil) }

// CurvesBy is Curves with series split further by a name of each run; nil doesn't split.
func CurvesBy(rs []*result.Result, x, y *Axis, run func(*result.Result) string) []Curve {
	type key struct {
		s Series
		c int
	}
	runs := map[key][]*result.Result{}
	var keys []key
	for _, r := range rs {
		k := key{SeriesOf(r), r.Point.Conc}
		if run != nil {
			k.s.Run = run(r)
		}
		if _, ok := runs[k]; !ok {
			keys = append(keys, k)
		}
		runs[k] = append(runs[k], r)
	}
	slices.SortFunc(keys, func(a, b key) int { return cmp.Or(compareSeries(a.s, b.s), cmp.Compare(a.c, b.c)) })
	var out []Curve
	for _, k := range keys {
		if len(out) == 0 || out[len(out)-1].Series != k.s {
			out = append(out, Curve{Series: k.s})
		}
		c := &out[len(out)-1]
		all := runs[k]
		slices.SortFunc(all, func(a, b *result.Result) int {
			return cmp.Or(cmp.Compare(a.MeasuredAt, b.MeasuredAt), cmp.Compare(a.Repeat, b.Repeat), cmp.Compare(a.Seed, b.Seed), cmp.Compare(a.ID, b.ID))
		})
		valid := slices.DeleteFunc(slices.Clone(all), func(r *result.Result) bool { return !r.Valid })
		p := Point{Conc: k.c, Runs: valid}
		if len(valid) == 0 {
			p.Runs, p.Invalid = all, true
		}
		var why string
		var okX, okY bool
		if p.X, why, okX = estimate(p.Runs, x); !okX {
			c.Missing = append(c.Missing, Missing{k.c, all, x.Label + " " + why})
			continue
		}
		if p.Y, why, okY = estimate(p.Runs, y); !okY {
			c.Missing = append(c.Missing, Missing{k.c, all, y.Label + " " + why})
			continue
		}
		c.Points = append(c.Points, p)
	}
	for i := range out {
		mark(&out[i], x, y)
	}
	return out
}

func mark(c *Curve, x, y *Axis) {
	var at []int
	var pts []XY
	for i, p := range c.Points {
		if !p.Invalid {
			at = append(at, i)
			pts = append(pts, XY{p.X.Value, p.Y.Value})
		}
	}
	for _, k := range Pareto(pts, x.Better, y.Better) {
		c.Points[at[k]].On = true
	}
}

// Order sorts results for a list: by model, series, concurrency and time.
func Order(a, b *result.Result) int {
	return cmp.Or(cmp.Compare(ModelName(&a.Point), ModelName(&b.Point)), compareSeries(SeriesOf(a), SeriesOf(b)),
		cmp.Compare(a.Point.Conc, b.Point.Conc), cmp.Compare(a.MeasuredAt, b.MeasuredAt), cmp.Compare(a.Repeat, b.Repeat), cmp.Compare(a.ID, b.ID))
}

func compareSeries(a, b Series) int {
	bit := func(v bool) int {
		if v {
			return 1
		}
		return 0
	}
	return cmp.Or(
		cmp.Compare(a.Hardware, b.Hardware), cmp.Compare(a.Engine, b.Engine), cmp.Compare(a.Precision, b.Precision),
		cmp.Compare(a.Topology, b.Topology), cmp.Compare(a.GPUs, b.GPUs), cmp.Compare(a.Spec, b.Spec),
		cmp.Compare(bit(a.Offloaded()), bit(b.Offloaded())), cmp.Compare(a.Offload, b.Offload),
		cmp.Compare(a.Image, b.Image), cmp.Compare(a.Variant, b.Variant), cmp.Compare(a.Run, b.Run),
		cmp.Compare(bit(a.Simulated), bit(b.Simulated)), cmp.Compare(a.Kind, b.Kind))
}
