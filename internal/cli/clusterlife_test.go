package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirbench/weir/internal/material"
	"github.com/weirbench/weir/internal/record"
	"github.com/weirbench/weir/internal/run"
)

// TestClusterLife is what happens to points from start to end on a real scheduler beside what
// TestClusterFaults has: each ends in its class, and nothing is left.
func TestClusterLife(t *testing.T) {
	material.Slow(t)
	c := startCluster(t)
	t.Run("engine crash", func(t *testing.T) { c.t = t; c.crashes() })
	t.Run("nodes and priorities", func(t *testing.T) { c.t = t; c.rules() })
	t.Run("requeue", func(t *testing.T) { c.t = t; c.requeue() })
	t.Run("full disk", func(t *testing.T) { c.t = t; c.fullDisk() })
	t.Run("cancel", func(t *testing.T) { c.t = t; c.cancel() })
}

// crashes: an engine that crashes at its start, in the warm-up and in the middle, every time.
func (c *cluster) crashes() {
	s := c.sweep("crashes", "", map[string]string{
		"start":  `, fault: crash-start@1`,
		"warmup": `, fault: "crash,skip=20"@1`, // the canaries and probes before are fewer
		"midrun": `, fault: "crash,skip=76"@1`, // 12 before, 60 of the warm-up, and then the fifth
		"good":   "@1",
	})
	s.run(1, "--warmup-requests-per-lane", "60", "--duration", "8s")
	s.want(map[string]string{"start@1": "start", "warmup@1": "crash", "midrun@1": "crash", "good@1": "COMPLETE"})
	c.idle()
	phases := map[string]map[record.Phase]int{}
	for dir, m := range s.metas() {
		b, err := record.OpenBundle(dir)
		if err != nil {
			c.t.Fatal(err)
		}
		phases[m.Key] = map[record.Phase]int{}
		for r, err := range b.Requests() {
			if err != nil {
				c.t.Fatal(err)
			}
			if r.OK() { // the others met an engine that was gone
				phases[m.Key][r.Phase]++
			}
		}
	}
	c.t.Logf("requests by phase: %v", phases)
	if len(phases["start"]) != 0 {
		c.t.Errorf("an engine that crashed at its start answered: %v", phases["start"])
	}
	if n := phases["warmup"]; n[record.Profiling] > 0 || n[record.Pressure] == 0 {
		c.t.Errorf("the engine did not crash in the warm-up: %v", n)
	}
	if phases["midrun"][record.Profiling] == 0 {
		c.t.Errorf("the engine did not crash in the middle: %v", phases["midrun"])
	}
	keys := map[string]string{}
	for dir, m := range s.metas() {
		keys[filepath.Base(dir)] = m.Key
	}
	retried := map[string]int{}
	for _, e := range s.journal() {
		if e.State == run.Retried {
			c.t.Logf("%s: %.200s", keys[e.Point], e.Detail)
			class, _, _ := strings.Cut(e.Detail, ": ")
			retried[keys[e.Point]+" "+class]++
		}
	}
	for k, class := range map[string]string{"start": "start", "warmup": "crash", "midrun": "crash"} {
		if retried[k+" "+class] != 1 { // for that; a node may fail beside it
			c.t.Errorf("%s was tried again after %v, want %s once", k, retried, class)
		}
	}
}

// meta is what tests ask of a point.json.
type pointMeta struct {
	Key       string
	Conc      int
	Processes []record.Process
}

// metas are those of the bundles of a sweep, by folder.
func (s *sweep) metas() map[string]pointMeta {
	s.c.t.Helper()
	out := map[string]pointMeta{}
	files, _ := filepath.Glob(filepath.Join(s.out, "*", record.PointFile))
	for _, f := range files {
		var m struct {
			record.Meta
			Point struct {
				Key  string `json:"key"`
				Conc int    `json:"conc"`
			} `json:"point"`
		}
		raw, err := os.ReadFile(f)
		if err == nil {
			err = json.Unmarshal(raw, &m)
		}
		if err != nil {
			s.c.t.Fatal(err)
		}
		out[filepath.Dir(f)] = pointMeta{m.Point.Key, m.Point.Conc, m.Processes}
	}
	return out
}

