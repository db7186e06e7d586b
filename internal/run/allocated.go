package run

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/weirbench/weir/internal/corpus"
	"github.com/weirbench/weir/internal/engine"
	"github.com/weirbench/weir/internal/plan"
	"github.com/weirbench/weir/internal/record"
)

// ErrSuperseded is returned in an allocation whose point was given to another one.
var ErrSuperseded = errors.New("this allocation's token is not the point's current one")

// Allocated measures points inside the allocation that was made for them: processes run on its
// nodes through srun, the client here.
func Allocated(ctx context.Context, file string, log io.Writer) error {
	raw, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var js JobSpec
	if err := json.Unmarshal(raw, &js); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if err := js.superseded(); err != nil {
		return err
	}
	fmt.Fprintf(log, "%s: token %s, client on %s\n", js.Point.Name, js.Token, os.Getenv("SLURMD_NODENAME"))
	err = js.measure(ctx, filepath.Dir(file), log)
	fmt.Fprintf(log, "ended: %v\n", err)
	return err
}

func endFailed(dir string, f *Failure) error {
	w, err := record.CreateBundle(dir)
	if err != nil {
		return err
	}
	return errors.Join(f, w.Fail(f.Class, f.Reason))
}

// job makes the job again that was submitted, with the corpus where it needs one.
func (js *JobSpec) job(m *Member, c *corpus.Corpus) (*Job, error) {
	j := &Job{Point: m.Point, Repeat: m.Repeat, ControlOf: m.ControlOf, Recipe: js.Recipe, Replay: m.Replay, Version: js.Version, CorpusPath: js.Corpus, Corpus: c,
		ClientLimit: js.Limit, Facts: js.Facts}
	if err := j.plan(); err != nil {
		return nil, err
	}
	if m.Point.Scenario == "fixed-seq-len" {
		return j, j.FixedSeqLen()
	}
	if c.Fingerprint != js.Print {
		return nil, fmt.Errorf("the corpus %s has the fingerprint %s here, it had %s when the point was submitted", js.Corpus, c.Fingerprint, js.Print)
	}
	return j, nil
}

// superseded says whether the points were given to another allocation.
func (js *JobSpec) superseded() error {
	current, err := os.ReadFile(js.Current)
	if err != nil || strings.TrimSpace(string(current)) != js.Token {
		return errors.Join(ErrSuperseded, err)
	}
	return nil
}

// measure measures the members one after the other. A node that fails ends it: the next
// allocation may get a better one.
func (js *JobSpec) measure(ctx context.Context, dir string, log io.Writer) (err error) {
	l, err := js.launch(ctx, dir, log)
	if err != nil {
		return endFailed(js.Members[0].Bundle, failf("node", "%v", err))
	}
	var c *corpus.Corpus
	if js.Point.Scenario != "fixed-seq-len" {
		if c, err = corpus.Load(js.Corpus, corpus.LoadOptions{SkipBroken: true}); err != nil {
			return endFailed(js.Members[0].Bundle, failf("config", "%v", err))
		}
	}
	ex := Executor(l)
	if js.Shared {
		s := l.Share(js.Unclean)
		defer func() { err = errors.Join(err, s.Close()) }()
		ex = s
	}
	for i := range js.Members {
		m := &js.Members[i]
		if ended(m.Bundle) == record.CompleteFile {
			continue // whole before the scheduler began this allocation again
		}
		if err := js.superseded(); err != nil {
			return err
		}
		j, jobErr := js.job(m, c)
		if jobErr != nil {
			err = errors.Join(err, endFailed(m.Bundle, failf("config", "%v", jobErr)))
			continue
		}
		j.Progress = func(p Progress) {
			if raw, err := json.Marshal(p); err == nil {
				if tmp := m.Progress + ".tmp"; os.WriteFile(tmp, raw, 0o666) == nil {
					os.Rename(tmp, m.Progress)
				}
			}
		}
		_, one := Measure(ctx, ex, j, m.Bundle)
		fmt.Fprintf(log, "%s ended: %v\n", m.Name, one)
		err = errors.Join(err, one)
		if ctx.Err() != nil || one != nil && classed(one).Class == "node" {
			return err
		}
	}
	return err
}

