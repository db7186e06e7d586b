package run

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/weirbench/weir/internal/engine"
	"github.com/weirbench/weir/internal/plan"
)

// A group is the processes of one deployment, each the leader of a process group of its own,
// so that what an engine spawns can be stopped with it.
type group struct {
	scratch string // files and working folders of processes
	logs    string
	// wrap turns the command of a process into one that runs it on its node; nil runs it here.
	wrap func(p *engine.Process, argv []string) []string
	// pin keeps a command that runs here on some CPUs; nil leaves it as it is.
	pin func(node int, argv []string) []string
	// clean are a command that removes what the wrapper may have left and one that prints a name
	// while it is there.
	clean func(p *engine.Process) (remove, list []string)

	mark   string           // of processes behind a wrapper
	shared map[string]int64 // files of engines in shared memory before the first start
	procs  []*process
	mu     sync.Mutex
	died   chan struct{} // closed when a process ended that should not have
	first  *process      // the one that did
	ending bool
}

type process struct {
	engine.Process
	argv []string // as it was started, with environment and wrapper
	cmd  *exec.Cmd
	log  string
	mark string // its value of marker
	over *watch // ends it when this process is gone
	done chan struct{}
	err  error // of Wait, once done
}

func newGroup(scratch, logs string, wrap func(*engine.Process, []string) []string) *group {
	return &group{scratch: scratch, logs: logs, wrap: wrap, mark: newToken(), died: make(chan struct{})}
}

// start begins one process with its output in a log of its own.
func (g *group) start(p engine.Process) error {
	dir := filepath.Join(g.scratch, p.Name)
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	for name, text := range p.Files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
			return err
		}
	}
	p.Dir = dir
	argv := p.Argv
	words := []string{"env"}
	for _, v := range p.Env {
		words = append(words, v.Name+"="+v.Value)
	}
	if g.wrap != nil { // where it runs, the wrapper's environment may not arrive
		words = append(words, marker+"="+g.mark)
	}
	if len(words) > 1 {
		argv = append(words, argv...)
	}
	if g.wrap != nil {
		argv = g.wrap(&p, argv)
	}
	if g.pin != nil {
		argv = g.pin(p.Node, argv)
	}
	x := &process{Process: p, argv: argv, log: filepath.Join(g.logs, p.Name+".log"), done: make(chan struct{})}
	out, err := os.Create(x.log)
	if err != nil {
		return err
	}
	defer out.Close()
	if g.wrap == nil {
		if len(g.procs) == 0 {
			g.shared = sharedMemory()
		}
		x.mark = newToken()
	}
	x.cmd = exec.Command(argv[0], argv[1:]...)
	if x.mark != "" {
		x.cmd.Env = append(os.Environ(), marker+"="+x.mark)
	}
	x.cmd.Dir, x.cmd.Stdout, x.cmd.Stderr = dir, out, out
	ownGroup(x.cmd)
	if err := x.cmd.Start(); err != nil {
		return fmt.Errorf("%s: %w", p.Name, err)
	}
	x.over = keepWatch(dir, x.cmd.Process.Pid, x.mark, stopWait)
	g.procs = append(g.procs, x)
	go func() {
		x.err = x.cmd.Wait()
		g.mu.Lock()
		if !g.ending && g.first == nil && (x.Role != "external" || x.err != nil) {
			g.first = x
			close(g.died)
		}
		g.mu.Unlock()
		close(x.done)
	}()
	return noteProcess(filepath.Join(dir, pidFile), x.cmd.Process.Pid)
}

// dead says how the first process ended that should not have, with the last lines that matter.
func (g *group) dead() (*process, string) {
	g.mu.Lock()
	x := g.first
	g.mu.Unlock()
	<-x.done
	how := "ended"
	if x.err != nil {
		how = x.err.Error()
	}
	return x, fmt.Sprintf("%s: %s; its last lines: %s", x.Name, how, strings.Join(lastLines(x.log, 5), " | "))
}

// stop ends all processes, last one first: TERM to the group, KILL after the time given. It
// says what is left: a process of a group or a port that is still served.
func (g *group) stop(patience time.Duration) error {
	g.mu.Lock()
	g.ending = true
	g.mu.Unlock()
	var left []string
	held := map[plan.Inode]bool{} // files in shared memory that the processes used
	for _, x := range slices.Backward(g.procs) {
		if len(x.Stop) > 0 {
			cmd := exec.Command(x.Stop[0], x.Stop[1:]...)
			cmd.Dir = filepath.Join(g.scratch, x.Name)
			ownGroup(cmd)
			if err := runFor(cmd, patience); err != nil {
				left = append(left, fmt.Sprintf("%s: %s: %v", x.Name, x.Stop[0], err))
			}
		}
		pid := x.cmd.Process.Pid
		var own []stray
		if x.mark != "" {
			own = family(pid, x.mark)
			hold(own, held)
		}
		signalGroup(pid, syscall.SIGTERM)
		if !waitGone(x, pid, patience) {
			signalGroup(pid, syscall.SIGKILL)
			if !waitGone(x, pid, 10*time.Second) {
				left = append(left, fmt.Sprintf("%s: process group %d is still there after KILL", x.Name, pid))
			}
		}
		if x.mark != "" {
			own = append(own, family(pid, x.mark)...) // and what it began while it ended
			found, rest := endStrays(own, 10*time.Second)
			if len(rest) > 0 {
				left = append(left, fmt.Sprintf("%s: process %d is still there after KILL", x.Name, rest[0].pid))
			}
			g.tell("%s: process group %d ended; %d processes outside of it, ended", x.Name, pid, found)
		}
		x.over.rest()
		if name := g.removed(x); name != "" {
			left = append(left, fmt.Sprintf("%s: %s is still there after its removal", x.Name, name))
		}
	}
	if g.shared != nil {
		names, bytes, err := freeShared(g.shared, held)
		if err != nil {
			left = append(left, err.Error())
		}
		g.tell("shared memory: %d files with %d bytes that engines left, removed: %s", len(names), bytes, strings.Join(names, " "))
	}
	if len(left) > 0 {
		g.tell("left: %s", strings.Join(left, "; "))
		return errors.New(strings.Join(left, "; "))
	}
	return nil
}

