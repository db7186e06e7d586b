package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
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

// cluster is a real Slurm cluster of three nodes on this machine, for the tests of one function.
type cluster struct {
	t     testing.TB // the part of the test that runs
	root  testing.TB
	dir   string
	bin   string // beginning of PATH, with its colon: wrappers of Slurm's commands
	weir  string // this binary under the name that makes it the program
	procs map[string]*daemon
}

// daemon is a process of the cluster's own.
type daemon struct {
	*exec.Cmd
	ended chan struct{} // closed when it has ended
}

// startCluster brings a cluster up; the test's end takes it down. Another process may take a
// port between its being found free and its being used: then a daemon ends, and the cluster is
// made again.
func startCluster(t testing.TB) *cluster {
	t.Helper()
	material.RealTime(t)
	if p, ok := t.(interface{ Parallel() }); ok { // a benchmark has none
		p.Parallel() // most of their time is waiting
	}
	buryOldClusters()
	for try := 1; ; try++ {
		c := newCluster(t)
		t.Cleanup(func() { c.stop() })
		begun := time.Now()
		err := c.up()
		if err == nil {
			t.Logf("the cluster was up after %v", time.Since(begun).Round(time.Millisecond))
			return c
		}
		if try == 3 {
			t.Fatal(err)
		}
		t.Log(err)
		c.stop()
	}
}

// buryOldClusters ends what an earlier run of these tests has left that was killed itself: daemons
// and jobs of clusters whose folder names a process that is gone.
func buryOldClusters() {
	dirs, _ := filepath.Glob(filepath.Join(os.TempDir(), "weir-slurm-*-*"))
	for _, dir := range dirs {
		pid, err := strconv.Atoi(strings.Split(filepath.Base(dir), "-")[2])
		if err != nil || syscall.Kill(pid, 0) != syscall.ESRCH {
			continue
		}
		old := &cluster{dir: dir}
		for pid := range old.processes() {
			syscall.Kill(pid, syscall.SIGKILL)
		}
		os.RemoveAll(dir)
	}
}

