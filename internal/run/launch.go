package run

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/weirbench/weir/internal/client"
	"github.com/weirbench/weir/internal/engine"
	"github.com/weirbench/weir/internal/plan"
	"github.com/weirbench/weir/internal/prompt"
	"github.com/weirbench/weir/internal/record"
	"github.com/weirbench/weir/internal/replay"
	"github.com/weirbench/weir/internal/spec"
)

// Launch measures a job on engines that it starts for it and stops after it: the whole life of
// a point. Processes run on this machine, or where Wrap puts them.
type Launch struct {
	Place engine.Place
	// Wrap turns the command of a process into one that runs it on its node; nil runs it here.
	Wrap func(p *engine.Process, argv []string) []string
	// Clean are commands for after a process's end: one that removes what its wrapper may have left,
	// such as a container, and one that prints a name while it is there. Nil, or nil commands, for
	// nothing.
	Clean func(p *engine.Process) (remove, list []string)
	// Elsewhere says that processes run on other machines: their ports are not looked at here.
	Elsewhere bool
	// Scratch is the folder for files of processes; a folder in it is made for each point, and
	// removed after it.
	Scratch string
	// Check looks at the nodes before anything starts; nil looks at none. What it saw goes into the
	// bundle, also when it refuses. A Failure that it returns keeps its class.
	Check func(ctx context.Context, j *Job, d *engine.Deployment) ([]*plan.Report, error)
	// After looks at the nodes when everything was stopped, with what Check saw and the mark of
	// processes behind a wrapper, and says what is left; nil looks at none.
	After func(ctx context.Context, d *engine.Deployment, before []*plan.Report, mark string) error
	// ObservedGPUs is what the allocation holds; Unknown where nobody knows.
	ObservedGPUs int64
	// Digest is that of the image that runs, "sha256:" and 64 hex digits; "" where nobody knows.
	Digest string
	// ClientCPUs is how many CPUs of its node the client has for itself, 0 for none. Cores are which;
	// where they are nil they are chosen when a point begins.
	ClientCPUs int
	Cores      *Cores
	Fleet      json.RawMessage
	Client     client.Config // timeouts and the like; its URLs are set here
	Words      *prompt.Words
	// GPU says how the devices of the nodes are read while the point runs; nil reads none. Beside
	// turns a command of this program into one that runs on a node beside its engines; nil reads
	// the devices of this machine.
	GPU    *GPUs
	Beside func(node int, argv []string) []string
	// Node names the nodes of the allocation, for the record.
	Nodes []string
	// Log, when set, gets a line for every step.
	Log func(string)
}

// life is one point on its way through a Launch.
type life struct {
	*Launch
	recipe *engine.Recipe
	d      *engine.Deployment
	g      *group
	dir    string // of its files
	// start is how its cache was emptied and what showed that; nil while nobody looked.
	start *record.CacheStart
	// told is what the engines told of themselves once they served; nil before.
	told []record.Fact
	// salt keeps its prompts apart from those of other points on the same server; empty for a
	// point that has the server to itself.
	salt string
	// before is what Check saw.
	before []*plan.Report
	from   map[string]int64 // lengths of the server's logs when the point began, where it shares one
}

// Defaults of recipes that set no times.
const (
	startWait  = 30 * time.Minute
	drainWait  = 2 * time.Minute
	stopWait   = time.Minute
	silentWait = 10 * time.Minute
	// deathWait is how long a dying process may take to be seen as dead, behind a scheduler's step.
	deathWait = 5 * time.Second
	// lookAfter bounds the look at all nodes after a stop.
	lookAfter = 10 * time.Minute
	// floorSpeed is the slowest prefill, tokens per second, of an engine that is worth starting.
	floorSpeed = 4000
)

// Local is a Launch on this machine: free ports, loopback addresses.
func Local(weir, scratch string) *Launch {
	l := &Launch{Scratch: scratch, ObservedGPUs: record.Unknown,
		Place: engine.Place{Addr: func(int) string { return "127.0.0.1" }, Port: FreePort(), Weir: weir}}
	l.Check, l.After = l.checkHere, l.afterHere
	return l
}

// Contained is a Launch on this machine in containers of docker or podman.
func Contained(weir, scratch, runtime string, c *spec.Container) *Launch {
	l, box := Local(weir, scratch), &Box{}
	l.Wrap = func(p *engine.Process, argv []string) []string { return box.Command(p, argv) }
	l.Clean = func(p *engine.Process) (remove, list []string) { return box.Clean(p) }
	l.Check = func(ctx context.Context, j *Job, d *engine.Deployment) ([]*plan.Report, error) {
		*box = *NewBox(c, runtime, j, d, newToken())
		box.CPUs = l.Cores.on(0)
		if script := box.Resolve(); script != "" {
			var out bytes.Buffer
			err := runInto(exec.Command("bash", "-c", script), &out, resolveLimit)
			box.resolved(out.String(), err, "this machine", l.Log)
		}
		l.Digest = box.Digest
		return l.checkHere(ctx, j, d)
	}
	return l
}

