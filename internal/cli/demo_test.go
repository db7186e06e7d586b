package cli

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/weirbench/weir/internal/result"
)

// TestDemoTellsTheStory runs the demo as it ships: the ceiling stays high at every concurrency;
// without offload hits and throughput fall at the highest; with it both stay up.
func TestDemoTellsTheStory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "demo")
	var out, errs bytes.Buffer
	if code := Main([]string{"demo", "--json", "-o", dir}, nil, &out, &errs); code != 0 {
		t.Fatalf("exit code %d: %s", code, errs.String())
	}
	var v struct {
		Results []*result.Result `json:"results"`
	}
	if err := json.Unmarshal(out.Bytes(), &v); err != nil {
		t.Fatal(err)
	}
	var again bytes.Buffer // a second demo in the same folder repeats nothing and says the same
	if code := Main([]string{"demo", "--json", "-o", dir}, nil, &again, &errs); code != 0 || !bytes.Equal(out.Bytes(), again.Bytes()) {
		t.Errorf("a second demo ended with %d: %s", code, errs.String())
	}
	type key struct {
		mode string
		conc int
	}
	hit, tput := map[key]float64{}, map[key]float64{}
	for _, r := range v.Results {
		k := key{r.Point.Offload.Mode, r.Point.Conc}
		if !r.Valid || !r.Simulated {
			t.Errorf("%v: valid %v %v, simulated %v", k, r.Valid, r.Reasons, r.Simulated)
		}
		if *r.Hits.Ceiling <= 0.9 {
			t.Errorf("%v: ceiling %.3f, want above 0.9", k, *r.Hits.Ceiling)
		}
		hit[k], tput[k] = *r.Hits.Total, *r.Throughput.EdgePerGPU.Total
	}
	if len(hit) != 14 {
		t.Fatalf("%d points, want 14", len(hit))
	}
	most := func(mode string) (best int) {
		for k, v := range tput {
			if k.mode == mode && v > tput[key{mode, best}] {
				best = k.conc
			}
		}
		return best
	}
	if h := hit[key{"none", 64}]; h >= 0.25 {
		t.Errorf("without offload the hit rate at 64 is %.3f, want under 0.25", h)
	}
	if most("none") == 64 {
		t.Error("without offload throughput does not fall at 64")
	}
	if h := hit[key{"dram", 64}]; h <= 0.8 {
		t.Errorf("with offload the hit rate at 64 is %.3f, want above 0.8", h)
	}
	if most("dram") != 64 {
		t.Error("with offload throughput does not rise up to 64")
	}
}
