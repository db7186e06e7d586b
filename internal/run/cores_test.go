package run

import (
	"slices"
	"strings"
	"testing"

	"github.com/weirbench/weir/internal/engine"
)

// TestSplitCores: the client gets whole cores, so none is shared with an engine's thread, and the
// rest is the engines'; lists are written and read the same.
func TestSplitCores(t *testing.T) {
	pairs := func(c int) []int { return []int{c % 4, c%4 + 4} } // 4 cores of two threads
	for _, c := range []struct {
		allowed         string
		n               int
		client, engines string
	}{
		{"0-7", 1, "3,7", "0-2,4-6"},
		{"0-7", 3, "2-3,6-7", "0-1,4-5"},
		{"0-5", 1, "1,5", "0,2-4"},
		{"0-2", 1, "2", "0-1"},
		{"0-7", 7, "0-7", ""},
	} {
		allowed, err := parseCPUs(c.allowed)
		if err != nil {
			t.Fatal(err)
		}
		client, engines := split(allowed, pairs, c.n)
		if cpuList(client) != c.client || cpuList(engines) != c.engines {
			t.Errorf("%d of %s: client %s, engines %s; want %s and %s", c.n, c.allowed, cpuList(client), cpuList(engines), c.client, c.engines)
		}
	}
	for _, bad := range []string{"", "a", "3-1", "1-", "-1", "0-99999999"} {
		if _, err := parseCPUs(bad); err == nil {
			t.Errorf("%q is read as CPUs", bad)
		}
	}
}

// TestCoresInCommands: only processes of the client's node are kept off its CPUs, and a container
// of a daemon is given its CPUs by the daemon.
func TestCoresInCommands(t *testing.T) {
	c := &Cores{Client: "7", Engines: "0-6", Node: 1}
	if got := strings.Join(c.pin(1, []string{"x"}), " "); got != "taskset --cpu-list 0-6 x" {
		t.Errorf("beside the client: %s", got)
	}
	if got := c.pin(0, []string{"x"}); len(got) != 1 {
		t.Errorf("on another node: %q", got)
	}
	if got := (*Cores)(nil).pin(0, []string{"x"}); len(got) != 1 {
		t.Errorf("without cores: %q", got)
	}
	b := &Box{Runtime: "docker", Image: "i", CPUs: c.on(1)}
	if argv := b.Command(&engine.Process{Name: "p"}, []string{"x"}); !slices.Contains(argv, "--cpuset-cpus") || !slices.Contains(argv, "0-6") {
		t.Errorf("docker: %q", argv)
	}
}
