package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirbench/weir/internal/run"
)

// A sweep is a weir sweep on the cluster.
type sweep struct {
	c      *cluster
	dir    string
	master string
	out    string
}

const clusterFleet = `clusters:
  cluster:b200-dgxc:
    scheduler: slurm
    node: { shm: %q }
    slurm: { partition: main, gres: "gpu:8", exclusive: true, time-s: 600%s }
`

// sweep prepares one: configs by name with the changes to the recipe that they run.
func (c *cluster) sweep(name, fleet string, configs map[string]string) *sweep {
	c.t.Helper()
	s := &sweep{c: c, dir: filepath.Join(c.dir, name), master: "", out: filepath.Join(c.dir, name, "out")}
	if _, err := os.Stat(filepath.Join(c.dir, "traces")); err != nil {
		c.weirRun(0, "corpus", "generate", "-o", filepath.Join(c.dir, "traces"), "--traces", "4", "--seed", "7", "--system", "500",
			"--first-input", "1000", "--growth", "200", "--context", "4000", "--sub-agents", "-1")
	}
	c.write(name+"/runners.yaml", "labels:\n  cluster:b200-dgxc: [ b200-dgxc_00 ]\nhardware:\n  cluster:b200-dgxc: { available-cpu-dram-mib: 3_095_781, gpus-per-node: 8 }\n")
	c.write(name+"/fleet.yaml", fmt.Sprintf(clusterFleet, filepath.Join(c.dir, "shm"), fleet))
	for _, key := range slices.Sorted(maps.Keys(configs)) {
		recipe, concs, _ := strings.Cut(configs[key], "@")
		c.write(name+"/r-"+key+".yaml", "name: r-"+key+"\nextends: sim-serve\nready: { start: 5m, drain: 2m, silent: 5m, stop: 1m }\nargs: { speed: 50"+recipe+" }\n")
		s.master += fmt.Sprintf(clusterConfig, key, "r-"+key, concs)
	}
	c.write(name+"/master.yaml", s.master)
	return s
}

// held is a fault of a recipe that lets a point neither end nor fail by itself: its engine answers
// what comes before the load, twenty requests and more, and then nothing more in the warm-up, which
// must have as many (heldWarmup). With a file only the first engine that comes so far does this.
func (c *cluster) held(once string) string {
	if once != "" {
		once = ",once=" + filepath.Join(c.dir, once)
	}
	return fmt.Sprintf(`, fault: "stall,skip=20%s"`, once)
}

// heldUntil is such a fault that ends when a file is made.
func (c *cluster) heldUntil(file string) string {
	return fmt.Sprintf(`, fault: "stall,skip=20,until=%s"`, filepath.Join(c.dir, file))
}

// heldWarmup are the flags of a sweep whose engines are held.
var heldWarmup = []string{"--warmup-requests-per-lane", "60"}

const clusterConfig = `%s:
  image: lmsysorg/sglang:v0.5.16-cu130
  model: nvidia/GLM-5.2-NVFP4
  model-prefix: glm5.2
  runner: cluster:b200-dgxc
  precision: fp4
  framework: sglang
  multinode: false
  weir: { recipe: %s }
  scenarios:
    agentic-coding:
    - dram-utilization: 0.80
      search-space:
      - { tp: 8, kv-offloading: dram, kv-offload-backend: { name: hicache }, conc-list: [ %s ] }
`

func (s *sweep) args(more ...string) []string {
	return append([]string{"sweep", "-f", filepath.Join(s.dir, "master.yaml"), "-r", filepath.Join(s.dir, "runners.yaml"), "--recipes", s.dir,
		"--fleet", filepath.Join(s.dir, "fleet.yaml"), "--corpus", filepath.Join(s.c.dir, "traces"), "-o", s.out, "--poll", "200ms",
		"--duration", "5s", "--client-limit", "none", "--no-gaps", "--max-output", "20", "--warmup-requests-per-lane", "0"}, more...)
}

// begin starts the sweep in the background.
func (s *sweep) begin(more ...string) (*exec.Cmd, *bytes.Buffer) {
	s.c.t.Helper()
	cmd := exec.Command(s.c.weir, s.args(more...)...)
	cmd.Env = s.c.env()
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		s.c.t.Fatal(err)
	}
	return cmd, &out
}

// run runs the sweep to its end, which must have the exit code.
func (s *sweep) run(code int, more ...string) string {
	s.c.t.Helper()
	cmd, out := s.begin(more...)
	return s.wait(cmd, out, code)
}

