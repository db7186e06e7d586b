package cli

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weirbench/weir/internal/spec"
)

// TestCompletion asks the program, as a shell does, for values.
func TestCompletion(t *testing.T) {
	master := "../../examples/quickstart/master.yaml"
	key := "glm5.2-fp4-b200-sglang-agentic"
	runners := "../../examples/quickstart/runners.yaml"
	set, err := spec.Load([]string{master}, runners)
	if err != nil {
		t.Fatal(err)
	}
	points, err := selected(set, spec.Selection{Keys: []string{key}})
	if err != nil {
		t.Fatal(err)
	}
	ids := []string{points[0].ID()}
	for _, c := range []struct{ line, want string }{
		{"sim serve --gpu |", "b200 mi355x"},
		{"sim serve --gpu b|", "b200 b300"},
		{"sim serve --model |", "glm-5.2"},
		{"sim serve --engine |", "sglang vllm"},
		{"sim serve --write-policy |", "write_back write_through write_through_selective"},
		{"sim serve --role p|", "prefill"},
		{"sim serve --fault |", "stall http-error"},
		{"sim router --policy |", "round_robin cache_aware"},
		{"sim calibrate --engine |", "sglang vllm"},
		{"schema |", "master runners fleet recipe result"},
		{"chart |", "hit_total ttft_p90"},
		{"chart hit|", "hit_total"},
		{"compare --axis hit_total,ttft_p9|", "hit_total,ttft_p90"},
		{"corpus fetch |", ""},
		{"corpus convert traces --format |", "weka lines mooncake compiled"},
		{"replay --endpoint |", "chat completions generate messages responses"},
		{"replay --order |", "sequential shuffle random"},
		{"replay --client-limit |", "none"},
		{"load --mode |", "closed poisson overflow"},
		{"plan --scenario |", "agentic-coding fixed-seq-len"},
		{"plan --framework |", "sglang vllm"},
		{"matrix --scenario-type |", "agentic-coding fixed-seq-len"},
		{"matrix --seq-lens |", "1k1k"},
		{"matrix --no-e|", "--no-evals"},
		{"matrix -f " + master + " --config-keys |", key},
		{"matrix full-sweep --framework |", "sglang"},
		{"sweep -f " + master + " |", key},
		{"sweep -f " + master + " glm|", key},
		{"plan -f " + master + " |", key},
		{"render -f " + master + " |", key},
		{"point -f " + master + " |", key},
		{"knee -f " + master + " |", key},
		{"point -f " + master + " -r " + runners + " " + key + " --id |", ids[0]},
		{"preflight -f " + master + " -r " + runners + " " + key + " --id " + ids[0][:2] + "|", ids[0]},
		{"matrix full-sweep --config-files " + master + " --runner-config " + runners + " --explain |", ids[0]},
		{"preflight -f " + master + " |", key},
		{"changelog append x --config-files " + master + " --config-keys |", key},
	} {
		before, _, _ := strings.Cut(c.line, "|")
		args := strings.Split(before, " ")
		code, out, errOut := weir(append([]string{"__complete"}, args...)...)
		lines := strings.Split(strings.TrimSpace(out), "\n")
		if code != exitOK || len(lines) < 2 {
			t.Errorf("%s: exit %d, nothing\n%s%s", c.line, code, out, errOut)
			continue
		}
		got := lines[:len(lines)-1]
		for _, w := range strings.Fields(c.want) {
			if !slices.Contains(got, w) {
				t.Errorf("%s: %q has no %s", c.line, got, w)
			}
		}
		for _, g := range got {
			if !strings.HasPrefix(g, args[len(args)-1]) {
				t.Errorf("%s: offers %s", c.line, g)
			}
		}
		if last := lines[len(lines)-1]; last != ":4" {
			t.Errorf("%s: directive %s: the shell adds file names", c.line, last)
		}
	}
	if _, out, _ := weir("__complete", "sweep", "-f", master, key, ""); strings.Contains(out, key) {
		t.Error("sweep offers a config that stands there already")
	}
}

// TestCompletionsExist: every flag and command that the tables name is there.
func TestCompletionsExist(t *testing.T) {
	flags, commands := map[string]bool{}, map[string]bool{}
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		path := strings.TrimPrefix(strings.TrimPrefix(c.CommandPath(), "weir"), " ")
		commands[path] = true
		top, _, _ := strings.Cut(path, " ")
		c.Flags().VisitAll(func(f *pflag.Flag) { flags["* "+f.Name], flags[top+" "+f.Name] = true, true })
		for _, k := range c.Commands() {
			walk(k)
		}
	}
	walk(newRoot(&App{}))
	for k := range valuesOf {
		if !flags[k] {
			t.Errorf("no flag is %q", k)
		}
	}
	for k := range argumentsOf {
		if !commands[k] {
			t.Errorf("no command is %q", k)
		}
	}
}
