package run

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/weirbench/weir/internal/engine"
)

// helpWait is how long a program may take to print its help; an engine loads much of itself first.
const helpWait = time.Minute

// helps are the help texts of programs of this machine, read once.
var helps struct {
	sync.Mutex
	of map[string]*engine.Help // nil where the program prints none that can be read
}

// CheckArguments refuses arguments that the deployment's programs do not know: by the help texts
// that are given, with the job or in its recipe, and where there is none and here is set, by what
// the programs of this machine print.
func (j *Job) CheckArguments(ctx context.Context, d *engine.Deployment, here bool) error {
	worker, router, err := j.Recipe.Helps(j.EngineHelp)
	if err != nil {
		return err
	}
	for i := range d.Processes {
		if !here {
			break
		}
		p := &d.Processes[i]
		switch {
		case p.Role == "router" && router == nil:
			router = helpHere(ctx, p)
		case p.Role != "router" && worker == nil:
			worker = helpHere(ctx, p)
		}
	}
	return d.Check(worker, router)
}

// helpHere is the help of a process's program on this machine, nil where it cannot be had.
func helpHere(ctx context.Context, p *engine.Process) *engine.Help {
	argv := p.HelpCommand()
	if argv == nil {
		return nil
	}
	key := strings.Join(argv, "\x00")
	helps.Lock()
	defer helps.Unlock()
	if h, ok := helps.of[key]; ok {
		return h
	}
	h, err := printedHelp(ctx, argv, p.Env)
	if err != nil && ctx.Err() != nil {
		return nil
	}
	if helps.of == nil {
		helps.of = map[string]*engine.Help{}
	}
	helps.of[key] = h
	return h
}

func printedHelp(ctx context.Context, argv []string, env []engine.Var) (*engine.Help, error) {
	ctx, cancel := context.WithTimeout(ctx, helpWait)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = os.Environ()
	for _, v := range env {
		cmd.Env = append(cmd.Env, v.Name+"="+v.Value)
	}
	var out bytes.Buffer
	cmd.Stdout = &out
	ownGroup(cmd)
	cmd.Cancel = func() error {
		signalGroup(cmd.Process.Pid, syscall.SIGKILL)
		return nil
	}
	cmd.WaitDelay = time.Second
	if err := cmd.Run(); err != nil {
		return nil, err
	}
	return engine.ParseHelp(out.String())
}
