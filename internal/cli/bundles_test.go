package cli

import (
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/weirbench/weir/internal/record"
	"github.com/weirbench/weir/internal/spec"
)

// writeBundles makes a sweep of three bundles: concurrency 1 and 8 are valid, 64 failed.
func writeBundles(t *testing.T, root string) {
	t.Helper()
	for _, conc := range []int{1, 8, 64} {
		p := spec.Point{Key: "m-fp8-b200-sglang", Model: "o/M", Runner: "b200", Framework: "sglang", Precision: "fp8", Conc: conc,
			Scenario: spec.AgenticCoding, Unified: &spec.Parallel{TP: 8, PP: 1, EP: 1, DCP: 1, PCP: 1}, Offload: spec.Offload{Mode: "none"}}
		w, err := record.CreateBundle(filepath.Join(root, "sweep1", p.ID()))
		if err != nil {
			t.Fatal(err)
		}
		m := record.NewMeta()
		m.PointID = p.ID()
		m.Point, _ = json.Marshal(p)
		m.GPUs.Total = 8
		m.Simulated, m.Virtual = true, true
		m.Window = record.Window{EndNs: 100e9}
		if err := w.WriteMeta(m); err != nil {
			t.Fatal(err)
		}
		for i := range 99 {
			at := int64(i) * 1e9
			q := &record.Request{Seq: uint64(i + 1), Lane: i % conc, Tree: "0.0", Trace: "t", Stream: "t", Turn: i, Phase: record.Profiling, Start: "snapshot",
				WantIn: 1000, WantOut: 11, Times: record.Times{Intended: at, Queued: at, Sent: at, Headers: at, FirstToken: at + 2e8, FirstVisible: at + 2e8, LastToken: at + 3e8, End: at + 3e8},
				PromptTokens: 1000, OutputTokens: 11, ReasoningTokens: 0, Hits: record.Hits{Device: 900, Total: 900}, CeilingTokens: 950}
			if conc == 64 {
				q.Failure = &record.Failure{Class: record.FailStatus, Status: 500}
			}
			if err := w.WriteRequest(q); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Complete(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestResultScripts runs derive, report, results and serve on recorded bundles.
func TestResultScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: filepath.Join("testdata", "results"),
		Setup: func(env *testscript.Env) error {
			writeBundles(t, env.WorkDir)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exitcode": exitcode,
		},
	})
}
