package cli

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// otherNames are pairs of names that one flag goes by: InferenceX's tools and those that read
// points have each their own, and either works everywhere.
var otherNames = [][2]string{{"file", "config-files"}, {"runners", "runner-config"}, {"out", "output"}, {"conc", "concurrency"},
	{"addr", "listen"}}

func init() { cobra.AddTemplateFunc("flagLines", flagLines) }

// finishFlags gives the flags of cmd and of all commands below it their other names, hidden, and
// a help that shows switches without [=true|false].
func finishFlags(cmd *cobra.Command) {
	for _, fl := range []*pflag.FlagSet{cmd.Flags(), cmd.PersistentFlags()} {
		for _, pair := range otherNames {
			addOtherName(fl, pair[0], pair[1])
			addOtherName(fl, pair[1], pair[0])
		}
	}
	for _, c := range cmd.Commands() {
		finishFlags(c)
	}
}

// addOtherName adds the flag name under another name where that is free.
func addOtherName(fl *pflag.FlagSet, name, other string) {
	f := fl.Lookup(name)
	if f == nil || f.Hidden || fl.Lookup(other) != nil {
		return
	}
	fl.AddFlag(&pflag.Flag{Name: other, Usage: f.Usage, DefValue: f.DefValue, NoOptDefVal: f.NoOptDefVal,
		Hidden: true, Value: sameValue{f.Value, f}})
}

// sameValue is the value of a flag under another name.
type sameValue struct {
	pflag.Value
	of *pflag.Flag
}

func (v sameValue) Set(s string) error {
	v.of.Changed = true
	return v.Value.Set(s)
}

// usageTemplate is cobra's with our lines of flags.
func usageTemplate(cobras string) string {
	return strings.NewReplacer(".LocalFlags.FlagUsages", "flagLines .LocalFlags", ".InheritedFlags.FlagUsages", "flagLines .InheritedFlags").Replace(cobras)
}

// flagLines are the usage lines of flags. pflag prints every switch as --name[=true|false].
func flagLines(fl *pflag.FlagSet) string {
	out := pflag.NewFlagSet("", pflag.ContinueOnError)
	out.SortFlags = fl.SortFlags
	fl.VisitAll(func(f *pflag.Flag) {
		c := *f
		if f.Value.Type() == "bool" {
			c.Value = switchValue{f.Value}
		}
		out.AddFlag(&c)
	})
	return out.FlagUsages()
}

// switchValue hides from pflag that a value is a boolean one.
type switchValue struct{ v pflag.Value }

func (s switchValue) String() string     { return s.v.String() }
func (s switchValue) Set(t string) error { return s.v.Set(t) }
func (s switchValue) Type() string       { return "bool" }
