package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirbench/weir/internal/material"
)

// allowed are the CPUs that the threads of a process may run on, as the kernel lists them.
func allowed(pid int) []string {
	var out []string
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	for _, f := range files {
		raw, err := os.ReadFile(f)
		if err != nil {
			continue // it has just ended
		}
		for line := range strings.Lines(string(raw)) {
			if list, ok := strings.CutPrefix(line, "Cpus_allowed_list:"); ok {
				out = append(out, strings.TrimSpace(list))
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// apart says which CPU is in both of two lists of the kernel's.
func apart(a, b string) error {
	cpus := func(list string) map[int]bool {
		out := map[int]bool{}
		for part := range strings.SplitSeq(list, ",") {
			var lo, hi int
			if n, _ := fmt.Sscanf(part, "%d-%d", &lo, &hi); n < 2 {
				hi = lo
			}
			for ; lo <= hi; lo++ {
				out[lo] = true
			}
		}
		return out
	}
	theirs := cpus(b)
	for c := range cpus(a) {
		if theirs[c] {
			return fmt.Errorf("CPU %d is in both %s and %s", c, a, b)
		}
	}
	return nil
}

// TestClusterCores: with client-cpus, on this machine and in an allocation, no thread of the client
// may run where the engine may and none of the engine where the client may, and the bundle says so.
func TestClusterCores(t *testing.T) {
	material.Slow(t)
	c := startCluster(t)
	for _, scheduler := range []string{"local", "slurm"} {
		t.Run(scheduler, func(t *testing.T) {
			c.t = t
			s := c.sweep(scheduler, " }\n    client-cpus: 1\n    container: { runtime: none", map[string]string{"glm": c.heldUntil(scheduler+"/go") + "@1"})
			if scheduler == "local" {
				c.write("local/fleet.yaml", "clusters:\n  cluster:b200-dgxc: { scheduler: local, client-cpus: 1 }\n")
			}
			cmd, out := s.begin(heldWarmup...)
			client, engine := "", ""
			c.until("engine and client with CPUs of their own", 4*time.Minute, func() bool {
				pid := 0
				for p, text := range c.left() {
					words := strings.Fields(text)
					if len(words) < 2 || filepath.Base(words[0]) != "weir" {
						continue
					}
					if scheduler == "local" && p == cmd.Process.Pid || scheduler == "slurm" && words[1] == "point" {
						pid = p
					}
				}
				engines := c.engines()
				if pid == 0 || len(engines) != 1 {
					return false
				}
				a, b := allowed(pid), allowed(engines[0])
				if len(a) != 1 || len(b) != 1 || apart(a[0], b[0]) != nil {
					return false // some thread is not where it will be
				}
				client, engine = a[0], b[0]
				return true
			})
			c.write(scheduler+"/go", "")
			s.wait(cmd, out, 0)
			s.want(map[string]string{"glm@1": "COMPLETE"})
			c.idle()
			points, _ := filepath.Glob(filepath.Join(s.out, "*", "point.json"))
			if len(points) != 1 {
				t.Fatalf("%d bundles", len(points))
			}
			var meta struct {
				Client    string `json:"client_cpus"`
				Processes []struct {
					CPUs string `json:"cpus"`
				} `json:"processes"`
			}
			raw, err := os.ReadFile(points[0])
			if err == nil {
				err = json.Unmarshal(raw, &meta)
			}
			if err != nil || meta.Client != client || len(meta.Processes) != 1 || meta.Processes[0].CPUs != engine {
				t.Errorf("the bundle says client %q and processes %v (%v), the kernel said %s and %s", meta.Client, meta.Processes, err, client, engine)
			}
		})
	}
}