// checkHere is the pre-flight of this machine. Of a simulated engine it asks for ports and a
// little room.
func (l *Launch) checkHere(ctx context.Context, j *Job, d *engine.Deployment) ([]*plan.Report, error) {
	if err := j.CheckArguments(ctx, d, l.Wrap == nil); err != nil {
		return nil, failf("config", "%v", err)
	}
	q := plan.Request{Simulated: d.Simulated, Conc: j.Point.Conc}
	for _, p := range d.Processes {
		q.Ports = append(q.Ports, p.Ports...)
	}
	if d.Simulated {
		q.DiskBytes, q.ShmBytes = 50_000_000, 10_000_000
	} else if d.Engine != "external" {
		var err1, err2 error
		q.Point, err1 = j.Recipe.Planned(j.Point)
		q.Options, err2 = j.PlanOptions()
		q.NoGPUs = j.Recipe.Device == "cpu"
		if err := errors.Join(err1, err2); err != nil {
			return nil, failf("config", "%v", err)
		}
	}
	rep, err := plan.Preflight(ctx, q)
	if err != nil {
		return nil, failf("config", "%v", err)
	}
	return []*plan.Report{rep}, refusedBy(rep)
}

// keepReports puts what pre-flights saw among the logs, a file a node.
func keepReports(logs string, reps []*plan.Report) error {
	for i, rep := range reps {
		raw, err := json.MarshalIndent(rep, "", "  ")
		if err != nil {
			return err
		}
		name := fmt.Sprintf("preflight-%d-%s.json", i, imageFile(rep.Node.Host))
		if err := os.WriteFile(filepath.Join(logs, name), append(raw, '\n'), 0o666); err != nil {
			return err
		}
	}
	return nil
}

// refusedBy is the failure of a node that does not pass its pre-flight.
func refusedBy(rep *plan.Report) error {
	for _, c := range rep.Checks {
		if c.Level != plan.Refuse {
			continue
		}
		if c.Name == "clock" && !rep.Node.Clock.OK {
			continue // the way back to the client may be closed; what matters is a clock that is off
		}
		class := "node"
		if c.Name == "memory" || c.Name == "plan" {
			class = "capacity"
		}
		return failf(class, "pre-flight of %s: %s: %s; %s", rep.Node.Host, c.Name, c.Seen, c.Change)
	}
	return nil
}

// Name is "local".
func (*Launch) Name() string { return "local" }

func (l *Launch) say(format string, a ...any) {
	if l.Log != nil {
		l.Log(fmt.Sprintf(format, a...))
	}
}

// Measure implements Executor.
func (l *Launch) Measure(ctx context.Context, j *Job, w *record.BundleWriter) (err error) {
	if err := (&HTTP{Client: l.Client}).Fits(j); err != nil { // before anything is started
		return refuse(err)
	}
	p, err := l.life(j, filepath.Join(w.Dir(), record.LogsDir))
	if err != nil {
		return err
	}
	if err := p.describe(j, w); err != nil {
		return err
	}
	defer func() {
		if stopErr := p.down(); stopErr != nil && err == nil {
			err = stopErr
		}
	}()
	err = p.up(ctx, j)
	if err == nil {
		err = p.empty(ctx)
	}
	if err == nil {
		p.listen(ctx)
		err = p.drive(ctx, j, w)
	}
	return cmp.Or(ctx.Err(), err)
}

// life begins the life of a point: its processes are known and none runs. Their output goes to
// files in the folder logs.
func (l *Launch) life(j *Job, logs string) (*life, error) {
	if j.Recipe == nil {
		return nil, failf("config", "%s has no recipe to start an engine with", j.Point.Key)
	}
	q, err := j.Recipe.Planned(j.Point)
	if err != nil {
		return nil, failf("config", "%v", err)
	}
	if l.ClientCPUs > 0 && l.Cores == nil {
		if l.Cores, err = OwnCores(l.ClientCPUs); err != nil {
			return nil, failf("config", "%v", err)
		}
	}
	p := &life{Launch: l, recipe: j.Recipe, dir: filepath.Join(l.Scratch, filepath.Base(BundleDir("", j)))}
	if p.d, err = engine.Build(q, j.Verdict, j.Recipe, l.Place); err != nil {
		return nil, failf("config", "%v", err)
	}
	if err := Reap(filepath.Dir(p.dir), filepath.Base(p.dir)); err != nil {
		return nil, failf("node", "%v", err)
	}
	if err := os.MkdirAll(p.dir, 0o777); err != nil {
		return nil, failf("node", "%v", err)
	}
	p.g = newGroup(p.dir, logs, l.Wrap)
	p.g.clean = l.Clean
	if l.Wrap == nil {
		p.g.pin = l.Cores.pin
	}
	return p, nil
}

