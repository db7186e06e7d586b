package engine

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/big"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/weirbench/weir/internal/plan"
	"github.com/weirbench/weir/internal/spec"
)

// A Recipe is how an engine is started for a config.
type Recipe struct {
	Name    string `yaml:"name" json:"name"`
	Extends string `yaml:"extends" json:"extends,omitempty"` // name of the recipe that this one adds to
	Engine  string `yaml:"engine" json:"engine"`
	// Version of the engine that the recipe was written for, such as "0.5.16"; an image that
	// names another is refused. Empty takes any.
	Version string `yaml:"version" json:"version,omitempty"`
	// Model is where the checkpoint lies; empty takes the point's model.
	Model string `yaml:"model" json:"model,omitempty"`
	// Command replaces the engine's program, such as [vllm] by [/opt/venv/bin/vllm].
	Command []string `yaml:"command" json:"command,omitempty"`
	// Help is a file beside the recipe with what the engine prints for --help; arguments are checked
	// against it.
	Help string `yaml:"help" json:"help,omitempty"`
	// Device is "gpu", also when empty, or "cpu" for an engine that runs on processors: then no
	// GPU is looked for.
	Device string `yaml:"device" json:"device,omitempty"`
	Memory Memory `yaml:"memory" json:"memory"`
	Args   Args   `yaml:"args" json:"args,omitempty"` // of all workers
	Env    Args   `yaml:"env" json:"env,omitempty"`   // of all processes
	When   []When `yaml:"when" json:"when,omitempty"`
	// Roles are "unified", "prefill", "decode", "router", "infra" and "client".
	Roles map[string]Part `yaml:"roles" json:"roles,omitempty"`
	// Router is "auto" (a router stands before several caches) or "always".
	Router string `yaml:"router" json:"router,omitempty"`
	// Consumes are fields of the point that arguments or the image account for without naming
	// them, each with the reason.
	Consumes map[string]string `yaml:"consumes" json:"consumes,omitempty"`
	Ports    map[string]int    `yaml:"ports" json:"ports,omitempty"` // other numbers than the usual ones
	Ready    Ready             `yaml:"ready" json:"ready"`
	External *External         `yaml:"external" json:"external,omitempty"`
	// RequireMetrics are metric families that one of the processes must publish before the load
	// begins, in place of the engine's own; an empty list requires none.
	RequireMetrics *[]string `yaml:"require-metrics" json:"require-metrics,omitempty"`

	file string
	help string // text of Help
}

// Memory is what decides how large pools are. It has one place, because the plan reads it too:
// as an argument it would pass the plan by.
type Memory struct {
	Fraction    string `yaml:"fraction" json:"fraction,omitempty"` // of HBM for weights and KV
	KVDType     string `yaml:"kv-dtype" json:"kv-dtype,omitempty"`
	PageSize    int64  `yaml:"page-size" json:"page-size,omitempty"` // tokens
	WritePolicy string `yaml:"write-policy" json:"write-policy,omitempty"`
	DraftTokens int64  `yaml:"draft-tokens" json:"draft-tokens,omitempty"`
	// HostPool is "auto" (the largest that fits and is allowed), {ratio: R} or {gb-per-rank: N}.
	HostPool HostPool `yaml:"host-pool" json:"host-pool"`
}

// HostPool sizes the host tier; zero is auto.
type HostPool struct {
	Ratio     string `json:"ratio,omitempty"` // multiple of the device pool
	GBPerRank int64  `json:"gb-per-rank,omitempty"`
}

// UnmarshalYAML reads "auto" or one size.
func (h *HostPool) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode && n.Value == "auto" {
		return nil
	}
	if n.Kind != yaml.MappingNode || len(n.Content) != 2 {
		return fmt.Errorf("line %d: host-pool is auto, {ratio: R} or {gb-per-rank: N}", n.Line)
	}
	switch k, v := n.Content[0].Value, n.Content[1]; k {
	case "ratio":
		h.Ratio = v.Value
		if _, err := ppm(v.Value, 1000); err != nil {
			return fmt.Errorf("line %d: host-pool ratio: %w", v.Line, err)
		}
	case "gb-per-rank":
		if err := v.Decode(&h.GBPerRank); err != nil || h.GBPerRank < 1 || h.GBPerRank > 1<<20 {
			return fmt.Errorf("line %d: gb-per-rank is whole decimal GB from 1, not %q", v.Line, v.Value)
		}
	default:
		return fmt.Errorf("line %d: host-pool has no %q: it is auto, {ratio: R} or {gb-per-rank: N}", n.Line, k)
	}
	return nil
}

