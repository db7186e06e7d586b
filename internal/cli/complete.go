package cli

import (
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/weirbench/weir/internal/client"
	"github.com/weirbench/weir/internal/corpus/hub"
	"github.com/weirbench/weir/internal/facts"
	"github.com/weirbench/weir/internal/frontier"
	"github.com/weirbench/weir/internal/prompt"
	"github.com/weirbench/weir/internal/sim"
	"github.com/weirbench/weir/internal/sim/simhttp"
	"github.com/weirbench/weir/internal/spec"
	"github.com/weirbench/weir/internal/store"
)

// What the shell completes, for flags and arguments with a known set of values. Flags of a
// choiceFlag know theirs; the others stand here by the command that they belong to.

// masterLimit bounds a file that is read for its names while somebody types.
const masterLimit = 16 << 20

// valuesOf are the values of flags by "command flag", with "* flag" for every command. A nil set
// is that of the names in the master files given so far.
var valuesOf = map[string]func() []string{
	"* endpoint":            prompt.EndpointNames,
	"* spread":              fixed(string(client.SpreadTree), "conversation", "request"),
	"* protocol":            fixed(string(client.HTTP1), "h2", "h2c"),
	"* calibrate":           fixed("auto", "always", "never"),
	"* client-limit":        fixed("none"),
	"* barriers":            fixed("agent", "tree", "none"),
	"* order":               fixed("sequential", "shuffle", "random"),
	"* salt":                fixed("none", "system_prefix", "system_suffix", "first_turn_prefix", "first_turn_suffix"),
	"* scenario":            fixed(string(spec.AgenticCoding), string(spec.FixedSeqLen)),
	"* scenario-type":       fixed(string(spec.AgenticCoding), string(spec.FixedSeqLen)),
	"* seq-lens":            spec.SeqLenNames,
	"* axis":                axisList,
	"* fault":               faultKinds,
	"* policy":              fixed(sim.RouterPolicies...),
	"load mode":             loadModeNames,
	"corpus format":         fixed("weka", "lines", "mooncake", "compiled"),
	"matrix format":         fixed("json", "github"),
	"changelog format":      fixed("json", "github"),
	"sim gpu":               gpuNames,
	"sim model":             modelNames,
	"sim precision":         fixed("fp4", "int4", "fp8", "bf16"),
	"sim engine":            fixed("sglang", "vllm"),
	"preflight role":        fixed("unified", "prefill", "decode"),
	"plan framework":        frameworkNames,
	"matrix framework":      frameworkNames,
	"plan precision":        fixed("fp4", "int4", "fp8", "bf16"),
	"matrix precision":      fixed("fp4", "int4", "fp8", "bf16"),
	"plan spec-decoding":    fixed("none", "mtp"),
	"plan kv-dtype":         fixed("fp8", "bf16"),
	"plan write-policy":     fixed("write_back", "write_through", "write_through_selective"),
	"results engine":        frameworkNames,
	"report engine":         frameworkNames,
	"report hardware":       gpuNames,
	"matrix config-keys":    nil,
	"changelog config-keys": nil,
}

// argumentsOf are the values of a command's arguments by its path; a nil set is that of the
// names in the master files given so far.
var argumentsOf = map[string]func() []string{
	"schema":       schemaNames,
	"chart":        axisList, // the first argument
	"corpus fetch": aliasNames,
	"sweep":        nil, "plan": nil, "render": nil, "point": nil, "knee": nil, "preflight": nil,
}

func fixed(values ...string) func() []string { return func() []string { return values } }

func axisList() []string {
	var out []string
	for _, a := range frontier.Axes {
		out = append(out, a.Name)
	}
	return out
}

func faultKinds() []string {
	var out []string
	for _, k := range simhttp.FaultKinds {
		out = append(out, k.Kind)
	}
	return out
}

func loadModeNames() []string {
	var out []string
	for _, m := range loadModes {
		out = append(out, m.name)
	}
	return out
}

func gpuNames() []string {
	var out []string
	for _, g := range facts.Embedded().GPUs {
		out = append(out, g.Name)
	}
	return out
}

func modelNames() []string {
	var out []string
	for _, m := range facts.Embedded().Models {
		out = append(out, m.Name)
	}
	return out
}

func frameworkNames() []string {
	var out []string
	for _, e := range facts.Embedded().Engines {
		out = append(out, e.Frameworks...)
	}
	return out
}

func schemaNames() []string { return append(spec.SchemaNames(), "recipe", "result") }

func aliasNames() []string {
	var out []string
	for _, a := range hub.Aliases {
		out = append(out, a.Name)
	}
	return out
}

