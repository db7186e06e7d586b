package sim

import (
	"cmp"
	"container/heap"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/weirbench/weir/internal/facts"
	"github.com/weirbench/weir/internal/record"
)

// An Observed is one recorded run of a real engine and what the simulator needs to run it
// again. Config must not name coefficients: they are what is looked for.
type Observed struct {
	Name     string // of the bundle
	Conc     int
	Config   Config
	Requests []*record.Request // all phases, in any order
}

// Measures are what a calibration compares, over the profiling requests that succeeded; 0 is
// unknown.
type Measures struct {
	Requests   int     `json:"requests"`
	TTFTP50    float64 `json:"ttft_p50_ns"`
	TTFTP90    float64 `json:"ttft_p90_ns"`
	ITLP50     float64 `json:"itl_p50_ns"`
	Throughput float64 `json:"tokens_per_s"` // prompt and output
	HitRate    float64 `json:"hit_rate"`     // 0 to 1; -1 when the server did not say
}

// A Comparison is a run and its simulated twin.
type Comparison struct {
	Name      string   `json:"name"`
	Conc      int      `json:"concurrency"`
	HeldOut   bool     `json:"held_out"`
	Measured  Measures `json:"measured"`
	Simulated Measures `json:"simulated"`
}

// Errors are relative for times and throughput; of the hit rate the difference.
func (c *Comparison) Errors() (ttft, itl, throughput, hitRate float64) {
	m, s := c.Measured, c.Simulated
	hit := 0.0
	if m.HitRate >= 0 {
		hit = s.HitRate - m.HitRate
	}
	return rel(s.TTFTP50, m.TTFTP50), rel(s.ITLP50, m.ITLP50), rel(s.Throughput, m.Throughput), hit
}

func rel(got, want float64) float64 {
	if want == 0 {
		return 0
	}
	return got/want - 1
}

// Calibrate fits the free coefficients to recorded runs and says how far off it is on those
// that it held out: of three or more every second by concurrency, of two the one with more.
// The result is named after GPU, model and precision of the first run. watch may be nil.
func Calibrate(runs []Observed, from facts.Coefficients, date string, watch Watch) (facts.Coefficients, []Comparison, error) {
	if len(runs) == 0 {
		return from, nil, errors.New("there is no run to calibrate with")
	}
	runs = slices.Clone(runs)
	slices.SortStableFunc(runs, func(a, b Observed) int { return cmp.Compare(a.Conc, b.Conc) })
	var twins []*twin
	for i := range runs {
		t, err := newTwin(&runs[i])
		if err != nil {
			return from, nil, fmt.Errorf("%s: %w", runs[i].Name, err)
		}
		twins = append(twins, t)
	}
	held := func(i int) bool { return i%2 == 1 }
	loss := func(co *facts.Coefficients) (float64, error) {
		sum := 0.0
		for i, t := range twins {
			if held(i) {
				continue
			}
			s, err := t.run(co)
			if err != nil {
				return 0, fmt.Errorf("%s: %w", t.o.Name, err)
			}
			m := t.measured
			sum += away(s.TTFTP50, m.TTFTP50) + away(s.TTFTP90, m.TTFTP90)/2 + away(s.ITLP50, m.ITLP50) + 2*away(s.Throughput, m.Throughput)
		}
		return sum, nil
	}
	names := make([]string, len(knobs))
	for i, k := range knobs {
		names[i] = k.name
	}
	of := runs[0].Config.GPU.Name + "/" + runs[0].Config.Model.Name + "/" + runs[0].Config.WeightPrecision
	co, _, err := fit(from, names, watch.over(0, 1, of), loss)
	if err != nil {
		return from, nil, err
	}
	co.Name = of
	co.Fit = facts.Fit{To: fmt.Sprintf("%d recorded runs", (len(runs)+1)/2), Date: date}
	var out []Comparison
	sums, n := map[string]float64{}, 0.0
	for i, t := range twins {
		s, err := t.run(&co)
		if err != nil {
			return from, nil, err
		}
		k := Comparison{Name: t.o.Name, Conc: t.o.Conc, HeldOut: held(i), Measured: t.measured, Simulated: s}
		out = append(out, k)
		if k.HeldOut {
			ttft, itl, tput, hit := k.Errors()
			sums["ttft"] += math.Abs(ttft)
			sums["itl"] += math.Abs(itl)
			sums["throughput"] += math.Abs(tput)
			sums["hit_rate"] += math.Abs(hit)
			n++
		}
	}
	if n > 0 {
		co.Fit.Errors = map[string]int64{}
		for k, v := range sums {
			co.Fit.Errors[k] = int64(math.Round(v / n * ppm))
		}
	}
	return co, out, nil
}

