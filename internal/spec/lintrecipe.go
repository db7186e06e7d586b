package spec

import (
	"fmt"
	"math/big"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// A recipeFile is a recipe or a launch script, as far as the rules look into it: its lines, and
// for YAML every named value.
type recipeFile struct {
	file  string
	lines []string
	facts []recipeFact
	users []*config // configs that name it
	ranks map[*config]int
}

// recipeFact is a named value: a key of a mapping, "NAME=value" or "--flag value" of a list.
type recipeFact struct {
	name  string // lower case, without leading dashes, "_" as "-"
	value string
	role  string // prefill, decode or ""
	at    Pos
}

// readRecipes reads the recipes and finds which configs use them.
func (l *linter) readRecipes() error {
	for _, root := range l.in.Recipes {
		files, err := walkFiles(root, ".yaml", ".yml", ".sh")
		if err != nil {
			return fmt.Errorf("%s: %w", root, err)
		}
		for _, f := range files {
			data, err := readFile(f)
			if err != nil {
				return fmt.Errorf("%s: %w", f, err)
			}
			r := &recipeFile{file: f, lines: strings.Split(string(data), "\n"), ranks: map[*config]int{}}
			if filepath.Ext(f) != ".sh" {
				src := &source{file: f}
				if top := src.parse(data); top != nil {
					r.collect(src, top.y, "", "", 0)
				}
				if len(src.problems) > 0 {
					return src.problems
				}
			}
			if err := l.readWaivers(f); err != nil {
				return err
			}
			l.recipes = append(l.recipes, r)
		}
	}
	if l.set == nil {
		return nil
	}
	for _, c := range l.set.configs {
		for _, b := range c.blocks() {
			for _, e := range b.entries {
				l.link(c, e)
			}
		}
	}
	return nil
}

// link finds the recipes of an entry: weir.recipe, or CONFIG_FILE in its settings.
func (l *linter) link(c *config, e *entry) {
	names := []string{e.weir.over(c.weir).recipe.V}
	for _, w := range []*worker{e.prefill, e.decode} {
		if v, ok := w.setting("CONFIG_FILE"); ok {
			v, _, _ = strings.Cut(v, ":")
			v = strings.TrimPrefix(v, "benchmarks/multi_node/srt-slurm-recipes/")
			names = append(names, strings.TrimPrefix(v, "recipes/"))
		}
	}
	for _, name := range names {
		if name == "" {
			continue
		}
		for _, r := range l.recipes {
			if !strings.HasSuffix("/"+filepath.ToSlash(r.file), "/"+name) {
				continue
			}
			known := false
			for _, u := range r.users {
				known = known || u == c
			}
			if !known {
				r.users = append(r.users, c)
			}
			if c.hardware != nil && e.offload.V == "dram" {
				r.ranks[c] = gpusOnNode(c, e)
			}
		}
	}
}

// collect gathers the named values of a YAML recipe.
func (r *recipeFile) collect(src *source, y *yaml.Node, name, role string, depth int) {
	if depth > 100 || len(r.facts) > 100_000 {
		return
	}
	switch y.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(y.Content); i += 2 {
			k := y.Content[i].Value
			r.collect(src, y.Content[i+1], k, roleOf(k, role), depth+1)
		}
	case yaml.SequenceNode:
		for i, c := range y.Content {
			if c.Kind != yaml.ScalarNode {
				r.collect(src, c, name, role, depth+1)
				continue
			}
			if k, v, ok := strings.Cut(c.Value, "="); ok && !strings.ContainsAny(k, " {") {
				r.fact(src, c, k, v, role)
			} else if strings.HasPrefix(c.Value, "--") && i+1 < len(y.Content) && y.Content[i+1].Kind == yaml.ScalarNode {
				r.fact(src, c, c.Value, y.Content[i+1].Value, role)
			} else {
				r.fact(src, c, name, c.Value, role)
			}
		}
	case yaml.ScalarNode:
		r.fact(src, y, name, y.Value, role)
		// Arguments in one string: --a b --c=d
		if fields := strings.Fields(y.Value); len(fields) > 1 {
			for i, f := range fields {
				if k, v, ok := strings.Cut(f, "="); ok && strings.HasPrefix(f, "--") {
					r.fact(src, y, k, v, role)
				} else if strings.HasPrefix(f, "--") && i+1 < len(fields) {
					r.fact(src, y, f, fields[i+1], role)
				}
			}
		}
	}
}

func roleOf(key, role string) string {
	k := strings.ToLower(key)
	for _, w := range []string{"prefill", "decode", "aggregated", "unified"} {
		if strings.HasPrefix(k, w) {
			return w
		}
	}
	return role
}

func (r *recipeFile) fact(src *source, y *yaml.Node, name, value, role string) {
	name = strings.ReplaceAll(strings.ToLower(strings.TrimLeft(name, "-")), "_", "-")
	r.facts = append(r.facts, recipeFact{name, value, role, src.pos(y)})
}

