package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirbench/weir/internal/spec"
)

// TestQuarantineIsRemembered: another process of the same sweep keeps nodes out that an earlier
// one found to fail, until somebody releases them.
func TestQuarantineIsRemembered(t *testing.T) {
	dir := t.TempDir()
	write := func(es ...Entry) {
		j, err := OpenJournal(filepath.Join(dir, JournalFile))
		if err != nil {
			t.Fatal(err)
		}
		defer j.Close()
		if err := j.Append(es...); err != nil {
			t.Fatal(err)
		}
	}
	write(Entry{Point: "a", State: Started}, Entry{Point: "a", State: Quarantined, Nodes: []string{"n2", "n7"}, Detail: "NODE_FAIL"}, Entry{Point: "a", State: Retried})
	if got := (&Slurm{Dir: dir}).quarantined(); !slices.Equal(got, []string{"n2", "n7"}) {
		t.Errorf("quarantine %v", got)
	}
	write(Entry{Point: "-", State: Released, Nodes: []string{"n7"}})
	s := &Slurm{Dir: dir}
	without, err := s.excluded(t.Context(), &spec.Slurm{Exclude: []spec.Exclusion{
		{Nodes: []string{"n1"}, Framework: "vllm"}, {Nodes: []string{"n3"}, Framework: "sglang", Model: "glm5.2"}, {Nodes: []string{"n4"}, Model: "dsv4"},
	}}, &spec.Point{Framework: "sglang", ModelPrefix: "glm5.2"})
	if err != nil || !slices.Equal(without, []string{"n2", "n3"}) {
		t.Errorf("excluded %v, %v", without, err)
	}
	ps, err := ReadStatus(dir)
	if err != nil || len(ps) != 1 || ps[0].State != Retried {
		t.Errorf("the state of points: %+v, %v", ps, err)
	}
}

// TestNodesByEngineAndModel lays the rules of a fleet over each other.
func TestNodesByEngineAndModel(t *testing.T) {
	s := &spec.Slurm{Nodes: []string{"n1", "n2", "n3"}, Only: []spec.Exclusion{
		{Nodes: []string{"n2", "n3", "n9"}, Framework: "sglang"}, {Nodes: []string{"n3"}, Framework: "sglang", Model: "dsv4"}}}
	for _, c := range []struct {
		framework, model string
		want             string
	}{{"vllm", "dsv4", "n1 n2 n3"}, {"sglang", "glm5.2", "n2 n3"}, {"sglang", "dsv4", "n3"}} {
		if _, only := s.NodesFor(&spec.Point{Framework: c.framework, ModelPrefix: c.model}); strings.Join(only, " ") != c.want {
			t.Errorf("%v: %v", c, only)
		}
	}
	if _, only := (&spec.Slurm{}).NodesFor(&spec.Point{}); only != nil {
		t.Errorf("no rule leaves %v", only)
	}
}

// TestBudget: what is not begun is said, and counts on a second run.
func TestBudget(t *testing.T) {
	dir := t.TempDir()
	jobs := quickstart(t, 1, 2)
	hours := 2.5 * cost(jobs[0])
	sum, err := (&Sweep{Dir: dir, Jobs: jobs, Executor: Virtual{}, GPUHours: hours}).Run(t.Context())
	if err != nil || sum.Complete != 2 || sum.NotBegun != 2 {
		t.Fatalf("%+v, %v", sum, err)
	}
	sum, err = (&Sweep{Dir: dir, Jobs: quickstart(t, 1, 2), Executor: Virtual{}, GPUHours: hours}).Run(t.Context())
	if err != nil || sum.Skipped != 2 || sum.NotBegun != 2 || sum.Complete != 0 {
		t.Errorf("again: %+v, %v", sum, err)
	}
	ps, err := ReadStatus(dir)
	if err != nil || ps[3].State != NotBegun || !strings.Contains(ps[3].Detail, "the budget") {
		t.Errorf("%+v, %v", ps[3], err)
	}
}

