package run

import (
	"github.com/weirbench/weir/internal/facts"
	"github.com/weirbench/weir/internal/plan"
)

// PlanOptions are how the point is planned: with the facts that stand before the embedded ones.
func (j *Job) PlanOptions() (plan.Options, error) {
	if j.Facts == "" {
		return plan.Options{}, nil
	}
	set, err := facts.Embedded().Extend("facts", []byte(j.Facts))
	return plan.Options{Facts: set}, err
}

// plan plans the job's point with its recipe.
func (j *Job) plan() error {
	opt, err := j.PlanOptions()
	if err != nil {
		return err
	}
	q, err := j.Recipe.Planned(j.Point)
	if err != nil {
		return err
	}
	j.Verdict, err = plan.Compute(q, opt)
	return err
}