func (s *sweep) wait(cmd *exec.Cmd, out *bytes.Buffer, code int) string {
	s.c.t.Helper()
	t := time.AfterFunc(8*time.Minute, func() { syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	cmd.Wait()
	t.Stop()
	if got := cmd.ProcessState.ExitCode(); got != code {
		logs, _ := filepath.Glob(filepath.Join(s.out, ".slurm", "*", "*", "out.log"))
		for _, l := range logs {
			raw, _ := os.ReadFile(l)
			s.c.t.Logf("%s:\n%s", l, raw)
		}
		journal, _ := os.ReadFile(filepath.Join(s.out, run.JournalFile))
		s.c.t.Fatalf("the sweep ended with %d, want %d:\n%s\n%s", got, code, out, journal)
	}
	return out.String()
}

func (c *cluster) weirRun(code int, args ...string) string {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.weir, args...)
	cmd.Env = c.env()
	out, _ := cmd.CombinedOutput()
	if got := cmd.ProcessState.ExitCode(); got != code {
		c.t.Fatalf("weir %v ended with %d, want %d:\n%s", args, got, code, out)
	}
	return string(out)
}

// ends is how every point ended, by concurrency and config: "COMPLETE" or its class.
func (s *sweep) ends() map[string]string {
	s.c.t.Helper()
	out := map[string]string{}
	entries, err := os.ReadDir(s.out)
	if err != nil {
		s.c.t.Fatal(err)
	}
	for _, e := range entries {
		dir := filepath.Join(s.out, e.Name())
		if !e.IsDir() || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		var meta struct {
			Point struct {
				Key  string `json:"key"`
				Conc int    `json:"conc"`
			} `json:"point"`
		}
		name := e.Name()
		if raw, err := os.ReadFile(filepath.Join(dir, "point.json")); err == nil && json.Unmarshal(raw, &meta) == nil {
			name = fmt.Sprintf("%s@%d", meta.Point.Key, meta.Point.Conc)
		}
		out[name] = "neither"
		if _, err := os.Stat(filepath.Join(dir, "COMPLETE")); err == nil {
			out[name] = "COMPLETE"
		} else if raw, err := os.ReadFile(filepath.Join(dir, "FAILED")); err == nil {
			var f struct {
				Class string `json:"class"`
			}
			if err := json.Unmarshal(raw, &f); err != nil {
				s.c.t.Fatal(err)
			}
			out[name] = f.Class
		} else if !errors.Is(err, fs.ErrNotExist) {
			s.c.t.Fatal(err)
		}
	}
	return out
}

func (s *sweep) journal() []run.Entry {
	s.c.t.Helper()
	es, err := run.ReadJournal(filepath.Join(s.out, run.JournalFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.c.t.Fatal(err)
	}
	return es
}

// retries are how often the points of a sweep were tried again, as after a node that failed.
func (s *sweep) retries() int {
	n := 0
	for _, e := range s.journal() {
		if e.State == run.Retried {
			n++
		}
	}
	return n
}

func (s *sweep) want(want map[string]string) {
	s.c.t.Helper()
	if got := s.ends(); !maps.Equal(got, want) {
		s.c.t.Errorf("the points ended as %v, want %v", got, want)
		raw, _ := os.ReadFile(filepath.Join(s.out, run.JournalFile))
		s.c.t.Logf("journal:\n%s", raw)
	}
}

// TestClusterSweep runs unified points on a real scheduler: one allocation a point, whole
// bundles, nothing left.
func TestClusterSweep(t *testing.T) {
	c := startCluster(t)
	s := c.sweep("four", "", map[string]string{"glm": "@1, 2, 3, 4"})
	out := s.run(0)
	s.want(map[string]string{"glm@1": "COMPLETE", "glm@2": "COMPLETE", "glm@3": "COMPLETE", "glm@4": "COMPLETE"})
	c.idle()
	jobs := map[string]bool{}
	for _, e := range s.journal() {
		if e.State == run.Submitted {
			jobs[e.Job] = true
		}
	}
	if len(jobs) != 4+s.retries() {
		t.Errorf("%d allocations for four points, %d times tried again:\n%s", len(jobs), s.retries(), out)
	}
	// The same again submits nothing.
	if out := s.run(0); strings.Count(out, "from before") != 4 {
		t.Errorf("the same sweep again says\n%s", out)
	}
}
