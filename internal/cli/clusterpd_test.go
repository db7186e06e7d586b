package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/weirbench/weir/internal/material"
	"github.com/weirbench/weir/internal/plan"
)

// pdConfig is a disaggregated point on one prefill and one decode node.
const pdConfig = `pd:
  image: lmsysorg/sglang:v0.5.16-cu130
  model: nvidia/GLM-5.2-NVFP4
  model-prefix: glm5.2
  runner: cluster:b200-dgxc
  precision: fp4
  framework: sglang-disagg
  kv-p2p-transfer: nixl
  multinode: true
  disagg: true
  weir: { recipe: r-pd }
  scenarios:
    agentic-coding:
    - dram-utilization: 0.80
      search-space:
      - spec-decoding: none
        conc-list: [ 2 ]
        kv-offloading: dram
        kv-offload-backend: { name: hicache }
        prefill: { num-worker: 1, tp: 8, ep: 1, dp-attn: false }
        decode: { num-worker: 1, tp: 8, ep: 1, dp-attn: false }
`

// TestClusterDisaggregated runs a prefill node, a decode node and a router, once with the client
// beside the router and once with the client on a node of its own in a heterogeneous job.
func TestClusterDisaggregated(t *testing.T) {
	material.Slow(t)
	c := startCluster(t)
	for name, fleet := range map[string]string{"pd": "", "het": ", client: own-node"} {
		s := c.sweep(name, fleet, map[string]string{"pd": "@2"})
		c.write(name+"/master.yaml", pdConfig)
		s.run(0)
		s.want(map[string]string{"pd@2": "COMPLETE"})
		c.idle()
		metas, _ := filepath.Glob(filepath.Join(s.out, "*", "point.json"))
		if len(metas) != 1 {
			t.Fatalf("%s: bundles %v", name, metas)
		}
		var meta struct {
			Processes []struct {
				Role, Host string
				Argv       []string
			} `json:"processes"`
		}
		raw, err := os.ReadFile(metas[0])
		if err == nil {
			err = json.Unmarshal(raw, &meta)
		}
		if err != nil {
			t.Fatal(err)
		}
		hosts := map[string]string{}
		for _, p := range meta.Processes {
			hosts[p.Role] = p.Host
			if has := strings.Contains(strings.Join(p.Argv, " "), "--host-tokens"); has != (p.Role == "prefill") {
				t.Errorf("%s: %s has a host pool: %v", name, p.Role, has)
			}
		}
		measuredOnNodes(t, filepath.Dir(metas[0]))
		log, err := os.ReadFile(filepath.Join(filepath.Dir(metas[0]), "logs", "slurm.log"))
		if err != nil {
			t.Fatal(err)
		}
		m := regexp.MustCompile(`client on (\S+)`).FindSubmatch(log)
		if m == nil {
			t.Fatalf("the log does not say where the client ran:\n%s", log)
		}
		client := string(m[1])
		if hosts["prefill"] == "" || hosts["prefill"] == hosts["decode"] || hosts["router"] != hosts["prefill"] {
			t.Errorf("%s: hosts %v", name, hosts)
		}
		if own := client != hosts["prefill"] && client != hosts["decode"]; own != (name == "het") {
			t.Errorf("%s: the client ran on %s, engines on %v", name, client, hosts)
		}
	}
}

// measuredOnNodes wants, in the bundle of a point of two nodes, what the workers' own counters said
// and what the pre-flight of both nodes saw, their clocks among it.
func measuredOnNodes(t *testing.T, bundle string) {
	t.Helper()
	var res struct {
		Hits struct {
			Host  *float64
			Split string `json:"split_from"`
		}
		Pools struct {
			Observed bool
			Host     *int64 `json:"host_tokens"`
		}
	}
	raw, err := os.ReadFile(filepath.Join(bundle, "result.json"))
	if err == nil {
		err = json.Unmarshal(raw, &res)
	}
	if err != nil {
		t.Fatal(err)
	}
	if res.Hits.Host == nil || res.Hits.Split != "counters" || !res.Pools.Observed || res.Pools.Host == nil || *res.Pools.Host <= 0 {
		t.Errorf("hits %+v, pools %+v", res.Hits, res.Pools)
	}
	reports, _ := filepath.Glob(filepath.Join(bundle, "logs", "preflight-*.json"))
	if len(reports) != 2 {
		t.Errorf("pre-flights %v, two nodes ran engines", reports)
	}
	for _, f := range reports {
		raw, err := os.ReadFile(f)
		var rep plan.Report
		if err == nil {
			err = json.Unmarshal(raw, &rep)
		}
		if err != nil || rep.Node == nil || rep.Node.Clock == nil || !rep.Node.Clock.OK {
			t.Errorf("%s: %v: no clock was compared in\n%s", f, err, raw)
		}
	}
}

// TestClusterAttach submits, ends, and takes the sweep up again from another folder; meanwhile
// the state of its points can be asked for.
func TestClusterAttach(t *testing.T) {
	material.Slow(t)
	c := startCluster(t)
	s := c.sweep("attached", "", map[string]string{"glm": c.heldUntil("attached/seen") + "@1, 2, 3, 4"})
	if out := s.run(0, append(heldWarmup, "--slurm-submit-only")...); !strings.Contains(out, "4 of 4 points are submitted") {
		t.Errorf("submitting says\n%s", out)
	}
	out := c.weirRun(0, "sweep", "status", s.out)
	if strings.Count(out, "submitted") != 4 {
		t.Errorf("status says\n%s", out)
	}
	c.until("allocation that replays", 4*time.Minute, func() bool { return strings.Contains(c.weirRun(0, "sweep", "status", s.out, "--json"), `"progress"`) })
	c.write("attached/seen", "")
	c.weirRun(0, "sweep", "attach", s.out)
	s.want(map[string]string{"glm@1": "COMPLETE", "glm@2": "COMPLETE", "glm@3": "COMPLETE", "glm@4": "COMPLETE"})
	out = c.weirRun(0, "sweep", "status", s.out)
	if strings.Count(out, " complete ") != 4 {
		t.Errorf("status says\n%s", out)
	}
	if jobs := c.must("squeue", "--noheader", "--states=all", "--format=%i"); len(strings.Fields(jobs)) != 4+s.retries() {
		t.Errorf("allocations %q for four points", jobs)
	}
	c.idle()
}
