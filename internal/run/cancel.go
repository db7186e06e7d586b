package run

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/weirbench/weir/internal/record"
	"github.com/weirbench/weir/internal/result"
)

// cancelFile asks the process that runs a sweep, wherever it is, to stop.
const cancelFile = ".cancel"

// cancelEvery is the time between two looks for cancelFile.
const cancelEvery = 500 * time.Millisecond

// ErrCancelled is returned by a sweep that Cancel stopped.
var ErrCancelled = errors.New("cancelled by 'weir sweep cancel'")

// cancellable ends ctx when somebody asks for the sweep's end. What was asked of an earlier
// process is forgotten.
func (s *Sweep) cancellable(ctx context.Context) (context.Context, func()) {
	file := filepath.Join(s.Dir, cancelFile)
	os.Remove(file)
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		for sleep(ctx, cancelEvery) {
			if _, err := os.Stat(file); err == nil {
				cancel(ErrCancelled)
			}
		}
	}()
	return ctx, func() { cancel(nil) }
}

// Cancelled is what Cancel did.
type Cancelled struct {
	Allocations int      `json:"allocations"` // that were ended
	Kept        []string `json:"kept"`        // points that were whole and not yet at their place
	Stopped     []string `json:"stopped"`     // points that had no end
	// Ended are processes on this machine that a dead controller left, and that were ended.
	Ended []Running `json:"ended"`
}

// Cancel ends a sweep, whoever runs it: the process that controls it stops, allocations are
// cancelled and waited for, and processes that a dead controller left here are ended. The
// journal says so of every point without an end. Whole bundles stay. It returns when nothing is
// left, or with an error that says what is.
func Cancel(ctx context.Context, dir string, poll time.Duration) (*Cancelled, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(dir, JournalFile)); err != nil {
		return nil, err
	}
	ask := filepath.Join(dir, cancelFile)
	defer os.Remove(ask)
	unlock, err := lock(filepath.Join(dir, lockFile))
	for errors.Is(err, ErrLocked) {
		if err := os.WriteFile(ask, nil, 0o666); err != nil {
			return nil, err
		}
		if !sleep(ctx, 100*time.Millisecond) {
			return nil, fmt.Errorf("the process that runs the sweep has not stopped: %w", ctx.Err())
		}
		unlock, err = lock(filepath.Join(dir, lockFile))
	}
	if err != nil {
		return nil, err
	}
	defer unlock()

	out := &Cancelled{Kept: []string{}, Stopped: []string{}, Ended: []Running{}}
	before, err := ReadStatus(dir)
	if err != nil {
		return nil, err
	}
	s := &Slurm{Dir: dir, Poll: poll}
	if err := s.cancelAll(ctx, out); err != nil {
		return out, err
	}
	left := RunningIn(dir)
	if err := Reap(filepath.Join(dir, WorkDir)); err != nil {
		return out, err
	}
	out.Ended = append(out.Ended, left...)
	if err := sweepPartials(dir); err != nil {
		return out, err
	}
	os.Remove(filepath.Join(dir, liveFile))
	journal, err := OpenJournal(filepath.Join(dir, JournalFile))
	if err != nil {
		return out, err
	}
	defer journal.Close()
	for _, p := range before {
		if p.State.Settled() {
			continue
		}
		e := Entry{Point: p.Point, Name: p.Name, State: Stopped, Detail: ErrCancelled.Error(), Job: p.Job}
		if _, err := os.Stat(filepath.Join(dir, p.Point, record.CompleteFile)); err == nil {
			e.State, e.Detail = Complete, "valid"
			if r, err := result.DeriveDir(filepath.Join(dir, p.Point)); err == nil && !r.Valid {
				e.Detail = "invalid: " + r.Reasons[0].Text
			}
			out.Kept = append(out.Kept, p.Point)
		} else {
			out.Stopped = append(out.Stopped, p.Point)
		}
		if err := journal.Append(e); err != nil {
			return out, err
		}
	}
	return out, nil
}

// cancelAll takes every token back, so that no allocation begins anything more, ends all of the
// sweep's and keeps the bundles that were whole.
func (s *Slurm) cancelAll(ctx context.Context, out *Cancelled) error {
	homes, err := os.ReadDir(filepath.Join(s.Dir, slurmDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it never had an allocation, or they are all done
	}
	if err != nil {
		return err
	}
	q, err := s.running(ctx, s.prefix()) // before: one that has just begun ends by itself without its token
	if err != nil {
		return err
	}
	out.Allocations = len(q)
	var attempts []*attempt
	for _, h := range homes {
		home := filepath.Join(s.Dir, slurmDir, h.Name())
		if a, err := s.current(home); err == nil && a != nil {
			attempts = append(attempts, a)
		}
		if err := os.Remove(filepath.Join(home, "current")); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := s.end(ctx, s.prefix()); err != nil {
		return err
	}
	for _, a := range attempts {
		for _, m := range a.members {
			if ended(a.bundle(m)) != record.CompleteFile {
				continue
			}
			if ended(filepath.Join(s.Dir, m)) == record.FailedFile { // of an earlier run
				if err := os.RemoveAll(filepath.Join(s.Dir, m)); err != nil {
					return err
				}
			}
			if err := os.Rename(a.bundle(m), filepath.Join(s.Dir, m)); err != nil {
				return err
			}
		}
	}
	return os.RemoveAll(filepath.Join(s.Dir, slurmDir))
}
