package run

import (
	"context"

	"github.com/weirbench/weir/internal/record"
	"github.com/weirbench/weir/internal/result"
)

// A Remote is an Executor whose work ends in whole bundles that something else wrote, such as
// a scheduler's job, which goes on when this process dies. Bundle measures a job, or takes over
// what an earlier process began for it, and moves the bundle to dir. A job without a result
// leaves there a bundle that ends with FAILED. When ctx ends, Bundle cancels what runs for the
// job and returns ctx's error.
type Remote interface {
	Executor
	Bundle(ctx context.Context, j *Job, dir string) (*result.Result, error)
	// Ours is nil where nothing is under way for a job whose bundle will stand in dir, or where it is
	// under way as the job asks; otherwise it wraps ErrOtherRun.
	Ours(j *Job, dir string) error
	// Settled clears what an earlier process left of a job whose bundle is whole.
	Settled(dir string)
}

// Choose measures every job with the executor that it is given for it.
type Choose func(*Job) Executor

// Name is "by job".
func (Choose) Name() string { return "by job" }

// Measure implements Executor.
func (c Choose) Measure(ctx context.Context, j *Job, w *record.BundleWriter) error {
	return c(j).Measure(ctx, j, w)
}

// remote is the executor of a job where it is remote.
func remote(ex Executor, j *Job) (Remote, bool) {
	if c, ok := ex.(Choose); ok {
		ex = c(j)
	}
	r, ok := ex.(Remote)
	return r, ok
}
