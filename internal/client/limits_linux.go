package client

import (
	"fmt"
	"math"
	"os"

	"golang.org/x/sys/unix"
)

// raiseLimits raises the limit of open files to the hard limit and returns it with the number
// of local ports that connections to one address can have.
func raiseLimits() (files, ports uint64, err error) {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return 0, 0, fmt.Errorf("client: reading the limit of open files: %w", err)
	}
	if l.Cur < l.Max {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: l.Max, Max: l.Max}); err != nil {
			return 0, 0, fmt.Errorf("client: raising the limit of open files from %d to %d: %w", l.Cur, l.Max, err)
		}
	}
	ports = math.MaxUint16
	if b, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range"); err == nil {
		var low, high uint64
		if _, err := fmt.Sscan(string(b), &low, &high); err == nil && high >= low {
			ports = high - low + 1
		}
	}
	return l.Max, ports, nil
}
