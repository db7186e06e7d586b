package plan

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestMain lets a test start this binary again as a process that probes the node it is on, in
// a control group, with a limit, or in a mount namespace of its own.
func TestMain(m *testing.M) {
	if text := os.Getenv("WEIR_TEST_PROBE"); text != "" {
		var q Request
		if err := json.Unmarshal([]byte(text), &q); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		if err := json.NewEncoder(os.Stdout).Encode(Probe(context.Background(), q)); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// probeUnder probes in a process that a shell line prepares; $SELF is the program. ok is false
// where the machine does not let the line run, with the reason.
func probeUnder(t *testing.T, line string, q Request) (s *NodeState, ok bool) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(q)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", line)
	cmd.Env = append(os.Environ(), "SELF="+self, "WEIR_TEST_PROBE="+string(text))
	out, err := cmd.Output()
	if err != nil {
		why := err.Error()
		if ee, is := err.(*exec.ExitError); is {
			why += ": " + strings.TrimSpace(string(ee.Stderr))
		}
		t.Logf("this machine does not let a test run %q: %s", line, why)
		return nil, false
	}
	if err := json.Unmarshal(out, &s); err != nil {
		t.Fatalf("%v in %q", err, out)
	}
	return s, true
}

// check finds one check of a report.
func check(t *testing.T, rep *Report, name string) Check {
	t.Helper()
	for _, c := range rep.Checks {
		if c.Name == name {
			return c
		}
	}
	t.Fatalf("no check %q in %+v", name, rep.Checks)
	return Check{}
}

func mustJudge(t *testing.T, q Request, s *NodeState) *Report {
	t.Helper()
	rep, err := Judge(q, s)
	if err != nil {
		t.Fatal(err)
	}
	return rep
}

// ownCgroup is the directory of this process's group in a hierarchy, "" where there is none.
func ownCgroup(controller string) (dir string, version int) {
	p := &prober{s: &NodeState{}}
	self, _ := p.read("/proc/self/cgroup")
	for line := range strings.Lines(self) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) != 3 {
			continue
		}
		if mount := p.cgroupMounts("cgroup", controller); mount != "" && strings.Contains(","+f[1]+",", ","+controller+",") {
			return filepath.Join(mount, f[2]), 1
		}
	}
	if mount := p.cgroupMounts("cgroup2", ""); mount != "" {
		for line := range strings.Lines(self) {
			if rest, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
				dir := filepath.Join(mount, rest)
				if b, _ := os.ReadFile(filepath.Join(dir, "cgroup.subtree_control")); strings.Contains(string(b), controller) {
					return dir, 2
				}
			}
		}
	}
	return "", 0
}

// group makes a control group with settings and removes it at the end.
func group(t *testing.T, controller string, settings map[int]map[string]string) (dir string, version int) {
	t.Helper()
	parent, version := ownCgroup(controller)
	if parent == "" {
		t.Logf("no control group of %s may be made here", controller)
		return "", 0
	}
	dir = filepath.Join(parent, fmt.Sprintf("weir-test-%d", os.Getpid()))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Logf("no control group may be made here: %v", err)
		return "", 0
	}
	t.Cleanup(func() {
		for range 50 { // the kernel needs a moment after the last process
			if os.Remove(dir) == nil {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
	})
	for file, v := range settings[version] {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(v), 0o644); err != nil {
			t.Logf("%s cannot be set: %v", file, err)
			return "", 0
		}
	}
	return dir, version
}

// A memory limit of a control group counts, not what the machine has.
func TestCgroupLimitForReal(t *testing.T) {
	const limit = 512 << 20
	dir, version := group(t, "memory", map[int]map[string]string{
		1: {"memory.limit_in_bytes": strconv.Itoa(limit)}, 2: {"memory.max": strconv.Itoa(limit)}})
	if dir == "" {
		return
	}
	s, ok := probeUnder(t, `echo $$ > `+dir+`/cgroup.procs && exec "$SELF"`, Request{})
	if !ok {
		return
	}
	if s.Cgroup == nil || s.Cgroup.LimitBytes != limit || s.Cgroup.Version != version || s.Cgroup.Path != dir {
		t.Fatalf("cgroup %+v, want a limit of %d in %s", s.Cgroup, limit, dir)
	}
	n, from, _ := s.memoryBytes()
	if n <= 0 || n > limit || !strings.Contains(from, dir) {
		t.Errorf("%d bytes by %s", n, from)
	}
	rep := mustJudge(t, Request{Point: glm("cluster:b200-dgxc", 8, 2399)}, s)
	c := check(t, rep, "memory")
	if rep.OK || c.Level != Refuse || !strings.Contains(c.Seen, dir) || !strings.Contains(c.Seen, "less 5 % and 10 GiB") || !strings.Contains(c.Change, "raise the limit of "+dir) {
		t.Errorf("%+v", c)
	}
}

// A CPU quota counts as processors.
func TestCPUQuotaForReal(t *testing.T) {
	dir, _ := group(t, "cpu", map[int]map[string]string{
		1: {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "100000"}, 2: {"cpu.max": "100000 100000"}})
	if dir == "" {
		return
	}
	s, ok := probeUnder(t, `echo $$ > `+dir+`/cgroup.procs && exec "$SELF"`, Request{})
	if !ok {
		return
	}
	if s.CPUs == nil || s.CPUs.Quota != 1 || s.CPUs.Usable() != 1 {
		t.Errorf("%+v, want a quota of 1", s.CPUs)
	}
}

