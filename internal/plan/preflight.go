package plan

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/weirbench/weir/internal/facts"
	"github.com/weirbench/weir/internal/spec"
)

// A Request says what a node is checked for. The zero value of a field checks nothing for it.
type Request struct {
	// Point is planned again with the memory that the node has; Role names the workers that
	// run here, the serving ones when empty.
	Point   *spec.Point
	Options Options
	Role    string

	// Simulated says that the engine is the simulator, which needs no GPU and pins nothing: of the
	// point only the concurrency counts.
	Simulated bool

	GPUs   int  // that must be there; 0 takes the point's, if any
	NoGPUs bool // the engine runs on processors: no GPU is looked for
	Conc   int  // 0 takes the point's

	Ports []int
	// ShmPath is the file system for shared memory, /dev/shm when empty; ShmBytes is what must
	// be free beside what the point's host tier keeps there.
	ShmPath  string
	ShmBytes int64
	// HugePageBytes is the size of the huge pages that the host tier is to be made of.
	HugePageBytes int64

	BundleDir string
	DiskBytes int64 // that must be free for the bundle; 0 takes DiskNeed
	Corpus    string
	Model     string // directory of the checkpoint

	ClockAddr     string // of a node that serves its clock, host:port
	ClockMaxNs    int64  // 0 takes ClockLimitNs
	ProbeDeadline time.Duration
	// Mark is an entry NAME=VALUE of environments: processes that run with it are listed.
	Mark string
	// Root is where proc, sys and dev lie; "/" when empty.
	Root string
}

// Limits of checks that no point gives.
const (
	// ShmNeed is shared memory that NCCL and worker queues take on a node. Docker's default of
	// 64 MiB is not enough.
	ShmNeed = 1 << 30
	// DiskNeed is room for one bundle: an hour of records, samples and logs.
	DiskNeed = 5_000_000_000
	// ClockLimitNs is how far clocks of nodes may be apart before times of one node cannot be
	// laid beside those of another.
	ClockLimitNs = int64(100 * time.Millisecond)
	// FilesBase and FilesPerLane are open files of client and engine on one node: a lane plays a
	// tree with several streams, each a connection with two ends and a worker's descriptor.
	FilesBase    = 1024
	FilesPerLane = 16
	// deadline of the probe when the request gives none.
	probeDeadline = 30 * time.Second
)

// Level is how a check ended.
type Level string

const (
	OK      Level = "ok"
	Warn    Level = "warn"
	Refuse  Level = "refuse"
	NotSeen Level = "not-seen" // the node does not tell; it refuses nothing
)

// A Check is one thing that was looked at.
type Check struct {
	Name   string `json:"name"`
	Level  Level  `json:"level"`
	Seen   string `json:"seen"`             // with the arithmetic
	Change string `json:"change,omitempty"` // the smallest change that would pass
}

// A Report is the outcome of a pre-flight, as it goes into the bundle.
type Report struct {
	OK      bool       `json:"ok"`
	Checks  []Check    `json:"checks"`
	Node    *NodeState `json:"node"`
	Verdict *Verdict   `json:"verdict,omitempty"`
}

// Preflight looks at this node and judges it. It ends by the request's deadline whatever hangs.
// An error means that the request makes no sense; a node that does not pass is in the report.
func Preflight(ctx context.Context, q Request) (*Report, error) {
	d := q.ProbeDeadline
	if d <= 0 {
		d = probeDeadline
	}
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	return Judge(q, Probe(ctx, q))
}

// Judge says what a node that was seen in a state lacks for a request.
func Judge(q Request, s *NodeState) (*Report, error) {
	rep := &Report{Node: s, Checks: []Check{}}
	j := &judge{q: q, s: s, rep: rep}
	if q.Point != nil && !q.Simulated {
		if err := j.plan(); err != nil {
			return nil, err
		}
	}
	j.memory()
	j.findings()
	j.memlock()
	j.hugePages()
	j.shm()
	j.cpus()
	j.numa()
	j.files()
	if !q.NoGPUs {
		j.gpus()
	}
	j.ports()
	j.disk()
	j.paths()
	j.clock()
	rep.OK = true
	for _, c := range rep.Checks {
		rep.OK = rep.OK && c.Level != Refuse
	}
	return rep, nil
}

// judge collects checks.
type judge struct {
	q    Request
	s    *NodeState
	rep  *Report
	role *Role
}

func (j *judge) add(name string, l Level, change, format string, a ...any) {
	j.rep.Checks = append(j.rep.Checks, Check{name, l, fmt.Sprintf(format, a...), change})
}

