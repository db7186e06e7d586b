package plan

import (
	"bufio"
	"context"
	"encoding/csv"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// system reads what Linux tells about memory, processors, limits, file systems and GPUs.
func (p *prober) system(ctx context.Context) {
	p.meminfo()
	p.cgroup()
	var lim unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &lim); err != nil {
		p.problem("memlock: %v", err)
	} else {
		n := int64(-1)
		if lim.Cur != unix.RLIM_INFINITY && lim.Cur < 1<<62 {
			n = int64(lim.Cur)
		}
		p.s.MemlockBytes = &n
	}
	p.openFiles(ctx)
	p.hugePages()
	p.cpus()
	p.numaNodes()
	p.shm()
	p.disk()
	p.gpus(ctx)
}

func (p *prober) meminfo() {
	text, ok := p.read("/proc/meminfo")
	if !ok {
		p.problem("/proc/meminfo cannot be read")
		return
	}
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		kib, err := strconv.ParseInt(f[1], 10, 64)
		if err != nil {
			continue
		}
		n := kib << 10
		switch f[0] {
		case "MemTotal:":
			p.s.MemTotalBytes = &n
		case "MemAvailable:":
			p.s.MemAvailableBytes = &n
		}
	}
}

// cgroup finds the tightest memory limit of this process, in cgroup v2 or v1, from its own group
// up to the root of the mount.
func (p *prober) cgroup() {
	self, ok := p.read("/proc/self/cgroup")
	if !ok {
		return
	}
	v2, v1 := p.cgroupMounts("cgroup2", ""), p.cgroupMounts("cgroup", "memory")
	for line := range strings.Lines(self) {
		id, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		controllers, group, ok := strings.Cut(rest, ":")
		if !ok {
			continue
		}
		switch {
		case id == "0" && controllers == "" && v2 != "":
			p.tightest(v2, group, func(dir string) *Cgroup { return p.cgroupV2(dir) })
		case slices.Contains(strings.Split(controllers, ","), "memory") && v1 != "":
			p.tightest(v1, group, func(dir string) *Cgroup { return p.cgroupV1(dir) })
		}
	}
}

// cgroupMounts is where a hierarchy is mounted; "" where it is not.
func (p *prober) cgroupMounts(fstype, controller string) string {
	text, ok := p.read("/proc/self/mountinfo")
	if !ok {
		return ""
	}
	for line := range strings.Lines(text) {
		before, after, ok := strings.Cut(line, " - ")
		f, g := strings.Fields(before), strings.Fields(after)
		if !ok || len(f) < 5 || len(g) < 3 || g[0] != fstype {
			continue
		}
		if controller == "" || slices.Contains(strings.Split(g[2], ","), controller) {
			return f[4]
		}
	}
	return ""
}

// tightest keeps the group with the least headroom on the way from a group to its root. Inside a
// container the group's path is often not visible under the mount: then the mount itself is the
// container's group.
func (p *prober) tightest(mount, group string, read func(string) *Cgroup) {
	for dir := path.Join("/", group); ; dir = path.Dir(dir) {
		if c := read(path.Join(mount, dir)); c != nil {
			c.Path = path.Join(mount, dir)
			if p.s.Cgroup == nil || c.HeadroomBytes() < p.s.Cgroup.HeadroomBytes() {
				p.s.Cgroup = c
			}
		}
		if dir == "/" {
			return
		}
	}
}

func (p *prober) cgroupV2(dir string) *Cgroup {
	limit, ok := p.number(path.Join(dir, "memory.max"))
	if !ok {
		return nil
	}
	used, ok := p.number(path.Join(dir, "memory.current"))
	if !ok {
		return nil
	}
	return &Cgroup{Version: 2, LimitBytes: limit, UsedBytes: used, CacheBytes: p.stat(path.Join(dir, "memory.stat"), "inactive_file")}
}

