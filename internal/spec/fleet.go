package spec

import (
	"fmt"
	"slices"
	"strings"
)

// A Fleet says how things run on each cluster.
type Fleet struct {
	File     string              `json:"file"`
	Clusters map[string]*Cluster `json:"clusters"` // by label of runners.yaml
}

// A Cluster is how points are run under one label.
type Cluster struct {
	Origin    Pos       `json:"origin"`
	Scheduler string    `json:"scheduler"` // local, docker, podman or slurm
	Slurm     *Slurm    `json:"slurm,omitempty"`
	Container Container `json:"container"`
	// Models are folders of model weights by the name of the model.
	Models map[string]string `json:"models,omitempty"`
	Env    []Setting         `json:"env,omitempty"`
	Node   NodeFacts         `json:"node"`
	// ClientCPUs is how many CPUs of its node the load generator has for itself, at least 1; 0 for none.
	ClientCPUs int `json:"client-cpus,omitempty"`
}

// Slurm is how a job is submitted.
type Slurm struct {
	Partition   string      `json:"partition,omitempty"`
	Account     string      `json:"account,omitempty"`
	QOS         string      `json:"qos,omitempty"`
	Constraint  string      `json:"constraint,omitempty"`
	GRES        string      `json:"gres,omitempty"`
	TimeNs      int64       `json:"time-ns,omitempty"`
	Exclusive   bool        `json:"exclusive"`
	CPUsPerTask int         `json:"cpus-per-task,omitempty"`
	Nodes       []string    `json:"nodes,omitempty"` // to choose from; empty is all
	Only        []Exclusion `json:"only,omitempty"`  // nodes to choose from for points of an engine or model
	Exclude     []Exclusion `json:"exclude,omitempty"`
	// Client is where the load generator runs: "shared" on the first node, or "own-node".
	Client string `json:"client"`
}

// An Exclusion is a rule about nodes for points of an engine or model; both empty mean all. As
// part of Exclude it keeps the nodes from them, as part of Only it keeps them on the nodes.
type Exclusion struct {
	Nodes     []string `json:"nodes"`
	Framework string   `json:"framework,omitempty"`
	Model     string   `json:"model-prefix,omitempty"`
	Reason    string   `json:"reason"`
}

func (e *Exclusion) meets(p *Point) bool {
	return (e.Framework == "" || e.Framework == p.Framework) && (e.Model == "" || e.Model == p.ModelPrefix)
}

// NodesFor are the nodes that a point does not get, and those that it has to choose from; nil
// when it may have all others.
func (s *Slurm) NodesFor(p *Point) (without, only []string) {
	for _, e := range s.Exclude {
		if e.meets(p) {
			without = append(without, e.Nodes...)
		}
	}
	only = slices.Clone(s.Nodes)
	for _, e := range s.Only {
		switch {
		case !e.meets(p):
		case only == nil:
			only = slices.Clone(e.Nodes)
		default:
			only = slices.DeleteFunc(only, func(n string) bool { return !slices.Contains(e.Nodes, n) })
		}
	}
	return without, only
}

// Container is what runs an image.
type Container struct {
	Runtime string   `json:"runtime"` // pyxis, enroot, apptainer, docker, podman or none
	Mounts  []string `json:"mounts,omitempty"`
	Cache   string   `json:"cache,omitempty"` // folder of imported images
	// Renew, when set by the run, is the time before which imports are too old, seconds since 1970.
	Renew int64 `json:"renew,omitempty"`
}

// NodeFacts are facts of the nodes that runners.yaml does not have; 0 or "" is unknown.
type NodeFacts struct {
	GPU         string `json:"gpu,omitempty"` // as in Weir's facts
	GPUsPerNode int    `json:"gpus-per-node,omitempty"`
	DRAMBytes   int64  `json:"dram-bytes,omitempty"`
	Shm         string `json:"shm,omitempty"` // folder of shared memory that engines use; "" is /dev/shm
}

var (
	schedulers  = []string{"local", "docker", "podman", "slurm"}
	runtimes    = []string{"none", "pyxis", "enroot", "apptainer", "docker", "podman"}
	clients     = []string{"shared", "own-node"}
	clusterKeys = []string{"scheduler", "slurm", "container", "models", "env", "node", "client-cpus"}
	slurmKeys   = []string{"partition", "account", "qos", "constraint", "gres", "time-s", "exclusive", "cpus-per-task", "nodes", "only", "exclude", "client"}
	excludeKeys = []string{"nodes", "framework", "model-prefix", "reason"}
	boxKeys     = []string{"runtime", "mounts", "cache"}
	nodeKeys    = []string{"gpu", "gpus-per-node", "dram-mib", "shm"}
)

