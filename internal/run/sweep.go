package run

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/weirbench/weir/internal/engine"
	"github.com/weirbench/weir/internal/record"
	"github.com/weirbench/weir/internal/result"
	"github.com/weirbench/weir/internal/scrape/gpu"
)

// partialSuffix marks the folder of a bundle that is being written.
const partialSuffix = ".partial"

// A Sweep runs jobs into one folder, a bundle each.
type Sweep struct {
	Dir      string // made when absent; locked while Run works
	Jobs     []*Job // in the order in which they are begun; Prepared fills Verdict
	Executor Executor
	Parallel int  // jobs at once, at least 1
	FailFast bool // stop beginning jobs after the first that failed
	// ShareServer measures jobs that one server can measure one after the other on it; Unclean
	// says what becomes of one whose server was not clean.
	ShareServer bool
	Unclean     Unclean
	// GPUHours is the budget: a job whose GPUs times its duration would exceed what is left of it is
	// not begun. 0 is without limit. Jobs of earlier runs with whole bundles count.
	GPUHours float64
	// Release are nodes that come out of quarantine before anything is begun.
	Release []string
	// Adaptive chooses which jobs are begun, one at a time; nil begins all, in order.
	Adaptive *Adaptive

	// Report is called for every change of a job's state, one call at a time.
	Report func(Update)
}

// An Update is a change of one job's state.
type Update struct {
	Index    int // in Jobs
	State    State
	Result   *result.Result // with Complete and Skipped
	Err      error          // with Refused, Failed and Stopped
	Progress Progress       // with Started, as it goes
}

// Counts of how a sweep's jobs ended.
type Summary struct {
	Complete, Skipped, Invalid, Refused, Failed, Stopped, NotBegun int
}

// ErrLocked is returned when another process runs a sweep in the same folder.
var ErrLocked = errors.New("another sweep is running in this folder")

// BundleDir is the folder of a job's bundle in a sweep's folder.
func BundleDir(dir string, j *Job) string {
	name := j.Point.ID()
	if j.Repeat > 0 {
		name = fmt.Sprintf("%s-r%d", name, j.Repeat)
	}
	return filepath.Join(dir, name)
}

// Run runs every job that has no whole bundle yet. It returns when all are done or, after ctx
// ended, when what was running is stopped; then the error is ctx's. Failed and refused jobs are
// no error: the summary counts them.
func (s *Sweep) Run(ctx context.Context) (Summary, error) {
	var sum Summary
	if err := os.MkdirAll(s.Dir, 0o777); err != nil {
		return sum, err
	}
	unlock, err := lock(filepath.Join(s.Dir, lockFile))
	if err != nil {
		return sum, err
	}
	defer unlock()
	os.Remove(filepath.Join(s.Dir, liveFile)) // of a process that was killed
	if err := s.Check(); err != nil {
		return sum, err
	}
	journal, err := OpenJournal(filepath.Join(s.Dir, JournalFile))
	if err != nil {
		return sum, err
	}
	defer journal.Close()
	if err := journal.Reserve(); err != nil {
		return sum, err
	}
	if err := Reap(filepath.Join(s.Dir, WorkDir)); err != nil {
		return sum, err
	}
	ctx, stop := s.cancellable(ctx)
	defer stop()
	if err := sweepPartials(s.Dir); err != nil {
		return sum, err
	}

	if err := s.plan(journal); err != nil {
		return sum, err
	}
	if len(s.Release) > 0 {
		if err := journal.Append(Entry{Point: "-", State: Released, Nodes: s.Release}); err != nil {
			return sum, err
		}
	}

	var mu sync.Mutex // guards sum, journal and Report
	var journalErr error
	now := &live{path: filepath.Join(s.Dir, liveFile), points: map[string]Progress{}}
	os.Remove(now.path) // of a killed process
	defer os.Remove(now.path)
	say := func(u Update, detail string) {
		mu.Lock()
		defer mu.Unlock()
		j := s.Jobs[u.Index]
		if name := filepath.Base(BundleDir(s.Dir, j)); u.State == Started {
			now.set(name, &u.Progress)
		} else {
			now.set(name, nil)
		}
		if u.State != Started || u.Progress == (Progress{}) {
			e := Entry{Point: filepath.Base(BundleDir(s.Dir, j)), Name: j.Point.Name, State: u.State, Detail: detail}
			if err := journal.Append(e); err != nil && journalErr == nil {
				journalErr = err
			}
		}
		sum.count(u)
		if s.Report != nil {
			s.Report(u)
		}
	}

	note := func(i int, e Entry) {
		mu.Lock()
		defer mu.Unlock()
		j := s.Jobs[i]
		e.Point, e.Name = filepath.Base(BundleDir(s.Dir, j)), j.Point.Name
		if err := journal.Append(e); err != nil && journalErr == nil {
			journalErr = err
		}
	}

	work, cancel := context.WithCancel(ctx)
	defer cancel()
	if s.Adaptive != nil {
		if err := s.adapt(work, journal, &mu, say, note); err != nil {
			return sum, err
		}
		return sum, errors.Join(context.Cause(ctx), journalErr)
	}
	slots := make(chan struct{}, max(1, s.Parallel))
	budget := &budget{hours: s.GPUHours}
	var wg sync.WaitGroup
	for _, unit := range s.units() {
		slots <- struct{}{}
		if work.Err() != nil {
			<-slots
			break
		}
		wg.Go(func() {
			defer func() { <-slots }()
			if failed := s.unit(work, unit, budget, say, note); s.FailFast && failed {
				cancel()
			}
		})
	}
	wg.Wait()
	if err := context.Cause(ctx); err != nil {
		return sum, err
	}
	return sum, journalErr
}

