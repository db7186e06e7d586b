package result

import (
	"cmp"
	"math"
	"slices"

	"github.com/weirbench/weir/internal/record"
)

// An Interval is a low and a high end.
type Interval [2]float64

// Intervals say how far numbers of this one run would move if other agents had come by: 95 %
// intervals from within the run. They don't know what differs between two runs; only repeats
// do. An interval that cannot be given is null.
//
// Requests of one trace resemble each other, so percentiles and hit rates are resampled by whole
// traces (cluster bootstrap, percentile method). Throughput is a rate of a process in time, so
// its interval is that of the mean over equal parts of the window (batch means, Student's t).
type Intervals struct {
	Level       float64          `json:"level"`
	Clusters    int              `json:"clusters"` // traces that were resampled
	Batches     int              `json:"batches"`  // parts of the window
	TTFT        PercentIntervals `json:"ttft_s"`
	E2EL        PercentIntervals `json:"e2el_s"`
	ITL         PercentIntervals `json:"itl_s"`
	E2EPerToken PercentIntervals `json:"e2el_per_output_token_s"`
	HitTotal    *Interval        `json:"hit_total"`
	// Total is the throughput of prompt and output tokens of the deployment, inside the window.
	Total *Interval `json:"total"`
}

// PercentIntervals are intervals of percentiles; one whose percentile is withheld is nil.
type PercentIntervals struct {
	P50 *Interval `json:"p50"`
	P75 *Interval `json:"p75"`
	P90 *Interval `json:"p90"`
	P95 *Interval `json:"p95"`
	P99 *Interval `json:"p99"`
}

const (
	intervalLevel = 0.95
	resamples     = 400
	minClusters   = 10    // fewer traces say too little about others
	batches       = 20    // parts of the window
	studentT19    = 2.093 // 97.5 % of Student's t with 19 degrees of freedom
)

// sample is a value and the trace that it comes from.
type sample struct {
	v float64
	c int
}

// clusters gathers what is resampled by trace.
type clusters struct {
	ids                           map[string]int
	ttft, e2el, itl, e2elPerToken []sample
	hit, prompt                   []float64 // sums by trace
	batch                         [batches]float64
}

func newClusters() clusters { return clusters{ids: map[string]int{}} }

// of numbers the trace of q.
func (c *clusters) of(q *record.Request) int {
	id, ok := c.ids[q.Trace]
	if !ok {
		id = len(c.ids)
		c.ids[q.Trace] = id
		c.hit, c.prompt = append(c.hit, 0), append(c.prompt, 0)
	}
	return id
}

// spread adds tokens of a request to the batches of the window: the prompt at the first token,
// the output evenly until the last.
func (c *clusters) spread(q *record.Request, w record.Window) {
	span := w.EndNs - w.StartNs
	at := q.Times
	if span <= 0 || at.FirstToken == record.Never || at.LastToken == record.Never {
		return
	}
	part := float64(span) / batches
	bin := func(t int64) int { return int(math.Floor(float64(t-w.StartNs) / part)) }
	if b := bin(at.FirstToken); q.PromptTokens > 0 && b >= 0 && b < batches {
		c.batch[b] += float64(q.PromptTokens)
	}
	if q.OutputTokens <= 0 {
		return
	}
	decode := float64(at.LastToken - at.FirstToken)
	if decode == 0 {
		if b := bin(at.FirstToken); b >= 0 && b < batches {
			c.batch[b] += float64(q.OutputTokens)
		}
		return
	}
	for b := max(0, bin(at.FirstToken)); b < batches && b <= bin(at.LastToken); b++ {
		lo := math.Max(float64(at.FirstToken-w.StartNs), float64(float64(b)*part))
		hi := math.Min(float64(at.LastToken-w.StartNs), float64(float64(b+1)*part))
		c.batch[b] += float64(float64(q.OutputTokens)*math.Max(0, hi-lo)) / decode
	}
}

