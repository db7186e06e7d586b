package plan

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirbench/weir/internal/spec"
)

// tree writes files under a root that stands for another machine's proc and sys.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

const mounts = "31 23 0:27 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"

// In cgroup v2 the tightest group on the way to the root counts, and page cache that can be
// given back is not used memory.
func TestCgroupV2Tree(t *testing.T) {
	root := tree(t, map[string]string{
		"proc/meminfo":                                            "MemTotal:  2000000000 kB\nMemFree: 1 kB\nMemAvailable: 1900000000 kB\n",
		"proc/self/cgroup":                                        "0::/job_7/step_0/task_1\n",
		"proc/self/mountinfo":                                     mounts,
		"sys/fs/cgroup/memory.max":                                "max\n", // a root has none; the kernel says max below it
		"sys/fs/cgroup/job_7/memory.max":                          "1000000000000\n",
		"sys/fs/cgroup/job_7/memory.current":                      "600000000000\n",
		"sys/fs/cgroup/job_7/memory.stat":                         "anon 5\ninactive_file 465000000000\n",
		"sys/fs/cgroup/job_7/step_0/memory.max":                   "max\n",
		"sys/fs/cgroup/job_7/step_0/task_1/x":                     "",
		"sys/fs/cgroup/job_7/step_0/cpu.max":                      "1600000 100000\n",
		"sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages":   "1024\n",
		"sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages": "512\n",
		"sys/devices/system/node/node0/meminfo":                   "Node 0 MemTotal: 1000000 kB\nNode 0 MemFree: 600000 kB\nNode 0 Inactive(file): 100000 kB\n",
		"sys/devices/system/node/node0/cpulist":                   "0-63\n",
		"sys/devices/system/node/node1/meminfo":                   "Node 1 MemTotal: 1000000 kB\nNode 1 MemFree: 10 kB\n",
		"sys/devices/system/cpu/online":                           "0-127\n",
		"sys/class/drm/card1/device/mem_info_vram_total":          "309220868096\n",
		"sys/class/drm/card1/device/mem_info_vram_used":           "300000000\n",
	})
	s := Probe(t.Context(), Request{Root: root})
	if s.Cgroup == nil || s.Cgroup.Path != "/sys/fs/cgroup/job_7" || s.Cgroup.Version != 2 {
		t.Fatalf("%+v", s.Cgroup)
	}
	equal(t, "headroom", s.Cgroup.HeadroomBytes(), 1_000_000_000_000-(600_000_000_000-465_000_000_000))
	n, from, ok := s.memoryBytes()
	if !ok || n != 865_000_000_000 || !strings.Contains(from, "job_7") {
		t.Errorf("%d by %s", n, from)
	}
	equal(t, "quota", s.CPUs.Quota, 16)
	equal(t, "machine", s.CPUs.Machine, 128)
	equal(t, "huge pages", s.HugePages[0], HugePage{2 << 20, 1024, 512})
	equal(t, "numa", len(s.NUMA), 2)
	equal(t, "numa free", s.NUMA[0].FreeBytes, 700_000<<10)
	if s.GPUs == nil || len(s.GPUs.GPUs) != 1 || s.GPUs.GPUs[0].TotalBytes != 309220868096 {
		t.Errorf("%+v", s.GPUs)
	}
	rep := mustJudge(t, Request{}, s)
	if c := check(t, rep, "hugepages"); c.Level != Warn || !strings.Contains(c.Seen, "2.15 GB") {
		t.Errorf("%+v", c)
	}
	if c := check(t, mustJudge(t, Request{HugePageBytes: 1 << 30}, s), "hugepages"); c.Level != Refuse {
		t.Errorf("%+v", c)
	}
}

// A node with enough of everything, as a state that a probe might have seen.
func goodNode() *NodeState {
	total, avail, lock := int64(3300e9), int64(3200e9), int64(-1)
	gpus := &GPUsState{From: "nvidia-smi"}
	for i := range 8 {
		gpus.GPUs = append(gpus.GPUs, GPUState{i, "NVIDIA B200", 183_359 << 20, 4 << 20})
	}
	return &NodeState{Host: "node", MemTotalBytes: &total, MemAvailableBytes: &avail, MemlockBytes: &lock, OpenFiles: &FileLimit{1 << 20, 1 << 20},
		CPUs: &CPUState{Visible: 224, Machine: 224, Affinity: "0-223"}, Shm: &ShmState{Path: "/dev/shm", TotalBytes: 1600e9, FreeBytes: 1600e9}, GPUs: gpus,
		NUMA: []NUMANode{{0, 1650e9, 1600e9, "0-111"}, {1, 1650e9, 1600e9, "112-223"}}}
}

