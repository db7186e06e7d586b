package spec

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
)

// A Recipe says how an engine is started for the points of a config. It is read from one file of
// recipes/; another recipe can extend it.
type Recipe struct {
	Name    string `json:"name"`
	Origin  Pos    `json:"origin"`
	Extends string `json:"extends,omitempty"` // name of the recipe it builds on; resolved by LoadRecipes
	Engine  string `json:"engine"`            // sglang, vllm, dynamo, trtllm, atom, llm-d, sim or external
	Version string `json:"version,omitempty"`
	Image   string `json:"image,omitempty"` // of the container, empty for the image of the config

	Common RoleSettings            `json:"common"`
	Roles  map[string]RoleSettings `json:"roles,omitempty"` // by RoleNames
	When   []RecipeCase            `json:"when,omitempty"`  // in file order

	HostPool  HostPool  `json:"host-pool"`
	Readiness Readiness `json:"readiness"`
	Timeouts  Timeouts  `json:"timeouts"`
	// Endpoints are the addresses of an external engine, which starts by itself.
	Endpoints []string `json:"endpoints,omitempty"`
}

// RoleSettings are what a role is started with. Later settings stand before earlier ones: common,
// role, cases that match.
type RoleSettings struct {
	Command []string  `json:"command,omitempty"`
	Args    []Setting `json:"args,omitempty"` // in file order
	Env     []Setting `json:"env,omitempty"`
	Image   string    `json:"image,omitempty"`
}

// A Setting is an argument or a variable. An argument without a value is a switch; Drop removes
// what an extended recipe or a setting before gives.
type Setting struct {
	Name   string   `json:"name"` // without leading dashes
	Values []string `json:"values,omitempty"`
	Drop   bool     `json:"drop,omitempty"`
	At     Pos      `json:"at"`
}

// A RecipeCase applies to the points whose fields have one of the values.
type RecipeCase struct {
	If   map[string][]string `json:"if"`
	Role string              `json:"role,omitempty"` // empty is all roles
	RoleSettings
}

// HostPool says how the host tier is sized; all zero is auto: the largest pool that fits and is
// allowed.
type HostPool struct {
	RatioPPM     int64 `json:"ratio-ppm,omitempty"`
	BytesPerRank int64 `json:"bytes-per-rank,omitempty"`
}

// Readiness says when a server is up.
type Readiness struct {
	Path     string `json:"path,omitempty"` // answers 200 when it is
	Canary   bool   `json:"canary"`         // and then one token is generated end to end
	WithinNs int64  `json:"within-ns,omitempty"`
}

// Timeouts of the life of a point; 0 leaves them to the executor.
type Timeouts struct {
	StartNs int64 `json:"start-ns,omitempty"`
	DrainNs int64 `json:"drain-ns,omitempty"`
	StopNs  int64 `json:"stop-ns,omitempty"`
}

// RoleNames are the roles that a recipe can set.
var RoleNames = []string{"unified", "prefill", "decode", "router", "client"}

var (
	engineNames   = []string{"sglang", "vllm", "dynamo", "trtllm", "atom", "llm-d", "sim", "external"}
	recipeKeys    = []string{"name", "extends", "engine", "version", "image", "command", "args", "env", "roles", "when", "host-pool", "readiness", "timeouts", "endpoints"}
	roleKeys      = []string{"command", "args", "env", "image"}
	caseKeys      = []string{"if", "role", "command", "args", "env", "image"}
	readinessKeys = []string{"path", "canary", "within-s"}
	timeoutKeys   = []string{"start-s", "drain-s", "stop-s"}
	// caseFields are the fields of a point that a case can ask for.
	caseFields = []string{"scenario", "precision", "framework", "runner", "multinode", "disagg", "spec-decoding", "kv-offloading",
		"kv-offload-backend", "tp", "pp", "ep", "dcp-size", "pcp-size", "dp-attn", "conc", "model-prefix"}
)

