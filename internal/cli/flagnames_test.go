package cli

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// each calls f for every command of the program.
func each(cmd *cobra.Command, f func(*cobra.Command)) {
	f(cmd)
	for _, c := range cmd.Commands() {
		each(c, f)
	}
}

// TestOtherNames: a flag with two names has both in every command, sets one value under either,
// and shows one of them in help.
func TestOtherNames(t *testing.T) {
	pairs := 0
	each(newRoot(&App{}), func(c *cobra.Command) {
		for _, p := range otherNames {
			a, b := c.Flags().Lookup(p[0]), c.Flags().Lookup(p[1])
			if (a == nil) != (b == nil) {
				t.Errorf("%s has one of --%s and --%s", c.CommandPath(), p[0], p[1])
			}
			if a == nil || b == nil || a.Hidden == b.Hidden {
				continue
			}
			pairs++
			if a.Hidden {
				a, b = b, a
			}
			value := "7"
			if err := b.Value.Set(value); err != nil {
				t.Errorf("%s --%s: %v", c.CommandPath(), b.Name, err)
			}
			if strings.Trim(a.Value.String(), "[]") != value || !a.Changed {
				t.Errorf("%s --%s=%s leaves --%s at %s", c.CommandPath(), b.Name, value, a.Name, a.Value)
			}
		}
	})
	if pairs < 20 {
		t.Errorf("only %d flags have another name", pairs)
	}
}

// TestHelpIsPlain: no help shows a switch with what pflag adds to it, or a line without text.
func TestHelpIsPlain(t *testing.T) {
	each(newRoot(&App{}), func(c *cobra.Command) {
		help := c.UsageString()
		if strings.Contains(help, "true|false") {
			t.Errorf("%s --help shows [=true|false]", c.CommandPath())
		}
		if c.HasAvailableFlags() && !strings.Contains(help, "--json") {
			t.Errorf("%s --help lost its flags:\n%s", c.CommandPath(), help)
		}
	})
}
