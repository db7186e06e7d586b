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
	"maps"
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
	"github.com/weirbench/weir/internal/result"
	"github.com/weirbench/weir/internal/spec"
)

// slurmDir is the folder in a sweep's folder for what is under way on a cluster.
const slurmDir = ".slurm"

// Slurm measures jobs on a cluster: one allocation a point. The allocation runs this program,
// which starts the engines with srun, replays and writes the bundle into a folder of its own; so
// it needs nobody outside. This side submits, waits, and moves whole bundles to their place. A
// token ties an allocation to its point: it stands in the scheduler's comment, and an allocation
// whose token is not the point's current one does nothing. So whatever process dies when, no
// point is measured twice at the same time and nothing that runs is lost.
//
// Only machine-readable output of Slurm is read, and only from its standard output.
type Slurm struct {
	Dir     string        // of the sweep, absolute, on a file system that the nodes share
	Weir    string        // path of this program on the nodes
	Poll    time.Duration // between two looks at the queue; 2 s when 0
	Cluster func(runner string) (*spec.Cluster, error)
	GPU     *GPUs // how devices are read; nil reads none
	// SubmitOnly ends with Submitted as soon as the allocation is asked for.
	SubmitOnly bool

	mu         sync.Mutex
	queue      map[string]queued // by comment
	looked     time.Time
	quarantine map[string]string // node, and why
}

// ErrSubmitted is returned for a job that was submitted and is not waited for.
var ErrSubmitted = errors.New("submitted")

// queued is an allocation as the scheduler lists it.
type queued struct {
	id, state, reason, nodes string
}

// retries are how often a point is tried again after a failure of a class.
var retries = map[string]int{"node": 3, "start": 1, "crash": 1}

// A JobSpec is all that an allocation needs to measure its point.
type JobSpec struct {
	Token   string         `json:"token"`
	Current string         `json:"current"` // file that holds the point's current token
	Bundle  string         `json:"bundle"`  // folder to write
	Point   *spec.Point    `json:"point"`
	Repeat  int            `json:"repeat"`
	Corpus  string         `json:"corpus"`
	Print   string         `json:"fingerprint"` // of the corpus
	Traces  int            `json:"traces"`      // in it
	Replay  replay.Options `json:"replay"`
	Recipe  *engine.Recipe `json:"recipe"`
	Cluster *spec.Cluster  `json:"cluster"`
	Facts   string         `json:"facts,omitempty"`
	Weir    string         `json:"weir"`
	Version string         `json:"version"`
	Nodes   int            `json:"nodes"`
	GPU     *GPUs          `json:"gpu,omitempty"`          // how devices are read; nil reads none
	Limit   *float64       `json:"client_limit,omitempty"` // Job.ClientLimit
}

// Name is "slurm".
func (*Slurm) Name() string { return "slurm" }

// Measure is not how an allocation is used: Bundle is.
func (s *Slurm) Measure(context.Context, *Job, *record.BundleWriter) error {
	return failf("config", "an allocation writes its own bundle")
}

// attempt is one allocation of a point.
type attempt struct {
	dir     string
	token   string
	comment string
}

func (a *attempt) bundle() string { return filepath.Join(a.dir, "bundle") }

// Bundle implements Remote.
func (s *Slurm) Bundle(ctx context.Context, j *Job, dir string) (*result.Result, error) {
	home := filepath.Join(s.Dir, slurmDir, filepath.Base(dir))
	a, err := s.current(home)
	if err != nil {
		return nil, err
	}
	tried := map[string]int{}
	for {
		if a != nil && !s.begun(ctx, a) {
			a = nil
		}
		if a == nil {
			if a, err = s.submit(ctx, j, home); err != nil {
				return nil, err
			}
		}
		if s.SubmitOnly {
			return nil, ErrSubmitted
		}
		fail := s.wait(ctx, j, a)
		if ctx.Err() != nil {
			s.cancel(a)
			return nil, ctx.Err()
		}
		if fail != nil && tried[fail.Class] < retries[fail.Class] {
			tried[fail.Class]++
			j.note(Entry{State: Retried, Detail: fail.Error()})
			a = nil
			continue
		}
		return s.collect(j, a, home, dir, fail)
	}
}

