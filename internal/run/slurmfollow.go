package run

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/weirbench/weir/internal/record"
	"github.com/weirbench/weir/internal/result"
)

// terminal are the states in which an allocation is over, with the class of a failure where the
// bundle has no end.
var terminal = map[string]string{
	"COMPLETED": "crash", "FAILED": "crash", "CANCELLED": "cancelled", "TIMEOUT": "stall", "DEADLINE": "stall",
	"NODE_FAIL": "node", "BOOT_FAIL": "node", "PREEMPTED": "node", "REVOKED": "node", "OUT_OF_MEMORY": "capacity",
}

// Units implements Remote. Points that an earlier process put into one allocation stay together.
func (s *Slurm) Units(jobs []*Job) [][]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.homes = s.underWay()
	return grouped(jobs, func(j *Job) string {
		name := filepath.Base(BundleDir("", j))
		if home := s.homes[name]; home != "" {
			return home
		}
		if key, err := ServerKey(j); s.Share && err == nil {
			return "share " + key
		}
		return "alone " + name
	})
}

// grouped puts indices of jobs with equal keys together, in order.
func grouped(jobs []*Job, key func(*Job) string) [][]int {
	var out [][]int
	at := map[string]int{}
	for i, j := range jobs {
		k := key(j)
		n, ok := at[k]
		if !ok {
			n = len(out)
			at[k] = n
			out = append(out, nil)
		}
		out[n] = append(out[n], i)
	}
	return out
}

// home is the folder of a unit: that of an earlier process where one of its points has one.
func (s *Slurm) home(dirs []string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range dirs {
		if h := s.homes[filepath.Base(d)]; h != "" {
			return h
		}
	}
	name := filepath.Base(dirs[0])
	if len(dirs) > 1 {
		h := sha256.Sum256([]byte(strings.Join(dirs, "\x00")))
		name = "share-" + hex.EncodeToString(h[:6])
	}
	return filepath.Join(s.Dir, slurmDir, name)
}

// A unit is what follows the jobs of one unit to their ends.
type slurmUnit struct {
	*Slurm
	jobs  []*Job
	dirs  []string
	home  string
	left  map[string]int // by name: jobs without an end
	tried map[string]int // by name and class
	ended func(int, *result.Result, error)
}

// Bundles implements Remote.
func (s *Slurm) Bundles(ctx context.Context, jobs []*Job, dirs []string, ended func(int, *result.Result, error)) {
	u := &slurmUnit{Slurm: s, jobs: jobs, dirs: dirs, home: s.home(dirs), left: map[string]int{}, tried: map[string]int{}, ended: ended}
	for i, d := range dirs {
		u.left[filepath.Base(d)] = i
	}
	if err := u.run(ctx); err != nil {
		for _, i := range u.inOrder() {
			ended(i, nil, err)
		}
	}
}

// inOrder are the jobs without an end.
func (u *slurmUnit) inOrder() []int { return slices.Sorted(maps.Values(u.left)) }

// run follows allocations until every job has an end. An error is the end of all that are left.
func (u *slurmUnit) run(ctx context.Context) error {
	a, err := u.current(u.home)
	if err != nil {
		return err
	}
	for {
		if a != nil && !u.begun(ctx, a) {
			a = nil
		}
		if a == nil {
			var jobs []*Job
			for _, i := range u.inOrder() {
				jobs = append(jobs, u.jobs[i])
			}
			if a, err = u.submit(ctx, jobs, u.home); err != nil {
				return err
			}
		}
		if u.SubmitOnly {
			return ErrSubmitted
		}
		err := u.follow(ctx, a)
		if ctx.Err() != nil {
			u.cancel(a)
			return ctx.Err()
		}
		if err != nil {
			return err
		}
		u.soiled(a)
		u.rescue(a)
		if len(u.left) == 0 {
			return u.clear(u.home)
		}
		a = nil
	}
}

// clear removes a unit's folder.
func (s *Slurm) clear(home string) error {
	err := os.RemoveAll(home)
	os.Remove(filepath.Dir(home)) // when it was the last
	return err
}

