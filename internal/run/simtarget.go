package run

import (
	"cmp"
	"fmt"

	"github.com/weirbench/weir/internal/facts"
	"github.com/weirbench/weir/internal/plan"
	"github.com/weirbench/weir/internal/replay"
	"github.com/weirbench/weir/internal/sim"
	"github.com/weirbench/weir/internal/spec"
)

// simTarget is one simulated engine, or several behind a router.
type simTarget interface {
	replay.VirtualTarget
	// Stats are the counts of the ranks of every engine.
	Stats() [][]sim.Stats
}

// simulated makes what a planned point runs on: its one engine, or the engines of all its
// workers behind a router that keeps sessions, prefill and decode apart where the point is
// disaggregated. The configuration is that of an engine that computes prompts.
func simulated(p *spec.Point, v *plan.Verdict, set *facts.Set) (simTarget, sim.Config, error) {
	if p.Unified != nil {
		c, err := SimConfig(p, v, set)
		if err != nil {
			return nil, c, err
		}
		e, err := sim.New(c)
		return e, c, err
	}
	cc, err := SimCluster(p, v, set)
	if err != nil {
		return nil, sim.Config{}, err
	}
	k, err := sim.NewCluster(cc)
	return k, cc.Workers[0], err
}

// Simulable says why the simulated engine cannot stand for the engine of a planned point.
func Simulable(p *spec.Point, v *plan.Verdict, set *facts.Set) error {
	var err error
	if p.Unified != nil {
		_, err = SimConfig(p, v, set)
	} else {
		_, err = SimCluster(p, v, set)
	}
	if err != nil {
		return fmt.Errorf("%s:%d: %w", p.Origin.File, p.Origin.Line, err)
	}
	return nil
}

// SimCluster is the simulated cluster of a planned multi-node point.
func SimCluster(p *spec.Point, v *plan.Verdict, set *facts.Set) (sim.ClusterConfig, error) {
	var cc sim.ClusterConfig
	if v == nil || len(v.Roles) == 0 {
		return cc, fmt.Errorf("point %s has no plan: the simulator takes its pools from it", p.Name)
	}
	for i := range v.Roles {
		r := &v.Roles[i]
		w := p.Prefill
		if r.Name == "decode" {
			w = p.Decode
		}
		if w == nil || w.Workers < 1 {
			return cc, fmt.Errorf("point %s has a plan for %s and no such workers", p.Name, r.Name)
		}
		par := w.Parallel
		par.EP, par.DCP, par.PCP = cmp.Or(par.EP, 1), cmp.Or(par.DCP, 1), cmp.Or(par.PCP, 1)
		c, err := roleConfig(p, v, r, par, set)
		if err != nil {
			return cc, err
		}
		for range w.Workers {
			if r.Name == "decode" {
				cc.Decode = append(cc.Decode, c)
			} else {
				cc.Workers = append(cc.Workers, c)
			}
		}
	}
	return cc, nil
}