// plan plans the point as it is launched, from the runner's facts, and lays that beside the
// memory that was seen. A host tier that plan chose is not chosen again here: its size is on the
// engine's command line already.
func (j *judge) plan() error {
	n, from, seen := j.s.memoryBytes()
	v, err := Compute(j.q.Point, j.q.Options)
	if errors.Is(err, facts.ErrUnknown) && seen {
		opt := j.q.Options
		opt.NodeBytes = max(1, n)
		v, err = Compute(j.q.Point, opt)
	}
	if err != nil {
		return err
	}
	j.rep.Verdict = v
	for i := range v.Roles {
		if r := &v.Roles[i]; r.Name == j.q.Role || j.q.Role == "" && i == 0 {
			j.role = r
		}
	}
	if j.role == nil {
		return fmt.Errorf("the point has no workers of role %q", j.q.Role)
	}
	if seen {
		j.role.Node.against(Value{max(1, n), from})
	}
	return nil
}

// fitting is the setting of the largest host tier that the memory that was seen holds.
func (j *judge) fitting() string {
	n, _, _ := j.s.memoryBytes()
	p, opt := *j.q.Point, j.q.Options
	p.Weir.HostBytesPerRank, p.Weir.HostRatioPPM = 0, 0
	opt.NodeBytes, opt.AsRecipe = max(1, n), false
	if v, err := Compute(&p, opt); err == nil {
		for i := range v.Roles {
			if r := &v.Roles[i]; r.Name == j.role.Name && r.Host != nil && r.within() {
				return "pass " + r.Host.Flag + ", or "
			}
		}
	}
	return ""
}

func (j *judge) memory() {
	n, from, ok := j.s.memoryBytes()
	if !ok {
		j.add("memory", NotSeen, "", "neither MemAvailable nor a memory limit can be read")
		return
	}
	if j.role == nil {
		j.add("memory", OK, "", "%s by %s", GB(n), from)
		return
	}
	nd := &j.role.Node
	sum := fmt.Sprintf("host tier %s + beside it %s = %s", GB(nd.HostPoolBytes), GB(nd.TotalBytes-nd.HostPoolBytes), GB(nd.TotalBytes))
	limit := fmt.Sprintf("%s by %s, less 5 %% and 10 GiB = %s", GB(n), from, GB(nd.LimitBytes))
	if nd.MarginBytes < 0 {
		change := j.fitting() + fmt.Sprintf("free %s on the node", GB(-nd.MarginBytes))
		if c := j.s.Cgroup; c != nil && strings.HasPrefix(from, "the memory limit") {
			change += fmt.Sprintf(", or raise the limit of %s by %s", c.Path, GB(-nd.MarginBytes))
		}
		j.add("memory", Refuse, change, "%s, %s more than %s", sum, GB(-nd.MarginBytes), limit)
		return
	}
	j.add("memory", OK, "", "%s within %s; margin %s", sum, limit, GB(nd.MarginBytes))
}

// findings repeats what the plan refuses for other reasons than the node's memory.
func (j *judge) findings() {
	if j.role == nil {
		return
	}
	for _, f := range j.rep.Verdict.Findings {
		if (f.Role == j.role.Name || f.Role == "") && f.Status != OOMHost {
			j.add("plan", Refuse, f.Change, "%s: %s", f.Status, f.Reason)
		}
	}
}

// hostBytes is what the host tier pins on this node.
func (j *judge) hostBytes() int64 {
	if j.role == nil {
		return 0
	}
	return j.role.Node.HostPoolBytes
}

func (j *judge) ranks() int {
	if j.role == nil {
		return j.q.GPUs
	}
	return j.role.Node.Ranks
}

// memlock matters where memory is registered with a network card: KV transfer and a store over
// RDMA. CUDA's own registration does not count against it.
func (j *judge) memlock() {
	m := j.s.MemlockBytes
	switch {
	case m == nil:
		j.add("memlock", NotSeen, "", "the limit cannot be read")
		return
	case *m < 0:
		j.add("memlock", OK, "", "no limit")
		return
	}
	need := j.hostBytes()
	rdma := j.q.Point != nil && (j.q.Point.KVTransfer != "" || j.role != nil && j.role.Host != nil && j.role.Host.Backend == "mooncake")
	switch {
	case need == 0 && !rdma || *m >= need && need > 0:
		j.add("memlock", OK, "", "%s", GB(*m))
	case rdma:
		j.add("memlock", Refuse, "start the job with memlock unlimited (docker: --ulimit memlock=-1)",
			"%s may be locked, but %s of host tier and KV buffers are registered with the network card", GB(*m), GB(need))
	default:
		j.add("memlock", Warn, "start the job with memlock unlimited", "%s may be locked, the host tier pins %s; CUDA registers it without counting, RDMA would not", GB(*m), GB(need))
	}
}

