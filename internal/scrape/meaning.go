package scrape

import (
	"math"
	"slices"
	"strings"

	"github.com/weirbench/weir/internal/engine"
	"github.com/weirbench/weir/internal/record"
)

// A View is what one scrape says, by quantity.
type View struct {
	Engine string                       // that publishes the metrics, empty when no adapter knows it
	values [engine.Quantities][]float64 // one a rank, in order of size
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
		spelling.see(sig)
		if b, ok := best[sig.Same]; !ok || sig.Rank < b.sig.Rank {
			best[sig.Same] = ranked{sig, sig.Value(val)}
		}
	}
	atom := false
	for _, b := range best {
		if !spelling.first(b.sig) {
			continue
		}
		v.values[b.sig.Quantity] = append(v.values[b.sig.Quantity], b.val)
		atom = atom || b.sig.Engine == "atom"
		if v.Engine == "" || v.Engine == "dynamo" || b.sig.Engine < v.Engine && b.sig.Engine != "dynamo" {
			v.Engine = b.sig.Engine
		}
	}
	v.blocks(atom)
	for _, list := range v.values {
		slices.Sort(list) // the order of a map's keys must not change a sum
	}
	return v
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
// zero. The reference is the sample that was marked when the phase began, else the last sample at
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
	known  bool
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
		src = &source{series: map[string]*grown{}}
		c.sources[s.Source] = src
	}
	reference := s.At <= c.start || s.Mark != "" && s.Mark == c.mark && s.At <= c.start+markSlack
	for series, v := range s.Values {
		sig := engine.Classify(series)
		if sig == nil || !sig.Quantity.Counter() {
			continue
		}
		v = sig.Value(v)
		g := src.series[series]
		if g == nil {
			g = &grown{sig: sig, last: v}
			src.series[strings.Clone(series)] = g
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
	var list []float64
	for url, src := range c.sources {
		if c.repeats(url, q) {
			continue
		}
		best := map[string]*grown{}
		spelling := math.MaxInt
		for _, g := range src.series {
			if g.sig.Engine == of && g.sig.Quantity == q {
				spelling = min(spelling, g.sig.Spelling)
			}
		}
		for _, g := range src.series {
			if g.sig.Engine != of || g.sig.Quantity != q || g.sig.Spelling != spelling {
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
func (c *Counters) Total(q engine.Quantity) (float64, bool) {
	all, ok := 0.0, false
	for _, e := range []string{"atom", "sglang", "trtllm", "vllm"} {
		if v, has := c.Growth(e, q); has {
			all += v
			ok = true
		}
	}
	return all, ok
}

// Hits are prompt tokens by the tier in which they were found; false when no engine said.
func (c *Counters) Hits() (engine.TierHits, bool) { return engine.HitsOf(c.Growth) }
