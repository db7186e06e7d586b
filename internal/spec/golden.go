package spec

import (
	"fmt"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
)

// A curve is the accepted length of a draft by the number of draft tokens, for one model and
// drafter, measured on real prompts.
type curve struct {
	name     string // of the file, without ending
	thinking map[bool]map[int]string
}

// readCurves reads a folder of golden acceptance lengths: model, then thinking_on or thinking_off,
// then draft tokens to length.
func readCurves(dir string) ([]curve, error) {
	files, err := walkFiles(dir, ".yaml", ".yml")
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s: holds no golden curve; name the folder golden_al_distribution", dir)
	}
	var out []curve
	var problems Problems
	for _, f := range files {
		data, err := readFile(f)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f, err)
		}
		src := &source{file: f}
		c := curve{name: strings.TrimSuffix(filepath.Base(f), filepath.Ext(f)), thinking: map[bool]map[int]string{}}
		if top := src.parse(data); top != nil {
			for _, model := range top.object(nil).pairs {
				o := model.object([]string{"thinking_on", "thinking_off"})
				for _, mode := range o.pairs {
					c.thinking[mode.key == "thinking_on"] = readCurve(mode)
				}
			}
		}
		problems = append(problems, src.problems...)
		out = append(out, c)
	}
	if len(problems) > 0 {
		return nil, problems
	}
	return out, nil
}

func readCurve(n *node) map[int]string {
	m := map[int]string{}
	if n.y.Kind != yamlMapping {
		n.object(nil)
		return m
	}
	for i := 0; i+1 < len(n.y.Content); i += 2 {
		k, err := strconv.Atoi(n.y.Content[i].Value)
		v := n.src.node(n.y.Content[i+1], n, n.y.Content[i].Value, 0)
		if err != nil || k < 1 {
			v.fail("the key is not a number of draft tokens", "write 1, 2, 3 ...")
			continue
		}
		if _, ok := v.decimal(); ok {
			m[k] = v.y.Value
		}
	}
	return m
}

// curvesOf are the curves of a model: those whose name begins with its prefix. The longest prefix
// wins, so that a curve of "dsv4-pro-0813" is not one of "dsv4".
func (l *linter) curvesOf(model string) []curve {
	model = strings.ToLower(model)
	var out []curve
	for _, c := range l.curves {
		prefix, _, _ := strings.Cut(c.name, "_")
		if prefix == model {
			out = append(out, c)
		}
	}
	return out
}

// checkAcceptance compares a simulated acceptance length with the golden curves of the model. With
// a draft length of 0 any value of a curve passes.
func (l *linter) checkAcceptance(at Pos, model, value string, draft int, thinking bool, name string) {
	curves := l.curvesOf(model)
	if l.in.Golden == "" {
		return
	}
	mode := "thinking_off"
	if thinking {
		mode = "thinking_on"
	}
	var known []string
	for _, c := range curves {
		m := c.thinking[thinking]
		if draft > 0 && m[draft] != "" {
			if equalDecimal(m[draft], value) {
				return
			}
			known = append(known, fmt.Sprintf("%s for %d draft tokens (%s)", m[draft], draft, c.name))
			continue
		}
		keys := make([]int, 0, len(m))
		for k := range m {
			keys = append(keys, k)
		}
		sort.Ints(keys)
		values := make([]string, len(keys))
		for i, k := range keys {
			if draft == 0 && equalDecimal(m[k], value) {
				return
			}
			values[i] = m[k]
		}
		if len(values) > 0 && draft == 0 {
			known = append(known, strings.Join(values, " ")+" for 1 to "+strconv.Itoa(keys[len(keys)-1])+" draft tokens ("+c.name+")")
		}
	}
	what := fmt.Sprintf("%s is %s, and no golden curve of %s with %s has it", name, value, model, mode)
	if len(known) == 0 {
		if len(curves) == 0 {
			what = fmt.Sprintf("%s is %s, and there is no golden curve of %s", name, value, model)
		}
		l.add(at, "golden-al", what, "measure the curve first, or run without simulated acceptance")
		return
	}
	l.add(at, "golden-al", what, "use "+strings.Join(known, ", or "))
}

// equalDecimal compares numbers as they are written, zeros at the end aside.
func equalDecimal(a, b string) bool {
	trim := func(s string) string {
		if strings.Contains(s, ".") {
			s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
		}
		return s
	}
	return trim(a) == trim(b)
}