func (p *prober) cgroupV1(dir string) *Cgroup {
	limit, ok := p.number(path.Join(dir, "memory.limit_in_bytes"))
	if !ok || limit >= 1<<62 { // no limit is the largest multiple of a page
		return nil
	}
	used, ok := p.number(path.Join(dir, "memory.usage_in_bytes"))
	if !ok {
		return nil
	}
	return &Cgroup{Version: 1, LimitBytes: limit, UsedBytes: used, CacheBytes: p.stat(path.Join(dir, "memory.stat"), "total_inactive_file")}
}

// stat is a value of a file of names and numbers, 0 where it is not there.
func (p *prober) stat(file, name string) int64 {
	text, _ := p.read(file)
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == name {
			n, _ := strconv.ParseInt(f[1], 10, 64)
			return n
		}
	}
	return 0
}

// openFiles asks a child: the Go runtime raises its own soft limit and gives children the one
// that it was started with, which is what an engine gets.
func (p *prober) openFiles(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "sh", "-c", "ulimit -Sn; ulimit -Hn").Output()
	f := strings.Fields(string(out))
	if err == nil && len(f) == 2 {
		p.s.OpenFiles = &FileLimit{limitNumber(f[0]), limitNumber(f[1])}
		return
	}
	var lim unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &lim); err != nil {
		p.problem("open files: %v", err)
		return
	}
	p.s.OpenFiles = &FileLimit{int64(min(lim.Cur, 1<<40)), int64(min(lim.Max, 1<<40))}
}

func limitNumber(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil { // "unlimited"
		return 1 << 40
	}
	return n
}

func (p *prober) hugePages() {
	const dir = "/sys/kernel/mm/hugepages"
	entries, err := os.ReadDir(p.root(dir))
	if err != nil {
		return
	}
	for _, e := range entries {
		kib, ok := strings.CutPrefix(e.Name(), "hugepages-")
		kib, ok2 := strings.CutSuffix(kib, "kB")
		n, err := strconv.ParseInt(kib, 10, 64)
		if !ok || !ok2 || err != nil {
			continue
		}
		total, _ := p.number(path.Join(dir, e.Name(), "nr_hugepages"))
		free, _ := p.number(path.Join(dir, e.Name(), "free_hugepages"))
		p.s.HugePages = append(p.s.HugePages, HugePage{n << 10, total, free})
	}
}

func (p *prober) cpus() {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		p.problem("affinity: %v", err)
		return
	}
	c := &CPUState{Visible: set.Count()}
	var ids []int
	for i := range len(set) * 64 {
		if set.IsSet(i) {
			ids = append(ids, i)
		}
	}
	c.Affinity = ranges(ids)
	if online, ok := p.read("/sys/devices/system/cpu/online"); ok {
		c.Machine = countRanges(online)
	}
	c.Quota = p.cpuQuota()
	p.s.CPUs = c
}

// cpuQuota is the tightest CPU quota in processors, 0 without one.
func (p *prober) cpuQuota() float64 {
	self, _ := p.read("/proc/self/cgroup")
	v2, v1 := p.cgroupMounts("cgroup2", ""), p.cgroupMounts("cgroup", "cpu")
	least := 0.0
	take := func(quota, period float64) {
		if quota > 0 && period > 0 && (least == 0 || quota/period < least) {
			least = quota / period
		}
	}
	for line := range strings.Lines(self) {
		id, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		controllers, group, ok := strings.Cut(rest, ":")
		if !ok {
			continue
		}
		for dir := path.Join("/", group); ; dir = path.Dir(dir) {
			switch {
			case id == "0" && controllers == "" && v2 != "":
				text, _ := p.read(path.Join(v2, dir, "cpu.max"))
				if f := strings.Fields(text); len(f) == 2 {
					q, err1 := strconv.ParseFloat(f[0], 64)
					d, err2 := strconv.ParseFloat(f[1], 64)
					if err1 == nil && err2 == nil {
						take(q, d)
					}
				}
			case slices.Contains(strings.Split(controllers, ","), "cpu") && v1 != "":
				q, _ := p.number(path.Join(v1, dir, "cpu.cfs_quota_us"))
				d, _ := p.number(path.Join(v1, dir, "cpu.cfs_period_us"))
				take(float64(q), float64(d))
			}
			if dir == "/" {
				break
			}
		}
	}
	return least
}

