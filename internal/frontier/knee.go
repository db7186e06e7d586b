package frontier

import (
	"github.com/weirbench/weir/internal/result"
)

// KneeShare is how near the hit rate must stay to the infinite-cache ceiling, as a share of it.
const KneeShare = 0.95

// A Knee says between which measured concurrencies a cache falls off.
type Knee struct {
	Within int `json:"within"` // the last concurrency up to which the hit rate stays near the ceiling; 0 for none
	Beyond int `json:"beyond"` // the first measured one at which it does not; 0 when it never falls
}

// KneeOf finds the knee of a curve; ok is false when fewer than two of its points report a hit
// rate and a ceiling.
func KneeOf(c *Curve) (k Knee, ok bool) {
	n := 0
	for _, p := range c.runsByConc() {
		hit, ceil := meanOf(p.runs, func(r *result.Result) *float64 { return r.Hits.Total }), meanOf(p.runs, func(r *result.Result) *float64 { return r.Hits.Ceiling })
		if hit == nil || ceil == nil {
			continue
		}
		n++
		if *hit < float64(KneeShare**ceil) {
			k.Beyond = p.conc
			break
		}
		k.Within = p.conc
	}
	return k, n >= 2 || k.Beyond > 0
}

type concRuns struct {
	conc int
	runs []*result.Result
}

// runsByConc lists all runs of the curve, placed or missing, valid ones first where there are any.
func (c *Curve) runsByConc() []concRuns {
	var out []concRuns
	i, j := 0, 0
	for i < len(c.Points) || j < len(c.Missing) {
		if j >= len(c.Missing) || i < len(c.Points) && c.Points[i].Conc < c.Missing[j].Conc {
			out = append(out, concRuns{c.Points[i].Conc, c.Points[i].Runs})
			i++
		} else {
			out = append(out, concRuns{c.Missing[j].Conc, c.Missing[j].Runs})
			j++
		}
	}
	return out
}

func meanOf(runs []*result.Result, get func(*result.Result) *float64) *float64 {
	sum, n := 0.0, 0
	for _, r := range runs {
		if v := get(r); v != nil {
			sum += *v
			n++
		}
	}
	if n == 0 {
		return nil
	}
	m := sum / float64(n)
	return &m
}
