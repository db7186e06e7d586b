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
	Hit      *float64      `json:"hit,omitempty"` // of a complete point
	Valid    *bool         `json:"valid,omitempty"`
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
		if e.Point == "-" {
			continue // about the sweep, not about a point
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
		if e.State == Retried {
			p.Retries++
		}
		p.State, p.Since, p.Detail = e.State, e.At, e.Detail
		if e.Job != "" {
			p.Job = e.Job
		}
	}
	for _, p := range out {
		if err := p.look(dir); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// look adds what the point's folders say.
func (p *PointStatus) look(dir string) error {
	raw, err := os.ReadFile(filepath.Join(dir, p.Point, record.ResultFile))
	if err == nil {
		var r result.Result
		if err := json.Unmarshal(raw, &r); err != nil {
			return err
		}
		p.Hit, p.Valid = r.Hits.Total, &r.Valid
		return nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	home := filepath.Join(dir, slurmDir, p.Point)
	token, err := os.ReadFile(filepath.Join(home, "current"))
	if err != nil {
		return nil // not on a cluster, or done
	}
	if pr, ok := readProgress(filepath.Join(home, strings.TrimSpace(string(token)))); ok {
		p.Progress = &pr
		if pr.EndNs > pr.NowNs {
			p.Left = time.Duration(pr.EndNs - pr.NowNs)
		}
	}
	return nil
}