// LoadRecipes reads recipe files, or all .yaml files of folders, and resolves what they extend. The
// error is Problems.
func LoadRecipes(paths ...string) (map[string]*Recipe, error) {
	out := map[string]*Recipe{}
	var files []string
	var problems Problems
	for _, p := range paths {
		found, err := walkFiles(p, ".yaml", ".yml")
		if err != nil {
			problems = append(problems, Problem{At: Pos{File: p}, What: "cannot be read: " + err.Error(), Fix: "name a file or folder that can be read"})
		}
		files = append(files, found...)
	}
	for _, f := range files {
		data, err := readFile(f)
		if err != nil {
			problems = append(problems, Problem{At: Pos{File: f}, What: err.Error(), Fix: "name a file that can be read"})
			continue
		}
		r, ps := parseRecipe(f, data)
		problems = append(problems, ps...)
		if r == nil || r.Name == "" {
			continue
		}
		if first := out[r.Name]; first != nil {
			problems = append(problems, Problem{At: r.Origin, Field: "name", What: "recipe " + r.Name + " is also in " + first.Origin.File, Fix: "rename one"})
			continue
		}
		out[r.Name] = r
	}
	for _, name := range sortedKeys(out) {
		if _, err := out[name].resolved(out, nil); err != nil {
			problems = append(problems, *err)
		}
	}
	if len(problems) > 0 {
		return nil, problems.sorted(files)
	}
	done := make(map[string]*Recipe, len(out))
	for name, r := range out {
		done[name], _ = r.resolved(out, nil)
	}
	return done, nil
}

// parseRecipe reads one recipe; its name is that of the file unless it gives one.
func parseRecipe(file string, data []byte) (*Recipe, Problems) {
	src := &source{file: file}
	top := src.parse(data)
	if top == nil {
		return nil, src.problems
	}
	r := &Recipe{Name: strings.TrimSuffix(filepath.Base(file), filepath.Ext(file)), Origin: top.pos(), Readiness: Readiness{Canary: true}}
	o := top.object(recipeKeys)
	str := func(key string, to *string) {
		if v := o.get(key); v != nil {
			*to = v.str().V
		}
	}
	str("name", &r.Name)
	str("extends", &r.Extends)
	str("version", &r.Version)
	if v := o.get("engine"); v != nil {
		r.Engine = v.oneOf(engineNames...).V
	} else if r.Extends == "" {
		o.need("engine", "sglang")
	}
	str("image", &r.Image)
	r.Common = readRoleSettings(o)
	r.Common.Image = "" // that of the recipe
	if v := o.get("roles"); v != nil {
		r.Roles = map[string]RoleSettings{}
		for _, p := range v.object(RoleNames).pairs {
			r.Roles[p.key] = readRoleSettings(p.object(roleKeys))
		}
	}
	if v := o.get("when"); v != nil {
		for _, it := range v.items() {
			r.When = append(r.When, readCase(it))
		}
	}
	readHostPool(o.get("host-pool"), &r.HostPool)
	seconds := func(o object, key string, to *int64) {
		if v := o.get(key); v != nil {
			*to = v.scaled(1e9, 1<<53).V
		}
	}
	if v := o.get("readiness"); v != nil {
		ro := v.object(readinessKeys)
		if p := ro.get("path"); p != nil {
			r.Readiness.Path = p.str().V
			if r.Readiness.Path != "" && r.Readiness.Path[0] != '/' {
				p.fail(p.text()+" does not begin with /", "write a path such as /health")
			}
		}
		if c := ro.get("canary"); c != nil {
			r.Readiness.Canary = c.boolean().V
		}
		seconds(ro, "within-s", &r.Readiness.WithinNs)
	}
	if v := o.get("timeouts"); v != nil {
		to := v.object(timeoutKeys)
		seconds(to, "start-s", &r.Timeouts.StartNs)
		seconds(to, "drain-s", &r.Timeouts.DrainNs)
		seconds(to, "stop-s", &r.Timeouts.StopNs)
	}
	if v := o.get("endpoints"); v != nil {
		for _, it := range v.items() {
			r.Endpoints = append(r.Endpoints, it.str().V)
		}
		if r.Engine != "external" && r.Extends == "" {
			v.fail("endpoints are those of an external engine, and the engine is "+r.Engine, "remove them or set engine: external")
		}
	}
	return r, src.problems
}