// find returns the facts with one of the names.
func (r *recipeFile) find(names ...string) []recipeFact {
	var out []recipeFact
	for _, f := range r.facts {
		if contains(names, f.name) {
			out = append(out, f)
		}
	}
	return out
}

var (
	shellAssign = regexp.MustCompile(`^\s*(?:export\s+)?([A-Z][A-Z0-9_]*)=["']?([^"'\s]*)`)
	// enginePatches are ways to change the engine of an image before it serves.
	enginePatches = []*regexp.Regexp{
		regexp.MustCompile(`\bgit\s+apply\b`),
		regexp.MustCompile(`(^|[\s;&|(])patch\s+(-|<|\S+\s*<)`),
		regexp.MustCompile(`\S+\.patch\b`),
		regexp.MustCompile(`\bsed\s+(-\S+\s+)*-\S*i.*(site-packages|dist-packages|/sgl-workspace|/vllm|/sglang|/opt/|tensorrt)`),
		regexp.MustCompile(`(cp|mv|install|tee|cat\s*>|>)\s.*(site-packages|dist-packages)`),
		regexp.MustCompile(`open\([^)]*(site-packages|dist-packages)`),
		regexp.MustCompile(`(?i)monkey.?patch`),
		regexp.MustCompile(`pip3?\s+install\s.*(git\+|\.whl\b|-e\s).*(sglang|vllm|tensorrt|sgl-kernel|atom|dynamo|flashinfer|mooncake)`),
		regexp.MustCompile(`pip3?\s+install\s.*(sglang|vllm|tensorrt|sgl-kernel|atom|dynamo|flashinfer|mooncake).*(git\+|\.whl\b)`),
	}
)

// checkRecipe applies the rules to one recipe.
func (l *linter) checkRecipe(r *recipeFile) {
	for i, line := range r.lines {
		code, _, _ := strings.Cut(line, "# ")
		for _, re := range enginePatches {
			if m := strings.TrimSpace(re.FindString(code)); m != "" {
				l.add(Pos{r.file, i + 1, 1}, "engine-patch", "the recipe changes the engine of the image: "+clip(m),
					"use an image that has the change, or file a waiver document")
				break
			}
		}
		if m := shellAssign.FindStringSubmatch(code); m != nil && filepath.Ext(r.file) == ".sh" {
			r.facts = append(r.facts, recipeFact{strings.ReplaceAll(strings.ToLower(m[1]), "_", "-"), m[2], "", Pos{r.file, i + 1, 1}})
		}
	}
	l.checkRecipeImage(r)
	l.checkChatTemplate(r)
	l.checkPDEqual(r)
	l.checkWarmup(r)
	l.checkRecipeAcceptance(r)
	l.checkRecipePool(r)
}

func (l *linter) checkRecipeImage(r *recipeFile) {
	for _, f := range r.find("image", "container", "container-image") {
		if !strings.ContainsAny(f.value, "/:") || strings.Contains(f.value, "$") {
			continue // an alias that the fleet resolves
		}
		l.checkImage(f.at, f.value)
		for _, c := range r.users {
			if plainImage(f.value) != plainImage(c.image.V) {
				l.add(f.at, "image-recipe", fmt.Sprintf("the recipe runs %s and config %s (%s) says %s", f.value, c.key, c.image.At, c.image.V),
					"use one image in both")
			}
		}
	}
}

// plainImage writes an image in one way: enroot names the registry with "#", Docker Hub may be
// left out.
func plainImage(s string) string {
	s = strings.TrimPrefix(strings.TrimPrefix(s, "docker://"), "dockerd://")
	return strings.TrimPrefix(strings.ReplaceAll(s, "#", "/"), "docker.io/")
}

// checkChatTemplate looks at recipes that serve fixed-seq-len load with speculation: agentic load
// goes through the chat endpoint always.
func (l *linter) checkChatTemplate(r *recipeFile) {
	speculates := strings.HasSuffix(r.file, "_mtp.sh") && r.has("run_benchmark_serving")
	for _, c := range r.users {
		for _, b := range c.fixed {
			for _, e := range b.entries {
				speculates = speculates || e.spec.or("none") != "none"
			}
		}
	}
	if !speculates {
		return
	}
	// --dsv4 is InferenceX's own encoding of DeepSeek-V4's template.
	for _, word := range []string{"use-chat-template", "use_chat_template", "chat/completions", "endpoint-type chat",
		"endpoint_type: chat", "openai-chat", "--dsv4"} {
		if r.has(word) {
			return
		}
	}
	l.add(Pos{r.file, 1, 1}, "chat-template", "the recipe speculates and sends prompts without the chat template",
		"add --use-chat-template or use the chat endpoint")
}

// has says whether a line has a word outside its comment.
func (r *recipeFile) has(word string) bool {
	for _, line := range r.lines {
		code, _, _ := strings.Cut(line, "# ")
		if strings.Contains(code, word) && !strings.HasPrefix(strings.TrimSpace(code), "#") {
			return true
		}
	}
	return false
}

