// Package engine says what differs per engine: which processes a point and its recipe become,
// with their arguments, environment, ports and order, how they show that they serve, and how
// their cache is emptied.
//
// A Recipe is how a config is started; it is read strictly. An adapter turns a point, its plan
// and its recipe into a Deployment and says which fields of the point it consumed. A field that
// has a value and no consumer, an argument that both point and recipe give, and an argument
// that a recipe writes past the plan are errors, never defaults. Nothing here starts a process,
// reads a clock or opens a connection.
package engine

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weirbench/weir/internal/facts"
	"github.com/weirbench/weir/internal/plan"
	"github.com/weirbench/weir/internal/spec"
)

// A Process is one process of a deployment.
type Process struct {
	Name string // unique in the deployment: "prefill-0", "router", "decode-0.1" for a worker's second node
	Role string // "unified", "prefill", "decode", "router", "infra" or "external"
	Node int    // index in the allocation, from 0
	GPUs int    // that it uses on its node
	Argv []string
	// Program is how many words of Argv are the program itself; 0 where its help is not read.
	Program int
	Env     []Var // in order, without secrets
	// Files are small files that it reads, by the name under which its arguments refer to them.
	Files map[string]string
	Ports []int // TCP ports on its node that must be free before and after
	// Stage is its place in the order of the start: all of one stage serve before the next begins.
	Stage int
	// URL is where it serves HTTP; empty where it does not. Health is the path that answers 200
	// when it can be asked; empty leaves that to the canary.
	URL    string
	Health string
	// Flush are requests that empty its cache, in order; none where it keeps none.
	Flush []Call
	// Metrics are the URLs of its metrics; none where there are none.
	Metrics []string
	// Dir is its working folder on its node, where its Files are; set when it is started.
	Dir  string
	Stop []string // a command that stops what it started elsewhere; empty for a plain process
}

// A Call is a request that controls an engine.
type Call struct {
	Method, Path string
	// Contains is what the body of a successful answer holds; empty asks for status 200 alone.
	Contains string
	// Optional calls may be unknown to the server (404 or 400).
	Optional bool
}

// A Var is one variable of an environment.
type Var struct{ Name, Value string }

// A Deployment is all that runs for a point beside the client.
type Deployment struct {
	Engine    string
	Recipe    string
	Image     string
	Model     string // name that clients ask for
	Nodes     int    // that it spans
	Processes []Process
	// URLs take the load; SessionHeaders carry the conversation to a router that keeps sessions on
	// one worker.
	URLs           []string
	SessionHeaders []string
	// Require are the metric families, without _total, that one of the processes must publish before
	// the load begins; spellings of one are separated by a bar.
	Require   []string
	GPUs      int // that its processes use
	Simulated bool
}

// A Place says where processes run.
type Place struct {
	// Addr is how processes reach a node; nil names nodes $WEIR_NODE_0, $WEIR_NODE_1 and so on,
	// for scripts.
	Addr func(node int) string
	// Port picks a port on a node for a use whose usual number is given; nil takes the usual.
	Port func(node, usual int) int
	// Weir is the path of this program on the nodes, for the simulated engine; "weir" when empty.
	Weir string
	// Model is where the checkpoint lies on the nodes; the recipe's or the point's when empty.
	Model string
}

func (pl Place) addr(node int) string {
	if pl.Addr == nil {
		return fmt.Sprintf("$WEIR_NODE_%d", node)
	}
	return pl.Addr(node)
}

func (pl Place) port(node, usual int) int {
	if pl.Port == nil {
		return usual
	}
	return pl.Port(node, usual)
}

// An adapter builds the processes of one engine.
type adapter struct {
	name string
	// frameworks of master files that it serves; nil serves all.
	frameworks []string
	aliases    map[string]string // other spellings of arguments
	memory     map[string]string // arguments that the recipe writes as fields of its own
	flag       flagStyle
	build      func(*build) error
}

// adapters by the name that recipes use.
var adapters = map[string]*adapter{}

func register(a *adapter) *adapter { adapters[a.name] = a; return a }

// Names are the engines that recipes can name.
func Names() []string { return slices.Sorted(maps.Keys(adapters)) }

// Build turns a planned point and its recipe into processes.
func Build(p *spec.Point, v *plan.Verdict, r *Recipe, pl Place) (*Deployment, error) {
	return buildWith(p, v, r, pl, facts.Embedded())
}

