package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirbench/weir/internal/result"
)

// TestLengthsOnly puts a corpus that records lengths and no block identities to every command
// that asks what a cache finds, and to load, which sends it and leaves hit rates out.
func TestLengthsOnly(t *testing.T) {
	dir := t.TempDir()
	csv := "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
	for i := range 30 {
		csv += fmt.Sprintf("%d,ChatGPT,%d,%d,%d,Conversation log\n", i, 400+7*i, 20, 420+7*i)
	}
	burst := filepath.Join(dir, "burst.csv")
	if err := os.WriteFile(burst, []byte(csv), 0o666); err != nil {
		t.Fatal(err)
	}
	example := "../../examples/quickstart/"
	raw, err := os.ReadFile(example + "master.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(string(raw), "      - { tp: 8, spec-decoding: mtp, kv-offloading: none", "      # ", 1)
	one := filepath.Join(dir, "master.yaml")
	if err := os.WriteFile(one, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	master := []string{"-f", one, "-r", example + "runners.yaml", "glm5.2-fp4-b200-sglang-agentic"}
	for _, args := range [][]string{
		append([]string{"sweep", "-o", filepath.Join(dir, "s"), "--conc", "1"}, master...),
		append([]string{"point", "-o", filepath.Join(dir, "p"), "--conc", "1"}, master...),
		{"sim", "run", "-c", "1"},
		{"knee", "-c", "1"},
		{"replay", "--url", "http://127.0.0.1:1", "--model", "m", "-c", "1", "--duration", "1m", "-o", filepath.Join(dir, "r")},
	} {
		code, out, errOut := weir(append(args, "--corpus", burst)...)
		if code != exitUsage || out != "" || !strings.Contains(errOut, "needs block identities") || !strings.Contains(errOut, "record lengths only") {
			t.Errorf("weir %s: exit %d\n%s%s", args[0], code, out, errOut)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "[spr]")); len(left) > 0 {
		t.Errorf("refused commands left %v", left)
	}

	code, out, errOut := weir("load", "--url", simServer(t, 120_000, 0), "--model", "glm-5.2", "--mode", "closed", "--corpus", burst,
		"-c", "2", "--client-limit", "none", "--json", "-o", filepath.Join(dir, "b"))
	var got struct{ Result *result.Result }
	if err := json.Unmarshal([]byte(out), &got); err != nil || code != exitOK {
		t.Fatalf("load: exit %d, %v\n%s", code, err, errOut)
	}
	r := got.Result
	if h := r.Hits; h.N != 0 || h.Device != nil || h.Total != nil || h.Ceiling != nil || h.LRUDevice != nil || r.Intervals.HitTotal != nil {
		t.Errorf("hit rates of a corpus without blocks: %+v, %v", h, r.Intervals.HitTotal)
	}
	said := false
	for _, w := range r.Warnings {
		said = said || w.Code == result.LengthsOnly
	}
	if !said || r.Corpus.LengthsOnly != 1 || r.Requests.OK == 0 {
		t.Errorf("warnings %v, corpus %+v, %d requests", r.Warnings, r.Corpus, r.Requests.OK)
	}
}
