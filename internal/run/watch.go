package run

import (
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// A watch is a small process that ends an engine's process group when this process is gone, also by
// a kill -9, so that nothing holds GPUs for a controller that will never come back. It waits for a
// word on a pipe that only this process holds; the end of the pipe without the word is the end of
// this process. (A death signal of the kernel's would not do: it comes when the thread ends that
// started the child, and Go ends threads as it likes.)
type watch struct {
	cmd *exec.Cmd
	in  io.WriteCloser
}

// watchFile stands beside pidFile and says which process watches.
const watchFile = ".watch"

// watchScript takes the group, the seconds until KILL, and the mark of processes that left the group.
const watchScript = `trap '' HUP INT TERM
read -r word && exit 0
kill -s TERM -- "-$1"
n=0
while kill -s 0 -- "-$1" && [ "$n" -lt "$2" ]; do sleep 1; n=$((n+1)); done
kill -s KILL -- "-$1"
[ -n "$3" ] || exit 0
for e in /proc/[0-9]*/environ; do
  grep -qs "WEIR_GROUP=$3" "$e" || continue
  p=${e%/environ}
  kill -s KILL "${p#/proc/}"
done`

// keepWatch begins to watch over a process group. Where that cannot be, nobody watches: nil.
func keepWatch(dir string, pid int, mark string, patience time.Duration) *watch {
	w := &watch{cmd: exec.Command("sh", "-c", watchScript, "weir-watch", fmt.Sprint(pid), fmt.Sprint(max(1, int64(patience/time.Second))), mark)}
	w.cmd.Dir = "/"                                        // holds no file system
	w.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // what ends this process's group does not end it
	var err error
	if w.in, err = w.cmd.StdinPipe(); err != nil {
		return nil
	}
	if err := w.cmd.Start(); err != nil {
		w.in.Close()
		return nil
	}
	noteProcess(filepath.Join(dir, watchFile), w.cmd.Process.Pid) // for who looks
	return w
}

// rest ends the watch and leaves the group alone.
func (w *watch) rest() {
	if w == nil {
		return
	}
	io.WriteString(w.in, "ended\n")
	w.in.Close()
	t := time.AfterFunc(10*time.Second, func() { w.cmd.Process.Kill() })
	defer t.Stop()
	w.cmd.Wait()
}
