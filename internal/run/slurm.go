package run

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/weirbench/weir/internal/engine"
	"github.com/weirbench/weir/internal/record"
	"github.com/weirbench/weir/internal/replay"
	"github.com/weirbench/weir/internal/spec"
)

// slurmDir is the folder in a sweep's folder for what is under way on a cluster.
const slurmDir = ".slurm"

// Slurm measures jobs on a cluster: one allocation a point, or one for the points that share a
// server. The allocation runs this program, which starts the engines with srun, replays and writes
// the bundles into a folder of its own; so it needs nobody outside. This side submits, waits, and
// moves whole bundles to their place. A token ties an allocation to its points: it stands in the
// scheduler's comment, and an allocation whose token is not the current one does nothing. So
// whatever process dies when, no point is measured twice at the same time and nothing that runs
// is lost.
//
// Only machine-readable output of Slurm is read, and only from its standard output.
type Slurm struct {
	Dir     string        // of the sweep, absolute, on a file system that the nodes share
	Weir    string        // path of this program on the nodes
	Poll    time.Duration // between two looks at the queue; 2 s when 0
	Cluster func(runner string) (*spec.Cluster, error)
	GPU     *GPUs // how devices are read; nil reads none
	// SubmitOnly ends with ErrSubmitted as soon as the allocation is asked for.
	SubmitOnly bool
	// Share says that points that one server can measure share an allocation and the server.
	Share   bool
	Unclean Unclean
	// Top is the highest priority of a job of the sweep: others stand behind it in the queue.
	Top int

	mu         sync.Mutex
	queue      map[string]queued // by comment
	looked     time.Time
	quarantine map[string]string // node, and why; nil until the journal was read
	homes      map[string]string // by point: the folder of the unit that it is in
}

// progressSuffix ends the name of a file with a point's progress.
const progressSuffix = ".progress.json"

// cancelWait bounds how long a cancelled allocation is waited for.
const cancelWait = time.Minute

// ErrSubmitted is returned for a job that was submitted and is not waited for.
var ErrSubmitted = errors.New("submitted")

// queued is an allocation as the scheduler lists it.
type queued struct {
	id, state, reason, nodes string
}

// A JobSpec is all that an allocation needs to measure its points.
type JobSpec struct {
	Token   string   `json:"token"`
	Current string   `json:"current"` // file that holds the current token
	Members []Member `json:"members"` // in the order in which they are measured
	// Point is the one that the nodes are looked at for: that with the most requests at once.
	Point   *spec.Point    `json:"point"`
	Shared  bool           `json:"shared"`  // one server measures all members
	Unclean Unclean        `json:"unclean"` // what becomes of a member whose server was not clean
	Corpus  string         `json:"corpus"`
	Print   string         `json:"fingerprint"` // of the corpus
	Recipe  *engine.Recipe `json:"recipe"`
	Cluster *spec.Cluster  `json:"cluster"`
	Facts   string         `json:"facts,omitempty"`
	Limit   *float64       `json:"client_limit,omitempty"`
	Weir    string         `json:"weir"`
	Version string         `json:"version"`
	Nodes   int            `json:"nodes"`
	GPU     *GPUs          `json:"gpu,omitempty"` // how devices are read; nil reads none
}

// A Member is one point of an allocation.
type Member struct {
	Name     string      `json:"name"` // of its folder in the sweep's
	Bundle   string      `json:"bundle"`
	Progress string      `json:"progress"` // file with its Progress while it runs
	Point    *spec.Point `json:"point"`
	Repeat   int         `json:"repeat"`
	// ControlOf is the job's.
	ControlOf []string       `json:"control_of,omitempty"`
	Replay    replay.Options `json:"replay"`
	Print     string         `json:"fingerprint"` // of its corpus
	Traces    int            `json:"traces"`      // in it
}

// Name is "slurm".
func (*Slurm) Name() string { return "slurm" }

// Measure is not how an allocation is used: Bundles is.
func (s *Slurm) Measure(context.Context, *Job, *record.BundleWriter) error {
	return failf("config", "an allocation writes its own bundle")
}

// attempt is one allocation of a unit.
type attempt struct {
	dir     string
	token   string
	comment string
	members []string
	ends    int // of members that this process saw
	spec    JobSpec
}

func (a *attempt) bundle(name string) string   { return filepath.Join(a.dir, name) }
func (a *attempt) progress(name string) string { return filepath.Join(a.dir, name+progressSuffix) }

