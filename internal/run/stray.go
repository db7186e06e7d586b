package run

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/weirbench/weir/internal/plan"
)

// Engines start workers in sessions of their own and put queues and pools into shared memory.
// What is left of them when their process group has ended is found and ended here; where there
// is no /proc nothing is found.

// marker is the variable by which a process is known as one of a group, whoever its parent is by
// then.
const marker = "WEIR_GROUP"

// A stray is a process by its number and the time of its start, which together are never
// another's.
type stray struct {
	pid   int
	start string
}

// procStat is what /proc says of a process: its parent, its start, and whether it has ended.
func procStat(pid int) (parent int, start string, ended bool, err error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, "", true, err
	}
	i := bytes.LastIndexByte(raw, ')') // the name before it may hold anything
	f := strings.Fields(string(raw[i+1:]))
	if i < 0 || len(f) < 20 {
		return 0, "", true, errors.New("not a stat line")
	}
	parent, err = strconv.Atoi(f[1])
	return parent, f[19], f[0] == "Z" || f[0] == "X", err
}

// family are the processes that descend from one, itself included, and those that carry its
// mark.
func family(leader int, mark string) []stray {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	parents, starts := map[int]int{}, map[int]string{}
	member := map[int]bool{leader: true}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		parent, start, ended, err := procStat(pid)
		if err != nil || ended {
			continue
		}
		parents[pid], starts[pid] = parent, start
		if env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid)); err == nil && mark != "" && bytes.Contains(env, []byte(marker+"="+mark+"\x00")) {
			member[pid] = true
		}
	}
	var out []stray
	for pid := range parents {
		for at, n := pid, 0; at > 1 && n < 1000; at, n = parents[at], n+1 {
			if member[at] {
				out = append(out, stray{pid, starts[pid]})
				break
			}
		}
	}
	slices.SortFunc(out, func(a, b stray) int { return a.pid - b.pid })
	return out
}

func (s stray) alive() bool {
	_, start, ended, err := procStat(s.pid)
	return err == nil && !ended && start == s.start
}

// endStrays ends the processes of a list that are still there, and says how many there were and
// which did not end.
func endStrays(list []stray, patience time.Duration) (found int, left []stray) {
	for _, s := range list {
		if s.alive() {
			found++
			syscall.Kill(s.pid, syscall.SIGKILL)
		}
	}
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		left = slices.DeleteFunc(slices.Clone(list), func(s stray) bool { return !s.alive() })
		if len(left) == 0 || time.Now().After(end) {
			return found, left
		}
	}
}

// shmDir is where shared memory lies.
var shmDir = "/dev/shm"

// sharedMemory are the files of engines in shared memory.
func sharedMemory() map[string]int64 {
	out := map[string]int64{}
	for _, f := range plan.Leftovers(shmDir) {
		out[f.Name] = f.Bytes
	}
	return out
}

// hold takes down which files in shared memory processes use, before they are ended.
func hold(list []stray, into map[plan.Inode]bool) {
	if dir, ok := plan.InodeOf(shmDir); ok {
		for _, s := range list {
			plan.Used(s.pid, dir.Dev, into)
		}
	}
}

// freeShared removes the files of engines in shared memory that were not there before, that the
// processes used which were ended, and that no process uses any more; it returns their names and
// bytes. Whatever else appeared meanwhile is another's.
func freeShared(before map[string]int64, own map[plan.Inode]bool) (names []string, bytes int64, err error) {
	fresh := map[string]plan.Inode{}
	now := sharedMemory()
	for name := range now {
		n, ok := plan.InodeOf(filepath.Join(shmDir, name))
		if _, old := before[name]; !old && ok && own[n] {
			fresh[name] = n
		}
	}
	if len(fresh) == 0 {
		return nil, 0, nil
	}
	still := map[plan.Inode]bool{}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, 0, err
	}
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			hold([]stray{{pid: pid}}, still)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(fresh)) {
		if still[fresh[name]] {
			continue
		}
		if rmErr := os.Remove(filepath.Join(shmDir, name)); rmErr != nil && !errors.Is(rmErr, fs.ErrNotExist) {
			err = errors.Join(err, rmErr)
			continue
		}
		names, bytes = append(names, name), bytes+now[name]
	}
	return names, bytes, err
}
