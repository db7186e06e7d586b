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
	said  time.Time // when the last whole line was written, without a terminal
}

// sayEvery is how long the program is silent where it cannot rewrite a line.
const sayEvery = 30 * time.Second

func newStatus(a *App, what string) *status {
	return &status{app: a, what: what, begun: time.Now(), tty: isTerminal(a.Err)}
}

func (s *status) show(p run.Progress) {
	if !s.tty && time.Since(later(s.begun, s.said)) < sayEvery {
		return
	}
	left := "…"
	if p.EndNs > p.NowNs {
		left = time.Duration(p.EndNs - p.NowNs).Round(time.Second).String()
	}
	line := fmt.Sprintf("%s: %s, %d in flight, %d ok, %d failed, %d tokens out, %s left", s.what,
		p.Phase, p.Counts.InFlight, p.Counts.OK, p.Counts.Failed, p.Counts.OutputTokens, left)
	if !s.tty {
		s.said = time.Now()
		fmt.Fprintln(s.app.Err, line)
		return
	}
	fmt.Fprint(s.app.Err, "\r\033[K"+line)
	s.shown = true
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

func (s *status) clear() {
	if s.shown {
		fmt.Fprint(s.app.Err, "\r\033[K")
		s.shown = false
	}
}

func asFailure(err error, f **run.Failure) bool { return errors.As(err, f) }