// Ours implements Remote.
func (s *Slurm) Ours(j *Job, dir string) error {
	name := filepath.Base(dir)
	home := s.underWay()[name]
	if home == "" {
		return nil
	}
	a, err := s.current(home)
	if err != nil || a == nil {
		return err
	}
	there, err := a.spec.asked(name)
	if err != nil {
		return err
	}
	mine := s.spec(j)
	here, err := mine.asked(name)
	if err != nil {
		return err
	}
	diff, err := difference(there, here)
	if err != nil || diff == "" {
		return err
	}
	return otherRun(a.dir, j.Point, diff)
}

// underWay are the points that have an allocation, with the folder of its unit.
func (s *Slurm) underWay() map[string]string {
	out := map[string]string{}
	found, _ := filepath.Glob(filepath.Join(s.Dir, slurmDir, "*", "current"))
	for _, f := range found {
		if a, err := s.current(filepath.Dir(f)); err == nil && a != nil {
			for _, m := range a.members {
				out[m] = filepath.Dir(f)
			}
		}
	}
	return out
}

// spec is what an allocation is told of jobs, beside its place.
func (s *Slurm) spec(jobs ...*Job) JobSpec {
	j := jobs[0]
	js := JobSpec{Point: j.Point, Shared: s.Share, Unclean: s.Unclean, Corpus: j.CorpusPath, Print: j.Corpus.Fingerprint,
		Recipe: j.Recipe, Weir: s.Weir, Version: j.Version, GPU: s.GPU, Limit: j.ClientLimit, Facts: j.Facts}
	for _, j := range jobs {
		js.Members = append(js.Members, Member{Name: filepath.Base(BundleDir("", j)), Point: j.Point, Repeat: j.Repeat, ControlOf: j.ControlOf, Replay: j.Replay,
			Print: j.Corpus.Fingerprint, Traces: len(j.Corpus.Traces)})
		if j.Point.Conc > js.Point.Conc {
			js.Point = j.Point
		}
	}
	return js
}

// asked is the part of a member's meta that the allocation's job decides.
func (js *JobSpec) asked(name string) (*record.Meta, error) {
	j := Job{Recipe: js.Recipe}
	m := record.NewMeta()
	m.ClientLimit, m.Facts = js.Limit, factsSum(js.Facts)
	m.Recipe = j.recipeJSON()
	for _, x := range js.Members {
		if x.Name == name {
			m.Repeat = x.Repeat
			m.Corpus = record.Corpus{Name: js.Corpus, Fingerprint: x.Print, Traces: x.Traces}
			var err error
			m.Replay, err = json.Marshal(x.Replay)
			return m, err
		}
	}
	return m, fmt.Errorf("%s is not in its allocation", name)
}

// current is the attempt that a unit's folder names, nil where there is none.
func (s *Slurm) current(home string) (*attempt, error) {
	b, err := os.ReadFile(filepath.Join(home, "current"))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	a := s.attempt(home, strings.TrimSpace(string(b)))
	raw, err := os.ReadFile(filepath.Join(a.dir, "job.json"))
	if err == nil {
		err = json.Unmarshal(raw, &a.spec)
	}
	if err != nil {
		return nil, err
	}
	for _, m := range a.spec.Members {
		a.members = append(a.members, m.Name)
	}
	return a, nil
}

func (s *Slurm) attempt(home, token string) *attempt {
	return &attempt{dir: filepath.Join(home, token), token: token, comment: s.prefix() + token}
}

// prefix begins the comments of all allocations of the sweep.
func (s *Slurm) prefix() string {
	h := sha256.Sum256([]byte(s.Dir))
	return "weir:" + hex.EncodeToString(h[:4]) + ":"
}

// begun says whether an attempt of an earlier process was submitted: the scheduler knows it, or
// one of its bundles has an end. One that the scheduler does not know, looked for twice, was not.
func (s *Slurm) begun(ctx context.Context, a *attempt) bool {
	for try := range 2 {
		if try > 0 && !sleep(ctx, s.poll()) {
			return true
		}
		for _, m := range a.members {
			if ended(a.bundle(m)) != "" {
				return true
			}
		}
		if _, err := os.Stat(filepath.Join(a.dir, "job")); err == nil {
			return true
		}
		if _, ok, err := s.look(ctx, a); ok || err != nil {
			return true
		}
	}
	return false
}

