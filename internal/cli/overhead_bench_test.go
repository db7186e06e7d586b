package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirbench/weir/internal/corpus"
	"github.com/weirbench/weir/internal/record"
	"github.com/weirbench/weir/internal/run"
	"github.com/weirbench/weir/internal/spec"
)

// What docs/measured/overhead.md holds: what the controller itself costs.

// externalMaster is a point of a server that is up already.
const externalMaster = `ext:
  image: lmsysorg/sglang:v0.5.16-cu130
  model: nvidia/GLM-5.2-NVFP4
  model-prefix: glm5.2
  runner: cluster:b200-dgxc
  precision: fp4
  framework: sglang
  multinode: false
  weir: { recipe: ready }
  scenarios:
    agentic-coding:
    - search-space:
      - { tp: 8, kv-offloading: none, conc-list: [ %s ] }
`

const benchRunners = "labels:\n  cluster:b200-dgxc: [ b200-dgxc_00 ]\nhardware:\n  cluster:b200-dgxc: { available-cpu-dram-mib: 3_095_781, gpus-per-node: 8 }\n"

// ready is a simulated server that serves, and a folder with a sweep that measures it.
func ready(b *testing.B) (dir string) {
	b.Helper()
	dir = b.TempDir()
	weir, err := exec.LookPath("weir")
	if err != nil {
		b.Fatal(err)
	}
	out, err := os.Create(filepath.Join(dir, "server"))
	if err != nil {
		b.Fatal(err)
	}
	server := exec.Command(weir, "sim", "serve", "--model", "glm-5.2", "--gpu", "b200", "--tp", "8", "--speed", "1000", "--served-model-name", "nvidia/GLM-5.2-NVFP4", "--addr", "127.0.0.1:0")
	server.Stdout = out
	if err := server.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { server.Process.Kill(); server.Wait() })
	url := ""
	for end := time.Now().Add(time.Minute); url == ""; time.Sleep(10 * time.Millisecond) {
		raw, _ := os.ReadFile(out.Name())
		if _, rest, ok := strings.Cut(string(raw), " at "); ok {
			url, _, _ = strings.Cut(rest, "\n")
		}
		if time.Now().After(end) {
			b.Fatal("the server does not serve")
		}
	}
	for name, text := range map[string]string{
		"master.yaml": fmt.Sprintf(externalMaster, "2"), "runners.yaml": benchRunners,
		"ready.yaml": "name: ready\nengine: external\nconsumes: { image: x, precision: x, framework: x, tp: x, model: x }\nexternal: { urls: [ \"" + url + "\" ] }\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
			b.Fatal(err)
		}
	}
	weirOK(b, weir, "corpus", "generate", "-o", filepath.Join(dir, "traces"), "--traces", "100", "--seed", "7")
	return dir
}

func weirOK(b *testing.B, weir string, args ...string) {
	b.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	if out, err := exec.CommandContext(ctx, weir, args...).CombinedOutput(); err != nil {
		b.Fatalf("weir %v: %v\n%s", args, err, out)
	}
}

// BenchmarkFirstRequest is the time from the start of 'weir sweep' to the first request of the
// replay that a server gets which is up already.
func BenchmarkFirstRequest(b *testing.B) {
	dir := ready(b)
	weir, err := exec.LookPath("weir")
	if err != nil {
		b.Fatal(err)
	}
	var worst, sum time.Duration
	for i := range b.N {
		out := filepath.Join(dir, fmt.Sprint("out", i))
		begun := time.Now()
		exec.Command(weir, "sweep", "-f", filepath.Join(dir, "master.yaml"), "-r", filepath.Join(dir, "runners.yaml"), "--recipes", dir,
			"--corpus", filepath.Join(dir, "traces"), "-o", out, "--duration", "1s", "--warmup-requests-per-lane", "0").Run() // a second gives no valid result
		bundles, _ := filepath.Glob(filepath.Join(out, "*", record.PointFile))
		if len(bundles) != 1 {
			b.Fatalf("bundles %v", bundles)
		}
		bundle, err := record.OpenBundle(filepath.Dir(bundles[0]))
		if err != nil {
			b.Fatal(err)
		}
		first := int64(1) << 62
		for r, err := range bundle.Requests() {
			if err != nil {
				b.Fatal(err)
			}
			first = min(first, r.Times.Sent)
		}
		took := time.Unix(0, bundle.Meta.EpochWallNs+first).Sub(begun)
		sum, worst = sum+took, max(worst, took)
	}
	b.ReportMetric(float64(sum.Milliseconds())/float64(b.N), "ms/first-request")
	b.ReportMetric(float64(worst.Milliseconds()), "ms-at-worst")
}