func (j *judge) hugePages() {
	var total int64
	for _, h := range j.s.HugePages {
		total = satAdd(total, satMul(h.SizeBytes, h.Total))
	}
	want := j.q.HugePageBytes
	if want == 0 {
		if total > 0 {
			j.add("hugepages", Warn, "sysctl vm.nr_hugepages=0 if nothing needs them", "%s are set aside as huge pages, which no host tier of this run uses", GB(total))
		} else {
			j.add("hugepages", OK, "", "none set aside")
		}
		return
	}
	for _, h := range j.s.HugePages {
		if h.SizeBytes != want {
			continue
		}
		free, need := satMul(h.Free, h.SizeBytes), j.hostBytes()
		if free < need {
			j.add("hugepages", Refuse, fmt.Sprintf("set aside %d more pages of %d KiB", ceilDiv(need-free, want), want>>10),
				"%d pages of %d KiB are free = %s, the host tier needs %s", h.Free, want>>10, GB(free), GB(need))
			return
		}
		j.add("hugepages", OK, "", "%s free in pages of %d KiB for %s", GB(free), want>>10, GB(need))
		return
	}
	j.add("hugepages", Refuse, fmt.Sprintf("set aside pages of %d KiB", want>>10), "the node has no pages of %d KiB", want>>10)
}

func (j *judge) shm() {
	s := j.s.Shm
	if s == nil {
		j.add("shm", NotSeen, "", "no file system for shared memory was found")
		return
	}
	need, why := int64(ShmNeed), "workers and NCCL"
	if j.role == nil && j.q.ShmBytes > 0 {
		need = 0
		why = "asked for"
	}
	need = satAdd(need, j.q.ShmBytes)
	if j.role != nil && j.role.Host != nil && strings.HasPrefix(j.role.Host.Where, "/dev/shm") {
		need, why = satAdd(need, j.hostBytes()), why+" and the host tier, which lies in shared memory"
	}
	var left int64
	var names []string
	for _, f := range s.Leftovers {
		left = satAdd(left, f.Bytes)
		names = append(names, f.Name)
	}
	seen := fmt.Sprintf("%s free of %s in %s, needs %s for %s", GB(s.FreeBytes), GB(s.TotalBytes), s.Path, GB(need), why)
	switch {
	case s.FreeBytes < need && left > 0:
		j.add("shm", Refuse, "remove "+strings.Join(few(names), ", "), "%s; %d files of earlier runs hold %s", seen, len(names), GB(left))
	case s.FreeBytes < need:
		j.add("shm", Refuse, fmt.Sprintf("give the container %s of shared memory (docker: --shm-size, or --ipc host)", GB(need)), "%s", seen)
	case left > 0:
		j.add("shm", Warn, "remove "+strings.Join(few(names), ", "), "%s; %d files of earlier runs hold %s", seen, len(names), GB(left))
	default:
		j.add("shm", OK, "", "%s", seen)
	}
}

func few(names []string) []string {
	if len(names) > 5 {
		return append(names[:5:5], fmt.Sprintf("and %d more", len(names)-5))
	}
	return names
}

// cpus compares processors with ranks: an engine has a process for each rank, and the client and
// a router, which stands before several ranks only, want their own. A step that inherits one core has published a wrong sweep before.
func (j *judge) cpus() {
	c := j.s.CPUs
	if c == nil {
		j.add("cpus", NotSeen, "", "the processors cannot be read")
		return
	}
	n, ranks := c.Usable(), j.ranks()
	seen := fmt.Sprintf("%d usable (affinity %s", n, c.Affinity)
	if c.Quota > 0 {
		seen += fmt.Sprintf(", quota %.1f", c.Quota)
	}
	seen += fmt.Sprintf(", machine %d) for %d ranks", c.Machine, ranks)
	others, who := 2, "two for client and router"
	if ranks == 1 {
		others, who = 1, "one for the client"
	}
	change := fmt.Sprintf("start the job with at least %d processors (srun --cpus-per-task, docker --cpus and --cpuset-cpus)", ranks+others)
	switch {
	case ranks > 0 && n < ranks+others:
		j.add("cpus", Refuse, change, "%s; needs one for each and %s", seen, who)
	case ranks == 0 && n < 2:
		j.add("cpus", Warn, "start the job with two processors or more", "%s; client and engine share one", seen)
	case n < 4*ranks:
		j.add("cpus", Warn, "", "%s; fewer than four for each", seen)
	default:
		j.add("cpus", OK, "", "%s", seen)
	}
}

