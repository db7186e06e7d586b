package cli

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirbench/weir/internal/material"
	"github.com/weirbench/weir/internal/run"
)

// running waits until a point of a sweep replays, and returns its allocation.
func (s *sweep) running(name string) string {
	s.c.t.Helper()
	job := ""
	s.c.until("allocation of "+name+" that replays", 4*time.Minute, func() bool {
		files, _ := filepath.Glob(filepath.Join(s.out, ".slurm", "*", "*", "job.json"))
		for _, f := range files {
			raw, err := os.ReadFile(f)
			var js run.JobSpec
			if err != nil || json.Unmarshal(raw, &js) != nil || fmt.Sprintf("%s@%d", js.Point.Key, js.Point.Conc) != name {
				continue
			}
			log, _ := os.ReadFile(filepath.Join(filepath.Dir(f), "out.log"))
			id, _ := os.ReadFile(filepath.Join(filepath.Dir(f), "job"))
			if strings.Contains(string(log), "replaying") && len(id) > 0 {
				job = strings.TrimSpace(string(id))
				return true
			}
		}
		return false
	})
	return job
}

// holding waits until the engine of a point holds it (cluster.held), and returns its allocation.
func (s *sweep) holding(name, once string) string {
	s.c.t.Helper()
	job := s.running(name)
	s.c.until("request of "+name+" that is held", 4*time.Minute, func() bool {
		_, err := os.Stat(filepath.Join(s.c.dir, once))
		return err == nil
	})
	return job
}

// TestClusterFaults: every fault ends in its class and the sweep goes on to its end.
func TestClusterFaults(t *testing.T) {
	material.Slow(t)
	c := startCluster(t)
	t.Run("by itself", func(t *testing.T) {
		c.t = t
		s := c.sweep("itself", "", map[string]string{
			"good":     "@1",
			"config":   ", no-such-flag: 1@1",
			"capacity": ", node-memory: 100000000000@1",
			"stall":    "@1",
			"deaf":     "@1",
		})
		// deaf never answers the canary, and stall answers none any more: give them little time.
		c.write("itself/r-deaf.yaml", "name: r-deaf\nextends: sim-serve\nready: { start: 2s }\nargs: { fault: \"http-error,status=500\" }\n")
		c.write("itself/r-stall.yaml", "name: r-stall\nextends: sim-serve\nready: { start: 5m, drain: 2m, silent: 3s, stop: 1m }\nargs: { speed: 50, fault: \"no-headers,skip=20\" }\n")
		s.run(1, heldWarmup...)
		s.want(map[string]string{"good@1": "COMPLETE", "config@1": "config", "capacity@1": "capacity", "stall@1": "stall", "deaf@1": "start"})
		c.idle()
	})
	t.Run("from outside", func(t *testing.T) {
		c.t = t
		s := c.sweep("outside", "", map[string]string{"a": c.held("") + "@1", "b": "@2"})
		cmd, out := s.begin(heldWarmup...)
		job := s.running("a@1")
		c.must("scancel", job)
		s.wait(cmd, out, 1)
		s.want(map[string]string{"a@1": "cancelled", "b@2": "COMPLETE"})
		c.idle()
	})
	t.Run("interrupt", func(t *testing.T) {
		c.t = t
		s := c.sweep("interrupted", "", map[string]string{"a": "@1"})
		cmd, out := s.begin("--duration", "30m")
		s.running("a@1")
		cmd.Process.Signal(os.Interrupt)
		s.wait(cmd, out, 1)
		s.want(map[string]string{})
		c.idle() // cancelled with it
	})
}

// TestClusterLosses: a point that loses its engine, its allocation or its node once is measured
// again and is whole.
func TestClusterLosses(t *testing.T) {
	material.Slow(t)
	c := startCluster(t)
	t.Run("engine crash, once", func(t *testing.T) {
		c.t = t
		s := c.sweep("crash", "", map[string]string{"a": c.held("crash/held") + "@1"})
		cmd, out := s.begin(heldWarmup...)
		s.holding("a@1", "crash/held")
		pids := c.engines()
		if len(pids) == 0 {
			t.Fatal("no engine runs")
		}
		for _, pid := range pids {
			syscall.Kill(pid, syscall.SIGKILL)
		}
		s.wait(cmd, out, 0) // the second attempt is whole
		s.want(map[string]string{"a@1": "COMPLETE"})
		es := s.journal()
		if !slices.ContainsFunc(es, func(e run.Entry) bool { return e.State == run.Retried && strings.HasPrefix(e.Detail, "crash") }) {
			t.Errorf("the journal holds no crash: %v", es)
		}
		c.idle()
	})
	t.Run("preemption", func(t *testing.T) {
		c.t = t
		s := c.sweep("preempted", "", map[string]string{"a": c.held("preempted/held") + "@1"})
		cmd, out := s.begin(heldWarmup...)
		s.holding("a@1", "preempted/held")
		// A job of a partition that goes first takes all nodes.
		c.must("sbatch", "--parsable", "--partition=urgent", "--nodes=3", "--exclusive", "--output=/dev/null", "--wrap=sleep 2")
		s.wait(cmd, out, 0)
		s.want(map[string]string{"a@1": "COMPLETE"})
		if es := s.journal(); !slices.ContainsFunc(es, func(e run.Entry) bool { return e.State == run.Retried && strings.Contains(e.Detail, "PREEMPTED") }) {
			t.Errorf("the journal holds no preemption: %v", es)
		}
		c.idle()
	})
	t.Run("node down", func(t *testing.T) {
		c.t = t
		s := c.sweep("nodedown", "", map[string]string{"a": c.held("nodedown/held") + "@1"})
		cmd, out := s.begin(heldWarmup...)
		job := s.holding("a@1", "nodedown/held")
		node := strings.TrimSpace(c.must("squeue", "--noheader", "--job="+job, "--format=%N"))
		if node == "" {
			t.Fatalf("job %s has no node", job)
		}
		i := int(node[len(node)-1] - '0')
		c.kill(fmt.Sprintf("slurmd-%d", i), syscall.SIGKILL)
		c.must("scontrol", "update", "nodename="+node, "state=down", "reason=test")
		for pid := range c.left() { // the node is gone with all that ran on it
			if env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid)); err == nil && strings.Contains(string(env), "SLURM_JOB_ID="+job+"\x00") {
				syscall.Kill(pid, syscall.SIGKILL)
			}
		}
		s.wait(cmd, out, 0)
		s.want(map[string]string{"a@1": "COMPLETE"})
		es := s.journal()
		if !slices.ContainsFunc(es, func(e run.Entry) bool { return e.State == run.Retried && strings.HasPrefix(e.Detail, "node") }) {
			t.Errorf("the journal holds no failed node: %v", es)
		}
		c.startNode(i)
		c.usable(node)
		c.idle()
	})
}