// describe writes what is known of the job and of what runs for it into the bundle.
func (l *life) describe(j *Job, w *record.BundleWriter) error {
	m, err := j.meta()
	if err != nil {
		return err
	}
	l.edit(m)
	return w.WriteMeta(m)
}

// up looks at the nodes, starts everything and waits until it serves.
func (l *life) up(ctx context.Context, j *Job) error {
	if l.Check != nil {
		reps, err := l.Check(ctx, j, l.d)
		l.before = reps
		if err := errors.Join(keepReports(l.g.logs, reps), err); err != nil {
			return err
		}
	}
	start, cancel := context.WithTimeout(ctx, j.Recipe.Ready.Start.Or(startWait))
	defer cancel()
	return l.bringUp(start)
}

// down stops everything and says what is left of it.
func (l *life) down() error {
	err := l.g.stop(l.recipe.Ready.Stop.Or(stopWait))
	if err == nil && len(l.g.procs) > 0 {
		err = l.portsFree(l.d)
	}
	if l.After != nil && len(l.g.procs) > 0 {
		ctx, cancel := context.WithTimeout(context.Background(), lookAfter)
		err = errors.Join(err, l.After(ctx, l.d, l.before, l.g.mark))
		cancel()
	}
	os.RemoveAll(l.dir)
	l.say("stopped")
	if err != nil {
		return failf("node", "not clean after the stop: %v", err)
	}
	return nil
}

// drive replays against the servers and ends at once when one of their processes does.
func (l *life) drive(ctx context.Context, j *Job, w *record.BundleWriter) error {
	var stalled string
	d, g := l.d, l.g
	cfg := l.Client
	cfg.URLs = d.URLs
	cfg.SessionHeaders = append(slices.Clone(cfg.SessionHeaders), d.SessionHeaders...)
	h := &HTTP{
		Client: cfg, Words: l.Words, ObservedGPUs: l.ObservedGPUs, SaltKey: l.salt, Scrape: l.metrics(), Told: l.told, GPU: l.gpus(), Calibrator: l.calibrator(j),
		Prompt:   prompt.Options{Models: []string{d.Model}, IgnoreEOS: true, Salt: prompt.FirstTurnPrefix},
		Watchdog: replay.Watchdog{MinSilenceNs: int64(l.recipe.Ready.Silent.Or(silentWait)), Factor: 1, FloorSpeed: floorSpeed},
		Edit: func(m *record.Meta) {
			l.edit(m)
			stalled = m.Stalled
		},
	}
	if h.GPU != nil {
		h.Watch = l.watches()
	}
	if h.ObservedGPUs == record.Unknown && d.Simulated {
		h.ObservedGPUs = int64(d.GPUs)
	}
	run, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-g.died:
			cancel()
		case <-run.Done():
		}
	}()
	l.say("replaying")
	err := h.Measure(run, j, w)
	gone := err
	if gone == nil && stalled == "" && run.Err() == nil {
		gone = l.answers(ctx)
	}
	if gone != nil && ctx.Err() == nil {
		// A server that does not answer may be one whose process is just ending.
		t := time.NewTimer(deathWait)
		defer t.Stop()
		select {
		case <-g.died:
		case <-t.C:
		}
	}
	select {
	case <-g.died:
		x, how := g.dead()
		return failf(deathClass(x, "crash"), "%s", how)
	default:
	}
	var f *Failure
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &f) && f.Class == "start":
		return failf("crash", "%s", f.Reason) // it had served before
	case err != nil:
		return err
	case stalled != "":
		return failf("stall", "%s", stalled)
	case gone != nil:
		return failf("crash", "the server answers no more: %v", gone)
	}
	return nil
}

// calibrator measures the client's own error; nil where the path of this program is not known.
func (l *life) calibrator(j *Job) *client.Calibrator {
	if l.Place.Weir == "" {
		return nil
	}
	return client.HostCalibrator(l.Place.Weir, time.Duration(j.Point.DurationNs))
}

// answers says whether the servers still generate after the load.
func (l *life) answers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	for _, u := range l.d.URLs {
		if _, err := l.canary(ctx, u); err != nil {
			return err
		}
	}
	return nil
}

