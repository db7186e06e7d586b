package frontier

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/weirbench/weir/internal/result"
)

// A Delta compares one number of two sides at one concurrency.
//
// For a number with a unit, Change is B/A and its interval comes from logarithms; for a share it
// is B-A. The interval is at 95 % and is made from the best that is there: pairs of repeats with
// equal seeds (Student's t over the differences), else independent repeats (Welch), else, of
// single runs, their records trace by trace (result.Pair), else their intervals from within.
// How says which; the last two know nothing of what differs between two runs.
type Delta struct {
	Conc    int      `json:"conc"`
	Series  string   `json:"series"`
	Axis    string   `json:"axis"`
	A       Estimate `json:"a"`
	B       Estimate `json:"b"`
	Ratio   bool     `json:"ratio"` // Change is B/A; else it is B-A
	Change  float64  `json:"change"`
	Low     *float64 `json:"low"`
	High    *float64 `json:"high"`
	How     How      `json:"how"`
	Verdict Verdict  `json:"verdict"`
	Detect  *float64 `json:"detectable"` // relative or absolute change that this many runs show with 80 % power
}

// Shown is the change between the two values that stand beside it: B/A, or B-A of shares. It is
// not quite Change where that comes from what both sides have in common.
func (d *Delta) Shown() float64 {
	if d.Ratio {
		return d.B.Value / d.A.Value
	}
	return d.B.Value - d.A.Value
}

// ChangeText writes a change: a ratio in percent of change, or as a factor from two on, or a
// difference of shares in points. factor is the format of a factor.
func (d *Delta) ChangeText(v float64, points, factor string) string {
	switch {
	case !d.Ratio:
		return Signed(100*v) + " " + points
	case v >= 2 || v <= .5:
		return fmt.Sprintf(factor, Three(v))
	}
	return Signed(100*(v-1)) + " %"
}

// IntervalText writes the interval of a change, and what it lies around where that is another
// change than the shown one. Without an interval it is empty.
func (d *Delta) IntervalText(text func(float64) string) string {
	if d.Low == nil || d.High == nil {
		return ""
	}
	s := text(*d.Low) + " to " + text(*d.High)
	if mid := text(d.Change); mid != text(d.Shown()) {
		s += " around " + mid
	}
	return s
}

// How says what an interval of a Delta was made from.
type How string

const (
	Paired    How = "paired"     // repeats with equal seeds
	Unpaired  How = "unpaired"   // repeats
	Traces    How = "traces"     // single runs of one schedule, trace by trace
	WithinRun How = "within-run" // single runs
	NoHow     How = "none"
)

// Verdict says what a Delta shows.
type Verdict string

const (
	Better    Verdict = "better" // B is better than A
	Worse     Verdict = "worse"
	Same      Verdict = "no difference shown"
	Identical Verdict = "identical"
	Unclear   Verdict = "unclear" // there is no interval
)

// A Reaching compares what two frontiers reach at one value of x.
type Reaching struct {
	X     float64  `json:"x"`
	A     *float64 `json:"a"` // nil when A does not get there
	B     *float64 `json:"b"`
	Ratio *float64 `json:"ratio"`
}

// A Comparison is what differs between two sets of results.
type Comparison struct {
	Deltas  []Delta    `json:"deltas"`
	Reach   []Reaching `json:"reach"`
	AreaA   float64    `json:"area_a"` // under the frontier read as a step function, from zero
	AreaB   float64    `json:"area_b"`
	OnlyA   []string   `json:"only_a"` // points without a partner
	OnlyB   []string   `json:"only_b"`
	Invalid int        `json:"invalid"` // runs that were left out because they are not valid
	// Warnings say what else differs between the sides, so that a change may not be what it seems.
	Warnings []string `json:"warnings"`
	// KindA and KindB are the kinds of the runs of a side (result.Result.Kind), sorted, those of
	// runs that are not valid too.
	KindA []string `json:"kind_a"`
	KindB []string `json:"kind_b"`
}

// reachTiers are the interactivities that frontiers are compared at, tokens/s/user.
var reachTiers = []float64{5, 10, 20, 30, 50, 75, 100}

// A Pairer compares the records of two runs; nil when it can't.
type Pairer func(a, b *result.Result) *result.Paired