// A twin is a recorded run as a load for the simulator: the same requests, each as long after
// what it waited for as it was.
type twin struct {
	o        *Observed
	nodes    []twinNode
	first    []int // that wait for nothing
	measured Measures
}

type twinNode struct {
	r       *record.Request
	after   []twinEdge // what waits for this one
	at      int64      // of those that wait for nothing
	session uint64
	pages   []uint64
}

// twinEdge is a request that is sent so long after another was sent or ended.
type twinEdge struct {
	to    int
	wait  int64
	ended bool
}

func newTwin(o *Observed) (*twin, error) {
	t := &twin{o: o}
	rs := slices.DeleteFunc(slices.Clone(o.Requests), func(r *record.Request) bool {
		return !r.OK() || r.PromptTokens <= 0 || r.OutputTokens <= 0 || r.Phase == record.Calibrate
	})
	slices.SortFunc(rs, func(a, b *record.Request) int {
		return cmp.Or(cmp.Compare(a.Times.Sent, b.Times.Sent), cmp.Compare(a.Seq, b.Seq))
	})
	t.measured = measure(rs)
	if t.measured.Requests == 0 {
		return nil, errors.New("it holds no successful profiling request with token counts")
	}
	t.link(rs)
	t.identify(max(1, cmp.Or(o.Config.PageSize, defaultPage)))
	return t, nil
}

// link finds what each request waited for: the turn before it in its conversation; for the
// first turn, the request of its tree that was sent last before it; for the first of a tree,
// what its lane ended last.
func (t *twin) link(rs []*record.Request) {
	stream, tree, lane := map[string]int{}, map[string]int{}, map[int]int{}
	trees := map[string]uint64{}
	start := rs[0].Times.Sent
	for i, r := range rs {
		if trees[r.Tree] == 0 {
			trees[r.Tree] = uint64(len(trees) + 1)
		}
		t.nodes = append(t.nodes, twinNode{r: r, session: trees[r.Tree]})
		key := r.Tree + "\x00" + r.Stream
		if p, ok := stream[key]; ok && rs[p].Times.End <= r.Times.Sent {
			t.edge(p, i, r.Times.Sent-rs[p].Times.End, true)
		} else if p, ok := tree[r.Tree]; ok {
			t.edge(p, i, r.Times.Sent-rs[p].Times.Sent, false)
		} else if p, ok := lane[r.Lane]; ok && rs[p].Times.End <= r.Times.Sent {
			t.edge(p, i, r.Times.Sent-rs[p].Times.End, true)
		} else {
			t.nodes[i].at = r.Times.Sent - start
			t.first = append(t.first, i)
		}
		stream[key], tree[r.Tree] = i, i
		if p, ok := lane[r.Lane]; !ok || rs[p].Times.End < r.Times.End {
			lane[r.Lane] = i
		}
	}
}

func (t *twin) edge(from, to int, wait int64, ended bool) {
	t.nodes[from].after = append(t.nodes[from].after, twinEdge{to, wait, ended})
}

// identify gives the pages of prompts identities from what a bundle says: of a request the
// part that an infinite cache would find is what its conversation, tree or trace sent before,
// the rest is new.
func (t *twin) identify(page int64) {
	seen := map[string][]uint64{}
	next := uint64(1) << 62
	for i := range t.nodes {
		n := &t.nodes[i]
		r := n.r
		known := []uint64(nil)
		for _, key := range []string{r.Tree + "\x00" + r.Stream, r.Tree + "\x00", r.Trace + "\x00\x00"} {
			if known = seen[key]; known != nil {
				break
			}
		}
		total := int(r.PromptTokens / page)
		old := min(int(max(0, r.CeilingTokens)/page), len(known), total)
		n.pages = append(make([]uint64, 0, total+8), known[:old]...)
		for len(n.pages) < total {
			next++
			n.pages = append(n.pages, next)
		}
		for _, key := range []string{r.Tree + "\x00" + r.Stream, r.Tree + "\x00", r.Trace + "\x00\x00"} {
			seen[key] = n.pages
		}
	}
}

