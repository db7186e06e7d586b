package run

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirbench/weir/internal/material"
)

// TestWatch: when the pipe to a watch ends without a word, as it does when this process is killed, the group and what
// left it are ended, also what ignores TERM; with the word nothing is.
func TestWatch(t *testing.T) {
	material.RealTime(t)
	dir := t.TempDir()
	for _, word := range []bool{true, false} {
		mark := newToken()
		cmd := exec.Command("sh", "-c", "trap '' TERM; setsid sh -c 'echo $$ >left; exec sleep 600' & while :; do sleep 1; done")
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), marker+"="+mark)
		ownGroup(cmd)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		group := cmd.Process.Pid
		done := make(chan struct{})
		go func() { cmd.Wait(); close(done) }()
		var left int
		until(t, "the process that leaves the group", func() bool {
			raw, _ := os.ReadFile(filepath.Join(dir, "left"))
			left, _ = strconv.Atoi(strings.TrimSpace(string(raw)))
			return left > 0
		})
		os.Remove(filepath.Join(dir, "left"))
		w := keepWatch(dir, group, mark, time.Second)
		if w == nil {
			t.Fatal("nobody watches")
		}
		if _, ok := noted(filepath.Join(dir, watchFile)); !ok {
			t.Error("the file of the watch names no process")
		}
		if word {
			w.rest()
			if !groupRuns(group) || !runs(left) {
				t.Error("a watch that was told to rest ended something")
			}
			syscall.Kill(-group, syscall.SIGKILL)
			syscall.Kill(left, syscall.SIGKILL)
			<-done
			continue
		}
		w.in.Close()
		<-done
		w.cmd.Wait()
		if groupRuns(group) || runs(left) {
			t.Error("a watch without its word left something")
		}
	}
}

// TestRunningIn lists what runs, with its start, and nothing that has ended.
func TestRunningIn(t *testing.T) {
	dir := t.TempDir()
	home := filepath.Join(dir, WorkDir, "point", "unified-0")
	if err := os.MkdirAll(home, 0o777); err != nil {
		t.Fatal(err)
	}
	before := time.Now()
	cmd := exec.Command("sleep", "600")
	ownGroup(cmd)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := noteProcess(filepath.Join(home, pidFile), cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	got := RunningIn(dir)
	if len(got) != 1 || got[0].Point != "point" || got[0].Name != "unified-0" || got[0].PID != cmd.Process.Pid ||
		got[0].Since.Before(before.Add(-time.Minute)) || got[0].Since.After(time.Now().Add(time.Minute)) {
		t.Errorf("%+v", got)
	}
	if pid := Controller(dir); pid != 0 {
		t.Errorf("process %d runs a sweep that nobody runs", pid)
	}
	unlock, err := lock(filepath.Join(dir, lockFile))
	if err != nil {
		t.Fatal(err)
	}
	if pid := Controller(dir); pid != os.Getpid() {
		t.Errorf("process %d runs the sweep, not this one", pid)
	}
	unlock()
	if pid := Controller(dir); pid != 0 {
		t.Errorf("process %d runs a sweep that has ended", pid)
	}
	cmd.Process.Kill()
	// It has ended and nobody has asked how.
	until(t, "the end", func() bool {
		raw, err := os.ReadFile("/proc/" + strconv.Itoa(cmd.Process.Pid) + "/stat")
		return err == nil && bytes.Contains(raw, []byte(") Z "))
	})
	if got := RunningIn(dir); len(got) != 0 {
		t.Errorf("%+v has ended", got)
	}
	cmd.Wait()
}
