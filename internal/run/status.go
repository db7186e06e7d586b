package run

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/weirbench/weir/internal/record"
	"github.com/weirbench/weir/internal/result"
)

// PointStatus is where a point of a sweep stands, from what lies in the sweep's folder: it can be
// asked for from any machine that sees it, while the sweep runs or after it.
type PointStatus struct {
	Point   string    `json:"point"` // name of its folder
	Name    string    `json:"name"`
	State   State     `json:"state"`
	Since   time.Time `json:"since"`
	Job     string    `json:"job,omitempty"` // of a scheduler
	Detail  string    `json:"detail,omitempty"`
	Retries int       `json:"retries,omitempty"`
	// Progress is how far a running point is; Left is the planned time until it ends, 0 where it
	// is not known.
	Progress *Progress     `json:"progress,omitempty"`
	Left     time.Duration `json:"left,omitempty"`
	Hit      *float64      `json:"hit,omitempty"` // share of prompt tokens, of a running point so far
	Valid    *bool         `json:"valid,omitempty"`
	// Simulated says that no real engine answered, of a point that has its result.
	Simulated bool `json:"simulated,omitempty"`
	// Processes are the point's on this machine; those of a shared server are with its first point.
	// LeftOver says that no process runs the sweep any more.
	Processes []Running `json:"processes,omitempty"`
	LeftOver  bool      `json:"left_over,omitempty"`
}

// liveFile holds how far the running points of a sweep are, by name, while a process runs it.
const liveFile = ".progress.json"

// liveEvery is the time between two writes of liveFile.
const liveEvery = time.Second

// live keeps liveFile. It is not safe for concurrent use.
type live struct {
	path    string
	points  map[string]Progress
	written time.Time
}

// set takes a point's progress; nil takes the point out.
func (l *live) set(point string, p *Progress) {
	if _, had := l.points[point]; p == nil && !had {
		return
	}
	if p == nil {
		delete(l.points, point)
	} else {
		l.points[point] = *p
	}
	if p != nil && time.Since(l.written) < liveEvery {
		return
	}
	l.written = time.Now()
	raw, err := json.Marshal(l.points)
	if err != nil {
		return
	}
	if tmp := l.path + ".tmp"; os.WriteFile(tmp, raw, 0o666) == nil { // who looks can do without
		os.Rename(tmp, l.path)
	}
}

// ReadStatus is the state of every point of a sweep in the order in which the journal names
// them first.
func ReadStatus(dir string) ([]*PointStatus, error) {
	entries, err := ReadJournal(filepath.Join(dir, JournalFile))
	if err != nil {
		return nil, err
	}
	var out []*PointStatus
	by := map[string]*PointStatus{}
	for _, e := range entries {
		if !e.about() {
			continue
		}
		p := by[e.Point]
		if p == nil {
			p = &PointStatus{Point: e.Point, Name: e.Name}
			by[e.Point] = p
			out = append(out, p)
		}
		if e.State == Planned && p.State != "" {
			continue
		}
		if e.State == Skipped { // a later run of the same command found it whole
			if p.State == Complete {
				continue
			}
			e.State = Complete
		}
		if e.State == Retried {
			p.Retries++
		}
		p.State, p.Since, p.Detail = e.State, e.At, e.Detail
		if e.Job != "" {
			p.Job = e.Job
		}
	}
	now := running(dir)
	controlled := Controller(dir) != 0
	for _, r := range RunningIn(dir) {
		if p := by[r.Point]; p != nil {
			p.Processes = append(p.Processes, r)
			p.LeftOver = !controlled
		}
	}
	for _, p := range out {
		if err := p.look(dir, now); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// running is the progress of points by name, from the process that runs the sweep and from
// allocations, which go on without it.
func running(dir string) map[string]Progress {
	out := map[string]Progress{}
	if raw, err := os.ReadFile(filepath.Join(dir, liveFile)); err == nil {
		json.Unmarshal(raw, &out)
	}
	homes, _ := filepath.Glob(filepath.Join(dir, slurmDir, "*", "current"))
	for _, f := range homes {
		token, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		files, _ := filepath.Glob(filepath.Join(filepath.Dir(f), strings.TrimSpace(string(token)), "*"+progressSuffix))
		for _, file := range files {
			if p, ok := readProgress(file); ok {
				out[strings.TrimSuffix(filepath.Base(file), progressSuffix)] = p
			}
		}
	}
	return out
}

// look adds what the point's folders say.
func (p *PointStatus) look(dir string, now map[string]Progress) error {
	raw, err := os.ReadFile(filepath.Join(dir, p.Point, record.ResultFile))
	switch {
	case err == nil:
		var r result.Result
		if err := json.Unmarshal(raw, &r); err != nil {
			return err
		}
		p.Hit, p.Valid, p.Simulated = r.Hits.Total, &r.Valid, r.Simulated
		if p.State == Complete && p.Detail == "" { // its end was never written down
			switch {
			case r.Valid:
				p.Detail = "valid"
			case len(r.Reasons) > 0:
				p.Detail = "invalid: " + r.Reasons[0].Text
			default:
				p.Detail = "invalid"
			}
		}
		return nil
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if pr, ok := now[p.Point]; ok && !p.State.Settled() {
		p.Progress, p.Hit = &pr, pr.Hit()
		if pr.EndNs > pr.NowNs {
			p.Left = time.Duration(pr.EndNs - pr.NowNs)
		}
	}
	return nil
}