// submit asks for an allocation for jobs. The token is current before the scheduler hears of it.
func (s *Slurm) submit(ctx context.Context, jobs []*Job, home string) (*attempt, error) {
	first := jobs[0]
	cluster, err := s.Cluster(first.Point.Runner)
	if err != nil {
		return nil, failf("config", "%v", err)
	}
	q, err := first.Recipe.Planned(first.Point)
	if err != nil {
		return nil, failf("config", "%v", err)
	}
	d, err := engine.Build(q, first.Verdict, first.Recipe, engine.Place{Weir: s.Weir, Model: cluster.Models[first.Point.Model]})
	if err != nil {
		return nil, failf("config", "%v", err)
	}
	corpusPath, err := filepath.Abs(first.CorpusPath)
	if err != nil {
		return nil, err
	}
	a := s.attempt(home, newToken())
	if err := os.MkdirAll(a.dir, 0o777); err != nil {
		return nil, err
	}
	js := s.spec(jobs...)
	js.Token, js.Current = a.token, filepath.Join(home, "current")
	js.Corpus, js.Cluster, js.Nodes = corpusPath, cluster, max(1, d.Nodes)
	for i := range js.Members {
		m := &js.Members[i]
		m.Bundle, m.Progress = a.bundle(m.Name), a.progress(m.Name)
		a.members = append(a.members, m.Name)
	}
	raw, err := json.MarshalIndent(js, "", "  ")
	if err != nil {
		return nil, err
	}
	without, err := s.excluded(ctx, cluster.Slurm, first.Point)
	if err != nil {
		return nil, err
	}
	script := s.Script(jobs, a, cluster, js.Nodes, without)
	if err := writeAtomic(filepath.Join(a.dir, "job.json"), string(raw)+"\n"); err != nil {
		return nil, err
	}
	if err := writeAtomic(filepath.Join(a.dir, "script.sh"), script); err != nil {
		return nil, err
	}
	if err := writeAtomic(js.Current, a.token+"\n"); err != nil {
		return nil, err
	}
	out, err := slurmCommand(ctx, "sbatch", "--parsable", filepath.Join(a.dir, "script.sh"))
	if err != nil {
		return nil, failf("config", "%v", err)
	}
	id, _, _ := strings.Cut(strings.TrimSpace(out), ";")
	if _, err := strconv.Atoi(id); err != nil {
		return nil, failf("config", "sbatch --parsable says %q, which is no job", out)
	}
	if err := writeAtomic(filepath.Join(a.dir, "job"), id+"\n"); err != nil {
		return nil, err
	}
	for _, j := range jobs {
		j.note(Entry{State: Submitted, Job: id, Detail: a.token})
	}
	return a, nil
}

func newToken() string {
	var b [8]byte
	rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// Script is the batch script of an attempt that does not get the nodes in without.
func (s *Slurm) Script(jobs []*Job, a *attempt, c *spec.Cluster, nodes int, without []string) string {
	o, j := c.Slurm, jobs[0]
	var b strings.Builder
	b.WriteString("#!/usr/bin/env bash\n")
	opt := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&b, "#SBATCH --%s=%s\n", name, engine.Quote(value))
		}
	}
	common := func() {
		opt("partition", o.Partition)
		opt("account", o.Account)
		opt("qos", o.QOS)
		if o.TimeNs > 0 {
			opt("time", strconv.FormatInt((o.TimeNs/int64(time.Second)+59)/60, 10))
		}
	}
	engines := func() {
		opt("nodes", strconv.Itoa(nodes))
		opt("ntasks-per-node", "1")
		opt("gres", o.GRES)
		opt("constraint", o.Constraint)
		if o.CPUsPerTask > 0 {
			opt("cpus-per-task", strconv.Itoa(o.CPUsPerTask))
		}
		if o.Exclusive {
			b.WriteString("#SBATCH --exclusive\n")
		}
		opt("exclude", strings.Join(without, ","))
	}
	opt("job-name", "weir-"+filepath.Base(filepath.Dir(a.dir)))
	opt("comment", a.comment)
	opt("output", filepath.Join(a.dir, "out.log"))
	opt("error", filepath.Join(a.dir, "out.log"))
	b.WriteString("#SBATCH --no-requeue\n") // a failed point is submitted again under a token of its own
	if s.Top > j.Priority {
		opt("nice", strconv.FormatInt(min(niceStep*int64(s.Top-j.Priority), 1<<30), 10))
	}
	common()
	if o.Client == "own-node" {
		opt("nodes", "1")
		opt("ntasks-per-node", "1")
		b.WriteString("#SBATCH hetjob\n")
		common()
	}
	engines()
	for _, j := range jobs {
		fmt.Fprintf(&b, "# %s, concurrency %d\n", j.Point.Name, j.Point.Conc)
	}
	fmt.Fprintf(&b, "exec %s point --job %s\n", engine.Quote(s.Weir), engine.Quote(filepath.Join(a.dir, "job.json")))
	return b.String()
}

