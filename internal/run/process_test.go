package run

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirbench/weir/internal/engine"
	"github.com/weirbench/weir/internal/material"
)

func shell(name, script string) engine.Process {
	return engine.Process{Name: name, Role: "unified", Argv: []string{"sh", "-c", script}}
}

// TestStopGroup stops a process that ignores TERM and has children of its own.
func TestStopGroup(t *testing.T) {
	material.RealTime(t)
	dir := t.TempDir()
	g := newGroup(dir, dir, nil)
	if err := g.start(shell("stubborn", "trap '' TERM; sleep 600 & echo $! >pid; echo up; wait; sleep 600")); err != nil {
		t.Fatal(err)
	}
	pidFile := filepath.Join(dir, "stubborn", "pid")
	for range 6000 {
		if raw, err := os.ReadFile(pidFile); err == nil && len(raw) > 0 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	pid := g.procs[0].cmd.Process.Pid
	if !groupAlive(pid) {
		t.Fatal("the group is not there")
	}
	if err := g.stop(200 * time.Millisecond); err != nil {
		t.Error(err)
	}
	if groupAlive(pid) {
		syscall.Kill(-pid, syscall.SIGKILL)
		t.Error("a process of the group is left")
	}
	select {
	case <-g.died:
		t.Error("a process that was stopped counts as one that died")
	default:
	}
}

// TestDeathClass tells the classes of failures by exit and last words.
func TestDeathClass(t *testing.T) {
	for _, c := range []struct{ name, script, phase, class, says string }{
		{"flag", "echo 'usage: x'; echo 'x: error: unrecognized arguments: --y' >&2; exit 2", "start", "config", "unrecognized arguments: --y"},
		{"oom", "echo 'torch.OutOfMemoryError: CUDA out of memory'; exit 1", "start", "capacity", "CUDA out of memory"},
		{"vllm pool", "echo 'ValueError: To serve at least one request with the max seq len (131072), 2.0 GiB KV cache is needed, which is larger than the available KV cache memory (1.0 GiB).'; exit 1", "start", "capacity", "larger than"},
		{"killed", "kill -9 $$", "start", "capacity", "signal: killed"},
		{"killed later", "kill -9 $$", "crash", "crash", "signal: killed"},
		{"plain", "echo hello; exit 3", "start", "start", "exit status 3; its last lines: hello"},
		{"early end", "exit 0", "crash", "crash", "it said nothing"},
		{"behind a step", "echo 'weir: unknown flag: --z'; echo 'srun: error: n1: task 0: Exited with exit code 2'; exit 2", "start", "config", "unknown flag: --z"},
	} {
		dir := t.TempDir()
		g := newGroup(dir, dir, nil)
		if err := g.start(shell("p", c.script)); err != nil {
			t.Fatal(err)
		}
		select {
		case <-g.died:
		case <-time.After(time.Minute):
			t.Fatalf("%s: nobody saw it die", c.name)
		}
		x, how := g.dead()
		if class := deathClass(x, c.phase); class != c.class || !strings.Contains(how, c.says) {
			t.Errorf("%s: %s, %q; want %s, %q", c.name, class, how, c.class, c.says)
		}
		if err := g.stop(time.Second); err != nil {
			t.Error(err)
		}
	}
}

// TestParseQueue reads squeue's lines: comments that are not ours, heterogeneous jobs.
func TestParseQueue(t *testing.T) {
	q := parseQueue("7|RUNNING|None|n1|weir:ab:cd\n8|PENDING|Resources||(null)\n9+0|RUNNING|None|n2|weir:ab:ef\n9+1|RUNNING|None|n[3-4]|weir:ab:ef\n\nodd line\n")
	if len(q) != 2 || q["weir:ab:cd"] != (queued{"7", "RUNNING", "None", "n1"}) || q["weir:ab:ef"] != (queued{"9", "RUNNING", "None", "n2"}) {
		t.Errorf("queue: %v", q)
	}
}
