package cli

import (
	"errors"
	"fmt"
	"time"

	"github.com/weirbench/weir/internal/run"
)

// status is a line on the terminal that says how far one point is.
type status struct {
	app   *App
	what  string
	begun time.Time
	shown bool
	tty   bool
}

func newStatus(a *App, what string) *status {
	return &status{app: a, what: what, begun: time.Now(), tty: isTerminal(a.Err)}
}

func (s *status) show(p run.Progress) {
	if !s.tty {
		return
	}
	left := "…"
	if p.EndNs > p.NowNs {
		left = time.Duration(p.EndNs - p.NowNs).Round(time.Second).String()
	}
	fmt.Fprintf(s.app.Err, "\r\033[K%s: %s, %d in flight, %d ok, %d failed, %d tokens out, %s left", s.what,
		p.Phase, p.Counts.InFlight, p.Counts.OK, p.Counts.Failed, p.Counts.OutputTokens, left)
	s.shown = true
}

func (s *status) clear() {
	if s.shown {
		fmt.Fprint(s.app.Err, "\r\033[K")
		s.shown = false
	}
}

func asFailure(err error, f **run.Failure) bool { return errors.As(err, f) }