// A Part is what a role adds to the recipe or changes in it.
type Part struct {
	// Command replaces the program of the router, which is not the engine's; Help is what it prints
	// for --help, as the recipe's is.
	Command []string `yaml:"command" json:"command,omitempty"`
	Help    string   `yaml:"help" json:"help,omitempty"`
	help    string

	Args Args   `yaml:"args" json:"args,omitempty"`
	Env  Args   `yaml:"env" json:"env,omitempty"`
	When []When `yaml:"when" json:"when,omitempty"`
}

// When adds arguments to points that meet all conditions. A value is compared as text; a list
// holds any of them; conc takes a number with <, <=, > or >= before it.
type When struct {
	If   Conditions `yaml:"if" json:"if"`
	Args Args       `yaml:"args" json:"args,omitempty"`
	Env  Args       `yaml:"env" json:"env,omitempty"`
}

// Conditions are names of fields with the values that meet them.
type Conditions []Condition

// A Condition is one field and the values that meet it.
type Condition struct {
	Field  string   `json:"field"`
	Values []string `json:"values"`
}

// UnmarshalYAML reads {field: value}.
func (c *Conditions) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind != yaml.MappingNode || len(n.Content) == 0 {
		return fmt.Errorf("line %d: a condition is {field: value}", n.Line)
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		if !knownCondition(k.Value) {
			return fmt.Errorf("line %d: a condition cannot ask for %q; it can ask for %s", k.Line, k.Value, strings.Join(conditions, ", "))
		}
		cond := Condition{Field: k.Value}
		switch v.Kind {
		case yaml.ScalarNode:
			cond.Values = []string{v.Value}
		case yaml.SequenceNode:
			for _, e := range v.Content {
				cond.Values = append(cond.Values, e.Value)
			}
		}
		if len(cond.Values) == 0 {
			return fmt.Errorf("line %d: condition %s has no value", v.Line, k.Value)
		}
		for _, want := range cond.Values {
			if rest := strings.TrimLeft(want, "<>="); rest != want {
				op := want[:len(want)-len(rest)]
				if _, err := strconv.ParseInt(strings.TrimSpace(rest), 10, 64); err != nil || !slices.Contains(comparisons, op) {
					return fmt.Errorf("line %d: condition %s: %q is no comparison: write <, <=, > or >= before a whole number", v.Line, k.Value, want)
				}
			}
		}
		*c = append(*c, cond)
	}
	return nil
}

// Ready says how long to wait for what.
type Ready struct {
	Start  Duration `yaml:"start" json:"start,omitempty"`   // from the first process to the canary's answer; default 30 min
	Drain  Duration `yaml:"drain" json:"drain,omitempty"`   // for requests in flight before a flush; default 2 min
	Stop   Duration `yaml:"stop" json:"stop,omitempty"`     // from TERM to KILL; default 1 min
	Silent Duration `yaml:"silent" json:"silent,omitempty"` // without a token before a run counts as stalled; default 10 min
}

// Duration is a time.Duration that reads as "90s" or "30m".
type Duration time.Duration

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	if err == nil && v <= 0 {
		err = fmt.Errorf("%s is not above 0", b)
	}
	*d = Duration(v)
	return err
}

// MarshalText implements encoding.TextMarshaler.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// Or is d, or other where d is not set.
func (d Duration) Or(other time.Duration) time.Duration {
	if d == 0 {
		return other
	}
	return time.Duration(d)
}

// External is a command that brings endpoints up by itself.
type External struct {
	Up      []string `yaml:"up" json:"up,omitempty"`     // stays while the endpoints live, or returns once they are coming
	Down    []string `yaml:"down" json:"down,omitempty"` // takes them down
	URLs    []string `yaml:"urls" json:"urls"`
	Metrics []string `yaml:"metrics" json:"metrics,omitempty"`
	Flush   []string `yaml:"flush" json:"flush,omitempty"` // URLs to POST to
	Session []string `yaml:"session-headers" json:"session-headers,omitempty"`
}

// Args are arguments or variables in the order of the file.
type Args []Arg

// An Arg is one argument: a bare flag, one with a value, or one with several.
type Arg struct {
	Name   string   `json:"name"`
	Values []string `json:"values,omitempty"` // none for a bare flag
	Off    bool     `json:"off,omitempty"`    // false in the file: takes back what the recipe extends gives
	Line   int      `json:"line,omitempty"`
}

