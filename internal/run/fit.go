package run

import (
	"errors"
	"fmt"
	"math"
	"time"

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
	if w := j.crowd(); w != nil {
		p = client.Plan{Units: w.Sure, Unit: "requests at the same time"}
	}
	return h.Client.Fits(&p)
}

func (j *Job) crowd() *replay.Crowd {
	if j.Load == nil {
		return nil
	}
	return j.Load.Crowd(j.Corpus)
}

// Crowded says of a load that nothing caps, and that may have more in flight than the machine has
// room for, how long answers must take for that. It is empty where the load fits in any case.
func (h *HTTP) Crowded(j *Job) string {
	w := j.crowd()
	if w == nil {
		return ""
	}
	room, of, err := h.Client.Room()
	if err != nil {
		return ""
	}
	return crowded(j.Load, w, room, of)
}

func crowded(l *replay.Load, w *replay.Crowd, room int, of string) string {
	if w.Most <= room {
		return ""
	}
	most := fmt.Sprintf("%d requests", w.Most)
	if w.Most == math.MaxInt {
		most = "any number of requests"
	}
	pace := fmt.Sprintf("at %g requests/s", l.Rate)
	if l.Arrival == replay.Schedule {
		pace = "where the schedule is densest"
	}
	hint := "; -c caps the load"
	if l.Arrival == replay.Users {
		hint = ""
	}
	return fmt.Sprintf("nothing caps this load: %s can be in flight if no answer comes, and there is room for %d (%s); %s that is reached when answers take %v. "+
		"What goes out beyond it is not sent, fails as client and makes the result invalid%s", most, room, of, pace, time.Duration(w.Reach(room)).Round(time.Millisecond), hint)
}

// refuse makes the failure of a job that does not fit.
func refuse(err error) error {
	if many := (*client.TooMany)(nil); errors.As(err, &many) {
		return &Failure{Class: "capacity", Reason: err.Error(), Err: err}
	}
	return failf("client", "%v", err)
}
