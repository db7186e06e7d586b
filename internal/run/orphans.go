package run

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// WorkDir is the folder in a sweep's folder for files of processes that run here.
const WorkDir = ".work"

// pidFile stands in the working folder of a process and says which it is, so that what a killed
// controller left can be found and ended.
const pidFile = ".pid"

// noteProcess writes down a process: its id, when it began, and the machine and name space in
// which that holds. Where the system does not tell, nothing is written.
func noteProcess(file string, pid int) error {
	born, world := began(pid), world()
	if born == "" || world == "" {
		return nil
	}
	return os.WriteFile(file, fmt.Appendf(nil, "%d %s %s\n", pid, born, world), 0o666)
}

// world names this boot of this machine and its name space of processes, "" where nobody knows.
func world() string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	space, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(boot)) + "/" + space
}

// began is when a process began, in ticks since the boot; "" when it is not there.
func began(pid int) string {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	_, rest, _ := strings.Cut(string(raw), ") ") // its name may hold anything
	if f := strings.Fields(rest); len(f) > 19 {
		return f[19]
	}
	return ""
}

// Reap ends what earlier processes left running for points whose files are under scratch, all or
// those named, and removes the files.
func Reap(scratch string, points ...string) error {
	if len(points) == 0 {
		points = []string{"*"}
	}
	var errs []error
	for _, p := range points {
		files, err := filepath.Glob(filepath.Join(scratch, p, "*", pidFile))
		errs = append(errs, err)
		for _, f := range files {
			errs = append(errs, reap(f))
		}
		dirs, err := filepath.Glob(filepath.Join(scratch, p))
		errs = append(errs, err)
		for _, d := range dirs {
			errs = append(errs, os.RemoveAll(d))
		}
	}
	return errors.Join(errs...)
}

// reap ends the process group of one file. A process of another boot, or one that has the id and
// not the birth, is somebody else's.
func reap(file string) error {
	raw, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	f := strings.Fields(string(raw))
	if len(f) != 3 || f[2] != world() {
		return nil
	}
	pid, err := strconv.Atoi(f[0])
	if err != nil || pid < 2 {
		return nil
	}
	if now := began(pid); now != "" && now != f[1] || !groupAlive(pid) {
		return nil
	}
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		signalGroup(pid, s)
		for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
			if !groupAlive(pid) {
				return nil
			}
		}
	}
	return fmt.Errorf("process group %d, left by an earlier run, is still there after KILL (%s)", pid, filepath.Dir(file))
}