// newCluster writes the configuration of a cluster in a folder of its own.
func newCluster(t testing.TB) *cluster {
	t.Helper()
	for _, tool := range []string{"slurmctld", "slurmd", "munged"} {
		material.Tool(t, tool, "/usr/sbin/"+tool)
	}
	material.Root(t)
	weir, err := exec.LookPath("weir")
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", fmt.Sprintf("weir-slurm-%d-", os.Getpid())) // short: a socket's path is
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{t: t, root: t, dir: dir, weir: weir, procs: map[string]*daemon{}}
	for _, d := range []string{"state", "spool", "run", "log", "shm"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	os.Chmod(dir, 0o755)
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	host, _, _ = strings.Cut(host, ".")
	gpus := ""
	for i := range 8 {
		c.write(fmt.Sprintf("gpu%d", i), "")
	}
	gpus = "Name=gpu File=" + dir + "/gpu[0-7]\n"
	ports := c.ports(4)
	c.write("gres.conf", gpus)
	cgroups := "CgroupAutomount=no\n"
	var major int
	if out, err := exec.Command(material.Tool(t, "slurmctld", "/usr/sbin/slurmctld"), "-V").Output(); err != nil {
		t.Fatal(err)
	} else if _, err := fmt.Sscanf(string(out), "slurm-wlm %d.", &major); err == nil && major >= 23 {
		cgroups = "CgroupPlugin=disabled\n" // releases before have no such plugin
	}
	c.write("cgroup.conf", cgroups)
	c.write("munge.key", strings.Repeat("not a secret at all, thirty-two.", 8))
	os.Chmod(filepath.Join(dir, "munge.key"), 0o400)
	conf := fmt.Sprintf(`ClusterName=weirtest
SlurmctldHost=%[1]s(127.0.0.1)
SlurmctldPort=%[3]d
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=%[2]s/run/munge.sock
CredType=cred/munge
StateSaveLocation=%[2]s/state
SlurmdSpoolDir=%[2]s/spool/%%n
SlurmctldPidFile=%[2]s/run/ctld.pid
SlurmdPidFile=%[2]s/run/%%n.pid
SlurmctldLogFile=%[2]s/log/ctld.log
SlurmdLogFile=%[2]s/log/%%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_min_interval=0
SlurmdParameters=config_overrides
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
ReturnToService=2
SlurmdTimeout=300
MessageTimeout=60
TCPTimeout=30
BatchStartTimeout=120
UnkillableStepTimeout=180
KillWait=3
MinJobAge=600
GresTypes=gpu
`, host, dir, ports[0])
	for i := range 3 {
		conf += fmt.Sprintf("NodeName=n%d NodeHostname=%s NodeAddr=127.0.0.1 Port=%d CPUs=8 RealMemory=1000 Gres=gpu:8\n", i+1, host, ports[i+1])
	}
	conf += "PartitionName=main Nodes=n[1-3] Default=YES MaxTime=INFINITE State=UP PriorityTier=1\n" +
		"PartitionName=urgent Nodes=n[1-3] MaxTime=INFINITE State=UP PriorityTier=9\n"
	c.write("slurm.conf", conf)
	return c
}

// up starts the daemons and waits until all nodes are idle. It is an error when one ends.
func (c *cluster) up() error {
	c.t.Helper()
	munge := filepath.Join(c.dir, "run", "munge.sock")
	c.start("munged", "--foreground", "--force", "--key-file="+filepath.Join(c.dir, "munge.key"), "--socket="+munge,
		"--pid-file="+filepath.Join(c.dir, "run", "munged.pid"), "--log-file="+filepath.Join(c.dir, "log", "munged.log"), "--seed-file="+filepath.Join(c.dir, "run", "seed"))
	c.until("munged", 2*time.Minute, func() bool { _, err := os.Stat(munge); return err == nil })
	c.start("slurmctld", "-D", "-c")
	for i := range 3 {
		c.startNode(i + 1)
	}
	for end := time.Now().Add(3 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		out, err := c.try("sinfo", "--noheader", "--partition=main", "--format=%D %T")
		if err == nil && strings.TrimSpace(out) == "3 idle" {
			return nil
		}
		for name, d := range c.procs {
			select {
			case <-d.ended:
				log, _ := os.ReadFile(filepath.Join(c.dir, "log", name+".out"))
				return fmt.Errorf("%s ended by itself: %v\n%s", name, d.ProcessState, log[max(0, len(log)-1000):])
			default:
			}
		}
		if time.Now().After(end) {
			return fmt.Errorf("no three idle nodes after 3 min: %q, %v", out, err)
		}
	}
}

// ports picks free ports below those of outgoing connections.
func (c *cluster) ports(n int) []int {
	var out []int
	for len(out) < n {
		p := 10000 + rand.IntN(2000)
		if l, err := net.Listen("tcp", fmt.Sprintf(":%d", p)); err == nil && !slices.Contains(out, p) {
			l.Close()
			out = append(out, p)
		}
	}
	return out
}

func (c *cluster) write(name, text string) string {
	c.t.Helper()
	path := filepath.Join(c.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		c.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		c.t.Fatal(err)
	}
	return path
}

func (c *cluster) startNode(i int) {
	c.start(fmt.Sprintf("slurmd-%d", i), "-D", "-N", fmt.Sprintf("n%d", i))
}

// start runs a daemon in the foreground, in a process group of its own.
func (c *cluster) start(name string, args ...string) {
	c.t.Helper()
	tool, _, _ := strings.Cut(name, "-")
	cmd := exec.Command(material.Tool(c.t, tool, "/usr/sbin/"+tool), args...)
	cmd.Env = c.env()
	log, err := os.Create(filepath.Join(c.dir, "log", name+".out"))
	if err != nil {
		c.t.Fatal(err)
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	d := &daemon{cmd, make(chan struct{})}
	go func() { cmd.Wait(); close(d.ended) }()
	c.procs[name] = d
}

// kill ends a daemon, by force where it takes long.
func (c *cluster) kill(name string, s syscall.Signal) {
	d := c.procs[name]
	if d == nil {
		return
	}
	delete(c.procs, name)
	syscall.Kill(-d.Process.Pid, s)
	select {
	case <-d.ended:
	case <-time.After(20 * time.Second):
		syscall.Kill(-d.Process.Pid, syscall.SIGKILL)
		<-d.ended
	}
}

// stop ends jobs, then daemons, then what still has this cluster in its environment, which
// must be nothing.
func (c *cluster) stop() {
	c.try("scancel", "--user=root", "--full")
	c.try("scancel", "--user=root")
	end := time.Now().Add(20 * time.Second)
	for time.Now().Before(end) {
		out, err := c.try("squeue", "--noheader", "--format=%T")
		if err != nil || strings.TrimSpace(out) == "" {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	for name, d := range c.procs {
		if name != "munged" {
			syscall.Kill(-d.Process.Pid, syscall.SIGTERM) // all at once
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.procs)) {
		if name != "munged" {
			c.kill(name, syscall.SIGTERM)
		}
	}
	c.kill("munged", syscall.SIGTERM)
	for pid := range c.processes() {
		syscall.Kill(pid, syscall.SIGKILL)
	}
	if c.root.Failed() {
		for _, name := range []string{"ctld.log"} {
			if raw, err := os.ReadFile(filepath.Join(c.dir, "log", name)); err == nil {
				c.root.Logf("%s ends with:\n%s", name, raw[max(0, len(raw)-3000):])
			}
		}
	}
	os.RemoveAll(c.dir)
}

// processes are those with this cluster in their environment, by pid: what they run.
func (c *cluster) processes() map[int]string {
	out := map[int]string{}
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		pid, _ := strconv.Atoi(filepath.Base(d))
		env, err := os.ReadFile(filepath.Join(d, "environ"))
		if err != nil || pid == os.Getpid() || !bytes.Contains(env, []byte("SLURM_CONF="+c.dir+"/")) {
			continue
		}
		cmdline, _ := os.ReadFile(filepath.Join(d, "cmdline"))
		out[pid] = strings.ReplaceAll(string(cmdline), "\x00", " ")
	}
	return out
}

// left are processes that were started on the cluster's behalf, by pid, beside its daemons.
func (c *cluster) left() map[int]string {
	out := c.processes()
	for pid, text := range out {
		name, _, _ := strings.Cut(text, " ")
		switch filepath.Base(name) {
		case "slurmctld", "slurmd", "munged", "slurmctld:", "", ".":
			delete(out, pid)
		}
	}
	return out
}

// engines are the simulated engines that run now.
func (c *cluster) engines() []int {
	var out []int
	for pid, text := range c.left() {
		if strings.Contains(text, " sim serve ") && !strings.Contains(text, "srun ") && !strings.HasPrefix(text, "env ") && !strings.Contains(text, "slurmstepd") {
			out = append(out, pid)
		}
	}
	return out
}

// env is the environment of what uses this cluster.
func (c *cluster) env() []string {
	return append(os.Environ(), "SLURM_CONF="+filepath.Join(c.dir, "slurm.conf"), "PATH="+c.bin+os.Getenv("PATH"))
}

func (c *cluster) try(name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = c.env()
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		err = fmt.Errorf("%s %v: %w: %s", name, args, err, bytes.TrimSpace(exit.Stderr))
	}
	return string(out), err
}

// must runs a command of the scheduler's until it succeeds: the controller refuses some while
// what they ask about changes, and does not answer when the machine is busy.
func (c *cluster) must(name string, args ...string) string {
	c.t.Helper()
	for end := time.Now().Add(3 * time.Minute); ; time.Sleep(200 * time.Millisecond) {
		out, err := c.try(name, args...)
		if err == nil {
			return out
		}
		if time.Now().After(end) {
			c.t.Fatal(err)
		}
	}
}

// usable waits until a node is idle. Where it does not come back by itself it is resumed.
func (c *cluster) usable(node string) {
	c.t.Helper()
	c.until("idle node "+node, 2*time.Minute, func() bool {
		state, err := c.try("sinfo", "--noheader", "--Node", "--partition=main", "--nodes="+node, "--format=%T")
		if state = strings.TrimSpace(state); err != nil || state == "idle" {
			return err == nil
		}
		if strings.HasPrefix(state, "down") || strings.HasPrefix(state, "drain") {
			c.try("scontrol", "update", "nodename="+node, "state=resume") // refused when it has just come back
		}
		return false
	})
}

func (c *cluster) until(what string, limit time.Duration, ok func() bool) {
	c.t.Helper()
	for end := time.Now().Add(limit); !ok(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			c.t.Fatalf("no %s after %v", what, limit)
		}
	}
}

// idle checks that a sweep has left nothing: no job, no process.
func (c *cluster) idle() {
	c.t.Helper()
	c.until("empty queue", 3*time.Minute, func() bool {
		out, err := c.try("squeue", "--noheader", "--format=%i %T")
		return err == nil && strings.TrimSpace(out) == ""
	})
	c.until("end of all processes", 3*time.Minute, func() bool { return len(c.left()) == 0 })
}

// a sweep is a weir sweep on the cluster.
type sweep struct {
	c      *cluster
	dir    string
	master string
	out    string
}

const clusterFleet = `clusters:
  cluster:b200-dgxc:
    scheduler: slurm
    node: { shm: %q }
    slurm: { partition: main, gres: "gpu:8", exclusive: true, time-s: 600%s }
`

// sweep prepares one: configs by name with the changes to the recipe that they run.
func (c *cluster) sweep(name, fleet string, configs map[string]string) *sweep {
	c.t.Helper()
	s := &sweep{c: c, dir: filepath.Join(c.dir, name), master: "", out: filepath.Join(c.dir, name, "out")}
	if _, err := os.Stat(filepath.Join(c.dir, "traces")); err != nil {
		c.weirRun(0, "corpus", "generate", "-o", filepath.Join(c.dir, "traces"), "--traces", "4", "--seed", "7", "--system", "500",
			"--first-input", "1000", "--growth", "200", "--context", "4000", "--sub-agents", "-1")
	}
	c.write(name+"/runners.yaml", "labels:\n  cluster:b200-dgxc: [ b200-dgxc_00 ]\nhardware:\n  cluster:b200-dgxc: { available-cpu-dram-mib: 3_095_781, gpus-per-node: 8 }\n")
	c.write(name+"/fleet.yaml", fmt.Sprintf(clusterFleet, filepath.Join(c.dir, "shm"), fleet))
	for _, key := range slices.Sorted(maps.Keys(configs)) {
		recipe, concs, _ := strings.Cut(configs[key], "@")
		c.write(name+"/r-"+key+".yaml", "name: r-"+key+"\nextends: sim-serve\nready: { start: 5m, drain: 2m, silent: 5m, stop: 1m }\nargs: { speed: 50"+recipe+" }\n")
		s.master += fmt.Sprintf(clusterConfig, key, "r-"+key, concs)
	}
	c.write(name+"/master.yaml", s.master)
	return s
}

// held is a fault of a recipe that lets a point neither end nor fail by itself: its engine answers
// what comes before the load, twenty requests and more, and then nothing more in the warm-up, which
// must have as many (heldWarmup). With a file only the first engine that comes so far does this.
func (c *cluster) held(once string) string {
	if once != "" {
		once = ",once=" + filepath.Join(c.dir, once)
	}
	return fmt.Sprintf(`, fault: "stall,skip=20%s"`, once)
}

// heldUntil is such a fault that ends when a file is made.
func (c *cluster) heldUntil(file string) string {
	return fmt.Sprintf(`, fault: "stall,skip=20,until=%s"`, filepath.Join(c.dir, file))
}

// heldWarmup are the flags of a sweep whose engines are held.
var heldWarmup = []string{"--warmup-requests-per-lane", "60"}

const clusterConfig = `%s:
  image: lmsysorg/sglang:v0.5.16-cu130
  model: nvidia/GLM-5.2-NVFP4
  model-prefix: glm5.2
  runner: cluster:b200-dgxc
  precision: fp4
  framework: sglang
  multinode: false
  weir: { recipe: %s }
  scenarios:
    agentic-coding:
    - dram-utilization: 0.80
      search-space:
      - { tp: 8, kv-offloading: dram, kv-offload-backend: { name: hicache }, conc-list: [ %s ] }
`

func (s *sweep) args(more ...string) []string {
	return append([]string{"sweep", "-f", filepath.Join(s.dir, "master.yaml"), "-r", filepath.Join(s.dir, "runners.yaml"), "--recipes", s.dir,
		"--fleet", filepath.Join(s.dir, "fleet.yaml"), "--corpus", filepath.Join(s.c.dir, "traces"), "-o", s.out, "--poll", "200ms",
		"--duration", "5s", "--client-limit", "none", "--no-gaps", "--max-output", "20", "--warmup-requests-per-lane", "0"}, more...)
}

// begin starts the sweep in the background.
func (s *sweep) begin(more ...string) (*exec.Cmd, *bytes.Buffer) {
	s.c.t.Helper()
	cmd := exec.Command(s.c.weir, s.args(more...)...)
	cmd.Env = s.c.env()
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		s.c.t.Fatal(err)
	}
	return cmd, &out
}