type twinDue struct {
	at int64
	i  int
}

type twinHeap []twinDue

func (h twinHeap) Len() int { return len(h) }
func (h twinHeap) Less(i, k int) bool {
	return h[i].at < h[k].at || h[i].at == h[k].at && h[i].i < h[k].i
}
func (h twinHeap) Swap(i, k int) { h[i], h[k] = h[k], h[i] }
func (h *twinHeap) Push(x any)   { *h = append(*h, x.(twinDue)) }
func (h *twinHeap) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}

// run simulates the twin with the given coefficients.
func (t *twin) run(co *facts.Coefficients) (Measures, error) {
	c := t.o.Config
	c.Coefficients = co
	core, err := NewCore(c)
	if err != nil {
		return Measures{}, err
	}
	var due twinHeap
	for _, i := range t.first {
		heap.Push(&due, twinDue{t.nodes[i].at, i})
	}
	out := make([]*record.Request, len(t.nodes))
	release := func(i int, at int64, ended bool) {
		for _, e := range t.nodes[i].after {
			if e.ended == ended {
				heap.Push(&due, twinDue{at + e.wait, e.to})
			}
		}
	}
	left := len(t.nodes)
	for left > 0 {
		at, ok := core.Next()
		if len(due) > 0 && (!ok || due[0].at < at) {
			at = due[0].at
		} else if !ok {
			return Measures{}, fmt.Errorf("the simulation stands still with %d requests left", left)
		}
		for _, e := range core.Advance(at) {
			i := int(e.ID)
			r := out[i]
			if e.Kind == Tokens {
				if e.First {
					r.Times.FirstToken = e.At
				}
				continue
			}
			r.Times.LastToken, r.Times.End = e.At, e.At
			r.Failure, r.Hits, r.OutputTokens = e.Failure, e.Hits, e.Tokens
			left--
			release(i, e.At, true)
		}
		for len(due) > 0 && due[0].at <= at {
			d := heap.Pop(&due).(twinDue)
			n := &t.nodes[d.i]
			r := *n.r
			r.Times = record.Times{Sent: at, FirstToken: record.Never, LastToken: record.Never, End: record.Never}
			out[d.i] = &r
			release(d.i, at, false)
			if f := core.Refusal(r.PromptTokens, r.OutputTokens); f != nil {
				r.Failure, r.Times.End = f, at
				left--
				release(d.i, at, true)
				continue
			}
			core.Submit(at, Task{ID: uint64(d.i), Prompt: r.PromptTokens, MaxOut: r.OutputTokens, Pages: slices.Clone(n.pages), Session: n.session})
		}
	}
	return measure(out), nil
}

// measure derives the measures of some requests.
func measure(rs []*record.Request) Measures {
	m := Measures{HitRate: -1}
	var ttft, itl []float64
	var tokens, hits, prompt int64
	first, last := int64(math.MaxInt64), int64(0)
	known := true
	for _, r := range rs {
		if r.Phase != record.Profiling || !r.OK() || r.Times.FirstToken < 0 {
			continue
		}
		m.Requests++
		ttft = append(ttft, float64(r.Times.FirstToken-r.Times.Sent))
		if r.OutputTokens > 1 {
			itl = append(itl, float64(r.Times.LastToken-r.Times.FirstToken)/float64(r.OutputTokens-1))
		}
		tokens += r.PromptTokens + r.OutputTokens
		prompt += r.PromptTokens
		if r.Hits.Total < 0 {
			known = false
		}
		hits += r.Hits.Total
		first, last = min(first, r.Times.Sent), max(last, r.Times.End)
	}
	m.TTFTP50, m.TTFTP90, m.ITLP50 = quantile(ttft, 0.5), quantile(ttft, 0.9), quantile(itl, 0.5)
	if last > first {
		m.Throughput = float64(tokens) / (float64(last-first) / 1e9)
	}
	if known && prompt > 0 {
		m.HitRate = float64(hits) / float64(prompt)
	}
	return m
}

// quantile interpolates linearly at q(n-1); 0 of nothing.
func quantile(v []float64, q float64) float64 {
	if len(v) == 0 {
		return 0
	}
	slices.Sort(v)
	at := q * float64(len(v)-1)
	i := int(at)
	if i+1 >= len(v) {
		return v[len(v)-1]
	}
	return v[i] + float64((at-float64(i))*(v[i+1]-v[i]))
}
