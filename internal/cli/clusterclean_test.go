package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirbench/weir/internal/material"
	"github.com/weirbench/weir/internal/run"
)

// TestClusterClean: a node on which an engine leaves a file in shared memory, and one whose GPUs do
// not give their memory back, fail their point with class node, get no more points, and the point
// is whole on another node. What stands for apptainer leaves those things, at its first and its
// third start.
func TestClusterClean(t *testing.T) {
	material.Slow(t)
	c := startCluster(t)
	bin := filepath.Join(c.dir, "bin")
	tools := map[string]string{
		"apptainer": `#!/bin/sh
echo start >>DIR/starts
case $(wc -l <DIR/starts) in
1) echo left >DIR/shm/sglang-left ;;
3) echo 9000 >DIR/used ;;
esac
shift
while :; do
  case $1 in
  --writable-tmpfs | --nv | --rocm) shift ;;
  --pwd) cd "$2" || exit 1; shift 2 ;;
  --*) shift 2 ;;
  *) break ;;
  esac
done
shift
exec "$@"
`,
		"nvidia-smi": `#!/bin/sh
case "$*" in
*memory.total,memory.used*) echo "0, NVIDIA B200, 183359, $(cat DIR/used)"; echo "1, NVIDIA B200, 183359, 4" ;;
*) exit 1 ;;
esac
`}
	for name, text := range tools {
		c.write("bin/"+name, strings.ReplaceAll(text, "DIR", c.dir))
		if err := os.Chmod(filepath.Join(bin, name), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	c.write("used", "4\n")
	c.write("shm/sglang-old", "of an earlier run\n")
	c.bin = bin + ":"
	s := c.sweep("clean", " }\n    container: { runtime: apptainer", map[string]string{"glm": "@1, 2"})
	s.run(0, "-j", "1")
	s.want(map[string]string{"glm@1": "COMPLETE", "glm@2": "COMPLETE"})
	c.idle()
	var kept, retried []string
	for _, e := range s.journal() {
		switch e.State {
		case run.Quarantined:
			kept = append(kept, fmt.Sprint(e.Nodes, " ", e.Detail))
		case run.Retried:
			retried = append(retried, e.Detail)
		}
	}
	if len(kept) != 2 || len(retried) != 2 {
		t.Fatalf("kept out: %q; tried again: %q", kept, retried)
	}
	for i, want := range []string{filepath.Join(c.dir, "shm", "sglang-left") + " was left", "GPU 0 holds 9.44 GB, "} {
		if !strings.Contains(kept[i], want) || !strings.HasPrefix(retried[i], "node: not clean after the stop: n") || !strings.Contains(retried[i], want) {
			t.Errorf("want %q in both of %q and %q", want, kept[i], retried[i])
		}
		if strings.Contains(kept[i], "sglang-old") || strings.Contains(kept[i], "GPU 1") {
			t.Errorf("what was there before counts: %q", kept[i])
		}
	}
	if kept[0][:4] == kept[1][:4] {
		t.Errorf("a node in quarantine got another point: %q", kept)
	}
}
