package run

import (
	"context"
	"errors"
	"net"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/weirbench/weir/internal/engine"
	"github.com/weirbench/weir/internal/record"
	"github.com/weirbench/weir/internal/replay"
	"github.com/weirbench/weir/internal/scrape/gpu"
)

// GPUs say how the devices of an engine's nodes are read while a point runs.
type GPUs struct {
	// Tool is "auto" (what is on PATH where the engine runs), "none", the name of a command or its path.
	Tool    string        `json:"tool"`
	Every   time.Duration `json:"every_ns"`
	Devices []string      `json:"devices,omitempty"` // numbers of those that are read; none reads all
	// Exporters are URLs of DCGM's or AMD's exporter, scraped with the engines' metrics.
	Exporters []string `json:"exporters,omitempty"`
}

// deviceReader reads devices beside the load.
type deviceReader interface {
	Start()
	Stop(ctx context.Context) (gpu.Report, error)
}

// sampleWriter lets several sources write samples, one at a time.
type sampleWriter struct {
	mu sync.Mutex
	w  *record.BundleWriter
}

func (s *sampleWriter) write(x *record.Sample) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.w.WriteSample(x)
}

// devices are the readers of the GPUs that the run watches; none where it watches none, and none
// beside a simulated engine unless a command is named.
func (h *HTTP) devices(simulated bool, clock replay.Clock, write func(*record.Sample) error) ([]deviceReader, error) {
	if h.GPU == nil || simulated && h.GPU.Tool == "auto" {
		return nil, nil
	}
	o := gpu.Options{Devices: h.GPU.Devices, Every: h.GPU.Every, Now: clock.Now, Write: write}
	var out []deviceReader
	if h.Watch != nil {
		for _, w := range h.Watch {
			o.Source = "gpu:" + w.Host
			out = append(out, gpu.NewFollower(w.Argv, o))
		}
		return out, nil
	}
	tools, err := gpu.Find(h.GPU.Tool)
	if err != nil {
		return nil, failf("config", "%v", err)
	}
	for _, t := range tools {
		o.Tool = t
		r, err := gpu.NewReader(o)
		if err != nil {
			return nil, failf("config", "%v", err)
		}
		out = append(out, r)
	}
	return out, nil
}

// stopReaders ends readers, each after a last reading.
func stopReaders(ctx context.Context, list []deviceReader) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finalScrape)
	defer cancel()
	errs := make([]error, len(list))
	var wg sync.WaitGroup
	for i, r := range list {
		wg.Go(func() { _, errs[i] = r.Stop(ctx) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// A Watch is a command that reads the devices of a host and prints what it read; see gpu.Line.
type Watch struct {
	Host string
	Argv []string
}

// watches are the commands that read the nodes of a deployment from beside its engines.
func (l *life) watches() []Watch {
	if l.Beside == nil {
		return nil
	}
	out := []Watch{}
	seen := map[int]bool{}
	for _, p := range l.d.Processes {
		if p.GPUs == 0 || seen[p.Node] {
			continue
		}
		seen[p.Node] = true
		argv := []string{l.Place.Weir, "gpu", "--json", "--gpu", l.GPU.Tool, "--every", l.GPU.Every.String()}
		if len(l.GPU.Devices) > 0 {
			argv = append(argv, "--devices", strings.Join(l.GPU.Devices, ","))
		}
		out = append(out, Watch{l.node(p.Node), l.Beside(p.Node, argv)})
	}
	return out
}

// gpus say how the devices of a deployment are read: not at all under the simulated engine, unless
// a command is named; and only those that its processes were given by their number.
func (l *life) gpus() *GPUs {
	if l.GPU == nil || l.GPU.Tool == "none" || l.d.Simulated && l.GPU.Tool == "auto" {
		return nil
	}
	g := *l.GPU
	if len(g.Devices) == 0 && l.Beside == nil {
		g.Devices = named(l.d)
	}
	return &g
}

// named are the devices that the processes of a deployment were given, none when one of them may
// use all of its node.
func named(d *engine.Deployment) []string {
	var out []string
	for _, p := range d.Processes {
		if p.GPUs == 0 {
			continue
		}
		own := ""
		for _, v := range p.Env {
			if strings.HasSuffix(v.Name, "_VISIBLE_DEVICES") {
				own = v.Value
			}
		}
		if own == "" {
			return nil
		}
		out = append(out, strings.Split(own, ",")...)
	}
	return out
}

// Here tells whether all base URLs are of this machine, so that its devices are the server's.
func Here(urls []string) bool {
	for _, raw := range urls {
		u, err := url.Parse(raw)
		if err != nil || !hereHost(u.Hostname()) {
			return false
		}
	}
	return len(urls) > 0
}

func hereHost(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	if ip == nil {
		return false
	}
	if ip.IsLoopback() {
		return true
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return false
	}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && n.IP.Equal(ip) {
			return true
		}
	}
	return false
}

// beside runs a command of this program on a node, outside of any container.
func (js *JobSpec) beside(node, het, name string, argv []string) []string {
	return append(js.srun(node, het, name), argv...)
}