func TestJudge(t *testing.T) {
	point := glm("cluster:b200-dgxc", 8, 2399)
	if rep := mustJudge(t, Request{Point: point}, goodNode()); !rep.OK {
		t.Fatalf("%+v", rep.Checks)
	}
	vllm := &spec.Point{Key: "m3", ModelPrefix: "minimaxm3", Precision: "fp4", Framework: "vllm", Runner: "cluster:b200-dgxc", Conc: 8,
		Unified: par(8), Offload: spec.Offload{Mode: "dram", Backend: spec.Component{Name: "native"}, BudgetGB: 2399}}
	fixed := glm("cluster:b200-dgxc", 8, 2399)
	fixed.Weir.HostBytesPerRank = 240e9
	for name, c := range map[string]struct {
		point *spec.Point
		edit  func(*NodeState)
		check string
		level Level
		says  string
	}{
		"less memory":    {fixed, func(s *NodeState) { *s.MemAvailableBytes = 2000e9 }, "memory", Refuse, "MemAvailable, less 5 % and 10 GiB = 1889.26 GB"},
		"a cgroup":       {fixed, func(s *NodeState) { s.Cgroup = &Cgroup{2, "/sys/fs/cgroup/job", 1000e9, 0, 0} }, "memory", Refuse, "the memory limit of cgroup /sys/fs/cgroup/job"},
		"fewer GPUs":     {point, func(s *NodeState) { s.GPUs.GPUs = s.GPUs.GPUs[:7] }, "gpus", Refuse, "7 seen"},
		"more GPUs":      {glm("cluster:b200-dgxc", 4, 1199), func(*NodeState) {}, "gpus", Warn, "the allocation is larger"},
		"another GPU":    {point, func(s *NodeState) { s.GPUs.GPUs[3].Name = "NVIDIA H200" }, "gpu name", Refuse, "GPU 3 is a NVIDIA H200"},
		"a full GPU":     {point, func(s *NodeState) { s.GPUs.GPUs[5].UsedBytes = 90 << 30 }, "gpu memory", Refuse, "GPU 5 has 89.06 GiB free"},
		"no GPU told":    {point, func(s *NodeState) { s.GPUs = nil }, "gpus", NotSeen, "8 are needed"},
		"two cpus":       {point, func(s *NodeState) { s.CPUs.Visible = 2 }, "cpus", Refuse, "2 usable"},
		"few cpus":       {point, func(s *NodeState) { s.CPUs.Visible = 16 }, "cpus", Warn, "fewer than four"},
		"numa":           {point, func(s *NodeState) { s.NUMA[1].FreeBytes = 500e9 }, "numa", Warn, "node 1 has 500.00 GB free"},
		"memlock":        {point, func(s *NodeState) { *s.MemlockBytes = 64 << 10 }, "memlock", Warn, "CUDA registers it"},
		"shm of vllm":    {vllm, func(*NodeState) {}, "shm", Refuse, "the host tier, which lies in shared memory"},
		"small shm":      {point, func(s *NodeState) { s.Shm.FreeBytes = 64 << 20 }, "shm", Refuse, "needs 1.07 GB"},
		"old files":      {point, func(s *NodeState) { s.Shm.Leftovers = []Leftover{{Name: "vllm_offload_1.mmap", Bytes: 1e12, AgeNs: 1}} }, "shm", Warn, "1 files of earlier runs hold 1000.00 GB"},
		"no memory told": {point, func(s *NodeState) { s.MemAvailableBytes = nil }, "memory", NotSeen, "neither"},
	} {
		s := goodNode()
		c.edit(s)
		rep := mustJudge(t, Request{Point: c.point}, s)
		got := check(t, rep, c.check)
		if got.Level != c.level || !strings.Contains(got.Seen, c.says) {
			t.Errorf("%s: %+v", name, got)
		}
		if got.Level == Refuse && got.Change == "" {
			t.Errorf("%s teaches nothing: %+v", name, got)
		}
		equal(t, name, rep.OK, c.level != Refuse)
	}
	// The size that plan chose from the runner's facts is on the command line already: a node with
	// less is refused, and told what would fit.
	less := goodNode()
	*less.MemAvailableBytes = 2000e9
	if c := check(t, mustJudge(t, Request{Point: point}, less), "memory"); c.Level != Refuse || !strings.Contains(c.Seen, "host tier 2389.52 GB") || !strings.Contains(c.Change, "pass --hicache-size 17") {
		t.Errorf("%+v", c)
	}
	full := goodNode()
	full.Cgroup = &Cgroup{2, "/sys/fs/cgroup/job", 1e9, 1e9, 0}
	if c := check(t, mustJudge(t, Request{Point: point}, full), "memory"); c.Level != Refuse {
		t.Errorf("a full cgroup passes: %+v", c)
	}
	mooncake := *point
	mooncake.KVTransfer = "mooncake"
	s := goodNode()
	*s.MemlockBytes = 64 << 10
	equal(t, "memlock with RDMA", check(t, mustJudge(t, Request{Point: &mooncake}, s), "memlock").Level, Refuse)
	if _, err := Judge(Request{Point: point, Role: "decode"}, goodNode()); err == nil {
		t.Error("a role that the point does not have is accepted")
	}
	over := *point
	over.Weir.HostBytesPerRank = 270e9 // fits the node, not the share
	if c := check(t, mustJudge(t, Request{Point: &over}, goodNode()), "plan"); c.Level != Refuse || !strings.Contains(c.Seen, "policy-violation") {
		t.Errorf("%+v", c)
	}
}

