package run

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/weirbench/weir/internal/plan"
)

// TestLeftOn holds what a stop leaves on a real machine against what was there before: a port that
// is served, a process with the mark that left its parent, a file in shared memory that nobody has
// open. A file that a process has open is another's, and an old one is not the point's.
func TestLeftOn(t *testing.T) {
	shm := t.TempDir()
	write := func(name string) string {
		path := filepath.Join(shm, name)
		if err := os.WriteFile(path, []byte("pool"), 0o666); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write("sglang-old")
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	mark := marker + "=" + newToken()
	probe := func(ports ...int) *plan.NodeState {
		return plan.Probe(t.Context(), plan.Request{ShmPath: shm, Ports: ports, Mark: mark, Simulated: true})
	}
	before := probe()
	if left := leftOn(before, before, true); len(left) != 0 {
		t.Fatalf("a machine that is as it was: %q", left)
	}
	write("sglang-left")
	held, err := os.Open(write("vllm_offload_live"))
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	cmd := exec.Command("sleep", "1000")
	cmd.Env = append(os.Environ(), mark)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	left := leftOn(before, probe(l.Addr().(*net.TCPAddr).Port), true)
	if len(left) != 3 || !strings.HasPrefix(left[0], "port ") || !strings.HasSuffix(left[1], "still runs (sleep 1000)") || !strings.Contains(left[2], "sglang-left") {
		t.Errorf("what is left: %q", left)
	}

	gpus := func(used ...int64) *plan.NodeState {
		s := &plan.NodeState{GPUs: &plan.GPUsState{From: "nvidia-smi"}}
		for i, n := range used {
			s.GPUs.GPUs = append(s.GPUs.GPUs, plan.GPUState{Index: i, UsedBytes: n})
		}
		return s
	}
	after := gpus(gpuSlack, 3*gpuSlack, -1)
	if left := leftOn(gpus(0, gpuSlack, 0), after, true); len(left) != 1 || !strings.HasPrefix(left[0], "GPU 1 holds ") {
		t.Errorf("GPU memory: %q", left)
	}
	if left := leftOn(gpus(0, gpuSlack, 0), after, false); len(left) != 0 {
		t.Errorf("GPUs that others share: %q", left)
	}
}