// launch is what starts processes on the nodes of this allocation.
func (js *JobSpec) launch(ctx context.Context, dir string, log io.Writer) (*Launch, error) {
	nodes, het, err := allocation(ctx)
	if err == nil && len(nodes) < js.Nodes {
		err = fmt.Errorf("the allocation has %d nodes, the point needs %d", len(nodes), js.Nodes)
	}
	if err != nil {
		return nil, err
	}
	addrs, err := addresses(ctx, nodes)
	if err != nil {
		return nil, err
	}
	var cores *Cores
	if n := js.Cluster.ClientCPUs; n > 0 && het == "" {
		if cores, err = OwnCores(n); err != nil {
			return nil, err
		}
		cores.Node = slices.Index(nodes, os.Getenv("SLURMD_NODENAME"))
	}
	box := &Box{} // made when the deployment is known, before anything starts
	var l *Launch
	l = &Launch{
		Nodes: nodes, Scratch: filepath.Join(dir, "work"), ObservedGPUs: observedGPUs(len(nodes)),
		Place:     engine.Place{Addr: func(n int) string { return addrs[n] }, Weir: js.Weir, Model: js.Cluster.Models[js.Point.Model]},
		Elsewhere: true, Cores: cores,
		Wrap: func(p *engine.Process, argv []string) []string {
			return js.inBox(box, nodes[p.Node], het, p, argv, cores)
		},
		Clean: func(p *engine.Process) (remove, list []string) {
			remove, list = box.Clean(p)
			if remove != nil {
				step := js.srun(nodes[p.Node], het, "clean")
				remove, list = append(step, remove...), append(step[:len(step):len(step)], list...)
			}
			return remove, list
		},
		Log: func(s string) { fmt.Fprintf(log, "%s %s\n", time.Now().UTC().Format(time.RFC3339), s) },
		Check: func(ctx context.Context, j *Job, d *engine.Deployment) ([]*plan.Report, error) {
			*box = *NewBox(&js.Cluster.Container, js.Cluster.Container.Runtime, j, d, js.Token)
			if err := js.resolve(ctx, box, nodes[0], het, l.Log); err != nil {
				return nil, err
			}
			l.Digest = box.Digest
			if err := js.importImage(ctx, box, nodes[0], het); err != nil {
				return nil, err
			}
			return js.preflight(ctx, nodes, het, d, filepath.Join(dir, "job.json"))
		},
	}
	l.After = func(look context.Context, d *engine.Deployment, before []*plan.Report, mark string) error {
		look, cancel := context.WithCancel(look)
		defer cancel()
		defer context.AfterFunc(ctx, cancel)()
		return js.after(look, nodes, het, d, before, filepath.Join(dir, "job.json"), mark)
	}
	l.GPU = js.GPU
	l.Beside = func(node int, argv []string) []string { return js.beside(nodes[node], het, "gpu", argv) }
	if raw, err := json.Marshal(js.Cluster); err == nil {
		l.Fleet = raw
	}
	for _, a := range addrs {
		if ip := net.ParseIP(a); ip != nil && ip.IsLoopback() {
			l.Place.Port = FreePort() // nodes of one machine share its ports
		}
	}
	return l, nil
}

// allocation lists the nodes that engines run on, and the component of a heterogeneous job that
// they are, "" in a plain one.
func allocation(ctx context.Context) (nodes []string, het string, err error) {
	list := os.Getenv("SLURM_JOB_NODELIST")
	if v := os.Getenv("SLURM_JOB_NODELIST_HET_GROUP_1"); v != "" {
		list, het = v, "1"
	}
	if list == "" {
		return nil, "", errors.New("there is no allocation: SLURM_JOB_NODELIST is not set")
	}
	out, err := slurmCommand(ctx, "scontrol", "show", "hostnames", list)
	return strings.Fields(out), het, err
}

