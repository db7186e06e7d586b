package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirbench/weir/internal/engine"
	"github.com/weirbench/weir/internal/plan"
)

// gpuSlack is how many bytes more of a GPU may be in use after a stop than before the start.
const gpuSlack = 512 << 20

// afterLimit bounds how long a node may take to be as it was, and one look at it beyond that.
var afterLimit = 15 * time.Second

// dirtyFile is what an allocation leaves about nodes that were not clean after a stop: a map of
// node to what was found.
const dirtyFile = "dirty.json"

// leftOn is what a stop has left on a node: ports that are served, processes with the point's mark,
// files of engines in shared memory that are new and that nobody uses, and GPU memory that is not
// back. Without a state of before only ports and processes can be judged.
func leftOn(before, after *plan.NodeState, gpus bool) []string {
	var out []string
	for _, p := range after.Ports {
		if !p.Free {
			out = append(out, strings.TrimSpace(fmt.Sprintf("port %d is not free (%s) %s", p.Port, p.Why, p.Owner)))
		}
	}
	for _, m := range after.Marked {
		out = append(out, fmt.Sprintf("process %d still runs (%s)", m.PID, m.Command))
	}
	if before == nil {
		return out
	}
	old := map[string]bool{}
	if before.Shm != nil {
		for _, f := range before.Shm.Leftovers {
			old[f.Name] = true
		}
	}
	if after.Shm != nil {
		for _, f := range after.Shm.Leftovers {
			if !old[f.Name] && !f.Others {
				out = append(out, fmt.Sprintf("%s was left with %s", filepath.Join(after.Shm.Path, f.Name), plan.GB(f.Bytes)))
			}
		}
	}
	if !gpus || before.GPUs == nil || after.GPUs == nil || before.GPUs.From != after.GPUs.From {
		return out
	}
	for _, g := range after.GPUs.GPUs {
		i := slices.IndexFunc(before.GPUs.GPUs, func(b plan.GPUState) bool { return b.Index == g.Index })
		if i < 0 || g.UsedBytes < 0 || before.GPUs.GPUs[i].UsedBytes < 0 {
			continue
		}
		if was := before.GPUs.GPUs[i].UsedBytes; g.UsedBytes > was+gpuSlack {
			out = append(out, fmt.Sprintf("GPU %d holds %s, %s before the start (%s more are tolerated)", g.Index, plan.GB(g.UsedBytes), plan.GB(was), plan.GB(gpuSlack)))
		}
	}
	return out
}

// nodePorts are the ports of all processes of a deployment by node.
func nodePorts(d *engine.Deployment) map[int][]int {
	out := map[int][]int{}
	for _, p := range d.Processes {
		out[p.Node] = append(out[p.Node], p.Ports...)
	}
	return out
}

// untilClean looks at a node until nothing is left on it, and says what is when its time is over.
func untilClean(ctx context.Context, look func(context.Context) (*plan.NodeState, error), before *plan.NodeState, gpus bool) []string {
	for end := time.Now().Add(afterLimit); ; {
		var left []string
		s, err := look(ctx)
		if err != nil {
			left = []string{fmt.Sprintf("it could not be looked at: %v", err)}
		} else {
			left = leftOn(before, s, gpus)
		}
		if len(left) == 0 || ctx.Err() != nil || time.Now().After(end) || !sleep(ctx, 500*time.Millisecond) {
			return left
		}
	}
}

// after looks at every node of a deployment that was stopped and notes in the allocation's folder
// which are not as they were.
func (js *JobSpec) after(ctx context.Context, nodes []string, het string, d *engine.Deployment, before []*plan.Report, file, mark string) error {
	was := map[int]*plan.NodeState{}
	for i, n := range lookedAt(d) {
		if i < len(before) {
			was[n] = before[i].Node
		}
	}
	dirty := map[string]string{}
	ports := nodePorts(d)
	for _, n := range slices.Sorted(maps.Keys(ports)) {
		left := untilClean(ctx, func(ctx context.Context) (*plan.NodeState, error) {
			argv := []string{"--simulated", "--mark", marker + "=" + mark}
			for _, p := range ports[n] {
				argv = append(argv, "--port", strconv.Itoa(p))
			}
			rep, err := js.look(ctx, nodes[n], het, filepath.Dir(file), argv)
			if err != nil {
				return nil, err
			}
			return rep.Node, nil
		}, was[n], js.Cluster.Slurm.Exclusive)
		if ctx.Err() != nil {
			return nil // the allocation ends, and with it what runs in it
		}
		if len(left) > 0 {
			dirty[nodes[n]] = strings.Join(left, "; ")
		}
	}
	if len(dirty) == 0 {
		return nil
	}
	var errs []error
	for _, n := range slices.Sorted(maps.Keys(dirty)) {
		errs = append(errs, fmt.Errorf("%s: %s", n, dirty[n]))
	}
	path := filepath.Join(filepath.Dir(file), dirtyFile)
	maps.Copy(dirty, readDirty(path)) // what was found first says more
	if raw, err := json.Marshal(dirty); err != nil || writeAtomic(path, string(raw)) != nil {
		errs = append(errs, errors.New("and that could not be noted"))
	}
	return errors.Join(errs...)
}

// readDirty is what an allocation says of its nodes, nil where it says nothing.
func readDirty(path string) map[string]string {
	var out map[string]string
	raw, err := os.ReadFile(path)
	if err != nil || json.Unmarshal(raw, &out) != nil {
		return nil
	}
	return out
}

// soiled puts nodes that an attempt left dirty into quarantine.
func (u *slurmUnit) soiled(a *attempt) {
	found := readDirty(filepath.Join(a.dir, dirtyFile))
	for _, n := range slices.Sorted(maps.Keys(found)) {
		u.keepOut([]string{n}, "not clean after the stop: "+found[n], u.jobs[0])
	}
}

// afterHere looks at this machine after a stop: all that is left of containers, and the memory of
// the GPUs that the processes were given.
func (l *Launch) afterHere(ctx context.Context, d *engine.Deployment, before []*plan.Report, mark string) error {
	if len(before) == 0 {
		return nil
	}
	was := *before[0].Node
	if l.Wrap == nil {
		was.Shm = nil // known file by file, and freed
	}
	only := named(d)
	var ports []int
	for _, p := range d.Processes {
		ports = append(ports, p.Ports...)
	}
	left := untilClean(ctx, func(ctx context.Context) (*plan.NodeState, error) {
		ctx, cancel := context.WithTimeout(ctx, afterLimit)
		defer cancel()
		s := plan.Probe(ctx, plan.Request{Simulated: true, Ports: ports, Mark: marker + "=" + mark})
		if l.Wrap == nil {
			s.Shm = nil
		}
		if s.GPUs != nil && only != nil {
			s.GPUs.GPUs = slices.DeleteFunc(s.GPUs.GPUs, func(g plan.GPUState) bool { return !slices.Contains(only, strconv.Itoa(g.Index)) })
		}
		return s, nil
	}, &was, !d.Simulated)
	if len(left) > 0 {
		return errors.New(strings.Join(left, "; "))
	}
	return nil
}
