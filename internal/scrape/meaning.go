package scrape

import (
	"cmp"
	"iter"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/weirbench/weir/internal/engine"
	"github.com/weirbench/weir/internal/record"
)

// A View is what one scrape says, by quantity.
type View struct {
	Engine string                       // that publishes the metrics, empty when no adapter knows it
	Role   string                       // "prefill", "decode", "unified" or "router" by the metrics, empty where they do not tell
	Ranks  []RankView                   // of data parallelism, in order, where there are several
	values [engine.Quantities][]float64 // one a rank, in order of size
}

// A RankView is what a scrape says of one rank of data parallelism. What an endpoint counts for all
// of its ranks together is in none.
type RankView struct {
	Rank string // as the engine labels it, mostly a number
	View
}

// Read reads one whole sample. Ranks that repeat each other count once.
func Read(s *record.Sample) View {
	var v View
	type ranked struct {
		sig *engine.Signal
		val float64
	}
	best := map[string]ranked{}
	var spelling spellings
	for series, val := range s.Values {
		sig := engine.Classify(series)
		if sig == nil {
			continue
		}
		if val < 0 {
			continue // no quantity is below nothing: what says so does not know it
		}
		spelling.see(sig)
		if b, ok := best[sig.Same]; !ok || sig.Rank < b.sig.Rank {
			best[sig.Same] = ranked{sig, sig.Value(val)}
		}
	}
	rank, several := "", false
	for _, b := range best {
		if !spelling.first(b.sig) {
			continue
		}
		v.take(b.sig, b.val)
		if r := b.sig.Replica; r != "" {
			several = several || rank != "" && rank != r
			rank = r
		}
	}
	v.finish()
	if !several {
		return v
	}
	ranks := map[string]*View{}
	for _, b := range best {
		r := b.sig.Replica
		if r == "" || !spelling.first(b.sig) {
			continue
		}
		if ranks[r] == nil {
			ranks[r] = &View{}
		}
		ranks[r].take(b.sig, b.val)
	}
	for _, r := range SortRanks(maps.Keys(ranks)) {
		ranks[r].finish()
		v.Ranks = append(v.Ranks, RankView{r, *ranks[r]})
	}
	return v
}

// take adds one number. What a router says counts for no engine.
func (v *View) take(s *engine.Signal, val float64) {
	v.values[s.Quantity] = append(v.values[s.Quantity], val)
	if s.Engine != "smg" && (v.Engine == "" || v.Engine == "dynamo" || s.Engine < v.Engine && s.Engine != "dynamo") {
		v.Engine = s.Engine
	}
	// An engine's word counts before what a frontend in its process says.
	if s.Role != "" && (v.Role == "" || v.Role == "router" || s.Role < v.Role && s.Role != "router") {
		v.Role = s.Role
	}
}

func (v *View) finish() {
	if v.Role == "router" && v.Engine != "" && v.Engine != "dynamo" {
		v.Role = "" // an engine's metrics stand beside a frontend's
	}
	v.blocks(v.Engine == "atom")
	for _, list := range v.values {
		slices.Sort(list) // the order of a map's keys must not change a sum
	}
}

// SortRanks are the names of ranks in order, numbers by their value.
func SortRanks(names iter.Seq[string]) []string {
	return slices.SortedFunc(names, func(a, b string) int { return cmp.Or(len(a)-len(b), strings.Compare(a, b)) })
}

// blocks turns blocks into tokens where the server counts in blocks.
func (v *View) blocks(atom bool) {
	size, ok := v.Get(engine.BlockTokens)
	if !ok && atom {
		size, ok = engine.AtomBlock, true
	}
	if !ok {
		return
	}
	for from, to := range map[engine.Quantity]engine.Quantity{
		engine.DeviceBlocks: engine.DeviceTokens, engine.UsedBlocks: engine.DeviceUsed,
	} {
		if n, ok := v.Get(from); ok && len(v.values[to]) == 0 {
			v.values[to] = []float64{n * size}
		}
	}
	used, ok1 := v.Get(engine.UsedBlocks)
	indexed, ok2 := v.Get(engine.IndexedBlocks)
	if ok1 && ok2 && len(v.values[engine.DeviceEvictable]) == 0 {
		// Blocks that requests hold are indexed too once they are full, so what nobody holds is at
		// least the difference.
		v.values[engine.DeviceEvictable] = []float64{max(0, indexed-used) * size}
	}
}

// spellings are the lowest spelling of every quantity that one endpoint has, by engine.
type spellings map[spelled]int

type spelled struct {
	engine   string
	quantity engine.Quantity
}

func (m *spellings) see(s *engine.Signal) {
	if *m == nil {
		*m = spellings{}
	}
	k := spelled{s.Engine, s.Quantity}
	if n, ok := (*m)[k]; !ok || s.Spelling < n {
		(*m)[k] = s.Spelling
	}
}

func (m spellings) first(s *engine.Signal) bool {
	return m[spelled{s.Engine, s.Quantity}] == s.Spelling
}

// Get is a quantity: the mean over ranks of a share, the sum over ranks of anything else; false
// when the scrape does not have it.
func (v *View) Get(q engine.Quantity) (float64, bool) {
	list := v.values[q]
	if len(list) == 0 {
		return 0, false
	}
	if q.Averaged() {
		return sum(list) / float64(len(list)), true
	}
	return sum(list), true
}

func sum(list []float64) float64 {
	t := 0.0
	for _, v := range list {
		t += v
	}
	return t
}