// addresses are how nodes are reached, as the scheduler knows them.
func addresses(ctx context.Context, nodes []string) ([]string, error) {
	var out []string
	for _, n := range nodes {
		line, err := slurmCommand(ctx, "scontrol", "--oneliner", "show", "node", n)
		if err != nil {
			return nil, err
		}
		addr := n
		for _, f := range strings.Fields(line) {
			if v, ok := strings.CutPrefix(f, "NodeAddr="); ok && v != "" {
				addr = v
			}
		}
		out = append(out, addr)
	}
	return out, nil
}

// observedGPUs is what the scheduler gave this job, Unknown where it counts no GPUs.
func observedGPUs(nodes int) int64 {
	n, err := strconv.ParseInt(os.Getenv("SLURM_GPUS_ON_NODE"), 10, 64)
	if err != nil || n <= 0 {
		return record.Unknown
	}
	return n * int64(nodes)
}

// srun is the beginning of a command that runs as a step on one node. CPUs are given explicitly: since Slurm 22.05 a step
// does not take them from the job.
func (js *JobSpec) srun(node, het, name string) []string {
	cpus := js.Cluster.Slurm.CPUsPerTask
	if cpus == 0 {
		cpus, _ = strconv.Atoi(os.Getenv("SLURM_CPUS_ON_NODE"))
	}
	cmd := []string{"srun", "--overlap", "--nodes=1", "--ntasks=1", "--nodelist=" + node, "--cpus-per-task=" + strconv.Itoa(max(1, cpus)),
		"--mem=0", "--kill-on-bad-exit=1", "--unbuffered", "--job-name=weir-" + name}
	if het != "" {
		cmd = append(cmd, "--het-group="+het)
	}
	return cmd
}

// inBox is a step that runs a process in its container, with the cluster's environment.
func (js *JobSpec) inBox(b *Box, node, het string, p *engine.Process, argv []string, cores *Cores) []string {
	env := []string{"env"}
	for _, e := range js.Cluster.Env {
		env = append(env, e.Name+"="+strings.Join(e.Values, ","))
	}
	if len(env) > 1 {
		argv = append(env, argv...)
	}
	in := *b
	in.CPUs = cores.on(p.Node) // the containers of a daemon do not take the CPUs of the command that asks for them
	return append(append(js.srun(node, het, p.Name), b.Step(p)...), cores.pin(p.Node, in.Command(p, argv))...)
}

// importLimit bounds an import and the wait for another job's; resolveLimit the question what a tag
// names, with a pull where the runtime keeps images itself.
var importLimit, resolveLimit = 4 * time.Hour, 2 * time.Hour

// script runs a shell script in a step on a node and returns what it printed. When the limit is over
// the step is ended and the error says so.
func (js *JobSpec) script(ctx context.Context, node, het, name, text string, limit time.Duration) ([]byte, error) {
	one, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	argv := append(js.srun(node, het, name), "bash", "-c", text)
	cmd := exec.CommandContext(one, argv[0], argv[1:]...)
	ownGroup(cmd)
	cmd.Cancel = func() error { signalGroup(cmd.Process.Pid, syscall.SIGTERM); return nil } // srun ends its step then
	cmd.WaitDelay = stepEnd
	out, err := cmd.CombinedOutput()
	if one.Err() != nil && ctx.Err() == nil {
		signalGroup(cmd.Process.Pid, syscall.SIGKILL)
		return out, fmt.Errorf("it did not end within %v", limit)
	}
	return out, err
}

// stepEnd is how long an ended step may take to be gone.
const stepEnd = 30 * time.Second