// plan writes every job into the journal that it does not name yet.
func (s *Sweep) plan(journal *Journal) error {
	before, err := ReadJournal(filepath.Join(s.Dir, JournalFile))
	if err != nil {
		return err
	}
	known := map[string]bool{}
	for _, e := range before {
		known[e.Point] = true
	}
	var fresh []Entry
	for _, j := range s.Jobs {
		if name := filepath.Base(BundleDir(s.Dir, j)); !known[name] {
			fresh = append(fresh, Entry{Point: name, Name: j.Point.Name, State: Planned})
		}
	}
	return journal.Append(fresh...)
}

// adapt runs the jobs that the adaptive choice takes, one after the other. Bundles of an earlier
// run count as measured.
func (s *Sweep) adapt(ctx context.Context, journal *Journal, mu *sync.Mutex, say func(Update, string), note func(int, Entry)) error {
	done := make([]*Outcome, len(s.Jobs))
	keep := func(u Update, detail string) {
		if u.State != Started {
			done[u.Index] = OutcomeOf(u.Result)
		}
		say(u, detail)
	}
	for i, j := range s.Jobs {
		if r, err := Whole(BundleDir(s.Dir, j), j); err == nil && r != nil {
			s.one(ctx, i, keep, note)
		}
	}
	for {
		i, why, ok := s.Adaptive.Next(s.Jobs, done)
		if !ok {
			mu.Lock()
			defer mu.Unlock()
			return journal.Append(Entry{Point: "-", State: Chosen, Detail: "no more: " + why})
		}
		note(i, Entry{State: Chosen, Detail: why})
		if s.one(ctx, i, keep, note) == Failed && s.FailFast || ctx.Err() != nil {
			return nil
		}
	}
}

// one runs one job by itself and returns the state that it ended in.
func (s *Sweep) one(ctx context.Context, i int, say func(Update, string), note func(int, Entry)) State {
	last := Stopped
	s.unit(ctx, []int{i}, &budget{}, func(u Update, detail string) {
		if u.State != Started {
			last = u.State
		}
		say(u, detail)
	}, note)
	return last
}

// before settles what needs no run: a whole bundle of an earlier one, or a refusal.
func (s *Sweep) before(i int, say func(Update, string), note func(int, Entry)) (settled State, ok bool) {
	j := s.Jobs[i]
	dir := BundleDir(s.Dir, j)
	r, damage := Whole(dir, j)
	if damage != nil {
		if err := setAside(dir); err != nil {
			say(Update{Index: i, State: Failed, Err: err}, err.Error())
			return Failed, true
		}
		note(i, Entry{State: Damaged, Detail: damage.Error() + "; set aside as " + filepath.Base(dir) + record.DamagedSuffix + " and run again"})
	}
	if r != nil {
		say(Update{Index: i, State: Skipped, Result: r}, "")
		return Skipped, true
	}
	if err := Refusal(j); err != nil {
		say(Update{Index: i, State: Refused, Err: err}, err.Error())
		return Refused, true
	}
	return "", false
}

// ended says how a job ended that was begun.
func (s *Sweep) ended(ctx context.Context, i int, r *result.Result, err error, say func(Update, string)) State {
	switch {
	case err == nil:
		detail := "valid"
		if !r.Valid {
			detail = "invalid: " + r.Reasons[0].Text
		}
		say(Update{Index: i, State: Complete, Result: r}, detail)
		return Complete
	case errors.Is(err, ErrSubmitted):
		return Submitted
	case ctx.Err() != nil:
		say(Update{Index: i, State: Stopped, Err: ctx.Err()}, "")
		return Stopped
	}
	f := classed(err)
	say(Update{Index: i, State: Failed, Err: f}, f.Error())
	return Failed
}

// measure fills a partial folder and renames it when the bundle is whole. A job whose engine
// failed in a way that may pass is tried again.
func (s *Sweep) measure(ctx context.Context, ex Executor, j *Job, dir string) (*result.Result, error) {
	for tried := map[string]int{}; ; {
		r, err := s.attempt(ctx, ex, j, dir)
		if err == nil || ctx.Err() != nil || j.Recipe == nil {
			return r, err
		}
		f := classed(err)
		if tried[f.Class] >= f.retries() {
			return r, err
		}
		tried[f.Class]++
		j.note(Entry{State: Retried, Detail: f.Error()})
	}
}

