package gpu

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/weirbench/weir/internal/record"
)

// A Line is one reading as 'weir gpu --json' prints it, a line each.
type Line struct {
	TookNs int64              `json:"took_ns"`
	Values map[string]float64 `json:"values,omitempty"` // by series
	Error  string             `json:"error,omitempty"`
}

// silence is how long a follower may say nothing beyond its interval before it is run anew.
const silence = 30 * time.Second

// A Follower takes the readings of a command that keeps running and prints a Line for each, such as
// 'weir gpu --json' on another node. It is started again when it ends or says nothing.
type Follower struct {
	argv    []string
	o       Options
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup
	r       Reader // what was written
}

// NewFollower makes a Follower of a command; of the options Source, Every, Now and Write hold.
func NewFollower(argv []string, o Options) *Follower {
	if o.Every <= 0 {
		o.Every = DefaultEvery
	}
	f := &Follower{argv: argv, o: o, r: Reader{o: o, report: Report{Source: o.Source}}}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	return f
}

// Start starts the command.
func (f *Follower) Start() {
	f.running.Go(func() {
		for pause := time.Second; ; pause = min(2*pause, maxEvery) {
			began := time.Now()
			err := f.follow()
			if f.ctx.Err() != nil {
				return
			}
			f.take(Line{Error: err.Error()})
			if time.Since(began) > time.Minute {
				pause = time.Second
			}
			t := time.NewTimer(pause)
			select {
			case <-f.ctx.Done():
				t.Stop()
				return
			case <-t.C:
			}
		}
	})
}

// Stop ends the command and says how it went. The error is one of Write.
func (f *Follower) Stop(context.Context) (Report, error) {
	f.cancel()
	f.running.Wait()
	return f.r.report, f.r.err
}

// follow runs the command once and returns why it ended.
func (f *Follower) follow() error {
	ctx, cancel := context.WithCancel(f.ctx)
	defer cancel()
	cmd := exec.CommandContext(ctx, f.argv[0], f.argv[1:]...)
	var complaint limited
	cmd.Stderr = &complaint
	cmd.WaitDelay = time.Second
	alone(cmd)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	quiet := silence + 2*f.o.Every
	t := time.AfterFunc(quiet, cancel)
	defer t.Stop()
	lines := bufio.NewScanner(out)
	lines.Buffer(make([]byte, 64<<10), outputLimit)
	for lines.Scan() {
		t.Reset(quiet)
		var l Line
		if json.Unmarshal(lines.Bytes(), &l) != nil || l.Values == nil && l.Error == "" {
			l = Line{Error: "not a reading: " + firstLine(lines.Bytes())}
		}
		f.take(l)
	}
	silent := ctx.Err() != nil && f.ctx.Err() == nil
	cancel()
	io.Copy(io.Discard, out)
	err = cmd.Wait()
	switch {
	case silent:
		return fmt.Errorf("%s said nothing for %s", f.argv[0], quiet)
	case err == nil:
		err = errors.New("it ended")
	}
	if text := strings.TrimSpace(complaint.b.String()); text != "" {
		return fmt.Errorf("%s: %w: %s", f.argv[0], err, firstLine([]byte(text)))
	}
	return fmt.Errorf("%s: %w", f.argv[0], err)
}

// take writes one reading.
func (f *Follower) take(l Line) {
	s := &record.Sample{At: f.o.Now(), Source: f.o.Source, LagNs: l.TookNs}
	r := &f.r
	r.report.Readings++
	r.report.MaxNs = max(r.report.MaxNs, l.TookNs)
	if l.Error != "" {
		r.report.Failed++
		r.report.Error, s.Error = l.Error, l.Error
	} else {
		r.difference(s, l.Values)
	}
	if r.err == nil && f.o.Write != nil {
		r.err = f.o.Write(s)
	}
}