func readRoleSettings(o object) RoleSettings {
	var s RoleSettings
	if v := o.get("command"); v != nil {
		for _, it := range v.items() {
			s.Command = append(s.Command, it.scalarText())
		}
	}
	if v := o.get("args"); v != nil {
		s.Args = readSettings(v, true)
	}
	if v := o.get("env"); v != nil {
		s.Env = readSettings(v, false)
	}
	if v := o.get("image"); v != nil {
		s.Image = v.str().V
	}
	return s
}

// scalarText is a scalar as it is written.
func (n *node) scalarText() string {
	if n.y.Kind != yamlScalar {
		n.fail("is "+n.text()+", but must be one value", "write it in quotes")
		return ""
	}
	return n.y.Value
}

// readSettings reads NAME: value. Of arguments true is a switch, false and null drop it, a list
// gives several values.
func readSettings(n *node, args bool) []Setting {
	var out []Setting
	for _, p := range n.object(nil).pairs {
		s := Setting{Name: p.key, At: p.keyPos()}
		if args && strings.HasPrefix(p.key, "-") {
			p.failAt(p.keyPos(), "the name of an argument has leading dashes", "write "+strings.TrimLeft(p.key, "-"))
		}
		if !args && (p.key[0] >= '0' && p.key[0] <= '9' || strings.ContainsAny(p.key, " =-")) {
			p.failAt(p.keyPos(), "is not the name of a variable", "use letters, digits and _")
		}
		k, scalar := p.scalarKind()
		switch {
		case p.isNull():
			s.Drop = true
		case args && scalar && k == kindBool:
			v, _ := boolOf(p.y.Value)
			s.Drop = !v
		case args && p.y.Kind == yamlSequence:
			for _, it := range p.items() {
				s.Values = append(s.Values, it.scalarText())
			}
		default:
			s.Values = []string{p.scalarText()}
		}
		out = append(out, s)
	}
	return out
}

func readCase(n *node) RecipeCase {
	c := RecipeCase{If: map[string][]string{}}
	o := n.object(caseKeys)
	if v := o.need("if", "{ dp-attn: true }"); v != nil {
		for _, p := range v.object(caseFields).pairs {
			if p.y.Kind == yamlSequence {
				for _, it := range p.items() {
					c.If[p.key] = append(c.If[p.key], it.scalarText())
				}
			} else {
				c.If[p.key] = []string{p.scalarText()}
			}
		}
		if len(c.If) == 0 {
			v.fail("asks for nothing", "name a field of the point, or move the settings out of the case")
		}
	}
	if v := o.get("role"); v != nil {
		c.Role = v.oneOf(RoleNames...).V
	}
	c.RoleSettings = readRoleSettings(o)
	return c
}

func readHostPool(n *node, h *HostPool) {
	if n == nil {
		return
	}
	if n.y.Kind == yamlScalar {
		n.oneOf("auto")
		return
	}
	o := n.object([]string{"ratio", "gb-per-rank"})
	ratio, size := o.get("ratio"), o.get("gb-per-rank")
	if ratio != nil {
		h.RatioPPM = ratio.ppm(1000, "above 0 and not above 1000").V
	}
	if size != nil {
		h.BytesPerRank = size.gigabytes().V
		if ratio != nil {
			ratio.fail("ratio stands beside gb-per-rank", "keep one: each sizes the host pool")
		}
	}
}

