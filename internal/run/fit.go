package run

import (
	"errors"
	"fmt"

	"github.com/weirbench/weir/internal/client"
	"github.com/weirbench/weir/internal/replay"
)

// InFlight is what the job can have in flight at once. In agentic replay a lane has the
// requests of a whole tree: its root's and those of all sub-agents that run beside it.
func (j *Job) InFlight() client.Plan {
	switch {
	case j.Load == nil:
		o := j.options()
		n, t := o.Peak(j.Corpus)
		if t == nil {
			return client.Plan{}
		}
		return client.Plan{Units: o.Lanes, Each: n, Unit: "lanes", Of: fmt.Sprintf("trace %s at once", t.ID)}
	case j.Load.Arrival == replay.Users:
		return client.Plan{Units: j.Load.NumUsers, Unit: "users"}
	}
	return client.Plan{Units: j.Load.Concurrency, Unit: "conversations at once"} // 0 where nothing caps it
}

// Fits tells why this machine cannot hold what the job can have in flight: a *client.TooMany.
// It is nil when it can, and where nobody knows how much that is.
func (h *HTTP) Fits(j *Job) error {
	p := j.InFlight()
	return h.Client.Fits(&p)
}

// refuse makes the failure of a job that does not fit.
func refuse(err error) error {
	if many := (*client.TooMany)(nil); errors.As(err, &many) {
		return &Failure{Class: "capacity", Reason: err.Error(), Err: err}
	}
	return failf("client", "%v", err)
}