// Ours implements Remote.
func (s *Slurm) Ours(j *Job, dir string) error {
	home := filepath.Join(s.Dir, slurmDir, filepath.Base(dir))
	a, err := s.current(home)
	if err != nil || a == nil {
		return err
	}
	raw, err := os.ReadFile(filepath.Join(a.dir, "job.json"))
	var js JobSpec
	if err != nil || json.Unmarshal(raw, &js) != nil {
		return nil // it was not submitted
	}
	there, err := js.asked()
	if err != nil {
		return err
	}
	mine := s.spec(j)
	here, err := mine.asked()
	if err != nil {
		return err
	}
	diff, err := difference(there, here)
	if err != nil || diff == "" {
		return err
	}
	return otherRun(a.dir, j.Point, diff)
}

// spec is what an allocation is told of a job, beside its place.
func (s *Slurm) spec(j *Job) JobSpec {
	return JobSpec{Point: j.Point, Repeat: j.Repeat, Corpus: j.CorpusPath, Print: j.Corpus.Fingerprint, Traces: len(j.Corpus.Traces),
		Replay: j.Replay, Recipe: j.Recipe, Weir: s.Weir, Version: j.Version, Limit: j.ClientLimit, Facts: j.Facts}
}

// asked is the part of a bundle's meta that the allocation's job decides.
func (js *JobSpec) asked() (*record.Meta, error) {
	j := Job{Recipe: js.Recipe}
	m := record.NewMeta()
	m.Repeat, m.ClientLimit, m.Facts = js.Repeat, js.Limit, factsSum(js.Facts)
	m.Recipe = j.recipeJSON()
	m.Corpus = record.Corpus{Name: js.Corpus, Fingerprint: js.Print, Traces: js.Traces}
	var err error
	m.Replay, err = json.Marshal(js.Replay)
	return m, err
}

// Settled implements Remote.
func (s *Slurm) Settled(dir string) {
	home := filepath.Join(s.Dir, slurmDir, filepath.Base(dir))
	if a, err := s.current(home); err == nil && a != nil {
		s.cancel(a)
	}
	os.RemoveAll(home)
	os.Remove(filepath.Dir(home)) // when it was the last
}

// current is the attempt that a point's folder names, nil where there is none.
func (s *Slurm) current(home string) (*attempt, error) {
	b, err := os.ReadFile(filepath.Join(home, "current"))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return s.attempt(home, strings.TrimSpace(string(b))), nil
}

func (s *Slurm) attempt(home, token string) *attempt {
	return &attempt{dir: filepath.Join(home, token), token: token, comment: "weir:" + s.id() + ":" + token}
}

// id tells sweeps apart.
func (s *Slurm) id() string {
	h := sha256.Sum256([]byte(s.Dir))
	return hex.EncodeToString(h[:4])
}

