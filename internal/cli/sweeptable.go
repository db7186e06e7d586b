package cli

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
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
	quiet  bool // JSON goes to the output instead
}

const sweepHeader = "   conc  offload       device    host     hit  ceiling   TTFT p90  E2E intvty p90   tok/s/GPU  result"

func newSweepTable(a *App, jobs []*run.Job) *sweepTable {
	t := &sweepTable{
		app: a, jobs: jobs, rows: make([]string, len(jobs)), share: make([]float64, len(jobs)),
		res: make([]*result.Result, len(jobs)), begun: time.Now(), tty: isTerminal(a.Err), quiet: a.JSON,
	}
	if !t.quiet && len(jobs) > 0 {
		p := jobs[0].Point
		gpus := jobs[0].Verdict.GPU
		_, _, n := p.GPUs()
		what := p.Framework
		if r := jobs[0].Recipe; r == nil || r.Engine == "sim" {
			what = "simulated " + what
		}
		load := fmt.Sprintf("%s of load, %d traces of %s", time.Duration(p.DurationNs), len(jobs[0].Corpus.Traces), jobs[0].Corpus.Name)
		if p.Scenario == "fixed-seq-len" {
			load = fmt.Sprintf("prompts of %d tokens, answers of %d", p.ISL, p.OSL)
		}
		fmt.Fprintf(a.Out, "%s on %d x %s, %s, %s\n\n", jobs[0].Verdict.Model, n, strings.ToUpper(gpus), what, load)
		fmt.Fprintln(a.Out, sweepHeader)
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
		if !t.quiet {
			fmt.Fprintln(t.app.Out, t.rows[t.next])
		}
	}
	t.draw()
}

func (t *sweepTable) row(u run.Update) string {
	j := t.jobs[u.Index]
	head := fmt.Sprintf("%7d  %-10s", j.Point.Conc, offloadName(j))
	if u.Err != nil {
		return head + "  " + string(u.State) + ": " + u.Err.Error()
	}
	r := u.Result
	verdict := "valid"
	if !r.Valid {
		verdict = "invalid: " + r.Reasons[0].Text
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

// offloadName is the short form of a point's offload setting: "none" or its backend.
func offloadName(j *run.Job) string {
	o := j.Point.Offload
	if o.Mode == "none" || o.Mode == "" {
		return "none"
	}
	return o.Mode + "/" + o.Backend.Name
}

// num prints a number with digits decimals, or n/a.
func num(v *float64, digits int) string {
	if v == nil {
		return "n/a"
	}
	return fmt.Sprintf("%.*f", digits, *v)
}

func secs(v *float64) string {
	if v == nil {
		return "n/a"
	}
	return fmt.Sprintf("%.2f s", *v)
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
		if t.rows[t.next] != "" && !t.quiet {
			fmt.Fprintln(t.app.Out, t.rows[t.next])
		}
	}
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

// story says in words what the table shows: how far the cache carries with each offload
// setting, and what that does to throughput. It is computed from the results; a sentence that
// they do not bear is left out.
func (t *sweepTable) story(report string) {
	out := t.app.Out
	fmt.Fprintln(out)
	rs := t.results()
	if lo, hi, ok := ceilingRange(rs); ok {
		fmt.Fprintf(out, "An infinite cache would hit %.3f to %.3f of the prompt tokens at these concurrencies.\n", lo, hi)
	}
	for _, mode := range offloadModes(rs) {
		if s := modeStory(mode, rs); s != "" {
			fmt.Fprintln(out, s)
		}
	}
	if simulated(rs) {
		fmt.Fprintln(out, "These numbers are simulated: no engine ran.")
	}
	fmt.Fprintf(out, "\nreport  %s\nstore   %s\n", report, filepath.Join(filepath.Dir(report), "weir.db"))
}

func simulated(rs []*result.Result) bool {
	for _, r := range rs {
		if r.Simulated {
			return true
		}
	}
	return false
}

func ceilingRange(rs []*result.Result) (lo, hi float64, ok bool) {
	for _, r := range rs {
		if c := r.Hits.Ceiling; c != nil {
			if !ok {
				lo, hi, ok = *c, *c, true
			}
			lo, hi = min(lo, *c), max(hi, *c)
		}
	}
	return lo, hi, ok
}

// offloadModes are the offload settings of results in order of appearance.
func offloadModes(rs []*result.Result) []string {
	var out []string
	for _, r := range rs {
		if m := r.Point.Offload.Mode; !slices.Contains(out, m) {
			out = append(out, m)
		}
	}
	return out
}

// modeStory compares the lowest, the best and the highest concurrency of one offload setting.
func modeStory(mode string, rs []*result.Result) string {
	var first, best, last *result.Result
	for _, r := range rs {
		if r.Point.Offload.Mode != mode || !r.Valid || r.Hits.Total == nil || r.Throughput.EdgePerGPU.Total == nil {
			continue
		}
		if first == nil || r.Point.Conc < first.Point.Conc {
			first = r
		}
		if last == nil || r.Point.Conc > last.Point.Conc {
			last = r
		}
		if best == nil || *r.Throughput.EdgePerGPU.Total > *best.Throughput.EdgePerGPU.Total {
			best = r
		}
	}
	if first == nil || first == last {
		return ""
	}
	what := "Without offload"
	if mode != "none" {
		what = "With " + mode + " offload"
		if p := last.Pools; p.HostTokens != nil && p.HostBytes != nil {
			what += fmt.Sprintf(" (%.2f million host tokens in %.2f TB)", float64(*p.HostTokens)/1e6, float64(*p.HostBytes)/1e12)
		}
	}
	s := fmt.Sprintf("%s the hit rate is %.3f at concurrency %d and %.3f at %d", what,
		*first.Hits.Total, first.Point.Conc, *last.Hits.Total, last.Point.Conc)
	if best == last {
		return s + fmt.Sprintf("; throughput is highest there, %.0f tok/s/GPU.", *last.Throughput.EdgePerGPU.Total)
	}
	return s + fmt.Sprintf("; throughput per GPU falls from %.0f tok/s at %d to %.0f at %d.",
		*best.Throughput.EdgePerGPU.Total, best.Point.Conc, *last.Throughput.EdgePerGPU.Total, last.Point.Conc)
}