// LoadFleet reads fleet.yaml. The error is Problems.
func LoadFleet(file string) (*Fleet, error) {
	data, err := readFile(file)
	if err != nil {
		return nil, Problems{{At: Pos{File: file}, What: err.Error(), Fix: "name a file that can be read"}}
	}
	f, problems := parseFleet(file, data)
	if len(problems) > 0 {
		return nil, problems.sorted([]string{file})
	}
	return f, nil
}

func parseFleet(file string, data []byte) (*Fleet, Problems) {
	src := &source{file: file}
	f := &Fleet{File: file, Clusters: map[string]*Cluster{}}
	if top := src.parse(data); top != nil {
		o := top.object([]string{"clusters"})
		if v := o.need("clusters", "{ cluster:b300-nv: { scheduler: slurm } }"); v != nil {
			for _, p := range v.object(nil).pairs {
				f.Clusters[p.key] = readCluster(p)
			}
		}
	}
	return f, src.problems
}

func readCluster(n *node) *Cluster {
	c := &Cluster{Origin: n.keyPos(), Container: Container{Runtime: "none"}}
	o := n.object(clusterKeys)
	if v := o.need("scheduler", "slurm"); v != nil {
		c.Scheduler = v.oneOf(schedulers...).V
	}
	if v := o.get("slurm"); v != nil {
		c.Slurm = readSlurm(v)
		if c.Scheduler != "" && c.Scheduler != "slurm" {
			v.fail("slurm has no effect with scheduler: "+c.Scheduler, "remove it or set scheduler: slurm")
		}
	} else if c.Scheduler == "slurm" {
		c.Slurm = &Slurm{Exclusive: true, Client: "shared"}
	}
	if v := o.get("container"); v != nil {
		bo := v.object(boxKeys)
		if r := bo.need("runtime", "pyxis"); r != nil {
			c.Container.Runtime = r.oneOf(runtimes...).V
		}
		if m := bo.get("mounts"); m != nil {
			for _, it := range m.items() {
				s := it.str().V
				if parts := strings.Split(s, ":"); s != "" && (len(parts) < 2 || len(parts) > 3 || parts[0] == "" || parts[1] == "") {
					it.fail(it.text()+" is not HOST:CONTAINER or HOST:CONTAINER:ro", "write it so")
				}
				c.Container.Mounts = append(c.Container.Mounts, s)
			}
		}
		if m := bo.get("cache"); m != nil {
			c.Container.Cache = m.str().V
		}
	}
	if v := o.get("client-cpus"); v != nil {
		c.ClientCPUs = o.optInt("client-cpus").V
		if c.Slurm != nil && c.Slurm.Client == "own-node" {
			v.fail("client-cpus has no effect with client: own-node, where the load generator has all CPUs", "remove one of them")
		}
	}
	if v := o.get("models"); v != nil {
		c.Models = map[string]string{}
		for _, p := range v.object(nil).pairs {
			c.Models[p.key] = p.str().V
		}
	}
	if v := o.get("env"); v != nil {
		c.Env = readSettings(v)
	}
	if v := o.get("node"); v != nil {
		no := v.object(nodeKeys)
		if g := no.get("gpu"); g != nil {
			c.Node.GPU = g.str().V
		}
		if d := no.get("shm"); d != nil {
			c.Node.Shm = d.str().V
		}
		c.Node.GPUsPerNode = no.optInt("gpus-per-node").V
		if d := no.get("dram-mib"); d != nil {
			if mib, ok := d.int64(1, 1<<40); ok {
				c.Node.DRAMBytes = mib << 20
			}
		}
	}
	return c
}

