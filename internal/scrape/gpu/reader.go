package gpu

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/weirbench/weir/internal/record"
)

// Defaults of Options.
const (
	DefaultEvery    = time.Second
	DefaultDeadline = 5 * time.Second
)

const (
	outputLimit = 4 << 20 // bytes of one answer that are read
	maxEvery    = 30 * time.Second
	// busyShare is how much rest a command gets for its running time: one that takes 0.5 s is run
	// every 2 s at most, so that reading takes no more than a quarter of a core.
	busyShare = 4
)

// Tools are the commands that are known.
var Tools = []string{"nvidia-smi", "amd-smi"}

// Find names the commands for a choice: "auto" takes those that are on PATH, "none" none, and a
// tool's name or path that one.
func Find(choice string) ([]string, error) {
	switch choice {
	case "none":
		return nil, nil
	case "auto", "":
		var out []string
		for _, t := range Tools {
			if p, err := exec.LookPath(t); err == nil {
				out = append(out, p)
			}
		}
		return out, nil
	}
	if err := Check(choice); err != nil {
		return nil, err
	}
	p, err := exec.LookPath(choice)
	if err != nil {
		return nil, fmt.Errorf("%s is not here: %w", choice, err)
	}
	return []string{p}, nil
}

// Check says whether a choice is one, wherever it will be looked for.
func Check(choice string) error {
	if choice != "auto" && choice != "none" && kind(choice) == "" {
		return fmt.Errorf("%q reads no GPUs: it is auto, none, nvidia-smi, amd-smi or the path of one of them", choice)
	}
	return nil
}

// kind is which tool a path names, empty for none.
func kind(path string) string {
	base := filepath.Base(path)
	for _, t := range Tools {
		if base == t {
			return t
		}
	}
	return ""
}

// Options configure a Reader.
type Options struct {
	// Tool is the path of nvidia-smi or amd-smi. It is run once for every reading and not kept
	// running: each run lists the devices anew, one that hangs is ended without what it had said
	// so far, and no buffer of a pipe holds readings back.
	Tool     string
	Devices  []string      // numbers of the devices that are read; none reads all
	Every    time.Duration // 0 is DefaultEvery; a slow tool is run less often
	Deadline time.Duration // of one run; 0 is DefaultDeadline
	Source   string        // name of the samples; empty is "gpu:TOOL"
	// Now is the time since the run's epoch in nanoseconds.
	Now func() int64
	// Write takes every sample, one at a time.
	Write func(*record.Sample) error
}

// A Reader reads devices until it is stopped, each reading in a process of its own beside the load.
type Reader struct {
	o    Options
	tool interface {
		args(devices []string) []string
		read(out []byte) ([]Device, error)
		learn(out []byte) bool
	}
	cancel  context.CancelFunc
	ctx     context.Context
	running sync.WaitGroup
	stuck   chan struct{} // closed when a run that outlived its deadline has ended; nil without one
	last    map[string]float64
	whole   bool
	bad     int // failures in a row
	err     error
	report  Report
	mu      sync.Mutex // guards report
}

// Report is how a Reader did.
type Report struct {
	Source   string `json:"source"`
	Readings int64  `json:"readings"`
	Failed   int64  `json:"failed"`
	MaxNs    int64  `json:"max_ns"` // longest reading
	Error    string `json:"error,omitempty"`
}

// NewReader makes a Reader that has not read anything yet.
func NewReader(o Options) (*Reader, error) {
	if o.Every <= 0 {
		o.Every = DefaultEvery
	}
	if o.Deadline <= 0 {
		o.Deadline = DefaultDeadline
	}
	k := kind(o.Tool)
	if o.Source == "" {
		o.Source = "gpu:" + k
	}
	r := &Reader{o: o, report: Report{Source: o.Source}}
	switch k {
	case "nvidia-smi":
		r.tool = newNvidia()
	case "amd-smi":
		r.tool = &amd{}
	default:
		return nil, fmt.Errorf("%q is no command that reads GPUs", o.Tool)
	}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	return r, nil
}