// equalNames have no max_seq_len: TensorRT-LLM's context servers hold the prompt only.
var equalNames = [][]string{{"context-length", "max-model-len"}, {"page-size", "block-size", "tokens-per-block"}}

func (l *linter) checkPDEqual(r *recipeFile) {
	for _, names := range equalNames {
		var prefill, decode *recipeFact
		for _, f := range r.find(names...) {
			f := f
			switch {
			case f.role == "prefill" && prefill == nil:
				prefill = &f
			case f.role == "decode" && decode == nil:
				decode = &f
			}
		}
		if prefill != nil && decode != nil && prefill.value != decode.value {
			l.add(decode.at, "pd-equal", fmt.Sprintf("%s is %s on decode and %s on prefill (line %d)",
				decode.name, decode.value, prefill.value, prefill.at.Line), "use "+prefill.value+" on both")
		}
	}
}

// checkWarmup compares the grace of the warm-up with the window, which is an hour where nothing
// else is said.
func (l *linter) checkWarmup(r *recipeFile) {
	window, said := float64(agenticDuration), "the window of "+strconv.Itoa(agenticDuration)+" s"
	for _, f := range r.find("duration", "benchmark-duration") {
		if v, err := strconv.ParseFloat(f.value, 64); err == nil && v > 0 {
			window, said = v, fmt.Sprintf("the window of %s s (line %d)", f.value, f.at.Line)
		}
	}
	for _, f := range r.find("agentic-warmup-grace-period", "warmup-grace-period", "warmup-grace") {
		if v, err := strconv.ParseFloat(f.value, 64); err == nil && v > window {
			l.add(f.at, "warmup-window", f.name+" of "+f.value+" s is above "+said, "lower it to the window or less")
		}
	}
}

// checkRecipeAcceptance compares simulated acceptance in a recipe with the golden curves.
func (l *linter) checkRecipeAcceptance(r *recipeFile) {
	thinking := true
	text := strings.ToLower(strings.Join(r.lines, "\n"))
	for _, off := range []string{`"thinking": false`, `"thinking":false`, `"enable_thinking": false`, `"enable_thinking":false`, "thinking: false", "thinking:false"} {
		thinking = thinking && !strings.Contains(text, off)
	}
	for _, f := range r.find("sglang-simulate-acc-len", "synthetic-acceptance-length", "spec-decode-acceptance-length",
		"tllm-spec-decode-force-num-accepted-tokens") {
		if f.role == "prefill" { // drafts are accepted where tokens are generated
			continue
		}
		v := f.value
		if _, err := strconv.ParseFloat(v, 64); err != nil {
			continue // a variable
		}
		if f.name == "tllm-spec-decode-force-num-accepted-tokens" { // without the token that is always there
			x, ok := new(big.Rat).SetString(v)
			if !ok || len(v) > 20 {
				continue
			}
			v = trimZeros(x.Add(x, big.NewRat(1, 1)))
		}
		draft := 0
		for _, d := range r.find("speculative-num-steps", "num-speculative-tokens", "num-nextn-predict-layers", "max-draft-len") {
			if n, err := strconv.Atoi(d.value); err == nil && (draft == 0 || d.role == f.role) {
				draft = n
			}
		}
		l.checkAcceptance(f.at, r.model(l), v, draft, thinking, f.name)
	}
}

// model is the model prefix of the recipe: that of a config that uses it, or the one of a golden
// curve that its path or model names.
func (r *recipeFile) model(l *linter) string {
	if len(r.users) > 0 {
		return r.users[0].modelPrefix.V
	}
	plain := func(s string) string {
		return strings.NewReplacer("-", "", "_", "", ".", "").Replace(strings.ToLower(s))
	}
	texts := []string{plain(r.file)}
	for _, f := range r.find("served-model-name", "model", "path") {
		texts = append(texts, plain(f.value))
	}
	best := ""
	for _, c := range l.curves {
		prefix, _, _ := strings.Cut(c.name, "_")
		for _, t := range texts {
			if strings.Contains(t, plain(prefix)) && len(prefix) > len(best) {
				best = prefix
			}
		}
	}
	if best == "" {
		return "this model"
	}
	return best
}

// checkRecipePool compares a pool that the recipe sizes per rank with the share of the node.
func (l *linter) checkRecipePool(r *recipeFile) {
	for _, f := range r.find("hicache-size", "host-gb-per-rank", "lmcache-max-local-cpu-size") {
		v, err := strconv.ParseFloat(f.value, 64)
		if err != nil || v <= 0 || v > 1e6 {
			continue
		}
		for _, c := range r.users {
			if ranks := r.ranks[c]; ranks > 0 && f.role != "decode" {
				l.checkPool(f.at, c, ranks, int64(v*1e9), f.name)
			}
		}
	}
}
