package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/weirbench/weir/internal/result"
	"github.com/weirbench/weir/internal/run"
)

// sweepTable prints a row for every point of a sweep, in the order of the points, and on a
// terminal a status line with the time that is left.
type sweepTable struct {
	app    *App
	jobs   []*run.Job
	rows   []string // finished, empty while not
	next   int      // first row that is not printed
	share  []float64
	res    []*result.Result
	begun  time.Time
	drawn  time.Time
	status bool // a status line is on the screen
	tty    bool
	groups *sweepGroups
	shown  int  // group whose heading was printed last, -1 before the first
	quiet  bool // JSON goes to the output instead
}

// sweepColumns are those behind what a point is.
const sweepColumns = "   device    host     hit  ceiling   TTFT p90  E2E intvty p90   tok/s/GPU  result"

func newSweepTable(a *App, jobs []*run.Job) *sweepTable {
	t := &sweepTable{
		app: a, jobs: jobs, rows: make([]string, len(jobs)), share: make([]float64, len(jobs)),
		res: make([]*result.Result, len(jobs)), begun: time.Now(), tty: isTerminal(a.Err), quiet: a.JSON,
		groups: groupJobs(jobs), shown: -1,
	}
	if !t.quiet && len(jobs) > 0 {
		t.heading(0)
	}
	return t
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

func (t *sweepTable) update(u run.Update) {
	switch u.State {
	case run.Started:
		if u.Progress.EndNs > 0 {
			t.share[u.Index] = min(1, float64(u.Progress.NowNs)/float64(u.Progress.EndNs))
		}
	case run.Stopped:
		return
	default:
		t.share[u.Index] = 1
		t.res[u.Index] = u.Result
		t.rows[u.Index] = t.row(u)
	}
	t.clear()
	for ; t.next < len(t.rows) && t.rows[t.next] != ""; t.next++ {
		t.print(t.next)
	}
	t.draw()
}

func (t *sweepTable) row(u run.Update) string {
	head := t.groups.cells(u.Index)
	if u.Err != nil {
		return head + "  " + string(u.State) + ": " + u.Err.Error()
	}
	r := u.Result
	verdict := "valid"
	if !r.Valid {
		verdict = "invalid: " + r.Reasons[0].Text
	}
	if len(r.ControlOf) > 0 {
		verdict += ", a control that the sweep added"
	}
	if missed := r.Missed(); r.Valid && len(missed) > 0 {
		verdict += ", misses its service level: " + strings.Join(missed, "; ")
	}
	if r.OffSpeed() {
		verdict += ", " + r.Kind()
	}
	if u.State == run.Skipped {
		verdict += " (from before)"
	}
	return fmt.Sprintf("%s  %7s %7s %7s  %7s  %9s  %14s  %10s  %s", head,
		num(r.Hits.Device, 3), num(r.Hits.Host, 3), num(r.Hits.Total, 3), num(r.Hits.Ceiling, 3),
		secs(r.Latency.TTFT.P90), num(r.Intvty.E2ENorm.P90, 2), num(r.Throughput.EdgePerGPU.Total, 0), verdict)
}

// draw shows the status line, at most ten times a second.
func (t *sweepTable) draw() {
	if !t.tty || t.next == len(t.rows) || time.Since(t.drawn) < 100*time.Millisecond && !t.status {
		return
	}
	var done, all float64
	ready := 0
	for i, j := range t.jobs {
		w := float64(j.Point.Conc + 4)
		all += w
		done += w * t.share[i]
		if t.rows[i] != "" {
			ready++
		}
	}
	eta := "…"
	if spent := time.Since(t.begun); done > 0 && spent > time.Second {
		eta = time.Duration(float64(spent) * (all - done) / done).Round(time.Second).String()
	}
	fmt.Fprintf(t.app.Err, "\r\033[K%d of %d points, %.0f %%, %s left", ready, len(t.jobs), 100*done/all, eta)
	t.status, t.drawn = true, time.Now()
}

func (t *sweepTable) clear() {
	if t.status {
		fmt.Fprint(t.app.Err, "\r\033[K")
		t.status = false
	}
}

// done prints rows that later ones had to wait for and removes the status line.
func (t *sweepTable) done() {
	t.clear()
	for ; t.next < len(t.rows); t.next++ {
		if t.rows[t.next] != "" {
			t.print(t.next)
		}
	}
}

// print prints a finished row, below the heading of its group.
func (t *sweepTable) print(i int) {
	if t.quiet {
		return
	}
	t.heading(t.groups.of[i])
	fmt.Fprintln(t.app.Out, t.rows[i])
}

// heading prints what the rows that follow are, where that is another than of those before.
func (t *sweepTable) heading(g int) {
	if g == t.shown {
		return
	}
	if t.shown >= 0 {
		fmt.Fprintln(t.app.Out)
	}
	fmt.Fprintf(t.app.Out, "%s\n\n%s%s\n", t.groups.all[g].heading, t.groups.head(), sweepColumns)
	t.shown = g
}

// results are the results in the order of the points.
func (t *sweepTable) results() []*result.Result {
	out := []*result.Result{}
	for _, r := range t.res {
		if r != nil {
			out = append(out, r)
		}
	}
	return out
}
