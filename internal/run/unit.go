package run

import (
	"context"
	"fmt"
	"sync"

	"github.com/weirbench/weir/internal/result"
)

// A budget is what jobs may take, GPU hours: planned ones, GPUs times duration.
type budget struct {
	hours float64 // 0 is without limit

	mu    sync.Mutex
	spent float64
}

// take takes a job's cost; it says why not when that is more than is left.
func (b *budget) take(j *Job) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if c := cost(j); b.hours > 0 && b.spent+c > b.hours {
		return fmt.Errorf("the budget: %.4g of %.4g GPU hours are spent or begun, this point takes %.4g", b.spent, b.hours, c)
	}
	b.spent += cost(j)
	return nil
}

// units are the jobs that are measured together, by index, in the order of the first of each.
func (s *Sweep) units() [][]int {
	var out [][]int
	taken := make([]bool, len(s.Jobs))
	for i, j := range s.Jobs {
		if taken[i] {
			continue
		}
		key, err := ServerKey(j)
		switch ex := executorOf(s.Executor, j).(type) {
		case Remote:
			var jobs []*Job
			var at []int
			for k := i; k < len(s.Jobs); k++ {
				if !taken[k] && executorOf(s.Executor, s.Jobs[k]) == Executor(ex) {
					jobs, at, taken[k] = append(jobs, s.Jobs[k]), append(at, k), true
				}
			}
			for _, u := range ex.Units(jobs) {
				var unit []int
				for _, n := range u {
					unit = append(unit, at[n])
				}
				out = append(out, unit)
			}
		case *Launch:
			unit := []int{i}
			for k := i + 1; k < len(s.Jobs) && s.ShareServer && err == nil; k++ {
				if other, err := ServerKey(s.Jobs[k]); !taken[k] && err == nil && other == key {
					unit, taken[k] = append(unit, k), true
				}
			}
			out = append(out, unit)
		default:
			out = append(out, []int{i})
		}
		taken[i] = true
	}
	return out
}

// unit runs the jobs of a unit and says whether one failed. A whole bundle of an earlier run, a
// refusal and the budget leave a job out.
func (s *Sweep) unit(ctx context.Context, unit []int, b *budget, say func(Update, string), note func(int, Entry)) (failed bool) {
	var open []int
	var jobs []*Job
	var dirs, whole []string
	for _, i := range unit {
		j := s.Jobs[i]
		dir := BundleDir(s.Dir, j)
		state, settled := s.before(i, say, note)
		failed = failed || state == Failed
		if state == Skipped {
			whole = append(whole, dir)
			b.take(j)
		}
		if settled {
			continue
		}
		if err := b.take(j); err != nil {
			say(Update{Index: i, State: NotBegun, Err: err}, err.Error())
			continue
		}
		j.Note = func(e Entry) { note(i, e) }
		j.Progress = func(p Progress) { say(Update{Index: i, State: Started, Progress: p}, "") }
		open, jobs, dirs = append(open, i), append(jobs, j), append(dirs, dir)
	}
	ex := executorOf(s.Executor, s.Jobs[unit[0]])
	if r, ok := ex.(Remote); ok {
		if len(open) == 0 {
			if len(whole) > 0 {
				r.Settled(whole)
			}
			return failed
		}
		for _, i := range open {
			say(Update{Index: i, State: Started}, "")
		}
		r.Bundles(ctx, jobs, dirs, func(n int, res *result.Result, err error) {
			failed = s.ended(ctx, open[n], res, err, say) == Failed || failed
		})
		return failed
	}
	if l, ok := ex.(*Launch); ok && s.ShareServer {
		shared := l.Share(s.Unclean)
		defer func() {
			if err := shared.Close(); err != nil {
				note(unit[0], Entry{State: Dirty, Detail: err.Error()})
			}
		}()
		ex = shared
	}
	for n, i := range open {
		if ctx.Err() != nil || failed && s.FailFast {
			return failed
		}
		say(Update{Index: i, State: Started}, "")
		res, err := s.measure(ctx, ex, jobs[n], dirs[n])
		failed = s.ended(ctx, i, res, err, say) == Failed || failed
	}
	return failed
}
