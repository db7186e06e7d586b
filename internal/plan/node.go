package plan

// NodeState is what was seen on one node, for the bundle and for Judge. A pointer that is nil
// is a value that the node does not tell.
type NodeState struct {
	Host   string `json:"host"`
	TimeNs int64  `json:"time_unix_ns"` // of the probe

	MemTotalBytes     *int64  `json:"mem_total_bytes"`
	MemAvailableBytes *int64  `json:"mem_available_bytes"`
	Cgroup            *Cgroup `json:"cgroup,omitempty"` // the tightest limit that holds; nil where none does

	MemlockBytes *int64     `json:"memlock_bytes"` // -1 is no limit
	OpenFiles    *FileLimit `json:"open_files"`
	HugePages    []HugePage `json:"huge_pages,omitempty"`
	CPUs         *CPUState  `json:"cpus"`
	NUMA         []NUMANode `json:"numa,omitempty"`
	Shm          *ShmState  `json:"shm,omitempty"`
	GPUs         *GPUsState `json:"gpus"`

	Ports []PortState `json:"ports,omitempty"`
	// Marked are the processes that still run with the mark that was asked for.
	Marked []Marked    `json:"marked,omitempty"`
	Disk   *DiskState  `json:"disk,omitempty"`
	Paths  []PathState `json:"paths,omitempty"`
	Clock  *ClockState `json:"clock,omitempty"`
	// Problems are what could not be seen and why.
	Problems []string `json:"problems,omitempty"`
}

// Cgroup is a memory limit of a control group.
type Cgroup struct {
	Version    int    `json:"version"` // 1 or 2
	Path       string `json:"path"`
	LimitBytes int64  `json:"limit_bytes"`
	UsedBytes  int64  `json:"used_bytes"`
	// CacheBytes of UsedBytes are inactive file pages, which the kernel gives back first.
	CacheBytes int64 `json:"cache_bytes"`
}

// HeadroomBytes is what the group may still take: limit less used, page cache that can be given
// back not counted as used.
func (c *Cgroup) HeadroomBytes() int64 {
	return max(0, c.LimitBytes-max(0, c.UsedBytes-c.CacheBytes))
}

// FileLimit is RLIMIT_NOFILE as a process that is started here gets it.
type FileLimit struct {
	Soft int64 `json:"soft"`
	Hard int64 `json:"hard"`
}

// HugePage is a pool of huge pages; its memory serves nothing else.
type HugePage struct {
	SizeBytes int64 `json:"size_bytes"`
	Total     int64 `json:"total"`
	Free      int64 `json:"free"`
}

// CPUState is how many processors a process may use.
type CPUState struct {
	Visible  int     `json:"visible"`         // affinity, as cpusets and taskset set it
	Quota    float64 `json:"quota,omitempty"` // processors of a CPU quota; 0 is none
	Machine  int     `json:"machine"`         // online in the machine; 0 is unknown
	Affinity string  `json:"affinity"`        // list of processors
}

// Usable is the whole number of processors that can run at once.
func (c *CPUState) Usable() int {
	n := c.Visible
	if c.Quota > 0 && c.Quota < float64(n) {
		n = max(1, int(c.Quota))
	}
	return n
}

// NUMANode is one memory node.
type NUMANode struct {
	ID         int    `json:"id"`
	TotalBytes int64  `json:"total_bytes"`
	FreeBytes  int64  `json:"free_bytes"`
	CPUs       string `json:"cpus"`
}

// ShmState is the file system for shared memory.
type ShmState struct {
	Path       string     `json:"path"`
	TotalBytes int64      `json:"total_bytes"`
	FreeBytes  int64      `json:"free_bytes"`
	Leftovers  []Leftover `json:"leftovers,omitempty"` // of engines that ran before
}

// Leftover is a file that an engine left behind.
type Leftover struct {
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"` // that it takes
	AgeNs int64  `json:"age_ns"`
	// Others says that a running process uses it or that another user owns it.
	Others bool `json:"others,omitempty"`
}

// GPUsState is what GPUs are there and who said so.
type GPUsState struct {
	From string     `json:"from"` // "nvidia-smi", "sysfs", "device files"
	GPUs []GPUState `json:"gpus"`
}

// GPUState is one GPU; sizes are -1 where the source does not tell.
type GPUState struct {
	Index      int    `json:"index"`
	Name       string `json:"name"`
	TotalBytes int64  `json:"total_bytes"`
	UsedBytes  int64  `json:"used_bytes"`
}

// PortState says whether a TCP port can be listened on.
type PortState struct {
	Port  int    `json:"port"`
	Free  bool   `json:"free"`
	Why   string `json:"why,omitempty"`
	Owner string `json:"owner,omitempty"` // process that listens, where it can be seen
}

// DiskState is the file system that the bundle goes to.
type DiskState struct {
	Path       string `json:"path"`
	FreeBytes  int64  `json:"free_bytes"`
	FreeInodes int64  `json:"free_inodes"`
	Writable   bool   `json:"writable"`
	Why        string `json:"why,omitempty"`
}

// PathState says whether something that a run reads is there.
type PathState struct {
	What    string   `json:"what"` // "corpus", "model"
	Path    string   `json:"path"`
	Present bool     `json:"present"`
	Bytes   int64    `json:"bytes"`
	Missing []string `json:"missing,omitempty"` // parts of it
	Why     string   `json:"why,omitempty"`
}

// ClockState is how far this node's clock is from another's.
type ClockState struct {
	Peer     string `json:"peer"`
	OffsetNs int64  `json:"offset_ns"` // other less own
	ErrorNs  int64  `json:"error_ns"`  // half of the shortest round trip: the offset is within it
	Why      string `json:"why,omitempty"`
	OK       bool   `json:"ok"` // an answer came
}

// memoryBytes is the smaller of what the kernel says is available and what the control group
// may still take, and which of both it is.
func (s *NodeState) memoryBytes() (int64, string, bool) {
	n, from, ok := int64(0), "", false
	if s.MemAvailableBytes != nil {
		n, from, ok = *s.MemAvailableBytes, "MemAvailable", true
	}
	if c := s.Cgroup; c != nil {
		if h := c.HeadroomBytes(); !ok || h < n {
			n, from, ok = h, "the memory limit of cgroup "+c.Path, true
		}
	}
	return n, from, ok
}
