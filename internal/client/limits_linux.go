package client

import (
	"bufio"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// thisMachine raises the limit of open files to the hard limit and returns it with the number
// of local ports that connections to one address can have and the memory that is free.
func thisMachine() (machine, error) {
	m := machine{ports: math.MaxUint16, memory: freeMemory()}
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return m, fmt.Errorf("client: reading the limit of open files: %w", err)
	}
	if l.Cur < l.Max {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: l.Max, Max: l.Max}); err != nil {
			return m, fmt.Errorf("client: raising the limit of open files from %d to %d: %w", l.Cur, l.Max, err)
		}
	}
	m.files = l.Max
	if b, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range"); err == nil {
		var low, high uint64
		if _, err := fmt.Sscan(string(b), &low, &high); err == nil && high >= low {
			m.ports = high - low + 1
		}
	}
	return m, nil
}

// freeMemory is what the kernel says is available, or what is left of the limit of the control
// group (version 2), whichever is less.
func freeMemory() uint64 {
	free := uint64(math.MaxInt64)
	if f, err := os.Open("/proc/meminfo"); err == nil {
		defer f.Close()
		for lines := bufio.NewScanner(f); lines.Scan(); {
			if v, ok := strings.CutPrefix(lines.Text(), "MemAvailable:"); ok {
				if kb, err := strconv.ParseUint(strings.TrimSpace(strings.TrimSuffix(v, "kB")), 10, 50); err == nil {
					free = kb << 10
				}
			}
		}
	}
	raw, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return free
	}
	group, ok := strings.CutPrefix(strings.TrimSpace(string(raw)), "0::/")
	for dir := filepath.Join("/sys/fs/cgroup", group); ok && strings.HasPrefix(dir, "/sys/fs/cgroup"); dir = filepath.Dir(dir) {
		limit, used := number(filepath.Join(dir, "memory.max")), number(filepath.Join(dir, "memory.current"))
		if cache := number(filepath.Join(dir, "memory.stat"), "inactive_file"); limit >= 0 && used >= 0 {
			free = min(free, uint64(max(limit-used+max(cache, 0), 0)))
		}
	}
	return free
}

// number reads a number from a file, or from the line of it that begins with a name; -1 where
// there is none.
func number(path string, name ...string) int64 {
	raw, err := os.ReadFile(path)
	if err != nil {
		return -1
	}
	text := string(raw)
	for _, n := range name {
		_, after, ok := strings.Cut("\n"+text, "\n"+n+" ")
		if !ok {
			return -1
		}
		text, _, _ = strings.Cut(after, "\n")
	}
	v, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil {
		return -1
	}
	return v
}
