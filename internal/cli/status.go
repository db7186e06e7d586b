package cli

import (
	"errors"
	"fmt"
	"sync"
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

// A lines is a line on the terminal that says how far replays in virtual time are, several
// concurrencies at once.
type lines struct {
	status
	mu  sync.Mutex
	at  time.Time // of the last line
	ran map[int]int64
}

// lineEvery is the least time between two lines.
const lineEvery = 200 * time.Millisecond

func newLines(a *App, what string) *lines {
	return &lines{status: *newStatus(a, what), ran: map[int]int64{}}
}

// requests notes how many requests a concurrency has sent.
func (l *lines) requests(concurrency int, n int64) {
	if !l.tty {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ran[concurrency] = n
	if now := time.Now(); now.Sub(l.at) < lineEvery {
		return
	} else {
		l.at = now
	}
	var all int64
	for _, n := range l.ran {
		all += n
	}
	fmt.Fprintf(l.app.Err, "\r\033[K%s: %s: concurrency %d has sent %s requests, %s of all %d replays", l.what,
		time.Since(l.begun).Round(time.Second), concurrency, thousands(n), thousands(all), len(l.ran))
	l.shown = true
}

func asFailure(err error, f **run.Failure) bool { return errors.As(err, f) }