// rescue moves whole bundles of an attempt's points that are not this unit's to their places.
func (u *slurmUnit) rescue(a *attempt) {
	for _, m := range a.members {
		if slices.ContainsFunc(u.dirs, func(d string) bool { return filepath.Base(d) == m }) || ended(a.bundle(m)) != record.CompleteFile {
			continue
		}
		os.Rename(a.bundle(m), filepath.Join(u.Dir, m)) // one that is there stays
	}
}

// Settled implements Remote.
func (s *Slurm) Settled(dirs []string) {
	home := s.home(dirs)
	a, err := s.current(home)
	if err == nil && a != nil {
		for _, m := range a.members {
			if !slices.ContainsFunc(dirs, func(d string) bool { return filepath.Base(d) == m }) && ended(filepath.Join(s.Dir, m)) == "" {
				return // others are in the allocation
			}
		}
		s.cancel(a)
	}
	s.clear(home)
}

// follow waits until an attempt is over and takes every end of a job as it comes. A job that is
// to be tried again, or was not begun, stays in u.left.
func (u *slurmUnit) follow(ctx context.Context, a *attempt) error {
	missing := 0
	said := ""
	for {
		q, known, err := u.look(ctx, a)
		class, over := terminal[q.state]
		gone := err == nil && (over || !known)
		if err := u.take(a, gone, func(f *Failure) *Failure {
			if !over || q.state != "CANCELLED" && class != "node" {
				return f
			}
			// What the scheduler did is the cause.
			return failf(class, "job %s on %s ended as %s; seen from inside: %s", q.id, q.nodes, q.state, f.Error())
		}); err != nil {
			return err
		}
		switch {
		case err != nil || ctx.Err() != nil:
			missing = 0 // the scheduler does not answer: it knows, and will say
		case gone:
			// The last files of the allocation may come later than the scheduler's word.
			if i := u.pending(a); i < 0 {
				return nil
			} else if missing++; missing < 3 {
				break
			} else {
				return u.died(ctx, a, i, q, known)
			}
		default:
			missing = 0
			if q.state != said {
				said = q.state
				for _, i := range u.inOrder() {
					u.jobs[i].note(Entry{State: Waiting, Job: q.id, Detail: strings.ToLower(q.state) + " on " + q.nodes})
				}
			}
			for name, i := range u.left {
				if p, ok := readProgress(a.progress(name)); ok && u.jobs[i].Progress != nil && p != (Progress{}) {
					u.jobs[i].Progress(p)
				}
			}
		}
		if !sleep(ctx, u.poll()) {
			return failf("cancelled", "interrupted")
		}
	}
}

// pending is the first job of an attempt that has no end, -1 when all have.
func (u *slurmUnit) pending(a *attempt) int {
	for _, m := range a.members {
		if i, ok := u.left[m]; ok && ended(a.bundle(m)) == "" {
			return i
		}
	}
	return -1
}

// take moves what has ended in an attempt to its place. While the allocation goes on a failure
// is only taken when a later point has begun: until then the scheduler may be its cause.
func (u *slurmUnit) take(a *attempt, over bool, judge func(*Failure) *Failure) error {
	for n, m := range a.members {
		i, ok := u.left[m]
		if !ok {
			continue
		}
		var fail *Failure
		switch ended(a.bundle(m)) {
		case "":
			continue
		case record.FailedFile:
			later := slices.ContainsFunc(a.members[n+1:], func(o string) bool {
				_, err := os.Stat(a.bundle(o))
				return err == nil
			})
			if !over && !later {
				continue
			}
			fail = judge(failedBundle(a.bundle(m)))
			a.ends++
			if u.again(i, fail) {
				if err := os.RemoveAll(a.bundle(m)); err != nil {
					return err
				}
				// In this attempt it is over, in the next it is begun again.
				a.members = slices.DeleteFunc(slices.Clone(a.members), func(o string) bool { return o == m })
				return u.take(a, over, judge)
			}
		case record.CompleteFile:
			if !over && len(a.members) == 1 {
				continue // it ends by itself in a moment
			}
		}
		a.ends++
		if err := u.collect(a, i, fail); err != nil {
			return err
		}
	}
	return nil
}

// again says whether a failed job is tried once more, and notes it.
func (u *slurmUnit) again(i int, f *Failure) bool {
	key := filepath.Base(u.dirs[i]) + " " + f.Class
	if u.tried[key] >= f.retries() {
		return false
	}
	u.tried[key]++
	u.jobs[i].note(Entry{State: Retried, Detail: f.Error()})
	return true
}