// resolve finds out the digest that the image's tag names, on the first node. Where no tool there
// says it the name alone stands for the image, and the log says so.
func (js *JobSpec) resolve(ctx context.Context, b *Box, node, het string, say func(string)) error {
	script := b.Resolve()
	if script == "" {
		return nil
	}
	out, err := js.script(ctx, node, het, "digest", script, resolveLimit)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	b.resolved(string(out), err, node, say)
	return nil
}

// importImage imports the image on the first node, under a lock in the cache that nodes share.
func (js *JobSpec) importImage(ctx context.Context, b *Box, node, het string) error {
	script := b.Import()
	if script == "" {
		return nil
	}
	out, err := js.script(ctx, node, het, "import", script, importLimit)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return failf("node", "importing %s on %s: %v: %s", b.Image, node, err, strings.TrimSpace(string(out[max(0, len(out)-2000):])))
	}
	return nil
}

// serveClock lets the nodes compare their clocks with the client's until ctx ends, at the address
// that it returns; "" where there is none.
func serveClock(ctx context.Context) string {
	addrs, err := addresses(ctx, []string{os.Getenv("SLURMD_NODENAME")})
	if err != nil || len(addrs) == 0 {
		return ""
	}
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		return ""
	}
	go plan.ServeClock(ctx, l, nil)
	return net.JoinHostPort(addrs[0], strconv.Itoa(l.Addr().(*net.TCPAddr).Port))
}

// preflight looks at every node before anything starts on it.
func (js *JobSpec) preflight(ctx context.Context, nodes []string, het string, d *engine.Deployment, file string) ([]*plan.Report, error) {
	seen := map[int]bool{}
	var reps []*plan.Report
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	clock := serveClock(ctx)
	for _, p := range d.Processes {
		if seen[p.Node] || !lookedFor(&p) {
			continue
		}
		seen[p.Node] = true
		var argv []string
		if d.Simulated { // it needs no GPU and pins nothing
			argv = append(argv, "--simulated", "--conc", strconv.Itoa(js.Point.Conc), "--disk-gb", "0.05", "--shm-gb", "0.01")
		} else {
			argv = append(argv, "--point", file, "--role", p.Role)
		}
		for _, port := range p.Ports {
			argv = append(argv, "--port", strconv.Itoa(port))
		}
		if clock != "" {
			argv = append(argv, "--clock", clock)
		}
		rep, err := js.look(ctx, nodes[p.Node], het, filepath.Dir(file), argv)
		if ctx.Err() != nil {
			return reps, ctx.Err()
		}
		if err != nil {
			return reps, failf("node", "pre-flight of %s: %v", nodes[p.Node], err)
		}
		reps = append(reps, rep)
		if err := refusedBy(rep); err != nil {
			return reps, err
		}
	}
	return reps, nil
}

// lookedFor says whether a node is looked at for a process.
func lookedFor(p *engine.Process) bool { return p.Role != "router" && p.Role != "infra" }

// lookedAt are the nodes of a deployment in the order in which preflight looks at them.
func lookedAt(d *engine.Deployment) []int {
	var out []int
	for i := range d.Processes {
		if p := &d.Processes[i]; lookedFor(p) && !slices.Contains(out, p.Node) {
			out = append(out, p.Node)
		}
	}
	return out
}

// look runs weir preflight with more arguments in a step on a node.
func (js *JobSpec) look(ctx context.Context, node, het, dir string, more []string) (*plan.Report, error) {
	argv := append(js.srun(node, het, "preflight"), js.Weir, "preflight", "--json", "--bundle", dir, "--timeout", "20s")
	if js.Cluster.Node.Shm != "" {
		argv = append(argv, "--shm", js.Cluster.Node.Shm)
	}
	argv = append(argv, more...)
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	cmd.WaitDelay = time.Second
	runErr := cmd.Run()
	var rep plan.Report
	if err := json.Unmarshal(out.Bytes(), &rep); err != nil || rep.Node == nil {
		return nil, fmt.Errorf("%w: %s", errors.Join(runErr, err), strings.TrimSpace(errOut.String()))
	}
	return &rep, nil
}
