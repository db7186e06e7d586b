package gpu

import (
	"os/exec"
	"syscall"
)

// alone makes a command the leader of a process group, so that what it starts ends with it.
func alone(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}
