package run

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/weirbench/weir/internal/record"
	"github.com/weirbench/weir/internal/spec"
)

// ErrOtherRun is returned for a sweep's folder that holds bundles of the same points which
// another run made: with another corpus, other replay options, recipe, plan or facts. A point's
// id has none of them.
var ErrOtherRun = errors.New("another run's bundle")

// Check says whether the folder holds what another run than this sweep made of its points. It
// changes nothing. The error wraps ErrOtherRun and names the first difference.
func (s *Sweep) Check() error {
	by := map[string]*Job{}
	for _, j := range s.Jobs {
		dir := BundleDir(s.Dir, j)
		if o := by[dir]; o != nil {
			a, b := o.Point.Origin, j.Point.Origin
			return fmt.Errorf("%s:%d and %s:%d make the same run %s: remove one of them", a.File, a.Line, b.File, b.Line, filepath.Base(dir))
		}
		by[dir] = j
		if err := ours(dir, j); err != nil {
			return err
		}
		if r, ok := executorOf(s.Executor, j).(Remote); ok {
			if err := r.Ours(j, dir); err != nil {
				return err
			}
		}
	}
	return nil
}

// ours is nil for a whole bundle that the job would make, and for a folder without one. A
// damaged bundle is nobody's.
func ours(dir string, j *Job) error {
	if record.Status(dir) != record.Complete {
		return nil
	}
	b, err := record.OpenBundle(dir)
	if errors.Is(err, record.ErrSchema) {
		return fmt.Errorf("%w: %w; write into another folder with -o", ErrOtherRun, err)
	}
	if err != nil || b.Meta.PointID != j.Point.ID() {
		return nil
	}
	asked, err := j.meta()
	if err != nil {
		return err
	}
	diff, err := difference(b.Meta, asked)
	if err != nil {
		return fmt.Errorf("%s: %w", filepath.Join(dir, record.PointFile), err)
	}
	if diff == "" || b.Verify() != nil {
		return nil
	}
	return otherRun(dir, j.Point, diff)
}

func otherRun(dir string, p *spec.Point, diff string) error {
	return fmt.Errorf("%w: %s holds concurrency %d of %s as another run measured it: %s; nothing was touched: write this run into another folder with -o",
		ErrOtherRun, dir, p.Conc, p.Key, diff)
}

func (j *Job) recipeJSON() json.RawMessage {
	if j.Recipe == nil {
		return nil
	}
	raw, err := json.Marshal(j.Recipe)
	if err != nil { // a Recipe has only marshallable fields
		panic(err)
	}
	return raw
}

// factsSum names facts that are put before the embedded ones; empty for none.
func factsSum(text string) string {
	if text == "" {
		return ""
	}
	h := sha256.Sum256([]byte(text))
	return hex.EncodeToString(h[:6])
}

// difference is the first thing, beside the point, in which two runs of it were asked for
// differently, with both values; empty when there is none.
func difference(there, here *record.Meta) (string, error) {
	if a, b := there.Corpus, here.Corpus; a.Fingerprint != b.Fingerprint {
		return fmt.Sprintf("the corpus there is %s, here it is %s", corpusName(a), corpusName(b)), nil
	}
	for _, f := range []struct{ name, there, here string }{
		{"replay semantics", there.Semantics, here.Semantics},
		{"seed", fmt.Sprint(there.Seed), fmt.Sprint(here.Seed)},
		{"repeat", fmt.Sprint(there.Repeat), fmt.Sprint(here.Repeat)},
	} {
		if f.there != f.here {
			return fmt.Sprintf("%s is %s there and %s here", f.name, f.there, f.here), nil
		}
	}
	for _, f := range []struct {
		name        string
		there, here json.RawMessage
	}{{"replay option", there.Replay, here.Replay}, {"recipe", there.Recipe, here.Recipe}} {
		diff, err := jsonDifference(f.there, f.here)
		if diff != "" || err != nil {
			return strings.TrimSpace(f.name + " " + diff), err
		}
	}
	if there.Facts != here.Facts {
		return fmt.Sprintf("the facts (SHA-256 of --facts) are %s there and %s here", cmp.Or(there.Facts, "the embedded ones"), cmp.Or(here.Facts, "the embedded ones")), nil
	}
	for _, f := range []struct {
		name        string
		there, here int64
	}{
		{"device tokens", there.Pools.DeviceTokens, here.Pools.DeviceTokens},
		{"host tokens", there.Pools.HostTokens, here.Pools.HostTokens},
		{"device bytes", there.Pools.DeviceBytes, here.Pools.DeviceBytes},
		{"host bytes", there.Pools.HostBytes, here.Pools.HostBytes},
	} {
		if f.there != f.here {
			return fmt.Sprintf("the plan has %d %s there and %d here", f.there, f.name, f.here), nil
		}
	}
	if a, b := share(there.ClientLimit), share(here.ClientLimit); a != b {
		return fmt.Sprintf("the client limit is %s there and %s here", a, b), nil
	}
	if a, b := strings.Join(there.UnsafeOverrides, ", "), strings.Join(here.UnsafeOverrides, ", "); a != b {
		return fmt.Sprintf("rules switched off by hand are %q there and %q here", a, b), nil
	}
	return "", nil
}

func corpusName(c record.Corpus) string {
	return fmt.Sprintf("%s (%d traces, fingerprint %.12s)", c.Name, c.Traces, c.Fingerprint)
}

func share(v *float64) string {
	switch {
	case v == nil:
		return "the usual one"
	case *v < 0:
		return "none"
	}
	return fmt.Sprintf("%g %%", 100**v)
}

// jsonDifference is the first path, in order of names, at which two values differ. What one of
// them leaves out is the same as nothing: a program of another date may leave out more.
func jsonDifference(there, here json.RawMessage) (string, error) {
	a, err := tree(there)
	if err != nil {
		return "", err
	}
	b, err := tree(here)
	if err != nil {
		return "", err
	}
	return treeDifference("", a, b), nil
}

func tree(raw json.RawMessage) (any, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	var v any
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	err := d.Decode(&v)
	return v, err
}

func treeDifference(path string, a, b any) string {
	x, isX := a.(map[string]any)
	y, isY := b.(map[string]any)
	if (isX || a == nil) && (isY || b == nil) && (isX || isY) {
		names := maps.Clone(x)
		if names == nil {
			names = map[string]any{}
		}
		maps.Copy(names, y)
		delete(names, "line") // where it stands in its file is not what it says
		for _, k := range slices.Sorted(maps.Keys(names)) {
			if d := treeDifference(strings.TrimPrefix(path+"."+k, "."), x[k], y[k]); d != "" {
				return d
			}
		}
		return ""
	}
	xs, isX := a.([]any)
	ys, isY := b.([]any)
	if isX && isY && len(xs) == len(ys) {
		for i := range xs {
			if d := treeDifference(fmt.Sprintf("%s[%d]", path, i), xs[i], ys[i]); d != "" {
				return d
			}
		}
		return ""
	}
	if s, t := plainJSON(a), plainJSON(b); s != t {
		return strings.TrimSpace(fmt.Sprintf("%s is %s there and %s here", path, s, t))
	}
	return ""
}

// plainJSON is a value as it is written, "none" for one that says nothing.
func plainJSON(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	switch s := string(raw); s {
	case "null", "0", `""`, "false", "[]", "{}":
		return "none"
	default:
		return s
	}
}
