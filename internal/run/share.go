package run

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/weirbench/weir/internal/engine"
	"github.com/weirbench/weir/internal/record"
)

// Unclean says what becomes of a point when its server, which others used before, cannot be
// shown to have empty caches.
type Unclean string

const (
	UncleanInvalid Unclean = "invalid" // it is measured, and its result is not valid
	UncleanRestart Unclean = "restart" // the server is started again for it
)

// A Shared measures jobs one after the other on one server, which stays up between them. Before
// every job the caches are emptied and that is shown (life.empty); prompts carry a salt of their
// own for every job. A job that fails takes its server with it, and the next begins a new one.
// It is not safe for concurrent use. Close stops what is up.
type Shared struct {
	*Launch
	Unclean Unclean

	server *life
	key    string
	points int              // that began on the server
	boot   map[string]int64 // length of every log when the server served
}

// Share makes a Shared of a Launch.
func (l *Launch) Share(u Unclean) *Shared { return &Shared{Launch: l, Unclean: u} }

// ServerKey is equal for jobs that one server can measure: those of one search-space entry
// whose recipe makes the same processes of them.
func ServerKey(j *Job) (string, error) {
	if j.Recipe == nil {
		return "", fmt.Errorf("%s starts no server", j.Point.Key)
	}
	q, err := j.Recipe.Planned(j.Point)
	if err != nil {
		return "", err
	}
	d, err := engine.Build(q, j.Verdict, j.Recipe, engine.Place{})
	if err != nil {
		return "", err
	}
	for i := range d.Processes {
		if p := &d.Processes[i]; len(p.Argv) == 0 {
			p.Files = nil // of a server that is up already nothing is started with them
		}
	}
	raw, err := json.Marshal(struct {
		Deployment        *engine.Deployment
		Key, Runner, File string
		Line              int
	}{d, j.Point.Key, j.Point.Runner, j.Point.Origin.File, j.Point.Origin.Line})
	if err != nil {
		return "", err
	}
	h := sha256.Sum256(raw)
	return hex.EncodeToString(h[:8]), nil
}

// Measure implements Executor.
func (s *Shared) Measure(ctx context.Context, j *Job, w *record.BundleWriter) (err error) {
	key, err := ServerKey(j)
	if err != nil {
		return failf("config", "%v", err)
	}
	restarted := ""
	if s.server != nil {
		select {
		case <-s.server.g.died:
			_, restarted = s.server.g.dead()
		default:
			if key != s.key {
				restarted = "the point needs another server"
			}
		}
	}
	for {
		if restarted != "" {
			s.say("the server is started again: %s", restarted)
			if err := s.Close(); err != nil {
				return err
			}
		}
		p, err := s.begin(ctx, j, w, key)
		var f *Failure
		switch {
		case err == nil:
		case p != nil && s.points > 0 && ctx.Err() == nil && errors.As(err, &f) && f.Class == "start":
			p.start.Why = cmp.Or(p.start.Why, f.Reason) // it serves and was not emptied
		default:
			return s.end(ctx, p, w, err)
		}
		p.start.PointsBefore, p.start.Restarted = s.points, restarted
		if s.points > 0 && (p.start.Clean == nil || !*p.start.Clean) {
			if s.Unclean == UncleanRestart {
				restarted = "its caches could not be shown to be empty: " + p.start.Why
				continue
			}
			no := false
			p.start.Clean = &no
		}
		s.points++
		return s.end(ctx, p, w, p.drive(ctx, j, w))
	}
}

// begin gives a job its server, a new one where none is up, with caches emptied. The life has
// a start in any case; it is nil when there is no server.
func (s *Shared) begin(ctx context.Context, j *Job, w *record.BundleWriter, key string) (*life, error) {
	fresh := s.server == nil
	if fresh {
		logs := filepath.Join(s.Scratch, filepath.Base(BundleDir("", j)), "logs")
		p, err := s.life(j, logs)
		if err != nil {
			return nil, err
		}
		s.server, s.key, s.points, s.boot = p, key, 0, nil
		if err := os.MkdirAll(logs, 0o777); err != nil {
			return nil, failf("node", "%v", err)
		}
	}
	p := *s.server
	p.recipe, p.salt = j.Recipe, filepath.Base(BundleDir("", j))
	p.start = &record.CacheStart{HeldTokens: record.Unknown}
	p.from = s.logSizes()
	err := p.describe(j, w)
	if err == nil && fresh {
		err = p.up(ctx, j)
		s.server.told = p.told
		s.boot = s.logSizes()
	}
	if err == nil {
		err = p.empty(ctx)
	}
	if p.start.Clean == nil && p.start.Why == "" {
		p.start.Why = "nothing of the server can be flushed"
	}
	return &p, err
}

// end keeps the logs of a point and stops the server when the point failed.
func (s *Shared) end(ctx context.Context, p *life, w *record.BundleWriter, err error) error {
	if p != nil {
		if logErr := s.keepLogs(p.from, filepath.Join(w.Dir(), record.LogsDir)); err == nil {
			err = logErr
		}
	}
	if err = cmp.Or(ctx.Err(), err); err != nil {
		s.Close()
	}
	return err
}

// Close stops the server that is up, if any. A Failure says what is left of it.
func (s *Shared) Close() error {
	p := s.server
	s.server = nil
	if p == nil {
		return nil
	}
	return p.down()
}

// logSizes are the lengths of the server's logs now.
func (s *Shared) logSizes() map[string]int64 {
	out := map[string]int64{}
	files, _ := os.ReadDir(s.server.g.logs)
	for _, f := range files {
		if info, err := f.Info(); err == nil {
			out[f.Name()] = info.Size()
		}
	}
	return out
}

// keepLogs copies what every process said while it started and since the point began.
func (s *Shared) keepLogs(from map[string]int64, to string) error {
	for name, size := range s.logSizes() {
		if err := copyParts(filepath.Join(to, name), filepath.Join(s.server.g.logs, name), min(s.boot[name], from[name]), from[name], size); err != nil {
			return err
		}
	}
	return nil
}

// copyParts writes the first head bytes of a file and those from one offset to another.
func copyParts(to, file string, head, from, end int64) error {
	in, err := os.Open(file)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, io.NewSectionReader(in, 0, head))
	if err == nil {
		_, err = io.Copy(out, io.NewSectionReader(in, from, end-from))
	}
	return errors.Join(err, out.Close())
}
