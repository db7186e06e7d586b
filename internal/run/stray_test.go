package run

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestStrays stops a process whose children left its process group, one of which has no parent
// left, and frees the shared memory that they leave; what was there before stays.
func TestStrays(t *testing.T) {
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Fatal("tests need /proc")
	}
	defer func(d string) { shmDir = d }(shmDir)
	shmDir = t.TempDir()
	for _, name := range []string{"psm_before", "mine"} {
		if err := os.WriteFile(filepath.Join(shmDir, name), []byte("x"), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	g := newGroup(dir, dir, nil)
	// The second one is an orphan at once, as its parent ends.
	script := "setsid sh -c 'trap \"\" TERM; echo $$ >one; while :; do sleep 1; done' & " +
		"setsid sh -c 'sh -c \"trap \\\"\\\" TERM; echo \\$\\$ >two; while :; do sleep 1; done\" &' & " +
		"cd " + shmDir + " && exec 3>psm_fresh 4>made 5>other; echo 12345678 >&3; ln made sem.mp-linked; rm made; echo x >psm_closed; wait"
	if err := g.start(shell("engine", script)); err != nil {
		t.Fatal(err)
	}
	var pids []int
	for _, name := range []string{"one", "two"} {
		until(t, name, func() bool {
			raw, _ := os.ReadFile(filepath.Join(dir, "engine", name))
			pid, err := strconv.Atoi(strings.TrimSpace(string(raw)))
			if err == nil {
				pids = append(pids, pid)
			}
			return err == nil
		})
	}
	// A file that somebody else made meanwhile, and uses under the name that it had before.
	foreign, err := os.Create(filepath.Join(shmDir, "temporary"))
	if err != nil {
		t.Fatal(err)
	}
	defer foreign.Close()
	if err := os.Rename(filepath.Join(shmDir, "temporary"), filepath.Join(shmDir, "sem.mp-foreign")); err != nil {
		t.Fatal(err)
	}
	until(t, "the file without a user", func() bool { _, err := os.Stat(filepath.Join(shmDir, "psm_closed")); return err == nil })
	if err := g.stop(5 * time.Second); err != nil {
		t.Error(err)
	}
	for _, pid := range pids {
		if runs(pid) {
			t.Errorf("process %d is left", pid)
		}
	}
	left, _ := filepath.Glob(filepath.Join(shmDir, "*"))
	if got := strings.ReplaceAll(strings.Join(left, " "), shmDir+"/", ""); got != "mine other psm_before psm_closed sem.mp-foreign" {
		t.Errorf("in shared memory: %s", got)
	}
	log, _ := os.ReadFile(filepath.Join(dir, "stop.log"))
	if s := string(log); !strings.Contains(s, " processes outside of it, ended") || !strings.Contains(s, "2 files with 9 bytes that engines left, removed: psm_fresh sem.mp-linked") {
		t.Errorf("the log says\n%s", s)
	}
}