// rules: points run on the nodes that the fleet leaves them, and higher priorities come first.
func (c *cluster) rules() {
	s := c.sweep("rules", `, nodes: [ n1, n2, n3 ], only: [ { nodes: [ n2, n3 ], framework: sglang, reason: test } ], exclude: [ { nodes: [ n3 ], model-prefix: glm5.2, reason: test } ]`,
		map[string]string{"a": "@1, 2"})
	// Which of them is asked for first is not said. When both wait, the higher priority goes first.
	c.must("sbatch", "--parsable", "--job-name=before", "--nodelist=n2", "--exclusive", "--output=/dev/null", "--wrap=sleep 600")
	c.until("allocation of the node before the sweep", 4*time.Minute, func() bool { return c.queue("before", "RUNNING") == 1 })
	cmd, out := s.begin("--priority", "a@2=7")
	c.until("both points in the queue", 4*time.Minute, func() bool { return c.queue("weir-", "PENDING") == 2 })
	c.must("scancel", "--name=before")
	s.wait(cmd, out, 0)
	s.want(map[string]string{"a@1": "COMPLETE", "a@2": "COMPLETE"})
	for _, m := range s.metas() {
		for _, p := range m.Processes {
			if p.Host != "n2" {
				c.t.Errorf("%s at %d ran on %s", p.Role, m.Conc, p.Host)
			}
		}
	}
	names := map[string]int{}
	for dir, m := range s.metas() {
		names[filepath.Base(dir)] = m.Conc
	}
	var order []int // one node: one after the other
	for _, e := range s.journal() {
		if e.State == run.Complete {
			order = append(order, names[e.Point])
		}
	}
	if !slices.Equal(order, []int{2, 1}) {
		c.t.Errorf("the concurrencies ended in the order %v", order)
	}
	c.idle()
}

// queue is how many allocations of names that begin so are in a state; -1 when nobody says.
func (c *cluster) queue(name, state string) int {
	out, err := c.try("squeue", "--noheader", "--format=%T %j")
	if err != nil {
		return -1
	}
	n := 0
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, state+" "+name) {
			n++
		}
	}
	return n
}

// requeue: the scheduler preempts an allocation and puts it into the queue again, which somebody
// allowed it; the same allocation measures the point from its beginning.
func (c *cluster) requeue() {
	c.must("scontrol", "update", "partitionname=main", "preemptmode=requeue")
	defer c.must("scontrol", "update", "partitionname=main", "preemptmode=cancel")
	s := c.sweep("requeue", "", map[string]string{"a": c.held("requeue/held") + "@1"})
	cmd, out := s.begin(heldWarmup...)
	job := s.holding("a@1", "requeue/held")
	c.must("scontrol", "update", "jobid="+job, "requeue=1")
	c.must("sbatch", "--parsable", "--partition=urgent", "--nodes=3", "--exclusive", "--output=/dev/null", "--wrap=sleep 1")
	c.until("preempted allocation in the queue", 4*time.Minute, func() bool {
		st, err := c.try("squeue", "--noheader", "--job="+job, "--format=%T")
		return err == nil && strings.TrimSpace(st) == "PENDING"
	})
	// A job that comes back waits two minutes, which the test does not.
	c.until("start of the allocation at once", 4*time.Minute, func() bool {
		_, err := c.try("scontrol", "update", "jobid="+job, "starttime=now")
		return err == nil
	})
	s.wait(cmd, out, 0)
	s.want(map[string]string{"a@1": "COMPLETE"})
	submitted := 0
	for _, e := range s.journal() {
		if e.State == run.Submitted {
			submitted++
		}
	}
	if submitted != 1 {
		c.t.Errorf("%d allocations were asked for", submitted)
	}
	raw, err := os.ReadFile(filepath.Join(slices.Collect(keys(s.metas()))[0], "logs", "slurm.log"))
	if err != nil || strings.Count(string(raw), "replaying") < 1 {
		c.t.Errorf("the log of the allocation: %v\n%s", err, raw)
	}
	c.idle()
}

