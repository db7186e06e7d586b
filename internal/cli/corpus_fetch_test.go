package cli

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/weirbench/weir/internal/corpus"
)

// TestCorpusFetch fetches a data set from a server that plays the hub, uses it, and uses it
// again when the server is gone.
func TestCorpusFetch(t *testing.T) {
	dir := t.TempDir()
	run := func(args ...string) (int, string, string) {
		var out, errOut bytes.Buffer
		code := Main(args, strings.NewReader(""), &out, &errOut)
		return code, out.String(), errOut.String()
	}
	c, err := corpus.Generate(corpus.GenerateOptions{Traces: 3, Turns: 5})
	if err != nil {
		t.Fatal(err)
	}
	lines := filepath.Join(dir, "traces.jsonl")
	if err := corpus.WriteWekaLines(lines, c); err != nil {
		t.Fatal(err)
	}
	body, err := os.ReadFile(lines)
	if err != nil {
		t.Fatal(err)
	}
	const commit = "8fecd2fc56694469f758f0afbbb6335ad3043740"
	const repo = "semianalysisai/cc-traces-weka-062126-256k"
	hub := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("Authorization") != "Bearer t0ken":
			http.Error(w, "no", http.StatusUnauthorized)
		case r.URL.Path == "/api/datasets/"+repo+"/revision/"+commit:
			json.NewEncoder(w).Encode(map[string]any{"sha": commit, "siblings": []any{
				map[string]any{"rfilename": "README.md", "size": 2, "blobId": strings.Repeat("1", 40)},
				map[string]any{"rfilename": "traces.jsonl", "size": len(body), "blobId": strings.Repeat("2", 40),
					"lfs": map[string]any{"sha256": fmt.Sprintf("%x", sha256.Sum256(body)), "size": len(body)}}}})
		case r.URL.Path == "/datasets/"+repo+"/resolve/"+commit+"/traces.jsonl":
			w.Write(body)
		default:
			http.NotFound(w, r)
		}
	}))
	t.Setenv("HF_ENDPOINT", hub.URL)
	t.Setenv("HF_HUB_CACHE", filepath.Join(dir, "hub"))
	t.Setenv("HF_TOKEN", "")
	t.Setenv("HF_HOME", dir)

	if code, _, errOut := run("corpus", "fetch", "agentx-256k"); code != exitFailed || !strings.Contains(errOut, "401 Unauthorized: the hub wants a token") {
		t.Errorf("without a token: %d, %s", code, errOut)
	}
	t.Setenv("HF_TOKEN", "t0ken")
	code, out, errOut := run("corpus", "fetch", "agentx-256k")
	snap := filepath.Join(dir, "hub", "datasets--semianalysisai--cc-traces-weka-062126-256k", "snapshots", commit)
	if code != 0 || !strings.Contains(out, "1 files") || !strings.Contains(out, "use it as: weir corpus stats "+snap) {
		t.Fatalf("%d\n%s%s", code, out, errOut)
	}
	if code, out, errOut := run("corpus", "stats", snap); code != 0 || !strings.Contains(out, c.Fingerprint) {
		t.Errorf("%d\n%s%s", code, out, errOut)
	}
	// AIPerf's flag takes the same data set under its own name, fetches it where it is not there,
	// and says which it was.
	t.Setenv("HF_HUB_CACHE", filepath.Join(dir, "another"))
	url := simServer(t, 4_000_000, 0)
	profile := func(name string) {
		t.Helper()
		artifacts := filepath.Join(dir, name)
		code, _, errOut := run("aiperf", "profile", "--scenario", "inferencex-agentx-mvp", "--url", url, "--model", "glm-5.2", "--concurrency", "2", "--request-count", "8",
			"--benchmark-duration", "2", "--warmup-requests-per-lane", "1", "--trace-idle-gap-cap-seconds", "0.05", "--unsafe-override", "--client-limit", "none", "--no-server-metrics",
			"--public-dataset", "semianalysis-cc-traces-weka-062126-256k", "--output-artifact-dir", artifacts)
		if code != exitOK && code != exitInvalid {
			t.Fatalf("%s: exit code %d: %s", name, code, errOut)
		}
		var got struct {
			Metadata struct{ Dataset map[string]any }
		}
		if err := json.Unmarshal(read(t, artifacts, "profile_export_aiperf.json"), &got); err != nil {
			t.Fatal(err)
		}
		want := map[string]any{"source_type": "public", "loader": "semianalysis_cc_traces_weka_062126_256k", "hf_dataset": repo, "revision": commit, "entries": 3.0, "fingerprint": c.Fingerprint}
		if d := cmp.Diff(want, got.Metadata.Dataset); d != "" {
			t.Errorf("%s: metadata.dataset (-want +got):\n%s", name, d)
		}
	}
	profile("fetched")
	t.Setenv("HF_HUB_OFFLINE", "1")
	profile("offline")
	t.Setenv("HF_HUB_OFFLINE", "")
	t.Setenv("HF_HUB_CACHE", filepath.Join(dir, "hub"))

	hub.Close()
	if code, out, errOut := run("corpus", "fetch", "agentx-256k", "--offline", "--json"); code != 0 || !strings.Contains(out, `"offline": true`) {
		t.Errorf("%d\n%s%s", code, out, errOut)
	}
	if code, out, _ := run("corpus", "fetch"); code != 0 || !strings.Contains(out, "agentx-256k") {
		t.Errorf("%d\n%s", code, out)
	}
	if code, _, errOut := run("corpus", "fetch", "nonsense"); code != exitUsage || !strings.Contains(errOut, "neither an alias nor owner/name") {
		t.Errorf("%d\n%s", code, errOut)
	}
}