// UnmarshalYAML reads a mapping: true is a bare flag, false takes one back, a list is several
// values, a mapping is one value of JSON.
func (a *Args) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind != yaml.MappingNode {
		return fmt.Errorf("line %d: arguments are a mapping of name to value", n.Line)
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		arg := Arg{Name: strings.TrimLeft(k.Value, "-"), Line: k.Line}
		if arg.Name == "" {
			return fmt.Errorf("line %d: an argument has no name", k.Line)
		}
		if slices.ContainsFunc(*a, func(o Arg) bool { return o.Name == arg.Name }) {
			return fmt.Errorf("line %d: %s is given twice", k.Line, arg.Name)
		}
		switch {
		case v.Kind == yaml.ScalarNode && v.Tag == "!!bool" && v.Value == "true":
		case v.Kind == yaml.ScalarNode && v.Tag == "!!bool":
			arg.Off = true
		case v.Kind == yaml.ScalarNode && v.Tag == "!!null":
			return fmt.Errorf("line %d: %s has no value: write true for a bare flag", k.Line, arg.Name)
		case v.Kind == yaml.ScalarNode:
			arg.Values = []string{v.Value}
		case v.Kind == yaml.SequenceNode:
			for _, e := range v.Content {
				if e.Kind != yaml.ScalarNode {
					return fmt.Errorf("line %d: %s: a list holds plain values", e.Line, arg.Name)
				}
				arg.Values = append(arg.Values, e.Value)
			}
		case v.Kind == yaml.MappingNode:
			text, err := jsonText(v)
			if err != nil {
				return fmt.Errorf("line %d: %s: %w", v.Line, arg.Name, err)
			}
			arg.Values = []string{text}
		default:
			return fmt.Errorf("line %d: %s: an alias is not taken here", v.Line, arg.Name)
		}
		*a = append(*a, arg)
	}
	return nil
}

// over lays arguments over others: a name that both have takes the new value.
func (a Args) over(base Args) Args {
	out := slices.Clone(base)
	for _, x := range a {
		if i := slices.IndexFunc(out, func(o Arg) bool { return o.Name == x.Name }); i >= 0 {
			out[i] = x
		} else {
			out = append(out, x)
		}
	}
	return out
}

// Load reads the recipe of a name from folders of recipe files: the first that has it.
func Load(name string, dirs ...fs.FS) (*Recipe, error) { return load(name, dirs, nil) }

func load(name string, dirs []fs.FS, seen []string) (*Recipe, error) {
	if slices.Contains(seen, name) {
		return nil, fmt.Errorf("recipe %s extends itself: %s", name, strings.Join(append(seen, name), " -> "))
	}
	var known []string
	for _, d := range dirs {
		file := name + ".yaml"
		if !fs.ValidPath(file) {
			return nil, fmt.Errorf("recipe %q is not a name", name)
		}
		raw, err := fs.ReadFile(d, file)
		if errors.Is(err, fs.ErrNotExist) {
			all, _ := fs.Glob(d, "*.yaml")
			for _, f := range all {
				known = append(known, strings.TrimSuffix(path.Base(f), ".yaml"))
			}
			continue
		}
		if err != nil {
			return nil, err
		}
		r, err := Parse(file, raw)
		if err != nil {
			return nil, err
		}
		if r.Name != name {
			return nil, fmt.Errorf("%s: name %q: the file is named %q", file, r.Name, name)
		}
		if err := r.readHelp(d); err != nil {
			return nil, err
		}
		if r.Extends != "" {
			base, err := load(r.Extends, dirs, append(seen, name))
			if err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			r = r.over(base)
		}
		if r.Engine == "" {
			return nil, fmt.Errorf("%s: no engine: write engine: and one of %s", file, strings.Join(Names(), ", "))
		}
		if r.External != nil && r.Engine != "external" {
			return nil, fmt.Errorf("%s: external is for the engine external and this recipe's is %s: write engine: external, or leave external out", file, r.Engine)
		}
		return r, nil
	}
	return nil, fmt.Errorf("recipe %q is not known; known: %s", name, strings.Join(known, ", "))
}

// readHelp reads the help texts that lie beside a recipe.
func (r *Recipe) readHelp(dir fs.FS) error {
	read := func(name string) (string, error) {
		if name == "" {
			return "", nil
		}
		b, err := fs.ReadFile(dir, name)
		if err == nil {
			_, err = ParseHelp(string(b))
		}
		if err != nil {
			return "", fmt.Errorf("%s: help %s: %w", r.where(), name, err)
		}
		return string(b), nil
	}
	var err error
	if r.help, err = read(r.Help); err != nil {
		return err
	}
	for n, p := range r.Roles {
		if p.help, err = read(p.Help); err != nil {
			return err
		}
		r.Roles[n] = p
	}
	return nil
}