// Compare compares two sets of results on the given axes. Points are matched by series and
// concurrency; when each side has one series, by concurrency alone.
func Compare(a, b []*result.Result, axes []*Axis, pair Pairer) Comparison {
	c := newComparison(a, b)
	sideA, oneA := side(a, &c.Invalid)
	sideB, oneB := side(b, &c.Invalid)
	if oneA && oneB { // match by concurrency alone
		sideA, sideB = anonymous(sideA), anonymous(sideB)
	}
	for _, k := range sortedPoints(sideA) {
		if _, ok := sideB[k]; !ok {
			c.OnlyA = append(c.OnlyA, k.String())
			continue
		}
		paired := pairSingle(sideA[k], sideB[k], pair)
		for _, axis := range axes {
			if d, ok := delta(sideA[k], sideB[k], axis, paired); ok {
				d.Conc, d.Series = k.conc, k.series
				c.Deltas = append(c.Deltas, d)
			}
		}
	}
	for _, k := range sortedPoints(sideB) {
		if _, ok := sideA[k]; !ok {
			c.OnlyB = append(c.OnlyB, k.String())
		}
	}
	c.frontiers(a, b)
	return c
}

func newComparison(a, b []*result.Result) Comparison {
	c := Comparison{Deltas: []Delta{}, Reach: []Reaching{}, OnlyA: []string{}, OnlyB: []string{}, Warnings: otherwise(a, b)}
	c.KindA, c.KindB = append([]string{}, distinct(a, (*result.Result).Kind)...), append([]string{}, distinct(b, (*result.Result).Kind)...)
	return c
}

// CompareRuns compares two sets of runs as they are, each set as the repeats of one thing,
// whatever their series and concurrency.
func CompareRuns(a, b []*result.Result, axes []*Axis, pair Pairer) Comparison {
	c := newComparison(a, b)
	keep := func(rs []*result.Result) []*result.Result {
		var out []*result.Result
		for _, r := range rs {
			if r.Valid {
				out = append(out, r)
			} else {
				c.Invalid++
			}
		}
		return out
	}
	a, b = keep(a), keep(b)
	if len(a) == 0 || len(b) == 0 {
		return c
	}
	paired := pairSingle(a, b, pair)
	for _, axis := range axes {
		if d, ok := delta(a, b, axis, paired); ok {
			d.Conc = a[0].Point.Conc
			c.Deltas = append(c.Deltas, d)
		}
	}
	return c
}

// otherwise lists in what, beside what is compared, the sides differ or are mixed.
func otherwise(a, b []*result.Result) []string {
	out := []string{}
	for _, f := range []struct {
		what string
		of   func(*result.Result) string
		mix  bool // several values on one side are worth a word
	}{
		{"model", func(r *result.Result) string { return ModelName(&r.Point) }, false},
		{"corpus", func(r *result.Result) string { return r.Corpus.Fingerprint }, true},
		{"replay semantics", func(r *result.Result) string { return r.Semantics }, true},
		{"definitions", func(r *result.Result) string { return r.Definitions }, true},
		{"image", func(r *result.Result) string { return r.Point.Image }, true},
		{"kind", (*result.Result).Kind, true},
	} {
		va, vb := distinct(a, f.of), distinct(b, f.of)
		switch {
		case f.mix && len(va) > 1:
			out = append(out, fmt.Sprintf("A mixes %d of %s: %s", len(va), f.what, strings.Join(va, ", ")))
		case f.mix && len(vb) > 1:
			out = append(out, fmt.Sprintf("B mixes %d of %s: %s", len(vb), f.what, strings.Join(vb, ", ")))
		case !slices.Equal(va, vb) && len(va) > 0 && len(vb) > 0:
			out = append(out, fmt.Sprintf("%s differs: %s against %s", f.what, strings.Join(va, ", "), strings.Join(vb, ", ")))
		}
	}
	return out
}

func distinct(rs []*result.Result, of func(*result.Result) string) []string {
	var out []string
	for _, r := range rs {
		if v := of(r); !slices.Contains(out, v) {
			out = append(out, v)
		}
	}
	slices.Sort(out)
	return out
}

type point struct {
	series string
	conc   int
}

func (p point) String() string {
	if p.series == "" {
		return fmt.Sprintf("concurrency %d", p.conc)
	}
	return fmt.Sprintf("%s, concurrency %d", p.series, p.conc)
}

