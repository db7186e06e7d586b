package engine

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/weirbench/weir/internal/spec"
)

// A Help is what the help text of a program says of its arguments.
type Help struct {
	// choices by name of a flag as it is compared: with dashes, in lower and upper case as written.
	// nil where a flag takes any value.
	choices map[string][]string
}

var (
	helpFlag    = regexp.MustCompile(`(?:^|[\s,|\[│])(--?)(\[no-?\])?([A-Za-z][A-Za-z0-9_.-]*)`)
	helpChoices = regexp.MustCompile(`^[\s=]*\{([^{}]*)\}(?:\s*\[\{[^{}]*\}\s*\.\.\.\])?\s*(?:$|[,|\]])`)
	helpGap     = regexp.MustCompile(`\S\s{2,}`)
)

// maxInvocation is the column up to which a line of a help text can begin with a flag that it
// explains; text that explains one stands farther right.
const maxInvocation = 12

// ParseHelp reads what a program prints for --help, in the forms of Python's argparse (SGLang,
// vLLM and their routers), Click (trtllm-serve) and Go's pflag: the block behind "usage:", and
// lines that begin with a flag. Flags that are only mentioned in running text do not count.
func ParseHelp(text string) (*Help, error) {
	parsed.Lock()
	defer parsed.Unlock()
	if h := parsed.of[text]; h != nil {
		return h, nil
	}
	h, err := parseHelp(text)
	if err == nil {
		if parsed.of == nil || len(parsed.of) >= maxParsed {
			parsed.of = map[string]*Help{}
		}
		parsed.of[text] = h
	}
	return h, err
}

// parsed are help texts that were read before: a sweep reads one for every point.
var parsed struct {
	sync.Mutex
	of map[string]*Help
}

const maxParsed = 16

func parseHelp(text string) (*Help, error) {
	h := &Help{choices: map[string][]string{}}
	usage, open := false, ""
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, " \r\n")
		bare := strings.Trim(line, "│| ")
		switch low := strings.ToLower(strings.TrimSpace(line)); {
		case strings.HasPrefix(low, "usage:"):
			usage, open = true, ""
		case usage && bare == "":
			usage = false
		}
		if usage {
			// A pair of brackets may be spread over lines.
			open += " " + strings.TrimSpace(line)
			continue
		}
		if open != "" {
			h.usage(open)
			open = ""
		}
		indent := len(line) - len(strings.TrimLeft(line, "│| \t"))
		if bare == "" || bare[0] != '-' || indent > maxInvocation {
			continue
		}
		if at := helpGap.FindStringIndex(bare); at != nil {
			bare = bare[:at[0]+1]
		}
		h.line(bare)
	}
	h.usage(open)
	if len(h.choices) < 2 {
		return nil, errors.New("it names no arguments; of vLLM take --help=all")
	}
	return h, nil
}

// usage reads "[--a A] [--b | --no-b] [--c {x,y}]".
func (h *Help) usage(text string) {
	for _, part := range strings.Split(text, "[-") {
		part = "-" + part
		for _, alternative := range strings.Split(part, " | ") {
			h.line(strings.TrimSpace(alternative))
		}
	}
}

// line reads the flags of one entry: "-h, --help" or "--policy {a,b}, -p {a,b}".
func (h *Help) line(text string) {
	for _, m := range helpFlag.FindAllStringSubmatchIndex(text, -1) {
		name := strings.TrimRight(text[m[6]:m[7]], ".-")
		var choices []string
		if c := helpChoices.FindStringSubmatch(text[m[7]:]); c != nil {
			for _, v := range strings.Split(c[1], ",") {
				choices = append(choices, strings.TrimSpace(v))
			}
		}
		h.add(text[m[2]:m[3]]+name, choices)
		if m[4] >= 0 {
			h.add("--no-"+name, nil)
		}
	}
}

