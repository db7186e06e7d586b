package plan

import (
	"fmt"
	"strings"
)

// gpus compares the GPUs that are there with those that the point needs.
func (j *judge) gpus() {
	need := j.q.GPUs
	if need == 0 && j.role != nil {
		need = j.role.Node.Ranks
	}
	g := j.s.GPUs
	switch {
	case need == 0 && (g == nil || len(g.GPUs) == 0):
		return
	case g == nil:
		j.add("gpus", NotSeen, "", "no source tells which GPUs are there; %d are needed", need)
		return
	case len(g.GPUs) < need:
		j.add("gpus", Refuse, fmt.Sprintf("start the job with %d GPUs (srun --gpus-per-node, docker --gpus)", need), "%d seen by %s, the point needs %d on this node", len(g.GPUs), g.From, need)
		return
	case len(g.GPUs) > need && need > 0:
		j.add("gpus", Warn, fmt.Sprintf("start the job with %d GPUs", need), "%d seen by %s, the point uses %d on this node: the allocation is larger than what is counted", len(g.GPUs), g.From, need)
	default:
		j.add("gpus", OK, "", "%d seen by %s", len(g.GPUs), g.From)
	}
	j.gpuMemory(g)
}

// gpuMemory refuses GPUs that something else fills, and warns of other GPUs than the plan's.
func (j *judge) gpuMemory(g *GPUsState) {
	if j.role == nil || j.rep.Verdict == nil {
		return
	}
	d := &j.role.Device
	want := strings.ToLower(j.rep.Verdict.GPU)
	for _, x := range g.GPUs {
		if x.Name != "" && !sameGPU(want, x.Name) {
			j.add("gpu name", Refuse, "run on the runner that the point names, or plan for this one", "GPU %d is a %s, the point is planned for %s", x.Index, x.Name, want)
			return
		}
		if x.TotalBytes < 0 || x.UsedBytes < 0 {
			continue
		}
		need := mulDiv(d.HBMBytes.N, d.FractionPPM.N, 1_000_000)
		if free := x.TotalBytes - x.UsedBytes; free < need {
			j.add("gpu memory", Refuse, "end what runs on it and wait until its memory is free", "GPU %d has %s free of %s, the engine takes %s x %s = %s",
				x.Index, GiB(free), GiB(x.TotalBytes), GiB(d.HBMBytes.N), ppm(d.FractionPPM.N), GiB(need))
			return
		}
	}
	j.add("gpu memory", OK, "", "enough for %s x %s on each", GiB(d.HBMBytes.N), ppm(d.FractionPPM.N))
}

// sameGPU compares a name of the facts with a product name, such as b200 with "NVIDIA B200".
// Only GPUs of the facts can be told apart, so an unknown product name is taken as it is.
func sameGPU(want, product string) bool {
	product = strings.ToLower(product)
	known := []string{"gb300", "gb200", "b300", "b200", "h200", "h100", "mi355x", "mi325x", "mi300x", "rtx pro 6000"}
	for _, k := range known {
		if strings.Contains(product, k) {
			if k == "rtx pro 6000" {
				k = "rtx6000pro"
			}
			return k == want
		}
	}
	return true
}
