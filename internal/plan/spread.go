package plan

import (
	"fmt"
	"strings"

	"github.com/weirbench/weir/internal/spec"
)

// Spread is how one worker lies on ranks and nodes.
type Spread struct {
	GPUs         int64 `json:"gpus"`  // of one worker, as spec.Parallel counts them
	Ranks        int64 `json:"ranks"` // engine processes of one worker: one per GPU
	RanksPerNode int64 `json:"ranks_per_node"`
	Nodes        int64 `json:"nodes"` // of one worker
	// WorkersPerNode is how many workers of this role share a node at most.
	WorkersPerNode int64 `json:"workers_per_node"`
	TP             int64 `json:"tp"`
	PP             int64 `json:"pp"`
	PCP            int64 `json:"pcp"`
	DCP            int64 `json:"dcp"`
	// AttnTP is over how many ranks attention heads are split, AttnDP how many attention
	// groups hold distinct sequences, ExpertShards over how many ranks experts lie.
	AttnTP       int64 `json:"attn_tp"`
	AttnDP       int64 `json:"attn_dp"`
	ExpertShards int64 `json:"expert_shards"`
}

// worker is one role of a point before its arithmetic.
type worker struct {
	name    string
	par     spec.Parallel
	workers int
	config  string // CONFIG_FILE of a multi-node worker
	gpu     string // hardware of the worker, empty for the runner's
}

func (b *bench) workers() []worker {
	p := b.p
	var ws []worker
	if p.Unified != nil {
		return append(ws, worker{name: "unified", par: *p.Unified, workers: 1})
	}
	config := configFile(p.Prefill)
	if p.Prefill != nil && p.Prefill.Workers > 0 {
		name := "prefill"
		if !p.Disagg || p.Decode == nil || p.Decode.Workers == 0 {
			name = "unified"
		}
		ws = append(ws, worker{name, p.Prefill.Parallel, p.Prefill.Workers, config, p.Prefill.Hardware})
	}
	if p.Decode != nil && p.Decode.Workers > 0 {
		ws = append(ws, worker{"decode", p.Decode.Parallel, p.Decode.Workers, config, p.Decode.Hardware})
	}
	return ws
}

// spread lays a worker out. With DP attention every rank has its own sequences, unless expert
// parallelism reaches over more GPUs than the worker has: then the worker is one of several
// attention groups of size TP (the Kimi-K3 and MiniMax-M3 entries of the master files).
func (b *bench) spread(w worker) (Spread, error) {
	par := w.par
	for _, d := range []struct {
		name string
		n    int
	}{{"tp", par.TP}, {"pp", par.PP}, {"pcp-size", max(par.PCP, 1)}, {"ep", max(par.EP, 1)}, {"dcp-size", max(par.DCP, 1)}} {
		if d.n < 1 || d.n > 1<<16 {
			return Spread{}, fmt.Errorf("%s: %s %d is not within 1 to 65536", w.name, d.name, d.n)
		}
	}
	par.PCP, par.EP, par.DCP = max(par.PCP, 1), max(par.EP, 1), max(par.DCP, 1)
	s := Spread{
		GPUs: int64(par.GPUs()), TP: int64(par.TP), PP: int64(par.PP), PCP: int64(par.PCP), DCP: int64(par.DCP),
		AttnTP: int64(par.TP), AttnDP: 1,
	}
	s.Ranks = s.GPUs
	s.ExpertShards = int64(max(par.EP, par.TP*par.PCP))
	all := s.GPUs * int64(w.workers)
	if par.DPAttn {
		s.AttnTP, s.AttnDP = 1, s.TP
		if par.EP > par.TP*par.PCP {
			s.AttnTP, s.AttnDP = s.TP, 1
		}
	}
	if int64(par.EP)*s.PP > all {
		b.warn(w.name, "gpu-count", "expert parallelism over %d ranks needs %d GPUs, but tp %d x pp %d x pcp %d x %d workers are %d: the recipe starts more GPUs than the point counts",
			par.EP, int64(par.EP)*s.PP, par.TP, par.PP, par.PCP, w.workers, all)
	}
	s.RanksPerNode = min(s.Ranks, b.gpusPerNode)
	s.Nodes = ceilDiv(s.Ranks, b.gpusPerNode)
	s.WorkersPerNode = 1
	if s.Ranks < b.gpusPerNode {
		s.WorkersPerNode = min(b.gpusPerNode/s.Ranks, int64(w.workers))
	}
	return s, nil
}

// configFile is the CONFIG_FILE that a worker's settings name; one file serves all roles.
func configFile(w *spec.Worker) string {
	if w == nil {
		return ""
	}
	for _, s := range w.Settings {
		if v, ok := strings.CutPrefix(s, "CONFIG_FILE="); ok {
			return v
		}
	}
	return ""
}