func sortedPoints(m map[point][]*result.Result) []point {
	var out []point
	for k := range m {
		out = append(out, k)
	}
	slices.SortFunc(out, func(a, b point) int { return cmp.Or(cmp.Compare(a.series, b.series), cmp.Compare(a.conc, b.conc)) })
	return out
}

// side groups valid runs by point and tells whether all are of one series.
func side(rs []*result.Result, invalid *int) (map[point][]*result.Result, bool) {
	out := map[point][]*result.Result{}
	names := map[Series]bool{}
	for _, r := range rs {
		if !r.Valid {
			*invalid++
			continue
		}
		s := SeriesOf(r)
		names[s] = true
		s.Image = "" // what is compared is often the image
		k := point{ModelName(&r.Point) + " on " + s.Name(), r.Point.Conc}
		out[k] = append(out[k], r)
	}
	return out, len(names) == 1
}

func anonymous(m map[point][]*result.Result) map[point][]*result.Result {
	out := map[point][]*result.Result{}
	for k, v := range m {
		out[point{conc: k.conc}] = append(out[point{conc: k.conc}], v...)
	}
	return out
}

// pairSingle pairs two single runs.
func pairSingle(a, b []*result.Result, pair Pairer) *result.Paired {
	if pair == nil || len(a) != 1 || len(b) != 1 {
		return nil
	}
	return pair(a[0], b[0])
}

// delta compares two sets of runs of one point.
func delta(a, b []*result.Result, axis *Axis, traces *result.Paired) (Delta, bool) {
	ea, _, okA := estimate(a, axis)
	eb, _, okB := estimate(b, axis)
	if !okA || !okB {
		return Delta{}, false
	}
	d := Delta{Axis: axis.Name, A: ea, B: eb, Ratio: !axis.Share, How: NoHow, Verdict: Unclear}
	scale := func(v float64) float64 { return v }
	if d.Ratio {
		if ea.Value <= 0 || eb.Value <= 0 {
			return Delta{}, false
		}
		scale = math.Log
	}
	if traces != nil && axis.pair != nil {
		if c := axis.pair(traces); c != nil {
			d.How, d.Change, d.Low, d.High = Traces, c.Value, &c.Interval[0], &c.Interval[1]
			d.Verdict = verdictOf(scale(c.Value), scale(c.Interval[0]), scale(c.Interval[1]), axis)
			return d, true
		}
	}
	mid, half, se, how := difference(a, b, axis, scale, ea, eb)
	d.How = how
	back := func(v float64) float64 {
		if d.Ratio {
			return math.Exp(v)
		}
		return v
	}
	d.Change = back(mid)
	if how == NoHow {
		return d, true
	}
	low, high := back(mid-half), back(mid+half)
	d.Low, d.High = &low, &high
	if how != WithinRun {
		detect := back(2.8*se) - back(0)
		d.Detect = &detect
	}
	d.Verdict = verdictOf(mid, mid-half, mid+half, axis)
	return d, true
}

// verdictOf judges a difference with its interval, 0 being none.
func verdictOf(mid, low, high float64, axis *Axis) Verdict {
	switch {
	case mid == 0 && low == 0 && high == 0:
		return Identical
	case low <= 0 && high >= 0:
		return Same
	case (mid > 0) == (axis.Better == Higher):
		return Better
	}
	return Worse
}

// difference is B-A on the scale, with half the width of its 95 % interval and its standard error.
func difference(a, b []*result.Result, axis *Axis, scale func(float64) float64, ea, eb Estimate) (mid, half, se float64, how How) {
	va, vb := values(a, axis, scale), values(b, axis, scale)
	if pairs := paired(va, vb); len(pairs) >= 2 {
		m, sd := meanStd(pairs)
		se = sd / math.Sqrt(float64(len(pairs)))
		return m, studentT(len(pairs)-1) * se, se, Paired
	}
	if len(va) >= 2 && len(vb) >= 2 {
		ma, sa := meanStd(flat(va))
		mb, sb := meanStd(flat(vb))
		qa, qb := sa*sa/float64(len(va)), sb*sb/float64(len(vb))
		se = math.Sqrt(qa + qb)
		df := 1
		if qa+qb > 0 { // Welch and Satterthwaite
			df = int((qa + qb) * (qa + qb) / (qa*qa/float64(len(va)-1) + qb*qb/float64(len(vb)-1)))
		}
		return mb - ma, studentT(max(df, 1)) * se, se, Unpaired
	}
	mid = scale(eb.Value) - scale(ea.Value)
	if !ea.Within || !eb.Within || scale(ea.Low) != scale(ea.Low) || math.IsInf(scale(ea.Low), 0) || math.IsInf(scale(eb.Low), 0) {
		return mid, 0, 0, NoHow
	}
	wa, wb := (scale(ea.High)-scale(ea.Low))/2, (scale(eb.High)-scale(eb.Low))/2
	half = math.Sqrt(wa*wa + wb*wb)
	return mid, half, half / 1.96, WithinRun
}

