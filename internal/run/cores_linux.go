package run

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// affinity are the CPUs that this process may use, in order.
func affinity() ([]int, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, os.NewSyscallError("sched_getaffinity", err)
	}
	var out []int
	for i := range len(set) * 64 {
		if set.IsSet(i) {
			out = append(out, i)
		}
	}
	return out, nil
}

// setAffinity keeps every thread of this process on CPUs. A thread that begins meanwhile has what
// the one has that began it, so it goes over them until a pass finds none to change.
func setAffinity(cpus []int) error {
	var want unix.CPUSet
	for _, c := range cpus {
		want.Set(c)
	}
	for range 100 {
		tasks, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return err
		}
		changed := false
		for _, t := range tasks {
			tid, err := strconv.Atoi(t.Name())
			if err != nil {
				continue
			}
			var has unix.CPUSet
			if err := unix.SchedGetaffinity(tid, &has); err == unix.ESRCH || err == nil && has == want {
				continue
			}
			if err := unix.SchedSetaffinity(tid, &want); err != nil && err != unix.ESRCH {
				return os.NewSyscallError("sched_setaffinity", err)
			}
			changed = true
		}
		if !changed {
			return nil
		}
	}
	return nil
}