// Parse reads one recipe strictly: a key that it does not know is an error with its line.
func Parse(file string, raw []byte) (*Recipe, error) {
	r := &Recipe{file: file}
	dec := yaml.NewDecoder(bytes.NewReader(raw))
	dec.KnownFields(true)
	if err := dec.Decode(r); errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: the file is empty: write at least name and engine or extends", file)
	} else if err != nil {
		return nil, fmt.Errorf("%s: %s", file, strings.ReplaceAll(strings.TrimPrefix(err.Error(), "yaml: "), "unmarshal errors:\n  ", ""))
	}
	if dec.Decode(&yaml.Node{}) == nil {
		return nil, fmt.Errorf("%s: more than one document: a file holds one recipe", file)
	}
	for _, name := range slices.Sorted(maps.Keys(r.Ports)) {
		if n := r.Ports[name]; n < 1 || n > 65535 {
			return nil, fmt.Errorf("%s: ports.%s: %d is no port: write 1 to 65535", file, name, n)
		}
	}
	if slices.Contains(r.Command, "") {
		return nil, fmt.Errorf("%s: command has an empty word: name the program that replaces the engine's, or leave command out", file)
	}
	for role, p := range r.Roles {
		if slices.Contains(p.Command, "") {
			return nil, fmt.Errorf("%s: roles.%s.command has an empty word: name the program, or leave command out", file, role)
		}
		if !slices.Contains(roles, role) {
			return nil, fmt.Errorf("%s: role %q is not known; known: %s", file, role, strings.Join(roles, ", "))
		}
		if (len(p.Command) > 0 || p.Help != "") && role != "router" {
			return nil, fmt.Errorf("%s: role %s has a command or a help: only the router's are its own; write the engine's at the top of the recipe", file, role)
		}
	}
	if r.Router != "" && r.Router != "auto" && r.Router != "always" {
		return nil, fmt.Errorf("%s: router %q: it is auto or always", file, r.Router)
	}
	if r.Device != "" && r.Device != "gpu" && r.Device != "cpu" {
		return nil, fmt.Errorf("%s: device %q: it is gpu or cpu", file, r.Device)
	}
	if r.Memory.Fraction != "" {
		if _, err := ppm(r.Memory.Fraction, 1); err != nil {
			return nil, fmt.Errorf("%s: memory.fraction: %w", file, err)
		}
	}
	return r, nil
}

var roles = []string{"unified", "prefill", "decode", "router", "infra", "client"}

// over lays a recipe over the one that it extends.
func (r *Recipe) over(base *Recipe) *Recipe {
	out := *r
	pick := func(v *string, b string) {
		if *v == "" {
			*v = b
		}
	}
	pick(&out.Engine, base.Engine)
	pick(&out.Version, base.Version)
	pick(&out.Model, base.Model)
	pick(&out.Router, base.Router)
	pick(&out.Device, base.Device)
	if out.Help == "" {
		out.Help, out.help = base.Help, base.help
	}
	if len(out.Command) == 0 {
		out.Command = base.Command
	}
	m, bm := &out.Memory, base.Memory
	pick(&m.Fraction, bm.Fraction)
	pick(&m.KVDType, bm.KVDType)
	pick(&m.WritePolicy, bm.WritePolicy)
	if m.PageSize == 0 {
		m.PageSize = bm.PageSize
	}
	if m.DraftTokens == 0 {
		m.DraftTokens = bm.DraftTokens
	}
	if m.HostPool == (HostPool{}) {
		m.HostPool = bm.HostPool
	}
	out.Args, out.Env = r.Args.over(base.Args), r.Env.over(base.Env)
	out.When = append(slices.Clone(base.When), r.When...)
	out.Roles = map[string]Part{}
	for n, p := range base.Roles {
		out.Roles[n] = p
	}
	for n, p := range r.Roles {
		b := out.Roles[n]
		if len(p.Command) == 0 {
			p.Command = b.Command
		}
		if p.Help == "" {
			p.Help, p.help = b.Help, b.help
		}
		out.Roles[n] = Part{p.Command, p.Help, p.help, p.Args.over(b.Args), p.Env.over(b.Env), append(slices.Clone(b.When), p.When...)}
	}
	out.Consumes, out.Ports = merged(base.Consumes, r.Consumes), merged(base.Ports, r.Ports)
	for _, d := range []struct{ v, b *Duration }{{&out.Ready.Start, &base.Ready.Start}, {&out.Ready.Drain, &base.Ready.Drain},
		{&out.Ready.Stop, &base.Ready.Stop}, {&out.Ready.Silent, &base.Ready.Silent}} {
		if *d.v == 0 {
			*d.v = *d.b
		}
	}
	if out.RequireMetrics == nil {
		out.RequireMetrics = base.RequireMetrics
	}
	if out.External == nil {
		out.External = base.External
	}
	return &out
}

