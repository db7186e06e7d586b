package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/weirbench/weir/internal/facts"
	"github.com/weirbench/weir/internal/material"
	"github.com/weirbench/weir/internal/sim"
	"github.com/weirbench/weir/internal/sim/simhttp"
	"github.com/weirbench/weir/internal/spec"
)

// documented are the guides whose commands are run, in order, each in a folder of its own that
// holds what its reader has: traces, InferenceX's files, the examples, a model's config.
// docs/corpus.md has a test of its own.
func documented(t *testing.T) []string {
	t.Helper()
	out := []string{"README.md", "README_zh.md"}
	found, err := filepath.Glob(filepath.Join("..", "..", "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		if base := filepath.Base(f); base != "corpus.md" {
			out = append(out, filepath.Join("docs", base))
		}
	}
	return out
}

// long are commands that run until they are stopped: they must live for a second.
var long = regexp.MustCompile(`^weir (serve|sim serve|sim router)\b|--serve-clock`)

// elsewhere are commands that need what a test has not: a git history with an upstream, the
// network, a cluster, bundles of a real engine. They must at least be known with all their flags.
var elsewhere = regexp.MustCompile(`origin/main|--base-ref|corpus fetch .|sbatch|--executor slurm|--public-dataset|tokenizer\.json|\.github/|github|sim calibrate sweep/|--facts facts\.yaml`)

// shorter makes what a guide shows fit a test: another server, less load.
func shorter(line, url string) string {
	for _, r := range [][2]string{
		{`http://(127\.0\.0\.1|localhost):[0-9]+`, "@URL@"}, {`127\.0\.0\.1:[0-9]+`, "127.0.0.1:0"}, {`@URL@`, url},
		{`DIR_OF_WEKA_TRACES|--corpus DIR\b`, "--corpus traces"}, {`--corpus --corpus`, "--corpus"},
		{`--model (my-model|NAME)`, "--model glm-5.2"}, {`^(bin/)?weir replay`, "weir replay --idle-cap 100ms"},
		{`^weir sim serve`, "weir sim serve --addr 127.0.0.1:0"}, {`^(?:bin/)?(weir corpus generate.*)`, "rm -rf traces; $1"},
		{`--duration [0-9]+[hms]\b`, "--duration 1s"}, {`--for [0-9]+s`, "--for 200ms"}, {`^bin/weir`, "weir"},
	} {
		line = regexp.MustCompile(r[0]).ReplaceAllString(line, r[1])
	}
	return line
}

// commandsOf returns the command lines of a guide: lines that begin with weir in code, fenced or
// indented, with those that a backslash continues.
func commandsOf(text string) []string {
	var out []string
	fenced := false
	lines := strings.Split(text, "\n")
	for i := 0; i < len(lines); i++ {
		l := lines[i]
		if strings.HasPrefix(l, "```") {
			fenced = !fenced
			continue
		}
		if !fenced && !strings.HasPrefix(l, "    ") {
			continue
		}
		cmd := strings.TrimSpace(l)
		if !strings.HasPrefix(cmd, "weir ") && !strings.HasPrefix(cmd, "bin/weir ") {
			continue
		}
		for strings.HasSuffix(cmd, "\\") && i+1 < len(lines) {
			i++
			cmd = strings.TrimSuffix(cmd, "\\") + strings.TrimSpace(lines[i])
		}
		if at := strings.Index(cmd, " #"); at > 0 {
			cmd = cmd[:at]
		}
		out = append(out, strings.TrimSpace(cmd))
	}
	return out
}

func TestDocumentedCommandsRun(t *testing.T) {
	material.RealTime(t)
	url := simulatedServer(t)
	ran := 0
	for _, doc := range documented(t) {
		text, err := os.ReadFile(filepath.Join("..", "..", doc))
		if err != nil {
			t.Fatal(err)
		}
		dir := readersFolder(t)
		for _, line := range commandsOf(string(text)) {
			ran++
			if elsewhere.MatchString(line) {
				known(t, doc, line)
				continue
			}
			runLine(t, doc, dir, shorter(line, url))
		}
	}
	if ran < 40 {
		t.Errorf("only %d commands were found", ran)
	}
}