// TestStatusOfSkipped: a point that a later run found whole is complete, whether or not the journal
// says when it ended.
func TestStatusOfSkipped(t *testing.T) {
	dir := t.TempDir()
	again := func() []*PointStatus {
		jobs := quickstart(t, 1)
		if sum, err := (&Sweep{Dir: dir, Jobs: jobs, Executor: Virtual{}}).Run(t.Context()); err != nil || sum.Complete+sum.Skipped != len(jobs) {
			t.Fatalf("%+v, %v", sum, err)
		}
		ps, err := ReadStatus(dir)
		if err != nil || len(ps) != len(jobs) {
			t.Fatalf("%v, %v", ps, err)
		}
		return ps
	}
	first := again()
	for _, journal := range []bool{true, false} {
		if !journal {
			if err := os.Remove(filepath.Join(dir, JournalFile)); err != nil {
				t.Fatal(err)
			}
		}
		for i, p := range again() {
			if p.State != Complete || !p.Simulated || p.Hit == nil || p.Valid == nil || p.Detail == "" {
				t.Errorf("journal %v: %+v", journal, p)
			}
			if journal && !p.Since.Equal(first[i].Since) {
				t.Errorf("complete since %v, then since %v", first[i].Since, p.Since)
			}
		}
	}
}

// TestReap ends the group that a dead controller left, and nothing that merely has its number.
func TestReap(t *testing.T) {
	if world() == "" {
		t.Fatal("this system does not say which processes are which")
	}
	scratch := t.TempDir()
	start := func() *exec.Cmd {
		cmd := exec.Command("sh", "-c", "sleep 600 & sleep 600 & wait")
		ownGroup(cmd)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); cmd.Wait() })
		go cmd.Wait()
		return cmd
	}
	for name, c := range map[string]struct {
		text func(pid int) string
		dies bool
	}{
		"ours":          {func(pid int) string { return fmt.Sprintf("%d %s %s\n", pid, began(pid), world()) }, true},
		"another birth": {func(pid int) string { return fmt.Sprintf("%d 1 %s\n", pid, world()) }, false},
		"another boot":  {func(pid int) string { return fmt.Sprintf("%d %s elsewhere\n", pid, began(pid)) }, false},
		"garbage":       {func(pid int) string { return "-1" }, false},
	} {
		cmd := start()
		dir := filepath.Join(scratch, "point", "unified-0")
		os.MkdirAll(dir, 0o777)
		if err := os.WriteFile(filepath.Join(dir, pidFile), []byte(c.text(cmd.Process.Pid)), 0o666); err != nil {
			t.Fatal(err)
		}
		if err := Reap(scratch); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if alive := groupAlive(cmd.Process.Pid); alive == c.dies {
			t.Errorf("%s: alive %v", name, alive)
		}
		if left, _ := os.ReadDir(scratch); len(left) != 0 {
			t.Errorf("%s: files are left", name)
		}
	}
}

// TestCancelReachesTheController: a sweep that runs elsewhere stops when it is asked through its
// folder, and what was whole stays.
func TestCancelReachesTheController(t *testing.T) {
	dir := t.TempDir()
	jobs := quickstart(t, 1)
	for _, j := range jobs {
		j.Replay.DurationNs = int64(1_000_000 * time.Hour) // longer than anybody waits
	}
	begun := make(chan bool, 10)
	done := make(chan error, 1)
	go func() {
		_, err := (&Sweep{Dir: dir, Jobs: jobs, Executor: Virtual{}, Report: func(u Update) {
			if u.State == Started && u.Progress == (Progress{}) {
				begun <- true
			}
		}}).Run(t.Context())
		done <- err
	}()
	<-begun
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	c, err := Cancel(ctx, dir, 10*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if err := <-done; !errors.Is(err, ErrCancelled) {
		t.Errorf("the sweep ended with %v", err)
	}
	if len(c.Kept) != 0 || c.Allocations != 0 {
		t.Errorf("%+v", c)
	}
	ps, err := ReadStatus(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range ps {
		if p.State != Stopped {
			raw, _ := json.Marshal(p)
			t.Errorf("%s", raw)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*"+partialSuffix)); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// TestStaleProgress: what a killed process wrote of its points is not shown of the next one's.
func TestStaleProgress(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, liveFile)
	if err := os.WriteFile(file, []byte(`{"x":{"Phase":"profiling"}}`), 0o666); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // before it says anything of its own
	(&Sweep{Dir: dir, Jobs: quickstart(t, 1), Executor: Virtual{}}).Run(ctx)
	if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it is still there: %v", err)
	}
}