// A container with one processor cannot run eight ranks.
func TestOneCPUForReal(t *testing.T) {
	s, ok := probeUnder(t, `exec taskset -c 0 "$SELF"`, Request{})
	if !ok {
		return
	}
	if s.CPUs == nil || s.CPUs.Visible != 1 || s.CPUs.Affinity != "0" {
		t.Fatalf("%+v, want one processor", s.CPUs)
	}
	c := check(t, mustJudge(t, Request{GPUs: 8}, s), "cpus")
	if c.Level != Refuse || !strings.Contains(c.Seen, "1 usable") || !strings.Contains(c.Change, "at least 10 processors") {
		t.Errorf("%+v", c)
	}
}

// The limit that an engine inherits counts, not the one that Go raises for itself.
func TestLowFileLimitForReal(t *testing.T) {
	s, ok := probeUnder(t, `ulimit -Sn 256 && exec "$SELF"`, Request{})
	if !ok {
		t.Fatal("a soft limit can always be lowered")
	}
	if s.OpenFiles == nil || s.OpenFiles.Soft != 256 || s.OpenFiles.Hard < 256 {
		t.Fatalf("%+v, want a soft limit of 256", s.OpenFiles)
	}
	c := check(t, mustJudge(t, Request{Conc: 64}, s), "open files")
	if c.Level != Refuse || !strings.Contains(c.Seen, "1024 + 16 x 64 lanes = 2048") || !strings.Contains(c.Change, "2048") {
		t.Errorf("%+v", c)
	}
	s, ok = probeUnder(t, `ulimit -n 300 && exec "$SELF"`, Request{})
	if !ok {
		t.Fatal("a hard limit can always be lowered")
	}
	if c := check(t, mustJudge(t, Request{}, s), "open files"); c.Level != Refuse || !strings.Contains(c.Change, "hard limit") {
		t.Errorf("%+v", c)
	}
}

// Shared memory that a file of an earlier run fills.
func TestFullShmForReal(t *testing.T) {
	dir := t.TempDir()
	line := `mount -t tmpfs -o size=4m tmpfs ` + dir + ` && head -c 4194304 /dev/zero > ` + dir + `/vllm_offload_7.mmap && echo x > ` + dir + `/other; exec "$SELF"`
	s, ok := probeUnder(t, `exec unshare -m sh -c '`+line+`'`, Request{ShmPath: dir, BundleDir: dir + "/out"})
	if !ok {
		if s, ok = probeUnder(t, `exec unshare -rm sh -c '`+line+`'`, Request{ShmPath: dir, BundleDir: dir + "/out"}); !ok {
			return
		}
	}
	if s.Shm == nil || s.Shm.TotalBytes != 4<<20 || s.Shm.FreeBytes != 0 || len(s.Shm.Leftovers) != 1 || s.Shm.Leftovers[0].Bytes < 4000<<10 {
		t.Fatalf("%+v", s.Shm)
	}
	rep := mustJudge(t, Request{BundleDir: dir}, s)
	c := check(t, rep, "shm")
	if c.Level != Refuse || !strings.Contains(c.Change, "remove vllm_offload_7.mmap") || !strings.Contains(c.Seen, "0.00 GB free") {
		t.Errorf("%+v", c)
	}
	if c := check(t, rep, "disk"); c.Level != Refuse || !strings.Contains(c.Seen, "a bundle needs 5.00 GB") {
		t.Errorf("%+v", c)
	}
}

func TestPortTakenForReal(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	taken := l.Addr().(*net.TCPAddr).Port
	for try := 1; ; try++ {
		other, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		free := other.Addr().(*net.TCPAddr).Port
		other.Close()
		rep, err := Preflight(t.Context(), Request{Ports: []int{taken, free, 0}})
		if err != nil {
			t.Fatal(err)
		}
		c := check(t, rep, fmt.Sprintf("port %d", taken))
		if c.Level != Refuse || !strings.Contains(c.Seen, "in use") || !strings.Contains(c.Seen, strconv.Itoa(os.Getpid())) {
			t.Errorf("%+v", c)
		}
		equal(t, "port 0", check(t, rep, "port 0").Level, Refuse)
		// Some other process may have been given the port that was free.
		if c := check(t, rep, fmt.Sprintf("port %d", free)); c.Level == OK {
			return
		} else if try == 5 {
			t.Fatalf("the free port: %+v", c)
		}
	}
}

// This machine, as it is, holds a simulated run.
func TestThisNodeForReal(t *testing.T) {
	p := glm("cluster:b200-dgxc", 8, 2399)
	rep, err := Preflight(t.Context(), Request{Point: p, Simulated: true, BundleDir: t.TempDir(), DiskBytes: 1})
	if err != nil {
		t.Fatal(err)
	}
	s := rep.Node
	if s.MemTotalBytes == nil || s.MemAvailableBytes == nil || *s.MemAvailableBytes > *s.MemTotalBytes || s.CPUs == nil || s.CPUs.Visible < 1 || s.OpenFiles == nil || s.MemlockBytes == nil {
		b, _ := json.Marshal(s)
		t.Errorf("%s", b)
	}
	equal(t, "disk", check(t, rep, "disk").Level, OK)
	if _, err := json.Marshal(rep); err != nil {
		t.Error(err)
	}
	// The real point needs eight B200.
	rep, err = Preflight(t.Context(), Request{Point: p})
	if err != nil {
		t.Fatal(err)
	}
	if rep.OK || rep.Verdict == nil {
		t.Error("this machine passes for eight B200")
	}
}