// completeValues registers the known values of cmd and of all commands below it.
func completeValues(cmd *cobra.Command) {
	path := strings.TrimPrefix(strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()), " ")
	top, _, _ := strings.Cut(path, " ")
	sets := map[string]cobra.CompletionFunc{}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if c, ok := f.Value.(*choiceFlag); ok {
			sets[f.Name] = offer(fixed(c.known...))
			return
		}
		for _, key := range []string{top + " " + f.Name, "* " + f.Name} {
			if set, ok := valuesOf[key]; ok {
				sets[f.Name] = offer(set)
				return
			}
		}
	})
	for name, f := range sets {
		if err := cmd.RegisterFlagCompletionFunc(name, f); err != nil { // the flag is there and has none yet
			panic(err)
		}
	}
	for _, name := range []string{"id", "explain"} {
		if f := cmd.Flags().Lookup(name); f != nil && f.Value.Type() == "string" {
			sets[name] = pointIDs
			if err := cmd.RegisterFlagCompletionFunc(name, pointIDs); err != nil {
				panic(err)
			}
		}
	}
	if path == "results" {
		cmd.ValidArgsFunction = runIDs
	}
	if set, ok := argumentsOf[path]; ok {
		cmd.ValidArgsFunction = arguments(path, set)
	}
	if cmd.DisableFlagParsing {
		cmd.ValidArgsFunction = spreadArguments(sets)
	}
	for _, c := range cmd.Commands() {
		completeValues(c)
	}
}

// offer completes one value; of a list, the last.
func offer(set func() []string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		before, last := "", typed
		if i := strings.LastIndex(typed, ","); i >= 0 {
			before, last = typed[:i+1], typed[i+1:]
		}
		values := masterKeys(cmd, args)
		if set != nil {
			values = set()
		}
		return matching(values, before, last), cobra.ShellCompDirectiveNoFileComp
	}
}

func matching(values []string, before, last string) []cobra.Completion {
	var out []cobra.Completion
	for _, v := range values {
		if strings.HasPrefix(v, last) && !slices.Contains(out, before+v) {
			out = append(out, before+v)
		}
	}
	return out
}

// arguments completes arguments. Of a chart the first is an axis and the others are folders.
func arguments(path string, set func() []string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 && set != nil {
			if path == "chart" {
				return nil, cobra.ShellCompDirectiveDefault
			}
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		values := masterKeys(cmd, args)
		if set != nil {
			values = set()
		}
		values = slices.DeleteFunc(values, func(v string) bool { return slices.Contains(args, v) })
		return matching(values, "", typed), cobra.ShellCompDirectiveNoFileComp
	}
}

// spreadArguments completes commands whose flags take several values each: the value of the last
// flag that was typed, or a flag.
func spreadArguments(sets map[string]cobra.CompletionFunc) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if strings.HasPrefix(typed, "-") {
			var names []string
			cmd.Flags().VisitAll(func(f *pflag.Flag) {
				if !f.Hidden {
					names = append(names, "--"+f.Name)
				}
			})
			return matching(names, "", typed), cobra.ShellCompDirectiveNoFileComp
		}
		for _, a := range slices.Backward(args) {
			if !strings.HasPrefix(a, "-") {
				continue
			}
			if set := sets[strings.TrimLeft(a, "-")]; set != nil {
				return set(cmd, args, typed)
			}
			return nil, cobra.ShellCompDirectiveDefault
		}
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
}

// runIDs completes the id of a run in the store that --db names.
func runIDs(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	var ids []string
	if db := cmd.Flags().Lookup("db"); db != nil && len(args) == 0 {
		if s, err := store.OpenExisting(db.Value.String()); err == nil {
			defer s.Close()
			entries, _ := s.Query(cmd.Context(), store.Filter{})
			for _, e := range entries {
				ids = append(ids, e.Result.ID)
			}
		}
	}
	return matching(ids, "", typed), cobra.ShellCompDirectiveNoFileComp
}

// pointIDs completes the id of a point of the master files and keys that the command line names.
func pointIDs(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
	runners := ""
	for _, name := range []string{"runners", "runner-config"} {
		if f := cmd.Flags().Lookup(name); f != nil {
			runners = f.Value.String()
		}
	}
	keys := args
	if cmd.DisableFlagParsing { // the arguments are flags too
		keys = nil
		for i, a := range args {
			if (a == "-r" || a == "--runners" || a == "--runner-config") && i+1 < len(args) {
				runners = args[i+1]
			}
		}
	}
	var ids []string
	if set, err := spec.Load(masterFiles(cmd, args), runners); err == nil {
		if points, err := selected(set, spec.Selection{Keys: keys}); err == nil {
			for _, p := range points {
				ids = append(ids, p.ID())
			}
		}
	}
	return matching(ids, "", typed), cobra.ShellCompDirectiveNoFileComp
}

// masterKeys are the names of the configs in the master files that the command line names, in
// alphabetical order. What cannot be read has none.
func masterKeys(cmd *cobra.Command, args []string) []string {
	keys := map[string]bool{}
	for _, file := range masterFiles(cmd, args) {
		raw, err := spec.ReadFile(file, masterLimit)
		var doc map[string]yaml.Node
		if err != nil || yaml.Unmarshal(raw, &doc) != nil {
			continue
		}
		for k := range doc {
			keys[k] = true
		}
	}
	return slices.Sorted(maps.Keys(keys))
}

// masterFiles are the master files that the command line names.
func masterFiles(cmd *cobra.Command, args []string) []string {
	var files []string
	for _, name := range []string{"file", "config-files"} {
		if f := cmd.Flags().Lookup(name); f != nil && len(files) == 0 {
			if list, ok := f.Value.(pflag.SliceValue); ok {
				files = list.GetSlice()
			}
		}
	}
	if cmd.DisableFlagParsing {
		on := false
		for _, a := range args {
			switch {
			case strings.HasPrefix(a, "-"):
				on = a == "-f" || a == "--file" || a == "--config-files"
			case on:
				files = append(files, a)
			}
		}
	}
	return files
}