// edit adds what was started to the meta.
func (l *life) edit(m *record.Meta) {
	d := l.d
	m.Processes = nil
	for _, p := range d.Processes {
		x := record.Process{Name: p.Name, Role: p.Role, Host: l.node(p.Node), Argv: p.Argv, Env: map[string]string{}, Metrics: p.Metrics}
		x.CPUs = l.Cores.on(p.Node)
		for _, v := range p.Env {
			x.Env[v.Name] = v.Value
		}
		m.Processes = append(m.Processes, x)
	}
	if raw, err := json.Marshal(l.recipe); err == nil {
		m.Recipe = raw
	}
	m.Fleet = l.Fleet
	if l.Cores != nil {
		m.ClientCPUs = l.Cores.Client
	}
	if m.CacheStart = l.start; l.start != nil {
		m.CacheClean = l.start.Clean
	}
	if m.Engine.Name == "" || d.Simulated {
		m.Engine.Name = d.Engine
	}
	if d.Simulated {
		m.Simulated = true
		m.Engine.Version = m.Weir
	}
	m.Engine.Image, m.Engine.Digest = d.Image, l.Digest
	if l.told != nil {
		m.Told = l.told
	}
}

func (l *Launch) node(i int) string {
	if i < len(l.Nodes) {
		return l.Nodes[i]
	}
	return ""
}

// bringUp starts the roles in order, waits for each stage, and ends when a whole generation
// comes back from the endpoints that the load will go to. All that time it watches every process.
func (l *life) bringUp(ctx context.Context) error {
	d, g := l.d, l.g
	last := 0
	for _, p := range d.Processes {
		last = max(last, p.Stage)
	}
	for stage := 0; stage <= last; stage++ {
		for _, p := range d.Processes {
			if p.Stage != stage || len(p.Argv) == 0 {
				continue
			}
			l.say("starting %s", p.Name)
			if err := g.start(p); err != nil {
				return failf("start", "%v", err)
			}
		}
		for _, p := range d.Processes {
			if p.Stage != stage || p.URL == "" || p.Health == "" {
				continue
			}
			if err := l.until(ctx, p.Name, func(ctx context.Context) error { return healthy(ctx, p.URL+p.Health) }); err != nil {
				return err
			}
		}
	}
	for _, u := range d.URLs {
		if err := l.until(ctx, "the canary at "+u, func(ctx context.Context) error {
			_, err := l.canary(ctx, u)
			return err
		}); err != nil {
			return err
		}
	}
	l.say("serving")
	return nil
}

// until asks again until it succeeds, a process dies, or the time for the start is over.
func (l *life) until(ctx context.Context, what string, ask func(context.Context) error) error {
	var last error
	for pause := 20 * time.Millisecond; ; pause = min(pause*3/2, time.Second) {
		one, cancel := context.WithTimeout(ctx, probeTimeout)
		err := ask(one)
		cancel()
		if err == nil {
			return nil
		}
		if ctx.Err() == nil || last == nil {
			last = err
		}
		select {
		case <-l.g.died:
			x, how := l.g.dead()
			return failf(deathClass(x, "start"), "%s", how)
		case <-ctx.Done():
			return failf("start", "%s does not serve after %v: %v", what, l.recipe.Ready.Start.Or(startWait), last)
		case <-time.After(pause):
		}
	}
}

var plain = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

func healthy(ctx context.Context, url string) error {
	status, _, err := send(ctx, http.MethodGet, url, nil, nil)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("%s answers %d", url, status)
	}
	return err
}

// send makes one small request.
func send(ctx context.Context, method, url string, body []byte, header http.Header) (int, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	maps.Copy(req.Header, header)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := plain.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	return resp.StatusCode, raw, err
}

// portsFree says whether every port of the deployment on this machine can be taken again.
func (l *Launch) portsFree(d *engine.Deployment) error {
	if l.Elsewhere {
		return nil // the nodes are not this machine; the scheduler ends what is left with the job
	}
	var errs []error
	for _, p := range d.Processes {
		for _, port := range p.Ports {
			if c, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", port), time.Second); err == nil {
				c.Close()
				errs = append(errs, fmt.Errorf("port %d of %s is still served", port, p.Name))
			}
		}
	}
	return errors.Join(errs...)
}

// FreePort picks ports that nobody listens on, outside the range that outgoing connections
// take, never the same twice.
func FreePort() func(node, usual int) int {
	var mu sync.Mutex
	given := map[int]bool{}
	return func(_, usual int) int {
		mu.Lock()
		defer mu.Unlock()
		for range 1000 {
			p := 12000 + rand.IntN(20000)
			if given[p] {
				continue
			}
			l, err := net.Listen("tcp", fmt.Sprintf(":%d", p))
			if err != nil {
				continue
			}
			l.Close()
			given[p] = true
			return p
		}
		return usual
	}
}