func (h *Help) add(name string, choices []string) {
	name = spelled(name)
	if have, ok := h.choices[name]; !ok || have == nil {
		h.choices[name] = choices
	}
}

// spelled is a flag as it is compared: most parsers take dashes and underscores for the same.
func spelled(name string) string { return strings.ReplaceAll(name, "_", "-") }

// Check refuses the arguments of a process that its program's help does not know, and values that
// are not among the choices that it lists, each with the nearest that there is.
func (h *Help) Check(p *Process) error {
	var errs []error
	args := p.Argv[min(p.Program, len(p.Argv)):]
	for i := 0; i < len(args); i++ {
		if !isFlag(args[i]) {
			continue
		}
		name, value, joined := strings.Cut(args[i], "=")
		choices, known := h.choices[spelled(name)]
		if !known {
			// vLLM takes members of a JSON argument behind a dot.
			if whole, _, dotted := strings.Cut(name, "."); dotted {
				_, known = h.choices[spelled(whole)]
			}
		}
		if !known {
			errs = append(errs, fmt.Errorf("%s: unknown argument %s: the help of %s does not name it; %s", p.Name, name, p.programName(), h.nearest(name)))
			continue
		}
		values := []string{value}
		if !joined {
			values = nil
			for i+1 < len(args) && !isFlag(args[i+1]) {
				i++
				values = append(values, args[i])
			}
		}
		for _, v := range values {
			if len(choices) > 0 && !slices.Contains(choices, v) {
				errs = append(errs, fmt.Errorf("%s: %s %s: the help of %s takes %s; the nearest is %s", p.Name, name, v, p.programName(), strings.Join(choices, ", "), spec.Nearest(v, choices)))
			}
		}
	}
	return errors.Join(errs...)
}

func isFlag(word string) bool {
	return len(word) > 1 && word[0] == '-' && (word[1] == '-' && len(word) > 2 || word[1] >= 'A' && word[1] <= 'Z' || word[1] >= 'a' && word[1] <= 'z')
}

func (h *Help) nearest(name string) string {
	var all []string
	for n := range h.choices {
		all = append(all, n)
	}
	slices.Sort(all)
	return "the nearest is " + spec.Nearest(spelled(name), all)
}

// programName is what a process runs, without its arguments.
func (p *Process) programName() string {
	return strings.Join(p.Argv[:min(p.Program, len(p.Argv))], " ")
}

// HelpCommand is the command that prints the help of a process's program; nil where the process
// has none that can be read.
func (p *Process) HelpCommand() []string {
	if p.Program == 0 || p.Program > len(p.Argv) {
		return nil
	}
	return append(slices.Clone(p.Argv[:p.Program]), "--help")
}

// Check refuses arguments that the programs of a deployment do not know, as far as help texts are
// there: engine of its workers, router of its router; nil checks nothing.
func (d *Deployment) Check(engine, router *Help) error {
	var errs []error
	for i := range d.Processes {
		p := &d.Processes[i]
		h := engine
		if p.Role == "router" {
			h = router
		}
		if h != nil && p.Program > 0 {
			errs = append(errs, h.Check(p))
		}
	}
	return errors.Join(errs...)
}

// byFlag names a text that came by a flag.
func byFlag(text string) string {
	if text == "" {
		return ""
	}
	return "--engine-help"
}

// Helps are the help texts that the recipe names, read; nil where it names none. With a text of
// the engine from elsewhere, that one counts.
func (r *Recipe) Helps(text string) (engine, router *Help, err error) {
	for _, x := range []struct {
		text, what string
		to         **Help
	}{{cmp.Or(text, r.help), cmp.Or(byFlag(text), "the engine's help"), &engine}, {r.Roles["router"].help, "the router's help", &router}} {
		if x.text == "" {
			continue
		}
		if *x.to, err = ParseHelp(x.text); err != nil {
			return nil, nil, fmt.Errorf("%s: %s: %w", r.where(), x.what, err)
		}
	}
	return engine, router, nil
}