// died is what becomes of the job that an allocation left without an end.
func (u *slurmUnit) died(ctx context.Context, a *attempt, i int, q queued, known bool) error {
	_, err := os.Stat(a.bundle(filepath.Base(u.dirs[i])))
	others := a.ends > 0 || slices.ContainsFunc(a.members, func(m string) bool { _, left := u.left[m]; return !left })
	if err != nil && others {
		return nil // it was not its turn yet
	}
	var f *Failure
	if !known {
		f = failf("node", "the scheduler knows nothing of the allocation %s any more and it left no result", a.token)
	} else {
		f = failf(terminal[q.state], "job %s on %s ended as %s (%s) without a result; last lines: %s", q.id, q.nodes, q.state, q.reason,
			strings.Join(lastLines(filepath.Join(a.dir, "out.log"), 3), " | "))
		if err := roomIn(a.dir); err != nil {
			f = failf("node", "job %s on %s ended as %s without a result: %v", q.id, q.nodes, q.state, err)
		}
		if q.state == "NODE_FAIL" || q.state == "BOOT_FAIL" {
			u.exclude(ctx, u.jobs[i], q.nodes, f.Reason)
		}
	}
	if u.again(i, f) {
		return nil
	}
	return u.collect(a, i, f)
}

// collect moves the bundle of a job to its place. Without one it makes one that ends with FAILED.
func (u *slurmUnit) collect(a *attempt, i int, fail *Failure) error {
	j, dir := u.jobs[i], u.dirs[i]
	name := filepath.Base(dir)
	from := a.bundle(name)
	if ended(from) == "" {
		if err := failLeft(j, from, fail); err != nil {
			return err
		}
	}
	if raw, err := os.ReadFile(filepath.Join(a.dir, "out.log")); err == nil {
		os.WriteFile(filepath.Join(from, record.LogsDir, "slurm.log"), raw, 0o666)
	}
	if err := os.RemoveAll(dir); err != nil { // a failed bundle of an earlier run
		return err
	}
	if err := os.Rename(from, dir); err != nil {
		return err
	}
	delete(u.left, name)
	if fail != nil {
		u.ended(i, nil, fail)
		return nil
	}
	r, err := result.DeriveDir(dir)
	u.ended(i, r, err)
	return nil
}

// failLeft gives a bundle without an end its FAILED and keeps what is recorded in it. Where nothing is, it is
// made.
func failLeft(j *Job, dir string, fail *Failure) error {
	if _, err := os.Stat(filepath.Join(dir, record.PointFile)); err == nil {
		return record.FailLeft(dir, fail.Class, fail.Reason)
	}
	w, err := record.CreateBundle(dir)
	if err != nil {
		return err
	}
	m, err := j.meta()
	if err == nil {
		err = w.WriteMeta(m)
	}
	if err != nil {
		w.Abandon()
		return err
	}
	return w.Fail(fail.Class, fail.Reason)
}

// cancel ends an attempt's allocation, waits until it is gone and removes the unit's folder.
func (s *Slurm) cancel(a *attempt) {
	ctx, stop := context.WithTimeout(context.Background(), cancelWait)
	defer stop()
	if s.end(ctx, a.comment) == nil {
		s.clear(filepath.Dir(a.dir))
	}
}

// end cancels every allocation whose comment begins so and returns when none is left.
func (s *Slurm) end(ctx context.Context, comment string) error {
	for asked := map[string]bool{}; ; {
		s.forget()
		running, err := s.running(ctx, comment)
		if err == nil && len(running) == 0 {
			return nil
		}
		for _, q := range running {
			if !asked[q.id] {
				_, err = slurmCommand(ctx, "scancel", q.id)
				asked[q.id] = err == nil
			}
		}
		if !sleep(ctx, s.poll()) {
			return errors.Join(fmt.Errorf("%d allocations are still there", len(running)), err)
		}
	}
}

// running are the allocations that are not over and whose comment begins so.
func (s *Slurm) running(ctx context.Context, comment string) ([]queued, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.refresh(ctx); err != nil {
		return nil, err
	}
	var out []queued
	for c, q := range s.queue {
		if _, over := terminal[q.state]; !over && strings.HasPrefix(c, comment) {
			out = append(out, q)
		}
	}
	return out, nil
}
