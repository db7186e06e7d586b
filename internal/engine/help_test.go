package engine_test

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/weirbench/weir/examples"
	"github.com/weirbench/weir/internal/engine"
)

// Help texts in the forms that engines print them; the words are made up.
const (
	argparseHelp = `usage: server.py [-h] [--host HOST] [--trust-remote-code | --no-trust-remote-code]
                 [--dtype {auto,bfloat16,
                 float16}] [--worker-urls [WORKER_URLS ...]]
                 [--tool-parser {a,b} or name registered in --tool-plugin]
                 [--only-in-usage N]

An engine. Give --not-a-flag where you like.

positional arguments:
  model_tag             what to serve

options:
  -h, --help            show this help message and exit
  --tensor-parallel-size N, -tp N
                        ranks; see
                        --mentioned-far-right for more
  --schedule-policy {lpm,fcfs}
                        order of the queue (default: fcfs)
  --tool-parser {a,b} or name registered in --tool-plugin
                        a plugin's name goes too
  --layers {x,y} [{x,y} ...]
                        several
  --compilation-config CONFIG, -cc CONFIG
                        as JSON
  --cache, --no-cache   caching
  --[no-]reports        how Click shows a pair
`
	clickHelp = `Usage: trtllm-serve [OPTIONS] MODEL

╭─ Options ────────────────────────────────────────────────────────────────╮
│ --tp_size        INTEGER        Tensor parallel size.                     │
│ --backend        [pytorch|trt]  Backend. See --elsewhere.                  │
│ --help                          Show this message and exit.               │
╰──────────────────────────────────────────────────────────────────────────╯
`
	pflagHelp = `Serves.

Usage:
  weir sim serve [flags]

Examples:
  weir sim serve --example-only 3

Flags:
      --addr string      address to listen on
  -h, --help             help for serve
      --fault KIND       a fault, such as --none
`
)