// niceStep is what a priority that is lower by one takes off an allocation's priority, enough to
// outweigh its age in every plugin of Slurm.
const niceStep = 10_000

// excluded are the nodes that a point does not get: by the fleet's rules, and those in quarantine.
// Where the fleet names nodes to choose from, all others of the partition are excluded, because
// --nodelist would ask for all that it names.
func (s *Slurm) excluded(ctx context.Context, o *spec.Slurm, p *spec.Point) ([]string, error) {
	out, only := o.NodesFor(p)
	if only != nil {
		args := []string{"--noheader", "--Node", "--format=%N"}
		if o.Partition != "" {
			args = append(args, "--partition="+o.Partition)
		}
		text, err := slurmCommand(ctx, "sinfo", args...)
		if err != nil {
			return nil, failf("config", "%v", err)
		}
		all := strings.Fields(text)
		out = append(out, slices.DeleteFunc(slices.Clone(all), func(n string) bool { return slices.Contains(only, n) })...)
		if !slices.ContainsFunc(all, func(n string) bool { return !slices.Contains(out, n) }) {
			return nil, failf("config", "the fleet leaves %s no node of partition %s: it may run on %s", p.Key, o.Partition, strings.Join(only, ", "))
		}
	}
	out = append(out, s.quarantined()...)
	slices.Sort(out)
	return slices.Compact(out), nil
}

// look is what the scheduler says of an attempt; one look at the queue serves all points.
func (s *Slurm) look(ctx context.Context, a *attempt) (queued, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.refresh(ctx); err != nil {
		return queued{}, false, err
	}
	q, ok := s.queue[a.comment]
	return q, ok, nil
}

// refresh looks at the queue when what is known of it is old. s.mu is held.
func (s *Slurm) refresh(ctx context.Context) error {
	if s.queue != nil && time.Since(s.looked) <= s.poll()/2 {
		return nil
	}
	out, err := slurmCommand(ctx, "squeue", "--noheader", "--states=all", "--format=%i|%T|%r|%N|%k")
	if err != nil {
		return err
	}
	s.queue, s.looked = parseQueue(out), time.Now()
	return nil
}

func (s *Slurm) forget() {
	s.mu.Lock()
	s.queue = nil
	s.mu.Unlock()
}

// parseQueue reads squeue's lines of id, state, reason, nodes and comment. The first component
// of a heterogeneous job speaks for it.
func parseQueue(out string) map[string]queued {
	m := map[string]queued{}
	for line := range strings.SplitSeq(out, "\n") {
		f := strings.SplitN(line, "|", 5)
		if len(f) != 5 || !strings.HasPrefix(f[4], "weir:") {
			continue
		}
		id, part, het := strings.Cut(f[0], "+")
		if het && part != "0" {
			continue
		}
		m[f[4]] = queued{id, f[1], f[2], f[3]}
	}
	return m
}

func (s *Slurm) poll() time.Duration {
	if s.Poll > 0 {
		return s.Poll
	}
	return 2 * time.Second
}

// slurmCommand runs one of Slurm's programs and returns its standard output alone.
func slurmCommand(ctx context.Context, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	cmd.WaitDelay = time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // an interrupt of the terminal is ours to handle
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w: %s", name, err, strings.TrimSpace(errOut.String()))
	}
	return out.String(), nil
}

// ended is the name of the file that ends a bundle, "" while there is none.
func ended(dir string) string {
	for _, name := range []string{record.CompleteFile, record.FailedFile} {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			return name
		}
	}
	return ""
}

func failedBundle(dir string) *Failure {
	raw, err := os.ReadFile(filepath.Join(dir, record.FailedFile))
	var e record.End
	if err == nil {
		err = json.Unmarshal(raw, &e)
	}
	if err != nil {
		return failf("node", "%v", err)
	}
	return &Failure{Class: e.Class, Reason: strings.TrimPrefix(e.Reason, e.Class+": ")}
}

// writeAtomic replaces a file and returns when it is on disk.
func writeAtomic(path, text string) error {
	tmp := path + ".tmp"
	f, err := os.Create(tmp)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}

// sleep returns false when ctx ended before the time was over.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

func readProgress(file string) (Progress, bool) {
	var p Progress
	raw, err := os.ReadFile(file)
	if err != nil {
		return p, false
	}
	return p, json.Unmarshal(raw, &p) == nil
}
