package run

import (
	"context"

	"github.com/weirbench/weir/internal/record"
	"github.com/weirbench/weir/internal/result"
)

// A Remote is an Executor whose work ends in whole bundles that something else wrote, such as
// a scheduler's job, which goes on when this process dies.
type Remote interface {
	Executor
	// Ours is nil where nothing is under way for a job whose bundle will stand in dir, or where it is
	// under way as the job asks; otherwise it wraps ErrOtherRun.
	Ours(j *Job, dir string) error
	// Units are the jobs, by index and in order, that are measured together.
	Units(jobs []*Job) [][]int
	// Bundles measures the jobs of a unit, or takes over what an earlier process began for them,
	// moves their bundles to dirs and says of each how it ended. A job without a result leaves
	// there a bundle that ends with FAILED. When ctx ends, Bundles cancels what runs for the
	// jobs, which end with ctx's error.
	Bundles(ctx context.Context, jobs []*Job, dirs []string, ended func(int, *result.Result, error))
	// Settled clears what an earlier process left of a unit whose bundles are whole.
	Settled(dirs []string)
}

// Choose measures every job with the executor that it is given for it.
type Choose func(*Job) Executor

// Name is "by job".
func (Choose) Name() string { return "by job" }

// Measure implements Executor.
func (c Choose) Measure(ctx context.Context, j *Job, w *record.BundleWriter) error {
	return c(j).Measure(ctx, j, w)
}

// executorOf is what measures a job.
func executorOf(ex Executor, j *Job) Executor {
	if c, ok := ex.(Choose); ok {
		return c(j)
	}
	return ex
}
