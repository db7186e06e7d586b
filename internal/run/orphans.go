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

// A Running is a process of a sweep on this machine, with what it started.
type Running struct {
	Point string    `json:"point"` // name of the point's folder; of a shared server, that of its first point
	Name  string    `json:"name"`  // "unified-0", "router", ...
	PID   int       `json:"pid"`   // of its process group
	Since time.Time `json:"since"`
}

// RunningIn are the processes of a sweep's points that run on this machine, whoever started them. Where
// the system does not tell, and of allocations, there are none.
func RunningIn(dir string) []Running {
	files, _ := filepath.Glob(filepath.Join(dir, WorkDir, "*", "*", pidFile))
	var out []Running
	for _, f := range files {
		if pid, ok := noted(f); ok && groupRuns(pid) {
			home := filepath.Dir(f)
			out = append(out, Running{Point: filepath.Base(filepath.Dir(home)), Name: filepath.Base(home), PID: pid, Since: since(f, pid)})
		}
	}
	return out
}

// Controller is the process on this machine that runs the sweep in dir; 0 when none does.
func Controller(dir string) int {
	pid, ok := noted(filepath.Join(dir, lockFile))
	if !ok {
		return 0
	}
	if _, _, ended, err := procStat(pid); ended || err != nil {
		return 0
	}
	return pid
}

// groupRuns says whether a process of a group is there that has not ended; one whose parent has not asked
// how it ended is in groupAlive and not here.
func groupRuns(group int) bool {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range stats {
		raw, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		_, rest, _ := strings.Cut(string(raw), ") ")
		if f := strings.Fields(rest); len(f) > 2 && f[2] == strconv.Itoa(group) && f[0] != "Z" && f[0] != "X" {
			return true
		}
	}
	return false
}

// since is when a process began; where it is gone and its group is left, when that was written down.
func since(file string, pid int) time.Time {
	ticks, err := strconv.ParseInt(began(pid), 10, 64)
	raw, statErr := os.ReadFile("/proc/stat")
	_, boot, found := strings.Cut(string(raw), "\nbtime ")
	if err == nil && statErr == nil && found {
		boot, _, _ = strings.Cut(boot, "\n")
		if at, err := strconv.ParseInt(strings.TrimSpace(boot), 10, 64); err == nil {
			return time.Unix(at+ticks/userHertz, 0).UTC()
		}
	}
	if fi, err := os.Stat(file); err == nil {
		return fi.ModTime().UTC()
	}
	return time.Time{}
}

// userHertz is the unit of times in /proc, which Linux fixes for all that reads it.
const userHertz = 100

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

// noted is the process that a file names, if it or its group is there. A process of another boot, or
// one that has the id and not the birth, is somebody else's.
func noted(file string) (pid int, ok bool) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return 0, false
	}
	f := strings.Fields(string(raw))
	if len(f) != 3 || f[2] != world() {
		return 0, false
	}
	pid, err = strconv.Atoi(f[0])
	if err != nil || pid < 2 {
		return 0, false
	}
	now := began(pid)
	return pid, now == f[1] || now == "" && groupAlive(pid)
}

// reap ends the process group of one file.
func reap(file string) error {
	pid, ok := noted(file)
	if !ok || !groupAlive(pid) {
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
