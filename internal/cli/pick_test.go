package cli

import (
	"strings"
	"testing"

	"github.com/weirbench/weir/internal/spec"
)

// TestPickPoint: of points with one key and concurrency the message names what tells them apart
// and lists them, and either selector chooses one.
func TestPickPoint(t *testing.T) {
	points := []*spec.Point{
		{Key: "k", Conc: 2, Offload: spec.Offload{Mode: "none"}, Unified: &spec.Parallel{TP: 8, PP: 1, PCP: 1}},
		{Key: "k", Conc: 2, Offload: spec.Offload{Mode: "dram"}, Unified: &spec.Parallel{TP: 8, PP: 1, PCP: 1}},
	}
	ids := []string{points[0].ID(), points[1].ID()}
	_, err := (&pickFlags{}).pick(points, ids, "one is run")
	for _, want := range []string{"2 points are selected, one is run: name one with --offload or --id", ids[0], ids[1], "offload none", "offload dram"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	for _, f := range []pickFlags{{offload: "dram"}, {id: ids[1][:6]}, {id: ids[1], offload: "dram"}} {
		if i, err := f.pick(points, ids, "one is run"); i != 1 || err != nil {
			t.Errorf("%+v chooses %d, %v", f, i, err)
		}
	}
	if _, err := (&pickFlags{id: ids[0], offload: "dram"}).pick(points, ids, "one is run"); err == nil || !strings.Contains(err.Error(), "no point of the selection has --id") {
		t.Error(err)
	}
	points[1].Conc = 4
	if _, err := (&pickFlags{}).pick(points, ids, "one is run"); err == nil || !strings.Contains(err.Error(), "--conc, --offload or --id") {
		t.Error(err)
	}
}

// TestPickedPoint: the commands take the selectors and say them.
func TestPickedPoint(t *testing.T) {
	const example = "../../examples/quickstart/"
	for _, command := range []string{"point -o " + t.TempDir() + "/b --corpus none", "preflight"} {
		base := append(strings.Fields(command), "-f", example+"master.yaml", "-r", example+"runners.yaml", "--conc", "2")
		code, _, errOut := weir(base...)
		if code != exitUsage || !strings.Contains(errOut, "--offload or --id:\n") || !strings.Contains(errOut, "offload dram") {
			t.Errorf("%s: exit code %d: %s", command, code, errOut)
		}
		if _, _, errOut = weir(append(base, "--offload", "dram")...); strings.Contains(errOut, "are selected") {
			t.Errorf("%s: %s", command, errOut)
		}
		if code, _, errOut = weir(append(base, "--id", "zz")...); code != exitUsage || !strings.Contains(errOut, `has --id "zz"`) {
			t.Errorf("%s: exit code %d: %s", command, code, errOut)
		}
	}
}