// tell writes into the group's log of its end.
func (g *group) tell(format string, a ...any) {
	f, err := os.OpenFile(filepath.Join(g.logs, "stop.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o666)
	if err != nil {
		return
	}
	fmt.Fprintf(f, format+"\n", a...)
	f.Close()
}

// cleanWait is how long what a wrapper left may stay behind its removal, and cleanLimit bounds one
// command that removes or lists it.
var cleanWait = time.Minute

const cleanLimit = time.Minute

// removed removes what the wrapper of a process may have left; it returns the name of what is
// there all the same.
func (g *group) removed(x *process) string {
	if g.clean == nil {
		return ""
	}
	remove, list := g.clean(&x.Process)
	if remove == nil {
		return ""
	}
	// What the wrapper removed itself is no longer known: that the removal fails says nothing.
	_, _ = output(remove)
	for end := time.Now().Add(cleanWait); ; time.Sleep(100 * time.Millisecond) {
		name, err := output(list)
		switch {
		case err != nil:
			return fmt.Sprintf("what %s knows (%v)", list[0], err)
		case name == "":
			return ""
		case time.Now().After(end):
			return name
		}
	}
}

func output(argv []string) (string, error) {
	var out bytes.Buffer
	cmd := exec.Command(argv[0], argv[1:]...)
	ownGroup(cmd)
	err := runInto(cmd, &out, cleanLimit)
	return strings.TrimSpace(out.String()), err
}

// waitGone waits until the leader is reaped and its group is empty.
func waitGone(x *process, pid int, limit time.Duration) bool {
	end := time.Now().Add(limit)
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		select {
		case <-x.done:
			if !groupAlive(pid) {
				return true
			}
		default:
		}
		if time.Now().After(end) {
			return false
		}
		time.Sleep(pause)
	}
}

// runFor runs a command and ends its group after a time.
func runFor(cmd *exec.Cmd, limit time.Duration) error {
	var out bytes.Buffer
	if err := runInto(cmd, &out, limit); err != nil {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(out.String()))
	}
	return nil
}

// runInto runs a command and keeps its standard output; after a time its group is ended. In an
// error stands what it wrote to standard error.
func runInto(cmd *exec.Cmd, out *bytes.Buffer, limit time.Duration) error {
	var errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = out, &errOut
	if err := cmd.Start(); err != nil {
		return err
	}
	cmd.WaitDelay = time.Second
	t := time.AfterFunc(limit, func() { signalGroup(cmd.Process.Pid, syscall.SIGKILL) })
	defer t.Stop()
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(errOut.String()))
	}
	return nil
}

// lastLines are the last lines of a file that matter: those that speak of an error where there
// are some. What a scheduler's step says about its own end does not count among them.
func lastLines(path string, n int) []string {
	all := tail(path)
	var own, bad []string
	for _, line := range all {
		if strings.HasPrefix(line, "srun:") || strings.HasPrefix(line, "slurmstepd") {
			continue
		}
		own = append(own, line)
		low := strings.ToLower(line)
		for _, word := range []string{"error", "killed", "out of memory", "panic", "unknown", "unrecognized", "invalid", "exception", "fail"} {
			if strings.Contains(low, word) {
				bad = append(bad, line)
				break
			}
		}
	}
	switch {
	case len(bad) > 0:
		all = bad
	case len(own) > 0:
		all = own
	case len(all) == 0:
		return []string{"it said nothing"}
	}
	return all[max(0, len(all)-n):]
}

// tail are the lines at the end of a file, without empty ones.
func tail(path string) []string {
	f, err := os.Open(path)
	if err != nil {
		return []string{err.Error()}
	}
	defer f.Close()
	if st, err := f.Stat(); err == nil && st.Size() > 64<<10 {
		if _, err := f.Seek(-64<<10, io.SeekEnd); err != nil {
			return []string{err.Error()}
		}
	}
	raw, err := io.ReadAll(f)
	if err != nil {
		return []string{err.Error()}
	}
	var all []string
	for line := range strings.SplitSeq(string(raw), "\n") {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		if len(line) > 300 {
			line = line[:300] + "..."
		}
		all = append(all, line)
	}
	return all
}

// deathClass says from how a process ended why: memory, its configuration, or what else.
func deathClass(x *process, other string) string {
	text := strings.ToLower(strings.Join(tail(x.log), "\n"))
	var exit *exec.ExitError
	code := 0
	if errors.As(x.err, &exit) {
		code = exit.ExitCode()
		if st, ok := exit.Sys().(syscall.WaitStatus); ok && st.Signaled() && st.Signal() == syscall.SIGKILL {
			code = 137
		}
	}
	for _, s := range []string{"out of memory", "outofmemory", "out-of-memory", "not enough host memory", "cannot allocate memory",
		"larger than the available kv cache memory", "no available memory for the cache blocks"} {
		if strings.Contains(text, s) {
			return "capacity"
		}
	}
	if other == "start" && code == 137 {
		return "capacity" // who else kills an engine that loads
	}
	if other == "start" {
		for _, s := range []string{"unrecognized argument", "unknown flag", "invalid choice", "no such option"} {
			if strings.Contains(text, s) {
				return "config"
			}
		}
	}
	return other
}