// seeded is a value with what tells its repeat.
type seeded struct {
	seed uint64
	v    float64
}

func values(rs []*result.Result, axis *Axis, scale func(float64) float64) []seeded {
	var out []seeded
	for _, r := range rs {
		if v := axis.Has(r); v != nil {
			if s := scale(*v); finite(s) {
				out = append(out, seeded{r.Seed, s})
			}
		}
	}
	return out
}

// paired are the differences of runs with equal seeds, when every run has a partner and no
// seed stands twice on one side.
func paired(a, b []seeded) []float64 {
	if len(a) != len(b) {
		return nil
	}
	of := map[uint64]float64{}
	for _, s := range a {
		of[s.seed] = s.v
	}
	seen := map[uint64]bool{}
	var out []float64
	for _, s := range b {
		v, ok := of[s.seed]
		if !ok || seen[s.seed] {
			return nil
		}
		seen[s.seed] = true
		out = append(out, s.v-v)
	}
	if len(of) != len(a) {
		return nil
	}
	return out
}

func flat(s []seeded) []float64 {
	out := make([]float64, len(s))
	for i, x := range s {
		out[i] = x.v
	}
	return out
}

// meanStd is the mean and the sample's standard deviation.
func meanStd(v []float64) (mean, std float64) {
	for _, x := range v {
		mean += x
	}
	mean /= float64(len(v))
	if len(v) < 2 {
		return mean, 0
	}
	for _, x := range v {
		std += (x - mean) * (x - mean)
	}
	return mean, math.Sqrt(std / float64(len(v)-1))
}

// studentT is the 97.5 % point of Student's t, for degrees of freedom beyond the table that of
// the next smaller one in it.
func studentT(df int) float64 {
	table := [...]float64{12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
		2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042}
	switch {
	case df <= len(table):
		return table[df-1]
	case df < 60:
		return 2.042
	case df < 120:
		return 2.000
	}
	return 1.980
}

// frontiers compares what both sides reach as a whole, whatever the configuration.
func (c *Comparison) frontiers(a, b []*result.Result) {
	x, errX := ByName(DefaultX)
	y, errY := ByName(DefaultY)
	if errX != nil || errY != nil {
		return
	}
	fa, fb := allPoints(a, x, y), allPoints(b, x, y)
	c.AreaA, c.AreaB = area(fa), area(fb)
	for _, t := range reachTiers {
		r := Reaching{X: t}
		if p, ok := Reach(fa, x.Better, y.Better, t); ok {
			r.A = &p.Y
		}
		if p, ok := Reach(fb, x.Better, y.Better, t); ok {
			r.B = &p.Y
		}
		if r.A != nil && r.B != nil && *r.A > 0 {
			ratio := *r.B / *r.A
			r.Ratio = &ratio
		}
		if r.A != nil || r.B != nil {
			c.Reach = append(c.Reach, r)
		}
	}
}

func allPoints(rs []*result.Result, x, y *Axis) []XY {
	var out []XY
	for _, c := range Curves(rs, x, y) {
		for _, p := range c.Points {
			if !p.Invalid {
				out = append(out, XY{p.X.Value, p.Y.Value})
			}
		}
	}
	return out
}

// area is what lies between zero and the step function of the points, both axes better upwards.
func area(points []XY) float64 {
	sum, last := 0.0, 0.0
	on := Pareto(points, Higher, Higher)
	for _, i := range on { // rising x, falling y
		p := points[i]
		if p.X > last && p.Y > 0 {
			sum += (p.X - last) * p.Y
			last = p.X
		}
	}
	return sum
}