// BenchmarkPoints500 expands, plans and journals five hundred points.
func BenchmarkPoints500(b *testing.B) {
	dir := b.TempDir()
	var conc []string
	for i := range 500 {
		conc = append(conc, strconv.Itoa(i+1))
	}
	text := strings.Replace(fmt.Sprintf(externalMaster, strings.Join(conc, ", ")), "recipe: ready", "recipe: sim-serve", 1)
	text = strings.Replace(text, "kv-offloading: none", "kv-offloading: dram, kv-offload-backend: { name: hicache }", 1)
	text = strings.Replace(text, "    - search-space:", "    - dram-utilization: 0.80\n      search-space:", 1)
	master, runners := filepath.Join(dir, "master.yaml"), filepath.Join(dir, "runners.yaml")
	if err := errors.Join(os.WriteFile(master, []byte(text), 0o666), os.WriteFile(runners, []byte(benchRunners), 0o666)); err != nil {
		b.Fatal(err)
	}
	c, err := corpus.Generate(corpus.GenerateOptions{Seed: 7, Traces: 24})
	if err != nil {
		b.Fatal(err)
	}
	stopped, cancel := context.WithCancel(context.Background())
	cancel()
	for i := 0; b.Loop(); i++ {
		set, err := spec.Load([]string{master}, runners)
		if err != nil {
			b.Fatal(err)
		}
		points, err := set.Points(spec.Selection{})
		if err != nil || len(points) != 500 {
			b.Fatal(err, len(points))
		}
		jobs, err := prepare(points, c, sweepFlags{seed: -1})
		if err != nil {
			b.Fatal(err)
		}
		out := filepath.Join(dir, fmt.Sprint("out", i))
		s := run.Sweep{Dir: out, Jobs: jobs, Executor: run.Virtual{}}
		if _, err := s.Run(stopped); !errors.Is(err, context.Canceled) {
			b.Fatal(err)
		}
		if es, err := run.ReadJournal(filepath.Join(out, run.JournalFile)); err != nil || len(es) != 500 {
			b.Fatalf("%d entries, %v", len(es), err)
		}
	}
}

// cpu is the processor time of a process and of its children that have ended.
func cpu(pid int) time.Duration {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(raw), ") ")
	f := strings.Fields(rest)
	ticks := int64(0)
	for _, i := range []int{11, 12, 13, 14} { // utime, stime, cutime, cstime
		n, _ := strconv.ParseInt(f[i], 10, 64)
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond // USER_HZ is 100 on Linux
}

// idle measures a process for so long, in percent of one processor.
func idle(b *testing.B, pid int, d time.Duration) {
	before, begun := cpu(pid), time.Now()
	time.Sleep(d)
	after := cpu(pid)
	if after == 0 {
		b.Fatal("the controller has ended")
	}
	b.ReportMetric(100*float64(after-before)/float64(time.Since(begun)), "%CPU")
}

// idleFor is how long an idle controller is looked at.
const idleFor = 30 * time.Second

// BenchmarkControllerIdleOnSlurm is the processor time that the controlling process takes while
// a long point runs in its allocation, with that of all commands that it calls.
func BenchmarkControllerIdleOnSlurm(b *testing.B) {
	c := startCluster(b)
	s := c.sweep("idle", "", map[string]string{"a": "@1"})
	args := s.args("--duration", "100s")
	for i, a := range args {
		if a == "--poll" {
			args = append(args[:i:i], args[i+2:]...) // as it is by default
			break
		}
	}
	cmd := exec.Command(c.weir, args...)
	cmd.Env = c.env()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	defer func() { cmd.Process.Signal(os.Interrupt); cmd.Wait() }()
	s.running("a@1")
	for range b.N {
		idle(b, cmd.Process.Pid, idleFor)
	}
}

// BenchmarkControllerIdleHere is the same for a point on this machine, where the process holds
// the client of two agents too.
func BenchmarkControllerIdleHere(b *testing.B) {
	dir := ready(b)
	weir, err := exec.LookPath("weir")
	if err != nil {
		b.Fatal(err)
	}
	out := filepath.Join(dir, "out")
	cmd := exec.Command(weir, "sweep", "-f", filepath.Join(dir, "master.yaml"), "-r", filepath.Join(dir, "runners.yaml"), "--recipes", dir,
		"--corpus", filepath.Join(dir, "traces"), "-o", out, "--duration", "1h", "--warmup-requests-per-lane", "0")
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	defer func() { cmd.Process.Signal(os.Interrupt); cmd.Wait() }()
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
		if raw, _ := os.ReadFile(filepath.Join(out, ".progress.json")); strings.Contains(string(raw), `"Phase":"profiling"`) {
			break
		}
		if time.Now().After(end) {
			b.Fatal("no replay")
		}
	}
	for range b.N {
		idle(b, cmd.Process.Pid, idleFor)
	}
}