// ranges writes processors as the kernel does: 0-3,8.
func ranges(ids []int) string {
	var parts []string
	for i := 0; i < len(ids); {
		k := i
		for k+1 < len(ids) && ids[k+1] == ids[k]+1 {
			k++
		}
		if k == i {
			parts = append(parts, strconv.Itoa(ids[i]))
		} else {
			parts = append(parts, fmt.Sprintf("%d-%d", ids[i], ids[k]))
		}
		i = k + 1
	}
	return strings.Join(parts, ",")
}

func countRanges(s string) int {
	n := 0
	for part := range strings.SplitSeq(s, ",") {
		lo, hi, two := strings.Cut(part, "-")
		a, err := strconv.Atoi(lo)
		if err != nil {
			return 0
		}
		b := a
		if two {
			if b, err = strconv.Atoi(hi); err != nil || b < a {
				return 0
			}
		}
		n += b - a + 1
	}
	return n
}

func (p *prober) numaNodes() {
	const dir = "/sys/devices/system/node"
	entries, err := os.ReadDir(p.root(dir))
	if err != nil {
		return
	}
	for _, e := range entries {
		id, err := strconv.Atoi(strings.TrimPrefix(e.Name(), "node"))
		if err != nil || !strings.HasPrefix(e.Name(), "node") {
			continue
		}
		n := NUMANode{ID: id}
		n.CPUs, _ = p.read(path.Join(dir, e.Name(), "cpulist"))
		text, _ := p.read(path.Join(dir, e.Name(), "meminfo"))
		for line := range strings.Lines(text) {
			f := strings.Fields(line) // Node 0 MemTotal: N kB
			if len(f) < 4 {
				continue
			}
			kib, err := strconv.ParseInt(f[3], 10, 64)
			if err != nil {
				continue
			}
			switch f[2] {
			case "MemTotal:":
				n.TotalBytes = kib << 10
			case "MemFree:", "Inactive(file):":
				n.FreeBytes += kib << 10
			}
		}
		p.s.NUMA = append(p.s.NUMA, n)
	}
}

// statfs is the size of a file system and what an unprivileged process may still take of it.
func statfs(dir string) (total, free, inodes int64, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, 0, 0, err
	}
	inodes = int64(min(st.Ffree, 1<<62))
	if st.Files == 0 { // a file system that does not count them
		inodes = -1
	}
	return int64(min(st.Blocks, 1<<50)) * st.Bsize, int64(min(st.Bavail, 1<<50)) * st.Bsize, inodes, nil
}

func (p *prober) shm() {
	dir := p.q.ShmPath
	if dir == "" {
		dir = "/dev/shm"
	}
	total, free, _, err := statfs(dir)
	if err != nil {
		p.problem("%s: %v", dir, err)
		return
	}
	p.s.Shm = &ShmState{Path: dir, TotalBytes: total, FreeBytes: free, Leftovers: leftovers(dir, time.Unix(0, p.s.TimeNs), func(_ string, info fs.FileInfo) int64 {
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			return st.Blocks * 512 // a sparse region takes less than its length
		}
		return info.Size()
	})}
	others(dir, p.s.Shm.Leftovers)
}

func (p *prober) disk() {
	dir := p.q.BundleDir
	if dir == "" {
		return
	}
	d := &DiskState{Path: dir}
	p.s.Disk = d
	for {
		if _, err := os.Stat(dir); err == nil || filepath.Dir(dir) == dir {
			break
		}
		dir = filepath.Dir(dir) // the first run makes it
	}
	_, free, inodes, err := statfs(dir)
	if err != nil {
		d.Why = err.Error()
		return
	}
	d.FreeBytes, d.FreeInodes = free, inodes
	if err := unix.Access(dir, unix.W_OK|unix.X_OK); err != nil {
		d.Why = err.Error()
		return
	}
	d.Writable = true
}