// begun says whether an attempt of an earlier process was submitted: the scheduler knows it, or
// its bundle has an end. One that the scheduler does not know, looked for twice, was not.
func (s *Slurm) begun(ctx context.Context, a *attempt) bool {
	for try := range 2 {
		if try > 0 && !sleep(ctx, s.poll()) {
			return true
		}
		if ended(a.bundle()) != "" {
			return true
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

// submit asks for an allocation. The token is current before the scheduler hears of it.
func (s *Slurm) submit(ctx context.Context, j *Job, home string) (*attempt, error) {
	cluster, err := s.Cluster(j.Point.Runner)
	if err != nil {
		return nil, failf("config", "%v", err)
	}
	q, err := j.Recipe.Planned(j.Point)
	if err != nil {
		return nil, failf("config", "%v", err)
	}
	d, err := engine.Build(q, j.Verdict, j.Recipe, engine.Place{Weir: s.Weir, Model: cluster.Models[j.Point.Model]})
	if err != nil {
		return nil, failf("config", "%v", err)
	}
	corpusPath, err := filepath.Abs(j.CorpusPath)
	if err != nil {
		return nil, err
	}
	a := s.attempt(home, newToken())
	if err := os.MkdirAll(a.dir, 0o777); err != nil {
		return nil, err
	}
	js := s.spec(j)
	js.Token, js.Current, js.Bundle = a.token, filepath.Join(home, "current"), a.bundle()
	js.Corpus, js.Cluster, js.Nodes = corpusPath, cluster, max(1, d.Nodes)
	raw, err := json.MarshalIndent(js, "", "  ")
	if err != nil {
		return nil, err
	}
	script := s.Script(j, a, cluster, js.Nodes)
	for name, text := range map[string]string{filepath.Join(a.dir, "job.json"): string(raw) + "\n", filepath.Join(a.dir, "script.sh"): script, js.Current: a.token + "\n"} {
		if name != js.Current {
			if err := writeAtomic(name, text); err != nil {
				return nil, err
			}
		}
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
	j.note(Entry{State: Submitted, Job: id, Detail: a.token})
	return a, nil
}

func newToken() string {
	var b [8]byte
	rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// Script is the batch script of an attempt.
func (s *Slurm) Script(j *Job, a *attempt, c *spec.Cluster, nodes int) string {
	o := c.Slurm
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
		opt("exclude", strings.Join(s.excluded(o, j.Point), ","))
	}
	opt("job-name", "weir-"+filepath.Base(filepath.Dir(a.dir)))
	opt("comment", a.comment)
	opt("output", filepath.Join(a.dir, "out.log"))
	opt("error", filepath.Join(a.dir, "out.log"))
	b.WriteString("#SBATCH --no-requeue\n")
	common()
	if o.Client == "own-node" {
		opt("nodes", "1")
		opt("ntasks-per-node", "1")
		b.WriteString("#SBATCH hetjob\n")
		common()
	}
	engines()
	fmt.Fprintf(&b, "# %s, concurrency %d\nexec %s point --job %s\n", j.Point.Name, j.Point.Conc, engine.Quote(s.Weir), engine.Quote(filepath.Join(a.dir, "job.json")))
	return b.String()
}

// excluded are the nodes that a point does not get: by the fleet's rules, those that are not
// among the nodes to choose from being the scheduler's affair, and those in quarantine.
func (s *Slurm) excluded(o *spec.Slurm, p *spec.Point) []string {
	var out []string
	for _, e := range o.Exclude {
		if (e.Framework == "" || e.Framework == p.Framework) && (e.Model == "" || e.Model == p.ModelPrefix) {
			out = append(out, e.Nodes...)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	out = append(out, slices.Sorted(maps.Keys(s.quarantine))...)
	slices.Sort(out)
	return slices.Compact(out)
}

// terminal are the states in which an allocation is over, with the class of a failure where the
// bundle has no end.
var terminal = map[string]string{
	"COMPLETED": "crash", "FAILED": "crash", "CANCELLED": "cancelled", "TIMEOUT": "stall", "DEADLINE": "stall",
	"NODE_FAIL": "node", "BOOT_FAIL": "node", "PREEMPTED": "node", "REVOKED": "node", "OUT_OF_MEMORY": "capacity",
}

// wait returns when the attempt is over: nil for a complete bundle.
func (s *Slurm) wait(ctx context.Context, j *Job, a *attempt) *Failure {
	missing := 0
	said := ""
	for {
		q, known, err := s.look(ctx, a)
		switch class, over := terminal[q.state]; {
		case ended(a.bundle()) == record.CompleteFile && (!known || over):
			return nil
		case ended(a.bundle()) == record.FailedFile && (!known || over && q.state != "CANCELLED" && class != "node"):
			return failedBundle(a.bundle())
		case ended(a.bundle()) == record.FailedFile && over: // what the scheduler did is the cause
			f := failedBundle(a.bundle())
			return failf(class, "job %s on %s ended as %s; seen from inside: %s", q.id, q.nodes, q.state, f.Error())
		case err != nil || ctx.Err() != nil:
			missing = 0 // the scheduler does not answer: it knows, and will say
		case !known || over:
			// The last files of the allocation may come later than the scheduler's word.
			if missing++; missing < 3 {
				break
			}
			if !known {
				return failf("node", "the scheduler knows nothing of the allocation %s any more and it left no result", a.token)
			}
			f := failf(class, "job %s on %s ended as %s (%s) without a result; last lines: %s", q.id, q.nodes, q.state, q.reason,
				strings.Join(lastLines(filepath.Join(a.dir, "out.log"), 3), " | "))
			if q.state == "NODE_FAIL" || q.state == "BOOT_FAIL" {
				s.exclude(ctx, q.nodes, f.Reason)
			}
			return f
		default:
			missing = 0
			if q.state != said {
				said = q.state
				j.note(Entry{State: Waiting, Job: q.id, Detail: strings.ToLower(q.state) + " on " + q.nodes})
			}
			if p, ok := readProgress(a.dir); ok && j.Progress != nil && p != (Progress{}) {
				j.Progress(p)
			}
		}
		if !sleep(ctx, s.poll()) {
			return failf("cancelled", "interrupted")
		}
	}
}

// exclude puts nodes into quarantine for the rest of the sweep.
func (s *Slurm) exclude(ctx context.Context, list, why string) {
	out, err := slurmCommand(ctx, "scontrol", "show", "hostnames", list)
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.quarantine == nil {
		s.quarantine = map[string]string{}
	}
	for _, n := range strings.Fields(out) {
		s.quarantine[n] = why
	}
}

// collect moves the attempt's bundle to its place and clears the point's folder.
func (s *Slurm) collect(j *Job, a *attempt, home, dir string, fail *Failure) (*result.Result, error) {
	if ended(a.bundle()) == "" {
		w, err := record.CreateBundle(a.bundle())
		if err != nil {
			return nil, err
		}
		m, err := j.meta()
		if err == nil {
			err = w.WriteMeta(m)
		}
		if err != nil {
			return nil, err
		}
		if err := w.Fail(fail.Class, fail.Reason); err != nil {
			return nil, err
		}
	}
	if raw, err := os.ReadFile(filepath.Join(a.dir, "out.log")); err == nil {
		os.WriteFile(filepath.Join(a.bundle(), record.LogsDir, "slurm.log"), raw, 0o666)
	}
	if err := os.RemoveAll(dir); err != nil { // a failed bundle of an earlier run
		return nil, err
	}
	if err := os.Rename(a.bundle(), dir); err != nil {
		return nil, err
	}
	if err := os.RemoveAll(home); err != nil {
		return nil, err
	}
	os.Remove(filepath.Dir(home)) // when it was the last
	if fail != nil {
		return nil, fail
	}
	return result.DeriveDir(dir)
}

// cancel ends an attempt's allocation and waits until it is gone.
func (s *Slurm) cancel(a *attempt) {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	for asked := false; ; {
		s.forget()
		q, known, err := s.look(ctx, a)
		if err == nil {
			if _, over := terminal[q.state]; !known || over {
				os.RemoveAll(filepath.Dir(a.dir))
				return
			}
			if !asked {
				_, err = slurmCommand(ctx, "scancel", q.id)
				asked = err == nil
			}
		}
		if !sleep(ctx, s.poll()) {
			return
		}
	}
}

// look is what the scheduler says of an attempt; one look at the queue serves all points.
func (s *Slurm) look(ctx context.Context, a *attempt) (queued, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.queue == nil || time.Since(s.looked) > s.poll()/2 {
		out, err := slurmCommand(ctx, "squeue", "--noheader", "--states=all", "--format=%i|%T|%r|%N|%k")
		if err != nil {
			return queued{}, false, err
		}
		s.queue, s.looked = parseQueue(out), time.Now()
	}
	q, ok := s.queue[a.comment]
	return q, ok, nil
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

func readProgress(dir string) (Progress, bool) {
	var p Progress
	raw, err := os.ReadFile(filepath.Join(dir, "progress.json"))
	if err != nil {
		return p, false
	}
	return p, json.Unmarshal(raw, &p) == nil
}