// markSlack is how long after a phase began the scrape that it asked for may have come to be
// the reference.
const markSlack = 250e6

// Counters adds up by how much counters grew after an instant. A counter that falls was reset
// by a restart and counts from zero; one that appears while its endpoint is known was born at
// zero; one below zero is no count. The reference is the sample that was marked when the phase began, else the last sample at
// or before the instant, else the first after.
type Counters struct {
	start   int64
	mark    record.Phase
	sources map[string]*source
	// Role is the role of an endpoint in a disaggregated deployment, "prefill" or "decode"; nil or
	// any other answer counts all that it says. What one side repeats of the other is left out.
	Role func(source string) string
	// Resets are how often a counter fell.
	Resets int64
}

type source struct {
	series map[string]*grown
	of     map[counter][]*grown // the same, by what they count
	known  bool
}

type counter struct {
	engine   string
	quantity engine.Quantity
}

type grown struct {
	sig    *engine.Signal
	last   float64
	growth float64
}

// NewCounters counts from start, nanoseconds since the run's epoch, the instant at which phase
// began.
func NewCounters(start int64, phase record.Phase) *Counters {
	return &Counters{start: start, mark: phase, sources: map[string]*source{}}
}

// Add takes the next sample, whole.
func (c *Counters) Add(s *record.Sample) {
	if s.Error != "" || s.Values == nil {
		return
	}
	src := c.sources[s.Source]
	if src == nil {
		src = &source{series: map[string]*grown{}, of: map[counter][]*grown{}}
		c.sources[s.Source] = src
	}
	reference := s.At <= c.start || s.Mark != "" && s.Mark == c.mark && s.At <= c.start+markSlack
	for series, v := range s.Values {
		sig := engine.Classify(series)
		if sig == nil || !sig.Quantity.Counter() || v < 0 {
			continue
		}
		v = sig.Value(v)
		g := src.series[series]
		if g == nil {
			g = &grown{sig: sig, last: v}
			src.series[strings.Clone(series)] = g
			k := counter{sig.Engine, sig.Quantity}
			src.of[k] = append(src.of[k], g)
			if src.known && !reference {
				g.growth = v
			}
			continue
		}
		switch {
		case reference:
			g.growth = 0
		case v < g.last:
			c.Resets++
			g.growth += v
		default:
			g.growth += v - g.last
		}
		g.last = v
	}
	src.known = true
}

// Growth is by how much an engine's counter grew over all endpoints, and whether there is one.
func (c *Counters) Growth(of string, q engine.Quantity) (float64, bool) {
	return Growths{c: c}.Growth(of, q)
}

// Only is what the counters of some endpoints grew by, and of one rank of data parallelism where
// rank is not empty.
func (c *Counters) Only(sources func(source string) bool, rank string) Growths {
	return Growths{c, sources, rank}
}

// Growths is by how much some of the counters grew.
type Growths struct {
	c       *Counters
	sources func(source string) bool // nil for all
	rank    string
}

// Growth is by how much an engine's counter grew, and whether there is one.
func (o Growths) Growth(of string, q engine.Quantity) (float64, bool) {
	var list []float64
	for url, src := range o.c.sources {
		if o.sources != nil && !o.sources(url) || o.c.repeats(url, q) {
			continue
		}
		best := map[string]*grown{}
		spelling := math.MaxInt
		for _, g := range src.of[counter{of, q}] {
			spelling = min(spelling, g.sig.Spelling)
		}
		for _, g := range src.of[counter{of, q}] {
			if g.sig.Spelling != spelling || o.rank != "" && g.sig.Replica != o.rank {
				continue
			}
			if b := best[g.sig.Same]; b == nil || g.sig.Rank < b.sig.Rank {
				best[g.sig.Same] = g
			}
		}
		for _, g := range best {
			list = append(list, g.growth)
		}
	}
	slices.Sort(list)
	return sum(list), len(list) > 0
}

// Total is by how much a counter grew over all engines but a frontend.
func (o Growths) Total(q engine.Quantity) (float64, bool) {
	all, ok := 0.0, false
	for _, e := range []string{"atom", "sglang", "trtllm", "vllm"} {
		if v, has := o.Growth(e, q); has {
			all += v
			ok = true
		}
	}
	return all, ok
}

// Hits are prompt tokens by the tier in which they were found; false when no engine said.
func (o Growths) Hits() (engine.TierHits, bool) { return engine.HitsOf(o.Growth) }

// repeats tells whether an endpoint counts what another one has counted.
func (c *Counters) repeats(url string, q engine.Quantity) bool {
	if c.Role == nil || !q.OfPrompts() && !q.OfAnswers() {
		return false
	}
	switch c.Role(url) {
	case "decode":
		return q.OfPrompts()
	case "prefill":
		return q.OfAnswers()
	}
	return false
}

// Engines are the engines whose counters were seen, in order of name.
func (c *Counters) Engines() []string {
	var out []string
	for _, e := range []string{"atom", "dynamo", "sglang", "trtllm", "vllm"} {
		for q := engine.Quantity(1); int(q) < engine.Quantities; q++ {
			if q.Counter() {
				if _, ok := c.Growth(e, q); ok {
					out = append(out, e)
					break
				}
			}
		}
	}
	return out
}

// Total is by how much a counter grew over all engines but a frontend.
func (c *Counters) Total(q engine.Quantity) (float64, bool) { return Growths{c: c}.Total(q) }

// Hits are prompt tokens by the tier in which they were found; false when no engine said.
func (c *Counters) Hits() (engine.TierHits, bool) { return Growths{c: c}.Hits() }
