package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
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