// TestClusterHung is a seed situation: a hung point at concurrency 16 leaves 32, 48 and 64 with
// results.
func TestClusterHung(t *testing.T) {
	material.Slow(t)
	c := startCluster(t)
	// A recipe has one limit of silence, and a point that is only slow must not meet that of the hung one.
	s := c.sweep("hung", "", map[string]string{"hung": "@16", "glm": "@32, 48, 64"})
	for key, more := range map[string]string{"hung": `ready: { start: 5m, drain: 2m, silent: 3s, stop: 1m }
args: { speed: 200, fault: "no-headers,skip=20" }
`, "glm": `ready: { start: 5m, drain: 2m, silent: 5m, stop: 1m }
args: { speed: 200 }
`} {
		c.write("hung/r-"+key+".yaml", "name: r-"+key+"\nextends: sim-serve\n"+more)
	}
	s.run(1, "--warmup-requests-per-lane", "2")
	s.want(map[string]string{"hung@16": "stall", "glm@32": "COMPLETE", "glm@48": "COMPLETE", "glm@64": "COMPLETE"})
	c.idle()
}

// TestClusterRefused is a seed situation: a host pool sized by GB on a sparse-attention model is
// refused before sbatch.
func TestClusterRefused(t *testing.T) {
	c := startCluster(t)
	s := c.sweep("refused", "", map[string]string{"glm": "@16"})
	c.write("refused/r-glm.yaml", "name: r-glm\nextends: sim-serve\nmemory: { host-pool: { gb-per-rank: 330 } }\n")
	out := s.run(4)
	if !strings.Contains(out, "does not count indexer") {
		t.Errorf("the refusal does not say which pool was forgotten:\n%s", out)
	}
	if q := c.must("squeue", "--noheader", "--states=all"); strings.TrimSpace(q) != "" {
		t.Errorf("the scheduler has heard of it: %q", q)
	}
}

// TestClusterKilled kills the sweep with -9 at random moments and begins it again, until it is
// done: every point has one whole bundle, no allocation is left, no point was measured again
// that was complete, and none twice at a time.
func TestClusterKilled(t *testing.T) {
	material.Slow(t)
	c := startCluster(t)
	s := c.sweep("killed", "", map[string]string{"glm": "@1, 2, 3, 4, 5, 6"})
	seed := uint64(time.Now().UnixNano())
	if v := os.Getenv("WEIR_SEED"); v != "" {
		var err error
		if seed, err = strconv.ParseUint(v, 10, 64); err != nil {
			t.Fatalf("WEIR_SEED: %v", err)
		}
	}
	t.Logf("WEIR_SEED=%d kills at the same instants again", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	kills := 0
	for end := time.Now().Add(12 * time.Second); time.Now().Before(end); kills++ {
		cmd, _ := s.begin("--duration", "4s")
		done := make(chan error, 1)
		go func() { done <- cmd.Wait() }()
		select {
		case <-time.After(time.Duration(rng.Int64N(int64(2500 * time.Millisecond)))):
			cmd.Process.Kill()
			<-done
		case err := <-done:
			if err != nil {
				t.Fatalf("the sweep ended by itself: %v", err)
			}
		}
	}
	s.run(0, "--duration", "4s")
	want := map[string]string{}
	for i := range 6 {
		want[fmt.Sprintf("glm@%d", i+1)] = "COMPLETE"
	}
	s.want(want)
	c.idle()
	// Each point ran in one allocation alone, whatever was submitted for it.
	out := c.must("squeue", "--noheader", "--states=all", "--format=%i|%T|%j|%k|%S|%e")
	ran := map[string]int{}
	for line := range strings.SplitSeq(strings.TrimSpace(out), "\n") {
		ran[strings.Split(line, "|")[2]]++
	}
	t.Logf("%d kills, allocations by point: %v", kills, ran)
	completed := map[string]int{}
	for _, e := range s.journal() {
		if e.State == run.Complete {
			completed[e.Point]++
		}
	}
	for p, n := range completed {
		if n > 1 {
			t.Errorf("point %s was completed %d times", p, n)
		}
	}
	if _, err := os.Stat(filepath.Join(s.out, ".slurm")); err == nil {
		left, _ := os.ReadDir(filepath.Join(s.out, ".slurm"))
		for _, e := range left {
			t.Errorf("%s is left of a point that is done", e.Name())
		}
	}
}