// Start takes the first reading and goes on at the interval, all of it in the background.
func (r *Reader) Start() {
	r.running.Go(func() {
		if a, ok := r.tool.(*amd); ok {
			if out, err := r.run(r.ctx, []string{"list", "--json"}); err == nil {
				a.names(out)
			}
		}
		for {
			began := time.Now()
			r.once(r.ctx)
			every := max(r.o.Every, busyShare*time.Since(began))
			if r.bad > 3 {
				every = max(every, min(maxEvery, r.o.Every<<min(r.bad-3, 8)))
			}
			t := time.NewTimer(time.Until(began.Add(every)))
			select {
			case <-r.ctx.Done():
				t.Stop()
				return
			case <-t.C:
			}
		}
	})
}

// Stop ends the reading, takes a last one, and says how it went. The error is one of Write.
func (r *Reader) Stop(ctx context.Context) (Report, error) {
	r.cancel()
	r.running.Wait()
	r.once(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.report, r.err
}

// Read takes one reading and returns it.
func (r *Reader) Read(ctx context.Context) ([]Device, error) {
	for {
		out, err := r.run(ctx, r.tool.args(r.o.Devices))
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		var timeout *slowError
		if errors.As(err, &timeout) {
			return nil, err
		}
		// A tool that lost one of its devices says so, exits with a failure and has printed the others.
		devices, readErr := r.tool.read(out)
		if readErr == nil {
			return devices, nil
		}
		if r.tool.learn(out) {
			continue
		}
		return nil, errors.Join(err, readErr)
	}
}

// once takes a reading and writes its sample.
func (r *Reader) once(ctx context.Context) {
	asked := r.o.Now()
	devices, err := r.Read(ctx)
	if err != nil && ctx.Err() != nil {
		return // stopped, not failed
	}
	at := r.o.Now()
	s := &record.Sample{At: at, Source: r.o.Source, LagNs: at - asked}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.report.Readings++
	r.report.MaxNs = max(r.report.MaxNs, s.LagNs)
	if err != nil {
		r.bad++
		r.report.Failed++
		r.report.Error = strings.ReplaceAll(err.Error(), "\n", "; ")
		s.Error = r.report.Error
	} else {
		r.bad = 0
		r.difference(s, Values(devices))
	}
	if r.err == nil && r.o.Write != nil {
		r.err = r.o.Write(s)
	}
}

// difference makes a sample of what is other than in the reading before.
func (r *Reader) difference(s *record.Sample, now map[string]float64) {
	s.Values, s.Delta = map[string]float64{}, r.whole
	for k, v := range now {
		if old, ok := r.last[k]; !ok || old != v || !r.whole {
			s.Values[k] = v
		}
	}
	for k := range r.last {
		if _, ok := now[k]; !ok {
			s.Gone = append(s.Gone, k)
		}
	}
	r.last, r.whole = now, true
}

type slowError struct{ text string }

func (e *slowError) Error() string { return e.text }

// run runs the tool once. A run that cannot even be killed, because its driver hangs, is left
// behind, and nothing more is run before it is gone.
func (r *Reader) run(ctx context.Context, args []string) ([]byte, error) {
	if r.stuck != nil {
		select {
		case <-r.stuck:
			r.stuck = nil
		default:
			return nil, &slowError{fmt.Sprintf("%s of before still hangs and cannot be ended", filepath.Base(r.o.Tool))}
		}
	}
	one, cancel := context.WithTimeout(ctx, r.o.Deadline)
	defer cancel()
	cmd := exec.CommandContext(one, r.o.Tool, args...)
	var out limited
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = time.Second
	alone(cmd)
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	ended := make(chan struct{})
	var err error
	go func() {
		err = cmd.Wait()
		close(ended)
	}()
	t := time.NewTimer(r.o.Deadline + 2*time.Second)
	defer t.Stop()
	select {
	case <-ended:
	case <-t.C:
		r.stuck = ended
		return nil, &slowError{fmt.Sprintf("%s hangs and cannot be ended", filepath.Base(r.o.Tool))}
	}
	if one.Err() != nil && ctx.Err() == nil {
		return nil, &slowError{fmt.Sprintf("no whole answer of %s within %s", filepath.Base(r.o.Tool), r.o.Deadline)}
	}
	return out.b.Bytes(), err
}

// limited keeps the head of what is written.
type limited struct{ b bytes.Buffer }

func (l *limited) Write(p []byte) (int, error) {
	if room := outputLimit - l.b.Len(); room > 0 {
		l.b.Write(p[:min(len(p), room)])
	}
	return len(p), nil
}