// gpus asks nvidia-smi, then the amdgpu driver's files, then counts device files.
func (p *prober) gpus(ctx context.Context) {
	if p.q.Root == "" {
		if exe, err := exec.LookPath("nvidia-smi"); err == nil {
			ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
			defer cancel()
			out, err := exec.CommandContext(ctx, exe, "--query-gpu=index,name,memory.total,memory.used", "--format=csv,noheader,nounits").Output()
			if err == nil {
				p.s.GPUs = &GPUsState{From: "nvidia-smi", GPUs: parseNvidiaSMI(string(out))}
				return
			}
			p.problem("nvidia-smi: %v", err)
		}
	}
	if cards, _ := filepath.Glob(p.root("/sys/class/drm/card*/device/mem_info_vram_total")); len(cards) > 0 {
		g := &GPUsState{From: "the amdgpu driver"}
		for i, f := range cards {
			dir := strings.TrimPrefix(filepath.Dir(f), strings.TrimSuffix(p.q.Root, "/"))
			x := GPUState{Index: i, TotalBytes: -1, UsedBytes: -1}
			if n, ok := p.number(path.Join(dir, "mem_info_vram_total")); ok {
				x.TotalBytes = n
			}
			if n, ok := p.number(path.Join(dir, "mem_info_vram_used")); ok {
				x.UsedBytes = n
			}
			x.Name, _ = p.read(path.Join(dir, "product_name"))
			g.GPUs = append(g.GPUs, x)
		}
		p.s.GPUs = g
		return
	}
	files, _ := filepath.Glob(p.root("/dev/nvidia[0-9]*"))
	g := &GPUsState{From: "device files", GPUs: []GPUState{}}
	for i := range files {
		g.GPUs = append(g.GPUs, GPUState{Index: i, TotalBytes: -1, UsedBytes: -1})
	}
	p.s.GPUs = g
}

// parseNvidiaSMI reads lines of index, name and MiB; a field that is not a number is unknown.
func parseNvidiaSMI(out string) []GPUState {
	r := csv.NewReader(strings.NewReader(out))
	r.TrimLeadingSpace, r.FieldsPerRecord = true, -1
	gpus := []GPUState{}
	for {
		f, err := r.Read()
		if err != nil {
			return gpus
		}
		if len(f) < 4 {
			continue
		}
		mib := func(s string) int64 {
			n, err := strconv.ParseInt(strings.TrimSpace(s), 10, 64)
			if err != nil || n < 0 || n > 1<<40 {
				return -1
			}
			return n << 20
		}
		i, err := strconv.Atoi(f[0])
		if err != nil {
			continue
		}
		gpus = append(gpus, GPUState{i, f[1], mib(f[2]), mib(f[3])})
	}
}

// listener names the process that listens on a TCP port, where this user may see it.
func (p *prober) listener(port int) string {
	inodes := map[string]bool{}
	for _, file := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		f, err := os.Open(p.root(file))
		if err != nil {
			continue
		}
		sc := bufio.NewScanner(f)
		for sc.Scan() {
			c := strings.Fields(sc.Text()) // sl local rem st ... uid timeout inode
			if len(c) < 10 || c[3] != "0A" {
				continue
			}
			_, hex, _ := strings.Cut(c[1], ":")
			if n, err := strconv.ParseUint(hex, 16, 16); err == nil && int(n) == port {
				inodes["socket:["+c[9]+"]"] = true
			}
		}
		f.Close()
	}
	if len(inodes) == 0 {
		return ""
	}
	procs, _ := os.ReadDir(p.root("/proc"))
	for _, e := range procs {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		fds, _ := os.ReadDir(p.root(path.Join("/proc", e.Name(), "fd")))
		for _, fd := range fds {
			if link, err := os.Readlink(p.root(path.Join("/proc", e.Name(), "fd", fd.Name()))); err == nil && inodes[link] {
				comm, _ := p.read(path.Join("/proc", e.Name(), "comm"))
				return fmt.Sprintf("%s (process %d)", comm, pid)
			}
		}
	}
	return ""
}