func TestParseNvidiaSMI(t *testing.T) {
	got := parseNvidiaSMI("0, NVIDIA B200, 183359, 4\n1, NVIDIA GB200, [N/A], [N/A]\nnonsense\nx, y, z, w\n")
	if len(got) != 2 || got[0] != (GPUState{0, "NVIDIA B200", 183_359 << 20, 4 << 20}) || got[1].TotalBytes != -1 {
		t.Errorf("%+v", got)
	}
	for _, c := range []struct {
		want, product string
		same          bool
	}{{"b200", "NVIDIA B200", true}, {"b200", "NVIDIA GB200", false}, {"gb200", "NVIDIA GB200", true}, {"h100", "NVIDIA H100 80GB HBM3", true},
		{"rtx6000pro", "NVIDIA RTX PRO 6000 Blackwell Server Edition", true}, {"b200", "something new", true}, {"mi355x", "AMD Instinct MI355X OAM", true}} {
		equal(t, c.want+" and "+c.product, sameGPU(c.want, c.product), c.same)
	}
}

func TestModelAndCorpusPaths(t *testing.T) {
	dir := tree(t, map[string]string{
		"m/config.json": "{}", "m/model.safetensors.index.json": `{"weight_map":{"a":"one.safetensors","b":"two.safetensors","c":"two.safetensors"}}`,
		"m/one.safetensors": "x", "m/two.safetensors": "", "empty/.keep/x": "", "file": "abc",
	})
	st := modelState(filepath.Join(dir, "m"))
	if !st.Present || len(st.Missing) != 1 || st.Missing[0] != "two.safetensors" {
		t.Errorf("%+v", st)
	}
	rep := mustJudge(t, Request{}, &NodeState{Paths: []PathState{st, pathState("corpus", filepath.Join(dir, "nowhere"), nil)}})
	if c := check(t, rep, "model"); c.Level != Refuse || !strings.Contains(c.Seen, "two.safetensors") {
		t.Errorf("%+v", c)
	}
	if c := check(t, rep, "corpus"); c.Level != Refuse || !strings.Contains(c.Seen, "no such file") {
		t.Errorf("%+v", c)
	}
	if st := pathState("corpus", filepath.Join(dir, "file"), nil); !st.Present || st.Bytes != 3 {
		t.Errorf("%+v", st)
	}
	if st := modelState(t.TempDir()); st.Present {
		t.Errorf("%+v", st)
	}
	weights := filepath.Join(dir, "m", "two.safetensors")
	if err := os.WriteFile(weights, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	if st := modelState(filepath.Join(dir, "m")); !st.Present || len(st.Missing) != 0 {
		t.Errorf("%+v", st)
	}
}

// Clocks over a real connection: equal ones agree within the error, a skewed one does not.
func TestClockOffset(t *testing.T) {
	serve := func(skew time.Duration) string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- ServeClock(ctx, l, func() time.Time { return time.Now().Add(skew) }) }()
		t.Cleanup(func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
		return l.Addr().String()
	}
	for _, skew := range []time.Duration{0, 3 * time.Second, -time.Hour} {
		st := ClockOffset(t.Context(), serve(skew))
		if !st.OK || (time.Duration(st.OffsetNs)-skew).Abs() > time.Duration(st.ErrorNs) {
			t.Errorf("skew %v: %+v", skew, st)
		}
		c := check(t, mustJudge(t, Request{}, &NodeState{Clock: st}), "clock")
		if skew != 0 {
			equal(t, skew.String(), c.Level, Refuse)
		} else if c.Level == Refuse {
			t.Errorf("%+v", c)
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if c := check(t, mustJudge(t, Request{}, &NodeState{Clock: ClockOffset(t.Context(), l.Addr().String())}), "clock"); c.Level != Refuse || !strings.Contains(c.Change, "--serve-clock") {
		t.Errorf("%+v", c)
	}
}

func TestRanges(t *testing.T) {
	for s, n := range map[string]int{"0": 1, "0-3": 4, "0-3,8,10-11": 7, "": 0, "x": 0, "3-1": 0} {
		equal(t, s, countRanges(s), n)
	}
	equal(t, "list", ranges([]int{0, 1, 2, 5, 7, 8}), "0-2,5,7-8")
}
