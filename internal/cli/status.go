package cli

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/weirbench/weir/internal/knee"
	"github.com/weirbench/weir/internal/run"
	"github.com/weirbench/weir/internal/sim"
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
const sayEvery = 10 * time.Second

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
	line := fmt.Sprintf("%s: %s, %s in flight, %s ok, %s failed, %s tokens out, %s left", s.what,
		p.Phase, count(p.Counts.InFlight), count(p.Counts.OK), count(p.Counts.Failed), count(p.Counts.OutputTokens), left)
	if !s.tty {
		s.said = time.Now()
		fmt.Fprintln(s.app.Err, line)
		return
	}
	fmt.Fprint(s.app.Err, "\r\033[K"+line)
	s.shown = true
}

// fit says how far a fit of coefficients is.
func (s *status) fit(p sim.FitProgress) {
	now := time.Now()
	if s.tty && now.Sub(s.said) < lineEvery || !s.tty && now.Sub(later(s.begun, s.said)) < sayEvery {
		return
	}
	s.said = now
	line := fmt.Sprintf("%s: %s, about %.0f %%, %d replays, %s left", s.what, p.Of, 100*p.Share, p.Replays, left(now.Sub(s.begun), p.Share))
	if !s.tty {
		fmt.Fprintln(s.app.Err, line)
		return
	}
	fmt.Fprint(s.app.Err, "\r\033[K"+line)
	s.shown = true
}

// left estimates the rest of what has taken so long for a share of the whole.
func left(elapsed time.Duration, share float64) string {
	if share <= 0 {
		return "…"
	}
	return "about " + time.Duration(float64(elapsed)*(1-share)/share).Round(time.Second).String()
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

// A lines is a line on the terminal that says how far replays in virtual time are, several
// concurrencies at once.
type lines struct {
	status
	mu  sync.Mutex
	at  time.Time // of the last line
	ran map[int]knee.Progress
}

// lineEvery is the least time between two lines on a terminal.
const lineEvery = 200 * time.Millisecond

// newLines is for replays of the given concurrencies; others may be added while they run.
func newLines(a *App, what string, concurrencies []int) *lines {
	l := &lines{status: *newStatus(a, what), ran: map[int]knee.Progress{}}
	for _, c := range concurrencies {
		l.ran[c] = knee.Progress{Concurrency: c}
	}
	return l
}

// note takes how far a concurrency is.
func (l *lines) note(p knee.Progress) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ran[p.Concurrency] = p
	now := time.Now()
	if l.tty && now.Sub(l.at) < lineEvery || !l.tty && now.Sub(later(l.begun, l.said)) < sayEvery {
		return
	}
	l.at = now
	line := l.line(p, now.Sub(l.begun))
	if !l.tty {
		l.said = now
		fmt.Fprintln(l.app.Err, line)
		return
	}
	fmt.Fprint(l.app.Err, "\r\033[K"+line)
	l.shown = true
}

// line says how far p and all are. The work of a replay grows with its concurrency, which the
// estimate of what is left goes by.
func (l *lines) line(p knee.Progress, elapsed time.Duration) string {
	var all int64
	var done, whole float64
	for _, r := range l.ran {
		all += r.Requests
		done += r.Share * float64(r.Concurrency)
		whole += float64(r.Concurrency)
	}
	left := "…"
	if done > 0 {
		left = time.Duration(float64(elapsed) * (whole - done) / done).Round(time.Second).String()
	}
	return fmt.Sprintf("%s: %s, concurrency %d at %.0f %%, %s requests of %d replays, about %s left", l.what,
		elapsed.Round(time.Second), p.Concurrency, 100*p.Share, count(all), len(l.ran), left)
}

func asFailure(err error, f **run.Failure) bool { return errors.As(err, f) }