func TestParseHelp(t *testing.T) {
	for _, c := range []struct {
		name, help string
		argv       []string
		want       []string // parts of the error; none for none
	}{
		{"known", argparseHelp, []string{"--host", "0.0.0.0", "--tensor_parallel_size", "8", "-tp", "8", "--trust-remote-code", "--no-cache", "--only-in-usage", "1",
			"--schedule-policy", "lpm", "--dtype=float16", "--tool-parser", "mine", "--layers", "x", "y", "-cc.mode=3", "--compilation-config.level", "3",
			"--worker-urls", "http://a", "http://b", "--reports", "--no-reports", "-1"}, nil},
		{"misspelled", argparseHelp, []string{"--tensor-paralel-size", "8"}, []string{"unknown argument --tensor-paralel-size: the help of python3 -m server does not name it; the nearest is --tensor-parallel-size"}},
		{"two", argparseHelp, []string{"--hots", "x", "--no-catch"}, []string{"the nearest is --host", "the nearest is --no-cache"}},
		{"only mentioned", argparseHelp, []string{"--not-a-flag", "--mentioned-far-right"}, []string{"--not-a-flag", "--mentioned-far-right"}},
		{"choice", argparseHelp, []string{"--schedule-policy", "lmp"}, []string{"--schedule-policy lmp: the help of python3 -m server takes lpm, fcfs; the nearest is lpm"}},
		{"choice of the usage", argparseHelp, []string{"--dtype", "float61"}, []string{"takes auto, bfloat16, float16; the nearest is float16"}},
		{"one of several", argparseHelp, []string{"--layers", "x", "z"}, []string{"--layers z"}},
		{"click", clickHelp, []string{"--tp_size", "8", "--backend", "trt", "--elsewhere"}, []string{"--elsewhere"}},
		{"pflag", pflagHelp, []string{"--addr", "x", "--fault", "y", "--example-only", "3", "--none"}, []string{"--example-only", "--none"}},
	} {
		h, err := engine.ParseHelp(c.help)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		p := &engine.Process{Name: "unified-0", Argv: append([]string{"python3", "-m", "server"}, c.argv...), Program: 3}
		err = h.Check(p)
		if len(c.want) == 0 && err != nil || len(c.want) > 0 && (err == nil || strings.Count(err.Error(), "\n")+1 != len(c.want)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
			continue
		}
		for _, w := range c.want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %v, want %q", c.name, err, w)
			}
		}
	}
	for _, text := range []string{"", "usage: vllm serve [model_tag] [options]\n\nFor every argument: --help=all\n", "command not found"} {
		if _, err := engine.ParseHelp(text); err == nil || !strings.Contains(err.Error(), "names no arguments") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestRecipeHelp: a recipe names help texts beside it, of the engine and of the router, and what
// extends it has them too.
func TestRecipeHelp(t *testing.T) {
	p := points(t, "glm5.2-fp4-b300-sglang")[0]
	known := "usage: launch_server [-h]\n\noptions:\n"
	d, err := build(p, recipe(t, p.Weir.Recipe, "router: always\n"))
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range d.Processes[0].Argv {
		if strings.HasPrefix(w, "--") {
			known += "  " + w + " X\n"
		}
	}
	dir := fstest.MapFS{
		"base.yaml":   {Data: []byte("name: base\nextends: " + p.Weir.Recipe + "\nrouter: always\nhelp: engine.txt\nroles: { router: { help: router.txt } }\n")},
		"more.yaml":   {Data: []byte("name: more\nextends: base\nargs: { dtpye: auto }\n")},
		"absent.yaml": {Data: []byte("name: absent\nextends: base\nhelp: nowhere.txt\n")},
		"empty.yaml":  {Data: []byte("name: empty\nextends: base\nhelp: base.yaml\n")},
		"engine.txt":  {Data: []byte(known + "  --dtype {auto,half}\n")},
		"router.txt":  {Data: []byte("  --policy {random,round_robin}\n  --host HOST\n  --port PORT\n  --prometheus-port PORT\n  --worker-urls URLS\n  --request-timeout-secs N\n  --disable-circuit-breaker\n  --health-failure-threshold N\n  --health-check-timeout-secs N\n  --health-check-interval-secs N\n")},
	}
	check := func(name, text string) error {
		t.Helper()
		r, err := engine.Load(name, dir, examples.Recipes())
		if err != nil {
			return err
		}
		d, err := build(p, r)
		if err != nil {
			t.Fatal(err)
		}
		worker, router, err := r.Helps(text)
		if err != nil {
			return err
		}
		return d.Check(worker, router)
	}
	for _, c := range []struct{ recipe, text, want, not string }{
		{"base", "", "router: --policy consistent_hashing: the help of python3 -m sglang_router.launch_router takes random, round_robin; the nearest is", "unknown argument"},
		{"more", "", "unified-0: unknown argument --dtpye: the help of python3 -m sglang.launch_server does not name it; the nearest is --dtype", ""},
		{"more", known + "  --dtpye X\n", "--policy consistent_hashing", "--dtpye"},
		{"base", "no help at all", "--engine-help: it names no arguments", "the engine's help"},
		{"absent", "", "help nowhere.txt", ""},
		{"empty", "", "names no arguments", ""},
	} {
		err := check(c.recipe, c.text)
		if err == nil || !strings.Contains(err.Error(), c.want) || c.not != "" && strings.Contains(err.Error(), c.not) {
			t.Errorf("%s: %v, want %q", c.recipe, err, c.want)
		}
	}
}

func FuzzParseHelp(f *testing.F) {
	for _, text := range []string{argparseHelp, clickHelp, pflagHelp} {
		f.Add(text, "--dtype=x")
	}
	f.Fuzz(func(t *testing.T, text, word string) {
		h, err := engine.ParseHelp(text)
		if err == nil {
			h.Check(&engine.Process{Argv: []string{"x", word, "y"}, Program: 1})
		}
	})
}