// numa warns where a socket's memory does not hold its share of the host tier.
func (j *judge) numa() {
	nodes := j.s.NUMA
	if len(nodes) == 0 {
		return
	}
	var withMem []NUMANode
	for _, n := range nodes {
		if n.TotalBytes > 0 {
			withMem = append(withMem, n)
		}
	}
	need := j.hostBytes() / int64(max(1, len(withMem)))
	for _, n := range withMem {
		if need > n.FreeBytes {
			j.add("numa", Warn, "free memory on it or bind ranks to sockets evenly", "node %d has %s free, its share of the host tier is %s: pages will lie on another socket", n.ID, GB(n.FreeBytes), GB(need))
			return
		}
	}
	j.add("numa", OK, "", "%d nodes with memory, a share of the host tier is %s", len(withMem), GB(need))
}

func (j *judge) files() {
	f := j.s.OpenFiles
	if f == nil {
		j.add("open files", NotSeen, "", "the limit cannot be read")
		return
	}
	conc := j.q.Conc
	if conc == 0 && j.q.Point != nil {
		conc = j.q.Point.Conc
	}
	need := int64(FilesBase + FilesPerLane*conc)
	seen := fmt.Sprintf("%d (hard %d), needs %d + %d x %d lanes = %d", f.Soft, f.Hard, FilesBase, FilesPerLane, conc, need)
	switch {
	case f.Soft >= need:
		j.add("open files", OK, "", "%s", seen)
	case f.Hard >= need:
		j.add("open files", Refuse, fmt.Sprintf("ulimit -n %d", need), "%s", seen)
	default:
		j.add("open files", Refuse, fmt.Sprintf("raise the hard limit to %d (docker: --ulimit nofile=%d)", need, need), "%s", seen)
	}
}

func (j *judge) ports() {
	for _, p := range j.s.Ports {
		name := fmt.Sprintf("port %d", p.Port)
		switch {
		case p.Free:
			j.add(name, OK, "", "free")
		case p.Owner != "":
			j.add(name, Refuse, "end "+p.Owner+" or choose another port", "%s: %s listens", p.Why, p.Owner)
		default:
			j.add(name, Refuse, "end what listens or choose another port", "%s", p.Why)
		}
	}
}

func (j *judge) disk() {
	d := j.s.Disk
	if d == nil {
		return
	}
	need := j.q.DiskBytes
	if need == 0 {
		need = DiskNeed
	}
	switch {
	case !d.Writable:
		j.add("disk", Refuse, "choose a directory that can be written", "%s: %s", d.Path, d.Why)
	case d.FreeBytes < need:
		j.add("disk", Refuse, fmt.Sprintf("free %s there or choose another directory", GB(need-d.FreeBytes)), "%s has %s free, a bundle needs %s", d.Path, GB(d.FreeBytes), GB(need))
	case d.FreeInodes >= 0 && d.FreeInodes < 1000:
		j.add("disk", Refuse, "remove files there or choose another directory", "%s has room for %d files", d.Path, d.FreeInodes)
	default:
		j.add("disk", OK, "", "%s has %s free for %s", d.Path, GB(d.FreeBytes), GB(need))
	}
}

func (j *judge) paths() {
	for _, p := range j.s.Paths {
		switch {
		case !p.Present:
			j.add(p.What, Refuse, "stage it or name where it is", "%s: %s", p.Path, p.Why)
		case len(p.Missing) > 0:
			j.add(p.What, Refuse, "stage the missing files", "%s lacks %d files: %s", p.Path, len(p.Missing), strings.Join(few(p.Missing), ", "))
		default:
			j.add(p.What, OK, "", "%s, %s", p.Path, GB(p.Bytes))
		}
	}
}

func (j *judge) clock() {
	c := j.s.Clock
	if c == nil {
		return
	}
	limit := j.q.ClockMaxNs
	if limit == 0 {
		limit = ClockLimitNs
	}
	off, e := time.Duration(c.OffsetNs), time.Duration(c.ErrorNs)
	switch {
	case !c.OK:
		j.add("clock", Refuse, "serve the clock on the other node (weir preflight --serve-clock ADDR) and let this one reach it", "%s does not answer: %s", c.Peer, c.Why)
	case off.Abs()-e > time.Duration(limit):
		j.add("clock", Refuse, "synchronise the clocks (chrony, NTP or PTP)", "%s is %v away, within %v; more than %v", c.Peer, off, e, time.Duration(limit))
	case e > time.Duration(limit):
		j.add("clock", Warn, "", "%s is %v away, within %v only: the network is too slow to tell", c.Peer, off, e)
	default:
		j.add("clock", OK, "", "%s is %v away, within %v", c.Peer, off, e)
	}
}
