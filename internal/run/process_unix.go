package run

import (
	"os/exec"
	"syscall"
)

// ownGroup makes a command the leader of a process group.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

func signalGroup(pid int, s syscall.Signal) { syscall.Kill(-pid, s) }

// groupAlive says whether a process of a group is there.
func groupAlive(pid int) bool { return syscall.Kill(-pid, 0) == nil }