// resolved lays the recipe over those that it extends.
func (r *Recipe) resolved(all map[string]*Recipe, seen []string) (*Recipe, *Problem) {
	if r.Extends == "" {
		return r, nil
	}
	if contains(seen, r.Name) {
		return nil, &Problem{At: r.Origin, Field: "extends", What: "recipes extend each other: " + strings.Join(append(seen, r.Name), ", "), Fix: "break the circle"}
	}
	base := all[r.Extends]
	if base == nil {
		fix := "name one of " + strings.Join(sortedKeys(all), ", ")
		if near := nearest(r.Extends, sortedKeys(all)); near != "" {
			fix = "did you mean " + near + "?"
		}
		return nil, &Problem{At: r.Origin, Field: "extends", What: fmt.Sprintf("no recipe has the name %q", r.Extends), Fix: fix}
	}
	base, err := base.resolved(all, append(seen, r.Name))
	if err != nil {
		return nil, err
	}
	out := *base
	out.Name, out.Origin, out.Extends = r.Name, r.Origin, ""
	pickString := func(to *string, v string) {
		if v != "" {
			*to = v
		}
	}
	pickString(&out.Engine, r.Engine)
	pickString(&out.Version, r.Version)
	pickString(&out.Image, r.Image)
	out.Common = base.Common.over(r.Common)
	out.Roles = map[string]RoleSettings{}
	for _, role := range RoleNames {
		b, inBase := base.Roles[role]
		v, inOwn := r.Roles[role]
		if inBase || inOwn {
			out.Roles[role] = b.over(v)
		}
	}
	out.When = append(append([]RecipeCase{}, base.When...), r.When...)
	if r.HostPool != (HostPool{}) {
		out.HostPool = r.HostPool
	}
	if r.Readiness != (Readiness{Canary: true}) {
		out.Readiness = r.Readiness
	}
	if r.Timeouts != (Timeouts{}) {
		out.Timeouts = r.Timeouts
	}
	if len(r.Endpoints) > 0 {
		out.Endpoints = r.Endpoints
	}
	return &out, nil
}

// over lays settings over others, name by name.
func (s RoleSettings) over(later RoleSettings) RoleSettings {
	out := RoleSettings{Command: s.Command, Image: s.Image, Args: mergeSettings(s.Args, later.Args), Env: mergeSettings(s.Env, later.Env)}
	if len(later.Command) > 0 {
		out.Command = later.Command
	}
	if later.Image != "" {
		out.Image = later.Image
	}
	return out
}

func mergeSettings(base, later []Setting) []Setting {
	out := append([]Setting{}, base...)
	for _, s := range later {
		found := false
		for i := range out {
			if out[i].Name == s.Name {
				out[i], found = s, true
			}
		}
		if !found {
			out = append(out, s)
		}
	}
	return out
}

// For are the settings of one role for a point: common, role, then the cases that match, in file
// order; what is dropped is left out.
func (r *Recipe) For(p *Point, role string) RoleSettings {
	out := r.Common.over(r.Roles[role])
	for _, c := range r.When {
		if (c.Role == "" || c.Role == role) && c.matches(p, role) {
			out = out.over(c.RoleSettings)
		}
	}
	kept := func(list []Setting) []Setting {
		var k []Setting
		for _, s := range list {
			if !s.Drop {
				k = append(k, s)
			}
		}
		return k
	}
	out.Args, out.Env = kept(out.Args), kept(out.Env)
	return out
}

// matches compares the fields of a point, of a multi-node point those of the role's worker.
func (c *RecipeCase) matches(p *Point, role string) bool {
	for field, values := range c.If {
		if !contains(values, p.field(field, role)) {
			return false
		}
	}
	return true
}

// field is a field of the point as a recipe's case names it.
func (p *Point) field(name, role string) string {
	par := p.Unified
	switch {
	case par != nil:
	case role == "decode" && p.Decode != nil:
		par = &p.Decode.Parallel
	case p.Prefill != nil:
		par = &p.Prefill.Parallel
	default:
		par = &Parallel{}
	}
	switch name {
	case "scenario":
		return string(p.Scenario)
	case "precision":
		return p.Precision
	case "framework":
		return p.Framework
	case "runner":
		return p.Runner
	case "model-prefix":
		return p.ModelPrefix
	case "multinode":
		return strconv.FormatBool(p.Multinode)
	case "disagg":
		return strconv.FormatBool(p.Disagg)
	case "spec-decoding":
		return p.SpecDecoding
	case "kv-offloading":
		return p.Offload.Mode
	case "kv-offload-backend":
		return p.Offload.Backend.Name
	case "dp-attn":
		return strconv.FormatBool(par.DPAttn)
	}
	for n, v := range map[string]int{"tp": par.TP, "pp": par.PP, "ep": par.EP, "dcp-size": par.DCP, "pcp-size": par.PCP, "conc": p.Conc} {
		if n == name {
			return strconv.Itoa(v)
		}
	}
	return ""
}