func keys[K comparable, V any](m map[K]V) func(func(K) bool) {
	return func(yield func(K) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// fullDisk: the disk of the sweep fills up while a point runs. The sweep ends, says why, and
// goes on when there is room again.
func (c *cluster) fullDisk() {
	s := c.sweep("disk", "", map[string]string{"a": c.heldUntil("disk/full") + "@1, 2"})
	s.out = material.SmallDisk(c.t, "80m")
	cmd, out := s.begin(heldWarmup...)
	s.running("a@1")
	s.running("a@2")
	filler := material.Fill(c.t, s.out)
	c.write("disk/full", "")
	s.wait(cmd, out, 1)
	last := map[string]run.Entry{}
	for _, e := range s.journal() {
		last[e.Point] = e
	}
	failed := 0
	for _, e := range last {
		c.t.Logf("%s: %s: %.300s", e.Name, e.State, e.Detail)
		switch {
		case e.State == run.Failed && strings.HasPrefix(e.Detail, "node: ") && (strings.Contains(e.Detail, "no space left") || strings.Contains(e.Detail, "disk:")):
			failed++
		case e.State == run.Failed:
			c.t.Errorf("a point failed as %s", e.Detail)
		case !e.State.Settled():
			c.t.Errorf("a point is left %s", e.State)
		}
	}
	if failed == 0 {
		c.t.Errorf("no point failed for want of room:\n%s", out)
	}
	c.idle()
	if err := os.Remove(filler); err != nil {
		c.t.Fatal(err)
	}
	s.run(0, heldWarmup...)
	s.want(map[string]string{"a@1": "COMPLETE", "a@2": "COMPLETE"})
	c.idle()
}

// cancel ends a sweep whose controller is dead, by the sweep's folder, and says that it did.
func (c *cluster) cancel() {
	s := c.sweep("cancelled", "", map[string]string{"a": "@1, 2, 3, 4"})
	cmd, _ := s.begin("--duration", "400s")
	c.until("three allocations that run and one that waits", 4*time.Minute, func() bool { // which is which is the scheduler's
		out, err := c.try("squeue", "--noheader", "--format=%T")
		return err == nil && strings.Count(out, "RUNNING") == 3 && strings.Count(out, "PENDING") == 1
	})
	c.until("journal of four allocations", 4*time.Minute, func() bool {
		n := 0
		for _, e := range s.journal() {
			if e.State == run.Submitted {
				n++
			}
		}
		return n == 4
	})
	cmd.Process.Kill()
	cmd.Wait()
	out := c.weirRun(0, "sweep", "cancel", s.out, "--poll", "200ms")
	if !strings.HasPrefix(out, "4 allocations cancelled, none is left; 4 points stopped, 0 were whole") {
		c.t.Errorf("cancel says\n%s", out)
	}
	if left, err := c.try("squeue", "--noheader", "--format=%i %T"); err != nil || strings.TrimSpace(left) != "" {
		c.t.Errorf("left in the queue: %q, %v", left, err)
	}
	c.idle()
	if out := c.weirRun(0, "sweep", "status", s.out); strings.Count(out, " stopped ") != 4 {
		c.t.Errorf("status says\n%s", out)
	}
	// One that runs hears of it through its folder.
	cmd, text := s.begin("--duration", "400s", "--conc", "1")
	s.running("a@1")
	c.weirRun(0, "sweep", "cancel", s.out, "--poll", "200ms")
	if out := s.wait(cmd, text, 1); !strings.Contains(out, "cancelled by 'weir sweep cancel'") {
		c.t.Errorf("the sweep says\n%s", out)
	}
	c.idle()
}

// TestClusterKilledInEveryState kills the controlling process with -9 in each state that a point
// can be in, and begins it again every time: in the end every point has one whole bundle, none
// was measured again that was complete, and nothing is left.
func TestClusterKilledInEveryState(t *testing.T) {
	material.Slow(t)
	c := startCluster(t)
	// What lasts an instant is held while a file is there: the time before sbatch and behind it, and
	// the time until the scheduler says of an allocation that was asked for meanwhile that it has
	// ended. Marks name the round.
	marks := filepath.Join(c.dir, "marks")
	round := c.write("marks/round", "0")
	c.write("marks/ids", "")
	for name, text := range map[string]string{"sbatch": `round=$(cat $marks/round)
wait() {
  touch $marks/$1.$round.$$
  while [ -e $marks/hold-$1 ]; do sleep 0.05; done
  rm $marks/$1.$round.$$
}
wait before
out=$($real "$@") || exit 1
[ -e $marks/hold-end ] && echo "${out%%;*}" >>$marks/ids
wait after
echo "$out"
`, "squeue": `out=$($real "$@") || exit 1
[ -e $marks/hold-end ] && for id in $(cat $marks/ids); do
  out=$(printf '%s\n' "$out" | sed "s/^$id|COMPLET[A-Z]*|/$id|RUNNING|/")
done
printf '%s\n' "$out"
`} {
		real, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		os.Chmod(c.write("bin/"+name, fmt.Sprintf("#!/bin/sh\nreal=%s marks=%s\n%s", real, marks, text)), 0o755)
	}
	c.bin = filepath.Join(c.dir, "bin") + ":"

	s := c.sweep("states", "", map[string]string{"glm": "@1, 2, 3, 4, 5, 6"})
	args := []string{"--duration", "4s", "--parallel", "2"}
	found := func(pattern ...string) bool {
		files, _ := filepath.Glob(filepath.Join(append([]string{s.out}, pattern...)...))
		return len(files) > 0
	}
	mark := func(name string) bool {
		n, _ := os.ReadFile(round)
		m, _ := filepath.Glob(filepath.Join(marks, name+"."+string(n)+".*"))
		return len(m) > 0
	}
	says := func(text string) bool {
		logs, _ := filepath.Glob(filepath.Join(s.out, ".slurm", "*", "*", "out.log"))
		return slices.ContainsFunc(logs, func(l string) bool { raw, _ := os.ReadFile(l); return strings.Contains(string(raw), text) })
	}
	held := ""
	for n, state := range []struct {
		name string
		hold string
		is   func() bool
	}{
		{"planned", "before", func() bool { return found(run.JournalFile) }},
		{"token, not submitted", "before", func() bool { return found(".slurm", "*", "current") && mark("before") }},
		{"submitted, not noted", "after", func() bool { return mark("after") }},
		{"submitted", "end", func() bool { return found(".slurm", "*", "*", "job") }},
		{"engine starts", "end", func() bool { return says("starting unified-0") }},
		{"replaying", "end", func() bool { return says("replaying") }},
		{"ended, not collected", "end", func() bool { return found(".slurm", "*", "*", "*", record.CompleteFile) }},
		{"complete", "", func() bool { return found("*", record.CompleteFile) }},
	} {
		c.write("marks/round", fmt.Sprint(n))
		if before := held; state.hold != before { // the next holds before the last lets go
			if held = state.hold; held != "" {
				c.write("marks/hold-"+held, "")
			}
			os.Remove(filepath.Join(marks, "hold-"+before))
		}
		cmd, out := s.begin(args...)
		done := make(chan error, 1)
		go func() { done <- cmd.Wait() }()
		ended := false
		for end := time.Now().Add(4 * time.Minute); !state.is(); time.Sleep(time.Millisecond) {
			if ended {
				t.Fatalf("the sweep ended before it was in state %q:\n%s", state.name, out)
			}
			select {
			case <-done:
				close(done)
				ended = true // what it left may be the state
			default:
			}
			if time.Now().After(end) {
				t.Fatalf("no state %q", state.name)
			}
		}
		cmd.Process.Kill()
		<-done
		t.Logf("killed in state %q", state.name)
		if state.name == "ended, not collected" {
			// The instant behind it, when the bundle is moved and the rest is not cleared yet.
			bundles, _ := filepath.Glob(filepath.Join(s.out, ".slurm", "*", "*", "*", record.CompleteFile))
			for _, b := range bundles {
				dir := filepath.Dir(b)
				if err := os.Rename(dir, filepath.Join(s.out, filepath.Base(dir))); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	out := s.run(0, args...)
	want := map[string]string{}
	for i := range 6 {
		want[fmt.Sprintf("glm@%d", i+1)] = "COMPLETE"
	}
	s.want(want)
	if !strings.Contains(out, "from before") {
		t.Errorf("nothing is from before:\n%s", out)
	}
	s.once()
	c.idle()
	if left, _ := filepath.Glob(filepath.Join(s.out, ".slurm", "*")); len(left) > 0 {
		t.Errorf("left of points that are done: %v", left)
	}
}

// once checks that no point was completed twice.
func (s *sweep) once() {
	s.c.t.Helper()
	completed := map[string]int{}
	for _, e := range s.journal() {
		if e.State == run.Complete {
			completed[e.Point]++
		}
	}
	for p, n := range completed {
		if n > 1 {
			s.c.t.Errorf("point %s was completed %d times", p, n)
		}
	}
}
