package sim

import (
	"maps"
	"math"
	"slices"

	"github.com/weirbench/weir/internal/facts"
)

// A knob moves some coefficients together by one factor: measurements of whole requests do not
// tell the single ones apart.
type knob struct {
	name string
	turn func(c *facts.Coefficients, factor float64)
}

// knobs are what a fit turns, in this order.
var knobs = []knob{
	{"compute", func(c *facts.Coefficients, f float64) {
		turnMap(&c.DenseFLOPS, f)
		turnMap(&c.ExpertFLOPS, f)
		for _, v := range []*float64{&c.AttnFLOPS, &c.SparseFLOPS, &c.IndexFLOPS} {
			*v = math.Min(1, *v*f)
		}
	}},
	{"memory", func(c *facts.Coefficients, f float64) {
		turnMap(&c.DenseBytes, f)
		for _, v := range []*float64{&c.ExpertBytes, &c.KVBytes} {
			*v = math.Min(1, *v*f)
		}
	}},
	{"layers", func(c *facts.Coefficients, f float64) {
		for _, v := range []*float64{&c.AttnLayerNs, &c.LatentLayerNs, &c.IndexLayerNs, &c.ExpertLayerNs, &c.AllReduceNs} {
			*v *= f
		}
	}},
	{"step", func(c *facts.Coefficients, f float64) { c.DecodeStepNs *= f; c.PrefillStepNs *= f }},
	{"draft", func(c *facts.Coefficients, f float64) { c.DraftStepNs *= f }},
	{"sequence", func(c *facts.Coefficients, f float64) { c.SequenceNs *= f }},
	{"request", func(c *facts.Coefficients, f float64) { c.RequestNs *= f; c.PromptTokenNs *= f }},
}

func turnMap(m *map[string]float64, f float64) {
	turned := maps.Clone(*m)
	for k, v := range turned {
		turned[k] = math.Min(1, v*f)
	}
	*m = turned
}

// FitProgress is how far a fit is. Its end is not known before: a step is repeated while it helps.
type FitProgress struct {
	Of      string  // what is fitted, such as "b200/glm-5.2/fp4"
	Share   float64 // done of all, 0 to 1, an estimate that never falls
	Replays int64   // sets of coefficients that were tried
	Loss    float64 // of the best so far
}

// Watch is called after every set of coefficients that a fit tries; an error ends the fit.
type Watch func(FitProgress) error

// over is the watch of one of n fits that follow each other.
func (w Watch) over(i, n int, of string) Watch {
	if w == nil {
		return nil
	}
	return func(p FitProgress) error {
		p.Of, p.Share = of, (float64(i)+p.Share)/float64(n)
		return w(p)
	}
}

// fit turns the named knobs until the loss is as small as it gets, and returns the coefficients and
// the loss. It is a search along one knob after the other with steps that get finer: it needs
// no derivatives, and equal inputs give equal results.
func fit(c facts.Coefficients, names []string, watch Watch, loss func(*facts.Coefficients) (float64, error)) (facts.Coefficients, float64, error) {
	if c.SequenceNs == 0 { // a factor cannot move it
		c.SequenceNs = 1000
	}
	best, err := loss(&c)
	if err != nil {
		return c, 0, err
	}
	said := FitProgress{Loss: best}
	steps := []float64{3, 1.7, 1.3, 1.12, 1.05}
	for s, step := range steps {
		for round := range 8 {
			moved := false
			for n, k := range knobs {
				if !slices.Contains(names, k.name) {
					continue
				}
				if said.Replays++; watch != nil {
					// A round that helped is followed by another: half of what is left of its step.
					within := 1 - math.Pow(0.5, float64(round)+float64(n)/float64(len(knobs)))
					said.Share, said.Loss = (float64(s)+within)/float64(len(steps)), best
					if err := watch(said); err != nil {
						return c, best, err
					}
				}
				for _, f := range []float64{step, 1 / step} {
					try := c
					k.turn(&try, f)
					if try.Check() != nil {
						continue
					}
					l, err := loss(&try)
					if err != nil {
						return c, 0, err
					}
					if l < best*(1-1e-6) {
						c, best, moved = try, l, true
						break
					}
				}
			}
			if !moved {
				break
			}
		}
	}
	round(&c)
	return c, best, nil
}

// round cuts coefficients to four digits, which is more than a fit knows.
func round(c *facts.Coefficients) {
	four := func(v float64) float64 {
		if v == 0 {
			return 0
		}
		scale := math.Pow(10, 3-math.Floor(math.Log10(math.Abs(v))))
		return math.Round(v*scale) / scale
	}
	for _, m := range []map[string]float64{c.DenseFLOPS, c.DenseBytes, c.ExpertFLOPS} {
		for k, v := range m {
			m[k] = four(v)
		}
	}
	for _, v := range c.Shares() {
		*v = four(*v)
	}
	for _, v := range c.Times() {
		*v = four(*v)
	}
}

// away is how far off a prediction is, as the square of a logarithm: twice as much and half as
// much weigh the same.
func away(predicted, measured float64) float64 {
	if predicted <= 0 || measured <= 0 {
		return 0
	}
	l := math.Log(predicted / measured)
	return l * l
}