func readSlurm(n *node) *Slurm {
	s := &Slurm{Exclusive: true, Client: "shared"}
	o := n.object(slurmKeys)
	for key, to := range map[string]*string{"partition": &s.Partition, "account": &s.Account, "qos": &s.QOS,
		"constraint": &s.Constraint, "gres": &s.GRES} {
		if v := o.get(key); v != nil {
			*to = v.str().V
		}
	}
	if v := o.get("time-s"); v != nil {
		s.TimeNs = v.scaled(1e9, 1<<53).V
	}
	if v := o.get("exclusive"); v != nil {
		s.Exclusive = v.boolean().V
	}
	s.CPUsPerTask = o.optInt("cpus-per-task").V
	if v := o.get("nodes"); v != nil {
		for _, it := range v.items() {
			s.Nodes = append(s.Nodes, it.str().V)
		}
	}
	for key, to := range map[string]*[]Exclusion{"exclude": &s.Exclude, "only": &s.Only} {
		if v := o.get(key); v != nil {
			for _, it := range v.items() {
				*to = append(*to, readExclusion(it))
			}
		}
	}
	if v := o.get("client"); v != nil {
		s.Client = v.oneOf(clients...).V
	}
	return s
}

func readExclusion(n *node) Exclusion {
	var e Exclusion
	o := n.object(excludeKeys)
	if v := o.need("nodes", "[node-07]"); v != nil {
		for _, it := range v.items() {
			e.Nodes = append(e.Nodes, it.str().V)
		}
	}
	if v := o.get("framework"); v != nil {
		e.Framework = v.str().V
	}
	if v := o.get("model-prefix"); v != nil {
		e.Model = v.str().V
	}
	if v := o.need("reason", `"RDMA errors, see ticket 12"`); v != nil {
		e.Reason = v.str().V
	}
	return e
}

// Cluster finds the cluster of a runner label.
func (f *Fleet) Cluster(label string) (*Cluster, error) {
	if c := f.Clusters[label]; c != nil {
		return c, nil
	}
	msg := fmt.Sprintf("%s has no cluster %q", f.File, label)
	if near := nearest(label, sortedKeys(f.Clusters)); near != "" {
		return nil, fmt.Errorf("%s; did you mean %s?", msg, near)
	}
	return nil, fmt.Errorf("%s; it has %s", msg, strings.Join(sortedKeys(f.Clusters), ", "))
}

func strMap(about string) schema {
	return schema{"type": "object", "additionalProperties": text("value"), "description": about}
}

func fleetSchema() schema {
	env := schema{"type": "object", "propertyNames": schema{"pattern": "^[A-Za-z_][A-Za-z0-9_]*$"},
		"additionalProperties": schema{"type": []string{"string", "number", "boolean", "null"}}, "description": "variables of every process"}
	rule := func(about string) schema {
		return objectSchema(about, map[string]schema{
			"nodes": list(text("node"), "nodes"), "framework": text("for this framework only"),
			"model-prefix": text("for this model only"), "reason": text("why")}, "nodes", "reason")
	}
	slurm := objectSchema("how a job is submitted", map[string]schema{
		"partition": text("partition"), "account": text("account"), "qos": text("quality of service"),
		"constraint": text("features of the nodes"), "gres": text("generic resources"), "time-s": above0("time limit, seconds"),
		"exclusive": flagSchema("whole nodes, the default"), "cpus-per-task": whole("CPUs of a step", 1),
		"nodes":   list(text("node"), "nodes to choose from"),
		"only":    list(rule("nodes that some points are kept on"), "nodes to choose from by engine and model"),
		"exclude": list(rule("nodes that some points do not get"), "exclusions"),
		"client":  enum("where the load generator runs", clients...),
	})
	cluster := objectSchema("how points are run under a label of runners.yaml", map[string]schema{
		"scheduler": enum("what starts processes", schedulers...), "slurm": slurm,
		"container": objectSchema("what runs an image", map[string]schema{"runtime": enum("container runtime", runtimes...),
			"mounts": list(schema{"type": "string", "pattern": "^[^:]+:[^:]+(:[^:]*)?$"}, "HOST:CONTAINER, or with :ro"),
			"cache":  text("folder of imported images")}, "runtime"),
		"client-cpus": whole("CPUs of its node that the load generator has for itself", 1),
		"models":      strMap("folders of model weights by the name of the model"), "env": env,
		"node": objectSchema("facts that runners.yaml does not have", map[string]schema{"gpu": text("GPU as in Weir's facts"),
			"gpus-per-node": whole("GPUs of a node", 1), "dram-mib": whole("host memory of a node, MiB", 1), "shm": text("folder of shared memory, /dev/shm if not given")}),
	}, "scheduler")
	s := objectSchema("", map[string]schema{"clusters": {"type": "object", "additionalProperties": cluster}}, "clusters")
	s["title"] = "fleet.yaml of Weir"
	return s
}