// attempt is one try of measure.
func (s *Sweep) attempt(ctx context.Context, ex Executor, j *Job, dir string) (*result.Result, error) {
	partial := dir + partialSuffix
	if err := os.RemoveAll(partial); err != nil {
		return nil, err
	}
	r, err := Measure(ctx, ex, j, partial)
	if ctx.Err() != nil {
		return nil, errors.Join(ctx.Err(), os.RemoveAll(partial))
	}
	if err != nil && r == nil {
		if _, statErr := os.Stat(filepath.Join(partial, record.FailedFile)); statErr != nil {
			os.RemoveAll(partial)
			return nil, err
		}
	}
	if rmErr := os.RemoveAll(dir); rmErr != nil { // a failed bundle of an earlier run
		return nil, rmErr
	}
	if mvErr := os.Rename(partial, dir); mvErr != nil {
		return nil, mvErr
	}
	return r, err
}

// Measure runs one job with an executor into the folder dir and derives its result. A job
// without a result leaves a bundle that ends with FAILED and its class.
func Measure(ctx context.Context, ex Executor, j *Job, dir string) (*result.Result, error) {
	w, err := record.CreateBundle(dir)
	if err != nil {
		return nil, err
	}
	w.ThinSamples(needed)
	err = ex.Measure(ctx, j, w)
	if err == nil {
		var r *result.Result
		if r, err = result.Finish(w); err == nil {
			return r, nil
		}
	}
	if ctx.Err() != nil {
		w.Abandon()
		return nil, fmt.Errorf("interrupted before there was anything to measure: %s has no result (%w)", dir, ctx.Err())
	}
	f := classed(err)
	return nil, errors.Join(f, w.Fail(f.Class, f.Error()))
}

// needed tells whether something is read of a series beside what it grew by over the window.
func needed(series string) bool {
	_, device := gpu.Classify(series)
	return device || engine.Classify(series) != nil
}

// setAside renames a damaged bundle, so that its point can be run again and nothing is lost; an
// older one of the same point gives way.
func setAside(dir string) error {
	if err := os.RemoveAll(dir + record.DamagedSuffix); err != nil {
		return err
	}
	return os.Rename(dir, dir+record.DamagedSuffix)
}

// Whole returns the result of a job's complete bundle in dir, nil when there is none or one that
// ended with FAILED. A missing result.json is derived again. An error says that something stands
// there that is no whole bundle of this job: its files are not those that COMPLETE sums up, or it
// is another point's.
func Whole(dir string, j *Job) (*result.Result, error) {
	info, err := os.Lstat(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("%s is not a folder", dir)
	}
	if _, err := os.Stat(filepath.Join(dir, record.CompleteFile)); errors.Is(err, os.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	b, err := record.OpenBundle(dir)
	if err != nil {
		return nil, err
	}
	if err := b.Verify(); err != nil {
		return nil, err
	}
	if b.Meta.PointID != j.Point.ID() {
		return nil, fmt.Errorf("%s holds point %s, not %s", dir, b.Meta.PointID, j.Point.ID())
	}
	return result.DeriveDir(dir)
}

// Refusal says why the plan refuses a job; nil when it does not.
func Refusal(j *Job) error {
	if j.Verdict == nil || j.Verdict.OK() {
		return nil
	}
	v := j.Verdict
	for _, f := range v.Findings {
		if f.Status == v.Status {
			text := fmt.Sprintf("%s: %s", f.Status, f.Reason)
			if f.Change != "" {
				text += "; " + f.Change
			}
			return errors.New(text)
		}
	}
	return errors.New(string(v.Status))
}

// sweepPartials removes what a killed process left.
func sweepPartials(dir string) error {
	left, err := filepath.Glob(filepath.Join(dir, "*"+partialSuffix))
	for _, p := range left {
		err = errors.Join(err, os.RemoveAll(p))
	}
	return err
}

func (s *Summary) count(u Update) {
	switch u.State {
	case Complete:
		s.Complete++
		if !u.Result.Valid {
			s.Invalid++
		}
	case Skipped:
		s.Skipped++
		if !u.Result.Valid {
			s.Invalid++
		}
	case Refused:
		s.Refused++
	case Failed:
		s.Failed++
	case Stopped:
		s.Stopped++
	case NotBegun:
		s.NotBegun++
	}
}

// lockFile is locked by the process that runs a sweep, and names it.
const lockFile = ".lock"

// lock takes an exclusive lock that ends with the process, and writes into its file which process that is.
func lock(path string) (func(), error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("%s: %w", filepath.Dir(path), ErrLocked)
		}
		return nil, err
	}
	noteProcess(path, os.Getpid()) // who looks can do without
	return func() {
		os.Truncate(path, 0)
		f.Close()
	}, nil
}
