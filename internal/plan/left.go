package plan

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// An Inode is a file whatever it is called: a semaphore is made under one name and linked to
// another.
type Inode struct{ Dev, Number uint64 }

// InodeOf is the file of a path; false where there is none.
func InodeOf(path string) (Inode, bool) {
	info, err := os.Stat(path)
	if err != nil {
		return Inode{}, false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return Inode{}, false
	}
	return Inode{uint64(st.Dev), st.Ino}, true
}

// Used puts into a set the files of the file system dev that a process maps or has open.
func Used(pid int, dev uint64, into map[Inode]bool) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return
	}
	device := fmt.Sprintf("%02x:%02x", unix.Major(dev), unix.Minor(dev))
	for line := range strings.Lines(string(raw)) {
		f := strings.Fields(line)
		if len(f) < 6 || f[3] != device {
			continue
		}
		if n, err := strconv.ParseUint(f[4], 10, 64); err == nil {
			into[Inode{dev, n}] = true
		}
	}
	fds, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	for _, fd := range fds {
		if n, ok := InodeOf(fd); ok && n.Dev == dev {
			into[n] = true
		}
	}
}

// processes are the ids of those that can be seen.
func processes() []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var out []int
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			out = append(out, pid)
		}
	}
	return out
}

// others marks the leftovers in a folder that a running process uses or that another user owns.
func others(dir string, list []Leftover) {
	root, ok := InodeOf(dir)
	if len(list) == 0 || !ok {
		return
	}
	held := map[Inode]bool{}
	for _, pid := range processes() {
		Used(pid, root.Dev, held)
	}
	for i := range list {
		info, err := os.Stat(filepath.Join(dir, list[i].Name))
		if err != nil {
			continue
		}
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			list[i].Others = held[Inode{uint64(st.Dev), st.Ino}] || int(st.Uid) != os.Getuid()
		}
	}
}

// A Marked is a running process with a mark in its environment.
type Marked struct {
	PID     int    `json:"pid"`
	Command string `json:"command"`
}

// marked are the running processes with an entry NAME=VALUE in the environment that they were
// started with, but for this one and those that it descends from.
func marked(entry string) []Marked {
	skip := map[int]bool{}
	for pid := os.Getpid(); pid > 1 && !skip[pid]; {
		skip[pid] = true
		raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			break
		}
		_, rest, _ := strings.Cut(string(raw), ") ")
		f := strings.Fields(rest)
		if len(f) < 2 {
			break
		}
		pid, _ = strconv.Atoi(f[1])
	}
	var out []Marked
	for _, pid := range processes() {
		env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if err != nil || skip[pid] || !bytes.Contains(append([]byte{0}, env...), []byte("\x00"+entry+"\x00")) {
			continue
		}
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		text := strings.TrimSpace(strings.ReplaceAll(string(line), "\x00", " "))
		out = append(out, Marked{pid, text[:min(len(text), 200)]})
	}
	return out
}