func merged[V any](a, b map[string]V) map[string]V {
	out := map[string]V{}
	for k, v := range a {
		out[k] = v
	}
	for k, v := range b {
		out[k] = v
	}
	return out
}

func (r *Recipe) where() string {
	if r.file != "" {
		return r.file
	}
	return "recipe " + r.Name
}

var versionText = regexp.MustCompile(`^v?(\d+\.\d+\.\d+)`)

// checkVersion refuses an image of another release than the recipe was written for.
func (r *Recipe) checkVersion(p *spec.Point) error {
	v := plan.ParseVersion(p.Image)
	if r.Version == "" || !v.Known() || v.Date != 0 {
		return nil
	}
	want, have := versionText.FindStringSubmatch(r.Version), versionText.FindStringSubmatch(v.Text)
	if want == nil {
		return fmt.Errorf("%s: version %q is not like 0.5.16", r.where(), r.Version)
	}
	if have != nil && have[1] != want[1] {
		return fmt.Errorf("%s: image %s is %s, recipe %s was written for %s; change the image or the recipe's version", where(p), p.Image, v.Text, r.Name, r.Version)
	}
	return nil
}

// Planned is the point as it is planned with the recipe: what the recipe says about memory
// stands where the point leaves it open. A value that both give is an error.
func (r *Recipe) Planned(p *spec.Point) (*spec.Point, error) {
	q := *p
	w, m := &q.Weir, r.Memory
	var errs []error
	both := func(field string, point, recipe any) {
		errs = append(errs, fmt.Errorf("%s: weir.%s %v stands beside %v in recipe %s (%s): keep one", where(p), field, point, recipe, r.Name, r.where()))
	}
	text := func(field string, v *string, recipe string) {
		if recipe == "" {
			return
		}
		if *v != "" {
			both(field, *v, recipe)
			return
		}
		*v = recipe
	}
	number := func(field string, v *int64, recipe int64) {
		if recipe == 0 {
			return
		}
		if *v != 0 {
			both(field, *v, recipe)
			return
		}
		*v = recipe
	}
	text("kv-dtype", &w.KVDType, m.KVDType)
	number("page-size", &w.PageSize, m.PageSize)
	if m.Fraction != "" {
		n, err := ppm(m.Fraction, 1)
		if err != nil {
			return nil, fmt.Errorf("%s: memory.fraction: %w", r.where(), err)
		}
		number("mem-fraction", &w.MemFractionPPM, n)
	}
	if p.SpecDecoding != "" && p.SpecDecoding != "none" {
		number("draft-tokens", &w.DraftTokens, m.DraftTokens)
	}
	if p.Offload.Mode == "dram" {
		text("write-policy", &w.WritePolicy, m.WritePolicy)
		if h := m.HostPool; h != (HostPool{}) {
			if w.HostRatioPPM != 0 || w.HostBytesPerRank != 0 {
				both("host-ratio or host-gb-per-rank", "", "host-pool")
			} else if h.Ratio != "" {
				n, err := ppm(h.Ratio, 1000)
				if err != nil {
					return nil, fmt.Errorf("%s: memory.host-pool: %w", r.where(), err)
				}
				w.HostRatioPPM = n
			} else {
				w.HostBytesPerRank = h.GBPerRank * 1_000_000_000
			}
		}
	}
	return &q, errors.Join(errs...)
}

// ppm reads a decimal number above 0 and not above limit as parts per million.
func ppm(s string, limit int64) (int64, error) {
	v, ok := new(big.Rat).SetString(s)
	if !ok || strings.ContainsAny(s, "eE/") {
		return 0, fmt.Errorf("%q is not a number", s)
	}
	v.Mul(v, big.NewRat(1_000_000, 1))
	if v.Sign() <= 0 || !v.IsInt() || !v.Num().IsInt64() || v.Num().Int64() > limit*1_000_000 {
		return 0, fmt.Errorf("%s is not above 0 and at most %d with at most six decimals", s, limit)
	}
	return v.Num().Int64(), nil
}

// decimal writes parts per million as a number.
func decimal(n int64) string {
	s := new(big.Rat).SetFrac64(n, 1_000_000).FloatString(6)
	return strings.TrimSuffix(strings.TrimRight(s, "0"), ".")
}