// intervals fills r.Intervals; it reads which percentiles and sums r shows.
func (c *clusters) intervals(r *Result, w record.Window) {
	iv := &r.Intervals
	iv.Level = intervalLevel
	iv.Clusters = len(c.ids)
	if iv.Clusters >= minClusters {
		weights := draws(len(c.ids))
		for _, m := range []struct {
			from []sample
			of   *Dist
			to   *PercentIntervals
		}{
			{c.ttft, &r.Latency.TTFT, &iv.TTFT}, {c.e2el, &r.Latency.E2EL, &iv.E2EL},
			{c.itl, &r.Latency.ITL, &iv.ITL}, {c.e2elPerToken, &r.Latency.E2EPerToken, &iv.E2EPerToken},
		} {
			percentIntervals(m.from, weights, m.of, m.to)
		}
		iv.HitTotal = c.hitInterval(weights)
	}
	if t := r.Throughput.Window.Total; t != nil {
		iv.Batches = batches
		iv.Total = c.totalInterval(float64(w.EndNs-w.StartNs) / ns)
	}
}

// percentIntervals gives the interval of every percentile that is shown.
func percentIntervals(s []sample, weights [][]int, of *Dist, to *PercentIntervals) {
	slices.SortFunc(s, func(a, b sample) int { return cmp.Or(cmp.Compare(a.v, b.v), cmp.Compare(a.c, b.c)) })
	est := make([][]float64, len(percents))
	for _, w := range weights {
		if p, ok := weighted(s, w); ok {
			for i, v := range p {
				est[i] = append(est[i], v)
			}
		}
	}
	d := of.slots()
	for i, slot := range to.slots() {
		if *d[i] != nil {
			*slot = middle(est[i], ns)
		}
	}
}

// weighted are the percentiles of sorted values in which each stands as often as its trace was
// drawn. The ranks q(n-1) rise with q, so one walk finds all.
func weighted(s []sample, w []int) (out [5]float64, ok bool) {
	total := int64(0)
	for _, x := range s {
		total += int64(w[x.c])
	}
	if total == 0 {
		return out, false
	}
	k, before := 0, int64(0) // before are the values below s[k], repeats counted
	at := func(rank int64) float64 {
		for before+int64(w[s[k].c]) <= rank {
			before += int64(w[s[k].c])
			k++
		}
		return s[k].v
	}
	for i, p := range percents {
		pos := p.q * (total - 1)
		out[i] = at(pos / 100)
		if rem := pos % 100; rem != 0 {
			keepK, keepBefore := k, before
			step := float64((at(pos/100+1) - out[i]) * float64(rem))
			out[i] += float64(step / 100)
			k, before = keepK, keepBefore // the next rank may be this one again
		}
	}
	return out, true
}

func (p *PercentIntervals) slots() []**Interval {
	return []**Interval{&p.P50, &p.P75, &p.P90, &p.P95, &p.P99}
}

// middle is the interval that holds 95 % of the estimates, divided by scale.
func middle(est []float64, scale float64) *Interval {
	if len(est) < resamples/2 {
		return nil
	}
	slices.Sort(est)
	n := len(est)
	return &Interval{est[n*25/1000] / scale, est[n-1-n*25/1000] / scale}
}

func (c *clusters) hitInterval(weights [][]int) *Interval {
	var est []float64
	for _, w := range weights {
		hit, prompt := 0.0, 0.0
		for i, k := range w {
			hit += float64(float64(k) * c.hit[i])
			prompt += float64(float64(k) * c.prompt[i])
		}
		if prompt > 0 {
			est = append(est, hit/prompt)
		}
	}
	return middle(est, 1)
}

// totalInterval is the mean rate of the batches with its interval, tokens per second.
func (c *clusters) totalInterval(windowS float64) *Interval {
	sum := 0.0
	for _, v := range c.batch {
		sum += v
	}
	mean := sum / batches
	sq := 0.0
	for _, v := range c.batch {
		sq += float64((v - mean) * (v - mean))
	}
	half := float64(studentT19 * math.Sqrt(sq/(batches-1)/batches))
	per := windowS / batches
	return &Interval{math.Max(0, mean-half) / per, (mean + half) / per}
}
