package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/pflag"

	"github.com/weirbench/weir/internal/spec"
)

// pickFlags tell points apart that have the same key and concurrency.
type pickFlags struct{ id, offload string }

func (f *pickFlags) add(fl *pflag.FlagSet) {
	fl.StringVar(&f.id, "id", "", "the point whose id begins with `PREFIX`, as weir plan lists them")
	fl.StringVar(&f.offload, "offload", "", "the point with this offload: none or dram")
}

// pick is the one point that is meant, and its place. ids are those of the points; what names
// what they are for, in the message that lists them.
func (f *pickFlags) pick(points []*spec.Point, ids []string, what string) (int, error) {
	var left []int
	for i, p := range points {
		if strings.HasPrefix(ids[i], f.id) && (f.offload == "" || cmp.Or(p.Offload.Mode, "none") == f.offload) {
			left = append(left, i)
		}
	}
	switch {
	case len(left) == 1:
		return left[0], nil
	case len(left) == 0 && len(points) > 0:
		return 0, usagef("no point of the selection has --id %q and --offload %q; they are\n%s", f.id, f.offload, candidates(points, ids, nil))
	case len(left) == 0:
		return 0, usagef("no point is selected")
	}
	return 0, usagef("%d points are selected, %s: name one with %s:\n%s", len(left), what, ways(points, left), candidates(points, ids, left))
}

// ways are the flags that tell some of the points apart.
func ways(points []*spec.Point, some []int) string {
	var keys, concs, offloads []string
	for _, i := range some {
		p := points[i]
		keys, concs, offloads = append(keys, p.Key), append(concs, fmt.Sprint(p.Conc)), append(offloads, cmp.Or(p.Offload.Mode, "none"))
	}
	differ := func(s []string) bool { slices.Sort(s); return len(slices.Compact(s)) > 1 }
	var out []string
	if differ(keys) {
		out = append(out, "a key")
	}
	if differ(concs) {
		out = append(out, "--conc")
	}
	if differ(offloads) {
		out = append(out, "--offload")
	}
	return alternatives(append(out, "--id"))
}

// mostCandidates is how many points a message lists.
const mostCandidates = 20

func candidates(points []*spec.Point, ids []string, some []int) string {
	if some == nil {
		for i := range points {
			some = append(some, i)
		}
	}
	var b strings.Builder
	tw := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, i := range some[:min(len(some), mostCandidates)] {
		p := points[i]
		_, _, gpus := p.GPUs()
		fmt.Fprintf(tw, "  %s\t%s\tconc %d\toffload %s\t%s\t%s\t%d GPUs\tspec %s\n", ids[i], p.Key, p.Conc, cmp.Or(p.Offload.Mode, "none"), p.Scenario, p.Runner, gpus, cmp.Or(p.SpecDecoding, "none"))
	}
	tw.Flush()
	if n := len(some) - mostCandidates; n > 0 {
		fmt.Fprintf(&b, "  and %d more\n", n)
	}
	return strings.TrimRight(b.String(), "\n")
}
