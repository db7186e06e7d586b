package cli

import (
	"net"
	"strings"
	"testing"
)

// TestPortInUse: a simulated server whose port is taken doesn't say that it is ready.
func TestPortInUse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for engine, ready := range map[string]string{"sglang": "fired up", "vllm": "startup complete"} {
		code, out, errOut := weir("sim", "serve", "--engine", engine, "--addr", l.Addr().String())
		if code == exitOK || out != "" || !strings.Contains(errOut, "in use") || strings.Contains(errOut, ready) {
			t.Errorf("%s: exit code %d\n%s%s", engine, code, out, errOut)
		}
	}
}

// TestNoGPUTool: what was chosen is the reason, not what is missing on PATH.
func TestNoGPUTool(t *testing.T) {
	if code, _, errOut := weir("gpu", "--gpu", "none"); code == exitOK || !strings.Contains(errOut, "--gpu none reads no GPUs") || strings.Contains(errOut, "PATH") {
		t.Errorf("exit code %d: %s", code, errOut)
	}
}