// runLine runs one line in a shell, with the deadline that a reader's patience has.
func runLine(t *testing.T, doc, dir, line string) {
	t.Helper()
	limit := 5 * time.Minute
	isLong := long.MatchString(line)
	if isLong {
		limit = time.Second
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-o", "pipefail", "-c", "exec 2>&1; "+line)
	cmd.Dir = dir
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if isLong {
		if ctx.Err() == nil {
			t.Errorf("%s: %s ended by itself: %v\n%s", doc, line, err, tail(out))
		}
		return
	}
	code := cmd.ProcessState.ExitCode()
	if strings.Contains(line, "| head") && code == 141 { // the pipe was closed, as asked
		code = 0
	}
	if strings.HasPrefix(line, "weir lint") && code == exitFailed { // it found something
		code = 0
	}
	// 3 and 4 are answers, not faults: a result that is not valid, a plan that is refused.
	if ctx.Err() != nil || code != 0 && code != exitInvalid && code != exitRefused {
		t.Errorf("%s: %s ended with %d (%v)\n%s", doc, line, code, ctx.Err(), tail(out))
	}
	if len(bytes.TrimSpace(out)) == 0 && !strings.Contains(line, " -o ") {
		t.Errorf("%s: %s printed nothing", doc, line)
	}
}

func tail(b []byte) string {
	if len(b) > 600 {
		b = b[len(b)-600:]
	}
	return string(b)
}

// known checks that a command and its flags exist.
func known(t *testing.T, doc, line string) {
	t.Helper()
	args := strings.Fields(strings.TrimPrefix(strings.TrimPrefix(line, "bin/"), "weir "))
	cmd, rest, err := newRoot(&App{}).Find(args)
	if err != nil || cmd.Name() == "weir" {
		t.Errorf("%s: %s: no such command", doc, line)
		return
	}
	for _, a := range rest {
		name, _, _ := strings.Cut(strings.TrimPrefix(a, "--"), "=")
		if strings.HasPrefix(a, "--") && cmd.Flags().Lookup(name) == nil && cmd.InheritedFlags().Lookup(name) == nil && !cmd.DisableFlagParsing {
			t.Errorf("%s: %s: %s has no flag --%s", doc, line, cmd.CommandPath(), name)
		}
	}
}

// readersFolder is a folder with what the guides take for granted.
func readersFolder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	var out, errs bytes.Buffer
	if code := Main([]string{"corpus", "generate", "--traces", "6", "--seed", "2", "-o", filepath.Join(dir, "traces")}, nil, &out, &errs); code != 0 {
		t.Fatal(errs.String())
	}
	link := func(from, to string) {
		abs, err := filepath.Abs(from)
		if err == nil {
			err = os.Symlink(abs, filepath.Join(dir, to))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []string{"nvidia-master.yaml", "amd-master.yaml", "runners.yaml"} {
		link(material.Path(t, "inferencex", f), f)
	}
	if err := os.CopyFS(filepath.Join(dir, "golden_al_distribution"), os.DirFS(material.Path(t, "inferencex", "golden_al_distribution"))); err != nil {
		t.Fatal(err)
	}
	change := material.Path(t, "inferencex", "changelog-49ac5c0a0")
	link(filepath.Join(change, "base-perf-changelog.yaml"), "old.yaml")
	link(filepath.Join(change, "head-perf-changelog.yaml"), "new.yaml")
	link("../../examples", "examples")
	link("../../examples/recipes", "recipes")
	write := func(name string, b []byte) {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(filepath.Join(material.Path(t, "inferencex", "changelog-49ac5c0a0"), "base-perf-changelog.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	write("perf-changelog.yaml", b)
	set, err := spec.Load([]string{"../../examples/quickstart/master.yaml"}, "../../examples/quickstart/runners.yaml")
	if err != nil {
		t.Fatal(err)
	}
	points, err := set.Points(spec.Selection{Conc: []int{8}})
	if err != nil {
		t.Fatal(err)
	}
	if b, err = json.Marshal(points[0]); err != nil {
		t.Fatal(err)
	}
	write("point.json", b)
	write("config.json", []byte(`{"architectures":["LlamaForCausalLM"],"model_type":"llama","hidden_size":8192,"num_hidden_layers":80,
		"num_attention_heads":64,"num_key_value_heads":8,"head_dim":128,"intermediate_size":28672,"vocab_size":128256,"max_position_embeddings":131072,"torch_dtype":"bfloat16"}`))
	return dir
}

// simulatedServer serves the simulated engine for the guides that measure a running server.
func simulatedServer(t *testing.T) string {
	t.Helper()
	model, err := facts.ModelByName("glm-5.2")
	if err != nil {
		t.Fatal(err)
	}
	gpu, err := facts.GPUByName("b200")
	if err != nil {
		t.Fatal(err)
	}
	srv, err := simhttp.New(simhttp.Options{Model: "glm-5.2", Speed: 50, Config: sim.Config{
		Model: model, GPU: gpu, Parallel: spec.Parallel{TP: 8, PP: 1, EP: 1, DCP: 1, PCP: 1},
		WeightPrecision: "fp4", KVDType: "fp8", KVBytesPerToken: 55224, DeviceTokens: 1_676_928, HostTokens: 5_364_160, WritePolicy: "write_back",
	}})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- srv.Serve(ctx, l) }()
	t.Cleanup(func() { stop(); <-done })
	return fmt.Sprintf("http://%s", l.Addr())
}