// run runs the sweep to its end, which must have the exit code.
func (s *sweep) run(code int, more ...string) string {
	s.c.t.Helper()
	cmd, out := s.begin(more...)
	return s.wait(cmd, out, code)
}

func (s *sweep) wait(cmd *exec.Cmd, out *bytes.Buffer, code int) string {
	s.c.t.Helper()
	t := time.AfterFunc(8*time.Minute, func() { syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	cmd.Wait()
	t.Stop()
	if got := cmd.ProcessState.ExitCode(); got != code {
		logs, _ := filepath.Glob(filepath.Join(s.out, ".slurm", "*", "*", "out.log"))
		for _, l := range logs {
			raw, _ := os.ReadFile(l)
			s.c.t.Logf("%s:\n%s", l, raw)
		}
		journal, _ := os.ReadFile(filepath.Join(s.out, run.JournalFile))
		s.c.t.Fatalf("the sweep ended with %d, want %d:\n%s\n%s", got, code, out, journal)
	}
	return out.String()
}

func (c *cluster) weirRun(code int, args ...string) string {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.weir, args...)
	cmd.Env = c.env()
	out, _ := cmd.CombinedOutput()
	if got := cmd.ProcessState.ExitCode(); got != code {
		c.t.Fatalf("weir %v ended with %d, want %d:\n%s", args, got, code, out)
	}
	return string(out)
}

// ends is how every point ended, by concurrency and config: "COMPLETE" or its class.
func (s *sweep) ends() map[string]string {
	s.c.t.Helper()
	out := map[string]string{}
	entries, err := os.ReadDir(s.out)
	if err != nil {
		s.c.t.Fatal(err)
	}
	for _, e := range entries {
		dir := filepath.Join(s.out, e.Name())
		if !e.IsDir() || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		var meta struct {
			Point struct {
				Key  string `json:"key"`
				Conc int    `json:"conc"`
			} `json:"point"`
		}
		name := e.Name()
		if raw, err := os.ReadFile(filepath.Join(dir, "point.json")); err == nil && json.Unmarshal(raw, &meta) == nil {
			name = fmt.Sprintf("%s@%d", meta.Point.Key, meta.Point.Conc)
		}
		out[name] = "neither"
		if _, err := os.Stat(filepath.Join(dir, "COMPLETE")); err == nil {
			out[name] = "COMPLETE"
		} else if raw, err := os.ReadFile(filepath.Join(dir, "FAILED")); err == nil {
			var f struct {
				Class string `json:"class"`
			}
			if err := json.Unmarshal(raw, &f); err != nil {
				s.c.t.Fatal(err)
			}
			out[name] = f.Class
		} else if !errors.Is(err, fs.ErrNotExist) {
			s.c.t.Fatal(err)
		}
	}
	return out
}

func (s *sweep) journal() []run.Entry {
	s.c.t.Helper()
	es, err := run.ReadJournal(filepath.Join(s.out, run.JournalFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.c.t.Fatal(err)
	}
	return es
}

// retries are how often the points of a sweep were tried again, as after a node that failed.
func (s *sweep) retries() int {
	n := 0
	for _, e := range s.journal() {
		if e.State == run.Retried {
			n++
		}
	}
	return n
}

func (s *sweep) want(want map[string]string) {
	s.c.t.Helper()
	if got := s.ends(); !maps.Equal(got, want) {
		s.c.t.Errorf("the points ended as %v, want %v", got, want)
		raw, _ := os.ReadFile(filepath.Join(s.out, run.JournalFile))
		s.c.t.Logf("journal:\n%s", raw)
	}
}

// TestClusterSweep runs unified points on a real scheduler: one allocation a point, whole
// bundles, nothing left.
func TestClusterSweep(t *testing.T) {
	c := startCluster(t)
	s := c.sweep("four", "", map[string]string{"glm": "@1, 2, 3, 4"})
	out := s.run(0)
	s.want(map[string]string{"glm@1": "COMPLETE", "glm@2": "COMPLETE", "glm@3": "COMPLETE", "glm@4": "COMPLETE"})
	c.idle()
	jobs := map[string]bool{}
	for _, e := range s.journal() {
		if e.State == run.Submitted {
			jobs[e.Job] = true
		}
	}
	if len(jobs) != 4+s.retries() {
		t.Errorf("%d allocations for four points, %d times tried again:\n%s", len(jobs), s.retries(), out)
	}
	// The same again submits nothing.
	if out := s.run(0); strings.Count(out, "from before") != 4 {
		t.Errorf("the same sweep again says\n%s", out)
	}
}