func buildWith(p *spec.Point, v *plan.Verdict, r *Recipe, pl Place, set *facts.Set) (*Deployment, error) {
	a := adapters[r.Engine]
	if a == nil {
		return nil, fmt.Errorf("%s: engine %q is not known; known: %s", r.where(), r.Engine, strings.Join(Names(), ", "))
	}
	if a.frameworks != nil && !slices.Contains(a.frameworks, p.Framework) {
		return nil, fmt.Errorf("%s: recipe %s starts %s, but %s has framework %s; it serves %s", where(p), r.Name, r.Engine, p.Key, p.Framework, strings.Join(a.frameworks, ", "))
	}
	if err := r.checkVersion(p); err != nil {
		return nil, err
	}
	if v == nil || len(v.Roles) == 0 {
		return nil, fmt.Errorf("%s: %s has no plan", where(p), p.Key)
	}
	b := &build{a: a, p: p, v: v, r: r, pl: pl, fields: fieldsOf(p), set: set}
	b.d = &Deployment{Engine: r.Engine, Recipe: r.Name, Image: p.Image, Model: p.Model}
	b.layout()
	if err := a.build(b); err != nil {
		return nil, err
	}
	if err := errors.Join(b.errs...); err != nil {
		return nil, err
	}
	if err := b.unconsumed(); err != nil {
		return nil, err
	}
	b.require()
	for i := range b.d.Processes {
		b.d.GPUs += b.d.Processes[i].GPUs
	}
	return b.d, nil
}

func where(p *spec.Point) string {
	if p.Origin.File == "" {
		return p.Key
	}
	return fmt.Sprintf("%s:%d", p.Origin.File, p.Origin.Line)
}

// build is one deployment in the making.
type build struct {
	a      *adapter
	p      *spec.Point
	v      *plan.Verdict
	r      *Recipe
	pl     Place
	fields *fields
	d      *Deployment
	slots  []slot
	errs   []error
	bare   bool // a frontend of another kind stands before the workers
	set    *facts.Set
}

// A slot is one worker on one node.
type slot struct {
	role   *plan.Role
	worker int
	rank   int // node of the worker, from 0
	node   int // of the allocation
	place  int // workers before it on its node
}

// layout lays workers on nodes: roles after each other, each on nodes of its own, as many
// workers of one role on a node as fit.
func (b *build) layout() {
	node := 0
	for i := range b.v.Roles {
		r := &b.v.Roles[i]
		per := max(1, int(r.WorkersPerNode))
		for w := range r.Workers {
			if r.Nodes > 1 {
				for rank := range int(r.Nodes) {
					b.slots = append(b.slots, slot{r, w, rank, node + w*int(r.Nodes) + rank, 0})
				}
				continue
			}
			b.slots = append(b.slots, slot{r, w, 0, node + w/per, w % per})
		}
		if r.Nodes > 1 {
			node += r.Workers * int(r.Nodes)
		} else {
			node += (r.Workers + per - 1) / per
		}
	}
	b.d.Nodes = node
}

// parallel is how the workers of a role are spread.
func (b *build) parallel(role string) spec.Parallel {
	switch {
	case b.p.Unified != nil:
		return *b.p.Unified
	case role == "decode" && b.p.Decode != nil:
		return b.p.Decode.Parallel
	case b.p.Prefill != nil:
		return b.p.Prefill.Parallel
	}
	return spec.Parallel{}
}

// side is the part of the point that a role's fields are named after: "" for unified ones.
func (b *build) side(role string) string {
	switch {
	case b.p.Unified != nil:
		return ""
	case role == "decode":
		return "decode."
	}
	return "prefill."
}

// needsRouter says whether something has to choose between caches: several workers, or the ranks
// of data-parallel attention, which have one each; or the recipe wants one.
func (b *build) needsRouter(workers int) bool {
	if b.bare {
		return false
	}
	dp := slices.ContainsFunc(b.slots, func(s slot) bool { return s.role.AttnDP > 1 })
	return workers > 1 || dp && b.a.name != "vllm" || b.r.Router == "always"
}

func (b *build) fail(format string, a ...any) { b.errs = append(b.errs, fmt.Errorf(format, a...)) }

// name is the name of a worker's process.
func (s slot) name() string {
	n := fmt.Sprintf("%s-%d", s.role.Name, s.worker)
	if s.role.Nodes > 1 {
		n += fmt.Sprintf(".%d", s.rank)
	}
	return n
}

// head is the slot of the first node of a slot's worker.
func (b *build) head(s slot) slot {
	for _, t := range b.slots {
		if t.role == s.role && t.worker == s.worker && t.rank == 0 {
			return t
		}
	}
	return s
}

// gpuList names the devices of a worker that shares its node, empty for one that has it alone.
func (b *build) gpuList(s slot) string {
	if s.role.WorkersPerNode < 2 {
		return ""
	}
	var ids []string
	for i := range int(s.role.RanksPerNode) {
		ids = append(ids, fmt.Sprint(s.place*int(s.role.RanksPerNode)+i))
	}
	return strings.Join(ids, ",")
}
